"""The questions on top: each a line, and the open one a card that says all that a yes would mean."""

from __future__ import annotations

from textual import events
from textual.message import Message

from pincer_trace.twin.grants import YES
from pincer_trace.ui import words
from pincer_trace.ui.answering import ANSWERS
from pincer_trace.ui.guard import Guard
from pincer_trace.ui.monitor.pane import Pane
from pincer_trace.ui.words import ASK, BOLD, CHOSEN, DIM, KEY, PLAIN, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.questions import Asked, Pending
    from pincer_trace.ui.words import Look, Places

_LOW = 9  # lines below which an open question does without a heading
_INDENT = "   "
_MANY = 10_000  # lines
_WHOLE = 30_000  # letters: what is cut before it is drawn would pass for whole
_TOO_LONG = "too long to be read whole here, so no yes: a larger window, or pincer-trace pending"


class QuestionsPane(Pane, can_focus=True):
    """What waits for an answer. Opens nothing by itself."""

    class Opened(Message):
        """Another question is open, or none."""

    class Clicked(Message):
        """On the key of an answer."""

        def __init__(self, key: str, time: float) -> None:
            super().__init__()
            self.key = key
            self.at = time

    def __init__(self, look: Look, asked: Asked, places: Places, clock: Callable[[], float], *, id: str) -> None:
        super().__init__(look, id=id)
        self._asked = asked
        self._places = places
        self._clock = clock
        self.guard = Guard()
        self.opened: int | None = None
        self.whole = False  # all that a yes to it means is on the screen
        self._fits = True  # the same in the card that is made just now
        self._version: object = None  # what of the open one was on the screen
        self._listening = False
        self._headless = False
        self._lines = 0, 0, False  # where the open question begins, how many lines it has, and whether it is whole
        self._spots: dict[
            int, int | list[tuple[int, int, str]]
        ] = {}  # by line: a question, or keys from column to column

    # -- what is open ----------------------------------------------------------------------------------------

    @property
    def open_question(self) -> Pending | None:
        return self._asked.find(self.opened)

    def open(self, number: int | None) -> None:
        """By a person's key or click, and only so."""
        if number != self.opened:
            self.opened = number
            self.guard.hidden()
            self._version = None
            self.post_message(self.Opened())

    def step(self, by: int) -> None:
        """The next one, or the one before."""
        numbers = [each.id for each in self._asked.all()]
        if not numbers:
            return
        if self.opened not in numbers:
            self.open(numbers[0 if by > 0 else -1])
        else:
            self.open(numbers[(numbers.index(self.opened) + by) % len(numbers)])

    def by_digit(self, digit: str) -> None:
        """The one whose number ends so; again: the next such."""
        numbers = [each.id for each in self._asked.all() if str(each.id).endswith(digit)]
        if numbers:
            at = numbers.index(self.opened) + 1 if self.opened in numbers else 0
            self.open(numbers[at % len(numbers)])

    def settle(self) -> None:
        """After what is asked has changed: an open question that is over closes, and no other takes its place."""
        if self.opened is not None and self.open_question is None:
            self.open(None)

    # -- drawing ---------------------------------------------------------------------------------------------

    def wanted_height(self, width: int, most: int) -> int:
        """Lines that it wants, up to `most`; 0 without a question."""
        if not len(self._asked):
            return 0
        self._headless = most < _LOW and self.open_question is not None
        taken = 0 if self._headless else 1
        card = self._card(width, most - taken, now=self._clock())
        taken += len(card)
        others = len(self._asked) - bool(card)
        return min(most, taken + others * (2 if self._has_room(taken, others, most) else 1))

    @staticmethod
    def _has_room(taken: int, others: int, height: int) -> bool:
        """Whether each of the others can have a second line."""
        return taken + 2 * others <= height

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        now, look = self._clock(), self.look
        pending = self._asked.all()
        waiting = sum(1 for each in pending if each.waiting)
        title = f"{len(pending)} question{'' if len(pending) == 1 else 's'}" + (f", {waiting} held" if waiting else "")
        hint = "" if self.open_question else "open one: its last digit, or arrows"
        lines = [] if self._headless else [self.heading(title, hint, width)]
        self._spots = {}
        chosen = self.open_question
        if chosen is not None:
            card = self._card(width, height - len(lines), now)
            self.whole = self._fits
            self._lines = len(lines), len(card), self.whole
            for line, base, spot in card:
                if spot is not None:
                    self._spots[len(lines)] = spot
                lines.append((line, base))
        others = [each for each in pending if each is not chosen]
        room = height - len(lines)
        two = self._has_room(len(lines), len(others), height)
        for each in others[: room if len(others) <= room else max(room - 1, 0)]:
            self._spots[len(lines)] = each.id
            lines.append((self._brief(each, width, now), PLAIN))
            if two:
                self._spots[len(lines)] = each.id
                why = words.cut(look.encoded(_why(each.told)), width - 12, look.ellipsis)
                lines.append(([(f"{'':11}{why}", DIM)], PLAIN))
        left = len(others) - max(room - 1, 0)
        if len(others) > room > 0:
            lines.append(([(f"{_INDENT}and {left} more", DIM)], PLAIN))
        return lines

    def drawn(self) -> None:
        """After what `draw` gave has gone to the terminal: from now on the open question is seen as it is."""
        chosen = self.open_question
        version = None if chosen is None else (chosen.id, chosen.since, self.size.width, self.region.y, self._lines)
        if version is None or not self.display:
            self._version = None
            self.guard.hidden()
        elif version != self._version:
            self._version = version
            self.guard.seen(self._clock())

    def on_resize(self) -> None:
        self.redraw()
        self.call_after_refresh(self.drawn)

    def _brief(self, each: Pending, width: int, now: float) -> Line:
        look, told = self.look, each.told
        mark = f" ? {each.id} "
        left = words.filled(_short_time(each, now), 7)
        effect = words.text(told.get("effect"), 20)
        program = f" by {words.program(told.get('exe'))}" if width >= 60 else ""
        target = look.encoded(each.target(self._places))
        room = max(width - len(mark) - 7 - len(effect) - 1 - len(program) - 1, 8)
        style = ASK if each.waiting else DIM
        return [
            (mark, style), (left, WARN if each.waiting else DIM), (f"{effect} ", PLAIN),
            (words.filled(words.middle(target, room, look.ellipsis), room), BOLD if each.waiting else DIM),
            (words.cut(program, 20, look.ellipsis), DIM),
        ]  # fmt: skip

    def _card(
        self, width: int, height: int, now: float
    ) -> list[tuple[Line, str, int | list[tuple[int, int, str]] | None]]:
        """The open question: what, by whom, why, what a yes covers, how long; and the keys, when they listen.

        Where not all that a yes means can be read, there is no key for one.
        """
        chosen = self.open_question
        if chosen is None:
            return []
        look, told = self.look, chosen.told
        room = max(width - len(_INDENT) - 1, 8)
        effect = words.text(told.get("effect"), 20)
        asked = told.get("asked")
        times = f", asked {asked} times" if isinstance(asked, int) and asked > 1 else ""
        head = f" {'>' if look.plain else '▸'} {chosen.id}  {_long_time(chosen, now)}{times} "
        lines: list[tuple[Line, str, int | list[tuple[int, int, str]] | None]] = [
            ([(words.filled(words.cut(head, width, look.ellipsis), width), BOLD)], CHOSEN, None)
        ]

        def add(said: str, style: str, most: int, *, name: bool = False) -> None:
            fit = words.wrapped if name else words.folded
            lines.extend(([(_INDENT + each, style)], PLAIN, None) for each in fit(said, room, most, look.ellipsis))

        def left() -> int:
            return max(height - len(lines) - len(keys), 0)

        names = [look.encoded(f"{effect} {words.name(told.get('path'))}")]
        if told.get("to"):
            names.append(look.encoded(f"-> {words.name(told['to'])}"))
        manner = look.encoded(words.text(told.get("manner"), _WHOLE))
        covers = look.encoded(words.name(told.get("covers"))) if told.get("covers") else ""
        covers = f"a yes covers {covers} in that directory: a name to save under" if covers else ""
        means = [*names, *filter(None, (manner, covers))]  # by a yes
        needed = sum(len(words.wrapped(each, room, _MANY, look.ellipsis)) for each in means)
        self._fits = True
        self._fits = needed <= height - len(lines) - len(self._keys(room))
        keys = self._keys(room)
        most = _MANY if self._fits else max(2, (height - len(keys) - 4) // 2)
        for each in names:
            add(each, BOLD, most, name=True)
        if manner:
            add(manner, PLAIN, most if self._fits else 2, name=True)
        programs = [
            words.name(each, 300) for each in told.get("programs") or [told.get("exe")] if isinstance(each, str)
        ]
        pid = f" (process {words.number(told.get('pid')):.0f})"
        by = look.encoded(f"by {', '.join(programs)}{pid}") if programs else ""
        why = look.encoded(_why(told))
        if covers and left():  # on a low terminal what matters most stays
            add(covers, WARN, left() if self._fits else min(left(), 2), name=True)
        if why and left():
            add(why, PLAIN, min(left(), 3))
        if by and left():
            add(by, PLAIN, min(left(), 2))
        return [*lines, *keys]

    def _keys(self, room: int) -> list[tuple[Line, str, int | list[tuple[int, int, str]] | None]]:
        """What answers it, on as few lines as it takes; dim while no key would count."""
        listens = self.guard.listens(self._clock())
        self._listening = listens
        found: list[tuple[Line, str, int | list[tuple[int, int, str]] | None]] = []
        line: Line = [(_INDENT, PLAIN)]
        spots: list[tuple[int, int, str]] = []
        column = 0
        for key, kind, said, brief in ANSWERS:
            if kind in YES and not self._fits:
                continue
            shown = said if room >= 72 else brief
            size = len(key) + 1 + len(shown)
            if column and column + 2 + size > room:
                found.append((line, PLAIN, spots))
                line, spots, column = [(_INDENT, PLAIN)], [], 0
            if column:
                line.append(("  ", PLAIN))
                column += 2
            begin = len(_INDENT) + column
            spots.append((begin, begin + size, key))
            line += [(key if listens else "-", KEY if listens else DIM), (f" {shown}", PLAIN if listens else DIM)]
            column += size
        found.append((line, PLAIN, spots))
        if not self._fits:
            said = words.cut(_TOO_LONG, room, self.look.ellipsis)
            found.insert(0, ([(_INDENT + said, WARN)], PLAIN, None))
        return found

    @property
    def must_redraw(self) -> bool:
        """Whether keys listen now that did not when it was drawn, or the other way round."""
        return self.open_question is not None and self._listening != self.guard.listens(self._clock())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        spot = self._spots.get(event.y)
        if isinstance(spot, int):
            self.open(spot)
        elif spot is not None:
            key = next((key for begin, end, key in spot if begin <= event.x < end), None)
            if key is not None:
                self.post_message(self.Clicked(key, event.time))


def _why(told: dict[str, object]) -> str:
    reason, rule = words.text(told.get("reason")), words.text(told.get("rule"))
    return f"{reason} ({rule})" if reason and rule else reason or rule


def _short_time(each: Pending, now: float) -> str:
    if each.waiting:
        return f"{max(each.until - now, 0):.0f} s"
    return f"{max(each.answerable_until - now, 0) / 60:.0f} min"


def _long_time(each: Pending, now: float) -> str:
    if each.waiting:
        return f"{max(each.until - now, 0):.0f} s left, then it is denied"
    minutes = max(each.answerable_until - now, 0) / 60
    return f"denied by now; a yes lets the next try pass, for {minutes:.0f} min"
