"""The engine: receives every notification, passes it down the stages, answers. It outlives its worker, never its front.

The receiving thread is one flat loop and the only one that performs effects on names, which makes it the mutation lock
(P37). Beside it: a reaper, a flusher of read counts, a thread that hears of the front's end, and the waiting opens.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import sys
import threading
import time

from pincer_trace import worker
from pincer_trace.executor.acceptance import Acceptance
from pincer_trace.executor.attributes import Attributes
from pincer_trace.executor.blocking import BlockingCalls
from pincer_trace.executor.connecting import Connecting
from pincer_trace.executor.context import ANSWERED, Context
from pincer_trace.executor.held import Held
from pincer_trace.executor.hot import cold_reader, hot_reader
from pincer_trace.executor.identity import Identity
from pincer_trace.executor.names import Names
from pincer_trace.executor.opens import Opens
from pincer_trace.executor.process import Process
from pincer_trace.executor.secrets import Secrets
from pincer_trace.executor.sockets import OwnPlace, Sockets
from pincer_trace.executor.sysv import SystemV
from pincer_trace.gateway.aliases import Aliases
from pincer_trace.gateway.provenance import Provenance
from pincer_trace.gateway.request import origin
from pincer_trace.gateway.resolve import STEPS, Forbidden, Resolver
from pincer_trace.gateway.tasks import Impostor, Tasks, Unreadable
from pincer_trace.kernel import fastpath, libc, procfs, table
from pincer_trace.kernel.bare import send_descriptors, signal, socket
from pincer_trace.kernel.detachment import detach
from pincer_trace.kernel.notify import Gone, Listener
from pincer_trace.kernel.placement import Placement
from pincer_trace.ledger import LedgerFull, summary
from pincer_trace.paths import DENIALS_FILE, display, named
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import Keys
from pincer_trace.twin.authority import Authority, Denied
from pincer_trace.twin.confirmation import Asked, Automatic, Confirmation
from pincer_trace.twin.reads import Reads
from pincer_trace.twin.recovery import Denials

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pincer_trace.channel import Channel
    from pincer_trace.executor.launches import Withheld
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.mounts import Mounts
    from pincer_trace.ledger import Ledger, Session
    from pincer_trace.profile import Profile
    from pincer_trace.twin.intent import Intent
    from pincer_trace.twin.link import Link
    from pincer_trace.twin.questions import Questions

_FLUSH = 0.5  # seconds between flushes of the read counts: a count is on disk after two of them
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL for processes that outlive the command
_PATIENCE = 5.0  # seconds for what is being written
_WALL = 0x40000000  # __WALL: also children made by clone without SIGCHLD. wait(2)


class Engine:
    """One run. `control` is the socket to the front, `evaluator` that to the right evaluator's own process."""

    def __init__(self, plan: worker.Plan, profile: Profile, session: Session, control: socket.socket, *, keep: bool,
                 confirm: str, intent: Intent | None = None, evaluator: socket.socket | None = None,
                 withheld: Withheld | None = None, scanned: Sequence[bytes] = ()) -> None:  # fmt: skip
        self._plan = plan
        self._profile = profile
        self._session = session
        self._control = control
        self._keep = keep
        self._confirm = confirm
        self._intent = intent
        self._evaluator = evaluator
        self._withheld = withheld or {}
        self._scanned = scanned  # protected files that have other names
        self._status: int | None = None  # as waitid gives it: the exit status, or minus the signal
        self._failure = ""
        self._leftover = 0
        self._abandoned = False
        self._told = threading.Event()  # that processes outlive the command, and must be ended
        self._ended = threading.Event()
        self._reaped = threading.Event()  # the command itself
        self._channel: Channel | None = None
        self._mounts: Mounts | None = None
        self._lock = threading.Lock()

    # -- life ------------------------------------------------------------------------------------------------

    def run(self, begun: worker.Begun) -> None:
        """Serve the worker, whose child subreaper we are, to its end. Raises UserError when it cannot start."""
        started = worker.take(begun)
        self._detach()
        self._worker = started.pid
        self._report = started.report
        self._listener = Listener(started.listener)
        process = os.pidfd_open(started.pid)  # by us, who have not reaped it yet: it may have ended already
        self._send("worker", started.listener, process)
        os.close(process)
        self._prepare()
        flusher = threading.Thread(target=self._flush, name="flush", daemon=True)
        flusher.start()
        for target in (self._reap, self._hear_front, self._end_when_told):
            threading.Thread(target=target, name=target.__name__, daemon=True).start()
        gc.disable()  # nothing here makes cycles; a collection would only be a pause
        self._serve()
        self._identity.assume(None)
        self._finish(flusher)

    def _detach(self) -> None:
        """Leave what is the worker's alone, and have as many descriptors as may be."""
        detach(signal.SIGTERM)
        for descriptor in self._plan.keep:
            if descriptor > 2:
                os.close(descriptor)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _prepare(self) -> None:
        listener, ledger = self._listener, self._session.ledger
        tasks = Tasks(listener, limit=max(64, min(2048, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)))
        resolver = Resolver(tasks, os.getpid())
        self._identity = Identity()
        root = os.urandom(32)
        keys = Keys(root)
        provenance, aliases, self._link = self._known(resolver, root)
        if self._scanned:
            aliases.note_scanned(self._scanned)
        authority = Authority(
            self._profile,
            ledger,
            provenance,
            aliases,
            keys,
            resolver.path_of,
            self._confirmation(ledger),
        )
        if self._link is not None:
            authority.judge_apart(self._link, resolver.names)
        self._held = Held(listener, authority)
        self._held.questions = self._questions
        self._denials = Denials(os.path.join(self._session.path, DENIALS_FILE), self._profile, self._session.selector)
        authority.denials = self._denials
        authority.announce = self._tell_denial
        authority.intent = self._intent
        if self._intent is not None:
            self._intent.wake = self._held.wake
            self._intent.start()
        self._reads = Reads(authority, ledger)
        self._blocking = BlockingCalls(listener, resolver, ledger, self._identity)
        self._blocking.prepare()
        self._secrets = Secrets(self._session.id, self._profile.settings.view)
        self._tasks = tasks
        self._resolver = resolver
        self._authority = authority
        self._provenance = provenance
        self._place = OwnPlace()
        context = Context(
            listener=listener,
            tasks=tasks,
            resolver=resolver,
            authority=authority,
            acceptance=Acceptance(keys, self._profile.digest),
            origin=origin(self._session.id, self._profile.digest),
            provenance=provenance,
            reads=self._reads,
            blocking=self._blocking,
            identity=self._identity,
            secrets=self._secrets,
            profile=self._profile,
            wake=self._wake,
            withheld=self._withheld,
        )
        by_name: dict[str, Handler] = {}
        if self._plan.mounting:
            from pincer_trace.executor.mounting import Mounting

            mounting = Mounting(context)
            resolver.mounts = tasks.mounts = authority.mounts = self._mounts = mounting.mounts
            by_name |= mounting.handlers()
        self._launches = context.launches
        self._domains = context.domains
        self._staged = context.staged
        self._saves = context.saves
        self._before = context.before
        if self._questions is not None:
            self._open_channel()
            self._session.save()
        for family in (Opens, Names, Attributes, Process, Connecting, SystemV):
            by_name |= family(context).handlers()
        by_name |= context.domains.handlers()
        by_name |= Sockets(context, self._place).handlers()
        rows = table.load(mounting=self._plan.mounting).values()
        self._handlers = {row.number: by_name[row.name] for row in rows if row.name in by_name}
        self._fast = fastpath.load(listener, resolver.names, resolver.procfs)
        if self._fast is None:
            self._hot_read = hot_reader(context)
        else:
            tasks.attach(self._fast)
            self._reads.attach(self._fast)
            self._hot_read = cold_reader(context, self._fast)
        self._names = {row.number: row.name for row in rows}
        if self._identity.privileged:
            self._import_ahead()
        self._identity.limit()
        sys.setswitchinterval(0.0001)  # the flusher must not keep a paused call waiting

    def _known(self, resolver: Resolver, root: bytes) -> tuple[Provenance, Aliases, Link | None]:
        """What is known of objects; and where the right evaluator has its own process, that hears of it too."""
        if self._evaluator is None:
            return Provenance(), Aliases(self._profile), None
        from pincer_trace.twin.remote import ToldAliases, ToldProvenance, connect

        link = connect(self._evaluator, root)
        return ToldProvenance(link, resolver.names), ToldAliases(self._profile, link, resolver.names), link

    def _import_ahead(self) -> None:
        """What is otherwise imported where it is used: there the ids in force might not reach the library."""
        import unicodedata  # noqa: F401 - for names that are displayed

        from pincer_trace.profile import gitconfig, show  # noqa: F401 - for facts, and for what a refusal tells

        if self._profile.sinks:
            from pincer_trace.gateway import sinks  # noqa: F401 - to look at them
        if self._questions is not None:
            import hashlib  # noqa: F401 - for the keys of grants
            import re  # noqa: F401 - for staging names

    def _confirmation(self, ledger: Ledger) -> Confirmation:
        """What `--confirm` says."""
        self._questions: Questions | None = None
        if self._confirm == "auto":
            return Automatic()
        if self._confirm != "ask":
            return Confirmation()
        from pincer_trace.kernel.terminal import draws
        from pincer_trace.twin.grants import Grants
        from pincer_trace.twin.interactive import Interactive
        from pincer_trace.twin.questions import Questions

        grants = Grants()
        hold = self._profile.settings.hold
        self._questions = Questions(
            grants, record=ledger.answer, wake=self._wake, changed=self._tell_watchers, hold=hold
        )
        return Interactive(self._profile.digest, grants, self._questions, draws)

    def _wake(self) -> None:
        self._held.wake()

    def _tell_watchers(self) -> None:
        if self._channel is not None:
            self._channel.tell()

    def _open_channel(self) -> None:
        """Where the run is watched, and questions are answered; the session tells when it is saved. Raises OSError."""
        from pincer_trace.channel import Channel, answering, asked, showing
        from pincer_trace.disclosure import disclosing
        from pincer_trace.kernel.peers import is_within

        ours, before = os.getpid(), self._before
        record, session = self._session.ledger.answer, self._session.id
        disclosures = disclosing(self._secrets, self._saves.versions, record, session)
        operations = {**answering(self._questions), **showing(before), **disclosures}
        channel = Channel(
            operations, lambda pid: is_within(pid, ours), news=asked(self._questions), watched=before.watch
        )
        channel.start()
        self._channel = channel
        self._session.note(feed=channel.facts())

    # -- the loop --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Until the last worker task has ended. Every notification is answered, whatever happens (invariant 4)."""
        fast, receive, staged, held = self._fast, self._listener.receive, self._staged, self._held
        respond = self._listener.respond
        get, begin = self._tasks.get, self._authority.begin
        handlers, domains = self._handlers, self._domains
        identity, started, resolver = self._identity, self._tasks.starts.settled, self._resolver
        hot_read, openat = self._hot_read, libc.NUMBER["openat"]
        mounts, has_quick = self._mounts, self._tasks.has_quick
        launches = self._launches
        while True:
            notification = None
            if held.busy:
                notification = self._attend()
            elif staged.pending:  # a read, too, must find what was closed before it
                staged.wait()
            if notification is None:
                if fast is None:
                    notification = receive()
                elif identity.changed or domains.any or staged.pending or held.busy:
                    notification = fast.receive(fastpath.NOTHING)
                else:  # a descriptor may be of a directory on a mount of the run's own
                    home = mounts is None or not mounts.any
                    notification = fast.receive(fastpath.EVERYWHERE if home else fastpath.USUAL)
                if notification is None:
                    break
            number, tid, _, call, _, _, *arguments = notification
            domains.leave()
            try:
                if identity.changed:
                    identity.assume(None)
                if mounts is not None:
                    mounts.leave()
                task = get(tid, number)
                resolver.steps = STEPS
                begin(number)
                if started:
                    self._tell_started()
                if launches is not None and launches.awaited:
                    launches.begin(number, task)
                    begin(number)
                if identity.changed:
                    identity.assume(identity.credentials(task))
                if domains.any:
                    domains.enter(task)
                quick = call == openat and domains.current is None and (mounts is None or has_quick(task))
                if quick and hot_read(number, task, arguments):
                    continue
                answer = handlers[call](number, task, arguments)  # type: ignore[arg-type]
                if answer is ANSWERED:
                    continue
                if type(answer) is int:
                    respond(number, answer)
                else:
                    respond(number, resume=answer)  # type: ignore[arg-type]
            except OSError as error:
                respond(number, error=error.errno or errno.EACCES)
            except (Denied, LedgerFull):
                respond(number, error=errno.EACCES)
            except Asked as asked:
                held.hold(notification, asked)
                self._tell_question(asked)
            except Forbidden as forbidden:
                self._record(tid, call, forbidden.path, forbidden.reason)
                respond(number, error=errno.EACCES)
            except Unreadable as unreadable:
                self._record(tid, call, b"", str(unreadable))
                respond(number, error=errno.EACCES)
            except Impostor as impostor:
                identity.assume(None)
                identity.with_all(lambda: _kill(tid, signal.SIGKILL))  # noqa: B023 - done at once
                self._tell_started()
                self._record(tid, libc.NUMBER["execve"], impostor.path, str(impostor))
                respond(number, error=errno.EACCES)
            except Gone:
                respond(number, error=errno.EACCES)
            except BaseException as failure:  # noqa: BLE001 - fail closed, with a record (P55)
                self._fail(tid, call, failure)
                respond(number, error=errno.EACCES)

    def _tell_question(self, asked: Asked) -> None:
        """A new question, for a line on the front's standard error."""
        if asked.question is None or asked.refusal is None:
            return
        number, shown = asked.question.id, asked.question.shown
        names = [named(name, 200) for name in (shown["path"], shown.get("to")) if isinstance(name, bytes)]
        manner = f", {display(str(shown['manner']), 200)}" if "manner" in shown else ""
        what = f"{shown['effect']} {' -> '.join(names)}{manner}"
        which = f"{number}{self._session.elsewhere}"
        self._tell_front(f"question {what} waits for an answer: pincer-trace approve {which}, or deny {which}")

    def _tell_denial(self, number: int, effect: str, path: bytes, reason: str) -> None:
        """A denial that is the first of its kind, for the same."""
        why = f"pincer-trace why {number}{self._session.elsewhere}"
        is_host = path.startswith(b"//") and not path.startswith(b"//@") and b":" in path
        allow = f"; --allow-net {named(path[2:], 200)} allows it" if is_host else ""
        self._tell_front(f"denied {effect} {named(path, 200)}: {display(reason, 200)}{allow}; {why}")

    def _tell_front(self, line: str) -> None:
        """What a person may hear; nothing depends on it."""
        if self._lock.acquire(blocking=False):  # a front that is stopped does not read, and nobody would see the line
            try:
                self._control.send(line.encode("utf-8", "replace") + b"\n", socket.MSG_DONTWAIT)
            except OSError:
                pass  # no room, or no front: the log has it, and `pending` the question
            finally:
                self._lock.release()

    def _attend(self) -> tuple[int, ...] | None:
        """While calls are held: one of them that is to be judged again, or None when a new call is there."""
        while True:
            self._staged.settle()
            ready, notification = self._held.wait(quick=bool(self._staged.pending))
            if ready or not self._held.busy:
                return notification

    def _tell_started(self) -> None:
        """Write the outcomes of the programs whose first call has come."""
        for settled in self._tasks.starts.settled:
            self._session.ledger.outcome(*settled)
        self._tasks.starts.settled.clear()

    def _look_at_started(self) -> None:
        """The same, from another thread, of those that make no call; end what is not the program that was judged."""
        settled, impostors = self._tasks.starts.overdue()
        for process, pid, path in impostors:
            self._identity.with_all(lambda: signal.pidfd_send_signal(process, signal.SIGKILL))  # noqa: B023 - at once
            os.close(process)
            self._record(pid, libc.NUMBER["execve"], path, str(Impostor(path)))
        for each in settled:
            self._session.ledger.outcome(*each)

    def _record(self, tid: int, call: int, path: bytes, reason: str) -> None:
        """A refusal before there was a request to judge."""
        effect = _EFFECT.get(self._names[call], "write")
        try:
            number = self._session.ledger.denied(
                effect, path, pid=tid, exe=b"", dev=0, ino=0, verdict="deny",
                rule="built-in", reason=f"{self._names[call]}: {reason}", code=codes.BUILT_IN,
            )  # fmt: skip
            if self._denials.tell(effect, path, codes.BUILT_IN, "built-in", reason):
                self._tell_denial(number, effect, path, reason)
        except LedgerFull:
            pass  # the call is refused all the same

    def _fail(self, tid: int, call: int, failure: BaseException) -> None:
        if os.environ.get("PINCER_TRACE_DEBUG"):
            self._identity.assume(None)  # the log is ours, whoever called
            import traceback

            with open(os.path.join(self._session.path, "debug.log"), "a") as log:
                traceback.print_exception(failure, file=log)
        try:
            self._session.ledger.failure(self._names.get(call, str(call)), failure, pid=tid)
        except LedgerFull:
            pass

    # -- beside the loop -------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Reap every child, our own and the orphans (P97); mirror the worker's stops; end what outlives it."""
        main = threading.main_thread().ident or 0
        while True:
            try:
                event = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WCONTINUED | _WALL)
            except ChildProcessError:
                break
            if event is None or event.si_pid != self._worker:
                continue
            if event.si_code == os.CLD_STOPPED:
                self._send(f"stopped {event.si_status}")
            elif event.si_code == os.CLD_CONTINUED:
                self._send("continued")
            elif event.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                self._status = event.si_status if event.si_code == os.CLD_EXITED else -event.si_status
                self._worker = 0
                self._worker_ended()
                self._reaped.set()
        while self._listener.wait(50) and not self._ended.is_set():  # older kernels leave RECV asleep at the end
            signal.pthread_kill(main, signal.SIGRTMIN + 5)
            if self._ended.wait(0.05):
                break

    def _worker_ended(self) -> None:
        failed = worker.exec_failure(self._report)
        if failed is not None:
            self._status, reason = failed
            self._failure = f"{os.fsdecode(self._plan.path)}: {reason}"
        rest = self._living()
        self._leftover = len(rest)
        if not rest:
            return
        if self._keep:
            self._abandoned = True  # first: the front's end must not pass for its death
            self._send(f"exit {self._status} {self._summary()}")
            return
        self._told.set()

    def _living(self) -> list[int]:
        """The processes of the tree that have not ended."""
        if _is_childless():  # nearly always, and known without a look at each process of the machine
            return []
        living = []
        for pid in procfs.descendants(os.getpid()):
            try:
                if procfs.stat(pid).state not in (b"Z", b"X"):
                    living.append(pid)
            except (OSError, ValueError):
                continue
        return living

    def _end_when_told(self) -> None:
        """Started with the others: when the process limit is reached, no thread could be started for it any more."""
        self._told.wait()
        self._end(_GRACE)

    def _end(self, grace: float) -> None:
        """SIGTERM, time to tidy up, SIGKILL until nobody is left."""
        self._identity.regain()
        for pid in self._living() if grace else ():
            _kill(pid, signal.SIGTERM)
            _kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + grace
        while self._living() and time.monotonic() < deadline:
            self._ended.wait(0.02)
        while living := self._living():
            for pid in living:
                _kill(pid, signal.SIGKILL)
            self._ended.wait(0.005)

    def _flush(self) -> None:
        ledger, told = self._session.ledger, False
        placement = Placement(os.getpid())
        placement.settle()
        while not self._ended.wait(_FLUSH):
            if self._ended.wait(placement.loosen()):
                break
            placement.settle()
            try:
                self._reads.flush()
                self._look_at_started()
                ledger.sign()
                self._denials.flush()
                if not told:
                    told = True
                    self._let_watch()
                    self._session.save()
            except LedgerFull:
                pass
            except Exception as failure:  # noqa: BLE001 - the thread must live on
                self._fail(0, -1, failure)

    def _let_watch(self) -> None:
        """Open the channel of a run that asks nobody: only now, since a short one is watched by nobody either."""
        if self._channel is None:
            try:
                self._open_channel()
            except (OSError, RuntimeError):
                pass  # no descriptor, or no thread, for it: the log is there

    def _hear_front(self) -> None:
        """The front never speaks: its socket ends when it does, and the tree must not outlive it."""
        try:
            while self._control.recv(64):
                pass
        except OSError:
            pass
        if self._abandoned or self._ended.is_set():
            return
        self._end(0.0)
        if not self._ended.wait(5.0):
            os._exit(1)  # the tree is gone, and nobody is there to hear why we are not

    # -- the end ---------------------------------------------------------------------------------------------

    def _summary(self) -> str:
        ledger = self._session.ledger
        text = summary(ledger.counts())
        if self._leftover:
            what = "left running" if self._keep else "ended"
            text += f"; {self._leftover} process{'es' if self._leftover > 1 else ''} outlived the command and {what}"
        if self._link is not None and self._link.gone:
            text += f"; {self._link.gone}, and whatever needed its vote was refused"
        if self._intent is not None:
            text += f"; {self._intent.summary()}"
        return f"{text}; log: pincer-trace log {self._session.selector}"

    def _finish(self, flusher: threading.Thread) -> None:
        self._reaped.wait(1.0)  # the reaper may still be about to hear of the worker's end
        self._ended.set()
        flusher.join(_PATIENCE)  # it writes session.json too, and must not do so after the end is told there
        self._tasks.starts.finish()
        self._tell_started()
        self._staged.finish()
        try:
            self._reads.finish()
        except LedgerFull:
            pass
        self._blocking.close()
        self._domains.close()
        if self._channel is not None:
            self._channel.close()
        if self._intent is not None:
            self._intent.close()
        self._held.close()
        self._denials.close()
        summary = self._summary()
        status = self._status if self._status is not None else 125
        self._session.ledger.close(status if status >= 0 else 128 - status, self._leftover)
        if not self._abandoned:
            word = f"failed {status} {self._failure}" if self._failure else f"exit {status} {summary}"
            self._send(word)
        if self._link is not None:
            self._link.close()

    def _send(self, message: str, *descriptors: int) -> None:
        data = message.encode("utf-8", "replace") + b"\n"
        try:
            with self._lock:
                if descriptors:
                    send_descriptors(self._control, data, descriptors)
                else:
                    self._control.sendall(data)
        except OSError:
            pass  # the front is gone: its thread will notice


_EFFECT = {
    "open": "read", "openat": "read", "openat2": "read", "execve": "exec", "execveat": "exec", "unlink": "unlink",
    "unlinkat": "unlink", "rename": "rename", "renameat": "rename", "renameat2": "rename", "bind": "bind",
    "connect": "connect",
}  # fmt: skip


def _is_childless() -> bool:
    """Whether nothing of the tree is left: whose parent has ended becomes our child (PR_SET_CHILD_SUBREAPER)."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
    except ChildProcessError:
        return True
    return False


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
