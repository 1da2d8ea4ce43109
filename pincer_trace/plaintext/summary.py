"""The summary operator: of a protected file, the bounded text that a program sees instead.

A view has at most so many values and so many characters, all in all. It is complete by handles: each byte of the file
is shown, or is in the value of one handle; what is neither a name nor a shown value is in that of the remainder, which
has the last line to itself and is always there, so that a view does not tell whether anything is left out. It is a
function of the file alone, up to the random ids: nothing of an earlier read is in it. Its length is never the file's,
since programs that find both equal take the view for the file (hazard P84).
"""

from __future__ import annotations

from pincer_trace.plaintext.formats import JSON, OPAQUE
from pincer_trace.plaintext.handles import LENGTH, Handle
from pincer_trace.plaintext.pieces import Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.plaintext.formats import Format
    from pincer_trace.plaintext.kinds import Kind
    from pincer_trace.plaintext.pieces import Line, Piece

    Issue = Callable[[bytes, str], Handle]

REMAINDER = b" rest of the file: keep"
WINDOW = 32 * 1024  # what is shown begins in the first bytes of a file
REST_FIELD = "the rest of the file"


class Mode:
    """How much a view tells. `names`: names and structure, else one handle alone; `lengths`: of each value, too."""

    __slots__ = ("characters", "items", "lengths", "name", "names")

    def __init__(
        self, name: str, *, items: int = 8, characters: int = 512, names: bool = True, lengths: bool = False
    ) -> None:
        self.name = name
        self.items = items
        self.characters = characters
        self.names = names
        self.lengths = lengths

    def __repr__(self) -> str:
        return f"Mode({self.name})"


DEFAULT = Mode("default")
LENGTHS = Mode("lengths", lengths=True)
STRICT_SYMBOLIC = Mode("strict-symbolic", names=False)
MODES = {mode.name: mode for mode in (DEFAULT, LENGTHS, STRICT_SYMBOLIC)}


class Shown:
    """One line of a view: what it says, the line of the file that it stands for, and the handles in it."""

    __slots__ = ("handles", "line", "text")

    def __init__(self, line: Line, text: bytes, handles: tuple[Handle, ...]) -> None:
        self.line = line
        self.text = text
        self.handles = handles


class View:
    """What is read instead of a file, and what `restoring.restore` needs to make the file again of it.

    `text` is for the program. The rest is not: `content` is the file, `cut` where in it the shown part ends, `shown`
    the lines, `remainder` the handle of all else, `format` how the text is to be read.
    """

    __slots__ = ("content", "cut", "format", "kind", "remainder", "shown", "text")

    def __init__(
        self, content: bytes, kind: Kind, format: Format, shown: tuple[Shown, ...], remainder: Handle, text: bytes
    ) -> None:
        self.content = content
        self.kind = kind
        self.format = format
        self.shown = shown
        self.cut = shown[-1].line.end if shown else 0
        self.remainder = remainder
        self.text = text

    @property
    def handles(self) -> tuple[Handle, ...]:
        """Those of values, in the order of the view."""
        return tuple(handle for shown in self.shown for handle in shown.handles)

    def __repr__(self) -> str:
        return f"View({self.kind!r}, {len(self.handles)} values, {len(self.text)} bytes)"


def summarise(content: bytes, kind: Kind, issue: Issue, mode: Mode = DEFAULT) -> View:
    """The view of `content`. `issue` gives the handle for a value and the name that a person is told of it."""
    lines: list[Line] = []
    try:
        lines = _chosen(content, kind.format, mode) if mode.names else []
    except Malformed:
        kind = kind.opaque()
    format = kind.format if mode.names and (lines or kind.format is not JSON) else OPAQUE
    shown = tuple(_shown(content, line, issue, mode, format.quote) for line in lines)
    remainder = issue(_hidden(content, lines), REST_FIELD)
    last = format.last(remainder.text.encode() + REMAINDER, lines[-1] if lines else None)
    text = b"".join([each.text for each in shown]) + last
    if len(text) == len(content):
        text += b"\n"
    return View(content, kind, format, shown, remainder, text)


def _chosen(content: bytes, format: Format, mode: Mode) -> list[Line]:
    """The lines from the front that fit into the bounds, together with the last one that they make necessary."""
    chosen: list[Line] = []
    taken = 0
    items, size = 0, 0
    placeholder = b"-" * LENGTH
    for line in format.lines(content, WINDOW):
        if line.broken:
            break
        values = [piece for piece in line.pieces if piece.shown is None]
        items += len(values)
        size += sum(_width(piece, mode, format) for piece in line.pieces) + 1
        if items > mode.items or size + len(format.last(placeholder + REMAINDER, line)) + 1 > mode.characters:
            break
        chosen.append(line)
        if not line.goes_on:
            taken = len(chosen)
    return chosen[:taken]


def _width(piece: Piece, mode: Mode, format: Format) -> int:
    if piece.shown is not None:
        return len(piece.shown)
    return LENGTH + len(_suffix(piece.end - piece.start, mode)) + 2 * len(format.quote)


def _suffix(length: int, mode: Mode) -> bytes:
    return b"~%d" % length if mode.lengths else b""


def _shown(content: bytes, line: Line, issue: Issue, mode: Mode, quote: bytes) -> Shown:
    text: list[bytes] = []
    handles: list[Handle] = []
    field = line.field.decode("ascii", "replace")
    for piece in line.pieces:
        if piece.shown is not None:
            text.append(piece.shown)
            continue
        handle = issue(content[piece.start : piece.end], field)
        handles.append(handle)
        text.append(quote + handle.text.encode() + _suffix(piece.end - piece.start, mode) + quote)
    text.append(b"\n")
    return Shown(line, b"".join(text), tuple(handles))


def _hidden(content: bytes, lines: list[Line]) -> bytes:
    """What is in no line, and what follows the values of one: the remainder's value."""
    hidden, at = [], 0
    for line in lines:
        hidden.append(content[at : line.start])
        hidden.append(content[line.stop : line.end])
        at = line.end
    hidden.append(content[at:])
    return b"".join(hidden)
