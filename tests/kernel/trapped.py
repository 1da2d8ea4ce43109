"""A forked child under a real filter that traps one call: the worker of the tests of this folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterator

from pincer_trace.kernel import libc, notify, table

TRAPPED = libc.NUMBER["mknodat"]  # nothing that Python calls by itself


def tiny_filter(trapped: int = TRAPPED) -> bytes:
    """Notify one call, allow the rest."""
    arch = table.AUDIT_ARCH[table.machine()]
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, 0x7FFF0000), (0x20, 0, 0, 0), (0x15, 0, 1, trapped),
            (0x06, 0, 0, 0x7FC00000), (0x06, 0, 0, 0x7FFF0000)]  # fmt: skip
    return b"".join(struct.pack("=HBBI", *one) for one in code)


class Worker:
    """A child under `tiny_filter` that runs `act`; `listener` is ours."""

    def __init__(self, act: Callable[[], int], code: bytes = b"") -> None:
        told, tell = os.pipe()
        wait, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                libc.set_no_new_privileges()
                listener = libc.install_filter(code or tiny_filter())
                os.write(tell, b"%d\n" % listener)
                os.read(wait, 1)  # until the listener was taken
                os.close(listener)  # else the copy keeps it alive in every child
                status = act()
            finally:
                os._exit(status)
        os.close(tell)
        number = int(os.read(told, 16))
        os.close(told)
        pidfd = os.pidfd_open(self.pid)
        self.listener = notify.Listener(libc.pidfd_getfd(pidfd, number))
        os.close(pidfd)
        os.write(go, b"x")
        for descriptor in (wait, go):
            os.close(descriptor)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def status(self) -> int:
        """Wait for the end: the exit status or minus the signal."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def worker(act: Callable[[], int]) -> Iterator[Worker]:
    made = Worker(act)
    try:
        yield made
    finally:
        if made.pid:
            made.kill()
            made.status()
        made.listener.close()


def trapped_call(*arguments: int) -> int:
    """The trapped call with `arguments`: its value, or minus errno."""
    result = libc.syscall(TRAPPED, *(ctypes.c_long(a) for a in arguments))
    return -ctypes.get_errno() if result < 0 else int(result)


def exit_when(condition: bool) -> int:
    return 0 if condition else 1


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """An endless ioctl must fail the test, not hang it: SIGALRM's handler raises."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
