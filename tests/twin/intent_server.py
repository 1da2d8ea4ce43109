"""A loopback Messages API whose model is a function of the test: from the effect that is asked about to an answer.

    with intent_server(lambda asked: answer("deny" if asked.path.endswith(".env") else "allow")) as api:
        environment |= {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "of-no-account"}

Every request is kept with its headers. An end-to-end run needs nothing else: the supervisor's SDK comes here.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECTIONS = re.compile(
    r"<task>\n(.*)\n</task>\n<effect>\n(.*)\n</effect>\n<recent>\n(.*)\n</recent>\nDoes the effect serve the task\?",
    re.DOTALL,
)


class Asked:
    """One request: its body, its headers, and the sections of its question."""

    def __init__(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.body = body
        self.headers = headers
        self.text: str = body["messages"][0]["content"]
        found = SECTIONS.fullmatch(self.text)
        assert found, self.text
        self.task, self.effect, self.recent = (json.loads(section) for section in found.groups())

    @property
    def key(self) -> str:
        """The key that came with it: releases of the SDK send it in one header or in the other."""
        return self.headers.get("x-api-key") or self.headers["authorization"].removeprefix("Bearer ")

    @property
    def path(self) -> str:
        """The name that is judged; of a long one, its end."""
        path = self.effect["path"]
        return path if isinstance(path, str) else path["ends"]


class Reply:
    """What is sent: a status, a body, headers; after `gate` where there is one."""

    def __init__(
        self,
        body: object,
        status: int = 200,
        *,
        headers: dict[str, str] | None = None,
        gate: threading.Event | None = None,
    ) -> None:
        self.status = status
        self.headers = {"content-type": "application/json"} | (headers or {})
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.gate = gate


def message(content: object, stop_reason: object = "end_turn", **more: object) -> Reply:
    """A message of the assistant, as the API sends it."""
    return Reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "stand-in",
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 700, "output_tokens": 40},
        }
        | more
    )


def says(text: str, **more: object) -> Reply:
    """One text."""
    return message([{"type": "text", "text": text}], **more)


def answer(verdict: str, reason: str = "because") -> Reply:
    """A valid answer."""
    return says(json.dumps({"reason": reason, "verdict": verdict}))


def refusal() -> Reply:
    """The model refuses."""
    return message([], "refusal")


def failure(status: int, kind: str = "api_error", words: str = "no", **headers: str) -> Reply:
    """An error of the API."""
    body = {"type": "error", "error": {"type": kind, "message": words}}
    return Reply(body, status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def in_turn(*replies: Reply) -> Callable[[Asked], Reply]:
    """A model that gives these one after the other, and the last for ever."""
    left = itertools.chain(replies, itertools.repeat(replies[-1]))
    return lambda _asked: next(left)


class IntentServer:
    """Made by `intent_server`. `model` may be exchanged at any time."""

    def __init__(self, model: Callable[[Asked], Reply]) -> None:
        self.model = model
        self.requests: list[Asked] = []
        self.came = threading.Semaphore(0)  # once for each request
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """For ANTHROPIC_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def effects(self) -> Sequence[tuple[str, str]]:
        """What was asked about, in order."""
        return [(asked.effect["effect"], asked.path) for asked in self.requests]

    def start(self) -> None:
        """Serve until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End, with every connection."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def intent_server(model: Callable[[Asked], Reply]) -> Iterator[IntentServer]:
    """Serve on a free loopback port while the block lasts."""
    server = IntentServer(model)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _handler(server: IntentServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.partition("?")[0] == "/v1/messages":
                asked = Asked(json.loads(body), {name.lower(): value for name, value in self.headers.items()})
                server.requests.append(asked)
                server.came.release()
                reply = server.model(asked)
            else:
                reply = failure(404, "not_found_error", "not served here")
            if reply.gate is not None:
                reply.gate.wait(30)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(reply.body)
            except OSError:
                pass  # who asked waits no longer
            self.close_connection = True

    return Handler
