"""connect(2), performed on the worker's own socket: to the socket that was pinned, or the address that was copied.

Never continued: the descriptor and the address could be others by then. It is done on a thread that may wait, with the
caller's ids, since the other end is told those of whoever connects; the process it is told of is the supervisor.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from pincer_trace.effects import CONNECT, SEND
from pincer_trace.executor.commit import commit
from pincer_trace.executor.context import ANSWERED
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway import hosts, peers
from pincer_trace.gateway.resolve import live_name
from pincer_trace.kernel import libc, sockdiag, table
from pincer_trace.kernel.bare import socket
from pincer_trace.kernel.notify import Continue
from pincer_trace.twin import native
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.naming import Naming
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.request import Argument
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement

_STREAM = 1
_PAIR = struct.Struct("=2i")
_REGISTERS_ONLY = Continue(Continue.REGISTERS_ONLY)
_ABSTRACT_REASON = "an abstract socket that this run did not bind: nothing tells whose it is"
_DATAGRAM_REASON = "unix datagrams name their receiver where another thread can change it; a stream can be judged"
_FAMILY_REASON = "sockets of this address family are not judged"


class Connection:
    """One call: a copy of the worker's own socket, the first of the descriptors that are `held`, and of the address."""

    __slots__ = ("address", "held", "identity", "number", "socket", "task")

    def __init__(
        self, identity: int, task: Task, number: int, socket: peers.Socket, address: bytes, held: list[int]
    ) -> None:
        self.identity = identity
        self.task = task
        self.number = number  # of the descriptor, there
        self.socket = socket
        self.address = address
        self.held = held

    def now(self, address: bytes) -> int:
        """At once: what cannot wait. Raises OSError."""
        return libc.call("connect", self.held[0], address, len(address))


class Connecting:
    """The handlers of connect, and of sockets that are refused."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._naming: Naming | None = None
        self._network: bytes | None = None  # ours

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {"connect": self._connect, "socket": self._socket, "socketpair": self._pair}

    def _connect(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        own = self._c.tasks.descriptor(task, a[0] & 0xFFFFFFFF)
        held = [own]  # what this call still has to close
        try:
            size = a[2] & 0xFFFFFFFF
            if size > peers.MOST:
                raise OSError(errno.EINVAL, "address")
            address = self._c.tasks.read_bytes(task, a[1], size) if size else b""
            call = Connection(identity, task, a[0] & 0xFFFFFFFF, peers.Socket(own), address, held)
            family = call.socket.family
            if family == table.AF_UNIX:
                return self._unix(call)
            if family in (table.AF_INET, table.AF_INET6):
                return self._inet(call)
            if family == table.AF_NETLINK:
                return call.now(address)
            self._c.authority.forbid(task, CONNECT, Target(b"//family-%d" % family), _FAMILY_REASON)
        finally:
            for descriptor in held:
                os.close(descriptor)

    def _unix(self, call: Connection) -> object:
        c, task = self._c, call.task
        name = peers.abstract_name(call.address)
        if name:
            return self._abstract(call, name)
        path = peers.unix_path(call.address)
        if not path:
            return call.now(call.address)  # it is no address: the kernel's own errno
        pin = c.resolver.pin(task, libc.AT_FDCWD, path)
        call.held.append(pin)
        found = os.fstat(pin)
        through = table.AF_UNIX.to_bytes(2, "little") + b"/proc/self/fd/%d\0" % pin
        if not stat.S_ISSOCK(found.st_mode):
            return call.now(through)  # it can become no socket: the same
        target = Target(live_name(c.resolver.path_of(pin), found), descriptor=pin, found=found)
        target.needs = os.W_OK
        judgement = c.authority.judge(task, CONNECT, target)
        if not (c.authority.permits(judgement) or native.refuses(CONNECT, target) or sockdiag.listens(found)):
            raise OSError(errno.ECONNREFUSED, path)  # the server has gone: a program starts another then
        c.authority.insist(task, CONNECT, target, judgement)
        return self._perform(call, target, judgement, through)

    def _abstract(self, call: Connection, name: bytes) -> object:
        """Only to sockets that the tree bound: the scope of the worker's domain does not hold for us (P68)."""
        c, task = self._c, call.task
        target = Target(peers.abstract_peer(name))
        inode = c.provenance.bound_abstract(target.path)
        if not inode or not sockdiag.is_abstract(inode, call.socket.kind, name):
            if not sockdiag.has_abstract(call.socket.kind, name):
                raise OSError(errno.ECONNREFUSED, name)
            try:
                c.authority.forbid(task, CONNECT, target, _ABSTRACT_REASON)
            except Denied:
                raise OSError(errno.EPERM, name) from None  # as the worker's own domain says it
        return self._perform(call, target, c.authority.demand(task, CONNECT, target), call.address)

    def _inet(self, call: Connection) -> object:
        peer = peers.inet_peer(call.socket, call.address)
        if not peer or peers.family_of(call.address) != call.socket.family or call.socket.kind != _STREAM:
            # No address, or none that the kernel takes; UDP, of which nothing is judged (P82). Neither waits.
            if call.socket.kind == peers.DATAGRAM:
                datagrams = self._c.datagrams(call.task)
                if datagrams.concerns(call.held[0], call.socket):
                    datagrams.connect(call.identity, call.task, call.number, call.held[0], call.address)
                    return 0
            return call.now(call.address)
        host, port = peers.host_and_port(peer)
        if hosts.is_ours(host):
            return self._to_name(call, host, port)
        authority, target = self._c.authority, Target(peer)
        if authority.passes(CONNECT, peer):
            judgement = authority.demand(call.task, CONNECT, target)
        else:  # a rule may ask whose server it is
            if peers.is_loopback(host) and self._is_apart(call.socket):
                target.listeners = (call.socket.inode,)  # nobody but the run can have sockets there
                self._c.provenance.note_port(call.socket.inode)
            elif peers.is_loopback(host):  # what listens here by any address would seem to listen at another machine's
                target.listeners = tuple(sockdiag.tcp_listeners(host, port))
            judgement = authority.judge(call.task, CONNECT, target)
            if peers.is_loopback(host) and not (target.listeners or authority.permits(judgement)):
                # As natively, for who waits for a server tries again; and at port 0 there never is one
                return call.now(peers.inet_address(call.socket.family, host, 0))
            named = None
            if not authority.permits(judgement):
                named = self._names(call.task).permitted_name(call, host, port, judgement)
            if named is not None:
                target, judgement = named, authority.demand(call.task, CONNECT, named)
            authority.insist(call.task, CONNECT, target, judgement)
        # No address would mean another one as soon as another thread has bound the socket
        return self._perform(call, target, judgement, peers.with_host(call.address, host))

    def _is_apart(self, own: peers.Socket) -> bool:
        """Whether it is in a network namespace of the run's own: no other is ever entered."""
        if self._network is None:
            ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._network = peers.Socket(ours.fileno()).network()
            ours.close()
        network = own.network()
        return bool(self._network) and bool(network) and network != self._network

    def _names(self, task: Task) -> Naming:
        if self._naming is None:
            self._naming = self._c.identity.as_ourselves(task, lambda: _naming(self._c))
        return self._naming

    def _to_name(self, call: Connection, host: bytes, port: int) -> object:
        naming = self._names(call.task)
        place = naming.permitted_address(call, host, port)
        if not place:
            return naming.connect(call, host, port)
        target = Target(peers.host_peer(place, port))
        judgement = self._c.authority.demand(call.task, CONNECT, target)
        return self._perform(call, target, judgement, peers.inet_address(call.socket.family, place, port))

    def _perform(self, call: Connection, target: Target, judgement: Judgement, address: bytes) -> object:
        """Connect to `address`, which is what the caller's own means, in the background."""
        c, task = self._c, call.task
        wanted = c.identity.credentials(task)
        ids: tuple[Argument, ...] = wanted.effective if wanted is not None else ()
        arguments = (call.address, call.socket.inode, call.socket.kind, *ids)
        sequence = commit(c, task, CONNECT, target, judgement, arguments=arguments)
        with Outcome(c, sequence) as outcome:
            own, *pins = call.held
            call.held.clear()
            c.blocking.start(
                call.identity,
                task,
                lambda waiting, _: waiting.insist(lambda: libc.call("connect", own, address, len(address))),
                sequence,
                own,
                *pins,
            )
            outcome.leave_open()
        return ANSWERED

    def _socket(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        """Of datagrams."""
        if self._c.resolver.mounts is not None and _is_elsewhere(task):
            if a[0] & 0xFFFFFFFF == table.AF_UNIX:
                raise OSError(errno.EPROTONOSUPPORT, "socket")  # bwrap sets up the loopback by another one then
            return _REGISTERS_ONLY  # a network of the run's own, which leads nowhere
        if a[0] & 0xFFFFFFFF == table.AF_UNIX:
            return self._datagram(identity, task, a)
        self._c.datagrams(task).make(identity, task, a)
        return ANSWERED

    def _pair(self, identity: int, task: Task, a: tuple[int, ...]) -> int:
        """A pair of unix datagram sockets: two of packets, which keep their borders too and heed no name (P48)."""
        kind, protocol = a[1] & 0xFFFFFFFF, a[2] & 0xFFFFFFFF
        flags = kind & ~table.SOCKET_TYPE_MASK
        if flags & ~(os.O_NONBLOCK | os.O_CLOEXEC):
            raise OSError(errno.EINVAL, "flags")
        if protocol not in (0, table.AF_UNIX):
            raise OSError(errno.EPROTONOSUPPORT, "protocol")
        self._c.tasks.write_bytes(task, a[3], bytes(_PAIR.size))  # before there is anything: EFAULT
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            numbers = []
            for end in ends:
                end.setblocking(not flags & os.O_NONBLOCK)
                numbers.append(self._c.listener.inject(identity, end.fileno(), flags & os.O_CLOEXEC))
        finally:
            for end in ends:
                end.close()
        self._c.tasks.write_bytes(task, a[3], _PAIR.pack(*numbers))
        return 0

    def _datagram(self, _identity: int, task: Task, _a: tuple[int, ...]) -> object:
        self._c.authority.forbid(task, SEND, Target(b"//unix-datagram"), _DATAGRAM_REASON)


def _naming(context: Context) -> Naming:
    """Imported for the first name that is connected to."""
    from pincer_trace.executor.naming import Naming

    return Naming(context)


def _is_elsewhere(task: Task) -> bool:
    """Whether it is in a network namespace of the run's own. Raises OSError."""
    return not os.path.samestat(os.stat(f"/proc/{task.tid}/ns/net"), os.stat("/proc/self/ns/net"))
