"""A real session in a temporary directory."""

from __future__ import annotations

import pytest

from pincer_trace.ledger import Session


@pytest.fixture
def make(tmp_path):
    """Make sessions under `tmp_path`; what a test leaves open is closed after it."""
    made = []

    def create(directory=None, **changes) -> Session:
        arguments = {
            "command": [b"sh", b"-c", b"true"],
            "profile_name": "default",
            "profile_digest": bytes(range(32)),
            "workspace": b"/tree",
            "details": {"layers": ["landlock"], "kernel": "6.18"},
        }
        session = Session.create(Session.reserve(str(directory or tmp_path)), **{**arguments, **changes})
        made.append(session)
        return session

    yield create
    for session in made:
        session.ledger.close(None, 0)


SUBJECT = {"pid": 7, "exe": b"/bin/sh", "dev": 1, "ino": 2}
ALLOW = {**SUBJECT, "verdict": "allow", "rule": "default.toml:3", "reason": "the work tree"}
DENY = {**SUBJECT, "verdict": "deny", "rule": "default.toml:9", "reason": "a key"}


@pytest.fixture
def allow():
    return dict(ALLOW)


@pytest.fixture
def deny():
    return dict(DENY)
