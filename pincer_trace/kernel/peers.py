"""Who is at the other end of a unix socket. unix(7), SO_PEERCRED

The ids are those of the moment of connect(2). The process is pinned, so that its number cannot come to mean another.
"""

from __future__ import annotations

import errno
import os
import select
import struct

from pincer_trace.kernel import procfs
from pincer_trace.kernel.bare import socket

_SO_PEERPIDFD = 77  # <asm-generic/socket.h>, Linux 6.5
_CREDENTIALS = struct.Struct("=iII")
_LOOKS = 16


class Peer:
    """The process that connected: `uid` and `pid` (0: of another pid namespace). Close it."""

    __slots__ = ("_pidfd", "pid", "uid")

    def __init__(self, connection: socket.socket) -> None:
        """Raises OSError when it has ended already."""
        self.pid, self.uid = credentials(connection)
        try:
            self._pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
            os.set_inheritable(self._pidfd, False)
        except OSError as error:
            if error.errno != errno.ENOPROTOOPT:
                raise
            self._pidfd = os.pidfd_open(self.pid)  # an older kernel

    def lives(self) -> bool:
        """Whether `pid` still means that process: what was read of it before is true then."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def executable(self) -> bytes:
        """What it runs; b"" when that cannot be told."""
        try:
            path = os.readlink(b"/proc/%d/exe" % self.pid)
        except OSError:
            return b""
        return path if self.lives() else b""

    def close(self) -> None:
        os.close(self._pidfd)


def credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the other end; for a connection that we made, of whoever listens."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def is_within(pid: int, ancestor: int) -> bool:
    """Whether `pid` is `ancestor`, a subreaper, or below it. Where that cannot be told, yes.

    A process on the way up may end while we climb: then its children have another parent, and we look again.
    """
    for _ in range(_LOOKS):
        try:
            return _climb(pid, ancestor)
        except (OSError, ValueError, IndexError):
            continue
    return True


def _climb(pid: int, ancestor: int) -> bool:
    if pid <= 0:
        return True  # of another pid namespace: nothing can be told of it
    start = None
    while pid:
        if pid == ancestor:
            return True
        found = procfs.stat(pid)
        if start is not None and found.start > start:
            raise ProcessLookupError  # a parent is older: this number was given out again
        pid, start = found.parent, found.start
    return False
