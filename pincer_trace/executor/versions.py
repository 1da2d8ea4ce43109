"""What saved files held before: in memory, until the session ends, for the person who wants it back."""

from __future__ import annotations

import os
import stat
import time
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

    def __init__(self) -> None:
        self._mutex = allocate_lock()
        self._kept: dict[int, Version] = {}
        self._count = 0
        self._bytes = 0

    def keep(self, path: bytes, content: bytes, found: os.stat_result) -> None:
        """Remember what is about to be replaced. The oldest go where there are too many."""
        with self._mutex:
            self._count += 1
            self._kept[self._count] = Version(self._count, path, content, found)
            self._bytes += len(content)
            while len(self._kept) > _MOST or self._bytes > _MOST_BYTES:
                self._bytes -= len(self._kept.pop(next(iter(self._kept))).content)

    def all(self) -> list[Version]:
        """The newest last."""
        with self._mutex:
            return list(self._kept.values())

    def get(self, number: int) -> Version | None:
        """The one of this number."""
        with self._mutex:
            return self._kept.get(number)
