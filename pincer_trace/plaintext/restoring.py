"""An edited view becomes the file again: each handle what it stands for, all else as it was written.

Lines that are as they were give the file's own bytes; hidden lines stay where they were, between their neighbours. A
value's handle that is gone deletes the entry. What must not happen is that an edit brings hidden bytes to a place where
the next view shows them. Two checks are against that. A handle must be a whole value, of a text that is well formed:
so what is made of it does not depend on what it hides. And of the restored file each byte that was hidden before
must be hidden again.
"""

from __future__ import annotations

import re

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.alignment import matches
from pincer_trace.plaintext.handles import Handle
from pincer_trace.plaintext.pieces import Malformed
from pincer_trace.plaintext.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.plaintext.kinds import Kind
    from pincer_trace.plaintext.summary import Shown, View

    Check = Callable[[Handle], Refusal | None]

_HANDLE = re.compile(rb"pincer:[A-Za-z0-9]{8,}(?:~[0-9]+)?")
_BOM = b"\xef\xbb\xbf"


class Restored:
    """The file. `dropped` are the values that are gone with their handles; `kept` says where those of others begin."""

    __slots__ = ("content", "dropped", "kept", "values")

    def __init__(self, content: bytes, values: int, dropped: tuple[Handle, ...], kept: tuple[tuple[int, Handle], ...]):
        self.content = content
        self.values = values
        self.dropped = dropped
        self.kept = kept

    @property
    def drops_most(self) -> bool:
        """Whether more than half of the values that were shown would go: a person should say yes to that."""
        return 2 * len(self.dropped) > self.values

    def __repr__(self) -> str:
        return f"Restored({len(self.dropped)} of {self.values} values dropped)"


class _Writer:
    """The new content, and which of its bytes are copied from where in the old one."""

    def __init__(self, view: View) -> None:
        self.source = view.content
        newline = view.content.find(b"\n")
        self.eol = b"\r\n" if newline > 0 and view.content[newline - 1] == 0x0D else b"\n"
        self.parts: list[bytes] = []
        self.size = 0
        self.copies: list[tuple[int, int, int]] = []  # where it is, where it was, how much
        self.kept: list[tuple[int, Handle]] = []

    def text(self, text: bytes) -> None:
        self.parts.append(text)
        self.size += len(text)

    def copy(self, start: int, end: int) -> None:
        if start < end:
            self.copies.append((self.size, start, end - start))
            self.text(self.source[start:end])

    def fresh_line(self) -> None:
        """What comes next begins a line."""
        if self.parts and not self.parts[-1].endswith(b"\n"):
            self.text(self.eol)

    def value(self, handle: Handle, start: int, end: int) -> None:
        self.kept.append((self.size, handle))
        self.copy(start, end)


def restore(edited: bytes, view: View, check: Check = lambda handle: None) -> Restored | Refusal:
    """The file that `edited` means, which was made from the text of `view`.

    `check` tells of a handle what stands against its use (HandleStore.resolve), and is asked for each that is used,
    and for each that is not of this view, to name the reason.
    """
    edited = edited.removeprefix(_BOM)
    used = _used(edited, view, check)
    if isinstance(used, Refusal):
        return used
    dropped = tuple(handle for handle in view.handles if handle not in used)
    if edited == view.text:
        kept = tuple((start, handle) for handle, (start, _, _) in _sources(view).items())
        return Restored(view.content, len(kept), (), kept)
    written = _written(edited, view)
    if isinstance(written, Refusal):
        return written
    content = b"".join(written.parts)
    shown = _reappears(content, written.copies, view)
    if shown is not None:
        return shown
    return Restored(content, len(view.handles), dropped, tuple(written.kept))


def _used(edited: bytes, view: View, check: Check) -> set[Handle] | Refusal:
    """The handles in the text, each of which may be used once."""
    mine = {view.remainder, *view.handles}
    used: set[Handle] = set()
    for found in _HANDLE.finditer(edited):
        word = found[0].partition(b"~")[0].decode("ascii")
        handle = Handle.parse(word)
        if handle is None or handle not in mine:
            against = check(handle) if handle is not None else None
            return against or Refusal(refusal.UNKNOWN, f"{word[:60]} is no handle of what was read here")
        if handle in used:
            return Refusal(refusal.TWICE, f"{handle} is there twice; one value has one place")
        against = check(handle)
        if against is not None:
            return against
        used.add(handle)
    if view.remainder not in used:
        return Refusal(
            refusal.REMAINDER_MISSING,
            f"the line with {view.remainder} is gone; it stands for the rest of the file: put it back",
        )
    return used


def _sources(view: View) -> dict[Handle, tuple[int, int, Shown]]:
    """Of each value's handle what it stands for, and its line."""
    found: dict[Handle, tuple[int, int, Shown]] = {}
    for shown in view.shown:
        values = [piece for piece in shown.line.pieces if piece.shown is None]
        for handle, piece in zip(shown.handles, values, strict=True):
            found[handle] = (piece.start, piece.end, shown)
    return found


def _written(edited: bytes, view: View) -> _Writer | Refusal:
    """Line by line."""
    lines = [line.removesuffix(b"\r") for line in edited.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    if view.text.endswith(b"\n\n") and lines and not lines[-1]:
        lines.pop()  # it was there only for the length
    text = b"\n".join(lines) + b"\n"
    places = _places(text, view)
    if isinstance(places, Refusal):
        return places
    sources = _sources(view)
    found = matches(view, lines)
    writer = _Writer(view)
    at, done, offset = 0, 0, 0  # in the old content; lines of the view that are done; in the text
    if view.shown or view.content.startswith(_BOM):  # nothing is put before what a file begins with
        at = view.shown[0].line.start if view.shown else len(_BOM)
        writer.copy(0, at)
    free = set(range(len(view.shown))).difference(found.values())  # their comments go where their values go
    for number, line in enumerate(lines):
        inside = [place for place in places if offset <= place[0] < offset + len(line)]
        offset += len(line) + 1
        matched = found.get(number)
        if matched is not None:
            at, done = _skipped(writer, view, done, matched, at)
        writer.fresh_line()
        if matched == len(view.shown):
            writer.copy(max(at, view.cut), len(view.content))
            continue
        shown = view.shown[matched] if matched is not None else None
        if shown is not None and shown.text == line + b"\n":
            _as_it_was(writer, shown)
            continue
        start = offset - len(line) - 1
        if shown is None and len(inside) == 1:
            number = view.shown.index(sources[inside[0][2]][2])
            if number in free:
                free.discard(number)
                shown = view.shown[number]
        _rewritten(writer, line, start, inside, sources, shown)
    return writer


def _skipped(writer: _Writer, view: View, done: int, matched: int, at: int) -> tuple[int, int]:
    """The hidden lines up to the matched one: those of lines that are gone, and its own."""
    for shown in view.shown[done:matched]:
        if at < shown.line.start:
            writer.fresh_line()
            writer.copy(at, shown.line.start)
        at = shown.line.end
    if matched < len(view.shown):
        line = view.shown[matched].line
        if at < line.start:
            writer.fresh_line()
            writer.copy(at, line.start)
        at = line.end
    return at, matched + 1


def _as_it_was(writer: _Writer, shown: Shown) -> None:
    handles = iter(shown.handles)
    for piece in shown.line.pieces:
        if piece.shown is None:
            writer.value(next(handles), piece.start, piece.end)
        else:
            writer.copy(piece.start, piece.end)
    writer.copy(shown.line.stop, shown.line.end)


def _rewritten(
    writer: _Writer,
    line: bytes,
    start: int,
    inside: list[tuple[int, int, Handle]],
    sources: dict[Handle, tuple[int, int, Shown]],
    shown: Shown | None,
) -> None:
    """A line at `start` of the text, with values for its handles, and what followed the value of `shown`."""
    at = 0
    for place_start, place_end, handle in inside:
        writer.text(line[at : place_start - start])
        source_start, source_end, _ = sources[handle]
        writer.value(handle, source_start, source_end)
        at = place_end - start
    writer.text(line[at:])
    if shown is not None and (not inside or at == len(line)):
        writer.copy(shown.line.stop, shown.line.end)
    else:
        writer.text(writer.eol)


def _places(text: bytes, view: View) -> list[tuple[int, int, Handle]] | Refusal:
    """Where each value's handle is, with quotes put around it. Each must be a whole value, or in a comment."""
    places: list[tuple[int, int, Handle]] = []
    values: dict[int, tuple[int, int]] = {}
    hidden_until = 0
    hidden: list[tuple[int, int]] = []
    try:
        for line in view.kind.format.lines(text):
            if line.broken:
                number = text.count(b"\n", 0, line.start) + 1
                return Refusal(refusal.NOT_WELL_FORMED, f"line {number}: {line.broken}")
            hidden.append((hidden_until, line.start))
            hidden.append((line.stop, line.end))
            hidden_until = line.end
            for piece in line.pieces:
                if piece.shown is None:
                    start, end = _trimmed(text, piece.start, piece.end)
                    values[start] = values[start + 1] = (start, end)
    except Malformed as error:
        return Refusal(refusal.NOT_WELL_FORMED, str(error))
    hidden.append((hidden_until, len(text)))
    for found in _HANDLE.finditer(text):
        handle = Handle.parse(found[0].partition(b"~")[0].decode("ascii"))
        if handle is None:
            continue
        start, end = values.get(found.start(), (-1, -1))
        whole = (start, end) == found.span() or (
            (start + 1, end - 1) == found.span() and text[start] == text[end - 1] and text[start] in b"\"'"
        )
        if handle == view.remainder:
            if not whole and not _own_line(text, found.start(), hidden, view):
                return Refusal(refusal.REMAINDER_MOVED, f"{handle} needs its line for itself, as it was")
        elif whole:
            places.append((start, end, handle))
        elif _in_comment(text, found.start(), hidden, view) and b"\n" not in _value(view, handle):
            places.append((*found.span(), handle))
        else:
            return Refusal(refusal.MISPLACED, f"{handle} stands where no value is; a handle is a whole value")
    return places


def _trimmed(text: bytes, start: int, end: int) -> tuple[int, int]:
    while end > start and text[end - 1] in b" \t\r\n":
        end -= 1
    return start, end


def _own_line(text: bytes, at: int, hidden: list[tuple[int, int]], view: View) -> bool:
    before = text[text.rfind(b"\n", 0, at) + 1 : at].strip()
    return before in {b"", view.kind.format.comment} and _is_hidden(at, hidden)


def _in_comment(text: bytes, at: int, hidden: list[tuple[int, int]], view: View) -> bool:
    mark = view.kind.format.comment
    line = text[text.rfind(b"\n", 0, at) + 1 : at].lstrip()
    return bool(mark) and line.startswith(mark) and _is_hidden(at, hidden)


def _is_hidden(at: int, hidden: list[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in hidden)


def _value(view: View, handle: Handle) -> bytes:
    start, end, _ = _sources(view)[handle]
    return view.content[start:end]


def _names(content: bytes, kind: Kind) -> list[tuple[int, int]]:
    """All that views of this content would ever show of it, however much of it they take."""
    spans: list[tuple[int, int]] = []
    try:
        for line in kind.format.lines(content):
            spans += line.names
    except Malformed:
        pass
    return spans


def _reappears(content: bytes, copies: list[tuple[int, int, int]], view: View) -> Refusal | None:
    """Against a restored file of which the next view would show what this one hid."""
    from bisect import bisect_right

    open_before = _names(view.content, view.kind)  # none of what was not of its format
    starts = [start for start, _ in open_before]
    places = [place for place, _, _ in copies]
    for start, end in _names(content, view.kind.again(content)):
        number = max(bisect_right(places, start) - 1, 0)
        for place, source, length in copies[number:]:
            if place >= end:
                break
            low, high = max(start, place), min(end, place + length)
            if low >= high:
                continue
            low, high = low - place + source, high - place + source
            before = bisect_right(starts, low) - 1
            if before < 0 or open_before[before][1] < high:
                line = content.count(b"\n", 0, start) + 1
                return Refusal(refusal.MISPLACED, f"line {line} of the file would show what a handle hides")
    return None
