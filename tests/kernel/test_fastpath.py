"""The compiled fast path on the real kernel: what it answers, and above all what it leaves to the long way.

The worker is a forked child whose openat is trapped; the tables are filled here, as the engine would.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel.trapped import Worker, limit, tiny_filter

from pincer_trace.kernel import fastpath, libc

pytestmark = pytest.mark.skipif(not fastpath.available(), reason="the fast path is not compiled: scripts/compile")

OPENAT = libc.NUMBER["openat"]
PROGRAM = 7  # the number of the worker's executable


class Bench:
    """A worker that makes `opens` (path, flags) one by one; `answers` has what each gave: a value or minus errno."""

    def __init__(
        self, opens: list[tuple[bytes, int]], before: Callable[[], None] = lambda: None, from_where: int = libc.AT_FDCWD
    ) -> None:
        self._told, tell = os.pipe()
        fcntl.fcntl(tell, fcntl.F_SETPIPE_SZ, 1 << 18)  # read at the end

        def act() -> int:
            before()
            for path, flags in opens:
                opened = libc.syscall(OPENAT, from_where, path, flags, 0)
                if opened < 0:
                    os.write(tell, b"%d\n" % -libc.get_errno())
                    continue
                found, status = os.fstat(opened), fcntl.fcntl(opened, fcntl.F_GETFL)
                closes = fcntl.fcntl(opened, fcntl.F_GETFD)
                os.write(tell, b"%d %d %d\n" % (found.st_ino, status, closes))
                os.close(opened)
            return 0

        self.worker = Worker(act, tiny_filter(OPENAT))
        os.close(tell)
        self.names = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY)
        self.mem = os.open(f"/proc/{self.worker.pid}/mem", os.O_RDONLY)
        loaded = fastpath.load(self.worker.listener, self.names, {os.stat("/proc").st_dev})
        assert loaded is not None
        self.fast = loaded
        self.counters = 0
        self.answers = fastpath.EVERYWHERE
        self.handed: list[tuple[int, str]] = []  # (pin's inode or -1, path) of what came to the long way
        self.know()

    def know(self, expires: float | None = None) -> None:
        self.fast.task(self.worker.pid, PROGRAM, self.mem, time.monotonic() + 60 if expires is None else expires)

    def admit(self, path: str | Path, counter: int = 0, program: int = PROGRAM) -> None:
        while self.counters <= counter:
            self.counters = self.fast.counter() + 1
        found = os.stat(path)
        assert self.fast.admit(program, found.st_dev, found.st_ino, found.st_ctime_ns, counter)

    def serve(self, each: Callable[[int], None] = lambda number: None) -> list[str]:
        """Answer EPERM to all that is handed over, until the end; what each open gave. `each` is told of every one."""
        with limit(20):
            while (one := self.fast.receive(self.answers)) is not None:
                pin = self.fast.take_pin()
                path = os.pread(self.mem, 256, one[7]).partition(b"\0")[0]
                self.handed.append((os.fstat(pin).st_ino if pin >= 0 else -1, os.fsdecode(path)))
                if pin >= 0:
                    os.close(pin)
                self.worker.listener.respond(one[0], error=errno.EPERM)
                each(len(self.handed))
        assert self.worker.status() == 0
        with open(self._told, closefd=False) as answers:
            return answers.read().splitlines()

    def close(self) -> None:
        if self.worker.pid:
            self.worker.kill()
            self.worker.status()
        self.worker.listener.close()
        self.fast.close()
        for descriptor in (self._told, self.names, self.mem):
            os.close(descriptor)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*opens: tuple[str | Path, int], **how) -> Bench:
        made.append(Bench([(os.fsencode(path), flags) for path, flags in opens], **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("content")
    return path


def inode(path: str | Path) -> str:
    return str(os.stat(path).st_ino)


def check_unread(fifo: Path) -> None:
    """Nobody has the FIFO open for reading."""
    with pytest.raises(OSError, match="No such device") as caught:
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    assert caught.value.errno == errno.ENXIO


HANDED = f"-{errno.EPERM}"


def test_what_was_judged_is_answered_here(bench, file):
    one = bench(*[(file, os.O_RDONLY)] * 3, (file.parent, os.O_RDONLY | os.O_DIRECTORY))
    one.admit(file, 4)
    one.admit(file.parent, 5)
    answers = one.serve()
    assert [answer.split()[0] for answer in answers] == [inode(file)] * 3 + [inode(file.parent)]
    assert one.handed == []
    assert one.fast.collect() == [(4, 3), (5, 1)]
    assert one.fast.collect() == []


@pytest.mark.parametrize("known", [False, True], ids=["pinned", "known-file"])
def test_status_flags_and_close_on_exec_are_the_callers(bench, file, known):
    asked = [0, os.O_NONBLOCK, os.O_APPEND, os.O_NOATIME, os.O_CLOEXEC, os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC]
    one = bench(*[(file, flags) for flags in ([0] * 2 if known else []) + asked])
    one.admit(file)
    answers = one.serve()[2 if known else 0 :]
    native = []
    for flags in asked:
        opened = os.open(file, flags)
        native.append((fcntl.fcntl(opened, fcntl.F_GETFL), int(bool(flags & os.O_CLOEXEC))))
        os.close(opened)
    assert [tuple(map(int, answer.split()[1:])) for answer in answers] == native


def test_what_nobody_judged_is_handed_over_pinned(bench, file):
    other = file.parent / "other"
    other.write_text("")
    one = bench((file, 0), (other, 0), (file, 0))
    one.admit(other, program=PROGRAM + 1)  # another program's
    assert one.serve() == [HANDED] * 3
    assert one.handed == [
        (file.stat().st_ino, str(file)),
        (other.stat().st_ino, str(other)),
        (file.stat().st_ino, str(file)),
    ]


def test_a_pin_that_was_handed_over_can_go_on(bench, file):
    """After the judgement: with the flags of the call; what cannot be opened now is done again from the start."""
    one = bench((file, os.O_APPEND | os.O_CLOEXEC), (file, 0))
    while one.fast.counter() < 3:
        pass
    holder = os.open(file, os.O_RDWR)
    with limit(10):
        first = one.fast.receive(True)
        assert first is not None
        assert one.fast.give(one.fast.take_pin(), 3)
        second = one.fast.receive(True)
        assert second is not None
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert not one.fast.give(one.fast.take_pin(), 3)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    os.close(holder)
    one.worker.listener.respond(second[0], error=errno.EPERM)
    given, refused = one.serve()
    number, status, closes = map(int, given.split())
    assert (number, closes, refused) == (file.stat().st_ino, 1, HANDED)
    assert status & os.O_APPEND
    assert one.fast.collect() == [(3, 1)]


def test_a_changed_object_is_judged_anew(bench, file):
    ask = file.parent / "ask"
    one = bench((file, 0), (file, 0), (ask, os.O_WRONLY), (file, 0))
    one.admit(file)
    answers = one.serve(lambda number: file.chmod(0o600))  # between the second and the last open
    assert [answer.split()[0] for answer in answers] == [inode(file)] * 2 + [HANDED] * 2
    assert one.handed[-1] == (file.stat().st_ino, str(file))


def test_after_clear_nothing_is_judged(bench, file):
    one = bench((file, 0))
    one.admit(file)
    one.fast.clear()
    assert one.serve() == [HANDED]


def test_absent_names_are_absent(bench, file, tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    absent, below, link = tmp_path / "absent", file / "below", tmp_path / "dangling"
    looped = Path("/proc/self/task/absent")
    one = bench((absent, 0), (below, 0), (link, 0), (absent, os.O_WRONLY), (looped, 0), (tmp_path / "proc-absent", 0))
    assert one.serve() == [f"-{errno.ENOENT}"] + [HANDED] * 5
    assert [path for _, path in one.handed] == [
        str(below),
        str(link),
        str(absent),
        str(looped),
        str(tmp_path / "proc-absent"),
    ]
    assert {pin for pin, _ in one.handed} == {-1}


@pytest.mark.parametrize(
    "flags",
    [os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC, os.O_PATH, os.O_TMPFILE | os.O_RDWR,
     os.O_WRONLY | os.O_RDWR, os.O_RDONLY | os.O_EXCL],
)  # fmt: skip
def test_what_is_no_plain_read_is_handed_over(bench, file, flags):
    one = bench((file, 0), (file, 0), (file, flags), (file.parent, flags))
    one.admit(file)
    one.admit(file.parent)
    assert one.serve()[2:] == [HANDED] * 2
    assert {pin for pin, _ in one.handed} == {-1}
    assert file.read_text() == "content"


def test_links_are_followed_or_not_as_asked(bench, file, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(file)
    one = bench((link, 0), (link, os.O_NOFOLLOW), (file, os.O_NOFOLLOW))
    one.admit(file)
    answers = one.serve()
    assert [answer.split()[0] for answer in answers] == [inode(file), HANDED, inode(file)]
    assert one.handed == [(os.lstat(link).st_ino, str(link))]


@pytest.mark.parametrize("name", ["null", "zero", "full", "urandom"])
def test_devices_that_hold_nothing(bench, name):
    path = f"/dev/{name}"
    flags = [
        0,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        os.O_RDWR | os.O_CLOEXEC,
        os.O_RDONLY | os.O_DIRECTORY,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    ]
    one = bench(*[(path, flag) for flag in flags])
    answers = one.serve()
    assert [answer.split()[0] for answer in answers] == [inode(path)] * 3 + [HANDED] * 2
    assert [int(answer.split()[1]) & os.O_ACCMODE for answer in answers[:3]] == [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
    assert one.fast.collect() == []


def test_other_devices_and_fifos_are_not_opened(bench, file, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    one = bench(("/dev/tty", 0), ("/dev/ptmx", os.O_RDWR), (fifo, 0), ("/dev/absent", os.O_WRONLY | os.O_CREAT))
    assert one.serve(lambda _: check_unread(fifo)) == [HANDED] * 4
    assert one.handed[2] == (fifo.stat().st_ino, str(fifo))
    assert not os.path.exists("/dev/absent")


def test_p14_a_known_name_that_became_a_fifo_is_pinned_first(bench, file):
    """The engine forgets the names of files when the tree makes a name of another kind: then no writer is let go."""
    one = bench((file, 0), (file, 0), (file, os.O_WRONLY), (file, 0))
    one.admit(file)
    opened: list[int] = []
    writer = threading.Thread(target=lambda: opened.append(os.open(file, os.O_WRONLY)))

    def replace(number: int) -> None:
        if number > 1:
            return
        file.unlink()
        os.mkfifo(file)
        one.fast.clear_files()
        writer.start()
        while b"fifo" not in (where := Path(f"/proc/self/task/{writer.native_id}/wchan").read_bytes()) and (
            b"wait_for_partner" not in where
        ):
            time.sleep(0)  # nothing tells that a thread has begun to wait in an open

    assert one.serve(replace)[2:] == [HANDED] * 2
    assert opened == []
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    for descriptor in (reader, *opened):
        os.close(descriptor)


def test_p90_procfs_is_never_answered(bench):
    one = bench(("/proc/self/status", 0), ("/proc/uptime", 0), ("/proc", os.O_DIRECTORY))
    for path in ("/proc/uptime", "/proc"):
        one.admit(path)
    assert one.serve() == [HANDED] * 3
    assert {pin for pin, _ in one.handed} == {-1}


def test_p26_magic_links_are_left_to_the_long_way(bench, file):
    """Here they would lead to what the supervisor has open."""
    ours = os.open(file, os.O_RDONLY)
    names = [f"/dev/fd/{ours}", f"/proc/self/fd/{ours}", "/proc/self/cwd", "/proc/thread-self/root/etc", "/dev/stdin"]
    one = bench(*[(name, flags) for name in names for flags in (0, os.O_NOFOLLOW)])
    one.admit(file)
    one.admit("/etc")
    one.admit(os.getcwd())
    try:
        assert one.serve() == [HANDED] * 10
        assert not {pin for pin, _ in one.handed} & {os.stat(path).st_ino for path in (file, "/etc", ".", "/dev/null")}
    finally:
        os.close(ours)


def test_p73_a_leased_file_is_left_to_the_long_way(bench, file):
    holder = os.open(file, os.O_RDWR)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    one = bench((file, 0))
    one.admit(file)
    try:
        assert one.serve() == [HANDED]
    finally:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(holder)
        signal.signal(signal.SIGIO, signal.SIG_DFL)


def test_p13_a_full_table_is_left_to_the_long_way(bench, file):
    one = bench((file, 0), before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)))
    one.admit(file)
    assert one.serve() == [HANDED]
    assert one.fast.collect() == []


def test_p94_a_forgotten_or_expired_task_is_not_answered(bench, file):
    for forget in (lambda one: one.fast.forget(one.worker.pid), lambda one: one.know(expires=time.monotonic())):
        one = bench((file, 0))
        one.admit(file)
        forget(one)
        assert one.serve() == [HANDED]
        assert one.handed == [(-1, str(file))]


def test_relative_names_need_a_known_directory(bench, file, tmp_path):
    here = os.open(tmp_path, os.O_PATH)
    opens = [("file", 0), ("absent", 0), ("file", os.O_WRONLY), ("file", 0)]
    try:
        one = bench(*opens, before=lambda: os.chdir(tmp_path))
        one.admit(file)
        one.fast.directory(one.worker.pid, here)
        answers = one.serve(lambda number: one.fast.directory(one.worker.pid, -1))
        assert [answer.split()[0] for answer in answers] == [inode(file), f"-{errno.ENOENT}", HANDED, HANDED]
        one = bench(*opens, before=lambda: os.chdir(tmp_path))
        one.admit(file)
        one.fast.directory(one.worker.pid, here)
        one.fast.relative(False)
        assert one.serve() == [HANDED] * 4
    finally:
        os.close(here)


@pytest.mark.parametrize("name", [b"", b"/" + b"a" * 300, b"/" + b"a" * 254, b"/" + b"a" * 255])
def test_odd_names(bench, name):
    """Of 256 bytes and more with the final NUL: not read to the end here."""
    one = bench((os.fsdecode(name), 0))
    answers = one.serve()
    assert answers == ([f"-{errno.ENOENT}"] if len(name) == 255 else [HANDED])


def test_a_path_that_cannot_be_read(bench, file):
    one = bench((file, 0))
    closed = os.open("/dev/null", os.O_RDONLY)
    one.fast.task(one.worker.pid, PROGRAM, closed, time.monotonic() + 60)
    assert one.serve() == [HANDED]
    os.close(closed)


def test_a_task_that_dies_paused_costs_nothing(bench, file):
    one = bench((file, 0))
    while not one.worker.listener.wait(1000):
        pass
    one.worker.kill()
    one.worker.status()
    with limit(10):
        assert one.fast.receive(True) is None


def test_disabled_it_only_receives(bench, file):
    one = bench((file, 0))
    one.admit(file)
    with limit(10):
        notification = one.fast.receive(False)
    assert notification is not None
    assert notification[3] == OPENAT
    assert one.fast.take_pin() == -1
    one.worker.listener.respond(notification[0], error=errno.EPERM)
    assert one.serve() == [HANDED]


def test_no_read_is_lost_between_counting_and_collecting(bench, file):
    one = bench(*[(file, 0)] * 3000)
    one.admit(file, 9)
    collected, done = [], threading.Event()

    def collect() -> None:
        while not done.is_set():
            collected.extend(one.fast.collect())

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        assert len(one.serve()) == 3000
    finally:
        done.set()
        thread.join()
    collected += one.fast.collect()
    assert {counter for counter, _ in collected} == {9}
    assert sum(growth for _, growth in collected) == 3000


# -- what a folder lets pass -------------------------------------------------------------------------------------------

RULE = "profile.toml:5"


def let_pass(one: Bench, folder: Path) -> None:
    """All but `.env`, what begins with `id_`, and what ends with `.pem`."""
    assert one.fast.folder(os.fsencode(folder), RULE, (b".env",), (b"id_",), (b".pem",))


def told(one: Bench) -> list[str]:
    """The names of what was let pass, each told with what it is."""
    names = []
    for _, first, (program, path, device, number, rule) in one.fast.fresh():
        found = os.stat(path)
        assert (device, number, rule, program) == (found.st_dev, found.st_ino, RULE, b"/bin/reader")
        assert abs(first / 1e9 - time.time()) < 60
        names.append(os.fsdecode(os.path.basename(path)))
    return names


def test_a_folder_lets_pass_what_is_ordinary_there(bench, tmp_path):
    for name in ("a", ".env.x", "x.env", "x.pem.x", "my_id_", ".env", "id_", "id_x", "x.pem", ".pem", "secret"):
        (tmp_path / name).write_text(name)
    (tmp_path / "below").mkdir()
    (tmp_path / "id_dir").mkdir()
    (tmp_path / "to-below").symlink_to("below")
    (tmp_path / "below" / "inner").write_text("")
    (tmp_path / "b").write_text("")
    (tmp_path / "to-b").symlink_to("b")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "a").symlink_to("../a")
    (tmp_path / "one").write_text("")
    os.link(tmp_path / "one", tmp_path / "two")
    passes = ["a", ".env.x", "x.env", "x.pem.x", "my_id_", "a", "below/../a", "to/a", "below", "below/", "to-below"]
    judged = [".env", "id_", "id_x", "x.pem", ".pem", "secret", "below/inner", ".", "id_dir", "to-b", "one", "two"]
    one = bench(*[(tmp_path / name, 0) for name in passes + judged])
    one.fast.task(one.worker.pid, PROGRAM, one.mem, time.monotonic() + 60, b"/bin/reader")
    let_pass(one, tmp_path)
    found = os.stat(tmp_path / "secret")
    one.fast.secret(found.st_dev, found.st_ino)
    answers = one.serve()
    assert [answer.split()[0] for answer in answers] == [inode(tmp_path / n) for n in passes] + [HANDED] * len(judged)
    assert [(number, name) for number, name in one.handed] == [
        (os.stat(tmp_path / name).st_ino, str(tmp_path / name)) for name in judged
    ]
    assert told(one) == ["a", ".env.x", "x.env", "x.pem.x", "my_id_", "below"]
    assert sorted(one.fast.collect()) == [(0, 4), (1, 1), (2, 1), (3, 1), (4, 1), (5, 3)]
    assert not told(one)


def test_paths_that_begin_at_a_descriptor(bench, file, tmp_path):
    """By a copy of the caller's own, where the thread is known and such paths are to be answered."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "inner").write_text("")
    names = ("file", "below/inner", "absent", "below/../file")
    expected = [inode(file), inode(tmp_path / "below/inner"), f"-{errno.ENOENT}", inode(file)]
    directory = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        for known, answers in ((True, fastpath.EVERYWHERE), (True, fastpath.USUAL), (False, fastpath.EVERYWHERE)):
            one = bench(*[(name, 0) for name in names], from_where=directory)
            one.answers = answers
            for name in ("file", "below/inner"):
                one.admit(tmp_path / name)
            pidfd = os.pidfd_open(one.worker.pid)
            if known:
                one.fast.thread(one.worker.pid, pidfd)
            before = len(os.listdir("/proc/self/fd"))
            found = [answer.split()[0] for answer in one.serve()]
            assert len(os.listdir("/proc/self/fd")) == before
            assert found == (expected if known and answers == fastpath.EVERYWHERE else [HANDED] * 4)
            assert [pin for pin, _ in one.handed] == [-1] * len(one.handed)
            os.close(pidfd)
    finally:
        os.close(directory)


def test_p26_descriptors_of_procfs_are_left_to_the_long_way(bench):
    directory = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    try:
        one = bench(("self/status", 0), ("absent", 0), ("../etc/passwd", 0), from_where=directory)
        one.fast.thread(one.worker.pid, one.names)  # no descriptor of a thread
        assert one.serve() == [HANDED] * 3
        one = bench(("self/status", 0), ("absent", 0), from_where=directory)
        pidfd = os.pidfd_open(one.worker.pid)
        one.fast.thread(one.worker.pid, pidfd)
        assert one.serve() == [HANDED] * 2
        os.close(pidfd)
    finally:
        os.close(directory)


@pytest.mark.parametrize("deep", [False, True])
def test_what_lies_below_a_folder(bench, tmp_path, deep):
    """By unnamed components alone, of folders that do not say it of themselves."""
    for folder in ("x/y/z", "x/.env/z", "id_x/y", "other/x.pem", "apart/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("")
    passes = ["x/y/z/file", "x/y/z", "x/y", "x/y/z/file"] if deep else []
    judged = ["x/.env/z/file", "x/.env", "id_x/y/file", "id_x/y", "other/x.pem/file", "other/x.pem", "apart/x/file"]
    judged += [] if deep else ["x/y/z/file", "x/y/z", "x/y"]
    one = bench(*[(tmp_path / name, 0) for name in passes + judged])
    assert one.fast.folder(os.fsencode(tmp_path), RULE, (b".env",), (b"id_",), (b".pem",), deep=deep)
    assert one.fast.folder(os.fsencode(tmp_path / "apart"), RULE, (b"x",), (), ())
    answers = [answer.split()[0] for answer in one.serve()]
    assert answers == [inode(tmp_path / name) for name in passes] + [HANDED] * len(judged)
    assert one.fast.lets(os.fsencode(tmp_path / "apart" / "y")) and not one.fast.lets(b"/y")


def test_a_file_that_was_removed_is_judged(bench, tmp_path):
    """By its own name again, since the kernel's mark behind that could be a part of it."""
    (tmp_path / "gone (deleted)").write_text("")
    one = bench((tmp_path / "gone (deleted)", 0))
    let_pass(one, tmp_path)
    assert one.serve() == [HANDED]


def test_folders_that_are_forgotten_let_nothing_pass(bench, file, tmp_path):
    other = tmp_path / "other"
    other.write_text("")
    act = tmp_path / "act"
    one = bench((file, 0), (act, os.O_WRONLY), (other, 0), (file, 0), (act, os.O_WRONLY), (file, 0))
    let_pass(one, tmp_path)

    def change(number: int) -> None:
        if one.handed[-1][1] == str(act):
            (one.fast.clear_folders, one.fast.clear)[number > 2]()

    assert [answer == HANDED for answer in one.serve(change)] == [False, True, True, False, True, True]


def test_no_file_is_let_pass_that_could_not_be_told(bench, tmp_path):
    """They wait to be told of, up to a number; and each has a counter of its own."""
    files = [tmp_path / str(number) for number in range(4099)]
    for path in files:
        path.touch()
    one = bench(*[(path, 0) for path in files], (files[-1], 0), (files[-2], 0))
    let_pass(one, tmp_path)

    def change(number: int) -> None:
        if number == 3:
            assert one.fast.waiting() == 4096
            assert len(list(one.fast.fresh())) == 4096
            assert one.fast.waiting() == 0
            while one.fast.counter() < fastpath.COUNTERS - 2:  # one is left
                pass

    answers = one.serve(change)
    assert [at for at, answer in enumerate(answers) if answer == HANDED] == [4096, 4097, 4098, 4100]
    assert one.fast.counter() == fastpath.COUNTERS
    one.fast.collect()
    one.fast.restart()
    assert one.fast.counter() == 0


def test_the_folders_end(bench, file):
    one = bench((file, 0))
    assert one.fast.folder(b"/deep", RULE, (), (), (), deep=True)
    for number in range(3000):
        assert one.fast.lets(b"/deep/%d/x" % number)  # some are remembered, and leave room
    for number in range(2048):
        assert one.fast.folder(b"/folder/%d" % number, RULE, (), (), ())
    assert not one.fast.folder(b"/folder/more", RULE, (), (), ())
    assert one.fast.lets(b"/folder/0/x") and not one.fast.lets(b"/folder/more/x")
    one.fast.clear_folders()
    kinds = 0
    while one.fast.folder(b"/kind/%d" % kinds, RULE, (b"%d" % kinds,), (), ()):
        kinds += 1
    assert kinds == 255  # and the one without names, before
    assert one.fast.lets(b"/kind/7/8") and not one.fast.lets(b"/kind/7/7")
    assert one.serve() == [HANDED]


def test_the_tables_are_a_dictionary(bench, tmp_path):
    """Random admissions, changes and clearings of 200 files: exactly what a dictionary would know is answered."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    files = [tmp_path / f"f{number}" for number in range(200)]
    for path in files:
        path.write_text("")
    order = [dice.choice(files) for _ in range(1500)]
    act = tmp_path / "act"  # its opening for writing comes to the long way, which then changes the tables
    one = bench(*[pair for path in order for pair in ((path, 0), (act, os.O_WRONLY))])
    known: dict[tuple[int, int], Path] = {}
    expected, position = [], 0

    def key(path: Path) -> tuple[int, int]:
        return path.stat().st_ino, path.stat().st_ctime_ns

    def change(_: int) -> None:
        nonlocal position
        if one.handed[-1][1] != str(act):
            return
        dice_roll = dice.random()
        some = dice.sample(files, 20)
        if dice_roll < 0.02:
            one.fast.clear()
            known.clear()
        elif dice_roll < 0.1:
            one.fast.clear_files()
        elif dice_roll < 0.5:
            for path in some:
                one.admit(path, counter=int(path.name[1:]))
                known[key(path)] = path
        elif dice_roll < 0.6:
            for path in some:
                path.chmod(0o600 if path.stat().st_mode & 0o77 else 0o644)
        position += 1
        if position < len(order):
            expected.append(key(order[position]) in known)

    expected.append(False)
    answers = one.serve(change)[::2]
    assert [answer != HANDED for answer in answers] == expected
    assert sum(expected) > 100


def test_the_tables_end(bench, file):
    one = bench((file, 0))
    admitted = 0
    while one.fast.admit(PROGRAM, 1, admitted + 10, 1, 1):
        admitted += 1
        assert admitted <= 1 << 17
    assert admitted == 1 << 16
    assert one.serve() == [HANDED]
    assert not one.fast.admit(PROGRAM, 1, 5, 1, fastpath.COUNTERS)


def test_another_version_is_not_used(monkeypatch, bench, file):
    one = bench((file, 0))
    monkeypatch.setattr(fastpath, "_VERSION", 99)
    assert fastpath.load(one.worker.listener, one.names, set()) is None
    assert one.serve() == [HANDED]


def test_where_it_is_not_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("PINCER_TRACE_PURE", "1")
    assert fastpath.available() == ""
    monkeypatch.delenv("PINCER_TRACE_PURE")
    assert fastpath.available() != ""
    monkeypatch.setattr(fastpath, "_LIBRARY", str(tmp_path / "absent.so"))
    assert fastpath.available() == ""
    older = tmp_path / "older.so"
    older.write_text("")
    os.utime(older, (1, 1))
    monkeypatch.setattr(fastpath, "_LIBRARY", str(older))
    assert fastpath.available() == ""


def test_constants_are_those_of_python() -> None:
    """What executor/ and the source of the fast path both say."""
    from pincer_trace.executor import descriptors, opens, reopening

    source = Path(fastpath.__file__).with_name("fastpath.c").read_text()
    assert f"#define KNOWN 0{opens.KNOWN:o} " in source
    assert f"#define VERSION {fastpath._VERSION} " in source
    assert f"#define COUNTERS {fastpath.COUNTERS}\n" in source
    for name, words in (("OURS", ("CLOEXEC", "NOCTTY", "NONBLOCK")), ("WALK", ("DIRECTORY", "NOFOLLOW")),
                        ("STATUS", ("APPEND", "NONBLOCK", "ASYNC", "DIRECT", "NOATIME"))):  # fmt: skip
        value = 0
        for word in words:
            value |= getattr(os, f"O_{word}")
        assert getattr(descriptors, name) == value
        assert f"#define {name} ({' | '.join('O_' + word for word in words)})" in source
    minors = {os.minor(device) for device in reopening.HARMLESS_DEVICES}
    line = next(line for line in source.splitlines() if "return major(device) == 1" in line)
    assert {int(part.split(")")[0].split()[0]) for part in line.split("1u << ")[2:]} == minors
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
