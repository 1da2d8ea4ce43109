"""`monitor --compact`: a few lines below an agent: questions, denials, a rate. It ends with the session."""

from __future__ import annotations

from time import time

from textual.app import ComposeResult

from pincer_trace.ui import words
from pincer_trace.ui.filters import REFUSALS
from pincer_trace.ui.monitor.app import Watching
from pincer_trace.ui.monitor.full import Bar
from pincer_trace.ui.monitor.rows import RowsPane
from pincer_trace.ui.words import BAD, BOLD, DIM, GOOD, KEY, PLAIN, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ui.follow import Follower
    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.words import Look


class Compact(Watching):
    """For a pane of eight to twelve lines, from forty columns on."""

    def __init__(self, follower: Follower, facts: dict[str, Any], look: Look) -> None:
        super().__init__(follower, facts, look)
        self.rows = RowsPane(look, self.state, self.places, id="rows", wanted=REFUSALS, headings=1)
        self.foot = Bar(look, id="foot")

    def compose(self) -> ComposeResult:
        yield self.questions
        yield self.rows
        yield self.foot

    def on_mount(self) -> None:
        self.set_focus(None)

    def most_for_questions(self) -> int:
        most = self.size.height - 1
        return most if self.questions.opened is not None else max(most // 2, 3)

    def arrange(self) -> None:
        super().arrange()
        height = self.questions.styles.height
        self.rows.display = self.size.height - int(height.value if height is not None else 0) > 2

    def draw(self) -> None:
        self.foot.line = self._foot()
        self.rows.redraw()
        self.foot.redraw()
        super().draw()

    def finished(self) -> None:
        self.exit()

    def _foot(self) -> Line:
        width = self.size.width
        if told := self.told(self.size.width):
            return told
        counts = self.state.counts
        rate = self.state.rate(time())
        denied = counts.denied + counts.failures
        line: Line = [
            (f" {self.life} " if width >= 60 else " ", GOOD if self.life == "running" else WARN),
            (words.many(counts.allowed), BOLD), (" effects ", DIM), (words.many(counts.reads), BOLD), (" reads ", DIM),
            (words.many(denied), BAD if denied else BOLD), (f" denied{words.expected(counts)} ", DIM),
            (f"{words.many(rate)}/s " if rate >= 0.5 and width >= 60 else "", DIM),
        ]  # fmt: skip
        keys = [("0-9", "open")] if len(self.state.asked) else []
        keys = [("Esc", "back")] if self.focused is self.questions else keys
        for key, said in [*keys, ("?", "help"), ("q", "close")]:
            piece: Line = [(key, KEY), (f" {said} ", DIM)]
            if words.length(line) + words.length(piece) + 1 <= width:
                line += [(" ", PLAIN), *piece]
        return line

    def pressed(self, key: str, at: float) -> bool:
        if super().pressed(key, at):
            return True
        moves = {
            "up": -1, "k": -1, "down": 1, "j": 1,
        }  # fmt: skip
        if key in moves:
            self.rows.move(moves[key])
        elif key in ("escape", "end", "f"):
            self.rows.follow()
        elif key == "tab" and len(self.state.asked):
            self.set_focus(self.questions)
        else:
            return False
        return True
