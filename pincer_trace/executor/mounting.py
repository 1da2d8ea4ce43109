"""The mounts and roots that the command makes of its own, where its profile lets it (hazards P24, P25, P47).

None of these calls has an effect on a file or on anybody else: what they show, and by which name, is found out where
something is opened. So most of them run in the kernel, by their registers. But to mount a new file system is to run its
code on what it is given: overlayfs empties directories, FUSE lets the caller answer our looks. Those are mounted by us,
from copies of the arguments, of the few types that begin empty.
"""

from __future__ import annotations

import errno
import os

from pincer_trace.executor import namespaces
from pincer_trace.gateway.mounts import MEMORY, PROCFS, Mounts
from pincer_trace.gateway.resolve import Forbidden
from pincer_trace.kernel import procfs
from pincer_trace.kernel.notify import Continue, Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task

_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)
_MAGIC, _MAGIC_MASK = 0xC0ED0000, 0xFFFF0000  # of flags from before Linux 2.4, which are then in the other half
# MS_REMOUNT, MS_BIND, MS_MOVE, and those of propagation: all that makes no new file system. mount(2)
_OF_WHAT_IS_THERE = 0x20 | 0x1000 | 0x2000 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20
_SYS_ADMIN = 1 << 21
_DATA = 4096
_KINDS = MEMORY | {PROCFS}
# Of proc(5). Others may name files that the kernel opens at once (`pidns`, Linux 6.17): a FIFO would hold us for ever
_PROCFS_OPTIONS = frozenset({b"", b"hidepid", b"gid", b"subset"})


class Mounting:
    """The handlers of mount and its kin."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self.mounts = Mounts()

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {"mount": self._mount, **dict.fromkeys(("umount2", "pivot_root", "chroot"), self._changes_places)}

    def _changes_places(self, _identity: int, task: Task, _a: tuple[int, ...]) -> object:
        self.mounts.any = True
        self._c.tasks.changes_places(task)
        return _REGISTERS_ONLY

    def _mount(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        flags = a[3]
        if flags & _MAGIC_MASK == _MAGIC:
            flags &= ~_MAGIC_MASK
        if flags & _OF_WHAT_IS_THERE:
            return self._changes_places(identity, task, a)
        c = self._c
        source = c.tasks.read_path(task, a[0]) if a[0] else b""
        target = c.tasks.read_path(task, a[1])
        kind = c.tasks.read_path(task, a[2]) if a[2] else b""
        data = self._data(task, a[4])
        status = procfs.status(task.tid)
        if not status.capabilities & _SYS_ADMIN or c.identity.shares_namespace(task) or c.domains.current is not None:
            raise OSError(errno.EPERM, "mount")
        if kind not in _KINDS:
            raise Forbidden(
                target, f"a file system of the type {os.fsdecode(kind)!r}: only {_listed()} are mounted for the command"
            )
        if kind == PROCFS and any(o.partition(b"=")[0] not in _PROCFS_OPTIONS for o in (data or b"").split(b",")):
            raise OSError(errno.EINVAL, "options")  # as kernels say that do not know it
        with namespaces.Inside(task.tid, c.identity) as inside:
            if not c.listener.valid(identity):
                raise Gone
            device = inside.mount(source, target, kind, flags, data)
        self.mounts.any = True
        self.mounts.made(device, kind)
        c.tasks.changes_places(task)
        return 0

    def _data(self, task: Task, address: int) -> bytes | None:
        """The options: text, as far as it can be read."""
        if not address:
            return None
        tasks = self._c.tasks
        for size in (_DATA, 4096 - address % 4096):
            try:
                return tasks.read_bytes(task, address, size).split(b"\0")[0]
            except OSError:
                continue
        raise OSError(errno.EFAULT, "options")


def _listed() -> str:
    return ", ".join(sorted(kind.decode() for kind in _KINDS))
