"""Many threads of many processes at once: no error that native does not give, an answer for each, and no growth."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import pytest
import support
from attacks.kit import compiled
from hazards.programs.p_kit import Live

from pincer_trace.ledger.read import read_records


class Size(NamedTuple):
    """What the engine holds."""

    memory: int  # KiB
    threads: int
    descriptors: int


def size(pid: int) -> Size:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    descriptors = 0
    with contextlib.suppress(PermissionError):  # it is not dumpable: only root sees them
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Size(int(lines["VmRSS"].split()[0]), int(lines["Threads"]), descriptors)


def told(line: str) -> tuple[int, set[str], set[str]]:
    """Calls made, and errnos by names of one's own and by shared ones."""
    made, own, shared = (word.partition("=")[2] for word in line.split())
    return int(made), set(own.split(",")) - {""}, set(shared.split(",")) - {""}


def load(runner: support.Runner, processes: int, threads: int, seconds: int) -> None:
    """What is kept of files that were read fills up in a long run, and then begins anew: the bound of all is 80 MiB."""
    words = [compiled("load"), str(processes), str(threads)]
    native = runner.native([*words, "1"])
    assert native.status == 0, native
    _, own_natively, shared_natively = told(native.out.splitlines()[-1])
    assert not own_natively
    runner.fresh()
    with Live(runner, [*words, str(seconds)]) as live:
        assert live.line(60 + seconds) == "warm"
        before = size(live.engine)
        most = 80 * 1024 if seconds >= 60 else before.memory * 1.1 + 8192
        made, own, shared = told(live.line(120 + 2 * seconds))
        after = size(live.engine)
        assert live.end(60) == 0
        assert not live.errors()
        unended = set()
        for record in read_records(str(live.session)):
            assert record["kind"] not in ("failure", "denied"), record
            if record["kind"] == "intent":
                unended.add(record["seq"])
            elif record["kind"] == "outcome":
                unended.discard(record["of"])
    assert not own
    assert shared <= shared_natively
    assert made > processes * threads
    assert not unended
    assert after.memory <= most, (before, after)
    assert after.threads <= before.threads, (before, after)
    assert after.descriptors <= before.descriptors + 100, (before, after)  # of tasks; a leak would be of calls
    print(f"{made} calls; the engine from {before} to {after}")


def test_many_threads_at_once(runner: support.Runner) -> None:
    load(runner, 8, 8, 4)


@pytest.mark.slow
def test_a_thousand_threads_for_a_minute(runner: support.Runner) -> None:
    load(runner, 64, 16, 60)
