"""Files that are judged when nobody can write them any more: what has which name when, and what a failure leaves."""

from __future__ import annotations

import errno
import os
import stat

import pytest
from executor.benches import without_nameless

AT = -100
WRONLY, RDONLY, RDWR = os.O_WRONLY, os.O_RDONLY, os.O_RDWR
CREAT, EXCL, TRUNC = os.O_CREAT, os.O_EXCL, os.O_TRUNC
CONFIG = b"new/.git/config"
GOOD, EVIL = b"[core]\n\tbare = true\n", b"[core]\n\tpager = x\n"


@pytest.fixture(params=["nameless", "named"])
def here(bench, request, monkeypatch):
    """A bench with a repository of the session, also on a file system where every file has a name.

    The end of the script counts as the end of the tree.
    """
    if request.param == "named":
        without_nameless(monkeypatch)
    bench.listener.before("wait", *[True] * 1000)
    for name in (b"new", b"new/.git"):
        assert bench.call("mkdirat", AT, name, 0o755).succeeded
    yield bench
    bench.engine._staged.finish()
    bench.listener.forget()


def opened(bench, text=b"", path=CONFIG, flags=WRONLY | CREAT, mode=0o640):
    answer = bench.call("openat", AT, path, flags, mode)
    assert answer.succeeded, answer
    os.write(answer.numbers[0], text)
    return answer


def next_call(bench):
    assert bench.call("openat", AT, b"file", RDONLY, 0).succeeded


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_it_gets_its_name_at_the_last_close(here):
    answer = opened(here, GOOD)
    next_call(here)
    assert not os.path.exists(CONFIG)
    assert [record["effect"] for record in here.records("intent")] == ["mkdir", "mkdir"]
    answer.close()
    next_call(here)
    with open(CONFIG, "rb") as file:
        assert file.read() == GOOD
    info = os.stat(CONFIG)
    assert (stat.S_IMODE(info.st_mode), info.st_nlink) == (0o640, 1)
    last, outcome = here.records("intent")[-1], here.records("outcome")[-1]
    assert (last["effect"], outcome["of"], outcome["outcome"]) == ("create", last["seq"], "done")
    assert not here.engine._staged.pending


def test_what_does_not_pass_gets_none(here):
    before = descriptors()
    opened(here, EVIL).close()
    next_call(here)
    assert not os.path.exists(CONFIG)
    (refused,) = here.records("denied")
    assert (refused["effect"], refused["path"].endswith("new/.git/config")) == ("create", True)
    assert "core.pager" in refused["reason"]
    for answer in here.listener.answers.values():
        answer.close()
    assert descriptors() == before


def test_another_writer_keeps_it_waiting(here):
    answer = opened(here, GOOD)
    other = os.dup(answer.numbers[0])
    answer.close()
    next_call(here)
    assert not os.path.exists(CONFIG)
    os.close(other)
    next_call(here)
    assert os.path.exists(CONFIG)


def test_it_is_a_copy_that_gets_the_name(here):
    """A descriptor of what was written could be opened again, by a name that the file does not have."""
    answer = opened(here, GOOD, flags=RDWR | CREAT)
    reader = os.open(f"/proc/self/fd/{answer.numbers[0]}", RDONLY)
    answer.close()
    next_call(here)
    assert not os.path.samestat(os.fstat(reader), os.stat(CONFIG))
    os.close(reader)


def test_the_same_name_again(here):
    """As of a file that is there: O_EXCL fails, and another open gives the same file."""
    one = opened(here, GOOD)
    assert here.call("openat", AT, CONFIG, WRONLY | CREAT | EXCL, 0o600).error == errno.EEXIST
    two = opened(here, b"\tlogAllRefUpdates = true\n", flags=WRONLY | CREAT | os.O_APPEND)
    assert os.path.samestat(os.fstat(one.numbers[0]), os.fstat(two.numbers[0]))
    one.close()
    two.close()
    next_call(here)
    with open(CONFIG, "rb") as file:
        assert file.read() == GOOD + b"\tlogAllRefUpdates = true\n"


def test_a_name_that_is_taken_meanwhile_stays(here):
    opened(here, GOOD).close()
    with open(CONFIG, "wb") as file:
        file.write(b"the user's")
    next_call(here)
    with open(CONFIG, "rb") as file:
        assert file.read() == b"the user's"
    assert os.listdir("new/.git") == ["config"]
    assert here.records("outcome")[-1]["outcome"] == "EEXIST"


def test_written_anew_it_takes_the_place_of_the_old_one(here):
    opened(here, GOOD).close()
    next_call(here)
    for text, expected in ((EVIL, GOOD), (GOOD + b"[user]\n\tname = x\n", GOOD + b"[user]\n\tname = x\n")):
        opened(here, text, flags=WRONLY | CREAT | TRUNC).close()
        next_call(here)
        with open(CONFIG, "rb") as file:
            assert file.read() == expected
    assert os.listdir("new/.git") == ["config"]
    assert stat.S_IMODE(os.stat(CONFIG).st_mode) == 0o640
    assert here.call("openat", AT, CONFIG, WRONLY | CREAT, 0).error == errno.EACCES  # the old content would stay


def test_only_in_directories_of_the_session(here):
    """Elsewhere it is refused when it is opened, as a program expects."""
    os.unlink("repo/.git/config")
    assert here.call("openat", AT, b"repo/.git/config", WRONLY | CREAT, 0o600).error == errno.EACCES
    assert here.call("openat", AT, CONFIG, RDONLY | CREAT, 0o600).error == errno.EACCES


def test_p13_a_descriptor_that_cannot_be_taken_leaves_nothing(here):
    before = descriptors()
    here.listener.before("inject", OSError(errno.EMFILE, "scripted"))
    assert here.call("openat", AT, CONFIG, WRONLY | CREAT, 0o600).error == errno.EMFILE
    assert not here.engine._staged.pending
    assert descriptors() == before


def test_they_are_few(here):
    answers = []
    for number in range(70):
        name = b"new/d%d/.git" % number
        for directory in (name.removesuffix(b"/.git"), name):
            here.call("mkdirat", AT, directory, 0o755)
        answers.append(here.call("openat", AT, name + b"/config", WRONLY | CREAT, 0o600))
    assert {answer.error for answer in answers[:64]} == {0}
    assert {answer.error for answer in answers[64:]} == {errno.EACCES}


def test_the_end_waits_a_little_and_drops_what_is_open(here):
    answer = opened(here, GOOD)
    here.engine._staged.finish()
    assert os.listdir("new/.git") == []
    assert "not closed" in here.records("denied")[-1]["reason"]
    answer.close()


def test_p55_a_failure_drops_it_with_a_record(here, monkeypatch):
    opened(here, GOOD).close()
    monkeypatch.setattr(here.engine._staged, "_name", lambda *_, **__: 1 / 0)
    next_call(here)
    assert not os.path.exists(CONFIG)
    assert here.records("failure")
    assert here.records("outcome")[-1]["outcome"] == "EIO"
