"""A run as a person or a program wants to know of it: what `account` makes of the records, and `page` draws."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ledger.read import Record
    from pincer_trace.ledger.verify import Verification
    from pincer_trace.review.tree import Change

_NAMES = 10_000  # that are counted one by one
_COUNT = 1 << 53
_AGES = 1e11  # seconds
_TEXTS = ("id", "path", "profile", "workspace", "state", "confirm", "task", "model")
_LISTS = ("closed", "denials", "expected", "answers", "confirmed", "errors", "unended", "peers")
_LONGEST = 4200  # characters of a text that are kept


@dataclass(slots=True)
class Group:
    """What was alike: `record` is the number of the first, whose name is the example."""

    effect: str
    path: str
    record: int
    rule: str = ""
    reason: str = ""
    code: str = ""
    outcome: str = ""
    to: str = ""
    count: int = 0
    paths: int = 0
    by: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set, repr=False)

    def told(self) -> Record:
        """As one JSON object, without what is empty."""
        names = ("effect", "path", "to", "rule", "reason", "code", "outcome", "record", "count", "paths", "by")
        return {name: value for name in names if (value := getattr(self, name)) not in ("", [])}


@dataclass(slots=True)
class Answered:
    """A person's answer, and how many effects it allowed."""

    record: int
    time: float
    answer: str
    effect: str
    path: str
    to: str
    pid: int | None
    exe: str
    used: int = 0

    def told(self) -> Record:
        """As one JSON object, without what is empty."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in ("", None)}


class Table:
    """Counts by name: of `_NAMES` names, and of all `others` together."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.others = 0

    def add(self, name: str) -> None:
        """One more."""
        if name in self.counts or len(self.counts) < _NAMES:
            self.counts[name] = self.counts.get(name, 0) + 1
        else:
            self.others += 1

    def told(self) -> Record:
        """As one JSON object."""
        return {"counts": dict(self.sorted()), "others": self.others}

    def sorted(self) -> list[tuple[str, int]]:
        """The most frequent first."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))


@dataclass(slots=True)
class Reads:
    """Reads that were allowed: calls and distinct files, inside of the work tree and outside."""

    inside: int = 0
    outside: int = 0
    files_inside: int = 0
    files_outside: int = 0
    more: bool = False  # files than were counted
    views: int = 0  # calls, beside those, that gave a view

    def told(self) -> Record:
        """As one JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Report:
    """All of it. docs/guide.md tells the members of its JSON object."""

    session: Record
    found: Verification
    seconds: float
    torn: int
    effects: int
    native: int
    unknown: int
    processes: int
    denials: list[Group]
    expected: list[Group]  # refused, and asked for in honest use, too: no denials
    closed: list[Group]  # refused since the supervisor did not trust what it saw, or failed
    errors: list[Group]  # allowed, and refused by the kernel
    unended: list[Group]
    answers: list[Answered]
    confirmed: list[Group]  # by --confirm auto
    more: int  # decisions of groups beyond those that are kept apart
    programs: Table
    peers: list[Group]
    reads: Reads
    devices: Table
    hosts: Table  # HOST:PORT that were refused by rules
    changes: list[Change]
    beyond: dict[str, int]

    @property
    def workspace(self) -> str:
        """The work tree."""
        return text(self.session.get("workspace"))

    @property
    def home(self) -> str:
        """The home of whom it ran for; empty where the session does not tell."""
        judged_by = self.session.get("judged_by")
        places = judged_by.get("places") if isinstance(judged_by, dict) else None
        return text(places.get("home")) if isinstance(places, dict) else ""

    def is_inside(self, path: str) -> bool:
        """Whether a path lies in the work tree, or is that."""
        tree = self.workspace
        return bool(tree) and (path == tree or path.startswith(tree.rstrip("/") + "/"))

    @property
    def unwritten(self) -> int:
        """Lines that could not be written."""
        counts = self.session.get("counts")
        return number(counts.get("unrecorded")) if isinstance(counts, dict) else 0

    @property
    def denied(self) -> int:
        """How many decisions were refusals that the kernel alone would not have made."""
        return sum(group.count for group in (*self.denials, *self.closed))

    def told(self) -> Record:
        """As one JSON object."""
        session, found = self.session, self.found
        command = session.get("command")
        return {
            **{name: text(session[name]) for name in _TEXTS if name in session},
            **{name: value for name in ("exit", "leftover") if type(value := session.get(name)) is int},
            "command": [text(word) for word in command] if isinstance(command, list) else [],
            "started": session["started"],
            "seconds": round(self.seconds, 3),
            "counts": {
                "effects": self.effects, "reads": self.reads.inside + self.reads.outside, "denied": self.denied,
                "expected": sum(group.count for group in self.expected), "native": self.native,
                "unknown": self.unknown, "processes": self.processes,
                "torn": self.torn, "unwritten": self.unwritten, "not_grouped": self.more,
            },
            "log": {
                "whole": not found.faults, "records": found.records, "signed": found.signed, "faults": found.faults,
                "notes": found.notes,
            },
            **{name: [each.told() for each in getattr(self, name)] for name in _LISTS},
            "changes": [self._change(change) for change in self.changes],
            "beyond": self.beyond,
            "programs": self.programs.told(),
            "devices": self.devices.told(),
            "hosts": self.hosts.told(),
            "reads": self.reads.told(),
        }  # fmt: skip

    def _change(self, change: Change) -> Record:
        flags = {name: True for name in ("changed", "replaced", "vacated") if getattr(change, name)}
        return {
            "what": change.what, "path": change.path, **({"from": change.source} if change.source is not None else {}),
            "kind": change.kind, "inside": self.is_inside(change.path), **flags, "by": list(change.by),
            **({"attributes": change.attributes} if change.attributes else {}),
        }  # fmt: skip


def text(value: object) -> str:
    """A string of a record, and of one that is longer than any path its beginning; empty for all else."""
    return (value if len(value) < _LONGEST else value[:_LONGEST]) if isinstance(value, str) else ""


def number(value: object) -> int:
    """A count of a record; 0 for what cannot be one."""
    return value if isinstance(value, int) and 0 <= value < _COUNT else 0


def moment(value: object) -> float:
    """A time of a record; 0 for what no clock says."""
    return float(value) if isinstance(value, int | float) and 0 < value < _AGES else 0.0
