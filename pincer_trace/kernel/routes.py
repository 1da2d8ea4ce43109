"""Where the kernel would send packets. rtnetlink(7)"""

from __future__ import annotations

import struct

from pincer_trace.kernel.bare import socket
from pincer_trace.kernel.sockdiag import attributes

OWN, LINK, BEYOND = "this machine", "the link", "beyond"

_NEW_LINK, _GET_LINK, _NEW_ROUTE, _GET_ROUTE = 16, 18, 24, 26  # RTM_*
_REQUEST = 1
_DESTINATION, _DEVICE, _GATEWAY, _SEVERAL, _VIA = 1, 4, 5, 9, 18  # RTA_*
_LOCAL = 2  # RTN_LOCAL
_AS_IN_THE_TABLE = 0x2000  # RTM_F_FIB_MATCH: the route with its prefix, instead of one for the host alone
_POINT_TO_POINT = 0x10  # IFF_POINTOPOINT
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
_INTERFACE = struct.Struct("=BxHiII")  # struct ifinfomsg
_ATTRIBUTE = struct.Struct("=HH")
_SIZE = 1 << 14


def way_to(host: bytes) -> str:
    """How packets reach that address (4 or 16 bytes): OWN, they do not leave this machine; LINK, over a network that it
    is itself in, as its neighbours are reached; BEYOND, by a gateway, a tunnel, or not at all. Raises OSError.
    """
    family = socket.AF_INET if len(host) == 4 else socket.AF_INET6
    asked = _ROUTE.pack(family, 8 * len(host), 0, 0, 0, 0, 0, 0, _AS_IN_THE_TABLE)
    kind, data = _ask(_GET_ROUTE, asked + _ATTRIBUTE.pack(4 + len(host), _DESTINATION) + host)
    if kind != _NEW_ROUTE:
        return BEYOND
    _, bits, _, _, _, _, _, type_, _ = _ROUTE.unpack_from(data)
    if type_ == _LOCAL:
        return OWN
    told = attributes(data[_ROUTE.size :])
    device = told.get(_DEVICE)
    if not bits or device is None or not told.keys().isdisjoint((_GATEWAY, _SEVERAL, _VIA)):
        return BEYOND
    kind, data = _ask(_GET_LINK, _INTERFACE.pack(0, 0, *struct.unpack("=i", device), 0, 0))
    return BEYOND if kind == _NEW_LINK and _INTERFACE.unpack_from(data)[3] & _POINT_TO_POINT else LINK


def _ask(what: int, body: bytes) -> tuple[int, bytes]:
    """The type of the answer, and what is in it."""
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        asked.send(_HEADER.pack(_HEADER.size + len(body), what, _REQUEST, 1, 0) + body)
        data = asked.recv(_SIZE)
    finally:
        asked.close()
    size, kind = _HEADER.unpack_from(data)[:2]
    return kind, data[_HEADER.size : size]
