"""Other names of protected files: judged by their protected name too, whatever they were reached by (hazard P28).

A symbolic link at a protected place (`~/.ssh -> /data/ssh`), or in a place of secrets (`~/.ssh/key -> ~/dotfiles/key`),
moves what is protected to where it really lies. Such links are resolved at the start, as far down as is quick; one that
is met later counts from then on. A hard link made before the run gives a secret an innocent name. Links that the tree
makes are judged when they are made; for those that were there before, the files at the protected places that have more
than one name are listed once, when the first object with several names is met. Patterns that begin with `**` name no
place, so a file that only they protect is known by its names of this session alone.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import CHANGES, EXEC, READ
from pincer_trace.gateway.provenance import remember
from pincer_trace.kernel import libc, procfs
from pincer_trace.paths import is_inside
from pincer_trace.profile import ALLOW, Facts
from pincer_trace.profile.globs import matcher, matches
from pincer_trace.profile.model import AnyProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pincer_trace.profile import Profile
    from pincer_trace.profile.globs import Components
    from pincer_trace.twin.target import Target

    Mounts = list[tuple[bytes, bytes, bytes, bytes]]

_OTHER_WORLDS = (b"proc", b"sys", b"dev")  # file systems of their own, of a size that a worker could set
_WORLD_OF_TYPE = {b"proc": b"/proc", b"sysfs": b"/sys", b"devtmpfs": b"/dev"}
_GUARDED = CHANGES | {READ}
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LIMIT = 2_000_000  # directory entries looked at in all
_FIRST_LOOK = 2_000  # directory entries of one place looked at for links when the run begins
_OPENING = 10  # entries that a directory counts for
_DEPTH = 3  # directories below it, where all that is below is secret
_LINKS = 256  # of those links that are remembered
_SECRETS = 16_384  # objects that were met by a protected name
_COPIES = 65_536  # objects that hold what was read as a sink


class TooMany(Exception):
    """The protected places cannot be looked through (too many files, or an error): the other names are not known."""


class Aliases:
    """Belongs to the receiving thread."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.moved = self._links()
        self._reals = tuple(real for real, _ in self.moved)
        self._known: dict[str, dict[tuple[int, int], bytes] | None] = {}
        self._looked = 0
        self._secrets: dict[tuple[int, int], tuple[bytes, bytes]] = {}  # of objects: identity, protected name
        self._copies: dict[tuple[int, int], tuple[bytes, tuple[bytes, ...]]] = {}
        self._hear: Callable[[int, int], None] = _nobody

    def tell(self, hear: Callable[[int, int], None]) -> None:
        """Tell `hear` the device and inode of each object that `is_secret` knows, now and as they come."""
        self._hear = hear
        for key in (*self._secrets, *self._copies):
            hear(*key)

    def note_secret(self, target: Target, name: bytes) -> bool:
        """An object is read as a view by the protected `name`: from now on it is, whatever it is called. New or not."""
        found = target.found
        if found is None or not stat.S_ISREG(found.st_mode):
            return False
        try:
            identity = _identity(target)
        except OSError:
            return False  # it is gone
        key = found.st_dev, found.st_ino
        known = self._secrets.get(key)
        if known is not None and known[0] == identity:
            return False
        remember(self._secrets, key, (identity, name), _SECRETS)
        self._hear(*key)
        return True

    def note_scanned(self, paths: Iterable[bytes]) -> None:
        """Files that `anywhere` found are protected by themselves from now on."""
        from pincer_trace.twin.target import Target

        for path in paths:
            try:
                pin = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue  # it is gone
            try:
                self.note_secret(Target(path, descriptor=pin, found=os.fstat(pin)), path)
            finally:
                os.close(pin)

    def note_copy(self, identity: bytes, found: os.stat_result, names: tuple[bytes, ...]) -> None:
        """What is written to an object comes from who has read these secrets in full. Raises TooMany: then nothing may
        be written there.
        """
        key = found.st_dev, found.st_ino
        known = self._copies.get(key)
        if known is not None and known[0] == identity:
            names = tuple(dict.fromkeys((*known[1], *names)))
        elif known is None and len(self._copies) >= _COPIES:
            raise TooMany
        self._copies[key] = identity, names
        self._hear(*key)

    def copied_from(self, target: Target) -> tuple[bytes, ...]:
        """The secrets that may be in exactly this object, since a sink wrote it."""
        found = target.found
        known = self._copies.get((found.st_dev, found.st_ino)) if found is not None and self._copies else None
        if known is None:
            return ()
        try:
            return known[1] if _identity(target) == known[0] else ()
        except OSError:
            return known[1]  # in doubt it is that one

    def is_secret(self, found: os.stat_result) -> bool:
        """Whether this may be such an object, or one that a sink wrote."""
        key = found.st_dev, found.st_ino
        return key in self._secrets or key in self._copies

    def secret_name(self, target: Target) -> bytes | None:
        """The protected name by which exactly this object was met, if any."""
        found = target.found
        known = self._secrets.get((found.st_dev, found.st_ino)) if found is not None else None
        if known is None:
            return None
        try:
            return known[1] if _identity(target) == known[0] else None
        except OSError:
            return known[1]  # in doubt it is that one

    def protected_name(self, found: os.stat_result, effect: str) -> bytes | None:
        """The protected name of an object that has several names, if any. Raises TooMany when that is unknown."""
        if not stat.S_ISREG(found.st_mode):
            return None
        kind = effect if effect in (READ, EXEC) else ""
        if kind not in self._known:  # the secrets are few; all that is closed to changes may take a second, once
            self._known[kind] = None  # until the scan has come to its end
            self._known[kind] = self._scan(frozenset({kind}) if kind else CHANGES)
        known = self._known[kind]
        if known is None or self._looked >= _LIMIT:
            raise TooMany
        return known.get((found.st_dev, found.st_ino))

    def protected_places(self, path: bytes) -> tuple[bytes, ...]:
        """The protected names of a path that lies behind a symbolic link at a protected place, or on another mount."""
        if not path.startswith(self._reals):
            return ()
        return tuple(name + path[len(real) :] for real, name in self.moved if is_inside(path, real))

    def reach_into(self, directory: bytes) -> bool:
        """Whether some entry of `directory` may have a protected name besides its own."""
        return any(is_inside(directory, real) or real.rpartition(b"/")[0] == directory for real in self._reals)

    def holds_place(self, directory: bytes) -> bool:
        """Whether something below `directory` is protected by another name."""
        return any(is_inside(real, directory) for real in self._reals)

    def note_link(self, real: bytes, name: bytes, found: os.stat_result) -> bool:
        """A link at the protected `name` was met that leads to `real`: from now on that is protected by every name.

        False where that was known.
        """
        if (real, name) in self.moved:
            return False
        if len(self.moved) >= 2 * _LINKS:
            return True
        self.moved.append((real, name))
        self._reals = (*self._reals, real)
        for known in self._known.values():
            if known is not None:
                known.setdefault((found.st_dev, found.st_ino), name)
        return True

    def _links(self) -> list[tuple[bytes, bytes]]:
        """(real path, protected path) where a protected place is reached through a symbolic link or another mount."""
        found = {}
        reals: dict[bytes, tuple[bytes, bool]] = {b"": (b"", True)}
        secret: dict[bytes, int] = {}  # places of secrets, and how many directories deep to look for links
        for rule in self._profile.rules:
            if rule.verdict == ALLOW or not rule.effects & _GUARDED:
                continue
            literal = []
            for component in rule.components:
                if not isinstance(component, bytes):
                    break
                literal.append(component)
            place = b"/" + b"/".join(literal)
            rest = rule.components[len(literal) :]
            other = bool(literal) and literal[0] in _OTHER_WORLDS
            if (len(literal) > 1 or other) and place not in found:
                found[place] = place if other else _real(place, reals)
            if READ in rule.effects and rest and len(literal) > 1 and not other:
                everywhere = rest[0] is None and len(rest) > 1
                depth = _FIRST_LOOK if everywhere else _DEPTH if None in rest else len(rest)
                secret[place] = max(depth, secret.get(place, 0))
        moved = [(real, place) for place, real in found.items() if real != place]
        for place, depth in secret.items():
            moved += self._links_below(place, depth, _LINKS + len(found) - len(moved))
        mounts = procfs.mounts()
        ways = _Mounts(mounts)
        if ways.several:
            for place, real in [*found.items(), *((place, real) for real, place in moved if place not in found)]:
                moved += [(alias, place) for alias in ways.elsewhere(real)]
        for _, root, point, kind in mounts:
            world = _WORLD_OF_TYPE.get(kind)
            if world is not None and not is_inside(point, world):
                moved.append((point, world + root.rstrip(b"/")))
        return list(dict.fromkeys(moved))

    def _is_state(self, directory: bytes) -> bool:
        """Whether only our own files are there, to which nobody gave a second name: records of all earlier sessions."""
        return bool(self._profile.state) and is_inside(directory, self._profile.state)

    def _links_below(self, place: bytes, depth: int, limit: int) -> list[tuple[bytes, bytes]]:
        """The same of links below a place of secrets: the nearest, level by level, as far as a short look goes."""
        moved: list[tuple[bytes, bytes]] = []
        level = [place]
        looked = 0
        while level and depth > 0 and looked < _FIRST_LOOK:
            depth -= 1
            deeper = []
            for directory in level:
                if self._is_state(directory):
                    continue
                looked += _OPENING
                try:
                    with os.scandir(directory) as entries:
                        for entry in entries:
                            looked += 1
                            if entry.is_symlink():
                                moved += self._link(directory + b"/" + os.fsencode(entry.name), place)
                            elif depth and entry.is_dir(follow_symlinks=False):
                                deeper.append(directory + b"/" + os.fsencode(entry.name))
                            if looked >= _FIRST_LOOK or len(moved) >= limit:
                                return moved[: max(limit, 0)]
                except OSError:
                    continue
            level = deeper
        return moved

    def _link(self, path: bytes, place: bytes) -> list[tuple[bytes, bytes]]:
        """(where it leads, `path`), if the link is at a protected name, or one with protected names below it."""
        closed = self._profile.judge(READ, path, Facts()).verdict != ALLOW
        if not closed and self._profile.guarded_below(READ, path) is None:
            return []
        real = os.path.realpath(path)
        return [] if real == path or is_inside(place, real) else [(real, path)]

    def _scan(self, effects: frozenset[str]) -> dict[tuple[int, int], bytes]:
        known: dict[tuple[int, int], bytes] = {}
        # What begins alike up to its first `**` is looked for in one walk, which may be that of a whole work tree.
        tails: dict[Components, list[Components]] = {}
        for rule in self._profile.rules:
            components = tuple(rule.components)
            if rule.verdict == ALLOW or not rule.effects & effects:
                continue
            if components and components[0] is not None and components[0] not in _OTHER_WORLDS:
                cut = components.index(None) + 1 if None in components else len(components)
                tails.setdefault(components[:cut], []).append(components[cut:])
        for head, ends in tails.items():
            for path, found in self._below(b"", head, tuple(dict.fromkeys(ends))):
                if found.st_nlink > 1:
                    known.setdefault((found.st_dev, found.st_ino), path)
        for real, name in self.moved:
            for _, found in self._file(real):
                if found.st_nlink > 1:
                    known.setdefault((found.st_dev, found.st_ino), name)
        return known

    def anywhere(self, tops: Iterable[bytes]) -> list[bytes]:
        """The files below `tops` which a pattern that begins with `**` protects from being read, and that have other
        names. Raises TooMany where not all of it can be looked through.
        """
        tails = {
            tuple(rule.components[1:])
            for rule in self._profile.rules
            if rule.verdict != ALLOW and READ in rule.effects and rule.components[:1] == (None,)
        }
        found: dict[tuple[int, int], bytes] = {}
        looked, self._looked = self._looked, 0
        for top in tops:
            for path, seen in self._everywhere(top, tuple(tails - {()})):
                if seen.st_nlink > 1 and self._profile.judge(READ, path, AnyProgram()).verdict != ALLOW:
                    found.setdefault((seen.st_dev, seen.st_ino), path)
        complete, self._looked = self._looked < _LIMIT, looked
        if not complete:
            raise TooMany
        return list(found.values())

    def _below(
        self, directory: bytes, components: Components, tails: tuple[Components, ...] = ()
    ) -> Iterator[tuple[bytes, os.stat_result]]:
        """The regular files below `directory` that `components` match, as (path, lstat).

        Where `components` end with the only `**`, what comes behind it is one of `tails`.
        """
        if not components:
            return
        first, rest = components[0], components[1:]
        if first is None:
            yield from self._everywhere(directory, tails or (rest,))
        elif isinstance(first, bytes):
            yield from self._step(directory + b"/" + first, rest, tails)
        else:
            for name, _ in self._listed(directory):
                if matches((first,), b"/" + name):
                    yield from self._step(directory + b"/" + name, rest, tails)

    def _step(
        self, path: bytes, rest: Components, tails: tuple[Components, ...] = ()
    ) -> Iterator[tuple[bytes, os.stat_result]]:
        if all(component is None for component in rest) and (not rest or not tails or () in tails):
            yield from self._file(path)  # `**` also matches nothing
        if rest:
            yield from self._below(path, rest, tails)

    def _everywhere(self, top: bytes, tails: tuple[Components, ...]) -> Iterator[tuple[bytes, os.stat_result]]:
        """The same of what one of `tails` matches at any depth below `top`; links to directories are not followed.

        Of most names it is told by their first or last bytes alone that none of the tails begins with them.
        """
        every = () in tails
        behind: dict[bytes, list[Components]] = {}
        patterns = []
        starts, ends = [], []
        for tail in tails:
            first = tail[0] if tail else None
            if isinstance(first, bytes):
                behind.setdefault(first, []).append(tail[1:])
            elif first is not None:
                patterns.append((matcher(first), tail[1:]))
                if isinstance(first[-1], bytes):
                    ends.append(first[-1])
                else:
                    starts.append(first[0] if isinstance(first[0], bytes) else b"")
        begins, closes = tuple(starts), tuple(ends)
        pending = [top]
        while pending:
            directory = pending.pop()
            for name, is_directory in self._listed(directory):
                if is_directory:
                    pending.append(directory + b"/" + name)
                if every:
                    yield from self._file(directory + b"/" + name)
                for rest in behind.get(name, ()):
                    yield from self._step(directory + b"/" + name, rest)
                if name.startswith(begins) or name.endswith(closes):
                    for fits, rest in patterns:
                        if fits(name):
                            yield from self._step(directory + b"/" + name, rest)

    def _listed(self, directory: bytes) -> list[tuple[bytes, bool]]:
        """The names in `directory`, each with whether it is a directory; none of records, or after too many."""
        if self._looked >= _LIMIT or self._is_state(directory):
            return []
        try:
            with os.scandir(directory or b"/") as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            if _hides_something(directory, error):
                raise TooMany from error
            return []
        self._looked += len(names)
        return names

    def _file(self, path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        try:
            found = os.lstat(path)
        except OSError as error:
            if _hides_something(path.rpartition(b"/")[0], error):
                raise TooMany from error
            return
        if stat.S_ISREG(found.st_mode):
            yield path, found


def _nobody(_device: int, _inode: int) -> None:
    """Where nobody wants to hear of secrets."""


def _identity(target: Target) -> bytes:
    """What tells the object from a later one of the same number. Raises OSError."""
    if target.descriptor >= 0:
        return libc.object_identity(target.descriptor)
    return libc.object_identity(*(target.moved or (target.parent, target.name)))


def _real(path: bytes, known: dict[bytes, tuple[bytes, bool]]) -> bytes:
    """As os.path.realpath, for hundreds of paths that begin alike: `known` holds (real path, whether it exists)."""
    if path not in known:
        above, _, name = path.rpartition(b"/")
        real = _real(above, known) + b"/" + name
        there = known[above][1]
        if there:
            try:
                if stat.S_ISLNK(os.lstat(real).st_mode):
                    real = os.path.realpath(real)
            except OSError as error:
                there = error.errno != errno.ENOENT
        known[path] = real, there
    return known[path][0]


def _hides_something(directory: bytes, error: OSError) -> bool:
    """Whether a directory that cannot be looked into may hold files which the worker can reach all the same."""
    if error.errno in _NOTHING_THERE:
        return False
    if error.errno != errno.EACCES:
        return True
    try:
        return os.stat(directory or b"/").st_uid == os.geteuid()  # its owner can change that, or search it unlisted
    except OSError:
        return False  # what lies there is out of our reach, and so of the worker's


class _Mounts:
    """Where else a path is shown: of file systems that are mounted more than once (bind mounts; hazard P25)."""

    def __init__(self, mounts: Mounts) -> None:
        counted: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for device, root, point, _ in mounts:
            counted.setdefault(device, []).append((root, point))
        self.several = {device: ways for device, ways in counted.items() if len(ways) > 1}
        longest = sorted(mounts, key=lambda row: len(row[2]), reverse=True)
        self._holders = [(point.rstrip(b"/") + b"/", device, root) for device, root, point, _ in longest]

    def elsewhere(self, path: bytes) -> list[bytes]:
        """The other paths at which the file system that holds `path` shows the same place."""
        below = path + b"/"
        holder = next((row for row in self._holders if below.startswith(row[0])), None)
        if holder is None:
            return []
        start, device, root = holder
        inner = root.rstrip(b"/") + path[len(start) - 1 :]
        return [
            point.rstrip(b"/") + inner[len(other.rstrip(b"/")) :]
            for other, point in self.several.get(device, ())
            if is_inside(inner, other) and (other, point.rstrip(b"/")) != (root, start[:-1])
        ]
