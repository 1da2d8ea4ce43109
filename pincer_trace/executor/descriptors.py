"""Descriptors on their way to the worker: what is asked, what we open or make, and how it gets there."""

from __future__ import annotations

import fcntl
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context

# On every open that we make: nothing inherits it, no terminal becomes ours by it, no lease makes it wait (P15, P73).
OURS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
WALK = os.O_DIRECTORY | os.O_NOFOLLOW  # flags of the call that belong to the walk
STATUS = os.O_APPEND | os.O_NONBLOCK | os.O_ASYNC | os.O_DIRECT | os.O_NOATIME  # what F_SETFL can set. fcntl(2)
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def fill(made: int, content: bytes) -> None:
    """Write all of it into a new file, whose offset stays at the beginning. Raises OSError."""
    written = 0
    while written < len(content):
        written += os.pwrite(made, content[written:], written)


def sealed(name: str, content: bytes, like: os.stat_result | None = None) -> int:
    """A file in memory with this content, which nobody can change, and otherwise like that one. Raises OSError."""
    memory = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        fill(memory, content)
        if like is not None:
            try:
                os.fchown(memory, like.st_uid, like.st_gid)
            except PermissionError:
                pass  # another's file: it is the caller's own then
            os.fchmod(memory, stat.S_IMODE(like.st_mode))
            os.utime(memory, ns=(like.st_atime_ns, like.st_mtime_ns))
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(memory)
        raise
    return memory


def place(c: Context, identity: int, opened: int, flags: int) -> int:
    """Put our descriptor into the worker with the status flags that it asked for; its number there."""
    if not flags & os.O_NONBLOCK:
        fcntl.fcntl(opened, fcntl.F_SETFL, flags & STATUS)
    return c.listener.inject(identity, opened, flags & os.O_CLOEXEC)


def give(c: Context, identity: int, opened: int, flags: int) -> None:
    """Inject, close our copy, then answer, so that no copy outlives the answer (P72)."""
    try:
        number = place(c, identity, opened, flags)
    finally:
        os.close(opened)
    c.listener.respond(identity, number)


def covers(held: int, flags: int) -> bool:
    """Whether a descriptor that the caller holds has the access which is asked, so that opening it adds none (P26)."""
    asked = flags & os.O_ACCMODE
    if held < 0 or asked == os.O_ACCMODE or (flags & os.O_TRUNC and asked == os.O_RDONLY):
        return False
    return held & os.O_ACCMODE in (asked, os.O_RDWR)
