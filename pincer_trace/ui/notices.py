"""What a person is told while a program has the terminal: lines on standard error, or a pane of tmux below it.

Only where that harms nobody: never between the lines of a program that draws on the whole screen, never into a file or
a pipe that somebody reads (questions excepted: whoever waits must know of them). The front's; imports nothing heavy.
"""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock, start_new_thread

from pincer_trace.errors import UserError
from pincer_trace.kernel.bare import signal
from pincer_trace.ui.pane import Pane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ledger import Session
    from pincer_trace.options import RunOptions

_PANE_AFTER = 1.0  # seconds that a command must have lasted: a short one would only make the screen flicker
_BURST = 5  # lines about denials at once
_REFILL = 2.0  # seconds for each one more


def say(message: str) -> None:
    """One line of ours on standard error, if it can be written. With `stty tostop` it stops no background job."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        os.write(2, b"pincer-trace: " + message.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # closed or full: nobody listens
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def pane_for(options: RunOptions) -> Pane | None:
    """Where a pane will be opened, None where there will be none. Raises UserError where `--ui tmux` cannot be had."""
    if options.ui not in ("auto", "tmux"):
        return None
    pane, reason = Pane.find(os.environ)
    if pane is None and options.ui == "tmux":
        raise UserError(f"--ui tmux: {reason}; nothing was started")
    return pane


class Notices:
    """Of one run."""

    def __init__(self, options: RunOptions, pane: Pane | None, session: Session) -> None:
        self._speaks = options.ui != "none" and not options.quiet
        self._pane = pane
        self._session = session
        self._open_at = 0.0  # when the pane is to be opened; 0: it was, or there will be none
        self._lines = float(_BURST)
        self._filled = time.monotonic()
        self._left_out = 0
        self._opening = allocate_lock()  # one thread at a time
        if pane is not None:
            self._open_at = time.monotonic() + (0.0 if options.ui == "tmux" else _PANE_AFTER)

    def begin(self, *, hold: float | None) -> None:
        """The first line; `hold`: how long a question waits, in a run that asks."""
        where = self._session.elsewhere
        if not self._speaks or (self._pane is not None and hold is None):
            return
        if hold is not None:
            commands = f"pincer-trace monitor{where}, or pincer-trace pending{where}"
            say(f"what needs a confirmation waits up to {hold:g} s: in another terminal, {commands}")
        elif os.isatty(2):
            say(f"to watch it, in another terminal: pincer-trace monitor{where}")

    @property
    def _is_shown(self) -> bool:
        """Whether the pane shows it."""
        return self._pane is not None and not self._open_at

    def wait(self) -> float | None:
        """Milliseconds until `look`; None: there is nothing to look after."""
        return max(self._open_at - time.monotonic(), 0.0) * 1000 if self._open_at else None

    def look(self) -> None:
        """Open the pane when it is time."""
        if self._open_at and time.monotonic() >= self._open_at:
            self._open()

    def question(self, text: str) -> None:
        """Somebody waits for an answer: a pane that a person has closed meanwhile is opened again.

        Without one it rings, also where a program draws: a bell moves nothing on the screen.
        """
        if self._pane is not None:
            self._open()
        elif self._speaks:
            if _may_be_told():
                say(text)
            _ring()

    def denial(self, text: str) -> None:
        """Something new was denied. When there are many, only how many is told."""
        if self._is_shown or not self._speaks or not os.isatty(2) or not _may_be_told():
            return
        now = time.monotonic()
        self._lines = min(self._lines + (now - self._filled) / _REFILL, _BURST)
        self._filled = now
        if self._lines < 1:
            self._left_out += 1
            return
        self._lines -= 1
        if self._left_out:
            text += f" ({self._left_out} more denied before it)"
            self._left_out = 0
        say(text)

    def _open(self) -> None:
        """Beside the front's loop: the tmux server may take its time."""
        self._open_at = 0.0
        if self._opening.acquire(blocking=False):
            start_new_thread(self._ask_for_pane, ())

    def _ask_for_pane(self) -> None:
        """Where it cannot be opened, lines have to do."""
        pane = self._pane
        try:
            reason = pane.open(self._session.path) if pane is not None else ""
        finally:
            self._opening.release()
        if reason:
            self._pane = None
            self.denial(f"no pane below: {reason}; in another terminal: pincer-trace monitor{self._session.elsewhere}")


def _ring() -> None:
    try:
        if os.isatty(2) and select.select([], [2], [], 0)[1]:
            os.write(2, b"\a")
    except OSError:
        pass  # the terminal is gone


def _may_be_told() -> bool:
    """Whether a line in between harms nobody: no program has the terminal for itself, and nobody keeps us waiting."""
    import termios

    from pincer_trace.kernel.terminal import is_cooked

    try:
        if os.isatty(2) and not is_cooked(2):
            return False
        return bool(select.select([], [2], [], 0)[1])
    except (termios.error, OSError):
        return False
