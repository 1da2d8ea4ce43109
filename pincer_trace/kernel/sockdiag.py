"""Which sockets there are, asked of the kernel. sock_diag(7)

Each answer is about the network namespace of whoever asks, and true for that moment.
"""

from __future__ import annotations

import errno
import os
import struct

from pincer_trace.kernel.bare import socket
from pincer_trace.kernel.inet import MAPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Attributes = dict[int, bytes]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_TCPDIAG_GETSOCK = 18  # the same of TCP alone, by an older form that tells both families in one pass
_ERROR, _DONE = 2, 3
_REQUEST, _DUMP = 0x1, 0x300
_SHOW_NAME, _SHOW_VFS = 1, 2
_NAME, _VFS = 0, 1  # attributes of an answer
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ASKED = struct.Struct("=BBHIIIII")  # struct unix_diag_req; the last two are the cookie
_FOUND = struct.Struct("=BBBBIII")  # struct unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_INET_ASKED = struct.Struct("=BBBBI2s2s16s16sIII")  # struct inet_diag_req_v2
_TCP_ASKED = struct.Struct("=BBBB2s2s16s16sIIIII")  # struct inet_diag_req; the last ones are states and changes
_INET_FOUND = struct.Struct("=BBBB2s2s16s16sIIIIIIII")  # inet_diag_msg: 4 port, 6 host, at last user and inode
_ANY = 0xFFFFFFFF
_LISTENING = 1 << 10  # TCP_LISTEN
_SIZE = 1 << 15  # the kernel puts no more into one message of a dump. netlink_dump()


def is_abstract(inode: int, kind: int, name: bytes) -> bool:
    """Whether the socket with this inode still lives, is of that type, and has that abstract name.

    As long as it has, nobody else can. Raises OSError.
    """
    try:
        for found, attributes in _ask(inode, _ANY, _SHOW_NAME):
            return found == (inode, kind) and attributes.get(_NAME) == name
    except FileNotFoundError:
        pass  # it lives no more
    return False


def has_abstract(kind: int, name: bytes) -> bool:
    """Whether some socket of that type listens by that abstract name. Raises OSError."""
    return any(found[1] == kind and attributes.get(_NAME) == name for found, attributes in _listening(_SHOW_NAME))


def listens(found: os.stat_result) -> bool:
    """Whether somebody listens at the socket that lies there; yes where that cannot be told."""
    inode = found.st_ino & _ANY  # the answer has no more of it
    try:
        return any(attributes.get(_VFS, b"")[:4] == struct.pack("=I", inode) for _, attributes in _listening(_SHOW_VFS))
    except OSError:
        return True


def tcp_listeners(host: bytes, port: int) -> list[int]:
    """The inodes of the sockets that listen at that port, by that address (4 or 16 bytes) or by any. Raises OSError."""
    found = []
    there = port.to_bytes(2, "big")
    asked = _TCP_ASKED.pack(0, 0, 0, 0, there, bytes(2), bytes(16), bytes(16), 0, _ANY, _ANY, _LISTENING, 0)
    for data in _answers(asked, _DUMP, _TCPDIAG_GETSOCK):
        row = _INET_FOUND.unpack_from(data)
        here = row[6][: 4 if row[0] == socket.AF_INET else 16]
        if row[4] == there and (not any(here) or here in (host, MAPPED + host)):
            found.append(row[-1])
    return found


def tcp_owner(host: bytes, port: int, to: int) -> int | None:
    """Whose the TCP socket is that is bound to this IPv4 address and port, and connected to port `to` there.

    None when there is none any more. Raises OSError.
    """
    ends = port.to_bytes(2, "big"), to.to_bytes(2, "big"), host.ljust(16, b"\0"), host.ljust(16, b"\0")
    asked = socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY, *ends
    try:
        for data in _answers(_INET_ASKED.pack(*asked, 0, _ANY, _ANY), 0):
            return int(_INET_FOUND.unpack_from(data)[-2])
    except FileNotFoundError:
        pass  # it lives no more
    return None


def _listening(show: int) -> Iterator[tuple[tuple[int, int], Attributes]]:
    return _ask(0, _LISTENING, show, _DUMP)


def _ask(inode: int, states: int, show: int, flags: int = 0) -> Iterator[tuple[tuple[int, int], Attributes]]:
    """((inode, type), attributes) of each unix socket that is told. Raises OSError."""
    for data in _answers(_ASKED.pack(socket.AF_UNIX, 0, 0, states, inode, show, _ANY, _ANY), flags):
        found = _FOUND.unpack_from(data)
        yield (found[4], found[1]), attributes(data[_FOUND.size :])


def _answers(body: bytes, flags: int, question: int = _SOCK_DIAG_BY_FAMILY) -> Iterator[bytes]:
    """What is told, a socket each. Raises OSError."""
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    try:
        asked.send(_HEADER.pack(_HEADER.size + len(body), question, _REQUEST | flags, 1, 0) + body)
        while True:
            data, _, came, _ = asked.recvmsg(_SIZE)
            if came & socket.MSG_TRUNC:
                raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
            at = 0
            while at < len(data):
                size, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                start = at + _HEADER.size
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", data, start)[0]
                    raise OSError(number or errno.EIO, os.strerror(number or errno.EIO))
                yield data[start : at + size]
                at += (size + 3) & ~3
            if not flags:
                return
    finally:
        asked.close()


def attributes(data: bytes) -> Attributes:
    """Of a netlink message, by their types."""
    found = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind] = data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found
