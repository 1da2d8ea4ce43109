"""Landlock domains that the worker's own processes put themselves in: what is done for them, those domains allow (P64).

A domain holds for whoever calls the kernel, which is the supervisor; and a domain can neither be read nor entered from
outside. So landlock_restrict_self is seen, its rulesets are copied, and a thread of ours restricts itself by the same
ones: what a confined process asks for is performed by that thread, after all that is judged for everybody.

Who is in which domain is marked in the process itself, where it cannot remove it and its children inherit it, also over
exec and from a parent that ends: in its core dump filter, since core dumps are off and writing there is refused. The
mark is on the memory: a thread that confines itself confines its process here.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from _queue import SimpleQueue  # `queue` is this and a millisecond of imports

from pincer_trace.kernel import landlock, libc, procfs
from pincer_trace.kernel.notify import Continue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pincer_trace.executor.identity import Credentials, Identity
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task, Tasks

    _T = TypeVar("_T")
    Answer = SimpleQueue[tuple[Any, BaseException | None]]

_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)
_LOOKS = 8
_MARKS = 512  # the filter has nine bits. core(5)
NOT_ALONE = "it is completed by the supervisor alone, and the caller has put itself in a Landlock domain"
_OF_NOBODY = b".pincer-trace-%d" % os.getpid()  # for a moment
_INTERVAL = 2.0  # seconds between looks whether anybody is in one yet: until then no read takes the fast path
_CROWD = 32  # domains, from which on those are looked for that nobody is in any more


class Domain:
    """The rulesets of one domain, the oldest first, and the thread that they restrict."""

    def __init__(self, layers: list[int], flags: int, identity: Identity) -> None:
        """`layers` are the domain's own from now on. Raises OSError, as landlock_restrict_self, or RuntimeError."""
        self.layers = layers
        self._flags = flags
        self._identity = identity
        self._work: SimpleQueue[tuple[Callable[[], Any], Credentials | None, Answer] | None] = SimpleQueue()
        ready: Answer = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="domain", daemon=True)
        try:
            self._thread.start()
            _, failure = ready.get()
            if failure is not None:
                self._thread.join()
                raise failure
        except BaseException:
            self._close_layers()
            raise

    def restrict(self) -> None:
        """Put the calling thread in it, for good. Raises OSError."""
        if not self.layers:
            raise OSError(errno.EACCES, "nobody is in that domain any more")
        libc.set_no_new_privileges()
        for layer in self.layers:
            landlock.restrict_thread(layer, self._flags)

    def run(self, act: Callable[[], Any], wanted: Credentials | None) -> Any:
        """`act` on that thread, with the ids `wanted`; waits for it."""
        answer: Answer = SimpleQueue()
        self._work.put((act, wanted, answer))
        value, failure = answer.get()
        if failure is not None:
            raise failure
        return value

    def _serve(self, ready: Answer) -> None:
        try:
            self.restrict()
            identity = self._identity.for_another_thread()
        except BaseException as failure:  # noqa: BLE001 - the receiving thread waits for an answer (P96)
            ready.put((None, failure))
            return
        ready.put((None, None))
        while (work := self._work.get()) is not None:
            act, wanted, answer = work
            try:
                identity.assume(wanted)
                answer.put((act(), None))
            except BaseException as failure:  # noqa: BLE001 - the same; it is raised there
                answer.put((None, failure))
            del work, act  # nothing of it stays

    def close(self) -> None:
        """End the thread."""
        self._work.put(None)
        self._thread.join()
        self._close_layers()

    def _close_layers(self) -> None:
        for layer in self.layers:
            os.close(layer)
        self.layers = []


class Domains:
    """Belongs to the receiving thread. `any`: whether there was one yet; `current` is that of the call at hand."""

    def __init__(self, tasks: Tasks, identity: Identity) -> None:
        self._tasks = tasks
        self._identity = identity
        self.any = False
        self.current: Domain | None = None
        self._wanted: Credentials | None = None
        self._by_mark: dict[int, Domain] = {}
        self._known: dict[int, tuple[Task, Domain | None]] = {}
        self._crowd = _CROWD
        self._look_again = 0.0
        self._unmarked: int | None = None

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {"landlock_restrict_self": self._restrict_self}

    def enter(self, task: Task) -> None:
        """The next call is one of `task`. Raises OSError, or RuntimeError where its domain cannot be told."""
        self.current = None
        now = time.monotonic()
        if now > self._look_again:
            self._look_again = now + _INTERVAL
            self._forget_dead()
        known = self._known.get(task.tid)
        if known is None or known[0] is not task:
            mark = _mark(task.tid)
            domain = self._by_mark.get(mark)
            if domain is None and mark != self._unmarked:
                raise RuntimeError("a process with a mark that is not known")
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[task.tid] = (task, domain)
        self.current = known[1]
        if self.current is not None:
            self._wanted = self._identity.credentials(task)

    def leave(self) -> None:
        """What is done now is done for nobody."""
        self.current = None

    def perform(self, act: Callable[[], _T]) -> _T:
        """`act`, which is an effect or gives a descriptor, as far as the caller's own domain allows it."""
        if self.current is None:
            return act()
        found: _T = self.current.run(act, self._wanted)
        return found

    def check_reading(self, name: bytes, directory: int) -> None:
        """Raises OSError where the caller may not read that file, in whose place it gets something else."""
        if self.current is not None:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            os.close(self.perform(lambda: os.open(name, flags, dir_fd=directory)))

    def check_writing(self, parent: int, name: bytes, *, exists: bool) -> None:
        """The same of a file that is made, or emptied, by the supervisor alone when it has been written."""
        if self.current is None:
            return
        if exists:
            self.perform(lambda: _empties(parent, name))
            return
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        self.perform(lambda: os.close(os.open(_OF_NOBODY, flags, 0o600, dir_fd=parent)))
        os.unlink(_OF_NOBODY, dir_fd=parent)

    def _restrict_self(self, _identity: int, task: Task, a: tuple[int, ...]) -> object:
        number, flags = a[0] & 0xFFFFFFFF, a[1] & 0xFFFFFFFF
        if number == 0xFFFFFFFF:  # only what is logged of it changes
            return _REGISTERS_ONLY
        if flags & ~landlock.RESTRICT_FLAGS:
            raise OSError(errno.EINVAL, "flags")
        if self._unmarked is None:
            self._unmarked = _mark(os.getpid())  # as the worker has inherited it
        if not self.any:
            self._look_again = time.monotonic() + _INTERVAL
            self.any = True
            self.enter(task)
        ruleset = self._tasks.descriptor(task, number)
        before = self.current.layers if self.current is not None else []
        try:
            if any(libc.is_same_file(ruleset, layer) for layer in before):  # each thread by itself: nothing is new
                return _REGISTERS_ONLY
            if len(before) + 1 >= landlock.LAYERS:  # the floor is one, too
                raise OSError(errno.E2BIG, "layers")
            layers = [os.dup(layer) for layer in (*before, ruleset)]
        finally:
            os.close(ruleset)
        domain = Domain(layers, flags & landlock.RESTRICT_LOG_FLAGS, self._identity)
        try:
            mark = self._free_mark()
            _set_mark(task.tid, mark)
        except BaseException:
            domain.close()
            raise
        self._by_mark[mark] = domain
        self.any = True
        self._known.clear()
        return _REGISTERS_ONLY

    def _free_mark(self) -> int:
        """A mark that nobody has. Raises OSError where there is none."""
        if len(self._by_mark) >= self._crowd:
            self._forget_dead()
            self._crowd = max(_CROWD, 2 * len(self._by_mark))
        for mark in range(_MARKS):
            if mark not in self._by_mark and mark != self._unmarked:
                return mark
        raise OSError(errno.E2BIG, "domains")

    def _forget_dead(self) -> None:
        """Domains that nobody is in any more, if that can be told."""
        living = living_marks()
        if living is not None:
            for mark in self._by_mark.keys() - living:
                self._by_mark.pop(mark).close()
            self._known.clear()
            self.any = bool(self._by_mark)

    def close(self) -> None:
        """End the threads."""
        for domain in self._by_mark.values():
            domain.close()
        self._by_mark.clear()


def _empties(parent: int, name: bytes) -> None:
    """As a domain sees it; the length stays. Raises OSError."""
    descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)
    try:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _mark(pid: int) -> int:
    return int(procfs.read(f"/proc/{pid}/coredump_filter"), 16)


def living_marks() -> set[int] | None:
    """The marks of all processes of the machine; None where too many begin for a whole look at them.

    One that is not seen would have the mark of others one day: so no process may begin during the look. And of one
    whose first thread has ended only the others tell.
    """
    for _ in range(_LOOKS):
        before = procfs.forks()
        found = set()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                text = procfs.read(f"/proc/{name}/coredump_filter")
                tasks = [] if text else os.listdir(f"/proc/{name}/task")
            except OSError:
                continue  # it has ended
            if text:
                found.add(int(text, 16))
            for tid in tasks if len(tasks) > 1 else ():
                try:
                    found.add(_mark(int(tid)))
                except (OSError, ValueError):
                    continue  # it has ended: its file is gone, or empty
        if procfs.forks() == before:
            return found
    return None


def _set_mark(pid: int, mark: int) -> None:
    """Raises OSError where it does not hold."""
    descriptor = os.open(f"/proc/{pid}/coredump_filter", os.O_RDWR | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"%d" % mark)
        held = int(os.pread(descriptor, 64, 0), 16)
    finally:
        os.close(descriptor)
    if held != mark:
        raise OSError(errno.EOPNOTSUPP, "coredump_filter")
