"""What a recorded run did, call by call, with the process that made each call. Pure but for reading the log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pincer_trace import effects, paths
from pincer_trace.errors import UserError
from pincer_trace.ledger import read
from pincer_trace.profile.model import VIEW
from pincer_trace.review.tree import Tree, stays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pincer_trace.ledger.read import Record
    from pincer_trace.review.tree import Change

_VERSION = re.compile(r"(?<=[a-z])(?:-?\d+(?:\.\d+)+|-\d+)$|(?<=python)3$")
_DEEPEST = 8  # ancestors that are told


@dataclass(slots=True, eq=False)
class Process:
    """A process of the run. `program` is what it runs: the script, where that was started by its own name."""

    pid: int
    program: str
    executable: str
    parent: Process | None = None
    started_by: str = ""  # the program that it was before, or that it was forked from; empty for the first

    def ancestors(self) -> list[Process]:
        """Its parent and so on, up to the command."""
        found: list[Process] = []
        above = self.parent
        while above is not None and len(found) < 1000 and above not in found:
            found.append(above)
            above = above.parent
        return found

    def line(self, program: str) -> str:
        """`cat (4712), of sh (4711), of python3.11 (4710)`, where it is, or was, that program."""
        told = [f"{paths.display(program, 60)} ({self.pid})"]
        above = self.ancestors()
        told += [f"{paths.display(each.program, 60)} ({each.pid})" for each in above[: _DEEPEST - 1]]
        return ", of ".join(told) + (", ..." if len(above) >= _DEEPEST else "")

    def __str__(self) -> str:
        """Itself and its ancestors."""
        return self.line(self.program)


@dataclass(slots=True, eq=False)
class Call:
    """One decision: an effect on a path (or peer, `//HOST:PORT`), by whom, and what came of it.

    `record` is its number in the log. `to` is where a rename or a symbolic link leads, and from where a link is.
    `outcome` is `done`, or the name of the kernel's errno, or `unknown` where the run was ended in between. Reads that
    were allowed are counted by program (`count`), so they have no `process`. `native` marks a refusal that the kernel
    would have made anyway, `expected` one that honest use asks for, too, as a rule says, and `confirmed` an effect that
    somebody, or `confirm="auto"`, allowed.
    """

    record: int
    effect: str
    path: str
    to: str
    verdict: str
    rule: str
    reason: str
    outcome: str
    program: str  # of the process at that moment
    process: Process | None = None
    by: str = ""  # "git", or "python > git" with the program that started it
    count: int = 1
    native: bool = False
    expected: bool = False
    confirmed: bool = False
    raw: Record = field(default_factory=dict, repr=False)

    @property
    def allowed(self) -> bool:
        """Whether it was let pass, whatever the kernel then said."""
        return self.raw["kind"] in read.ALLOWED

    @property
    def viewed(self) -> bool:
        """Whether what was read is a view, with handles in the place of secrets."""
        return self.allowed and self.verdict == VIEW

    @property
    def happened(self) -> bool:
        """Whether it was done, or may have been: its end is not known."""
        return self.allowed and self.outcome in ("done", read.UNKNOWN)

    @property
    def changes_files(self) -> bool:
        """Whether it alters a file tree; devices, /proc and addresses of the network are none."""
        return self.effect in effects.CHANGES and not self.path.startswith("//") and stays(self.path)

    @property
    def is_network(self) -> bool:
        """Whether its other end is an address of the network, not a unix socket: `//HOST:PORT`."""
        return self.path.startswith("//") and not self.path.startswith("//@")

    def __str__(self) -> str:
        """What it was, what became of it, by whom, and the rule that decided; safe on a terminal."""
        arrow = {effects.LINK: "<-", "": ""}.get(self.effect, "->")
        what = f"{self.effect or 'call'} {paths.named(self.path)}" + (
            f" {arrow} {paths.named(self.to)}" if self.to else ""
        )
        word = ("denied" if not self.allowed else "allowed") + (" (confirmed)" if self.confirmed else "")
        what += " as a view" if self.viewed else ""
        outcome = "" if self.outcome == "done" or not self.allowed else f", {self.outcome}"
        times = f" x{self.count}" if self.count > 1 else ""
        by = self.process.line(self.program) if self.process is not None else paths.display(self.program, 60)
        why = ": ".join(filter(None, (paths.display(self.rule, 200), paths.display(self.reason, 600))))
        return f"{word} {what}{times}{outcome} (record {self.record})\n    by {by}" + (f"\n    {why}" if why else "")


def calls_of(path: str) -> tuple[list[Call], list[Process]]:
    """Every decision of the session's directory `path` in order, and every process. Raises `UserError`.

    Raises it also for a log with torn lines, of which a test cannot tell what they said.
    """
    records = list(read.entries(path))
    if any(record["kind"] == read.TORN for record in records):
        raise UserError(f"the log in {paths.display(path)} has torn lines: what they said is not known")
    records.sort(key=lambda record: record["seq"])  # `entries` holds decisions back until they have ended
    known = _Known()
    calls = []
    for record in records:
        if record["kind"] == "process":
            known.begin(record)
        elif record["kind"] in read.DECISIONS:
            calls.append(_call(record, known))
    return calls, known.all


def net_changes(calls: Iterable[Call], by: Callable[[Call], str]) -> list[Change]:
    """What these did to the file tree in the end, by whom in the words of `by`. Raises `UserError` for too many."""
    from pincer_trace.review.account import follow

    tree = Tree()
    for call in calls:
        if call.happened and call.changes_files:
            follow(tree, call.raw, by(call))
    if tree.beyond:
        raise UserError(f"{sum(tree.beyond.values())} changes are more than can be followed one by one")
    return list(tree.changes())


def _call(record: Record, known: _Known) -> Call:
    record = read.whole(record)
    extra = record.get("extra") or {}
    effect, executable = record["effect"], record["exe"]
    to = extra.get("from" if effect == effects.LINK else "to")
    process = known.of(record["pid"], executable)
    call = Call(
        record["seq"], effect, record["path"], to if isinstance(to, str) else "", record["verdict"], record["rule"],
        record["reason"], record["outcome"], process.program if process is not None else name_of(executable), process,
        _by(process, executable), max(1, record.get("count") or 1), bool(record.get("native")),
        bool(record.get("expected")), "confirmed" in extra, record,
    )  # fmt: skip
    if effect == effects.EXEC and call.happened and process is not None:
        known.execute(process, call.path)
    return call


def name_of(path: str) -> str:
    """A program by its name."""
    return path.rpartition("/")[2]


def unversioned(name: str) -> str:
    """`python3.11` as `python`: machines differ in that."""
    return _VERSION.sub("", name) or name


class _Known:
    """The processes so far."""

    def __init__(self) -> None:
        self.all: list[Process] = []
        self._by_task: dict[int, Process] = {}
        self._fresh: set[Process] = set()  # that executed a file, and whose executable may be its interpreter
        self._running: dict[str, dict[tuple[str, str], None]] = {}  # by executable: as what, and started by whom

    def begin(self, record: Record) -> None:
        """A task that is told of for the first time."""
        task, group, parent = record.get("pid"), record.get("of"), record.get("parent")
        executable = record.get("exe")
        if type(task) is not int or type(group) is not int or not isinstance(executable, str):
            return
        if task != group and group in self._by_task:
            self._by_task[task] = self._by_task[group]
            return
        above = self._by_task.get(parent) if type(parent) is int else None
        if not self.all:
            process = Process(group, "", executable)  # the command itself, which is the supervisor's until it executes
        else:
            # Forked from a program it is that program still, by another number. Where its parent had ended before
            # this was told, all that run the same executable tell what it is, if they agree.
            known = list(self._running.get(executable, ()))
            if above is not None and (above.executable == executable or above in self._fresh):
                known = [(above.program, above.started_by)]
            own = known[0] if len(known) == 1 else (name_of(executable), above.program if above else "")
            process = Process(group, own[0], executable, above, own[1])
        self._by_task[task] = process
        self._add(process)

    def of(self, pid: object, executable: str) -> Process | None:
        """The process of a record."""
        if type(pid) is not int:
            return None
        process = self._by_task.get(pid)
        if process is None:  # a record of a failure before anything was told of it
            process = Process(pid, name_of(executable), executable)
            self._add(process)
        elif executable and process.executable != executable:
            process.executable = executable
            self._note(process)
        self._fresh.discard(process)
        return process

    def _add(self, process: Process) -> None:
        self.all.append(process)
        self._by_task[process.pid] = process
        if process.program:
            self._note(process)

    def execute(self, process: Process, path: str) -> None:
        """It runs `path` from now on."""
        self._fresh.add(process)
        if name_of(process.executable) != "env" or process.program == "env":  # else `#!/usr/bin/env NAME` of a script
            process.started_by, process.program = process.program, name_of(path)
        process.executable = path

    def _note(self, process: Process) -> None:
        self._running.setdefault(process.executable, {})[process.program, process.started_by] = None


def _by(process: Process | None, executable: str) -> str:
    """`python > git`: the program, and the one that started it."""
    if process is None:
        return unversioned(name_of(executable))
    own, above = unversioned(process.program), unversioned(process.started_by)
    return f"{above} > {own}" if above and above != own else own
