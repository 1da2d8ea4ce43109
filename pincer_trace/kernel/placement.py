"""Keeping the receiving thread on one processor.

The kernel wakes receiver and caller on the processor of whoever wakes them (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP), so the
two alternate on one. An idle processor then pulls one of them away, and the next call has to wake it across, which
costs more than the call: up to a quarter of the time of a program that opens many files.
"""

from __future__ import annotations

import os

from pincer_trace.kernel import procfs

_LOOSE = 0.01  # seconds, a few ticks of the scheduler's balancing


class Placement:
    """Of one thread of this process. Without permission, or with one processor only, it does nothing."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        try:
            self._allowed = os.sched_getaffinity(thread)
        except OSError:
            self._allowed = set()

    def settle(self) -> None:
        """Stay where it is now."""
        if len(self._allowed) > 1:
            self._set({procfs.stat(self._thread).processor} & self._allowed)

    def loosen(self) -> float:
        """Let the scheduler choose: it may be crowded there. The seconds until it should `settle` again."""
        if len(self._allowed) < 2:
            return 0.0
        self._set(self._allowed)
        return _LOOSE

    def _set(self, processors: set[int]) -> None:
        try:
            os.sched_setaffinity(self._thread, processors)
        except OSError:
            pass  # the processors of this cgroup changed
