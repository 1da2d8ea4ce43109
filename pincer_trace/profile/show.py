"""Profiles for people: which there are, what one says, why it decides as it does, and the smallest change
that allows.
"""

from __future__ import annotations

import os

from pincer_trace import effects, paths
from pincer_trace.errors import UserError
from pincer_trace.profile import globs, loading
from pincer_trace.profile.model import ALLOW, BUILT_IN, DENY, GRANT, OBSERVE, PROTECTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pincer_trace.profile.model import Facts, Profile, Rule
    from pincer_trace.profile.places import Places

_FOREIGN = "[!\x01-\x7f]"
_LAYERS = {BUILT_IN: "built in", PROTECTION: "protections, asked first", GRANT: "grants, asked last"}


class Explanation:
    """What would be decided, and why. `remedy` is the smallest change that allows it: an option, or rules in
    TOML; "" if allowed.

    `passed_over` are stronger rules whose pattern matches and whose condition does not hold. `lifted_by` is the rule
    without a condition that takes away the protections after it.
    """

    __slots__ = ("lifted_by", "passed_over", "reason", "remedy", "rule", "verdict")

    def __init__(
        self,
        verdict: str,
        rule: Rule | None,
        reason: str,
        passed_over: tuple[Rule, ...],
        remedy: str,
        lifted_by: Rule | None = None,
    ) -> None:
        self.verdict = verdict
        self.rule = rule
        self.reason = reason
        self.passed_over = passed_over
        self.remedy = remedy
        self.lifted_by = lifted_by


def explain(profile: Profile, effect: str, path: bytes, facts: Facts) -> Explanation:
    """Why `profile` decides about `effect` on `path` as it does."""
    decision = profile.judge(effect, path, facts)
    passed = []
    lifted_by = None
    for rule in profile.matching(effect, path):
        if rule is decision.rule:
            break
        if lifted_by is not None and rule.tier == PROTECTION:
            continue
        # a stronger grant without a condition would have decided, a protection without one too
        if rule.when or rule.exe:
            passed.append(rule)
        elif rule.tier == PROTECTION and rule.verdict == ALLOW:
            lifted_by = rule
    remedy = "" if decision.verdict == ALLOW else remedy_for(profile, decision.rule, effect, path)
    return Explanation(decision.verdict, decision.rule, decision.reason, tuple(passed), remedy, lifted_by)


def remedy_for(profile: Profile, rule: Rule | None, effect: str, path: bytes) -> str:
    """The smallest change that allows what `rule` (None: that there is none) refuses."""
    if rule is not None and rule.tier == BUILT_IN:
        return "no option opens this; install pincer-trace outside of what is supervised"
    if rule is not None and rule.source == "--protect":
        return "leave out that --protect"
    if effect in effects.TO_PEERS and path[:2] != b"//":
        return f"--allow-connect {paths.word(os.fsdecode(path))}"
    if path.startswith(b"//@"):
        return "no option opens this: whose an abstract socket is cannot be told, unless this run has bound it"
    if path.startswith(b"//"):
        return f"--allow-net {paths.word(os.fsdecode(path[2:]))}"
    if effect in effects.CHANGES:
        return f"--allow-write {paths.word(os.fsdecode(path))}"
    if rule is None:
        return _rule_text(effect, path, protection=False)
    if rule.tier == GRANT:
        return _rule_text(effect, path, protection=False)
    granted = next((r for r in profile.matching(effect, path) if r.tier == GRANT), None)
    lift = _rule_text(effect, path, protection=True)
    if granted is not None and granted.verdict == ALLOW and not granted.when and not granted.exe:
        return lift
    return lift + "\n" + _rule_text(effect, path, protection=False)


def _rule_text(effect: str, path: bytes, *, protection: bool) -> str:
    return rule_text([effect], globs.escape(path), protection=protection)


def rule_text(names: Sequence[str], pattern: bytes, *, protection: bool) -> str:
    """A rule for just these effects and this pattern, as TOML."""
    lines = ["[[rule]]", *(["protection = true"] if protection else [])]
    lines += [
        "effects = [" + ", ".join(f'"{name}"' for name in names) + "]",
        f"paths = [{quoted(pattern)}]",
        'verdict = "allow"',
        'reason = "I allow it"',
    ]
    return "\n".join(lines) + "\n"


def quoted(pattern: bytes) -> str:
    """A pattern as a string of TOML, on one line whatever is in it. For bytes that TOML cannot hold, those of a pattern
    that is not UTF-8, it gets "any but ASCII": no ordinary name fits.
    """
    text = "".join(_FOREIGN if "\udc80" <= c <= "\udcff" else c for c in pattern.decode("utf-8", "surrogateescape"))
    return '"' + "".join(map(_in_string, text)) + '"'


def _in_string(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"


def count_rules(name: str, places: Places) -> int:
    """How many `[[rule]]` a profile's file and those that it extends have. Errors: `UserError`."""
    from pincer_trace.profile import source

    path = loading.find(name, places)
    return len(source.compile_profile(path, loading.read(path), places)[2])


def doubts(profile: Profile) -> list[str]:
    """What is no mistake in a profile, but hardly what its author wants."""
    found = []
    if not any(effects.EXEC in rule.effects for rule in profile.rules if rule.tier == GRANT and rule.verdict != DENY):
        found.append("no rule allows exec: no command can be started under it")
    return found


def available(places: Places) -> list[tuple[str, str, str]]:
    """The profiles that have a name: (name, description or what is wrong with it, file). The user's own hide
    shipped ones.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for directory in (loading.user_profiles(places), paths.shipped_profiles()):
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".toml"))
        except OSError:
            continue
        for file in names:
            name = file.removesuffix(".toml")
            if name in found:
                continue
            try:
                description = loading.load(name, places).description
            except UserError as error:
                description = f"not usable: {error}"
            found[name] = (name, description, os.path.join(directory, file))
    return [found[name] for name in sorted(found)]


def describe(profile: Profile) -> str:
    """A profile as text: its files, settings and digest, and each rule as it stands in this place, the
    strongest first.
    """
    out = [
        f"profile {profile.name}: {profile.description}" if profile.description else f"profile {profile.name}",
        *(f"file    {paths.display(path)}" for path in profile.paths),
        f"digest  {profile.digest.hex()}",
        f"floor   {profile.settings.floor}",
        f"hold    {profile.settings.hold:g} s",
        *(["mode    observe: nothing is refused but by what is built in"] if profile.settings.mode == OBSERVE else []),
        f"udp     {profile.settings.udp}",
        f"view    {profile.settings.view}",
        *(["scan    other names of files that are protected anywhere, at the start"] if profile.settings.scan else []),
        *([f"passes  {paths.display(', '.join(profile.settings.pass_env))}"] if profile.settings.pass_env else []),
    ]
    if profile.settings.set_env:
        out.append(f"sets    {' '.join(f'{name}={value}' for name, value in profile.settings.set_env)}")
    if profile.sinks:
        out.append(f"sinks   {', '.join(sink.name for sink in profile.sinks)}; nobody traces processes or reads memory")
    for broker in profile.brokers:
        out.append(f"keeps   {paths.display(', '.join(broker.variables))} for {broker.upstream} ({broker.source})")
    tier = -1
    head = None
    for rule in sorted(profile.rules, key=lambda r: r.rank, reverse=True):
        if rule.tier != tier:
            tier, head = rule.tier, None
            out += ["", f"# {_LAYERS[tier]}"]
        verdict = "lift" if tier == PROTECTION and rule.verdict == ALLOW else rule.verdict
        condition = "".join((f" when {rule.when}" if rule.when else "", " by some executables" if rule.exe else ""))
        condition += ", as expected" if rule.expected else ""
        this = f"{verdict:7} {effects_of(rule.effects)}{condition}: {rule.reason}"
        if this != head:
            out.append(this)
            head = this
        label = f" by {paths.display(rule.exe)}" if rule.exe else ""
        out.append(f"          {paths.display(rule.pattern)}{label}  ({rule.source})")
    return "\n".join(out) + "\n"


def effects_of(names: frozenset[str]) -> str:
    """Effects in words, groups for their members."""
    rest = set(names)
    shown = []
    for group in ("any", "change"):
        if effects.GROUPS[group] <= rest:
            rest -= effects.GROUPS[group]
            shown.append(group)
    return ", ".join([*shown, *sorted(rest)])
