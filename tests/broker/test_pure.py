"""What a broker decides without any input or output: where to, what may pass, what is taken out."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from pincer_trace.broker.requests import Admission, Keys, Refused, answer_headers
from pincer_trace.broker.scrubbing import Scrubber
from pincer_trace.broker.upstream import Upstream

KEYS = Keys({b"handle": b"a-real-key-of-some-length", b"other": b"another-real-key-xyz"})
OURS = Admission([b"127.0.0.1:9", b"localhost:9"], b"api.example", b"/base", KEYS)


@pytest.mark.parametrize(
    ("url", "scheme", "authority", "path"),
    [
        ("https://api.anthropic.com", "https", "api.anthropic.com", ""),
        ("HTTPS://Api.Example:443/", "https", "api.example", ""),
        ("https://api.example:8443/v1/", "https", "api.example:8443", "/v1"),
        ("http://127.0.0.1:80", "http", "127.0.0.1", ""),
        ("http://[::1]:8080/x/y", "http", "[::1]:8080", "/x/y"),
    ],
)
def test_an_upstream(url: str, scheme: str, authority: str, path: str) -> None:
    found = Upstream.parse(url)
    assert (found.scheme, found.authority, found.path) == (scheme, authority, path)
    assert Upstream.parse(found.url).url == found.url and found.is_private


@pytest.mark.parametrize(
    "url",
    ["", "api.example", "ftp://x", "https://", "https://u@x", "https://u:p@x/", "https://x?q", "https://x/#f",
     "https://x:0", "https://x:65536", "https://x:", "https://x:8a", "https://[::1", "https://[v1.x]", "https://[::1]x",
     "https://a b", "https://x/\r\n", "https://x\\y", "https://xé"],
)  # fmt: skip
def test_no_upstream(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Upstream.parse(url)


def test_who_could_read_it_on_the_way() -> None:
    assert not Upstream.parse("http://gateway.example").is_private
    assert not Upstream.parse("http://127.0.0.1.example").is_private


def admitted(
    *headers: tuple[bytes, bytes], method: bytes = b"POST", target: bytes = b"/x", host: bytes = b"127.0.0.1:9"
):
    return OURS.admit(method, target, [(b"host", host), *headers])


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ([(b"x-api-key", b"handle")], [(b"x-api-key", b"a-real-key-of-some-length")]),
        ([(b"x-goog-api-key", b"handle")], [(b"x-goog-api-key", b"a-real-key-of-some-length")]),
        ([(b"authorization", b"Bearer other")], [(b"authorization", b"Bearer another-real-key-xyz")]),
        ([(b"authorization", b"bearer  handle ")], [(b"authorization", b"Bearer a-real-key-of-some-length")]),
        (
            [(b"x-api-key", b"handle"), (b"authorization", b"Bearer other")],
            [(b"x-api-key", b"a-real-key-of-some-length"), (b"authorization", b"Bearer another-real-key-xyz")],
        ),
        (
            [(b"x-api-key", b"handle"), (b"x-note", b"handle")],
            [(b"x-api-key", b"a-real-key-of-some-length"), (b"x-note", b"handle")],
        ),
        (
            [(b"x-api-key", b"handle"), (b"connection", b"x-secret, close"), (b"x-secret", b"1"), (b"te", b"trailers"),
             (b"upgrade", b"h2c"), (b"range", b"bytes=9-"), (b"if-range", b"x"),
             (b"proxy-authorization", b"Basic x"), (b"accept-encoding", b"br"), (b"cookie", b"sid=other-account")],
            [(b"x-api-key", b"a-real-key-of-some-length")],
        ),
    ],
)  # fmt: skip
def test_a_handle_becomes_its_key_in_the_header_where_it_stands(given, sent) -> None:
    target, headers = admitted(*given, target=b"/v1/messages?beta=true")
    assert target == b"/base/v1/messages?beta=true"
    assert headers == [(b"host", b"api.example"), (b"accept-encoding", b"identity"), *sent]


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (401, {"headers": []}),
        (401, {"headers": [(b"x-api-key", b"")]}),
        (401, {"headers": [(b"x-api-key", b"handl")]}),
        (401, {"headers": [(b"x-api-key", b"a-real-key-of-some-length")]}),
        (401, {"headers": [(b"authorization", b"Basic handle")]}),
        (401, {"headers": [(b"x-api-key", b"handle"), (b"authorization", b"Bearer sk-of-somebody-else")]}),
        (401, {"headers": [(b"x-api-key", b"handle"), (b"x-api-key", b"other-account")]}),
        (401, {"headers": [(b"connection", b"x-api-key"), (b"x-api-key", b"handle")]}),
        (401, {"headers": [(b"x-api-key", b"handle"), (b"x-goog-api-key", b"other-account")]}),
        (401, {"target": b"/x?alt=sse&key=other-account"}),
        (401, {"target": b"/x?alt=sse;%4bey"}),
        (401, {"target": b"/x?access_token=y"}),
        (401, {"target": b"/x?%24access_token=y"}),
        (401, {"target": b"/x?$httpHeaders=Authorization%3A+Bearer+other-account"}),
        (401, {"headers": [(b"x-api-key", b"handle"), (b"x_api_key", b"other-account")]}),
        (401, {"headers": [(b"x-api-key", b"handle"), (b"api-key", b"other-account")]}),
        (415, {"headers": [(b"x-api-key", b"handle"), (b"content-type", b" Multipart/Mixed; boundary=x")]}),
        (415, {"headers": [(b"x-api-key", b"handle"), (b"content-type", b"application/x-www-form-urlencoded")]}),
        (426, {"headers": [(b"x-api-key", b"handle"), (b"connection", b"Upgrade"), (b"upgrade", b"WebSocket")]}),
        (405, {"method": b"CONNECT", "target": b"evil.example:443"}),
        (405, {"method": b"TRACE"}),
        (421, {"host": b"evil.example"}),
        (421, {"host": b"127.0.0.1"}),
        (421, {"headers": [(b"x-api-key", b"handle"), (b"host", b"127.0.0.1:9")]}),
        (400, {"target": b"*"}),
        (400, {"target": b"http://evil.example/"}),
        (400, {"target": b"//evil.example/x"}),
        (400, {"target": b"@evil.example/x"}),
        (400, {"target": b"/\\evil"}),
        (400, {"target": b"/a/../b"}),
        (400, {"target": b"/a/%2e%2E"}),
        (400, {"target": b"/a%2f..%5Cb"}),
        (400, {"target": b"/./b"}),
        (400, {"target": b"/a#b"}),
        (400, {"target": b"/a\xe9"}),
        (400, {"headers": [(b"x-api-key", b"handle"), (b"content-length", b"1"), (b"transfer-encoding", b"chunked")]}),
    ],
)
def test_what_does_not_pass(status: int, request_: dict) -> None:
    headers = request_.pop("headers", [(b"x-api-key", b"handle")])
    with pytest.raises(Refused) as refused:
        admitted(*headers, **request_)
    assert refused.value.status == status
    assert b"real-key" not in refused.value.body and refused.value.body.startswith(
        b'{"type": "error", "error": {"type": '
    )


def test_a_key_in_the_head_of_an_answer() -> None:
    scrub = Scrubber(KEYS.secrets).whole
    headers = [
        (b"set-cookie", b"k=a-real-key-of-some-length;"),
        (b"content-encoding", b"gzip"),
        (b"content-length", b"3"),
    ]
    assert answer_headers(headers, scrub, opened=True) == [(b"set-cookie", b"k=*************************;")]


def test_a_short_word_is_not_searched_for() -> None:
    assert Keys({b"h": b"dummy"}).secrets == []
    assert Scrubber([]).feed(b"dummy") == b"dummy"


@given(
    some.lists(some.text("ab", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=3),
    some.lists(some.text("abc", max_size=6).map(str.encode), max_size=12),
)
@example([b"ab", b"abba"], [b"ab", b"b", b"a"])
@example([b"aab", b"bcc"], [b"aab", b"x"])
def test_a_secret_is_taken_out_wherever_the_stream_is_cut(secrets: list[bytes], pieces: list[bytes]) -> None:
    scrubber = Scrubber(secrets)
    out = b"".join([*(scrubber.feed(piece) for piece in pieces), scrubber.end()])
    assert out == Scrubber(secrets).whole(b"".join(pieces))
    assert not any(secret in out for secret in secrets)
    assert len(out) == sum(map(len, pieces))


def test_nothing_is_held_back_that_is_no_beginning() -> None:
    scrubber = Scrubber([b"sk-secret"])
    assert scrubber.feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert scrubber.feed(b"data: s") == b"data: "
    assert scrubber.feed(b"o\n\n") == b"so\n\n"
