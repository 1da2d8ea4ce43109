"""A file tree as the log says it became: records replayed on what was there before, strictly.

It knows nothing of pincer-trace's own reading of logs. A record that does not fit the tree so far (something is made
where something is, removed where nothing is, moved from nowhere) is wrong, and so is a tree that then differs from
the real one in names, kinds, inodes, or in anything of an object that no record touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import digest

MAKES = {"create": "-", "mkdir": "d", "symlink": "l", "mknod": None, "bind": "s"}
MOVES = {"rename", "link"}
REMOVES = {"unlink", "rmdir"}
TOUCHES = {
    "write": {"content", "mtime"},
    "truncate": {"content", "mtime"},
    "chmod": {"mode"},
    "chown": {"owner", "mode"},
    "utime": {"mtime"},
    "xattr": {"xattrs", "mode"},
}


@dataclass
class Object:
    """What a name stands for: as it was, or None for what the run made; what records touched of it since."""

    kind: str | None
    number: str
    before: dict[str, Any] | None = None
    touched: set[str] = field(default_factory=set)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)


def look(path: str) -> dict[str, Any]:
    """All of one object but its name: what a change of it would be seen in."""
    info = os.lstat(path)
    seen: dict[str, Any] = {
        "kind": stat.filemode(info.st_mode)[0],
        "number": f"{info.st_dev}:{info.st_ino}",
        "mode": stat.S_IMODE(info.st_mode),
        "owner": (info.st_uid, info.st_gid),
    }
    if stat.S_ISREG(info.st_mode):
        seen |= {"content": digest(os.fsencode(path)), "mtime": info.st_mtime_ns}
    if stat.S_ISLNK(info.st_mode):
        seen["content"] = os.readlink(path)
    else:
        seen["xattrs"] = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return seen


def walk(tops: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Every object below `tops`, and these."""
    found = {}
    for top in tops:
        found[str(top)] = look(str(top))
        for parent, folders, files in os.walk(top):
            for name in (*folders, *files):
                path = os.path.join(parent, name)
                found[path] = look(path)
    return found


class Journal:
    """The tree below `tops`; `wrong` gathers what does not fit, in words."""

    def __init__(self, tops: Iterable[Path]) -> None:
        self.tops = [str(top) for top in tops]
        self.names: dict[str, Object] = {}
        self.wrong: list[str] = []
        self.applied: dict[str, int] = {}
        known: dict[str, Object] = {}
        for path, seen in walk(map(Path, self.tops)).items():
            number = seen["number"]
            self.names[path] = known.setdefault(number, Object(seen["kind"], number, seen))

    def inside(self, path: str) -> bool:
        return any(path == top or path.startswith(top + "/") for top in self.tops)

    def apply(self, record: dict[str, Any]) -> None:
        """One record, in the order of the log."""
        effect, path, extra = record["effect"], record["path"], record.get("extra", {})
        ends = [path, *(extra[key] for key in ("to", "from") if effect in MOVES and key in extra)]
        if record["verdict"] != "allow" or record["outcome"] != "done" or not any(map(self.inside, ends)):
            return
        if os.path.basename(path) == "#nameless":
            return
        self.applied[effect] = self.applied.get(effect, 0) + 1
        where = f"{record['seq']} {effect} {path} {extra or ''}"
        if effect in MAKES:
            self._expect_free(path, where)
            self.names[path] = Object(MAKES[effect], record.get("post", ""))
        elif effect == "rename":
            self._rename(path, extra, where)
        elif effect == "link":
            source = self.names.get(extra.get("from", ""))
            self._expect_free(path, where)
            self.names[path] = source or Object("-", record.get("post", ""))
        elif effect in REMOVES:
            self._take(path, where, whole=False)
        elif effect in TOUCHES:
            self._touch(effect, path, extra, where)

    def _expect_free(self, path: str, where: str) -> None:
        if path in self.names:
            self.wrong.append(f"{where}: something is there already")
        above = self.names.get(os.path.dirname(path))
        if above is None or above.kind != "d":
            self.wrong.append(f"{where}: no directory above it")

    def _take(self, path: str, where: str, whole: bool = True) -> dict[str, Object]:
        taken = {name: one for name, one in self.names.items() if name == path or name.startswith(path + "/")}
        if path not in taken:
            self.wrong.append(f"{where}: nothing is there")
        elif len(taken) > 1 and not whole:
            self.wrong.append(f"{where}: it is not empty")
        for name in taken:
            del self.names[name]
        return taken

    def _rename(self, path: str, extra: dict[str, Any], where: str) -> None:
        to = extra["to"]
        if self.names.get(path) is self.names.get(to, ...):  # two names of one file: rename does nothing
            return
        moved = self._take(path, where)
        there = self._take(to, where) if to in self.names else {}
        if "exchange" in str(extra):
            self.names |= {path + name[len(to) :]: one for name, one in there.items()}
        elif len(there) > 1:
            self.wrong.append(f"{where}: what it replaces is not empty")
        self.names |= {to + name[len(path) :]: one for name, one in moved.items()}

    def _touch(self, effect: str, path: str, extra: dict[str, Any], where: str) -> None:
        one = self.names.get(path)
        if one is None:
            self.wrong.append(f"{where}: nothing is there")
            return
        one.touched |= TOUCHES[effect]
        one.last[f"{effect} {extra.get('attribute', '')}".strip()] = extra

    def compare(self, real: Mapping[str, dict[str, Any]]) -> list[str]:
        """What the tree that `walk` saw afterwards has otherwise, and what did not fit on the way."""
        wrong = [*self.wrong]
        wrong += [f"{path}: there, and no record says how" for path in real.keys() - self.names.keys()]
        wrong += [f"{path}: recorded, and not there" for path in self.names.keys() - real.keys()]
        for path in real.keys() & self.names.keys():
            one, seen = self.names[path], real[path]
            if one.kind not in (None, seen["kind"]) or one.number not in ("", seen["number"]):
                wrong.append(f"{path}: {seen['kind']} {seen['number']}, recorded as {one.kind} {one.number}")
            for what in seen.keys() - {"kind", "number"} - one.touched if one.before else ():
                if seen[what] != one.before.get(what):
                    wrong.append(f"{path}: {what} was {one.before.get(what)}, is {seen[what]}, and no record says so")
            wrong += [f"{path}: {word}" for word in self._unkept(one, seen)]
        return sorted(wrong)

    @staticmethod
    def _unkept(one: Object, seen: dict[str, Any]) -> Iterable[str]:
        """Attributes that a record says were set, and are not."""
        for what, extra in one.last.items():
            if what == "chmod" and "chown" not in one.last and "mode" in extra:
                mode = int(extra["mode"], 8)
                if seen["mode"] != mode:
                    yield f"mode {seen['mode']:o}, recorded as {mode:o}"
            attribute = extra.get("attribute", "system.")
            if not attribute.startswith("system.") and (attribute in seen["xattrs"]) == extra["removed"]:
                yield f"attribute {extra}, but {sorted(seen['xattrs'])}"
