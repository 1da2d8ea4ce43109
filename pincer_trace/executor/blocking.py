"""Opens that may wait: FIFOs, ttys, leased files. Each on a thread of its own that can be cancelled (hazard P14).

A held caller stays killable and answers its signals: when one is pending, or the caller is gone, the open is broken off
and the call answered ERESTARTSYS, with which the kernel does what sigaction says (P74).
"""

from __future__ import annotations

import errno
import os
import threading

from pincer_trace.kernel import libc, procfs
from pincer_trace.kernel.bare import signal
from pincer_trace.kernel.notify import ERESTARTSYS, Gone
from pincer_trace.ledger import LedgerFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.identity import Credentials, Identity
    from pincer_trace.gateway.resolve import Resolver
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.kernel.notify import Listener
    from pincer_trace.ledger import Ledger

_BREAK = signal.SIGRTMIN + 5  # breaks off a blocking open of ours; nobody else sends it
_INTERVAL = 0.05  # seconds between looks at the held callers
_LIMIT = 512


class _Held:
    __slots__ = (
        "broken",
        "descriptor",
        "finished",
        "flags",
        "identity",
        "sequence",
        "thread",
        "tid",
        "wanted",
    )

    def __init__(
        self,
        identity: int,
        tid: int,
        descriptor: int,
        flags: int,
        sequence: int | None,
        wanted: Credentials | None,
    ) -> None:
        self.identity = identity
        self.tid = tid
        self.descriptor = descriptor
        self.flags = flags
        self.sequence = sequence
        self.wanted = wanted
        self.thread: threading.Thread | None = None
        self.broken = 0  # the errno with which a broken-off open is answered
        self.finished = False


class BlockingOpens:
    """Started by the receiving thread; each open answers its own notification."""

    def __init__(self, listener: Listener, resolver: Resolver, ledger: Ledger, identity: Identity) -> None:
        self._listener = listener
        self._resolver = resolver
        self._ledger = ledger
        self._identity = identity
        self._lock = threading.Lock()
        self._held: set[_Held] = set()
        self._wake = threading.Event()
        self._closing = False

    def prepare(self) -> None:
        """Install the signal that breaks opens off, and start to watch. Call on the main thread."""
        signal.signal(_BREAK, lambda *_: None)
        signal.siginterrupt(_BREAK, True)
        threading.Thread(target=self._watch, name="held", daemon=True).start()

    def start(self, identity: int, task: Task, descriptor: int, flags: int, sequence: int | None) -> None:
        """Open `descriptor` (O_PATH, ours to close) with `flags` in the background, and write that outcome too.

        Raises OSError EAGAIN when full: then the outcome is the caller's to write.
        """
        try:
            held = _Held(identity, task.tid, descriptor, flags, sequence, self._identity.credentials(task))
        except BaseException:
            os.close(descriptor)
            raise
        with self._lock:
            if len(self._held) >= _LIMIT:
                os.close(descriptor)
                raise OSError(errno.EAGAIN, "too many opens are waiting")
            self._held.add(held)
        held.thread = threading.Thread(target=self._run, args=(held,), name="open", daemon=True)
        try:
            held.thread.start()
        except RuntimeError:  # the process limit is reached
            with self._lock:
                self._held.discard(held)
            os.close(descriptor)
            raise OSError(errno.EAGAIN, "no thread for an open that waits") from None
        self._wake.set()

    def _run(self, held: _Held) -> None:
        number, error = 0, errno.EACCES
        try:
            number = self._open(held)
            error = max(-number, 0)
        except Gone:
            error = errno.EINTR
        except BaseException as failure:  # noqa: BLE001 - the outermost handler of the thread answers (P96)
            try:
                self._ledger.failure("a waiting open", failure, pid=held.tid)
            except LedgerFull:
                pass
        finally:
            held.finished = True
            try:
                os.close(held.descriptor)
                if held.sequence is not None:
                    self._ledger.outcome(held.sequence, errno.EINTR if error == ERESTARTSYS else error)
            finally:
                self._answer(held, number, error)
                with self._lock:
                    self._held.discard(held)

    def _answer(self, held: _Held, number: int, error: int) -> None:
        """Answer, and if that fails, refuse: a call must not wait for ever."""
        try:
            self._listener.respond(held.identity, max(number, 0), error)
        except BaseException as failure:  # noqa: BLE001 - as in `_run`
            self._listener.respond(held.identity, error=errno.EACCES)
            try:
                self._ledger.failure("a waiting open", failure, pid=held.tid)
            except LedgerFull:
                pass

    def _open(self, held: _Held) -> int:
        """The open itself: the descriptor's number in the worker, or minus the errno to be answered. Raises Gone."""
        if held.wanted is not None:
            from pincer_trace.executor.identity import Identity

            Identity().assume(held.wanted)
        name = self._resolver.number(held.descriptor)
        flags = held.flags & ~os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        while True:
            if held.broken:
                return -held.broken
            try:
                opened = libc.call("openat", self._resolver.names, name, flags, 0)
                break
            except InterruptedError:  # our signal, and then `broken` tells; or another's
                continue
            except OSError as refused:
                return -(refused.errno or errno.EACCES)
        try:
            return self._listener.inject(held.identity, opened, held.flags & os.O_CLOEXEC)
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
                if one.broken and not one.finished and one.thread is not None and one.thread.ident:
                    try:
                        signal.pthread_kill(one.thread.ident, _BREAK)  # again each round: it may not be in the call yet
                    except (ProcessLookupError, OSError):
                        pass
            threading.Event().wait(_INTERVAL)

    def waiting(self) -> int:
        """How many opens wait."""
        with self._lock:
            return len(self._held)

    def close(self) -> None:
        """Break everything off: the workers are gone."""
        self._closing = True
        self._wake.set()
        with self._lock:
            held = list(self._held)
        for one in held:
            one.broken = errno.EINTR
            while one.thread is not None and one.thread.is_alive():
                try:
                    signal.pthread_kill(one.thread.ident or 0, _BREAK)
                except (ProcessLookupError, OSError):
                    break
                one.thread.join(0.01)


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
