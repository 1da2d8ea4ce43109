"""The live decisions: which columns there is room for, what a row says, and which rows are in the window."""

from __future__ import annotations

from bisect import bisect_left

from textual import events
from textual.message import Message

from pincer_trace.ui import words
from pincer_trace.ui.filters import EVERYTHING
from pincer_trace.ui.monitor.pane import ScrolledPane
from pincer_trace.ui.state import Selection
from pincer_trace.ui.words import ANSWER, BAD, CHOSEN, DENIED, DIM, FAILURE, OF_MARKS, PLAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ui.filters import Filter
    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.state import Row, State
    from pincer_trace.ui.words import Look, Places

_NARROW, _WIDE, _WIDEST = 60, 110, 150  # columns


class Columns:
    """What a row says in `width` columns."""

    def __init__(self, look: Look, places: Places, width: int) -> None:
        self._look = look
        self._places = places
        self._narrow = width < _NARROW  # mark, effect and name: the mark is the outcome
        self._program = 0 if self._narrow else 10 if width < _WIDE else 16
        self._votes = width >= _WIDE
        self._why = 0 if width < _WIDEST else width // 4
        taken = 2 + 9 + 5 if self._narrow else 9 + 11 + 9 + self._program + 1 + 7
        taken += (4 if self._votes else 0) + (self._why + 1 if self._why else 0)
        self._target = max(width - taken, 8)
        self.width = width

    @property
    def one_line(self) -> bool:
        """Whether the reason for a denial has a column, and needs no line of its own."""
        return bool(self._why)

    def header(self) -> Line:
        said = f"  {'EFFECT':9}" if self._narrow else f"{'TIME':9}  {'OUTCOME':9}{'EFFECT':9}"
        said += words.filled("PROGRAM", self._program + 1) if self._program else ""
        said += f"{'L R':4}" if self._votes else ""
        said += words.filled("TARGET", self._target) + ("" if self._narrow else f"{'TIMES':>6} ")
        return [(said + ("WHY" if self._why else ""), DIM)]

    def line(self, row: Row) -> Line:
        """One line."""
        look, kind = self._look, row.kind
        style = OF_MARKS[kind]
        mark = look.mark(kind)
        word = words.cut(_word(row), 8, look.ellipsis)
        line: Line = [(f"{mark} ", style)]
        if not self._narrow:
            line = [(f"{words.clock(row.first)} ", DIM), (f"{mark} {word:9}", style)]
        line.append((f"{words.cut(_several(row.effects, 'effects'), 8, look.ellipsis):9}", PLAIN))
        if self._program:
            said = words.cut(_programs(row), self._program, look.ellipsis)
            line.append((words.filled(said, self._program + 1), PLAIN))
        if self._votes:
            line.append((f"{_votes(row):4}", DIM))
        target = target_of(row, self._places, self._target, look)
        line.append((words.filled(target, self._target), BAD if kind in (DENIED, FAILURE) else PLAIN))
        line.append((_times(row).rjust(5 if self._narrow else 6), DIM))
        if self._why:
            line.append((" " + words.cut(look.encoded(why(row)), self._why, look.ellipsis), DIM))
        return line

    def reason(self, row: Row) -> Line:
        """The second line of a denial, where its reason has no column."""
        indent = 2 if self._narrow else 11
        room = self.width - indent - 1
        return [(" " * indent + words.cut(self._look.encoded(why(row)), room, self._look.ellipsis), DIM)]


def needs_reason(row: Row) -> bool:
    return row.kind in (DENIED, FAILURE)


def why(row: Row) -> str:
    """The reason, and the rule that says so; of what was allowed the rule alone."""
    record = row.record
    rule, reason = words.text(record.get("rule"), 200), words.text(record.get("reason"), 1000)
    if row.kind == ANSWER or not needs_reason(row):
        return rule
    return f"{reason} ({rule})" if reason and rule else reason or rule


def target_of(row: Row, places: Places, width: int, look: Look) -> str:
    """The name, with where it goes; of several the directory that they are in, or the first of them."""
    record = row.record
    if row.names.keys() == {""}:
        return "-"
    if row.path:
        extra = record.get("extra")
        to = extra.get("to") if isinstance(extra, dict) else record.get("to")
        said = places.short(row.path)
        said = f"{said} -> {places.short(to)}" if isinstance(to, str) else said
        return words.middle(look.encoded(said), width, look.ellipsis)
    below = places.short(row.directory.rstrip("/") + "/x")
    if row.directory.count("/") > 1 or not below.startswith(("/", '"')):
        shown = below[:-2] + '*"' if below.endswith('"') else below[:-1] + "*"
        return words.middle(look.encoded(shown), width, look.ellipsis)
    names = sorted(map(places.short, row.names), key=lambda each: each.startswith("/"))
    return words.cut(look.encoded(", ".join(names) + (", ..." if row.rest else "")), width, look.ellipsis)


def _word(row: Row) -> str:
    if row.kind == ANSWER:
        return {"deny": "no", "deny-session": "no"}.get(str(row.record.get("answer")), "yes")
    return words.outcome(row.kind, words.text(row.errno, 10))


def _several(names: dict[str, None], what: str) -> str:
    if len(names) == 1:
        return words.text(next(iter(names)), 20)
    return f"{len(names)} {what}" if names else "-"


def _programs(row: Row) -> str:
    if row.kind == ANSWER:
        return "a person"
    return words.program(next(iter(row.exes))) if len(row.exes) == 1 else f"{len(row.exes)} programs"


def _times(row: Row) -> str:
    if row.count <= 1:
        return ""
    return "x" + words.many(row.count)


def _votes(row: Row) -> str:
    """What both evaluators said, a letter each: allow, view, confirm, deny."""
    said = {"left": "-", "right": "-"}
    votes = row.record.get("votes")
    for vote in votes if isinstance(votes, list) else ():
        match vote:
            case {"by": "left" | "right" as by, "verdict": "allow" | "view" | "confirm" | "deny" as verdict}:
                said[by] = verdict[0].upper()
    return f"{said['left']} {said['right']}" if "-" not in said.values() else ""


class RowsPane(ScrolledPane, can_focus=True):
    """The decisions, the newest last. It follows the newest until the cursor goes up."""

    class Chosen(Message):
        """The cursor is on another row."""

    def __init__(
        self, look: Look, state: State, places: Places, *, id: str, wanted: Filter = EVERYTHING, headings: int = 2
    ) -> None:
        """`headings`: lines above the decisions; with one there are no names of columns."""
        super().__init__(look, id=id)
        self._headings = headings
        self._state = state
        self._places = places
        self._selection = Selection(wanted)
        self.cursor: int | None = None  # the number of a row; None: it follows
        self._top: tuple[int, int] = (0, 0)  # number of a row, and which of its lines
        self._rows: list[Row] = []
        self._shown: list[Row] = []  # for each line below the headings, whose it is
        self._found: tuple[int, Filter] | None = None

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        columns = Columns(self.look, self._places, width)
        now = (self._state.revision, self.wanted)
        if self._found != now:
            self._rows, self._found = self._selection.of(self._state), now
        rows = self._rows
        if self.cursor is not None and (not rows or rows[0].number > self.cursor):
            self.cursor = rows[0].number if rows else None  # it was dropped
        room = max(height - self._headings, 0)
        window = self._window(rows, room, 1 if columns.one_line else 2)
        self._shown = [row for row, _ in window]
        where = f"{words.many(len(rows))} rows" + ("" if self.cursor is None else ", held")
        title = "decisions" + (f": {words.text(self.wanted.words, 200)}" if self.wanted else "")
        lines = [self.heading(title, where, width), (columns.header(), PLAIN)][: self._headings]
        for row, part in window:
            base = CHOSEN if row.number == self.cursor and part == 0 else PLAIN
            lines.append((columns.line(row) if part == 0 else columns.reason(row), base))
        if not rows:
            lines.append(([("  nothing yet" if not self.wanted else "  nothing that this filter wants", DIM)], PLAIN))
        return lines

    def _window(self, rows: list[Row], room: int, most: int) -> list[tuple[Row, int]]:
        """The lines to be seen: the last ones, or from where the window was held on."""
        if not rows or not room:
            return []
        if self.cursor is None:
            found: list[tuple[Row, int]] = []
            for row in reversed(rows[-room:]):
                found += [(row, part) for part in reversed(range(_height(row, most)))]
                if len(found) >= room:
                    break
            found = found[:room][::-1]
            if found[0][1] and room > 1:  # a reason without what it is about
                del found[0]
            elif found[0][1]:
                found = [(found[0][0], 0)]
            self._top = found[0][0].number, found[0][1]
            return found
        at = min(self._index(self._top[0]), len(rows) - 1)
        chosen = min(self._index(self.cursor), len(rows) - 1)
        if chosen <= at:
            self._top = rows[chosen].number, 0
            at = chosen
        lines = self._lines(rows, at, self._top[1], room, most)
        while at < chosen and (rows[chosen], _height(rows[chosen], most) - 1) not in lines:
            at += 1
            self._top = rows[at].number, 0
            lines = self._lines(rows, at, 0, room, most)
        return lines

    def _lines(self, rows: list[Row], at: int, part: int, room: int, most: int) -> list[tuple[Row, int]]:
        found: list[tuple[Row, int]] = []
        for row in rows[at : at + room + 1]:
            found += [(row, each) for each in range(part, _height(row, most))]
            part = 0
        return found[:room]

    def _index(self, number: int) -> int:
        return bisect_left(self._rows, number, key=lambda row: row.number)

    @property
    def wanted(self) -> Filter:
        return self._selection.wanted

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor; while it follows, the last one."""
        if not self._rows:
            return None
        return self._rows[-1 if self.cursor is None else min(self._index(self.cursor), len(self._rows) - 1)]

    # -- moving ----------------------------------------------------------------------------------------------

    def follow(self) -> None:
        self._go(None)

    def move(self, by: int) -> None:
        """Rows up or down; below the last one it follows again."""
        if not self._rows:
            return
        last = len(self._rows) - 1
        at = (last if by < 0 else last + 1) if self.cursor is None else min(self._index(self.cursor), last)
        to = at + by
        self._go(None if to > last else self._rows[max(to, 0)].number)

    def page(self, by: int) -> None:
        self.move(by * max(1, len({row.number for row in self._shown}) - 1))

    def first(self) -> None:
        if self._rows:
            self._go(self._rows[0].number)

    def refusal(self, by: int) -> None:
        """To the next denial, or the one before."""
        at = len(self._rows) if self.cursor is None else self._index(self.cursor)
        rest = self._rows[at + 1 :] if by > 0 else self._rows[: max(at, 0)][::-1]
        found = next((row for row in rest if needs_reason(row)), None)
        if found is not None:
            self._go(found.number)

    def filtered(self, wanted: Filter) -> None:
        self._selection = Selection(wanted)
        self._go(None)

    def _go(self, number: int | None) -> None:
        self.cursor = number
        self.redraw()
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        at = event.y - self._headings
        if 0 <= at < len(self._shown):
            self._go(self._shown[at].number)


def _height(row: Row, most: int) -> int:
    return most if needs_reason(row) else 1
