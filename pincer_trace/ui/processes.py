"""The processes of a session as a tree, with what each did. Pure, and bounded: of many, idle leaves are forgotten."""

from __future__ import annotations

from pincer_trace.ui.words import REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.ledger.read import Record

KEPT = 1000
_FORGET = 100  # at once
_THREADS = 20_000
_DEEPEST = 200


class Process:
    """One process. `gone` counts children that were forgotten, `below` what they did. `told`: by a line of its own."""

    __slots__ = ("allowed", "below", "denied", "exe", "gone", "last", "parent", "pid", "told")

    def __init__(self, pid: int, exe: str, parent: int, last: float) -> None:
        self.pid = pid
        self.exe = exe
        self.parent = parent
        self.last = last
        self.allowed = 0
        self.denied = 0
        self.gone = 0
        self.told = False
        self.below = [0, 0]  # allowed and denied of the forgotten


class Line:
    """One line of the tree: a process, or several alike of the same parent (`alike` > 1)."""

    __slots__ = ("alike", "allowed", "denied", "depth", "exe", "gone", "pid")

    def __init__(self, depth: int, pid: int, exe: str, allowed: int, denied: int) -> None:
        self.depth = depth
        self.pid = pid
        self.exe = exe
        self.allowed = allowed
        self.denied = denied
        self.alike = 1
        self.gone = 0


class Processes:
    """Every process that did something, or of which something did. Reads that were allowed are told by program."""

    def __init__(self) -> None:
        self._known: dict[int, Process] = {}
        self._threads: dict[int, int] = {}
        self.reads: dict[str, int] = {}

    def begun(self, record: Record) -> None:
        """A record of kind `process`: a task, which process it is of, and its parent."""
        pid, of, parent, exe = (record.get(name) for name in ("pid", "of", "parent", "exe"))
        if type(pid) is not int:
            return
        group = of if type(of) is int else pid
        if group != pid:
            if len(self._threads) >= _THREADS:
                self._threads.clear()
            self._threads[pid] = group
        else:
            self._threads.pop(pid, None)
        process = self._known.get(group)
        if process is not None and pid == group and process.told and parent != process.parent:
            self._replace(process)
            process = None
        if process is None:
            process = self._add(group, exe if isinstance(exe, str) else "")
        process.told = process.told or pid == group
        if type(parent) is int and parent != group:
            process.parent = parent

    def did(self, record: Record, kind: str, times: int) -> None:
        """A decision about one."""
        exe = record.get("exe")
        program = exe if isinstance(exe, str) else ""
        pid = record.get("pid")
        if type(pid) is not int:
            if program in self.reads or len(self.reads) < KEPT:
                self.reads[program] = self.reads.get(program, 0) + times
            return
        process = self._known.get(self._threads.get(pid, pid)) or self._add(pid, program)
        if program:
            process.exe = program
        process.last = float(record.get("time", 0.0))
        if kind in REFUSED:
            process.denied += times
        else:
            process.allowed += times

    def lines(self) -> list[Line]:
        """The tree, parents first; brothers without children and with the same program are one line."""
        children: dict[int, list[Process]] = {}
        roots: list[Process] = []
        for process in self._known.values():
            (children.setdefault(process.parent, []) if process.parent in self._known else roots).append(process)
        found: list[Line] = []
        left = dict(self._known)
        while left:
            _walk(roots, children, left, found)
            roots = [next(iter(left.values()))] if left else []  # a log from elsewhere may tell a ring
        return found

    def __len__(self) -> int:
        return len(self._known)

    def _add(self, pid: int, exe: str) -> Process:
        if len(self._known) >= KEPT:
            self._thin()
        process = self._known[pid] = Process(pid, exe, 0, 0.0)
        return process

    def _thin(self) -> None:
        parents = {process.parent for process in self._known.values()}
        leaves = sorted((each for each in self._known.values() if each.pid not in parents), key=lambda each: each.last)
        for each in leaves[:_FORGET] or list(self._known.values())[:_FORGET]:  # a ring has no leaves
            self._forget(each)

    def _replace(self, process: Process) -> None:
        """Its number is another process's now: its children hang where it hung."""
        for each in self._known.values():
            if each.parent == process.pid:
                each.parent = process.parent
        self._forget(process)

    def _forget(self, process: Process) -> None:
        del self._known[process.pid]
        above = self._known.get(process.parent)
        if above is not None:
            above.gone += 1 + process.gone
            above.below[0] += process.allowed + process.below[0]
            above.below[1] += process.denied + process.below[1]


def _walk(
    roots: list[Process], children: dict[int, list[Process]], left: dict[int, Process], found: list[Line]
) -> None:
    """Add the lines of everything below `roots`, and take it out of `left`."""
    stack = [iter(_grouped(roots, children, 0))]
    while stack:
        each = next(stack[-1], None)
        if each is None:
            stack.pop()
            continue
        line, members = each
        for member in members:
            left.pop(member.pid, None)
        found.append(line)
        below = [child for child in children.get(line.pid, []) if child.pid in left]
        if line.alike == 1 and below:
            stack.append(iter(_grouped(below, children, min(line.depth + 1, _DEEPEST))))


def _grouped(
    brothers: list[Process], children: dict[int, list[Process]], depth: int
) -> Iterator[tuple[Line, list[Process]]]:
    """A line for each with children, in the order of their beginning; of the others one for each program."""
    alike: dict[str, list[Process]] = {}
    for each in brothers:
        if each.pid not in children and not each.gone:
            alike.setdefault(each.exe, []).append(each)
    for each in brothers:
        if each.pid in children or each.gone:
            line = Line(depth, each.pid, each.exe, each.allowed, each.denied)
            line.gone = each.gone
            yield line, [each]
        elif each.exe in alike:
            members = alike.pop(each.exe)
            allowed, denied = (sum(getattr(one, name) for one in members) for name in ("allowed", "denied"))
            line = Line(depth, each.pid, each.exe, allowed, denied)
            line.alike = len(members)
            yield line, members
