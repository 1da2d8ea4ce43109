"""Processes of ours beside the engine: forked by the front before it, in a session of their own, each for one task.

One ends with its socket, whoever held the other end: the engine does, and until then the front. What it may still do it
gives up by itself (`kernel.confinement`).
"""

from __future__ import annotations

import os

from pincer_trace.kernel import libc
from pincer_trace.kernel.bare import signal, socket
from pincer_trace.kernel.detachment import close_others, detach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Companion:
    """The process as the front knows it."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._process = os.pidfd_open(pid)
        self._connection = connection

    def take(self) -> socket.socket:
        """The other end of its socket, in the engine, which has nothing else to do with it."""
        os.close(self._process)
        self._process = -1
        return self._connection

    def leave(self) -> None:
        """From now on it ends when the engine does."""
        self._connection.close()

    def end(self) -> None:
        """End it, and reap it."""
        self._connection.close()
        if self._process < 0:
            return
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.waitid(os.P_PIDFD, self._process, os.WEXITED)
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended, and was reaped with others
        os.close(self._process)
        self._process = -1


def start(live: Callable[[socket.socket], None], *, name: bytes, outlives: bool, keep: Sequence[int] = ()) -> Companion:
    """Fork it; it has its end of the socket, and the descriptors `keep`. Raises OSError.

    `live` is the rest of its life. `name` is what `ps` shows. `outlives`: it must go on when the calling process has
    ended.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _detach([theirs.fileno(), *keep], name)
            if not outlives:  # one that is stopped would not see that its socket ends
                libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            if outlives or os.getppid() == parent:
                live(theirs)
        finally:
            os._exit(1)
    theirs.close()
    return Companion(pid, ours)


def _detach(kept: Sequence[int], name: bytes) -> None:
    """Leave the terminal, the working directory, and every descriptor that somebody else needs."""
    detach()
    close_others(kept)
    os.chdir("/")
    libc.set_name(name)
