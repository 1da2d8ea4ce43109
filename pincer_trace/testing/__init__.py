"""Regression tests of what a program does: run it under supervision, and assert on its calls.

    from pincer_trace.testing import supervise

    trace = supervise(["python", "agent.py"], home="build/home")
    trace.assert_exit(0)
    trace.assert_only_writes("{workspace}/**")

With pytest, take the fixture `pincer` instead: `docs/testing.md` is the way in. The engine is always a process of its
own, so nothing that it must set for itself reaches the process of the tests (hazard P89).
"""

from pincer_trace.testing.calls import Call, Process
from pincer_trace.testing.run import CannotStart, TimedOut, Unsupported, supervise
from pincer_trace.testing.trace import Trace

__all__ = ["Call", "CannotStart", "Process", "TimedOut", "Trace", "Unsupported", "supervise"]
