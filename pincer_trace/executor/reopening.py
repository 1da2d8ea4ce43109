"""Objects that are there already: opened again by their pin, without a second walk, for the access that was asked.

Plain files as well as all that is none: procfs, devices, terminals, FIFOs.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import READ, WRITE
from pincer_trace.executor import namespaces
from pincer_trace.executor.commit import commit
from pincer_trace.executor.context import ANSWERED
from pincer_trace.executor.descriptors import OURS, WALK, covers, give, place
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway.resolve import Forbidden, is_memory, live_name, process_of
from pincer_trace.kernel import procfs
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task

# Character devices that hold nothing: a write to them changes nothing. Documentation/admin-guide/devices.txt
HARMLESS_DEVICES = frozenset(os.makedev(1, minor) for minor in (3, 5, 7, 8, 9))
_TTY, _CONSOLE, _PTMX = os.makedev(5, 0), os.makedev(5, 1), os.makedev(5, 2)
_PTS_MAJORS = range(136, 144)
_SERVED = (os.makedev(10, 229), os.makedev(10, 203))  # fuse, cuse: whoever serves one decides how long a look takes
_SERVED_REASON = "it makes file systems whose answers come from the command itself, and may never come"


class Reopening:
    """What the open family does with a pinned object. `pin` stays the caller's in every method."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._names = context.resolver.names

    def special(self, identity: int, task: Task, pin: int, found: os.stat_result, flags: int, held: int) -> object:
        """Procfs files, devices, FIFOs, links: reached for reading or for writing; `pin` stays the caller's."""
        c = self._c
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFLNK:
            raise OSError(errno.ELOOP, "link")
        path = c.resolver.path_of(pin)
        writes = flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)
        if kind == stat.S_IFDIR and writes:
            raise OSError(errno.EISDIR, "directory")
        apart = c.resolver.is_own_procfs(found.st_dev)
        target = Target(live_name(path, found), descriptor=pin, found=found, named=apart)
        if c.resolver.in_procfs(found.st_dev):
            try:
                c.resolver.check_procfs(path, device=found.st_dev, writes=writes)
            except Forbidden as forbidden:
                self._refused_anyway(pin, flags)
                effect, habit = (WRITE, False) if writes else (READ, path.endswith(b"/environ"))
                c.authority.forbid(task, effect, target, forbidden.reason, habit=habit)
        elif kind == stat.S_IFCHR and found.st_rdev == _TTY:
            return self._controlling_terminal(identity, task, flags)
        elif covers(held, flags):
            return self.held(identity, task, pin, flags, found, target)
        elif kind == stat.S_IFCHR and found.st_rdev in _SERVED and c.resolver.mounts is not None:
            c.authority.forbid(task, WRITE if writes else READ, target, _SERVED_REASON)
        elif kind == stat.S_IFCHR and os.major(found.st_rdev) in _PTS_MAJORS and not c.resolver.is_memory(pin):
            self._check_terminal(task, target, found.st_rdev, WRITE if writes else READ)
        nameless = not path.startswith(b"/") or is_memory(path, found)  # pipes and the like of the tree's own
        if nameless:
            self.check_holder(task, WRITE if writes else READ, target, path)
        if nameless or (kind == stat.S_IFCHR and found.st_rdev in HARMLESS_DEVICES):
            sequence = None
        elif writes:
            target.needs = asked_of_the_kernel(flags)
            decision = c.authority.demand(task, WRITE, target)
            sequence = commit(c, task, WRITE, target, decision, flags=flags)
        else:
            if c.resolver.is_memory(pin) or apart:
                c.reads.count(c.reads.settle_apart(task, target, found, c.authority.judge(task, READ, target)))
            else:
                c.reads.count(c.reads.admit(task, target, found))
            sequence = None
        if kind == stat.S_IFIFO and not flags & os.O_NONBLOCK and flags & os.O_ACCMODE != os.O_RDWR:
            return self._wait(identity, task, pin, flags & ~WALK, sequence)
        if kind == stat.S_IFCHR and not flags & os.O_NONBLOCK and not _never_waits(found.st_rdev):
            return self._wait(identity, task, pin, flags & ~WALK, sequence)
        return self.again(identity, task, pin, flags, sequence, found)

    def check_holder(self, task: Task, effect: str, target: Target, path: bytes) -> None:
        """Of a pipe or a memory that the caller does not hold. Raises Denied where a sink's secret may be in it."""
        c = self._c
        if c.holders is not None and target.found is not None and c.holders.hides(path, target.found):
            reason = "a sink has read a secret, and may have it in here: who has a descriptor of it may open it again"
            c.authority.forbid(task, effect, target, reason)

    def _wait(self, identity: int, task: Task, pin: int, flags: int, sequence: int | None) -> object:
        """Open it in the background, which also writes the outcome."""
        with Outcome(self._c, sequence) as outcome:
            self._c.blocking.open(identity, task, os.dup(self._c.resolver.own(pin)), flags, sequence)
            outcome.leave_open()
        return ANSWERED

    def held(self, identity: int, task: Task, pin: int, flags: int, found: os.stat_result, target: Target) -> object:
        """`> /dev/stdout` and the like: the worker has this access already, so opening it again adds none."""
        effect = WRITE if flags & os.O_ACCMODE else READ
        held = self._c.authority.judge_held(task, effect, target)
        sequence = commit(self._c, task, effect, target, held, flags=flags)
        if stat.S_ISFIFO(found.st_mode) and not flags & os.O_NONBLOCK and flags & os.O_ACCMODE != os.O_RDWR:
            return self._wait(identity, task, pin, flags & ~WALK, sequence)
        return self.again(identity, task, pin, flags, sequence, found)

    def _refused_anyway(self, pin: int, flags: int) -> None:
        """What the kernel refuses to this user by itself is no denial of ours: `ps` asks for it all the time.

        Raises that OSError. Opening such a file and closing it again does nothing; as root nothing would be refused.
        """
        if not self._c.identity.privileged:
            os.close(os.open(self._c.resolver.number(pin), flags & os.O_ACCMODE | OURS, dir_fd=self._names))

    def _check_terminal(self, task: Task, target: Target, device: int, effect: str) -> None:
        """Other people's terminals can be typed on and listened to: only our own, and those that the tree made."""
        c = self._c
        if c.terminals.made(target.descriptor) or procfs.stat(task.tid).tty == _tty_number(device):
            return
        c.authority.forbid(task, effect, target, "it is the terminal of another session")

    def _controlling_terminal(self, identity: int, task: Task, flags: int) -> object:
        """/dev/tty is the *caller's* terminal (P15)."""
        number = procfs.stat(task.tid).tty
        if number == 0:
            raise OSError(errno.ENXIO, "/dev/tty")
        major, minor = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
        device = os.makedev(major, minor)
        if major in _PTS_MAJORS:
            name = b"/dev/pts/%d" % (minor + (major - 136) * 256)
        else:
            name = os.readlink(b"/sys/dev/char/%d:%d" % (major, minor)).rpartition(b"/")[2]
            name = b"/dev/" + name
        opened = self._c.domains.perform(lambda: os.open(name, (flags & ~WALK) | OURS))
        try:
            if os.fstat(opened).st_rdev != device or not self._is_the_one(opened, number):
                raise OSError(errno.ENXIO, "/dev/tty")
        except BaseException:
            os.close(opened)
            raise
        give(self._c, identity, opened, flags)
        return ANSWERED

    def _is_the_one(self, opened: int, number: int) -> bool:
        """Whether a terminal that was opened by its number can be the caller's: in each devpts they begin anew."""
        c = self._c
        if c.resolver.mounts is None or not c.resolver.mounts.any:
            return True
        return number == procfs.stat(os.getppid()).tty or c.terminals.made(opened)

    def again(
        self, identity: int, task: Task, pin: int, flags: int, sequence: int | None, found: os.stat_result
    ) -> object:
        """Open the pinned object itself, without a second walk, and give it to the worker."""
        c = self._c
        wanted = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) | OURS  # our own link to the pin is to be followed
        own = c.resolver.own(pin)
        number = c.resolver.number(own)
        regular = stat.S_ISREG(found.st_mode)
        # Content is destroyed only once the worker has its descriptor: natively a full table is found out before (P13).
        # Not where a domain of the caller's own may refuse that alone: then it must not have the descriptor (P64).
        empties = regular and bool(flags & os.O_TRUNC) and flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
        empties = empties and c.domains.current is None
        if empties:
            wanted &= ~os.O_TRUNC
        with Outcome(c, sequence) as outcome:
            try:
                if c.resolver.in_procfs(found.st_dev):
                    opened = self._open_procfs(task, pin, number, wanted)
                else:
                    opened = c.domains.perform(lambda: os.open(number, wanted, dir_fd=self._names))
            except BlockingIOError:
                if not regular or flags & os.O_NONBLOCK:
                    raise
                c.blocking.open(identity, task, os.dup(own), flags & ~(os.O_CREAT | os.O_EXCL | WALK), sequence)
                outcome.leave_open()
                return ANSWERED  # a lease on it: waited for elsewhere (P73)
            try:
                master = found.st_rdev == _PTMX and stat.S_ISCHR(found.st_mode)
                if master and own == pin and not c.resolver.is_memory(pin):
                    c.terminals.note(opened)  # of this machine's devpts
                there = place(c, identity, opened, flags)
                if empties:
                    os.ftruncate(opened, 0)
            finally:
                os.close(opened)
        c.listener.respond(identity, there)
        return ANSWERED

    def _open_procfs(self, task: Task, pin: int, number: bytes, wanted: int) -> int:
        """A file of procfs: without our own rights over other processes, from where the caller stands (P68, P80)."""
        c = self._c
        path = c.resolver.path_of(pin)
        owner = process_of(path) if not c.resolver.is_own_procfs(os.fstat(pin).st_dev) else None
        if owner is not None:  # a thread of ours in its domain could not look into it; what always can be opened tells
            self._ask_domain(lambda: os.open(b"/proc/%d/comm" % owner, wanted & os.O_ACCMODE | OURS))
        else:
            self._ask_domain(lambda: os.open(number, wanted & os.O_ACCMODE | OURS, dir_fd=self._names))
        if path.rpartition(b"/")[2] in namespaces.MAPS and not c.identity.shares_namespace(task):
            if c.identity.privileged and namespaces.is_child_of_ours(task.tid):
                return c.identity.with_setfcap(lambda: os.open(number, wanted, dir_fd=self._names))
            return namespaces.open_inside(task.tid, b"/proc/self/fd/" + number, wanted)
        return c.identity.without_trace(lambda: os.open(number, wanted, dir_fd=self._names))

    def _ask_domain(self, opening: Callable[[], int]) -> None:
        """Raises OSError where the caller's own domain refuses it."""
        if self._c.domains.current is not None:
            os.close(self._c.domains.perform(opening))


def asked_of_the_kernel(flags: int) -> int:
    """The access to the object itself that an open with these flags needs."""
    reads = 0 if flags & os.O_ACCMODE == os.O_WRONLY else os.R_OK
    writes = os.W_OK if flags & (os.O_ACCMODE | os.O_TRUNC) else 0
    return reads | writes


def _never_waits(device: int) -> bool:
    return device in HARMLESS_DEVICES or device == _PTMX or os.major(device) in _PTS_MAJORS


def _tty_number(device: int) -> int:
    """The device number as /proc/PID/stat writes it (new_encode_dev)."""
    major, minor = os.major(device), os.minor(device)
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)
