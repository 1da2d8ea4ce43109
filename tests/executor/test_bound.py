"""What would be performed is what was voted on: two real calls that would do different things have different requests.

Each call is served by the engine up to its intent, which finds no room in the ledger. So nothing is performed, the
world stays as it is, and what differs between two digests is the calls alone: the same call again has the same one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
import threading

import pytest

from pincer_trace.kernel import libc, table
from pincer_trace.ledger import LedgerFull

AT = -100
CREATE, WRONLY, RDWR = os.O_CREAT, os.O_WRONLY, os.O_RDWR
FS_IOC_GETFLAGS = 0x80086601


def times(access: int, change: int) -> bytes:
    return struct.pack("=4q", access, 0, change, 0)


def address(path: bytes) -> bytes:
    return struct.pack("=H", socket.AF_UNIX) + path + b"\0"


class Digests:
    """Serves calls on a bench whose ledger takes no intent."""

    def __init__(self, bench, monkeypatch) -> None:
        self.bench = bench
        self.found: list[bytes] = []

        def intent(*_positional, request, **_words):
            self.found.append(request)
            raise LedgerFull(errno.ENOSPC)

        class Full(type(bench.session.ledger)):
            __slots__ = ()

        ledger = bench.session.ledger
        monkeypatch.setattr(Full, "intent", lambda _self, *a, **k: intent(*a, **k), raising=False)
        ledger.__class__ = Full

    def of(self, *call, tid: int | None = None) -> bytes:
        """The digest of the request to which both evaluators said yes."""
        self.found.clear()
        answer = self.bench.call(*call, tid=tid)
        assert answer.error == errno.EACCES, (call, answer)
        assert len(self.found) == 1, (call, self.bench.records()[-1:])
        return self.found[0]


@pytest.fixture
def digests(bench, work, monkeypatch) -> Digests:
    os.link("file", "file2")
    (work / "other").write_text("content of file\n")
    (work / "user").write_text("")
    os.setxattr("user", "user.a", b"old")
    os.setxattr("user", "user.b", b"old")
    os.chmod("file", 0o755)
    (work / "dir" / "empty").mkdir()
    (work / "empty2").mkdir()
    return Digests(bench, monkeypatch)


PAIRS = {
    "mode of mkdir": (("mkdirat", AT, b"made", 0o755), ("mkdirat", AT, b"made", 0o700)),
    "sticky bit of mkdir": (("mkdirat", AT, b"made", 0o755), ("mkdirat", AT, b"made", 0o1755)),
    "name of mkdir": (("mkdirat", AT, b"made", 0o755), ("mkdirat", AT, b"made2", 0o755)),
    "folder of mkdir": (("mkdirat", AT, b"dir/made", 0o755), ("mkdirat", AT, b"empty/made", 0o755)),
    "mode of mknod": (("mknodat", AT, b"made", 0o010644, 0), ("mknodat", AT, b"made", 0o010600, 0)),
    "kind of mknod": (("mknodat", AT, b"made", 0o010644, 0), ("mknodat", AT, b"made", 0o140644, 0)),
    "a file by mknod or a fifo": (("mknodat", AT, b"made", 0o100644, 0), ("mknodat", AT, b"made", 0o010644, 0)),
    "text of a link": (("symlinkat", b"file", AT, b"made"), ("symlinkat", b"filE", AT, b"made")),
    "text of a link, as a person reads it": (
        ("symlinkat", b"file", AT, b"made"),
        ("symlinkat", b"./file", AT, b"made"),
    ),
    "source of a link": (("linkat", AT, b"file", AT, b"made", 0), ("linkat", AT, b"other", AT, b"made", 0)),
    "name of the source": (("linkat", AT, b"file", AT, b"made", 0), ("linkat", AT, b"file2", AT, b"made", 0)),
    "goal of a link": (("linkat", AT, b"file", AT, b"made", 0), ("linkat", AT, b"file", AT, b"dir/made", 0)),
    "a link, or what it leads to": (
        ("linkat", AT, b"link", AT, b"made", 0),
        ("linkat", AT, b"link", AT, b"made", 0x400),
    ),
    "which is removed": (("unlinkat", AT, b"file", 0), ("unlinkat", AT, b"file2", 0)),
    "which folder is removed": (("unlinkat", AT, b"empty", 0x200), ("unlinkat", AT, b"empty2", 0x200)),
    "source of a rename": (("renameat2", AT, b"file", AT, b"new", 0), ("renameat2", AT, b"file2", AT, b"new", 0)),
    "goal of a rename": (("renameat2", AT, b"file", AT, b"new", 0), ("renameat2", AT, b"file", AT, b"new2", 0)),
    "what a rename replaces": (
        ("renameat2", AT, b"file", AT, b"other", 0),
        ("renameat2", AT, b"file", AT, b"user", 0),
    ),
    "moved or exchanged": (("renameat2", AT, b"file", AT, b"other", 0), ("renameat2", AT, b"file", AT, b"other", 2)),
    "must be absent": (("renameat2", AT, b"file", AT, b"new", 0), ("renameat2", AT, b"file", AT, b"new", 1)),
    "both ends": (("renameat2", AT, b"file", AT, b"other", 2), ("renameat2", AT, b"other", AT, b"file", 2)),
    "new mode": (("fchmodat", AT, b"file", 0o600), ("fchmodat", AT, b"file", 0o640)),
    "set-user-id": (("fchmodat", AT, b"file", 0o600), ("fchmodat", AT, b"file", 0o4600)),
    "new owner": (("fchownat", AT, b"file", 1, -1, 0), ("fchownat", AT, b"file", 2, -1, 0)),
    "new group": (("fchownat", AT, b"file", 1, 5, 0), ("fchownat", AT, b"file", 1, 6, 0)),
    "owner or group": (("fchownat", AT, b"file", 1, -1, 0), ("fchownat", AT, b"file", -1, 1, 0)),
    "owner of a link or of its end": (("fchownat", AT, b"link", 1, -1, 0), ("fchownat", AT, b"link", 1, -1, 0x100)),
    "access time": (("utimensat", AT, b"file", times(1, 1), 0), ("utimensat", AT, b"file", times(2, 1), 0)),
    "change time": (("utimensat", AT, b"file", times(1, 1), 0), ("utimensat", AT, b"file", times(1, 2), 0)),
    "that time or now": (("utimensat", AT, b"file", times(0, 0), 0), ("utimensat", AT, b"file", 0, 0)),
    "seconds or microseconds": (
        ("utimes", b"file", struct.pack("=4q", 1, 1, 1, 1)),
        ("utimes", b"file", struct.pack("=4q", 1, 1, 1, 2)),
    ),
    "times of old": (
        ("utime", b"file", struct.pack("=2q", 1, 1)),
        ("utime", b"file", struct.pack("=2q", 1, 2)),
    ),
    "name of an attribute": (
        ("setxattr", b"user", b"user.a", b"v", 1, 0),
        ("setxattr", b"user", b"user.b", b"v", 1, 0),
    ),
    "value of an attribute": (
        ("setxattr", b"user", b"user.a", b"v", 1, 0),
        ("setxattr", b"user", b"user.a", b"w", 1, 0),
    ),
    "length of a value": (
        ("setxattr", b"user", b"user.a", b"vv", 1, 0),
        ("setxattr", b"user", b"user.a", b"vv", 2, 0),
    ),
    "must be there": (("setxattr", b"user", b"user.a", b"v", 1, 0), ("setxattr", b"user", b"user.a", b"v", 1, 2)),
    "set or removed": (("setxattr", b"user", b"user.a", b"", 0, 0), ("removexattr", b"user", b"user.a")),
    "which is taken away": (("removexattr", b"user", b"user.a"), ("removexattr", b"user", b"user.b")),
    "length": (("truncate", b"file", 3), ("truncate", b"file", 4)),
    "read or write": (("openat", AT, b"file", WRONLY, 0), ("openat", AT, b"file", RDWR, 0)),
    "append": (("openat", AT, b"file", WRONLY, 0), ("openat", AT, b"file", WRONLY | os.O_APPEND, 0)),
    "emptied": (("openat", AT, b"file", WRONLY, 0), ("openat", AT, b"file", WRONLY | os.O_TRUNC, 0)),
    "no waiting": (("openat", AT, b"file", WRONLY, 0), ("openat", AT, b"file", WRONLY | os.O_NONBLOCK, 0)),
    "left open at exec": (("openat", AT, b"file", WRONLY, 0), ("openat", AT, b"file", WRONLY | os.O_CLOEXEC, 0)),
    "mode of what is created": (
        ("openat", AT, b"made", WRONLY | CREATE, 0o644),
        ("openat", AT, b"made", WRONLY | CREATE, 0o600),
    ),
    "access to what is created": (
        ("openat", AT, b"made", WRONLY | CREATE, 0o644),
        ("openat", AT, b"made", RDWR | CREATE, 0o644),
    ),
    "alone": (
        ("openat", AT, b"made", WRONLY | CREATE, 0o644),
        ("openat", AT, b"made", WRONLY | CREATE | os.O_EXCL, 0o644),
    ),
    "made by open or by creat": (("openat", AT, b"made", WRONLY | CREATE, 0o644), ("creat", b"made", 0o644)),
    "mode of what has no name": (
        ("openat", AT, b"dir", RDWR | os.O_TMPFILE, 0o644),
        ("openat", AT, b"dir", RDWR | os.O_TMPFILE, 0o600),
    ),
    "whether it can get a name": (
        ("openat", AT, b"dir", RDWR | os.O_TMPFILE, 0o644),
        ("openat", AT, b"dir", RDWR | os.O_TMPFILE | os.O_EXCL, 0o644),
    ),
    "without a name or with one": (
        ("openat", AT, b"dir", RDWR | os.O_TMPFILE, 0o644),
        ("openat", AT, b"dir/#nameless", RDWR | CREATE, 0o644),
    ),
    "program": (("execve", b"/bin/sh", 0, 0), ("execve", b"/bin/ls", 0, 0)),
    "flags of exec": (("execveat", AT, b"/bin/sh", 0, 0, 0), ("execveat", AT, b"/bin/sh", 0, 0, 0x100)),
}
QUEUES = {
    "queue": (("mq_open", b"pincer-one", CREATE | RDWR, 0o600, 0), ("mq_open", b"pincer-two", CREATE | RDWR, 0o600, 0)),
    "mode of a queue": (
        ("mq_open", b"pincer-one", CREATE | RDWR, 0o600, 0),
        ("mq_open", b"pincer-one", CREATE | RDWR, 0o660, 0),
    ),
    "size of a queue": (
        ("mq_open", b"pincer-one", CREATE | RDWR, 0o600, struct.pack("=8q", 0, 4, 64, 0, 0, 0, 0, 0)),
        ("mq_open", b"pincer-one", CREATE | RDWR, 0o600, struct.pack("=8q", 0, 5, 64, 0, 0, 0, 0, 0)),
    ),
}
EVERYWHERE = """
[[rule]]
effects = ["read", "change", "exec"]
paths = ["/**"]
verdict = "allow"
reason = "everything"
"""


@pytest.mark.parametrize("name", PAIRS)
def test_what_determines_the_effect_is_bound(digests, name):
    one, other = PAIRS[name]
    first = digests.of(*one)
    assert digests.of(*one) == first, "the same call again"
    assert digests.of(*other) != first
    assert digests.of(*one) == first, "and again"


@pytest.mark.parametrize("name", QUEUES)
def test_what_determines_a_queue_is_bound(make_bench, monkeypatch, name):
    digests = Digests(make_bench(EVERYWHERE), monkeypatch)
    one, other = QUEUES[name]
    first = digests.of(*one)
    assert digests.of(*one) == first
    assert digests.of(*other) != first


def test_the_inode_flags_are_bound(digests, work):
    held = os.open("file", os.O_RDONLY)
    try:
        have = int.from_bytes(fcntl.ioctl(held, FS_IOC_GETFLAGS, bytes(4)), "little")
        one = digests.of("ioctl", held, table.FS_IOC_SETFLAGS, have.to_bytes(4, "little"))
        assert digests.of("ioctl", held, table.FS_IOC_SETFLAGS, have.to_bytes(4, "little")) == one
        assert digests.of("ioctl", held, table.FS_IOC_SETFLAGS, (have ^ 0x80).to_bytes(4, "little")) != one
        other = digests.of("ioctl", held, table.FS_IOC_FSSETXATTR, bytes(28))
        assert other != one
        assert digests.of("ioctl", held, table.FS_IOC_FSSETXATTR, bytes(27) + b"\1") != other
    finally:
        os.close(held)


@pytest.mark.parametrize(
    "pair",
    [
        (("fchmod", 0o600), ("fchmod", 0o640)), (("fchown", 1, -1), ("fchown", 2, -1)),
        (("utimensat", 0, times(1, 1), 0), ("utimensat", 0, times(1, 2), 0)),
        (("fsetxattr", b"user.a", b"v", 1, 0), ("fsetxattr", b"user.a", b"w", 1, 0)),
        (("fremovexattr", b"user.a"), ("fremovexattr", b"user.b")),
    ],
    ids=lambda pair: pair[0][0],
)  # fmt: skip
def test_what_is_done_on_a_descriptor_is_bound(digests, pair):
    held, other = os.open("user", os.O_RDONLY), os.open("other", os.O_RDONLY)
    try:
        (call, *arguments), (_, *changed) = pair
        one = digests.of(call, held, *arguments)
        assert digests.of(call, held, *arguments) == one
        assert digests.of(call, held, *changed) != one
        assert digests.of(call, other, *arguments) != one, "another object"
    finally:
        os.close(held)
        os.close(other)


@pytest.mark.parametrize(
    "call",
    [
        ("mkdirat", AT, b"made", 0o777), ("mknodat", AT, b"made", 0o010666, 0),
        ("openat", AT, b"made", WRONLY | CREATE, 0o666), ("openat", AT, b"dir", RDWR | os.O_TMPFILE, 0o666),
        ("bind", None, address(b"sock"), len(address(b"sock"))),
    ],
    ids=lambda call: call[0] + str(call[3]),
)  # fmt: skip
def test_the_umask_is_bound(digests, call):
    """It is the caller's, and decides the mode of what is made."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        call = tuple(own.fileno() if word is None else word for word in call)
        one = digests.of(*call)
        os.umask(0o077)
        digests.bench.tasks.drop(os.getpid())
        digests.bench.engine._identity._mask = -1
        other = digests.of(*call)
        os.umask(0o022)
        digests.bench.tasks.drop(os.getpid())
        digests.bench.engine._identity._mask = -1
        assert digests.of(*call) == one != other


def test_a_mask_that_changes_between_two_looks_is_the_one_that_is_used(digests, monkeypatch):
    """Two threads share it: what is bound is what the executor has in force, not what another look shows."""
    masks = iter([0o022, 0o077, 0o022, 0o077])
    in_force: list[int] = []
    tasks = digests.bench.tasks
    monkeypatch.setattr(type(tasks), "mask", lambda _self, _task: next(masks))
    one = digests.of("mkdirat", AT, b"made", 0o777)
    in_force.append(os.umask(0))
    monkeypatch.setattr(type(tasks), "mask", lambda _self, _task: in_force[0])
    digests.bench.engine._identity._mask = -1
    assert digests.of("mkdirat", AT, b"made", 0o777) == one


def test_the_socket_and_its_address_are_bound(digests):
    """Other bytes for the same name read back otherwise; another socket is another thing that listens there."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as second,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):

        def of(own: socket.socket, path: bytes) -> bytes:
            return digests.of("bind", own.fileno(), address(path), len(address(path)))

        one = of(stream, b"sock")
        assert of(stream, b"sock") == one
        assert of(stream, b"./sock") != one
        assert of(stream, b"dir/../sock") != one
        assert of(second, b"sock") != one
        assert of(datagrams, b"sock") != one


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.utime("other", (1, 1)), lambda: os.chmod("other", 0o600), lambda: os.truncate("other", 1),
        lambda: os.rename("user", "other"), lambda: os.unlink("other"),
    ],
    ids=["times", "mode", "length", "another file", "gone"],
)  # fmt: skip
@pytest.mark.parametrize("source", [b"file", b"fresh"], ids=["judged end by end", "where all is free"])
def test_the_version_of_what_a_rename_replaces_is_bound(digests, work, source, change):
    """What is lost by it is part of the effect."""
    (work / "fresh").write_text("content of file\n")
    call = ("renameat2", AT, source, AT, b"other", 0)
    one = digests.of(*call)
    assert digests.of(*call) == one
    change()
    assert digests.of(*call) != one


@pytest.mark.parametrize(
    "call",
    [
        ("openat", AT, b"other", WRONLY, 0), ("unlinkat", AT, b"other", 0), ("truncate", b"other", 1),
        ("renameat2", AT, b"other", AT, b"new", 0), ("linkat", AT, b"other", AT, b"new", 0),
        ("fchmodat", AT, b"other", 0o600), ("setxattr", b"other", b"user.x", b"v", 1, 0),
    ],
    ids=lambda call: call[0],
)  # fmt: skip
def test_the_version_of_the_object_is_bound(digests, call):
    one = digests.of(*call)
    assert digests.of(*call) == one
    with open("other", "a") as file:
        file.write("more")
    assert digests.of(*call) != one


def test_the_script_interpreter_is_bound(digests, work):
    """What a script starts is what its interpreter's name leads to now."""
    (work / "tool").write_text("#!./inter\n")
    os.chmod("tool", 0o755)
    os.symlink("/bin/sh", "inter")
    one = digests.of("execve", b"tool", 0, 0)
    assert digests.of("execve", b"tool", 0, 0) == one
    os.unlink("inter")
    os.symlink("/bin/ls", "inter")
    digests.bench.reads.moved()
    assert digests.of("execve", b"tool", 0, 0) != one


class Thread:
    """Another task of this process, whose ids this test can change alone."""

    def __init__(self) -> None:
        self._todo: list = []
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.do(lambda: None)
        self.tid = self._thread.native_id

    def _run(self) -> None:
        while True:
            self._turn.acquire()
            if self._ended:
                return
            self._todo.pop()()
            self._done.release()

    def do(self, act) -> None:
        self._todo.append(act)
        self._turn.release()
        self._done.acquire()

    def end(self) -> None:
        self._ended = True
        self._turn.release()
        self._thread.join()


@pytest.fixture
def thread():
    made = Thread()
    yield made
    made.end()


def test_who_asks_is_bound(digests, thread):
    call = ("mkdirat", AT, b"made", 0o755)
    one = digests.of(*call)
    other = digests.of(*call, tid=thread.tid)
    assert digests.of(*call) == one != other
    assert digests.of(*call, tid=thread.tid) == other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take other ids")
def test_the_ids_of_the_caller_are_bound(digests, thread):
    """They own what is made, and the kernel refuses by them: the same call by another user is another effect."""
    call = ("mkdirat", AT, b"made", 0o755)
    engine = digests.bench.engine
    engine._identity.changed = True
    os.chmod(".", 0o777)

    def become(uid: int, gid: int, groups: tuple[int, ...] = ()) -> None:
        array = (ctypes.c_uint32 * max(1, len(groups)))(*groups)
        thread.do(lambda: libc.call("setgroups", len(groups), ctypes.byref(array)))
        thread.do(lambda: libc.call("setfsgid", gid))
        thread.do(lambda: libc.call("setfsuid", uid))
        digests.bench.tasks.drop(thread.tid)

    try:
        seen = {}
        for ids in ((0, 0), (0, 5), (0, 0, (7,)), (1234, 0), (1234, 5), (1234, 5, (7,)), (1235, 5)):
            become(*ids)
            seen[ids] = digests.of(*call, tid=thread.tid)
            assert digests.of(*call, tid=thread.tid) == seen[ids]
        assert len(set(seen.values())) == len(seen)
    finally:
        become(0, 0)
        engine._identity.assume(None)


def test_another_session_binds_otherwise(make_bench, work, monkeypatch):
    """Another key, and another session's name in the bytes: a vote of one is no use in the other."""
    call = ("mkdirat", AT, b"made", 0o755)
    one, other = Digests(make_bench(), monkeypatch), Digests(make_bench(), monkeypatch)
    assert one.of(*call) != other.of(*call)


def test_nothing_of_all_this_was_performed(digests, work):
    before = sorted(os.listdir(work))
    for pair in PAIRS.values():
        for call in pair:
            with contextlib.suppress(AssertionError):
                digests.of(*call)
    assert sorted(os.listdir(work)) == before
    assert stat.S_IMODE(os.stat("file").st_mode) == 0o755


STAGED = {
    "content": lambda held: os.write(held, b"\n"),
    "mode": lambda held: os.fchmod(held, 0o600),
    "times": lambda held: os.utime(held, (7, 8)),
    "an attribute": lambda held: os.setxattr(held, "user.a", b"other"),
    "one more": lambda held: os.setxattr(held, "user.b", b"more"),
    "one less": lambda held: os.removexattr(held, "user.a"),
}


@pytest.mark.parametrize("name", STAGED)
def test_what_is_staged_is_bound_with_its_attributes(bench, monkeypatch, name):
    """A file that git reads gets its name after its last close, with everything that its writer gave it."""
    for folder in (b"new", b"new/.git"):
        assert bench.call("mkdirat", AT, folder, 0o755).succeeded
    bench.listener.before("wait", *[True] * 1000)
    digests = Digests(bench, monkeypatch)

    def of(act) -> bytes:
        answer = bench.call("openat", AT, b"new/.git/config", WRONLY | CREATE, 0o644)
        held = answer.numbers[0]
        os.write(held, b"[core]\n")
        os.setxattr(held, "user.a", b"value")
        os.utime(held, (1, 2))
        act(held)
        if name != "times":
            os.utime(held, (1, 2))  # so that it is not the time that tells
        answer.close()
        digests.found.clear()
        bench.engine._staged.settle()
        assert len(digests.found) == 1
        return digests.found[0]

    one = of(lambda _: None)
    assert of(lambda _: None) == one
    assert of(STAGED[name]) != one
    assert not os.path.lexists("new/.git/config")
