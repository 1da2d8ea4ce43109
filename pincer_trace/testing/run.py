"""Running a command under pincer-trace from a test: the supervisor is a process of its own, and is always ended."""

from __future__ import annotations

import os

from pincer_trace import cache as compiled
from pincer_trace import paths
from pincer_trace.errors import FAILURE
from pincer_trace.profile import is_file
from pincer_trace.testing import launcher
from pincer_trace.testing.trace import Trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    Text = str | PathLike[str]

_CONFIRM = ("deny", "ask", "auto")
_LEADING_ELSEWHERE = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


class CannotStart(AssertionError):
    """The supervisor refused to start, and why: a mistake in the options, a profile or command that is not there."""


class Unsupported(CannotStart):
    """The machine cannot supervise anything: the text names what it lacks."""


class TimedOut(AssertionError):
    """It took longer than `timeout`: every process of the run was ended. `trace` is what it did until then."""

    def __init__(self, trace: Trace, seconds: float) -> None:
        self.trace = trace
        last = "\n".join(f"  {call}" for call in trace.calls[-3:])
        told = "\n  ".join(str(process) for process in trace.processes[-10:])
        super().__init__(
            f"no end after {seconds:g} s; every process of the run was ended\n"
            f"last decisions:\n{last or '  none'}\nprocesses:\n  {told or 'none'}\nsession: {trace.session}"
        )


def supervise(
    command: Sequence[Text],
    *,
    profile: Text | None = None,
    task: str | None = None,
    confirm: str = "deny",
    timeout: float = 60.0,
    cwd: Text | None = None,
    env: Mapping[str, str | None] | None = None,
    home: Text | None = None,
    input: str | bytes | None = None,
    options: Sequence[Text] = (),
    sessions: Text | None = None,
) -> Trace:
    """Run `command` under `pincer-trace` to its end, and give what it did.

    `profile`, `task` and `confirm` are the options of those names, `options` further ones, such as
    `["--allow-write", path]`. `env` are variables beside those of this process; None takes one away. `home` is a
    directory to be its HOME, so that nothing of the user's own home is seen or changed; it is made where it is missing.
    Without `input`, standard input is empty. Of each output 16 MiB are kept, and a last line says what was dropped.
    `sessions` is where the session's directory is made: by default where `pincer-trace log` finds it.

    Raises `TimedOut` after `timeout` seconds; then, as after every interruption, no process of the run is left. Raises
    `CannotStart` when there is nothing that ran, and of that `Unsupported` when this machine cannot supervise.
    """
    __tracebackhide__ = True
    words = _words(command)
    if confirm not in _CONFIRM:
        raise ValueError(f"confirm is one of {', '.join(_CONFIRM)}, not {confirm!r}")
    if not isinstance(timeout, int | float) or timeout <= 0:
        raise ValueError(f"timeout is a number of seconds, more than none, not {timeout!r}")
    flags = ["--quiet", "--ui", "none", "--confirm", confirm]
    if profile is not None:
        name = os.fspath(profile)
        flags += ["--profile", os.path.abspath(os.path.expanduser(name)) if is_file(name) else name]
    if task is not None:
        flags += ["--task", task]
    if sessions is not None:
        flags += ["--session-dir", os.path.abspath(sessions)]
    flags += [os.fspath(option) for option in options]
    environment = _environment(env or {}, home)
    data = input.encode() if isinstance(input, str) else input
    here = os.getcwd() if cwd is None else os.path.abspath(cwd)
    ended = launcher.current().run(
        [*flags, "--", *words], cwd=here, environment=environment, data=data, timeout=timeout
    )
    status = ended.status
    if not os.path.isdir(ended.session):  # none was told of, or it was taken back: the command was not started
        raise _reason(status, ended.err.text(), environment)
    exit_status = status if status >= 0 else 128 - status
    trace = Trace(os.fsdecode(ended.session), words, exit_status, ended.out.text(), ended.err.text())
    if ended.late:
        raise TimedOut(trace, timeout)
    return trace


def _words(command: Sequence[Text]) -> list[str]:
    """The command, as it is started. Raises TypeError or ValueError for what is none."""
    __tracebackhide__ = True
    if isinstance(command, str | bytes | os.PathLike):
        raise TypeError(f"a command is a list of words, not {command!r}; for a shell's line: ['sh', '-c', LINE]")
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"a word of a command is text or a path, not {word!r}")
        if "\0" in os.fspath(word):
            raise ValueError(f"no word of a command holds NUL: {word!r}")
    if not command:
        raise ValueError("no command to run: the list is empty")
    return [os.fspath(word) for word in command]


def _reason(status: int, stderr: str, environment: Mapping[str, str]) -> CannotStart:
    """Why nothing ran. What a machine lacks is found out only now: a test that runs need not wait for it."""
    said = stderr.strip().removeprefix("pincer-trace: ")
    if status != FAILURE:
        return CannotStart(said or f"the supervisor ended with status {status}")
    found = launcher.current().run([], cwd="/", environment=environment, data=None, timeout=launcher.PATIENCE)
    lacking = found.out.text().strip()
    if found.status == 1:
        return Unsupported(f"this machine cannot supervise: {'; '.join(lacking.splitlines())}")
    return CannotStart(said)


def _environment(changes: Mapping[str, str | None], home: Text | None) -> dict[str, str]:
    __tracebackhide__ = True
    environment = dict(os.environ)
    for name, value in changes.items():
        if not (isinstance(name, str) and isinstance(value, str | None)):
            raise TypeError(f"env: {name!r}: {value!r}; a variable is text, or None to take it away")
    if home is not None:
        for name in _LEADING_ELSEWHERE:
            environment.pop(name, None)
        environment["HOME"] = os.path.abspath(home)
        try:
            os.makedirs(home, exist_ok=True)
        except OSError as error:
            raise CannotStart(
                f"home {os.fspath(home)!r} is no directory and cannot be made: {error.strerror}"
            ) from None
        _share_compiled(os.path.abspath(home))
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def _share_compiled(home: str) -> None:
    """A new home has no compiled profiles, and making them takes longer than most tests: it gets those of this user."""
    try:
        ours = os.path.join(paths.state_directory(), "compiled")
        names = os.listdir(ours)
    except OSError:
        return
    theirs = os.path.join(home, ".local", "state", "pincer-trace", "compiled")
    if os.path.exists(theirs):
        return
    for name in names:
        content = compiled.read(ours, name) if not name.startswith(".") else None
        if content is not None:
            compiled.write(theirs, name, content)
