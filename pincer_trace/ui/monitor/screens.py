"""What lies over the view: the keys, and a line for the profile before it is added."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen

from pincer_trace.ui import words
from pincer_trace.ui.guard import Guard
from pincer_trace.ui.monitor.pane import Pane
from pincer_trace.ui.words import BOLD, DIM, KEY, PLAIN, WARN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.words import Look

KEYS = (
    ("questions", ""),
    ("0-9", "open the question whose number ends so; again: the next such"),
    ("Up Down", "in the list of questions: open the next one"),
    ("a", "allow the open one once (a retry within ten minutes too)"),
    ("s", "allow it until the session ends"),
    ("w", "allow it always: shows the line for your profile, and asks again"),
    ("d  x", "deny it; deny it until the session ends"),
    ("", "Keys answer only what is open, has been seen for a moment, and when nothing was typed just before."),
    ("decisions", ""),
    ("Up Down", "hold the view and move (j k, PgUp PgDn, Home); End or f: follow again"),
    ("n  N", "the next denial, the one before"),
    ("Enter", "everything about it: votes, rule, what would allow it (Esc: close)"),
    ("/", "filter: write change denied expected allowed failed native answers by:PROGRAM by:PID /a/part *.glob -not"),
    ("!", "denials only, or all"),
    ("p", "the tree of processes; Enter there: only this process"),
    ("v", "verify the log"),
    ("Ctrl-L", "draw the screen anew (Ctrl-Z: to the shell)"),
    ("Tab", "to the next part of the screen"),
    ("q", "leave; the session goes on"),
)


class HelpPane(Pane, can_focus=True):
    """The keys."""

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        lines: list[tuple[Line, str]] = [self.heading("keys", "any key: back", width)]
        for key, said in KEYS:
            if not said:
                lines.append(([(f" {key}", BOLD)], PLAIN))
                continue
            for at, each in enumerate(words.folded(said, max(width - 13, 20), 3)):
                lines.append(([(f"   {key if at == 0 else '':9}", KEY), (each, DIM if not key else PLAIN)], PLAIN))
        return lines


class Dialog(ModalScreen[str]):
    """Lies over the view, and has its keys, each at once and in the order of typing: none is for what it covers."""

    def pressed(self, key: str, at: float) -> None:
        """A key was pressed at that time."""
        raise NotImplementedError


class Help(Dialog):
    """The keys, over the whole screen; any key closes it."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def compose(self) -> ComposeResult:
        yield HelpPane(self._look, id="help")

    def pressed(self, key: str, at: float) -> None:
        self.dismiss("")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if self.is_current:
            self.dismiss("")


class AlwaysPane(Pane, can_focus=True):
    """What would be added to which file."""

    def __init__(
        self, look: Look, subject: str, file: str, text: str, why_not: str, *, listens: Callable[[], bool]
    ) -> None:
        super().__init__(look, id="always")
        self._subject = subject
        self._file = file
        self._text = text
        self._why_not = why_not
        self._listens = listens

    def draw(self, width: int, height: int) -> list[tuple[Line, str]]:
        look = self.look
        room = max(width - 4, 10)
        listens = self._listens()
        lines: list[tuple[Line, str]] = [self.heading("allow always", "Esc: no", width)]

        def add(said: str, style: str, most: int, *, name: bool = False) -> None:
            fit = words.wrapped if name else words.folded
            lines.extend(([("  " + each, style)], PLAIN) for each in fit(look.encoded(said), room, most, look.ellipsis))

        add(self._subject, BOLD, 4, name=True)
        lines.append(([], PLAIN))
        keys: list[tuple[str, str]] = []
        if self._why_not:
            for each in self._why_not.splitlines():
                add(words.copied(each), WARN, 4)
        else:
            add(f"adds to {self._file}, for later runs:", PLAIN, 3, name=True)
            for each in self._text.splitlines():
                add(words.copied(each), PLAIN, 3, name=True)
            keys.append(("w", "add it, and allow"))
        keys.append(("s", "only for this session"))
        line: Line = [("  ", PLAIN)]
        for key, said in keys:
            line += [(key if listens else "-", KEY if listens else DIM), (f" {said}   ", PLAIN if listens else DIM)]
        line += [("Esc", KEY), (" no", PLAIN)]
        del lines[max(height - 2, 1) :]
        lines += [([], PLAIN), (line, PLAIN)]
        return lines


class Always(Dialog):
    """Asks again before a profile is changed: gives `always`, `session`, or an empty word for no."""

    def __init__(
        self, look: Look, clock: Callable[[], float], *, subject: str, file: str = "", text: str = "", why_not: str = ""
    ) -> None:
        super().__init__()
        self._clock = clock
        self._guard = Guard()
        self._possible = {"s": "session"} if why_not else {"w": "always", "s": "session"}
        self._listening = False
        self._pane = AlwaysPane(look, subject, file, text, why_not, listens=lambda: self._guard.listens(clock()))

    def compose(self) -> ComposeResult:
        yield self._pane

    def on_mount(self) -> None:
        self.call_after_refresh(lambda: self._guard.seen(self._clock()))
        self.set_interval(0.1, self._tick)

    def _tick(self) -> None:
        listening = self._guard.listens(self._clock())
        if listening != self._listening:
            self._listening = listening
            self._pane.redraw()

    def on_resize(self) -> None:
        self._guard.seen(self._clock())

    def on_paste(self) -> None:
        self._guard.typed(self._clock())

    def pressed(self, key: str, at: float) -> None:
        listens = self._guard.listens(at)
        self._guard.typed(at)
        if key not in self._possible:
            self.dismiss("")
        elif listens:
            self.dismiss(self._possible[key])
