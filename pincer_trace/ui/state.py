"""What a live view shows of a session, grown record by record. Pure: no clock, no file, no terminal.

Decisions become rows. What one program does to the files of one directory within a short time is one row with a count,
whichever of its processes does it. Where more rows than a person can read would begin, they are folded further: into
one for a program, for an effect, for all. So a flood stays a few lines, and the memory is bounded; counters count all.
"""

from __future__ import annotations

from collections import deque
from heapq import merge

from pincer_trace.ledger.writer import DONE as OUTCOME_DONE
from pincer_trace.ui.filters import EVERYTHING, Filter
from pincer_trace.ui.processes import Processes
from pincer_trace.ui.questions import Asked
from pincer_trace.ui.words import ANSWER, DENIED, DONE, EXPECTED, FAILED, FAILURE, NATIVE, OPEN, REFUSED, UNSEEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from pincer_trace.ledger.read import Record
    from pincer_trace.ui.follow import Part

KEPT = 2000  # rows of what was allowed, and as many of the rest
_GAP, _LONGEST = 2.0, 10.0  # seconds: without more a row is complete; and at the most
_BEGIN = (0, 8, 16, 32)  # rows that begin within a second, by how wide they are folded then
_NAMES, _LETTERS = 12, 4096  # that a row remembers
_OPEN = 4096  # intents whose outcome is waited for
_GROUPS = 4096
_MOST = 1 << 53  # that one line counts for
_SECONDS = 10  # of which rates are told


class Row:
    """What is one line: a decision, or several alike. `number` orders rows, and never changes."""

    __slots__ = (
        "count", "directory", "effects", "errno", "exes", "failed", "first", "kind", "last", "names", "number", "open",
        "pids", "record", "rest",
    )  # fmt: skip

    def __init__(self, number: int, kind: str, record: Record) -> None:
        self.number = number
        self.kind = kind
        self.first = self.last = moment(record)
        self.count = 0
        self.open = 0  # of these, how many have no outcome yet
        self.failed = 0
        self.errno = ""  # of the last one that failed
        self.directory = _directory(_path(record))
        self.names: dict[str, int] = {}  # paths, and how often
        self.rest = 0  # how often others
        self.exes: dict[str, None] = {}
        self.effects: dict[str, None] = {}
        self.pids: dict[int, None] = {}
        self.record = record  # the last one

    def add(self, record: Record, times: int) -> None:
        """One decision more."""
        self.record = record
        self.last = max(self.last, moment(record))
        self.count += times
        path = _path(record)
        if path in self.names:
            self.names[path] += times
        elif len(self.names) < _NAMES and sum(map(len, self.names)) < _LETTERS:
            self.names[path] = times
        else:
            self.rest += times
        self.directory = _common(self.directory, _directory(path))
        for known, value in ((self.exes, record.get("exe")), (self.effects, record.get("effect"))):
            if isinstance(value, str) and len(known) < _NAMES:
                known[value] = None
        if isinstance(record.get("pid"), int) and len(self.pids) < _NAMES:
            self.pids[record["pid"]] = None

    def ended(self, word: str) -> None:
        """One of its effects came to its end."""
        self.open -= 1
        if word != OUTCOME_DONE:
            self.failed += 1
            self.errno = word
        self._settle()

    def unseen(self) -> None:
        """The ends of its effects were in a part of the log that was only counted."""
        self.open = 0
        self.kind = UNSEEN

    def _settle(self) -> None:
        if self.kind != UNSEEN:
            self.kind = OPEN if self.open > 0 else FAILED if self.failed else DONE

    @property
    def path(self) -> str:
        """The only name; empty where there are several."""
        return next(iter(self.names), "") if len(self.names) == 1 and not self.rest else ""


class Counts:
    """Of everything that was recorded, as the last line of a run has them."""

    __slots__ = ("allowed", "answers", "denied", "expected", "failures", "native", "reads", "torn")

    def __init__(self) -> None:
        self.allowed = self.reads = self.denied = self.expected = self.failures = self.native = 0
        self.answers = self.torn = 0

    def add(self, other: Counts) -> None:
        for each in self.__slots__:
            setattr(self, each, getattr(self, each) + getattr(other, each))

    def of(self, record: Record) -> tuple[str, int]:
        """Which counter a record counts for, and how often; empty for none. Counts it."""
        name = _COUNTERS.get(record["kind"], "")
        times = 1
        if name == "denied":
            name = next((each for each in ("native", "expected") if record.get(each)), name)
        elif name == "reads":
            count = record.get("count")
            times = min(max(count, 0), _MOST) if isinstance(count, int) else 1
        if name:
            setattr(self, name, getattr(self, name) + times)
        return name, times


_COUNTERS = {
    "intent": "allowed", "reads": "reads", "denied": "denied", "failure": "failures", "answer": "answers",
    "torn": "torn",
}  # fmt: skip
_KINDS = {
    "denied": DENIED, "expected": EXPECTED, "native": NATIVE, "failures": FAILURE, "reads": DONE, "allowed": OPEN,
    "answers": ANSWER,
}  # fmt: skip


class Skim:
    """A part of a log that was counted and not read: numbers, and of what it had the last records that matter."""

    __slots__ = ("counts", "end", "processes", "refused")

    def __init__(self) -> None:
        self.counts = Counts()
        self.processes: deque[Record] = deque(maxlen=5000)
        self.refused: deque[Record] = deque(maxlen=500)
        self.end: Record | None = None


class State:
    """All that a view shows, but for what the supervisor is asked. `revision` differs whenever it does."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.processes = Processes()
        self.asked = Asked()
        self.revision = 0
        self.last = 0.0  # when the last record was written
        self.seq = 0  # the number of the last record
        self.signed = 0  # of the record up to which the last head signs, by its own word
        self.ending: Record | None = None  # the line that ends a session
        self._allowed: deque[Row] = deque(maxlen=KEPT)
        self._refused: deque[Row] = deque(maxlen=KEPT)
        self._next, self._before = 1, 0
        self._groups: dict[object, Row] = {}
        self._starts: dict[object, tuple[int, int]] = {}  # in which second, how many rows
        self._open: dict[int, tuple[Row, Record]] = {}
        self._rates: deque[tuple[int, int]] = deque(maxlen=_SECONDS)  # second, decisions

    # -- what comes ------------------------------------------------------------------------------------------

    def take(self, part: Part) -> None:
        """What a follower read."""
        if part.skim is not None:
            (self.older if part.older else self.skipped)(part.skim)
        for record in part.records:
            self.apply(record)

    def apply(self, record: Record) -> None:
        """One record of the ledger, in the order of writing."""
        self.revision += 1
        kind = record["kind"]
        counter, times = self.counts.of(record)
        if counter == "torn":
            return
        self.seq = max(self.seq, record["seq"])
        self.last = max(self.last, moment(record))
        if kind == "outcome":
            self._end_of_effect(record)
        elif kind == "process":
            self.processes.begun(record)
        elif kind == "head":
            of = record.get("of")
            self.signed = max(self.signed, of) if isinstance(of, int) else self.signed
        elif kind == "end":
            self.ending = record
        elif counter:
            self._decision(record, _KINDS[counter], times)

    def apply_questions(self, questions: Iterable[dict[str, Any]], now: float) -> None:
        """What can be answered now, as the supervisor tells it."""
        if self.asked.update(questions, now):
            self.revision += 1

    def skipped(self, skim: Skim) -> None:
        """A part that lies between what was applied and what comes."""
        for row, _ in self._open.values():
            row.unseen()
        self._open.clear()
        self._groups.clear()
        self._take(skim)
        for record in skim.refused:
            if isinstance(record.get("path"), str):
                self._row(record, _kind_of(record), 1)

    def older(self, skim: Skim) -> None:
        """The part before all that was applied."""
        earlier = State()
        for record in skim.refused:
            earlier._row(record, _kind_of(record), 1)
        self._take(skim)
        for row in reversed(earlier._refused):
            if len(self._refused) == KEPT:
                break
            row.number, self._before = self._before, self._before - 1
            self._refused.appendleft(row)

    def _take(self, skim: Skim) -> None:
        self.revision += 1
        self.counts.add(skim.counts)
        for record in skim.processes:
            self.processes.begun(record)
        self.ending = self.ending or skim.end

    # -- what is seen ----------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """The rows that are kept, the oldest first."""
        return list(merge(self._allowed, self._refused, key=_number))

    def rate(self, now: float) -> float:
        """Decisions a second, in the last few before `now` (Unix seconds)."""
        rows = [row for row in self._rates if now - _SECONDS < row[0] <= now]
        return sum(row[1] for row in rows) / max(1.0, now - rows[0][0]) if rows else 0.0

    # -- rows ------------------------------------------------------------------------------------------------

    def _decision(self, record: Record, kind: str, times: int) -> None:
        self._count_second(int(moment(record)), times)
        row = self._row(record, kind, times)
        if kind == ANSWER:
            return
        self.processes.did(record, kind, times)
        if kind == OPEN:
            row.open += 1
            row._settle()
            self._open[record["seq"]] = row, record
            if len(self._open) > _OPEN:
                forgotten, _ = self._open.pop(next(iter(self._open)))
                forgotten.unseen()

    def _row(self, record: Record, kind: str, times: int) -> Row:
        """The row that the record is a part of; a new one where none is."""
        when = moment(record)
        keys = _keys(record, kind)
        for key in keys:
            row = self._groups.get(key)
            if row is not None:
                if when - row.last <= _GAP and when - row.first <= _LONGEST:
                    row.add(record, times)
                    return row
                del self._groups[key]
        level = self._begun(keys, int(when))
        row = Row(self._next, kind, record)
        row.add(record, times)
        self._next += 1
        if len(self._groups) > _GROUPS:
            self._groups.clear()
        self._groups[keys[level]] = row
        (self._refused if kind in REFUSED or kind == ANSWER else self._allowed).append(row)
        return row

    def _begun(self, keys: Sequence[object], second: int) -> int:
        """How wide a row that begins now is folded: as wide as too many others that it would stand among."""
        if len(self._starts) > _GROUPS:
            self._starts.clear()
        counts = [self._starts.get(key, (second, 0)) for key in keys]
        numbers = [count if when == second else 0 for when, count in counts]
        level = next((each for each in range(len(keys) - 1, 0, -1) if numbers[each] >= _BEGIN[each]), 0)
        for key, count in zip(keys[max(level, 1) :], numbers[max(level, 1) :], strict=True):
            self._starts[key] = second, count + 1
        return level

    def _end_of_effect(self, record: Record) -> None:
        of = record.get("of")
        row, intent = self._open.pop(of, (None, None)) if isinstance(of, int) else (None, None)
        if row is None or intent is None:
            return
        word = record.get("outcome") or "unknown"
        intent["outcome"] = word
        if "post" in record:
            intent["post"] = record["post"]
        row.ended(word)

    def _count_second(self, second: int, times: int) -> None:
        if self._rates and self._rates[-1][0] >= second:
            self._rates[-1] = self._rates[-1][0], self._rates[-1][1] + times
        else:
            self._rates.append((second, times))


class Selection:
    """The rows that a filter wants; each is asked about anew only when something has come to it."""

    def __init__(self, wanted: Filter = EVERYTHING) -> None:
        self.wanted = wanted
        self._known: dict[int, tuple[int, str, bool]] = {}

    def of(self, state: State) -> list[Row]:
        rows = state.rows()
        if not self.wanted:
            return rows
        known: dict[int, tuple[int, str, bool]] = {}
        found = []
        for row in rows:
            last = self._known.get(row.number)
            if last is None or last[0] != row.count or last[1] != row.kind:
                last = row.count, row.kind, self.wanted.wants(row)
            known[row.number] = last
            if last[2]:
                found.append(row)
        self._known = known
        return found


def _keys(record: Record, kind: str) -> Sequence[object]:
    """By what a row is found, from the narrowest to the widest."""
    if kind == ANSWER:
        return (("answer", record["seq"]),)
    effect, exe, rule = record.get("effect"), record.get("exe"), record.get("rule")
    path = _path(record)
    if record["kind"] == "reads":  # what a program reads is one row
        return ("reads", exe), ("reads",)
    return (
        (kind, exe, effect, rule, record.get("code"), _directory(path)),
        (kind, exe, effect, rule),
        (kind, effect),
        (kind,),
    )


def _kind_of(record: Record) -> str:
    if record["kind"] == "failure":
        return FAILURE
    return NATIVE if record.get("native") else EXPECTED if record.get("expected") else DENIED


def _number(row: Row) -> int:
    return row.number


def moment(record: Record) -> float:
    """When it was written: Unix seconds."""
    return float(record.get("time", 0.0))


def _path(record: Record) -> str:
    path = record.get("path")
    return path if isinstance(path, str) else ""


def _directory(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _common(one: str, other: str) -> str:
    """The directory that both are in."""
    if one == other:
        return one
    found = []
    for mine, theirs in zip(one.split("/"), other.split("/"), strict=False):
        if mine != theirs:
            break
        found.append(mine)
    return "/".join(found) or ("/" if one.startswith("/") and other.startswith("/") else "")
