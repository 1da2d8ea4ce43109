"""Two profiles compared by what they decide: where one allows what the other does not.

Each kind of path that the rules of either tell apart is judged under both (`examples` finds one path of each), for each
program that a rule names and for one that none does, and in each case that a condition may meet. So nothing is missed,
and what is told comes with a path for which it is so. Of many rules only the grants make kinds, as long as both have
the same protections; where they have not, there are too many kinds, so lines are tried two by two, and that is said.
What pincer-trace closes for its own sake is left aside, since that depends on where the files of a profile lie.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

from pincer_trace import effects, paths
from pincer_trace.profile import model
from pincer_trace.profile.examples import Kinds, meeting, samples
from pincer_trace.profile.globs import matches
from pincer_trace.profile.model import BUILT_IN, CONFIRM, GRANT, PROTECTION, STRICTNESS, Facts, Profile, Rule, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pincer_trace.profile.globs import Components
    from pincer_trace.profile.model import Decision
    from pincer_trace.profile.sinks import Sink

    Condition = tuple[object, ...]
    Pair = tuple[Rule | None, Rule | None]  # of one profile and the other; both where both have it

_EFFECTS = tuple(sorted(effects.EFFECTS))
_OWN = (model.OWN, model.OWN_ANCHOR, model.OWN_ABOVE)
_GIT = (model.GIT_INERT, model.GIT_ACTIVE)
_CONFIRM = STRICTNESS[CONFIRM]
_MOST_CONDITIONS = 10  # of one path
_MOST_RULES = 250  # whose overlaps are all tried
_MOST_OVERLAPS = 1500  # of two, that are tried
_MOST_ROUNDS = 4
_SETTINGS = Settings()  # what no rule is about is told beside this


class Difference:
    """What both say about some effects on the paths that all of `patterns` match, such as `example`. `rules` are where
    they say it of that one; `case` is when, if not always.
    """

    __slots__ = ("case", "components", "effects", "example", "patterns", "rules", "verdicts")

    def __init__(self, verdicts: tuple[str, str], rules: tuple[str, str], case: str, of: Sequence[Rule]) -> None:
        self.verdicts = verdicts
        self.rules = rules
        self.case = case
        self.patterns = [rule.pattern for rule in of]
        self.components = [rule.components for rule in of]
        self.effects: list[str] = []
        self.example = b""

    @property
    def loosens(self) -> bool:
        """Whether the second one lets more pass."""
        return _rank(self.verdicts[1]) < _rank(self.verdicts[0])

    def matches(self, path: bytes) -> bool:
        """Whether it is about `path`."""
        return all(matches(components, path) for components in self.components)

    def covers(self, other: Difference) -> bool:
        """Whether the other one tells nothing that this one does not: of the same verdicts and case."""
        return set(self.effects) >= set(other.effects) and all(
            any(_lies_in(inner, outer) for inner in other.components) for outer in self.components
        )


class Comparison:
    """What two profiles decide differently, the looser first. `complete`: there is no more of it."""

    def __init__(self, one: Profile, other: Profile) -> None:
        self.complete = True
        self._told: dict[tuple[object, ...], Difference] = {}
        self._changed: set[Rule] = set()
        self._known: dict[tuple[tuple[Rule, ...], ...], list[_Said]] = {}
        self._programs: dict[tuple[Components, ...], list[bytes]] = {}
        rules = [tuple(_copy(rule) for rule in each.rules if rule.tier < BUILT_IN) for each in (one, other)]
        self._compare(*rules)
        self.differences = self._gathered()

    def _compare(self, mine: Sequence[Rule], theirs: Sequence[Rule]) -> None:
        pairs = _paired(mine, theirs)
        relevant = [index for index, (one, other) in enumerate(pairs) if one is None or other is None]
        if not relevant:
            return
        self._changed.update(rule for index in relevant for rule in pairs[index] if rule is not None)
        rules = [_either(*pair) for pair in pairs]
        index_of = _Index([rule.components for rule in rules])
        if len(rules) <= _MOST_RULES:
            self.complete = self._try_kinds(pairs, range(len(pairs)))
        elif all(rules[index].tier == GRANT for index in relevant):
            self.complete = self._try_grants(pairs, index_of)
        else:
            self.complete = False
        if not self.complete:
            for path in itertools.islice(_overlaps(rules, relevant), _MOST_OVERLAPS):
                self._look_at(path, [pairs[index] for index in index_of(path)])

    def _try_kinds(self, pairs: Sequence[Pair], among: Iterable[int]) -> bool:
        """Each kind of path by some of the rules, which all others are none of; whether these were all."""
        some = [pairs[index] for index in among]
        kinds = _kinds(some)
        for matching, path in kinds.found():
            self._look_at(path, [some[index] for index in sorted(matching)])
        return kinds.complete and self.complete

    def _try_grants(self, pairs: Sequence[Pair], index_of: _Index) -> bool:
        """Each kind of path by grants, where both have the same protections: those decide alike in both, so what they
        leave of a kind differs as the grants do. Those that hide an example may hide the whole kind: then they are
        among what makes kinds, too. Whether all was tried.
        """
        among = {index for index, pair in enumerate(pairs) if _either(*pair).tier == GRANT}
        for _ in range(_MOST_ROUNDS):
            some = sorted(among)
            kinds = _kinds([pairs[index] for index in some])
            hiding: set[int] = set()
            for matching, path in kinds.found():
                full = index_of(path)
                grants = [pairs[i] for i in full if _either(*pairs[i]).tier == GRANT]
                told = self._look_at(path, [pairs[index] for index in full])
                if not told >= self._look_at(path, grants, keep=False):
                    hiding |= set(full) - {some[index] for index in matching}
            if not kinds.complete or hiding <= among:
                return kinds.complete and self.complete
            among |= hiding
        return False

    def _look_at(self, path: bytes, matching: Sequence[Pair], *, keep: bool = True) -> set[str]:
        """Tell what differs on a path, which the patterns of these rules match; for which effects something does."""
        both = [one for one, _ in matching if one is not None], [other for _, other in matching if other is not None]
        alike: dict[tuple[tuple[Rule, ...], ...], list[str]] = {}
        found: set[str] = set()
        for effect in effects.TO_PEERS if path[:2] == b"//" else effects.EFFECTS:
            about = tuple(tuple(rule for rule in side if effect in rule.effects) for side in both)
            alike.setdefault(about, []).append(effect)
        for sides, names in alike.items():
            if self._changed.isdisjoint(itertools.chain(*sides)):
                continue
            if sides not in self._known:
                self._known[sides] = list(self._judged(names[0], path, sides))
            for said in self._known[sides]:
                found.update(names)
                if keep:
                    self._tell(said, names, path)
        return found

    def _judged(self, effect: str, path: bytes, both: Sequence[Sequence[Rule]]) -> Iterator[_Said]:
        """What differs on a path, for which these rules matter: for any program first, then for those that differ from
        that.
        """
        sides = [Profile("", tuple(each), b"", _SETTINGS) for each in both]
        rules = [*both[0], *both[1]]
        settled = [side.settled(effect, path) for side in sides]
        if settled[0] is not None and settled[1] is not None:
            if _word(settled[0]) != _word(settled[1]):
                yield _Said([(Facts(), settled[0], settled[1])], "")
            return
        conditions = list(dict.fromkeys(each for rule in rules if (each := _condition(rule))))
        if len(conditions) > _MOST_CONDITIONS:
            self.complete = False
            del conditions[_MOST_CONDITIONS:]
        base: _Said | None = None
        for label, trusted, words in self._callers(rules):
            rows = []
            for met in _possible(conditions):
                case = _Case(met, label, trusted)
                rows.append((case, *(side.judge(effect, path, case) for side in sides)))
            said = _Said(rows, words)  # type: ignore[arg-type]
            if base is None:
                base = said
                if said.differs:
                    yield said
            elif said.differs and said.told != base.told:
                yield said

    def _callers(self, rules: Iterable[Rule]) -> Iterator[tuple[bytes, bytes, str]]:
        """Each kind of program that the rules tell apart, one that no rule names first: its label, whether that is
        believed by an allowance, and how it is called.
        """
        labels = {rule.exe_components: rule for rule in rules if rule.exe_components is not None}
        named = tuple(sorted(labels, key=repr))
        if named not in self._programs:
            kinds = Kinds([*named, (None,)], [len(named)])
            found = list(kinds.found())
            self.complete &= kinds.complete
            self._programs[named] = [exe for _, exe in sorted(found, key=lambda each: len(each[0]))]
        for exe in self._programs[named]:
            fitting = [paths.display(labels[each].exe, 5000) for each in named if matches(each, exe)]
            words = " and ".join(fitting)
            yield exe, exe, f"for {words}" if words else ""
            if words:
                yield exe, b"", f"for what the run made, as {words}"
        if named:
            yield b"", b"", "for a program that is not known"

    def _tell(self, said: _Said, names: list[str], path: bytes) -> None:
        verdicts, rules, case = said.told
        of = [rule for rule in said.rules if rule is not None]
        of = [rule for rule in of if rule in self._changed] or of
        if len(of) > 1 and _lies_in(of[0].components, of[1].components):
            of.pop()
        elif len(of) > 1 and _lies_in(of[1].components, of[0].components):
            of.pop(0)
        key = verdicts, case, tuple(rule.pattern for rule in of)
        difference = self._told.get(key)
        if difference is None:
            difference = self._told[key] = Difference(verdicts, rules, case, of)
            difference.example = path
        difference.effects += [name for name in names if name not in difference.effects]

    def _gathered(self) -> list[Difference]:
        """Without those that a wider one tells as well."""
        groups: dict[tuple[object, ...], list[Difference]] = {}
        wide_first = sorted(self._told.values(), key=lambda each: (sum(map(len, each.components)), each.patterns))
        for difference in wide_first:
            difference.effects.sort()
            group = groups.setdefault((difference.verdicts, difference.case), [])
            if not any(wider.covers(difference) for wider in group):
                group.append(difference)
        return sorted(
            (difference for group in groups.values() for difference in group),
            key=lambda each: (not each.loosens, each.verdicts, each.case, each.rules, each.effects, each.patterns),
        )


class _Said:
    """What both decide on a path for one kind of program: a row for each case of the conditions."""

    def __init__(self, rows: Sequence[tuple[Facts, Decision, Decision]], program: str) -> None:
        different = next((row for row in rows if _word(row[1]) != _word(row[2])), None)
        self.differs = different is not None
        sides = [one for _, one, _ in rows], [other for _, _, other in rows]
        verdicts = _summed(sides[0]), _summed(sides[1])
        self.rules = [min(side, key=lambda each: STRICTNESS[each.verdict]).rule for side in sides]
        case = program
        if different is not None and verdicts[0] == verdicts[1]:  # but not in the same cases
            verdicts = _word(different[1]), _word(different[2])
            self.rules = [different[1].rule, different[2].rule]
            case = f"{program} {different[0]}".strip()
        sources = [rule.source if rule is not None else "" for rule in self.rules]
        self.told = verdicts, (sources[0], sources[1]), case


class _Case(Facts):
    """What is so of a request: the conditions in `met`. `label` and `trusted` are its program as a refusal and as an
    allowance take it.
    """

    __slots__ = ("_label", "_met", "_trusted")

    def __init__(self, met: dict[Condition, object], label: bytes, trusted: bytes) -> None:
        self._met = met
        self._label = label
        self._trusted = trusted

    def owns(self, rule: Rule, path: bytes) -> bool:
        return bool(self._met.get(_condition(rule)))

    def git_config_changes(self) -> frozenset[str] | None:
        return frozenset() if self._met.get((model.GIT_CONFIG,)) else None

    def git_danger(self) -> str | None:
        found = self._met.get(_GIT, "")
        return None if found is None else str(found)

    def bound_by_tree(self) -> bool:
        return bool(self._met.get((model.BOUND,)))

    def sink_doubt(self, sink: Sink) -> str:
        return "" if self._met.get(_sink(sink)) else "it is another program"

    def executable(self) -> bytes:
        return self._label

    def trusted_executable(self) -> bytes:
        return self._trusted

    def __str__(self) -> str:
        """`when own below /w`, of what holds."""
        words = []
        for condition, holds in self._met.items():
            name = str(condition[0])
            if condition == _GIT:
                words.append(model.GIT_ACTIVE if holds else model.GIT_INERT if holds == "" else "nothing appears there")
            elif holds and isinstance(condition[-1], bytes):
                words.append(f"{name} below {paths.display(condition[-1])}")
            elif holds:
                words.append(name)
        return f"when {' and '.join(words)}" if words else "when no condition holds"


class _Dismissing:
    """Leaves out positions of rules that have no say below, since a stronger one decides about all that is there."""

    def __init__(self, kinds: Kinds, pairs: Sequence[Pair]) -> None:
        self._ends = 0
        self._weaker: dict[int, tuple[int, int, int]] = {}  # by their ends: what goes, and what more unless these live
        rules = [_either(*pair) for pair in pairs]
        sides = [(one is not None) + 2 * (other is not None) for one, other in pairs]
        places = [kinds.positions([index]) for index in range(len(rules))]
        for index, rule in enumerate(rules):
            if rule.when or rule.exe_components is not None or rule.components[-1:] != (None,):
                continue
            side = sides[index]
            weaker = grants = lifting = 0
            for at, each in enumerate(rules):
                here = sides[at] & ~side == 0 and each.effects <= rule.effects
                if here and at < index and each.tier == rule.tier:
                    weaker |= places[at]
                elif here and each.tier == GRANT and rule.tier == PROTECTION:
                    grants |= places[at]
                elif each.tier == PROTECTION and STRICTNESS[each.verdict] < _CONFIRM and at > index:
                    lifting |= places[at]
            if rule.tier == PROTECTION and STRICTNESS[rule.verdict] < _CONFIRM:
                grants = 0
            end = kinds.end(index)
            self._ends |= end
            self._weaker[end] = weaker, grants, lifting

    def __call__(self, at: int) -> int:
        ends = at & self._ends
        while ends:
            end = ends & -ends
            ends ^= end
            if at & end:
                layer, grants, lifting = self._weaker[end]
                at &= ~layer
                if not at & lifting:
                    at &= ~grants
        return at


def _overlaps(rules: Sequence[Rule], relevant: Iterable[int]) -> Iterator[bytes]:
    """Examples of each line of a profile that matters, and a path that it shares with each other line."""
    met: set[tuple[str, str, frozenset[str]]] = set()
    for index in relevant:
        one = rules[index]
        yield from samples(one.components)
        for rule in rules:
            alike = (rule.verdict, rule.expected) == (one.verdict, one.expected) and not rule.when
            if alike or (one.source, rule.source, rule.effects) in met or not rule.effects & one.effects:
                continue
            path = meeting(one.components, rule.components)
            if path is not None:
                met.add((one.source, rule.source, rule.effects))
                yield path


class _Index:
    """The patterns that match a path, by their places, without a look at most of them."""

    def __init__(self, patterns: Sequence[Components]) -> None:
        self._patterns = patterns
        self._by_name: dict[bytes | None, list[tuple[bytes, bytes, int]]] = {}  # with what a path holds for certain
        for index, pattern in enumerate(patterns):
            names = [component if isinstance(component, bytes) else None for component in pattern]
            head = [*itertools.takewhile(lambda name: name is not None, names)]
            inner = max((name for name in names[len(head) : -1] if name), key=len, default=b"")
            start = b"/" + b"/".join(head)  # type: ignore[arg-type]
            self._by_name.setdefault(names[-1] if names else None, []).append((start, inner, index))

    def __call__(self, path: bytes) -> list[int]:
        asked = [*self._by_name.get(path.rpartition(b"/")[2], ()), *self._by_name.get(None, ())]
        return sorted(
            index
            for start, inner, index in asked
            if path.startswith(start) and inner in path and matches(self._patterns[index], path)
        )


def _copy(rule: Rule) -> Rule:
    """Its own, since a profile numbers the rules that it is made of."""
    return Rule(
        rule.effects, rule.pattern, rule.components, rule.verdict, rule.reason, rule.source, rule.when, rule.exe,
        rule.exe_components, rule.tier, sink=rule.sink, expected=rule.expected,
    )  # fmt: skip


def _either(one: Rule | None, other: Rule | None) -> Rule:
    found = one or other
    assert found is not None  # one of them is there
    return found


def _kinds(pairs: Sequence[Pair]) -> Kinds:
    """The kinds of path by these rules, of which one that only one profile has matters."""
    relevant = [index for index, pair in enumerate(pairs) if None in pair]
    kinds = Kinds([_either(*pair).components for pair in pairs], relevant)
    kinds.dismiss = _Dismissing(kinds, pairs)
    return kinds


def _paired(mine: Sequence[Rule], theirs: Sequence[Rule]) -> list[Pair]:
    """The rules of both in one order, those together that are in both in the same order."""
    from difflib import SequenceMatcher

    keys = [
        [
            (
                rule.effects,
                rule.components,
                rule.verdict,
                rule.exe_components,
                rule.tier,
                rule.expected,
                _condition(rule),
            )
            for rule in rules
        ]
        for rules in (mine, theirs)
    ]
    found: list[Pair] = []
    for tag, begin, end, other_begin, other_end in SequenceMatcher(
        None, keys[0], keys[1], autojunk=False
    ).get_opcodes():
        if tag == "equal":
            found += zip(mine[begin:end], theirs[other_begin:other_end], strict=True)
        else:
            found += [
                *((rule, None) for rule in mine[begin:end]),
                *((None, rule) for rule in theirs[other_begin:other_end]),
            ]
    return found


def _condition(rule: Rule) -> Condition:
    """What a rule asks, so that rules which ask the same are met in the same cases."""
    when = rule.when
    if when == model.OWN:
        return when, rule.below
    if when in _OWN:
        return (when, rule.components[rule.anchor], rule.below) if rule.anchor >= 0 else (when, None)
    if when in _GIT:
        return _GIT
    if when == model.SINK and rule.sink is not None:
        return _sink(rule.sink)
    return (when,) if when else ()


def _sink(sink: Sink) -> Condition:
    return model.SINK, sink.name, tuple(sink.options), tuple(sink.operands), tuple(sink.outputs)


def _possible(conditions: Sequence[Condition]) -> Iterator[dict[Condition, object]]:
    """Each way in which conditions may be met together, nothing met first."""
    values = [("x", None, "") if each == _GIT else (False,) if each[1:] == (None,) else (False, True)
              for each in conditions]  # fmt: skip
    for row in itertools.product(*values):
        met: dict[Condition, object] = dict(zip(conditions, row, strict=True))
        own = [each for each in conditions if each[0] in _OWN]
        if not any(met[each] and not met[other] for each in own for other in own if _implies(each, other)):
            yield met


def _implies(one: Condition, other: Condition) -> bool:
    """Whether what the run made is own by the second condition, too, if it is by the first."""
    if one[1:] == (None,) or other[1:] == (None,) or _depth(other) > _depth(one):
        return False
    if other[0] == model.OWN:
        return True
    return one[1:-1] == other[1:-1] and (one[0] == other[0] or other[0] == model.OWN_ANCHOR)


def _depth(condition: Condition) -> int:
    below = condition[-1]
    assert isinstance(below, bytes)
    return 0 if below == b"/" else below.count(b"/")


def _summed(decisions: Sequence[Decision]) -> str:
    """`allow`, `confirm`, `deny`, `deny as expected`, or `deny, or allow when own`."""
    strict = max(decisions, key=lambda each: STRICTNESS[each.verdict])
    mild = min(decisions, key=lambda each: STRICTNESS[each.verdict])
    if strict.verdict == mild.verdict:
        return _word(strict)
    if mild.rule is not None and mild.rule.when:
        return f"{_word(strict)}, or {mild.verdict} when {mild.rule.when}"
    when = f" when {strict.rule.when}" if strict.rule is not None and strict.rule.when else ""
    return f"{_word(strict)}{when}, or {mild.verdict}"


def _word(decision: Decision) -> str:
    return decision.verdict + (" as expected" if decision.rule is not None and decision.rule.expected else "")


def _rank(verdict: str) -> int:
    """The mildest reading first, between verdicts of which one has a condition."""
    strict, _, mild = verdict.partition(", or ")
    return 2 * STRICTNESS[strict.partition(" ")[0]] - bool(mild)


@lru_cache(maxsize=65536)
def _lies_in(inner: Components, outer: Components) -> bool:
    """Whether a pattern matches all that another one matches, for certain."""
    if inner == outer:
        return True
    if not all(matches(outer, path) for path in samples(inner)):
        return False
    kinds = Kinds([inner, outer], [0])
    return all(1 in matching for matching, _ in kinds.found()) and kinds.complete
