"""The program itself, run as a person runs it, on real sessions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import pincer_trace
from pincer_trace.ledger import Session

from .house import House

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(pincer_trace.__file__)))


class Program:
    def __init__(self, state):
        self.state = state
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(state),
            "XDG_STATE_HOME": str(state),
            "PYTHONPATH": ROOT,
            "LANG": "C.UTF-8",
            "COLUMNS": "80",
        }

    def command(self, *arguments):
        return [sys.executable, "-m", "pincer_trace", *map(os.fsdecode, arguments)]

    def __call__(self, *arguments, environ=None, **more):
        more = {"capture_output": True, "timeout": 60, "check": False, **more}
        environ = {**self.environ, **(environ or {})}
        done = subprocess.run(self.command(*arguments), env=environ, **more)
        for name in ("stdout", "stderr"):
            if getattr(done, name) is not None:
                setattr(done, name, getattr(done, name).decode())
        assert "Traceback" not in (done.stderr or "")
        return done


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path / "state")


NASTY = b'/tree/\n\x1b[2J\x1b]0;pwned\x07"[bold]\xff\xe2\x80\xae[/bold]'


@pytest.fixture
def session(program):
    """A finished session of the program's user, with one decision of each kind."""
    made = Session.create(
        Session.reserve(os.path.join(program.state, "pincer-trace", "sessions")),
        command=[b"sh", b"-c", b"echo \x1b[2J"],
        profile_name="default",
        profile_digest=bytes(32),
        workspace=b"/tree",
        details={},
    )
    ledger = made.ledger
    subject = {"pid": 100, "exe": b"/usr/bin/git", "dev": 64768, "ino": 12}
    allow = {"verdict": "allow", "rule": "default.toml:10", "reason": "the work tree"}
    ledger.outcome(ledger.intent("create", b"/tree/a", **subject, **allow), 0)
    ledger.outcome(ledger.intent("rename", b"/tree/a", extra={"to": b"/tree/b"}, **subject, **allow), 18)
    ledger.denied("write", NASTY, verdict="confirm", rule="default.toml:20", reason="ask [red]\x1b", **subject)
    ledger.failure("gateway", ValueError("odd"), pid=101)
    ledger.reads([(b"/bin/cat", b"/etc/passwd", 64768, 99, 12, 1.5, "default.toml:1")])
    ledger.intent("unlink", b"/tree/" + b"d/" * 90 + b"end", **subject, **allow)
    ledger.close(3, 0)
    return made


@pytest.fixture
def make_house(program):
    made = []

    def make(**more):
        made.append(House(program, **more))
        return made[-1]

    yield make
    for house in made:
        if house.session.ledger._fd >= 0:
            house.end()


@pytest.fixture
def house(make_house):
    return make_house()
