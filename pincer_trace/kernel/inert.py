"""UDP sockets by which nothing leaves and nothing comes in, whatever is done with them (P82). udp(7), socket(7)

The half for sending is shut, which nothing takes back on such a socket, and a locked filter drops what arrives. What is
left is what many programs make one for, and send nothing: whether the kernel has a way to an address, and from which of
its own (getaddrinfo(3), curl, RFC 6724).
"""

from __future__ import annotations

import ctypes
import errno
import struct

from pincer_trace.kernel import table
from pincer_trace.kernel.bare import socket

_ATTACH_FILTER, _LOCK_FILTER = 26, 44  # SO_*
_DROP = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # struct sock_filter: BPF_RET, no byte of it
_PROGRAM = struct.pack("@HP", 1, ctypes.addressof(_DROP))  # struct sock_fprog
_ENDS = {table.AF_INET: ("127.0.0.1",), table.AF_INET6: ("::1", "::ffff:127.0.0.1")}
_NOBODY = 9  # the port of discard

_proven: set[int] = set()  # families


def make(family: int, kind: int, protocol: int) -> int:
    """Such a socket as socket(2) makes it, `kind` with its flags, but not blocking yet. Raises OSError."""
    if family not in _proven:
        _prove(family)
        _proven.add(family)
    return _shut(family, kind, protocol).detach()


def is_inert(descriptor: int) -> bool:
    """Whether that UDP socket is one of these."""
    asked = socket.socket(fileno=descriptor)
    try:
        return bool(asked.getsockopt(socket.SOL_SOCKET, _LOCK_FILTER))
    finally:
        asked.detach()


def _shut(family: int, kind: int, protocol: int) -> socket.socket:
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _PROGRAM)
        made.setsockopt(socket.SOL_SOCKET, _LOCK_FILTER, 1)
        try:
            made.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:  # it is shut all the same
                raise
    except BaseException:
        made.close()
        raise
    return made


def _prove(family: int) -> None:
    """That this kernel sends nothing by one. Raises OSError, as without UDP, when it does or cannot be asked."""
    tried = _shut(family, socket.SOCK_DGRAM, 0)
    try:
        for end in _ENDS[family]:
            try:
                tried.sendto(b"", (end, _NOBODY))
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
            raise OSError(errno.EPROTONOSUPPORT, "udp")
    finally:
        tried.close()
