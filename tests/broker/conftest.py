"""What the broker's tests share: an upstream whose answers are the test's own bytes, and a client of bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h11
import pytest

HANDLE, KEY = "sk-00112233445566778899aabbccddeeff-pincer-trace-handle", "sk-ant-canary-0123456789abcdefghijABCDEFGHIJ"
PATIENCE = 20.0
STANDALONE = Path(__file__).with_name("standalone.py")


class Request:
    """What arrived, taken apart, and as bytes."""

    def __init__(self, head: h11.Request, raw: bytes) -> None:
        self.method, self.target = head.method.decode(), head.target.decode()
        self.headers = [(name.decode(), value.decode()) for name, value in head.headers]
        self.body, self.raw = b"", raw

    def __getitem__(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class End:
    """One end of a connection: what comes, as h11 reads it and (the first of it) as bytes."""

    def __init__(self, connection: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self.socket = connection
        self.raw = b""
        self.http = h11.Connection(role)

    def next(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            data = self.socket.recv(1 << 16)
            self.raw += data if len(self.raw) < 1 << 20 else b""
            self.http.receive_data(data)
        return event

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)


class Line(End):
    """One connection to the upstream, in the hands of the test's answer."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, h11.SERVER)

    def wait_for_end(self) -> bool:
        """Whether the other end closes, without a byte more."""
        with contextlib.suppress(ConnectionResetError):  # which is an end, too
            return self.socket.recv(1) == b""
        return True


Answer = Callable[[Request, Line], bytes | None]


def ok(body: bytes = b"fine", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Origin:
    """The upstream: takes each request whole (unless `early`), keeps it, and sends what `answer` gives."""

    def __init__(self, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain) -> None:
        self.requests: list[Request] = []
        self.answer: Answer = lambda _request, _line: ok()
        self.early = False
        self.lines = 0
        self._wrap = wrap
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Origin:
        self._start(self._accept)
        return self

    def settle(self) -> None:
        """Every connection of a client that has gone has an end here too."""
        for thread in self._threads[1:]:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the broker keeps a connection to the upstream"
        del self._threads[1:], self._open[:]

    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments)
        self._threads.append(thread)
        thread.start()

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection in self._open:
            with contextlib.suppress(OSError):  # the broker has closed it already
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.lines += 1
            connection.settimeout(PATIENCE)
            self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        # whether the broker ends it midway, or refuses its certificate: the tests look at what the client gets
        with contextlib.suppress(OSError, h11.RemoteProtocolError), self._wrap(plain) as connection:
            line = Line(connection)
            while isinstance(head := line.next(), h11.Request):
                request = Request(head, line.raw)
                self.requests.append(request)
                pieces = []
                while not self.early and isinstance(event := line.next(), h11.Data):
                    pieces.append(event.data)
                request.body = b"".join(pieces)
                request.raw, line.raw = line.raw, b""
                answer = self.answer(request, line)
                if answer is None:
                    return
                connection.sendall(answer)
                line.http = h11.Connection(h11.SERVER)


class Client(End):
    """Bytes to a broker, and answers as h11 reads them."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), PATIENCE), h11.CLIENT)
        self.port = port

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def head(self, method: str = "POST", target: str = "/v1/messages", *headers: str, host: str = "") -> bytes:
        """A request's head, with the handle unless the headers name a credential."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}", *headers]
        if not any(line.lower().startswith(("x-api-key:", "authorization:")) for line in lines):
            lines.append(f"X-Api-Key: {HANDLE}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def asked(self, method: str = "POST") -> None:
        """For what is to be read next: the method tells how long its body is."""
        self.http = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target="/", headers=[("host", "x")])
        self.http.send(request)
        self.http.send(h11.EndOfMessage())

    def answer(self, method: str = "POST") -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body. Bytes behind it stay for the next one."""
        rest = self.http.trailing_data[0]
        self.asked(method)
        self.http.receive_data(rest) if rest else None
        while isinstance(head := self.next(), h11.InformationalResponse):
            pass
        assert isinstance(head, h11.Response), head
        pieces = []
        while isinstance(event := self.next(), h11.Data):
            pieces.append(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return head.status_code, {n.decode(): v.decode() for n, v in head.headers}, b"".join(pieces)

    def ask(self, method: str = "POST", target: str = "/v1/messages", *headers: str, body: bytes = b"") -> Any:
        """One whole request, and its answer."""
        length = [f"Content-Length: {len(body)}"] if body else []
        self.send(self.head(method, target, *length, *headers) + body)
        return self.answer(method)


class Started:
    """A broker's process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def client(self) -> Client:
        return Client(self.port)


@contextlib.contextmanager
def broker(
    upstream: str, env: Mapping[str, str] | None = None, switch: list[str] | None = None, python: str = sys.executable
) -> Iterator[Started]:
    environment = {"PATH": os.environ["PATH"], **(env or {})}
    words = [*(switch or []), python, "-I", str(STANDALONE), upstream, f"{HANDLE}={KEY}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            line = process.stdout.readline().split()  # type: ignore[union-attr]
            yield Started(int(line[0]), int(line[1]))
        finally:
            process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Origin, Started]]:
    """One pair for the tests of a module: starting a process is most of what they cost."""
    with Origin() as made, broker(made.url + "/base") as started:
        yield made, started


@pytest.fixture
def pair(shared: tuple[Origin, Started]) -> Iterator[tuple[Origin, Started]]:
    origin, started = shared
    origin.requests.clear()
    origin.answer, origin.early, origin.lines = lambda _request, _line: ok(), False, 0
    yield origin, started
    origin.settle()
