"""The restored file while it is written, and which of its bytes come from where in the file before."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.handles import Handle
    from pincer_trace.plaintext.pieces import Piece
    from pincer_trace.plaintext.summary import Shown, View

    Source = tuple[Piece, Shown]


class Writer:
    """The new content, and which of its bytes are copied from where in the old one."""

    def __init__(self, view: View) -> None:
        self.source = view.content
        newline = view.content.find(b"\n")
        self.eol = b"\r\n" if newline > 0 and view.content[newline - 1] == 0x0D else b"\n"
        self.parts: list[bytes] = []
        self.size = 0
        self.copies: list[tuple[int, int, int]] = []  # where it is, where it was, how much
        self.kept: dict[int, Handle] = {}
        self._after = 0  # where in the old content what was written last ends; -1 for a text of its own

    @property
    def content(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)

    def text(self, text: bytes) -> None:
        """What the editor wrote."""
        if text:
            self._add(text)
            self._after = -1

    def copy(self, start: int, end: int) -> None:
        """A part of the old content."""
        if start < end:
            self.copies.append((self.size, start, end - start))
            self._add(self.source[start:end])
            self._after = end

    def value(self, handle: Handle, start: int, end: int, comment: bytes = b"") -> None:
        """The part for which a handle stands; with a mark of comments before each line but the first."""
        self.kept[self.size] = handle
        while comment and (newline := self.source.find(b"\n", start, end)) >= 0:
            self.copy(start, newline + 1)
            self.text(comment + b" ")
            start = newline + 1
        self.copy(start, end)

    def line(self, start: int = -1) -> None:
        """What comes next begins a line, but where it is what followed in the old content too."""
        if self.parts and not self.parts[-1].endswith(b"\n") and self._after != start:
            self.text(self.eol)

    def _add(self, text: bytes) -> None:
        self.parts.append(text)
        self.size += len(text)


def sources(view: View) -> dict[Handle, Source]:
    """For each value's handle what it stands for, and its line."""
    found: dict[Handle, Source] = {}
    for shown in view.shown:
        values = [piece for piece in shown.line.pieces if piece.shown is None]
        for handle, piece in zip(shown.handles, values, strict=True):
            found[handle] = (piece, shown)
    return found
