"""`.git-credentials`: a URL a line, with the name of its host where it has the shape of one."""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Piece, line_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 4096
_URL = re.compile(rb"(https?://)(\S+)@([A-Za-z0-9.-]+\.[A-Za-z]{2,})(?=/?\r?$)", re.MULTILINE)


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """One for each URL."""
    at = 0
    while at < min(len(content), limit):
        text, end = line_end(content, at)
        found = _URL.match(content, at) if text - at <= LONGEST else None
        if found is not None and is_name(found[3]):
            pieces = [
                Piece(*found.span(1), found[1]),
                Piece(*found.span(2), None),
                Piece(found.end(2), found.end(3), b"@" + found[3]),
            ]
            yield Line(pieces, end, names=(found.span(3),), field=found[3])
        at = end
