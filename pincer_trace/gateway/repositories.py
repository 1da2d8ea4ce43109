"""What makes git run a program: the files that it reads in whatever it takes for a repository (hazards P52, P86).

git opens every folder that an index calls a submodule, with the configuration and the hooks that it finds by way of
`.git`; and any folder with HEAD, objects and refs is a repository to it. Who made the folder says nothing then: so
these files are judged by content in every folder that has a HEAD, and a HEAD that comes later judges what is there by
then. They are judged without one below `.git`, in a folder named `*.git` or `.bare`, and where a linked work tree takes
them from (`commondir`).
"""

from __future__ import annotations

import os
import stat

from pincer_trace.effects import CREATE, RENAME, SYMLINK, TRUNCATE, WRITE
from pincer_trace.gateway.gitconfig import Witness, plain_content, written_content
from pincer_trace.gateway.provenance import Within
from pincer_trace.gateway.resolve import look
from pincer_trace.profile.gitconfig import changed_keys, danger, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.twin.target import Target

CONFIGURATIONS = (b"config", b"config.worktree")
# Hooks that git runs without being asked for more than a status or a fetch, from wherever core.hooksPath says.
QUIET_HOOKS = (b"post-index-change", b"reference-transaction")
UNKNOWN = "what it brings is not known"
_HOOKS = 1000  # entries of a hooks folder that are looked at
_WORK_TREES = 1000  # entries of `worktrees`; a folder with more of them is a repository
ABSENT = -2
_O_PATH = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY


class Entry:
    """One name and what appears there: asked by `Repositories.danger`."""

    __slots__ = ("arrives", "effect", "is_own", "parent", "target", "witness")

    def __init__(
        self,
        effect: str,
        target: Target,
        parent: int,
        witness: Witness | None,
        is_own: Callable[[bytes], bool],
    ) -> None:
        self.effect = effect
        self.target = target
        self.parent = parent  # the directory that holds it, -1 when that is not known, ABSENT when there is none
        self.witness = witness
        self.arrives = target.arrives
        self.is_own = is_own  # whether this session made the directory of that path, or one above it

    def kind(self) -> int:
        """The file type of what appears there. Raises OSError."""
        target = self.target
        if self.effect == SYMLINK:
            return stat.S_IFLNK
        if self.effect == CREATE or self.parent == ABSENT:
            return stat.S_IFREG
        if target.descriptor >= 0:
            found = os.fstat(target.descriptor)
        else:
            parent, name = target.moved or (target.parent, target.name)
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return stat.S_IFMT(found.st_mode)

    def content(self) -> bytes | None:
        """Its content, for certain and for good; None when that is not known."""
        if self.witness is not None:
            return self.witness.content()
        return arriving_content(self.effect, self.target)

    def before(self) -> bytes | None:
        return self.witness.before() if self.witness is not None else b""

    @property
    def hopeful(self) -> bool:
        return self.witness is not None and self.witness.hopeful


def arriving_content(effect: str, target: Target) -> bytes | None:
    """The content of a file that a rename brings, inside of a directory or alone."""
    if effect != RENAME or not target.arrives or target.descriptor >= 0:
        return None
    return written_content(*(target.moved or (target.parent, target.name)))


class Repositories:
    """`common` is the repository of the work tree (b"" when there is none), `is_closed` whether a path is out of the
    worker's reach whatever the facts, `is_writable` whether it may write there whatever the facts.
    """

    def __init__(self, common: bytes, is_closed: Callable[[bytes], bool], is_writable: Callable[[bytes], bool]) -> None:
        self._common = common
        self._is_writable = is_writable
        self._templates = Templates(is_closed)

    def danger(self, entry: Entry) -> str | None:
        """Why this could make git run a program; "" when it cannot, None when it goes away. In doubt it can."""
        effect, arrives = entry.effect, entry.arrives
        if effect == RENAME and not arrives:
            return None
        directory, _, name = entry.target.path.rpartition(b"/")
        try:
            if name not in (b".git", b"commondir") and self._is_log(directory):
                return ""
            if name == b"HEAD":
                return "" if effect in (WRITE, TRUNCATE) and not arrives else self._of_head(entry, directory)
            kind = entry.kind()
            if stat.S_ISDIR(kind):
                return ""  # what is in it is judged name by name
            if name == b".git":
                return "a link" if stat.S_ISLNK(kind) else self._of_pointer(entry, directory)
            if name == b"hooks":
                return "a link" if stat.S_ISLNK(kind) and self._is_repository(entry, directory, 0) else ""
            if name in CONFIGURATIONS or name == b"commondir":
                found = ""
                if self._is_repository(entry, directory, 0) or self._is_log(directory):
                    content = entry.content() if stat.S_ISREG(kind) and not entry.hopeful else None
                    if name != b"commondir":
                        found = "" if entry.hopeful else self._of_keys(directory, entry.before(), content)
                    else:
                        found = self._of_common(entry, directory, b"../.." if entry.hopeful else content)
                if found or not directory.endswith(b"/hooks"):
                    return found
            quiet = name in QUIET_HOOKS and b"/.git/" not in directory
            if quiet or (directory.endswith(b"/hooks") and self._is_repository(entry, os.path.dirname(directory), 1)):
                return self._of_hook(name, None if stat.S_ISLNK(kind) else entry.content(), hopeful=entry.hopeful)
            return ""
        except OSError:
            return UNKNOWN

    # -- where -----------------------------------------------------------------------------------------------

    def _is_repository(self, entry: Entry, directory: bytes, levels: int) -> bool:
        return self._is_named(directory) or self._has_head(entry, levels)

    def _is_named(self, directory: bytes) -> bool:
        """Whether files of that directory are judged without a HEAD beside them."""
        if directory.endswith((b".git", b"/.bare")):
            return True
        inside = self._inside(directory)
        return inside is not None and inside.partition(b"/")[0] not in (b"refs", b"logs")

    def _inside(self, directory: bytes) -> bytes | None:
        """Where a directory lies in the `.git` above it, or in the work tree's repository."""
        _, found, rest = (directory + b"/").rpartition(b"/.git/")
        if found:
            return rest
        common = self._common
        return directory[len(common) + 1 :] if common and (directory + b"/").startswith(common + b"/") else None

    def _is_log(self, directory: bytes) -> bool:
        """Whether names there are those of branches: the profile keeps `objects` out, so it is no repository."""
        inside = self._inside(directory)
        return inside is not None and (inside + b"/").startswith(b"logs/")

    def _has_head(self, entry: Entry, levels: int) -> bool:
        """Whether a HEAD lies in the directory that holds the entry, or one level above; or linked work trees do.

        Raises OSError. What moves as `hooks` has another directory above it by now.
        """
        if levels:
            above = os.path.dirname(os.path.dirname(entry.target.path))
            if os.path.lexists(above + b"/HEAD") or _has_linked(-1, above):
                return True
        if entry.parent < 0:
            return entry.parent != ABSENT
        place = b".." if levels else b"."
        return look(entry.parent, place + b"/HEAD") is not None or _has_linked(entry.parent, place)

    # -- what ------------------------------------------------------------------------------------------------

    def _of_head(self, entry: Entry, directory: bytes) -> str:
        """A HEAD where there was none: what lies beside it counts from now on. Raises OSError."""
        if self._is_named(directory):
            return ""  # judged when it came
        if entry.parent < 0:
            return UNKNOWN
        there = look(entry.parent, b"HEAD")
        if there is not None and (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
            return ""  # judged when that came
        for name in (*CONFIGURATIONS, b"commondir", b"hooks"):
            there = look(entry.parent, name)
            if there is None:
                continue
            kind = stat.S_IFMT(there.st_mode)
            beside = f"{name.decode()} beside it"
            if name == b"hooks" and stat.S_ISDIR(kind):
                found = self._of_hooks(entry.parent)
            elif not stat.S_ISREG(kind):
                found = "it cannot be read"
            elif name == b"commondir":
                found = self._of_common(entry, directory, written_content(entry.parent, name))
            else:
                found = self._of_keys(directory, b"", written_content(entry.parent, name))
            if found:
                return f"{beside}: {found}"
        return ""

    def _of_hooks(self, parent: int) -> str:
        directory = os.open(b"hooks", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            with os.scandir(directory) as entries:
                for count, entry in enumerate(entries):
                    if count == _HOOKS:
                        return "there are too many"
                    if entry.is_dir(follow_symlinks=False):
                        continue
                    name = os.fsencode(entry.name)
                    if found := self._of_hook(name, written_content(directory, name), hopeful=False):
                        return found
        finally:
            os.close(directory)
        return ""

    def _of_hook(self, name: bytes, content: bytes | None, *, hopeful: bool) -> str:
        if name.startswith(b".") or name.endswith((b".sample", b".lock")) or _is_reference(content):
            return ""
        known = self._templates.hook(name)
        if known is not None and (hopeful or content == known):
            return ""
        return "a hook that is none of the user's own template"

    def _of_common(self, entry: Entry, directory: bytes, content: bytes | None) -> str:
        """`commondir`: only as git writes it, in a linked work tree of a repository that is judged by now, and will be.

        What moves with a directory has another one above it by then.
        """
        above, _, folder = os.path.dirname(directory).rpartition(b"/")
        if content is not None and content.rstrip(b"\n") == b"../.." and folder == b"worktrees":
            if self._is_named(above):
                return ""
            there = None if entry.arrives or entry.parent < 0 else look(entry.parent, b"../../HEAD")
            if there is not None and stat.S_ISREG(there.st_mode):
                return ""
        return "it leads to another repository than the one that it lies in"

    def _of_keys(self, directory: bytes, before: bytes | None, after: bytes | None) -> str:
        if _is_reference(after):
            return ""
        keys = changed_keys(before, after) if before is not None and after is not None else None
        if keys is None or after is None:
            return UNKNOWN
        if "core.worktree" in keys and self._is_own_work_tree(directory, after):
            keys -= {"core.worktree"}
        return "; ".join(sorted(f"{key}: {what}" for key in keys if (what := danger(key.lower()))))

    def _is_own_work_tree(self, directory: bytes, content: bytes) -> bool:
        """Whether `core.worktree`, which every submodule needs, leads to a folder beside its repository's `.git`."""
        top, found, _ = (directory + b"/").rpartition(b"/.git/")
        inside = (self._inside(directory) or b"").split(b"/")
        if b"modules" not in inside[:1] + inside[2:3]:
            return False
        values = (parse(content) or {}).get("core.worktree", [])
        if not values:
            return True
        if values[-1] is None:
            return False
        place = os.path.normpath(os.path.join(directory, os.fsencode(values[-1])))
        if b"/.git/" in place + b"/":
            return False  # a checkout would write there what git runs
        return bool(found and place.startswith(top + b"/")) or self._is_writable(place)

    def _of_pointer(self, entry: Entry, directory: bytes) -> str:
        """A file `.git`: it must lead to what this session made, or to a part of the work tree's own repository."""
        if entry.hopeful:
            return ""
        content = entry.content()
        if content is None:
            return UNKNOWN
        if not content:
            return ""  # git stops there: uv puts one into its cache for that
        if not content.startswith(b"gitdir: ") or b"\0" in content:
            return "it is no pointer to a repository"
        text = content[len(b"gitdir: ") :].rstrip(b"\r\n")
        if not text or b"\n" in text:
            return "it is no pointer to a repository"
        starts = [directory]
        if entry.arrives and entry.target.moved is None and text[:1] != b"/":  # inside of a directory that moves
            now = os.readlink(b"/proc/self/fd/%d" % entry.parent)
            within = entry.target.above.depth - 1 if isinstance(entry.target.above, Within) else 0
            starts = [now] if _ascends(text) <= within else [now, directory]
        for start in starts:
            real = os.path.realpath(os.path.join(start, text))
            parts = real[len(self._common) + 1 :].split(b"/") if self._common else [b""]
            inside = real.startswith(self._common + b"/") and parts[0] in (b"worktrees", b"modules") and len(parts) > 1
            absent = not os.path.lexists(real) and self._is_writable(real)  # what comes there will be judged
            if not (self._common and inside) and not absent and not entry.is_own(real):
                return "it leads to a repository that this session did not make"
        return ""


def _has_linked(parent: int, place: bytes) -> bool:
    """Whether a linked work tree takes its settings from that directory, relative to `parent`. Raises OSError."""
    try:
        directory = os.open(
            place + b"/worktrees", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=None if parent < 0 else parent
        )
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        with os.scandir(directory) as entries:
            return any(
                count == _WORK_TREES
                or (entry.is_dir() and look(directory, os.fsencode(entry.name) + b"/commondir") is not None)
                for count, entry in enumerate(entries)
            )
    finally:
        os.close(directory)


def _is_reference(content: bytes | None) -> bool:
    """Whether it is what git writes for a branch, be it named `config`: nothing reads that as another thing."""
    name = (content or b"").removesuffix(b"\n")
    return len(name) in (40, 64) and not name.strip(b"0123456789abcdef")


def _ascends(path: bytes) -> int:
    """How many directories up a relative path goes at most."""
    level = highest = 0
    for part in path.split(b"/"):
        if part == b"..":
            level += 1
            highest = max(highest, level)
        elif part not in (b"", b"."):
            level -= 1
    return highest


class Templates:
    """The hooks that `git init` and `git clone` put into a new repository: the user's own. git-init(1), TEMPLATE
    DIRECTORY. Includes of the configuration are not followed.
    """

    _SHIPPED = (b"/usr/share/git-core/templates", b"/usr/local/share/git-core/templates")

    def __init__(self, is_closed: Callable[[bytes], bool]) -> None:
        self._is_closed = is_closed
        self._places: tuple[bytes, ...] | None = None

    def hook(self, name: bytes) -> bytes | None:
        """The content of the hook of that name, if there is one which no worker could have written."""
        if self._places is None:
            self._places = _template_places() or self._SHIPPED
        for place in self._places:
            path = os.path.realpath(place + b"/hooks/" + name)
            if not self._is_closed(path):
                continue
            try:
                parent = os.open(os.path.dirname(path), _O_PATH)
            except OSError:
                continue
            try:
                content = plain_content(parent, os.path.basename(path))
            except OSError:
                content = None
            finally:
                os.close(parent)
            if content:
                return content
        return None


def _template_places() -> tuple[bytes, ...]:
    """Where the user's own settings say that templates are."""
    named = os.environb.get(b"GIT_TEMPLATE_DIR")
    if named:
        return (named,)
    home = os.environb.get(b"HOME") or b"/nonexistent"
    settings = os.environb.get(b"XDG_CONFIG_HOME") or home + b"/.config"
    places = []
    for path in (home + b"/.gitconfig", settings + b"/git/config", b"/etc/gitconfig"):
        try:
            with open(path, "rb") as file:
                values = (parse(file.read(1 << 20)) or {}).get("init.templatedir", [])
        except OSError:
            continue
        for value in values[-1:]:
            if value:
                text = os.fsencode(value)
                places.append(home + text[1:] if text.startswith(b"~/") else text)
    return tuple(places)
