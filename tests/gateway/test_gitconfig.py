"""The witness of a renamed git configuration: it answers only when nobody is left who could change what it read."""

from __future__ import annotations

import mmap
import os

import pytest

from pincer_trace.gateway.gitconfig import ConfigWitness

OLD = "[core]\n\tbare = false\n"
SAFE = OLD + "[user]\n\tname = x\n"
EVIL = OLD + "\tfsmonitor = touch pwned\n"


@pytest.fixture
def place(work):
    """The repository's directory, pinned, with `new` to be renamed onto `config`."""
    folder = os.open("repo", os.O_PATH)
    yield folder
    os.close(folder)


def write(name: str, text: str) -> None:
    with open(f"repo/{name}", "w") as file:
        file.write(text)


def ask(place: int, *, name: bytes = b"new", goal: bytes = b".git/config"):
    witness = ConfigWitness(place, name, os.stat(name, dir_fd=place, follow_symlinks=False), place, goal)
    try:
        answer = witness.changes()
        assert witness.changes() == answer
        return answer
    finally:
        witness.close()


def test_it_tells_what_changes(place):
    write("new", SAFE)
    assert ask(place) == {"user.name"}
    write("new", EVIL)
    assert ask(place) == {"core.fsmonitor"}
    write("new", OLD)
    assert ask(place) == frozenset()
    write("new", "")
    assert ask(place) == {"core.bare"}


def test_against_nothing_every_key_is_new(place):
    write("new", SAFE)
    assert ask(place, goal=b"absent") == {"core.bare", "user.name"}


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_p85_an_open_writer_makes_it_unknown(place, flags):
    write("new", SAFE)
    writer = os.open("repo/new", flags)
    try:
        assert ask(place) is None
    finally:
        os.close(writer)
    assert ask(place) == {"user.name"}


def test_p85_a_shared_mapping_makes_it_unknown(place):
    write("new", SAFE)
    writer = os.open("repo/new", os.O_RDWR)
    mapping = mmap.mmap(writer, 0)
    os.close(writer)
    try:
        assert ask(place) is None
    finally:
        mapping.close()
    assert ask(place) == {"user.name"}


def test_a_second_name_makes_it_unknown(place):
    write("new", SAFE)
    os.link("repo/new", "repo/second")
    assert ask(place) is None


def test_another_file_than_the_one_that_was_looked_at(place):
    write("new", SAFE)
    found = os.stat("repo/new")
    write("other", SAFE)
    os.rename("repo/other", "repo/new")
    witness = ConfigWitness(place, b"new", found, place, b".git/config")
    assert witness.changes() is None
    witness.close()


def test_what_is_no_plain_small_file_is_unknown(place):
    os.mkfifo("repo/fifo")
    assert ask(place, name=b"fifo") is None
    os.symlink("new", "repo/soft")
    assert ask(place, name=b"soft") is None
    write("new", SAFE + "#" * (1 << 20))
    assert ask(place) is None
    write("new", "[core\n")
    assert ask(place) is None
    write("new", SAFE)
    os.symlink("config", "repo/.git/soft")
    assert ask(place, goal=b".git/soft") is None  # what it would replace cannot be read


def test_close_lets_writers_in_and_leaves_nothing_open(place):
    write("new", SAFE)
    before = set(os.listdir("/proc/self/fd"))
    witness = ConfigWitness(place, b"new", os.stat("repo/new"), place, b".git/config")
    assert witness.changes() == {"user.name"}
    with pytest.raises(BlockingIOError):
        os.open("repo/new", os.O_WRONLY | os.O_NONBLOCK)
    witness.close()
    witness.close()
    os.close(os.open("repo/new", os.O_WRONLY | os.O_NONBLOCK))
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture(autouse=True)
def _broken_leases_say_nothing():
    import signal

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGIO, before)
