"""Ed25519 signatures by the libcrypto that Python's own `_hashlib` has loaded: the start has no time for a package.

Where that library is not there by its usual name, the `cryptography` package does it. EVP_SIGNATURE-ED25519(7),
EVP_DigestSign(3)
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1")
_ED25519 = 1087  # EVP_PKEY_ED25519, <openssl/evp.h>
_KEY, _SIGNATURE = 32, 64  # bytes
_pointer = ctypes.c_void_p


class SigningKey:
    """A new key that never leaves this object. `public` is its public half, 32 bytes."""

    __slots__ = ("_sign", "public")

    def __init__(self) -> None:
        self._sign, self.public = _by_libcrypto(os.urandom(_KEY)) or _by_package()

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes. Raises OSError when the library fails."""
        return self._sign(message)


def _by_libcrypto(seed: bytes) -> tuple[Callable[[bytes], bytes], bytes] | None:
    library = _load()
    if library is None:
        return None
    key = library.EVP_PKEY_new_raw_private_key(_ED25519, None, seed, _KEY)
    public, size = ctypes.create_string_buffer(_KEY), ctypes.c_size_t(_KEY)
    if not key or library.EVP_PKEY_get_raw_public_key(_pointer(key), public, ctypes.byref(size)) != 1:
        return None

    def sign(message: bytes) -> bytes:
        signature, size = ctypes.create_string_buffer(_SIGNATURE), ctypes.c_size_t(_SIGNATURE)
        context = _pointer(library.EVP_MD_CTX_new())
        try:
            if (
                not context
                or library.EVP_DigestSignInit(context, None, None, None, _pointer(key)) != 1
                or library.EVP_DigestSign(
                    context, signature, ctypes.byref(size), message, ctypes.c_size_t(len(message))
                )
                != 1
            ):
                raise OSError("libcrypto cannot sign")
        finally:
            library.EVP_MD_CTX_free(context)
        return signature.raw

    return sign, public.raw


def _load() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            for function in ("EVP_PKEY_new_raw_private_key", "EVP_MD_CTX_new"):
                getattr(library, function).restype = _pointer
            library.EVP_PKEY_new_raw_private_key.argtypes = (ctypes.c_int, _pointer, ctypes.c_char_p, ctypes.c_size_t)
            return library
        except (OSError, AttributeError):
            continue
    return None


def _by_package() -> tuple[Callable[[bytes], bytes], bytes]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return key.sign, key.public_key().public_bytes_raw()
