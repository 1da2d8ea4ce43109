"""What recorded runs did, gathered for a profile: what it may allow again, and what it must not take over by itself.

Each decision is judged once more, by the facts in its record, under the profile whose protections the learned one
keeps. What that would not simply allow is kept back: a run may have been hostile, and a profile that was learned from
it must not be what opens the door next time. In doubt it is kept back, too.
"""

from __future__ import annotations

from pincer_trace import effects
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import decisions, raw
from pincer_trace.profile import ALLOW, Decision, Profile, globs
from pincer_trace.profile.model import GRANT, VIEW, Rule
from pincer_trace.review.normal import Naming
from pincer_trace.review.parts import decided_by_rules, destination, parts
from pincer_trace.review.replay import Judge
from pincer_trace.twin import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.ledger.read import Record, Tell
    from pincer_trace.review.past import Past

    Name = tuple[str, str, tuple[bytes, ...]]

MAKES = frozenset({effects.CREATE, effects.MKDIR, effects.SYMLINK, effects.LINK, effects.MKNOD, effects.BIND})
# What goes with it: whether a file was there, and empty, says nothing about the next time; what may be renamed may go.
_ALSO = {
    effects.CREATE: (effects.WRITE, effects.TRUNCATE),
    effects.WRITE: (effects.CREATE, effects.TRUNCATE),
    effects.TRUNCATE: (effects.WRITE, effects.CREATE),
    effects.RENAME: (effects.UNLINK,),
}
_FILES = frozenset({effects.CREATE, effects.WRITE, effects.TRUNCATE, effects.LINK})
_LEAVES = frozenset({effects.UNLINK, effects.RMDIR, effects.RENAME})
_TEMPORARY = ((b"tmp",), (b"var", b"tmp"), (b"dev", b"shm"), (b"dev", b"mqueue"))
_MOST = 500_000  # distinct things that are kept in memory
_MOST_KEPT_BACK = 2000
REFUSED = "refused in that run"
_BUILT_IN = "built in"


class Example:
    """How often something was seen, and where first."""

    __slots__ = ("count", "exe", "record", "session")

    def __init__(self, record: Record, session: str) -> None:
        self.count = 0
        self.exe: str = record["exe"] or ""
        self.record: int = record["seq"]
        self.session = session


class Deed:
    """An effect on a name, as one session had it: `below` the place, as it was and as a `pattern`. `made`: by the run;
    `own`: that, or in a directory that the run made; `bound`: with a server of its own; `whole`: with all that lies
    below it.
    """

    __slots__ = ("below", "bound", "effect", "made", "own", "pattern", "place", "seen", "whole")

    def __init__(self, effect: str, place: str, below: list[bytes], seen: Example) -> None:
        self.effect = effect
        self.place = place
        self.below = below
        self.seen = seen
        self.made = self.own = self.bound = self.whole = False
        self.pattern: list[bytes] = []

    @property
    def name(self) -> Name:
        """The effect, and where."""
        return self.effect, self.place, tuple(self.below)


class KeptBack:
    """What is not taken over by itself: `decision` stands against it. `by_protection`: the learned profile has that,
    too, so that no grant opens it.
    """

    __slots__ = ("by_protection", "deed", "naming", "path", "reason", "rule")

    def __init__(self, deed: Deed, path: bytes, decision: Decision, naming: Naming, *, by_protection: bool) -> None:
        self.deed = deed
        self.path = path
        self.naming = naming
        self.by_protection = by_protection
        self.rule = decision.rule.source if decision.rule is not None else ""
        self.reason = decision.reason


class Lessons:
    """Give it every session with `add`.

    `crowd` names what was kept back beyond what is told apart: a run could hide one thing behind thousands of others.
    """

    def __init__(self) -> None:
        self.deeds: list[Deed] = []
        self.kept_back: dict[tuple[str, bytes, str], KeptBack] = {}
        self.crowd: set[Name] = set()
        self.decisions = self.left = self.more = 0
        self.pasts: list[Past] = []
        self.damage: list[tuple[str, list[Record]]] = []

    def add(self, past: Past, keeps: str, tell: Tell | None = None) -> None:
        """The decisions of one session; `keeps` names the profile whose protections hold. Raises UserError."""
        damage: list[Record] = []
        session = _Session(self, past, keeps)
        for record in decisions(past.path, damage, tell=tell):
            session.take(record)
        self.pasts.append(past)
        self.damage.append((past.path, damage))
        self.deeds += session.deeds()
        if len(self.deeds) > _MOST:
            raise UserError(
                f"more than {_MOST} different effects and names: too many for one profile; name fewer sessions"
            )

    def things(self) -> dict[tuple[bytes, str, str], list[KeptBack]]:
        """What was kept back as a person is told of it: effects on one name that one rule speaks against are one."""
        found: dict[tuple[bytes, str, str], list[KeptBack]] = {}
        for kept in self.kept_back.values():
            found.setdefault((kept.path, kept.rule, kept.reason), []).append(kept)
        return found


class _Session:
    """One session while it is read."""

    def __init__(self, lessons: Lessons, past: Past, keeps: str) -> None:
        self._lessons = lessons
        self._id = past.id
        self._pids: set[int] = set()
        self._naming = Naming(past.places, self._pids)
        # the protections without the options of that run, which named something on purpose, for that run
        self._profiles = _protections_of(past.alone(keeps)), past.profile(keeps)
        self._judges = [Judge(profile, asks_nobody=False) for profile in self._profiles]
        self._made: set[bytes] = set()
        self._files: set[bytes] = set()  # of what was made
        self._gone: set[bytes] = set()  # of what was made, what was taken away again
        self._found: dict[tuple[object, ...], tuple[Deed, bytes]] = {}

    def take(self, record: Record) -> None:
        """One decision."""
        pid = record["pid"]
        if isinstance(pid, int):
            self._pids.add(pid)
        self._lessons.decisions += _count(record)
        if record["kind"] == "failure" or not record["effect"] or record.get("native"):
            self._lessons.left += 1
        elif record["kind"] == "denied":
            self._refused(record)
        else:
            against = list(self._against(record))
            for each in against:
                self._keep_back(record, *each)
            self._follow(record)
            if not against:
                self._learn(record)

    def _against(self, record: Record) -> Iterator[tuple[str, bytes, Decision, bool]]:
        """What stands against allowing it again, of each of its parts."""
        effect, path = record["effect"], raw(record["path"])
        if record["kind"] == "reads" or effect == effects.EXEC:
            settled = [profile.settled(effect, path) for profile in self._profiles]
            if all(each is not None and each.verdict == ALLOW for each in settled):
                return
        for judge in self._judges:
            kept = judge is self._judges[0]
            said = judge.decide(record)
            if said.high.verdict in {ALLOW, VIEW}:  # a view, which the protections give next time, too
                continue
            single = [(part.effect, part.path, judge.part(record, part).high, kept) for part in parts(record)]
            refused = [each for each in single if each[2].verdict != ALLOW]
            yield from refused or [(effect, path, said.high, kept)]
            return

    def _learn(self, record: Record) -> None:
        """What must be allowed for the call to be made again, also where what it makes is there by then."""
        wanted = {(part.effect, part.path): None for part in parts(record)}
        for part in parts(record):
            wanted |= {(part.effect, name): None for name in self._judges[0].facts(record, part).also}
        if "exchanged" in (record.get("extra") or {}):
            wanted |= {(effects.WRITE, raw(record["path"])): None}
        counted: set[bytes] = set()
        for effect, path in wanted:
            count = 0 if path in counted else _count(record)
            counted.add(path)
            self._note(record, effect, path, count)
            for each in _ALSO.get(effect, ()):
                self._note(record, each, path, 0)

    def _note(self, record: Record, effect: str, path: bytes, count: int) -> None:
        own = self._is_own(path)
        bound = effect in effects.TO_PEERS and [facts.BOUND, True] in (record.get("facts") or [])
        whole = effect == effects.RENAME and path not in self._files
        key = effect, path, own, bound, whole
        found = self._found.get(key)
        if found is None:
            deed = self._deed(record, effect, path)
            deed.own, deed.bound, deed.whole = own, bound, whole
            found = self._found[key] = deed, path
            if len(self._found) > _MOST:
                raise UserError(f"session {self._id} did more than {_MOST} different things: too many to learn from")
        found[0].seen.count += count

    def _deed(self, record: Record, effect: str, path: bytes) -> Deed:
        place, below = ("", [path]) if path.startswith(b"//") else self._naming.split(path)
        return Deed(effect, place, below, Example(record, self._id))

    def _is_own(self, path: bytes) -> bool:
        while len(path) > 1 and path[:2] != b"//":
            if path in self._made:
                return True
            path = path.rpartition(b"/")[0]
        return False

    def _follow(self, record: Record) -> None:
        """What is there after it."""
        effect, path = record["effect"], raw(record["path"])
        if record["outcome"] != "done":
            return
        if effect in MAKES:
            self._made.add(path)
            if effect in _FILES:
                self._files.add(path)
        if effect in _LEAVES:
            if path in self._made:
                self._gone.add(path)
            if effect == effects.RENAME and (other := destination(record)):
                if self._is_own(path):
                    self._made.add(other)
                if path in self._files:
                    self._files.add(other)

    def _refused(self, record: Record) -> None:
        if not decided_by_rules(record) or record["rule"] == _BUILT_IN:
            self._lessons.left += 1  # by the supervisor itself, or by what no rule opens
            return
        path = raw(record["path"])
        said = self._judges[0].decide(record).high
        protected = said.verdict != ALLOW
        decision = Decision(record["verdict"], said.rule or _rule(record["rule"]), f"{REFUSED}: {record['reason']}")
        self._keep_back(record, record["effect"], path, decision, protected)

    def _keep_back(self, record: Record, effect: str, path: bytes, decision: Decision, protected: bool) -> None:
        lessons = self._lessons
        key = effect, path, decision.reason
        kept = lessons.kept_back.get(key)
        if kept is None:
            if len(lessons.kept_back) >= _MOST_KEPT_BACK:
                lessons.more += 1
                if not protected:
                    lessons.crowd.add(self._deed(record, effect, path).name)
                    if len(lessons.crowd) > _MOST:
                        raise UserError(
                            f"session {self._id} was refused more than {_MOST} names: too many to learn from"
                        )
                return
            kept = lessons.kept_back[key] = KeptBack(
                self._deed(record, effect, path), path, decision, self._naming, by_protection=protected
            )
        kept.deed.seen.count += _count(record)

    def deeds(self) -> Iterator[Deed]:
        """What was done, with what the end of the run tells about each name."""
        for deed, path in self._found.values():
            if path.startswith(b"//"):
                deed.pattern = [globs.escape(path)]
            else:
                self._see(deed, path)
            yield deed

    def _see(self, deed: Deed, path: bytes) -> None:
        temporary = is_temporary(deed.place, deed.below)
        deed.made = path in self._made
        for name in reversed(deed.below):
            steady, fleeting = self._naming.steady, self._naming.temporary if temporary else self._naming.fleeting
            goes = path in self._made and (temporary or path in self._gone)
            deed.pattern.append(fleeting(name) if goes else steady(name))
            path = path.rpartition(b"/")[0]
        deed.pattern.reverse()


def is_temporary(place: str, parts: list[bytes]) -> bool:
    """Whether it lies in a directory for temporary things, which is everybody's."""
    return place == "tmp" or (not place and any(tuple(parts[: len(head)]) == head for head in _TEMPORARY))


def _count(record: Record) -> int:
    count = record.get("count")
    return count if isinstance(count, int) and count > 0 else 1


def _rule(source: str) -> Rule:
    return Rule(frozenset(), b"", (), ALLOW, "", source or "no rule")


def _protections_of(profile: Profile) -> Profile:
    """Its protections alone, and everything granted."""
    everything = [
        Rule(effects.EFFECTS, pattern, components, ALLOW, "", "")
        for pattern, components in ((b"/**", (None,)), (b"//**", (b"", None)))
    ]
    rules = tuple(rule for rule in profile.rules if rule.tier > GRANT)
    return Profile(profile.name, (*everything, *rules), b"", profile.settings)
