"""Children that enter the caller's namespaces."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from pincer_trace.executor import namespaces
from pincer_trace.kernel import procfs


def test_p68_nothing_is_served_while_a_copy_of_our_memory_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks like a process of the run, whose environment and memory the run may open. Here it leaves slowly."""
    leave, fork = os._exit, os.fork
    born: list[int] = []

    def noted() -> int:
        number = fork()
        born.append(number)
        return number

    def slowly(status: int) -> None:
        time.sleep(0.3)
        leave(status)

    monkeypatch.setattr(os, "fork", noted)
    monkeypatch.setattr(os, "_exit", slowly)
    with subprocess.Popen(["unshare", "-U", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as elsewhere:
        assert elsewhere.stdin is not None
        assert elsewhere.stdout is not None
        elsewhere.stdin.write(b"\n")
        elsewhere.stdin.flush()
        if not elsewhere.stdout.read(1):
            pytest.skip("no user namespaces here")
        opened = namespaces.open_inside(elsewhere.pid, b"/proc/%d/uid_map" % elsewhere.pid, os.O_RDONLY)
        pages = procfs.read(f"/proc/{born[0]}/statm").split()[0]
        os.close(opened)
    assert os.waitpid(born[0], 0) == (born[0], 0)
    assert pages == b"0", "its memory is still there"
