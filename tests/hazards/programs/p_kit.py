"""What the protocol tests share: compiling the attacker programs of this folder, watching a run while it lives, and
starting a supervisor with one function broken.

It goes through the command line, as tests/support.py does. Only `broken` reaches inside, from the outside: p_inject.py
replaces one named function before the real entry runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import support
from hazards.path_programs.tools import build_folder, give

PROGRAMS = Path(__file__).parent
PATIENCE = 20.0  # seconds before a wait for an event fails the test


@functools.cache
def program(name: str, *flags: str) -> str:
    """The path of `NAME.c`, compiled."""
    binary = build_folder() / "-".join([name, *(flag.strip("-") for flag in flags)])
    words = [
        "gcc",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        *flags,
        "-o",
        str(binary),
        str(PROGRAMS / f"{name}.c"),
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(binary)


@functools.cache
def script(name: str) -> str:
    """A copy of `NAME.py` that every identity can read."""
    copy = build_folder() / f"{name}.py"
    shutil.copyfile(PROGRAMS / f"{name}.py", copy)
    return str(copy)


def secret(runner: support.Runner) -> Path:
    """A file that the default profile lets nobody read."""
    return give(runner, runner.home / ".ssh" / "id_ed25519", b"canary-5e1f\n", 0o600)


def outside(runner: support.Runner, name: str = "outside") -> Path:
    """A file that the default profile lets be read but not be changed."""
    return give(runner, runner.home / "elsewhere" / name, b"as it was\n")


def numbers(result: support.Result) -> dict[str, int]:
    """What a program counted: its last line, `name=number` words."""
    assert result.status == 0, result
    return {key: int(value) for key, _, value in (w.partition("=") for w in result.out.splitlines()[-1].split())}


def new_sessions(runner: support.Runner) -> Path:
    """A session directory for one more run, as Runner.supervise makes it."""
    runner.count += 1
    sessions = runner.base / f"sessions{runner.count}"
    sessions.mkdir(mode=0o700)
    os.chown(sessions, runner.identity.uid, runner.identity.gid)
    return sessions


def broken(runner: support.Runner, fault: str, command: Sequence[str], **how: Any) -> support.Result:
    """Run `command` under a supervisor in which `fault` ("module:name.name=ERROR[@n]") happens. See p_inject.py."""
    sessions = new_sessions(runner)
    words = [
        runner.identity.python,
        "-I",
        script("p_inject"),
        fault,
        "--session-dir",
        str(sessions),
        *how.pop("options", ()),
    ]
    return runner._run([*words, "--", *command], sessions, how)


class Live:
    """A supervised run that the test watches and talks to while it goes on. Ended, whatever happens, at the exit."""

    def __init__(
        self,
        runner: support.Runner,
        command: Sequence[str],
        *,
        options: Sequence[str] = ("--quiet",),
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        words: Sequence[str] = (),
    ) -> None:
        self.runner = runner
        identity = runner.identity
        self.sessions = new_sessions(runner)
        ours = [
            identity.python,
            *(words or ("-I", "-m", "pincer_trace")),
            "--session-dir",
            str(self.sessions),
            *options,
            "--",
        ]
        self.environment = support.environment(identity, runner.home, env)
        how: dict[str, Any] = {}
        self.terminal = -1
        slave = -1
        if terminal:
            self.terminal, slave = pty.openpty()
            os.fchown(slave, identity.uid, identity.gid)
            how = {"stdin": slave, "stdout": slave, "stderr": slave, "preexec_fn": _take_terminal}
        else:
            how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            [*identity.switch, *ours, *command], cwd=runner.work, env=self.environment, start_new_session=True, **how
        )
        if slave >= 0:
            os.close(slave)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                os.fchown(pipe.fileno(), identity.uid, identity.gid)
        self._pending = b""

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in [*self.tree(), self.process.pid]:
            kill(pid)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.terminal >= 0:
            os.close(self.terminal)

    # -- talking ---------------------------------------------------------------------------------------------------

    @property
    def _output(self) -> int:
        return self.terminal if self.process.stdout is None else self.process.stdout.fileno()

    def read_until(self, mark: bytes, patience: float = PATIENCE) -> bytes:
        """The output up to and including `mark`. AssertionError at its end or after `patience` seconds."""
        deadline = time.monotonic() + patience
        while mark not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise AssertionError(
                    f"{mark!r} did not come; so far {self._pending!r}\n{support.describe_tree(self.process.pid)}"
                )
            try:
                data = os.read(self._output, 65536)
            except OSError:
                data = b""
            assert data, f"the output ended before {mark!r}: {self._pending!r} {self.errors()!r}"
            self._pending += data
        at = self._pending.index(mark) + len(mark)
        found, self._pending = self._pending[:at], self._pending[at:]
        return found

    def line(self, patience: float = PATIENCE) -> str:
        """The next line of the output."""
        return self.read_until(b"\n", patience).decode(errors="surrogateescape").rstrip("\r\n")

    def say(self, text: bytes = b"\n") -> None:
        """Write to the worker's standard input."""
        os.write(self.terminal if self.process.stdin is None else self.process.stdin.fileno(), text)

    def errors(self) -> bytes:
        """What came on standard error so far."""
        if self.process.stderr is None or not select.select([self.process.stderr], [], [], 0)[0]:
            return b""
        return os.read(self.process.stderr.fileno(), 65536)

    def end(self, patience: float = PATIENCE) -> int:
        """Close the worker's standard input and wait: the shell's status."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        code = self.process.wait(patience)
        return code if code >= 0 else 128 - code

    # -- who is who ------------------------------------------------------------------------------------------------

    @property
    def front(self) -> int:
        """The process that the shell sees."""
        return self.process.pid

    @functools.cached_property
    def engine(self) -> int:
        """The front's child, once it has a worker."""
        for _ in until("the engine", PATIENCE):
            below = [pid for pid in children(self.front) if not name(pid).startswith("pincer-")]
            if len(below) == 1 and children(below[0]):
                return below[0]
        raise AssertionError

    @property
    def worker(self) -> int:
        """The command itself."""
        return children(self.engine)[0]

    def tree(self) -> list[int]:
        """Everything below the front."""
        found, todo = [], [self.front]
        while todo:
            below = children(todo.pop())
            found += below
            todo += below
        return found

    @property
    def session(self) -> Path:
        """The session's directory."""
        (found,) = (path.parent for path in self.sessions.rglob("ledger.jsonl"))
        return found

    def decisions(self) -> list[dict[str, Any]]:
        """`log --json` of the run so far."""
        return support._Log(self.sessions, self.runner.identity, self.environment).read()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def until(what: str, patience: float) -> Iterator[None]:
    """Look again and again for something that /proc shows and nothing announces."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)
    raise AssertionError(f"{what}: not within {patience} s")


def children(pid: int) -> list[int]:
    """Direct children of every thread of `pid`."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def name(pid: int) -> str:
    """What `ps` calls it."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def state(pid: int) -> str:
    """The letter of /proc/PID/stat, X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def waits_in(pid: int, call: int) -> bool:
    """Whether `pid` is in system call `call` right now."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] == str(call)
    except OSError:
        return False
