"""A loopback stand-in for the Messages API: a scripted model, so that a real agent runs without the
network.

Which turn is served follows from the request alone (how often the assistant has used a tool in it so far),
so that a retry gets the same answer. Requests without tools (titles, probes) get a short text. All requests
are kept, and the keys that came with them: a test reads in them what the agent told the model.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Block = dict[str, Any]


def say(text: str) -> Block:
    """A text block of a turn."""
    return {"type": "text", "text": text}


def use(tool: str, **arguments: Any) -> Block:
    """A tool use of a turn."""
    return {"type": "tool_use", "name": tool, "input": arguments}


def tool_results(request: dict[str, Any]) -> list[tuple[bool, str]]:
    """The tool results that a request carries, in order: (is an error, text)."""
    found = []
    for message in request["messages"]:
        content = message["content"]
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                inner = block.get("content") or ""
                words = inner if isinstance(inner, str) else "\n".join(part.get("text", "") for part in inner)
                found.append((bool(block.get("is_error")), words))
    return found


def events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The stream of one assistant message, as the API cuts it."""
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            start, delta = say(""), {"type": "text_delta", "text": block["text"]}
        else:
            start = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


class MessagesApi:
    """`with MessagesApi(turns) as api:` serves on a free loopback port until the block ends."""

    def __init__(self, turns: Sequence[Sequence[Block]]) -> None:
        self.turns = turns
        self.requests: list[dict[str, Any]] = []
        self.other: list[str] = []
        self.keys: list[str] = []
        self._count = itertools.count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> MessagesApi:
        self._thread.start()
        return self

    def __exit__(self, _type: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    path = "/v1/messages"

    def stream(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """One answer, as the API cuts it."""
        return events(message)

    def is_streamed(self, request: dict[str, Any]) -> bool:
        """Whether the answer is wanted as a stream."""
        return bool(request.get("stream"))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The assistant message for one request."""
        if request.get("tools"):
            done = sum(
                any(block["type"] == "tool_use" for block in message["content"])
                for message in request["messages"]
                if message["role"] == "assistant" and isinstance(message["content"], list)
            )
            turn = self.turns[done] if done < len(self.turns) else [say("The script has no more turns.")]
        else:
            turn = [say("title")]
        number = next(self._count)
        content = [
            block | {"id": f"toolu_{number:04}_{index}"} if block["type"] == "tool_use" else block
            for index, block in enumerate(turn)
        ]
        tools = any(block["type"] == "tool_use" for block in content)
        return {
            "id": f"msg_{number:04}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model", "stand-in"),
            "content": content,
            "stop_reason": "tool_use" if tools else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20  # a kept connection must not hold the test's end

            def log_message(self, *_: object) -> None:
                """Nothing on stderr: the test reads `requests`."""

            def read(self) -> bytes:
                """The body, by length or in chunks."""
                if "chunked" not in (self.headers.get("transfer-encoding") or "").lower():
                    return self.rfile.read(int(self.headers.get("content-length") or 0))
                body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def reply(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                if self.command != "HEAD":
                    self.wfile.write(body)

            def refuse(self) -> None:
                self.read()
                api.other.append(f"{self.command} {self.path}")
                error = {"type": "error", "error": {"type": "not_found_error", "message": "not served here"}}
                self.reply(200 if self.command == "HEAD" else 404, "application/json", json.dumps(error).encode())

            do_GET = do_HEAD = do_PUT = do_DELETE = refuse

            def do_POST(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/v1/messages/count_tokens":
                    self.read()
                    return self.reply(200, "application/json", b'{"input_tokens": 1}')
                if path != api.path:
                    return self.refuse()
                request = json.loads(self.read())
                api.requests.append(request)
                sent = (self.headers.get(name) for name in ("x-api-key", "x-goog-api-key", "authorization"))
                api.keys.append(next(filter(None, sent), ""))
                message = api.answer(request)
                if not api.is_streamed(request):
                    return self.reply(200, "application/json", json.dumps(message).encode())
                named = ((f"event: {each['type']}\n" if "type" in each else "", each) for each in api.stream(message))
                lines = (f"{name}data: {json.dumps(each)}\n\n" for name, each in named)
                return self.reply(200, "text/event-stream", "".join(lines).encode())

        return Handler
