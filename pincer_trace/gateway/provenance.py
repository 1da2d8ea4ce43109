"""Which objects this tree created in this session: what it made in a shared place is its own to change.

An object is known by (device, inode) and its handle, so that a number which the file system gives out again to somebody
else's file does not pass for ours.
"""

from __future__ import annotations

import os
import stat

from pincer_trace.kernel import libc

_NAMELESS = 4096  # files without a name that are remembered
_O_PATH = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW


class Provenance:
    """Belongs to the receiving thread."""

    def __init__(self) -> None:
        self._born: dict[tuple[int, int], bytes] = {}
        self._nameless: dict[tuple[int, int], bytes] = {}

    def note(self, parent: int, name: bytes) -> None:
        """The tree has just created `name` in the pinned directory `parent`."""
        name = name.rstrip(b"/")
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if self._needs_entry(found, parent):
                self._born[found.st_dev, found.st_ino] = libc.object_identity(parent, name)
        except OSError:
            return

    def note_descriptor(self, descriptor: int, parent: int) -> None:
        """The same for an open descriptor."""
        found = os.fstat(descriptor)
        if self._needs_entry(found, parent):
            self._born[found.st_dev, found.st_ino] = libc.object_identity(descriptor)

    def _needs_entry(self, found: os.stat_result, parent: int) -> bool:
        """A file in a directory of ours needs no entry of its own."""
        if stat.S_ISDIR(found.st_mode):
            return True
        above = os.fstat(parent)
        return (above.st_dev, above.st_ino) not in self._born

    def note_object(self, descriptor: int) -> None:
        """The same for an object that lies in no directory."""
        found = os.fstat(descriptor)
        self._born[found.st_dev, found.st_ino] = libc.object_identity(descriptor)

    def note_nameless(self, descriptor: int) -> None:
        """The same for a file without a name, which may never get one: the last few thousand are remembered."""
        found = os.fstat(descriptor)
        self._nameless[found.st_dev, found.st_ino] = libc.object_identity(descriptor)
        if len(self._nameless) > _NAMELESS:
            del self._nameless[next(iter(self._nameless))]

    def keep(self, parent: int, name: bytes) -> None:
        """An object of ours is about to leave its directory: from now on it needs an entry of its own."""
        try:
            descriptor = os.open(name.rstrip(b"/"), _O_PATH, dir_fd=parent)
        except OSError:
            return
        try:
            found = os.fstat(descriptor)
            self._born[found.st_dev, found.st_ino] = libc.object_identity(descriptor)
        finally:
            os.close(descriptor)

    def forget(self, found: os.stat_result) -> None:
        """The last name of an object goes away."""
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            self._born.pop((found.st_dev, found.st_ino), None)

    def holds(self, descriptor: int) -> bool:
        """Whether exactly this object is ours."""
        found = os.fstat(descriptor)
        key = (found.st_dev, found.st_ino)
        noted = self._born.get(key) or self._nameless.get(key)
        return noted is not None and noted == libc.object_identity(descriptor)

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
                root = os.path.samestat(os.fstat(above), os.fstat(here))
                os.close(here)
                here = above
                if root:
                    return False
            return False
        finally:
            os.close(here)
