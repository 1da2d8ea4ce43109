"""What a format finds in bytes: lines to show, each with names that stay and values that become handles.

A scanner goes from the front and yields `Line`s with offsets into the content. What lies between two lines, and what
follows the last value of a line, is hidden and kept: comments, blank lines, what the format does not know.
"""

from __future__ import annotations

import re

BOM = b"\xef\xbb\xbf"  # what some editors put before a text


class Malformed(Exception):
    """The content is not of the format that it was taken for."""


class Piece:
    """The bytes [start, end) of the content. `shown` stands for them; None where a handle does."""

    __slots__ = ("end", "shown", "start")

    def __init__(self, start: int, end: int, shown: bytes | None) -> None:
        self.start = start
        self.end = end
        self.shown = shown


class Line:
    """One line of a view: pieces without a gap between them, and the end of what belongs to them in the content.

    `names` are the spans that are shown as they are: all else that is shown is the format's own. `field` is what
    a person is told of its values. `broken` is what is not well formed here, empty as a rule. A line that `goes_on` is
    never the last one of a view.
    """

    __slots__ = ("broken", "end", "field", "goes_on", "names", "pieces")

    def __init__(
        self,
        pieces: list[Piece],
        end: int,
        *,
        names: tuple[tuple[int, int], ...] = (),
        field: bytes = b"",
        broken: str = "",
    ) -> None:
        self.pieces = pieces
        self.end = end
        self.names = names
        self.field = field
        self.broken = broken
        self.goes_on = False

    @property
    def start(self) -> int:
        """Where its first piece begins."""
        return self.pieces[0].start

    @property
    def stop(self) -> int:
        """Where its last piece ends; up to `end` it is hidden."""
        return self.pieces[-1].end


def text_start(content: bytes) -> int:
    """Where the text begins."""
    return len(BOM) if content.startswith(BOM) else 0


def without_newline(content: bytes, start: int, end: int) -> int:
    """Where [start, end) ends without the end of its last line."""
    if content.endswith(b"\r\n", start, end):
        return end - 2
    return end - 1 if content.endswith(b"\n", start, end) else end


def comment_start(content: bytes, start: int, end: int) -> int:
    """Where a comment and the space before it begin in a line, `end` where there is none."""
    found = [at for at in (content.find(b" #", start, end), content.find(b"\t#", start, end)) if at >= 0]
    return start + len(content[start : min(found)].rstrip(b" \t")) if found else end


def below(content: bytes, at: int, indent: int) -> int:
    """Where the lines end that are further in than `indent`, with blank ones between, from the line at `at`."""
    deeper = re.compile(
        rb"(?:(?:[ \t]*+\r?\n)*+[ \t]{%d,}+[^ \t\r\n][^\n]*+(?:\n|\Z))*+" % (indent + 1) if indent < 1000 else rb""
    )
    found = deeper.match(content, at)
    return found.end() if found is not None else at


def line_end(content: bytes, start: int) -> tuple[int, int]:
    """Of the line in which `start` lies: where its text ends, and where the next one begins."""
    newline = content.find(b"\n", start)
    if newline < 0:
        return len(content), len(content)
    text = newline - 1 if newline > start and content[newline - 1] == 0x0D else newline
    return text, newline + 1
