"""The comparison itself can fail: each kind of difference is seen, and each kind of leak."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import support


def build(top: Path) -> None:
    """A small tree with every kind of entry."""
    top.mkdir()
    (top / "file").write_text("text")
    os.link(top / "file", top / "hard")
    (top / "alone").write_text("text")
    (top / "dir").mkdir()
    (top / "link").symlink_to("file")
    os.mkfifo(top / "fifo")


def relink(top: Path) -> None:
    (top / "hard").unlink()
    (top / "hard").write_text("text")


def retarget(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").symlink_to("alone")


def make_socket(top: Path) -> None:
    (top / "fifo").unlink()
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.fsencode(top / "fifo"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "contents": lambda top: (top / "alone").write_text("TEXT"),
    "mode": lambda top: os.chmod(top / "alone", 0o600),
    "set-group-id": lambda top: os.chmod(top / "dir", stat.S_ISGID | 0o755),
    "link group": relink,
    "link target": retarget,
    "type": make_socket,
    "new name": lambda top: (top / "dir/new").write_bytes(b""),
    "lost name": lambda top: (top / "alone").unlink(),
    "mode of the top": lambda top: os.chmod(top, 0o700),
    "attribute": lambda top: os.setxattr(top / "alone", b"user.x", b"1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_snapshot_sees_each_difference(tmp_path: Path, change: str) -> None:
    """Two equal trees are equal; one change of any kind shows."""
    os.umask(0o022)
    build(tmp_path / "left")
    build(tmp_path / "right")
    left = support.snapshot(tmp_path / "left")
    assert support.differences(left, support.snapshot(tmp_path / "right")) == []
    CHANGES[change](tmp_path / "right")
    assert support.differences(left, support.snapshot(tmp_path / "right"))


def test_left_over_processes_are_found_and_ended() -> None:
    """A process that outlives its parent comes to us as a subreaper and is ended."""
    known = support.children()
    subprocess.run(["sh", "-c", "sleep 300 >/dev/null 2>&1 & exit 0"], check=True)
    left = support.reap(known, patience=0.1)
    assert len(left) == 1 and "sleep 300" in left[0]
    assert support.children() == known


def test_open_descriptors_are_found() -> None:
    """A descriptor that stays open shows, and only while it does."""
    before = support.open_descriptors()
    handle = os.open("/dev/null", os.O_RDONLY)
    assert set(support.open_descriptors()) - set(before) == {handle}
    os.close(handle)
    assert support.open_descriptors() == before


@pytest.mark.both_identities
def test_the_identity_is_who_it_says(runner: support.Runner) -> None:
    """Commands run with the ids, groups and capabilities of their identity, natively and supervised."""
    program = (
        "import os; status = open('/proc/self/status').read(); "
        "print(os.getresuid(), os.getresgid(), os.environ['HOME'], status.split('CapEff:')[1].split()[0])"
    )
    for run in (runner.native, runner.supervise):
        result = run([runner.identity.python, "-c", program])
        assert result.status == 0, result
        uid, gid = runner.identity.uid, runner.identity.gid
        assert f"{(uid,) * 3} {(gid,) * 3} {runner.home}" in result.out
        assert uid == 0 or int(result.out.split()[-1], 16) == 0


def test_a_run_that_does_not_end_fails_with_its_tree(runner: support.Runner) -> None:
    """The message names the processes that hang."""
    with pytest.raises(AssertionError, match="sleep 300"):
        runner.native(["sleep", "300"], timeout=0.3)
