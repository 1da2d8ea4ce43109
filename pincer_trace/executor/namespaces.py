"""What must be done from inside the caller's namespaces, by a short-lived child that enters them.

Opening a file of procfs: the kernel lets `uid_map` and its kin be written only through a descriptor that was opened in
that user namespace or its parent (user_namespaces(7)); ours is neither once namespaces nest (hazard P80). And mounting.

Such a child looks like a process of the run, and its memory is a copy of ours: nothing else is served until it has
ended (P68).
"""

from __future__ import annotations

import errno
import fcntl
import os

from pincer_trace.kernel import libc
from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.identity import Identity

MAPS = frozenset({b"uid_map", b"gid_map", b"projid_map", b"setgroups"})
_NS_GET_PARENT = 0xB702  # ioctl_ns(2)
_CLONE_NEWUSER, _CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWPID = 0x10000000, 0x00020000, 0x08000000, 0x20000000


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
    """Open `path` (to a pin of a file of /proc/PID) in the user namespace of task `tid`. Raises OSError."""
    namespace = os.open(f"/proc/{tid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        ours, childs = socket.socketpair()
        try:
            if os.fork() == 0:
                _answer(childs, namespace, path, flags)
            childs.close()
            data, descriptors, _ = receive_descriptors(ours, 4, 1)
            await_end(ours)
        finally:
            ours.close()
            childs.close()
    finally:
        os.close(namespace)
    if descriptors:
        return descriptors[0]
    number = int.from_bytes(data, "little") or 5
    raise OSError(number, os.strerror(number))


def await_end(ours: socket.socket) -> None:
    """Until the last child that has the other end is gone: the kernel gives up its memory before its descriptors."""
    try:
        while ours.recv(1):
            pass
    except OSError:  # reset: it is gone all the same
        pass


def _answer(control: socket.socket, namespace: int, path: bytes, flags: int) -> None:
    """In the child: enter, open, send, end. The engine's reaper takes the child."""
    try:
        libc.call("setns", namespace, _CLONE_NEWUSER)
        send_descriptors(control, b"\0", [os.open(path, flags)])
    except OSError as error:
        control.send((error.errno or 5).to_bytes(4, "little"))
    finally:
        os._exit(0)


class Inside:
    """The namespaces, root and directory of a task, held open. Raises OSError."""

    def __init__(self, tid: int, identity: Identity) -> None:
        self._identity = identity
        self._held: dict[str, int] = {}
        try:
            for name in ("ns/user", "ns/mnt", "ns/pid", "ns/ipc"):
                self._held[name] = os.open(f"/proc/{tid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in ("root", "cwd"):
                self._held[name] = os.open(f"/proc/{tid}/{name}", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def mount(self, source: bytes, target: bytes, kind: bytes, flags: int, data: bytes | None) -> int:
        """mount(2) of a new file system there; its device number. Raises OSError."""
        ours, childs = socket.socketpair()
        try:
            if os.fork() == 0:
                self._mount_there(childs, source, target, kind, flags, data)
            childs.close()
            answer, _, _ = receive_descriptors(ours, 16, 0)
            await_end(ours)
        finally:
            ours.close()
            childs.close()
        number = int.from_bytes(answer[:4], "little") if len(answer) == 12 else errno.EIO
        if number:
            raise OSError(number, os.strerror(number))
        return int.from_bytes(answer[4:], "little")

    def _mount_there(
        self, control: socket.socket, source: bytes, target: bytes, kind: bytes, flags: int, data: bytes | None
    ) -> None:
        """In the child: with all rights over the caller's user namespace, and none beyond it."""
        number, device = 0, 0
        try:
            self._identity.regain()
            libc.call("setns", self._held["ns/user"], _CLONE_NEWUSER)
            if kind == b"mqueue":  # is of the IPC namespace of whoever mounts it
                libc.call("setns", self._held["ns/ipc"], _CLONE_NEWIPC)
            if kind == b"proc":  # of the PID namespace: of children alone
                libc.call("setns", self._held["ns/pid"], _CLONE_NEWPID)
                if os.fork():
                    os._exit(0)
            libc.call("setns", self._held["ns/mnt"], _CLONE_NEWNS)
            os.fchdir(self._held["root"])
            libc.call("chroot", b".")
            os.fchdir(self._held["cwd"])
            libc.call("mount", source, target, kind, flags, data)
            device = os.stat(target).st_dev
        except OSError as error:
            number = error.errno or errno.EIO
        except BaseException:  # noqa: BLE001 - the engine waits for an answer
            number = errno.EIO
        finally:
            try:
                control.send(number.to_bytes(4, "little") + device.to_bytes(8, "little"))
            finally:
                os._exit(0)
