"""Votes as artifacts: what an evaluator signs, under which key, and how long it counts.

An artifact is a pair of shares over the same (a, p, h, time, verdict): action id, digest of the profile, and the keyed
digest of the request. Every share has its evaluator's own key (PAPER sections 1.2 and 1.3). All keys come from one root
of this session, which is never written anywhere.
"""

from __future__ import annotations

import struct
from _hashlib import hmac_digest, openssl_sha256
from os import urandom
from time import CLOCK_BOOTTIME, clock_gettime_ns

from pincer_trace.profile import DENY
from pincer_trace.profile.model import STRICTNESS

LEFT, RIGHT, INTENT = "left", "right", "intent"
_SHARE = struct.Struct(">21sB16s32s32sQB").pack
_LABEL = b"pincer-trace share 1\0"
_ids: list[bytes] = []  # drawn already: one system call for many
_AT_ONCE = 64
_BLOCK = 64  # bytes that SHA-256 takes at a time
_BY = {LEFT: 0, RIGHT: 1}


def strictest(*verdicts: str) -> str:
    """Deny beats confirm beats allow; without any, deny."""
    return max(verdicts, key=STRICTNESS.__getitem__, default=DENY)


def now() -> int:
    """Nanoseconds since boot, sleep included: the clock of freshness. Nobody can set it."""
    return clock_gettime_ns(CLOCK_BOOTTIME)


def action_id() -> bytes:
    """A fresh 128-bit id."""
    if not _ids:
        fresh = urandom(16 * _AT_ONCE)
        _ids.extend(fresh[at : at + 16] for at in range(0, len(fresh), 16))
    return _ids.pop()


class Keys:
    """The keys of one session, by HKDF-Expand (RFC 5869) with a label each."""

    __slots__ = ("bind", "confirm", "left", "right")

    def __init__(self, root: bytes | None = None) -> None:
        root = urandom(32) if root is None else root
        self.bind = Mac(derive(root, b"bind"))
        self.left = Mac(derive(root, b"left"))
        self.right = Mac(derive(root, b"right"))
        self.confirm = derive(root, b"confirm")


class OwnKeys:
    """What the right evaluator needs of them: its own, and the one that requests are bound with."""

    __slots__ = ("bind", "right")

    def __init__(self, bind: bytes, right: bytes) -> None:
        self.bind = Mac(bind)
        self.right = Mac(right)

    @staticmethod
    def derive(root: bytes) -> tuple[bytes, bytes]:
        """Both, as bytes that can be handed over."""
        return derive(root, b"bind"), derive(root, b"right")


def derive(root: bytes, label: bytes) -> bytes:
    """32 bytes for this purpose alone."""
    return hmac_digest(root, b"pincer-trace " + label + b"\x01", "sha256")


class Mac:
    """HMAC-SHA256 under one key of at most 64 bytes. The last answer is kept: whoever checks what was just made asks
    the same again. Both half-hashed pads are kept too, which is twice as fast as a call that begins with the key.
    """

    __slots__ = ("_inner", "_message", "_outer", "_tag")

    def __init__(self, key: bytes) -> None:
        key = key.ljust(_BLOCK, b"\0")
        self._inner = openssl_sha256(bytes(byte ^ 0x36 for byte in key))
        self._outer = openssl_sha256(bytes(byte ^ 0x5C for byte in key))
        self._message: bytes | None = None
        self._tag = b""

    def tag(self, message: bytes) -> bytes:
        """32 bytes."""
        if message == self._message:
            return self._tag
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        self._message, self._tag = message, outer.digest()
        return self._tag


class Share:
    """One evaluator's signed vote. `time` is that of `now`."""

    __slots__ = ("action", "by", "digest", "mac", "program", "time", "verdict")

    def __init__(
        self, by: str, action: bytes, program: bytes, digest: bytes, time: int, verdict: str, mac: bytes
    ) -> None:
        self.by = by
        self.action = action
        self.program = program
        self.digest = digest
        self.time = time
        self.verdict = verdict
        self.mac = mac

    @classmethod
    def sign(cls, key: Mac, by: str, action: bytes, program: bytes, digest: bytes, time: int, verdict: str) -> Share:
        """A vote under this evaluator's key."""
        message = _SHARE(_LABEL, _BY[by], action, program, digest, time, STRICTNESS[verdict])
        return cls(by, action, program, digest, time, verdict, key.tag(message))

    def message(self) -> bytes:
        """What the MAC is over. Raises struct.error, KeyError, TypeError where a field is none."""
        verdict = STRICTNESS[self.verdict]
        return _SHARE(_LABEL, _BY[self.by], self.action, self.program, self.digest, self.time, verdict)
