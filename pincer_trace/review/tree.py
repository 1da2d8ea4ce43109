"""What a run changed in the file tree, all in all.

What it made and removed again is nothing, a new file that was moved onto an old one is a change of that, and a file in
a moved directory has only moved with it. Pure: effects in the order of doing go in, net changes come out. Only what
effects named is kept, and of that only so much; what comes beyond is counted where it happened.
"""

from __future__ import annotations

from pincer_trace import effects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Id = tuple[int, int]
    Pairs = dict[str, tuple[str, str]]

CREATED, CHANGED, DELETED, MOVED, ATTRIBUTES = "created", "changed", "deleted", "moved", "attributes"
FILE, DIRECTORY, LINK, SPECIAL, UNSEEN = "file", "directory", "link", "special", ""
MOST = 200_000  # things that are followed one by one
MOST_TEXT = 1 << 26  # characters of their paths
_KINDS = {
    effects.CREATE: FILE, effects.MKDIR: DIRECTORY, effects.SYMLINK: LINK, effects.MKNOD: SPECIAL,
    effects.BIND: SPECIAL,
}  # fmt: skip
_MEMORY = ("/proc/", "/dev/", "/sys/")  # what has no content that stays
_STAYS = ("/dev/shm/", "/dev/mqueue/")  # noqa: S108 - but this has
_LONGEST, _LONGEST_NAME = 4096, 255  # of a path in a call, and of one component. PATH_MAX, NAME_MAX
_DEEPEST = 16_384  # of one that directories were moved together to
_GONE = 20_000  # removed objects that are remembered: descriptors of them may still be used
_RECENT = 1000  # directories that are found at once
_PROGRAMS = 4  # that are told of one thing


def stays(path: str) -> bool:
    """Whether what is written there stays: not in a device, or in a file of the kernel's."""
    return not path.startswith(_MEMORY) or path.startswith(_STAYS)


class Thing:
    """What a name stands for. `origin` is its path at the start of the run; None: the run made it."""

    __slots__ = ("attributes", "by", "changed", "children", "id", "kind", "names", "origin")

    def __init__(self, kind: str, origin: str | None, by: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.origin = origin
        self.by = by
        self.id: Id | None = None
        self.names = 1  # of it that are known: hard links made by the run
        self.changed = False
        self.attributes: Pairs | None = None  # by name: before the run, and now
        self.children: dict[str, Thing] | None = None


class Change:
    """One net change. `source` is from where it was moved; `changed`: it was opened to be written.

    Another thing that had this path before is gone (`replaced`), or was moved away (`vacated`).
    """

    __slots__ = ("attributes", "by", "changed", "kind", "path", "replaced", "source", "vacated", "what")

    def __init__(
        self,
        what: str,
        path: str,
        thing: Thing,
        *,
        source: str | None = None,
        replaced: bool = False,
        vacated: bool = False,
    ) -> None:
        self.what = what
        self.path = path
        self.kind = thing.kind
        self.by = thing.by
        self.changed = thing.changed
        self.source = source
        self.replaced = replaced
        self.vacated = vacated
        pairs = thing.attributes or {}
        self.attributes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] or name not in _COMPARED}


_COMPARED = frozenset({"mode", "owner"})  # attributes of which both values are known


class Tree:
    """Give it effects; then ask for the `changes`. `beyond` counts, by directory, those that were not followed."""

    def __init__(self, most: int = MOST) -> None:
        self.beyond: dict[str, int] = {}
        self._most = most
        self._count = 0
        self._text = 0  # characters of origins
        self._root = Thing(DIRECTORY, "")
        self._recent: dict[str, Thing] = {}  # directories by path, while none is moved or removed
        self._lost: dict[str, Thing] = {}  # by origin: what the run found and removed
        self._gone: dict[Id, str] = {}  # what was removed last, and its path
        self._teams: dict[tuple[str, ...], tuple[str, ...]] = {}

    # -- effects ---------------------------------------------------------------------------------------------

    def made(self, effect: str, path: str, by: str, after: Id | None = None) -> None:
        """A new name for a new object: `create`, `mkdir`, `symlink`, `mknod`, `bind`."""
        if (place := self._place(path)) is not None:
            thing = Thing(_KINDS[effect], None, (by,))
            thing.id = after
            if after is not None:
                self._gone.pop(after, None)
            self._put(*place, thing, path)

    def linked(self, path: str, source: str, by: str, found: Id | None) -> None:
        """A second name. Without a `source` the object had none any more."""
        place = self._place(path)
        origin = self._place(source) if source else None
        if place is None:
            return
        thing = self._found(*origin, source) if origin is not None else None
        if thing is None or thing.children is not None:
            thing = Thing(FILE, None)
            thing.names = 0
        if found is not None:
            self._gone.pop(found, None)
        thing.names += 1
        thing.by = self._joined(thing.by, by)
        self._put(*place, thing, path)

    def removed(self, path: str, by: str, kind: str = UNSEEN, found: Id | None = None) -> None:
        """A name that is gone: `unlink`, `rmdir`."""
        if (place := self._place(path)) is None:
            return
        thing = self._found(*place, path)
        if thing is None:
            return
        thing.id = thing.id or found
        thing.kind = thing.kind or kind
        thing.by = self._joined(thing.by, by)
        self._drop(*place, path)

    def renamed(self, path: str, goal: str, by: str, *, replaced: bool = False, exchanged: bool = False) -> None:
        """Another name for it; what had that name is gone, or has the old one."""
        here, there = self._place(path), self._place(goal)
        if here is None or there is None:
            return
        thing = self._found(*here, path)
        other = self._found(*there, goal) if exchanged or replaced else None
        if thing is None or (exchanged and other is None):
            return
        thing.by = self._joined(thing.by, by)
        if thing.children is not None or (exchanged and other is not None and other.children is not None):
            self._recent.clear()
        _children(here[0]).pop(here[1], None)
        if exchanged and other is not None:
            other.by = self._joined(other.by, by)
            _children(there[0]).pop(there[1], None)
            _children(here[0])[here[1]] = other
            _children(there[0])[there[1]] = thing
        else:
            self._count -= 1
            self._put(*there, thing, goal)

    def wrote(self, path: str, by: str, found: Id | None) -> None:
        """Opened to be written, emptied, or its inode flags set: `write`, `truncate`."""
        thing = self._existing(path, found)
        if thing is not None:
            thing.changed = True
            thing.kind = thing.kind or FILE
            thing.by = self._joined(thing.by, by)

    def set_attribute(self, path: str, by: str, found: Id | None, name: str, before: str, now: str) -> None:
        """`chmod`, `chown`, `xattr`."""
        thing = self._existing(path, found)
        if thing is not None:
            pairs = thing.attributes = thing.attributes or {}
            if name in pairs or len(pairs) < _PROGRAMS:
                pairs[name] = pairs.get(name, (before, ""))[0], now
                thing.by = self._joined(thing.by, by)

    # -- names -----------------------------------------------------------------------------------------------

    def _place(self, path: str) -> tuple[Thing, str] | None:
        """The directory that holds the name, and its last component. None where no call could have this path, or where
        no more is followed.
        """
        directory, _, name = path.rpartition("/")
        known = self._recent.get(directory)
        if known is not None and name not in ("", ".", "..") and len(name) <= _LONGEST_NAME and "\0" not in name:
            return known, name
        if not path.startswith("/") or len(path) > _LONGEST or "\0" in path:
            return None
        parts = path[1:].split("/")
        if "" in parts or "." in parts or ".." in parts or max(map(len, parts)) > _LONGEST_NAME:
            return None
        name = parts.pop()
        thing = self._root
        for depth, part in enumerate(parts):
            children = _children(thing)
            child = children.get(part)
            if child is None or (child.names > 1 and child.children is None):  # no file has names below it
                if self._is_full():
                    self._count_beyond("/" + "/".join(parts[:depth]))
                    return None
                self._count += child is None
                child = children[part] = Thing(DIRECTORY, self._below(thing, part))
            child.kind = DIRECTORY
            thing = child
        if len(self._recent) >= _RECENT:
            self._recent.clear()
        _children(thing)  # by which it is known that it may be in there
        self._recent[directory] = thing
        return thing, name

    def _is_full(self) -> bool:
        return self._count >= self._most or self._text >= MOST_TEXT

    def _below(self, parent: Thing, name: str) -> str | None:
        """The origin of what was found there: made things have nothing in them that was there before."""
        if parent.origin is None:
            return None
        self._text += len(parent.origin) + 1 + len(name)
        return f"{parent.origin}/{name}"

    def _count_beyond(self, directory: str) -> None:
        self.beyond[directory] = self.beyond.get(directory, 0) + 1

    def _found(self, parent: Thing, name: str, path: str) -> Thing | None:
        """What must be there, since an effect found it; None where no more is followed."""
        children = _children(parent)
        thing = children.get(name)
        if thing is None:
            if self._is_full():
                self._count_beyond(path.rpartition("/")[0] or "/")
                return None
            self._count += 1
            thing = children[name] = Thing(UNSEEN, self._below(parent, name))
        return thing

    def _existing(self, path: str, found: Id | None) -> Thing | None:
        """The same of an object that may be reached without any name, when it was removed."""
        if found is not None and self._gone.get(found) == path:
            return None
        place = self._place(path)
        return self._found(*place, path) if place is not None else None

    def _put(self, parent: Thing, name: str, thing: Thing, path: str) -> None:
        children = _children(parent)
        if name in children:
            self._drop(parent, name, path)
        if self._is_full():
            self._count_beyond(path.rpartition("/")[0] or "/")
            return
        self._count += 1
        children[name] = thing

    def _drop(self, parent: Thing, name: str, path: str) -> None:
        """Take a name away; with the last one goes the object, and what is still known below it."""
        pending = [(_children(parent).pop(name), path)]
        while pending:
            thing, where = pending.pop()
            self._count -= 1
            thing.names -= 1
            if thing.children is not None:
                self._recent.clear()
                pending += [(child, where + "/" + below) for below, child in thing.children.items()]
                thing.children = None
            if thing.names > 0:
                continue
            if thing.origin is not None:
                if len(self._lost) < self._most:
                    self._lost[thing.origin] = thing
                else:
                    self._count_beyond(where.rpartition("/")[0] or "/")
            if thing.id is not None:
                self._gone.pop(thing.id, None)
                self._gone[thing.id] = where
                if len(self._gone) > _GONE:
                    del self._gone[next(iter(self._gone))]

    def _joined(self, team: tuple[str, ...], by: str) -> tuple[str, ...]:
        """Programs that had to do with a thing; equal ones are one tuple."""
        if by in team or len(team) >= _PROGRAMS:
            return team
        joined = (*team, by)
        if len(self._teams) > 10_000:
            self._teams.clear()
        return self._teams.setdefault(joined, joined)

    # -- what it comes to ------------------------------------------------------------------------------------

    def changes(self) -> Iterator[Change]:
        """Every net change, in no order that means anything.

        One whose source is its own path was moved back there, out of a directory that has gone on without it.
        """
        moved: set[str] = set()
        stayed: set[str] = set()
        told: set[int] = set()  # things with several names, one of which is accounted for
        for path, thing, above in self._walk():
            if thing.origin is None:
                continue
            (stayed if thing.origin == path else moved).add(thing.origin)
            if thing.names > 1 and _is_at_home(path, thing, above):
                told.add(id(thing))
        moved -= stayed  # linked, and still there
        for path, thing, above in self._walk():
            replaced, vacated = path in self._lost, path in moved
            before = replaced or vacated
            what, source = CHANGED if before else CREATED, None
            if thing.origin is not None and _is_at_home(path, thing, above):
                what = CHANGED if thing.changed or before else ATTRIBUTES
            elif thing.origin is not None and id(thing) not in told:
                what, source = MOVED, thing.origin
                told.add(id(thing))
            change = Change(what, path, thing, source=source, replaced=replaced, vacated=vacated)
            if what != ATTRIBUTES or change.attributes:
                yield change
        for path, thing in self._lost.items():
            if self._at(path) is None:
                yield Change(DELETED, path, thing)

    def _walk(self) -> Iterator[tuple[str, Thing, str | None]]:
        """Path, thing, and where the directory that holds it was at the start, of each that is there now."""
        pending = [("", self._root)]
        while pending:
            path, directory = pending.pop()
            for name, thing in (directory.children or {}).items():
                where = path + "/" + name
                yield where, thing, directory.origin
                if thing.children:
                    if len(where) > _DEEPEST:
                        self._count_beyond(where[:_LONGEST])
                    else:
                        pending.append((where, thing))

    def _at(self, path: str) -> Thing | None:
        """What has this path now, as far as it is known."""
        thing: Thing | None = self._root
        for part in path[1:].split("/"):
            thing = thing.children.get(part) if thing is not None and thing.children else None
        return thing


def _children(thing: Thing) -> dict[str, Thing]:
    if thing.children is None:
        thing.children = {}
    return thing.children


def _is_at_home(path: str, thing: Thing, above: str | None) -> bool:
    """Whether it is where it was at the start, in the directory that comes from `above`; that may have moved."""
    return above is not None and thing.origin == f"{above}/{path.rpartition('/')[2]}"
