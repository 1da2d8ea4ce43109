"""INI and its relatives: AWS credentials, `.pypirc`, `pip.conf`, git configuration, `.npmrc`.

`[section]`, `key = value` or `key: value`, and lines that belong to the value before: indented further than its key, or
after a backslash. Comments have a line of their own; behind a value they are part of it.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext.names import is_name
from pincer_trace.plaintext.pieces import Line, Piece, below, line_end, text_start, without_newline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION = re.compile(rb"([ \t]*+)\[([^\]\r\n]*+)\][ \t]*+(?=[#;\r\n]|\Z)")
_ENTRY = re.compile(rb"([ \t]*+)(//[^\s=]++|[^\s#;\[=:][^\r\n=:]*+)[ \t]*+[=:][ \t]*+")
_REGISTRY = re.compile(rb"//([^/:]+)[\w./-]*/:(_authToken|_password|_auth|username|email|certfile|keyfile)")
_JOINED = re.compile(rb"(?:(?:[^\\\n]++|\\(?!\r?\n))*+\\\r?\n)++")
_TITLE = re.compile(rb'([^\s"]+)(?: "?([^\s"]+)"?)?')


def lines(content: bytes, limit: int) -> Iterator[Line]:
    """Sections and entries, in order."""
    at, size = text_start(content), len(content)
    hidden = False  # in a section whose name is not shown
    while at < min(size, limit):
        section = _SECTION.match(content, at)
        if section is not None:
            end = line_end(content, at)[1]
            title = _TITLE.fullmatch(section[2])
            hidden = title is None or not all(is_name(word) for word in title.groups() if word is not None)
            if not hidden:
                piece = Piece(section.start(), section.end(), section[0].strip())
                yield Line([piece], end, names=(section.span(2),))
            at = end
            continue
        found = _ENTRY.match(content, at)
        if found is None:
            at = line_end(content, at)[1]
            continue
        stop, end = _value(content, found.end(), len(found[1]))
        key = found[2].rstrip(b" \t")
        if not hidden and _is_shown(key):
            shown = key + (b"=" if key.startswith(b"//") else b" = ")
            pieces = [Piece(found.start(), found.end(), shown), Piece(found.end(), stop, None)]
            yield Line(pieces, end, names=((found.start(2), found.start(2) + len(key)),), field=key)
        at = end


def _is_shown(key: bytes) -> bool:
    registry = _REGISTRY.fullmatch(key)
    return is_name(registry[1]) and len(key) <= 80 if registry is not None else is_name(key)


def _value(content: bytes, start: int, indent: int) -> tuple[int, int]:
    """Where a value ends, and where the next line begins; `indent` is that of its key."""
    end = start
    while True:
        joined = _JOINED.match(content, end)
        end = line_end(content, joined.end() if joined is not None else end)[1]
        deeper = below(content, end, indent)
        if deeper == end:
            break
        end = content.rfind(b"\n", 0, deeper - 1) + 1  # its last line may go on, too
        if _JOINED.match(content, end) is None:
            end = deeper
            break
    return without_newline(content, start, end), end
