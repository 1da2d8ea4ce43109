"""Calls about the worker's own process that the supervisor must know of, and effects on other processes.

All of them run in the kernel (CONTINUE): what is decided depends on registers alone, or is a label.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from pincer_trace.effects import EXEC, READ, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.gateway.resolve import Forbidden
from pincer_trace.kernel import libc, procfs, table
from pincer_trace.kernel.notify import Continue
from pincer_trace.profile import VIEW
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement

_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)  # nothing in memory is decided on
_FLOOR_HOLDS = Continue(Continue.FLOOR_HOLDS)
_VERIFIED_AFTER = Continue(Continue.VERIFIED_AFTER)  # a label: what runs has no more rights than what asked (P42, P43)
_NO_MOUNTS = (
    "mounts of its own, as bwrap makes them, would give files other names; floor = 'scoped' in a profile allows them"
)
_PRIO_USER, _IOPRIO_WHO_USER, _IOPRIO_WHO_PGRP, _PRIO_PGRP = 2, 3, 2, 1
_IMAGE = struct.Struct(">QQ")
_MAX_SCRIPTS = 5  # scripts whose interpreter is a script: the kernel's own bound
# e_machine of what the kernel starts as it is, 32-bit programs too. elf(5)
_MACHINES = {"x86_64": (b"\x3e\x00", b"\x03\x00"), "aarch64": (b"\xb7\x00", b"\x28\x00")}[table.machine()]
_NEW_IDENTITY = {  # call: how many ids it takes
    "setuid": 1, "setgid": 1, "setreuid": 2, "setregid": 2, "setresuid": 3, "setresgid": 3,
    "setfsuid": 1, "setfsgid": 1,
}  # fmt: skip


class Process:
    """The handlers of the process family."""

    def __init__(self, context: Context) -> None:
        self._c = context

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        handlers: dict[str, Handler] = {
            "execve": lambda _i, task, a: self._exec(task, libc.AT_FDCWD, a[0], 0),
            "execveat": lambda _i, task, a: self._exec(task, a[0], a[1], a[4] & 0xFFFFFFFF),
            "chdir": self._chdir,
            "fchdir": self._chdir,
            "umask": self._umask,
            "process_mrelease": self._refuse_other,
        }
        for name, count in _NEW_IDENTITY.items():
            handlers[name] = self._sets_ids(count, group="gid" in name)
        for name in ("setgroups", "capset", "prctl"):
            handlers[name] = self._changes_identity
        handlers["clone"] = self._clone
        handlers["unshare"] = self._unshare
        for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr",
                     "migrate_pages", "move_pages"):  # fmt: skip
            handlers[name] = lambda _i, task, a: self._on_other(a[0])
        handlers["setpriority"] = lambda _i, task, a: self._on_group(task, a[0], a[1], _PRIO_PGRP, _PRIO_USER)
        handlers["ioprio_set"] = lambda _i, task, a: self._on_group(
            task, a[0], a[1], _IOPRIO_WHO_PGRP, _IOPRIO_WHO_USER
        )
        return handlers

    def _exec(self, task: Task, dirfd: int, address: int, flags: int) -> object:
        c = self._c
        path = c.tasks.read_path(task, address)
        pin = -1
        try:
            if not path and flags & libc.AT_EMPTY_PATH:
                base, owned = c.resolver.base(task, dirfd, b"")
                pin = c.resolver.home(task, base if owned else os.dup(base))
            else:
                pin = c.resolver.pin(task, dirfd, path, follow=not flags & libc.AT_SYMLINK_NOFOLLOW)
            found = os.fstat(pin)
            name = c.resolver.path_of(pin)
            target = Target(name, descriptor=pin, found=found)
            if c.launches is not None:
                c.launches.check(task, target)
            decision = c.authority.demand(task, EXEC, target)
            head = _head(pin) if stat.S_ISREG(found.st_mode) else b""
            if head is None:
                c.authority.forbid(
                    task,
                    EXEC,
                    target,
                    "the program can be executed but not read, so its calls could not be supervised",
                )
            judged = [decision, *self._judge_content(task, target, found, head or b"")]
            now = os.stat(f"/proc/{task.tid}/exe")
            old = (now.st_dev, now.st_ino)
            goal = self._goal(task, found, head or b"")
            leader = task.tgid  # asked before the record: the task may be dead
            born = procfs.stat(leader).start
            started = b"".join(_IMAGE.pack(*image) for image in sorted(goal or ()))
            sequence = commit(c, task, EXEC, target, judged, flags=flags, arguments=(started,))
        finally:
            if pin >= 0:
                os.close(pin)
        if c.launches is not None:
            c.launches.expect(task, leader)
        c.tasks.executes(task.tid, leader, born, sequence, goal, old)
        return _VERIFIED_AFTER

    def _judge_content(self, task: Task, target: Target, found: os.stat_result, head: bytes) -> list[Judgement]:
        """To start what is read as a view would show it, to an interpreter or in memory. Raises Denied, Asked.

        The other names of a binary are not looked up for that: it takes seconds, and `git` and `perl` have several.
        """
        authority = self._c.authority
        if not stat.S_ISREG(found.st_mode) or authority.lets_read(target.path, target.descriptor, found) is not None:
            return []
        if head.startswith(b"\x7fELF") and authority.shows(target.path, found):
            return []
        reading = authority.judge_reading(task, READ, target)
        return [authority.insist(task, READ, target, authority.in_full(reading))] if reading.verdict == VIEW else []

    def _goal(self, task: Task, found: os.stat_result, head: bytes) -> frozenset[tuple[int, int]] | None:
        """The files of which one must be running afterwards: of a script its interpreter, or that of the interpreter.

        None where the kernel may start another by rules that cannot be seen from here.
        """
        image = (found.st_dev, found.st_ino)
        for _ in range(_MAX_SCRIPTS):
            if head[:4] == b"\x7fELF" and head[18:20] in _MACHINES:
                return frozenset((image,))
            words = head[2:].split(b"\n")[0].split(b"\0")[0].replace(b"\t", b" ").split(b" ")
            interpreter = next(filter(None, words), b"")
            if head[:2] != b"#!" or not interpreter:
                others = procfs.registered_formats()
                return None if others is None else frozenset(others)
            try:
                pin = self._c.resolver.pin(task, libc.AT_FDCWD, interpreter)
            except (OSError, Forbidden):
                return frozenset()  # the kernel will not find it either
            try:
                found = os.fstat(pin)
                if not stat.S_ISREG(found.st_mode):
                    return frozenset()  # nor start it; and to look into a FIFO is to take from it
                head = _head(pin) or b""
            finally:
                os.close(pin)
            image = (found.st_dev, found.st_ino)
        return frozenset()

    def _chdir(self, _identity: int, task: Task, _a: tuple[int, ...]) -> object:
        self._c.tasks.changes_directory(task)
        return _FLOOR_HOLDS  # a directory gives no right: all that starts from it is judged where it ends

    def _umask(self, _identity: int, task: Task, a: tuple[int, ...]) -> object:
        self._c.tasks.changes_mask(task, a[0])
        return _REGISTERS_ONLY

    def _changes_identity(self, _identity: int, task: Task, _a: tuple[int, ...]) -> object:
        self._c.identity.note_change(task)
        return _REGISTERS_ONLY

    def _clone(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        if a[0] & (table.CLONE_FS | table.CLONE_THREAD) == table.CLONE_FS:
            self._c.tasks.share_places()
        return self._unshare(identity, task, a)

    def _unshare(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        if a[0] & table.CLONE_NEWNS:
            mounts = self._c.resolver.mounts
            if mounts is None:
                try:
                    self._c.authority.forbid(task, WRITE, Target(b"//mounts"), _NO_MOUNTS)
                except Denied:
                    raise OSError(errno.EPERM, "mounts") from None  # as where namespaces are switched off
            mounts.any = True
        return self._changes_identity(identity, task, a)

    def _sets_ids(self, count: int, *, group: bool) -> Handler:
        """The handler of a call whose first `count` arguments are user or group ids."""

        def handler(_identity: int, task: Task, a: tuple[int, ...]) -> object:
            if not self._c.identity.would_keep(list(a[:count]), group=group):
                self._c.identity.note_change(task)
            return _REGISTERS_ONLY

        return handler

    def _on_other(self, register: int) -> object:
        pid = register & 0xFFFFFFFF
        if pid == 0 or self._c.resolver.is_ours(pid):
            return _REGISTERS_ONLY
        raise OSError(errno.EPERM if os.path.exists(f"/proc/{pid}") else errno.ESRCH, "another process")

    def _on_group(self, task: Task, which: int, who: int, group: int, user: int) -> object:
        which &= 0xFFFFFFFF
        if which == user:
            raise OSError(errno.EPERM, "every process of a user")
        if which == group:  # the group that we started has the front in it
            leader = who & 0xFFFFFFFF or procfs.stat(task.tid).group
            if not self._c.resolver.is_ours(leader):
                raise OSError(errno.EPERM, "a process group with others in it")
            return _REGISTERS_ONLY
        return self._on_other(who)

    def _refuse_other(self, _identity: int, _task: Task, _a: tuple[int, ...]) -> object:
        raise OSError(errno.EPERM, "another process")


def _head(pin: int) -> bytes | None:
    """The first bytes of a program; None when it may not be read."""
    try:
        descriptor = os.open(b"/proc/self/fd/%d" % pin, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return None if error.errno in (errno.EACCES, errno.EPERM) else b""
    try:
        return os.read(descriptor, 256)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
