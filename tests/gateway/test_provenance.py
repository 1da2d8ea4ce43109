"""What counts as the tree's own: from its creation to its end, and never what only looks like it."""

from __future__ import annotations

import errno
import os

import pytest

AT = -100
CREATE = os.O_RDWR | os.O_CREAT


def own(bench, name: str) -> bool:
    parent = os.open(os.path.dirname(name) or ".", os.O_PATH)
    try:
        return bench.provenance.holds_entry(parent, os.fsencode(os.path.basename(name)))
    finally:
        os.close(parent)


def covered(bench, folder: str, levels: int, skip: int = 0) -> bool:
    directory = os.open(folder, os.O_PATH)
    try:
        return bench.provenance.covers(directory, skip, levels)
    finally:
        os.close(directory)


@pytest.mark.parametrize(
    "call",
    [
        ("openat", AT, b"shared/x", CREATE, 0o644),
        ("mkdir", b"shared/x", 0o755),
        ("mknod", b"shared/x", 0o010644, 0),
        ("symlink", b"y", b"shared/x"),
    ],
    ids=lambda call: call[0],
)
def test_own_from_creation_to_removal(bench, call):
    assert bench.call(*call).succeeded
    assert own(bench, "shared/x")
    assert bench.call("rename", b"shared/x", b"shared/y").succeeded  # only `own` allows that there
    assert own(bench, "shared/y")
    removal = "rmdir" if call[0] == "mkdir" else "unlink"
    for answer in bench.listener.answers.values():
        answer.close()
    assert bench.call(removal, b"shared/y").succeeded
    assert bench.provenance._born == {}


def test_a_strangers_file_is_not_own(bench):
    assert not own(bench, "shared/foreign")
    for call in (
        ("unlink", b"shared/foreign"), ("rename", b"shared/foreign", b"shared/x"), ("chmod", b"shared/foreign", 0),
        ("link", b"shared/foreign", b"shared/x"), ("truncate", b"shared/foreign", 0),
        ("link", b"shared/foreign", b"taken"),
    ):  # fmt: skip
        assert bench.call(*call).error == errno.EACCES, call


def test_a_number_that_is_given_out_again_is_not_own(bench, monkeypatch):
    """The inode of a removed own file comes round as somebody else's: the time of birth tells them apart."""
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    [(key, _)] = bench.provenance._born.items()
    for answer in bench.listener.answers.values():
        answer.close()
    os.unlink("shared/x")  # removed behind our back
    found = os.stat("shared/foreign")
    bench.provenance._born.clear()
    bench.provenance._born[found.st_dev, found.st_ino] = b"the handle of another"
    assert not own(bench, "shared/foreign")
    assert bench.call("unlink", b"shared/foreign").error == errno.EACCES
    assert key


def test_an_own_file_stays_own_whatever_its_times_say(bench):
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    os.utime("shared/x", (1, 1))
    os.chmod("shared/x", 0o600)
    assert own(bench, "shared/x")


def test_out_of_an_own_directory(bench):
    """A file below an own directory has no entry of its own until it leaves."""
    bench.call("mkdir", b"shared/d", 0o755)
    bench.call("openat", AT, b"shared/d/x", CREATE, 0o644)
    assert len(bench.provenance._born) == 1
    assert not own(bench, "shared/d/x")
    assert covered(bench, "shared/d", 1)
    assert not covered(bench, "shared/d", 1, skip=1)
    assert bench.call("rename", b"shared/d/x", b"shared/x").succeeded
    assert own(bench, "shared/x")
    assert bench.call("chmod", b"shared/x", 0o600).succeeded


def test_a_strangers_file_in_an_own_directory(bench):
    """What somebody else moves into it counts as covered; it came there by somebody else's will."""
    bench.call("mkdir", b"shared/d", 0o755)
    assert bench.call("rename", b"shared/foreign", b"shared/d/x").error == errno.EACCES


def test_a_hard_link_of_an_own_file(bench):
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    assert bench.call("link", b"shared/x", b"shared/y").succeeded
    assert bench.call("unlink", b"shared/x").succeeded
    assert own(bench, "shared/y")  # one name is left
    assert bench.call("unlink", b"shared/y").succeeded
    assert bench.provenance._born == {}


def test_a_hard_link_out_of_an_own_directory(bench):
    bench.call("mkdir", b"shared/d", 0o755)
    bench.call("openat", AT, b"shared/d/x", CREATE, 0o644)
    assert bench.call("link", b"shared/d/x", b"shared/y").succeeded
    assert bench.call("unlink", b"shared/d/x").succeeded
    assert bench.call("chmod", b"shared/y", 0o600).succeeded, "the same object, made by the tree, under its other name"


def test_what_is_replaced_is_forgotten(bench):
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    bench.call("openat", AT, b"shared/y", CREATE, 0o644)
    assert bench.call("rename", b"shared/x", b"shared/y").succeeded
    assert len(bench.provenance._born) == 1
    assert own(bench, "shared/y")


def test_a_strangers_replacement_is_not_own(bench):
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    os.rename("shared/foreign", "shared/x")  # by somebody else
    assert not own(bench, "shared/x")
    assert bench.call("truncate", b"shared/x", 0).error == errno.EACCES


def test_exchanged_ends_keep_their_makers(bench):
    bench.call("openat", AT, b"shared/x", CREATE, 0o644)
    assert bench.call("renameat2", AT, b"shared/x", AT, b"shared/foreign", 2).error == errno.EACCES
    bench.call("openat", AT, b"shared/y", CREATE, 0o644)
    assert bench.call("renameat2", AT, b"shared/x", AT, b"shared/y", 2).succeeded
    assert own(bench, "shared/x")
    assert own(bench, "shared/y")


def test_a_nameless_file_becomes_own_with_its_name(bench):
    answer = bench.call("openat", AT, b"shared", os.O_RDWR | os.O_TMPFILE, 0o644)
    assert answer.succeeded
    link = b"/proc/self/fd/%d" % answer.value
    assert bench.call("linkat", AT, link, AT, b"shared/x", 0x400).succeeded
    assert bench.call("chmod", b"shared/x", 0o600).succeeded


def test_nameless_files_are_not_remembered_for_ever(bench, monkeypatch):
    from pincer_trace.gateway import provenance

    monkeypatch.setattr(provenance, "_NAMELESS", 3)
    for _ in range(6):
        bench.call("openat", AT, b"dir", os.O_RDWR | os.O_TMPFILE, 0o644)
    assert len(bench.provenance._nameless) == 3


@pytest.mark.parametrize("folder", ["shared", "shared/d"])
def test_who_has_a_removed_file_open_may_go_on_to_change_it(bench, folder, monkeypatch):
    """As programs do that keep a temporary file to themselves; until a few thousand others have gone the same way."""
    from pincer_trace.gateway import provenance

    monkeypatch.setattr(provenance, "_NAMELESS", 3)
    bench.call("mkdir", b"shared/d", 0o755)
    path = folder.encode() + b"/x"
    first = bench.call("openat", AT, path, CREATE, 0o644)
    assert bench.call("unlink", path).succeeded
    for _ in range(4):
        assert bench.call("fchmod", first.value, 0o600).succeeded
        bench.call("openat", AT, path, CREATE, 0o644)
        assert bench.call("unlink", path).succeeded
    for _ in range(3):
        bench.call("openat", AT, path, CREATE, 0o644)
        assert bench.call("unlink", path).succeeded
    assert bench.call("fchmod", first.value, 0o644).error == errno.EACCES


def test_a_removed_file_of_others_is_not_own(bench):
    bench.call("mkdir", b"shared/d", 0o755)
    opened = bench.call("openat", AT, b"shared/foreign", os.O_RDONLY, 0)
    os.unlink("shared/foreign")
    assert bench.call("fchmod", opened.value, 0o600).error == errno.EACCES


def test_a_folder_made_by_another_is_not_covered(bench):
    os.mkdir("shared/theirs")
    assert bench.call("openat", AT, b"shared/theirs/x", CREATE, 0o644).succeeded
    assert own(bench, "shared/theirs/x")
    assert not covered(bench, "shared/theirs", 2)
    with open("shared/theirs/y", "w"):
        pass
    assert bench.call("unlink", b"shared/theirs/y").error == errno.EACCES


def test_a_removed_folder_covers_nothing(bench):
    bench.call("mkdir", b"shared/d", 0o755)
    bench.call("rmdir", b"shared/d")
    os.mkdir("shared/d")
    os.close(os.open("shared/d/x", os.O_CREAT))
    assert not covered(bench, "shared/d", 1)
    assert bench.call("unlink", b"shared/d/x").error == errno.EACCES


def test_climbing_ends_at_the_root(bench):
    bench.call("mkdir", b"shared/d", 0o755)
    assert not covered(bench, "/", 50)


# -- names that were the user's ------------------------------------------------------------------------------


def test_vacated_names(bench):
    known = bench.provenance
    assert not known.is_vacated(b"/a/b")
    known.vacate(b"/a/b")
    known.vacate(b"/a/b/c")  # says nothing new
    known.vacate(b"/x")
    for path, vacated, below in (
        (b"/a/b", True, False), (b"/a/b/c/d", True, False), (b"/a", False, True), (b"/a/bc", False, False),
        (b"/x/y", True, False), (b"/", False, False), (b"/b", False, False),
    ):  # fmt: skip
        assert known.is_vacated(path) == vacated, path
        assert known.holds_vacated(path) == below, path
    assert len(known._vacated) == 2


def test_too_many_vacated_names_leave_nothing_new(bench, monkeypatch):
    from pincer_trace.gateway import provenance

    monkeypatch.setattr(provenance, "_VACATED", 5)
    for number in range(9):
        bench.provenance.vacate(b"/%d" % number)
    assert len(bench.provenance._vacated) == 5
    assert bench.provenance.is_vacated(b"/anything")


def test_an_ancestry_is_climbed_once(bench, work, monkeypatch):
    from pincer_trace.gateway.provenance import Ancestry, Within

    bench.call("mkdir", b"shared/own", 0o755)
    os.makedirs("shared/own/a/b/c")
    bottom = os.open("shared/own/a/b/c", os.O_PATH)
    climbed = []
    holds = bench.provenance.holds
    monkeypatch.setattr(bench.provenance, "holds", lambda descriptor: climbed.append(1) or holds(descriptor))
    with Ancestry(bench.provenance, bottom) as ancestry:
        for _ in range(3):
            assert ancestry.covers(0, 4)
            assert not ancestry.covers(0, 3)
            assert ancestry.covers(3, 1)
            assert not ancestry.covers(4, 2)
            assert not ancestry.covers(0, 0)
        assert len(climbed) == 6
        for ours, depth, skip, count, covered in (
            ((), 2, 0, 5, False), ((), 2, 0, 6, True), ((1,), 2, 0, 1, False), ((1,), 2, 0, 2, True),
            ((1,), 2, 1, 1, True), ((1,), 2, 2, 3, False), ((1,), 2, 2, 4, True), ((2,), 3, 2, 1, False),
            ((1, 3), 4, 1, 1, True), ((1, 3), 4, 2, 1, False), ((1, 3), 4, 3, 1, True), ((), 0, 3, 1, True),
        ):  # fmt: skip
            assert Within(ours, depth, ancestry).covers(skip, count) == covered, (ours, depth, skip, count)
        assert not Within((), 2, None).covers(0, 9)
    os.close(bottom)
