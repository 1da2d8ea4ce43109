"""`.netrc`: words in pairs, `machine NAME`, `login NAME`, `password WORD`; a macro lasts until an empty line.

Only the format's own words are shown, each pair on a line.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.pieces import Line, Piece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = re.compile(rb'"(?:[^"\\\r\n]++|\\.)*+"|[^\s#]\S*+')
_COMMENT = re.compile(rb"#[^\n]*+")
_SPACE = re.compile(rb"[\s\0]*+")
_BLANK_LINE = re.compile(rb"\n[ \t]*\r?\n")
_PAIRS = frozenset({b"machine", b"login", b"user", b"password", b"account"})


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """The pairs, in order."""
    at, size = 0, len(content)
    while at < min(size, limit):
        at = _after(_SPACE, content, at)
        comment = _COMMENT.match(content, at)
        if comment is not None:
            at = comment.end()
            continue
        word = _WORD.match(content, at)
        if word is None:
            return
        at = word.end()
        if word[0] == b"macdef":
            end = _BLANK_LINE.search(content, at)
            at = size if end is None else end.end()
        elif word[0] == b"default":
            yield Line([Piece(word.start(), at, b"default")], _after(_SPACE, content, at))
        elif word[0] in _PAIRS:
            value = _WORD.match(content, _after(_SPACE, content, at))
            if value is None:
                return
            pieces = [Piece(word.start(), value.start(), word[0] + b" "), Piece(*value.span(), None)]
            at = _after(_SPACE, content, value.end())
            yield Line(pieces, at, field=word[0])


def _after(pattern: re.Pattern[bytes], content: bytes, at: int) -> int:
    found = pattern.match(content, at)
    return found.end() if found is not None else at
