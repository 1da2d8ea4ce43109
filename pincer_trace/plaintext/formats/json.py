"""JSON: the structure as it is, keys, and one handle for each string, number or word.

A key that is not shown ends what is shown: so all that is hidden is in one place, at the end.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Malformed, Piece, text_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN, CLOSE, KEY, SCALAR, COMMA, COLON = "open", "close", "key", "scalar", "comma", "colon"
DEEPEST = 64  # what is deeper is not shown
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(
    rb'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"|'
    rb"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)(?![0-9A-Za-z_.+-])"
)
_MARKS = {b"{": OPEN, b"[": OPEN, b"}": CLOSE, b"]": CLOSE, b",": COMMA, b":": COLON}
_CLOSERS = {0x7B: b"}", 0x5B: b"]"}
_PLAIN_KEYS = frozenset({b"https://index.docker.io/v1/"})


class Token:
    """One token: what it is, where, and the brackets that are open behind it, outermost first."""

    __slots__ = ("end", "kind", "open", "start")

    def __init__(self, kind: str, start: int, end: int, open: bytes) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.open = open


def tokens(content: bytes) -> Iterator[Token]:
    """The tokens of a JSON text; of what is open, the outermost. Raises Malformed where it is none."""
    at, size = text_start(content), len(content)
    stack = bytearray()
    expected = {OPEN, SCALAR}
    while True:
        space = _SPACE.match(content, at)
        at = space.end() if space is not None else at
        if at >= size:
            break
        kind = _MARKS.get(content[at : at + 1], SCALAR)
        end = at + 1
        if kind is SCALAR:
            found = _SCALAR.match(content, at)
            if found is None:
                raise Malformed(_where(content, at))
            end = found.end()
            if KEY in expected and content[at] == 0x22:
                kind = KEY
        if kind not in expected:
            raise Malformed(_where(content, at))
        if kind is OPEN:
            stack.append(content[at])
            expected = {KEY, CLOSE} if content[at] == 0x7B else {OPEN, SCALAR, CLOSE}
        elif kind is CLOSE:
            if content[at : at + 1] != _CLOSERS[stack.pop()]:
                raise Malformed(_where(content, at))
        elif kind is KEY:
            expected = {COLON}
        elif kind is COLON:
            expected = {OPEN, SCALAR}
        elif kind is COMMA:
            expected = {KEY} if stack[-1] == 0x7B else {OPEN, SCALAR}
        if kind in {CLOSE, SCALAR}:
            expected = {COMMA, CLOSE} if stack else set()
        yield Token(kind, at, end, bytes(stack[: DEEPEST + 1]))
        at = end
    if expected:
        raise Malformed(_where(content, size))


def _where(content: bytes, at: int) -> str:
    line = content.count(b"\n", 0, at) + 1
    return f"line {line}: this is no JSON"


class JsonLine(Line):
    """A line with the brackets that are open behind it; with a comma, but where one is closed next."""

    __slots__ = ("open",)

    def __init__(self, pieces: list[Piece], token: Token, *, name: tuple[int, int] | None = None, field: bytes = b""):
        super().__init__(pieces, token.end, names=(name,) if name is not None else (), field=field)
        self.open = token.open

    def before(self, close: bool) -> JsonLine:
        """What it is when it is known whether a bracket is closed behind it."""
        self.goes_on = close and not self._opens
        if not close and not self._opens:
            self.pieces.append(Piece(self.end, self.end, b","))
        return self

    @property
    def _opens(self) -> bool:
        last = self.pieces[-1].shown
        return last is not None and last.endswith((b"{", b"["))


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """A line for each member, item and bracket, up to the last bracket."""
    held: JsonLine | None = None
    for kind, line in _lines(content, limit):
        if held is not None:
            yield held.before(kind is CLOSE)
        held = line
    if held is not None:
        yield held.before(False)


def _lines(content: bytes, limit: int) -> Iterator[tuple[str, JsonLine]]:
    key: Token | None = None
    for token in tokens(content):
        depth = len(token.open)
        if depth > DEEPEST or token.start >= limit:
            return
        if token.kind is KEY:
            if not is_shown(content[token.start + 1 : token.end - 1]):
                return
            key = token
        elif token.kind in {OPEN, SCALAR}:
            if not depth:
                raise Malformed("it has no members")
            start, label, name, field = token.start, b"  " * (depth - (token.kind is OPEN)), None, b"item"
            if key is not None:
                start, name = key.start, (key.start + 1, key.end - 1)
                field = content[slice(*name)]
                label += b'"' + field + b'": '
            if token.kind is OPEN:
                pieces = [Piece(start, token.end, label + content[token.start : token.end])]
            else:
                pieces = [Piece(start, token.start, label), Piece(token.start, token.end, None)]
            yield token.kind, JsonLine(pieces, token, name=name, field=field)
            key = None
        elif token.kind is CLOSE and depth:
            shown = b"  " * depth + content[token.start : token.end]
            yield CLOSE, JsonLine([Piece(token.start, token.end, shown)], token)


def is_shown(key: bytes) -> bool:
    """Of a key without its quotes."""
    return is_name(key) or key in _PLAIN_KEYS


def last(remainder: bytes, line: Line | None) -> bytes:
    """The remainder as a member of what is open behind `line`, and what closes it."""
    opened = line.open if isinstance(line, JsonLine) else b""
    if not opened:
        return remainder + b"\n"
    label = b'"pincer": "' if opened[-1] == 0x7B else b'"'
    closers = [b"  " * depth + _CLOSERS[opened[depth]] + b"\n" for depth in reversed(range(len(opened)))]
    return b"  " * len(opened) + label + remainder + b'"\n' + b"".join(closers)
