"""The right evaluator in a process of its own: started by the front before the engine, asked by the engine.

It sees only what it is handed: claims, and bare pins by SCM_RIGHTS. Everything else it observes itself. It holds its
own key and the one that requests are bound with; it may read, and nothing else (`kernel.confinement`). It ends with
its socket, whoever held the other end.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket

from pincer_trace.kernel import libc
from pincer_trace.kernel.detachment import detach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile import Profile

NAME = b"pincer-right"  # what `ps` shows


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


def start(profile: Profile, *, outlives: bool) -> Companion:
    """Fork it. `outlives`: it must go on when the calling process has ended."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _be(profile, theirs, parent, outlives=outlives)
        except BaseException as error:  # noqa: BLE001 - whoever waits for its first answer must hear why
            with contextlib.suppress(Exception):
                _explain(theirs, error)
        finally:
            os._exit(1)
    theirs.close()
    return Companion(pid, ours)


def _be(profile: Profile, connection: socket.socket, parent: int, *, outlives: bool) -> None:
    """The whole life of the process."""
    _detach(connection.fileno())
    if not outlives:  # one that is stopped would not see that its socket ends
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
    from pincer_trace.kernel.confinement import confine
    from pincer_trace.twin.served import Served

    served = Served(profile, connection)
    gc.freeze()
    confine()
    served.serve()


def _detach(kept: int) -> None:
    """Leave the terminal, the working directory, and every descriptor that somebody else needs."""
    detach()
    if kept > 3:
        libc.call("close_range", 3, kept - 1, 0)
    libc.call("close_range", kept + 1, 0xFFFFFFFF, 0)
    os.chdir("/")
    libc.set_name(NAME)


def _explain(connection: socket.socket, error: BaseException) -> None:
    """Answer what is asked first with the failure."""
    from pincer_trace.twin import link

    received = link.receive(connection)
    if received is not None:
        link.reply(connection, [received[0][1], None, f"{type(error).__name__}: {error}"])
