"""The right evaluator in a process of its own: started by the front before the engine, asked by the engine.

It sees only what it is handed: claims, and bare pins by SCM_RIGHTS. Everything else it observes itself. It holds its
own key and the one that requests are bound with; it may read, and nothing else (`kernel.confinement`). It ends with
its socket, whoever held the other end.
"""

from __future__ import annotations

import contextlib
import gc
import socket

from pincer_trace import companion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile import Profile

NAME = b"pincer-right"  # what `ps` shows


def start(profile: Profile, *, outlives: bool) -> companion.Companion:
    """Fork it. `outlives`: it must go on when the calling process has ended. Raises OSError."""
    return companion.start(lambda connection: _live(profile, connection), name=NAME, outlives=outlives)


def _live(profile: Profile, connection: socket.socket) -> None:
    """The whole life of the process."""
    try:
        from pincer_trace.kernel.confinement import confine
        from pincer_trace.twin.served import Served

        served = Served(profile, connection)
        gc.freeze()
        confine()
        served.serve()
    except BaseException as error:
        with contextlib.suppress(Exception):
            _explain(connection, error)  # whoever waits for its first answer must hear why
        raise


def _explain(connection: socket.socket, error: BaseException) -> None:
    """Answer what is asked first with the failure."""
    from pincer_trace.twin import link

    received = link.receive(connection)
    if received is not None:
        link.reply(connection, [received[0][1], None, f"{type(error).__name__}: {error}"])
