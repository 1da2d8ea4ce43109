"""UDP of the worker's. It gets sockets that send and receive nothing, by which programs look for a way to a host (P82).

In the place of one that is about to ask for names comes a socket from which the run's resolver is reached, and nobody
else: bound or connected as who asks does it. A copy of the former descriptor stays what it was.
"""

from __future__ import annotations

import errno
import fcntl
import os

from pincer_trace.effects import SEND
from pincer_trace.executor.descriptors import give
from pincer_trace.gateway import hosts, peers
from pincer_trace.kernel import inert, libc, table
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.apart import Apart
    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task

_REASON = "UDP names its receivers where nothing can judge them: udp = 'unpoliced' in a profile's [settings] opens it"
_NO_NAMES = "; and no user namespace can be made here, to ask for names in: those that rules list are found"
_FOR_ANSWERS = 8  # bytes of an address of IPv4 that say where: family, port and host
_ANYWHERE = table.AF_INET.to_bytes(2, "little") + bytes(6)  # as whoever asks for names binds, for the answers


class Datagrams:
    """What the receiving thread does with sockets of UDP, in a run that leaves it closed."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._apart: Apart | None = None

    def make(self, identity: int, task: Task, a: tuple[int, ...]) -> None:
        """socket(2), which is answered. Raises OSError."""
        family, kind, protocol = (value & 0xFFFFFFFF for value in a[:3])
        made = inert.make(family, kind, protocol)
        if not _is_here(task):
            os.close(made)
            raise OSError(errno.EPROTONOSUPPORT, "udp")  # ours would tell of another network
        give(self._c, identity, made, kind)  # SOCK_NONBLOCK and SOCK_CLOEXEC are numbered as for open

    def concerns(self, own: int, what: peers.Socket) -> bool:
        """Whether that socket of the worker's is one of these."""
        if what.kind != peers.DATAGRAM or what.family not in (table.AF_INET, table.AF_INET6):
            return False
        return inert.is_inert(own)

    def bind(self, identity: int, task: Task, number: int, own: int, address: bytes) -> None:
        """bind(2): where answers to questions for names are to come to, and nowhere else. Raises OSError, Denied."""
        asks = address[:_FOR_ANSWERS] == _ANYWHERE
        if not asks or not self._replace(identity, task, number, own, "bind", address):
            self._c.authority.forbid(task, SEND, Target(b"//udp"), _REASON + _NO_NAMES * asks)

    def connect(self, identity: int, task: Task, number: int, own: int, address: bytes) -> None:
        """connect(2): no packet. To the resolver, it is so that questions can be sent. Raises OSError."""
        host, port = peers.inet_host(address), int.from_bytes(address[2:4], "big")
        to_resolver = len(host) == 4 and hosts.is_stub(host, port)
        if not to_resolver or not self._replace(identity, task, number, own, "connect", address):
            libc.call("connect", own, address, len(address))

    def _replace(self, identity: int, task: Task, number: int, own: int, call: str, address: bytes) -> bool:
        """Perform the call on a socket that reaches the resolver, and put that in the caller's place. Raises OSError.

        False where there is none.
        """
        c = self._c
        try:
            given = c.identity.as_ourselves(task, self._one_apart)
        except OSError:
            return False
        try:
            libc.call(call, given, address, len(address))
            fcntl.fcntl(given, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL))
            flags = os.O_CLOEXEC if c.tasks.is_closed_by_exec(task, number) else 0
            c.listener.inject(identity, given, flags, number)
        finally:
            os.close(given)
        return True

    def _one_apart(self) -> int:
        if self._apart is None:
            from pincer_trace.executor.apart import Apart

            self._apart = Apart(self._c.hosts)
        return self._apart.take()


def _is_here(task: Task) -> bool:
    """Whether it is in our network namespace; no where that cannot be told."""
    try:
        return os.path.samestat(os.stat(f"/proc/{task.tid}/ns/net"), os.stat("/proc/self/ns/net"))
    except OSError:
        return False
