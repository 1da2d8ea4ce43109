"""The front at a real terminal: job control, window size, exit status. Hazard P76.

The command behaves as if the supervisor were not there: each scenario is run natively too, with the same typing.
"""
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
from hazards.path_programs.tools import give, python
from hazards.programs import p_kit as kit
from hazards.programs.p_kit import PATIENCE, until
from screens import Screen
from support import children

pytestmark = pytest.mark.both_identities


def command(runner: support.Runner, *words: str, quiet: bool = True) -> list[str]:
    """The command line that supervises `words`, without the words that become the identity."""
    sessions = runner.base / "sessions"
    if not sessions.exists():
        sessions.mkdir(mode=0o700)
        os.chown(sessions, runner.identity.uid, runner.identity.gid)
    program = [runner.identity.python, "-m", "pincer_trace", "--session-dir", str(sessions)]
    return [*program, *(["--quiet"] if quiet else []), "--", *words]


@contextlib.contextmanager
def shell(runner: support.Runner) -> Iterator[Terminal]:
    """An interactive bash on a terminal of its own, at its first prompt."""
    rc = give(runner, runner.base / "rc", b"PS1='ready> '; set +o history\n")
    env = support.environment(runner.identity, runner.home)
    words = [*runner.identity.switch, "bash", "--noprofile", "--rcfile", str(rc), "-i"]
    with Terminal(words, cwd=runner.work, env=env, owner=runner.identity.uid) as terminal:
        terminal.expect("ready> ")
        yield terminal


def both(runner: support.Runner, *words: str) -> list[str]:
    """The same command natively and supervised, as a line for a shell."""
    return [shlex.join(words), shlex.join(command(runner, *words))]


SLEEPER = (
    "import os, time\n"
    "try:\n    os.write(1, b'up\\n'); time.sleep(60)\n"
    "except KeyboardInterrupt:\n    os.write(1, b'interrupted\\n'); raise SystemExit(9)\n"
)


def test_p76_ctrl_c_reaches_the_worker_once(runner: support.Runner) -> None:
    """Not the engine; a handler's exit status comes through; the default action is seen by the shell as a signal."""
    words = [runner.identity.python, "-I", "-c", SLEEPER]
    for line in both(runner, *words):
        with shell(runner) as terminal:
            terminal.send(f"{line}; echo status=$?\n")
            terminal.expect("\nup\n")
            terminal.send("\x03")
            assert terminal.expect("status=9\n", 5).count("interrupted") == 1
            terminal.expect("ready> ")


def test_p76_ctrl_c_by_default_ends_a_list_of_commands(runner: support.Runner) -> None:
    """A shell breaks off its loop only when its child died *by the signal*."""
    for line in both(runner, "sh", "-c", "echo up; exec sleep 60"):
        with shell(runner) as terminal:
            terminal.send(f"for i in 1 2 3; do {line}; done; echo end\n")
            terminal.expect("\nup\n")
            terminal.send("\x03")
            text = terminal.expect("ready> ", 5)
            assert "up" not in text and "end\n" not in text.replace("echo end\n", ""), text
            terminal.send("echo $?\n")
            terminal.expect("130\n")


def test_p76_ctrl_backslash(runner: support.Runner) -> None:
    for line in both(runner, "sh", "-c", "echo up; exec sleep 60"):
        with shell(runner) as terminal:
            terminal.send(f"{line}; echo status=$?\n")
            terminal.expect("\nup\n")
            terminal.send("\x1c")
            terminal.expect("status=131\n", 5)


def ticks(path: Path) -> int:
    """How often a background job has written."""
    return path.stat().st_size if path.exists() else 0


def grows(path: Path, by: int = 3) -> None:
    """Wait until a background job has written `by` times more."""
    start, end = ticks(path), time.monotonic() + 10
    while ticks(path) < start + by:
        assert time.monotonic() < end, "the background job stands still"
        time.sleep(0.01)


def stands(path: Path) -> bool:
    """Whether a job stays where it is for a fifth of a second."""
    before = ticks(path)
    time.sleep(0.2)
    return ticks(path) == before


TICKER = "while :; do printf . >> ticks; sleep 0.02; done"


def test_p76_ctrl_z_and_fg(runner: support.Runner) -> None:
    """Stopped, listed, resumed in the foreground, ended by its own status."""
    for line in both(runner, "sh", "-c", "echo up; read word; echo got=$word; exit 4"):
        with shell(runner) as terminal:
            terminal.send(f"{line}\n")
            terminal.expect("\nup\n")
            terminal.send("\x1a")
            terminal.expect("Stopped", 5)
            terminal.expect("ready> ")
            terminal.send("echo $(jobs -s | wc -l)-stopped\n")
            terminal.expect("1-stopped\n")
            terminal.expect("ready> ")
            terminal.send("fg\n")
            terminal.expect("fg\n")
            terminal.send("hello\n")
            terminal.expect("got=hello\n", 5)
            terminal.expect("ready> ")
            terminal.send("echo status=$?\n")
            terminal.expect("status=4\n")


def test_p76_ctrl_z_and_bg(runner: support.Runner) -> None:
    """Resumed in the background the command goes on, and `wait` hears its status."""
    line = both(runner, "sh", "-c", f"echo up; ({TICKER}) & p=$!; trap 'kill $p; exit 6' TERM; wait; wait")[1]
    with shell(runner) as terminal:
        terminal.send(f"{line}\n")
        terminal.expect("\nup\n")
        grows(runner.work / "ticks")
        terminal.send("\x1a")
        terminal.expect("Stopped", 5)
        terminal.expect("ready> ")
        assert stands(runner.work / "ticks"), "the whole foreground group was stopped"
        terminal.send("bg\n")
        terminal.expect("ready> ")
        grows(runner.work / "ticks")
        terminal.send("kill -TERM %1; wait %1; echo status=$?\n")
        terminal.expect("status=6\n", 5)


def test_p76_ctrl_z_while_it_starts(runner: support.Runner) -> None:
    """While the engine is still in our group: it must not be stopped where nobody could see it, and we obey."""
    line = both(runner, "sh", "-c", "echo up; exit 4")[1]
    with shell(runner) as terminal:
        terminal.send(
            f"{line}; echo first=$?\n"
        )  # the next start finds all in the cache: its first child is the engine
        terminal.expect("first=4\n")
        terminal.expect("ready> ")
        terminal.send(f"{line}\n")
        for _ in until("an engine in the front's group", PATIENCE):
            found = [(front, child) for front in kit.children(terminal.pid) for child in kit.children(front)]
            if found:
                break
        (front, engine), *_ = found
        assert os.getpgid(engine) == front
        terminal.send("\x1a")
        terminal.expect("Stopped")
        terminal.expect("ready> ")
        terminal.send("fg\n")
        terminal.expect("\nup\n")
        terminal.expect("ready> ")
        terminal.send("echo status=$?\n")
        terminal.expect("status=4\n")


def test_p76_what_is_stopped_ends_with_its_terminal(runner: support.Runner) -> None:
    """The kernel ends a stopped group that nobody can continue any more: its engine is nobody who could."""
    for line in both(runner, "sh", "-c", "echo $$-up; read word"):
        with shell(runner) as terminal:
            terminal.send(f"{line}\n")
            terminal.expect("-up\n")
            (front,) = kit.children(terminal.pid)
            tree = [front, *(below for child in kit.children(front) for below in (child, *kit.children(child)))]
            terminal.send("\x1a")
            terminal.expect("Stopped")
            os.kill(terminal.pid, signal.SIGKILL)  # else the shell would end its jobs by itself
        for _ in until("all have ended", PATIENCE):
            if all(kit.state(pid) in "ZX" for pid in tree):
                break


def test_p76_background_jobs_of_the_tree_go_on(runner: support.Runner) -> None:
    """A job in a process group of its own is not stopped by the terminal: it must not be held either.

    Its every write is an open that the supervisor performs, so this fails when the engine stops too.
    """
    code = f"import os, subprocess; subprocess.Popen(['sh', '-c', {TICKER!r}], process_group=0); print('up', flush=True); input()"
    counts = []
    for line in both(runner, runner.identity.python, "-I", "-c", code):
        with contextlib.suppress(FileNotFoundError):
            (runner.work / "ticks").unlink()
        with shell(runner) as terminal:
            terminal.send(f"{line}\n")
            terminal.expect("\nup\n")
            grows(runner.work / "ticks")
            terminal.send("\x1a")
            terminal.expect("Stopped", 5)
            grows(runner.work / "ticks", 8)
            counts.append(ticks(runner.work / "ticks"))
            terminal.expect("ready> ")
            terminal.send("fg\n")
            terminal.expect("fg\n")
            terminal.send("\n")
            terminal.expect("ready> ", 10)
            terminal.send(f"pkill -u $(id -u) -f '{runner.base}/none' ; kill %1 2>/dev/null; exit\n")
        for pid in children():
            with contextlib.suppress(OSError):  # natively the ticker stays: it is ours to end
                if b"ticks" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    assert len(counts) == 2 and all(counts)


def test_p76_an_interactive_shell_inside(runner: support.Runner) -> None:
    """bash -i as the command: job control, its own Ctrl-C and Ctrl-Z, foreground groups of its own."""
    give(runner, runner.base / "rc2", b"PS1='inner> '; set +o history\n")
    line = shlex.join(command(runner, "bash", "--noprofile", "--rcfile", str(runner.base / "rc2"), "-i"))
    with shell(runner) as terminal:
        terminal.send(f"{line}\n")
        terminal.expect("inner> ")
        terminal.send("sh -c 'echo going; exec sleep 50'\n")
        terminal.expect("\ngoing\n")
        terminal.send("\x1a")
        terminal.expect("Stopped", 5)
        terminal.expect("inner> ")
        terminal.send("bg; jobs; kill %1; wait %1; echo ended=$?\n")
        terminal.expect("ended=143\n", 5)
        terminal.expect("inner> ")
        terminal.send("sh -c 'echo going; exec sleep 50'\n")
        terminal.expect("\ngoing\n")
        terminal.send("\x03")
        terminal.expect("inner> ", 5)
        terminal.send("echo $?; exit 3\n")
        terminal.expect("130\n")
        terminal.expect("ready> ")
        terminal.send("echo outer=$?\n")
        terminal.expect("outer=3\n")


def test_p76_suspending_an_inner_shell(runner: support.Runner) -> None:
    """`suspend` in the inner shell stops it and the front; the outer shell resumes both."""
    give(runner, runner.base / "rc2", b"PS1='inner> '; set +o history\n")
    for line in both(runner, "bash", "--noprofile", "--rcfile", str(runner.base / "rc2"), "-i"):
        with shell(runner) as terminal:
            terminal.send(f"{line}\n")
            terminal.expect("inner> ")
            terminal.send("suspend\n")
            terminal.expect("Stopped", 5)
            terminal.expect("ready> ")
            terminal.send("fg\n")
            terminal.expect("fg\n")
            terminal.send("echo back-$((2+3))\n")
            terminal.expect("back-5\n", 5)
            terminal.expect("inner> ")
            terminal.send("exit 2\n")
            terminal.expect("ready> ", 5)


def test_p76_window_size(runner: support.Runner) -> None:
    """The worker is in the foreground group: it sees the size, and SIGWINCH when it changes, once."""
    code = (
        "import os, signal, time\n"
        "def shown(*_): os.write(1, ('size %d %d\\n' % os.get_terminal_size()).encode())\n"
        "signal.signal(signal.SIGWINCH, shown); shown(); os.write(1, b'up\\n')\n"
        "while True: time.sleep(0.1)  # pause() could begin just after the signal\n"
    )
    env = support.environment(runner.identity, runner.home)
    words = [*runner.identity.switch, *command(runner, runner.identity.python, "-I", "-c", code)]
    with Terminal(words, cwd=runner.work, env=env, owner=runner.identity.uid, rows=33, columns=101) as terminal:
        terminal.expect("up\n")
        terminal.resize(40, 120)
        assert "size" not in terminal.expect("size 120 40\n", 5)
        terminal.resize(20, 50)
        assert "size" not in terminal.expect("size 50 20\n", 5)
        terminal.send("\x03")
        assert terminal.end() in (1, 130)


def test_p76_the_terminal_is_the_workers(runner: support.Runner) -> None:
    """isatty, /dev/tty, getpass without echo, the process group in the foreground, an end of file."""
    code = (
        "import getpass, os, sys\n"
        "print(os.isatty(0), os.isatty(1), os.isatty(2), os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
        "open('/dev/tty', 'w').write('by name\\n')\n"
        "print('secret', len(getpass.getpass('word? ')), flush=True)\n"
        "print('rest', len(sys.stdin.read()), flush=True)\n"
    )
    for words in ([], command(runner)):
        env = support.environment(runner.identity, runner.home)
        line = [*runner.identity.switch, *words, runner.identity.python, "-I", "-c", code]
        with Terminal(line, cwd=runner.work, env=env, owner=runner.identity.uid) as terminal:
            terminal.expect("True True True True\n")
            terminal.expect("by name\n")
            terminal.expect("word? ")
            terminal.send("hidden\n")
            assert "hidden" not in terminal.expect("secret 6\n")
            terminal.send("line\n\x04")
            terminal.expect("rest 5\n")
            assert terminal.end() == 0


def test_p76_our_own_lines_stop_no_background_job(runner: support.Runner) -> None:
    """`stty tostop` is for what jobs write; a command that writes nothing goes on, whatever we say."""
    line = shlex.join(command(runner, "true", quiet=False))
    with shell(runner) as terminal:
        terminal.send(f"stty tostop; {line} & wait $!; echo status=$?\n")
        terminal.expect("to watch it")
        terminal.expect("status=0\n")


def test_p76_a_background_reader_is_stopped(runner: support.Runner) -> None:
    """SIGTTIN: `cmd &` that reads the terminal stops, and fg lets it read."""
    for line in both(runner, "sh", "-c", "echo up; read word; echo got=$word"):
        with shell(runner) as terminal:
            terminal.send(f"{line} &\n")
            terminal.expect("&\n[1] ")
            terminal.expect("up\n")
            deadline = time.monotonic() + 5
            while True:
                terminal.send("jobs -s | wc -l | sed s/^/stopped=/\n")
                terminal.expect("/\n")
                if terminal.expect("\n").strip().endswith("stopped=1"):
                    break
                assert time.monotonic() < deadline, "not stopped by SIGTTIN"
            terminal.send("fg\n")
            terminal.expect("fg\n")
            terminal.expect("\n")
            terminal.send("word\n")
            terminal.expect("got=word\n", 5)


@pytest.mark.parametrize(
    ("line", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139),
     ("kill -PIPE $$", 141), ("kill -INT $$", 130), ("kill -HUP $$", 129), ("exec /nonexistent", 127), ("exec /etc/passwd", 126),
     ("ulimit -f 1; head -c 100000 /dev/zero >big", 153)],
)  # fmt: skip
def test_p76_exit_status(runner: support.Runner, line: str, status: int) -> None:
    native, ours = runner.native(["sh", "-c", line]), runner.supervise(["sh", "-c", line])
    assert ours.status == native.status, (native, ours)
    assert ours.status in (status, 0 if "ulimit" in line else status, 153)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGINT, signal.SIGQUIT]
)
def test_p76_signals_to_the_front_are_the_workers(runner: support.Runner, number: signal.Signals) -> None:
    """`kill $!` of the program that was started: its handler runs once; without one it dies of it."""
    for handled in (True, False):
        code = (
            "import signal, sys, time\n"
            f"count = 0\ndef h(*_):\n    global count; count += 1; os.write(1, b'handled %d\\n' % count); sys.exit(12)\n"
            f"signal.signal({int(number)}, h if {handled} else signal.SIG_DFL)\nos.write(1, b'up\\n')\n"
            "while True: time.sleep(0.1)  # pause() could begin just after the signal\n"
        )
        words = [*runner.identity.switch, *command(runner, *python(runner, code))]
        with subprocess.Popen(
            words, cwd=runner.work, env=support.environment(runner.identity, runner.home), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout and process.stdout.readline() == "up\n"
            process.send_signal(number)
            text = process.stdout.read()
            code_seen = process.wait(5)
        shown = code_seen if code_seen >= 0 else 128 - code_seen
        assert text == ("handled 1\n" if handled else ""), text
        assert shown == (12 if handled else 128 + number)


def test_p76_a_session_in_tmux(runner: support.Runner) -> None:
    """A captured screen: a prompt, Ctrl-C and the last line of the run, as the user sees them."""
    # exec: dash loses a Ctrl-C now and then that comes while it starts a child, without us too
    line = shlex.join(command(runner, "sh", "-c", "echo up; stty size; exec sleep 50", quiet=False))
    with Screen(runner, 90, 20) as terminal:
        terminal.type(f"clear; {line}; echo status=$?")
        terminal.see("20 90")
        terminal.keys("C-c")
        screen = "\n".join(terminal.see("ready>"))
        assert "^C" in screen and " allowed, " in screen, screen
        assert "Traceback" not in screen
