"""Beside the decisions: the tree of processes, and everything about the decision under the cursor."""

from __future__ import annotations

from textual import events
from textual.message import Message

from pincer_trace.ui import words
from pincer_trace.ui.monitor.difference import GONE, NEW
from pincer_trace.ui.monitor.pane import ScrolledPane
from pincer_trace.ui.words import BAD, BOLD, CHOSEN, DIM, GOOD, PLAIN, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.processes import Line as Branch
    from pincer_trace.ui.state import Row, State
    from pincer_trace.ui.words import Look, Places

_DEEPEST = 24  # columns of indentation


class TreePane(ScrolledPane, can_focus=True):
    """The processes, parents first, with what each did; below them, reads by program."""

    class Picked(Message):
        """A process, or a program: the words of a filter."""

        def __init__(self, filter_words: str) -> None:
            super().__init__()
            self.words = filter_words

    def __init__(self, look: Look, state: State, *, id: str) -> None:
        super().__init__(look, id=id)
        self._state = state
        self._top = 0
        self._cursor = 0
        self._branches: list[Branch] = []
        self._revision = -1

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        if self._revision != self._state.revision:
            self._branches, self._revision = self._state.processes.lines(), self._state.revision
        reads = sorted(self._state.processes.reads.items(), key=lambda each: -each[1])
        lines = [self.heading("processes", f"{len(self._state.processes)}", width)]
        lines.append(([(f"{'EFFECTS':>8} {'DENIED':>6}  PROCESS", DIM)], PLAIN))
        room = max(height - 2, 0)
        total = len(self._branches) + len(reads)
        self._cursor = max(0, min(self._cursor, total - 1))
        self._top = max(min(self._top, self._cursor), self._cursor - room + 1, 0)
        for at in range(self._top, min(self._top + room, total)):
            base = CHOSEN if at == self._cursor and self.has_focus else PLAIN
            if at < len(self._branches):
                lines.append((self._branch(self._branches[at], width), base))
            else:
                exe, count = reads[at - len(self._branches)]
                said = words.cut(self.look.encoded(words.program(exe)), max(width - 25, 8), self.look.ellipsis)
                lines.append(([(f"{'':17}{said} ", PLAIN), (f"{words.many(count)} reads", DIM)], base))
        if not total:
            lines.append(([("  nothing yet", DIM)], PLAIN))
        return lines

    def _branch(self, each: Branch, width: int) -> Line:
        look = self.look
        indent = "  " * min(each.depth, _DEEPEST // 2)
        alike = (f" x{each.alike}" if each.alike > 1 else f" {each.pid}") + (
            f" and {words.many(each.gone)} that ended" if each.gone else ""
        )
        room = max(width - 17 - len(indent) - len(alike), 6)
        said = words.cut(look.encoded(words.program(each.exe) or "?"), room, look.ellipsis)
        return [
            (f"{words.many(each.allowed) if each.allowed else '':>8} ", PLAIN),
            (f"{words.many(each.denied) if each.denied else '':>6}  ", BAD),
            (indent, PLAIN), (said, PLAIN), (alike, DIM),
        ]  # fmt: skip

    def move(self, by: int) -> None:
        self._cursor = max(0, self._cursor + by)
        self.redraw()

    def page(self, by: int) -> None:
        self.move(by * max(1, self.size.height - 3))

    def pick(self) -> None:
        """Show what this one did."""
        if 0 <= self._cursor < len(self._branches):
            each = self._branches[self._cursor]
            if each.alike == 1:
                self.post_message(self.Picked(f"by:{each.pid}"))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.y >= 2:
            self._cursor = self._top + event.y - 2
            self.redraw()


class DetailPane(ScrolledPane, can_focus=True):
    """A decision: request, votes, rule, facts, what came of it, and what would allow it."""

    def __init__(self, look: Look, places: Places, *, id: str) -> None:
        super().__init__(look, id=id)
        self._places = places
        self._row: Row | None = None
        self._count = -1
        self._rows: list[tuple[str, str]] = []
        self._changed: list[tuple[str, str]] = []
        self._top = 0

    def shows(self, row: Row | None) -> bool:
        """Whether it is told of this row as it is now."""
        return row is self._row and (row is None or row.count == self._count)

    def tell(self, row: Row | None, explained: list[tuple[str, str]], changed: Sequence[tuple[str, str]] = ()) -> None:
        """`explained`: rows of a name and a text, as `why RECORD` has them; `changed`: lines of a text with a mark."""
        if row is not self._row:
            self._top = 0
        self._row, self._count = row, -1 if row is None else row.count
        self._rows, self._changed = explained, list(changed)
        self.redraw()

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        row = self._row
        title = "detail" if row is None else f"record {row.record['seq']}"
        body = [] if row is None else self._body(row, width)
        self._top = max(0, min(self._top, len(body) - height + 1))
        rest = len(body) - self._top - height + 1
        lines = [self.heading(title, f"{rest} more lines" if rest > 0 else "", width)]
        return lines + [(line, PLAIN) for line in body[self._top :]]

    def _body(self, row: Row, width: int) -> list[Line]:
        look, record = self.look, row.record
        lines: list[Line] = []
        room = max(width - 11, 10)

        def add(name: str, said: str, style: str = PLAIN, most: int = 6, *, path: bool = False) -> None:
            fit = words.wrapped if path else words.folded
            for at, each in enumerate(fit(look.encoded(said), room, most, look.ellipsis)):
                lines.append([(f" {name if at == 0 else '':9} ", DIM), (each, style)])

        effect = words.text(record.get("effect"), 20)
        add(effect or "record", words.name(record.get("path")), BOLD, 8, path=True)
        extra = record.get("extra")
        to = record.get("to") or (extra.get("to") if isinstance(extra, dict) else None)
        if isinstance(to, str):
            add("to", words.name(to), BOLD, 8, path=True)
        add(
            "outcome",
            f"{look.mark(row.kind)} {words.outcome(row.kind, words.text(row.errno, 20))}",
            words.OF_MARKS[row.kind],
        )
        if row.count > 1:
            span = words.lasted(row.last - row.first)
            add("times", f"{row.count} from {words.clock(row.first)} on, in {span}; the last is shown")
            for path, count in list(row.names.items())[-8:]:
                add("", f"{count}  {self._places.short(path)}", DIM, 1, path=True)
            if row.rest:
                add("", f"{row.rest}  others", DIM)
        last = ""
        for name, said in self._rows:
            style = {"remedy": GOOD, "reason": BOLD, "note": WARN}.get(name, PLAIN)
            add("" if name == last else name, words.copied(said), style, 12)
            last = name
        for at, (mark, said) in enumerate(self._changed):
            style = {NEW: GOOD, GONE: BAD}.get(mark, DIM)
            add("changed" if at == 0 else "", f"{mark} {words.text(said, 500)}", style, 2, path=True)
        return lines

    def move(self, by: int) -> None:
        self._top += by
        self.redraw()

    def page(self, by: int) -> None:
        self.move(by * max(1, self.size.height - 2))
