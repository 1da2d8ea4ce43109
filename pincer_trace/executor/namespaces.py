"""Opening a file of procfs from inside the caller's user namespace.

The kernel lets `uid_map` and its kin be written only through a descriptor that was opened in that namespace or its
parent (user_namespaces(7)); ours is neither once namespaces nest (hazard P80). A short-lived child enters it.
"""

from __future__ import annotations

import fcntl
import os

from pincer_trace.kernel import libc
from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, socket

MAPS = frozenset({b"uid_map", b"gid_map", b"projid_map", b"setgroups"})
_NS_GET_PARENT = 0xB702  # ioctl_ns(2)
_CLONE_NEWUSER = 0x10000000


def is_child_of_ours(tid: int) -> bool:
    """Whether the user namespace of task `tid` was made in ours: then its maps may be written from here."""
    try:
        namespace = os.open(f"/proc/{tid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        parent = fcntl.ioctl(namespace, _NS_GET_PARENT)
    except OSError:
        return False
    finally:
        os.close(namespace)
    try:
        return os.path.samestat(os.fstat(parent), os.stat("/proc/self/ns/user"))
    finally:
        os.close(parent)


def open_inside(tid: int, path: bytes, flags: int) -> int:
    """Open `path` (a file of /proc/PID, by number) in the user namespace of task `tid`. Raises OSError."""
    namespace = os.open(f"/proc/{tid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        ours, childs = socket.socketpair()
        try:
            if os.fork() == 0:
                _answer(childs, namespace, path, flags)
            childs.close()
            data, descriptors, _ = receive_descriptors(ours, 4, 1)
        finally:
            ours.close()
            childs.close()
    finally:
        os.close(namespace)
    if descriptors:
        return descriptors[0]
    number = int.from_bytes(data, "little") or 5
    raise OSError(number, os.strerror(number))


def _answer(control: socket.socket, namespace: int, path: bytes, flags: int) -> None:
    """In the child: enter, open, send, end. The engine's reaper takes the child."""
    try:
        libc.call("setns", namespace, _CLONE_NEWUSER)
        send_descriptors(control, b"\0", [os.open(path, flags)])
    except OSError as error:
        control.send((error.errno or 5).to_bytes(4, "little"))
    finally:
        os._exit(0)
