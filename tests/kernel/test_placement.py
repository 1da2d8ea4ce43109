"""The engine's receiving thread stays on one processor, and only that thread does."""

from __future__ import annotations

import os

import pytest
from hazards.programs.p_kit import Live, until

from pincer_trace.kernel import procfs
from pincer_trace.kernel.placement import Placement


def test_settles_and_loosens():
    everywhere = os.sched_getaffinity(0)
    if len(everywhere) < 2:
        pytest.skip("one processor only")
    placement = Placement(os.getpid())
    try:
        placement.settle()
        assert os.sched_getaffinity(os.getpid()) == {procfs.stat(os.getpid()).processor}
        assert placement.loosen() > 0
        assert os.sched_getaffinity(os.getpid()) == everywhere
    finally:
        os.sched_setaffinity(os.getpid(), everywhere)


def test_the_worker_may_run_anywhere(runner):
    everywhere = os.sched_getaffinity(0)
    if len(everywhere) < 2:
        pytest.skip("one processor only")
    with Live(runner, ["sh", "-c", "echo $$; read line"]) as live:
        worker = int(live.line())
        engine = procfs.stat(worker).parent
        for _ in until("the engine settles", 10):
            if len(os.sched_getaffinity(engine)) == 1:
                break
        assert os.sched_getaffinity(worker) == everywhere
