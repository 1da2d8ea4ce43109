"""Other names of protected files: judged by their protected name too, whatever they were reached by (hazard P28).

A symbolic link at a protected place (`~/.ssh -> /data/ssh`) moves what is protected to where it really lies: such links
are resolved at the start. A hard link made before the run gives a secret an innocent name. Links that the tree makes
are judged when they are made; for those that were there before, the files at the protected places that have more than
one name are listed once, when the first object with several names is met. Patterns that begin with `**` name no
place, so a file that only they protect is known by its names of this session alone.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import CHANGES, READ
from pincer_trace.profile import ALLOW
from pincer_trace.profile.globs import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.profile import Profile
    from pincer_trace.profile.globs import Components

_OTHER_WORLDS = (b"proc", b"sys", b"dev")  # file systems of their own, of a size that a worker could set
_GUARDED = CHANGES | {READ}
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LIMIT = 2_000_000  # directory entries looked at in all


class TooMany(Exception):
    """The protected places cannot be looked through (too many files, or an error): the other names are not known."""


class Aliases:
    """Belongs to the receiving thread."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.moved = self._links()
        self._reals = tuple(real for real, _ in self.moved)
        self._known: dict[bool, dict[tuple[int, int], bytes] | None] = {}
        self._looked = 0

    def protected_name(self, found: os.stat_result, effect: str) -> bytes | None:
        """The protected name of an object that has several names, if any. Raises TooMany when that is unknown."""
        if not stat.S_ISREG(found.st_mode):
            return None
        reads = effect == READ
        if reads not in self._known:  # the secrets are few; all that is closed to changes may take a second, once
            self._known[reads] = None  # until the scan has come to its end
            self._known[reads] = self._scan(frozenset({READ}) if reads else CHANGES)
        known = self._known[reads]
        if known is None or self._looked >= _LIMIT:
            raise TooMany
        return known.get((found.st_dev, found.st_ino))

    def protected_place(self, path: bytes) -> bytes | None:
        """The protected name of a path that lies behind a symbolic link at a protected place."""
        if not path.startswith(self._reals):
            return None
        for real, name in self.moved:
            if path == real or path.startswith(real + b"/"):
                return name + path[len(real) :]
        return None

    def _links(self) -> list[tuple[bytes, bytes]]:
        """(real path, protected path) where a protected place is reached through a symbolic link."""
        found = {}
        for rule in self._profile.rules:
            if rule.verdict == ALLOW or not rule.effects & _GUARDED:
                continue
            literal = []
            for component in rule.components:
                if not isinstance(component, bytes):
                    break
                literal.append(component)
            place = b"/" + b"/".join(literal)
            if len(literal) > 1 and place not in found:
                real = os.path.realpath(place)
                found[place] = real
        moved = [(real, place) for place, real in found.items() if real != place]
        mounts = _mounts()
        for place, real in found.items():
            moved += [(alias, place) for alias in _elsewhere(real, mounts)]
        return moved

    def _scan(self, effects: frozenset[str]) -> dict[tuple[int, int], bytes]:
        known: dict[tuple[int, int], bytes] = {}
        seen = set()
        for rule in self._profile.rules:
            components = tuple(rule.components)
            if rule.verdict == ALLOW or not rule.effects & effects or components in seen:
                continue
            seen.add(components)
            if components and components[0] is not None and components[0] not in _OTHER_WORLDS:
                for path, found in self._below(b"", components):
                    if found.st_nlink > 1:
                        known.setdefault((found.st_dev, found.st_ino), path)
        return known

    def _below(self, directory: bytes, components: Components) -> Iterator[tuple[bytes, os.stat_result]]:
        """The regular files below `directory` that `components` match, as (path, lstat)."""
        if not components:
            return
        first, rest = components[0], components[1:]
        if isinstance(first, bytes):
            yield from self._step(directory + b"/" + first, rest)
            return
        try:
            with os.scandir(directory or b"/") as entries:
                names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            if _hides_something(directory, error):
                raise TooMany from error
            return
        self._looked += len(names)
        if self._looked >= _LIMIT:
            return
        for name, is_directory in names:
            path = directory + b"/" + name
            if first is not None:
                if matches((first,), b"/" + name):
                    yield from self._step(path, rest)
                continue
            if is_directory:
                yield from self._below(path, components)
            if not rest:
                yield from self._file(path)
            elif matches((rest[0],), b"/" + name):
                yield from self._step(path, rest[1:])

    def _step(self, path: bytes, rest: Components) -> Iterator[tuple[bytes, os.stat_result]]:
        if all(component is None for component in rest):  # `**` also matches nothing
            yield from self._file(path)
        if rest:
            yield from self._below(path, rest)

    def _file(self, path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        try:
            found = os.lstat(path)
        except OSError as error:
            if _hides_something(path.rpartition(b"/")[0], error):
                raise TooMany from error
            return
        if stat.S_ISREG(found.st_mode):
            yield path, found


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


def _mounts() -> list[tuple[bytes, bytes, bytes]]:
    """(device, root inside of its file system, mount point) of every mount, the last one on top."""
    rows = []
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            fields = line.split(b" ")
            rows.append((fields[2], _unescaped(fields[3]), _unescaped(fields[4])))
    return rows


def _unescaped(text: bytes) -> bytes:
    """Spaces and the like are octal there. proc_pid_mountinfo(5)"""
    for code in (b"040", b"011", b"012", b"134"):
        text = text.replace(b"\\" + code, bytes([int(code, 8)]))
    return text


def _elsewhere(path: bytes, mounts: list[tuple[bytes, bytes, bytes]]) -> list[bytes]:
    """The other paths at which the file system that holds `path` shows the same place (bind mounts; hazard P25)."""
    holder = max((row for row in mounts if _inside(path, row[2])), key=lambda row: len(row[2]), default=None)
    if holder is None:
        return []
    device, root, point = holder
    inner = root.rstrip(b"/") + path[len(point.rstrip(b"/")) :]
    return [
        point.rstrip(b"/") + inner[len(root.rstrip(b"/")) :]
        for other, root, point in mounts
        if other == device and _inside(inner, root) and (root, point) != holder[1:]
    ]


def _inside(path: bytes, directory: bytes) -> bool:
    return directory in (b"/", path) or path.startswith(directory + b"/")
