"""How a process of ours leaves the terminal and the standard streams to the worker, and closes itself to others."""

from __future__ import annotations

import os
import resource

from pincer_trace.kernel import libc
from pincer_trace.kernel.bare import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NULL_STREAMS = (0, 1, 2)
_HEEDED = {  # what cannot be ignored, what `wait` needs, and what the kernel sends for faults of our own
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP,
}  # fmt: skip


def detach(*heeded: signal.Signals) -> None:
    """Take a session of our own, /dev/null for all three streams (P76), and be neither traced nor dumped (P45).

    A group of our own would not do: while a parent in the shell's session lives, the kernel does not take the worker's
    group for orphaned, and one that is stopped would stay so when its terminal is gone.

    All signals but `heeded` and the vital ones are ignored from now on: SIGIO of a broken lease, say, would end us.
    After the fork: the worker must stay readable.
    """
    os.setsid()
    for number in signal.valid_signals() - _HEEDED - set(heeded):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in _NULL_STREAMS:
        os.dup2(null, stream)
    if null not in _NULL_STREAMS:
        os.close(null)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def close_others(keep: Iterable[int]) -> None:
    """Close every descriptor but the standard streams and these."""
    first = 3
    for descriptor in sorted(keep):
        if descriptor >= first:
            if descriptor > first:
                libc.call("close_range", first, descriptor - 1, 0)
            first = descriptor + 1
    libc.call("close_range", first, 0xFFFFFFFF, 0)
