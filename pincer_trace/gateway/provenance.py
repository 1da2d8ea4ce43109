"""Which objects this tree created in this session: what it made in a shared place is its own to change.

An object is known by (device, inode) and its handle, so that a number which the file system gives out again to somebody
else's file does not pass for ours. Where the user's own folders were before the tree moved them is known by name.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left

from pincer_trace.kernel import libc

_NAMELESS = 4096  # objects without a name that are remembered
_REMEMBERED = 16_384  # abstract names, and sockets with a port
_VACATED = 250_000  # names of the user's folders that are remembered; beyond, nothing counts as new any more
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Launch = tuple[list[bytes], list[bytes]]  # arguments and variables

_O_PATH = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW


class Provenance:
    """Belongs to the receiving thread."""

    def __init__(self) -> None:
        self._born: dict[tuple[int, int], bytes] = {}
        self._nameless: dict[tuple[int, int], bytes] = {}
        self._bound: dict[tuple[int, int], bytes] = {}
        self._abstract: dict[bytes, int] = {}
        self._ports: dict[int, None] = {}
        self._launches: dict[tuple[int, ...], Launch] = {}
        self._vacated: set[bytes] = set()
        self._above_vacated: set[bytes] = set()

    def note(self, parent: int, name: bytes) -> os.stat_result | None:
        """The tree has just created `name` in the pinned directory `parent`: what is there; None if nothing is."""
        name = name.rstrip(b"/")
        found = None
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if self._needs_entry(found, parent):
                self._born[found.st_dev, found.st_ino] = libc.object_identity(parent, name)
        except OSError:
            pass
        return found

    def note_descriptor(self, descriptor: int, parent: int) -> os.stat_result:
        """The same for an open descriptor."""
        found = os.fstat(descriptor)
        if self._needs_entry(found, parent):
            self._born[found.st_dev, found.st_ino] = libc.object_identity(descriptor)
        return found

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
        """The same for a file without a name, which may never get one."""
        found = os.fstat(descriptor)
        self._note_nameless((found.st_dev, found.st_ino), libc.object_identity(descriptor))

    def _note_nameless(self, key: tuple[int, int], identity: bytes) -> None:
        """The few thousand that were asked about last are remembered."""
        self._nameless.pop(key, None)
        self._nameless[key] = identity
        if len(self._nameless) > _NAMELESS:
            del self._nameless[next(iter(self._nameless))]

    def note_leaving(self, parent: int, name: bytes) -> None:
        """A file of ours is about to lose its last name, in a directory of ours that spoke for it until now."""
        descriptor = os.open(name, _O_PATH, dir_fd=parent)
        try:
            self.note_nameless(descriptor)
        finally:
            os.close(descriptor)

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
        """The last name of an object goes away. Who has it open may go on to change it: a temporary file, often."""
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            key = (found.st_dev, found.st_ino)
            identity = self._born.pop(key, None)
            if identity is not None:
                self._note_nameless(key, identity)
            self._bound.pop(key, None)

    def holds(self, descriptor: int) -> bool:
        """Whether exactly this object is ours."""
        found = os.fstat(descriptor)
        key = (found.st_dev, found.st_ino)
        noted = self._born.get(key)
        if noted is None and (noted := self._nameless.get(key)) is not None:
            self._note_nameless(key, noted)
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

    # -- sockets ---------------------------------------------------------------------------------------------

    def note_socket(self, parent: int, name: bytes) -> None:
        """The tree has just bound a socket to `name` in the pinned directory `parent`."""
        found = self.note(parent, name)
        if found is not None and stat.S_ISSOCK(found.st_mode):
            try:
                self._bound[found.st_dev, found.st_ino] = libc.object_identity(parent, name.rstrip(b"/"))
            except OSError:
                pass  # not known to be ours

    def has_bound(self, descriptor: int) -> bool:
        """Whether the tree bound exactly this socket. That the tree made a directory above it says nothing: a socket of
        somebody else's can be moved there, or get a second name.
        """
        found = os.fstat(descriptor)
        noted = self._bound.get((found.st_dev, found.st_ino))
        return noted is not None and noted == libc.object_identity(descriptor)

    def note_abstract(self, peer: bytes, inode: int) -> None:
        """The tree has just bound its socket `inode` to the abstract name that rules call `peer`."""
        remember(self._abstract, peer, inode)

    def note_port(self, inode: int) -> None:
        """The tree has just bound its socket `inode` to a port."""
        remember(self._ports, inode, None)

    def has_ports(self, inodes: Sequence[int]) -> bool:
        """Whether the tree bound all of these sockets, and there are some."""
        return bool(inodes) and all(inode in self._ports for inode in inodes)

    def bound_abstract(self, peer: bytes) -> int:
        """The inode of the socket that the tree last bound to this abstract name; 0 for none."""
        return self._abstract.get(peer, 0)

    # -- programs --------------------------------------------------------------------------------------------

    def note_launch(self, image: tuple[int, ...], launch: Launch) -> None:
        """The tree has just started this program so."""
        remember(self._launches, image, launch)

    def launch(self, image: tuple[int, ...]) -> Launch | None:
        """How it was started, before code of its own ran; None where that is not known."""
        return self._launches.get(image)

    # -- directories -----------------------------------------------------------------------------------------

    def covers(self, directory: int, skip: int, count: int) -> bool:
        """Whether one of `count` directories is ours: the one `skip` levels above `directory`, and those above it."""
        if not self._born:
            return False
        with Ancestry(self, directory) as ancestry:
            return ancestry.covers(skip, count)

    # -- names -----------------------------------------------------------------------------------------------

    def vacate(self, path: bytes) -> None:
        """A folder of the user's, or a link to one, left this name; or a link at such a name leads here now.

        What comes here, or below, is in a place that the user knows: that the tree made it lifts no protection.
        """
        if len(self._vacated) >= _VACATED or self.is_vacated(path):
            return
        self._vacated.add(path)
        while len(path) > 1:
            path = path.rpartition(b"/")[0]
            if path in self._above_vacated:
                break
            self._above_vacated.add(path)

    def is_vacated(self, path: bytes) -> bool:
        """Whether this name, or one above it, was vacated."""
        if len(self._vacated) >= _VACATED:
            return True
        end = 0 if self._vacated else -1
        while end >= 0:  # downwards: most paths soon leave the directories that hold vacated names
            end = path.find(b"/", end + 1)
            above = path if end < 0 else path[:end]
            if above in self._vacated:
                return True
            if above not in self._above_vacated:
                return False
        return False

    def holds_vacated(self, path: bytes) -> bool:
        """Whether a vacated name lies below this one."""
        return path in self._above_vacated


def remember(known: dict[Any, Any], key: object, value: object, most: int = _REMEMBERED) -> None:
    """As the newest of a bounded number."""
    known.pop(key, None)
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


class Ancestry:
    """Which of the directories from one upwards are ours. Climbed once, as far as somebody asks, within `with`."""

    def __init__(self, provenance: Provenance, directory: int) -> None:
        self.directory = directory  # the caller's, for as long as this is used
        self._provenance = provenance
        self._here = os.dup(directory)
        self._known = 0  # levels that were looked at
        self._ours: list[int] = []  # those of them that are ours
        self._top = False

    def covers(self, skip: int, count: int) -> bool:
        """Whether one of `count` levels is ours, from `skip` levels above the first one (0: itself) upwards."""
        end = skip + count
        while True:
            at = bisect_left(self._ours, skip)
            if at < len(self._ours):
                return self._ours[at] < end
            if self._top or self._known >= end:
                return False
            self._climb()

    def _climb(self) -> None:
        if self._provenance.holds(self._here):
            self._ours.append(self._known)
        self._known += 1
        below = os.fstat(self._here)
        above = os.open("..", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=self._here)
        os.close(self._here)
        self._here = above
        self._top = os.path.samestat(os.fstat(above), below)

    def __enter__(self) -> Ancestry:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._here)


class Within:
    """The same for a directory inside of one that moves: `ours` are the depths that are ours, the one that moves has 1,
    this one `depth`; above them come those of `outer`, or none.
    """

    def __init__(self, ours: tuple[int, ...], depth: int, outer: Ancestry | None) -> None:
        self._ours = ours
        self.depth = depth
        self.outer = outer

    def covers(self, skip: int, count: int) -> bool:
        """As `Ancestry.covers`."""
        highest = self.depth - skip
        at = bisect_left(self._ours, max(highest - count + 1, 1))
        if at < len(self._ours) and self._ours[at] <= highest:
            return True
        if self.outer is None:
            return False
        beyond = max(skip - self.depth, 0)
        rest = skip + count - self.depth - beyond
        return rest > 0 and self.outer.covers(beyond, rest)
