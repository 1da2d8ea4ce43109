"""What the kernel is certain to refuse is answered with its errno, without a call that could succeed after all.

Between our look and a call somebody outside of the tree may make the name that was absent. So the kernel is asked with
a name that nobody can have, which tells all that it finds out before it looks at names; the rest follows in its order.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.gateway.resolve import look
from pincer_trace.kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from pincer_trace.executor.identity import Identity

DOTS = (b".", b"..")
_LEVELS = 1300  # of directories that a path can name


class Entry:
    """A name in a pinned directory as a call has it, perhaps with a trailing slash; `found` is what it holds.

    `above` is the fstat of the directory and `directory` its path, empty where that was not asked for yet; the pin is
    the maker's to close.
    """

    __slots__ = ("above", "bare", "directory", "found", "is_dots", "is_root", "name", "parent", "too_long")

    def __init__(self, parent: int, above: os.stat_result, name: bytes, *, is_root: bool = False) -> None:
        self.parent = parent
        self.above = above
        self.name = name
        self.bare = name.rstrip(b"/")
        self.directory = b""
        self.is_root = is_root
        self.is_dots = self.bare in DOTS
        self.too_long = False
        self.found: os.stat_result | None = None

    def look(self) -> None:
        """See what it holds. Raises OSError when that cannot be told: then nothing is done."""
        if not self.is_dots:
            try:
                self.found = look(self.parent, self.bare)
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                self.too_long = True


def refuse_removal(identity: Identity, parent: int, name: bytes, found: os.stat_result | None, flag: int) -> NoReturn:
    """Raise the errno of unlinkat with `flag` (0 or AT_REMOVEDIR) for a name that is absent or of the other kind."""
    bare = name.rstrip(b"/")
    try:
        libc.call("unlinkat", parent, name if bare in DOTS else _nobodys(name), flag)
    except FileNotFoundError:
        pass  # nothing is wrong but the name: what the kernel finds later is told below
    if found is None:
        raise OSError(errno.ENOENT, name)
    directory = stat.S_ISDIR(found.st_mode)
    if not flag and name.endswith(b"/"):
        raise OSError(errno.EISDIR if directory else errno.ENOTDIR, name)
    _may_remove(identity, parent, found)
    raise OSError(errno.EISDIR if directory else errno.ENOTDIR, name)


def refuse_rename(identity: Identity, source: Entry, goal: Entry, flags: int) -> NoReturn:
    """Raise the errno of a renameat2 that cannot be."""
    try:
        name = source.name if source.is_dots else _nobodys(source.name)
        libc.renameat2(source.parent, name, goal.parent, goal.name, flags)
    except FileNotFoundError:
        pass  # the same
    if source.found is None or (not source.too_long and _is_removed(goal.parent)):
        raise OSError(errno.ENOENT, source.name)
    if goal.too_long:
        raise OSError(errno.ENAMETOOLONG, goal.name)
    if flags & libc.RENAME_NOREPLACE and goal.found is not None:
        raise OSError(errno.EEXIST, goal.name)
    if goal.found is None and flags & libc.RENAME_EXCHANGE:
        raise OSError(errno.ENOENT, goal.name)
    directory = stat.S_ISDIR(source.found.st_mode)
    if goal.found is None or (not directory and (source.name.endswith(b"/") or goal.name.endswith(b"/"))):
        raise OSError(errno.ENOTDIR, goal.name)
    if directory and _is_above(source.found, goal.parent):
        raise OSError(errno.EINVAL, goal.name)
    if not directory and _is_above(goal.found, source.parent):
        raise OSError(errno.ENOTEMPTY, goal.name)
    _may_remove(identity, source.parent, source.found)
    _may_remove(identity, goal.parent, goal.found)
    raise OSError(errno.ENOTDIR if directory else errno.EISDIR, goal.name)


def _nobodys(name: bytes) -> bytes:
    """A name as long as this one, or a little longer, that nobody has: too long where this one is."""
    bare = name.rstrip(b"/")
    return os.urandom(16).hex().encode().ljust(len(bare), b"-") + name[len(bare) :]


def _is_removed(directory: int) -> bool:
    return not os.fstat(directory).st_nlink


def _may_remove(identity: Identity, parent: int, found: os.stat_result) -> None:
    """Raises OSError EACCES, EPERM or EROFS where the caller may remove nothing like this from that directory."""
    libc.call("faccessat2", parent, b".", os.W_OK | os.X_OK, libc.AT_EACCESS)
    above = os.fstat(parent)
    if above.st_mode & stat.S_ISVTX and not identity.owns_one_of(above, found):
        raise OSError(errno.EPERM, "sticky")


def _is_above(found: os.stat_result, directory: int) -> bool:
    """Whether `directory` is that object, or lies below it."""
    up, last = b".", None
    for _ in range(_LEVELS):
        here = os.stat(up, dir_fd=directory)
        if os.path.samestat(here, found):
            return True
        if last is not None and os.path.samestat(here, last):
            break  # the root
        last, up = here, up + b"/.."
    return False
