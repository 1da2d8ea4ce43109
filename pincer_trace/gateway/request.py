"""The canonical request: every field that determines one call's effects, as bytes, in one encoding.

Numbers have a fixed width and byte strings their length in front, in a fixed order: two requests that differ never
share bytes, and none can be read in two ways. (Written with `struct`: as fast as a MessagePack library, whose import
alone would take longer than the rest of a start.) Paths are bytes. What is decided is an HMAC of this, see
`twin.artifact`.
"""

from __future__ import annotations

import stat
import struct

from pincer_trace.effects import EFFECTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pincer_trace.twin.target import Target

    Argument = int | bytes

MAGIC = b"pincer-trace request 1\0"
_COUNT = struct.Struct(">I")
_SUBJECT = struct.Struct(">QQQQ")
_numbers = struct.Struct(">QQI").pack  # flags, mode, how many arguments
_integer = struct.Struct(">cq").pack
_object = struct.Struct(">QQ?QQIqq").pack
_count = _COUNT.pack


_words: dict[str, bytes] = {}


def _word(effect: str) -> bytes:
    """The name of an effect with its length; there are few."""
    word = _words.get(effect)
    if word is None:
        text = effect.encode()
        word = _count(len(text)) + text
        if effect in EFFECTS:
            _words[effect] = word
    return word


class Claim:
    """One effect on one object, as it is described to the evaluators. Immutable by convention.

    `path` is the name by which it is judged; `place` the (device, inode) of its directory and `name` the entry there,
    where it is an entry; `found` the object, None when it is absent. The object's version is its inode, change time
    and size; a directory's own version is left out, since every entry changes it.
    """

    __slots__ = ("_data", "effect", "found", "name", "path", "place")

    def __init__(
        self, effect: str, path: bytes, place: tuple[int, int], name: bytes, found: os.stat_result | None
    ) -> None:
        self.effect = effect
        self.path = path
        self.place = place
        self.name = name
        self.found = found
        self._data = b""

    @classmethod
    def of(cls, effect: str, target: Target) -> Claim:
        """What the gateway, or the executor, knows of it."""
        return cls(effect, target.path, target.place(), target.name, target.found)

    @property
    def data(self) -> bytes:
        """The canonical bytes."""
        if not self._data:
            path, name, found = self.path, self.name, self.found
            device, inode = self.place
            if found is None:
                numbers = _object(device, inode, False, 0, 0, 0, 0, 0)
            else:
                kind, changed, size = stat.S_IFMT(found.st_mode), 0, 0
                if kind != stat.S_IFDIR:
                    changed, size = found.st_ctime_ns, found.st_size
                numbers = _object(device, inode, True, found.st_dev, found.st_ino, kind, changed, size)
            self._data = b"".join((_word(self.effect), _count(len(path)), path, _count(len(name)), name, numbers))
        return self._data


class Request:
    """One call. Immutable by convention: `data` is what is bound, voted on and performed."""

    __slots__ = ("claims", "data", "head", "tail")

    def __init__(self, head: bytes, claims: Sequence[Claim], tail: bytes) -> None:
        self.head = head
        self.claims = claims
        self.tail = tail
        self.data = b"".join((head, _count(len(claims)), *[claim.data for claim in claims], tail))

    @classmethod
    def of(
        cls,
        origin: bytes,
        subject: bytes,
        effect: str,
        claims: Sequence[Claim],
        *,
        flags: int = 0,
        mode: int = 0,
        arguments: Sequence[Argument] = (),
    ) -> Request:
        """`origin` is that of the session and the profile (`origin`), `subject` who asks (`subject`).

        `flags` and `mode` are as the call has them, `arguments` what else it performs with: owners, times, texts.
        """
        tail = [_numbers(flags & 0xFFFFFFFFFFFFFFFF, mode, len(arguments))]
        for argument in arguments:
            if isinstance(argument, int):
                tail.append(_integer(b"i", argument))
            else:
                tail += (b"b", _count(len(argument)), argument)
        return cls(origin + subject + _word(effect), claims, b"".join(tail))


def origin(session: str, program: bytes) -> bytes:
    """The part that is the same for a whole session: its id, and the digest of the profile that decides."""
    name = session.encode()
    return b"".join((MAGIC, _count(len(name)), name, _count(len(program)), program))


def subject(tid: int, start: int, executable: tuple[int, int], path: bytes) -> bytes:
    """Who asks: the thread, when it began (clock ticks since boot), and the (device, inode) and name of its program."""
    return b"".join((_SUBJECT.pack(tid, start, *executable), _count(len(path)), path))
