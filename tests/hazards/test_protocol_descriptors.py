"""What a worker can see of the descriptors that it was given: P11 close-on-exec, P13 a full table, P15 terminals, P16
locks, P99 unix sockets. Most run the same program natively and supervised, and compare every line.
"""

from __future__ import annotations

import os
import re
from itertools import zip_longest
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, give, script


def both(runner: support.Runner, what: str) -> str:
    """Run a Python program of this folder, or Python text, natively and supervised in fresh folders: what both
    printed, which must be the same."""
    how = [script(what)] if what.startswith("p") and what.replace("_", "").isalnum() else ["-c", what]
    command = [runner.identity.python, "-I", *how]
    runner.fresh()
    native = runner.native(command)
    runner.fresh()
    supervised = runner.supervise(command)
    assert native.status == 0, native
    pairs = zip_longest(native.out.splitlines(), supervised.out.splitlines())
    wrong = [f"natively {left}; supervised {right}" for left, right in pairs if left != right]
    assert not wrong, "\n".join(wrong)
    assert (supervised.err, supervised.status) == (native.err, native.status)
    return native.out


@pytest.mark.both_identities
def test_p11_flags_of_every_open(runner: support.Runner) -> None:
    """Close-on-exec, status flags, descriptor number and errno of each way to open each kind of object."""
    printed = both(runner, "p11_flags")
    assert len(printed.splitlines()) > 350
    assert " 1 0o" in printed and " 0 0o" in printed


def test_p11_a_shell_keeps_its_descriptors(runner: support.Runner) -> None:
    give(runner, runner.work / "f", b"kept\n")
    code = (
        "exec 3<f; cat <&3; exec 4>g; echo one >&4; sh -c 'echo two >&4'; exec 5<>f; cat <&5; cat g; ls /proc/self/fd"
    )
    native = runner.native(["bash", "-c", code])
    (runner.work / "g").unlink()
    supervised = runner.supervise(["bash", "-c", code])
    assert native.out.startswith("kept\nkept\none\ntwo\n")
    assert (supervised.out, supervised.status) == (native.out, 0)


def test_p11_pass_fds(runner: support.Runner) -> None:
    printed = both(
        runner,
        "import os, subprocess, sys\n"
        "open('f', 'w').write('passed on')\n"
        "kept, closed = os.open('f', os.O_RDONLY), os.open('f', os.O_RDONLY)\n"
        "code = f'import os; print(os.read({kept}, 9)); print(os.path.exists(\"/proc/self/fd/{closed}\"))'\n"
        "subprocess.run([sys.executable, '-I', '-c', code], pass_fds=[kept])\n",
    )
    assert printed == "b'passed on'\nFalse\n"


def test_p13_a_full_table_is_emfile_and_nothing_is_stuck(runner: support.Runner) -> None:
    printed = both(runner, "p13_full")
    assert "filled EMFILE" in printed
    assert "create EMFILE" in printed
    assert "again b'as it was'" in printed, "the refused O_TRUNC destroyed the content"


def test_p13_a_refused_create_leaves_no_file(runner: support.Runner) -> None:
    """Natively the number is taken before the walk: no name appears, and no content goes, with EMFILE."""
    both(runner, "p13_full")
    assert sorted(path.name for path in runner.work.iterdir()) == ["d", "full"]
    assert (runner.work / "full").read_text() == "as it was"


@pytest.mark.both_identities
def test_p15_the_terminal_is_the_callers(runner: support.Runner) -> None:
    """In a terminal of its own, /dev/tty and its kin are that terminal; without one, ENXIO; getpass asks on it."""
    with Live(runner, [runner.identity.python, "-I", script("p15_terminal")], terminal=True) as live:
        printed = live.read_until(b"Secret please: ").decode()
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        opened = [line for line in lines if line.startswith("tty ")]
        assert len(opened) == 28
        assert [line for line in opened if not line.endswith("True True 20000 True")] == []
        rest = [line for line in lines if not line.startswith("tty ")]
        own = "apart own True True 20000 True"
        assert rest == ["foreground True True", "apart ENXIO", own, "apart still ENXIO", "Secret please:"]
        live.say(b"open sesame\n")
        after = live.read_until(b"end of it").decode()
        assert "open sesame" in after.split("password", 1)[1]
        assert "open sesame" not in after.split("password", 1)[0], "the terminal echoed the password"
        live.say(b"\n")
        assert live.end() == 0


def test_p15_without_a_terminal(runner: support.Runner) -> None:
    printed = both(
        runner,
        "import errno, os\n"
        "for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NOCTTY, os.O_RDWR | os.O_CREAT):\n"
        "    try: os.open('/dev/tty', flags)\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n",
    )
    assert printed.split() == ["ENXIO"] * 5


def test_p15_the_supervisor_takes_no_terminal(runner: support.Runner) -> None:
    """Terminals that the worker makes and opens become nobody's controlling terminal but its own."""
    code = """
import os, sys
for _ in range(5):
    master, slave = os.openpty()
    os.close(os.open(os.ttyname(slave), os.O_RDWR))
print("made"); sys.stdout.flush(); sys.stdin.readline()
"""
    with Live(runner, [runner.identity.python, "-I", "-c", code]) as live:
        assert live.line() == "made"
        for pid in (live.front, live.engine):
            terminal = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4]
            assert terminal == "0"
        live.say()
        assert live.end() == 0


@pytest.mark.both_identities
def test_p16_locks_are_as_natively(runner: support.Runner) -> None:
    printed = both(runner, "p16_locks")
    assert "flock wrong 0" in printed
    assert "ofd wrong 0" in printed


def test_p16_flock_between_two_children(runner: support.Runner) -> None:
    """One child holds the lock until it is told to go; another gets nothing before and everything after."""
    holder = "exec 9>l; flock 9; echo held >&3; read x <go; exit"
    other = "flock -n l echo free || echo busy"
    code = f"mkfifo go told; bash -c '{holder}' 3>told & read x <told; echo $x; {other}; echo >go; wait; {other}"
    result = runner.supervise(["bash", "-c", code])
    assert result.out.split() == ["held", "busy", "free"], result


@pytest.mark.both_identities
def test_p99_bound_names_read_back_as_they_were_written(runner: support.Runner) -> None:
    printed = both(runner, "p99_sockets")
    assert "0o77 s.sock True True 0o140700" in printed
    assert "again EADDRINUSE" in printed


def test_p99_the_engine_keeps_its_own_place(runner: support.Runner) -> None:
    """A bind in the worker's directory leaves the supervisor's directory alone, and no thread behind for each one."""
    code = """
import os, socket, sys
for round in range(2):
    for number in range(20):
        os.makedirs(f"r{round}/{number}", exist_ok=True)
        os.chdir(f"r{round}/{number}")
        os.umask(number)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("s")
        os.chdir("../..")
    print("bound"); sys.stdout.flush(); sys.stdin.readline()
"""
    if os.geteuid() != 0:
        pytest.skip("what the supervisor has open is closed to all but root: it is not dumpable")
    with Live(runner, [runner.identity.python, "-I", "-c", code]) as live:
        assert live.line() == "bound"
        engine = Path(f"/proc/{live.engine}")
        place, threads = os.readlink(engine / "cwd"), len(os.listdir(engine / "task"))
        live.say()
        assert live.line() == "bound"
        assert os.readlink(engine / "cwd") == place
        assert len(os.listdir(engine / "task")) < threads + 10  # a few begin when a run has lasted a moment
        live.say()
        assert live.end() == 0


def test_p11_nothing_of_ours_is_inherited(runner: support.Runner) -> None:
    """The command has the three streams and what it opens; neither the listener nor the log nor a socket of ours."""
    result = runner.supervise(["sh", "-c", "ls -l /proc/$$/fd"])
    targets = re.findall(r"(\d+) -> (.*)", result.out)
    assert {number for number, _ in targets} == {"0", "1", "2"}, result.out
