"""The ledger's lines: what they say, that none is lost or mixed, and that a full log denies."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pincer_trace.ledger import LedgerFull, summary
from pincer_trace.ledger.read import KEYS, TORN, decisions, raw, read_records


def lines(session):
    with open(os.path.join(session.path, "ledger.jsonl"), "rb") as file:
        return [json.loads(line) for line in file]


def descriptors():
    return {int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def test_intent_is_on_disk_before_the_effect_and_outcome_after(make, allow):
    session = make()
    seq = session.ledger.intent("write", b"/tree/a", **allow)
    (intent,) = lines(session)
    assert intent["seq"] == seq == 1
    assert {k: intent[k] for k in ("kind", "pid", "exe", "effect", "path", "dev", "ino")} == {
        "kind": "intent", "pid": 7, "exe": "/bin/sh", "effect": "write", "path": "/tree/a",
        "dev": 1, "ino": 2,
    }  # fmt: skip
    assert (intent["verdict"], intent["rule"], intent["reason"], intent["votes"]) == (
        "allow", "default.toml:3", "the work tree", [],
    )  # fmt: skip
    session.ledger.outcome(seq, 0, "same inode")
    assert lines(session)[1] | {"time": 0, "chain": ""} == {
        "seq": 2, "time": 0, "kind": "outcome", "of": 1, "outcome": "done", "post": "same inode", "chain": "",
    }  # fmt: skip
    assert session.ledger.allowed == 1


def test_every_kind_and_the_counters(make, allow, deny):
    ledger = make().ledger
    ledger.outcome(ledger.intent("rename", b"/a", extra={"to": b"/\xff", "flags": 1}, **allow), errno.ENOSPC)
    ledger.denied("write", b"/k", **deny)
    ledger.failure("gateway", ValueError("a\nb"), pid=9)
    ledger.reads([(b"/bin/cat", b"/etc/passwd", 8, 9, 40, 5.25, "default.toml:1"), (b"", b"/x", 1, 1, 2, 6.0, "")])
    session = ledger._session
    assert (ledger.allowed, ledger.denials, ledger.failures, ledger.read_calls) == (1, 1, 1, 42)
    ledger.close(3, 2)
    records = lines(session)
    assert [r["kind"] for r in records] == ["intent", "outcome", "denied", "failure", "reads", "reads", "end", "head"]
    assert records[1]["outcome"] == "ENOSPC"
    assert (records[2]["outcome"], records[3]["outcome"]) == ("EACCES", "EACCES")
    assert records[3]["reason"] == "the supervisor failed in gateway: ValueError: a\nb"
    assert (records[4]["count"], records[4]["first"]) == (40, 5.25)
    assert (records[6]["exit"], records[6]["leftover"]) == (3, 2)
    found = list(decisions(session.path))
    assert [d["seq"] for d in found] == [1, 3, 4, 5, 6]
    assert all(tuple(d)[: len(KEYS)] == KEYS for d in found)
    assert raw(found[0]["extra"]["to"]) == b"/\xff" and found[0]["outcome"] == "ENOSPC"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.binary(max_size=4095), st.binary(max_size=200), st.text(max_size=100))
@example(b'/tmp/\n{"seq":9,"kind":"intent"}\n\x1b]0;x\x07\xff', b"/bin/\xfe\n", "\ud800")
@example(b"/" + b"\xff" * 4094, b"/" + b"\xc3" * 199, "x\ny")
def test_foreign_bytes_come_back_and_never_break_a_line(make, tmp_path, path, exe, reason):
    session = make()
    arguments = {"pid": 1, "dev": 0, "ino": 0, "verdict": "deny", "rule": "r"}
    session.ledger.denied("write", path, exe=exe, reason=reason, **arguments)
    session.ledger.intent("write", path, exe=exe, reason=reason, **arguments)
    session.ledger.reads([(exe, path, 0, 0, 1, 0.0, "r")])
    found = list(read_records(session.path))
    session.ledger.close(0, 0)
    assert [r["kind"] for r in found] == ["denied", "intent", "reads"]
    assert all(raw(r["path"]) == path and raw(r["exe"]) == exe for r in found)
    assert found[0]["reason"] == found[1]["reason"] == reason


def test_eight_threads_write_whole_lines_in_sequence(make, allow, deny):
    session = make()
    ledger = session.ledger
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for i in range(200):
            path = b"/%d/%d/" % (number, i) + b"x" * (i * 7)
            ledger.outcome(ledger.intent("write", path, **allow), 0)
            ledger.denied("write", path, **deny)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = lines(session)
    assert [r["seq"] for r in records] == list(range(1, 8 * 600 + 1))
    found = list(decisions(session.path))
    assert len(found) == 3200 and {d["outcome"] for d in found} == {"done", "EACCES"}
    assert {d["path"][:3] for d in found} == {f"/{n}/" for n in range(8)}
    assert (ledger.allowed, ledger.denials) == (1600, 1600)


_FULL = """
import os, resource, sys
from pincer_trace.ledger import LedgerFull, Session
facts = dict(command=[], profile_name="p", profile_digest=b"", workspace=b"/", details={})
session = Session.create(Session.reserve(sys.argv[1]), **facts)
ledger = session.ledger
allow = dict(pid=1, exe=b"/e", dev=1, ino=1, verdict="allow", rule="r", reason="")
size = lambda: os.path.getsize(session.path + "/ledger.jsonl")
seq = ledger.intent("write", b"/a", **allow)
resource.setrlimit(resource.RLIMIT_FSIZE, (size() + 20, resource.RLIM_INFINITY))  # the next line fits in part
before = size()
for write in (
    lambda: ledger.intent("write", b"/b", **allow),
    lambda: ledger.denied("write", b"/b", **allow),
    lambda: ledger.failure("x", ValueError(), pid=1),
    lambda: ledger.reads([(b"/e", b"/b", 1, 1, 1, 0.0, "r")]),
):
    try:
        write()
    except LedgerFull as error:
        print(type(error).__name__, error.errno)
    assert size() == before, "a torn line was left"
ledger.outcome(seq, 0)
print(ledger.allowed, ledger.denials, ledger.unrecorded)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(ledger.intent("write", b"/c", **allow))
ledger.close(0, 0)
print(session.path)
"""


def test_p35_a_full_log_refuses_and_goes_on_whole_when_there_is_room(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    *full, counters, seq, path = done.stdout.splitlines()
    assert full == [f"LedgerFull {errno.ENOSPC}"] * 4
    assert counters == "1 1 5" and seq == "2"
    found = list(decisions(path))
    assert [(d["path"], d["outcome"]) for d in found] == [("/a", "unknown"), ("/c", "unknown")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tiny tmpfs needs root")
def test_a_full_file_system_refuses(tmp_path, make, allow):
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False)
    if mount.returncode:
        pytest.skip("no mount in this container")
    try:
        session = make(tmp_path)
        count = 0
        with pytest.raises(LedgerFull) as full:
            while count < 5000:
                session.ledger.intent("write", b"/a" * 50, **allow)
                count += 1
        assert full.value.errno == errno.ENOSPC
        assert 50 < count == session.ledger.allowed
        records = list(read_records(session.path))
        assert [r["seq"] for r in records] == list(range(1, count + 1))
        session.ledger.close(0, 0)  # no room for the end: the run's exit status must not suffer
    finally:
        subprocess.run(["umount", tmp_path], check=True)


_KILLED = """
import os, sys
from pincer_trace.ledger import Session
facts = dict(command=[], profile_name="p", profile_digest=b"", workspace=b"/", details={})
session = Session.create(Session.reserve(sys.argv[1]), **facts)
allow = dict(pid=1, exe=b"/e", dev=1, ino=1, verdict="allow", rule="r", reason="")
print(session.path, flush=True)
while True:
    seq = session.ledger.intent("write", b"/a", **allow)
    os.write(1, b"%d\\n" % seq)
    session.ledger.outcome(seq, 0)
"""


def test_p5_kill_loses_no_record_of_what_was_announced(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    path = child.stdout.readline().decode().rstrip("\n")
    for _ in range(500):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    seen = [int(line) for line in child.stdout.read().split(b"\n") if line]
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    records = list(read_records(path))
    intents = [r["seq"] for r in records if r["kind"] == "intent"]
    assert intents[-1] >= max(seen, default=0)
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))


def test_a_torn_tail_is_reported_and_the_rest_read(make, allow):
    session = make()
    for name in (b"/a", b"/b"):
        session.ledger.outcome(session.ledger.intent("write", name, **allow), 0)
    session.ledger.close(0, 0)
    ledger = os.path.join(session.path, "ledger.jsonl")
    with open(ledger, "rb") as file:
        whole = file.read().split(b"\n")[:4]
    with open(ledger, "wb") as file:
        file.write(b"\n".join(whole)[:-9])
    damage = []
    found = list(decisions(session.path, damage))
    assert [(d["path"], d["outcome"]) for d in found] == [("/a", "done"), ("/b", "unknown")]
    assert damage == [{"kind": TORN, "line": 4, "bytes": len(whole[3]) - 9}]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"nul",
        b"{",
        b"\xff",
        b'{"kind":"intent"}',
        b'{"seq":1}',
        b'{"seq":true,"kind":"x"}',
        b"[" * 99999,
    ],
)
def test_a_damaged_line_never_raises(make, deny, line):
    session = make()
    session.ledger.denied("write", b"/a", **deny)
    ledger = os.path.join(session.path, "ledger.jsonl")
    with open(ledger, "ab") as file:
        file.write(line + b"\n")
    session.ledger.denied("write", b"/b", **deny)
    damage = []
    assert [d["path"] for d in decisions(session.path, damage)] == ["/a", "/b"]
    assert [d["line"] for d in damage] == [2]


def test_an_open_intent_does_not_hide_or_reorder_later_ones(make, allow, deny):
    session = make()
    ledger = session.ledger
    first = ledger.intent("write", b"/slow", **allow)
    second = ledger.intent("write", b"/quick", **allow)
    ledger.denied("write", b"/no", **deny)
    ledger.outcome(second, errno.EEXIST)
    assert [d["outcome"] for d in decisions(session.path)] == ["unknown", "EEXIST", "EACCES"]
    ledger.outcome(first, 0)
    assert [d["outcome"] for d in decisions(session.path)] == ["done", "EEXIST", "EACCES"]


def test_outcomes_that_belong_to_nothing_are_ignored(make, deny):
    session = make()
    seq = session.ledger.denied("write", b"/a", **deny)
    session.ledger.outcome(seq, 0)
    session.ledger.outcome(99, 0)
    assert [d["outcome"] for d in decisions(session.path)] == ["EACCES"]


def test_files_are_private_whatever_the_umask(make, tmp_path):
    old = os.umask(0)
    try:
        session = make()
    finally:
        os.umask(old)
    assert os.stat(session.path).st_mode & 0o7777 == 0o700
    for name in ("ledger.jsonl", "session.json"):
        assert os.stat(os.path.join(session.path, name)).st_mode & 0o7777 == 0o600
    session.ledger.close(0, 0)
    assert sorted(os.listdir(session.path)) == ["ledger.jsonl", "session.json"]
    assert os.stat(os.path.join(session.path, "session.json")).st_mode & 0o7777 == 0o600


def test_nothing_is_inherited_and_nothing_left_open(make):
    before = descriptors()
    session = make()
    opened = descriptors() - before
    assert len(opened) == 2 and not any(os.get_inheritable(fd) for fd in opened)
    session.ledger.close(0, 0)
    session.ledger.close(0, 0)
    assert descriptors() == before


def test_the_memory_of_a_long_run_does_not_grow(make, allow):
    session = make()
    for _ in range(200):
        session.ledger.outcome(session.ledger.intent("write", b"/a", **allow), 0)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20000):
        session.ledger.outcome(session.ledger.intent("write", b"/a", **allow), 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 2048  # KiB


def test_one_intent_that_never_ended_does_not_hold_back_a_long_run(make, allow, deny, monkeypatch):
    monkeypatch.setattr("pincer_trace.ledger.read.LOOK_AHEAD", 20)
    session = make()
    ledger = session.ledger
    ledger.intent("write", b"/lost", **allow)
    slow = ledger.intent("write", b"/slow", **allow)
    for _ in range(50):
        ledger.denied("write", b"/no", **deny)
    ledger.outcome(slow, errno.EIO)
    found = decisions(session.path)
    assert next(found)["outcome"] == "unknown"
    assert next(found)["outcome"] == "EIO"
    assert [d["path"] for d in found] == ["/no"] * 50


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 0, 0, 0, 1, 0), "1 effect and 1 read allowed, 0 denied"),
        ((46, 2, 0, 0, 1203, 0), "46 effects and 1203 reads allowed, 2 denied"),
        ((1, 0, 4, 0, 1, 0), "1 effect and 1 read allowed, 0 denied, 4 expected refusals"),
        (
            (0, 2, 0, 3, 0, 1),
            "0 effects and 0 reads allowed, 5 denied (3 by failures of the supervisor), 1 line not",
        ),
    ],
)
def test_the_counters_in_words(counts, words):
    names = ("allowed", "denied", "expected", "failures", "reads", "unrecorded")
    assert summary(dict(zip(names, counts, strict=True))).startswith(words)
