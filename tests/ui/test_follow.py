"""Following a ledger that is being written: real sessions, real files."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from pincer_trace.errors import UserError
from pincer_trace.ledger import Session
from pincer_trace.ledger.read import count_records
from pincer_trace.ui.follow import Follower
from pincer_trace.ui.state import State

SUBJECT = {"pid": 100, "exe": b"/usr/bin/git", "dev": 64768, "ino": 12}
ALLOW = {"verdict": "allow", "rule": "default.toml:10", "reason": "the work tree"}
DENY = {"verdict": "deny", "rule": "default.toml:20", "reason": "a secret"}


@pytest.fixture
def session(tmp_path):
    made = Session.create(
        Session.reserve(str(tmp_path / "sessions")), command=[b"agent"], profile_name="default",
        profile_digest=bytes(32), workspace=b"/tree", details={},
    )  # fmt: skip
    yield made
    if made.ledger._fd >= 0:
        made.ledger.close(0, 0)


@pytest.fixture
def follower(session):
    made = Follower(session.path)
    yield made
    made.close()


def effect(session, number=0):
    session.ledger.outcome(session.ledger.intent("create", b"/tree/%d" % number, **SUBJECT, **ALLOW), 0)


def fill(session, number):
    """Many records of each kind; every seventh is a refusal."""
    for each in range(number):
        if each % 7 == 0:
            session.ledger.denied(
                "read", b"/h/.ssh/%d" % each, native=each % 14 == 0, expected=each % 5 == 0, **SUBJECT, **DENY
            )
        elif each % 7 == 1:
            session.ledger.reads([(b"/bin/cat", b'/etc/"count":77,%d' % each, 1, 2, each, 1.5, "default.toml:1")])
        elif each % 7 == 2:
            session.ledger.failure('gateway ","kind":"denied",', ValueError("odd"), pid=101)
        else:
            effect(session, each)


def counted(state):
    counts = state.counts
    return {
        "allowed": counts.allowed, "denied": counts.denied, "expected": counts.expected, "failures": counts.failures,
        "reads": counts.reads, "unrecorded": 0,
    }  # fmt: skip


def newest(state):
    """The last path of each row."""
    return {row.record["path"] for row in state.rows()}


def follow(follower):
    """A state with all that is there, as the view makes it."""
    state = State()
    for record in follower.start().records:
        state.apply(record)
    older = follower.older()
    if older is not None:
        state.older(older.skim)
    take(follower, state)
    return state


def take(follower, state):
    while (part := follower.more()) is not None:
        if part.skim is not None:
            state.skipped(part.skim)
        for record in part.records:
            state.apply(record)


def test_records_come_once_and_in_order(session, follower):
    assert follower.start().records == [] and follower.more() is None and follower.older() is None
    effect(session)
    session.ledger.denied("write", b"/h/x", **SUBJECT, **DENY)
    assert [record["kind"] for record in follower.more().records] == ["intent", "outcome", "denied"]
    assert follower.more() is None
    session.ledger.close(3, 0)
    kinds = [record["kind"] for record in follower.more().records]
    assert kinds == ["end", "head"] and follower.more() is None


def test_a_line_that_is_being_written_waits_for_its_end(session, follower):
    effect(session)
    follower.start()
    line = json.dumps({"seq": 9, "time": 1.0, "kind": "end", "exit": 0, "leftover": 0}).encode()
    with open(os.path.join(session.path, "ledger.jsonl"), "ab", buffering=0) as file:
        file.write(line[:20])
        assert follower.more() is None
        file.truncate(os.path.getsize(file.name) - 20)  # the supervisor takes a torn line back
        assert follower.more() is None
        file.write(line + b"\nno record\n")
    assert [record["kind"] for record in follower.more().records] == ["end", "torn"]


def test_a_log_that_is_shortened_below_what_was_read_is_said(session, follower):
    effect(session)
    follower.start()
    os.truncate(os.path.join(session.path, "ledger.jsonl"), 10)
    assert [record["kind"] for record in follower.more().records] == ["torn"]
    assert follower.more() is None


def test_a_long_log_is_read_from_its_end_and_counted_whole(session, follower):
    fill(session, 7000)
    effect(session, 7000)
    first = follower.start()
    assert 0 < len(first.records) < 1000 and follower.before > 1 << 20
    state = State()
    for record in first.records:
        state.apply(record)
    tail = len(state.rows())
    assert "/tree/7000" in newest(state), "the newest is seen before the rest is counted"
    older = follower.older()
    assert older.older and older.records == []
    state.older(older.skim)
    assert counted(state) == count_records(session.path)
    assert len(state.rows()) > tail and follower.older() is None


def test_a_burst_is_skimmed_and_counted_whole(session, follower):
    state = follow(follower)
    fill(session, 7000)
    effect(session, 7000)
    part = follower.more()
    assert part.skim is not None and 0 < len(part.records) < 1000
    state.skipped(part.skim)
    for record in part.records:
        state.apply(record)
    take(follower, state)
    fill(session, 30)
    effect(session, 29)
    take(follower, state)
    assert counted(state) == count_records(session.path)
    assert "/tree/29" in newest(state)


def test_counting_can_be_stopped(session, follower):
    fill(session, 3000)
    follower.start()
    assert follower.older(lambda: True) is None


def test_whether_it_goes_on(session, follower):
    assert follower.goes_on() and not follower.is_gone()
    session.ledger.close(0, 0)
    assert not follower.goes_on() and follower.facts()["state"] == "ended"
    shutil.rmtree(session.path)
    assert follower.is_gone() and follower.facts() is None and not follower.goes_on()
    assert [record["kind"] for record in follower.start().records] == ["end", "head"], "what was opened stays readable"


@pytest.mark.parametrize("size", [1 << 20, 3 << 20, 5 << 20])
def test_a_line_that_has_no_end_is_passed_over(session, follower, size):
    state = follow(follower)
    effect(session)
    with open(os.path.join(session.path, "ledger.jsonl"), "ab", buffering=0) as file:
        file.write(b"x" * size)
        take(follower, state)
        file.write(b"x" * size)
        take(follower, state)
        file.write(b"\n" + json.dumps({"seq": 9, "time": 1.0, "kind": "end"}).encode() + b"\n")
        take(follower, state)
    assert state.counts.torn > 0 and state.ending["seq"] == 9


def test_what_is_no_ledger(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        Follower(str(tmp_path))
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(UserError, match="not a regular file"):
        Follower(str(tmp_path))


def test_a_session_of_random_bytes(tmp_path):
    (tmp_path / "ledger.jsonl").write_bytes(os.urandom(1 << 19) + b'\n{"kind":"denied"\n[]\n{}\n' + b'"kind":' * 99)
    follower = Follower(str(tmp_path))
    state = follow(follower)
    follower.close()
    assert state.rows() == [] and state.counts.torn > 0
