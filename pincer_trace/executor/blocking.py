"""Calls that may wait: opens of FIFOs, ttys, leased files, and connects. Each on a thread that can be cancelled (P14).

A held caller stays killable and answers its signals: when one is pending, or the caller is gone, the call is broken off
and answered ERESTARTSYS, with which the kernel does what sigaction says (P74).
"""

from __future__ import annotations

import errno
import os
import threading
from _queue import SimpleQueue

from pincer_trace.kernel import libc, procfs
from pincer_trace.kernel.bare import signal
from pincer_trace.kernel.notify import ERESTARTSYS, Gone
from pincer_trace.ledger import LedgerFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.domains import Domain, Domains
    from pincer_trace.executor.identity import Credentials, Identity
    from pincer_trace.gateway.resolve import Resolver
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.kernel.notify import Listener
    from pincer_trace.ledger import Ledger

    Act = Callable[["Call", Identity], int]

_BREAK = signal.SIGRTMIN + 5  # breaks off a blocking call of ours; nobody else sends it
_INTERVAL = 0.05  # seconds between looks at the held callers
_LIMIT = 512
IN_PROGRESS = "in progress"  # what an outcome says of a connect that goes on without its caller


class Call:
    """One call that may wait. `act` performs it, with the ids `wanted`; `owned` are descriptors of ours for it."""

    __slots__ = ("_act", "broken", "domain", "finished", "identity", "owned", "sequence", "thread", "tid", "wanted")

    def __init__(
        self,
        identity: int,
        tid: int,
        act: Act,
        owned: tuple[int, ...],
        sequence: int | None,
        wanted: Credentials | None,
    ) -> None:
        self.identity = identity
        self.tid = tid
        self._act = act
        self.owned = owned
        self.sequence = sequence
        self.wanted = wanted
        self.domain: Domain | None = None  # the caller's own, in which its thread ends its days
        self.thread: int | None = None
        self.broken = 0  # the errno with which a call that is broken off is answered
        self.finished = False

    def perform(self, identity: Identity) -> int:
        """On this thread: the value, or minus the errno to be answered. Raises Gone."""
        if self.domain is not None:
            self.domain.restrict()
        identity.appear(self.wanted)
        return self._act(self, identity)

    def insist(self, step: Callable[[], int]) -> int:
        """`step`, which may wait, until it has a value, or minus an errno: its own, or that of being broken off."""
        while True:
            if self.broken:
                return -self.broken
            try:
                return step()
            except InterruptedError:  # our signal, and then `broken` tells; or another's
                continue
            except OSError as refused:
                return -(refused.errno or errno.EACCES)

    def close(self) -> None:
        """Close what is ours of it."""
        for descriptor in self.owned:
            os.close(descriptor)


class BlockingCalls:
    """Started by the receiving thread; each call answers its own notification."""

    def __init__(self, listener: Listener, resolver: Resolver, ledger: Ledger, identity: Identity) -> None:
        self._listener = listener
        self._resolver = resolver
        self._ledger = ledger
        self._identity = identity
        self.domains: Domains | None = None  # the handlers', which tell whose call it is
        self._lock = threading.Lock()
        self._held: set[Call] = set()
        self._work: SimpleQueue[Call | None] = SimpleQueue()  # for threads that are idle
        self._idle = 0  # 1 while a thread is there for the next call
        self._wake = threading.Event()
        self._closing = False

    def prepare(self) -> None:
        """Install the signal that breaks calls off, and start to watch. Call on the main thread."""
        signal.signal(_BREAK, lambda *_: None)
        signal.siginterrupt(_BREAK, True)
        threading.Thread(target=self._watch, name="held", daemon=True).start()
        # One is there at once: a later start could fail, when the process limit is reached.
        threading.Thread(target=self._serve, args=(None,), name="waits", daemon=True).start()

    def open(self, identity: int, task: Task, descriptor: int, flags: int, sequence: int | None) -> None:
        """Open `descriptor` (O_PATH, ours to close) with `flags`, as `start`, on a thread of its own."""
        act: Act = lambda call, _: self._open(call, descriptor, flags)  # noqa: E731 - it needs its type
        self._spawn(self._hold(identity, task, act, sequence, (descriptor,)))

    def start(self, identity: int, task: Task, act: Act, sequence: int | None, *owned: int) -> None:
        """Do `act` in the background, write its outcome, answer with its value (or minus an errno), close `owned`.

        Raises OSError EAGAIN when full: then the outcome is the caller's to write; `owned` are closed all the same.
        """
        call = self._hold(identity, task, act, sequence, owned)
        with self._lock:
            idle = self._idle > 0 and call.domain is None
            self._idle -= idle
        if idle:
            self._work.put(call)
        else:
            self._spawn(call)

    def _hold(self, identity: int, task: Task, act: Act, sequence: int | None, owned: tuple[int, ...]) -> Call:
        """The call, as one that waits from now on. Raises OSError."""
        try:
            call = Call(identity, task.tid, act, owned, sequence, self._identity.credentials(task))
            call.domain = self.domains.current if self.domains is not None else None
        except BaseException:
            for descriptor in owned:
                os.close(descriptor)
            raise
        with self._lock:
            full = len(self._held) >= _LIMIT
            if not full:
                self._held.add(call)
        if full:
            call.close()
            raise OSError(errno.EAGAIN, "too many calls are waiting")
        self._wake.set()
        return call

    def _spawn(self, call: Call) -> None:
        try:
            threading.Thread(target=self._serve, args=(call,), name="waits", daemon=True).start()
        except RuntimeError:  # the process limit is reached
            with self._lock:
                self._held.discard(call)
            call.close()
            raise OSError(errno.EAGAIN, "no thread for a call that may wait") from None

    def _serve(self, call: Call | None) -> None:
        """A thread's life: its first call, if it has one, and then those that come while it is the idle one."""
        identity = self._identity.for_another_thread()
        while True:
            if call is not None:
                self._run(call, identity)
                if call.domain is not None:
                    return
                call = None  # nothing of it stays
            with self._lock:
                if self._closing or self._idle:
                    return
                self._idle = 1
            call = self._work.get()
            if call is None:
                return

    def _run(self, call: Call, identity: Identity) -> None:
        call.thread = threading.get_ident()
        value, error = 0, errno.EACCES
        try:
            value = call.perform(identity)
            error = max(-value, 0)
        except Gone:
            error = errno.EINTR
        except BaseException as failure:  # noqa: BLE001 - the outermost handler of the thread answers (P96)
            self._note(failure, call.tid)
        finally:
            with self._lock:  # from here on nobody breaks off what this thread does
                call.finished = True
            try:
                call.close()
                if call.sequence is not None:
                    self._tell(call.sequence, error)
            finally:
                self._answer(call, value, error)
                with self._lock:
                    self._held.discard(call)

    def _tell(self, sequence: int, error: int) -> None:
        if error == errno.EINPROGRESS:
            self._ledger.outcome(sequence, 0, IN_PROGRESS)
        else:
            self._ledger.outcome(sequence, errno.EINTR if error == ERESTARTSYS else error)

    def _answer(self, call: Call, value: int, error: int) -> None:
        """Answer, and if that fails, refuse: a call must not wait for ever."""
        try:
            self._listener.respond(call.identity, max(value, 0), error)
        except BaseException as failure:  # noqa: BLE001 - as in `_run`
            self._listener.respond(call.identity, error=errno.EACCES)
            self._note(failure, call.tid)

    def _note(self, failure: BaseException, tid: int) -> None:
        try:
            self._ledger.failure("a waiting call", failure, pid=tid)
        except LedgerFull:
            pass  # the call is refused all the same

    def _open(self, call: Call, descriptor: int, flags: int) -> int:
        """The open itself: the descriptor's number in the worker, or minus the errno to be answered. Raises Gone."""
        name = self._resolver.number(descriptor)
        ours = flags & ~os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        opened = call.insist(lambda: libc.call("openat", self._resolver.names, name, ours, 0))
        if opened < 0:
            return opened
        try:
            return self._listener.inject(call.identity, opened, flags & os.O_CLOEXEC)
        except OSError as refused:
            return -(refused.errno or errno.EACCES)
        finally:
            os.close(opened)

    def _watch(self) -> None:
        """Look at the held callers: gone, or wanted by a signal."""
        while not self._closing:
            with self._lock:
                held = list(self._held)
            if not held:
                self._wake.wait()
                self._wake.clear()
                continue
            for one in held:
                if not one.broken:
                    try:
                        one.broken = interruption(self._listener, one.identity, one.tid)
                    except BaseException:  # noqa: BLE001 - the watch must go on, or nobody could be killed any more
                        one.broken = errno.EINTR
                if one.broken:
                    self._break(one)  # again each round: it may not be in the call yet
            threading.Event().wait(_INTERVAL)

    def _break(self, call: Call) -> None:
        """Wake its thread, if that is still at it: it may be at the next one already."""
        with self._lock:
            if call.thread is not None and not call.finished:
                try:
                    signal.pthread_kill(call.thread, _BREAK)
                except OSError:
                    pass  # the thread has ended

    def waiting(self) -> int:
        """How many calls wait."""
        with self._lock:
            return len(self._held)

    def close(self) -> None:
        """Break everything off: the workers are gone."""
        self._wake.set()
        with self._lock:
            self._closing = True
            held = list(self._held)
        self._work.put(None)  # for the idle one
        for one in held:
            one.broken = errno.EINTR
            while self._holds(one):
                self._break(one)
                threading.Event().wait(0.01)

    def _holds(self, call: Call) -> bool:
        with self._lock:
            return call in self._held


def interruption(listener: Listener, identity: int, tid: int) -> int:
    """0 while a held caller may wait on; else the errno to answer: it is gone, or a signal waits for it (P74)."""
    if not listener.valid(identity):
        return errno.EINTR
    try:
        status = procfs.status(tid)
    except (OSError, KeyError, ValueError):
        return errno.EINTR
    awaited = ~status.blocked & ~status.ignored
    if status.pending_thread & awaited:
        return ERESTARTSYS
    if status.pending_process & awaited:
        return ERESTARTSYS if status.threads == 1 else errno.EINTR
    return 0
