"""What is known of a task, and when it stops being believed: memory, number reuse, directory, umask, exec."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pincer_trace.gateway.tasks import Impostor, Tasks, Unreadable
from pincer_trace.kernel import procfs
from pincer_trace.kernel.notify import Gone

PAGE = mmap.PAGESIZE
AT = -100
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def another_process():
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


def native_errno(address: int) -> int:
    """What the kernel says of a path at `address`."""
    ctypes.set_errno(0)
    got = libc.access(ctypes.c_void_p(address), 0)
    return ctypes.get_errno() if got else 0


@pytest.fixture
def pages():
    """Two mapped pages with nothing behind them: the address of the hole."""
    start = libc.mmap(None, 3 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(start + 2 * PAGE, PAGE)
    yield start + 2 * PAGE
    libc.munmap(start, 2 * PAGE)


# -- paths in memory -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.one_of(st.integers(0, 20), st.integers(240, 270), st.integers(4085, 4100)), before_end=st.booleans(),
       gap=st.integers(0, 5), ends=st.booleans())  # fmt: skip
def test_p36_a_path_at_the_end_of_a_page(bench, pages, length, before_end, gap, ends):
    task = bench.task()
    text = (b"./" * 2100)[:length]
    whole = text + b"\0" if ends else text
    address = pages - len(whole) - (gap if before_end and ends else 0)
    ctypes.memmove(address, whole, len(whole))
    expected = native_errno(address)
    if expected in (errno.EFAULT, errno.ENAMETOOLONG):
        with pytest.raises(OSError) as failure:
            bench.tasks.read_path(task, address)
        assert failure.value.errno == expected
    else:
        assert bench.tasks.read_path(task, address) == text


@pytest.mark.parametrize(
    "address", [0, 1, 8, 0xDEAD0000, (1 << 47) - 1, 1 << 47, 1 << 55, 1 << 56, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
                (1 << 64) - 4096]
)  # fmt: skip
def test_bad_pointers(bench, address):
    task = bench.task()
    for read in (lambda: bench.tasks.read_path(task, address), lambda: bench.tasks.read_bytes(task, address, 24)):
        with pytest.raises(OSError) as failure:
            read()
        assert failure.value.errno == errno.EFAULT


def test_bytes_that_cross_into_nothing(bench, pages):
    task = bench.task()
    ctypes.memset(pages - 2 * PAGE, 65, 2 * PAGE)
    assert bench.tasks.read_bytes(task, pages - 2 * PAGE, 2 * PAGE) == b"A" * 2 * PAGE
    with pytest.raises(OSError) as failure:
        bench.tasks.read_bytes(task, pages - 23, 24)
    assert failure.value.errno == errno.EFAULT
    assert bench.tasks.read_bytes(task, pages, 0) == b""


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"\x01", b" ", b"\xed\xa0\x80", b"\\x41"])
def test_a_path_is_bytes(bench, work, name):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    answer = bench.call("openat", AT, name, os.O_RDWR, 0)
    assert answer.succeeded
    assert os.path.samestat(os.fstat(answer.value), os.stat(name))
    [record] = bench.records("intent")
    assert record["path"].encode("utf-8", "surrogateescape") == os.fsencode(work) + b"/" + name


# -- the end of a task ---------------------------------------------------------------------------------------


def test_p2_a_number_that_came_round_again_is_not_believed(bench):
    """The task is replaced between the opening of its memory and the question whether it still waits."""
    bench.tasks.drop(threading.get_native_id())
    before = descriptors()
    bench.listener.before("valid", False)
    answer = bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    assert answer.error == errno.EACCES
    assert not answer.numbers
    assert descriptors() == before
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded  # the entry was not kept


def test_p2_the_question_comes_after_the_opening(bench, monkeypatch):
    """Were it asked first, a number that comes round in between would pass."""
    bench.tasks.drop(threading.get_native_id())
    order = []
    real = os.open

    def opened(path, *rest, **more):
        if str(path).endswith("/mem"):
            order.append("open")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", opened)
    bench.listener.before("valid", lambda: order.append("valid"))
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded
    assert order == ["open", "valid"]


def test_a_killed_task_is_gone_and_nothing_is_kept(bench):
    with subprocess.Popen(["true"]) as process:
        child = process.pid
    before = descriptors()
    answer = bench.call("openat", AT, b"file", os.O_RDONLY, 0, tid=child)
    assert answer.error == errno.EACCES
    assert descriptors() == before
    with pytest.raises(Gone):
        bench.tasks.get(child, answer.identity)


def test_killed_before_the_descriptor_arrives(bench):
    bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    before = descriptors()
    for call in (
        ("openat", AT, b"file", os.O_RDONLY, 0),
        ("openat", AT, b"file", os.O_RDWR | os.O_TRUNC, 0),
        ("openat", AT, b"made", os.O_RDWR | os.O_CREAT, 0o644),
        ("openat", AT, b".", os.O_RDWR | os.O_TMPFILE, 0o644),
    ):
        bench.listener.before("inject", bench.listener.kill)
        answer = bench.send(*call)
        assert not answer.answered, call
        assert not answer.numbers, call
    assert descriptors() == before
    assert os.path.getsize("file") > 0  # nothing is destroyed, nothing left behind, for a worker that is gone
    assert not os.path.exists("made")


def test_a_task_outside_of_our_namespace(bench):
    answer = bench.call("openat", AT, b"file", os.O_RDONLY, 0, tid=0)
    assert answer.error == errno.EACCES
    [record] = bench.records("denied")
    assert "namespace" in record["reason"]


def test_p65_unreadable_memory_is_a_refusal(bench, monkeypatch):
    bench.tasks.drop(threading.get_native_id())
    real = os.open

    def refuse(path, *rest, **more):
        if str(path).endswith("/mem"):
            raise PermissionError(errno.EACCES, "mem")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    answer = bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    assert answer.error == errno.EACCES
    assert "cannot be read" in bench.records("denied")[0]["reason"]
    bench.listener.before("valid", False)  # and a task that ended meanwhile is no unreadable one
    with pytest.raises(Gone):
        bench.task()
    bench.listener.forget()
    with pytest.raises(Unreadable):
        bench.task()


def test_an_entry_expires(bench, monkeypatch):
    task = bench.task()
    assert bench.task() is task
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 1.5)
    opened = descriptors()
    assert bench.task() is not task
    assert task.mem == task.pidfd == task.cwd == -1
    assert len(descriptors()) <= len(opened)


def test_the_lifetime_is_below_the_shortest_cycle_of_numbers(bench):
    with open("/proc/sys/kernel/pid_max") as limit:
        assert 0 < bench.tasks._lifetime <= int(limit.read()) / 100_000


def test_the_table_is_bounded(bench):
    tasks = Tasks(bench.listener, limit=4)
    before = descriptors()
    with contextlib.ExitStack() as stack:
        for _ in range(7):
            child = stack.enter_context(another_process())
            tasks.get(child.pid, bench.listener.notify("getpid", tid=child.pid).identity)
            bench.listener._script.clear()
    assert len(tasks._table) == 4
    tasks.close()
    assert descriptors() == before


# -- directory and umask -------------------------------------------------------------------------------------


def test_the_directory_is_looked_up_again_after_chdir(bench, work):
    first = bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    assert bench.call("chdir", b"dir").resume == "FloorHolds"
    os.chdir("dir")
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).error == errno.ENOENT
    second = bench.call("openat", AT, b"inner", os.O_RDONLY, 0)
    assert second.succeeded
    assert first.succeeded
    place = os.open("..", os.O_RDONLY)
    assert bench.call("fchdir", place).resume == "FloorHolds"
    os.fchdir(place)
    os.close(place)
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded


def test_a_process_with_threads_shares_its_directory(bench, work):
    """The CONTINUEd chdir happens later than our look: of a process with threads the directory is never kept."""
    bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    assert bench.call("chdir", b"dir").resume  # this process has the bench's threads
    bench.call("openat", AT, b"file", os.O_RDONLY, 0)  # another thread's call, before the chdir has run
    os.chdir("dir")
    assert bench.call("openat", AT, b"inner", os.O_RDONLY, 0).succeeded
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).error == errno.ENOENT


def test_the_umask_is_the_workers(bench, work):
    bench.call("openat", AT, b"one", os.O_RDWR | os.O_CREAT, 0o666)
    assert os.stat("one").st_mode & 0o777 == 0o644
    assert bench.call("umask", 0o077).resume == "RegistersOnly"
    os.umask(0o077)
    bench.call("openat", AT, b"two", os.O_RDWR | os.O_CREAT, 0o666)
    bench.call("mkdirat", AT, b"folder", 0o777)
    bench.call("mknodat", AT, b"node", 0o010666, 0)
    assert os.stat("two").st_mode & 0o777 == 0o600
    assert os.stat("folder").st_mode & 0o777 == 0o700
    assert os.stat("node").st_mode & 0o777 == 0o600


# -- exec ----------------------------------------------------------------------------------------------------


def test_p42_another_program_than_the_one_that_was_judged(bench):
    with another_process() as child:
        identity = bench.listener.notify("getpid", tid=child.pid).identity
        bench.listener._script.clear()
        task = bench.tasks.get(child.pid, identity)
        settled, image = bench.tasks.starts.settled, _image(child.pid)
        bench.tasks.executes(task.tid, task.tgid, 0, 7, frozenset({image}), (0, 0))
        before = descriptors()
        task = bench.tasks.get(child.pid, identity)  # it runs what it should
        assert settled == [(7, 0, "")]
        bench.tasks.executes(task.tid, task.tgid, 0, 8, frozenset({(1, 1)}), image)
        bench.tasks.get(child.pid, identity)  # the kernel did not start it
        assert settled == [(7, 0, ""), (8, errno.ECANCELED, "")]
        bench.tasks.executes(task.tid, task.tgid, 0, 9, frozenset({(1, 1)}), (0, 0))
        with pytest.raises(Impostor):
            bench.tasks.get(child.pid, identity)
        assert settled[2:] == [(9, errno.EACCES, "")]
        assert descriptors() <= before


def test_p42_a_program_that_makes_no_call_is_looked_at(bench, monkeypatch):
    """By another thread, after a while; what ran before may still be on its way, and a number may be another's."""
    with another_process() as child:
        starts, image, born = bench.tasks.starts, _image(child.pid), procfs.stat(child.pid).start
        starts.expect(child.pid, child.pid, born, 1, frozenset({image}), (0, 0))
        assert starts.overdue() == ([], []), "too early"
        monkeypatch.setattr("pincer_trace.gateway.starts._PATIENCE", 0.0)
        assert starts.overdue() == ([(1, 0, "")], []) and not starts.awaited
        starts.expect(child.pid, child.pid, born, 2, frozenset({(1, 1)}), image)
        assert starts.overdue() == ([], []) and starts.awaited == {child.pid}
        starts.expect(child.pid, child.pid, born, 3, frozenset({(1, 1)}), (0, 0))
        settled, [(process, pid, path)] = starts.overdue()
        os.close(process)
        assert (settled, pid, path) == ([(3, errno.EACCES, "")], child.pid, os.readlink(b"/proc/%d/exe" % child.pid))
        starts.expect(child.pid, child.pid, born, 4, frozenset({(1, 1)}), (0, 0))
        monkeypatch.setattr("pincer_trace.kernel.procfs.stat", lambda _: SimpleNamespace(start=born + 1))
        assert starts.overdue() == ([], [])
        starts.finish()
        assert starts.settled == [(2, 0, "not verified"), (4, 0, "not verified")]


def _image(pid):
    found = os.stat(f"/proc/{pid}/exe")
    return found.st_dev, found.st_ino


def test_p42_an_impostor_is_killed_and_refused(bench):
    with another_process() as child:
        identity = bench.listener.notify("getpid", tid=child.pid).identity
        bench.listener._script.clear()
        task = bench.tasks.get(child.pid, identity)
        bench.tasks.executes(task.tid, task.tgid, 0, 3, frozenset({(1, 1)}), (0, 0))
        answer = bench.call("openat", AT, b"file", os.O_RDONLY, 0, tid=child.pid)
        assert answer.error == errno.EACCES
        assert child.wait(5) == -signal.SIGKILL
    assert [record["effect"] for record in bench.records("denied")] == ["exec"]
    assert [record["outcome"] for record in bench.records("outcome")] == ["EACCES"]


def test_p42_an_exec_is_recorded_before_and_settled_after(bench):
    """The image is this process's own, which is what runs afterwards here: the exec is not run by the fake kernel."""
    answer = bench.call("execve", b"/proc/self/exe", 0, 0)
    assert answer.resume == "VerifiedAfter"
    [intent] = bench.records("intent")
    assert intent["effect"] == "exec"
    assert bench.records("outcome") == []
    bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    bench.call("openat", AT, b"file", os.O_RDONLY, 0)
    [outcome] = bench.records("outcome")
    assert (outcome["of"], outcome["outcome"]) == (intent["seq"], "done")
