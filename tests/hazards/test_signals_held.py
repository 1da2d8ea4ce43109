"""A task that is held in an open answers its signals: hazard P74. The hold is a FIFO without a writer."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from hazards.path_programs.terminal import Terminal
from hazards.path_programs.tools import attack, compiled, give, python

pytestmark = pytest.mark.both_identities


def ours(runner: support.Runner, *words: str) -> list[str]:
    """The command line that supervises `words` in this test's folders."""
    sessions = runner.base / "sessions"
    if not sessions.exists():
        sessions.mkdir(mode=0o700)
        os.chown(sessions, runner.identity.uid, runner.identity.gid)
    program = [runner.identity.python, "-m", "pincer_trace", "--session-dir", str(sessions), "--quiet", "--"]
    return [*runner.identity.switch, *program, *words]


def fifo(runner: support.Runner) -> Path:
    """A FIFO of the work tree that nobody has open."""
    path = runner.work / "fifo"
    os.mkfifo(path)
    os.chown(path, runner.identity.uid, runner.identity.gid)
    return path


@contextlib.contextmanager
def running(runner: support.Runner, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """`words` supervised, with pipes, until they have said `up`."""
    with subprocess.Popen(
        ours(runner, *words), cwd=runner.work, env=support.environment(runner.identity, runner.home), text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line.startswith("up"), line + process.stdout.read()
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def until(holds: object, what: str, timeout: float = 5) -> None:
    """Wait for something that announces itself nowhere: a state of a process."""
    end = time.monotonic() + timeout
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.005)


def test_p74_an_alarm_ends_a_waiting_open(runner: support.Runner) -> None:
    """The handler runs while the task is held, and what it raises ends the open."""
    fifo(runner)
    found, _ = attack(
        runner,
        """
import signal, time
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
for flags in (os.O_RDONLY, os.O_WRONLY):
    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try: os.open("fifo", flags); note(str(flags), "opened")
    except Late: note(str(flags), 0.15 < time.monotonic() - started < 2)
# without SA_RESTART the call itself says EINTR
signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.2)
note("raw", word(call("openat", AT_FDCWD, "fifo", os.O_RDONLY, 0)))
report()
""",
        timeout=10,
    )
    assert found == {"0": True, "1": True, "raw": "EINTR"}


@pytest.mark.parametrize("program", ["SA_RESTART in C", "PEP 475 in Python"])
def test_p74_a_handler_that_returns_lets_the_open_go_on(runner: support.Runner, program: str) -> None:
    """Three handlers run while held, then a writer comes and the open succeeds once."""
    path = fifo(runner)
    code = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
print("up", flush=True)
os.write(1, os.read(os.open("fifo", os.O_RDONLY), 4))
"""
    words = [compiled("restart")] if "C" in program.split() else python(runner, code)
    with running(runner, words) as process:
        assert process.stdout
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)  # to the front, which hands it on
            assert process.stdout.readline() == "handled\n"
        path.write_bytes(b"word")
        assert process.stdout.read() == "word"
        assert process.wait(5) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_p74_a_held_task_dies_at_once(runner: support.Runner, number: signal.Signals) -> None:
    """By default action, sent by a sibling; the parent hears how it ended."""
    fifo(runner)
    found, _ = attack(
        runner,
        f"""
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
child = os.fork()
if child == 0:
    call("openat", AT_FDCWD, "fifo", os.O_RDONLY, 0); os._exit(3)
while open(f"/proc/{{child}}/stat").read().rpartition(")")[2].split()[0] == "R": pass
started = time.monotonic()
os.kill(child, {int(number)})
note("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
note("at once", time.monotonic() - started < 0.5)
report()
""",
    )
    assert found == {"status": -number, "at once": True}


def test_p74_ignored_and_blocked_signals_do_not_break_a_hold(runner: support.Runner) -> None:
    path = fifo(runner)
    code = """
import signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None); signal.siginterrupt(signal.SIGUSR2, True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.kill(os.getpid(), signal.SIGUSR2); os.kill(os.getpid(), signal.SIGUSR1)
print("up", flush=True)
print("opened", word(call("openat", AT_FDCWD, "fifo", os.O_RDONLY, 0)), flush=True)
"""
    with running(runner, python(runner, code)) as process:
        assert process.stdout
        process.send_signal(signal.SIGUSR1)
        with path.open("w"):
            assert process.stdout.readline() == "opened ok\n"


def test_p74_a_signal_to_another_thread(runner: support.Runner) -> None:
    """A process of two threads: the handler runs, and the held thread still gets its word."""
    path = fifo(runner)
    code = """
import signal, threading
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"handled\\n"))
def there():
    d = os.open("fifo", os.O_RDONLY); os.write(1, b"read " + os.read(d, 9) + b"\\n")
thread = threading.Thread(target=there); thread.start()
print("up", flush=True)
thread.join()
"""
    with running(runner, python(runner, code)) as process:
        assert process.stdout
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "handled\n"
        path.write_bytes(b"word")
        assert process.stdout.readline() == "read word\n"
        assert process.wait(5) == 0


def test_p74_ctrl_c_is_a_keyboard_interrupt(runner: support.Runner) -> None:
    fifo(runner)
    code = (
        "try: os.write(1, b'up\\n'); open('fifo')\n"
        "except KeyboardInterrupt: print('interrupted', flush=True); sys.exit(7)\n"
    )
    env = support.environment(runner.identity, runner.home)
    with Terminal(ours(runner, *python(runner, code)), cwd=runner.work, env=env, owner=runner.identity.uid) as terminal:
        terminal.expect("up")
        terminal.send("\x03")
        terminal.expect("interrupted", 3)
        assert terminal.end() == 7


def test_p74_ctrl_z_and_fg_while_held(runner: support.Runner) -> None:
    """Ctrl-Z stops the held task, the shell gets its terminal, fg resumes the wait, a writer ends it."""
    path = fifo(runner)
    give(runner, runner.base / "rc", b"PS1='ready> '; set +o history\n")
    command = shlex.join(ours(runner, "cat", "fifo")[len(runner.identity.switch) :])
    env = support.environment(runner.identity, runner.home)
    shell = [*runner.identity.switch, "bash", "--noprofile", "--rcfile", str(runner.base / "rc"), "-i"]
    with Terminal(shell, cwd=runner.work, env=env, owner=runner.identity.uid) as terminal:
        terminal.expect("ready> ")
        terminal.send(f"{command}; echo status=$?\n")
        terminal.expect("status=$?\n")
        until(lambda: "cat fifo" in support.describe_tree(terminal.pid).replace("pincer", ""), "cat runs")
        until(
            lambda: any(
                (" cat fifo" in line and " D " in line)
                or (" cat fifo" in line and "call -1" not in line and " S " in line)
                for line in support.describe_tree(terminal.pid).splitlines()
                if "pincer_trace" not in line
            ),
            "cat is held",
        )
        terminal.send("\x1a")
        terminal.expect("ready> ", 5)
        terminal.send("jobs\n")
        terminal.expect("Stopped")
        terminal.expect("ready> ")
        terminal.send("fg\n")
        terminal.expect("fg\n")
        path.write_bytes(b"the word\n")
        terminal.expect("the word")
        terminal.expect("ready> ")
        terminal.send("exit 5\n")
        assert terminal.end() == 5


def test_p74_sixty_four_holds_and_a_signal_each(runner: support.Runner) -> None:
    """Many held tasks: each hears its own signal, none is answered for another."""
    fifo(runner)
    found, _ = attack(
        runner,
        """
import signal
children = []
for number in range(64):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(number))
        call("openat", AT_FDCWD, "fifo", os.O_RDONLY, 0); os._exit(99)
    children.append(child)
for child in children:
    while open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] == "R": pass
    while not int([l for l in open(f"/proc/{child}/status") if l.startswith("SigCgt")][0].split()[1], 16) >> 9 & 1: pass
for child in reversed(children): os.kill(child, signal.SIGUSR1)
note("codes", [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == list(range(64)))
report()
""",
    )
    assert found == {"codes": True}
