"""What a profile is once loaded: rules, facts, decisions, and `judge`, the pure function from a request to a
verdict.

**Order.** Three layers, asked in turn; in each the *last* matching rule wins:

1. built in: what protects pincer-trace itself (hazard P81), and the reading of what the run is to know.
   No profile and no option opens or closes it.
2. protections (`protection = true`): confirm and deny decide; allow lifts the protections written before it,
   and no more; view, of reads, takes their place, and lets the grants give a view at most.
3. grants, all other rules. When none matches, the answer is deny.

Last match wins, since files extend files and options follow files: what is written later is nearer to the
person and more specific. Alone, that would let `--allow-write .` open `.git/hooks` by accident; hence the
layer of protections in front. And an exception to a protection ("sample hooks are harmless") must not become
a grant in other people's repositories; hence allow in that layer only lifts.
"""

from __future__ import annotations

from pincer_trace.effects import CHANGES, CREATE, LINK, READ, RENAME, WRITE
from pincer_trace.profile.automaton import Automaton
from pincer_trace.profile.gitconfig import danger
from pincer_trace.profile.globs import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile.automaton import Names, State
    from pincer_trace.profile.brokers import Broker
    from pincer_trace.profile.globs import Components
    from pincer_trace.profile.show import Explanation
    from pincer_trace.profile.sinks import Sink

ALLOW = "allow"
VIEW = "view"  # of a read: what is read is a view, with handles where the secrets are
CONFIRM = "confirm"
DENY = "deny"
VERDICTS = (ALLOW, VIEW, CONFIRM, DENY)  # from the mildest to the strictest
STRICTNESS = {verdict: rank for rank, verdict in enumerate(VERDICTS)}

GRANT, PROTECTION, BUILT_IN = 0, 1, 2

ALWAYS = ""
OWN = "own"
OWN_ANCHOR = "own-anchor"
OWN_ABOVE = "own-above"
GIT_CONFIG = "git-config"
GIT_INERT, GIT_ACTIVE = "git-inert", "git-active"
BOUND = "bound"
SINK = "sink"  # not written in a rule: a `[[sink]]` gives it
CONDITIONS = (ALWAYS, OWN, OWN_ANCHOR, OWN_ABOVE, GIT_CONFIG, GIT_INERT, GIT_ACTIVE, BOUND)

NOTHING_ALLOWS = "no rule allows it"
ENFORCE, OBSERVE = "enforce", "observe"

UDP_REFUSED, UDP_UNPOLICED = "refused", "unpoliced"
FLOOR_FULL, FLOOR_SCOPED = "full", "scoped"


class Facts:
    """What conditional rules may ask about the request at hand. Asked only when a rule that matches needs it.

    The answers here are the strictest ones; the engine's subclass knows better.
    """

    __slots__ = ()

    def owns(self, rule: Rule, path: bytes) -> bool:
        """Is `path` the run's own, as the condition of `rule` means it?"""
        return _is_own(rule, path, self)

    def created_by_tree(self, below: bytes) -> bool:
        """Was the object, or a directory above it that lies strictly below `below`, created in this session
        by the tree?

        For a name that does not exist yet, only the directories count; for the new name of a rename, the
        object is the one that moves.
        """
        return False

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        """The same of `directory`, which holds the object at some depth or is it, and of the directories
        above it.
        """
        return False

    def git_config_changes(self) -> frozenset[str] | None:
        """The keys that the new content of a git configuration changes (`gitconfig.changed_keys`).

        None if that is not known.
        """
        return None

    def git_danger(self) -> str | None:
        """Why what appears there could make git run a program (`gateway.repositories`); "" if it cannot.

        None if nothing appears there: it is taken away.
        """
        return "what it brings is not known"

    def bound_by_tree(self) -> bool:
        """Was this very socket bound to its name in this session, by the tree?"""
        return False

    def sink_doubt(self, sink: Sink) -> str:
        """Why the calling process is not believed to be `sink`: started so, with nothing but trusted code in it, out of
        reach; "" if it is.
        """
        return "nothing is known of the process"

    def executable(self) -> bytes:
        """The real path of the executable that the calling process runs; a label, not a boundary."""
        return b""

    def trusted_executable(self) -> bytes:
        """The same where the worker could not have made what carries the label; b"" otherwise."""
        return self.executable()


class AnyProgram(Facts):
    """The strictest answers, for a program that no rule names."""

    __slots__ = ()

    def executable(self) -> bytes:
        return b"/"


class EveryFact(Facts):
    """The most that facts could say for a request."""

    __slots__ = ()

    def created_by_tree(self, below: bytes) -> bool:
        return True

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        return True

    def git_config_changes(self) -> frozenset[str] | None:
        return frozenset()

    def git_danger(self) -> str | None:
        return ""

    def bound_by_tree(self) -> bool:
        return True

    def sink_doubt(self, sink: Sink) -> str:
        return ""


class Rule:
    """One rule for one pattern. Immutable by convention.

    Of rules with a condition, `below` is the literal directory in front of the pattern, and `anchor` the
    index in `components` of the component after the first `**`, or -1. Ranks are unique in a profile: the
    matching rule of the highest rank wins. `expected` is how often in a run honest use asks for what the rule
    denies: so many refusals are counted apart.
    """

    __slots__ = (
        "_decision",
        "anchor",
        "below",
        "components",
        "effects",
        "exe",
        "exe_components",
        "expected",
        "pattern",
        "rank",
        "reason",
        "sink",
        "source",
        "tier",
        "verdict",
        "when",
    )

    def __init__(
        self,
        effects: frozenset[str],
        pattern: bytes,
        components: Components,
        verdict: str,
        reason: str,
        source: str,
        when: str = ALWAYS,
        exe: bytes = b"",
        exe_components: Components | None = None,
        tier: int = GRANT,
        rank: int = 0,
        sink: Sink | None = None,
        expected: int = 0,
    ) -> None:
        self.effects = effects
        self.pattern = pattern
        self.components = components
        self.verdict = verdict
        self.reason = reason
        self.source = source
        self.when = when
        self.exe = exe
        self.exe_components = exe_components
        self.tier = tier
        self.rank = rank
        self.sink = sink
        self.expected = expected
        self.below = b"/"
        self.anchor = -1
        if when:
            literal = 0
            while literal < len(components) and isinstance(components[literal], bytes):
                literal += 1
            # a pattern without wildcards names its object: directories count from its parent down
            self.below = b"/" + b"/".join(_literals(components[: min(literal, len(components) - 1)]))
            self.anchor = anchor_of(components)
        self._decision: Decision | None = None

    def decide(self) -> Decision:
        """The decision that this rule gives."""
        if self._decision is None:
            self._decision = Decision(self.verdict, self, self.reason)
        return self._decision

    def __repr__(self) -> str:
        return f"<Rule {self.source} {self.verdict} {self.pattern!r}>"


class Decision:
    """A verdict, the rule that gave it (None: no rule matches), and the reason in words."""

    __slots__ = ("reason", "rule", "verdict")

    def __init__(self, verdict: str, rule: Rule | None, reason: str) -> None:
        self.verdict = verdict
        self.rule = rule
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Decision {self.verdict}: {self.reason} ({self.rule.source if self.rule else 'no rule'})>"


class Ordinary:
    """What holds for all that lies in a directory but by one of the `named`; `deep`: and below, by no such name."""

    __slots__ = ("decision", "deep", "named")

    def __init__(self, decision: Decision, named: Names, *, deep: bool) -> None:
        self.decision = decision
        self.named = named
        self.deep = deep


class Settings:
    """What a profile says beside its rules. `floor`: "full" is the kernel floor under every file effect, "scoped" has
    none under files, so that the command can mount; `hold`: for how many seconds a call waits for a person's answer;
    `udp`: whether there are UDP sockets, whose receivers nothing can judge; `mode`: "observe" where the rules refuse
    nothing, and what they would refuse is recorded; `view`: how much a view of a secret tells; `pass_env`: variables
    that the command gets although they hold credentials; `set_env`: those that it gets where the person has not set
    them; `scan`: whether files are looked for at the start that are protected anywhere, and have other names.
    """

    __slots__ = ("floor", "hold", "mode", "pass_env", "scan", "set_env", "udp", "view")

    def __init__(
        self,
        floor: str = FLOOR_FULL,
        hold: float = 30.0,
        udp: str = UDP_REFUSED,
        mode: str = ENFORCE,
        view: str = "default",
        pass_env: tuple[str, ...] = (),
        set_env: tuple[tuple[str, str], ...] = (),
        *,
        scan: bool = False,
    ) -> None:
        self.scan = scan
        self.floor = floor
        self.hold = hold
        self.udp = udp
        self.mode = mode
        self.view = view
        self.pass_env = pass_env
        self.set_env = set_env


_NO_RULE = {ENFORCE: Decision(DENY, None, NOTHING_ALLOWS), OBSERVE: Decision(CONFIRM, None, NOTHING_ALLOWS)}


class Profile:
    """A loaded profile.

    `rules` are in order (files extended first, then the file, options, built in); `logins` are patterns of secrets that
    the started agent itself may read; `repository` is that of the work tree, if it has one; `brokers` and
    `sinks` those that this command has; below `state` nobody but pincer-trace makes files.
    """

    __slots__ = (
        "_automaton",
        "_no_rule",
        "brokers",
        "description",
        "digest",
        "logins",
        "name",
        "paths",
        "repository",
        "rules",
        "settings",
        "sinks",
        "state",
    )

    def __init__(
        self,
        name: str,
        rules: tuple[Rule, ...],
        digest: bytes,
        settings: Settings,
        *,
        description: str = "",
        paths: tuple[str, ...] = (),
        logins: tuple[bytes, ...] = (),
        repository: bytes = b"",
        brokers: tuple[Broker, ...] = (),
        sinks: tuple[Sink, ...] = (),
        state: bytes = b"",
    ) -> None:
        self.name = name
        self.rules = rules
        self.digest = digest
        self.settings = settings
        self.description = description
        self.paths = paths
        self.logins = logins
        self.repository = repository
        self.brokers = brokers
        self.sinks = sinks
        self.state = state
        for index, rule in enumerate(rules):
            rule.rank = rule.tier * 1_000_000 + index
        self._automaton = Automaton(rules)
        self._no_rule = _NO_RULE[settings.mode]

    def judge(self, effect: str, path: bytes, facts: Facts) -> Decision:
        """The verdict on one effect on one object.

        `path` is the absolute path re-derived from the pinned object, or `//HOST:PORT`. A path that is not in
        normal form is denied. Pure, but for what `facts` looks up.
        """
        state = self._automaton.state(path)
        rules = state.by_effect.get(effect)
        if rules is None:
            rules = _deciding(state, effect)
        blocked = ""
        lifted = False
        most: Rule | None = None  # what lets a view pass and no more, or the content to a sink alone: it decides then
        for rule in rules:
            if lifted and rule.tier:  # lifted: on to the grants
                continue
            when = rule.when
            if rule.exe_components is not None and not _is_labelled(rule, rule.exe_components, facts):
                continue
            if when:
                if when == GIT_CONFIG:
                    changes = facts.git_config_changes()
                    if changes is None:
                        blocked = "the change cannot be read"
                        continue
                    dangers = sorted(f"{key}: {what}" for key in changes if (what := danger(key.lower())))
                    if dangers:
                        blocked = "; ".join(dangers)
                        continue
                elif when in (GIT_INERT, GIT_ACTIVE):
                    reason = facts.git_danger()
                    if when == GIT_INERT and reason != "":
                        blocked = reason or blocked
                        continue
                    if when == GIT_ACTIVE and not reason:
                        continue
                    blocked = reason or blocked
                elif when == SINK:
                    doubt = facts.sink_doubt(rule.sink) if rule.sink is not None else "no sink"
                    if doubt:
                        blocked = blocked or doubt
                        continue
                elif when == BOUND:
                    if not facts.bound_by_tree():
                        continue
                elif not facts.owns(rule, path):
                    continue
            if rule.tier == PROTECTION and rule.verdict in {ALLOW, VIEW}:
                lifted = True
                most = rule if rule.verdict == VIEW or when == SINK else None
                continue
            if blocked and rule.verdict != ALLOW:
                return Decision(rule.verdict, rule, f"{rule.reason} ({blocked})")
            if most is not None and rule.verdict == ALLOW:
                return most.decide()
            return rule.decide()
        return self._no_rule

    def settled(self, effect: str, path: bytes) -> Decision | None:
        """What `judge` would say, where it depends on no fact; None where it may."""
        state = self._automaton.state(path)
        try:
            return state.settled[effect]
        except KeyError:
            found = state.settled[effect] = _settled(state, effect, self._no_rule)
            return found

    def settled_in(self, effect: str, directory: bytes) -> Ordinary | None:
        """As `settled` of what is ordinary in `directory` (not the root); None where there is nothing of the kind."""
        state = self._automaton.state(directory)
        names = state.names()
        if names is None or not directory:
            return None
        unnamed = self._automaton.unnamed(state)
        decision = _settled(unnamed, effect, self._no_rule)
        return None if decision is None else Ordinary(decision, names, deep=unnamed is state)

    def is_closed(self, path: bytes) -> bool:
        """Whether nothing can be put at `path` or changed there, even if every fact spoke for it."""
        facts = EveryFact()
        return all(self.judge(effect, path, facts).verdict != ALLOW for effect in (CREATE, WRITE, RENAME, LINK))

    def is_closed_below(self, directory: bytes) -> bool:
        """Whether no grant allows a change of anything strictly below `directory`."""
        pending = self._automaton.pending(directory)
        return not any(rule.tier == GRANT and rule.verdict == ALLOW and rule.effects & CHANGES for rule in pending)

    def is_free(self, path: bytes) -> bool:
        """Whether every change and every read of `path` is allowed, whatever the facts."""
        state = self._automaton.state(path)
        if state.free is None:
            decisions = [self.settled(effect, path) for effect in (*CHANGES, READ)]
            state.free = all(decision is not None and decision.verdict == ALLOW for decision in decisions)
        return state.free

    def below(self, effect: str, directory: bytes) -> tuple[Rule, ...]:
        """The rules that may not allow `effect` on something strictly below `directory`, the strongest first
        (P29).

        Never misses one; may name rules that match nothing there. Empty only if a rule allows all that is
        below.
        """
        pending = self._automaton.pending(directory)
        found = tuple(rule for rule in pending if rule.verdict != ALLOW and effect in rule.effects)
        if found:
            return found
        for rule in self._automaton.state(directory).accepted:
            whole = bool(rule.components) and rule.components[-1] is None
            if effect in rule.effects and whole and not rule.tier and _unconditional(rule):
                return ()
        return (_NOTHING,)

    def guarded_below(self, effect: str, path: bytes) -> Rule | None:
        """A protection for something strictly below this very name, which a link of that name would put in place.

        Patterns that may match below any name (`**/...`) are not about this one.
        """
        for rule in self._automaton.about(path):
            if rule.verdict != ALLOW and rule.tier and effect in rule.effects:
                return rule
        return None

    def explain(self, effect: str, path: bytes, facts: Facts) -> Explanation:
        """Why `judge` decides so, and the smallest change that would allow it."""
        from pincer_trace.profile.show import explain

        return explain(self, effect, path, facts)

    def matching(self, effect: str, path: bytes) -> tuple[Rule, ...]:
        """All rules for `effect` whose pattern matches, in the order in which they are asked."""
        return tuple(rule for rule in self._automaton.state(path).accepted if effect in rule.effects)


def anchor_of(components: Components) -> int:
    """The index of the component after the first `**`; -1 when there is none."""
    for index, component in enumerate(components):
        if component is None:
            return index + 1 if index + 1 < len(components) else -1
    return -1


def _literals(components: Components) -> list[bytes]:
    return [component for component in components if isinstance(component, bytes)]


def _unconditional(rule: Rule) -> bool:
    return not rule.when and rule.exe_components is None


def _deciding(state: State, effect: str) -> tuple[Rule, ...]:
    """The matching rules for `effect` that can have a say: in each layer down to the first without a
    condition.
    """
    rules = []
    layer = BUILT_IN
    for rule in state.accepted:
        if effect in rule.effects and rule.tier <= layer:
            if _unconditional(rule):
                layer = GRANT  # a conditional rule before it may lift it, so grants still count
                if rule.tier != PROTECTION:
                    rules.append(rule)
                    break
            rules.append(rule)
    found = state.by_effect[effect] = tuple(rules)
    return found


def _settled(state: State, effect: str, no_rule: Decision) -> Decision | None:
    """See `Profile.settled`."""
    rules = state.by_effect.get(effect)
    if rules is None:
        rules = _deciding(state, effect)
    if not rules:
        return no_rule
    first = rules[0]
    if first.when or first.exe_components is not None or (first.tier == PROTECTION and first.verdict in {ALLOW, VIEW}):
        return None
    return first.decide()


def _is_labelled(rule: Rule, pattern: Components, facts: Facts) -> bool:
    """Whether the caller carries the label of `rule`: in doubt a refusal believes it, an allowance does not."""
    if rule.verdict == ALLOW:
        return matches(pattern, facts.trusted_executable())
    label = facts.executable()
    return not label or matches(pattern, label)


def _is_own(rule: Rule, path: bytes, facts: Facts) -> bool:
    if rule.when == OWN:
        return facts.created_by_tree(rule.below)
    index = rule.anchor
    if index < 0:
        return False
    # The topmost component that fits the anchor: the fewest directories count, so the strictest reading.
    parts = path.split(b"/")[1:]
    for depth in range(index - 1, len(parts)):
        if matches((rule.components[index],), b"/" + parts[depth]):
            end = depth if rule.when == OWN_ABOVE else depth + 1
            directory = b"/" + b"/".join(parts[:end])
            return directory != rule.below and facts.directory_created_by_tree(directory, rule.below)
    return False


_NOTHING = Rule(frozenset(), b"/**", (None,), DENY, NOTHING_ALLOWS, "no rule")
