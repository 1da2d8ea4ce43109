"""Names and attributes on a scripted kernel: the same answers as the kernel gives, and the races in between."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import stat
import struct
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pincer_trace.kernel import libc, table

AT = -100
EXCHANGE, NOREPLACE = 2, 1
TIMES = struct.pack("=4q", 1, 5, 2, 6)


def snapshot(top) -> list:
    """`top` and every name below it with what it is: type, mode, size, links, the text of a link.

    Opens the directories that are closed to their owner, who must look into them too when he is not root.
    """
    found = [(".", stat.filemode(os.lstat(top).st_mode), 0, 0, "")]
    _open_up(top)
    for parent, folders, files in os.walk(top):
        for name in sorted(folders + files):
            path = os.path.join(parent, name)
            one = os.lstat(path)
            if stat.S_ISDIR(one.st_mode):
                _open_up(path)
            text = os.readlink(path) if stat.S_ISLNK(one.st_mode) else ""
            size = one.st_size if stat.S_ISREG(one.st_mode) else 0
            found.append((os.path.relpath(path, top), stat.filemode(one.st_mode), size, one.st_nlink, text))
    return sorted(found)


def _open_up(directory) -> None:
    mode = stat.S_IMODE(os.lstat(directory).st_mode)
    if mode & 0o700 != 0o700:
        os.chmod(directory, mode | 0o700)


def refill(work, populated) -> None:
    work.chmod(0o755)
    for parent, folders, _ in os.walk(work):
        for name in folders:
            folder = os.path.join(parent, name)
            if not os.path.islink(folder):
                os.chmod(folder, 0o755)
    for entry in os.listdir(work):
        path = work / entry
        shutil.rmtree(path) if not path.is_symlink() and path.is_dir() else path.unlink()
    for name in os.listxattr(work):
        os.removexattr(work, name)
    populated(work)


def natively(call: str, *arguments) -> int:
    """The errno of the call, or 0. The calls are made raw, so that every argument is as the worker gives it."""
    keep = [ctypes.create_string_buffer(a) if isinstance(a, bytes) else a for a in arguments]
    try:
        libc.call(call, *[ctypes.byref(a) if not isinstance(a, int) else a for a in keep])
    except OSError as error:
        return error.errno
    return 0


PLACES = [b"file", b"file/", b"dir", b"dir/", b"empty", b"empty/", b"link", b"link/", b"dangling", b"fifo", b"absent",
          b"absent/", b"dir/inner", b"dir/new", b"file/x", b"absent/x", b".", b"..", b"dir/.", b"dir/..", b"/", b"",
          b"n" * 256, b"./file", b"dir//inner", b"empty/.."]  # fmt: skip
place = st.sampled_from(PLACES)
# The native half of the test is real: attributes are set and links made inside of the tree, never of what is above it.
inside = st.sampled_from([name for name in PLACES if name not in (b"/", b"..")])
calls = st.one_of(
    st.tuples(st.just("renameat2"), st.just(AT), place, st.just(AT), place, st.sampled_from([0, 0, 0, 1, 2, 3, 8])),
    st.tuples(st.just("linkat"), st.just(AT), place, st.just(AT), place, st.sampled_from([0, 0x400, 0x1000, 1])),
    st.tuples(st.just("unlinkat"), st.just(AT), place, st.sampled_from([0, 0x200, 1])),
    st.tuples(st.just("mkdirat"), st.just(AT), place, st.sampled_from([0o755, 0o7777, 0])),
    st.tuples(st.just("mknodat"), st.just(AT), place,
              st.sampled_from([0o644, 0o100600, 0o010644, 0o140600, 0o040755, 0o120777, 0o170000]), st.just(0)),
    st.tuples(st.just("symlinkat"), inside, st.just(AT), place),
    st.tuples(st.just("fchmodat"), st.just(AT), inside, st.sampled_from([0o600, 0o7777])),
    st.tuples(st.just("fchownat"), st.just(AT), inside, st.just(-1), st.just(-1),
              st.sampled_from([0, 0x100, 0x1000, 1])),
    st.tuples(st.just("utimensat"), st.just(AT), inside, st.just(TIMES), st.sampled_from([0, 0x100, 2])),
    st.tuples(st.just("truncate"), inside, st.sampled_from([0, 3, -1, 1 << 62])),
    st.tuples(st.just("setxattr"), inside, st.sampled_from([b"user.a", b"", b"bad", b"user." + b"x" * 256]),
              st.just(b"v"), st.just(1), st.sampled_from([0, 1, 2, 4])),
    st.tuples(st.just("lsetxattr"), inside, st.just(b"user.a"), st.just(b"v"), st.just(1), st.just(0)),
    st.tuples(st.just("removexattr"), inside, st.sampled_from([b"user.a", b"", b"bad"])),
)  # fmt: skip


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=st.lists(calls, min_size=1, max_size=4))
@example(todo=[("unlinkat", AT, b"empty", 0x200), ("symlinkat", b"empty", AT, b"empty")])
def test_p30_p98_sequences_answer_and_leave_the_same(bench, work, populated, todo):
    """A sequence of calls, first natively and then by us, in the same tree: errno for errno, name for name."""
    work = work / "between" / "top"
    work.mkdir(parents=True, exist_ok=True)
    work.chmod(0o755)  # the last sequence may have closed it
    os.chdir(work)
    bench.tasks.drop(os.getpid())
    refill(work, populated)
    expected = [natively(*call) for call in todo]
    leaves = snapshot(work)
    refill(work, populated)
    bench.reads.moved()
    bench.provenance._vacated.clear()  # another tree: what the last sequence took from it is there again
    bench.provenance._above_vacated.clear()
    ours = [bench.call(*call).error for call in todo]
    assert list(zip(todo, ours, strict=True)) == list(zip(todo, expected, strict=True))
    assert snapshot(work) == leaves


def test_p30_nothing_was_left_open(bench, work):
    bench.call("mkdir", b"first", 0o755)
    os.close(bench.tasks.descriptor(bench.task(), 0))
    before = set(os.listdir("/proc/self/fd"))
    for call in (
        ("rename", b"file", b"dir/x"), ("rename", b"absent", b"x"), ("link", b"dir/x", b"file"), ("link", b"dir", b"x"),
        ("unlink", b"dir"), ("rmdir", b"empty"), ("rmdir", b"dir"), ("mkdir", b"file/x", 0), ("symlink", b"", b"x"),
        ("rename", b"secret/key", b"x"), ("rename", b"x", 0), ("link", b"link", b"x/"), ("chmod", b"secret/key", 0),
        ("rename", b"dir", b"dir/below"), ("unlinkat", 999, b"x", 0), ("linkat", 999, b"", AT, b"x", 0x1000),
    ):  # fmt: skip
        bench.call(*call)
        assert set(os.listdir("/proc/self/fd")) == before, call


# -- by descriptor -------------------------------------------------------------------------------------------


def opened(kind: str) -> int:
    """A descriptor of the kind."""
    if kind == "closed":
        return 9999
    if kind == "pipe":
        read, write = os.pipe()
        os.close(write)
        return read
    if kind == "socket":
        return socket.socket(socket.AF_UNIX).detach()
    if kind == "memfd":
        return os.memfd_create("x")
    path, flags = {
        "path": ("file", os.O_PATH), "read": ("file", os.O_RDONLY), "write": ("file", os.O_WRONLY),
        "directory": ("dir", os.O_RDONLY), "link": ("link", os.O_PATH | os.O_NOFOLLOW),
        "procfs": ("/proc/self/comm", os.O_RDONLY), "fifo": ("fifo", os.O_RDWR),
    }[kind]  # fmt: skip
    return os.open(path, flags)


KINDS = ["closed", "path", "read", "write", "directory", "link", "pipe", "socket", "memfd", "procfs", "fifo"]
BY_DESCRIPTOR = {
    "fchmod": lambda d: ("fchmod", d, 0o640),
    "fchown": lambda d: ("fchown", d, -1, -1),
    "futimens": lambda d: ("utimensat", d, 0, TIMES, 0),
    "futimens with flags": lambda d: ("utimensat", d, 0, TIMES, 0x100),
    "futimes now": lambda d: ("utimensat", d, 0, 0, 0),
    "fsetxattr": lambda d: ("fsetxattr", d, b"user.a", b"v", 1, 0),
    "fremovexattr": lambda d: ("fremovexattr", d, b"user.a"),
    "fchownat empty": lambda d: ("fchownat", d, b"", -1, -1, 0x1000),
    "fchownat empty without the flag": lambda d: ("fchownat", d, b"", -1, -1, 0),
    "utimensat empty": lambda d: ("utimensat", d, b"", TIMES, 0x1000),
    "fchmodat2 empty": lambda d: ("fchmodat2", d, b"", 0o640, 0x1000),
    "fchmodat below": lambda d: ("fchmodat", d, b"inner", 0o640),
    "setflags": lambda d: ("ioctl", d, table.FS_IOC_SETFLAGS, struct.pack("=i", 0x80000)),
    "setflags of nothing": lambda d: ("ioctl", d, table.FS_IOC_SETFLAGS, 0),
    "linkat empty": lambda d: ("linkat", d, b"", AT, b"made", 0x1000),
}


@pytest.mark.parametrize("call", BY_DESCRIPTOR)
@pytest.mark.parametrize("kind", KINDS)
def test_p98_by_descriptor_the_errno_is_native(bench, work, populated, kind, call):
    descriptor = opened(kind)
    try:
        expected = natively(*BY_DESCRIPTOR[call](descriptor))
    finally:
        if kind != "closed":
            os.close(descriptor)
    refill(work, populated)
    bench.tasks.drop(os.getpid())
    descriptor = opened(kind)
    try:
        assert bench.call(*BY_DESCRIPTOR[call](descriptor)).error == expected
    finally:
        if kind != "closed":
            os.close(descriptor)


@pytest.mark.parametrize("call", ["fchmod", "fchown", "futimens", "fsetxattr", "setflags", "utimensat empty",
                                  "fchownat empty", "linkat empty", "fchmodat2 empty"])  # fmt: skip
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH])
def test_p20_a_descriptor_for_reading_gives_no_effect(bench, work, call, flags):
    """Whatever a read-only descriptor would suffice for natively is judged on the object behind it."""
    descriptor = os.open("secret/key", flags)
    before = os.fstat(descriptor)
    try:
        answer = bench.call(*BY_DESCRIPTOR[call](descriptor))
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    assert answer.error
    assert (before.st_mode, before.st_mtime_ns, before.st_ctime_ns, before.st_nlink) == (
        after.st_mode, after.st_mtime_ns, after.st_ctime_ns, after.st_nlink,
    )  # fmt: skip
    assert not bench.records("intent")
    if flags == os.O_RDONLY:
        assert answer.error == errno.EACCES
        assert bench.records("denied")


def test_p17_the_descriptor_is_looked_at_once(bench, work):
    """The worker puts another file behind the number after the judgement: the one that was judged is changed."""
    allowed, secret = os.open("file", os.O_RDONLY), os.open("secret/key", os.O_RDONLY)
    mode = os.fstat(secret).st_mode
    real = bench.authority.demand

    def demand(*arguments, **more):
        decision = real(*arguments, **more)
        os.dup2(secret, allowed)
        return decision

    bench.authority.demand = demand
    try:
        assert bench.call("fchmod", allowed, 0o611).succeeded
        assert os.fstat(secret).st_mode == mode
        assert stat.S_IMODE(os.stat("file").st_mode) == 0o611
    finally:
        os.close(allowed)
        os.close(secret)


# -- renames -------------------------------------------------------------------------------------------------


def test_a_git_configuration_is_judged_by_its_content(bench, work):
    os.chdir("repo")
    bench.tasks.drop(os.getpid())
    for text, allowed in (
        ("[user]\n\tname = x\n", True),
        ("[core]\n\tfsmonitor = x\n", False),
        ("[alias]\n a = !b\n", False),
    ):
        with open("new", "w") as file:
            file.write(text)
        answer = bench.call("rename", b"new", b".git/config")
        assert answer.succeeded == allowed, text
    assert "fsmonitor" in " ".join(str(record["reason"]) for record in bench.records("denied"))


def test_p85_a_configuration_with_a_writer_left_is_not_judged(bench, work):
    with open("repo/new", "w") as file:
        assert bench.call("rename", b"repo/new", b"repo/.git/config").error == errno.EACCES
        file.write("")
    assert bench.call("rename", b"repo/new", b"repo/.git/config").succeeded


def test_p85_nobody_can_write_between_the_judgement_and_the_rename(bench, work):
    """The lease is held until the rename is done: a writer that comes in between does not get in unheard."""
    with open("repo/new", "w") as file:
        file.write("[user]\n\tname = x\n")
    real = bench.authority.intend
    got = []

    def intend(*arguments):
        try:
            os.close(os.open("repo/new", os.O_WRONLY | os.O_NONBLOCK))
            got.append("opened")
        except BlockingIOError:
            got.append("held off")
        return real(*arguments)

    import signal

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    bench.authority.intend = intend
    try:
        bench.call("rename", b"repo/new", b"repo/.git/config")
    finally:
        signal.signal(signal.SIGIO, before)
    assert got == ["held off"]


def test_a_directory_that_moves_takes_no_secret_along(bench, work):
    os.rename("secret", "dir/secret")
    os.rename("dir", "secret")
    assert bench.call("rename", b"secret", b"out").error == errno.EACCES
    os.rename("secret", "dir")
    os.mkdir("secret")
    assert bench.call("rename", b"dir", b"secret/dir").error == errno.EACCES
    assert bench.call("rename", b"dir", b"moved").succeeded


def test_a_rename_makes_its_reads_be_judged_anew(bench, work):
    """A directory that moves changes no change time of what is below it."""
    assert bench.call("openat", AT, b"dir/inner", os.O_RDONLY, 0).succeeded
    assert bench.reads.hot
    assert bench.call("rename", b"dir", b"moved").succeeded
    assert not bench.reads.hot


def test_two_names_of_one_file_are_left_alone(bench, work):
    os.link("file", "other")
    assert bench.call("rename", b"file", b"other").succeeded
    assert os.path.exists("file")
    assert os.path.exists("other")


def test_one_spelling_means_two_places_where_the_descriptors_differ(bench, work):
    for top in ("one", "other"):
        (work / top / "in").mkdir(parents=True)
    (work / "one" / "in" / "a").write_text("moved")
    one, other = (os.open(work / top, os.O_RDONLY | os.O_DIRECTORY) for top in ("one", "other"))
    try:
        assert bench.call("renameat", one, b"in/a", other, b"in/b").error == 0
        assert not (work / "one" / "in" / "b").exists() and (work / "other" / "in" / "b").read_text() == "moved"
        assert bench.call("renameat", one | 0xFFFFFFFF00000000, b"in/c", one, b"in/d").error == errno.ENOENT
        absolute = os.fsencode(work / "other" / "in")
        assert bench.call("renameat", one, absolute + b"/b", other, absolute + b"/c").error == 0
        assert (work / "other" / "in" / "c").read_text() == "moved"
    finally:
        os.close(one)
        os.close(other)


def test_p37_a_name_that_changes_after_the_look_does_not_pass(bench, work):
    """The judged file is replaced by a directory (of another's making) before the unlink: the kernel refuses."""
    real = bench.authority.intend

    def intend(*arguments):
        os.rename("file", "elsewhere")
        os.mkdir("file")
        return real(*arguments)

    bench.authority.intend = intend
    assert bench.call("unlink", b"file").error == errno.EISDIR
    assert bench.records("outcome")[-1]["outcome"] == "EISDIR"
    assert os.path.exists("elsewhere")


# -- what arrives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("_SECONDS", 0.0), ("_ENTRIES", 5)])
def test_p29_what_takes_too_long_to_judge_does_not_move(bench, work, monkeypatch, limit, value):
    """Everybody else waits meanwhile."""
    for number in range(10):
        (work / f"dir/{number}").write_text("")
    monkeypatch.setattr(f"pincer_trace.executor.arrivals.{limit}", value)
    assert bench.call("rename", b"dir", b"moved").error == errno.EACCES
    assert "too large" in str(bench.records("denied")[0]["reason"])
    assert bench.call("rename", b"dir/inner", b"moved").succeeded


def test_p29_what_cannot_be_looked_into_does_not_move(bench, work, monkeypatch):
    real = os.open

    def fail(path, *arguments, **named):
        if path == b"dir" and not arguments[0] & os.O_PATH:
            raise PermissionError(errno.EACCES, "scripted")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", fail)
    assert bench.call("rename", b"dir", b"moved").error == errno.EACCES
    assert "looked into" in str(bench.records("denied")[0]["reason"])


def test_p29_one_climb_for_all_names(make_bench, work, monkeypatch):
    """Guarded names in a folder that moves deep down in one of ours: the way up is looked at once for each end."""
    from executor.benches import PROFILE

    from pincer_trace.gateway.provenance import Ancestry

    rules = """
[[rule]]
protection = true
effects = ["change"]
paths = ["**/*.guarded"]
verdict = "confirm"
reason = "guarded"

[[rule]]
protection = true
effects = ["change"]
paths = ["**/*.guarded"]
when = "own-above"
verdict = "allow"
reason = "new"
"""
    bench = make_bench(PROFILE + rules)
    assert bench.call("mkdir", b"own", 0o755).succeeded
    deep = work / "own/a/b/c/d/e/f"
    deep.mkdir(parents=True)
    (work / "own/theirs").mkdir()
    for number in range(20):
        (work / f"own/theirs/{number}.guarded").write_text("")
    climbs = []
    real = Ancestry._climb
    monkeypatch.setattr(Ancestry, "_climb", lambda self: climbs.append(1) or real(self))
    assert bench.call("rename", b"own/theirs", os.fsencode(deep / "theirs")).succeeded
    assert 7 <= len(climbs) <= 30, "seven levels from the goal, not for each of twenty names"
    assert (deep / "theirs/19.guarded").exists()


def test_p70_a_removed_queue_is_forgotten(make_bench, work):
    from executor.benches import PROFILE

    rule = """
[[rule]]
effects = ["change"]
paths = ["/dev/mqueue/**"]
verdict = "allow"
reason = "queues"
"""
    bench = make_bench(PROFILE + rule)
    for number in range(5):
        name = b"pincer-%d-%d" % (os.getpid(), number)
        assert bench.call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, 0).succeeded
        assert len(bench.provenance._born) == 1
        assert bench.call("mq_unlink", name).succeeded
        assert not bench.provenance._born


def test_p93_the_binding_thread_has_one_identity(bench, work):
    """What it took for one caller it gives back for the next."""
    seen = []
    for _ in range(2):
        bench.engine._place.run(lambda identity: seen.append((identity, threading.get_native_id())) or 0)
    assert seen[0] == seen[1]
    assert seen[0][0] is not bench.engine._identity
