"""What happened in one run, gathered from its records one by one.

Pure: no file is looked at. Everything is text as records have it (see `pincer_trace.ledger.encode`). Memory grows with
distinct names only, and stops growing where a table is full; what comes then is counted.
"""

from __future__ import annotations

from pincer_trace import effects
from pincer_trace.ledger.read import DECISIONS, TORN, UNKNOWN
from pincer_trace.review.parts import BY_RULES
from pincer_trace.review.report import Answered, Group, Reads, Report, Table, moment, number, text
from pincer_trace.review.tree import DIRECTORY, FILE, Tree, stays
from pincer_trace.twin import codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pincer_trace.ledger.read import Record
    from pincer_trace.ledger.verify import Verification
    from pincer_trace.review.tree import Id

_GROUPS = 500  # of denials, errors, answers and so on that are kept apart
_PATHS = 200  # distinct ones that are counted in a group
_FILES = 200_000  # distinct ones that were read, and processes
_WORDS = 10_000
_TEAM = 4  # programs that are named of a group
_MADE = frozenset({effects.CREATE, effects.MKDIR, effects.SYMLINK, effects.MKNOD, effects.BIND})
_PEERS = frozenset({effects.CONNECT, effects.SEND, effects.BIND})
_FOR_GOOD = ("", codes.BUILT_IN, codes.NO_VIEW, codes.SAVE_REFUSED)  # refused as it should be
_NAMELESS = "/#nameless"


class Account:
    """Give it every record of `ledger.read.entries`; then ask for the `report`."""

    def __init__(self, session: Record) -> None:
        self._session = session
        self._tree = Tree()
        self._workspace = text(session.get("workspace"))
        self._inside = self._workspace.rstrip("/") + "/"
        self._denials: dict[Any, Group] = {}
        self._expected: dict[Any, Group] = {}
        self._closed: dict[Any, Group] = {}
        self._errors: dict[Any, Group] = {}
        self._unended: dict[Any, Group] = {}
        self._confirmed: dict[Any, Group] = {}
        self._peers: dict[Any, Group] = {}
        self._answers: dict[int, Answered] = {}
        self._programs = Table()
        self._devices = Table()
        self._hosts = Table()
        self._reads = Reads()
        self._read: set[int] = set()
        self._words: dict[str, str] = {}
        self.ended = False
        self._last = 0.0
        self._torn = self._effects = self._native = self._unknown = self._more = 0
        self._processes: set[int] = set()
        self._do: dict[str, Callable[[Record], None]] = {
            "intent": self._intent, "reads": self._add_reads, "denied": self._denied, "failure": self._denied,
            "answer": self._answer,
        }  # fmt: skip

    def add(self, record: Record) -> None:
        """One more record."""
        kind = record["kind"]
        if kind in DECISIONS or kind == "answer":
            self._last = max(self._last, record.get("time", 0.0))
            self._do[kind](record)
        elif kind == TORN:
            self._torn += 1
        elif kind == "process":
            of = record.get("of")
            if type(of) is int and len(self._processes) < _FILES:
                self._processes.add(of)
        elif kind == "end":
            self.ended = True

    def report(self, session: Record, found: Verification) -> Report:
        """All of it; `session` as it is by now."""
        started = session["started"]
        last = moment(session.get("ended")) or self._last
        return Report(
            session=session, found=found, seconds=max(0.0, last - started), torn=self._torn, effects=self._effects,
            native=self._native, unknown=self._unknown, processes=len(self._processes), denials=_ordered(self._denials),
            expected=_ordered(self._expected), closed=_ordered(self._closed),
            errors=_ordered(self._errors), unended=_ordered(self._unended),
            answers=list(self._answers.values()), confirmed=_ordered(self._confirmed), more=self._more,
            programs=self._programs, peers=_ordered(self._peers), reads=self._reads, devices=self._devices,
            hosts=self._hosts,
            changes=list(self._tree.changes()), beyond=self._tree.beyond,
        )  # fmt: skip

    # -- records ---------------------------------------------------------------------------------------------

    def _add_reads(self, record: Record) -> None:
        count = max(1, number(record.get("count")))
        path = text(record.get("path"))
        inside = path.startswith(self._inside) or path == self._workspace
        reads = self._reads
        if inside:
            reads.inside += count
        else:
            reads.outside += count
        mark = hash(path)
        if mark not in self._read:
            if len(self._read) >= _FILES:
                reads.more = True
                return
            self._read.add(mark)
            if inside:
                reads.files_inside += 1
            else:
                reads.files_outside += 1

    def _denied(self, record: Record) -> None:
        if record.get("native"):
            self._native += 1
            return
        code = text(record.get("code"))
        closed = record["kind"] == "failure" or (code not in BY_RULES and code not in _FOR_GOOD)
        key = *(text(record.get(name)) for name in ("effect", "verdict", "rule", "reason")), code
        if record.get("expected"):
            self._group(self._expected, key, record)
            return
        self._group(self._closed if closed else self._denials, key, record)
        path = text(record.get("path"))
        if not closed and code in BY_RULES and path.startswith("//") and not path.startswith("//@"):
            self._hosts.add(path[2:])

    def _answer(self, record: Record) -> None:
        if len(self._answers) >= _GROUPS:
            self._more += 1
            return
        by = record.get("by")
        by = by if isinstance(by, dict) else {}
        pid = by.get("pid")
        self._answers[record["seq"]] = Answered(
            record["seq"], record.get("time", 0.0), text(record.get("answer")), text(record.get("effect")),
            text(record.get("path")), text(record.get("to")), pid if type(pid) is int else None, text(by.get("exe")),
        )  # fmt: skip

    def _intent(self, record: Record) -> None:
        effect, path, outcome = text(record.get("effect")), text(record.get("path")), record["outcome"]
        self._effects += 1
        extra = record.get("extra") or {}
        if "confirmed" in extra:
            self._allowed_by(extra["confirmed"], record)
        if effect in _PEERS:
            self._group(self._peers, (effect, path, outcome), record, outcome=outcome)
        if effect == effects.READ and "view" in extra:
            self._reads.views += 1
        if outcome == UNKNOWN:
            self._unknown += 1
            self._group(self._unended, record["seq"], record)
        elif outcome != "done":
            self._group(self._errors, (effect, outcome), record, outcome=outcome)
        elif effect == effects.EXEC:
            self._programs.add(path)
        elif not stays(path):
            self._devices.add(path)
        elif effect in effects.CHANGES:
            follow(self._tree, record, self._word(text(record.get("exe"))))

    def _allowed_by(self, answers: object, record: Record) -> None:
        if answers == "auto":
            key = *(text(record.get(name)) for name in ("effect", "rule", "reason")), "auto"
            self._group(self._confirmed, key, record)
        for each in answers if isinstance(answers, list) else ():
            if type(each) is int and each in self._answers:
                self._answers[each].used += 1

    def _group(self, table: dict[Any, Group], key: object, record: Record, outcome: str = "") -> None:
        group = table.get(key)
        if group is None:
            if len(table) >= _GROUPS:
                self._more += 1
                return
            extra = record.get("extra") or {}
            effect, path, rule, reason, code = (
                text(record.get(name)) for name in ("effect", "path", "rule", "reason", "code")
            )
            to = text(extra.get("to"))
            group = table[key] = Group(effect, path, record["seq"], rule, reason, code, outcome, to)
        group.count += 1
        path, exe = text(record.get("path")), text(record.get("exe"))
        if len(group.seen) < _PATHS:
            group.seen.add(hash(path))
            group.paths = len(group.seen)
        if exe and exe not in group.by and len(group.by) < _TEAM:
            group.by.append(self._word(exe))

    def _word(self, word: str) -> str:
        """Equal ones as one object."""
        if len(self._words) > _WORDS:
            self._words.clear()
        return self._words.setdefault(word, word)


def follow(tree: Tree, record: Record, by: str) -> None:
    """Let `tree` see an effect that was done, of a group `effects.CHANGES`, by the program `by`."""
    effect, path, extra = text(record.get("effect")), text(record.get("path")), record.get("extra") or {}
    found = _object(record)
    if effect in (effects.WRITE, effects.TRUNCATE):
        tree.wrote(path, by, found)
    elif effect in _MADE:
        after = _identified(record.get("post"))
        if after is not None or not path.endswith(_NAMELESS):
            tree.made(effect, path, by, after)
    elif effect == effects.RENAME:
        exchanged, replaced = "exchanged" in extra, "replaced" in extra
        tree.renamed(path, text(extra.get("to")), by, replaced=replaced, exchanged=exchanged)
    elif effect in (effects.UNLINK, effects.RMDIR):
        tree.removed(path, by, DIRECTORY if effect == effects.RMDIR else FILE, found)
    elif effect == effects.LINK:
        tree.linked(path, text(extra.get("from")), by, found)
    elif effect == effects.CHMOD:
        tree.set_attribute(path, by, found, "mode", text(extra.get("was")), text(extra.get("mode")))
    elif effect == effects.CHOWN:
        tree.set_attribute(path, by, found, "owner", text(extra.get("was")), text(extra.get("owner")))
    elif effect == effects.XATTR:
        now = "removed" if extra.get("removed") else "set"
        tree.set_attribute(path, by, found, text(extra.get("attribute")), "", now)


def _ordered(groups: dict[Any, Group]) -> list[Group]:
    """The most frequent first, but last what is closed in every run: `ps` asks for it again and again."""
    return sorted(groups.values(), key=lambda group: (group.code == codes.BUILT_IN, -group.count, group.record))


def _object(record: Record) -> Id | None:
    dev, ino = record.get("dev"), record.get("ino")
    return (dev, ino) if type(dev) is int and type(ino) is int and ino else None


def _identified(post: object) -> Id | None:
    """The object that an entry held afterwards."""
    if not isinstance(post, str):
        return None
    dev, _, ino = post.partition(":")
    if dev.isascii() and dev.isdecimal() and ino.isascii() and ino.isdecimal() and len(post) < 50:
        return int(dev), int(ino)
    return None
