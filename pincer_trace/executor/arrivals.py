"""What comes to a name with a directory or a symbolic link: every name that is then below it is judged (P29).

A link at a name where one of the user's folders was puts what it leads to in that folder's place, now and later. That a
thing was made in this session lifts no protection there. The links inside count as much as the one at the top.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from pincer_trace.effects import READ, RENAME
from pincer_trace.gateway.provenance import Ancestry, Within
from pincer_trace.gateway.resolve import look
from pincer_trace.paths import is_inside
from pincer_trace.profile import VIEW
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement

_ENTRIES = 100_000  # judged for one call
_SECONDS = 1.0  # the same in time: everybody else waits
_VACATED = 10_000  # names that the links of one call may vacate
_MAX_LINKS = 40  # as the kernel
_TOO_LARGE = "the directory is too large to be judged name by name"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE, _FOLDER, _LINK = range(3)


class _Listed:
    """A directory whose entries were judged, and those of its folders that are still to be: `depth` 1 is the top."""

    __slots__ = ("below", "depth", "descriptor", "folders", "ours")

    def __init__(self, descriptor: int, below: bytes, ours: tuple[int, ...], depth: int) -> None:
        self.descriptor = descriptor
        self.below = below
        self.ours = ours
        self.depth = depth
        self.folders: list[bytes] = []


class _Move:
    """From where to where names go. What a link shows leaves no name: `leaving` is None, and it lies in `place`."""

    __slots__ = ("arriving", "goal", "leaving", "origin", "place", "replaces")

    def __init__(
        self,
        leaving: bytes | None,
        arriving: bytes,
        place: bytes,
        origin: Ancestry | None,
        goal: Ancestry | None,
        *,
        replaces: bool,
    ) -> None:
        self.leaving = leaving
        self.arriving = arriving
        self.place = place
        self.origin = origin
        self.goal = goal
        self.replaces = replaces


class Arrival:
    """All that arrives with one call. `settle` once the call has succeeded."""

    def __init__(self, context: Context, task: Task) -> None:
        self._c = context
        self._task = task
        self._seen = 0
        self._deadline = time.monotonic() + _SECONDS
        self._shown: list[bytes] = []  # directories that a link leads to, judged already
        self._vacates: list[bytes] = []
        self.judged: list[Judgement] = []

    def settle(self) -> None:
        """From now on, where the links lead is the user's place."""
        for path in self._vacates:
            self._c.provenance.vacate(path)

    def directory(self, here: Target, there: Target) -> None:
        """A directory moves from `here` to `there`: its names are judged, the old ones and the new. Raises Denied."""
        c = self._c
        if c.resolver.is_memory(there.parent):
            return
        cares = c.authority.cares_below
        if not (cares(RENAME, here.path) or cares(RENAME, there.path) or cares(READ, here.path)):
            return
        with Ancestry(c.provenance, here.parent) as origin, Ancestry(c.provenance, there.parent) as goal:
            move = _Move(here.path, there.path, there.path, origin, goal, replaces=there.found is not None)
            self._walk(here.parent, here.name, move)

    def link(self, effect: str, there: Target, text: bytes) -> None:
        """A symbolic link with this text comes to `there`, by whatever call. Raises Denied."""
        if self._c.resolver.is_memory(there.parent):
            return
        self.judged += self._c.authority.demand_link(self._task, effect, there)
        if self._is_place(there.path) or is_place(self._c, there):
            self._in_place(there.path, there.path.rpartition(b"/")[0], text, None)

    def _is_place(self, path: bytes) -> bool:
        provenance = self._c.provenance
        return provenance.is_vacated(path) or provenance.holds_vacated(path)

    # -- links -----------------------------------------------------------------------------------------------

    def _in_place(self, path: bytes, place: bytes, text: bytes, move: _Move | None) -> None:
        """A link where one of the user's folders was; it really lies in `place`. `move`: it comes inside of that."""
        c = self._c
        names, real = self._trail(path, place, text)
        self._vacates += [*names, real]
        if len(self._vacates) > _VACATED:
            self._forbid(path, "there are too many links to be judged")
        if move is not None and is_inside(real, move.place):
            if not move.replaces and not c.provenance.is_vacated(move.arriving):
                self._forbid(path, "a link into what is moved with it, where one of the user's folders was")
            return  # judged as it arrives
        if any(is_inside(real, shown) for shown in self._shown):
            return
        if is_inside(place, real) or (is_inside(path, real) and path != real):  # to itself: it leads nowhere
            self._forbid(path, "a link to a directory above it, where one of the user's folders was")
        if c.authority.is_closed_below(real):
            return
        self._shown.append(real)
        above, _, name = real.rpartition(b"/")
        try:
            parent = os.open(above or b"/", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return  # nothing is there yet; what comes there will be judged
        except OSError as error:
            self._forbid(path, f"what the link leads to cannot be looked at: {error.strerror}")
        try:
            found = look(parent, name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                self._walk(parent, name, _Move(None, path, real, None, None, replaces=True))
        finally:
            os.close(parent)

    def _trail(self, path: bytes, place: bytes, text: bytes) -> tuple[list[bytes], bytes]:
        """The links that a link in `place` leads through, and where it ends, which need not exist. Raises Denied."""
        names = []
        here = b"" if text[:1] == b"/" else place.rstrip(b"/")
        pending = text.split(b"/")[::-1]
        while pending:
            part = pending.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                here = here.rpartition(b"/")[0]
                continue
            above, here = here, here + b"/" + part
            try:
                found = os.lstat(here)
                following = os.readlink(here) if stat.S_ISLNK(found.st_mode) else b""
            except OSError:
                continue
            if self._c.resolver.in_procfs(found.st_dev):  # whose /proc/self it would be depends on who looks
                self._forbid(path, "a link by way of /proc, where one of the user's folders was")
            if following:
                names.append(here)
                if len(names) > _MAX_LINKS:
                    break
                here = b"" if following[:1] == b"/" else above
                pending += following.split(b"/")[::-1]
        return names, here or b"/"

    def _forbid(self, path: bytes, reason: str) -> NoReturn:
        self._c.authority.forbid(self._task, RENAME, Target(path), reason)

    # -- directories -----------------------------------------------------------------------------------------

    def _walk(self, parent: int, name: bytes, move: _Move) -> None:
        """Judge every name below `name` in `parent`."""
        try:
            stack = [self._listed(parent, name, b"", (), 1, move)]
        except PermissionError:
            self._forbid(move.arriving, "the directory cannot be looked into")
        try:
            while stack:
                top = stack[-1]
                if not top.folders:
                    os.close(stack.pop().descriptor)
                    continue
                folder = top.folders.pop()
                below = top.below + b"/" + folder
                stack.append(self._listed(top.descriptor, folder, below, top.ours, top.depth + 1, move))
        finally:
            for listed in stack:
                os.close(listed.descriptor)

    def _listed(
        self, parent: int, name: bytes, below: bytes, ours: tuple[int, ...], depth: int, move: _Move
    ) -> _Listed:
        """The directory opened, after its entries were judged."""
        c = self._c
        descriptor = os.open(name, _OPEN, dir_fd=parent)
        try:
            if c.provenance.holds(descriptor):
                ours = (*ours, depth)
            listed = _Listed(descriptor, below, ours, depth)
            for entry, kind in self._entries(descriptor, move):
                self._judge(descriptor, entry, kind, below + b"/" + entry, listed, move)
                if kind == _FOLDER:
                    listed.folders.append(entry)
        except BaseException:
            os.close(descriptor)
            raise
        return listed

    def _entries(self, directory: int, move: _Move) -> list[tuple[bytes, int]]:
        """Names and kinds, within what one call may cost."""
        rows = []
        with os.scandir(directory) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > _ENTRIES:
                    self._forbid(move.leaving or move.arriving, _TOO_LARGE)
                kind = _FILE
                if entry.is_symlink():
                    kind = _LINK
                elif entry.is_dir(follow_symlinks=False):
                    kind = _FOLDER
                rows.append((os.fsencode(entry.name), kind))
        return rows

    def _judge(self, directory: int, name: bytes, kind: int, relative: bytes, listed: _Listed, move: _Move) -> None:
        c = self._c
        if time.monotonic() > self._deadline:
            self._forbid(move.leaving or move.arriving, f"{_TOO_LARGE} in {_SECONDS:.0f} s")
        arriving = move.arriving + relative
        lies = (move.place if move.leaving is None else move.leaving) + relative
        if move.leaving is not None:
            leaving = move.leaving + relative
            if not c.authority.passes(RENAME, leaving):
                above = Within(listed.ours, listed.depth, move.origin)
                target = Target(leaving, parent=directory, name=name, above=above, lies=lies)
                self.judged.append(c.authority.demand(self._task, RENAME, target))
            if kind == _FILE and not c.authority.passes(READ, leaving):
                self._judge_reading(directory, name, leaving, arriving)
        if kind == _LINK or not c.authority.passes(RENAME, arriving):
            above = Within(() if move.replaces else listed.ours, listed.depth, move.goal)
            target = Target(
                arriving,
                parent=directory,
                name=name,
                above=above,
                arrives=True,
                replaces=move.replaces,
                lies=lies,
            )
            self.judged.append(c.authority.demand(self._task, RENAME, target))
            if kind == _LINK:
                self.judged += c.authority.demand_link(self._task, RENAME, target)
                if move.replaces or self._is_place(arriving):
                    self._in_place(arriving, move.place + listed.below, os.readlink(name, dir_fd=directory), move)

    def _judge_reading(self, directory: int, name: bytes, leaving: bytes, arriving: bytes) -> None:
        """A file that is read as a view goes along, perhaps to where it could be read in full. Raises Denied, Asked."""
        authority = self._c.authority
        target = Target(leaving, parent=directory, name=name, found=look(directory, name))
        reading = authority.judge_reading(self._task, READ, target)
        if reading.verdict == VIEW:
            self.judged.append(authority.insist(self._task, RENAME, Target(leaving), authority.in_full(reading)))


def is_place(c: Context, target: Target) -> bool:
    """Whether the name holds a folder, or a link to one, that this session did not make."""
    found = target.found
    if found is None or not (stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return False
    if c.provenance.holds_entry(target.parent, target.name):
        return False
    if stat.S_ISDIR(found.st_mode):
        return True
    if c.provenance.covers(target.parent, 0, 1):
        return False  # a link in a directory of ours has no entry of its own
    try:
        return stat.S_ISDIR(os.stat(target.name, dir_fd=target.parent).st_mode)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
