"""From what was done to patterns: a place and the names below it, as tight as another run of the same can bear.

* What a program makes up anew each time is `*` (`normal`).
* A directory in which many names were made is `dir/**`; not one that a place itself is, nor one high up in the tree.
* Files that programs fill by themselves (caches, git's objects) are taken as a whole from the first.
* Reads are told by the directory of a tool: they are open but for secrets, which the protections keep.

A pattern that would cover what was kept back is not made: the names are written out instead. So are all of them where
more was kept back than can be compared.
"""

from __future__ import annotations

from pincer_trace import effects
from pincer_trace.profile import globs
from pincer_trace.profile.model import ALWAYS, BOUND, OWN
from pincer_trace.review.lessons import MAKES, is_temporary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pincer_trace.profile.globs import Components
    from pincer_trace.review.lessons import Deed, Lessons
    from pincer_trace.review.normal import Naming

MANY = 5  # names made in a directory, from which on it counts as a whole
_BY_THEMSELVES = frozenset({b"node_modules", b"__pycache__", b".pytest_cache", b".mypy_cache", b".ruff_cache",
                            b"_cacache", b"_logs"})  # fmt: skip
_BOOKS = frozenset({b"objects", b"refs", b"logs"})  # of a git repository
_SHALLOW = frozenset({b"usr", b"etc", b"lib", b"lib32", b"lib64", b"bin", b"sbin", b"proc", b"sys", b"dev", b"nix"})
_ONE_LEVEL = frozenset({"cache", "config", "data"})  # places that hold a directory for each tool
_CACHE = "cache"
_LOOPBACK = (b"//127.0.0.1", b"//::1")
_FREE_PORTS = 32768  # net.ipv4.ip_local_port_range


class Pattern:
    """A pattern of a rule: `text` below `place`. What it allows, and what led to it."""

    __slots__ = ("count", "effects", "example", "names", "place", "text", "when")

    def __init__(self, place: str, text: bytes, when: str = ALWAYS) -> None:
        self.place = place
        self.text = text
        self.when = when
        self.effects: set[str] = set()
        self.count = 0
        self.names: set[tuple[bytes, ...]] = set()
        self.example: Deed | None = None

    def add(self, deed: Deed) -> None:
        """One more that it allows."""
        self.effects.add(deed.effect)
        self.names.add(tuple(deed.below))
        self.count += deed.seen.count
        if self.example is None or not self.example.seen.count:
            self.example = deed


class _Node:
    """A name, as a pattern, and what lies below it."""

    __slots__ = ("below", "deeds", "made")

    def __init__(self) -> None:
        self.below: dict[bytes, _Node] = {}
        self.deeds: list[Deed] = []
        self.made: set[bytes] = set()  # names that were made in it

    def everything(self) -> Iterator[Deed]:
        """What was done to it and to all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield from node.deeds
            stack += reversed(node.below.values())


class Generaliser:
    """All patterns of some lessons."""

    def __init__(self, lessons: Lessons) -> None:
        self._shut = [each for each in lessons.kept_back.values() if not each.by_protection]
        self._crowd = lessons.crowd
        self._found: dict[tuple[str, bytes, str], Pattern] = {}

    def patterns(self, deeds: Iterable[Deed]) -> list[Pattern]:
        """They allow what was done, and nothing of what was kept back."""
        changes: dict[str, _Node] = {}
        for deed in deeds:
            if deed.effect in effects.TO_PEERS:
                self._peer(deed)
            elif deed.effect == effects.READ:
                self._put(deed.place, _readable(deed), [deed])
            elif deed.effect == effects.EXEC:
                whole = is_temporary(deed.place, deed.below) and deed.made and len(deed.below) > 1
                self._put(deed.place, b"/" + deed.pattern[0] + b"/**" if whole else _joined(deed.pattern), [deed])
            else:
                _grow(changes.setdefault(deed.place, _Node()), deed)
        for place, root in changes.items():
            self._changes(place, root)
        return sorted(self._found.values(), key=lambda each: (each.place, each.text, each.when))

    def _peer(self, deed: Deed) -> None:
        path = deed.below[0] if deed.below else b""
        host, _, port = path.rpartition(b":")
        is_host = path.startswith(b"//") and path[:3] != b"//@"
        # a free port is another one each time; that the run itself listens there is not
        if is_host and (deed.bound or (host in _LOOPBACK and port.isdigit() and int(port) >= _FREE_PORTS)):
            self._add(Pattern("", globs.escape(host) + b":*", BOUND), [deed])
        elif deed.bound:
            self._add(Pattern(deed.place, _joined(deed.pattern), BOUND), [deed])
        else:
            self._put(deed.place, _joined(deed.pattern), [deed])

    def _changes(self, place: str, root: _Node) -> None:
        stack: list[tuple[_Node, list[bytes]]] = [(root, [])]
        while stack:
            node, names = stack.pop()
            if names and _is_whole(place, node, names):
                everything = list(node.everything())
                if not self._covers_kept(place, _joined(names) + b"/**", everything):
                    self._put_in(place, _joined(names) + b"/**", everything)
                    continue
            if place == "workspace" and not names and len(node.made) >= MANY:
                leaves = [deed for child in node.below.values() if not child.below for deed in child.deeds if deed.made]
                if not self._covers_kept(place, b"/*", leaves):
                    self._put_in(place, b"/*", leaves)
            if node.deeds:
                self._put(place, _joined(names), [deed for deed in node.deeds if not deed.whole])
                self._put(place, _joined(names) + b"/**", [deed for deed in node.deeds if deed.whole])
            stack += [(child, [*names, name]) for name, child in node.below.items()]

    def _put(self, place: str, text: bytes, deeds: list[Deed]) -> None:
        """Allow them by this pattern; by their own names where it would cover what was kept back."""
        if self._covers_kept(place, text, deeds):
            for deed in deeds:
                plain = _plain(deed)
                if not self._covers_kept(place, plain, [deed]):
                    self._put_in(place, plain, [deed])
            return
        self._put_in(place, text, deeds)

    def _put_in(self, place: str, text: bytes, deeds: list[Deed]) -> None:
        if not deeds:
            return
        makes = [deed for deed in deeds if deed.effect in MAKES]
        rest = [deed for deed in deeds if deed.effect not in MAKES]
        changed = [deed for deed in rest if deed.effect in effects.CHANGES]
        if changed and is_temporary(place, deeds[0].below) and all(deed.own for deed in changed):
            self._add(Pattern(place, text), [*makes, *(deed for deed in rest if deed.effect not in effects.CHANGES)])
            self._add(Pattern(place, text, OWN), changed)
        else:
            self._add(Pattern(place, text), deeds)

    def _add(self, pattern: Pattern, deeds: list[Deed]) -> None:
        if deeds:
            pattern = self._found.setdefault((pattern.place, pattern.text, pattern.when), pattern)
        for deed in deeds:
            pattern.add(deed)

    def _covers_kept(self, place: str, text: bytes, deeds: list[Deed]) -> bool:
        if self._crowd and any(text != _plain(deed) or deed.name in self._crowd for deed in deeds):
            return True
        names = {deed.effect for deed in deeds}
        here: dict[Naming, Components] = {}  # the pattern as each run would have it
        for kept in self._shut:
            if kept.deed.effect not in names:
                continue
            if kept.naming not in here:
                here[kept.naming] = globs.components(kept.naming.expanded(place, text) or b"/")
            if globs.matches(here[kept.naming], kept.path):
                return True
        return False


def _grow(root: _Node, deed: Deed) -> None:
    node = above = root
    for name in deed.pattern:
        above, node = node, node.below.setdefault(name, _Node())
    node.deeds.append(deed)
    if deed.made and deed.below:
        above.made.add(deed.below[-1])


def _is_whole(place: str, node: _Node, names: list[bytes]) -> bool:
    """Whether a directory is allowed with all that may lie in it."""
    if names[-1] in _BY_THEMSELVES or (place == "git_common" and len(names) == 1 and names[0] in _BOOKS):
        return True
    if place == _CACHE and node.below:
        return True
    if is_temporary(place, names) and node.below and any(deed.made for deed in node.deeds):
        return True
    return len(node.made) >= MANY and (len(names) > 1 or place not in ("", "home", "config", "data"))


def _plain(deed: Deed) -> bytes:
    return _joined([globs.escape(name) for name in deed.below])


def _joined(names: list[bytes]) -> bytes:
    if names and names[0].startswith(b"//"):  # an abstract socket
        return names[0]
    return b"".join(b"/" + name for name in names)


def _readable(deed: Deed) -> bytes:
    """The pattern that lets it be read: of a tool's directory rather than of each file in it."""
    names, place = deed.pattern, deed.place
    if place in ("workspace", "git_common"):
        return b"/**"
    depth = 2
    if is_temporary(place, deed.below):
        depth = 1 if place else 2
    elif (not place and names[:1] and names[0] in _SHALLOW) or place in _ONE_LEVEL:
        depth = 1
    elif place == "home" and names and names[0].startswith(b"."):
        depth = 3 if names[0] == b".local" else 1
    if len(names) > depth:
        return _joined(names[:depth]) + b"/**"
    return _joined(names)
