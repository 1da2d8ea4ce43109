"""How far long work on a ledger has come: a bar on standard error, for a person who waits.

It is drawn only on a terminal, only by the loop that does the work, and only when that takes longer than half a
second; at the end nothing of it is left. No thread, and no cursor to bring back for whoever is ended by a signal.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from pincer_trace.ledger.session import LEDGER_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from pincer_trace.ledger.read import Tell

_PATIENCE = 0.5  # seconds until there is something to show
_PAUSE = 0.1  # from one drawing to the next
_CLEAR = b"\r\x1b[2K"
_SHORT, _WIDE = 4, 100  # columns: the shortest bar, and the longest line


class Progress:
    """Of reading `total` bytes. `tell`, for `read_records` and those above it, is None where nobody looks."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(total, 1)
        self._next = monotonic() + _PATIENCE
        self._shown = False
        self._bar: Any = None
        looks = (
            sys.stderr is not None and os.isatty(2) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
        )
        self.tell: Tell | None = self._tell if looks else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def hide(self) -> None:
        """Take it away, before something else is written; it comes back when nothing is for a while."""
        if self._shown:
            self._next = monotonic() + _PATIENCE
            self._write(_CLEAR)
            self._shown = False

    def _tell(self, done: int) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + _PAUSE
            line = self._drawn(done)
            self._shown = True  # before: an interrupt may come while it is written
            self._write(b"\r" + line + b"\x1b[K")

    def _drawn(self, done: int) -> bytes:
        if self._bar is None:
            self._bar = _Bar(self._what, self._total)
        drawn: bytes = self._bar.drawn(min(done, self._total))
        return drawn

    def _write(self, text: bytes) -> None:
        try:
            os.write(2, text)
        except OSError:
            self._next = float("inf")  # nobody sees it any more


class _Bar:
    """The line itself. Rich draws the bar; its table of columns around that would cost ten times as much."""

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress_bar import ProgressBar

        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = ProgressBar(total)
        self._what = what
        self._start = monotonic() - _PATIENCE

    def drawn(self, done: int) -> bytes:
        total = self._bar.total or 1
        left = (monotonic() - self._start) * (total - done) / max(done, 1)
        behind = f" {100 * done // total:>3}% {_clock(left)} left"
        try:
            columns = os.get_terminal_size(2).columns
        except OSError:
            columns = 0
        room = (
            min(columns - 1, _WIDE) - len(self._what) - 1 - len(behind)
        )  # the last column would wrap on some terminals
        self._bar.update(done)
        self._bar.width = max(room, 1)
        text = f"{self._what} {self._coloured() if room >= _SHORT else ''}{behind}"
        return text.encode(self._console.encoding, "replace")

    def _coloured(self) -> str:
        with self._console.capture() as captured:
            self._console.print(self._bar, end="")
        return captured.get()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(min(int(seconds), 359_999), 60)
    return f"{minutes}:{seconds:02}"


def of_ledger(path: str, what: str = "reading the log") -> Progress:
    """Of reading the ledger of the session's directory `path` once."""
    try:
        size = os.stat(os.path.join(path, LEDGER_FILE)).st_size
    except OSError:
        size = 0
    return Progress(what, size)
