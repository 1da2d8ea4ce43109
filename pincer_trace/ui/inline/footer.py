"""Our lines below a program: what was decided, and the question that waits. What they say is pure; colours by rich.

Nothing is answered by a key that was meant for the program: Ctrl-] opens the oldest question, which stays the open one,
and an answer counts only when it has been on the screen for a while (`ui.guard`). The default is no.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from rich.color import ColorSystem
from rich.style import Style

from pincer_trace.errors import UserError
from pincer_trace.twin.grants import ALWAYS, YES
from pincer_trace.ui import words
from pincer_trace.ui.answering import ANSWERS, answer
from pincer_trace.ui.feed import Feed
from pincer_trace.ui.follow import Follower
from pincer_trace.ui.guard import Guard
from pincer_trace.ui.inline.region import old_title, title
from pincer_trace.ui.state import State
from pincer_trace.ui.words import ASK, BAD, BOLD, DENIED, DIM, FAILURE, GOOD, KEY, OF_MARKS, PLAIN, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ui.questions import Pending
    from pincer_trace.ui.words import Piece

    Line = list[Piece]

_ANSWERS = {key: (kind, said) for key, kind, said, _ in ANSWERS if kind != ALWAYS}  # that one shows more than fits here
_BELOW = 3  # lines under the first
_LATEST = 200  # rows that are looked through for denials
_DEAF = 1.0  # seconds after an open question has closed by itself
_PROGRAM = 24  # columns of a program's name: it must not push the object's away
_TOLD = 4.0  # seconds that the outcome of an answer stays
_LOOKS = 0.2  # seconds between two looks into the log


class Footer:
    """Of one session, once `follow` was told which."""

    def __init__(self) -> None:
        self._look = words.Look(os.environ, sys.stdout.encoding)
        self._places = words.Places({})
        self._state = State()
        self._path = ""
        self._facts: dict[str, Any] = {}
        self._follower: Follower | None = None
        self._feed: Feed | None = None
        self._looked = 0.0
        self._opened: int | None = None
        self._shown: tuple[int, float, bool] | None = None  # which question is on the screen, as it is since then
        self._guard = Guard()
        self._said = ""
        self._said_at = 0.0
        self._drawing = False
        self._announced: set[int] = set()
        self._titled = False
        self._deaf_until = 0.0
        self._whole = False  # all that a yes means is on the screen

    # -- what is known -------------------------------------------------------------------------------------------

    def follow(self, path: str) -> None:
        """The session's directory is known now."""
        self._path = path

    def look(self, *, drawing: bool) -> None:
        """See what is new, when it is time. `drawing`: the program wants the whole screen."""
        self._drawing = drawing
        now = monotonic()
        if not self._path or now < self._looked + _LOOKS:
            return
        self._looked = now
        try:
            if self._follower is None:
                self._follower = Follower(self._path)
                self._state.take(self._follower.start())
            elif (part := self._follower.more()) is not None:
                self._state.take(part)
            if self._feed is None:
                self._connect()
        except UserError:
            pass  # it is not there yet, or has ended: the last line says what became of it

    def _connect(self) -> None:
        facts = self._follower.facts() if self._follower is not None else None
        if facts is None or "feed" not in facts or facts["state"] != "running":
            return
        self._facts = facts
        self._places = words.Places(facts)
        feed = Feed(facts)
        try:
            feed.watch()
        except UserError:
            feed.close()
            raise
        self._feed = feed
        self.hear()  # the first news may have come with the answer

    def fileno(self) -> int:
        """Readable when there is news of questions; -1 as long as there can be none."""
        return self._feed.fileno() if self._feed is not None else -1

    def hear(self) -> None:
        """There is."""
        try:
            while self._feed is not None and (news := self._feed.news(0)) is not None:
                if isinstance(news.get("questions"), list):
                    self._state.apply_questions(news["questions"], monotonic())
        except UserError:  # the run has ended, or we were too slow for it: `look` finds out
            self._let_go()
            self._state.apply_questions([], monotonic())
        if self._opened is not None and self._state.asked.find(self._opened) is None:
            self._opened = None
            self._deaf_until = monotonic() + _DEAF

    def close(self) -> None:
        """Let go of the session."""
        self._let_go()
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _let_go(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def patience(self, busy: float, idle: float) -> float:
        """Seconds until the lines should be drawn anew although nothing came."""
        return busy if len(self._state.asked) or self._said else idle

    # -- answering -----------------------------------------------------------------------------------------------

    @property
    def answering(self) -> bool:
        """Whether keys are ours: also for a moment after the question has closed by itself, under a key."""
        return self._opened is not None or monotonic() < self._deaf_until

    @property
    def plain(self) -> bool:
        """Whether the terminal shows only ASCII."""
        return self._look.plain

    def moved(self, *, visible: bool) -> None:
        """The lines are elsewhere now, or nowhere: an open question must be seen anew before it is answered."""
        self._open(self._opened if visible else None)

    def call(self) -> bool:
        """Ctrl-]: open the oldest question, the waiting ones first. False where there is none."""
        pending = self._state.asked.all()
        if not pending:
            return False
        self._open(pending[0].id)
        return True

    def _open(self, number: int | None) -> None:
        """That one is open now, and was not seen yet."""
        self._opened = number
        self._guard.hidden()
        self._shown = None

    def key(self, typed: str) -> None:
        """What was typed while a question is open. Only one key by itself counts, and only when the guard listens."""
        now = monotonic()
        chosen = self._state.asked.find(self._opened)
        seen = chosen is not None and (chosen.id, chosen.since, self._whole) == self._shown
        listens = seen and self._guard.listens(now)
        self._guard.typed(now)
        if typed in ("\x1b", "\x1d", "q", "\x03") or chosen is None:
            self._opened = None
        elif typed == "n":
            numbers = [each.id for each in self._state.asked.all()]
            self._open(numbers[(numbers.index(chosen.id) + 1) % len(numbers)])
        elif typed in self._answers() and listens:
            self._opened = None
            self._say(answer(self._facts, chosen.id, _ANSWERS[typed][0]).words)
            self.hear()

    def _answers(self) -> dict[str, tuple[str, str]]:
        """What can be answered: a yes only to what can be read whole."""
        return {key: said for key, said in _ANSWERS.items() if self._whole or said[0] not in YES}

    def _say(self, text: str) -> None:
        self._said, self._said_at = words.copied(text), monotonic()

    # -- what is shown -------------------------------------------------------------------------------------------

    def lines(self, width: int) -> list[str]:
        """The lines, for a terminal; none is wider."""
        now = monotonic()
        if self._said and now > self._said_at + _TOLD:
            self._said = ""
        chosen = self._state.asked.find(self._opened)
        below = self._card(chosen, width, now) if chosen is not None else self._below(width, now)
        seen = (chosen.id, chosen.since, self._whole) if chosen is not None else None
        if seen is not None and seen != self._shown:
            self._guard.seen(now)
        self._shown = seen
        return [self._rendered(line, width) for line in [self._rule(width), *below[:_BELOW]]]

    def news(self) -> str:
        """The bell and the title, when there are other questions than before."""
        waiting = {each.id for each in self._state.asked.all() if each.waiting}
        fresh, self._announced = waiting - self._announced, waiting
        said = "\a" if fresh else ""
        if fresh:
            count = f"{len(waiting)} question{'s' if len(waiting) > 1 else ''}"
            said += (old_title() if self._titled else "") + title(f"pincer-trace: {count}")
            self._titled = True
        elif self._titled and not waiting:
            said += old_title()
            self._titled = False
        return said

    def bye(self) -> str:
        """The title as it was."""
        said = old_title() if self._titled else ""
        self._titled = False
        return said

    def _rule(self, width: int) -> Line:
        counts = self._state.counts
        denied = counts.denied + counts.failures
        rule = "-" if self._look.plain else "\u2500"
        line: Line = [
            (f"{rule}{rule} ", DIM), ("pincer-trace", BOLD), (f" {rule}{rule} ", DIM),
            (words.many(counts.allowed), BOLD), (" effects  ", DIM), (words.many(counts.reads), BOLD),
            (" reads  ", DIM), (words.many(denied), BAD if denied else BOLD),
            (f" denied{words.expected(counts)} ", DIM),
        ]  # fmt: skip
        return [*line, (rule * max(width - words.length(line), 0), DIM)]

    def _below(self, width: int, now: float) -> list[Line]:
        if self._said:
            return [[(f" {each}", BOLD)] for each in words.folded(self._said, width - 2, _BELOW, self._look.ellipsis)]
        pending = self._state.asked.all()
        if pending:
            lines = [self._brief(each, width, now) for each in pending]
            more = f", {len(pending) - 2} more" if len(pending) > 2 else ""
            return [*lines[: _BELOW - 1], [(" Ctrl-]", KEY), (f" answers{more}", DIM)]]
        if self._drawing:
            said = "this program draws on the whole screen, which it does not have here: run it without --ui inline"
            return [[(f" {each}", WARN)] for each in words.folded(said, width - 2, _BELOW)]
        denied = [row for row in self._state.rows()[-_LATEST:] if row.kind in (DENIED, FAILURE)][-_BELOW:]
        return [self._denial(row, width) for row in denied] or [[(" nothing was denied", GOOD if self._path else DIM)]]

    def _denial(self, row: Any, width: int) -> Line:
        look, record = self._look, row.record
        path = row.path or row.directory + "/*"
        times = f" x{row.count}" if row.count > 1 else ""
        head = f" {look.mark(row.kind)} {words.clock(row.last)} {words.text(record.get('effect'), 12)} "
        target = words.middle(look.encoded(self._places.short(path)), max(width // 2, 12), look.ellipsis)
        rest = max(width - len(head) - len(target) - len(times) - 2, 0)
        reason = words.cut(look.encoded(words.text(record.get("reason"), 300)), rest, look.ellipsis)
        return [(head, OF_MARKS[row.kind]), (target, PLAIN), (times, BOLD), (f"  {reason}" if rest > 8 else "", DIM)]

    def _brief(self, each: Pending, width: int, now: float) -> Line:
        head, target, by = self._parts(each, now)
        room = max(width - len(head) - words.length([(by, DIM)]), 8)
        shown = words.middle(target, room, self._look.ellipsis)
        return [(head, ASK if each.waiting else DIM), (shown, BOLD), (by, DIM)]

    def _parts(self, each: Pending, now: float) -> tuple[str, str, str]:
        """Which question, the names whole, and who asks."""
        look, told = self._look, each.told
        left = f"{max(each.until - now, 0):.0f} s" if each.waiting else "late"
        by = words.cut(f" by {look.encoded(words.program(told.get('exe')))}", _PROGRAM, look.ellipsis)
        head = f" ? {each.id} {left:>5} {words.text(told.get('effect'), 12)} "
        return head, look.encoded(each.target(self._places)), by

    def _card(self, each: Pending, width: int, now: float) -> list[Line]:
        """The open question: what and by whom, why and how long, the keys. A long name goes on in the second line."""
        look, told = self._look, each.told
        head, target, by = self._parts(each, now)
        head = head.replace(" ? ", " > ", 1)
        manner = f"{words.text(told.get('manner'), 1000)}; " if told.get("manner") else ""
        covers = f"a yes covers {words.name(told['covers'], 1000)}; " if told.get("covers") else ""
        means = look.encoded(manner + covers)
        first, second = max(width - len(head) - words.length([(by, DIM)]), 8), max(width - 4, 1)
        shown = words.cut(target, first, look.ellipsis)
        rest = "" if shown == target else look.ellipsis + target[len(shown) - len(look.ellipsis) :]
        self._whole = not (rest and means) and words.length([(rest + means, PLAIN)]) <= second
        if not self._whole:
            shown = words.middle(target, first, look.ellipsis)
            said = "too long to be read whole here: pincer-trace monitor shows it, in another terminal"
        else:
            said = rest or means + look.encoded(words.text(told.get("reason"), 500))
        line: Line = [(head, ASK), (shown, BOLD), (by, DIM)]
        listens = self._guard.listens(now)
        style, said_by = (KEY, PLAIN) if listens else (DIM, DIM)
        keys: Line = [("   ", PLAIN)]
        for key, (_, does) in self._answers().items():
            keys += [(key if listens else "-", style), (f" {does}  ", said_by)]  # a key that is shown counts
        more = [("n", KEY), (" next  ", DIM)] if len(self._state.asked) > 1 else []
        why: Line = [(f"   {words.cut(said, second, look.ellipsis)}", BOLD if rest else PLAIN)]
        return [line, why, [*keys, *more, ("Esc", KEY), (" back", DIM)]]

    def _rendered(self, line: Line, width: int) -> str:
        """As escape sequences, cut at `width` columns."""
        room, parts = width, []
        for text, style in line:
            said = words.cut(text, room, self._look.ellipsis) if room > 0 else ""
            room -= words.length([(said, style)])
            parts.append(
                Style.parse(self._look.styles[style] or "none").render(said, color_system=ColorSystem.STANDARD)
            )
        return "".join(parts)
