"""When a key may answer a question. Pure; times are seconds of one clock. The default is no (hazards P53, P54).

A person who types in the wrong window, or whose key arrives when something else has come under it, must not allow
anything. So a question is answered in two steps that no text has in it by accident: it is *opened*, by its number, an
arrow or the mouse, and stays the open one whatever comes; and then a key answers it, which counts only when the
question has been on the screen unchanged for a while, and nothing was typed just before. Nothing opens by itself.
"""

from __future__ import annotations

SEEN = 0.7  # seconds that a question must have been on the screen as it is
QUIET = 0.4  # seconds without a key: text is typed faster, and so repeats a key that is held down


class Guard:
    """Of one thing that can be answered: an open question, or a dialog."""

    __slots__ = ("_seen", "_typed")

    def __init__(self) -> None:
        self._seen: float | None = None
        self._typed = float("-inf")

    def seen(self, now: float) -> None:
        """It is on the screen now, and was not before, or not as it is now."""
        self._seen = now

    def hidden(self) -> None:
        """It is on the screen no more."""
        self._seen = None

    def typed(self, now: float) -> None:
        """A key was pressed (whichever), something was pasted, or the window got the keyboard."""
        self._typed = max(self._typed, now)

    def listens(self, now: float) -> bool:
        """Whether a key that is pressed now may answer."""
        return self._seen is not None and now >= self._seen + SEEN and now >= self._typed + QUIET
