"""Which process a record is about: told once, before the first record of a task, with all above it up to the command.

A number in a log says nothing once its process has ended; with these lines the whole tree can be drawn afterwards.
"""

from __future__ import annotations

import os

from pincer_trace.kernel import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.ledger import Ledger

_MOST = 4096  # that are remembered: who was forgotten is told again
_DEEPEST = 64  # generations above a task that are told with it


class Introductions:
    """Belongs to the receiving thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._engine = os.getpid()
        self._known: dict[int, int] = {}  # a task's number: when it began, since numbers come round

    def of(self, task: Task) -> None:
        """Record what is not known yet of this task. Raises LedgerFull."""
        if not task.introduced:
            task.introduced = True
            self._introduce(task.tid, task.executable)

    def _introduce(self, tid: int, executable: bytes) -> None:
        lines: list[tuple[int, int, int, bytes]] = []
        try:
            while tid != self._engine and len(lines) < _DEEPEST:
                stat = procfs.stat(tid)
                if self._known.get(tid) == stat.start:
                    break
                status = procfs.status(tid)
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[tid] = stat.start
                lines.append((tid, status.tgid, stat.parent, executable))
                tid = stat.parent
                executable = _executable(tid) if tid > 0 else b""
        except (OSError, ValueError, KeyError, IndexError):
            pass  # it ends just now: what is known of it is told
        for line in reversed(lines):
            self._ledger.process(*line)


def _executable(tid: int) -> bytes:
    try:
        return os.readlink(b"/proc/%d/exe" % tid)
    except OSError:
        return b""
