"""Two profiles compared by what they decide: where one allows what the other does not.

Each pattern of either is tried with names that it stands for, under both, once as if no fact spoke for the request and
once as if every fact did. So what is told differs for certain; where two patterns overlap in names that neither of them
shows, a difference can be missed.
"""

from __future__ import annotations

from pincer_trace import effects
from pincer_trace.kernel import inet
from pincer_trace.profile.globs import ANY_RUN, matches
from pincer_trace.profile.model import BUILT_IN, STRICTNESS, EveryFact, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.profile.globs import Components, Token
    from pincer_trace.profile.model import Decision, Profile

_NEW = b"new-name"
_DEEP = (b"new-directory", _NEW)  # what `**` is tried with
_ANY = tuple(sorted(effects.EFFECTS))


class Difference:
    """What both say about some effects on what a pattern stands for. `rules` are where they say it."""

    __slots__ = ("components", "effects", "pattern", "rules", "verdicts")

    def __init__(
        self, pattern: bytes, components: Components, verdicts: tuple[str, str], rules: tuple[str, str]
    ) -> None:
        self.pattern = pattern
        self.components = components
        self.verdicts = verdicts
        self.rules = rules
        self.effects: list[str] = []

    @property
    def loosens(self) -> bool:
        """Whether the second one lets more pass."""
        return _rank(self.verdicts[1]) < _rank(self.verdicts[0])

    def covers(self, other: Difference) -> bool:
        """Whether the same rules tell it of a pattern in which the other one lies."""
        return set(self.effects) >= set(other.effects) and all(
            matches(self.components, name) for name in _names(other.components)
        )


def differences(one: Profile, other: Profile) -> list[Difference]:
    """What the second one would decide differently, the looser first."""
    patterns: dict[bytes, Components] = {}
    for profile in (one, other):
        patterns.update((rule.pattern, rule.components) for rule in profile.rules if rule.tier < BUILT_IN)
    found: dict[tuple[object, ...], Difference] = {}
    for pattern, components in patterns.items():
        for effect in _ANY:
            told = _first_difference(one, other, effect, components)
            if told is not None:
                difference = found.setdefault((pattern, *told), Difference(pattern, components, *told))
                difference.effects.append(effect)
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for difference in sorted(found.values(), key=lambda each: (len(each.components), each.pattern)):
        group = groups.setdefault((difference.verdicts, difference.rules), [])
        if not any(wider.covers(difference) for wider in group):
            group.append(difference)
    rest = [difference for group in groups.values() for difference in group]
    return sorted(rest, key=lambda each: (not each.loosens, each.verdicts, each.rules, each.effects, each.pattern))


def _first_difference(
    one: Profile, other: Profile, effect: str, components: Components
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    if components[:1] == (b"",) and effect not in effects.TO_PEERS:  # no file
        return None
    for path in _names(components):
        said = [_verdict(profile, effect, path) for profile in (one, other)]
        if said[0][0] != said[1][0]:
            return (said[0][0], said[1][0]), (said[0][1], said[1][1])
    return None


def _verdict(profile: Profile, effect: str, path: bytes) -> tuple[str, str]:
    """`allow`, `confirm`, `deny`, `deny as expected`, or `deny, or allow when own`; and the rule."""
    settled = profile.settled(effect, path)
    if settled is not None:
        return _word(settled), _source(settled)
    strict, mild = profile.judge(effect, path, Facts()), profile.judge(effect, path, EveryFact())
    if strict.verdict == mild.verdict:
        return _word(strict), _source(strict)
    when = f" when {mild.rule.when}" if mild.rule is not None and mild.rule.when else ""
    return f"{_word(strict)}, or {mild.verdict}{when}", _source(mild)


def _word(decision: Decision) -> str:
    return decision.verdict + (" as expected" if decision.rule is not None and decision.rule.expected else "")


def _source(decision: Decision) -> str:
    return decision.rule.source if decision.rule is not None else ""


def _rank(verdict: str) -> int:
    """The mildest reading first, between verdicts of which one has a condition."""
    strict, _, mild = verdict.partition(", or ")
    return 2 * STRICTNESS[strict.partition(" ")[0]] - bool(mild)


def _names(components: Components) -> Iterator[bytes]:
    """Some names that a pattern stands for: each `**` for nothing, and for a name in a new directory; of a network
    its ends.
    """
    network = _network(components)
    if network is not None:
        for end in _ends(*network[0]):
            yield b"//" + end + b"".join(map(_sample, network[1]))
        return
    for filling in (_DEEP, (_NEW,), ()):
        parts: list[bytes] = []
        for component in components:
            if component is None:
                parts += filling
            else:
                parts.append(component if isinstance(component, bytes) else b"".join(map(_sample, component)))
        if parts != [b""]:
            yield b"/" + b"/".join(parts)
        if None not in components:
            return


def _network(components: Components) -> tuple[tuple[bytes, int], tuple[Token, ...]] | None:
    """The network that a pattern of peers names, and what it says of the port."""
    last = components[-1] if components else None
    if isinstance(last, tuple) and isinstance(last[0], tuple) and isinstance(last[0][0], bytes):
        return (last[0][0], int(last[0][1])), last[1:]
    return None


def _ends(first: bytes, bits: int) -> Iterator[bytes]:
    """Its first address and its last one."""
    last = int.from_bytes(first, "big") | (1 << 8 * len(first) - bits) - 1
    for raw in (first, last.to_bytes(len(first), "big")):
        yield inet.written(raw).encode()


def _sample(token: Token) -> bytes:
    if isinstance(token, bytes):
        return token
    if isinstance(token, int):
        return b"new" if token == ANY_RUN else b"n"
    negated, members = token
    assert isinstance(members, bytes)
    if not negated:
        return members[:1]
    return next(
        (b"%c" % byte for byte in b"nopq0_" + bytes(range(33, 127)) if byte not in members and byte != 47), b"\xff"
    )
