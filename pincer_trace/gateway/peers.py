"""Who an address means: the name by which rules know the other end of a connection. Pure, but for asking a socket.

`//HOST:PORT` for TCP, with the host as inet_ntop(3) writes it; `//@NAME` for an abstract unix socket, with everything
but letters, digits and `_.-` as %XX. A unix socket at a path has that path.
"""

from __future__ import annotations

import os

from pincer_trace.kernel import inet, table
from pincer_trace.kernel.bare import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DATAGRAM = 2  # SOCK_DGRAM
MOST = 128  # bytes of a struct sockaddr_storage, the longest that a call takes
_FAMILY = 2  # bytes of the family in front
_SO_NETNS_COOKIE = 71
_UNIX_MOST = 110  # struct sockaddr_un
_INET_LEAST, _INET6_LEAST, _SCOPE_END = 16, 24, 28
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


class Socket:
    """What a descriptor of ours is: `family`, `kind` (the type without flags) and `inode`."""

    __slots__ = ("_descriptor", "family", "inode", "kind")

    def __init__(self, descriptor: int) -> None:
        """Raises OSError: ENOTSOCK, or EBADF for a bare pin."""
        asked = socket.socket(fileno=descriptor)
        try:
            self.family, self.kind = int(asked.family), int(asked.type) & table.SOCKET_TYPE_MASK
        finally:
            asked.detach()
        self.inode = os.fstat(descriptor).st_ino
        self._descriptor = descriptor

    def host(self) -> str:
        """The host that it is bound to."""
        return str(self._own_address()[0])

    def port(self) -> int:
        """The port that it is bound to; 0 for none."""
        return int(self._own_address()[1])

    def takes_ipv4(self) -> bool:
        """Whether it can be connected to an IPv4 address."""
        if self.family == table.AF_INET:
            return True
        asked = socket.socket(fileno=self._descriptor)
        try:
            return not asked.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        finally:
            asked.detach()

    def network(self) -> bytes:
        """What no other network namespace has; b"" before Linux 5.14, which cannot tell. See socket(7)."""
        asked = socket.socket(fileno=self._descriptor)
        try:
            return asked.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:
            return b""
        finally:
            asked.detach()

    def name(self) -> bytes:
        """The abstract name that a unix socket is bound to."""
        name = self._own_address()
        return name if isinstance(name, bytes) else b""

    def _own_address(self) -> Any:
        asked = socket.socket(fileno=self._descriptor)
        try:
            return asked.getsockname()
        finally:
            asked.detach()


def family_of(address: bytes) -> int:
    """0 (AF_UNSPEC) where it is too short to have one."""
    return int.from_bytes(address[:_FAMILY], "little") if len(address) >= _FAMILY else 0


def unix_path(address: bytes) -> bytes:
    """The path in the address of a unix socket; b"" where the kernel takes it for none."""
    if family_of(address) != table.AF_UNIX or len(address) > _UNIX_MOST:
        return b""
    return address[_FAMILY:].split(b"\0", 1)[0]


def abstract_name(address: bytes) -> bytes:
    """The abstract name in the address of a unix socket, with its leading NUL; b"" for none."""
    if family_of(address) != table.AF_UNIX or not _FAMILY < len(address) <= _UNIX_MOST or address[_FAMILY]:
        return b""
    return address[_FAMILY:]


def abstract_peer(name: bytes) -> bytes:
    """How rules call it."""
    return b"//@" + b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02x" % byte for byte in name[1:])


def inet_host(address: bytes) -> bytes:
    """The bytes of the host in it, as they are; b"" where the kernel takes the address for none."""
    family = family_of(address)
    if family == table.AF_INET and len(address) >= _INET_LEAST:
        return address[4:8]
    if family == table.AF_INET6 and len(address) >= _INET6_LEAST:
        return address[8:24]
    return b""


def inet_address(family: int, host: bytes, port: int) -> bytes:
    """The struct sockaddr with which a socket of that family is connected to a host (4 or 16 bytes)."""
    head = family.to_bytes(2, "little") + port.to_bytes(2, "big")
    if family == table.AF_INET:
        return head + host + bytes(8)
    return head + bytes(4) + (host if len(host) == 16 else inet.MAPPED + host) + bytes(4)


def with_host(address: bytes, host: bytes) -> bytes:
    """The same struct sockaddr with that host (4 or 16 bytes) in it: what was judged, whatever a socket is bound to."""
    if family_of(address) == table.AF_INET:
        return address[:4] + host + address[8:]
    return address[:8] + (host if len(host) == 16 else inet.MAPPED + host) + address[24:]


def host_peer(host: bytes, port: int) -> bytes:
    """How rules call a host by its address (4 or 16 bytes)."""
    return f"//{inet.written(host)}:{port}".encode()


def inet_peer(own: Socket, address: bytes) -> bytes:
    """`//HOST:PORT` that this socket would connect to; b"" where the kernel takes the address for none.

    IPv4 in IPv6 is IPv4, and no address at all the host that the socket is bound to, or this machine.
    """
    raw = inet_host(address)
    port = int.from_bytes(address[2:4], "big")
    if not raw:
        return b""
    if _is_nothing(raw):
        here = b"\x7f\0\0\1" if raw.startswith(inet.MAPPED) or len(raw) == 4 else bytes(15) + b"\1"
        raw = socket.inet_pton(own.family, own.host().partition("%")[0])
        if _is_nothing(raw):
            raw = here
    raw = inet.unmapped(raw)
    scope = int.from_bytes(address[24:28], "little") if len(raw) == 16 and len(address) >= _SCOPE_END else 0
    return f"//{inet.written(raw)}{f'%{scope}' if scope else ''}:{port}".encode()


def host_and_port(peer: bytes) -> tuple[bytes, int]:
    """The address (4 or 16 bytes) and the port in a name that `inet_peer` made."""
    host, _, port = peer[2:].decode().rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host.partition("%")[0]), int(port)


def is_loopback(host: bytes) -> bool:
    """Whether that address (4 or 16 bytes) never leaves this machine."""
    return host[0] == 127 if len(host) == 4 else host == bytes(15) + b"\1"


def _is_nothing(raw: bytes) -> bool:
    """Whether that is no address: of IPv6, or of IPv4."""
    return not any(inet.unmapped(raw))
