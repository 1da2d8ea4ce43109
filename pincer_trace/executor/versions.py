"""What saved files held before: in memory, until the session ends, for the person who wants it back.

What the person had is kept longest: it gives way only when nothing is left of what saves of the session made.
"""

from __future__ import annotations

import os
import stat
import time
from _hashlib import openssl_sha256
from _thread import allocate_lock

_MOST = 1000
_MOST_BYTES = 64 * 1024 * 1024


class Version:
    """One of them. `number` is what a person calls it by."""

    __slots__ = ("content", "mode", "number", "path", "replaced", "time")

    def __init__(self, number: int, path: bytes, content: bytes, found: os.stat_result) -> None:
        self.number = number
        self.path = path
        self.content = content
        self.mode = stat.S_IMODE(found.st_mode)
        self.replaced = found.st_dev, found.st_ino
        self.time = time.time()


class Versions:
    """Kept by the receiving thread, asked for by any."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._mutex = allocate_lock()
        self._most, self._most_bytes = most, most_bytes
        self._found: dict[int, Version] = {}  # what the person had
        self._made: dict[int, Version] = {}  # what a save had made
        self._ours: dict[tuple[int, int], bytes] = {}  # digests of what saves made, by the object that has it still
        self._count = 0
        self._bytes = 0

    def keep(self, path: bytes, content: bytes, found: os.stat_result) -> None:
        """Remember what is about to go. Where there is too much, the oldest go that saves made, then the oldest."""
        with self._mutex:
            self._count += 1
            version = Version(self._count, path, content, found)
            ours = self._ours.pop(version.replaced, b"") == openssl_sha256(content).digest()
            kept = self._made if ours else self._found
            kept[self._count] = version
            self._bytes += len(content)
            while len(self._found) + len(self._made) > self._most or self._bytes > self._most_bytes:
                fullest = self._made or self._found
                self._bytes -= len(fullest.pop(next(iter(fullest))).content)

    def note_made(self, content: bytes, found: os.stat_result) -> None:
        """A save has just made this object. Its times are no sign of whose it is: the tree can set them."""
        with self._mutex:
            self._ours[found.st_dev, found.st_ino] = openssl_sha256(content).digest()

    def all(self) -> list[Version]:
        """The newest last."""
        with self._mutex:
            kept = {**self._found, **self._made}
        return [kept[number] for number in sorted(kept)]

    def get(self, number: int) -> Version | None:
        """The one of this number."""
        with self._mutex:
            return self._found.get(number) or self._made.get(number)
