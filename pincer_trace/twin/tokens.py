"""The confirmation token: that a person said yes, bound to exactly one action, profile and request.

It is minted for a request that meets a grant, and checked by the executor (its seventh check). One key, one label.
"""

from __future__ import annotations

from _hashlib import compare_digest, hmac_digest

_LABEL = b"pincer-trace confirmation token 1\0"
_ACTION, _DIGEST = 16, 32  # bytes: the action id a; p and h
_KEY = 32  # at least


def mint(key: bytes, a: bytes, p: bytes, h: bytes) -> bytes:
    """The token for action `a` under profile `p` for request `h`. Raises ValueError on anything of another length."""
    if len(key) < _KEY:
        raise ValueError(f"a confirmation key has at least {_KEY} bytes")
    if (len(a), len(p), len(h)) != (_ACTION, _DIGEST, _DIGEST):
        raise ValueError("an action id has 16 bytes, a profile's and a request's digest 32")
    return hmac_digest(key, _LABEL + a + p + h, "sha256")


def check(key: bytes, token: bytes, a: bytes, p: bytes, h: bytes) -> bool:
    """Whether `token` was minted for exactly these, in constant time."""
    return type(token) is bytes and compare_digest(mint(key, a, p, h), token)
