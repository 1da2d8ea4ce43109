"""Reading back what nobody can trust: lines of any length and content, intents without an end."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.ledger import read
from pincer_trace.ledger.verify import verify


def append(session, *lines):
    with open(os.path.join(session.path, "ledger.jsonl"), "ab") as file:
        file.write(b"".join(lines))


@pytest.mark.parametrize("ends", [b"\n", b""])
def test_a_line_that_is_longer_than_any_record_is_not_held(make, allow, monkeypatch, ends):
    monkeypatch.setattr(read, "LONGEST", 5000)
    session = make()
    session.ledger.outcome(session.ledger.intent("write", b"/a", **allow), 0)
    session.ledger.close(0, 0)
    long = b'{"seq":9,"kind":"end","x":"' + b"x" * 20_000 + b'"}' + ends
    append(session, long, *([b'{"seq":10,"kind":"end"}\n'] if ends else []))
    seen = []
    found = list(read.read_records(session.path, see=lambda *line: seen.append(line)))
    assert [record["kind"] for record in found] == [
        "intent",
        "outcome",
        "end",
        "head",
        "torn",
        *(["end"] if ends else []),
    ]
    assert found[4] == {"kind": "torn", "line": 5, "bytes": len(long)}
    assert seen[4] == (5, long[:5000], len(long), None)
    assert f"line 5 is no whole record ({len(long)} bytes)" in verify(session.path).faults


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text('\ud800\udcff\udfffa\\"\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(VALUES | st.binary())
def test_a_line_says_what_the_plain_parser_reads(value):
    line = value if isinstance(value, bytes) else json.dumps(value).encode()
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        plain = None
    assert repr(read.parser()(line)) == repr(plain)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":1e999}', b'{"a":' + b"1" * 5000 + b"}", b"\xff\xfe[\0", b"\0"])
def test_odd_lines(line):
    read.parser()(line)


def test_effects_that_end_much_later_or_never_hold_nothing_back(make, allow, deny, monkeypatch):
    """One look through the file for all that wait, and at most that many records in memory."""
    monkeypatch.setattr(read, "LOOK_AHEAD", 20)
    looks = []
    look = read._outcomes
    monkeypatch.setattr(read, "_outcomes", lambda path, wanted: looks.append(1) or look(path, wanted))
    session = make()
    ledger = session.ledger
    slow = [ledger.intent("write", b"/slow%d" % number, **allow) for number in range(10)]
    lost = [ledger.intent("write", b"/lost%d" % number, **allow) for number in range(10)]
    for _ in range(200):
        ledger.outcome(ledger.intent("write", b"/a", **allow), 0)
    for number in slow:
        ledger.outcome(number, 5, "post")
    ledger.answer({"question": 1})
    ledger.close(0, 0)
    found = list(read.entries(session.path))
    told = [(each["seq"], each["outcome"]) for each in found if each["kind"] == "intent"]
    assert told[:20] == [(n, "EIO") for n in slow] + [(n, "unknown") for n in lost]
    assert told[20:] == [(n, "done") for n in range(21, 421, 2)]
    assert found[0]["post"] == "post" and len(looks) == 1
    assert [each["kind"] for each in found[220:]] == ["answer", "end", "head"]
    assert list(read.decisions(session.path)) == [read.whole(each) for each in found[:220]]


def test_only_so_many_damaged_lines_are_told_one_by_one(make, monkeypatch):
    monkeypatch.setattr(read, "MOST_TORN", 3)
    session = make()
    session.ledger.close(0, 0)
    append(session, *[b"x\n"] * 10)
    damage = []
    list(read.decisions(session.path, damage))
    assert [each["line"] for each in damage] == [3, 4, 5]
