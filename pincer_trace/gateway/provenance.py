"""Which objects this tree created in this session: what it made in a shared place is its own to change.

An object is known by (device, inode) and its birth time, so that a number which the file system gives out again to
somebody else's file does not pass for ours.
"""

from __future__ import annotations

import os
import stat

from pincer_trace.kernel import libc

_O_PATH = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW


class Provenance:
    """Belongs to the receiving thread."""

    def __init__(self) -> None:
        self._born: dict[tuple[int, int], int] = {}

    def note(self, parent: int, name: bytes) -> None:
        """The tree has just created `name` in the pinned directory `parent`."""
        try:
            descriptor = os.open(name.rstrip(b"/"), _O_PATH, dir_fd=parent)
        except OSError:
            return
        try:
            self.note_descriptor(descriptor, parent)
        finally:
            os.close(descriptor)

    def note_descriptor(self, descriptor: int, parent: int) -> None:
        """The same for an open descriptor. A file in a directory of ours needs no entry of its own."""
        found = os.fstat(descriptor)
        if not stat.S_ISDIR(found.st_mode):
            above = os.fstat(parent)
            if (above.st_dev, above.st_ino) in self._born:
                return
        self._born[found.st_dev, found.st_ino] = libc.birth_time(descriptor)[0]

    def keep(self, parent: int, name: bytes) -> None:
        """An object of ours is about to leave its directory: from now on it needs an entry of its own."""
        try:
            descriptor = os.open(name.rstrip(b"/"), _O_PATH, dir_fd=parent)
        except OSError:
            return
        try:
            found = os.fstat(descriptor)
            self._born[found.st_dev, found.st_ino] = libc.birth_time(descriptor)[0]
        finally:
            os.close(descriptor)

    def forget(self, found: os.stat_result) -> None:
        """The last name of an object goes away."""
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            self._born.pop((found.st_dev, found.st_ino), None)

    def holds(self, descriptor: int) -> bool:
        """Whether exactly this object is ours."""
        found = os.fstat(descriptor)
        born = self._born.get((found.st_dev, found.st_ino))
        return born is not None and born == libc.birth_time(descriptor)[0]

    def holds_entry(self, parent: int, name: bytes) -> bool:
        """Whether the object that `name` in `parent` now holds (not followed) is ours."""
        try:
            descriptor = os.open(name.rstrip(b"/") or b".", _O_PATH, dir_fd=parent)
        except OSError:
            return False
        try:
            return self.holds(descriptor)
        finally:
            os.close(descriptor)

    def covers(self, directory: int, skip: int, count: int) -> bool:
        """Whether one of `count` directories is ours: the one `skip` levels above `directory`, and those above it."""
        if not self._born:
            return False
        here = os.dup(directory)
        try:
            for level in range(skip + count):
                if level >= skip and self.holds(here):
                    return True
                above = os.open("..", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = above
            return False
        finally:
            os.close(here)
