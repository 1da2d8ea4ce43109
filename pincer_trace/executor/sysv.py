"""System V shared memory, semaphores and message queues: only those that this run made (P70). sysvipc(7)

They have no names in the file system: a number that anybody can guess reaches one. So each is made by the supervisor,
for the caller, and its number is remembered; with other numbers the calls are refused. Numbers are in registers, and
the kernel does not give one out again for a long time: what is known is then done by the kernel itself.
"""

from __future__ import annotations

import errno
import os
import threading

from pincer_trace.effects import WRITE
from pincer_trace.kernel import libc
from pincer_trace.kernel.notify import Continue
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.identity import Credentials, Identity
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task

_PRIVATE, _CREAT, _EXCL = 0, 0o1000, 0o2000  # <linux/ipc.h>
_RMID, _STAT, _INFO = 0, 2, 3
_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)
_REASON = "System V objects that this run did not make may be anybody's"
_ATTEMPTS = 3
_MANY = 100_000  # more than the kernel keeps of all three kinds together, unless it was told otherwise


class _Kind:
    """One of the three. `looks` are the commands of its `ctl` that change nothing; `place` is their argument."""

    __slots__ = ("ctl", "get", "looks", "made", "name", "place")

    def __init__(self, name: str, prefix: str, looks: tuple[int, ...], place: int) -> None:
        self.name = name
        self.get = prefix + "get"
        self.ctl = prefix + "ctl"
        self.looks = frozenset((_STAT, _INFO, *looks))
        self.place = place
        self.made: set[int] = set()

    def control(self, number: int, command: int) -> None:
        """Raises OSError."""
        libc.call(self.ctl, *((number, 0, command, 0) if self.place == 2 else (number, command, 0)))

    def exists(self, number: int) -> bool:
        """Whether there is one of this number: the kernel finds it before it looks at the address for the answer."""
        try:
            self.control(number, _STAT)
        except OSError as error:
            return error.errno not in (errno.EINVAL, errno.EIDRM)
        return True


class SystemV:
    """The handlers of these calls. `shmdt` is the caller's own affair."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._namespace = os.stat("/proc/self/ns/ipc").st_ino
        self._kinds = (
            _Kind("shared memory", "shm", (13, 14, 15), 1),  # SHM_STAT, SHM_INFO, SHM_STAT_ANY
            _Kind("semaphores", "sem", (18, 19, 20), 2),
            _Kind("message queue", "msg", (11, 12, 13), 1),
        )

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        memory, semaphores, queues = self._kinds
        users = {"shmat": memory, "semop": semaphores, "semtimedop": semaphores, "msgsnd": queues, "msgrcv": queues}
        found: dict[str, Handler] = {name: self._using(kind) for name, kind in users.items()}
        for kind in self._kinds:
            found[kind.get] = self._getting(kind)
            found[kind.ctl] = self._controlling(kind)
        return found

    def _getting(self, kind: _Kind) -> Handler:
        def handler(_identity: int, task: Task, a: tuple[int, ...]) -> object:
            if self._is_elsewhere(task):
                return _REGISTERS_ONLY
            *before, flags = a[: 2 if kind.get == "msgget" else 3]
            key = before[0] & 0xFFFFFFFF

            def get(with_flags: int) -> int:
                return self._as(task, lambda: libc.call(kind.get, *before, with_flags & 0xFFFFFFFF))

            for attempt in range(_ATTEMPTS):
                try:
                    if key == _PRIVATE or flags & _CREAT:
                        return self._remember(kind, get(flags if key == _PRIVATE else flags | _EXCL))
                except FileExistsError:
                    if flags & _EXCL:
                        raise
                try:
                    number = get(flags & ~_CREAT)
                except FileNotFoundError:  # removed meanwhile
                    if not flags & _CREAT or attempt == _ATTEMPTS - 1:
                        raise
                    continue
                if number in kind.made:
                    return number
                break
            return self._refuse(task, kind, b"key-0x%x" % key)

        return handler

    def _using(self, kind: _Kind) -> Handler:
        def handler(_identity: int, task: Task, a: tuple[int, ...]) -> object:
            return self._pass(task, kind, a[0] & 0xFFFFFFFF)

        return handler

    def _controlling(self, kind: _Kind) -> Handler:
        def handler(_identity: int, task: Task, a: tuple[int, ...]) -> object:
            number, command = a[0] & 0xFFFFFFFF, a[kind.place] & 0xFFFFFFFF
            if command in kind.looks:
                return _REGISTERS_ONLY
            if command != _RMID or number not in kind.made or self._is_elsewhere(task):
                return self._pass(task, kind, number)
            self._as(task, lambda: kind.control(number, _RMID))
            kind.made.discard(number)  # only now: one that may not be removed is still ours
            return 0

        return handler

    def _pass(self, task: Task, kind: _Kind, number: int) -> object:
        """The kernel itself, where the number is one of the run's, or means nothing to anybody."""
        if number in kind.made or self._is_elsewhere(task) or not kind.exists(number):
            return _REGISTERS_ONLY
        return self._refuse(task, kind, b"%d" % number)

    def _refuse(self, task: Task, kind: _Kind, which: bytes) -> object:
        path = b"//%s-%s" % (kind.name.replace(" ", "-").encode(), which)
        self._c.authority.forbid(task, WRITE, Target(path), _REASON)

    def _is_elsewhere(self, task: Task) -> bool:
        """Whether the task has an IPC namespace of its own (unshare): all that is in there the run made."""
        return os.stat(f"/proc/{task.tid}/ns/ipc").st_ino != self._namespace

    def _remember(self, kind: _Kind, number: int) -> int:
        if len(kind.made) >= _MANY:
            kind.made = {one for one in kind.made if kind.exists(one)}
        kind.made.add(number)
        return number

    def _as(self, task: Task, act: Callable[[], int | None]) -> int:
        """`act` with the ids in force of the caller, which own what it makes. Raises OSError."""
        wanted = self._c.identity.credentials(task)
        if wanted is None:
            return act() or 0
        found: list[int | OSError] = []
        identity = self._c.identity.for_another_thread()
        thread = threading.Thread(target=_act_as, args=(identity, wanted, act, found), name="system-v", daemon=True)
        thread.start()
        thread.join()
        if not found or isinstance(found[0], OSError):
            raise found[0] if found else OSError(errno.EACCES, "ids")  # type: ignore[misc]
        return found[0]


def _act_as(identity: Identity, wanted: Credentials, act: Callable[[], int | None], found: list[int | OSError]) -> None:
    try:
        identity.appear(wanted)
        found.append(act() or 0)
    except OSError as error:
        found.append(error)
