"""Our lines at the lower edge of a terminal: a scrolling region for the program above them. Text only. console_codes(4)

The margins are set so that what scrolls, and every move of the cursor that `filter` lets pass, stays above. The cursor
is the program's: it is saved and restored around each drawing of ours.
"""

from __future__ import annotations

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_PLAIN = "\x1b[m"
_ERASE = "\x1b[K"
_NARROWEST = 40  # columns in which our lines say something
_FIRST_OF_TITLES, _LAST_OF_TITLES = "\x1b[22;0t", "\x1b[23;0t"


class Region:
    """`rows` and `columns` of the terminal; `height` lines of it are ours."""

    def __init__(self, rows: int, columns: int, height: int) -> None:
        self.rows = rows
        self.columns = columns
        roomy = rows >= 3 * height and columns >= _NARROWEST
        self.height = height if roomy else 0  # else there is no room: the program has it all
        self._drawn: list[str] = []

    @property
    def above(self) -> int:
        """Lines that the program has."""
        return self.rows - self.height

    def begin(self) -> str:
        """Make room below the cursor, wherever it is, and keep the program above."""
        if not self.height:
            return ""
        scrolled = "\n" * self.height + f"\x1b[{self.height}A"
        return f"{scrolled}{_SAVE}\x1b[1;{self.above}r{_RESTORE}"

    def end(self) -> str:
        """The whole terminal is the program's again, and our lines are gone."""
        if not self.height:
            return ""
        self._drawn = []
        erased = "".join(f"\x1b[{row};1H{_ERASE}" for row in range(self.above + 1, self.rows + 1))
        return f"{_SAVE}{_PLAIN}{erased}\x1b[r{_RESTORE}"

    def draw(self, lines: list[str]) -> str:
        """Show `lines`, each of them at most `columns` wide; of what is there already only what differs."""
        if not self.height:
            return ""
        wanted = (lines + [""] * self.height)[: self.height]
        changed = [
            f"\x1b[{row};1H{_PLAIN}{_ERASE}{line}{_PLAIN}"
            for row, (line, old) in enumerate(_pairs(wanted, self._drawn), self.above + 1)
            if line != old
        ]
        self._drawn = wanted
        return f"{_SAVE}{''.join(changed)}{_RESTORE}" if changed else ""

    def forget(self) -> None:
        """Nothing is known of what the terminal shows: the next drawing is whole."""
        self._drawn = []


def _pairs(wanted: list[str], drawn: list[str]) -> list[tuple[str, str | None]]:
    return [(line, drawn[place] if place < len(drawn) else None) for place, line in enumerate(wanted)]


def title(text: str) -> str:
    """Remember the terminal's title, and set this one. `text` is ours, and plain."""
    return f"{_FIRST_OF_TITLES}\x1b]2;{text}\x1b\\"


def old_title() -> str:
    """The title that was remembered."""
    return _LAST_OF_TITLES
