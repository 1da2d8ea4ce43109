"""Programs that are being started: the kernel reads the path once more, so what runs then is compared (P42).

A program is looked at before its first call is answered; one that makes none for half a second, by another thread.
"""

from __future__ import annotations

import errno
import os
import threading
import time

from pincer_trace.kernel import procfs

_PATIENCE = 0.4  # seconds for a program to make a call by which it is looked at
NOT_STARTED = errno.ECANCELED  # the program before runs on: the kernel refused, or another thread was faster
UNSEEN = "not verified"  # it ended without a call

TYPE_CHECKING = False
if TYPE_CHECKING:
    Image = tuple[int, int]  # device, inode
    Settled = tuple[int, int, str]  # record, errno, words


class _Start:
    """Thread `tid` of process `tgid`, which was `born` then, asked; one of `goal` must run then, or still `old`."""

    __slots__ = ("born", "goal", "old", "sequence", "since", "tgid", "tid")

    def __init__(
        self, tid: int, tgid: int, born: int, sequence: int, goal: frozenset[Image] | None, old: Image
    ) -> None:
        self.tid = tid
        self.tgid = tgid
        self.born = born  # as `procfs.stat` gives it: the number may be another's one day
        self.sequence = sequence
        self.goal = goal
        self.old = old
        self.since = time.monotonic()


class Starts:
    """Written by the receiving thread; `overdue` is for another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[_Start] = []
        self.awaited: frozenset[int] = frozenset()  # threads that may run another program at their next call
        self.settled: list[Settled] = []  # the receiving thread's: outcomes to be written

    def expect(self, tid: int, tgid: int, born: int, sequence: int, goal: frozenset[Image] | None, old: Image) -> None:
        """Thread `tid` of `tgid` is about to run one of `goal` (None: cannot be told); `sequence` is its record."""
        start = _Start(tid, tgid, born, sequence, goal, old)
        with self._lock:
            self._replace([*self._entries, start])

    def verify(self, tid: int) -> bool:
        """At a call of `tid`: whether nothing runs there but what was judged. Raises OSError when it is gone."""
        right = True
        with self._lock:
            rest = []
            for start in self._entries:
                if tid not in (start.tid, start.tgid):
                    rest.append(start)
                    continue
                found = _image(tid)
                if found == start.old and tid != start.tid and os.path.exists(f"/proc/{start.tgid}/task/{start.tid}"):
                    rest.append(start)  # another thread, while the one that asked has not got there yet
                    continue
                error = _compare(start, found)
                right = right and error != errno.EACCES
                self.settled.append((start.sequence, error, ""))
            self._replace(rest)
        return right

    def overdue(self) -> tuple[list[Settled], list[tuple[int, int, bytes]]]:
        """Programs that run and have made no call for a while: outcomes to be written; and impostors, which the caller
        ends: (pidfd, the caller's to close, process, what runs there).
        """
        settled: list[Settled] = []
        wrong: list[tuple[int, int, bytes]] = []
        before = time.monotonic() - _PATIENCE
        with self._lock:
            rest = []
            for start in self._entries:
                error = 0
                if start.since > before or (error := self._look(start, wrong)) == NOT_STARTED:
                    rest.append(start)
                else:
                    settled.append((start.sequence, error, ""))
            if settled:
                self._replace(rest)
        return settled, wrong

    def _look(self, start: _Start, wrong: list[tuple[int, int, bytes]]) -> int:
        """As `_compare`. Of a process that has ended it is not known."""
        try:
            process = os.pidfd_open(start.tgid)
        except OSError:
            return NOT_STARTED
        try:
            if procfs.stat(start.tgid).start != start.born:
                return NOT_STARTED
            error = _compare(start, _image(start.tgid))
            if error == errno.EACCES:
                wrong.append((os.dup(process), start.tgid, os.readlink(b"/proc/%d/exe" % start.tgid)))
            return error
        except (OSError, ValueError, IndexError):
            return NOT_STARTED
        finally:
            os.close(process)

    def sweep(self) -> None:
        """Forget programs that ended without another call, where there are many."""
        with self._lock:
            if len(self._entries) > 256:
                ended = [start for start in self._entries if not os.path.exists(f"/proc/{start.tgid}")]
                self.settled += [(start.sequence, 0, UNSEEN) for start in ended]
                self._replace([start for start in self._entries if start not in ended])

    def finish(self) -> None:
        """All have ended."""
        with self._lock:
            self.settled += [(start.sequence, 0, UNSEEN) for start in self._entries]
            self._replace([])

    def _replace(self, entries: list[_Start]) -> None:
        self._entries = entries
        self.awaited = frozenset(number for start in entries for number in (start.tid, start.tgid))


def _image(tid: int) -> Image:
    found = os.stat(b"/proc/%d/exe" % tid)
    return found.st_dev, found.st_ino


def _compare(start: _Start, found: Image) -> int:
    """0 for what was judged, NOT_STARTED for what ran before, EACCES for anything else."""
    if start.goal is not None and found in start.goal:
        return 0
    if found == start.old:
        return NOT_STARTED
    return 0 if start.goal is None else errno.EACCES
