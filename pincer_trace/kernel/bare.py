"""The C halves of `signal` and `socket`: what their Python halves add is enums, and five milliseconds of each start.

And what that half of `socket` has for descriptors on their way to another process. unix(7), SCM_RIGHTS
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Sequence
else:
    import _signal as signal
    import _socket as socket

__all__ = ["receive_descriptors", "send_descriptors", "signal", "socket"]


def send_descriptors(connection: socket.socket, data: bytes, descriptors: Sequence[int], flags: int = 0) -> None:
    """Send `data` with copies of these descriptors, if there are any. Raises OSError."""
    rights = struct.pack(f"{len(descriptors)}i", *descriptors)
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    connection.sendmsg([data], control, flags)


def receive_descriptors(connection: socket.socket, size: int, limit: int) -> tuple[bytes, list[int], int]:
    """At most `size` bytes, the descriptors that came along (at most `limit`, close-on-exec), and whether something was
    cut off: MSG_TRUNC, MSG_CTRUNC. Raises OSError.
    """
    room = socket.CMSG_LEN(4 * limit)
    data, control, flags, _ = connection.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, rights in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += struct.unpack(f"{len(rights) // 4}i", rights[: len(rights) // 4 * 4])
    return data, descriptors, flags
