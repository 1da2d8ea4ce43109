"""A broker's process between a client and an upstream, both in the hands of the test."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import zlib

import h11
import pytest
from broker.conftest import HANDLE, KEY, PATIENCE, Origin, Started, broker, ok

Pair = tuple[Origin, Started]


def test_the_key_arrives_and_never_comes_back(pair: Pair) -> None:
    """By both headers; all else as it was, but for what belongs to a connection; and whatever the upstream echoes."""
    origin, started = pair
    origin.answer = lambda request, _: ok(request.raw, b"x-echo: " + KEY.encode(), b"keep-alive: timeout=5")
    with started.client() as client:
        for name, value in (("x-api-key", "%s"), ("authorization", "Bearer %s")):
            status, headers, body = client.ask(
                "POST", "/v1/messages?beta=true", f"{name}: {value % HANDLE}", "Connection: x-hop", "X-Hop: 1",
                "Accept-Encoding: br", "Anthropic-Beta: a, b", body=b'{"a": 1}',
            )  # fmt: skip
            request = origin.requests.pop()
            assert (request.method, request.target, request.body) == (
                "POST",
                "/base/v1/messages?beta=true",
                b'{"a": 1}',
            )
            assert dict(request.headers) == {
                "host": f"127.0.0.1:{origin.port}", "accept-encoding": "identity", name: value % KEY,
                "anthropic-beta": "a, b", "content-length": "8",
            }  # fmt: skip
            assert status == 200 and headers["x-echo"] == "*" * len(KEY) and "keep-alive" not in headers
            assert body == request.raw.replace(KEY.encode(), b"*" * len(KEY))
    assert origin.lines == 1  # both by one connection
    assert KEY.encode() not in client.raw


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "chunked"])
def test_a_key_is_found_in_an_encoded_answer(pair: Pair, encoding: str) -> None:
    origin, started = pair
    text = b"x" * 100_000 + KEY.encode() + b"y" * 10

    def answer(_request, _line) -> bytes:
        if encoding == "chunked":
            pieces = [text[at : at + 7] for at in range(99_995, len(text), 7)]
            chunks = [b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in [text[:99_995], *pieces]]
            trailer = b"x-last: " + KEY.encode() + b"\r\n"
            return (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                + b"".join(chunks)
                + b"0\r\n"
                + trailer
                + b"\r\n"
            )
        half = len(text) // 2
        body = gzip.compress(text[:half]) + gzip.compress(text[half:]) if encoding == "gzip" else zlib.compress(text)
        return ok(body, b"content-encoding: " + encoding.encode())

    origin.answer = answer
    with started.client() as client:
        status, headers, body = client.ask()
    assert status == 200 and "content-encoding" not in headers
    assert body == text.replace(KEY.encode(), b"*" * len(KEY))
    assert KEY.encode() not in client.raw


def test_an_encoding_that_cannot_be_searched_does_not_pass(pair: Pair) -> None:
    origin, started = pair
    for header in (b"content-encoding: br", b"content-encoding: gzip, gzip"):
        origin.answer = lambda _request, _line, header=header: ok(KEY.encode(), header)
        with started.client() as client:
            status, _, said = client.ask()
        assert status == 502 and "encoding" in json.loads(said)["error"]["message"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ["POST", "/v1/messages", "X-Api-Key: sk-wrong"]),
        (401, ["POST", "/v1/messages", f"Authorization: Basic {HANDLE}"]),
        (400, ["GET", "http://evil.example/"]),
        (400, ["GET", "//evil.example/"]),
        (400, ["GET", "/../secret"]),
        (405, ["CONNECT", "evil.example:443"]),
        (405, ["TRACE", "/"]),
        (400, ["POST", "/", "Content-Length: 1", "Transfer-Encoding: chunked"]),
        (400, ["GET", "/", "X-A: 1\r\n\tfolded"]),  # h11 joins a folded line: it goes on as one
        (400, ["GET", "/ x HTTP/1.1\r\nX-Y: "]),
        (400, ["GET", "/", "X-A: a\rX-Api-Key: x"]),
        (400, ["GET", "/", "X-A : a"]),
        (400, ["GET", "/", "Host: twice"]),
        (501, ["POST", "/", "Transfer-Encoding: gzip, chunked"]),
    ],
)
def test_what_does_not_pass(pair: Pair, status: int, words: list[str]) -> None:
    """The upstream hears nothing of it; the answer has the shape of the API's own errors."""
    origin, started = pair
    with started.client() as client:
        client.send(client.head(*words))
        if "folded" in words[-1]:
            assert client.answer()[0] == 200 and origin.requests[0]["x-a"] == ["1 folded"]
            return
        found, _, body = client.answer(words[0] if words[0] != "CONNECT" else "GET")
        said = json.loads(body)
        assert found == status and said["type"] == "error" and said["error"]["message"].startswith("pincer-trace: ")
    assert origin.requests == [] and origin.lines == 0


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1"])
def test_another_host_is_refused(pair: Pair, host: str) -> None:
    origin, started = pair
    with started.client() as client:
        client.send(client.head("GET", "/", host=host))
        assert client.answer("GET")[0] == 421
        client.send(client.head("GET", "/", host=f"localhost:{started.port}"))
        assert client.answer("GET")[0] == 200
    assert len(origin.requests) == 1


def test_http_1_0_has_no_host_and_does_not_pass(pair: Pair) -> None:
    origin, started = pair
    with started.client() as client:
        client.send(f"GET /x HTTP/1.0\r\nX-Api-Key: {HANDLE}\r\n\r\n".encode())
        assert client.answer("GET")[0] == 421
    with started.client() as client:
        client.send(f"GET /x HTTP/1.0\r\nHost: 127.0.0.1:{started.port}\r\nX-Api-Key: {HANDLE}\r\n\r\n".encode())
        assert client.answer("GET")[2] == b"fine"
    assert [request["host"] for request in origin.requests] == [[f"127.0.0.1:{origin.port}"]]


def test_requests_in_a_row_are_judged_one_by_one(pair: Pair) -> None:
    """Sent at once, the second without a handle; and one that hides in the body of another stays there."""
    origin, started = pair
    with started.client() as client:
        hidden = b"GET /hidden HTTP/1.1\r\nHost: x\r\nX-Api-Key: %b\r\n\r\n" % HANDLE.encode()
        first = client.head("POST", "/first", f"Content-Length: {len(hidden)}") + hidden
        client.send(first + client.head("GET", "/second", "X-Api-Key: no") + client.head("GET", "/third"))
        assert [client.answer()[0], client.answer("GET")[0], client.answer("GET")[0]] == [200, 401, 200]
    assert [(request.target, request.body) for request in origin.requests] == [
        ("/base/first", hidden),
        ("/base/third", b""),
    ]
    assert KEY.encode() not in origin.requests[0].body and origin.lines == 1


def test_trailers_of_a_request_do_not_pass(pair: Pair) -> None:
    origin, started = pair
    with started.client() as client:
        client.send(client.head("POST", "/", "Transfer-Encoding: chunked", "Trailer: x-api-key"))
        client.send(f"3\r\nabc\r\n0\r\nX-Api-Key: {HANDLE}\r\nHost: evil.example\r\n\r\n".encode())
        assert client.answer()[0] == 200
    (request,) = origin.requests
    assert request.body == b"abc" and request.raw.endswith(b"0\r\n\r\n") and request["x-api-key"] == [KEY]
    assert request["transfer-encoding"] == ["chunked"] and request["trailer"] == []


def test_bodies_flow_in_both_ways_while_they_last(pair: Pair) -> None:
    """The upstream has the first part before the second is sent, and the client each event before the next."""
    origin, started = pair
    origin.early = True
    arrived, read = threading.Event(), threading.Event()

    def answer(_request, line) -> bytes | None:
        assert line.next().data == b"one"
        arrived.set()
        while not isinstance(line.next(), h11.EndOfMessage):
            pass
        line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        line.send(b"d\r\ndata: first\n\n\r\n")
        assert read.wait(PATIENCE)
        return b"e\r\ndata: second\n\n\r\n0\r\n\r\n"

    origin.answer = answer
    with started.client() as client:
        client.send(client.head("POST", "/", "Transfer-Encoding: chunked") + b"3\r\none\r\n")
        assert arrived.wait(PATIENCE)
        client.send(b"3\r\ntwo\r\n0\r\n\r\n")
        client.asked()
        assert client.next().status_code == 200
        assert client.next().data == b"data: first\n\n"
        read.set()
        assert client.next().data == b"data: second\n\n"
        assert isinstance(client.next(), h11.EndOfMessage)


@pytest.mark.parametrize("when", ["before the answer", "in the answer", "in the request"])
def test_a_client_that_goes_ends_the_request_upstream(pair: Pair, when: str) -> None:
    origin, started = pair
    origin.early = when == "in the request"
    here, ended = threading.Event(), threading.Event()

    def answer(_request, line) -> None:
        if when == "in the answer":
            line.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        here.set()
        if line.wait_for_end():
            ended.set()

    origin.answer = answer
    with started.client() as client:
        client.send(client.head("POST", "/", "Content-Length: 5") + (b"" if origin.early else b"hello"))
        assert here.wait(PATIENCE)
        if when == "in the answer":
            client.asked()
            assert client.next().status_code == 200
    assert ended.wait(PATIENCE)


def test_continue_comes_from_the_upstream(pair: Pair) -> None:
    origin, started = pair
    origin.early = True

    def answer(request, line) -> bytes:
        assert request["expect"] == ["100-continue"]
        line.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert line.next().data == b"hello"
        return ok()

    origin.answer = answer
    with started.client() as client:
        client.send(client.head("POST", "/", "Content-Length: 5", "Expect: 100-continue"))
        client.asked()
        assert client.next().status_code == 100
        client.send(b"hello")
        assert client.next().status_code == 200
    with started.client() as client:  # refused: nothing of the body is waited for
        client.send(client.head("POST", "/", "Content-Length: 5", "Expect: 100-continue", "X-Api-Key: no"))
        status, headers, _ = client.answer()
        assert status == 401 and headers["connection"] == "close"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://evil.example/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\netag: x\r\ncontent-length: 9\r\n\r\n",
    ],
    ids=["429", "307", "204", "304"],
)
def test_answers_pass_as_they_are(pair: Pair, answer: bytes) -> None:
    """Errors and redirects too: none is followed."""
    origin, started = pair
    origin.answer = lambda _request, _line: answer
    with started.client() as client:
        client.ask("GET")
        assert client.raw == answer
    assert len(origin.requests) == 1


def test_head_has_a_length_and_no_body(pair: Pair) -> None:
    origin, started = pair
    origin.answer = lambda _request, _line: b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n"
    with started.client() as client:
        assert client.ask("HEAD", "/")[1:] == ({"content-length": "12"}, b"")
        assert client.ask("HEAD", "/")[1:] == ({"content-length": "12"}, b"")
    assert origin.lines == 1


def test_large_bodies(pair: Pair) -> None:
    origin, started = pair
    body = hashlib.shake_128(b"large").digest(12_000_000)
    origin.answer = lambda request, _line: ok(request.body)
    with started.client() as client:
        client.send(client.head("POST", "/", f"Content-Length: {len(body)}"))
        sender = threading.Thread(target=client.send, args=(body,))
        sender.start()
        status, _, back = client.answer()
        sender.join()
    assert status == 200 and back == body == origin.requests[0].body


def test_an_upstream_that_breaks_off(pair: Pair) -> None:
    """Before its answer: 502, with words. In it: half an answer does not look whole. Between two: as natively."""
    origin, started = pair
    origin.answer = lambda _request, _line: None
    with started.client() as client:
        status, _, body = client.ask()
        assert status == 502 and "upstream" in json.loads(body)["error"]["message"]

    def half(_request, line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")

    origin.answer = half
    with started.client() as client, pytest.raises((h11.RemoteProtocolError, ConnectionResetError)):
        client.ask()
    origin.answer = lambda _request, line: line.send(ok())  # and closes
    with started.client() as client:
        assert client.ask()[0] == 200
        assert client.socket.recv(1) == b""


def test_an_upstream_that_answers_early(pair: Pair) -> None:
    """Before it has the whole request: the client reads it, and the rest of its body hurts nobody."""
    origin, started = pair
    origin.early = True

    def answer(_request, line) -> None:
        line.send(b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        while line.socket.recv(1 << 16):
            pass

    origin.answer = answer
    with started.client() as client:
        client.send(client.head("POST", "/", "Content-Length: 500000") + b"x" * 100_000)
        assert client.answer()[0] == 413


def test_an_upstream_that_is_down() -> None:
    with Origin() as gone:
        url = gone.url
    with broker(url) as started, started.client() as client:
        status, _, body = client.ask(body=b"x" * 100)
        assert status == 502 and "cannot be reached: Connection refused" in json.loads(body)["error"]["message"]
        assert client.ask(body=b"x" * 100)[0] == 502  # on the same connection
