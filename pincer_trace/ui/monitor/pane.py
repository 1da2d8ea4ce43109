"""What is drawn on the terminal: lines of styled pieces, put there by one function, without any markup."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from pincer_trace.ui import words
from pincer_trace.ui.words import DIM, PLAIN, TITLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ui.words import Look, Piece

    Line = list[Piece]

_WHEEL = 3  # lines


@lru_cache(256)
def style(look: Look, name: str) -> Style:
    """Names of styles may be joined: `chosen bad`."""
    return Style.parse(" ".join([look.styles[each] for each in name.split()]).strip())


def strip(look: Look, line: Line, width: int, base: str = PLAIN) -> Strip:
    """A line as wide as its pane."""
    segments = []
    left = width
    for said, name in line:
        shown = look.encoded(said)
        size = cell_len(shown)
        if size > left:
            shown, size = set_cell_size(shown, left), left
        if size:
            segments.append(Segment(shown, style(look, name if base == PLAIN else f"{base} {name}")))
        left -= size
    if left:
        segments.append(Segment(" " * left, style(look, base)))
    return Strip(segments, width)


class Pane(Widget):
    """A part of the screen: `draw` gives its lines. Only those that differ from the last time go to the terminal."""

    DEFAULT_CSS = "Pane { width: 1fr; height: 1fr; }"

    def __init__(self, look: Look, *, id: str) -> None:
        super().__init__(id=id)
        self.look = look
        self._drawn: list[tuple[Line, str]] = []
        self._drawn_size = (-1, -1)

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        """The lines, each with the style under its pieces. What is missing up to `height` is blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again, and send what is different."""
        width, height = self.size
        if not width or not height or not self.can_be_drawn:
            return
        lines = self._fresh(width, height)
        if self._drawn_size != (width, height):
            self.refresh()
        elif lines != self._drawn:
            different = [y for y, line in enumerate(lines) if line != self._drawn[y]]
            self.refresh(*[Region(0, y, width, 1) for y in different])
        self._drawn, self._drawn_size = lines, (width, height)

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._drawn_size != (width, height):
            self._drawn, self._drawn_size = self._fresh(width, height), (width, height)
        line, base = self._drawn[y] if y < len(self._drawn) else ([], PLAIN)
        return strip(self.look, line, width, base)

    def _fresh(self, width: int, height: int) -> list[tuple[Line, str]]:
        lines = self.draw(width, height)[:height]
        return lines + [([], PLAIN)] * (height - len(lines))

    @property
    def can_be_drawn(self) -> bool:
        return self.is_mounted and self.display

    def heading(self, title: str, right: str, width: int) -> tuple[Line, str]:
        """The first line of a pane: a rule with its name, bold where the keys go to it."""
        dash = "-" if self.look.plain else "─"
        mark = (">" if self.look.plain else "▸") if self.has_focus else dash
        name = f" {words.cut(title, max(width - 6, 0), self.look.ellipsis)} "
        right = f" {right} " if right and width - cell_len(name) - len(right) > 6 else ""
        fill = dash * max(width - 3 - cell_len(name) - cell_len(right), 0)
        return [
            (dash + mark, DIM), (name, TITLE if self.has_focus else DIM), (fill, DIM), (right, DIM), (dash, DIM),
        ], PLAIN  # fmt: skip


class ScrolledPane(Pane):
    """One that the wheel moves."""

    def move(self, by: int) -> None:
        """So many lines down, or up."""
        raise NotImplementedError

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(-_WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(_WHEEL)
