"""What is saved in the place of a view becomes the file, or the file stays as it was."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from executor.benches import without_nameless
from executor.faults import Faults
from executor.test_views import PROFILE, content, is_view, refused

from pincer_trace.executor.fresh import own
from pincer_trace.executor.versions import Versions

AT = -100
RDONLY, WRONLY, RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
CREAT, TRUNC, APPEND, EXCL = os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_EXCL
NOREPLACE = 1
HANDLE = re.compile(rb"pincer:[a-z2-7]{26}")
TEXT = b"# a comment with canary-7\nAPI_KEY=canary-77777\n\nDEBUG=canary-7true  # why\nLAST=canary-9\n"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A work tree with one secret in it."""
    place = tmp_path.resolve() / "work"
    (place / "dir").mkdir(parents=True)
    (place / ".env").write_bytes(TEXT)
    (place / ".env").chmod(0o640)
    (place / "file").write_bytes(b"plain\n")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def bench(make_bench):
    made = make_bench(PROFILE)
    made.listener.before("wait", *[True] * 1000)
    yield made
    made.engine._staged.finish()
    made.listener.forget()


def view(bench) -> bytes:
    return content(bench.call("openat", AT, b".env", RDONLY, 0))


def make(bench, name: bytes, text: bytes, mode: int = 0o600) -> None:
    """A file of the worker's."""
    answer = bench.call("openat", AT, name, WRONLY | CREAT | EXCL, mode)
    os.write(answer.numbers[0], text)
    answer.close()


def write(bench, text: bytes, flags: int = WRONLY | CREAT | TRUNC) -> None:
    """Write it in place, and let the supervisor see the next call."""
    answer = bench.call("openat", AT, b".env", flags, 0o644)
    assert answer.succeeded, (answer, bench.records("denied"))
    os.write(answer.numbers[0], text)
    answer.close()


def by_rename(bench, text: bytes) -> None:
    make(bench, b"staging", text)
    assert bench.call("rename", b"staging", b".env").succeeded, bench.records("denied")[-1]
    assert not os.path.exists("staging")


def by_truncating(bench, text: bytes) -> None:
    write(bench, text)
    next_call(bench)


def after_removal(bench, text: bytes) -> None:
    """As an editor that keeps a backup for as long as it writes."""
    assert bench.call("rename", b".env", b".env~").succeeded
    write(bench, text, WRONLY | CREAT | EXCL)
    next_call(bench)
    assert bench.call("unlink", b".env~").succeeded


def renamed_after_removal(bench, text: bytes) -> None:
    make(bench, b"staging", text)
    assert bench.call("unlink", b".env").succeeded
    assert bench.call("rename", b"staging", b".env").succeeded


def moved_after_removal(bench, text: bytes) -> None:
    """As `mv` does it, which would replace nothing."""
    make(bench, b"staging", text)
    assert bench.call("unlink", b".env").succeeded
    assert bench.call("renameat2", AT, b"staging", AT, b".env", NOREPLACE).succeeded


def in_place(bench, text: bytes) -> None:
    """Without emptying it first, as vim does: that it does by itself."""
    answer = bench.call("openat", AT, b".env", WRONLY | CREAT, 0o600)
    os.ftruncate(answer.numbers[0], 0)
    os.write(answer.numbers[0], text)
    answer.close()
    next_call(bench)


ROUTES = [by_rename, by_truncating, in_place, after_removal, renamed_after_removal, moved_after_removal]


def next_call(bench) -> None:
    assert bench.call("openat", AT, b"file", RDONLY, 0).succeeded


def now() -> bytes:
    return Path(".env").read_bytes()


@pytest.mark.parametrize("save", ROUTES)
def test_what_is_saved_unchanged_is_the_file_bit_for_bit(bench, save):
    save(bench, view(bench))
    assert now() == TEXT


@pytest.mark.parametrize("save", ROUTES)
def test_an_edit_keeps_what_it_does_not_show(bench, save):
    text = view(bench)
    lines = text.splitlines(keepends=True)
    save(bench, b"".join([*lines[:1], b"PORT=8080\n", *lines[1:]]))
    assert now() == TEXT.replace(b"\n\nDEBUG", b"\nPORT=8080\n\nDEBUG")
    again = view(bench)
    assert is_view(again.replace(b"PORT=", b"DEBUG=").replace(b"API_KEY", b"API_KEY", 1))
    assert again.splitlines()[1].startswith(b"PORT=pincer:")
    save(bench, again.replace(b"API_KEY=", b"TOKEN=") if save is not after_removal else again)


def test_mode_and_owner_are_kept_and_it_is_another_object(bench):
    text, before = view(bench), os.stat(".env")
    pin = os.open(".env", os.O_PATH)  # so that its number is given to no other
    for save in (by_rename, by_truncating):
        save(bench, text)
        after = os.stat(".env")
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        assert after.st_ino != before.st_ino
        assert after.st_nlink == 1
    os.close(pin)
    assert sorted(os.listdir(".")) == [".env", "dir", "file"]


def test_what_was_let_pass_is_judged_anew_behind_a_save(bench):
    """The new object may have the number, and on a coarse clock the change time, of a file that is gone by now."""
    text = view(bench)
    make(bench, b"staging", text)
    bench.call("openat", AT, b"file", RDONLY, 0)
    assert bench.reads.hot
    assert bench.call("rename", b"staging", b".env").succeeded
    assert not bench.reads.hot


def test_no_other_group_may_what_the_group_of_the_file_may(tmp_path):
    """The writer of another user's file can keep neither its owner nor, where it is not in it, its group."""
    writer, group, stranger = os.geteuid() or 61234, os.getegid(), 61501

    def like(mode: int, group: int) -> os.stat_result:
        return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, 61500, group, 0, 0, 0, 0))

    opened = os.open(tmp_path / "made", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.fchown(opened, writer, -1)
        os.seteuid(writer)
        assert own(opened, like(0o640, stranger)) == 0o600
        assert own(opened, like(0o664, stranger)) == 0o644
        assert own(opened, like(0o4760, group)) == 0o760
        assert own(opened, os.fstat(opened)) == 0o600
        assert os.fstat(opened).st_gid == group
    finally:
        os.seteuid(os.getuid())
        os.close(opened)


def test_a_second_save_of_the_same_view(bench):
    """A program that goes on with what it has read once."""
    text = view(bench)
    by_rename(bench, text + b"ONE=1\n")
    by_truncating(bench, text + b"ONE=1\nTWO=2\n")
    assert now().endswith(b"ONE=1\nTWO=2\n")
    assert now().startswith(TEXT)


@pytest.mark.parametrize("save", [by_rename, by_truncating, in_place])
def test_a_guess_that_is_right_looks_like_one_that_is_wrong(bench, save):
    """Handles that come back would tell that the file is what it was: then what was hidden is what was guessed."""
    first = view(bench)
    handle, value = first.splitlines()[0].partition(b"=")[2], b"canary-77777"
    seen = set(HANDLE.findall(first))
    for guess in (b"canary-77778", value, handle):
        save(bench, first.replace(handle, guess))
        assert (now() == TEXT) is (guess != b"canary-77778")
        shown = set(HANDLE.findall(view(bench)))
        assert len(shown) == 4 and not shown & seen
        assert set(HANDLE.findall(view(bench))) == shown
        seen |= shown


def test_its_record_tells_what_was_kept(bench):
    text = view(bench)
    by_rename(bench, text)
    rename = bench.records("intent")[-1]
    assert (rename["effect"], rename["extra"]["saved"]) == ("rename", "4 handles")
    by_truncating(bench, b"".join(text.splitlines(keepends=True)[1:]))
    saved = bench.records("intent")[-1]
    assert (saved["effect"], saved["path"]) == ("write", os.path.abspath(".env"))
    assert saved["extra"]["saved"] == "3 handles, 1 of 3 values dropped"
    assert bench.records("outcome")[-1]["post"].endswith(f":{os.stat('.env').st_ino}")
    assert b"canary" not in Path(bench.session.path, "ledger.jsonl").read_bytes()
    assert b"API_KEY" not in now()


def test_what_is_written_in_place_is_the_view(bench):
    text = view(bench)
    answer = bench.call("openat", AT, b".env", WRONLY, 0)
    (number,) = answer.numbers
    assert os.fstat(number).st_size == len(text)
    os.pwrite(number, b"TOKEN__=", text.index(b"API_KEY="))
    answer.close()
    next_call(bench)
    assert now() == TEXT.replace(b"API_KEY=", b"TOKEN__=")
    bench.call("openat", AT, b".env", WRONLY, 0).close()  # as `touch` does
    next_call(bench)
    assert now() == TEXT.replace(b"API_KEY=", b"TOKEN__=")


def test_appending(bench):
    write(bench, b"MORE=1\n", WRONLY | CREAT | APPEND)
    next_call(bench)
    assert now() == TEXT + b"MORE=1\n"
    text = view(bench)
    write(bench, b"X=" + text.split(b"=")[1][:33] + b"\n", WRONLY | APPEND)
    assert "cannot be appended" in str(refused(bench, "openat", AT, b".env", RDONLY, 0)["reason"])
    assert now() == TEXT + b"MORE=1\n"
    assert view(bench) == text
    write(bench, b"hunter2", WRONLY | APPEND)
    next_call(bench)
    write(bench, b"=1\n", WRONLY | APPEND)  # which would make a name of it
    assert "would show" in str(refused(bench, "openat", AT, b".env", RDONLY, 0)["reason"])
    assert now() == TEXT + b"MORE=1\nhunter2"


def test_it_is_committed_before_the_next_call_is_answered(bench):
    text = view(bench)
    write(bench, b"FIRST=1\n" + text)
    assert now() == TEXT
    assert view(bench).startswith(b"FIRST=pincer:")
    assert now() == TEXT.replace(b"API_KEY", b"FIRST=1\nAPI_KEY")


def test_an_open_writer_keeps_it_waiting(bench):
    text = view(bench)
    answer = bench.call("openat", AT, b".env", WRONLY | TRUNC, 0)
    (number,) = answer.numbers
    os.write(number, text[:10])
    assert view(bench) == text
    record = refused(bench, "openat", AT, b".env", WRONLY | TRUNC, 0)
    assert "another program is writing it" in str(record["reason"])
    os.write(number, text[10:] + b"MORE=1\n")
    answer.close()
    next_call(bench)
    assert now() == TEXT + b"MORE=1\n"


def test_it_is_written_by_its_descriptor_alone(bench):
    """Whoever else has that can read what was written, with its handles, and nothing more."""
    text = view(bench)
    answer = bench.call("openat", AT, b".env", WRONLY | TRUNC, 0)
    os.write(answer.numbers[0], text)
    assert content(bench.call("openat", AT, b"/proc/self/fd/%d" % answer.numbers[0], RDONLY, 0)) == text
    answer.close()
    next_call(bench)
    assert now() == TEXT


# -- what is not taken ---------------------------------------------------------------------------------------


def dropped_remainder(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-1])


def foreign(text: bytes) -> bytes:
    return text + b"X=pincer:" + b"a" * 26 + b"\n"


def twice(text: bytes) -> bytes:
    return text + b"COPY=" + text.split(b"=")[1][:33] + b"\n"


def emptied(_text: bytes) -> bytes:
    return b"EMPTY=1\n"


BAD = {dropped_remainder: "is gone", foreign: "pincer:aaaaaa", twice: "is there twice", emptied: "is gone"}


@pytest.mark.parametrize("edit", BAD)
def test_a_save_that_fits_no_view_is_refused_and_named(bench, edit):
    text = view(bench)
    make(bench, b"staging", edit(text))
    record = refused(bench, "rename", b"staging", b".env")
    assert record["code"] == "SAVE_REFUSED"
    assert BAD[edit] in str(record["reason"])
    assert os.path.exists("staging")
    assert view(bench) == text  # the writer was told
    write(bench, edit(text))
    record = refused(bench, "openat", AT, b".env", RDONLY, 0)  # once: nobody was told
    assert "what was saved last was not taken" in str(record["reason"])
    assert BAD[edit] in str(record["reason"])
    assert view(bench) == text
    assert now() == TEXT


def test_dropping_most_of_it_wants_a_confirmation(make_bench, bench):
    text = view(bench)
    less = b"".join(text.splitlines(keepends=True)[2:])
    make(bench, b"staging", less)
    record = refused(bench, "rename", b"staging", b".env")
    assert (record["verdict"], record["code"]) == ("confirm", "NOBODY_TO_ASK")
    assert "drops 2 of the 3 values" in str(record["reason"])
    assert now() == TEXT
    other = make_bench(PROFILE, confirm_all=True)
    text = content(other.call("openat", AT, b".env", RDONLY, 0))
    os.unlink("staging")
    make(other, b"staging", b"".join(text.splitlines(keepends=True)[2:]))
    assert other.call("rename", b"staging", b".env").succeeded
    assert b"LAST=canary-9" in now()
    assert b"API_KEY" not in now()


def test_a_file_that_somebody_else_changed_meanwhile(bench):
    text = view(bench)
    with open(".env", "ab") as file:
        file.write(b"THEIRS=1\n")
    make(bench, b"staging", text)
    assert "pincer:" in str(refused(bench, "rename", b"staging", b".env")["reason"])
    answer = bench.call("openat", AT, b".env", WRONLY | TRUNC, 0)
    os.write(answer.numbers[0], view(bench))
    os.rename(".env", "theirs")
    Path(".env").write_bytes(b"THEIRS=2\n")
    answer.close()
    next_call(bench)
    assert "another file has the name" in str(bench.records("denied")[-1]["reason"])
    assert now() == b"THEIRS=2\n"


def test_a_file_that_is_still_open_is_not_renamed_onto_it(bench):
    text = view(bench)
    answer = bench.call("openat", AT, b"staging", WRONLY | CREAT, 0o600)
    os.write(answer.numbers[0], text)
    assert "still open for writing" in str(refused(bench, "rename", b"staging", b".env")["reason"])
    answer.close()
    assert bench.call("rename", b"staging", b".env").succeeded


def test_other_ways_of_writing_are_refused_with_the_reason(bench, work):
    with open(".env.large", "wb") as file:
        file.write(b"A=1\n" * (1 << 19))
    os.link(".env", "second")
    for name, flags, reason in (
        (b".env", RDWR, "read and written at once"),
        (b".env", RDWR | TRUNC, "read and written at once"),
        (b".env", RDONLY | TRUNC, "read and written at once"),
        (b".env.large", WRONLY | TRUNC, "larger than a megabyte"),
        (b".env", WRONLY | TRUNC, "several names"),
    ):
        record = refused(bench, "openat", AT, name, flags, 0)
        assert (record["code"], reason in str(record["reason"])) == ("NO_VIEW", True), (flags, record)
    assert now() == TEXT


def test_what_is_cut_off_or_removed(bench):
    record = refused(bench, "truncate", b".env", 3)
    assert (record["verdict"], "cut off" in str(record["reason"])) == ("confirm", True)
    assert now() == TEXT
    assert bench.call("unlink", b".env").succeeded
    (kept,) = bench.engine._saves.versions.all()
    assert (kept.content, kept.path, kept.mode) == (TEXT, os.path.abspath(b".env"), 0o640)


def test_the_versions_before_are_kept_in_memory(bench):
    text = view(bench)
    by_rename(bench, text + b"ONE=1\n")
    by_truncating(bench, text + b"TWO=2\n")
    first, second = bench.engine._saves.versions.all()
    assert (first.content, second.content) == (TEXT, TEXT + b"ONE=1\n")
    assert bench.engine._saves.versions.get(first.number) is first
    assert bench.engine._saves.versions.get(99) is None


def test_what_the_person_had_is_kept_longest(work):
    """However often it is saved, and whatever times it has in between; of what is all the person's, the oldest goes."""
    versions, found = Versions(most=4, most_bytes=100), os.stat(work / ".env")
    for number in range(20):
        versions.keep(b"/.env", b"%d" % number, found)
        versions.note_made(b"%d" % (number + 1), found)
    assert [version.content for version in versions.all()] == [b"0", b"17", b"18", b"19"]
    versions.keep(b"/.env", b"of the person again", found)  # written since, into the same object
    for _ in range(5):
        versions.keep(b"/other", b"-" * 19, found)
    assert [version.content[:3] for version in versions.all()] == [b"---"] * 4
    versions.keep(b"/large", b"-" * 101, found)
    assert not versions.all()


def test_one_protected_file_in_the_place_of_another(bench):
    """That is no save: both are what they are."""
    Path(".env.old").write_bytes(b"OLD=canary\n")
    assert bench.call("rename", b".env.old", b".env").succeeded
    assert now() == b"OLD=canary\n"
    assert view(bench).startswith(b"OLD=pincer:")


def test_a_saved_file_is_not_the_session_s_own(bench):
    text = view(bench)
    for save in ROUTES:
        save(bench, text)
        assert is_view(view(bench).replace(b"LAST=", b"DEBUG="))
        text = view(bench)
    assert now() == TEXT


@pytest.mark.parametrize("failing", ["fsync", "rename"])
@pytest.mark.parametrize("save", [by_rename, by_truncating])
def test_a_save_that_fails_leaves_the_file_whole(bench, monkeypatch, failing, save):
    from pincer_trace.executor import fresh

    text = view(bench)
    make(bench, b"staging", text) if save is by_rename else write(bench, text)

    def fail(*_arguments, **_named):
        raise OSError(errno.ENOSPC, "scripted")

    with monkeypatch.context() as patch:
        patch.setattr(fresh.os, failing, fail)
        if save is by_rename:
            assert bench.call("rename", b"staging", b".env").error == errno.ENOSPC
        else:
            assert "scripted" in str(refused(bench, "openat", AT, b".env", RDONLY, 0)["reason"])
    assert now() == TEXT
    assert bench.records("outcome")[-1]["outcome"] == "ENOSPC"
    assert view(bench) == text
    assert sorted(set(os.listdir(".")) - {"staging"}) == [".env", "dir", "file"]


def test_p85_modes_of_a_file_system_without_nameless_files(bench, monkeypatch):
    without_nameless(monkeypatch)
    text = view(bench)
    for save in ROUTES:
        save(bench, text)
        text = view(bench)
    assert now() == TEXT
    assert stat.S_IMODE(os.stat(".env").st_mode) in (0o600, 0o640)
    assert sorted(os.listdir(".")) == [".env", "dir", "file"]


def test_the_library_is_reached_whoever_asks_first(bench, monkeypatch):
    """Under a worker's ids it might be closed: it is imported by ours, and then these are in force again."""
    identity, secrets, taken = bench.engine._identity, bench.engine._secrets, []
    load = secrets.load

    def see() -> None:
        taken.append("load")
        load()

    monkeypatch.setattr(identity, "changed", True)
    monkeypatch.setattr(identity, "credentials", lambda _task: "theirs")
    monkeypatch.setattr(identity, "assume", taken.append)
    monkeypatch.setattr(secrets, "load", see)
    write(bench, b"MORE=1\n", WRONLY | APPEND)
    monkeypatch.undo()
    for file in bench.engine._staged.pending:
        file.credentials = None
    at = taken.index("load")
    assert taken[at - 1 : at + 2] == [None, "load", "theirs"]
    assert taken.count("load") == 1


def test_nothing_more_is_imported_for_views_and_saves_once_that_is_loaded():
    """In an interpreter of its own, since others have imported it all."""
    script = """
import os, sys
from pincer_trace.executor.secrets import Secrets
secrets, found, content = Secrets("session"), os.stat("/"), b"A=1\\n"
secrets.load()
loaded = set(sys.modules)
for path in b".env a.ini a.toml a.yaml a.json a.csv .netrc a.pem .git-credentials a".split():
    view = secrets.view(path, found, content)
    secrets.restore(path, found, content, view.text + b"B=1\\n")
    secrets.appended(path, content, b"C=1\\n")
print(*sorted(set(sys.modules) - loaded))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_what_is_kept_of_views_is_bounded(bench, monkeypatch):
    from pincer_trace.executor import secrets

    monkeypatch.setattr(secrets, "_BYTES", 3 * len(TEXT))
    for number in range(6):
        Path(f".env.{number}").write_bytes(TEXT)
        assert content(bench.call("openat", AT, b".env.%d" % number, RDONLY, 0))
    kept = [shown for file in bench.engine._secrets._files.values() for _, shown in file.views]
    assert len(kept) == 3
    assert bench.engine._secrets._bytes == 3 * len(TEXT)
    by_rename(bench, view(bench))
    assert now() == TEXT


def test_a_view_that_is_old_is_made_anew(bench, monkeypatch):
    """Before what its handles stand for is forgotten."""
    from pincer_trace.executor import secrets
    from pincer_trace.plaintext.handles import TTL

    assert secrets._LASTS < TTL / 2
    first = view(bench)
    monkeypatch.setattr(secrets, "_LASTS", -1.0)
    second = view(bench)
    assert first != second
    by_rename(bench, second)
    by_rename(bench, first)  # somebody had read that before
    assert now() == TEXT


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "fault"), RuntimeError("fault")], ids=["errno", "bug"])
def test_p55_each_step_of_a_view_and_of_a_save(monkeypatch, make_bench, work, failure):
    """Whatever goes wrong: the program gets a view or an error, and the file is the old one or the new one."""
    faults = Faults(monkeypatch)
    bench = make_bench(PROFILE)
    bench.listener.before("wait", *[True] * 10_000)
    saved = TEXT + b"MORE=1\n"

    def attempt(step: int, *call) -> bool:
        """Whether the call came so far that the fault was met."""
        before = set(os.listdir("/proc/self/fd"))
        faults.arm(step, failure)
        answer = bench.call(*call)
        faults.disarm()
        for number in answer.numbers:
            assert b"canary" not in os.pread(number, 1000, 0), (step, faults.used)
        answer.close()
        assert set(os.listdir("/proc/self/fd")) == before, (step, faults.used)
        return len(faults.used) > step

    text = view(bench)
    step = 0
    while attempt(step, "openat", AT, b".env", RDONLY, 0):
        step += 1
    assert step > 10
    step, met = 0, True
    while met:
        Path("staging").write_bytes(text + b"MORE=1\n")
        met = attempt(step, "rename", b"staging", b".env")
        assert now() in (TEXT, saved), (step, faults.used[step - 3 : step + 4])
        others = {name for name in os.listdir(".") if name not in (".env", "dir", "file", "staging")}
        assert all(name.startswith(".env.pincer-trace-") for name in others), others  # read as a view, too
        for name in others:
            os.unlink(name)
        Path(".env").write_bytes(TEXT)
        text = view(bench)
        step += 1
    assert step > 20
    bench.engine._staged.finish()
    bench.listener.forget()
