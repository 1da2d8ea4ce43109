"""Protected files are read as views: by every name and every way of opening, and by no other way."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
import struct

import pytest

from pincer_trace.plaintext.handles import Handle

AT = -100
RDONLY, WRONLY, RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
SECRET = b"canary-" + b"7" * 20
TEXT = b"# a comment with canary-7\nAPI_KEY=" + SECRET + b"\nDEBUG=canary-7true\n"
PROFILE = """
[[rule]]
effects = ["read", "exec"]
paths = ["/**"]
verdict = "allow"
reason = "reads are open"

[[rule]]
effects = ["change"]
paths = ["{workspace}/**"]
verdict = "allow"
reason = "the work tree"

[[rule]]
effects = ["read"]
paths = ["{workspace}/closed/**"]
verdict = "deny"
reason = "nobody reads there"

[[rule]]
protection = true
effects = ["read"]
paths = ["{workspace}/**/.env{,.*}{,~}"]
verdict = "view"
reason = "environment files hold secrets"

[[rule]]
protection = true
effects = ["read"]
paths = ["{workspace}/**/.env{,.*}{,~}"]
when = "own"
verdict = "allow"
reason = "this session wrote it"
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A work tree with one secret in it."""
    place = tmp_path.resolve() / "work"
    for name in ("dir", "closed"):
        (place / name).mkdir(parents=True)
    for name in (".env", "dir/.env.local", "closed/.env"):
        (place / name).write_bytes(TEXT)
        (place / name).chmod(0o640)
        os.utime(place / name, (1_000_000, 2_000_000))
    (place / "file").write_bytes(b"plain\n")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def bench(make_bench):
    return make_bench(PROFILE)


def content(answer) -> bytes:
    assert answer.succeeded, answer
    return os.pread(answer.numbers[-1], 10_000, 0)


def is_view(data: bytes) -> bool:
    assert b"canary" not in data
    return data.startswith(b"API_KEY=pincer:") and b"\nDEBUG=pincer:" in data


def refused(bench, *call) -> dict[str, object]:
    """The record of a refusal."""
    answer = bench.call(*call)
    assert answer.error == errno.EACCES, (call, answer)
    assert not answer.numbers
    return bench.records("denied")[-1]


# -- the descriptor --------------------------------------------------------------------------------------------


def test_p84_it_is_like_the_file_but_for_its_content_and_size(bench):
    answer = bench.call("openat", AT, b".env", RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0)
    view, (number,) = content(answer), answer.numbers
    assert is_view(view)
    found, real = os.fstat(number), os.stat(".env")
    for name in ("st_mode", "st_uid", "st_gid", "st_mtime_ns"):
        assert getattr(found, name) == getattr(real, name), name
    assert found.st_size == len(view) != real.st_size
    assert not os.get_inheritable(number)
    assert fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK | os.O_APPEND) == os.O_NONBLOCK
    assert os.lseek(number, -5, os.SEEK_END) == len(view) - 5
    assert os.read(number, 100) == view[-5:]
    with mmap.mmap(number, 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == view
    with pytest.raises(PermissionError):
        mmap.mmap(number, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    read, write = os.pipe()
    assert os.sendfile(write, number, 0, 1000) == len(view)
    assert os.read(read, 1000) == view
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("mode", ["lengths", "strict-symbolic"])
def test_the_profile_says_how_much_it_tells(make_bench, mode):
    shown = content(make_bench(f'[settings]\nview = "{mode}"\n' + PROFILE).call("openat", AT, b".env", RDONLY, 0))
    lines = shown.decode().splitlines()
    assert b"canary" not in shown
    if mode == "lengths":
        assert [line.partition("~")[2] for line in lines[:2]] == [str(len(SECRET)), str(len(b"canary-7true"))]
    else:
        assert len(lines) == 1 and "rest of the file" in lines[0]


def test_nobody_can_change_it(bench):
    (number,) = bench.call("openat", AT, b".env", RDONLY, 0).numbers
    for flags in (WRONLY, RDWR, RDWR | os.O_TRUNC, RDWR | os.O_APPEND):
        answer = bench.call("openat", AT, b"/proc/self/fd/%d" % number, flags, 0)
        if answer.succeeded:
            with pytest.raises(PermissionError):
                os.write(answer.numbers[0], b"x")
            with pytest.raises(PermissionError):
                os.ftruncate(answer.numbers[0], 0)
    assert is_view(content(bench.call("openat", AT, b"/proc/self/fd/%d" % number, RDONLY, 0)))


def test_each_read_has_a_record_without_a_secret(bench):
    for _ in range(3):
        bench.call("openat", AT, b".env", RDONLY, 0)
    bench.reads.finish()
    records = bench.records()
    assert [record["effect"] for record in records if record["kind"] == "intent"] == ["read"] * 3
    assert not [record for record in records if record["kind"] in ("reads", "denied")]
    record = bench.records("intent")[0]
    assert (record["verdict"], record["extra"]) == ("view", {"view": "3 handles"})
    assert [record["outcome"] for record in bench.records("outcome")] == ["done"] * 3
    with open(os.path.join(bench.session.path, "ledger.jsonl"), "rb") as ledger:
        assert b"canary" not in ledger.read()


@pytest.mark.parametrize("flags", [0, os.O_NOFOLLOW, os.O_CREAT, os.O_NOATIME, os.O_DIRECT, os.O_SYNC, os.O_APPEND])
def test_every_way_to_open_it_for_reading(bench, flags):
    how = struct.pack("=QQQ", RDONLY | flags, 0, 0)
    calls = [
        ("openat", AT, b".env", RDONLY | flags, 0),
        ("open", b"dir/../.env", RDONLY | flags, 0),
        ("openat2", AT, b".env", ctypes.create_string_buffer(how, 24), 24),
        ("openat", AT, os.path.abspath(".env").encode(), RDONLY | flags, 0),
    ]
    for call in calls:
        for _ in range(3):  # cold, and then perhaps by a shorter way
            assert is_view(content(bench.call(*call))), call


def test_the_same_version_is_shown_alike_and_another_is_not(bench):
    first, second = (content(bench.call("openat", AT, b".env", RDONLY, 0)) for _ in range(2))
    assert first == second
    with open(".env", "ab") as file:
        file.write(b"MORE=canary\n")
    third = content(bench.call("openat", AT, b".env", RDONLY, 0))
    assert b"\nMORE=pincer:" in third
    assert not {line for line in first.splitlines() if b"pincer:" in line} & set(third.splitlines())


def test_a_handle_is_told_with_its_file_for_as_long_as_it_has_a_value(bench):
    """Also of a version that is no more."""
    view = content(bench.call("openat", AT, b".env", RDONLY, 0)).decode()
    handle = Handle.parse(re.findall("pincer:[a-z2-7]{26}", view)[0])
    with open(".env", "ab") as file:
        file.write(b"MORE=canary\n")
    assert bench.call("openat", AT, b".env", RDONLY, 0).succeeded
    secrets = bench.engine._secrets
    assert secrets.issued.reveal(handle, bench.session.id, 0.0) == SECRET
    assert secrets.path_of(handle) == os.path.abspath(b".env")
    assert secrets.path_of(Handle(bytes(16))) == b""


# -- other names -----------------------------------------------------------------------------------------------


def test_p28_a_second_name_from_before(make_bench, work):
    os.link(".env", "innocent")
    bench = make_bench(PROFILE)
    for _ in range(2):
        assert is_view(content(bench.call("openat", AT, b"innocent", RDONLY, 0)))


def test_p25_another_mount(make_bench, work, monkeypatch):
    from pincer_trace.kernel import procfs

    holder = max((row for row in procfs.mounts() if os.fsencode(work).startswith(row[2].rstrip(b"/") + b"/")),
                 key=lambda row: len(row[2]))  # fmt: skip
    inside = holder[1].rstrip(b"/") + os.fsencode(work)[len(holder[2].rstrip(b"/")) :]
    (work.parent / "bound").mkdir()
    elsewhere = (holder[0], inside + b"/dir", os.fsencode(work.parent / "bound"), holder[3])
    real = procfs.mounts()
    monkeypatch.setattr(procfs, "mounts", lambda: [*real, elsewhere])
    bench = make_bench(PROFILE.replace("{workspace}/**/.env{,.*}{,~}", "{workspace}/dir/.env.local"))
    (work.parent / "bound/.env.local").write_bytes(TEXT)  # as if it were the same one
    assert is_view(content(bench.call("openat", AT, os.fsencode(work.parent / "bound/.env.local"), RDONLY, 0)))


def test_links(bench):
    os.symlink("dir/.env.local", "link")
    os.rename("dir/.env.local", "dir/settings")
    os.symlink("dir/settings", ".env.other")
    os.symlink("/proc/self/fd/0", "magic")
    assert is_view(content(bench.call("openat", AT, b".env.other", RDONLY, 0)))
    assert is_view(content(bench.call("openat", AT, b"dir/settings", RDONLY, 0)))  # known by itself from then on
    pin = os.open(".env", os.O_PATH)
    for name in (b"/proc/self/fd/%d", b"/proc/thread-self/fd/%d", b"/dev/fd/%d"):
        assert is_view(content(bench.call("openat", AT, name % pin, RDONLY, 0))), name
    os.close(pin)


def test_it_is_known_by_itself_once_it_was_seen(bench):
    """Whoever moves it, and where to, also after it was read in plain by another name before."""
    assert content(bench.call("openat", AT, b"file", RDONLY, 0)) == b"plain\n"
    assert content(bench.call("openat", AT, b"file", RDONLY, 0)) == b"plain\n"  # by the fast way
    os.rename("file", ".env.moved")
    assert b"pincer:" in content(bench.call("openat", AT, b".env.moved", RDONLY, 0))
    os.rename(".env.moved", "file")
    for _ in range(2):
        assert b"pincer:" in content(bench.call("openat", AT, b"file", RDONLY, 0))
    os.unlink("file")
    with open("file", "wb") as file:  # perhaps the same number, and another file
        file.write(b"new\n")
    assert content(bench.call("openat", AT, b"file", RDONLY, 0)) == b"new\n"


def test_a_new_name_that_would_show_it_wants_a_confirmation(bench, work):
    os.makedirs("other")
    assert bench.call("mkdir", b"made", 0o755).succeeded
    for call in (
        ("link", b".env", b"second"),
        ("rename", b".env", b"second"),
        ("rename", b".env", b"made/.env"),  # a folder of the session's own, whose files it may read
        ("renameat2", AT, b".env", AT, b"file", 2),
        ("renameat2", AT, b"file", AT, b".env", 2),
        ("rename", b"dir", b"made/dir"),
        ("rename", b"dir", b"moved"),
    ):
        record = refused(bench, *call)
        assert (record["verdict"], record["code"]) == ("confirm", "NOBODY_TO_ASK"), call
        assert "read as a view only" in str(record["reason"])
    assert sorted(os.listdir(".")) == [".env", "closed", "dir", "file", "made", "other"]


def test_moving_it_to_where_it_is_a_view_too_is_allowed(bench):
    assert bench.call("rename", b".env", b".env~").succeeded
    assert is_view(content(bench.call("openat", AT, b".env~", RDONLY, 0)))
    assert bench.call("rename", b".env~", b"dir/.env").succeeded
    assert is_view(content(bench.call("openat", AT, b"dir/.env", RDONLY, 0)))


def test_what_is_linked_or_renamed_onto_a_protected_name_becomes_protected(bench):
    for name in (b"one", b"two"):
        with open(name, "wb") as file:
            file.write(TEXT)
        assert SECRET in content(bench.call("openat", AT, name, RDONLY, 0))
    assert bench.call("rename", b"one", b".env.one").succeeded
    assert is_view(content(bench.call("openat", AT, b".env.one", RDONLY, 0)))
    assert bench.call("link", b"two", b".env.two").succeeded
    assert is_view(content(bench.call("openat", AT, b".env.two", RDONLY, 0)))
    assert is_view(content(bench.call("openat", AT, b"two", RDONLY, 0)))


def test_a_descriptor_from_before_it_was_protected_keeps_what_it_had(bench):
    """It was no secret when it was opened: to open it again by that descriptor adds nothing."""
    with open("one", "wb") as file:
        file.write(TEXT)
    (number,) = bench.call("openat", AT, b"one", RDONLY, 0).numbers
    assert bench.call("rename", b"one", b".env.one").succeeded
    assert os.pread(number, 1000, 0) == TEXT
    assert is_view(content(bench.call("openat", AT, b".env.one", RDONLY, 0)))
    assert content(bench.call("openat", AT, b"/proc/self/fd/%d" % number, RDONLY, 0)) == TEXT


def test_what_the_session_wrote_itself_it_may_read(bench):
    made = bench.call("openat", AT, b".env.new", WRONLY | os.O_CREAT, 0o600)
    os.write(made.numbers[0], b"MINE=1\n")
    assert content(bench.call("openat", AT, b".env.new", RDONLY, 0)) == b"MINE=1\n"


# -- what gives no view ----------------------------------------------------------------------------------------


def test_more_than_a_view_is_refused(bench, work):
    os.chmod("dir/.env.local", 0o755)
    for call in (
        ("openat", AT, b".env", RDWR, 0),
        ("openat", AT, b".env", RDWR | os.O_CREAT, 0o600),
        ("openat", AT, b".env", RDWR | os.O_TRUNC, 0),
        ("execve", b"dir/.env.local", 0, 0),
    ):
        refused(bench, *call)
    assert (work / ".env").read_bytes() == TEXT


def test_a_grant_that_is_none_is_none_through_a_view(bench):
    record = refused(bench, "openat", AT, b"closed/.env", RDONLY, 0)
    assert (record["verdict"], record["reason"]) == ("deny", "nobody reads there")


def test_what_cannot_be_shown_is_refused_clearly(bench, work):
    os.mkfifo(".env.fifo")
    os.mkdir(".env.folder")
    with open(".env.large", "wb") as file:
        file.truncate(1 << 30)
    with open(".env.limit", "wb") as file:
        file.write(b"A=1\n" * (1 << 18))
    record = refused(bench, "openat", AT, b".env.large", RDONLY, 0)
    assert (record["code"], record["reason"]) == (
        "NO_VIEW", "it is read as a view only, and it is larger than a megabyte"
    )  # fmt: skip
    assert content(bench.call("openat", AT, b".env.limit", RDONLY, 0)).startswith(b"A=pincer:")
    assert refused(bench, "openat", AT, b".env.fifo", RDONLY, 0)["verdict"] == "confirm"
    folder = bench.call("openat", AT, b".env.folder", RDONLY, 0)
    assert folder.succeeded  # its names are no content
    assert stat.S_ISDIR(os.fstat(folder.numbers[0]).st_mode)


def test_a_file_that_is_changed_while_it_is_read(bench, monkeypatch):
    from pincer_trace.executor import views

    real, changes = os.pread, [3]

    def pread(descriptor, size, offset):
        data = real(descriptor, size, offset)
        if data.startswith(b"# a comment") and changes[0]:
            changes[0] -= 1
            with open(".env", "ab") as file:
                file.write(b"MORE=canary\n")
        return data

    monkeypatch.setattr(views.os, "pread", pread)
    assert "is being changed" in str(refused(bench, "openat", AT, b".env", RDONLY, 0)["reason"])
    changes[0] = 1
    assert is_view(content(bench.call("openat", AT, b".env", RDONLY, 0)))


def test_a_lease_on_it(bench):
    holder = os.open(".env", RDWR)
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    old = fcntl.fcntl(holder, fcntl.F_SETSIG, 0)
    try:
        import signal

        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        assert "lease" in str(refused(bench, "openat", AT, b".env", RDONLY, 0)["reason"])
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, before)
    assert old == 0


def test_the_kernel_s_own_refusal_comes_first(bench, work):
    assert bench.call("openat", AT, b".env.absent", RDONLY, 0).error == errno.ENOENT
    assert bench.call("openat", AT, b".env", RDONLY | os.O_DIRECTORY, 0).error == errno.ENOTDIR
    assert bench.call("openat", AT, b".env", RDONLY | os.O_CREAT | os.O_EXCL, 0).error == errno.EEXIST


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EBADF])
def test_p13_an_injection_that_fails_is_that_errno(bench, number):
    bench.call("openat", AT, b".env", RDONLY, 0)
    before = set(os.listdir("/proc/self/fd"))
    bench.listener.before("inject", OSError(number, "scripted"))
    assert bench.call("openat", AT, b".env", RDONLY, 0).error == number
    assert set(os.listdir("/proc/self/fd")) == before
    assert bench.records("outcome")[-1]["outcome"] == errno.errorcode[number]
