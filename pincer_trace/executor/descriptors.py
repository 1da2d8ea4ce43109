"""Descriptors on their way to the worker: what is asked, what we open, and how it gets there."""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context

# On every open that we make: nothing inherits it, no terminal becomes ours by it, no lease makes it wait (P15, P73).
OURS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
WALK = os.O_DIRECTORY | os.O_NOFOLLOW  # flags of the call that belong to the walk
STATUS = os.O_APPEND | os.O_NONBLOCK | os.O_ASYNC | os.O_DIRECT | os.O_NOATIME  # what F_SETFL can set. fcntl(2)


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
