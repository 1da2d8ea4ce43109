"""What a write changed: only small text, only of the file that the record tells."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.ui.monitor import difference
from pincer_trace.ui.monitor.difference import GONE, NEW, SAME, Unknown, lines


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("a\nb\nc\n", "a\nx\nc\n", [(SAME, "a"), (GONE, "b"), (NEW, "x"), (SAME, "c")]),
        ("", "a\n", [(NEW, "a")]),
        ("a\n", "", [(GONE, "a")]),
        ("a\n", "a\n", [(SAME, "as it was")]),
        ("a\n", "a", [(SAME, "but for the end of its last line as it was")]),
        ("1\n2\n3\n4\n", "1\n2\n3\n4\n5\n", [(SAME, "3"), (SAME, "4"), (NEW, "5")]),
    ],
)
def test_lines(before, now, told):
    assert lines(before, now) == told


def test_much_is_cut():
    told = lines("", "\n".join(map(str, range(5000))))
    assert len(told) == 41 and told[-1] == (SAME, "... and 4960 lines more")


ALIKE = [f"{'ab' * 160}x{number:03}" for number in range(99)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *((line * 16_000, "x\n" + (line * 15_000)[::-1]) for line in ("a\n", "\n", "ab\nba\n")),
        *((line * 40 + "x\n" + line * 40, line * 30 + "y\n" + line * 50) for line in ("a\n", "\n", "ab\nba\n")),
        ("\n".join(ALIKE), "\n".join(each[1:] for each in ALIKE)),
        ("\n".join(["p", *"ab" * 49, "q"]), "\n".join(["r", *"ba" * 49, "s"])),
    ],
    ids=lambda text: str(len(text)),
)
def test_p54_no_text_makes_it_slow(before, now):
    """Nor a few long lines that are much alike: counted in steps, which are the same on any machine."""
    left = 2_000_000

    def step(frame, event, _):
        nonlocal left
        left -= 1
        assert left, f"too many steps, at {frame.f_code.co_qualname}"
        return step

    traced = sys.gettrace()
    sys.settrace(step)
    try:
        lines(before, now)
    finally:
        sys.settrace(traced)


@given(st.text(alphabet="ab\n", max_size=60), st.text(alphabet="ab\n", max_size=60))
def test_a_difference_tells_what_came_and_went(before, now):
    told = lines(before, now)
    assert all(mark in (SAME, GONE, NEW) for mark, _ in told)
    gone, new = ([said for mark, said in told if mark == each] for each in (GONE, NEW))
    assert len(now.splitlines()) - len(before.splitlines()) == len(new) - len(gone)


def record(path, found, **more):
    known = {"seq": 3, "kind": "intent", "effect": "write", "path": os.fsdecode(path), "dev": found.st_dev}
    return known | {"ino": found.st_ino} | more


def told(monkeypatch, tmp_path, found, before=b"old\n", state="running", **more):
    monkeypatch.setattr(difference, "_before", lambda facts, number: before)
    return difference.difference({"state": state}, record(tmp_path / "file", found, **more))


def test_the_file_itself(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("new\n")
    assert told(monkeypatch, tmp_path, file.stat()) == [(GONE, "old"), (NEW, "new")]
    assert told(monkeypatch, tmp_path, file.stat(), state="ended") == []
    assert told(monkeypatch, tmp_path, file.stat(), effect="unlink") == []
    assert told(monkeypatch, tmp_path, file.stat(), effect="rename") == []


@pytest.mark.parametrize(
    "other", ["link", "fifo", "folder", "device", "another", "nothing", "binary", "large", "latin"]
)
def test_p53_what_else_lies_there_by_now(monkeypatch, tmp_path, other):
    """The worker may put anything in its place: nothing but a small text file with that number is even opened."""
    file = tmp_path / "file"
    file.write_text("new\n")
    found = file.stat()
    content = {"binary": b"a\0b", "large": b"a" * 40_000, "latin": b"\xff"}.get(other)
    if content is not None:
        file.write_bytes(content)
    else:
        file.rename(tmp_path / "moved")
    match other:
        case "link":
            file.symlink_to(tmp_path / "moved")
        case "fifo":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "another":
            file.write_text("new\n")
        case "device":
            file.symlink_to("/dev/tty")
    with pytest.raises(Unknown):
        told(monkeypatch, tmp_path, found)
