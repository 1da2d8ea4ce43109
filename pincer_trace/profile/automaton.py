"""All patterns of a profile as one automaton over path components, built as paths are seen.

A state is the set of positions, in all patterns, that the components so far lead to. A step is one dictionary
look-up for a component that some pattern names, and a shared `other` state for all the rest, so the cost of a
path is its depth, not the number of rules, and the memory depends on the patterns, not on the paths. States
are made on first use; a hostile tree can at most make `LIMIT` of them before they are dropped and begun anew.
"""

from __future__ import annotations

from pincer_trace.profile.globs import ANY_RUN, matcher, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.profile.model import Decision, Rule

LIMIT = 4096
_END = b"/"  # no component: the position after the last component of a pattern


class Names:
    """Of the entries of a directory those that patterns may name: by the whole name, its first bytes, or its last."""

    __slots__ = ("ends", "starts", "whole")

    def __init__(self, whole: tuple[bytes, ...], starts: tuple[bytes, ...], ends: tuple[bytes, ...]) -> None:
        self.whole = whole
        self.starts = starts
        self.ends = ends

    def holds(self, name: bytes) -> bool:
        """Whether it is one of them."""
        return name in self.whole or name.startswith(self.starts) or name.endswith(self.ends)


class State:
    """Where a path stands in the patterns: what is matched here, and at which positions more can be matched below."""

    __slots__ = (
        "accepted",
        "by_effect",
        "ends",
        "free",
        "globs",
        "literals",
        "named",
        "next",
        "other",
        "pending",
        "positions",
        "settled",
        "starts",
        "stay",
    )

    def __init__(self) -> None:
        self.next: dict[bytes, State] = {}
        self.literals: dict[bytes, set[int]] = {}
        self.globs: list[tuple[Callable[[bytes], bool], set[int]]] = []
        self.starts: tuple[bytes, ...] = ()  # a component that matches a glob has one of these starts, or ends
        self.ends: tuple[bytes, ...] = ()
        self.stay: set[int] = set()
        self.other: dict[int, State] = {}
        self.accepted: tuple[Rule, ...] = ()
        self.pending: tuple[Rule, ...] | None = None  # the rules that can still match below, once asked
        self.positions: frozenset[int] = frozenset()
        self.by_effect: dict[str, tuple[Rule, ...]] = {}
        self.settled: dict[str, Decision | None] = {}  # what is decided here whatever the facts, once asked
        self.named: Names | None = None
        self.free: bool | None = None  # whether all that can be done to files is allowed here, once known

    def names(self) -> Names | None:
        """The components that patterns may name here; None where that may be any. The same object each time."""
        if b"" in self.starts or b"" in self.ends:
            return None
        if self.named is None:
            self.named = Names((*self.literals,), self.starts, self.ends)
        return self.named


class Automaton:
    """`state(path)` gives the rules whose patterns match `path`, the first to be asked first."""

    __slots__ = ("_directories", "_kinds", "_last_path", "_last_state", "_owners", "_root_key", "_states", "root")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        kinds: list[object] = []
        owners: list[Rule] = []
        starts = []
        for rule in rules:
            starts.append(len(kinds))
            components = rule.components
            kinds += components
            kinds.append(_END)
            owners += (rule,) * (len(components) + 1)
        self._kinds = kinds
        self._owners = owners
        key: set[int] = set()
        for start in starts:
            self._enter(start, key)
        self._root_key = frozenset(key)
        self._states: dict[frozenset[int], State] = {}
        self._directories: dict[bytes, State] = {}
        self.root = self._state(self._root_key)
        self._last_path = b""
        self._last_state = self._walk(b"")

    def state(self, path: bytes) -> State:
        """The state after an absolute `path`. A path that is not in normal form leads to the state without
        rules.
        """
        if path == self._last_path:  # several ask for the same one, one after the other
            return self._last_state
        directory, _, name = path.rpartition(b"/")
        state = self._directories.get(directory)
        if state is None or not name or not directory:  # the last: `/` and `//HOST:PORT`
            found = self._walk(path)
        else:
            found = state.next.get(name) or self.step(state, name)
        self._last_path, self._last_state = path, found
        return found

    def _walk(self, path: bytes) -> State:
        """From the root, remembering where the directory led: most paths have neighbours."""
        if not path.startswith(b"/"):
            return self._state(frozenset())
        above = state = self.root
        for component in split(path):
            following = state.next.get(component)
            above, state = state, self.step(state, component) if following is None else following
        if len(self._directories) >= LIMIT:
            self._directories.clear()
        self._directories[path.rpartition(b"/")[0]] = above
        return state

    def about(self, path: bytes) -> list[Rule]:
        """The rules that go on below this very name, and not just below any name as `**/...` does."""
        anywhere = self.state(path.rpartition(b"/")[0] + b"/\x01").positions
        here = self.state(path).positions - anywhere
        return [self._owners[position] for position in sorted(here) if self._kinds[position] is not _END]

    def pending(self, path: bytes) -> tuple[Rule, ...]:
        """The rules that can still match something below `path`, the first to be asked first."""
        state = self.state(path)
        if state.pending is None:
            owners = {self._owners[position] for position in state.positions if self._kinds[position] is not _END}
            state.pending = tuple(sorted(owners, key=_by_rank, reverse=True))
        return state.pending

    def step(self, state: State, component: bytes) -> State:
        """The state after one component more; `state.next` holds the answers known already."""
        named = state.literals.get(component)
        if named is None:
            if component in {b"", b".", b".."}:
                return self._state(frozenset())
            mask = 0
            if component.startswith(state.starts) or component.endswith(state.ends):
                for index, (matches, _) in enumerate(state.globs):
                    if matches(component):
                        mask |= 1 << index
            if not mask:
                return self.unnamed(state)
            following = state.other.get(mask)
            if following is None:
                key = set(state.stay)
                for index, (_, target) in enumerate(state.globs):
                    if mask >> index & 1:
                        key |= target
                following = state.other[mask] = self._state(frozenset(key))
            return following
        key = set(named)
        if component:
            key |= state.stay
            for matches, target in state.globs:
                if matches(component):
                    key |= target
        following = state.next[component] = self._state(frozenset(key))
        return following

    def unnamed(self, state: State) -> State:
        """The state after one component more that no pattern names: no literal is it, and no glob matches it."""
        following = state.other.get(0)
        if following is None:
            following = state.other[0] = self._state(frozenset(state.stay))
        return following

    def _enter(self, position: int, into: set[int]) -> None:
        into.add(position)
        while self._kinds[position] is None:
            position += 1
            into.add(position)

    def _state(self, key: frozenset[int]) -> State:
        state = self._states.get(key)
        if state is not None:
            return state
        if len(self._states) >= LIMIT:
            self._states.clear()
            self.root = self._state(self._root_key)
        state = self._states[key] = State()
        state.positions = key
        accepted = set()
        globs: dict[tuple[object, ...], set[int]] = {}
        for position in key:
            kind = self._kinds[position]
            if kind is _END:
                accepted.add(self._owners[position])
            elif kind is None:
                self._enter(position, state.stay)
            elif isinstance(kind, bytes):
                self._enter(position + 1, state.literals.setdefault(kind, set()))
            elif kind == (ANY_RUN,):
                self._enter(position + 1, state.stay)
            else:
                assert isinstance(kind, tuple)
                self._enter(position + 1, globs.setdefault(kind, set()))
        state.globs = [(matcher(tokens), target) for tokens, target in globs.items()]  # type: ignore[arg-type]
        starts, ends = set(), set()
        for tokens in globs:
            if isinstance(tokens[-1], bytes):
                ends.add(tokens[-1])
            else:
                starts.add(tokens[0] if isinstance(tokens[0], bytes) else b"")
        state.starts, state.ends = tuple(starts), tuple(ends)
        state.accepted = tuple(sorted(accepted, key=_by_rank, reverse=True))
        return state


def _by_rank(rule: Rule) -> int:
    return rule.rank
