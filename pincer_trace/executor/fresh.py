"""A file written anew, and given its name in one step: what was there stays whole until then."""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.executor.descriptors import OURS, fill
from pincer_trace.kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.resolve import Resolver

_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR)  # open(2), O_TMPFILE


class Place:
    """A name in a pinned directory, with another one beside it for the moment of the exchange."""

    __slots__ = ("between", "name", "parent")

    def __init__(self, parent: int, name: bytes, between: bytes) -> None:
        self.parent = parent
        self.name = name
        self.between = between


def nameless(parent: int, flags: int, mode: int) -> int:
    """A new file in this directory; -1 where the file system has none without a name. Raises OSError."""
    try:
        return os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=parent)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return -1


def put(resolver: Resolver, place: Place, content: bytes, prepare: Callable[[int], object], *, replaces: bool) -> None:
    """Write `content` into a new file, `prepare` that, and give it its name. Raises OSError: EEXIST when another file
    has taken the name meanwhile.
    """
    parent, name, between = place.parent, place.name, place.between
    made = nameless(parent, os.O_WRONLY | OURS, 0o600)
    named = made < 0
    if named:
        made = os.open(between, os.O_CREAT | os.O_EXCL | os.O_WRONLY | OURS, 0o600, dir_fd=parent)
    try:
        fill(made, content)
        prepare(made)
        if not named:
            goal = between if replaces else name
            libc.linkat(resolver.names, resolver.number(made), parent, goal, libc.AT_SYMLINK_FOLLOW)
            named = replaces
        elif not replaces:
            libc.linkat(parent, between, parent, name, 0)
        if replaces:
            os.rename(between, name, src_dir_fd=parent, dst_dir_fd=parent)
            named = False
    finally:
        os.close(made)
        if named:
            os.unlink(between, dir_fd=parent)


def take_over(opened: int, replaced: os.stat_result) -> None:
    """Mode and owner of the file whose place it takes, as far as its writer may set them."""
    os.fchmod(opened, own(opened, replaced))


def own(opened: int, like: os.stat_result) -> int:
    """Owner and group of that one, as far as the writer may set them; the mode that is to be set behind it. What the
    group may do there is no other group's to do.
    """
    found, mode = os.fstat(opened), stat.S_IMODE(like.st_mode)
    if (found.st_uid, found.st_gid) == (like.st_uid, like.st_gid):
        return mode
    try:
        os.fchown(opened, like.st_uid, like.st_gid)
        return mode
    except PermissionError:
        pass  # the owner is the writer's user, as for any program that writes a file anew
    try:
        os.fchown(opened, -1, like.st_gid)
    except PermissionError:
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    return mode & ~(stat.S_ISUID | stat.S_ISGID)


class Attributes:
    """Owner, mode, times, ACL and the user's attributes of an open file. Raises OSError."""

    __slots__ = ("_found", "_named", "mode")

    def __init__(self, source: int) -> None:
        self._found = os.fstat(source)
        self.mode = stat.S_IMODE(self._found.st_mode)
        self._named: list[tuple[str, bytes]] = []
        with _WithoutAttributes():
            for name in os.listxattr(source):
                if name.startswith(("user.", "system.posix_acl")):
                    self._named.append((name, os.getxattr(source, name)))

    def data(self) -> list[bytes]:
        """As a request has them, beside the mode."""
        found = self._found
        owner, times = (found.st_uid, found.st_gid), (found.st_atime_ns, found.st_mtime_ns)
        named = [part for name, value in self._named for part in (os.fsencode(name), value)]
        return [b"%d %d" % owner, b"%d %d" % times, *named]

    def give(self, copy: int) -> None:
        """Set them on another file, but for the times. Raises OSError."""
        mode = own(copy, self._found)
        with _WithoutAttributes():
            for name, value in self._named:
                os.setxattr(copy, name, value)
        os.fchmod(copy, mode)

    def give_all(self, copy: int) -> None:
        """The same with the times."""
        self.give(copy)
        os.utime(copy, ns=(self._found.st_atime_ns, self._found.st_mtime_ns))


class _WithoutAttributes:
    """A file system may have none."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return isinstance(error, OSError) and error.errno in (errno.EOPNOTSUPP, errno.ENODATA)
