"""An edited view of JSON: token by token, so that another layout of it means the same."""

from __future__ import annotations

from difflib import SequenceMatcher

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.formats.json import CLOSE, COMMA, OPEN, SCALAR, JsonLine, tokens
from pincer_trace.plaintext.handles import Handle, mentioned
from pincer_trace.plaintext.pieces import Malformed
from pincer_trace.plaintext.refusal import Refusal
from pincer_trace.plaintext.writing import Writer, sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.formats.json import Token
    from pincer_trace.plaintext.summary import View


MOST = 4000  # tokens, up to which a text keeps the layout of the file


class _Word:
    """A token of a text, with the space before it, and the handle that it is."""

    __slots__ = ("end", "handle", "shown", "space", "start", "token")

    def __init__(self, token: Token, space: int, shown: bytes, handle: Handle | None) -> None:
        self.token = token
        self.space = space
        self.start = token.start
        self.end = token.end
        self.shown = shown
        self.handle = handle


def write(edited: bytes, view: View) -> Writer | Refusal:
    """The file that the text means; all its handles are of this view, and each is there once."""
    try:
        words = _words(edited, view)
    except Malformed as error:
        return Refusal(refusal.NOT_WELL_FORMED, str(error))
    if isinstance(words, Refusal):
        return words
    body = _without_remainder(words, view)
    if isinstance(body, Refusal):
        return body
    before = _shown_words(view)
    writer = Writer(view)
    pairs: dict[int, int] = {}
    if len(body) <= MOST:
        matcher = SequenceMatcher(None, [word.shown for word in before], [word.shown for word in body], autojunk=False)
        for old, new, size in matcher.get_matching_blocks():
            pairs.update(zip(range(new, new + size), range(old, old + size), strict=True))
    values = sources(view)
    for number, word in enumerate(body):
        same = pairs.get(number)
        if same is not None and same - 1 == pairs.get(number - 1, -1):
            writer.copy(before[same].space, before[same].start)
        else:
            writer.text(edited[word.space : word.start])
        if word.handle is not None:
            piece, _ = values[word.handle]
            writer.value(word.handle, piece.start, piece.end)
        elif same is not None:
            writer.copy(before[same].start, before[same].end)
        else:
            writer.text(edited[word.start : word.end])
    _tail(writer, view, bool(body) and body[-1].token.kind is not OPEN)
    return writer


def _words(edited: bytes, view: View) -> list[_Word] | Refusal:
    """The tokens; a handle must be all of a string that is a value, and the remainder's the beginning of one."""
    places = {start: (end, handle) for start, end, handle in mentioned(edited) if handle is not None}
    words: list[_Word] = []
    at = 0
    for token in tokens(edited):
        text = edited[token.start : token.end]
        end, handle = places.pop(token.start + 1, (0, None))
        if handle is not None:
            whole = end == token.end - 1 or handle == view.remainder
            if token.kind is not SCALAR or not whole:
                return _misplaced(handle)
            text = handle.text.encode()
        words.append(_Word(token, at, text, handle))
        at = token.end
    for _, handle in places.values():
        if handle is not None:
            return _misplaced(handle)
    return words


def _misplaced(handle: Handle) -> Refusal:
    return Refusal(refusal.MISPLACED, f"{handle} stands where no value is; a handle is a whole value")


def _without_remainder(words: list[_Word], view: View) -> list[_Word] | Refusal:
    """What the text has before the end of the file, which the remainder stands for together with all that it closes.

    What was added behind the remainder, in the same brackets, comes before it.
    """
    line = view.shown[-1].line
    opened = line.open if isinstance(line, JsonLine) else b""
    moved = Refusal(refusal.REMAINDER_MOVED, f"{view.remainder} must stay in its brackets; put what is new above it")
    at = next(number for number, word in enumerate(words) if word.handle == view.remainder)
    if words[at].token.open != opened:
        return moved
    first = at - 2 if words[at - 1].token.kind not in {OPEN, COMMA} else at  # with its key
    before, behind = words[:first], words[at + 1 :]
    close = next(
        number for number, word in enumerate(behind) if word.token.kind is CLOSE and len(word.token.open) < len(opened)
    )
    added, closers = behind[:close], behind[close:]
    if any(word.token.kind is not CLOSE for word in closers):
        return moved
    if before[-1].token.kind is COMMA:
        before.pop()
    if before[-1].token.kind is OPEN and len(before[-1].token.open) == len(opened) and added:
        added.pop(0)
    return before + added


def _shown_words(view: View) -> list[_Word]:
    """The tokens of the file as far as the view shows them."""
    handles = {piece.start: handle for handle, (piece, _) in sources(view).items()}
    words: list[_Word] = []
    at = 0
    for token in tokens(view.content):
        if token.start >= view.cut:
            break
        handle = handles.get(token.start)
        shown = handle.text.encode() if handle is not None else view.content[token.start : token.end]
        words.append(_Word(token, at, shown, handle))
        at = token.end
    return words


def _tail(writer: Writer, view: View, follows: bool) -> None:
    """The rest of the file, with a comma between where there must be one. `follows`: on a member or an item."""
    start = view.cut
    try:
        first, second = _two(view, start)
    except Malformed:
        first = second = None
    if first is not None and second is not None:
        if first.kind is COMMA and not follows:
            start = first.end
        elif first.kind not in {COMMA, CLOSE} and follows:
            writer.text(b",")
    writer.copy(start, len(view.content))


def _two(view: View, start: int) -> tuple[Token | None, Token | None]:
    found: list[Token] = []
    for token in tokens(view.content):
        if token.start >= start:
            found.append(token)
        if len(found) == 2:
            break
    return (found[0] if found else None), (found[-1] if found else None)
