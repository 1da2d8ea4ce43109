"""Where the user's things are: the paths that placeholders such as `{workspace}` stand for in one run.

All paths are real paths (no symbolic links), as bytes. Git is never run, and nothing that a work tree says is
taken on trust: a worker of an earlier run may have written it (hazard P81).
"""

from __future__ import annotations

import os
import sys

from pincer_trace.paths import is_inside
from pincer_trace.profile.gitconfig import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_POINTER_BYTES = 4096
_TMP = b"/tmp"
# Of two places that are one directory the first counts
NAMED = ("workspace", "git_common", "cache", "config", "data", "tmp", "home")


class Places:
    """The directories that a profile's placeholders stand for.

    `workspace`: the git work tree around the working directory, or that directory. `git_common_dir`: the
    repository that a work tree shares (None: no repository, or one that does not point back). `homes`: the
    user's home by environment and by the password file. `path_dirs`: directories on the user's PATH that the
    user can write or that lie below a home, other than those of the work tree. `own`: what pincer-trace runs
    from and keeps. `exposed`: directories that Python imports from and that hold the work tree, so that they
    cannot be closed as a whole. `command`: the started executable's real path, or b"".
    """

    __slots__ = (
        "cache",
        "command",
        "config",
        "cwd",
        "data",
        "exposed",
        "extra",
        "git_common_dir",
        "home",
        "homes",
        "own",
        "path_dirs",
        "state",
        "tmp",
        "workspace",
    )

    def __init__(
        self,
        *,
        cwd: bytes,
        workspace: bytes,
        home: bytes,
        tmp: bytes,
        state: bytes,
        git_common_dir: bytes | None = None,
        homes: tuple[bytes, ...] = (),
        cache: bytes = b"",
        config: bytes = b"",
        data: bytes = b"",
        path_dirs: tuple[bytes, ...] = (),
        own: tuple[bytes, ...] = (),
        exposed: tuple[bytes, ...] = (),
        command: bytes = b"",
        extra: tuple[bytes, ...] = (),
    ) -> None:
        self.cwd = cwd
        self.workspace = workspace
        self.home = home
        self.tmp = tmp
        self.state = state
        self.git_common_dir = git_common_dir
        self.homes = homes or (home,)
        self.cache = cache or home + b"/.cache"
        self.config = config or home + b"/.config"
        self.data = data or home + b"/.local/share"
        self.path_dirs = path_dirs
        self.own = own
        self.exposed = exposed
        self.command = command
        self.extra = extra

    def told(self) -> dict[str, object]:
        """All of them, as `session.json` keeps them, so that the run can be judged again."""
        return {name: getattr(self, name) for name in self.__slots__}

    def named(self) -> list[tuple[bytes, str]]:
        """The directories that placeholders stand for, each with one of these, those that lie deepest first."""
        found: dict[bytes, str] = {}
        for name in NAMED:
            directory = self.git_common_dir if name == "git_common" else getattr(self, name)
            if directory and directory != b"/":
                found.setdefault(directory, name)
        return sorted(found.items(), key=lambda item: -len(item[0]))

    @classmethod
    def of(
        cls,
        cwd: str,
        environ: Mapping[str, str],
        command: str | None,
        extra: Iterable[str] = (),
        kept: Iterable[str] = (),
    ) -> Places:
        """The places of a run started in `cwd` with `environ`.

        `command` is the started executable as found on PATH. `extra` names more directories of pincer-trace's
        own, such as that of `--session-dir`; `kept` files that the run writes for somebody else to read.
        """
        here = _real(cwd)
        account = _account_home()
        home = _real(environ.get("HOME", "")) if os.path.isabs(environ.get("HOME", "")) else account
        homes = tuple(dict.fromkeys((home, account)))
        top, common = _work_tree(here)
        workspace = here if top in (b"/", *homes) else top
        state = _xdg(environ, "XDG_STATE_HOME", home, b".local/state", homes) + b"/pincer-trace"
        config = _xdg(environ, "XDG_CONFIG_HOME", home, b".config", homes)
        more = tuple(_real(directory) for directory in extra)
        tmp = _real(environ["TMPDIR"]) if os.path.isabs(environ.get("TMPDIR", "")) else _TMP
        holders = (workspace, *homes, tmp, _TMP)
        own, exposed = _own_directories((state, config + b"/pincer-trace", *more, *map(_real, kept)), holders)
        return cls(
            cwd=here,
            workspace=workspace,
            home=home,
            tmp=tmp,
            state=state,
            git_common_dir=common,
            homes=homes,
            cache=_xdg(environ, "XDG_CACHE_HOME", home, b".cache", homes),
            config=config,
            data=_xdg(environ, "XDG_DATA_HOME", home, b".local/share", homes),
            path_dirs=_path_directories(environ, workspace, homes),
            own=own,
            exposed=exposed,
            command=_real(command) if command else b"",
            extra=more,
        )


def _real(path: str | bytes) -> bytes:
    return os.path.realpath(os.fsencode(path))


def _account_home() -> bytes:
    import pwd

    try:
        return _real(pwd.getpwuid(os.geteuid()).pw_dir or "/")
    except KeyError:
        return b"/"


def _xdg(environ: Mapping[str, str], variable: str, home: bytes, default: bytes, homes: tuple[bytes, ...]) -> bytes:
    """A base directory (XDG specification); one that holds a home is not believed, since rules would open the
    home.
    """
    value = environ.get(variable, "")
    if os.path.isabs(value):
        path = _real(value)
        if not any(is_inside(h, path) for h in homes):
            return path
    return _real(os.path.join(home, default))


def _work_tree(cwd: bytes) -> tuple[bytes, bytes | None]:
    """The top of the work tree around `cwd` and its shared repository; (`cwd`, None) when there is none."""
    trusted = {os.geteuid()}
    try:
        trusted.add(os.stat(cwd).st_uid)
    except OSError:
        pass
    top = cwd
    while True:
        dot_git = os.path.join(top, b".git")
        try:
            status = os.lstat(dot_git)
        except OSError:
            if top == b"/":
                return cwd, None
            top = os.path.dirname(top)
            continue
        # One in /tmp made by somebody else must not turn all of /tmp into a work tree (git: safe.directory).
        if status.st_uid not in trusted:
            return cwd, None
        return top, _common_directory(top, dot_git)


def _common_directory(top: bytes, dot_git: bytes) -> bytes | None:
    """The repository behind `.git`, if it is one and, where it lies elsewhere, points back here."""
    if os.path.isdir(dot_git):
        real = _real(dot_git)
        return real if is_inside(real, top) and _is_repository(real) else None
    pointer = _pointer(dot_git, b"gitdir: ")
    if pointer is None:
        return None
    directory = _real(os.path.join(top, pointer))
    shared = _pointer(os.path.join(directory, b"commondir"))
    if shared is None:  # a submodule, or `git init --separate-git-dir`
        return directory if _is_repository(directory) and _work_tree_of(directory) == top else None
    common = _real(os.path.join(directory, shared))
    back = _pointer(os.path.join(directory, b"gitdir"))
    if back is None or _real(os.path.join(directory, back)) != dot_git:
        return None
    return common if _is_repository(common) and is_inside(directory, common + b"/worktrees") else None


def _is_repository(directory: bytes) -> bool:
    """As git decides it: a HEAD, objects and refs (setup.c, is_git_directory)."""
    return os.path.lexists(os.path.join(directory, b"HEAD")) and all(
        os.path.isdir(os.path.join(directory, name)) for name in (b"objects", b"refs")
    )


def _pointer(path: bytes, prefix: bytes = b"") -> bytes | None:
    """The one line of a small file, without `prefix`; None when it is not such a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        content = os.read(descriptor, _POINTER_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    line = content.rstrip(b"\r\n")
    if not line.startswith(prefix) or b"\0" in line or b"\n" in line or len(line) == len(prefix):
        return None
    return line[len(prefix) :]


def _work_tree_of(directory: bytes) -> bytes | None:
    """What `core.worktree` in a repository's configuration says."""
    try:
        with open(os.path.join(directory, b"config"), "rb") as file:
            values = (parse(file.read(1 << 20)) or {}).get("core.worktree")
    except OSError:
        return None
    if not values or values[-1] is None:
        return None
    return _real(os.path.join(directory, os.fsencode(values[-1])))


def _path_directories(environ: Mapping[str, str], workspace: bytes, homes: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Directories of PATH that the user's shell runs programs from and that a worker could write, by both
    their names.
    """
    venv = environ.get("VIRTUAL_ENV", "")
    exempt = [_real(venv)] if os.path.isabs(venv) else []
    if not any(is_inside(home, workspace) for home in homes):
        exempt.append(workspace)
    found: dict[bytes, None] = {}
    for entry in os.fsencode(environ.get("PATH", "")).split(b":"):
        if not entry.startswith(b"/"):
            continue
        real = os.path.realpath(entry)
        if any(is_inside(real, place) for place in exempt):
            continue
        if any(is_inside(real, home) for home in homes) or os.access(real, os.W_OK):
            # the name too: a link may be swapped, and its parent's links are resolved as for any object
            parent, name = os.path.split(os.path.normpath(entry))
            named = os.path.join(os.path.realpath(parent), name)
            found[real] = None
            if os.path.islink(named):
                found[named] = None
    return tuple(found)


def _own_directories(kept: Iterable[bytes], holders: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """What pincer-trace keeps and runs from (hazard P81), and the import directories that hold a place of the
    user's.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own: dict[bytes, None] = dict.fromkeys(kept)
    own[_real(package)] = None
    own[_real(os.path.join(os.path.dirname(package), "profiles"))] = None
    own[_real(sys.executable or "/nonexistent")] = None
    exposed: dict[bytes, None] = {}
    in_venv = sys.prefix != sys.base_prefix  # the prefix of a system Python, /usr, is no one's to close
    for entry in [*sys.path, *([sys.prefix] if in_venv else ()), sys.pycache_prefix]:
        if not entry or (entry != sys.pycache_prefix and not os.path.exists(entry)):
            continue  # one for compiled modules is made when the first is written, by whomever
        real = _real(entry)
        if real != b"/" and not any(is_inside(holder, real) for holder in holders):
            own[real] = None
            continue
        exposed[real] = None
        for name in _PARTS_OF_A_VENV if entry == sys.prefix else _STARTUP_MODULES:
            own[os.path.join(real, name)] = None
    return tuple(own), tuple(exposed)


_PARTS_OF_A_VENV = (b"bin", b"lib", b"lib64", b"pyvenv.cfg")
_STARTUP_MODULES = (b"sitecustomize.py", b"usercustomize.py", b"sitecustomize", b"usercustomize")
