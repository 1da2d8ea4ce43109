"""What a run did as a few lines of text, the same for each run of the same thing: what snapshots compare. Pure.

Process numbers, times and inodes are in none of them, nor is an order. Paths are by the places of the run, and of names
that are made up anew each time (`/tmp/tmpk3j_x9a`, `objects/3f/9c...`) only the place is told. Net changes count: what
was made and removed again is one line, `temporary`, at the directory where it was.

Many names below one directory are one line, `DIR/**`. That never takes in a place by itself ({workspace}, {home}, the
root) or a first name below it, nor a file that the default profile protects, a program, a peer or a refusal.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from pincer_trace import effects, paths
from pincer_trace.ledger.read import raw
from pincer_trace.profile import ALLOW, Facts
from pincer_trace.review.naming import Names
from pincer_trace.review.past import Past
from pincer_trace.review.tree import ATTRIBUTES, CHANGED, CREATED, DELETED, DIRECTORY, MOVED
from pincer_trace.testing.calls import Call, name_of, net_changes, unversioned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pincer_trace.profile import Profile
    from pincer_trace.review.tree import Change
    from pincer_trace.testing.trace import Trace

    Key = tuple[str, str, str]  # verb, name, by

VERBS = (
    "deny", "run", "connect", "listen", "delete", "write", "chmod", "chown", "xattr", "temporary", "view",
    "read",
)  # fmt: skip
_MOST = 6  # names below one directory that are lines of their own
_MOST_PROTECTED = 20
_OF_USERS = frozenset({"{home}", "{homes}", "{cache}", "{config}", "{data}"})
_WIDE = frozenset(f"{home}/{name}" for home in ("{home}", "{homes}")
                  for name in (".cache", ".config", ".local", ".local/share", ".local/state"))  # fmt: skip
_MAKING = frozenset({effects.CREATE, effects.MKDIR, effects.SYMLINK, effects.MKNOD, effects.LINK, effects.BIND})
_COMPILED = "__pycache__"  # always one line: the names in it tell the version of Python
_PROGRAMS = re.compile(r"/(?:usr|bin|sbin)/.+")  # of the system, told by their names
_HIGH = re.compile(r"//(127\.[\d.]+|::1|\[::1\]):(3[2-9]|[4-6]\d)\d{3}")  # a port of this machine that the kernel chose
# What is other in each run: digests, times and numbers, by the shape of the whole component or a part of it
_SHAPES = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), "*"),
    (re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{16,}(?![0-9A-Za-z])"), "*"),
    (re.compile(r"\d{4}-\d\d-\d\d[T_ ]?[\d_:.-]*Z?"), "*"),
    (re.compile(r"(?<![0-9A-Za-z])\d{5,}(?![0-9A-Za-z])"), "*"),
    (re.compile(r"^\d+(\.\d+)+$"), "*"),
    (re.compile(r"(?<=^python)\d\.\d+$"), "3.*"),
    (re.compile(r"(?<=^pytest-)\d+$"), "*"),
)
_MADE_UP = (  # by mkstemp(3), and by Python's tempfile without a prefix
    (re.compile(r"^tmp[a-z0-9_]{8}(?=$|\.\w+$)"), "tmp*"),
    (re.compile(r"(?<=[-._])[A-Za-z0-9_]{6,}(?=$|\.\w{1,4}$)"), "*"),
)
_SHARD = re.compile(r"[0-9a-f]{1,3}")


class Line(NamedTuple):
    """One line, and one of the calls that it tells of; None for the exit status."""

    text: str
    call: Call | None


def behaviour(trace: Trace, *, counts: bool = False, more: Mapping[str, str] | None = None) -> list[Line]:
    """The lines, in an order of their own. With `counts` each tells how many calls, or names, it stands for.

    `more` are places beside those of the run, by their names. Raises `UserError` for a log that cannot be relied on.
    """
    lines = [Line(f"exit {trace.exit}", None)]
    past = Past(trace.session)
    found = _Behaviour(trace.calls, Names(past.places, more), past.shipped()).lines()
    for verb, name, by in sorted(found, key=lambda key: (VERBS.index(key[0].split()[0]), key)):
        count, call = found[verb, name, by]
        times = f" x{count}" if counts else ""
        text = f"{verb} {_shown(name)}{f' by {paths.display(by, 200)}' if by else ''}{times}"
        lines.append(Line(text, call))
    return lines


def _shown(name: str) -> str:
    """The name, in quotes where it could pass for more; the braces of a place are none of it."""
    place, slash, rest = name.partition("/")
    if place.startswith("{") and paths.named(rest) == rest:
        return name
    return paths.named(name) if not place.startswith("{") or slash else name


class _Strict(Facts):
    """What the default profile asks about an object, with the answers that protect most; but content is not known to be
    dangerous, or every branch of a repository would count as protected.
    """

    __slots__ = ()

    def git_danger(self) -> str | None:
        return ""


_STRICT = _Strict()


class _Behaviour:
    """The calls of one run, sorted into lines."""

    def __init__(self, calls: Sequence[Call], names: Names, profile: Profile) -> None:
        self._names = names
        self._profile = profile
        self._found: dict[Key, tuple[int, Call]] = {}
        self._directories = {call.path for call in calls if call.effect == effects.MKDIR}
        made: dict[str, dict[str, Call]] = {}  # by path and program
        touched: dict[str, dict[str, Call]] = {}
        for call in calls:
            if call.happened and call.changes_files:
                goal = call.to if call.effect == effects.RENAME else ""
                if goal or call.effect in _MAKING:
                    made.setdefault(goal or call.path, {})[call.by] = call
                for path in filter(None, (call.path, goal)):
                    touched.setdefault(path, {})[call.by] = call
        self._changes = net_changes(calls, lambda call: call.by)
        lasting = {path for change in self._changes for path in (change.path, change.source)}
        self._gone = {path: by for path, by in made.items() if path not in lasting}
        self._made = {change.path for change in self._changes if change.what == CREATED} | self._gone.keys()
        self._touched = touched
        self._calls = calls

    def lines(self) -> dict[Key, tuple[int, Call]]:
        """Each line, for how many it stands, and one of these."""
        for call in self._calls:
            self._add_call(call)
        self._add_changes()
        return self._found

    def _add(self, verb: str, name: str, by: str, call: Call, count: int = 1) -> None:
        key = (verb, name, by)
        self._found[key] = (self._found[key][0] + count, self._found[key][1]) if key in self._found else (count, call)

    # -- calls -----------------------------------------------------------------------------------------------

    def _add_call(self, call: Call) -> None:
        if not call.allowed:
            if not call.native:
                protected = self._is_protected(call.effect, call.path)
                name = self._name(call.path, whole=protected)
                self._add(f"deny {call.effect or 'call'}", name, call.by, call, call.count)
        elif call.effect in effects.TO_PEERS:
            self._add("connect", self._name(call.path), call.by, call)
        elif call.effect == effects.BIND and call.happened:
            self._add("listen", self._name(call.path), call.by, call)
        elif call.effect == effects.EXEC and call.happened:
            path = call.path
            program = name_of(path) if _PROGRAMS.fullmatch(path) else self._name(path)
            starter = unversioned(call.program) if call.process is not None and call.program else ""
            self._add("run", unversioned(program), starter, call)
        elif call.effect == effects.READ and call.happened and not self._is_made(call.path):
            self._add_read(call)

    def _add_read(self, call: Call) -> None:
        """Of what lies elsewhere in the system, and in the work tree, only where: that is the same for all programs."""
        if call.viewed or self._is_protected(effects.READ, call.path):
            verb = "view" if call.viewed else "read"
            self._add(verb, self._name(call.path, whole=True), call.by, call, call.count)
            return
        name = self._name(call.path)
        place, *rest = name.split("/")
        if place in _OF_USERS:
            short, *deeper = place, *rest
            while deeper and (short == place or short in _WIDE):
                short += "/" + deeper.pop(0)
            self._add("read", f"{short}/**" if deeper else short, call.by, call, call.count)
        elif place:
            self._add("read", f"{place}/**", "", call, call.count)
        else:
            self._add("read", f"/{rest[0]}/**" if len(rest) > 1 else name, "", call, call.count)

    # -- changes ---------------------------------------------------------------------------------------------

    def _add_changes(self) -> None:
        groups: dict[tuple[str, str], dict[str, bool]] = {}  # (verb, by) -> name: whether it stays a line of its own
        examples: dict[tuple[str, str], dict[str, Call]] = {}

        def note(verb: str, path: str, team: Iterable[str], end: str = "") -> None:
            protected = self._is_protected(effects.WRITE, path)
            name = self._name(path, whole=protected) + end
            for by in team:
                group = groups.setdefault((verb, by), {})
                group[name] = group.get(name, False) or protected
                call = self._touched.get(path, {}).get(by)
                if call is not None:
                    examples.setdefault((verb, by), {}).setdefault(name, call)

        holders = _ancestors(change.path.rpartition("/")[0] for change in self._changes)
        for change in self._changes:
            if change.kind == DIRECTORY and change.path in holders and change.what == CREATED:
                continue
            for verb, path in _told(change):
                note(verb, path, change.by, "/" if change.kind == DIRECTORY else "")
        for path, makers in self._gone.items():
            note("temporary", path, makers)
        for (verb, by), names in groups.items():
            known = examples.get((verb, by), {})
            for name, count in folded(names).items():
                inside = (call for each, call in known.items() if each.startswith(name.removesuffix("**")))
                self._add(verb, name, by, known.get(name) or next(inside, self._calls[0]), count)

    # -- names -----------------------------------------------------------------------------------------------

    def _name(self, path: str, *, whole: bool = False) -> str:
        """By its place, without what is other in each run. Of what was made and removed again its place is told, and
        with `whole` what lies below that.
        """
        if path.startswith("//"):
            return _HIGH.sub(lambda found: f"//{found[1]}:*", path)
        gone = self._first_gone(path)
        if gone is None or (whole and gone == path):
            return _without_made_up(self._names.short(path))
        above, _, own = _without_made_up(self._names.short(gone)).rpartition("/")
        # A directory right below a place is a new place, however short it was there
        own = _made_up(own) if gone in self._directories and "/" not in above and above != "{tmp}" else "*"
        return f"{above}/{own}{path[len(gone) :] if whole else ''}"

    def _first_gone(self, path: str) -> str | None:
        """The outermost directory above it, or itself, that the run made and removed again."""
        at = path.find("/", 1)
        while at > 0:
            if path[:at] in self._gone:
                return path[:at]
            at = path.find("/", at + 1)
        return path if path in self._gone else None

    def _is_made(self, path: str) -> bool:
        """Whether the run made it, or a directory above it."""
        while path:
            if path in self._made:
                return True
            path = path.rpartition("/")[0]
        return False

    def _is_protected(self, effect: str, path: str) -> bool:
        if path.startswith("//"):
            return False
        decision = self._profile.judge(effect, raw(path), _STRICT)
        return decision.verdict != ALLOW and decision.rule is not None and bool(decision.rule.tier)


def _told(change: Change) -> Iterator[tuple[str, str]]:
    """A net change as (verb, path); a move is two. A mode is told of what may be executed, or if it alone changed."""
    if change.what == MOVED and change.source is not None:
        yield "delete", change.source
    if change.what in (CREATED, CHANGED, MOVED):
        yield "write", change.path
    elif change.what == DELETED:
        yield "delete", change.path
    for name, (_, now) in (change.attributes or {}).items():
        if name == "mode":
            bits = int(now, 8) if now.isascii() and now.isdigit() else 0
            if change.what == ATTRIBUTES or (bits & 0o6111 and change.kind != DIRECTORY):
                yield f"chmod {now}", change.path
        elif change.what == ATTRIBUTES:
            yield ("chown" if name == "owner" else "xattr"), change.path


def folded(names: Mapping[str, bool]) -> dict[str, int]:
    """As few names as tell where they are: too many below one directory are `DIR/**`. How many each stands for.

    A name that is marked stays, unless very many are in its directory. A directory with names below it is none itself.
    """
    holders = _ancestors(name.rstrip("/").rpartition("/")[0] for name in names)
    found: dict[str, int] = {}
    marks: Counter[str] = Counter()  # by directory
    below: dict[str, dict[str, int]] = {directory: {} for directory in holders}
    for name, marked in names.items():
        if name.rstrip("/") in holders:
            continue
        directory = name.rstrip("/").rpartition("/")[0]
        marks[directory] += marked
        if marked and marks[directory] <= _MOST_PROTECTED:
            found[name] = 1
        below[directory][name] = 1
    for directory in sorted(holders, key=len, reverse=True):  # what is below comes first
        own = {name: count for name, count in below.pop(directory).items() if name not in found}
        if (len(own) > _MOST or directory.endswith("/" + _COMPILED)) and _may_be_whole(directory):
            own = {f"{directory}/**": sum(own.values())}
        if directory:
            below[directory.rpartition("/")[0]].update(own)
        else:
            found.update(own)
    return found


def _ancestors(directories: Iterable[str]) -> set[str]:
    """These and all above them, the root (an empty name) too."""
    found = {""}
    for directory in directories:
        while directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def _may_be_whole(directory: str) -> bool:
    """Whether its names may become one line: not those of a place itself."""
    return "/" in directory and directory not in _WIDE


def _without_made_up(name: str) -> str:
    """A name by its place without digests, times, numbers, and in {tmp} without what mkstemp(3) made up."""
    parts = name.split("/")
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        for shape, instead in _SHAPES:
            part = shape.sub(instead, part)
        if index == 1 and parts[0] == "{tmp}":
            part = _made_up(part)
        if _SHARD.fullmatch(part) and index + 1 < len(parts) and parts[index + 1].startswith("*"):
            part = "*"
        parts[index] = part
    return "/".join(parts)


def _made_up(part: str) -> str:
    """A name without what mkstemp(3) and the like put into it."""
    for shape, instead in _MADE_UP:
        part = shape.sub(instead, part)
    return part
