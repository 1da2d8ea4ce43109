"""A worker gets ready by itself, and waits at its execve for whoever takes it."""

from __future__ import annotations

import os
import signal

from pincer_trace import worker
from pincer_trace.kernel.filter import load_filter
from pincer_trace.kernel.landlock import Floor


def test_an_interrupt_before_the_command_has_begun_ends_it_as_it_would_the_command():
    """Nobody answers its execve here: it has not become the command, and is a copy of this process."""
    plan = worker.Plan(b"/bin/true", [b"true"], {}, program=load_filter(None), floor=Floor.probe(), keep=[])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a background job it is ignored
    try:
        begun = worker.begin(plan)
    finally:
        signal.signal(signal.SIGINT, before)
    started = worker.take(begun)
    os.close(started.listener)
    try:
        os.kill(started.pid, signal.SIGINT)
    finally:
        _, status = os.waitpid(started.pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert worker.exec_failure(started.report) is None
