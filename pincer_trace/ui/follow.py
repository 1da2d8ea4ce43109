"""Following a session's ledger while it is written: the viewer reads the file, and costs the supervisor nothing.

The newest part is read record by record. Where more has come than can be read in time, and what was there before the
viewer came, is skimmed: counted line by line, with the refusals in it parsed. So the view is never far behind, and all
that it holds is bounded.
"""

from __future__ import annotations

import fcntl
import os

from pincer_trace.errors import UserError
from pincer_trace.ledger.read import load_session, open_ledger, parsed
from pincer_trace.ui.state import Skim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pincer_trace.ledger.read import Record

    Facts = dict[str, Any]

_LIVE = 1 << 20  # bytes: when more than this waits, it is skimmed
_TAIL = 1 << 18  # but for so much of its end
_CHUNK = 1 << 18
_LONGEST = 1 << 20  # bytes of a line; what is longer is no record of ours
_KIND = b',"kind":"'
_COUNT = b'"count":'


class Part:
    """What came: a part that was only skimmed, and the records behind it. `older`: it lies before all else."""

    __slots__ = ("older", "records", "skim")

    def __init__(self, records: list[Record], skim: Skim | None = None, *, older: bool = False) -> None:
        self.records = records
        self.skim = skim
        self.older = older


class Follower:
    """Reads on in the ledger of the session's directory `path`. Raises `UserError` when that cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open_ledger(path)
        self._descriptor: int = self._file.fileno()
        self._at = 0  # where the next line begins
        self._within = False  # a line that is too long was begun: its rest is to be passed over
        self.before = 0  # bytes before the first record that was read: still to be skimmed

    def close(self) -> None:
        self._file.close()

    def start(self) -> Part:
        """The newest records that are there already."""
        size = os.fstat(self._descriptor).st_size
        if size > _TAIL:
            self.before = self._at = self._line_after(size - _TAIL)
        return self.more() or Part([])

    def more(self) -> Part | None:
        """What was written since; None where nothing was."""
        size = os.fstat(self._descriptor).st_size
        if size < self._at:  # the line that was taken back was not read: whoever shortened it is not the supervisor
            self._at = size
            return Part([_torn()])
        if size == self._at:
            return None
        skim = None
        if size - self._at > _LIVE:
            within, begin = self._within, self._at
            self._at = self._line_after(size - _TAIL)
            skim = self._skim(begin, self._at, within=within)
        records = self._read()
        return Part(records, skim) if records or skim is not None else None

    def older(self, stopped: Callable[[], bool] = lambda: False) -> Part | None:
        """The part before what `start` gave; None where there is none, or where it was stopped."""
        if not self.before:
            return None
        end, self.before = self.before, 0
        skim = self._skim(0, end, stopped=stopped)
        return None if stopped() else Part([], skim, older=True)

    def goes_on(self) -> bool:
        """Whether a supervisor still holds the ledger."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def is_gone(self) -> bool:
        """Whether the ledger has no name any more: the session was removed."""
        return os.fstat(self._descriptor).st_nlink == 0

    def facts(self) -> Facts | None:
        """session.json as it is now; None where it cannot be read."""
        try:
            return load_session(self.path)
        except UserError:
            return None

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self) -> list[Record]:
        """The whole lines from here on, a bounded number of bytes of them."""
        data = os.pread(self._descriptor, _LIVE + _LONGEST, self._at)
        end = data.rfind(b"\n") + 1
        if not end:
            if len(data) <= _LONGEST:
                return []  # a line that is being written
            self._at += len(data)
            if self._within:
                return []
            self._within = True
            return [_torn()]
        self._at += end
        lines = data[:end].split(b"\n")
        del lines[-1]
        if self._within:
            self._within = False
            del lines[0]
        return [(parsed(line + b"\n") if len(line) <= _LONGEST else None) or _torn() for line in lines]

    def _line_after(self, position: int) -> int:
        """Where the first line begins that begins there or later; or where that one goes on which has no end yet."""
        at = max(position - 1, 0)
        self._within = False
        while data := os.pread(self._descriptor, _CHUNK, at):
            end = data.find(b"\n")
            if end >= 0:
                return at + end + 1
            at += len(data)
        self._within = True
        return at

    def _skim(self, begin: int, end: int, *, within: bool = False, stopped: Callable[[], bool] = lambda: False) -> Skim:
        """Count the lines from `begin` on, a whole one there unless `within`."""
        skim = Skim()
        rest = b""
        while begin < end and not stopped():
            data = os.pread(self._descriptor, min(_CHUNK, end - begin), begin)
            if not data:
                break
            begin += len(data)
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST:
                rest = rest[:64]
            if within and lines:
                within = False
                del lines[0]
            for line in lines:
                _count(line, skim)
        skim.counts.torn += bool(rest) and not within
        return skim


def _count(line: bytes, skim: Skim) -> None:
    """Count a line by its first members, which are ours: no string has that text, quotes in it are escaped."""
    counts = skim.counts
    at = line.find(_KIND) + len(_KIND)
    if at < len(_KIND):
        counts.torn += 1
        return
    kind = line[at : line.find(b'"', at)]
    if kind == b"intent":
        counts.allowed += 1
    elif kind == b"reads":
        counts.reads += _number_behind(line, _COUNT)
    elif kind in (b"denied", b"failure", b"process", b"end"):
        record = parsed(line + b"\n")
        if record is None:
            counts.torn += 1
        elif record["kind"] == "process":
            skim.processes.append(record)
        elif record["kind"] == "end":
            skim.end = record
        else:
            counts.of(record)
            skim.refused.append(record)
    elif kind == b"answer":
        counts.answers += 1


def _number_behind(line: bytes, mark: bytes) -> int:
    at = line.rfind(mark) + len(mark)
    digits = line[at : at + 20].partition(b",")[0]
    return int(digits) if digits.isdigit() else 1


def _torn() -> Record:
    return {"kind": "torn", "line": 0, "bytes": 0}
