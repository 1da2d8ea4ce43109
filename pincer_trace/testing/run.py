"""Running a command under pincer-trace from a test: the supervisor is a process of its own, and is always ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache

import pincer_trace
from pincer_trace import cache as compiled
from pincer_trace import paths
from pincer_trace.errors import FAILURE
from pincer_trace.testing import launch
from pincer_trace.testing.trace import Trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    Text = str | PathLike[str]

_PATIENCE = 20.0  # seconds for a tree that was killed, and its supervisor, to be gone
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
    Without `input`, standard input is empty. `sessions` is where the session's directory is made: by default where
    `pincer-trace log` finds it.

    Raises `TimedOut` after `timeout` seconds; then, as after every interruption, no process of the run is left. Raises
    `CannotStart` when there is nothing that ran, and of that `Unsupported` when this machine cannot supervise.
    """
    words = [os.fspath(word) for word in command]
    if not words:
        raise ValueError("no command to run")
    flags = ["--quiet", "--ui", "none", "--confirm", confirm]
    if profile is not None:
        name = os.fspath(profile)
        flags += ["--profile", os.path.abspath(os.path.expanduser(name)) if _is_file(name) else name]
    if task is not None:
        flags += ["--task", task]
    if sessions is not None:
        flags += ["--session-dir", os.path.abspath(sessions)]
    flags += [os.fspath(option) for option in options]
    environment = _environment(env or {}, home)
    data = input.encode() if isinstance(input, str) else input
    with _launched([*flags, "--", *words], cwd, environment, data is not None) as (process, life):
        out, err, late = b"", b"", False
        try:
            out, err = process.communicate(data, timeout)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            out, err = process.communicate(timeout=_PATIENCE)
        session = _last_words(life)
    status = process.returncode
    if not os.path.isdir(session):  # none was told of, or it was taken back: the command was not started
        raise _reason(status, err, environment)
    trace = Trace(os.fsdecode(session), words, status if status >= 0 else 128 - status, out, err)
    if late:
        raise TimedOut(trace, timeout)
    return trace


@contextmanager
def _launched(
    arguments: list[str], cwd: Text | None, environment: Mapping[str, str], has_input: bool
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The supervisor's front, in a session of its own, and the descriptor that ends with front and engine.

    However this is left, nothing of the run is left then: when the front is gone, the engine ends the tree and itself.
    """
    life, theirs = os.pipe()
    try:
        words = [
            sys.executable,
            "-I",
            "-S",
            launch.__file__,
            str(os.getpid()),
            str(theirs),
            sys.prefix,
            _imports(),
            "--",
        ]
        try:
            process = subprocess.Popen(
                [*words, *arguments], cwd=cwd, env=environment, pass_fds=(theirs,), start_new_session=True,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        finally:
            os.close(theirs)
        with process:
            try:
                yield process, life
            except BaseException:
                process.kill()
                _last_words(life)
                raise
    finally:
        os.close(life)


def _last_words(life: int) -> bytes:
    """What was said until front and engine had ended: the session's directory."""
    said = b""
    deadline = time.monotonic() + _PATIENCE
    while True:
        if not select.select([life], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise RuntimeError(f"the supervisor has not ended after {_PATIENCE:g} s; its processes may still run")
        part = os.read(life, 65536)
        if not part:
            return said
        said += part


def _reason(status: int, stderr: bytes, environment: Mapping[str, str]) -> CannotStart:
    """Why nothing ran. What a machine lacks is found out only now: a test that runs need not wait for it."""
    said = stderr.decode(errors="backslashreplace").strip().removeprefix("pincer-trace: ")
    if status != FAILURE:
        return CannotStart(said or f"the supervisor ended with status {status}")
    with _launched([], "/", environment, False) as (process, _):
        lacking = process.communicate(timeout=_PATIENCE)[0].decode(errors="backslashreplace").strip()
    if process.returncode == 1:
        return Unsupported(f"this machine cannot supervise: {'; '.join(lacking.splitlines())}")
    return CannotStart(said)


@cache
def _imports() -> str:
    """Where this package and what it needs are imported from: installed ones, and nothing else that is on the path."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(pincer_trace.__file__)))
    installed = [each for each in sys.path if os.path.basename(each) in ("site-packages", "dist-packages")]
    return os.pathsep.join(dict.fromkeys([ours, *map(os.path.abspath, installed)]))


def _environment(changes: Mapping[str, str | None], home: Text | None) -> dict[str, str]:
    environment = dict(os.environ)
    if home is not None:
        for name in _LEADING_ELSEWHERE:
            environment.pop(name, None)
        environment["HOME"] = os.path.abspath(home)
        os.makedirs(home, exist_ok=True)
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


def _is_file(name: str) -> bool:
    return "/" in name or name.endswith(".toml")
