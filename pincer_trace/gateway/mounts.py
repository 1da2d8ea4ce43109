"""Mounts and roots that the run makes of its own, where its profile lets it (`floor = "scoped"`; hazards P24, P25).

A bind mount gives anything on this machine another name. So what was reached through a mount that is not ours is found
again by our own names: there the kernel must show the same object of the same file system. That second pin is judged,
climbed from and named; the first is what is opened, so that the flags of its mount hold as the kernel holds them. Any
name that passes this comparison is a true one, whatever was read on the way to it.

What cannot be found so is refused, but for file systems that we have mounted for the run: they begin empty, and nobody
outside of the run can reach them.
"""

from __future__ import annotations

import errno
import os
import select

from pincer_trace.gateway.provenance import remember
from pincer_trace.gateway.resolve import Forbidden
from pincer_trace.kernel import libc, procfs
from pincer_trace.paths import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.tasks import Task

PROCFS = b"proc"
MEMORY = frozenset({b"tmpfs", b"devpts", b"mqueue"})  # they hold nothing but what the run puts there
_O_PATH = os.O_PATH | os.O_CLOEXEC
_TWIN = libc.how(_O_PATH | os.O_NOFOLLOW, 0, libc.RESOLVE_NO_MAGICLINKS | libc.RESOLVE_NO_SYMLINKS)
# Of each type, the number by which the kernel calls it. <linux/magic.h>
_TYPES = {b"tmpfs": 0x01021994, b"devpts": 0x1CD1, b"mqueue": 0x19800202, PROCFS: 0x9FA0}
_MADE = 4096  # file systems that are remembered
_ROWS = 4096  # the same of mounts
# Of what has no name, so that nobody mounts it anywhere: pipes, sockets, namespaces, processes, memory and the like
_NAMELESS = frozenset({0x50495045, 0x534F434B, 0x09041934, 0x6E736673, 0x50494446, 0x5345434D, 0x444D4142})
_NOT_FOUND = "it lies on a mount of the command's own, and is not found there by a name of this machine"


class _Row:
    """A mount: `device`, the `root` of it inside of its file system, and the `point` where it is."""

    __slots__ = ("device", "point", "root")

    def __init__(self, fields: procfs.Mount) -> None:
        self.device = _number(fields.device)
        self.root = fields.root
        self.point = fields.point


class Mounts:
    """Belongs to the receiving thread. `any`: whether the run has made a mount namespace or a root yet."""

    def __init__(self) -> None:
        self.any = False
        self._made: dict[int, bytes] = {}  # file systems that we have mounted for the run: device, type
        self._rows: dict[int, _Row] = {}  # mounts by their numbers for ever, as they were last seen
        self._behind: dict[int, int] = {}  # a pin that is judged: the pin through the run's own mount
        # Pins on those file systems: name, whether that is a procfs; and which object
        self._named: dict[int, tuple[bytes, bool, tuple[int, int]]] = {}
        self._table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._table, select.POLLPRI | select.POLLERR)
        self._ids: frozenset[int] = frozenset()
        self._ours: dict[int, list[_Row]] = {}
        self._root = (0, 0, 0)
        memory = os.memfd_create("mounts", os.MFD_CLOEXEC)
        self._memory = os.fstat(memory).st_dev
        os.close(memory)
        self._read()

    def close(self) -> None:
        self.leave()
        os.close(self._table)

    def leave(self) -> None:
        """The call at hand is over."""
        for pin in self._behind.values():
            os.close(pin)
        self._behind.clear()
        self._named.clear()

    def made(self, device: int, kind: bytes) -> None:
        """We have mounted a new file system for the run: so it was said there, where something else may lie by now."""
        remember(self._made, device, kind, _MADE)

    # -- ours ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        rows = procfs.mount_rows("self")
        self._ids = frozenset(rows)
        self._ours = {}
        for fields in rows.values():
            row = _Row(fields)
            self._ours.setdefault(row.device, []).append(row)
        root = os.open("/", _O_PATH | os.O_DIRECTORY)
        try:
            self._root = _place(root)
        finally:
            os.close(root)

    def is_ours(self, pin: int) -> bool:
        """Whether it is on a mount of ours, where its name is the one by which rules know it."""
        if self._poll.poll(0):
            self._read()
        return libc.mount_id(pin) in self._ids

    # -- tasks -----------------------------------------------------------------------------------------------

    def is_away(self, tid: int) -> bool:
        """Whether this task's paths begin at another root than ours. Raises OSError."""
        root = self.root(tid)
        try:
            return not self.is_ours(root) or _place(root) != self._root
        finally:
            os.close(root)

    def root(self, tid: int) -> int:
        """Its root, the caller's to close. Raises OSError."""
        return os.open(f"/proc/{tid}/root", _O_PATH | os.O_DIRECTORY)

    def is_root(self, task: Task, pin: int) -> bool:
        """Whether `..` leads no further from there. Raises OSError."""
        root = self.root(task.tid)
        try:
            return _place(root) == _place(pin)
        finally:
            os.close(root)

    def executable(self, tid: int) -> bytes:
        """The name of the program that it runs: a label that rules go by, so a true one or none. Raises OSError."""
        pin = os.open(f"/proc/{tid}/exe", _O_PATH)
        try:
            if self.is_ours(pin):
                return _text(pin)
            try:
                found = self._find(tid, pin)
            except Forbidden:
                return b""
            try:
                return found[0] if isinstance(found, tuple) else _text(found)
            finally:
                if not isinstance(found, tuple):
                    os.close(found)
        finally:
            os.close(pin)

    # -- pins ------------------------------------------------------------------------------------------------

    def home(self, task: Task, pin: int) -> int:
        """The pin by which that object is judged, in the place of `pin`, which is taken over. Raises Forbidden."""
        try:
            self._behind_forget(pin)
            if self.is_ours(pin):
                return pin
            found = self._find(task.tid, pin)
        except BaseException:
            os.close(pin)
            raise
        if isinstance(found, tuple):
            self._named[pin] = (*found, _object(pin))
            return pin
        if found == pin:
            return pin
        self._behind_forget(found)
        self._behind[found] = pin
        return found

    def _behind_forget(self, number: int) -> None:
        """Another object has this number by now."""
        old = self._behind.pop(number, -1)
        if old >= 0:
            os.close(old)
        self._named.pop(number, None)

    def own(self, pin: int) -> int:
        """The pin through the run's own mount, for what is done; `pin` itself where it was reached by no such mount."""
        behind = self._behind.get(pin, -1)
        if behind < 0 or not os.path.samestat(os.fstat(behind), os.fstat(pin)):
            return pin
        return behind

    def _find(self, tid: int, pin: int) -> int | tuple[bytes, bool]:
        """The same object on a mount of ours; `pin` itself where it has no name anywhere; or, of a file system of the
        run's own, its name there and whether that is a procfs. Raises OSError, Forbidden.
        """
        found, text, magic = os.fstat(pin), _text(pin), libc.file_system(pin)
        kind = self._made.get(found.st_dev)
        if kind is not None and found.st_dev not in self._ours and magic[0] == _TYPES[kind]:
            if kind != PROCFS:
                return b"//" + kind + text, False
            row = self._row(tid, pin)
            if row is not None and is_inside(text, row.point):
                return b"/proc" + row.root.rstrip(b"/") + text[len(row.point) :], True
            raise Forbidden(text, _NOT_FOUND)
        if magic[0] in _NAMELESS or found.st_dev == self._memory:
            return pin
        unique = libc.unique_mount_id(pin)
        row = self._rows.get(unique)
        twin = self._by_row(row, text, found, magic) if row is not None else -1
        if twin < 0:  # it was moved, or is new
            row = self._row(tid, pin)
            if row is not None and unique:
                remember(self._rows, unique, row, _ROWS)
            twin = self._by_row(row, text, found, magic) if row is not None else -1
        if twin < 0:
            raise Forbidden(text, _NOT_FOUND)
        return twin

    def _by_row(self, row: _Row, text: bytes, found: os.stat_result, magic: tuple[int, bytes]) -> int:
        """A pin of the same object on a mount of ours, if the run's own mount is where that line says; else -1."""
        if is_inside(text, row.point):
            inner = join_inner(row.root, text[len(row.point) :])
            for ours in self._ours.get(row.device, ()):
                if is_inside(inner, ours.root):
                    twin = self._twin(ours.point.rstrip(b"/") + inner[len(ours.root.rstrip(b"/")) :], found, magic)
                    if twin >= 0:
                        return twin
        return -1

    def _twin(self, path: bytes, found: os.stat_result, magic: tuple[int, bytes]) -> int:
        """A pin of that name, if it holds exactly that object; else -1."""
        try:
            twin = libc.openat2(libc.AT_FDCWD, path or b"/", _TWIN)
        except OSError:
            return -1
        try:
            if (
                os.path.samestat(os.fstat(twin), found)
                and libc.file_system(twin) == magic
                and libc.mount_id(twin) in self._ids
            ):
                return twin
        except BaseException:
            os.close(twin)
            raise
        os.close(twin)
        return -1

    def _row(self, tid: int, pin: int) -> _Row | None:
        """The pin's mount, as that task sees it; its mount point from the root of its namespace on. Raises OSError."""
        fields = procfs.mount_row(tid, libc.mount_id(pin))
        if fields is None:
            return None
        row = _Row(fields)
        root = self.root(tid)
        try:
            above = _text(root)
        finally:
            os.close(root)
        if above != b"/":
            row.point = above if row.point == b"/" else above + row.point
        row.point = row.point if row.point != b"/" else b""
        return row

    # -- what is told of pins --------------------------------------------------------------------------------

    def name_of(self, pin: int) -> bytes | None:
        """The name of what lies on a file system of the run's own; None where the kernel's is good.

        Raises Forbidden.
        """
        known = self._known(pin)
        if known is not None:
            return known[0]
        if self.is_ours(pin):
            return None
        if libc.file_system(pin)[0] in _NAMELESS or os.fstat(pin).st_dev == self._memory:
            return None
        raise Forbidden(_text(pin), _NOT_FOUND)

    def is_memory(self, pin: int) -> bool:
        """Whether this is judged as memory of the run's own."""
        known = self._known(pin)
        return known is not None and not known[1]

    def _known(self, pin: int) -> tuple[bytes, bool] | None:
        """What was found of it, if the number still is that of this object."""
        known = self._named.get(pin)
        return known[:2] if known is not None and known[2] == _object(pin) else None

    def is_procfs(self, device: int) -> bool:
        """Whether that is a procfs of a PID namespace of the run's own: all processes in it are the run's."""
        return self._made.get(device) == PROCFS and device not in self._ours

    def number_in(self, task: Task, root: int, number: int) -> int:
        """What our `number` of a process or thread of the caller's is in the procfs whose root is pinned there.

        Raises OSError ENOENT.
        """
        numbers = procfs.numbers(number)
        place = b"%d/status" if number == task.tgid else b"%d/task/%%d/status" % self.number_in(task, root, task.tgid)
        for at in range(1, len(numbers)):
            try:
                status = os.open(place % numbers[at], os.O_RDONLY | os.O_CLOEXEC, dir_fd=root)
            except OSError:
                continue
            try:
                if procfs.numbers_in(os.read(status, 65536)) == numbers[at:]:
                    return numbers[at]
            finally:
                os.close(status)
        raise OSError(errno.ENOENT, "self")

    def check_writable(self, *pins: int, needs: int = 0) -> None:
        """Raises OSError EROFS where the run's own mount of one of these is read-only; where the kernel asks for the
        access that the call `needs` before it asks the mount, what it says to that.
        """
        for pin in pins:
            behind = self.own(pin) if pin >= 0 else pin
            if behind != pin and os.fstatvfs(behind).f_flag & os.ST_RDONLY:
                if needs:
                    libc.call("faccessat2", behind, b"", needs, libc.AT_EACCESS | libc.AT_EMPTY_PATH)
                raise OSError(errno.EROFS, "a read-only mount")

    def crosses(self, one: int, other: int) -> bool:
        """Whether these are on two mounts, between which nothing is linked or moved."""
        one, other = self.own(one), self.own(other)
        return libc.mount_id(one) != libc.mount_id(other)

    def check_uncovered(self, parent: int, name: bytes) -> None:
        """Raises OSError EBUSY where a mount of the run's own lies upon that name."""
        behind = self.own(parent)
        if behind == parent:
            return
        seen = [_look(directory, name) for directory in (behind, parent)]
        if seen[0] != seen[1]:
            raise OSError(errno.EBUSY, name)


def join_inner(root: bytes, below: bytes) -> bytes:
    """The path inside of a file system of what lies `below` a mount of its `root`."""
    return (root.rstrip(b"/") + below) or b"/"


def _number(device: bytes) -> int:
    major, _, minor = device.partition(b":")
    return os.makedev(int(major), int(minor))


def _object(pin: int) -> tuple[int, int]:
    found = os.fstat(pin)
    return found.st_dev, found.st_ino


def _place(pin: int) -> tuple[int, int, int]:
    found = os.fstat(pin)
    return found.st_dev, found.st_ino, libc.mount_id(pin)


def _text(pin: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % pin)


def _look(directory: int, name: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino
