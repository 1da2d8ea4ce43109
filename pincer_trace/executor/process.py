"""Calls about the worker's own process that the supervisor must know of, and effects on other processes.

All of them run in the kernel (CONTINUE): what is decided depends on registers alone, or is a label.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import EXEC
from pincer_trace.kernel import libc, procfs
from pincer_trace.kernel.notify import Continue
from pincer_trace.twin.authority import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task

_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)  # nothing in memory is decided on
_FLOOR_HOLDS = Continue(Continue.FLOOR_HOLDS)
_VERIFIED_AFTER = Continue(Continue.VERIFIED_AFTER)  # a label: what runs has no more rights than what asked (P42, P43)
_PRIO_USER, _IOPRIO_WHO_USER, _IOPRIO_WHO_PGRP, _PRIO_PGRP = 2, 3, 2, 1
_NEW_IDENTITY = ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid")


class Process:
    """The handlers of the process family."""

    def __init__(self, context: Context) -> None:
        self._c = context

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        table: dict[str, Handler] = {
            "execve": lambda _i, task, a: self._exec(task, libc.AT_FDCWD, a[0], 0),
            "execveat": lambda _i, task, a: self._exec(task, a[0], a[1], a[4] & 0xFFFFFFFF),
            "chdir": self._chdir,
            "fchdir": self._chdir,
            "umask": self._umask,
            "process_mrelease": self._refuse_other,
        }
        for name in (*_NEW_IDENTITY, "setgroups", "capset", "prctl", "clone", "unshare"):
            table[name] = self._changes_identity
        for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr",
                     "migrate_pages", "move_pages"):  # fmt: skip
            table[name] = lambda _i, task, a: self._on_other(a[0])
        table["setpriority"] = lambda _i, task, a: self._on_group(task, a[0], a[1], _PRIO_PGRP, _PRIO_USER)
        table["ioprio_set"] = lambda _i, task, a: self._on_group(task, a[0], a[1], _IOPRIO_WHO_PGRP, _IOPRIO_WHO_USER)
        return table

    def _exec(self, task: Task, dirfd: int, address: int, flags: int) -> object:
        c = self._c
        path = c.tasks.read_path(task, address)
        pin = -1
        try:
            if not path and flags & libc.AT_EMPTY_PATH:
                base, owned = c.resolver.base(task, dirfd, b"")
                pin = base if owned else os.dup(base)
            else:
                pin = c.resolver.pin(task, dirfd, path, follow=not flags & libc.AT_SYMLINK_NOFOLLOW)
            found = os.fstat(pin)
            name = c.resolver.path_of(pin)
            target = Target(name, descriptor=pin, found=found)
            decision = c.authority.demand(task, EXEC, target)
            if stat.S_ISREG(found.st_mode) and not _readable(pin):
                c.authority.forbid(
                    task,
                    EXEC,
                    target,
                    "the program can be executed but not read, so its calls could not be supervised",
                )
            sequence = c.authority.intend(task, EXEC, target, decision)
            c.authority.done(sequence)
        except OSError as error:
            if error.errno in (
                errno.EBADF,
                errno.EFAULT,
                errno.ENOENT,
                errno.ENOTDIR,
                errno.ELOOP,
                errno.ENAMETOOLONG,
            ):
                raise
            # Let the kernel say it: without a pin the exec fails there as well.
            return _VERIFIED_AFTER
        finally:
            if pin >= 0:
                os.close(pin)
        c.tasks.executes(task)
        return _VERIFIED_AFTER

    def _chdir(self, _identity: int, task: Task, _a: tuple[int, ...]) -> object:
        self._c.tasks.changes_directory(task)
        return _FLOOR_HOLDS  # a directory gives no right: all that starts from it is judged where it ends

    def _umask(self, _identity: int, task: Task, a: tuple[int, ...]) -> object:
        self._c.tasks.changes_mask(task, a[0])
        return _REGISTERS_ONLY

    def _changes_identity(self, _identity: int, _task: Task, _a: tuple[int, ...]) -> object:
        self._c.identity.note_change()
        return _REGISTERS_ONLY

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


def _readable(pin: int) -> bool:
    try:
        os.close(os.open(b"/proc/self/fd/%d" % pin, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EPERM)
    return True
