"""A resolver for programs that ask by UDP alone (musl): in a network of its own, where nothing else is (P82, P83).

A socket of that network reaches the resolver, and nobody beyond, whatever address is sent to: it has no way out. It is
made where user namespaces can be; else such programs find the names that are listed, and hear at once of others.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading

from pincer_trace.executor.namespaces import await_end
from pincer_trace.gateway import hosts
from pincer_trace.gateway.dns import MOST, answer
from pincer_trace.kernel import inet, libc
from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from pincer_trace.gateway.hosts import Hosts

_AT_ONCE = 16  # sockets that one child makes
_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # CLONE_*
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS
_LOOPBACK_UP = struct.pack("16sH22x", b"lo", 0x1 | 0x40)  # struct ifreq: IFF_UP, IFF_RUNNING


class Apart:
    """The network, once the first socket was asked for. Belongs to the receiving thread, by our own ids."""

    def __init__(self, table: Hosts) -> None:
        self._hosts = table
        self._namespaces: tuple[int, int] | None = None  # user, network
        self._missing: OSError | None = None
        self._ready: list[int] = []

    def take(self) -> int:
        """A UDP socket in it, not blocking, the caller's to close. Raises OSError where there is no such network."""
        if self._missing is not None:
            raise self._missing
        if not self._ready:
            try:
                self._more()
            except OSError as error:
                self._missing = error
                raise
        return self._ready.pop()

    def _more(self) -> None:
        ours, childs = socket.socketpair()
        try:
            if os.fork() == 0:
                _make(childs, self._namespaces)
            childs.close()
            data, got, _ = receive_descriptors(ours, 4, 3 + _AT_ONCE)
            await_end(ours)
        finally:
            ours.close()
            childs.close()
        if data != bytes(4) or len(got) != _AT_ONCE + (0 if self._namespaces else 3):
            for descriptor in got:
                os.close(descriptor)
            number = int.from_bytes(data, "little") or errno.EIO
            raise OSError(number, os.strerror(number))
        if self._namespaces is None:
            server = socket.socket(fileno=got[2])
            try:
                threading.Thread(target=self._serve, args=(server,), name="resolver-udp", daemon=True).start()
            except RuntimeError:  # the process limit is reached
                server.detach()
                for descriptor in got:
                    os.close(descriptor)
                raise OSError(errno.EAGAIN, "no thread to answer") from None
            self._namespaces = got[0], got[1]
        self._ready = got[-_AT_ONCE:]

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                question, whence = server.recvfrom(MOST + 1)
                reply = answer(question, self._hosts)
                if reply:
                    server.sendto(reply, whence)
            except Exception:  # noqa: BLE001, S112 - whatever one question brings, the resolver lives on for the others
                continue


def _make(control: socket.socket, namespaces: tuple[int, int] | None) -> NoReturn:
    """In the child: make the network, or enter it; sockets of it, sent; end. The engine's reaper takes the child."""
    number, made, sockets = errno.EIO, [], []
    try:
        if namespaces is None:
            libc.call("unshare", _NEWUSER | _NEWNET)
            server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            fcntl.ioctl(server.fileno(), _SET_FLAGS, _LOOPBACK_UP)
            server.bind((inet.written(hosts.stub_address()), hosts.STUB_PORT))
            made = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")] + [server.detach()]
        else:
            libc.call("setns", namespaces[0], _NEWUSER)
            libc.call("setns", namespaces[1], _NEWNET)
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        sockets = [socket.socket(socket.AF_INET, kind).detach() for _ in range(_AT_ONCE)]
        number = 0
    except OSError as error:
        number = error.errno or errno.EIO
    finally:
        try:
            send_descriptors(control, number.to_bytes(4, "little"), [] if number else [*made, *sockets])
        finally:
            os._exit(0)
