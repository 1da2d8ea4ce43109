"""Allowed reads: decided once an object, counted, and recorded in bulk.

A read that is allowed changes nothing, so it is recorded once for each (executable, object) with a count.
The key holds the object's change time: a file that was changed, renamed or replaced is judged anew.
What is decided here is also told to the fast path (kernel/fastpath.c), where there is one; and of a folder from which
something was read, that what is ordinary there may be. Those files it tells afterwards, for their records.
"""

from __future__ import annotations

import os
import stat
import threading
import time

from pincer_trace.effects import READ
from pincer_trace.kernel.fastpath import COUNTERS
from pincer_trace.paths import is_inside
from pincer_trace.profile import ALLOW, VIEW
from pincer_trace.profile.model import Ordinary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.tasks import Task
    from pincer_trace.kernel.fastpath import FastPath
    from pincer_trace.ledger import Ledger
    from pincer_trace.profile import Decision
    from pincer_trace.twin.authority import Authority, Judgement
    from pincer_trace.twin.target import Target

_LIMIT = 50_000
_FOLDERS = 2048
_WAITING = 2048  # files that folders let pass, from which on they are asked for before half a second is over


def _cannot(_task: Task, target: Target, _judgement: Judgement) -> None:
    raise NotImplementedError(target.path)


class Entry:
    """One (executable, object): `count` is written by the receiving thread, the other numbers by the flushing one."""

    __slots__ = ("count", "counter", "dev", "executable", "fast", "first", "ino", "path", "queued", "reported", "rule")

    def __init__(self, executable: bytes, path: bytes, dev: int, ino: int, rule: str, first: float = 0.0) -> None:
        self.executable = executable
        self.path = path
        self.dev = dev
        self.ino = ino
        self.rule = rule
        self.first = first or time.time()
        self.count = 0
        self.counter = -1  # of the fast path
        self.fast = 0  # counted there
        self.queued = False  # for the next report
        self.reported = 0


class Files(set[bytes]):
    """Absolute paths that lead to files, while the tree makes no other kind of name; the fast path has its own."""

    fast: FastPath | None = None

    def clear(self) -> None:
        super().clear()
        if self.fast is not None:
            self.fast.clear_files()


class Reads:
    """`hot` maps (executable, dev, ino, ctime) to an entry; the open handler counts in it directly."""

    def __init__(self, authority: Authority, ledger: Ledger) -> None:
        self._authority = authority
        authority.met = self._met
        self._ledger = ledger
        self.hot: dict[tuple[int, int, int, int], Entry] = {}
        self.files = Files()
        self._entries: dict[tuple[int, bytes, int, int], Entry] = {}
        self._dirty: list[Entry] = []
        self._waiting: list[Entry] = []
        self._retired: list[Entry] = []
        self._fast: FastPath | None = None
        self._counters: dict[int, Entry] = {}  # of the fast path
        self._fresh: dict[tuple[bytes, bytes, int, int, str], Entry] = {}  # what folders let pass; under `_reporting`
        self.apart: frozenset[bytes] = frozenset()  # directories in which something else is read than what lies there
        self._used_up = False  # the counters
        self._folders: set[bytes] = set()  # that were told to the fast path, or cannot be
        self._reporting = threading.Lock()
        self.total = 0
        # A read that was confirmed is performed like an effect, with records of its own; the engine says how.
        self.perform: Callable[[Task, Target, Judgement], None] = _cannot

    def attach(self, fast: FastPath) -> None:
        """From now on this fast path answers what is in `hot`."""
        self._fast = self.files.fast = fast
        self._authority.tell_secrets(fast.secret)

    def admit(self, task: Task, target: Target, found: os.stat_result) -> Entry:
        """Judge a read that `hot` does not know, of what no view can be given. Raises Denied (recorded), Asked,
        LedgerFull.
        """
        target.needs = os.R_OK
        return self.settle(task, target, found, self._authority.judge(task, READ, target))

    def judge(self, task: Task, target: Target) -> Judgement:
        """The judgement on such a read, for who can give a view."""
        target.needs = os.R_OK
        return self._authority.judge_reading(task, READ, target)

    def settle(self, task: Task, target: Target, found: os.stat_result, judgement: Judgement) -> Entry:
        """The entry of a read that was judged so. Raises as `admit`."""
        return self._settle(task, target, found, judgement, self._note)

    def settle_apart(self, task: Task, target: Target, found: os.stat_result, judgement: Judgement) -> Entry:
        """The same of a file in whose place another one is read: the hot path would open it, and never hears of it."""
        return self._settle(task, target, found, judgement, self._entry)

    def _settle(
        self,
        task: Task,
        target: Target,
        found: os.stat_result,
        judgement: Judgement,
        note: Callable[[Task, bytes, os.stat_result, Decision], Entry],
    ) -> Entry:
        if judgement.verdict == VIEW and stat.S_ISDIR(found.st_mode):
            return self._note(task, target.path, found, judgement)  # names are no content
        if judgement.verdict == VIEW:
            judgement = self._authority.in_full(judgement)
        self._authority.insist(task, READ, target, judgement)
        if judgement.verdict == ALLOW:
            return note(task, target.path, found, judgement)
        self.perform(task, target, judgement)
        entry = Entry(task.executable, target.path, found.st_dev, found.st_ino, "")
        entry.queued = True  # it has a record of its own
        return entry

    def admit_plain(self, task: Task, target: Target, found: os.stat_result) -> Entry | None:
        """The same where that is allowed without more; else None: what is asked or refused takes the long way once."""
        judgement = self._authority.judge(task, READ, target)
        return self._note(task, target.path, found, judgement) if judgement.verdict == ALLOW else None

    def admit_pinned(self, task: Task, path: bytes, pin: int, found: os.stat_result) -> Entry | None:
        """The same by the short way, where no evaluator has a question; None for `admit_plain`."""
        decision = self._authority.lets_read(path, pin, found)
        return self._note(task, path, found, decision) if decision is not None else None

    def _entry(self, task: Task, path: bytes, found: os.stat_result, decision: Decision) -> Entry:
        """Where these reads are counted."""
        rule = decision.rule
        key = (task.executable_id, path, found.st_dev, found.st_ino)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= _LIMIT or self._used_up:
                self._retire()
            entry = Entry(task.executable, path, found.st_dev, found.st_ino, rule.source if rule else "")
            self._entries[key] = entry
        return entry

    def _note(self, task: Task, path: bytes, found: os.stat_result, decision: Decision) -> Entry:
        """The same, and the hot path may open it from now on."""
        rule, entry = decision.rule, self._entry(task, path, found, decision)
        plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)  # the hot path opens without a further look
        if plain and (rule is None or not rule.when):
            if len(self.hot) >= _LIMIT:
                self._cool()
            self.hot[task.executable_id, found.st_dev, found.st_ino, found.st_ctime_ns] = entry
            if self._fast is not None:
                if entry.counter < 0:
                    self._take_counter(self._fast, entry)
                self._fast.admit(task.executable_id, found.st_dev, found.st_ino, found.st_ctime_ns, entry.counter)
        return entry

    def _take_counter(self, fast: FastPath, entry: Entry) -> None:
        """A counter of the fast path for it. Where there is none any more, all begins anew with the next entry."""
        if fast.waiting() > _WAITING and self._reporting.acquire(blocking=False):
            try:
                self._take_fresh(fast)
            finally:
                self._reporting.release()
        counter = fast.counter()
        self._used_up = counter >= COUNTERS
        if not self._used_up:
            self._counters[counter] = entry
            entry.counter = counter

    def admit_folder(self, directory: bytes) -> None:
        """Something in it was read: from now on the fast path lets pass what is ordinary there."""
        if self._fast is None or directory in self._folders:
            return
        if len(self._folders) >= _FOLDERS:
            self._forget_folders()
        self._folders.add(directory)
        found = self._ordinary(directory)
        if found is None:
            return
        while found.deep:  # as far up as the same holds: then it is told once for all that lies below
            above, _, name = directory.rpartition(b"/")
            higher = self._ordinary(above)
            if higher is None or not higher.deep or higher.named is not found.named or found.named.holds(name):
                break
            directory, found = above, higher
        rule, names = found.decision.rule, found.named
        source = rule.source if rule else ""
        self._fast.folder(directory, source, names.whole, names.starts, names.ends, deep=found.deep)

    def _ordinary(self, directory: bytes) -> Ordinary | None:
        """What holds for the files in `directory`, where each is read as it is."""
        if directory in self.apart:
            return None
        found = self._authority.lets_read_in(directory)
        if found is not None and found.deep and any(is_inside(each, directory) for each in self.apart):
            return Ordinary(found.decision, found.named, deep=False)
        return found

    def _forget_folders(self) -> None:
        self._folders.clear()
        if self._fast is not None:
            self._fast.clear_folders()

    def _cool(self) -> None:
        self.hot.clear()
        if self._fast is not None:
            self._fast.clear()

    def count(self, entry: Entry) -> None:
        """One read of it was answered."""
        entry.count += 1  # first: the flushing thread takes the mark away before it looks at the count
        if not entry.queued:
            entry.queued = True
            self._dirty.append(entry)

    def moved(self) -> None:
        """A directory got another name: what lies below must be named anew."""
        self._cool()
        self.files.clear()

    def _met(self) -> None:
        """Something turned out to be protected: an object, or some names."""
        self.moved()
        self._forget_folders()

    def _retire(self) -> None:
        with self._reporting:
            self._absorb()
            self._cool()
            if self._fast is not None:
                self._fast.restart()
            self._used_up = False
            self._counters = {}
            self._retired += (*self._entries.values(), *self._fresh.values())
            self._fresh = {}
        self._entries = {}

    def _absorb(self) -> list[Entry]:
        """Take over what the fast path has counted: the entries that grew."""
        fast = self._fast
        if fast is None:
            return []
        self._take_fresh(fast)
        grown = []
        for counter, growth in fast.collect():
            if counter not in self._counters:
                self._take_fresh(fast)  # it was let pass in this instant
            entry = self._counters[counter]
            entry.fast += growth
            grown.append(entry)
        return grown

    def _take_fresh(self, fast: FastPath) -> None:
        """Know by their counters what folders have let pass."""
        for counter, first, key in fast.fresh():
            entry = self._fresh.get(key)
            if entry is None:
                entry = self._fresh[key] = Entry(*key, first / 1e9)
            self._counters[counter] = entry

    def flush(self) -> None:
        """Record what was read since the last flush. One thread calls this; a late count goes with the next one."""
        with self._reporting:
            ready, self._waiting = self._waiting, self._dirty
            self._dirty = []  # the receiving thread may still append to the old list: reported one time later
            retired, self._retired = self._retired, []
            self._report(ready + retired + self._absorb())

    def finish(self) -> None:
        """Record all that is left: nobody counts any more."""
        with self._reporting:
            self._absorb()
            self._report([*self._retired, *self._entries.values(), *self._fresh.values()])

    def _report(self, entries: list[Entry]) -> None:
        for entry in entries:
            entry.queued = False
        counts = {entry: entry.count + entry.fast for entry in entries}
        counted = [(entry, count) for entry, count in counts.items() if count > entry.reported]
        if not counted:
            return
        self._ledger.reads(
            (e.executable, e.path, e.dev, e.ino, count - e.reported, e.first, e.rule) for e, count in counted
        )
        for entry, count in counted:  # only now: a count that a full log did not take is told later
            self.total += count - entry.reported
            entry.reported = count
