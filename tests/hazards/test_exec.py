"""P42 and P43: programs are judged as pinned, and what the kernel starts then is compared."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import attack, give
from hazards.programs.p_kit import program

TRIES, SLOW = 1000, 100_000


def give_two(runner: support.Runner) -> None:
    """`e`, which says what it is given, and `t`, which says nothing."""
    for name, file in (("e", "echo"), ("t", "true")):
        give(runner, runner.work / name, Path(str(shutil.which(file))).read_bytes(), 0o755)


@pytest.mark.parametrize("tries", [TRIES, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p42_the_record_names_the_program_that_ran(runner: support.Runner, tries: int) -> None:
    """A thread flips the path in shared memory between the look and the kernel's own: no `e` runs as a `t`."""
    give_two(runner)
    result = runner.supervise([program("p42_exec"), str(tries), "./t", "e", "t"], timeout=1200)
    assert result.status == 0, result
    *ran, last = result.out.splitlines()
    done = dict.fromkeys("et", 0)
    caught = 0
    for d in result.decisions:
        if d["effect"] == "exec" and d["path"] in (str(runner.work / "e"), str(runner.work / "t")):
            done[Path(d["path"]).name] += d["outcome"] == "done"
            caught += d["outcome"] == "EACCES" and d["verdict"] == "allow"
    assert set(ran) == {"ran"} and len(ran) == done["e"] and done["t"], "the attacker asked for one of them only"
    assert last == f"killed {caught}" and caught, "the race did not happen"
    assert len(ran) + done["t"] + caught == tries


def test_p42_a_rule_about_a_program_is_not_raced(runner: support.Runner) -> None:
    """The same where the profile closes one of the two: it never runs."""
    give_two(runner)
    options = ("--quiet", "--protect", str(runner.work / "e"))
    result = runner.supervise([program("p42_exec"), "300", "./t", "e", "t"], options=options)
    assert result.status == 0 and "ran" not in result.out, result
    result.trace.assert_denied("exec", runner.work / "e")


FORMS = r"""
import threading, subprocess
true, python = sys.argv[1], sys.executable
def ended(start):
    pid = os.fork()
    if not pid:
        try: start()
        except OSError as error: os._exit(100 + min(error.errno, 50))
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def write(name, text, mode=0o755):
    with open(name, "wb") as f: f.write(text)
    os.chmod(name, mode); return name
note("plain", ended(lambda: os.execv(true, ["true"])))
note("itself", ended(lambda: os.execv(python, [python, "-I", "-S", "-c", ""])))
note("script", ended(lambda: os.execv(write("./s1", b"#! \t/bin/sh -e\nexit 7\n"), ["s1"])))
note("script of a script", ended(lambda: os.execv(write("./s2", b"#!" + os.getcwdb() + b"/s1 x\n"), ["s2"])))
note("carriage return", ended(lambda: os.execv(write("./s3", b"#!/bin/sh\r\nexit 1\n"), ["s3"])))
note("no interpreter", ended(lambda: os.execv(write("./s4", b"#!/none\n"), ["s4"])))
note("no format", ended(lambda: os.execv(write("./s5", b"plain text\n"), ["s5"])))
note("empty", ended(lambda: os.execv(write("./s6", b""), ["s6"])))
note("a shell's fallback", subprocess.run(["sh", "-c", "./s7"], stderr=subprocess.DEVNULL).returncode if write("./s7", b"exit 8\n") else 0)
with open(true, "rb") as f: image = f.read()
memory = os.memfd_create("m", 0); os.write(memory, image); os.set_inheritable(memory, True)
note("memfd", ended(lambda: os.execve(memory, ["m"], {})))
write("gone", image); pin = os.open("gone", os.O_RDONLY); os.unlink("gone")
note("deleted", ended(lambda: os.execve(pin, ["gone"], {})))
os.symlink(true, "link"); note("link", ended(lambda: os.execv("./link", ["link"])))
here = os.open(".", os.O_PATH)
note("at", ended(lambda: call("execveat", here, "link", (ctypes.c_char_p * 2)(b"x", None), None, 0)))
note("at, no link", ended(lambda: os._exit(-call("execveat", here, "link", (ctypes.c_char_p * 2)(b"x", None), None, 0x100))))
def other_thread():
    thread = threading.Thread(target=lambda: os.execv(true, ["true"])); thread.start()
    while True: os.stat("/") or os.open("/", 0)
note("from another thread", ended(other_thread))
def failing_thread():
    def fail():
        try: os.execv("./s5", ["s5"])
        except OSError: os.execv(true, ["true"])
    threading.Thread(target=fail).start()
    while True: os.close(os.open("/", 0))
note("a failure in another thread", ended(failing_thread))
note("posix_spawn", os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(true, ["true"], {}), 0)[1]))
report()
"""


def test_p43_every_way_of_starting_a_program(runner: support.Runner) -> None:
    """Each starts as natively, and its record says what came of it."""
    true = str(Path(str(shutil.which("true"))).resolve())
    found, result = attack(runner, FORMS, true)
    failed = {"carriage return": 102, "no interpreter": 102, "no format": 108, "empty": 108, "at, no link": 40}
    codes = {"script": 7, "script of a script": 7, "a shell's fallback": 8}
    assert found == {name: failed.get(name, codes.get(name, 0)) for name in found} and len(found) == 17
    outcomes: dict[str, set[str]] = {}
    for call in result.trace.find("exec"):
        outcomes.setdefault(Path(call.path).name, set()).add(call.outcome)
    assert {name for name, seen in outcomes.items() if seen == {"ECANCELED"}} >= {"s3", "s4", "s5", "s6"} or not Path(
        "/proc/sys/fs/binfmt_misc/status"
    ).exists(), outcomes
    assert {
        outcome for name, seen in outcomes.items() if name not in ("s3", "s4", "s5", "s6", "s7") for outcome in seen
    } == {"done"}


@pytest.mark.both_identities
def test_p42_no_fifo_is_read_for_an_interpreter(runner: support.Runner) -> None:
    """A script that names a FIFO starts nothing, and what another process has put there stays there."""
    fifo = runner.base / "fifo"
    os.mkfifo(fifo, 0o777)
    fifo.chmod(0o777)
    give(runner, runner.work / "script", b"#!%b\n" % os.fsencode(fifo), 0o755)
    end = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(end, b"kept")
        result = runner.supervise(["./script"])
        assert result.status == 126, result
        assert os.read(end, 9) == b"kept"
    finally:
        os.close(end)
