"""The chain of a ledger: every line ends with a digest over itself and all lines before it; heads of it are signed.

Whoever changes, removes or inserts a line must make all later digests anew, and cannot make the signatures: their key
was in the supervisor's memory only. What follows the last signed head of a run that was killed is chained, not signed.
"""

from __future__ import annotations

from _hashlib import openssl_sha256  # `hashlib` is this and a millisecond of imports

MEMBER = b',"chain":"'  # in front of the digest, at the end of each line
END = b'"}\n'  # behind it
TAIL = len(MEMBER) + 64 + len(END)


def genesis(session_id: str) -> bytes:
    """What comes before the first line (32 bytes): a line of one session fits into no other."""
    return openssl_sha256(b"pincer-trace ledger 1\0" + session_id.encode()).digest()


def link(previous: bytes, text: bytes) -> bytes:
    """The digest (32 bytes) of the line whose text up to the chain member is `text`."""
    return openssl_sha256(previous + text).digest()


def head_message(session_id: str, seq: int, digest: bytes) -> bytes:
    """What a signed head signs: that line `seq` of this session had this digest."""
    return b"pincer-trace head 1\0" + session_id.encode() + b"\0" + seq.to_bytes(8, "big") + digest


class Signer:
    """An Ed25519 key of this session alone, never written anywhere."""

    __slots__ = ("_key", "_session_id")

    def __init__(self, session_id: str) -> None:
        from pincer_trace.kernel.ed25519 import SigningKey

        self._session_id = session_id
        self._key = SigningKey()

    @property
    def public(self) -> str:
        """The public half in hexadecimal, for session.json."""
        return self._key.public.hex()

    def sign(self, seq: int, digest: bytes) -> str:
        """The signature of that head, in hexadecimal."""
        return self._key.sign(head_message(self._session_id, seq, digest)).hex()
