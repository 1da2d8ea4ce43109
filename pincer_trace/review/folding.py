"""Many net changes as few lines: what lies below a directory that was made is one line with it, and so on."""

from __future__ import annotations

from dataclasses import dataclass, field

from pincer_trace.review.tree import ATTRIBUTES, CHANGED, CREATED, DELETED, DIRECTORY, MOVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pincer_trace.review.tree import Change

_DEEPEST = 64
_LISTED = 3  # so many times the room: of what lies in one directory some names tell more than their number
_BOOKS = frozenset({"objects", "logs", "refs", "index", "HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG",
                   "packed-refs", "index.lock", "gc.log"})  # fmt: skip
ORDER = (DELETED, CHANGED, ATTRIBUTES, MOVED, CREATED)  # what cannot be had back comes first
_TEAM = 4  # programs that are told


@dataclass(slots=True)
class Line:
    """One line: of one change, or of `count` files at and below `path`."""

    what: str
    path: str
    count: int
    change: Change | None
    by: tuple[str, ...] = field(default=())


def folded(changes: Iterable[Change], room: int, shown: Callable[[str], str]) -> tuple[list[Line], int]:
    """At most about `room` lines for each kind of change, and how many changes are on none. `shown` names a path."""
    lines: list[Line] = []
    left = 0
    changes = list(changes)
    for what in ORDER:
        own = [change for change in changes if change.what == what]
        own.sort(key=lambda change: change.path)
        books = [change for change in own if _is_bookkeeping(change, shown)]
        if books:
            own = [change for change in own if not _is_bookkeeping(change, shown)]
        whole = _rolled_up(own) if what in (CREATED, DELETED) else [_line(change) for change in own]
        if len(whole) > room:
            whole = _grouped(whole, room, shown)
        left += sum(line.count for line in whole[room:])
        lines += whole[:room]
        if books:
            lines.append(_books(what, books))
    return lines, left


def _is_bookkeeping(change: Change, shown: Callable[[str], str]) -> bool:
    """Whether it is what git itself writes of its work: one line, whatever it was."""
    head, _, rest = shown(change.path).partition(".git/")
    return (
        head == ""
        and rest.partition("/")[0] in _BOOKS
        and all(by.rpartition("/")[2].startswith("git") for by in change.by)
    )


def _books(what: str, changes: list[Change]) -> Line:
    by: tuple[str, ...] = ()
    for change in changes:
        by = _team(by, change.by)
    path = changes[0].path
    count = sum(change.kind != DIRECTORY for change in changes)
    return Line(what, path[: path.index("/.git/") + 5], count, None, by)


def _line(change: Change) -> Line:
    return Line(change.what, change.path, 1, change, change.by)


def _rolled_up(changes: list[Change]) -> list[Line]:
    """Everything in a directory of the same fate is told with that."""
    lines: list[Line] = []
    top = "\0"
    for change in sorted(changes, key=lambda change: change.path.replace("/", "\0")):
        if change.path.startswith(top):
            line = lines[-1]
            line.count += change.kind != DIRECTORY
            line.by = _team(line.by, change.by)
            continue
        line = _line(change)
        if change.kind == DIRECTORY:
            line.count = 0
            top = change.path + "/"
        lines.append(line)
    return lines


def _grouped(lines: list[Line], room: int, shown: Callable[[str], str]) -> list[Line]:
    """By directory: as few levels as needed, with single lines where there is room for them."""
    groups = {"": lines}
    depth = 1
    while len(groups) < room:  # one level more, as long as all of it fits
        deeper: dict[str, list[Line]] = {}
        for line in lines:
            name = shown(line.path)
            head = "/".join(name.split("/")[:depth])
            deeper.setdefault(head, []).append(line)
        if len(deeper) > room or len(deeper) == len(lines):
            break
        groups, depth = deeper, depth + 1
        if depth > _DEEPEST:
            break
    if len(groups) == 1 and ("" in groups or len(lines) <= _LISTED * room):
        return lines
    found = []
    spare = room - len(groups)
    for group in sorted(groups.values(), key=len):
        if len(group) - 1 <= spare:
            spare -= len(group) - 1
            found += group
        else:
            found.append(_summed(group))
    return sorted(found, key=lambda line: (-line.count, line.path))


def _summed(lines: list[Line]) -> Line:
    """One line for several: at the directory that they have in common."""
    first, last = min(line.path for line in lines), max(line.path for line in lines)
    common = 0
    for common, (a, b) in enumerate(zip(first, last, strict=False)):  # noqa: B007 - the place of the first difference
        if a != b:
            break
    by: tuple[str, ...] = ()
    for line in lines:
        by = _team(by, line.by)
    path = first[: first.rfind("/", 0, common + 1)] or "/"
    return Line(lines[0].what, path, sum(max(line.count, 1) for line in lines), None, by)


def _team(team: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    for by in more:
        if by not in team and len(team) < _TEAM:
            team = (*team, by)
    return team
