"""What is on a mount that is not ours is known by our own name of it, if the kernel shows the same object there; else
by none, whatever is read of the mount (P25). Against a real mount namespace.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pincer_trace.gateway.mounts import Mounts
from pincer_trace.gateway.resolve import Forbidden
from pincer_trace.gateway.tasks import Task
from pincer_trace.kernel import libc, procfs
from pincer_trace.kernel.table import CLONE_NEWNS, CLONE_NEWUSER


@pytest.fixture
def elsewhere() -> Iterator[Task]:
    """A task in a mount namespace of its own, in which all is mounted as it is here."""
    told, tell = os.pipe()
    end, ended = os.pipe()
    pid = os.fork()
    if pid == 0:
        made = ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0
        os.write(tell, b"%d" % made)
        os.close(ended)
        os.read(end, 1)
        os._exit(0)
    try:
        if os.read(told, 1) != b"1":
            pytest.skip("no mount namespace can be made here")
        task = Task(pid, -1, b"", 0, 0.0)
        task.tgid_or_zero = pid
        yield task
    finally:
        for descriptor in (told, tell, end, ended):
            os.close(descriptor)
        os.waitpid(pid, 0)


def test_p25_all_mounts_are_read(tmp_path: Path) -> None:
    """More than a page of them: the kernel gives about that much at a time."""
    count = (
        "import sys; sys.path[:0] = sys.argv[1:]; from pincer_trace.kernel import procfs; print(len(procfs.mounts()))"
    )
    mount = (
        f'for n in $(seq 120); do mount --bind "{tmp_path}" "{tmp_path}"; done; wc -l </proc/self/mountinfo; exec "$@"'
    )
    words = ["unshare", "-Urm", "sh", "-euc", mount, "sh", sys.executable, "-I", "-c", count, *sys.path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no mount namespace can be made here")
    lines, read = done.stdout.split()
    assert int(read) == int(lines) > 120


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    made = Mounts()
    made.any = True
    yield made
    made.close()


def pinned(task: Task, path: Path) -> int:
    return os.open(f"/proc/{task.tid}/root{path}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def test_p25_the_same_object_by_a_name_of_ours(mounts: Mounts, elsewhere: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    for path in (tmp_path, tmp_path / "file", tmp_path / "link", Path("/")):
        pin = pinned(elsewhere, path)
        assert not mounts.is_ours(pin)
        twin = mounts.home(elsewhere, pin)
        assert twin != pin
        assert mounts.is_ours(twin)
        assert os.readlink(f"/proc/self/fd/{twin}") == str(path)
        assert os.path.samestat(os.fstat(twin), os.fstat(pin))
        assert mounts.own(twin) == pin
        assert mounts.name_of(twin) is None
        assert not mounts.is_memory(twin)
        os.close(twin)


def test_what_is_ours_stays_as_it_is(mounts: Mounts, elsewhere: Task, tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc/self/status")):
        pin = os.open(path, os.O_PATH)
        assert mounts.home(elsewhere, pin) == pin
        assert mounts.own(pin) == pin
        os.close(pin)
    memory = os.memfd_create("x")
    assert mounts.home(elsewhere, memory) == memory
    assert mounts.name_of(memory) is None
    os.close(memory)


@pytest.mark.parametrize("lie", ["root", "point", "nothing"])
def test_p25_a_name_that_is_another_s_is_none(
    mounts: Mounts, elsewhere: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """What is read of the mount may be old, as the run changes its mounts meanwhile: then nothing is found."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("y")
    pin = pinned(elsewhere, tmp_path / "file")
    row = procfs.mount_row(elsewhere.tid, libc.mount_id(pin))
    assert row is not None
    if lie == "root":
        row.root = os.fsencode(tmp_path / "other")
        row.point = os.fsencode(tmp_path)
    elif lie == "point":
        row.point = b"/nowhere"
    monkeypatch.setattr(procfs, "mount_row", lambda _tid, _identity: None if lie == "nothing" else row)
    with pytest.raises(Forbidden):
        mounts.home(elsewhere, pin)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(pin)  # which was taken over


def test_what_was_removed_is_found_by_no_name(mounts: Mounts, elsewhere: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    pin = pinned(elsewhere, tmp_path / "file")
    (tmp_path / "file").unlink()
    with pytest.raises(Forbidden):
        mounts.home(elsewhere, pin)


def test_p25_a_device_that_is_said_to_be_new_is_looked_at(
    mounts: Mounts, elsewhere: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where we have mounted something the run may put another thing, before the device is looked up; and not every file
    system shows the device that stands in mountinfo (btrfs).
    """
    pin = pinned(elsewhere, tmp_path)
    device = os.fstat(pin).st_dev
    mounts.made(device, b"tmpfs" if libc.file_system(pin)[0] != 0x01021994 else b"devpts")
    monkeypatch.setattr(mounts, "_ours", {})
    with pytest.raises(Forbidden):
        mounts.home(elsewhere, pin)


def test_a_number_that_another_object_has_by_now_says_nothing(mounts: Mounts, elsewhere: Task, tmp_path: Path) -> None:
    twin = mounts.home(elsewhere, pinned(elsewhere, tmp_path))
    os.close(twin)
    again = os.open("/", os.O_PATH)
    try:
        os.dup2(again, twin)
        assert mounts.own(twin) == twin
    finally:
        os.close(twin)
        if again != twin:
            os.close(again)
