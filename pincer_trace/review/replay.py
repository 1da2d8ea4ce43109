"""`pincer-trace replay`: a recorded session decided again under another profile, and what would differ.

Nothing is looked up on this machine: the names, the caller's program and the answers to what rules asked are those of
the record. A question that nobody asked then is tried with every answer that there could be; only where the verdict
depends on it, it cannot be told.
"""

from __future__ import annotations

from pincer_trace import paths
from pincer_trace.effects import READ, RENAME, SYMLINK
from pincer_trace.ledger.read import ALLOWED, decisions, raw
from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW, Decision
from pincer_trace.profile.model import STRICTNESS
from pincer_trace.review import words
from pincer_trace.review.parts import (
    Part,
    decided_by_rules,
    destination,
    may_be_link,
    parts,
    rule_then,
    verdict_then,
)
from pincer_trace.twin.facts import Recorded, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pincer_trace.ledger.read import Record, Tell
    from pincer_trace.profile import Profile
    from pincer_trace.review.past import Past

_BRANCHES = 64  # answers that are tried for one part
_BELOW = "below this name: "
_ALSO = "it is also "
_CONFIRMED = "whether a part of it was confirmed then"
_MOVED = "whether it is a file that was moved to where it can be read"
_LINK = "whether it is a symbolic link"
_NAMES = "which other name of it is protected"


class Range:
    """Between which verdicts the answer lies, the decision at either end, and what it depends on."""

    __slots__ = ("asks", "high", "low")

    def __init__(self, low: Decision, high: Decision, asks: str = "") -> None:
        self.low = low
        self.high = high
        self.asks = asks

    @property
    def told(self) -> bool:
        """Whether there is but one verdict."""
        return self.low.verdict == self.high.verdict

    def optional(self, doubt: str) -> Range:
        """The same of something that was perhaps not asked."""
        asks = doubt if self.told else self.asks
        return Range(_ALLOWED, self.high, asks) if doubt and self.high.verdict != ALLOW else self


_ALLOWED = Decision(ALLOW, None, "")


class Judge:
    """Decides records under one profile. `asks_nobody`: whether the run refused what wanted a confirmation."""

    def __init__(self, profile: Profile, *, asks_nobody: bool) -> None:
        self._profile = profile
        self._asks_nobody = asks_nobody

    def decide(self, record: Record) -> Range:
        """What the rules would say now."""
        said = [self.part(record, part).optional(part.doubt) for part in parts(record)]
        said += self._reading(record)
        said += self._links(record)
        said += self._names(record)
        low = max((one.low for one in said), key=_strictness)
        high = max(said, key=lambda one: _strictness(one.high))
        return Range(low, high.high, high.asks)

    def part(self, record: Record, part: Part) -> Range:
        """The same of one effect on one name."""
        profile = self._profile
        settled = profile.settled(part.effect, part.path)

        def judge(facts: Recorded) -> Decision:
            decision = settled if settled is not None else profile.judge(part.effect, part.path, facts)
            for name in facts.also:
                if decision.verdict == DENY:
                    break
                other = profile.judge(part.effect, name, facts)
                if other.verdict != ALLOW:
                    decision = Decision(other.verdict, other.rule, f"{_ALSO}{paths.display(name, 200)}: {other.reason}")
            return decision

        return self._try(record, part, lambda facts: _in_full(record, judge(facts)))

    def facts(self, record: Record, part: Part, assumed: dict[Any, Any] | None = None) -> Recorded:
        """What the record tells about one part."""
        rows = record.get("facts")
        return Recorded(
            rows if isinstance(rows, list) else (),
            about=part.about,
            executable=raw(record["exe"] or ""),
            is_closed=self._profile.is_closed,
            assumed=assumed,
        )

    def _try(self, record: Record, part: Part, judge: Callable[[Recorded], Decision]) -> Range:
        """With what is recorded; where that is not enough, with every answer that is possible."""
        pending: list[dict[Any, Any]] = [{}]
        found: list[Decision] = []
        asks = ""
        while pending:
            assumed = pending.pop()
            try:
                found.append(judge(self.facts(record, part, assumed)))
            except Unknown as unknown:
                asks = asks or words.question(unknown.question)
                if not unknown.answers or len(found) + len(pending) > _BRANCHES:
                    return Range(_ALLOWED, Decision(DENY, None, ""), asks)
                pending += [{**assumed, unknown.question: answer} for answer in unknown.answers]
        return Range(min(found, key=_strictness), max(found, key=_strictness), asks)

    def _reading(self, record: Record) -> list[Range]:
        """A secret may not be moved to where it could be read; the record may be of the refusal of that."""
        if record["effect"] != RENAME or record["kind"] == "reads":
            return []
        own = RENAME, raw(record["path"])
        here = self.part(record, Part(READ, own[1], own))
        if here.high.verdict == ALLOW:
            return []
        if record["kind"] == "denied":
            rule = here.low.rule
            return [here if rule is not None and rule.source == record["rule"] else here.optional(_MOVED)]
        there = destination(record)
        moved = self.part(record, Part(READ, there, own)) if there else here
        return [here.optional(_MOVED)] if STRICTNESS[moved.low.verdict] < STRICTNESS[here.high.verdict] else []

    def _links(self, record: Record) -> list[Range]:
        """What is protected below the name, where a symbolic link comes to it."""
        if not may_be_link(record):
            return []
        path = raw(record["path"]) if record["effect"] != RENAME else destination(record) or raw(record["path"])
        rule = self._profile.guarded_below(record["effect"], path)
        if rule is None:
            return []
        decision = Decision(rule.verdict, rule, _BELOW + rule.reason)
        said = Range(decision, decision)
        certain = record["effect"] == SYMLINK or str(record["reason"]).startswith(_BELOW)
        return [said.optional("" if certain else _LINK)]

    def _names(self, record: Record) -> list[Range]:
        """Another name that decided then, where the record tells none."""
        if not str(record["reason"]).startswith(_ALSO) or self.facts(record, parts(record)[0]).also:
            return []
        return [Range(_ALLOWED, Decision(verdict_then(record), None, record["reason"]), _NAMES)]

    def verdicts(self, record: Record) -> tuple[str, Range]:
        """The verdict then, and those that there may be now."""
        then, now = verdict_then(record), self.decide(record)
        combined = not record["votes"] and record["kind"] == "intent" and len(parts(record)) > 1
        if combined and not self._asks_nobody and (then, now.low.verdict) == (ALLOW, CONFIRM):
            return then, Range(_ALLOWED, now.high, _CONFIRMED)  # such a record tells the verdict of one part only
        return then, now


class Group:
    """Decisions that differ, or cannot be told, in the same way. `first` is the number of the first record."""

    __slots__ = ("asks", "count", "effect", "first", "now", "path", "reason", "rule", "rule_then", "then", "to")

    def __init__(self, record: Record, then: str, now: Range) -> None:
        ends = dict.fromkeys((now.low.verdict, now.high.verdict))
        self.first = record["seq"]
        self.count = 0
        self.effect = record["effect"]
        self.path = record["path"]
        extra = record.get("extra")
        to = extra.get("to") if isinstance(extra, dict) else None
        self.to = to if isinstance(to, str) else ""
        self.then = then
        self.now = " or ".join(ends)
        self.rule_then = rule_then(record)
        self.rule = now.high.rule.source if now.high.rule is not None else ""
        self.reason = now.high.reason
        self.asks = now.asks if len(ends) > 1 else ""

    @property
    def key(self) -> tuple[str, ...]:
        """What is alike in all its decisions."""
        return self.effect, self.path, self.to, self.then, self.now, self.rule_then, self.rule, self.reason, self.asks

    def told(self) -> Record:
        """As one JSON object."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != ""}


class Replay:
    """A session decided again. Counts are of decisions; a line of reads counts as often as it was read."""

    def __init__(self, past: Past, profile: Profile) -> None:
        self._past = past
        self._judge = Judge(profile, asks_nobody=past.asks_nobody)
        self.decisions = self.same = self.left = 0
        self.differ: dict[tuple[str, ...], Group] = {}
        self.unknown: dict[tuple[str, ...], Group] = {}
        self.damage: list[Record] = []

    def run(self, tell: Tell | None = None) -> None:
        """Decide everything again, `tell` as for `read_records`. Raises UserError when the ledger cannot be read."""
        for record in decisions(self._past.path, self.damage, tell=tell):
            count = record.get("count")
            self._add(record, count if isinstance(count, int) else 1)

    def _add(self, record: Record, count: int) -> None:
        self.decisions += count
        if not decided_by_rules(record):
            self.left += count
            return
        then, now = self._judge.verdicts(record)
        possible = STRICTNESS[now.low.verdict] <= STRICTNESS[then] <= STRICTNESS[now.high.verdict]
        if possible and now.told:
            self.same += count
            return
        group = Group(record, then, now)
        group = (self.unknown if possible else self.differ).setdefault(group.key, group)
        group.count += count

    def summary(self) -> Record:
        """The counts, by name."""
        return {
            "decisions": self.decisions,
            "same": self.same,
            "differ": sum(group.count for group in self.differ.values()),
            "unknown": sum(group.count for group in self.unknown.values()),
            "left": self.left,
        }

    def objects(self) -> Iterator[Record]:
        """For programs: a group each, and the summary."""
        for kind, groups in (("differs", self.differ), ("unknown", self.unknown)):
            for group in _sorted(groups):
                yield {"kind": kind, **group.told()}
        yield {"kind": "summary", **self.summary()}

    def lines(self) -> Iterator[list[tuple[str, str]]]:
        """For people: the same, and the counts in the last line."""
        heading = ""
        for group in _sorted(self.differ):
            change = f"{group.then} -> {group.now}"
            if change != heading:
                heading = change
                yield [(change, "yellow" if _loosens(group) else "red")]
            yield _head(group)
            yield _row("now", group.rule, group.reason)
            yield _row("then", group.rule_then, "")
            if group.asks:
                yield _row("asks", "", group.asks)
        for number, group in enumerate(_sorted(self.unknown)):
            if not number:
                yield [("cannot be told", "bold")]
            yield _head(group)
            yield _row("asks", group.rule, group.asks)
        yield [(self._words(), "bold")]

    def _words(self) -> str:
        counts = self.summary()
        said = [f"{paths.counted(counts['decisions'], 'decision')}: "]
        said.append(f"{counts['differ']} would differ" if counts["differ"] else "nothing differs")
        if counts["unknown"]:
            said.append(f", {counts['unknown']} cannot be told")
        if counts["left"]:
            said.append(f", {counts['left']} not decided by rules")
        return "".join(said)


class Coverage(Replay):
    """What a profile would not simply let pass of all that a session did, whoever or whatever let it then."""

    def _add(self, record: Record, count: int) -> None:
        self.decisions += count
        if record["kind"] not in ALLOWED:
            self.left += count
            return
        now = self._judge.decide(record)
        if now.high.verdict in {ALLOW, VIEW if verdict_then(record) == VIEW else ALLOW}:
            self.same += count
            return
        group = Group(record, ALLOW, now)
        group = (self.unknown if now.low.verdict == ALLOW else self.differ).setdefault(group.key, group)
        group.count += count

    def _words(self) -> str:
        counts = self.summary()
        said = [f"{paths.counted(counts['decisions'] - counts['left'], 'allowed decision')}: "]
        said.append(f"{counts['differ']} would be refused or asked about" if counts["differ"] else "all would pass")
        if counts["unknown"]:
            said.append(f", {counts['unknown']} cannot be told")
        return "".join(said)


def _in_full(record: Record, decision: Decision) -> Decision:
    """The decision, where a view would not have done for what was asked: then that wants a confirmation."""
    if decision.verdict != VIEW or (record["effect"] == READ and verdict_then(record) != CONFIRM):
        return decision
    return Decision(CONFIRM, decision.rule, decision.reason)


def _strictness(decision: Decision) -> int:
    return STRICTNESS[decision.verdict]


def _loosens(group: Group) -> bool:
    return STRICTNESS[group.now.rpartition(" ")[2]] < STRICTNESS[group.then]


def _sorted(groups: dict[tuple[str, ...], Group]) -> list[Group]:
    """What gets stricter first; of one kind the most frequent."""
    return sorted(groups.values(), key=lambda g: (_loosens(g), g.then, g.now, -g.count, g.first))


def _head(group: Group) -> list[tuple[str, str]]:
    where = _shown(group.path) + (f" -> {_shown(group.to)}" if group.to else "")
    return [(f"{group.count:>7} ", "dim"), (f"{paths.display(group.effect, 20):8} ", ""), (where, "")]


def _row(name: str, rule: str, text: str) -> list[tuple[str, str]]:
    said = ": ".join(filter(None, (_shown(rule) or ("" if name == "asks" else "no rule"), _shown(text))))
    return [(f"{'':8}{name:5} {said}", "dim")]


def _shown(text: str) -> str:
    return paths.display(raw(text), 5000)
