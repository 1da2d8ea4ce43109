"""What the credential broker adds to a request: the same client and server on the loopback, natively and in a run."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator

from .micro import numbers
from .rounds import Bench, Table, Variant, interleave

# By one connection that stays, and by a connection for each. Prints nanoseconds a request.
CLIENT = """
import os, socket, sys, time
host, _, port = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://").partition(":")
body = b"x" * 50_000
head = (f"POST /v1/messages HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nX-Api-Key: {os.environ['ANTHROPIC_API_KEY']}\\r\\n"
        f"Content-Length: {len(body)}\\r\\n\\r\\n").encode()
def ask(line):
    line.sendall(head + body)
    data = b""
    while not data.endswith(b"\\n\\n"):
        data += line.recv(1 << 16)
    assert data.startswith(b"HTTP/1.1 200"), data
def timed(name, count, what):
    what()
    began = time.perf_counter_ns()
    for _ in range(count):
        what()
    print(name, (time.perf_counter_ns() - began) // count)
def anew():
    with socket.create_connection((host, int(port))) as line:
        ask(line)
count = int(sys.argv[1])
with socket.create_connection((host, int(port))) as kept:
    timed("kept", count, lambda: ask(kept))
timed("anew", count // 4, anew)
"""


def measure(bench: Bench) -> Table:
    """Requests of 50 KB, as an agent sends them, us each."""
    count = max(20, bench.operations // 500)
    with _server() as port:
        env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": "sk-bench-0123456789abcdef"}

        def one(variant: Variant, _turn: int) -> dict[str, float]:
            words = [sys.executable, "-I", "-c", CLIENT, str(count)]
            return numbers(bench.run(words, bench.directory("work"), variant, env))

        return interleave(bench, bench.usable(("native", "pincer")), ["kept", "anew"], one, bench.rounds)


@contextlib.contextmanager
def _server() -> Iterator[int]:
    """Answers each request, which has a length, with a line."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError, ValueError):
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    data += (more := line.recv(1 << 18))
                    if not more:
                        return
                head, _, data = data.partition(b"\r\n\r\n")
                left = int(head.lower().split(b"content-length:")[1].split()[0]) - len(data)
                while left > 0:
                    left -= len(line.recv(1 << 18)) or left
                data = b""
                line.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ndata: 1\n\n")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
