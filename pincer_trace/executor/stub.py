"""The resolver that the worker's libraries find: DNS over TCP, answered by us and by nobody behind us (P83).

What comes in is the worker's, and hostile: each message is bounded, and so are the connections and what they keep. Only
connections that the supervisor made for a worker are served; what others on this machine connect is closed.
"""

from __future__ import annotations

import select
import threading
from time import monotonic

from pincer_trace.gateway.dns import MOST, answer
from pincer_trace.kernel.bare import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.hosts import Hosts

_CONNECTIONS = 64
_EXPECTED = 1024
_IDLE = 20.0  # seconds without a question
_UNREAD = 1 << 16  # bytes of answers that are not read
_LENGTH = 2  # bytes in front of each message
_ROOM = _LENGTH + MOST


class _Connection:
    """One that is served: what has come of a message, and when the last one did."""

    __slots__ = ("data", "since", "socket")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.data = b""
        self.since = monotonic()


class Stub:
    """Listens from the start of its thread, which is made with it. Raises OSError or RuntimeError when it cannot."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._mutex = threading.Lock()  # guards what is expected
        self._expected: dict[int, None] = {}  # ports
        self._connections: dict[int, _Connection] = {}
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._listening.bind(("127.0.0.1", 0))
            self._listening.listen(_CONNECTIONS)
            self.port: int = self._listening.getsockname()[1]
            threading.Thread(target=self._serve, name="resolver", daemon=True).start()
        except BaseException:
            self._listening.close()
            raise

    def expect(self, port: int) -> None:
        """A worker's socket, bound to that port, is about to be connected to us."""
        with self._mutex:
            self._expected[port] = None
            if len(self._expected) > _EXPECTED:
                del self._expected[next(iter(self._expected))]

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(_IDLE * 1000 if self._connections else None):
                connection = self._connections.get(descriptor)
                if connection is None:
                    self._accept(poll)
                elif not self._read(connection):
                    self._close(poll, descriptor)
            oldest = monotonic() - _IDLE
            for descriptor in [number for number, each in self._connections.items() if each.since < oldest]:
                self._close(poll, descriptor)

    def _accept(self, poll: select.poll) -> None:
        try:
            descriptor, place = self._listening._accept()  # type: ignore[attr-defined]  # the C half's own
        except OSError:
            return  # it has gone, or there is no descriptor for it
        connected = socket.socket(fileno=descriptor)
        with self._mutex:
            known = place[1] in self._expected
            self._expected.pop(place[1], None)
        if not known:
            connected.close()
            return
        if len(self._connections) >= _CONNECTIONS:
            self._close(poll, min(self._connections, key=lambda number: self._connections[number].since))
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)
        self._connections[descriptor] = _Connection(connected)
        poll.register(descriptor, select.POLLIN)

    def _close(self, poll: select.poll, descriptor: int) -> None:
        poll.unregister(descriptor)
        self._connections.pop(descriptor).socket.close()

    def _read(self, connection: _Connection) -> bool:
        """Answer what has come whole; False when the connection has ended, or had better."""
        try:
            came = connection.socket.recv(_ROOM - len(connection.data))
            connection.data += came
            while len(connection.data) >= _LENGTH:
                size = int.from_bytes(connection.data[:_LENGTH], "big")
                if size > MOST:
                    return False
                if len(connection.data) < _LENGTH + size:
                    break
                reply = answer(connection.data[_LENGTH : _LENGTH + size], self._hosts)
                connection.data = connection.data[_LENGTH + size :]
                connection.since = monotonic()
                if not reply:
                    return False
                sent = len(reply).to_bytes(_LENGTH, "big") + reply
                if connection.socket.send(sent) != len(sent):
                    return False  # it does not read what it asked for
        except Exception:  # noqa: BLE001 - whatever one connection brings, the resolver lives on for the others
            return False
        return bool(came)
