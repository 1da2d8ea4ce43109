r"""The approval channel: where a person's programs see what waits for an answer, and answer it.

An abstract unix socket of the engine. The worker cannot connect: the kernel's scope refuses it (Landlock), and where
that is missing the peer must be of our user and no process of the supervised tree. The name is random, but no secret:
/proc/net/unix shows it.

Lines of JSON both ways, one answer a line in the order of the questions: `{"op": "pending"}` and
`{"op": "answer", "id": 3, "answer": "once"}`. An answer has `"ok"`, and where it is false `"error"` in words and
`"code"` for programs. Operations are a table, so that more can be told by the same socket.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, sleep

from pincer_trace.kernel.peers import Peer
from pincer_trace.ledger import LedgerFull
from pincer_trace.ledger.encode import encode
from pincer_trace.twin.grants import KINDS, Person
from pincer_trace.twin.questions import NotAnswerable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pincer_trace.twin.questions import Questions

    Message = dict[str, object]
    Operation = Callable[[Person, Message], Message]

PREFIX = b"\0pincer-trace-"
MOST_CLIENTS = 16
MOST_BYTES = 1 << 16  # of one message to us
MOST_UNREAD = 1 << 22  # bytes that a client has not read yet: a slow one is dropped
STUCK = 5.0  # seconds after which one that reads nothing is dropped
_READ = 1 << 14


class Refused(Exception):
    """What a client asked for cannot be done; the text tells it why, `code` tells its program."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Client:
    __slots__ = ("connection", "incoming", "outgoing", "peer", "stuck")

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.connection = connection
        self.peer = peer
        self.incoming = b""
        self.outgoing = b""
        self.stuck = 0.0  # since when it reads nothing of that; 0: it is not so


class Channel:
    """The listening socket and the thread that serves it. `is_inside(pid)`: whether it is of the supervised tree.

    Made by the engine after the worker was started, so that the worker has no copy of anything.
    """

    def __init__(self, operations: Mapping[str, Operation], is_inside: Callable[[int], bool]) -> None:
        self._operations = operations
        self._is_inside = is_inside
        self._uid = os.getuid()
        self.name = os.urandom(16).hex()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._clients: dict[int, _Client] = {}
        self._thread: threading.Thread | None = None
        try:
            self._listener.bind(address(self.name))
            self._listener.listen(MOST_CLIENTS)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            os.close(self._wake)
            raise

    def facts(self) -> Message:
        """What session.json tells of it, as `feed`: the socket's name, and which process must be behind it."""
        return {"name": self.name, "pid": os.getpid()}

    def start(self) -> None:
        """Serve, beside the receiving thread."""
        self._thread = threading.Thread(target=self._serve, name="channel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and forget the clients."""
        if self._thread is not None:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._thread = None
        self._listener.close()
        os.close(self._wake)

    # -- the thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, events in selector.select(1.0 if any(c.outgoing for c in self._clients.values()) else None):
                    if key.fd == self._wake:
                        for client in list(self._clients.values()):
                            self._drop(client, selector)
                        return
                    if key.data is None:
                        self._accept(selector)
                    elif not self._turn(key.data, events):
                        self._drop(key.data, selector)
                    else:
                        wanted = selectors.EVENT_READ if not key.data.outgoing else selectors.EVENT_WRITE
                        if wanted != key.events:
                            selector.modify(key.data.connection, wanted, key.data)
                late = monotonic() - STUCK
                for client in [each for each in self._clients.values() if each.outgoing and each.stuck < late]:
                    self._drop(client, selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it went away again, or we have no descriptor for it
            sleep(0.01)
            return
        connection.setblocking(False)
        try:
            client, refusal = self._admit(connection)
        except Exception:  # noqa: BLE001 - whoever cannot be looked at is not let in
            client, refusal = None, "who connects cannot be told"
        if client is None:
            try:
                connection.send(_line({"ok": False, "code": "refused", "error": refusal}))
            except OSError:
                pass  # it does not listen
            connection.close()
            return
        self._clients[connection.fileno()] = client
        selector.register(connection, selectors.EVENT_READ, client)

    def _admit(self, connection: socket.socket) -> tuple[_Client | None, str]:
        """The client, or None and why it is none."""
        if len(self._clients) >= MOST_CLIENTS:
            return None, f"{MOST_CLIENTS} programs are connected already"
        try:
            peer = Peer(connection)
        except OSError:
            return None, "who connects has ended, or cannot be seen from here"
        if peer.uid != self._uid:
            refusal = "the session is another user's"
        elif self._is_inside(peer.pid) or not peer.lives():
            refusal = "what is supervised cannot answer its own questions"
        else:
            return _Client(connection, peer), ""
        peer.close()
        return None, refusal

    def _drop(self, client: _Client, selector: selectors.BaseSelector) -> None:
        selector.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()
        client.peer.close()

    def _turn(self, client: _Client, events: int) -> bool:
        """Read what it says, or write on; False when it is to be dropped."""
        try:
            if events & selectors.EVENT_READ:
                data = client.connection.recv(_READ)
                if not data:
                    return False
                client.incoming += data
                self._hear(client)
            while client.outgoing:
                sent = client.connection.send(client.outgoing[:MOST_BYTES])
                client.outgoing = client.outgoing[sent:]
                client.stuck = monotonic()
        except BlockingIOError:
            pass  # it reads slowly: nothing more is heard of it until it has read
        except OSError:
            return False
        return len(client.incoming) <= MOST_BYTES and len(client.outgoing) <= MOST_UNREAD

    def _hear(self, client: _Client) -> None:
        *lines, client.incoming = client.incoming.split(b"\n")
        if not client.outgoing:
            client.stuck = monotonic()
        for line in lines:
            client.outgoing += _line(self._answer(client, line))
            if len(client.outgoing) > MOST_UNREAD:
                return

    def _answer(self, client: _Client, line: bytes) -> Message:
        import json

        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return {"ok": False, "code": "malformed", "error": "that is no JSON object on a line of its own"}
        operation = self._operations.get(str(message.get("op")))
        if operation is None:
            known = ", ".join(sorted(self._operations))
            return {"ok": False, "code": "malformed", "error": f"no such operation: one of {known}"}
        by = Person(client.peer.uid, client.peer.pid, client.peer.executable())
        try:
            return {"ok": True, **operation(by, message)}
        except (Refused, NotAnswerable) as refusal:
            return {"ok": False, "code": refusal.code, "error": str(refusal)}
        except LedgerFull as full:
            return {"ok": False, "code": "log-full", "error": str(full)}
        except Exception as failure:  # noqa: BLE001 - the thread must live on, and nothing was answered
            return {"ok": False, "code": "failure", "error": f"the supervisor failed: {type(failure).__name__}"}


def address(name: str) -> bytes:
    """Of the socket `name`."""
    return PREFIX + name.encode("ascii")


def answering(questions: Questions) -> dict[str, Operation]:
    """The operations of whoever answers questions."""

    def pending(_by: Person, _message: Message) -> Message:
        return {"questions": questions.pending(clock_gettime(CLOCK_BOOTTIME))}

    def answer(by: Person, message: Message) -> Message:
        number, kind = message.get("id"), message.get("answer")
        if type(number) is not int:
            raise Refused("malformed", "id must be the number of a question")
        if kind not in KINDS:
            raise Refused("malformed", f"answer must be one of {', '.join(KINDS)}")
        now = clock_gettime(CLOCK_BOOTTIME)
        question = questions.find(number, now).view(now)
        resumed = questions.answer(number, str(kind), by, now)
        return {"question": question, "resumed": len(resumed)}

    return {"pending": pending, "answer": answer}


def _line(message: Message) -> bytes:
    return encode(message).encode("ascii") + b"\n"
