"""Allowed reads: decided once an object, counted, and recorded in bulk.

A read that is allowed changes nothing, so it is recorded once for each (executable, object) with a count.
The key holds the object's change time: a file that was changed, renamed or replaced is judged anew.
"""

from __future__ import annotations

import stat
import time

from pincer_trace.effects import READ
from pincer_trace.profile import ALLOW
from pincer_trace.twin.authority import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pincer_trace.gateway.tasks import Task
    from pincer_trace.ledger import Ledger
    from pincer_trace.twin.authority import Authority

_LIMIT = 50_000


class Entry:
    """One (executable, object): `count` is written by the receiving thread, `reported` by the flushing one."""

    __slots__ = ("count", "dev", "executable", "first", "ino", "path", "reported", "rule")

    def __init__(self, executable: bytes, path: bytes, dev: int, ino: int, rule: str) -> None:
        self.executable = executable
        self.path = path
        self.dev = dev
        self.ino = ino
        self.rule = rule
        self.first = time.time()
        self.count = 0
        self.reported = 0


class Reads:
    """`hot` maps (executable, dev, ino, ctime) to an entry; the open handler counts in it directly."""

    def __init__(self, authority: Authority, ledger: Ledger) -> None:
        self._authority = authority
        self._ledger = ledger
        self.hot: dict[tuple[int, int, int, int], Entry] = {}
        self.files: set[bytes] = set()  # absolute paths that lead to files, while the tree makes no other kind of name
        self._entries: dict[tuple[int, bytes, int, int], Entry] = {}
        self._dirty: list[Entry] = []
        self._waiting: list[Entry] = []
        self._retired: list[Entry] = []
        self.total = 0

    def admit(self, task: Task, target: Target, found: os.stat_result) -> Entry:
        """Judge a read that `hot` does not know. Raises Denied (recorded)."""
        decision = self._authority.demand(task, READ, target)
        rule = decision.rule
        key = (task.executable_id, target.path, found.st_dev, found.st_ino)
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= _LIMIT:
                self._retire()
            entry = Entry(task.executable, target.path, found.st_dev, found.st_ino, rule.source if rule else "")
            self._entries[key] = entry
        plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)  # the hot path opens without a further look
        if plain and decision.verdict == ALLOW and (rule is None or not rule.when):
            self.hot[task.executable_id, found.st_dev, found.st_ino, found.st_ctime_ns] = entry
        if len(self.hot) > _LIMIT:
            self.hot.clear()
        return entry

    def count(self, entry: Entry) -> None:
        """One read of it was answered."""
        if entry.count == entry.reported:
            self._dirty.append(entry)
        entry.count += 1

    def moved(self) -> None:
        """A directory got another name: what lies below must be named anew."""
        self.hot.clear()
        self.files.clear()

    def _retire(self) -> None:
        self._retired += self._entries.values()
        self._entries = {}
        self.hot.clear()

    def flush(self) -> None:
        """Record what was read since the last flush. One thread calls this; a late count goes with the next one."""
        ready, self._waiting = self._waiting, self._dirty
        self._dirty = []
        retired, self._retired = self._retired, []
        self._report(ready + retired)

    def finish(self) -> None:
        """Record all that is left: nobody counts any more."""
        self._report([*self._retired, *self._entries.values()])

    def _report(self, entries: list[Entry]) -> None:
        counted = [(entry, entry.count) for entry in entries if entry.count > entry.reported]
        if not counted:
            return
        self._ledger.reads(
            (e.executable, e.path, e.dev, e.ino, count - e.reported, e.first, e.rule) for e, count in counted
        )
        for entry, count in counted:  # only now: a count that a full log did not take is told later
            self.total += count - entry.reported
            entry.reported = count
