"""An edited view of a format that goes by lines."""

from __future__ import annotations

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.alignment import matches
from pincer_trace.plaintext.handles import Handle, mentioned
from pincer_trace.plaintext.pieces import Malformed, text_start
from pincer_trace.plaintext.refusal import Refusal
from pincer_trace.plaintext.writing import Writer, sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.summary import Shown, View
    from pincer_trace.plaintext.writing import Source

    Place = tuple[int, int, Handle]


def write(edited: bytes, view: View) -> Writer | Refusal:
    """The file that the text means; all its handles are of this view, and each is there once."""
    lines = [line.removesuffix(b"\r") for line in edited.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    if view.text.endswith(b"\n\n") and lines and not lines[-1]:
        lines.pop()  # it was there only for the length
    places = _Text(b"\n".join(lines) + b"\n", view).places()
    if isinstance(places, Refusal):
        return places
    values = sources(view)
    found = matches(view, lines)
    free = set(range(len(view.shown))).difference(found.values())  # their comments go where their values go
    writer = Writer(view)
    done, offset = 0, 0  # lines of the view that are done; in the text
    at = view.shown[0].line.start if view.shown else text_start(view.content)  # in the old content
    writer.copy(0, at)  # nothing is put before what a file begins with
    for number, line in enumerate(lines):
        start, offset = offset, offset + len(line) + 1
        inside = [place for place in places if start <= place[0] < offset]
        matched = found.get(number)
        if matched is not None:
            at, done = _hidden_lines(writer, view, done, matched, at), matched + 1
        if matched == len(view.shown):
            tail = max(at, view.cut)
            writer.line(tail)
            writer.copy(tail, len(view.content))
            continue
        shown = view.shown[matched] if matched is not None else None
        if shown is not None:
            at = shown.line.end
            if shown.text == line + b"\n":
                _as_it_was(writer, shown)
                continue
        elif len(inside) == 1 and (owner := view.shown.index(values[inside[0][2]][1])) in free:
            free.discard(owner)
            shown = view.shown[owner]
        writer.line()
        mark = view.format.comment
        comment = mark if mark and line.lstrip().startswith(mark) else b""
        _rewritten(writer, line, start, inside, values, shown, comment)
    return writer


def _hidden_lines(writer: Writer, view: View, done: int, matched: int, at: int) -> int:
    """The hidden lines up to the matched one: those before lines that are gone, and before itself. Where they end."""
    for number in range(done, min(matched + 1, len(view.shown))):
        line = view.shown[number].line
        if at < line.start:
            writer.line(at)
            writer.copy(at, line.start)
        at = line.start if number == matched else line.end
    return at


def _as_it_was(writer: Writer, shown: Shown) -> None:
    handles = iter(shown.handles)
    writer.line(shown.line.start)
    for piece in shown.line.pieces:
        if piece.shown is None:
            writer.value(next(handles), piece.start, piece.end)
        else:
            writer.copy(piece.start, piece.end)
    writer.copy(shown.line.stop, shown.line.end)


def _rewritten(
    writer: Writer,
    line: bytes,
    start: int,
    inside: list[Place],
    values: dict[Handle, Source],
    shown: Shown | None,
    comment: bytes,
) -> None:
    """A line at `start` of the text, with values for its handles, and what followed the value of `shown`.

    In a `comment` each line of a value becomes one.
    """
    at = 0
    for first, end, handle in inside:
        writer.text(line[at : first - start])
        piece, _ = values[handle]
        writer.value(handle, piece.start, piece.end, comment)
        at = end - start
    writer.text(line[at:])
    if shown is not None and (not inside or at == len(line)):
        writer.copy(shown.line.stop, shown.line.end)
    else:
        writer.text(writer.eol)


class _Text:
    """An edited text as its format reads it: where its values are, and what is hidden."""

    def __init__(self, text: bytes, view: View) -> None:
        self._text = text
        self._view = view
        self._values: dict[int, tuple[int, int]] = {}  # by their first byte, and by the one behind a quote
        self._hidden: list[tuple[int, int]] = []
        self._head = len(text)  # where the first line ends that the format knows

    def places(self) -> list[Place] | Refusal:
        """Where each value's handle is, with quotes put around it. Each must be a whole value, or in a comment."""
        broken = self._read()
        if broken is not None:
            return broken
        view, text = self._view, self._text
        heads = {*view.shown[0].handles} if view.shown else {view.remainder}
        places: list[Place] = []
        for start, end, handle in mentioned(text):
            if handle is None:
                continue
            first, last = self._values.get(start, (-1, -1))
            quoted = (first + 1, last - 1) == (start, end) and text[first] == text[last - 1] and text[first] in b"\"'"
            if view.format.heads and start < self._head and handle not in heads:
                return Refusal(refusal.MISPLACED, f"{handle} would be in the line that names the columns")
            if handle == view.remainder:
                if not self._has_its_line(start):
                    return Refusal(refusal.REMAINDER_MOVED, f"{handle} needs its line for itself, as it was")
            elif (first, last) == (start, end) or quoted:
                places.append((first, last, handle))
            elif self._is_comment(start):
                places.append((start, end, handle))
            else:
                return Refusal(refusal.MISPLACED, f"{handle} stands where no value is; a handle is a whole value")
        return places

    def _read(self) -> Refusal | None:
        text, until = self._text, 0
        try:
            for line in self._view.format.lines(text):
                if line.broken:
                    number = text.count(b"\n", 0, line.start) + 1
                    return Refusal(refusal.NOT_WELL_FORMED, f"line {number}: {line.broken}")
                if not until:
                    self._head = line.end
                self._hidden += [(until, line.start), (line.stop, line.end)]
                until = line.end
                for piece in line.pieces:
                    if piece.shown is None:
                        value = text[piece.start : piece.end].rstrip(b" \t\r\n")
                        span = (piece.start, piece.start + len(value))
                        self._values[piece.start] = self._values[piece.start + 1] = span
        except Malformed as error:
            return Refusal(refusal.NOT_WELL_FORMED, str(error))
        self._hidden.append((until, len(text)))
        return None

    def _before(self, at: int) -> bytes:
        return self._text[self._text.rfind(b"\n", 0, at) + 1 : at].lstrip()

    def _has_its_line(self, at: int) -> bool:
        """In formats without comments it may be read as a value, if that is of one line."""
        before = self._before(at)
        if before.rstrip() not in {b"", self._view.format.comment}:
            return False
        start, end = self._values.get(at, (at, at))
        return self._is_hidden(at) or (start == at < end and b"\n" not in self._text[start:end])

    def _is_comment(self, at: int) -> bool:
        mark = self._view.format.comment
        return bool(mark) and self._before(at).startswith(mark) and self._is_hidden(at)

    def _is_hidden(self, at: int) -> bool:
        return any(start <= at < end for start, end in self._hidden)
