"""Where the kernel would send packets. rtnetlink(7)"""

from __future__ import annotations

import struct

from pincer_trace.kernel.bare import socket

_NEW, _GET = 24, 26  # RTM_NEWROUTE, RTM_GETROUTE
_REQUEST = 1
_DESTINATION = 1  # RTA_DST
_LOCAL = 2  # RTN_LOCAL
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg
_ATTRIBUTE = struct.Struct("=HH")
_SIZE = 1 << 14


def is_own(host: bytes) -> bool:
    """Whether that address (4 or 16 bytes) is one of this machine, by which no packet leaves it. Raises OSError."""
    family = socket.AF_INET if len(host) == 4 else socket.AF_INET6
    body = _ROUTE.pack(family, 8 * len(host), 0, 0, 0, 0, 0, 0, 0) + _ATTRIBUTE.pack(4 + len(host), _DESTINATION) + host
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        asked.send(_HEADER.pack(_HEADER.size + len(body), _GET, _REQUEST, 1, 0) + body)
        data = asked.recv(_SIZE)
    finally:
        asked.close()
    kind = _HEADER.unpack_from(data)[1]
    return bool(kind == _NEW and _ROUTE.unpack_from(data, _HEADER.size)[7] == _LOCAL)  # else there is no way at all
