"""`.env`: `KEY=value`, `export KEY="value"`, values over several lines in quotes, comments.

A quote that is never closed ends what is shown: what follows may be its text.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Piece, comment_start, line_end, text_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY = re.compile(rb"[ \t]*+(export[ \t]++)?([A-Za-z_][\w.-]*+)[ \t]*+=(?!=)[ \t]*+", re.ASCII)
_QUOTED = re.compile(rb"""\$?+(?:"(?:[^"\\]++|\\.)*+"|'[^']*+'|`(?:[^`\\]++|\\.)*+`)""", re.DOTALL)
_OPENED = re.compile(rb"""\$?+["'`]""")
_REST = re.compile(rb"[ \t]*+(?:#[^\n]*+)?+(?=\r?\n|\r?\Z)")


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """The entries, in order."""
    at, size = text_start(content), len(content)
    while at < min(size, limit):
        found = _ENTRY.match(content, at)
        if found is None:
            at = line_end(content, at)[1]
            continue
        stop, end, broken = _value(content, found.end())
        name = found[2]
        if is_name(name):
            shown = (b"export " if found[1] else b"") + name + b"="
            pieces = [Piece(found.start(), found.end(), shown), Piece(found.end(), stop, None)]
            yield Line(pieces, end, names=(found.span(2),), field=name, broken=broken)
        if broken:
            return
        at = end


def _value(content: bytes, start: int) -> tuple[int, int, str]:
    """Where the value ends that begins at `start`, where the next line begins, and what is wrong with it."""
    at = start
    while (quoted := _QUOTED.match(content, at)) is not None:
        at = quoted.end()
    text, end = line_end(content, at)
    if at == start and _OPENED.match(content, at) is None:
        return comment_start(content, at, text), end, ""
    if at > start and _REST.match(content, at) is not None:
        return at, end, ""
    rest = content[at:text]
    if any(mark in rest for mark in (b'"', b"'", b"`")):
        return text, end, "a quote is not closed"
    return text, end, ""
