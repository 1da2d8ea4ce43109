"""Mode, owner, times, extended attributes, length, inode flags: by path on the pin, by descriptor on itself.

A descriptor opened for reading suffices for most of these, so the by-descriptor forms are effects too (P20). They are
performed on the worker's own descriptor (a copy by pidfd_getfd), whose errnos are then the native ones (P98).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from pincer_trace.effects import CHMOD, CHOWN, TRUNCATE, UTIME, WRITE, XATTR
from pincer_trace.executor.commit import commit
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway.resolve import Forbidden, is_memory, live_name
from pincer_trace.kernel import libc, table
from pincer_trace.paths import named
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.request import Argument
    from pincer_trace.gateway.tasks import Task

    Effect = str | Callable[[os.stat_result], str]  # or what it is on that object

_CWD = libc.AT_FDCWD
_NOFOLLOW = libc.AT_SYMLINK_NOFOLLOW
_EMPTY = libc.AT_EMPTY_PATH
_XATTR_NAME, _XATTR_SIZE = 255, 65536  # <linux/limits.h>
_FSXATTR_SIZE = 28  # struct fsxattr. <linux/fs.h>
_UTIME_OMIT = ((1 << 30) - 2).to_bytes(8, "little")
_TIMEVAL = struct.Struct("=4q")


class Attributes:
    """The handlers of the attribute family."""

    def __init__(self, context: Context) -> None:
        self._c = context

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {
            "truncate": lambda _i, task, a: self._truncate(task, a[0], a[1]),
            "chmod": lambda _i, task, a: self._chmod(task, _CWD, a[0], a[1], 0),
            "fchmodat": lambda _i, task, a: self._chmod(task, a[0], a[1], a[2], 0),
            "fchmodat2": lambda _i, task, a: self._chmod(task, a[0], a[1], a[2], a[3]),
            "fchmod": lambda _i, task, a: self._on_descriptor(
                task, a[0], _of_mode(a[1]), lambda d: os.fchmod(d, a[1] & 0o7777), a[1] & 0o7777
            ),
            "chown": lambda _i, task, a: self._chown(task, _CWD, a[0], a[1], a[2], 0),
            "lchown": lambda _i, task, a: self._chown(task, _CWD, a[0], a[1], a[2], _NOFOLLOW),
            "fchownat": lambda _i, task, a: self._chown(task, a[0], a[1], a[2], a[3], a[4]),
            "fchown": lambda _i, task, a: self._on_descriptor(
                task,
                a[0],
                _of_owner(a[1], a[2]),
                lambda d: os.fchown(d, _identity(a[1]), _identity(a[2])),
                _identity(a[1]),
                _identity(a[2]),
            ),
            "utime": lambda _i, task, a: self._utime(task, a[0], a[1]),
            "utimes": lambda _i, task, a: self._utimes(task, _CWD, a[0], a[1]),
            "futimesat": lambda _i, task, a: self._utimes(task, a[0], a[1], a[2]),
            "utimensat": lambda _i, task, a: self._utimensat(task, a[0], a[1], a[2], a[3]),
            "setxattr": lambda _i, task, a: self._setxattr(task, a, follow=True),
            "lsetxattr": lambda _i, task, a: self._setxattr(task, a, follow=False),
            "fsetxattr": self._fsetxattr,
            "removexattr": lambda _i, task, a: self._removexattr(task, a, follow=True),
            "lremovexattr": lambda _i, task, a: self._removexattr(task, a, follow=False),
            "fremovexattr": self._fremovexattr,
            "setxattrat": _too_new,
            "removexattrat": _too_new,
            "file_setattr": _too_new,
            "ioctl": self._ioctl,
        }

    # -- the two shapes --------------------------------------------------------------------------------------

    def _on_object(
        self,
        task: Task,
        dirfd: int,
        address: int,
        flags: int,
        effect: Effect,
        act: Callable[[int, os.stat_result], None],
        *arguments: Argument,
    ) -> int:
        """Pin the object at a path, judge, and `act` on the O_PATH pin, with `arguments` beside it."""
        c = self._c
        if flags & ~(_NOFOLLOW | _EMPTY):
            raise OSError(errno.EINVAL, "flags")
        path = c.tasks.read_path(task, address)
        if not path and flags & _EMPTY:
            base, owned = c.resolver.base(task, dirfd, b"")
            pin = c.resolver.home(task, base if owned else os.dup(base))
        else:
            pin = c.resolver.pin(task, dirfd, path, follow=not flags & _NOFOLLOW)
        try:
            asked = (task, dirfd, path) if path else None
            own = c.resolver.own(pin)
            self._judged(task, pin, effect, lambda found: act(own, found), arguments, asked)
            return 0
        finally:
            os.close(pin)

    def _on_descriptor(
        self, task: Task, number: int, effect: Effect, act: Callable[[int], None], *arguments: Argument
    ) -> int:
        """`act` on a copy of the worker's own descriptor."""
        descriptor = pin = self._own(task, number)
        try:
            pin = self._c.resolver.home_of(task, descriptor)
            self._judged(task, pin, effect, lambda _found: act(descriptor), arguments)
            return 0
        finally:
            os.close(descriptor)
            if pin != descriptor:
                os.close(pin)

    def _own(self, task: Task, number: int) -> int:
        """A copy of the worker's descriptor, if that is good for more than a place. Raises OSError EBADF."""
        descriptor = self._c.tasks.descriptor(task, _int(number))
        try:
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_PATH:
                raise OSError(errno.EBADF, "O_PATH")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _judged(
        self,
        task: Task,
        descriptor: int,
        effect: Effect,
        act: Callable[[os.stat_result], None],
        arguments: tuple[Argument, ...],
        origin: tuple[Task, int, bytes] | None = None,
    ) -> None:
        c = self._c
        found = os.fstat(descriptor)
        if not isinstance(effect, str):
            effect = effect(found)
        path = c.resolver.path_of(descriptor, origin)
        if not path.startswith(b"/") or is_memory(path, found):
            act(found)  # a pipe, a socket, a memfd: the worker's own, without a name
            return
        if found.st_nlink == 0 and c.staged.holds(found):
            act(found)
            return
        manner = _manner(effect, arguments)
        target = Target(live_name(path, found), descriptor=descriptor, found=found, manner=manner)
        if c.resolver.in_procfs(found.st_dev):
            try:
                c.resolver.check_procfs(path, device=found.st_dev, writes=True)
            except Forbidden as forbidden:
                c.authority.forbid(task, effect, target, forbidden.reason)
            if c.resolver.process_at(path) is not None:  # what the tree's own process shows: it ends with that
                act(found)
                return
        decision = c.authority.demand(task, effect, target)
        if effect == TRUNCATE and c.saves.concerns(task, target):
            decision = c.authority.doubt(task, effect, target, "it would cut off what its view does not show")
        extra = _told(effect, arguments, found)
        sequence = commit(c, task, effect, target, decision, arguments=arguments, extra=extra)
        if effect == TRUNCATE and c.before.watched:
            c.before.keep(sequence, target)
        with Outcome(c, sequence):
            act(found)

    def _handle(self, pin: int) -> bytes:
        """A path to the pinned object itself, for calls that take paths only."""
        return b"/proc/self/fd/%d" % pin

    # -- by path ---------------------------------------------------------------------------------------------

    def _truncate(self, task: Task, address: int, length: int) -> int:
        if length >= 1 << 63:
            raise OSError(errno.EINVAL, "length")

        def act(pin: int, found: os.stat_result) -> None:
            if stat.S_ISDIR(found.st_mode):
                raise OSError(errno.EISDIR, "truncate")
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "truncate")
            self._c.domains.perform(lambda: os.truncate(self._handle(pin), length))

        return self._on_object(task, _CWD, address, 0, TRUNCATE, act, length)

    def _chmod(self, task: Task, dirfd: int, address: int, mode: int, flags: int) -> int:
        def act(pin: int, found: os.stat_result) -> None:
            if stat.S_ISLNK(found.st_mode):
                raise OSError(errno.EOPNOTSUPP, "mode of a link")
            libc.fchmodat(_CWD, self._handle(pin), mode & 0o7777)

        return self._on_object(task, dirfd, address, flags & 0xFFFFFFFF, _of_mode(mode), act, mode & 0o7777)

    def _chown(self, task: Task, dirfd: int, address: int, uid: int, gid: int, flags: int) -> int:
        def act(pin: int, _found: os.stat_result) -> None:
            libc.fchownat(pin, b"", _identity(uid), _identity(gid), _EMPTY)

        owner = (_identity(uid), _identity(gid))
        return self._on_object(task, dirfd, address, flags & 0xFFFFFFFF, _of_owner(uid, gid), act, *owner)

    def _utime(self, task: Task, address: int, times: int) -> int:
        spec = None
        if times:
            access, change = struct.unpack("=2q", self._c.tasks.read_bytes(task, times, 16))
            spec = _TIMEVAL.pack(access, 0, change, 0)
        return self._set_times(task, _CWD, address, spec, 0)

    def _utimes(self, task: Task, dirfd: int, address: int, times: int) -> int:
        spec = None
        if times:
            values = _TIMEVAL.unpack(self._c.tasks.read_bytes(task, times, 32))
            if not 0 <= values[1] < 1_000_000 or not 0 <= values[3] < 1_000_000:
                raise OSError(errno.EINVAL, "tv_usec")
            spec = _TIMEVAL.pack(values[0], values[1] * 1000, values[2], values[3] * 1000)
        return self._set_times(task, dirfd, address, spec, 0)

    def _utimensat(self, task: Task, dirfd: int, address: int, times: int, flags: int) -> int:
        spec = self._c.tasks.read_bytes(task, times, 32) if times else None
        if spec and spec[8:16] == spec[24:32] == _UTIME_OMIT:
            return 0  # the kernel looks no further
        if address == 0 and _int(dirfd) != _CWD:
            if flags & 0xFFFFFFFF:
                raise OSError(errno.EINVAL, "flags")
            return self._on_descriptor(task, dirfd, UTIME, lambda d: libc.utimensat(d, None, spec, 0), spec or b"")
        return self._set_times(task, dirfd, address, spec, flags & 0xFFFFFFFF)

    def _set_times(self, task: Task, dirfd: int, address: int, spec: bytes | None, flags: int) -> int:
        def act(pin: int, _found: os.stat_result) -> None:
            libc.utimensat(pin, b"", spec, _EMPTY)

        return self._on_object(task, dirfd, address, flags, UTIME, act, spec or b"")

    # -- extended attributes ---------------------------------------------------------------------------------

    def _attribute_name(self, task: Task, address: int) -> bytes:
        name = self._c.tasks.read_path(task, address)
        if not name or len(name) > _XATTR_NAME:
            raise OSError(errno.ERANGE, "name")
        return name

    def _attribute_value(self, task: Task, address: int, size: int) -> bytes:
        if size > _XATTR_SIZE:
            raise OSError(errno.E2BIG, "value")
        return self._c.tasks.read_bytes(task, address, size) if size else b""

    def _setxattr(self, task: Task, a: tuple[int, ...], *, follow: bool) -> int:
        flags = a[4] & 0xFFFFFFFF
        if flags & ~3:
            raise OSError(errno.EINVAL, "flags")
        name = self._attribute_name(task, a[1])
        value = self._attribute_value(task, a[2], a[3])

        def act(pin: int, found: os.stat_result) -> None:
            _no_link(found)
            os.setxattr(self._handle(pin), name, value, flags)

        return self._on_object(task, _CWD, a[0], 0 if follow else _NOFOLLOW, XATTR, act, name, value, flags)

    def _fsetxattr(self, _identity: int, task: Task, a: tuple[int, ...]) -> int:
        flags = a[4] & 0xFFFFFFFF
        if flags & ~3:
            raise OSError(errno.EINVAL, "flags")
        name = self._attribute_name(task, a[1])
        value = self._attribute_value(task, a[2], a[3])
        return self._on_descriptor(task, a[0], XATTR, lambda d: os.setxattr(d, name, value, flags), name, value, flags)

    def _removexattr(self, task: Task, a: tuple[int, ...], *, follow: bool) -> int:
        name = self._attribute_name(task, a[1])

        def act(pin: int, found: os.stat_result) -> None:
            _no_link(found)
            os.removexattr(self._handle(pin), name)

        return self._on_object(task, _CWD, a[0], 0 if follow else _NOFOLLOW, XATTR, act, name)

    def _fremovexattr(self, _identity: int, task: Task, a: tuple[int, ...]) -> int:
        name = self._attribute_name(task, a[1])
        return self._on_descriptor(task, a[0], XATTR, lambda d: os.removexattr(d, name), name)

    # -- inode flags and terminals ---------------------------------------------------------------------------

    def _ioctl(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        command = a[1] & 0xFFFFFFFF
        if command == table.TIOCGPTPEER:
            return self._terminal_peer(identity, task, a)
        os.close(self._own(task, a[0]))  # EBADF comes before EFAULT
        size = (
            _FSXATTR_SIZE if command == table.FS_IOC_FSSETXATTR else 4
        )  # the kernel reads an int, whatever is declared
        argument = self._c.tasks.read_bytes(task, a[2], size)

        def act(descriptor: int) -> None:
            fcntl.ioctl(descriptor, command, argument)

        return self._on_descriptor(task, a[0], WRITE, act, command, argument)

    def _terminal_peer(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        """TIOCGPTPEER opens the other end in the *worker's* domain, where the floor refuses it (P91)."""
        from pincer_trace.executor.context import ANSWERED
        from pincer_trace.executor.descriptors import give

        master = self._c.tasks.descriptor(task, _int(a[0]))
        try:
            flags = a[2] & 0xFFFFFFFF
            peer = self._c.domains.perform(
                lambda: fcntl.ioctl(master, table.TIOCGPTPEER, flags | os.O_NOCTTY | os.O_CLOEXEC)
            )
        finally:
            os.close(master)
        give(self._c, identity, peer, flags)
        return ANSWERED


def _of_mode(mode: int) -> Effect:
    """Recursive tools set the mode that a file has already: that changes its times."""
    return lambda found: UTIME if stat.S_IMODE(found.st_mode) == mode & 0o7777 else CHMOD


def _of_owner(uid: int, gid: int) -> Effect:
    """The same of its owner and group; a set-id bit, which the kernel may drop with it, is a mode."""

    def effect(found: os.stat_result) -> str:
        same = _identity(uid) in (-1, found.st_uid) and _identity(gid) in (-1, found.st_gid)
        return UTIME if same and not found.st_mode & (stat.S_ISUID | stat.S_ISGID) else CHOWN

    return effect


def _manner(effect: str, arguments: tuple[Argument, ...]) -> str:
    """What a person must know to say yes to exactly this."""
    first = arguments[0] if arguments else b""
    if effect == CHMOD and isinstance(first, int):
        return f"mode {first:04o}"
    if effect == CHOWN:
        return f"owner {first}, group {arguments[1]}"  # type: ignore[str-bytes-safe]
    if effect == XATTR and isinstance(first, bytes):
        return f"attribute {named(first)}{' removed' if len(arguments) == 1 else ''}"
    if effect == TRUNCATE:
        return f"to {first} bytes"  # type: ignore[str-bytes-safe]
    if effect == WRITE:  # by ioctl
        return "its inode flags"
    return ""


def _told(effect: str, arguments: tuple[Argument, ...], found: os.stat_result) -> dict[str, object] | None:
    """What the record tells of it: new and old mode or owner, or which attribute."""
    first = arguments[0] if arguments else b""
    if effect == CHMOD and isinstance(first, int):
        return {"mode": f"{first:04o}", "was": f"{stat.S_IMODE(found.st_mode):04o}"}
    if effect == CHOWN:
        return {"owner": f"{first}:{arguments[1]}", "was": f"{found.st_uid}:{found.st_gid}"}  # type: ignore[str-bytes-safe]
    if effect == XATTR and isinstance(first, bytes):
        return {"attribute": os.fsdecode(first), "removed": len(arguments) == 1}
    return None


def _no_link(found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.EPERM, "attributes of a link")  # only trusted.* could be there, and no worker may set them


def _too_new(_identity: int, _task: Task, _arguments: tuple[int, ...]) -> int:
    raise OSError(errno.ENOSYS, "as on the kernels that lack it")


def _int(register: int) -> int:
    """A register read as a C int."""
    value = register & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def _identity(register: int) -> int:
    """A uid or gid register; all ones means: leave it."""
    value = register & 0xFFFFFFFF
    return -1 if value == 0xFFFFFFFF else value
