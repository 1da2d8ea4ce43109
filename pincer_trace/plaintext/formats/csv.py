"""CSV: the names of columns where the first line has them, and a handle for each cell.

A first line of data looks much like one of names. So of the first line only words are shown that columns are
commonly called.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.pieces import Line, Piece, line_end, text_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 200  # columns
LONGEST = 40  # of a column's name
_WORDS = frozenset(
    b"access account active address age amount api app application arn balance bank bic body category city client "
    b"code comment company content count country created currency data database date day description domain email "
    b"enabled end env environment expires expiry file first full group hash home host hostname iban id index ip "
    b"key label last level line login mail message method mobile modified month name no note notes number object "
    b"org organization otp owner passphrase passwd password path permissions phone pin port postcode price private "
    b"profile project public quantity realm region role salt scope secret server service sha start state status "
    b"street subject tag tags tel time timestamp title token total totp type updated uri url urls user userid "
    b"username uuid value values version website year zip".split()
)
_PARTS = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z _.-]")


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """The rows, in order."""
    at, size = text_start(content), len(content)
    first = content[at : line_end(content, at)[0]][:4096]
    mark = max((b",", b";", b"\t", b"|"), key=first.count)
    cell = re.compile(rb'"(?:[^"]++|"")*+"|[^"\r\n%b][^\r\n%b]*+|' % (mark, mark))
    number = 0
    while at < min(size, limit):
        number += 1
        pieces: list[Piece] = []
        names: list[tuple[int, int]] = []
        start = at
        while True:
            found = cell.match(content, at)
            if found is None or (not found[0] and content[at : at + 1] == b'"'):
                yield Line([Piece(start, size, None)], size, broken="a quote is not closed")
                return
            if number == 1 and _is_column(found[0]):
                names.append(found.span())
                pieces.append(Piece(*found.span(), found[0]))
            else:
                pieces.append(Piece(*found.span(), None))
            at = found.end()
            if content[at : at + 1] != mark:
                break
            if len(pieces) > 2 * MOST:
                yield Line([Piece(start, size, None)], size, broken="there are too many columns")
                return
            pieces.append(Piece(at, at + 1, mark))
            at += 1
        stop = at
        if content.startswith(b"\r\n", at):
            at += 2
        elif at < size and content[at : at + 1] in b"\r\n":
            at += 1
        elif at < size:
            yield Line([Piece(start, size, None)], size, broken="a cell goes on behind its quote")
            return
        if stop > start:
            yield Line(pieces, at, names=tuple(names), field=b"row %d" % number)


def _is_column(cell: bytes) -> bool:
    if len(cell) > LONGEST:
        return False
    words = _PARTS.findall(cell[1:-1] if cell.startswith(b'"') else cell)
    return bool(words) and all(word.lower() in _WORDS for word in words)
