"""YAML in blocks, as people write it: keys with indentation, items with dashes, one handle for each scalar.

Strings in quotes, block scalars, lists and maps in brackets are one value each. What is written in other ways is hidden
with all that is indented below it; what could be read in several ways (documents that begin on the line of their
`---`, complex keys, tabs) ends what is shown.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Piece, below, comment_start, line_end, text_start, without_newline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 64 * 1024  # of a value in brackets
_START = re.compile(rb"( *+)((?:-(?: ++|(?=\r?\n|\r?\Z)))*+)")
_KEY = re.compile(
    rb"""("[^"\\\r\n]*+"[ ]*+|'[^'\r\n]*+'[ ]*+|"""
    rb"""[^\s#:,\[\]{}&*!|>'"%@`?-][^\r\n:#]*+(?:(?::(?=\S)|(?<=\S)#)[^\r\n:#]*+)*+):(?:[ ]++|(?=\r?\n|\r?\Z))"""
)
_QUOTED = re.compile(rb"""("(?:[^"\\]++|\\.)*+"|'(?:[^']++|'')*+')""", re.DOTALL)
_BLOCK = re.compile(rb"(?:[!&][^\s]*+ ++)*+[|>][0-9+-]{0,2}+[ ]*+(?:#[^\n]*+)?+(?=\r?\n|\r?\Z)")
_BLANK = re.compile(rb"[ ]*+(?:#[^\n]*+)?+(?=\r?\n|\r?\Z)")
_REST = re.compile(rb"[ \t]*+(?:(?<=[ \t])#[^\n]*+)?+(?=\r?\n|\r?\Z)")
_INSIDE = re.compile(rb"""[^"'#\[\]{}]++|(?<=\s)#[^\n]*+|#""")


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """Keys and items, in order."""
    at, size = text_start(content), len(content)
    while at < min(size, limit):
        text, end = line_end(content, at)
        if _BLANK.match(content, at) is not None or content[at:text] == b"---":
            at = end
            continue
        start = _START.match(content, at)
        if start is None or content.startswith((b"---", b"...", b"%"), at) or b"\t" in content[at : start.end() + 1]:
            yield _unclear(at, size)
            return
        column, body = len(start[1]), start.end()
        key, name = _KEY.match(content, body), b""
        if key is not None:
            indent, value, name = body - at, key.end(), key[1].rstrip(b" ")
        else:
            indent = len(start[0].rstrip(b" ")) - 1 if start[2] else column
            value = body
        unclear = not start[2] and key is None and content[body : body + 1] in {b"|", b">", b"&", b"!", b"*"}
        if unclear or content.startswith(b"? ", body) or content[body:text] == b"?":
            yield _unclear(at, size)
            return
        shown = start[0] + (name + b":" if key is not None else b"")
        bare = name[1:-1] if name[:1] in {b'"', b"'"} else name
        is_shown = is_name(bare) if key is not None else bool(start[2])
        names = ((at, body), (body, body + len(name))) if start[2] else ((body, body + len(name)),)
        if _REST.match(content, value) is not None and value <= text:
            stop = value if key is not None else body
            if is_shown and column <= 40:
                yield Line([Piece(at, stop, shown.rstrip(b" "))], end, names=names)
                at = end
            else:
                at = below(content, end, indent)
                while key is not None and content.startswith(
                    b" " * column + b"- ", at
                ):  # its items need not be further in
                    at = below(content, line_end(content, at)[1], column)
            continue
        stop, end = _value(content, value, indent if key is not None or start[2] else column)
        if end < 0:
            yield _unclear(at, size)
            return
        if is_shown and column <= 40:
            shown += b" " if key is not None else b""
            yield Line([Piece(at, value, shown), Piece(value, stop, None)], end, names=names, field=bare or b"item")
        at = end


def _unclear(start: int, size: int) -> Line:
    return Line([Piece(start, size, None)], size, broken="this is no YAML that is understood here")


def _value(content: bytes, start: int, indent: int) -> tuple[int, int]:
    """Where a scalar ends, and where the next line begins; -1 for what does not end. Below it is what is further in."""
    if content[start : start + 1] in {b'"', b"'"}:
        quoted = _QUOTED.match(content, start)
        if quoted is None or _REST.match(content, quoted.end()) is None:
            return -1, -1
        return quoted.end(), _tail(content, quoted.end(), indent)
    if content[start : start + 1] in {b"[", b"{"}:
        stop = _flow(content, start)
        if stop < 0 or _REST.match(content, stop) is None:
            return -1, -1
        return stop, _tail(content, stop, indent)
    text, end = line_end(content, start)
    deeper = below(content, end, indent)
    if _BLOCK.match(content, start) is not None or deeper > end:
        return without_newline(content, start, deeper), deeper  # with all that is below
    return comment_start(content, start, text), end


def _tail(content: bytes, stop: int, indent: int) -> int:
    """Where the next line begins; what is further in than its key would be no YAML, and is hidden."""
    return below(content, line_end(content, stop)[1], indent)


def _flow(content: bytes, at: int) -> int:
    depth, end = 0, min(len(content), at + LONGEST)
    while at < end:
        letter = content[at : at + 1]
        if letter in {b"[", b"{"}:
            depth += 1
            at += 1
            continue
        if letter in {b"]", b"}"}:
            depth -= 1
            at += 1
            if not depth:
                return at
            continue
        found = _QUOTED.match(content, at) or _INSIDE.match(content, at)
        if found is None:
            return -1
        at = found.end()
    return -1
