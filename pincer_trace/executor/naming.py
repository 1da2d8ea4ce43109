"""Connections to names of hosts: judged by the name, looked up when that is allowed, made to where it leads (P83, P82).

Where a name leads is judged once more: one that is allowed must not lead to this machine, to a network near, be it by
its address or by a route of this machine, or to an address that a rule closes, unless that address may be connected to
by itself (DNS rebinding). What /etc/hosts says is believed of networks near: it is this machine's own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select

from pincer_trace.effects import CONNECT
from pincer_trace.executor.commit import commit
from pincer_trace.executor.context import ANSWERED
from pincer_trace.executor.lookups import Found, Lookups
from pincer_trace.executor.outcome import Outcome
from pincer_trace.executor.stub import Stub
from pincer_trace.gateway import hosts, peers
from pincer_trace.kernel import inet, libc, routes, sockdiag, table
from pincer_trace.profile import DENY, addresses
from pincer_trace.twin import codes
from pincer_trace.twin.confirmation import Asked
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.blocking import Call
    from pincer_trace.executor.connecting import Connection
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.identity import Identity
    from pincer_trace.gateway.request import Argument
    from pincer_trace.twin.authority import Judgement

_LOCAL = b"\x7f\0\0\1"
_FAMILIES = {4: table.AF_INET, 16: table.AF_INET6}
# After these the next address of a host is tried, as programs do that have several
_NEXT = frozenset((errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EADDRNOTAVAIL))
_EARLY = 250  # milliseconds in which a connection that nobody waits for may still go to the next address
_BY_RULES = frozenset((codes.POLICY_DENY, codes.NOBODY_TO_ASK))


class _Place:
    """Where a name leads; and the judgement that permits that address by itself, or refuses it, if there is one."""

    __slots__ = ("host", "permission", "refusal")

    def __init__(self, host: bytes, *, permission: Judgement | None = None, refusal: Judgement | None = None) -> None:
        self.host = host
        self.permission = permission
        self.refusal = refusal


class Naming:
    """What the receiving thread does with a connection to an address of the session's own."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._lookups: Lookups | None = None
        self._stub: Stub | None = None

    def connect(self, call: Connection, host: bytes, port: int) -> object:
        """To the name that `host` stands for, or to the resolver. Raises OSError, Denied, Asked."""
        if hosts.is_stub(host, port):
            return self._to_stub(call)
        name = self._c.hosts.name(host)
        if not name:
            return call.now(peers.inet_address(call.socket.family, _LOCAL, 0))  # it was told to nobody: refused
        target = Target(b"//%b:%d" % (name, port))
        judgement = self._c.authority.demand(call.task, CONNECT, target)
        listed = self._c.host_files.listed.get(name)
        found = Found(listed, listed=True) if listed else self._look_up(name)
        if found is None:
            raise Asked(None)  # served again when that is known
        places = self._places(call, name, found, port)
        return self._perform(call, target, judgement, places, found)

    def permitted_name(self, call: Connection, host: bytes, port: int, judgement: Judgement) -> Target | None:
        """The name by /etc/hosts of an address of this machine, which is not permitted itself, if a rule opens that."""
        if (judgement.verdict == DENY and _is_about(judgement)) or routes.way_to(host) != routes.OWN:
            return None
        c = self._c
        names = c.identity.as_ourselves(call.task, lambda: c.host_files.names_of(host))
        places = (b"//%b:%d" % (name, port) for name in names)
        return next((Target(place) for place in places if c.authority.passes(CONNECT, place)), None)

    def permitted_address(self, call: Connection, host: bytes, port: int) -> bytes:
        """Where the name that `host` stands for leads by /etc/hosts, if a rule opens that address by itself, and none
        says anything about the name; else b"".
        """
        name, authority = self._c.hosts.name(host), self._c.authority
        listed = self._c.host_files.listed.get(name, ())
        if not listed:
            return b""
        judgement = authority.judge(call.task, CONNECT, Target(b"//%b:%d" % (name, port)))
        if authority.permits(judgement) or _is_about(judgement):
            return b""
        fit = [each for each in listed if len(each) == 4 or call.socket.family == table.AF_INET6]
        return next((each for each in fit if authority.passes(CONNECT, peers.host_peer(each, port))), b"")

    def _look_up(self, name: bytes) -> Found | None:
        if self._lookups is None:
            self._lookups = Lookups(self._c.wake)
        return self._lookups.of(name)

    # -- where a name leads ----------------------------------------------------------------------------------

    def _places(self, call: Connection, name: bytes, found: Found, port: int) -> list[_Place]:
        """Where this socket can and may be connected to, in their order. Raises Denied, Asked."""
        own = call.socket
        families = [own.family] if own.family == table.AF_INET or not own.takes_ipv4() else [own.family, table.AF_INET]
        fit = [each for family in families for each in found.addresses if _FAMILIES[len(each)] == family]
        places = [self._place(call, name, each, port, found) for each in fit]
        usable = [place for place in places if place.refusal is None]
        if not usable and places and (refusal := places[0].refusal) is not None:
            self._c.authority.insist(call.task, CONNECT, refusal.target, refusal)
        return usable

    def _place(self, call: Connection, name: bytes, host: bytes, port: int, found: Found) -> _Place:
        """The address, and what is to be said of an allowed name that leads there."""
        target = Target(peers.host_peer(host, port))
        if peers.is_loopback(host):
            target.listeners = tuple(sockdiag.tcp_listeners(host, port))
        authority = self._c.authority
        judgement = authority.judge(call.task, CONNECT, target)
        if authority.permits(judgement):
            return _Place(host, permission=judgement)
        way = routes.way_to(host)
        fits = way != routes.OWN if found.listed else way == routes.BEYOND and inet.is_far(host)
        if fits and not _is_about(judgement):
            return _Place(host)
        judgement.reason = f"{name.decode()} leads there: {judgement.reason}"
        return _Place(host, refusal=judgement)

    # -- performing ------------------------------------------------------------------------------------------

    def _perform(
        self, call: Connection, target: Target, judgement: Judgement, places: list[_Place], found: Found
    ) -> object:
        """In the background, to the first that answers; the caller's socket is connected to one only."""
        c, task = self._c, call.task
        _, _, port = target.path.rpartition(b":")
        tries = [peers.inet_address(call.socket.family, place.host, int(port)) for place in places]
        wanted = c.identity.credentials(task)
        ids: tuple[Argument, ...] = wanted.effective if wanted is not None else ()
        arguments = (call.address, call.socket.inode, call.socket.kind, *ids, *tries)
        extra: dict[str, object] = {"addresses": [inet.written(place.host) for place in places]}
        if not tries:
            extra = {"missing": found.missing or "it has no address that this socket could be connected to"}
        judged = [judgement, *(place.permission for place in places if place.permission is not None)]
        sequence = commit(c, task, CONNECT, target, judged, arguments=arguments, extra=extra)
        with Outcome(c, sequence) as outcome:
            if not tries:
                raise OSError(errno.ENETUNREACH if found.addresses else errno.EHOSTUNREACH, target.path)
            own, *pins = call.held
            call.held.clear()
            c.blocking.start(call.identity, task, lambda waiting, _: _reach(waiting, own, tries), sequence, own, *pins)
            outcome.leave_open()
        return ANSWERED

    def _to_stub(self, call: Connection) -> object:
        """Its questions leave this machine by no way, so that they are neither judged nor recorded."""
        if self._stub is None:
            try:
                self._stub = Stub(self._c.hosts)
            except (OSError, RuntimeError):
                raise OSError(errno.ECONNREFUSED, "no resolver") from None
        stub, family = self._stub, call.socket.family
        own, *pins = call.held
        if not call.socket.port():
            nowhere = peers.inet_address(family, _LOCAL, 0)
            libc.call("bind", own, nowhere, len(nowhere))
        stub.expect(call.socket.port())
        address = peers.inet_address(family, _LOCAL, stub.port)

        def act(waiting: Call, _: Identity) -> int:
            return waiting.insist(lambda: libc.call("connect", own, address, len(address)))

        call.held.clear()
        self._c.domains.leave()  # a domain of the caller's own knows another port; this one leads nowhere
        self._c.blocking.start(call.identity, call.task, act, None, own, *pins)
        return ANSWERED


def _is_about(judgement: Judgement) -> bool:
    """Whether it was given by a rule that means this very host, or by something else than rules."""
    rule = judgement.rule
    return judgement.code not in _BY_RULES or (rule is not None and not addresses.is_any(rule.pattern))


def _reach(waiting: Call, own: int, tries: list[bytes]) -> int:
    """Connect to one of these: 0, or minus an errno."""
    value = -errno.EHOSTUNREACH
    for at, address in enumerate(tries, 1):
        value = waiting.insist(lambda address=address: libc.call("connect", own, address, len(address)))  # type: ignore[misc]
        if value == -errno.EINPROGRESS and at < len(tries) and _is_settled(own):
            # A second call tells how it ended, and after a failure the socket can be connected anew
            value = waiting.insist(lambda address=address: libc.call("connect", own, address, len(address))) or value  # type: ignore[misc]
        if -value not in _NEXT:
            break
    return value


def _is_settled(own: int) -> bool:
    """Whether a connection for which nobody waits is made soon, or has failed."""
    if not fcntl.fcntl(own, fcntl.F_GETFL) & os.O_NONBLOCK:
        return False  # its time is up: SO_SNDTIMEO
    poll = select.poll()
    poll.register(own, select.POLLOUT)
    return bool(poll.poll(_EARLY))
