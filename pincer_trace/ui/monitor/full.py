"""The whole view: questions, decisions, processes and details, as wide and high as the terminal is."""

from __future__ import annotations

import asyncio
from time import monotonic, time

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Input

from pincer_trace.errors import UserError
from pincer_trace.ledger import read
from pincer_trace.ledger.verify import verify
from pincer_trace.review.why import explained
from pincer_trace.ui import words
from pincer_trace.ui.filters import EVERYTHING, REFUSALS, Filter, Mistake
from pincer_trace.ui.monitor.app import Watching
from pincer_trace.ui.monitor.difference import SAME, Unknown, difference
from pincer_trace.ui.monitor.pane import Pane
from pincer_trace.ui.monitor.rows import RowsPane
from pincer_trace.ui.monitor.side import DetailPane, TreePane
from pincer_trace.ui.words import ANSWER, BAD, BOLD, DIM, GOOD, KEY, PLAIN, TITLE, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ui.follow import Follower
    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.state import Row
    from pincer_trace.ui.words import Look

WIDE = 150  # columns from which on everything is seen at once
_SETTLED = 0.25  # seconds on a row before it is explained


class Bar(Pane):
    """One line above or below."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, look: Look, *, id: str) -> None:
        super().__init__(look, id=id)
        self.line: Line = []

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        return [(self.line, PLAIN)]


class Monitor(Watching):
    """`pincer-trace monitor`."""

    CSS = (
        Watching.CSS
        + """
    #body { height: 1fr; }
    #left, #side { width: 1fr; height: 1fr; }
    #side { display: none; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: ansi_default; color: ansi_default; }
    """
    )

    def __init__(self, follower: Follower, facts: dict[str, Any], look: Look) -> None:
        super().__init__(follower, facts, look)
        self.head = Bar(look, id="head")
        self.foot = Bar(look, id="foot")
        self.rows = RowsPane(look, self.state, self.places, id="rows")
        self.processes = TreePane(look, self.state, id="tree")
        self.detail = DetailPane(look, self.places, id="detail")
        self.entry = Input(
            placeholder="filter: effect, denied, by:program, part of a path, -not", id="filter", compact=True
        )
        self.verified = ""
        self._wide = False
        self._details = False
        self._tree_open = False
        self._explaining: Row | None = None

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.questions
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield self.rows
            with Vertical(id="side"):
                yield self.processes
                yield self.detail
        yield self.entry
        yield self.foot

    def on_mount(self) -> None:
        self.set_focus(self.rows)
        self._lay_out()

    # -- what is seen ----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Wide: all at once. Else the details or the tree share the room, or take it."""
        wide = self._wide = self.size.width >= WIDE
        side = self.query_one("#side")
        left = self.query_one("#left")
        body = self.query_one("#body")
        body.styles.layout = "horizontal" if wide else "vertical"
        self.processes.display = wide or self._tree_open
        self.detail.display = self._details if not wide else True
        left.display = wide or not self._tree_open
        side.display = wide or self._details or self._tree_open
        left.styles.width = "3fr" if wide else "1fr"
        side.styles.width = "2fr" if wide else "1fr"
        self.detail.styles.height = "1fr"
        if self.focused is not None and not _is_shown(self.focused):
            self.back_from_questions()

    def arrange(self) -> None:
        if self._wide != (self.size.width >= WIDE):
            self._lay_out()
        super().arrange()

    def draw(self) -> None:
        self.head.line = self._head()
        self.foot.line = self._foot()
        for pane in (self.head, self.rows, self.processes, self.detail, self.foot):
            pane.redraw()
        super().draw()
        self._explain()

    def _head(self) -> Line:
        state, facts = self.state, self.facts
        counts = state.counts
        life, style = self._life()
        begin = words.number(facts.get("started"))
        end = words.number(facts.get("ended")) or (time() if self.life == "running" else state.last)
        left: Line = [
            (f" {life} ", style), (f"{words.lasted(end - begin)} ", PLAIN),
            (f"{words.session_name(facts)} " if self.size.width >= 110 else "", DIM),
        ]  # fmt: skip
        rate = state.rate(time()) if self.life == "running" else 0.0
        denied = counts.denied + counts.failures
        parts: list[Line] = [
            [(f" {words.many(counts.allowed)}", BOLD), (" effects", DIM)],
            [(f" {words.many(counts.reads)}", BOLD), (" reads", DIM)],
            [(f" {words.many(denied)}", BAD if denied else BOLD), (" denied", DIM), (words.expected(counts), DIM)],
            [(f" {words.many(rate)}/s" if rate >= 0.5 else "", DIM)],
        ]
        for narrow in (3, 1, 0):  # what a narrow terminal does without first
            if sum(map(words.length, parts)) + words.length(left) >= self.size.width:
                parts[narrow] = []
        right: Line = [piece for part in parts for piece in part] + [(" ", PLAIN)]
        room = self.size.width - words.length(left) - words.length(right)
        command = words.cut(self.look.encoded(words.command_line(facts)), max(room, 0), self.look.ellipsis)
        return [*left, (words.filled(command, max(room, 0)), TITLE), *right]

    def _life(self) -> tuple[str, str]:
        if self.life == "running":
            return "running", GOOD
        status = self.facts.get("exit")
        if self.life == "ended":
            said = f"ended, status {status}" if isinstance(status, int) else "ended"
            return said + (
                f", {self.verified}" if self.verified else ""
            ), WARN if status or "NOT" in self.verified else DIM
        if self.life == "gone":
            return "its directory was removed", BAD
        return "killed: the supervisor is gone" + (f", {self.verified}" if self.verified else ""), BAD

    def _foot(self) -> Line:
        if told := self.told(self.size.width):
            return told
        if self.cannot_answer and self.life == "running":
            said = f" nothing can be answered here: {words.copied(self.cannot_answer)}"
            return [(words.cut(self.look.encoded(said), self.size.width - 1, self.look.ellipsis), WARN)]
        if self.focused is self.questions:
            keys = [("Up Down", "another"), ("Esc", "back"), ("?", "help"), ("q", "quit")]
        else:
            keys = [("?", "help"), ("q", "quit"), ("/", "filter"), ("!", "denials"), ("p", "processes")]
            keys += [("Enter", "details"), ("n", "next denial"), ("v", "verify")]
            keys = [("0-9", "open question"), *keys] if len(self.state.asked) else keys
        line: Line = [(" ", PLAIN)]
        for key, said in keys:
            piece: Line = [(key, KEY), (f" {said}  ", DIM)]
            if words.length(line) + words.length(piece) <= self.size.width:
                line += piece
        return line

    # -- the detail ------------------------------------------------------------------------------------------

    def on_rows_pane_chosen(self) -> None:
        self._explain()

    def _explain(self) -> None:
        """Tell of the row under the cursor, when it has been there for a moment."""
        row = self.rows.chosen
        if not self.detail.display or self.detail.shows(row) or self._explaining is row:
            return
        if row is None:
            self.detail.tell(None, [])
            return
        self._explaining = row
        self.run_worker(self._explanation(row), group="explain", exclusive=True)

    async def _explanation(self, row: Row) -> None:
        try:
            await asyncio.sleep(_SETTLED)
            if row.kind == ANSWER:
                self.detail.tell(row, _answered(row))
                return
            record = read.whole(dict(row.record))
            told = await asyncio.to_thread(_explained, self.follower.path, record)
            changed = await asyncio.to_thread(_changed, {**self.facts, "state": self.life}, record)
            self.detail.tell(row, told, changed)
        finally:
            if self._explaining is row:
                self._explaining = None

    # -- the end ---------------------------------------------------------------------------------------------

    def finished(self) -> None:
        if self.life in ("ended", "killed"):
            self.beside(self._verify())

    async def _verify(self) -> None:
        try:
            found = await asyncio.to_thread(verify, self.follower.path)
        except UserError as error:
            self.tell(str(error))
            return
        if found.faults:
            self.verified = "NOT what was written"
            self.tell(f"the log is NOT what was written: {found.faults[0]}; `pincer-trace verify` tells all")
        else:
            self.verified = "verified"
            self.tell(f"the log is whole: {found.records} records, signed up to record {found.signed}")
        self.frame()

    # -- keys ------------------------------------------------------------------------------------------------

    def pressed(self, key: str, at: float) -> bool:
        if super().pressed(key, at):
            return True
        acts = {
            "slash": self._begin_filter, "exclamation_mark": self._denials, "p": self._show_processes,
            "v": lambda: self.beside(self._verify()), "tab": lambda: self._next_pane(1),
            "shift+tab": lambda: self._next_pane(-1), "f": self.rows.follow, "end": self.rows.follow,
            "home": self.rows.first, "n": lambda: self.rows.refusal(1), "N": lambda: self.rows.refusal(-1),
            "escape": self._escape, "enter": self._enter,
        }  # fmt: skip
        act = acts.get(key)
        if act is not None:
            act()
            self.draw()
            return True
        pane = self.focused if isinstance(self.focused, TreePane | DetailPane) else self.rows
        moves = {
            "up": (pane.move, -1), "k": (pane.move, -1), "down": (pane.move, 1), "j": (pane.move, 1),
            "pageup": (pane.page, -1), "pagedown": (pane.page, 1), "space": (pane.page, 1),
        }  # fmt: skip
        if key in moves:
            move, by = moves[key]
            move(by)
            return True
        return False

    def _enter(self) -> None:
        if self.focused is self.processes:
            self.processes.pick()
        else:
            self._details = not self._details
            self._lay_out()

    def _escape(self) -> None:
        """Close what was opened last; then the filter."""
        if self._details:
            self._details = False
        elif self._tree_open:
            self._tree_open = False
        elif self.rows.cursor is not None:
            self.rows.follow()
        else:
            self.rows.filtered(EVERYTHING)
        self._lay_out()
        self.back_from_questions()

    def _show_processes(self) -> None:
        self._tree_open = not self._tree_open
        self._lay_out()
        self.set_focus(self.processes if self.processes.display and self._tree_open else self.rows)

    def _next_pane(self, by: int) -> None:
        panes = [each for each in (self.questions, self.rows, self.processes, self.detail) if _is_shown(each)]
        at = next((place for place, each in enumerate(panes) if each is self.focused), -1 if by > 0 else 0)
        if panes:
            self.set_focus(panes[(at + by) % len(panes)])

    def back_from_questions(self) -> None:
        self.set_focus(self.rows if _is_shown(self.rows) else self.processes)

    # -- the filter ------------------------------------------------------------------------------------------

    def _denials(self) -> None:
        self.rows.filtered(EVERYTHING if self.rows.wanted == REFUSALS else REFUSALS)

    def on_tree_pane_picked(self, message: TreePane.Picked) -> None:
        self.rows.filtered(Filter(message.words))
        self._tree_open = False
        self._lay_out()
        self.back_from_questions()

    def _begin_filter(self) -> None:
        self.entry.value = self.rows.wanted.words
        self.entry.display = True
        self.foot.display = False
        self.set_focus(self.entry)

    def _end_filter(self) -> None:
        self.entry.display = False
        self.foot.display = True
        self.back_from_questions()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        try:
            wanted = Filter(message.value)
        except Mistake as mistake:
            self.tell(str(mistake))
        else:
            self.rows.filtered(wanted)
        self._end_filter()
        self.frame()

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.focused is self.entry:
            event.stop()
            self._end_filter()

    def frame(self) -> None:
        if self._notice_until and monotonic() > self._notice_until:
            self.tell("")
        super().frame()


def _explained(path: str, record: dict[str, Any]) -> list[tuple[str, str]]:
    """As `why RECORD`; a log from elsewhere may hold what that cannot explain."""
    try:
        return explained(path, record)
    except UserError as error:
        return [("note", str(error))]
    except Exception as failure:  # noqa: BLE001 - the view lives on, whatever a foreign log says
        return [("note", f"it cannot be explained: {type(failure).__name__}")]


def _changed(facts: dict[str, Any], record: dict[str, Any]) -> list[tuple[str, str]]:
    """What the decision changed in a text file, line by line; or why that is not known."""
    try:
        return difference(facts, record)
    except Unknown as why:
        return [(SAME, str(why))]


def _answered(row: Row) -> list[tuple[str, str]]:
    from pincer_trace.twin.questions import PAST

    record = row.record
    by = record.get("by")
    pid = by.get("pid") if isinstance(by, dict) else None
    exe = words.name(by.get("exe")) if isinstance(by, dict) else ""
    said = PAST.get(str(record.get("answer")), "answered")
    process = f"by process {pid}" if isinstance(pid, int) else "by nobody that is told"
    return [("answer", f"{said} at {words.clock(row.first)} {process} {exe}")]


def _is_shown(widget: Widget) -> bool:
    """Whether it and all around it are displayed."""
    return all(each.display for each in widget.ancestors_with_self if isinstance(each, Widget))
