"""Acting as the caller: umask always; user, groups and capabilities once anything in the tree has changed its own.

A normal user's supervisor has no rights that its workers lack, so there is nothing to take. As root the engine takes
the caller's ids on its own thread for each call from the first change on (hazards P18, P93).
"""

from __future__ import annotations

import os
import struct

from pincer_trace.kernel import libc, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pincer_trace.gateway.tasks import Task, Tasks

    _T = TypeVar("_T")

# What a worker started as root keeps: the file rights, and changing its ids. <linux/capability.h>
CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, SETPCAP = 0, 1, 2, 3, 4, 6, 7, 8
SYS_PTRACE, SETFCAP = 19, 31
WORKER_CAPABILITIES = sum(
    1 << c for c in (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, SETPCAP)
)
_ENGINE_EXTRA = 1 << SYS_PTRACE  # reads the memory and takes the descriptors of workers that changed their ids
_FILE_RIGHTS = sum(1 << c for c in (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID))


class Credentials:
    """The ids that decide file access, and the capabilities in force over this machine's files.

    `effective` are the user and the group that others are told: almost always the same.
    """

    __slots__ = ("capabilities", "effective", "gid", "groups", "uid")

    def __init__(
        self, uid: int, gid: int, groups: tuple[int, ...], capabilities: int, effective: tuple[int, int] | None = None
    ) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.capabilities = capabilities
        self.effective = effective or (uid, gid)

    def key(self) -> tuple[object, ...]:
        return (self.uid, self.gid, self.groups, self.capabilities, self.effective)

    def data(self) -> bytes:
        """As requests have them: who acts decides who owns what is made."""
        return struct.pack(f">QQQ{len(self.groups)}Q", self.uid, self.gid, self.capabilities, *self.groups)


class Identity:
    """The ids and umask of the thread that uses it; each performing thread has one of its own."""

    def __init__(self) -> None:
        self.privileged = os.geteuid() == 0 or libc.get_capabilities()[0] != 0
        self.changed = False  # whether any worker changed its ids: until then all are as we started them
        self._namespace = os.stat("/proc/self/ns/user").st_ino
        self._mask = -1
        self.in_force = b""  # the `data` of the ids by which we act; empty where these are always our own
        if self.privileged:
            permitted = libc.get_capabilities()[1]
            self._permitted = permitted
            self._own = Credentials(
                os.geteuid(),
                os.getegid(),
                tuple(os.getgroups()),
                permitted & (WORKER_CAPABILITIES | _ENGINE_EXTRA),
            )
            self._current = self._own.key()
            self.in_force = self._own.data()

    def limit(self) -> None:
        """Give up, for this thread, every capability that a worker would not have: on behalf is not above (P68)."""
        if self.privileged:
            libc.set_capabilities(self._own.capabilities, self._permitted, 0)

    def regain(self) -> None:
        """Take back, for this thread, every capability that we were started with: to end processes of other ids."""
        if self.privileged:
            libc.set_capabilities(self._permitted, self._permitted, 0)

    def with_all(self, act: Callable[[], None]) -> None:
        """`act` with them, on a thread that acts by our own ids: to end a process of other ids. Raises OSError."""
        self.regain()
        try:
            act()
        finally:
            self.limit()

    def as_ourselves(self, task: Task, act: Callable[[], _T]) -> _T:
        """`act` by our own ids, in the midst of a call of `task`: an import, say, whose files others may not reach.

        Raises OSError.
        """
        self.assume(None)
        try:
            return act()
        finally:
            if self.changed:
                self.assume(self.credentials(task))

    def note_change(self, task: Task) -> None:
        """A worker is about to change its ids or capabilities."""
        task.credentials = None
        if self.privileged:
            self.changed = True

    def would_keep(self, ids: list[int], *, group: bool) -> bool:
        """Whether setting these ids changes nothing, while nobody has changed any: programs set what they have."""
        if self.changed or not self.privileged:
            return False
        own = self._own.gid if group else self._own.uid
        return all(number & 0xFFFFFFFF in (own, 0xFFFFFFFF) for number in ids)

    def shares_namespace(self, task: Task) -> bool:
        """Whether the task is in our own user namespace. Raises OSError."""
        return os.stat(f"/proc/{task.tid}/ns/user").st_ino == self._namespace

    def credentials(self, task: Task) -> Credentials | None:
        """The caller's, or None while nobody has changed any. Raises OSError."""
        if not self.changed:
            return None
        if task.credentials is not None:
            return task.credentials
        status = procfs.status(task.tid)
        capabilities = status.capabilities & WORKER_CAPABILITIES
        if not self.shares_namespace(task):
            capabilities = 0  # rights over its own namespace are none over files outside of it
        task.credentials = Credentials(
            status.fsuid, status.fsgid, status.groups, capabilities | _ENGINE_EXTRA, (status.euid, status.egid)
        )
        return task.credentials

    def for_another_thread(self) -> Identity:
        """One for the thread that will use it, whatever ids are in force there."""
        other = Identity.__new__(Identity)
        other.__dict__.update(self.__dict__)
        other._current = ()
        other._mask = -1
        return other

    def assume(self, wanted: Credentials | None) -> None:
        """Take `wanted` on the calling thread; None takes our own again. Raises OSError."""
        self._take(wanted, None)

    def appear(self, wanted: Credentials | None) -> None:
        """The same with the effective ids, which the other end of a connection is told (SO_PEERCRED, unix(7)).

        Real and saved ids stay: who has the effective ones alone can neither signal nor trace such a thread.
        """
        self._take(wanted, (wanted or self._own).effective if self.privileged else None)

    def _take(self, wanted: Credentials | None, effective: tuple[int, int] | None) -> None:
        if not self.privileged:
            return
        target = wanted or self._own
        if target.key() == self._current:
            return
        self._current = ()
        libc.set_capabilities(self._permitted, self._permitted, 0)
        if effective is not None:
            libc.set_effective_ids(*effective)
            libc.set_capabilities(self._permitted, self._permitted, 0)  # leaving root takes those in force
        libc.set_filesystem_ids(target.uid, target.gid, target.groups)
        libc.set_capabilities(target.capabilities & self._permitted, self._permitted, 0)
        self._current = target.key()
        self.in_force = target.data()

    def owns_one_of(self, *found: os.stat_result) -> bool:
        """Whether we act as the owner of one of these, or with the right of every owner."""
        if not self.privileged:
            return os.geteuid() in {each.st_uid for each in found}
        uid, _, capabilities = struct.unpack_from(">3Q", self.in_force)
        return uid in {each.st_uid for each in found} or bool(capabilities >> FOWNER & 1)

    def without_trace(self, act: Callable[[], int]) -> int:
        """`act` without our right to look into other processes, which no worker has: for what procfs opens (P68)."""
        if not self.changed:
            return act()
        effective = libc.get_capabilities()[0]
        libc.set_capabilities(effective & ~_ENGINE_EXTRA, self._permitted, 0)
        try:
            return act()
        finally:
            libc.set_capabilities(effective, self._permitted, 0)

    def with_setfcap(self, act: Callable[[], int]) -> int:
        """`act` with the right that mapping root into a user namespace takes, as a root of before Linux 5.12 had it.

        It gives the worker nothing that it could use outside: file capabilities are set by us, without it.
        """
        effective = libc.get_capabilities()[0]
        libc.set_capabilities((effective | 1 << SETFCAP) & self._permitted, self._permitted, 0)
        try:
            return act()
        finally:
            libc.set_capabilities(effective, self._permitted, 0)

    def take_mask(self, tasks: Tasks, task: Task) -> int:
        """Create as the caller creates: its umask, so that the kernel also honours a default ACL (P18). The mask."""
        mask = tasks.mask(task)
        if mask != self._mask:
            os.umask(mask)
            self._mask = mask
        return mask
