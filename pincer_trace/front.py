"""The front: the shell's child. It keeps the terminal's process group with the worker in it, waits, mirrors stops,
passes the exit status, and is the watchdog that ends the tree when the engine dies (P5, P76).
"""

from __future__ import annotations

import gc
import os
import select
import sys

from pincer_trace.errors import FAILURE, NOT_EXECUTABLE, UserError
from pincer_trace.kernel.bare import receive_descriptors, signal, socket
from pincer_trace.ui.notices import Notices, pane_for, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.broker.desk import Desk
    from pincer_trace.companion import Companion
    from pincer_trace.executor.launches import Withheld
    from pincer_trace.kernel.landlock import Floor
    from pincer_trace.ledger import Session
    from pincer_trace.options import RunOptions
    from pincer_trace.profile import Places, Profile
    from pincer_trace.review.outputs import Outputs
    from pincer_trace.twin.intent import Intent
    from pincer_trace.worker import Plan

_SI_KERNEL = 0x80
_FORWARDED = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGWINCH, signal.SIGALRM,
)  # fmt: skip
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_WATCHED = (*_FORWARDED, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE)


def run(options: RunOptions, began: Callable[[str], None] = lambda _directory: None) -> int:
    """Supervise one command; the exit status. Raises UserError before anything was started.

    `began` is told the session's directory once there is one.
    """
    if options.ui == "inline":
        from pincer_trace.ui.inline.relay import run as relay

        return relay(options, run)
    gc.disable()  # a start leaves no cycles to collect: what is imported and loaded stays
    from pincer_trace import agents, environ, paths, worker
    from pincer_trace.broker import opener
    from pincer_trace.ledger import Session
    from pincer_trace.ledger.session import remove
    from pincer_trace.profile import Overlay, Places, is_file, load
    from pincer_trace.profile.chosen import DEFAULT, profile_for
    from pincer_trace.profile.model import FLOOR_SCOPED, OBSERVE, UDP_UNPOLICED

    command = worker.find_command(options.command[0], os.environ.get("PATH"))
    try:
        here = os.getcwd()
    except OSError as error:
        raise UserError(f"the working directory cannot be used: {error.strerror}; nothing was started") from error
    directory = _reserve(options.session_dir)
    companion = outputs = None
    desks: list[Desk] = []
    try:
        outputs = _outputs(options)
        cache = _cache_directory()
        kept = outputs.paths if outputs is not None else ()
        places = Places.of(here, os.environ, command, [directory], kept)
        _check_imports(places)
        opened = {name: getattr(options, name) for name in ("allow_write", "allow_connect", "allow_net", "protect")}
        overlay = Overlay(**opened)
        port_of = opener(os.environb, options.pass_env, desks)
        name = options.profile or profile_for(places.command)
        profile = load(name, places, overlay=overlay, cache_directory=cache, port_of=port_of)
        observes = profile.settings.mode == OBSERVE
        if observes:
            if options.confirm == "ask":
                raise UserError(f"--confirm ask: the profile {profile.name} refuses nothing; nothing was started")
            options.confirm = "auto"
        wiring = agents.wire(command, options.command, directory)
        given = environ.for_worker(os.environb, profile, options.confirm, options.pass_env)
        given.environment[b"PINCER_DENIALS"] = os.fsencode(os.path.join(directory, paths.DENIALS_FILE))
        arguments = wiring.arguments
        for desk in desks:
            desk.fit(given)
            arguments = desk.arguments(arguments)
        withheld: Withheld = {}
        handled: list[str] = []
        if profile.sinks:
            from pincer_trace.withheld import withhold

            withheld, handled = withhold(given, os.environb, profile, options.pass_env)
        scanned = _scanned(profile, places) if profile.settings.scan else []
        plan = _plan(options, command, cache, arguments, given.environment, profile)
        companion = _companion(options, profile)  # before there is anything that it must not hold
        for desk in desks:
            desk.start(outlives=options.leftover == "keep")
        intent = _intent(options)
        pane = pane_for(options)
        if wiring.used:
            agents.write_settings(directory)
    except BaseException:
        for each in (companion, *desks):
            if each is not None:
                each.end()
        remove(directory)
        if outputs is not None:
            outputs.discard()
        raise
    floor = plan.floor
    judged_by = {  # what `review` loads the profile from again
        "profile": profile.paths[0] if is_file(name) else name,
        **opened,
        "compiled": cache,
        "brokers": {name: port for desk in desks for name, port in desk.ports.items()},
        "places": places.told(),
    }
    session = Session.create(
        directory,
        command=plan.arguments,
        profile_name=profile.name,
        profile_digest=profile.digest,
        workspace=places.workspace,
        details={
            "landlock_abi": floor.abi,
            "missing": floor.missing,
            "confirm": options.confirm,
            "withheld": [*given.deputies, *given.credentials],
            "judged_by": judged_by,
            **({"twin": options.twin} if companion is not None else {}),
            **({"task": options.task, "model": intent.model} if intent is not None else {}),
        },
        durable=options.durable,
    )
    began(session.path)
    notices = Notices(options, pane, session)
    if observes:
        say(
            "NOTHING IS REFUSED IN THIS RUN BUT WHAT PROTECTS PINCER-TRACE ITSELF: the profile "
            f"{paths.display(profile.name)} observes, and the log tells what would have been refused"
        )
    if not options.quiet:
        if profile.settings.floor == FLOOR_SCOPED:
            say(
                "the floor is 'scoped', by the profile, so that the command can make mounts (bwrap): the kernel itself "
                "refuses it no file effect, and nothing but this supervisor does"
            )
        if options.profile is None and name != DEFAULT:
            say(f"profile {name}, by the name of the program; -p NAME takes another one")
        if profile.logins:
            names = ", ".join(paths.display(pattern) for pattern in profile.logins)
            say(f"{os.path.basename(command)} itself may read its own login: {names}")
        if wiring.said:
            say(wiring.said)
        for line in (*given.told(), *(line for desk in desks for line in desk.said), *handled):
            say(line)
        for missing in floor.missing:
            say(f"this kernel lacks {missing}")
        if profile.settings.udp == UDP_UNPOLICED:
            say("UDP is neither judged nor recorded: the profile says udp = 'unpoliced'")
        if options.confirm == "auto" and not observes:
            say("--confirm auto: effects that need a confirmation are allowed and recorded")
        notices.begin(hold=profile.settings.hold if options.confirm == "ask" else None)
    from pincer_trace.kernel import libc

    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)  # if the engine dies, the tree comes to us, to be ended
    ours, engines = socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until the engine has left our group, Ctrl-Z would stop it
    engine = os.fork()
    if engine == 0:
        ours.close()
        _be_engine(options, plan, profile, session, engines, intent, companion, withheld, scanned)
    engines.close()
    for each in (companion, *desks):
        if each is not None:
            each.leave()
    session.ledger.leave()
    for descriptor in options.pass_fd:
        if descriptor > 2:
            os.close(descriptor)
    try:
        return _Front(engine, ours, session, notices, outputs, quiet=options.quiet).wait()
    finally:
        for each in (companion, *desks):
            if each is not None and options.leftover != "keep":
                each.end()
        if wiring.used and options.leftover != "keep":
            agents.tidy(session.path, given.environment)
        ours.close()


def _outputs(options: RunOptions) -> Outputs | None:
    """The files that are written at the end; None where none are, and the exit status is the command's. UserError."""
    if options.report is None and options.sarif is None and options.fail_on == "never":
        return None
    from pincer_trace.review.outputs import Outputs

    return Outputs(options)


def _reserve(session_dir: str | None) -> str:
    """The session's directory. Raises UserError, which says so where another supervisor is the reason."""
    from pincer_trace import worker
    from pincer_trace.kernel import procfs
    from pincer_trace.ledger import Session

    try:
        return Session.reserve(session_dir)
    except UserError:
        if b"\nSeccomp:\t2\n" in procfs.read("/proc/self/status"):
            from pincer_trace.doctor import is_supervised

            if is_supervised():
                raise UserError(f"{worker.NESTED}; nothing was started") from None
        raise


def _cache_directory() -> str | None:
    """Where compiled profiles are kept; None without a home."""
    from pincer_trace import paths

    try:
        return os.path.join(paths.state_directory(), "compiled")
    except UserError:
        return None


def _plan(
    options: RunOptions,
    command: str,
    cache: str | None,
    arguments: list[str],
    environment: dict[bytes, bytes],
    profile: Profile,
) -> Plan:
    """What is to be started, and under what; what the profile says of UDP sockets and sinks is in its filter.

    Raises UserError for what `--require` or `--pass-fd` cannot have.
    """
    from pincer_trace import worker
    from pincer_trace.kernel import filter as program
    from pincer_trace.kernel.landlock import Floor
    from pincer_trace.profile.model import FLOOR_SCOPED, UDP_UNPOLICED

    floor = Floor.probe()
    mounting = profile.settings.floor == FLOOR_SCOPED
    if mounting:
        if why := _no_mounts(options, profile, floor):
            raise UserError(f"the profile {profile.name} says floor = 'scoped', {why}; nothing was started")
        floor = floor.without_files()
    for layer in options.require:
        for missing in floor.missing:
            if missing.split(" ")[0] == layer:
                raise UserError(f"--require {layer}: this kernel lacks {missing}; nothing was started")
    for descriptor in options.pass_fd:
        try:
            os.fstat(descriptor)
        except OSError:
            raise UserError(f"--pass-fd {descriptor}: no such descriptor is open; nothing was started") from None
    return worker.Plan(
        os.fsencode(command),
        [os.fsencode(argument) for argument in arguments],
        environment,
        program=program.load_filter(
            cache, udp=profile.settings.udp == UDP_UNPOLICED, tracing=not profile.sinks, mounting=mounting
        ),
        floor=floor,
        keep=options.pass_fd,
        mounting=mounting,
    )


def _no_mounts(options: RunOptions, profile: Profile, floor: Floor) -> str:
    """Why the command cannot be let make mounts here; empty if it can."""
    if not floor.scoped:
        return "which needs Linux 6.12: before, nothing would keep the command from signals to this supervisor"
    if profile.sinks:
        return "and has a [[sink]], which is known by a name that a mount could cover"
    if options.twin == "process":
        return "where --twin process cannot name what lies on mounts of the command"
    return ""


def _scanned(profile: Profile, places: Places) -> list[bytes]:
    """The protected files of the home and the work tree that have other names. Raises UserError."""
    from pincer_trace.gateway.aliases import Aliases, TooMany
    from pincer_trace.paths import is_inside

    tops = [places.home, *(() if is_inside(places.workspace, places.home) else (places.workspace,))]
    try:
        return Aliases(profile).anywhere(tops)
    except TooMany:
        raise UserError(
            "the profile says protect.scan = true, and the home and the work tree cannot be looked through (more than "
            "two million names, or a folder of yours that is closed to you); nothing was started"
        ) from None


def _intent(options: RunOptions) -> Intent | None:
    """The model that `--task` asks, once it has answered a first question. Raises UserError."""
    if options.task is None:
        if options.model is not None:
            raise UserError("--model names the model that --task asks, and there is no --task; nothing was started")
        return None
    from pincer_trace.twin.intent import Intent

    intent = Intent(options.task, model=options.model, wake=lambda: None)
    intent.probe()
    return intent


def _companion(options: RunOptions, profile: Profile) -> Companion | None:
    """The right evaluator's process, where it is to have one. Raises UserError."""
    if options.twin != "process":
        return None
    from pincer_trace.twin.process import start

    try:
        return start(profile, outlives=options.leftover == "keep")
    except OSError as error:
        raise UserError(f"--twin process: no process can be started: {error.strerror}; nothing was started") from None


def _check_imports(places: Places) -> None:
    """Refuse to start from code that the worker may write: its next start would run that as the supervisor (P81)."""
    if not places.exposed:
        return
    where = os.fsdecode(places.exposed[0])
    if sys.flags.isolated:
        remedy = "install pincer-trace outside of the work tree"
    else:
        remedy = f"start it as {sys.executable} -I -m pincer_trace, or install it outside of the work tree"
    raise UserError(
        f"Python would import this supervisor's code from {where}, which the command may write; {remedy}; "
        "nothing was started"
    )


def _be_engine(
    options: RunOptions,
    plan: Plan,
    profile: object,
    session: object,
    control: socket.socket,
    intent: Intent | None,
    companion: Companion | None,
    withheld: Withheld,
    scanned: list[bytes],
) -> None:
    """The rest of the engine's life, in the forked child: never returns."""
    status = 1
    try:
        from pincer_trace import worker
        from pincer_trace.kernel import libc

        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)  # orphans stay ours: to be ended, and to be known as the tree
        begun = worker.begin(plan)  # first: it gets ready while we do
        from pincer_trace.engine import Engine

        Engine(
            plan,
            profile,  # type: ignore[arg-type]
            session,  # type: ignore[arg-type]
            control,
            keep=options.leftover == "keep",
            confirm=options.confirm,
            intent=intent,
            evaluator=companion.take() if companion is not None else None,
            withheld=withheld,
            scanned=scanned,
        ).run(begun)
        status = 0
    except UserError as error:  # nothing has run, so there is nothing to keep
        from pincer_trace.ledger.session import remove

        session.ledger.leave()  # type: ignore[attr-defined]
        remove(session.path)  # type: ignore[attr-defined]
        _send(control, f"failed {error.exit_status} {error}")
    except BaseException as error:  # noqa: BLE001 - the front must hear of it, whatever it is
        if os.environ.get("PINCER_TRACE_DEBUG"):
            import traceback

            _send(control, "failed 125 " + traceback.format_exc().replace("\n", " | "))
        _send(control, f"failed 125 the supervisor failed: {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _send(control: socket.socket, message: str) -> None:
    try:
        control.sendall(message.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass


class _Front:
    """Waits for the engine's word and for signals, until the run has ended."""

    def __init__(
        self,
        engine: int,
        control: socket.socket,
        session: Session,
        notices: Notices,
        outputs: Outputs | None,
        *,
        quiet: bool,
    ) -> None:
        self._engine = engine
        self._control = control
        self._session = session
        self._notices = notices
        self._outputs = outputs
        self._quiet = quiet
        self._worker = -1  # a pidfd
        self._listener = -1
        self._pending = b""
        self._early: list[int] = []

    def wait(self) -> int:
        """The exit status for our own caller."""
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # the worker's alone: an end of file must be seen when the worker closes them
            os.dup2(null, stream)
        os.close(null)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        from pincer_trace.kernel import signals

        descriptor = signals.signal_descriptor(_WATCHED)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            ready_ones = poll.poll(self._notices.wait())
            self._notices.look()
            for ready, _ in ready_ones:
                if ready == descriptor:
                    for number, code in signals.read_signals(descriptor):
                        self._signal(number, code)
                else:
                    status = self._hear()
                    if status is not None:
                        return status

    def _signal(self, number: int, code: int) -> None:
        """What a process sent to us is meant for the worker; what the terminal sent, the worker has itself."""
        if number not in _FORWARDED:
            return
        if self._worker < 0:
            if code != _SI_KERNEL or number == signal.SIGTSTP:
                self._early.append(number)  # the command is not known yet
            return
        if code == _SI_KERNEL and self._runs():
            return
        try:
            signal.pidfd_send_signal(self._worker, number)
        except OSError:  # the command has ended: we are asked not to wait for what outlived it
            if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._control.shutdown(socket.SHUT_WR)

    def _runs(self) -> bool:
        """Whether the command itself has not ended."""
        return not select.select([self._worker], [], [], 0)[0]

    def _hear(self) -> int | None:
        data, descriptors, _ = receive_descriptors(self._control, 4096, 2)
        if not data:
            return self._engine_died()
        self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"worker":
                self._listener, self._worker = descriptors
                for early in self._early:
                    self._signal(early, 0)
            elif word == b"stopped":
                self._stop(int(rest))
            elif word == b"question":
                self._notices.question(rest.decode("utf-8", "replace"))
            elif word == b"denied":
                self._notices.denial(f"denied {rest.decode('utf-8', 'replace')}")
            elif word == b"failed":
                number, _, message = rest.partition(b" ")
                if int(number) == NOT_EXECUTABLE:
                    message += self._refusal()
                self._last_line(message, always=True)
                return self._told(int(number))
            elif word == b"exit":
                number, _, message = rest.partition(b" ")
                self._last_line(message)
                return self._leave(self._told(int(number)))
        return None

    def _stop(self, number: int) -> None:
        """Stop as the worker did, so that the shell gets its terminal back; SIGCONT to our group resumes both."""
        if number == signal.SIGSTOP:
            os.kill(os.getpid(), number)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])

    def _last_line(self, message: bytes, *, always: bool = False) -> None:
        if always or not self._quiet:
            say(message.decode("utf-8", "replace"))

    def _refusal(self) -> bytes:
        """By whom the command itself was refused, for the last line; empty where it was the kernel."""
        from pincer_trace import paths
        from pincer_trace.ledger import read

        try:
            refused = [d for d in read.decisions(self._session.path) if d["kind"] == "denied" and d["effect"] == "exec"]
        except UserError:
            return b""
        if not refused:
            return b""
        rule = refused[-1]["rule"] or "the profile"
        said = f"; {rule} denies exec of {refused[-1]['path']}: {refused[-1]['reason']}"
        return paths.display(said, 2000).encode() + f"; log: pincer-trace log {self._session.selector}".encode()

    def _told(self, status: int) -> int:
        """`status` as --fail-on has it, when the reports are written."""
        return status if self._outputs is None else self._outputs.finish(self._session.path, status)

    def _leave(self, status: int) -> int:
        """`status` is the worker's exit status, or minus its signal. A shell in between must know of a Ctrl-C."""
        if status == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return status if status >= 0 else 128 - status

    def _engine_died(self) -> int:
        """End the tree: its held calls stay unanswered, since we hold the listener, until nobody is left."""
        from pincer_trace.kernel import procfs

        me = os.getpid()
        while True:
            for pid in procfs.descendants(me):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            select.select([], [], [], 0.002)
        say("the supervisor ended unexpectedly: every process of the run was ended; what it did is in the log")
        return self._told(FAILURE)
