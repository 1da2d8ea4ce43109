"""The bar of long work: on a terminal's standard error only, after a while only, and gone at the end."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from pincer_trace.ledger import Session
from pincer_trace.ledger.read import read_records
from pincer_trace.profile import Places
from pincer_trace.ui import progress

# The program with a bar that does not wait, and that stops itself where it was drawn for the first time.
IMPATIENT = """
import fcntl, os, signal, struct, sys, termios
if os.isatty(2) and not os.get_terminal_size(2).columns:
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
from pincer_trace.__main__ import main
from pincer_trace.profile import Places
from pincer_trace.ui import progress
progress._PATIENCE = 0
write = progress.Progress._write
def write_and_stop(self, text):
    write(self, text)
    if HALTS and b"%" in text:
        progress.Progress._write = write
        os.kill(os.getpid(), signal.SIGSTOP)
progress.Progress._write = write_and_stop
sys.argv = ["pincer-trace", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.fixture
def large(program, tmp_path):
    """A session of some thousand lines, one of which is a refusal near the end."""
    places = Places.of(str(tmp_path), program.environ, None)
    judged_by = {
        "profile": "default", "allow_write": [], "allow_connect": [], "allow_net": [], "protect": [], "compiled": None,
        "places": places.told(),
    }  # fmt: skip
    made = Session.create(
        Session.reserve(os.path.join(program.state, "pincer-trace", "sessions")), command=[b"agent"],
        profile_name="default", profile_digest=bytes(32), workspace=b"/tree", details={"judged_by": judged_by},
    )  # fmt: skip
    subject = {"pid": 7, "exe": b"/bin/sh", "dev": 1, "ino": 2, "rule": "r:1", "reason": "so"}
    for number in range(4000):
        made.ledger.outcome(made.ledger.intent("write", b"/tree/%d" % number, verdict="allow", **subject), 0)
    made.ledger.denied("write", b"/tree/no", verdict="deny", **subject)
    made.ledger.close(0, 0)
    return made.path


def impatient(*arguments, halts=False):
    return [sys.executable, "-c", IMPATIENT.replace("HALTS", str(halts)), *arguments]


def on_terminal(program, words, stdout=None, during=lambda process: None, **environ):
    """Run with standard error (and output, unless it goes elsewhere) on a terminal; the status, and what it got."""
    ours, theirs = pty.openpty()
    environ = {**program.environ, "TERM": "xterm", **environ}
    environ.pop("COLUMNS")
    with subprocess.Popen(
        words, env=environ, stdin=subprocess.DEVNULL, stdout=theirs if stdout is None else stdout, stderr=theirs
    ) as process:
        os.close(theirs)
        during(process)
        told = b""
        try:
            while piece := os.read(ours, 1 << 16):
                told += piece
        except OSError:  # EIO: the last one who had it open is gone
            pass
        os.close(ours)
    return process.returncode, told


@pytest.mark.parametrize(
    "words",
    [("verify",), ("log", "--verdict", "deny"), ("replay", "-p", "default"), ("report",), ("why", "8001")],
    ids=lambda w: w[0],
)
def test_it_is_shown_cleared_and_nowhere_on_standard_output(program, large, tmp_path, words):
    plain = program(*words, large)
    with open(tmp_path / "out", "w+") as out:
        status, told = on_terminal(program, impatient(*words, large), out)
        out.seek(0)
        assert (status, out.read()) == (plain.returncode, plain.stdout)
    drawn = told.split(b"\r")
    assert any(b"%" in each and b"\xe2\x94\x81" in each for each in drawn), told
    last = max(number for number, each in enumerate(drawn) if b"%" in each)
    assert drawn[last + 1].startswith(b"\x1b[2K") and b"\x1b[?25" not in told  # cleared; the cursor was never hidden


def test_a_short_work_shows_none(program, large):
    assert b"%" not in on_terminal(program, program.command("verify", large))[1]


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": ""}])
def test_no_bar_where_a_terminal_cannot_clear_it(program, large, environ):
    assert on_terminal(program, impatient("verify", large), **environ)[1].count(b"\r") == 1  # of the line's end


def test_no_bar_on_what_is_no_terminal(program, large):
    done = subprocess.run(
        impatient("verify", large),
        env={**program.environ, "TERM": "xterm"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == b""


def test_no_colour_is_respected(program, large):
    colour = re.compile(rb"\x1b\[[39]\dm")
    assert colour.search(on_terminal(program, impatient("verify", large))[1])
    told = on_terminal(program, impatient("verify", large), NO_COLOR="1")[1]
    assert b"%" in told and not colour.search(told)


def test_it_is_on_the_screen_while_it_works_and_gone_afterwards(program, large, tmp_path):
    script = tmp_path / "impatient.py"
    script.write_text(IMPATIENT.replace("HALTS", "True"))
    environ = {name: value for name, value in program.environ.items() if name != "COLUMNS"}

    def tmux(*words):
        return subprocess.run(
            ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null", *words], env=environ, capture_output=True,
            text=True, check=True, timeout=60,
        ).stdout  # fmt: skip

    def await_screen(wanted):
        end = time.monotonic() + 60
        while not wanted(screen := tmux("capture-pane", "-p")):
            assert time.monotonic() < end, screen
        return screen

    # a shell with job control: the stopped program is a job, which goes on in the foreground
    tmux("new-session", "-d", "-x", "50", "-y", "20", "env PS1='ready> ' sh -m")
    try:
        tmux("send-keys", "-l", f"clear; {sys.executable} {script} verify {large}")
        tmux("send-keys", "Enter")
        shown = await_screen(lambda screen: "%" in screen and "Stopped" in screen)
        assert "reading the log ━" in shown
        line = next(each for each in shown.splitlines() if "%" in each)
        assert len(line.partition("%")[0]) < 50
        tmux("send-keys", "-l", "clear; fg")
        tmux("send-keys", "Enter")
        left = await_screen(lambda screen: "whole" in screen and screen.rstrip().endswith("ready>"))
        assert "%" not in left and "━" not in left
    finally:
        tmux("kill-server")


def test_an_interrupted_work_leaves_no_bar(program, large):
    def interrupt(process):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)

    status, told = on_terminal(program, impatient("verify", large, halts=True), during=interrupt)
    assert status in (-signal.SIGINT, 128 + signal.SIGINT)
    assert b"\r\x1b[2K" in told.rpartition(b"%")[2] and b"whole" not in told


def test_the_loop_is_told_rarely_and_answers_at_once(large):
    """Cost: one call and one look at the clock for a thousand lines, and ten drawings a second."""
    told = []
    assert sum(1 for _ in read_records(large, tell=told.append)) == len(list(read_records(large)))
    assert (
        len(told) == 7 and told == sorted(told) and 0 < told[0] < told[-1] <= os.path.getsize(large + "/ledger.jsonl")
    )


def test_a_bar_that_cannot_be_written_is_given_up(monkeypatch):
    bar = progress.Progress("reading", 100)
    monkeypatch.setattr(progress.os, "write", lambda fd, text: (_ for _ in ()).throw(OSError(5, "gone")))
    monkeypatch.setattr(bar, "_next", 0.0)
    bar._tell(50)
    assert bar._next == float("inf")
