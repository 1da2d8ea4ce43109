"""Subcommands and mistakes as a person meets them: output, one-line errors, exit statuses."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from pincer_trace.ledger.read import KEYS
from pincer_trace.options import TABLE

from .conftest import NASTY

ESCAPE = "\x1b"


def on_a_terminal(program, *arguments, columns=80, **environ):
    """Standard output of the program on a terminal of that width."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = {**program.environ, "TERM": "xterm-256color", **environ}
    settings.pop("COLUMNS")
    child = subprocess.Popen(program.command(*arguments), stdout=slave, stderr=subprocess.PIPE, env=settings)
    os.close(slave)
    output = b""
    while select.select([master], [], [], 30)[0]:
        try:
            piece = os.read(master, 65536)
        except OSError:  # EIO: nobody holds the other end
            break
        output += piece
    os.close(master)
    error = child.stderr.read()
    child.stderr.close()
    assert (child.wait(30), error) == (0, b"")
    return output.decode().replace("\r\n", "\n")


SEE = "; see pincer-trace --help"
LAYERS = "'landlock', 'landlock-truncate', 'landlock-net', 'landlock-scope', 'wait-killable'"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 125, "no command given: pincer-trace -- COMMAND [ARG...]" + SEE),
        (["--"], 125, "no command after --: pincer-trace -- COMMAND [ARG...]" + SEE),
        (["-q"], 125, "no command given: pincer-trace -- COMMAND [ARG...]" + SEE),
        (["ls"], 125, "`ls` is no subcommand; to run a command put -- before it: pincer-trace -- ls"),
        (
            ["ls", "-l", "a b"],
            125,
            "`ls -l 'a b'` is no subcommand; to run a command put -- before it: pincer-trace -- ls -l 'a b'",
        ),
        (
            ["--confirm", "maybe", "--", "ls"],
            125,
            "Invalid value for '--confirm': 'maybe' is not one of 'deny', 'ask', 'auto'" + SEE,
        ),
        (["-p", "--", "ls"], 125, "-p needs a value: -p NAME|FILE"),
        (["--leftover", "--", "ls"], 125, "--leftover needs a value: --leftover kill|keep"),
        (
            ["--pass-fd", "2", "--", "ls"],
            125,
            "Invalid value for '--pass-fd': '2' is no descriptor number from 3 on" + SEE,
        ),
        (
            ["--require", "magic", "--", "ls"],
            125,
            f"Invalid value for '--require': 'magic' is not one of {LAYERS}" + SEE,
        ),
        (["-q", "log"], 125, "--quiet is an option of a run and cannot stand before `log`" + SEE),
        (["log", "--effect", "fly"], 125, None),
        (["log", "--nope"], 125, None),
        (["log", "a", "b"], 125, None),
        (["log", "nothing"], 125, None),
        (["sessions", "x"], 125, None),
        (
            ["profile"],
            125,
            "no subcommand: pincer-trace profile list, show, check, diff or learn; see pincer-trace profile --help",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_are_one_line_and_a_status(program, arguments, status, message):
    done = program(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert re.fullmatch(r"pincer-trace: [^\n]+\n", done.stderr)
    assert message is None or done.stderr == f"pincer-trace: {message}\n"


@pytest.mark.parametrize("word", [b"\x1b[2J", b"a\nb", b"\xff", b""])
def test_a_foreign_word_is_shown_harmlessly(program, word):
    done = program(word)
    assert done.returncode == 125
    assert done.stderr.rstrip("\n").isprintable() and done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["log", "--help"], ["sessions", "-h"], ["doctor", "-h"]])
def test_help_fits_eighty_columns(program, arguments):
    done = program(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: pincer-trace ")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout and "..." not in done.stdout.replace("[ARG...]", "")


def test_help_names_every_option_and_subcommand(program):
    text = program("--help").stdout
    assert "Usage: pincer-trace [OPTIONS] -- COMMAND [ARG...]\n" in text
    for flag in (flag for row in TABLE for flag in row.flags):
        assert flag in text
    for name in ("log", "sessions", "doctor"):
        assert re.search(rf"^  {name} ", text, re.M)


def test_version(program):
    from pincer_trace import __version__

    assert program("--version").stdout == f"pincer-trace {__version__}\n"


def test_log_json_has_the_promised_keys(program, session):
    done = program("log", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(tuple(decision)[: len(KEYS)] == KEYS for decision in found)
    assert [(d["effect"], d["verdict"], d["outcome"]) for d in found] == [
        ("create", "allow", "done"),
        ("rename", "allow", "EXDEV"),
        ("write", "confirm", "EACCES"),
        ("", "deny", "EACCES"),
        ("read", "allow", "done"),
        ("unlink", "allow", "unknown"),
    ]
    assert found[2]["path"].encode("utf-8", "surrogateescape") == NASTY
    assert found[4]["count"] == 12


def test_log_text(program, session):
    lines = program("log", session.id[:17]).stdout.splitlines()
    assert re.fullmatch(r" +SEQ TIME +PID PROGRAM +EFFECT +OUTCOME PATH", lines[0])
    assert re.fullmatch(r" +1 \d\d:\d\d:\d\d +100 git +create +done +/tree/a", lines[1])
    assert lines[2].endswith("rename   EXDEV   /tree/a -> /tree/b")
    assert lines[3].endswith(r'/tree/\n\x1b[2J\x1b]0;pwned\x07"[bold]\xff\u202e[/bold]')
    assert lines[4].strip() == r"confirm: default.toml:20: ask [red]\x1b"
    assert lines[6].strip() == "deny: the supervisor failed in gateway: ValueError: odd"
    assert lines[7].endswith("read     done    /etc/passwd x12")
    assert lines[8].endswith("unknown /tree/" + "d/" * 90 + "end")  # never shortened in a pipe


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["--effect", "create"], [1]),
        (["--effect", "create", "--effect", "unlink"], [1, 8]),
        (["--effect", "change"], [1, 3, 5, 8]),
        (["--verdict", "deny"], [6]),
        (["--verdict", "deny", "--verdict", "confirm"], [5, 6]),
        (["--pid", "101"], [6]),
        (["--path", "/tree/*"], [1, 3, 5, 8]),
        (["--path", "passwd"], [7]),
        (["--path", "/etc"], []),
        (["--effect", "change", "--path", "end"], [8]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_log_filters(program, session, filters, wanted):
    done = program("log", "--json", *filters)
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == wanted


def test_log_on_a_terminal_is_coloured_fits_and_lets_no_escape_through(program, session):
    text = on_a_terminal(program, "log")
    assert ESCAPE in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert ESCAPE not in plain and "\x07" not in plain and "\u202e" not in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "[/bold]" in plain  # no markup
    assert re.search(r"/tree/d\S*…\S*d/end$", plain, re.M)


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_a_narrow_terminal_does_not_take_the_names_away(program, session, columns):
    """The line is broken there anyway; a name cut to a dozen columns says nothing."""
    for command, end in (("log", "/tree/b"), ("sessions", r"echo \x1b[2J'")):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(program, command, columns=columns))
        assert columns < 40 or any(line.endswith(end) for line in plain.splitlines()), plain
        assert max(map(len, plain.splitlines())) <= max(2 * columns, 90)


def test_no_color_is_respected(program, session):
    assert ESCAPE + "[3" not in on_a_terminal(program, "log", NO_COLOR="1")


def test_a_torn_ledger_is_shown_and_told(program, session):
    with open(os.path.join(session.path, "ledger.jsonl"), "ab") as file:
        file.write(b'{"seq":99,"ki')
    done = program("log", "--json")
    assert len(done.stdout.splitlines()) == 6 and done.returncode == 0
    assert re.fullmatch(r"pincer-trace: .*: line 11 of the ledger is torn \(13 bytes\)\n", done.stderr)


def test_verify(program, session):
    done = program("verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\n/.*: 10 records, whole; signed up to record 9\n$", done.stdout)
    with open(os.path.join(session.path, "session.json")) as file:
        key = json.load(file)["key"]
    assert program("verify", session.id, "--key", key).returncode == 0
    assert program("verify", "--key", "0" * 64).returncode == 1
    assert "--key is no Ed25519 public key" in program("verify", "--key", "abc").stderr
    with open(os.path.join(session.path, "ledger.jsonl"), "r+b") as file:
        first = file.readline()
        file.seek(0)
        file.write(first.replace(b'"pid":', b'"pid":9', 1)[: len(first) - 1] + b"\n")
    done = program("verify")
    assert done.returncode == 1
    assert done.stdout.startswith("wrong  line 1 is no whole record")
    assert done.stdout.endswith(": NOT what was written\n")


def test_sessions(program, session):
    done = program("sessions")
    header, line = done.stdout.splitlines()
    assert header.split() == ["SESSION", "STARTED", "STATE", "EXIT", "ALLOWED", "DENIED", "COMMAND"]
    assert line.startswith(session.id) and line.endswith(r"ended      3       3      2 sh -c 'echo \x1b[2J'")
    (facts,) = [json.loads(line) for line in program("sessions", "--json").stdout.splitlines()]
    assert (facts["id"], facts["state"], facts["exit"]) == (session.id, "ended", 3)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal(program, "sessions"))
    assert max(map(len, plain.splitlines())) <= 80


def test_sessions_counts_for_a_run_that_was_killed_and_skips_damage(program, session):
    os.rename(os.path.join(session.path, "session.json"), os.path.join(session.path, "x"))
    with open(os.path.join(session.path, "x")) as file:
        facts = json.load(file)
    for name in ("ended", "exit", "leftover", "counts"):
        del facts[name]
    with open(os.path.join(session.path, "session.json"), "w") as file:
        json.dump(facts, file)
    os.mkdir(os.path.join(os.path.dirname(session.path), "20200101-000000-abcdef"))
    done = program("sessions")
    assert re.search(r"killed +- +3 +2 sh", done.stdout)
    assert done.stderr.count("\n") == 1 and "20200101-000000-abcdef" in done.stderr


def test_directories_without_a_session_are_one_line_whatever_their_number(program, session):
    for number in range(6):
        os.mkdir(os.path.join(os.path.dirname(session.path), f"2099010{number}-000000-abcdef"))
    done = program("sessions")
    assert session.id in done.stdout and done.returncode == 0
    assert done.stderr.count("\n") == 1 and "and 2 more" in done.stderr
    assert len(program("log", "--json").stdout.splitlines()) == 6  # the latest session, not a later directory


def test_what_the_kernel_refuses_too_is_recorded_and_not_counted(program):
    from pincer_trace.ledger import Session

    made = Session.create(
        Session.reserve(os.path.join(program.state, "pincer-trace", "sessions")),
        command=[b"x"], profile_name="default", profile_digest=bytes(32), workspace=b"/tree", details={},
    )  # fmt: skip
    subject = {"pid": 100, "exe": b"/usr/bin/gdb", "dev": 1, "ino": 2, "verdict": "deny", "rule": ""}
    made.ledger.denied("mkdir", b"/usr/share/gdb/x", reason="no rule allows it", native=True, **subject)
    made.ledger.denied("write", b"/usr/local/x", reason="no rule allows it", **subject)
    assert made.ledger.denials == 1
    assert re.search(r"running +- +0 +1 x", program("sessions").stdout)  # from the log
    made.ledger.close(0, 0)
    assert re.search(r"ended +0 +0 +1 x", program("sessions").stdout)
    lines = program("log").stdout.splitlines()
    assert lines[2].strip() == "deny: no rule allows it (the kernel refuses this user too: not counted)"
    assert lines[4].strip() == "deny: no rule allows it"
    first, second = (json.loads(line) for line in program("log", "--json").stdout.splitlines())
    assert first["native"] is True and "native" not in second


def test_sessions_without_any(program):
    done = program("sessions")
    assert (done.returncode, done.stdout) == (0, "")


def test_another_session_directory(program, session, tmp_path):
    where = os.path.dirname(session.path)
    environ = {"XDG_STATE_HOME": str(tmp_path / "none")}
    assert program("log", environ=environ).returncode == 125
    assert program("log", "--session-dir", where, environ=environ).returncode == 0
    assert program("log", session.path, environ=environ).returncode == 0
    assert session.id in program("sessions", "--session-dir", where, environ=environ).stdout


def test_a_reader_that_stops_early_is_no_error(program, session):
    ledger = os.path.join(session.path, "ledger.jsonl")
    with open(ledger, "rb") as file:
        line = file.read().split(b"\n")[4]
    with open(ledger, "wb") as file:
        file.write((line + b"\n") * 5000)
    child = subprocess.Popen(
        program.command("log", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=program.environ
    )
    child.stdout.readline()
    child.stdout.close()
    error = child.stderr.read()
    child.stderr.close()
    assert error == b"" and child.wait(30) == -13  # SIGPIPE, as cat


def test_output_that_cannot_be_written(program, session):
    with open("/dev/full", "w") as full:
        done = program("log", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 125
    assert done.stderr == "pincer-trace: cannot write the output: No space left on device\n"


def test_closed_output_is_no_crash(program, session):
    done = program("log", capture_output=False, preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_cannot_be_told_keeps_its_status(program):
    with open("/dev/full", "w") as full:
        done = program("log", "nosuch", capture_output=False, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (125, "")
    done = program("log", "x", capture_output=False, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (125, ""), "and it does not go to standard output instead"


@pytest.mark.parametrize("command", ["sessions", "pending", "approve"])
def test_a_session_directory_that_is_not_there_is_told(program, tmp_path, command):
    gone = tmp_path / "gone"
    done = program(command, *["1"] * (command == "approve"), "--session-dir", gone)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"pincer-trace: {gone} is no directory: name the --session-dir of a run\n"


def test_help_names_the_default_model(program):
    from pincer_trace.twin.claude import DEFAULT_MODEL

    assert f"[default: {DEFAULT_MODEL}]" in " ".join(program("--help").stdout.split())


def test_a_narrow_encoding_is_no_error(program, session):
    done = program("log", environ={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    assert done.returncode == 0 and r"\xff" in done.stdout


def test_interrupted_quietly(program):
    """Ctrl-C while a subcommand works: no traceback, 130."""
    script = "import signal, pincer_trace.cli as c, pincer_trace.__main__ as m, sys\n"
    script += "def work(argv): signal.raise_signal(signal.SIGINT)\n"
    script += "c.dispatch = work; sys.argv = ['x', 'log']; sys.exit(m.main())"
    done = subprocess.run([sys.executable, "-c", script], env=program.environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")
