"""`--durable`: each record is on the disk before its effect. Seen by strace, on the system calls themselves."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys

import pytest

import pincer_trace
from pincer_trace.ledger import Ledger, LedgerFull

ENVIRON = {
    "PYTHONPATH": os.path.dirname(os.path.dirname(pincer_trace.__file__)), "PATH": os.environ["PATH"],
    "PYTHONDONTWRITEBYTECODE": "1",  # which would be renames of its own
}  # fmt: skip
TRACED = "trace=fdatasync,fsync,write,pwrite64,writev,?mkdir,mkdirat,?rename,renameat,renameat2"
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing (Debian package strace)")

_SCRIPT = """
import os, sys
from pincer_trace.ledger import Session
session = Session.create(
    Session.reserve(sys.argv[1]), command=[], profile_name="p", profile_digest=b"", workspace=b"/", details={},
    durable=sys.argv[2] == "durable",
)
ledger = session.ledger
row = dict(pid=1, exe=b"/e", dev=1, ino=1, verdict="allow", rule="r", reason="")
for number in range(3):
    sequence = ledger.intent("mkdir", b"/a", **row)
    os.mkdir(f"{sys.argv[1]}/made{number}")
    ledger.outcome(sequence, 0)
ledger.denied("mkdir", b"/b", **row)
os.mkdir(f"{sys.argv[1]}/answered")
ledger.failure("x", ValueError(), pid=1)
os.mkdir(f"{sys.argv[1]}/failed")
ledger.sign()
os.mkdir(f"{sys.argv[1]}/signed")
ledger.close(0, 0)
"""


def events(trace):
    """What matters of a trace, in order: `intent`, `sync`, `mkdir NAME`, ..., of the process that writes the ledger."""
    with open(trace) as file:
        lines = file.read().splitlines()
    writer = next(line.split()[0] for line in lines if 'ledger.jsonl>, "{\\"seq\\":1,' in line)
    found = []
    for line in lines:
        pid, call = line.split(maxsplit=1)
        if pid != writer or "= -1 EEXIST" in call or "resumed>" in call:
            continue
        if "ledger.jsonl>" in call:
            kind = re.search(r'\\"kind\\":\\"(\w+)\\"', call)
            found.append("sync" if call.startswith("fdatasync") else kind[1] if kind else call)
        elif call.startswith(("fsync", "fdatasync")):
            found.append("sync " + re.search(r"<.*?([^/>]*)>", call)[1])
        elif call.startswith("mkdir"):
            found.append("mkdir " + re.search(r'"(?:[^"]*/)?([^"/]*)"', call)[1])
        elif call.startswith("rename"):
            found.append("rename")
    return found


def traced(tmp_path, words, **more):
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "200", "-e", TRACED, "-o", str(trace), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    return events(trace)


@needs_strace
def test_each_intent_and_refusal_is_synced_before_anything_follows(tmp_path):
    words = [sys.executable, "-c", _SCRIPT, str(tmp_path / "s")]
    (tmp_path / "s").mkdir()
    found = traced(tmp_path, [*words, "durable"], env=ENVIRON)
    begin = found.index("intent")
    start, rest = found[:begin], found[begin:]
    # the session's own files and both directories, before the first record
    assert start[1:] == ["sync .session.json.new", "rename", f"sync {start[0].removeprefix('mkdir ')}", "sync s"]
    assert rest[:12] == [word for n in range(3) for word in ("intent", "sync", f"mkdir made{n}", "outcome")]
    assert rest[12:21] == ["denied", "sync", "mkdir answered", "failure", "sync", "mkdir failed", "head", "sync",
                           "mkdir signed"]  # fmt: skip
    assert rest[21:] == ["end", "head", "sync", "sync .session.json.new", "rename", start[2 + 1]]
    (tmp_path / "n").mkdir()
    words[-1] = str(tmp_path / "n")
    assert not [word for word in traced(tmp_path, [*words, "plain"], env=ENVIRON) if word.startswith("sync")]


@needs_strace
@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees by which name the supervisor has a file open")
def test_a_supervised_effect_waits_for_its_record(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    environ = {**ENVIRON, "HOME": str(tmp_path / "home")}
    words = [sys.executable, "-m", "pincer_trace", "-q", "--session-dir", str(tmp_path / "s"), "--durable", "--"]
    found = traced(tmp_path, [*words, "mkdir", "made", "second"], env=environ, cwd=work)
    assert (work / "made").is_dir() and (work / "second").is_dir()
    for name in ("made", "second"):
        at = found.index(f"mkdir {name}")
        assert found[at - 2 : at + 2] == ["intent", "sync", f"mkdir {name}", "outcome"]
    assert found.count("intent") <= found.count("sync")


def test_what_cannot_be_synced_is_refused_from_then_on(make, allow, deny):
    """A pipe takes lines, and has no disk: fdatasync fails with EINVAL."""
    reader, writer = os.pipe()
    try:
        ledger = Ledger(writer, make(), durable=True)
        for write in (lambda: ledger.intent("write", b"/a", **allow), lambda: ledger.denied("write", b"/a", **deny)):
            with pytest.raises(LedgerFull) as full:
                write()
            assert full.value.errno == errno.EINVAL
        line = os.read(reader, 10_000)
        assert line.count(b"\n") == 1  # nothing is written any more behind a line that may be lost
        assert ledger.unrecorded == 2
    finally:
        os.close(reader)
        os.close(writer)
