"""Other names of protected objects: second names from before the session, and links at protected places."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

AT = -100


def test_p28_a_second_name_from_before(make_bench, work):
    os.link("secret/key", "innocent")
    bench = make_bench()
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        assert bench.call("openat", AT, b"innocent", flags, 0).error == errno.EACCES
    for call in (("unlink", b"innocent"), ("chmod", b"innocent", 0o777), ("rename", b"innocent", b"x"),
                 ("link", b"innocent", b"x"), ("truncate", b"innocent", 0)):  # fmt: skip
        assert bench.call(*call).error == errno.EACCES, call
    assert "it is also" in str(bench.records("denied")[0]["reason"])
    assert os.path.getsize("secret/key")


def test_p28_what_asks_by_its_other_name(make_bench, work):
    os.link("asked/hook", "innocent")
    bench = make_bench()
    assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).succeeded  # only changes are protected there
    assert bench.call("openat", AT, b"innocent", os.O_WRONLY, 0).error == errno.EACCES
    assert bench.records("denied")[0]["verdict"] == "confirm"
    bench = make_bench(confirm_all=True)
    assert bench.call("openat", AT, b"innocent", os.O_WRONLY, 0).succeeded


def test_an_innocent_second_name_is_free(make_bench, work):
    os.link("file", "other")
    bench = make_bench()
    assert bench.call("openat", AT, b"other", os.O_RDWR, 0).succeeded
    assert bench.call("unlink", b"other").succeeded


def test_a_link_at_a_protected_place(make_bench, work):
    """secret -> vault: what is protected is where it really lies."""
    shutil.move("secret", "vault")
    os.symlink("vault", "secret")
    bench = make_bench()
    for path in (b"vault/key", b"secret/key", b"./vault/../vault/key"):
        assert bench.call("openat", AT, path, os.O_RDONLY, 0).error == errno.EACCES, path
    assert bench.call("openat", AT, b"vault/new", os.O_RDWR | os.O_CREAT, 0o600).error == errno.EACCES
    os.mkdir("vaults")
    assert bench.call("openat", AT, b"vaults/new", os.O_RDWR | os.O_CREAT, 0o600).succeeded  # only looks alike


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.EACCES])
@pytest.mark.parametrize("function", ["scandir", "lstat"])
def test_what_cannot_be_looked_up_is_asked_about(make_bench, work, monkeypatch, function, number):
    """One failure must not leave a protected file unknown for the rest of the session."""
    os.link("secret/key", "innocent")
    bench = make_bench()
    real = getattr(os, function)

    def fail(*arguments):
        raise OSError(number, "scripted")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).error == errno.EACCES
    assert getattr(os, function) is real
    assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).error == errno.EACCES


def test_a_link_over_a_guarded_name_is_refused(bench, work):
    """A link `repo2/.git`-like name would put what lies elsewhere in a protected place below it."""
    os.rename("secret", "elsewhere")
    os.mkdir("free")
    assert bench.call("symlink", b"free", b"secret").error == errno.EACCES
    assert bench.call("symlink", b"free", b"harmless").succeeded
    assert bench.call("rename", b"harmless", b"secret").error == errno.EACCES
    assert bench.call("link", b"harmless", b"secret").error == errno.EACCES
