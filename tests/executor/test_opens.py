"""The open family on a scripted kernel: what is answered and recorded, what the worker is given, and the races."""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading

import pytest

AT = -100
RDONLY, WRONLY, RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
TRUNC, CREAT, EXCL = os.O_TRUNC, os.O_CREAT, os.O_EXCL


def content(answer) -> bytes:
    return os.pread(answer.numbers[0], 100, 0)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_read_gives_the_file(bench):
    answer = bench.call("openat", AT, b"file", RDONLY, 0)
    assert answer.succeeded
    assert answer.value == answer.numbers[0]
    assert content(answer) == b"content of file\n"
    assert os.get_inheritable(answer.value)
    assert bench.records() == []  # allowed reads are counted, and recorded in bulk
    bench.reads.finish()
    assert [record["count"] for record in bench.records("reads")] == [1]


def test_cold_and_hot_give_the_same(bench):
    bench.tasks.directory(bench.task())
    answers = [bench.call("openat", AT, b"file", RDONLY | os.O_CLOEXEC, 0) for _ in range(3)]
    assert [content(answer) for answer in answers] == [b"content of file\n"] * 3
    assert not any(os.get_inheritable(answer.value) for answer in answers)
    bench.reads.finish()
    assert [record["count"] for record in bench.records("reads")] == [3]


# -- P13: a worker that cannot take its descriptor ------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EINTR, errno.EBADF, errno.EBUSY, errno.ENOMEM, errno.EINVAL])
def test_p13_an_injection_that_fails_is_that_errno(bench, number):
    bench.call("openat", AT, b"file", RDONLY, 0)
    bench.call("openat", AT, b"file", RDWR, 0)
    before = descriptors()
    for call in (
        ("openat", AT, b"file", RDONLY, 0),
        ("openat", AT, b"dir/inner", RDONLY, 0),
        ("openat", AT, b"file", RDWR, 0),
        ("openat", AT, b"file", WRONLY | TRUNC, 0),
        ("openat", AT, b"made", WRONLY | CREAT, 0o644),
        ("openat", AT, b".", RDWR | os.O_TMPFILE, 0o600),
        ("openat", AT, b"/dev/null", RDWR, 0),
        ("openat", AT, b"/proc/self/status", RDONLY, 0),
    ):
        bench.listener.before("inject", OSError(number, "scripted"))
        answer = bench.call(*call)
        assert answer.error == number, call
        assert descriptors() == before, call
    assert os.path.getsize("file")
    assert not os.path.exists("made")
    intents = {record["seq"] for record in bench.records("intent")}
    assert {record["of"] for record in bench.records("outcome")} == intents
    assert not bench.records("failure")


def test_p13_the_outcome_of_a_failed_injection_is_its_errno(bench):
    for call in (
        ("openat", AT, b"file", RDWR, 0),
        ("openat", AT, b"file", WRONLY | TRUNC, 0),
        ("openat", AT, b"made", WRONLY | CREAT, 0o644),
        ("openat", AT, b".", RDWR | os.O_TMPFILE, 0o600),
    ):
        bench.listener.before("inject", OSError(errno.EMFILE, "scripted"))
        bench.call(*call)
        assert bench.records("outcome")[-1]["outcome"] == "EMFILE", call


def test_p13_a_name_that_was_replaced_is_not_taken_back(bench):
    """Between the creation and the failed injection somebody puts another file there: it is not ours to remove."""

    def replace() -> None:
        with open("theirs", "w") as file:
            file.write("theirs")
        os.rename("theirs", "made")
        raise OSError(errno.EMFILE, "scripted")

    bench.listener.before("inject", replace)
    assert bench.call("openat", AT, b"made", WRONLY | CREAT, 0o644).error == errno.EMFILE
    with open("made") as file:
        assert file.read() == "theirs"


# -- the world changes between the pin and the act -------------------------------------------------------------


def test_p21_what_was_pinned_is_what_is_opened(bench, monkeypatch):
    """The name leads to a secret by the time of the open: the pinned file is opened all the same."""
    real = bench.authority.demand

    def demand(*arguments, **more):
        decision = real(*arguments, **more)
        os.unlink("file")
        os.symlink("secret/key", "file")
        return decision

    monkeypatch.setattr(bench.authority, "demand", demand)
    answer = bench.call("openat", AT, b"file", RDONLY, 0)
    assert content(answer) == b"content of file\n"


@pytest.mark.parametrize("planted", ["secret/key", "nothing"])
def test_p19_a_link_planted_at_a_new_name_is_not_followed(bench, monkeypatch, planted):
    """Judged as a creation; a link is there by the time of the open. It is judged anew, as what it leads to."""
    real = bench.authority.intend
    calls = []

    def intend(task, effect, target, *rest):
        calls.append((effect, target.path))
        if len(calls) == 1:
            os.symlink(os.path.abspath(planted), "made")
        return real(task, effect, target, *rest)

    monkeypatch.setattr(bench.authority, "intend", intend)
    answer = bench.call("openat", AT, b"made", RDWR | CREAT | TRUNC, 0o644)
    with open("secret/key") as file:
        assert file.read() == "content of secret/key\n"
    if planted == "nothing":
        assert answer.succeeded
        assert [path.rpartition(b"/")[2] for _, path in calls] == [b"made", b"nothing"]
    else:
        assert answer.error == errno.EACCES
    outcomes = bench.records("outcome")
    assert outcomes[0]["outcome"] == "EEXIST"


def test_p19_with_o_excl_the_planted_link_is_eexist(bench, monkeypatch):
    real = bench.authority.intend

    def intend(*arguments):
        os.symlink("nothing", "made")
        return real(*arguments)

    monkeypatch.setattr(bench.authority, "intend", intend)
    assert bench.call("openat", AT, b"made", RDWR | CREAT | EXCL, 0o644).error == errno.EEXIST
    assert not os.path.exists("nothing")


def test_p1_the_path_is_copied_once(bench, monkeypatch):
    """The worker's memory is rewritten right after it was read: nothing of the new text is used."""
    import ctypes

    buffer = ctypes.create_string_buffer(b"file", 64)
    real = bench.tasks.read_path

    def read_path(task, address):
        path = real(task, address)
        buffer.value = b"secret/key"
        return path

    monkeypatch.setattr(bench.tasks, "read_path", read_path)
    answer = bench.call("openat", AT, buffer, RDWR, 0)
    assert content(answer) == b"content of file\n"
    assert bench.listener.uses.get("inject") == 1


# -- denials -------------------------------------------------------------------------------------------------

DENIED = [
    ("openat", AT, b"secret/key", RDONLY, 0),
    ("openat", AT, b"secret/key", WRONLY | TRUNC, 0),
    ("openat", AT, b"to-secret", RDWR | CREAT, 0o644),
    ("openat", AT, b"asked/hook", WRONLY, 0),
    ("openat", AT, b"secret/new", RDWR | CREAT, 0o644),
    ("open", b"secret/key", RDONLY, 0),
    ("creat", b"asked/hook", 0o644),
    ("openat2", AT, b"secret/key", struct.pack("=3Q", 0, 0, 0), 24),
    ("mkdir", b"secret/new", 0o755),
    ("unlink", b"asked/hook"),
    ("rename", b"secret/key", b"out"),
    ("link", b"secret/key", b"out"),
    ("symlink", b"x", b"asked/link"),
    ("chmod", b"secret/key", 0o777),
    ("truncate", b"secret/key", 0),
    ("execve", b"secret/key", 0, 0),
    ("openat", AT, b"shared/foreign", RDWR, 0),
]


@pytest.mark.parametrize("call", DENIED, ids=[f"{c[0]} {c[2] if c[0].startswith('openat') else c[1]}" for c in DENIED])
def test_p9_a_denial_is_an_errno_and_nothing_else(bench, call):
    before = descriptors()
    answer = bench.call(*call)
    assert (answer.error, answer.value, answer.resume, answer.numbers) == (errno.EACCES, 0, "", [])
    assert answer.late == 0
    [record] = bench.records()
    assert record["kind"] == "denied"
    assert descriptors() - before == set() or bench.tasks._table  # what a task keeps


def test_a_confirmation_is_a_refusal_that_says_so(bench):
    assert bench.call("openat", AT, b"asked/hook", WRONLY, 0).error == errno.EACCES
    [record] = bench.records()
    assert record["verdict"] == "confirm"
    assert "nobody can be asked" in record["reason"]


def test_confirm_auto_allows_what_asks_and_no_more(make_bench):
    bench = make_bench(confirm_all=True)
    assert bench.call("openat", AT, b"asked/hook", WRONLY, 0).succeeded
    assert bench.records("intent")[0]["verdict"] == "confirm"
    assert bench.call("openat", AT, b"secret/key", WRONLY, 0).error == errno.EACCES


def test_a_full_log_stops_effects_and_not_reads(bench, monkeypatch):
    from pincer_trace.ledger import LedgerFull

    def full(*_arguments, **_more):
        raise LedgerFull(errno.ENOSPC)

    monkeypatch.setattr(type(bench.session.ledger), "_append", full)
    assert bench.call("openat", AT, b"file", RDONLY, 0).succeeded
    for call in (
        ("openat", AT, b"file", WRONLY | TRUNC, 0), ("openat", AT, b"made", WRONLY | CREAT, 0o644),
        ("unlink", b"file"), ("mkdir", b"made", 0o755), ("openat", AT, b"secret/key", RDONLY, 0),
        ("execve", b"/bin/sh", 0, 0), ("chmod", b"file", 0),
    ):  # fmt: skip
        assert bench.call(*call).error == errno.EACCES, call
    assert os.path.getsize("file")
    assert not os.path.exists("made")


# -- opens that wait -----------------------------------------------------------------------------------------


def test_p14_a_fifo_waits_beside_the_loop(bench):
    waiting = bench.send("openat", AT, b"fifo", RDONLY, 0)
    assert not waiting.answered
    assert bench.call("openat", AT, b"file", RDONLY, 0).succeeded  # nobody else waits
    writer = bench.send("openat", AT, b"fifo", WRONLY, 0)
    assert bench.listener.join(waiting).succeeded
    assert bench.listener.join(writer).succeeded
    os.write(writer.value, b"through")
    assert os.read(waiting.value, 7) == b"through"
    assert [record["outcome"] for record in bench.records("outcome")] == ["done"]


def test_p14_the_end_of_the_caller_breaks_it_off(bench):
    bench.call("openat", AT, b"file", RDONLY, 0)
    before = descriptors()
    answer = bench.send("openat", AT, b"fifo", WRONLY, 0)
    assert bench.blocking.waiting() == 1
    bench.listener.kill(answer.identity)
    for _ in range(200):
        if not bench.blocking.waiting():
            break
        threading.Event().wait(0.02)
    assert bench.blocking.waiting() == 0
    assert descriptors() == before
    [outcome] = bench.records("outcome")
    assert outcome["outcome"] != "done"


def test_p96_the_watch_over_held_opens_survives_a_failure(bench, monkeypatch):
    """One look fails in a way that nobody foresaw: the next must still find that the caller is gone."""
    from pincer_trace.kernel import procfs

    real = procfs.status
    failed = threading.Event()

    def status(tid):
        if threading.current_thread().name == "held" and not failed.is_set():
            failed.set()
            raise MemoryError
        return real(tid)

    monkeypatch.setattr(procfs, "status", status)
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    answer = bench.send("openat", AT, b"fifo", RDONLY, 0)
    assert failed.wait(5)
    bench.listener.kill(answer.identity)
    for _ in range(100):
        if not bench.blocking.waiting():
            break
        threading.Event().wait(0.02)
    assert bench.blocking.waiting() == 0


@pytest.mark.parametrize("method", ["inject", "respond"])
@pytest.mark.parametrize("error", [RuntimeError("scripted"), MemoryError(), OSError(errno.EMFILE, "scripted")])
def test_p96_a_waiting_open_that_fails_is_answered(bench, method, error):
    answer = bench.send("openat", AT, b"fifo", WRONLY, 0)
    bench.listener.before(method, error)
    other = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        bench.listener.join(answer, 3)
    finally:
        os.close(other)
    assert answer.error or method == "respond"
    assert bench.records("outcome") or bench.records("failure")


@pytest.mark.parametrize("kind", ["full", "no thread"])
@pytest.mark.parametrize("name", [b"fifo", b"file"], ids=["fifo", "leased"])
def test_an_open_that_cannot_wait_has_one_outcome(bench, monkeypatch, kind, name):
    """The place that is full, or the process limit: the intent gets its outcome once, or the ledger is not whole."""
    import fcntl
    import signal

    from pincer_trace.executor import blocking

    holder = os.open("file", os.O_RDONLY)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    if kind == "full":
        monkeypatch.setattr(blocking, "_LIMIT", 0)
    else:

        def start(_thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(blocking.threading.Thread, "start", start)
    try:
        assert bench.call("openat", AT, name, WRONLY, 0).error == errno.EAGAIN
    finally:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, before)
        os.close(holder)
    intents = [record["seq"] for record in bench.records("intent")]
    assert [(record["of"], record["outcome"]) for record in bench.records("outcome")] == [(intents[-1], "EAGAIN")]


# -- the descriptor that arrives -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags", [RDONLY, WRONLY, RDWR, RDWR | os.O_APPEND, RDONLY | os.O_NONBLOCK, WRONLY | TRUNC, RDONLY | CREAT,
              RDWR | CREAT, RDWR | os.O_CLOEXEC, RDONLY | os.O_DIRECTORY]
)  # fmt: skip
@pytest.mark.parametrize("name", [b"file", b"link", b"dir", b"absent", b"dangling", b"dir/", b"file/", b"dir/inner/.."])
def test_p11_flags_and_errno_are_the_native_ones(bench, work, populated, name, flags):
    import fcntl
    import shutil

    def state(number: int):
        found = os.fstat(number)
        names = sorted(os.listdir("."))
        got = fcntl.fcntl(number, fcntl.F_GETFL) & ~(os.O_NOFOLLOW | os.O_DIRECTORY)
        return got, os.get_inheritable(number), stat.filemode(found.st_mode), found.st_size, names

    try:
        number = os.open(name, flags, 0o640)  # sets close-on-exec, so that one is not compared
        natively = state(number)
        os.close(number)
    except OSError as error:
        natively = error.errno
    for entry in os.listdir(work):
        path = work / entry
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    populated(work)
    answer = bench.call("openat", AT, name, flags, 0o640)
    ours = answer.error or state(answer.value)
    if isinstance(natively, tuple) and isinstance(ours, tuple):
        assert ours[1] == (not flags & os.O_CLOEXEC)
        assert ours[:1] + ours[2:] == natively[:1] + natively[2:]
    else:
        assert ours == natively
