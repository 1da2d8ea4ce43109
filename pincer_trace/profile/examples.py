"""An example of each kind of path that some patterns tell apart: which of them match, exactly.

Two automata, one in the other. The outer one reads components, its states are sets of positions in all patterns (as in
`automaton`); the inner one reads the bytes of one component, and finds one for each set of patterns that a component
can match at once. Nothing is guessed: a kind that is not told has no path, as long as no limit was reached; of networks
and wildcards in addresses alone not each way is tried in which they can meet.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

from pincer_trace.kernel import inet
from pincer_trace.profile.globs import ANY_RUN, ONE_BYTE, matcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pincer_trace.profile.globs import Component, Components, Token

    Unit = tuple[bool, int]  # whether any number of bytes, and which ones: a bit each

LIMIT = 20_000  # states of one search among the bytes of a component
_MOST_POSITIONS = 150_000  # that a search among components looks at: a second or two
_NAME = (1 << 256) - 2 & ~(1 << 47)  # all but NUL and the slash
_LIKED = b"newabcdfghijklmopqrstuvxyz0123456789_-" + bytes(range(33, 127)) + bytes(range(256))  # in examples
_RESERVED = frozenset({b"", b".", b".."})
_NEW, _DEEPER, _ANY_PEER = b"new", b"new-folder", b"//new:1"


def _bits(members: bytes) -> int:
    found = 0
    for byte in members:
        found |= 1 << byte
    return found


_DIGITS = _bits(b"0123456789")
_HOST = _bits(b"abcdefghijklmnopqrstuvwxyz0123456789-_.:")
# What a peer on the network is: a host, a colon, a port; and an abstract socket
_PEER = ((True, _HOST), (False, _HOST), (False, _bits(b":")), (False, _DIGITS & ~_bits(b"0")), (True, _DIGITS))
_ABSTRACT = ((False, _bits(b"@")), (True, _NAME))


class TooMany(Exception):
    """There are more kinds of one component than can be looked through."""


class Kinds:
    """The kinds of path by some patterns.

    `relevant` are the patterns that matter: what matches none of them is not told. `dismiss` takes the positions that
    the components of a path have led to, and leaves those that still matter; see `positions`. `complete`: all was told.
    """

    def __init__(self, patterns: Sequence[Components], relevant: Iterable[int]) -> None:
        self._patterns = patterns
        self.dismiss: Callable[[int], int] = lambda at: at
        self._kinds: list[Component] = []
        self._ends: dict[int, int] = {}  # the position behind a pattern: which pattern
        self._nexts: dict[int, tuple[dict[bytes, int], dict[tuple[Token, ...], int], int]] = {}
        self._of: list[int] = []  # positions of each pattern, as bits
        self._begin = 0
        self.complete = True
        starts = []
        for index, components in enumerate(patterns):
            start = len(self._kinds)
            starts.append(start)
            self._kinds += components
            self._ends[len(self._kinds)] = index
            self._kinds.append(None)
            self._of.append((1 << len(self._kinds)) - (1 << start))
        self._all_ends = sum(1 << end for end in self._ends)
        for start in starts:
            self._begin |= self._closed(start)
        self._relevant = self.positions(relevant)

    def positions(self, patterns: Iterable[int]) -> int:
        """All positions of these patterns, a bit each."""
        found = 0
        for index in patterns:
            found |= self._of[index]
        return found

    def end(self, pattern: int) -> int:
        """The position behind a pattern, where it matches."""
        return 1 << self._of[pattern].bit_length() - 1

    def found(self) -> Iterator[tuple[frozenset[int], bytes]]:
        """Which patterns match, a relevant one among them, with an example: each such set once."""
        told: set[int] = set()
        for path, at in self._searched():
            ends = at & self._all_ends
            if ends & self._relevant and ends not in told:
                told.add(ends)
                yield frozenset(index for end, index in self._ends.items() if ends >> end & 1), path

    def _searched(self) -> Iterator[tuple[bytes, int]]:
        """Paths and where they lead, until nothing new comes; first those that a person would think of."""
        for index, pattern in enumerate(self._patterns):
            if self.end(index) & self._relevant:
                for path in samples(pattern):
                    yield path, self._walked(path)
        begin = self.dismiss(self._begin)
        yield b"/", begin
        # whether what comes next is a peer, behind two slashes
        queue = deque([(begin & ~self._all_ends, b"", False)])
        seen = {(begin & ~self._all_ends, False)}
        looked = 0
        while queue:
            at, path, peers = queue.popleft()
            looked += at.bit_count()
            if looked > _MOST_POSITIONS:
                self.complete = False
                return
            for component, following in self._steps(at, peers=peers):
                below = path + b"/" + component
                if component:
                    yield below, following
                key = following & ~self._all_ends, not component
                if peers or not key[0] & self._relevant or key in seen:
                    continue
                seen.add(key)
                queue.append((key[0], below, key[1]))

    def _walked(self, path: bytes) -> int:
        at = self.dismiss(self._begin)
        for component in [] if path == b"/" else path[1:].split(b"/"):
            literals, tokens, rest = self._next(at & ~self._all_ends)
            following = literals.get(component, 0)
            if component:
                following |= rest
                for each, target in tokens.items():
                    if matched(frozenset({each}), component):
                        following |= target
            at = self.dismiss(following)
        return at

    def _steps(self, at: int, *, peers: bool) -> Iterator[tuple[bytes, int]]:
        """Each kind of component that may come next, and where it leads."""
        literals, tokens, rest = self._next(at)
        for component, target in literals.items():
            if peers and not (accepts(_PEER, component) or accepts(_ABSTRACT, component)):
                continue
            if component:
                target |= rest
                for each in matched(frozenset(tokens), component):
                    target |= tokens[each]
            yield component, self.dismiss(target)
        try:
            kinds = components(frozenset(tokens), frozenset(literals), peers=peers)
        except TooMany:
            self.complete = False
            return
        for fitting, component in kinds:
            target = rest
            for each in fitting:
                target |= tokens[each]
            yield component, self.dismiss(target)

    def _next(self, at: int) -> tuple[dict[bytes, int], dict[tuple[Token, ...], int], int]:
        """What is told apart behind these positions: names, wildcards, and where any name leads."""
        known = self._nexts.get(at)
        if known is not None:
            return known
        literals: dict[bytes, int] = {}
        tokens: dict[tuple[Token, ...], int] = {}
        rest, all_of_it = 0, at
        while at:
            position = (at & -at).bit_length() - 1
            at &= at - 1
            kind = self._kinds[position]
            if kind is None:
                rest |= self._closed(position)
            elif isinstance(kind, bytes):
                literals[kind] = literals.get(kind, 0) | self._closed(position + 1)
            elif kind == (ANY_RUN,):
                rest |= self._closed(position + 1)
            else:
                tokens[kind] = tokens.get(kind, 0) | self._closed(position + 1)
        found = self._nexts[all_of_it] = literals, tokens, rest
        return found

    def _closed(self, position: int) -> int:
        found = 1 << position
        while position not in self._ends and self._kinds[position] is None:
            position += 1
            found |= 1 << position
        return found


def meeting(one: Components, other: Components) -> bytes | None:
    """A path that both patterns match; None if there is none."""
    queue: deque[tuple[int, int, tuple[bytes, ...]]] = deque([(0, 0, ())])
    seen = {(0, 0)}
    while queue:
        i, j, parts = queue.popleft()
        if i == len(one) and j == len(other):
            return _ANY_PEER if parts == (b"",) else b"/" + b"/".join(parts)
        mine, theirs = one[i : i + 1], other[j : j + 1]
        steps: list[tuple[int, int, bytes | None]] = []
        if mine == (None,):
            steps.append((i + 1, j, b"/"))
        if theirs == (None,):
            steps.append((i, j + 1, b"/"))
        if mine != (None,) or (theirs and mine != theirs):
            component = _common(mine, theirs, peers=parts == (b"",)) if mine and theirs else None
            steps.append((i + (mine != (None,)), j + (theirs != (None,)), component))
        for a, b, component in steps:
            if component is not None and (a, b) not in seen:
                seen.add((a, b))
                queue.append((a, b, parts if component == b"/" else (*parts, component)))
    return None


def _common(one: Components, other: Components, *, peers: bool) -> bytes | None:
    """A component that both match, of which `**` is one."""
    kinds = [kind for kind in (*one, *other) if kind is not None]
    names = {kind for kind in kinds if isinstance(kind, bytes)}
    tokens = frozenset(kind for kind in kinds if not isinstance(kind, bytes))
    if not names:
        return next((example for fits, example in components(tokens, frozenset(), peers=peers) if fits == tokens), None)
    name = names.pop()
    if names or len(matched(tokens, name)) < len(tokens) or (not name and None in (*one, *other)):
        return None
    return name if not peers or accepts(_PEER, name) or accepts(_ABSTRACT, name) else None


def samples(pattern: Components) -> Iterator[bytes]:
    """Paths that a person would give as examples of a pattern: each `**` for a name, for one deeper, and for none."""
    for filling in ([_NEW], [_DEEPER, _NEW], []):
        parts: list[bytes] = []
        for component in pattern:
            if component is None:
                parts += filling
            else:
                parts.append(component if isinstance(component, bytes) else _sample(component))
        peer = parts[0] == b"" if parts else False
        if not peer or (len(parts) > 1 and (accepts(_PEER, parts[1]) or parts[1][:1] == b"@")):
            yield b"/" + b"/".join(parts)
        if None not in pattern:
            return


def _sample(pattern: tuple[Token, ...]) -> bytes:
    """A component as a person would give one for an example."""
    network = _network(pattern)
    head = inet.written(network[0]).encode() if network else b""
    return head + b"".join(map(_sample_of, pattern[bool(network) :]))


def _sample_of(token: Token) -> bytes:
    if isinstance(token, bytes):
        return token
    if isinstance(token, int):
        return _NEW if token == ANY_RUN else _NEW[:1]
    return next((b"%c" % byte for byte in _LIKED if _members(token) >> byte & 1), b"")


def _network(pattern: tuple[Token, ...]) -> tuple[bytes, int] | None:
    """The network that it names by its first address and its bits."""
    first = pattern[0] if pattern else None
    return (first[0], int(first[1])) if isinstance(first, tuple) and isinstance(first[0], bytes) else None


def _hosts(networks: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
    """Addresses of all kinds that networks tell apart: the ends of each, and those beside it."""
    for first, bits in networks:
        low, most = int.from_bytes(first, "big"), 8 * len(first)
        high = low | (1 << most - bits) - 1
        for number in (low, high, low - 1, high + 1):
            if 0 <= number < 1 << most:
                yield inet.written(number.to_bytes(len(first), "big")).encode()


@lru_cache(maxsize=4096)
def components(
    patterns: frozenset[tuple[Token, ...]], names: frozenset[bytes], *, peers: bool = False
) -> list[tuple[frozenset[tuple[Token, ...]], bytes]]:
    """Which of `patterns` one component can match at once, with an example that is none of `names`. Raises `TooMany`.

    `peers`: the component is a host and its port, or an abstract socket.
    """
    networks = {pattern: network for pattern in patterns if (network := _network(pattern)) is not None}
    if networks:
        ports = frozenset((ANY_RUN, *pattern[1:]) for pattern in networks)
        plain = [example for _, example in components(patterns.difference(networks) | ports, names, peers=True)]
        peers_of = {name: name.rpartition(b":") for name in plain}
        hosts = dict.fromkeys([*_hosts(networks.values()), *(host for host, _, _ in peers_of.values())])
        every = [
            host + b":" + port for host in hosts for port in dict.fromkeys(port for _, _, port in peers_of.values())
        ]
        kinds = {frozenset(matched(patterns, name)): name for name in reversed([*every, *plain]) if name not in names}
        return list(kinds.items())
    avoided = set(_RESERVED)
    while True:
        found = _components(tuple(sorted(patterns, key=repr)), avoided, peers=peers)
        met = {example for _, example in found if example in names}
        if not met:
            return found
        avoided |= met


def _components(
    patterns: tuple[tuple[Token, ...], ...], avoided: AbstractSet[bytes], *, peers: bool
) -> list[tuple[frozenset[tuple[Token, ...]], bytes]]:
    bytewise = _Bytewise([*map(_units, patterns), *((_PEER, _ABSTRACT) if peers else ())])
    ends = bytewise.ends[: len(patterns)]
    proper = sum(bytewise.ends[len(patterns) :])
    prefixes = {word[:length] for word in avoided for length in range(len(word) + 1)}
    fits = sum(ends)
    told: dict[int, bytes] = {}
    for example in () if peers else (_NEW, *map(_sample, patterns)):
        if example not in avoided:
            told.setdefault(bytewise.read(example) & fits, example)
    seen = {(bytewise.begin, b"")}
    queue = deque([(bytewise.begin, b"")])
    while queue:
        at, text = queue.popleft()
        for byte, following in bytewise.steps(at):
            longer = text + byte
            if longer not in avoided and (following & proper or not peers):
                told.setdefault(following & fits, longer)
            key = following, longer if longer in prefixes else b"\0"
            if key not in seen:
                if len(seen) >= LIMIT:
                    raise TooMany
                seen.add(key)
                queue.append((following, longer))
    return [
        (frozenset(pattern for pattern, end in zip(patterns, ends, strict=True) if at & end), example)
        for at, example in told.items()
    ]


@lru_cache(maxsize=65536)
def matched(patterns: frozenset[tuple[Token, ...]], component: bytes) -> list[tuple[Token, ...]]:
    """Those of `patterns` that match one component."""
    return [pattern for pattern in patterns if component and matcher(pattern)(component)]


def accepts(units: Sequence[Unit], text: bytes) -> bool:
    """Whether `text` is one of those that `units` stand for."""
    one = _automaton(tuple(units))
    return bool(one.read(text) & one.ends[0])


@lru_cache(maxsize=4096)
def _automaton(units: tuple[Unit, ...]) -> _Bytewise:
    return _Bytewise([units])


@lru_cache(maxsize=4096)
def _units(pattern: tuple[Token, ...]) -> tuple[Unit, ...]:
    found: list[Unit] = []
    for token in pattern:
        if isinstance(token, bytes):
            found += ((False, 1 << byte) for byte in token)
        else:
            found.append((token == ANY_RUN, _members(token)))
    return tuple(found)


def _members(token: Token) -> int:
    """The bytes that a wildcard stands for."""
    if token in (ANY_RUN, ONE_BYTE):
        return _NAME
    assert isinstance(token, tuple)
    negated, members = token
    assert isinstance(members, bytes)  # a network is no wildcard of bytes
    return _NAME & ~_bits(members) if negated else _NAME & _bits(members)


class _Bytewise:
    """Some sequences of units read at once, a bit for each position in them."""

    def __init__(self, sequences: Sequence[Sequence[Unit]]) -> None:
        self.begin = 0
        self.ends: list[int] = []
        self._runs = 0
        units: list[Unit | None] = []
        for sequence in sequences:
            self.begin |= 1 << len(units)
            units += [*sequence, None]
            self.ends.append(1 << len(units) - 1)
        for position, unit in enumerate(units):
            if unit is not None and unit[0]:
                self._runs |= 1 << position
        self._moves: dict[int, tuple[int, int]] = {}  # of each byte: the positions that it leaves, and where it stays
        alike: dict[tuple[int, int], int] = {}
        for byte in dict.fromkeys(_LIKED):
            if _NAME >> byte & 1:
                takes = sum(1 << i for i, unit in enumerate(units) if unit is not None and unit[1] >> byte & 1)
                move = takes & ~self._runs, takes & self._runs
                self._moves[byte] = move
                alike.setdefault(move, byte)
        self._alphabet = [(b"%c" % byte, move) for move, byte in alike.items()]
        self.begin = self._closed(self.begin)

    def _closed(self, at: int) -> int:
        while (more := at | (at & self._runs) << 1) != at:
            at = more
        return at

    def read(self, text: bytes) -> int:
        """Where `text` leads."""
        at = self.begin
        for byte in text:
            leaves, stays = self._moves.get(byte, (0, 0))
            at = self._closed((at & leaves) << 1 | at & stays)
        return at

    def steps(self, at: int) -> Iterator[tuple[bytes, int]]:
        """Each kind of byte that may come next, and where it leads."""
        for byte, (leaves, stays) in self._alphabet:
            yield byte, self._closed((at & leaves) << 1 | at & stays)
