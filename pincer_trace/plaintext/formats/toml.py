"""TOML: tables, and keys with one handle for each value, whatever it is."""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Piece, line_end, text_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 64 * 1024  # of a value in brackets
_PART = rb"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')"""
_KEY = rb"%b(?:[ \t]*+\.[ \t]*+%b)*+" % (_PART, _PART)
_TABLE = re.compile(rb"[ \t]*+(\[\[?)[ \t]*+(%b)[ \t]*+(\]\]?)(?=[ \t]*+(?:#[^\n]*+)?+(?:\r?\n|\r?\Z))" % _KEY)
_ENTRY = re.compile(rb"[ \t]*+(%b)[ \t]*+=[ \t]*+" % _KEY)
_BLANK = re.compile(rb"[ \t]*+(?:#[^\n]*+)?+(?:\r?\n|\r?\Z)")
_STRING = re.compile(
    rb'"""(?:[^"\\]++|\\.|""?(?!"))*+"""(?:"")?+"?|'
    rb"'''(?:[^']++|''?(?!'))*+'''(?:'')?+'?|"
    rb'"(?:[^"\\\n]++|\\[^\n])*+"|'
    rb"'[^'\n]*+'",
    re.DOTALL,
)
_PLAIN = re.compile(rb"[A-Za-z0-9+_.:-]++(?: [0-9][0-9:.+Zz-]*+)?+")
_INSIDE = re.compile(rb"""[^"'#\[\]{}]++|#[^\n]*+""")


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """Tables and entries, in order. What is no TOML ends them."""
    at, size = text_start(content), len(content)
    hidden = False  # in a table whose name is not shown
    while at < min(size, limit):
        blank = _BLANK.match(content, at)
        if blank is not None:
            at = blank.end()
            continue
        table = _TABLE.match(content, at)
        if table is not None and len(table[1]) == len(table[3]):
            end = line_end(content, table.end())[1]
            hidden = not is_name(table[2])
            if not hidden:
                shown = table[1] + table[2] + table[3]
                yield Line([Piece(table.start(), table.end(), shown)], end, names=(table.span(2),))
            at = end
            continue
        entry = _ENTRY.match(content, at)
        stop = _value(content, entry.end()) if entry is not None else -1
        rest = _BLANK.match(content, stop) if stop >= 0 else None
        if entry is None or rest is None:
            yield Line([Piece(at, size, None)], size, broken="this is no TOML")
            return
        if not hidden and is_name(entry[1]):
            pieces = [Piece(entry.start(), entry.end(), entry[1] + b" = "), Piece(entry.end(), stop, None)]
            yield Line(pieces, rest.end(), names=(entry.span(1),), field=entry[1])
        at = rest.end()


def _value(content: bytes, start: int) -> int:
    """Where the value ends that begins at `start`; -1 if it does not."""
    found = _STRING.match(content, start)
    if found is None and content[start : start + 3] not in {b'"""', b"'''"}:
        found = _PLAIN.match(content, start)
    if found is not None:
        return found.end()
    at, depth, end = start, 0, min(len(content), start + LONGEST)
    while at < end:
        found = _INSIDE.match(content, at) or _STRING.match(content, at)
        if found is not None and depth:
            at = found.end()
            continue
        letter = content[at : at + 1]
        if letter in {b"[", b"{"}:
            depth += 1
        elif letter in {b"]", b"}"} and depth:
            depth -= 1
        else:
            return -1
        at += 1
        if not depth:
            return at
    return -1
