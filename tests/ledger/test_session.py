"""Session directories: what they tell, and which one a selector means."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal

import pytest

from pincer_trace.errors import UserError
from pincer_trace.ledger import LedgerFull, Session
from pincer_trace.ledger.read import decisions, find_session, is_running, load_session, session_ids

FIELDS = {"command": [], "profile_name": "p", "profile_digest": b"", "workspace": b"/", "details": {}}


def test_session_json_tells_the_run_and_then_its_end(make, deny):
    session = make(command=[b"rm", b"\xff\n"])
    with open(os.path.join(session.path, "session.json")) as file:
        facts = json.load(file)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", session.id)
    assert (facts["id"], facts["command"], facts["profile"]) == (session.id, ["rm", "\udcff\n"], "default")
    assert facts["digest"] == bytes(range(32)).hex()
    assert (facts["layers"], facts["kernel"], facts["uid"]) == (["landlock"], "6.18", os.getuid())
    assert "ended" not in facts
    assert load_session(session.path)["state"] == "running"
    session.ledger.denied("write", b"/a", **deny)
    session.ledger.close(4, 1)
    facts = load_session(session.path)
    assert (facts["state"], facts["exit"], facts["leftover"]) == ("ended", 4, 1)
    assert facts["ended"] >= facts["started"]
    assert facts["counts"] == {"allowed": 0, "denied": 1, "expected": 0, "failures": 0, "reads": 0, "unrecorded": 0}


def test_a_killed_supervisor_is_told_from_a_running_one(tmp_path):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, Session.create(Session.reserve(str(tmp_path)), **FIELDS).path.encode())
            signal.pause()
        finally:
            os._exit(0)
    path = os.read(reader, 4096).decode()
    assert load_session(path)["state"] == "running" and is_running(path)
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert load_session(path)["state"] == "killed"


def test_the_default_place_is_the_users_state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    session = Session.create(Session.reserve(None), **FIELDS)
    session.ledger.close(0, 0)
    assert os.path.dirname(session.path) == str(tmp_path / "state/pincer-trace/sessions")
    assert os.stat(os.path.dirname(session.path)).st_mode & 0o777 == 0o700
    assert find_session(None, None) == session.path


def test_selectors(make, tmp_path):
    sessions = [make() for _ in range(3)]
    where = str(tmp_path)
    assert find_session(None, where) == sessions[-1].path  # also within one second
    for session in sessions:
        assert find_session(session.id, where) == session.path
        assert find_session(session.path, where) == session.path
    first = sessions[0]
    length = next(n for n in range(1, 23) if sum(s.id.startswith(first.id[:n]) for s in sessions) == 1)
    assert find_session(first.id[:length], where) == first.path
    assert session_ids(where)[-1] == sessions[-1].id


def test_the_latest_is_the_last_started_even_if_the_clock_of_the_id_says_the_same(make, tmp_path):
    names = ["20200101-000000-ffffff", "20200101-000000-000000"]
    for name, started in zip(names, (1.0, 2.0), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "session.json").write_text(json.dumps({"format": 1, "started": started}))
    assert find_session(None, str(tmp_path)).endswith("000000-000000")


def test_an_ambiguous_prefix_names_the_candidates(make, tmp_path):
    a, b = make(), make()
    with pytest.raises(UserError, match="means 2 sessions") as error:
        find_session("2", str(tmp_path))
    assert a.id in str(error.value) and b.id in str(error.value)


def test_an_id_is_never_a_directory_that_happens_to_be_here(make, tmp_path, monkeypatch):
    """A worker knows its session's id, and may make a directory of that name in its work tree."""
    made_up = "20991130-120000-abcdef"
    for name in (made_up, "2099", "session"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "session.json").write_text("{}")
    make(tmp_path / "others")
    monkeypatch.chdir(tmp_path / "work")
    for where in (str(tmp_path / "none"), str(tmp_path / "others")):
        assert find_session("session", where) == str(tmp_path / "work/session")
        for word in (made_up, "2099"):
            with pytest.raises(UserError, match="no session"):
                find_session(word, where)
        assert find_session(f"./{made_up}", where) == str(tmp_path / "work" / made_up)


def test_what_a_command_needs_to_find_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    usual = Session.create(Session.reserve(None), **FIELDS)
    other = Session.create(Session.reserve(str(tmp_path / "it's there")), **FIELDS)
    assert (usual.selector, usual.elsewhere) == (usual.id, "")
    (word,) = shlex.split(other.elsewhere)
    assert word == other.path and find_session(word) == other.path
    for each in (usual, other):
        each.ledger.close(0, 0)


@pytest.mark.parametrize("selector", ["nope", "", "/nowhere/at/all", "../x", "a\x1b[2Jb"])
def test_a_selector_that_means_nothing(make, tmp_path, selector):
    session = make()
    with pytest.raises(UserError) as error:
        find_session(selector, str(tmp_path))
    message = str(error.value)
    assert message.isprintable()
    assert session.id in message or "is no session" in message or "means 1" in message


@pytest.mark.parametrize("where", ["absent", "file"])
def test_without_sessions(tmp_path, where):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="run `pincer-trace -- COMMAND` first"):
        find_session(None, str(tmp_path / where))


def test_strangers_in_the_directory_are_no_sessions(make, tmp_path):
    session = make()
    for name in ("notes", "99999999-999999-zz", ".hidden", "20261130-031502-7f3a9c.bak"):
        (tmp_path / name).mkdir()
    assert session_ids(str(tmp_path)) == [session.id]


def test_a_place_that_cannot_hold_sessions(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--session-dir") as error:
        Session.reserve(str(tmp_path / "file" / "x\ny"))
    assert str(error.value).isprintable() and error.value.exit_status == 125


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "x"}', '{"started": "soon"}'])
def test_a_damaged_session_file(tmp_path, text):
    (tmp_path / "session.json").write_text(text)
    with pytest.raises(UserError, match="damaged"):
        load_session(str(tmp_path))


def test_a_later_format_is_refused(tmp_path):
    (tmp_path / "session.json").write_text('{"started": 1, "format": 2}')
    with pytest.raises(UserError, match="format 2, this version reads 1"):
        load_session(str(tmp_path))


def test_links_and_fifos_are_not_followed_or_waited_for(tmp_path):
    (tmp_path / "secret").write_text('{"started": 1, "format": 1}')
    (tmp_path / "session.json").symlink_to("secret")
    with pytest.raises(UserError, match="symbolic link"):
        load_session(str(tmp_path))
    (tmp_path / "session.json").unlink()
    os.mkfifo(tmp_path / "session.json")
    with pytest.raises(UserError, match="not a regular file"):
        load_session(str(tmp_path))


def test_p76_the_half_of_a_fork_that_leaves_changes_nothing(make, deny):
    session = make()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(writer)
            os.read(reader, 1)  # until the parent has left
            session.ledger.denied("write", b"/a", **deny)
            session.ledger.close(7, 0)
        finally:
            os._exit(0)
    os.close(reader)
    session.ledger.leave()
    with pytest.raises(LedgerFull):
        session.ledger.denied("write", b"/b", **deny)
    assert is_running(session.path)
    os.close(writer)
    os.waitpid(child, 0)
    facts = load_session(session.path)
    assert (facts["state"], facts["exit"], facts["counts"]["denied"]) == ("ended", 7, 1)
    assert [d["path"] for d in decisions(session.path)] == ["/a"]
