"""The summary operator: of a protected file, the bounded text that a program sees instead.

A view has at most so many values and so many characters, all in all. It is complete by handles: each byte of the file
is shown, or is in the value of one handle; what is neither a name nor a shown value is in that of the remainder, which
has the last line to itself and is always there, so that a view does not tell whether anything is left out. It is a
function of the file alone, up to the random ids: nothing of an earlier read is in it. Its length is never the file's,
since programs that find both equal take the view for the file (hazard P84).
"""

from __future__ import annotations

from pincer_trace.plaintext import formats
from pincer_trace.plaintext.handles import LENGTH, Handle
from pincer_trace.plaintext.pieces import Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.plaintext.kinds import Kind
    from pincer_trace.plaintext.pieces import Line

    Issue = Callable[[bytes, str], Handle]

REMAINDER = b" rest of the file: keep"
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
    the lines, `remainder` the handle of all else.
    """

    __slots__ = ("content", "cut", "kind", "mode", "remainder", "shown", "text")

    def __init__(
        self, content: bytes, kind: Kind, mode: Mode, shown: tuple[Shown, ...], cut: int, remainder: Handle, text: bytes
    ) -> None:
        self.content = content
        self.kind = kind
        self.mode = mode
        self.shown = shown
        self.cut = cut
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
    try:
        lines = _chosen(content, kind, mode) if mode.names else []
    except Malformed:
        kind = type(kind)(formats.OPAQUE, kind.name)
        lines = []
    shown = tuple(_shown(content, line, issue, mode) for line in lines)
    cut = lines[-1].end if lines else 0
    remainder = issue(_hidden(content, lines, cut), REST_FIELD)
    last = kind.format.last(remainder.text.encode() + REMAINDER, lines[-1] if lines else None)
    text = b"".join([each.text for each in shown]) + last
    if len(text) == len(content):
        text += b"\n"
    return View(content, kind, mode, shown, cut, remainder, text)


def _chosen(content: bytes, kind: Kind, mode: Mode) -> list[Line]:
    """The lines from the front that fit into the bounds, together with the last one that they make necessary."""
    chosen: list[Line] = []
    items, size = 0, 0
    placeholder = b"-" * LENGTH
    for line in kind.format.lines(content):
        values = [piece for piece in line.pieces if piece.shown is None]
        items += len(values)
        size += sum(_width(piece.shown, piece.end - piece.start, mode) for piece in line.pieces) + 1
        if items > mode.items or size + len(kind.format.last(placeholder + REMAINDER, line)) + 1 > mode.characters:
            break
        chosen.append(line)
    return chosen


def _width(shown: bytes | None, length: int, mode: Mode) -> int:
    return len(shown) if shown is not None else LENGTH + len(_suffix(length, mode))


def _suffix(length: int, mode: Mode) -> bytes:
    return b"~%d" % length if mode.lengths else b""


def _shown(content: bytes, line: Line, issue: Issue, mode: Mode) -> Shown:
    text: list[bytes] = []
    handles: list[Handle] = []
    field = line.field.decode("ascii", "replace")
    for piece in line.pieces:
        if piece.shown is not None:
            text.append(piece.shown)
            continue
        handle = issue(content[piece.start : piece.end], field)
        handles.append(handle)
        text.append(handle.text.encode() + _suffix(piece.end - piece.start, mode))
    text.append(b"\n")
    return Shown(line, b"".join(text), tuple(handles))


def _hidden(content: bytes, lines: list[Line], cut: int) -> bytes:
    """What is in no line, and what follows the values of one: the remainder's value."""
    hidden, at = [], 0
    for line in lines:
        hidden.append(content[at : line.start])
        hidden.append(content[line.stop : line.end])
        at = line.end
    hidden.append(content[cut:] if lines else content)
    return b"".join(hidden)
