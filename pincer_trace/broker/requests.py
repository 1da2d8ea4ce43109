"""What becomes of a request before it goes on, and of the head of a response before it comes back. Pure.

The way leads to one upstream alone, whatever a request says: no part of it chooses a host. What is checked here is that
it is meant for this broker at all, that it shows a handle, and that nothing in it could be read in two ways.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hmac import compare_digest
from urllib.parse import unquote_to_bytes

Headers = list[tuple[bytes, bytes]]

# Of one connection, not of the message. RFC 9110, 7.6.1
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te",
     b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip
_CREDENTIALS = (b"api-key", b"authorization")  # ends of names
# Where some APIs take a credential, too. Google's have all of their parameters with a `$` as well, and headers in one.
_IN_QUERIES = frozenset((b"key", b"access_token", b"oauth_token", b"api_key", b"api-key", b"apikey", b"httpheaders"))
_WITH_CREDENTIALS = (b"multipart/mixed", b"application/x-www-form-urlencoded")  # bodies. RFC 6750, 2.2, for the latter
_BEARER = b"bearer "
_SECRET = 16  # bytes
# Half of an answer could be half of a key, which nothing finds in it. Nobody has to answer in ranges. RFC 9110, 14.2
_RANGES = (b"range", b"if-range")
_NOT_RELAYED = (b"CONNECT", b"TRACE")  # a tunnel; and what sends back all that it was sent
_SEEN_THROUGH = (b"identity", b"gzip", b"x-gzip", b"deflate")


class Refused(Exception):
    """A request that is answered here: `status`, the API's word for it, and for people what to do."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    @property
    def body(self) -> bytes:
        """In the shape of the API's own errors, which clients show."""
        error = {"type": self.kind, "message": f"pincer-trace: {self}"}
        return json.dumps({"type": "error", "error": error}).encode()


class Keys:
    """The keys that stay here, each by the handle that the worker has in its place."""

    def __init__(self, by_handle: Mapping[bytes, bytes]) -> None:
        self._by_handle = dict(by_handle)

    @property
    def secrets(self) -> list[bytes]:
        """What is searched for in what comes back. A shorter word is no secret, and could be in any answer."""
        return [key for key in self._by_handle.values() if len(key) >= _SECRET]

    def of(self, shown: bytes) -> bytes | None:
        """The key for what was shown; each comparison takes as long as any."""
        found = None
        for handle, key in self._by_handle.items():
            if compare_digest(handle, shown):
                found = key
        return found


class Admission:
    """What one broker lets pass: for requests to `names` (its own HOST:PORT), below the path of the upstream."""

    def __init__(self, names: Sequence[bytes], authority: bytes, path: bytes, keys: Keys) -> None:
        self._names = names
        self._authority = authority
        self._path = path
        self._keys = keys

    def admit(self, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, Headers]:
        """The target and the headers that go on. Names of headers come in small letters. Raises Refused."""
        given = list(headers)
        if method in _NOT_RELAYED:
            raise Refused(405, "invalid_request_error", f"the broker relays no {method.decode()}")
        if not _is_plain(target):
            raise Refused(400, "invalid_request_error", "the broker relays to its one upstream: the target is a path")
        if [value.lower() for name, value in given if name == b"host"] not in [[each] for each in self._names]:
            raise Refused(421, "invalid_request_error", "this is the broker's address, and the request names another")
        if (b"upgrade", b"websocket") in ((name, value.lower()) for name, value in given):
            raise Refused(426, "invalid_request_error", "the broker relays HTTP, and no WebSocket")
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in given}:
            raise Refused(400, "invalid_request_error", "a body has one length: Content-Length or chunked")
        if _IN_QUERIES & _names_in_query(target):
            raise Refused(401, "authentication_error", _NO_HANDLE)
        if any(
            name == b"content-type" and value.strip().lower().startswith(_WITH_CREDENTIALS) for name, value in given
        ):
            raise Refused(
                415, "invalid_request_error", "the broker relays no form and no batch: they may hold credentials"
            )
        out: Headers = [(b"host", self._authority), (b"accept-encoding", b"identity")]
        shown = 0
        for name, value in _end_to_end(given, dropped=(b"host", b"accept-encoding", b"cookie", *_RANGES)):
            if name.replace(b"_", b"-").endswith(_CREDENTIALS):  # to some servers both are the same name
                value = self._exchanged(value)
                shown += 1
            out.append((name, value))
        if not shown:
            raise Refused(401, "authentication_error", _NO_HANDLE)
        if (b"transfer-encoding", b"chunked") in ((name, value.strip().lower()) for name, value in given):
            out.append((b"transfer-encoding", b"chunked"))
        return self._path + target, out

    def _exchanged(self, value: bytes) -> bytes:
        """A credential with the key in the place of the handle. What is no handle of ours goes nowhere: by another
        account at this upstream, files would leave.
        """
        before, shown = b"", value.strip()
        if shown[: len(_BEARER)].lower() == _BEARER:
            before, shown = b"Bearer ", shown[len(_BEARER) :].strip()
        key = self._keys.of(shown)
        if key is None:
            raise Refused(401, "authentication_error", _WRONG_HANDLE)
        return before + key


_NO_HANDLE = "a request by this broker shows the handle that the run was given in a header, in the place of the key"
_WRONG_HANDLE = (
    "this is not the handle of this run. A login or a key of the program's own does not pass here: start pincer-trace "
    "without the key's variable, and there is no broker"
)


def answer_headers(headers: Iterable[tuple[bytes, bytes]], scrub: Callable[[bytes], bytes], *, opened: bool) -> Headers:
    """The headers of a response that come back. `opened`: its body does so without its content encoding."""
    dropped = (b"content-encoding", b"content-length") if opened else ()
    return [(scrub(name), scrub(value)) for name, value in _end_to_end(list(headers), dropped)]


def trailers(headers: Iterable[tuple[bytes, bytes]], scrub: Callable[[bytes], bytes]) -> Headers:
    """The trailer fields of a response, without those that would mean something in its head."""
    return [(scrub(name), scrub(value)) for name, value in headers if not name.startswith((b"content-", b"transfer-"))]


def encoding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """How a response's body is encoded though nobody asked for it, b"" for not at all. Raises Refused."""
    named = [
        part.strip().lower() for name, value in headers if name == b"content-encoding" for part in value.split(b",")
    ]
    named = [each for each in named if each and each != b"identity"]
    if len(named) > 1 or not set(named) <= set(_SEEN_THROUGH):
        raise Refused(502, "api_error", "the upstream answers in an encoding that cannot be searched for the key")
    return named[0].removeprefix(b"x-") if named else b""


def _end_to_end(headers: Headers, dropped: Sequence[bytes]) -> Headers:
    """Without those of the connection: the known ones, and those that it names itself."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    left_out = _HOP_BY_HOP | named | set(dropped)
    return [(name, value) for name, value in headers if name not in left_out]


def _names_in_query(target: bytes) -> set[bytes]:
    query = target.partition(b"?")[2].replace(b";", b"&")
    names = (unquote_to_bytes(each.partition(b"=")[0].replace(b"+", b" ")) for each in query.split(b"&"))
    return {name.strip().lstrip(b"$").lower() for name in names}


def _is_plain(target: bytes) -> bool:
    """A path from the root, with or without a query, that leads no way up."""
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/") or path.startswith(b"//") or b"#" in target or b"\\" in path:
        return False
    if any(byte <= 0x20 or byte >= 0x7F for byte in path + query):
        return False
    return not {b".", b".."} & set(unquote_to_bytes(path).replace(b"\\", b"/").split(b"/"))
