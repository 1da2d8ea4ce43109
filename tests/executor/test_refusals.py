"""Calls that the kernel refuses anyway are answered with its own errno, and cannot become an effect that nobody judged.

Somebody outside of the tree may make, remove or exchange a name at any moment, also between our look and our call.
"""

from __future__ import annotations

import errno
import os

import pytest

from pincer_trace.executor import names, refusals
from pincer_trace.kernel import libc

AT = -100
REMOVEDIR = 0x200


@pytest.fixture
def after_look(monkeypatch):
    """What an outside process does right after the engine has looked at a name; or the error of that look."""

    def arrange(name: bytes, act) -> list[bytes]:
        real, done = names.look, []

        def look(parent, entry):
            if entry == name and isinstance(act, OSError):
                done.append(entry)
                raise act
            found = real(parent, entry)
            if entry == name and not done:
                done.append(entry)
                act()
            return found

        for module in (names, refusals):
            monkeypatch.setattr(module, "look", look)
        return done

    return arrange


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("of somebody else\n")


def content(path: str) -> str:
    with open(path) as file:
        return file.read()


def test_what_appears_after_the_look_is_not_moved(bench, after_look):
    """A key that is made just now, where the tree may change nothing: it stays there, and is not shown."""
    done = after_look(b"fresh", lambda: write("secret/fresh"))
    answer = bench.call("renameat2", AT, b"secret/fresh", AT, b"taken", 0)
    assert done
    assert answer.error == errno.ENOENT
    assert content("secret/fresh") == "of somebody else\n"
    assert not os.path.lexists("taken")


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_what_appears_is_not_moved_with_any_flag(bench, after_look, flags):
    after_look(b"fresh", lambda: write("secret/fresh"))
    bench.call("renameat2", AT, b"secret/fresh", AT, b"file" if flags == 2 else b"taken", flags)
    assert content("secret/fresh") == "of somebody else\n"
    assert content("file") == "content of file\n"


def test_what_appears_after_the_look_is_not_removed(bench, after_look):
    done = after_look(b"fresh", lambda: write("secret/fresh"))
    assert bench.call("unlinkat", AT, b"secret/fresh", 0).error == errno.ENOENT
    assert done
    assert content("secret/fresh") == "of somebody else\n"


def test_a_folder_that_appears_after_the_look_is_not_removed(bench, after_look):
    done = after_look(b"fresh", lambda: os.mkdir("secret/fresh"))
    assert bench.call("unlinkat", AT, b"secret/fresh", REMOVEDIR).error == errno.ENOENT
    assert done
    assert os.path.isdir("secret/fresh")


def test_what_takes_the_place_of_a_folder_is_not_removed(bench, after_look):
    """Unlink of a folder is refused by the kernel, until it is a file."""
    os.mkdir("secret/sub")

    def exchange() -> None:
        os.rmdir("secret/sub")
        write("secret/sub")

    done = after_look(b"sub", exchange)
    assert bench.call("unlinkat", AT, b"secret/sub", 0).error in (errno.EISDIR, errno.EACCES)
    assert done
    assert content("secret/sub") == "of somebody else\n"


def test_what_takes_the_place_of_a_file_is_not_removed(bench, after_look):
    def exchange() -> None:
        os.unlink("secret/key")
        os.mkdir("secret/key")

    done = after_look(b"key", exchange)
    assert bench.call("unlinkat", AT, b"secret/key", REMOVEDIR).error in (errno.ENOTDIR, errno.EACCES)
    assert done
    assert os.path.isdir("secret/key")


def test_what_must_be_absent_and_goes_away_is_not_replaced(bench, after_look):
    """RENAME_NOREPLACE fails while the goal is there; when it has gone meanwhile, the move was still not judged."""
    write("secret/there")
    done = after_look(b"there", lambda: os.unlink("secret/there"))
    answer = bench.call("renameat2", AT, b"file", AT, b"secret/there", 1)
    assert done
    assert answer.error == errno.EEXIST
    assert content("file") == "content of file\n"
    assert not os.path.lexists("secret/there")


def test_a_goal_of_the_wrong_kind_that_goes_away_is_not_replaced(bench, after_look):
    os.mkdir("secret/there")
    done = after_look(b"there", lambda: os.rmdir("secret/there"))
    answer = bench.call("renameat2", AT, b"file", AT, b"secret/there", 0)
    assert done
    assert answer.error in (errno.EISDIR, errno.EACCES)
    assert content("file") == "content of file\n"
    assert not os.path.lexists("secret/there")


def test_an_exchange_with_what_appears_is_not_done(bench, after_look):
    done = after_look(b"there", lambda: write("secret/there"))
    answer = bench.call("renameat2", AT, b"file", AT, b"secret/there", 2)
    assert done
    assert answer.error == errno.ENOENT
    assert content("file") == "content of file\n"
    assert content("secret/there") == "of somebody else\n"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize(
    "call",
    [
        ("renameat2", AT, b"secret/key", AT, b"taken", 0), ("renameat2", AT, b"file", AT, b"secret/key", 0),
        ("unlinkat", AT, b"secret/key", 0), ("renameat2", AT, b"file", AT, b"secret/key", 2),
    ],
    ids=["out", "over", "unlink", "exchange"],
)  # fmt: skip
def test_a_look_that_fails_is_no_permission(bench, after_look, call, number):
    """Invariant 4: what cannot be looked at is not done."""
    done = after_look(b"key", OSError(number, "scripted"))
    assert bench.call(*call).error in (number, errno.EACCES)
    assert done
    assert content("secret/key") == "content of secret/key\n"
    assert content("file") == "content of file\n"
    assert not os.path.lexists("taken")


CASES = [
    ("unlinkat", AT, b"absent", 0), ("unlinkat", AT, b"absent/", 0), ("unlinkat", AT, b"absent", REMOVEDIR),
    ("unlinkat", AT, b"n" * 255, 0), ("unlinkat", AT, b"n" * 256, 0), ("unlinkat", AT, b"n" * 300, REMOVEDIR),
    ("unlinkat", AT, b"file/", 0), ("unlinkat", AT, b"dir", 0), ("unlinkat", AT, b"dir/", 0),
    ("unlinkat", AT, b"file", REMOVEDIR), ("unlinkat", AT, b"link/", 0), ("unlinkat", AT, b"link/", REMOVEDIR),
    ("unlinkat", AT, b"dir/.", REMOVEDIR), ("unlinkat", AT, b"dir/..", REMOVEDIR), ("unlinkat", AT, b".", 0),
    ("unlinkat", AT, b"closed/absent", 0), ("unlinkat", AT, b"closed/sub", 0), ("unlinkat", AT, b"closed/f", REMOVEDIR),
    ("renameat2", AT, b"absent", AT, b"new", 0), ("renameat2", AT, b"absent", AT, b"n" * 256, 0),
    ("renameat2", AT, b"n" * 256, AT, b"new", 0), ("renameat2", AT, b"n" * 256, AT, b"n" * 256, 0),
    ("renameat2", AT, b"file", AT, b"n" * 256, 0), ("renameat2", AT, b"file", AT, b"n" * 256, 1),
    ("renameat2", AT, b"absent", AT, b"file", 1), ("renameat2", AT, b"file", AT, b"dir", 1),
    ("renameat2", AT, b"absent", AT, b"dir", 2), ("renameat2", AT, b"file", AT, b"absent", 2),
    ("renameat2", AT, b"file", AT, b"absent/", 2), ("renameat2", AT, b"dir", AT, b"absent/", 2),
    ("renameat2", AT, b"file", AT, b"dir", 0), ("renameat2", AT, b"dir", AT, b"file", 0),
    ("renameat2", AT, b"dir", AT, b"dir/inner", 0), ("renameat2", AT, b"dir/inner", AT, b"dir", 0),
    ("renameat2", AT, b"file/", AT, b"new", 0), ("renameat2", AT, b"file", AT, b"new/", 0),
    ("renameat2", AT, b"file/", AT, b"dir", 0), ("renameat2", AT, b"file/", AT, b"dir", 1),
    ("renameat2", AT, b"link/", AT, b"new", 0), ("renameat2", AT, b"dir", AT, b"file/", 0),
    ("renameat2", AT, b".", AT, b"new", 0), ("renameat2", AT, b"file", AT, b".", 0),
    ("renameat2", AT, b"file", AT, b"dir/..", 1), ("renameat2", AT, b"dir/.", AT, b"dir/..", 0),
    ("renameat2", AT, b"file", AT, b"..", 2), ("renameat2", AT, b"absent", AT, b"..", 0),
    ("renameat2", AT, b"file", AT, b"/proc/x", 0), ("renameat2", AT, b"/proc/self/status", AT, b"new", 0),
    ("renameat2", AT, b"absent", AT, b"/proc/x", 0), ("renameat2", AT, b"/dev/shm", AT, b"new", 0),
    ("renameat2", AT, b"closed/f", AT, b"dir", 0), ("renameat2", AT, b"file", AT, b"closed/sub", 0),
    ("renameat2", AT, b"closed/absent", AT, b"new", 0), ("renameat2", AT, b"file", AT, b"closed/f", 1),
    ("unlinkat", AT, b"/proc/self/status", 0), ("unlinkat", AT, b"/proc/absent", 0), ("unlinkat", AT, b"/", REMOVEDIR),
]  # fmt: skip


@pytest.mark.parametrize("call", CASES, ids=lambda call: b" ".join([w[:8] for w in call if type(w) is bytes]).decode())
def test_each_refusal_has_the_kernels_errno(bench, work, call):
    """First by the kernel itself, then by us, in the same tree: errno for errno. As a user also where he may not
    write.
    """
    (work / "closed/sub").mkdir(parents=True)
    (work / "closed/f").write_text("")
    (work / "closed").chmod(0o555)
    keep = [libc.ctypes.create_string_buffer(word) if isinstance(word, bytes) else word for word in call]
    try:
        libc.call(call[0], *[word if isinstance(word, int) else libc.ctypes.byref(word) for word in keep[1:]])
        expected = 0
    except OSError as error:
        expected = error.errno
    try:
        assert expected, "the kernel refuses it"
        before = sorted(os.walk("."))
        assert bench.call(*call).error == expected
        assert sorted(os.walk(".")) == before
        assert not bench.records("denied")
    finally:
        (work / "closed").chmod(0o755)


# -- what appears while a call is judged -----------------------------------------------------------------------


@pytest.fixture
def after_votes(bench, monkeypatch):
    """What an outside process does once, right before the effect."""

    def arrange(act) -> list[int]:
        real, done = bench.authority.intend, []

        def intend(*arguments, **words):
            if not done:
                done.append(1)
                act()
            return real(*arguments, **words)

        monkeypatch.setattr(bench.authority, "intend", intend)
        return done

    return arrange


def test_what_appears_at_the_goal_is_not_replaced_unjudged(bench, after_votes):
    """New things may be made there, those of others may not be changed."""
    for name in (b"shared/mine", b"shared/another"):
        assert bench.call("openat", AT, name, os.O_WRONLY | os.O_CREAT, 0o644).succeeded
    assert bench.call("renameat2", AT, b"shared/another", AT, b"shared/free", 0).succeeded, "the control"
    done = after_votes(lambda: write("shared/new"))
    assert bench.call("renameat2", AT, b"shared/mine", AT, b"shared/new", 0).error == errno.EACCES
    assert done
    assert content("shared/new") == "of somebody else\n"
    assert content("shared/mine") == ""
    assert bench.records("outcome")[-1]["outcome"] == "EEXIST"
    assert [record["effect"] for record in bench.records("denied")] == ["unlink"], "it was judged, at the second look"


def test_what_may_be_replaced_is_replaced_at_the_second_look(bench, after_votes):
    """As the kernel does: whoever renames does not hear that it was there a moment ago or not."""
    done = after_votes(lambda: write("new"))
    assert bench.call("renameat2", AT, b"file", AT, b"new", 0).succeeded
    assert done
    assert content("new") == "content of file\n"
    assert [record["outcome"] for record in bench.records("outcome")] == ["EEXIST", "done"]


def test_a_file_system_that_cannot_promise_it(bench, monkeypatch):
    real = libc.renameat2

    def refuse(*arguments):
        if arguments[-1] == 1:
            raise OSError(errno.EINVAL, "RENAME_NOREPLACE")
        return real(*arguments)

    monkeypatch.setattr(libc, "renameat2", refuse)
    assert bench.call("renameat2", AT, b"file", AT, b"new", 0).succeeded
    assert content("new") == "content of file\n"
