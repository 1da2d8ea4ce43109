"""Sessions made by hand through the real ledger, judged by a real profile for places of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import pincer_trace
from pincer_trace.ledger import Session
from pincer_trace.profile import Overlay, Places, load
from pincer_trace.review.past import Past

PROFILE = """
description = "for tests"
[[rule]]
effects = ["read", "exec"]
paths = ["/**"]
verdict = "allow"
reason = "reads are open"
[[rule]]
effects = ["create", "mkdir"]
paths = ["{tmp}/**"]
verdict = "allow"
reason = "new temporary things"
[[rule]]
effects = ["change"]
paths = ["{tmp}/**"]
when = "own"
verdict = "allow"
reason = "temporary things of its own"
[[rule]]
effects = ["change"]
paths = ["{workspace}/**"]
verdict = "allow"
reason = "the work tree"
[[rule]]
effects = ["read"]
paths = ["/**/*.pem"]
verdict = "deny"
reason = "a key"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/Makefile"]
verdict = "confirm"
reason = "runs later"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/Makefile"]
when = "own-above"
verdict = "allow"
reason = "in a folder of its own"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/.git/**"]
when = "git-active"
verdict = "confirm"
reason = "git would run it"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/.git/config"]
verdict = "confirm"
reason = "git's configuration"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/.git/config"]
when = "git-config"
verdict = "allow"
reason = "harmless keys"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/.vscode/tasks.json"]
verdict = "deny"
reason = "an editor runs this"
protection = true
"""


class Made:
    """A session of a person's whose work tree is `work`."""

    def __init__(self, base, text, confirm, **options):
        self.base = base
        self.work = base / "work"
        self.work.mkdir(exist_ok=True)
        self.file = base / "old.toml"
        self.file.write_text(text)
        path = Session.reserve(str(base / "sessions"))
        self.places = Places(
            cwd=os.fsencode(self.work), workspace=os.fsencode(self.work), home=os.fsencode(base / "home"),
            tmp=b"/tmp/of-the-session", state=os.fsencode(base / "state"), own=(os.fsencode(base / "own"),),
        )  # fmt: skip
        self.options = {"allow_write": [], "allow_connect": [], "allow_net": [], "protect": [], **options}
        self.profile = load(str(self.file), self.places, overlay=Overlay(**self.options), cache_directory=None)
        judged_by = {"profile": str(self.file), "compiled": None, "places": self.places.told(), **self.options}
        self.session = Session.create(
            path, command=[b"agent"], profile_name="old", profile_digest=self.profile.digest,
            workspace=self.places.workspace, details={"confirm": confirm, "judged_by": judged_by},
        )  # fmt: skip
        self.ledger = self.session.ledger
        self.id = self.session.id

    def at(self, name):
        """A path in the work tree."""
        return os.fsencode(self.work / name)

    def subject(self, exe=b"/usr/bin/agent"):
        return {"pid": 7, "exe": exe, "dev": 1, "ino": 2}

    def allow(
        self, effect, path, rule="old.toml:20", *, verdict="allow", reason="the work tree", exe=b"/bin/sh", **more
    ):
        """An effect that was done."""
        sequence = self.ledger.intent(
            effect, path, verdict=verdict, rule=rule, reason=reason, **self.subject(exe), **more
        )
        self.ledger.outcome(sequence, 0)
        return sequence

    def deny(self, effect, path, rule="old.toml:25", *, verdict="deny", reason="a key", **more):
        """One that was refused."""
        return self.ledger.denied(effect, path, verdict=verdict, rule=rule, reason=reason, **self.subject(), **more)

    def past(self):
        self.ledger.close(0, 0)
        return Past(self.session.path)


@pytest.fixture
def made(tmp_path):
    """Make one: `text` of its profile, its --confirm, and its options."""
    sessions = []

    def make(text=PROFILE, confirm="deny", **options):
        sessions.append(Made(tmp_path, text, confirm, **options))
        return sessions[-1]

    yield make
    for one in sessions:
        one.ledger.close(0, 0)


@pytest.fixture
def program(tmp_path):
    """Run a subcommand as a person does; the finished process."""
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.path.dirname(os.path.dirname(pincer_trace.__file__)), "LANG": "C.UTF-8", "TZ": "UTC",
    }  # fmt: skip

    def run(*arguments, **more):
        words = [sys.executable, "-m", "pincer_trace", *map(str, arguments)]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False, **more)
        assert "Traceback" not in done.stderr
        return done

    return run
