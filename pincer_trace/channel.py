r"""The approval channel: where a person's programs see what waits for an answer, and answer it.

An abstract unix socket of the engine. The worker cannot connect: the kernel's scope refuses it (Landlock), and where
that is missing the peer must be of our user and no process of the supervised tree. The name is random, but no secret:
/proc/net/unix shows it.

Lines of JSON both ways, one answer a line in the order of the requests: `{"op": "pending"}`, `{"op": "answer", "id": 3,
"answer": "once"}`, and `{"op": "before", "of": 17}` for what held the file that record 17 is about to change. An answer
has `"ok"`, and where it is false `"error"` in words and `"code"` for programs. After `{"op": "watch"}` come lines
`{"event": "questions", "questions": [...]}` too, at once and whenever they are others; a slow reader gets the last one.

What was decided stands in the ledger, which whoever watches reads by itself: that costs the supervisor nothing.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from base64 import b64encode
from time import CLOCK_BOOTTIME, clock_gettime, monotonic, sleep

from pincer_trace.kernel.peers import Peer
from pincer_trace.ledger import LedgerFull
from pincer_trace.ledger.encode import encode
from pincer_trace.twin.grants import KINDS, Person
from pincer_trace.twin.questions import NotAnswerable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pincer_trace.executor.before import Before
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
    __slots__ = ("behind", "connection", "incoming", "outgoing", "peer", "stuck", "watches")

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.connection = connection
        self.peer = peer
        self.incoming = b""
        self.outgoing = b""
        self.stuck = 0.0  # since when it reads nothing of that; 0: it is not so
        self.watches = False
        self.behind = False  # there was news while it had not read the last


class Channel:
    """The listening socket and the thread that serves it. `is_inside(pid)`: whether it is of the supervised tree.

    `news` is what those who watch are told at first and after each `tell`; `watched` hears whether anybody does.
    Made by the engine after the worker was started, so that the worker has no copy of anything.
    """

    def __init__(
        self,
        operations: Mapping[str, Operation],
        is_inside: Callable[[int], bool],
        *,
        news: Callable[[], Message],
        watched: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._operations = operations
        self._is_inside = is_inside
        self._news = news
        self._watched = watched
        self._closing = False
        self._uid = os.getuid()
        self.name = os.urandom(16).hex()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._clients: dict[int, _Client] = {}
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        try:
            self._listener.bind(address(self.name))
            self._listener.listen(MOST_CLIENTS)
            self._listener.setblocking(False)
        except BaseException:
            self._let_go()
            raise

    def facts(self) -> Message:
        """What session.json tells of it, as `feed`: the socket's name, and which process must be behind it."""
        return {"name": self.name, "pid": os.getpid()}

    def start(self) -> None:
        """Serve, beside the receiving thread. Raises RuntimeError where no thread can be had; then it is closed."""
        thread = threading.Thread(target=self._serve, name="channel", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._let_go()
            raise
        self._thread = thread

    def tell(self) -> None:
        """There is news for those who watch. For any thread: it does not wait."""
        try:
            os.eventfd_write(self._wake, 1)
        except BlockingIOError:
            pass  # it is told already, more often than can be counted

    def close(self) -> None:
        """Stop serving, and forget the clients."""
        self._closing = True
        if self._thread is not None:
            self.tell()
            self._thread.join()
            self._thread = None
        self._let_go()

    def _let_go(self) -> None:
        self._selector.close()
        self._listener.close()
        os.close(self._wake)

    # -- the thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        selector = self._selector
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._wake, selectors.EVENT_READ)
        while True:
            for key, events in selector.select(1.0 if any(c.outgoing for c in self._clients.values()) else None):
                if key.fd == self._wake:
                    os.eventfd_read(self._wake)
                    if self._closing:
                        for client in list(self._clients.values()):
                            self._drop(client)
                        return
                    for client in self._watchers():
                        self._inform(client)
                        self._turn(client, 0)
                elif key.data is None:
                    self._accept()
                elif key.data.connection.fileno() >= 0:  # else it was dropped in this round
                    self._turn(key.data, events)
            late = monotonic() - STUCK
            for client in [each for each in self._clients.values() if each.outgoing and each.stuck < late]:
                self._drop(client)

    def _accept(self) -> None:
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
        self._selector.register(connection, selectors.EVENT_READ, client)

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

    def _drop(self, client: _Client) -> None:
        self._selector.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()
        client.peer.close()
        if client.watches and not self._watchers():
            self._watched(False)

    def _turn(self, client: _Client, events: int) -> None:
        """Read what it says, write on, drop it where that cannot be."""
        if not self._exchange(client, events):
            self._drop(client)
            return
        wanted = selectors.EVENT_READ if not client.outgoing else selectors.EVENT_WRITE
        if wanted != self._selector.get_key(client.connection).events:
            self._selector.modify(client.connection, wanted, client)

    def _exchange(self, client: _Client, events: int) -> bool:
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
                if client.behind and not client.outgoing:
                    self._inform(client)
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

    def _watchers(self) -> list[_Client]:
        return [each for each in self._clients.values() if each.watches]

    def _begin_watching(self, client: _Client) -> Message:
        if not self._watchers():
            self._watched(True)
        client.watches = client.behind = True  # the first news come behind the answer
        return {"ok": True}

    def _inform(self, client: _Client) -> None:
        """Tell the news; to one that has not read the last, once it has."""
        client.behind = bool(client.outgoing)
        if client.behind:
            return
        client.stuck = monotonic()
        try:
            client.outgoing = _line(self._news())
        except Exception as failure:  # noqa: BLE001 - the thread must live on
            client.outgoing = _line({"event": "failure", "error": type(failure).__name__})

    def _answer(self, client: _Client, line: bytes) -> Message:
        import json

        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return {"ok": False, "code": "malformed", "error": "that is no JSON object on a line of its own"}
        if message.get("op") == "watch":
            return self._begin_watching(client)
        operation = self._operations.get(str(message.get("op")))
        if operation is None:
            known = ", ".join(sorted([*self._operations, "watch"]))
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


def showing(before: Before) -> dict[str, Operation]:
    """The operations of whoever looks at what is done."""

    def former(_by: Person, message: Message) -> Message:
        number = message.get("of")
        if type(number) is not int:
            raise Refused("malformed", "of must be the number of a record")
        content = before.content(number)
        if isinstance(content, str):
            return {"content": None, "why": content}
        return {"content": b64encode(content).decode("ascii")}

    return {"before": former}


def answering(questions: Questions | None) -> dict[str, Operation]:
    """The operations of whoever answers questions; None: nobody is asked."""

    def pending(_by: Person, _message: Message) -> Message:
        return {"questions": _pending(questions)}

    def answer(by: Person, message: Message) -> Message:
        number, kind = message.get("id"), message.get("answer")
        if type(number) is not int:
            raise Refused("malformed", "id must be the number of a question")
        if kind not in KINDS:
            raise Refused("malformed", f"answer must be one of {', '.join(KINDS)}")
        if questions is None:
            raise Refused("unknown", "this session asks nobody: it was not started with --confirm ask")
        now = clock_gettime(CLOCK_BOOTTIME)
        question = questions.find(number, now).view(now)
        resumed = questions.answer(number, str(kind), by, now)
        return {"question": question, "resumed": len(resumed)}

    return {"pending": pending, "answer": answer}


def asked(questions: Questions | None) -> Callable[[], Message]:
    """The news for whoever watches: the questions that can be answered."""
    return lambda: {"event": "questions", "questions": _pending(questions)}


def _pending(questions: Questions | None) -> list[dict[str, object]]:
    return questions.pending(clock_gettime(CLOCK_BOOTTIME)) if questions is not None else []


def _line(message: Message) -> bytes:
    return encode(message).encode("ascii") + b"\n"
