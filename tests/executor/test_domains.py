"""Who is in a Landlock domain of its own: the marks of processes, and when one may be given out again (P64)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

from pincer_trace.executor import domains
from pincer_trace.kernel import procfs

MARK = 0x1AB
LEADERLESS = f"""
import ctypes, os, threading
open("/proc/self/coredump_filter", "w").write("{MARK}")
threading.Thread(target=lambda: (os.write(1, b"."), os.read(0, 1), os._exit(0))).start()
ctypes.CDLL(None).syscall({60 if os.uname().machine == "x86_64" else 93}, 0)  # of this thread alone
"""


def test_a_process_whose_first_thread_has_ended_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LEADERLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout and one.stdin and one.stdout.read(1) == b"."
        while procfs.stat(one.pid).state != b"Z":
            pass
        seen = domains.living_marks()
        one.stdin.write(b".")
    assert seen is None or MARK in seen


def test_nothing_is_known_while_processes_begin(monkeypatch) -> None:
    monkeypatch.setattr(procfs, "forks", itertools.count().__next__)
    assert domains.living_marks() is None
    monkeypatch.setattr(procfs, "forks", lambda: 7)
    assert int(procfs.read("/proc/self/coredump_filter"), 16) in (domains.living_marks() or ())
