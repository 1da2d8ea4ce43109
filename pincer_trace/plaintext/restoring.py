"""An edited view becomes the file again: each handle what it stands for, all else as it was written.

Lines that are as they were give the file's own bytes; hidden lines stay where they were, between their neighbours. A
value's handle that is gone deletes the entry. What must not happen is that an edit brings hidden bytes to a place where
the next view shows them. Two checks are against that. A handle must be a whole value, of a text that is well formed:
so what is made of it does not depend on what it hides. And of the restored file each byte that was hidden before
must be hidden again.
"""

from __future__ import annotations

from bisect import bisect_right

from pincer_trace.plaintext import lines, refusal, tokens
from pincer_trace.plaintext.formats import JSON
from pincer_trace.plaintext.handles import Handle, mentioned
from pincer_trace.plaintext.pieces import BOM, Malformed
from pincer_trace.plaintext.refusal import Refusal
from pincer_trace.plaintext.writing import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.plaintext.kinds import Kind
    from pincer_trace.plaintext.summary import View

    Check = Callable[[Handle], Refusal | None]

MOST_BYTES = 256 * 1024


class Restored:
    """The file. `dropped` are the values that are gone with their handles; `kept` says where those of others begin."""

    __slots__ = ("content", "dropped", "kept", "values")

    def __init__(self, content: bytes, values: int, dropped: tuple[Handle, ...], kept: dict[int, Handle]) -> None:
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


def restore(edited: bytes, view: View, check: Check = lambda handle: None) -> Restored | Refusal:
    """The file that `edited` means, which was made from the text of `view`.

    `check` tells of a handle what stands against its use (HandleStore.resolve), and is asked for each that is used,
    and for each that is not of this view, to name the reason.
    """
    edited = edited.removeprefix(BOM)
    if edited != view.text and max(len(edited), len(view.content)) > MOST_BYTES:
        return _too_long()
    used = _used(edited, view, check)
    if isinstance(used, Refusal):
        return used
    if edited == view.text:
        kept = {piece.start: handle for handle, (piece, _) in sources(view).items()}
        return Restored(view.content, len(kept), (), kept)
    written = tokens.write(edited, view) if view.format is JSON else lines.write(edited, view)
    if isinstance(written, Refusal):
        return written
    content = written.content
    dropped = tuple(handle for handle in view.handles if handle not in used)
    shown_before = _names(view.content, view.kind)  # none of what was not of its format
    return _reappears(content, view.kind, written.copies, shown_before) or Restored(
        content, len(view.handles), dropped, written.kept
    )


def append(added: bytes, content: bytes, kind: Kind) -> bytes | Refusal:
    """The file with this behind it, where that makes no name of what was hidden: a last line may be without its end."""
    if max(len(added), len(content)) > MOST_BYTES:
        return _too_long()
    whole = content + added
    shown_before = _names(content, kind, whole=True)
    return _reappears(whole, kind, [(0, 0, len(content))], shown_before) or whole


def _too_long() -> Refusal:
    return Refusal(refusal.TOO_LONG, f"a file of more than {MOST_BYTES // 1024} KiB is not changed by way of its view")


def _used(edited: bytes, view: View, check: Check) -> set[Handle] | Refusal:
    """The handles in the text, each of which may be used once."""
    mine = {view.remainder, *view.handles}
    used: set[Handle] = set()
    for start, end, handle in mentioned(edited):
        if handle is None or handle not in mine:
            against = check(handle) if handle is not None else None
            return against or Refusal(
                refusal.UNKNOWN, f"{edited[start : min(end, start + 60)].decode()} is no handle of what was read here"
            )
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


def _names(content: bytes, kind: Kind, *, whole: bool = False) -> list[tuple[int, int]]:
    """All that views of this content would ever show of it; nothing if it is to be `whole` and is not of its format."""
    spans: list[tuple[int, int]] = []
    try:
        for line in kind.format.lines(content):
            spans += line.names
    except Malformed:
        return [] if whole else spans
    return spans


def _reappears(
    content: bytes, kind: Kind, copies: list[tuple[int, int, int]], shown_before: list[tuple[int, int]]
) -> Refusal | None:
    """Against a file of which the next view would show what was hidden before."""
    starts = [start for start, _ in shown_before]
    places = [place for place, _, _ in copies]
    for start, end in _names(content, kind.again(content)):
        for number in range(max(bisect_right(places, start) - 1, 0), len(copies)):
            place, source, length = copies[number]
            if place >= end:
                break
            low, high = max(start, place), min(end, place + length)
            if low >= high:
                continue
            low, high = low - place + source, high - place + source
            before = bisect_right(starts, low) - 1
            if before < 0 or shown_before[before][1] < high:
                line = content.count(b"\n", 0, start) + 1
                return Refusal(refusal.MISPLACED, f"line {line} of the file would show what a handle hides")
    return None
