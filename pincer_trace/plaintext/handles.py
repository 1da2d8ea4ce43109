"""The handle store: a random id for each hidden value, and who may have the value for it.

A handle is bound to one principal (the session's tree, or the subtree that the profile names), one session, one
version of one object, the sinks that may have its value, and a time. Equal values get different handles: which of
them are equal is not told. Values are in this store alone, and no `repr` shows one. The time is passed in.
"""

from __future__ import annotations

import os
import re
from base64 import b32encode

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PREFIX = "pincer:"
LENGTH = len(PREFIX) + 26
TTL = 8 * 3600.0  # seconds: a day of work; the version it is bound to usually ends before
MOST = 200_000  # live handles
MOST_BYTES = 64 * 1024 * 1024  # of values, all in all
_TEXT = re.compile(r"pincer:[a-z2-7]{25}[aeimquy4]")  # 128 bits: the last letter has three


_MENTION = re.compile(rb"pincer:[A-Za-z0-9]{8,}+(?:~[0-9]++)?+")  # what was meant as one, too


class Handle:
    """An opaque id of 128 random bits. It says nothing of its value."""

    __slots__ = ("id",)

    def __init__(self, number: bytes) -> None:
        if len(number) != 16:
            raise ValueError("a handle has 16 bytes")
        self.id = number

    @classmethod
    def parse(cls, text: str) -> Handle | None:
        """The handle of its own text form, and of no other text."""
        if _TEXT.fullmatch(text) is None:
            return None
        from base64 import b32decode

        return cls(b32decode(text[len(PREFIX) :].upper() + "======"))

    @property
    def text(self) -> str:
        """`pincer:` and 26 letters: one word to editors, shells and parsers."""
        return PREFIX + b32encode(self.id).decode("ascii").rstrip("=").lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return self.text


def mentioned(text: bytes) -> Iterator[tuple[int, int, Handle | None]]:
    """Where in a text handles are, with the length that may be behind one; None for what is damaged."""
    for found in _MENTION.finditer(text):
        yield *found.span(), Handle.parse(found[0].partition(b"~")[0].decode("ascii"))


class Scope:
    """To what a handle is bound, and what its user claims: principal, session, object, and the object's version.

    `object` and `version` are any values by which the caller knows them: (device, inode, birth time), and (change
    time, size).
    """

    __slots__ = ("object", "principal", "session", "version")

    def __init__(self, principal: str, session: str, object: Hashable, version: Hashable) -> None:
        self.principal = principal
        self.session = session
        self.object = object
        self.version = version

    def __repr__(self) -> str:
        return f"Scope({self.principal!r}, {self.session!r}, {self.object!r}, {self.version!r})"


class Sink:
    """A program or a broker that the profile names: it may have the values whose handles name it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Sink({self.name!r})"


class Save:
    """The write-back of a view to the object that it is of: values go where they came from."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Save()"


class _Record:
    __slots__ = ("expires", "field", "revoked", "scope", "sinks", "value")

    def __init__(self, value: bytes | None, field: str, scope: Scope, sinks: frozenset[str], expires: float) -> None:
        self.value = value
        self.field = field
        self.scope = scope
        self.sinks = sinks
        self.expires = expires
        self.revoked = False


class HandleStore:
    """All live handles of a run. Beyond its bounds the oldest are forgotten, and are unknown from then on."""

    def __init__(
        self, *, most: int = MOST, most_bytes: int = MOST_BYTES, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._records: dict[bytes, _Record] = {}
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._random = random

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"HandleStore({len(self)} handles)"

    def issue(
        self,
        value: bytes,
        *,
        field: str,
        scope: Scope,
        now: float,
        sinks: frozenset[str] = frozenset(),
        ttl: float = TTL,
    ) -> Handle:
        """A fresh handle. `field` is the name to show for it (a key, a line); a value over the bound is not kept."""
        kept = value if len(value) <= self._most_bytes else None
        handle = Handle(self._random(16))
        while handle.id in self._records:
            handle = Handle(self._random(16))
        self._records[handle.id] = _Record(kept, field, scope, sinks, now + ttl)
        self._bytes += len(kept or b"")
        while len(self._records) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._records)))
        return handle

    def _forget(self, number: bytes) -> None:
        self._bytes -= len(self._records.pop(number).value or b"")

    def resolve(self, handle: Handle, scope: Scope, use: Sink | Save, now: float) -> bytes | Refusal:
        """The value, for a sink that may have it or for the save of its own object; else what stands against it."""
        record = self._records.get(handle.id)
        if record is None:
            return Refusal(refusal.UNKNOWN, f"{handle} is no handle of this run")
        bound = record.scope
        if bound.session != scope.session:
            return Refusal(refusal.OTHER_SESSION, f"{handle} belongs to another session")
        if bound.principal != scope.principal:
            return Refusal(refusal.OTHER_PRINCIPAL, f"{handle} was given to another program")
        if bound.object != scope.object:
            return Refusal(refusal.OTHER_OBJECT, f"{handle} ({record.field}) belongs to another file")
        if bound.version != scope.version:
            text = f"{handle} ({record.field}) is of another version of this file; read it again"
            return Refusal(refusal.OTHER_VERSION, text)
        if isinstance(use, Sink) and use.name not in record.sinks:
            return Refusal(refusal.SINK_BLOCKED, f"{handle} ({record.field}) is not for {use.name}")
        return self._value(record, handle, now)

    def reveal(self, handle: Handle, session: str, now: float) -> bytes | Refusal:
        """The value, for the person whose session it is. The caller has asked, and records it."""
        record = self._records.get(handle.id)
        if record is None:
            return Refusal(refusal.UNKNOWN, f"{handle} is no handle of this run")
        if record.scope.session != session:
            return Refusal(refusal.OTHER_SESSION, f"{handle} belongs to another session")
        return self._value(record, handle, now)

    def _value(self, record: _Record, handle: Handle, now: float) -> bytes | Refusal:
        if record.revoked:
            return Refusal(refusal.REVOKED, f"{handle} ({record.field}) was revoked")
        if now >= record.expires:
            return Refusal(refusal.EXPIRED, f"{handle} ({record.field}) is too old; read the file again")
        if record.value is None:
            return Refusal(refusal.TOO_LARGE, f"{handle} ({record.field}) stands for more than is kept in memory")
        return record.value

    def field(self, handle: Handle) -> str | None:
        """The name to show for it, None for one that is not known."""
        record = self._records.get(handle.id)
        return None if record is None else record.field

    def object(self, handle: Handle) -> Hashable | None:
        """That whose value it stands for, None for one that is not known."""
        record = self._records.get(handle.id)
        return None if record is None else record.scope.object

    def revoke(self, handle: Handle) -> bool:
        """Give its value to nobody any more; the value is forgotten. Whether it was known."""
        record = self._records.get(handle.id)
        if record is None:
            return False
        self._bytes -= len(record.value or b"")
        record.value = None
        record.revoked = True
        return True

    def revoke_object(self, object: Hashable) -> int:
        """The same for all handles of one object. How many."""
        mine = [
            number for number, record in self._records.items() if record.scope.object == object and not record.revoked
        ]
        return sum(self.revoke(Handle(number)) for number in mine)

    def sweep(self, now: float) -> int:
        """Forget what expired. How many."""
        old = [number for number, record in self._records.items() if now >= record.expires]
        for number in old:
            self._forget(number)
        return len(old)
