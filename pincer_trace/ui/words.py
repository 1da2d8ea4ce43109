"""Words, marks and styles that live views share. Every foreign string becomes text here, and only here (P53).

What a person sees of a decision is a mark *and* a word, never a colour alone.
"""

from __future__ import annotations

import os
import time
import unicodedata

from rich.cells import cell_len, get_character_cell_size

from pincer_trace import paths
from pincer_trace.ledger.read import raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pincer_trace.ui.state import Counts

    Piece = tuple[str, str]  # text that is safe on any terminal, and the name of a style

# What became of a decision.
DONE, FAILED, OPEN, DENIED, EXPECTED, NATIVE, FAILURE, ANSWER, UNSEEN = (
    "done", "failed", "open", "denied", "expected", "native", "failure", "answer", "unseen",
)  # fmt: skip
REFUSED = frozenset({DENIED, EXPECTED, NATIVE, FAILURE})

_MARKS = {
    DONE: ("✓", "+"), FAILED: ("-", "-"), OPEN: ("…", "."), DENIED: ("✗", "X"), EXPECTED: ("✕", "x"),
    NATIVE: ("·", "n"), FAILURE: ("!", "!"), ANSWER: ("»", ">"), UNSEEN: ("·", "."),
}  # fmt: skip
_WORDS = {
    DONE: "done", OPEN: "begun", DENIED: "DENIED", EXPECTED: "denied", NATIVE: "EACCES", FAILURE: "FAILURE",
    UNSEEN: "begun",
}  # fmt: skip

PLAIN, DIM, BOLD, GOOD, BAD, WARN, CHOSEN, KEY, TITLE, ASK = (
    "plain", "dim", "bold", "good", "bad", "warn", "chosen", "key", "title", "ask",
)  # fmt: skip
STYLES = {  # of the terminal's own sixteen colours: its owner chose a background that they can be read on
    PLAIN: "", DIM: "dim", BOLD: "bold", GOOD: "green", BAD: "bold red", WARN: "yellow", CHOSEN: "reverse",
    KEY: "bold cyan", TITLE: "bold", ASK: "bold magenta",
}  # fmt: skip
_COLOURLESS = STYLES | {GOOD: "", BAD: "bold", WARN: "", KEY: "bold", ASK: "bold"}
OF_MARKS = {
    DONE: GOOD, FAILED: WARN, OPEN: WARN, DENIED: BAD, EXPECTED: DIM, NATIVE: DIM, FAILURE: BAD, ANSWER: ASK,
    UNSEEN: DIM,
}  # fmt: skip

_ELLIPSIS = ("…", "~")
_STEADY = frozenset("LNPZ")  # letters, numbers, punctuation: as wide on every terminal, but for what `_shown` sees


class Look:
    """What this terminal can show: colours or none, marks of Unicode or of ASCII."""

    __slots__ = ("_column", "styles")

    def __init__(self, environ: Mapping[str, str], encoding: str | None) -> None:
        self.styles = _COLOURLESS if environ.get("NO_COLOR") else STYLES
        self._column = 0 if (encoding or "").lower().replace("-", "") == "utf8" else 1

    def mark(self, kind: str) -> str:
        return _MARKS[kind][self._column]

    @property
    def ellipsis(self) -> str:
        return _ELLIPSIS[self._column]

    @property
    def plain(self) -> bool:
        """Whether only ASCII can be shown."""
        return self._column == 1

    def encoded(self, text: str) -> str:
        """`text`, with what this terminal has no character for escaped."""
        return text.encode("ascii", "backslashreplace").decode("ascii") if self.plain else text


def expected(counts: Counts) -> str:
    """Of refusals that are no denials, behind the number of those; empty where there are none."""
    return f", {many(counts.expected)} expected" if counts.expected else ""


def steady(text: str) -> str:
    """`text` from `paths.display`, without what terminals differ in: width, and the direction of writing.

    A line of a live view has columns: a character that is wider there than we think would push what stands behind it
    into the next one, and letters that run from right to left would take their neighbours with them.
    """
    if text.isascii():
        return text
    return "".join([c if c.isascii() or _is_steady(c) else _escaped(c) for c in text])


def _is_steady(c: str) -> bool:
    if c == "…":  # our own
        return True
    category = unicodedata.category(c)
    wide = unicodedata.east_asian_width(c)
    return (
        (category[0] in _STEADY or category in ("Sm", "Sc"))
        and unicodedata.bidirectional(c) not in ("R", "AL", "AN")
        and (wide != "A" or category[0] in "LP")
        and get_character_cell_size(c) == (2 if wide in "WF" else 1)
    )


def _escaped(c: str) -> str:
    point = ord(c)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def text(value: object, limit: int = 5000) -> str:
    """A foreign string of a record or a question: words."""
    return steady(paths.display(raw(value), limit)) if isinstance(value, str) else ""


def name(value: object, limit: int = 30_000) -> str:
    """A foreign string that is a name: in quotes where it could pass for more."""
    return steady(paths.named(raw(value), limit)) if isinstance(value, str) else ""


def copied(said: str) -> str:
    """Text of ours that may be a line to copy: it stays as it is where that is safe."""
    return said if said.isascii() and said.isprintable() else steady(paths.display(said, 5000))


def number(value: object) -> float:
    """A number of a message from elsewhere."""
    return value if isinstance(value, int | float) and abs(value) < 1 << 53 else 0


class Places:
    """How paths are shortened: `./x` in the work tree, `~/x` at home."""

    __slots__ = ("_home", "_work")

    def __init__(self, facts: Mapping[str, Any]) -> None:
        judged = facts.get("judged_by")
        places = judged.get("places") if isinstance(judged, dict) else None
        home = places.get("home") if isinstance(places, dict) else None
        work = facts.get("workspace")
        self._home = home if _is_place(home) else ""
        self._work = work if _is_place(work) else ""

    def short(self, path: str) -> str:
        """The name as a column has it. Only a path that begins with a slash is shortened; what looks so is quoted."""
        if self._work and path.startswith(self._work + "/"):
            return _prefixed("./", path[len(self._work) + 1 :])
        if path == self._work:
            return "./"
        if self._home and path.startswith(self._home + "/"):
            return _prefixed("~/", path[len(self._home) + 1 :])
        said = name(path)
        return said if said.startswith(("/", '"')) or not said else f'"{said}"'


def _prefixed(prefix: str, rest: str) -> str:
    said = name(rest)
    return f'"{prefix}{said[1:]}' if said.startswith('"') else prefix + said


def _is_place(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/") and len(path) > 1 and not path.endswith("/")


def program(exe: object) -> str:
    """The last name of an executable."""
    return name(exe.rpartition("/")[2]) if isinstance(exe, str) else ""


def clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def lasted(seconds: float) -> str:
    """`0:07`, `3:12`, `1:02:59`."""
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    return f"{hours}:{minutes % 60:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def many(count: float) -> str:
    """A count in five columns: `812`, `12.3k`, `1.2M`."""
    if count < 10_000:
        return f"{count:.0f}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size * 0.9995:
            return f"{count / size:.1f}{letter}" if count < 99.5 * size else f"{count / size:.0f}{letter}"
    raise AssertionError(count)


def outcome(kind: str, errno: str = "") -> str:
    """The word beside a mark."""
    return _WORDS.get(kind) or errno or kind


def cut(said: str, width: int, ellipsis: str = "…") -> str:
    """The beginning of a text, in so many columns."""
    if cell_len(said) <= width:
        return said
    return _fitting(said, width - 1) + ellipsis if width > 0 else ""


def middle(said: str, width: int, ellipsis: str = "…") -> str:
    """Shorten in the middle: the end of a path tells most, its beginning the place."""
    if cell_len(said) <= width:
        return said
    if width <= 1:
        return ellipsis[: max(width, 0)]
    left = (width - 1) // 3
    head = _fitting(said, left)
    tail = _fitting(said[::-1], width - 1 - left)[::-1]
    return head + ellipsis + tail


def _fitting(said: str, width: int) -> str:
    if said[:width].isascii():
        return said[:width] if width > 0 else ""
    taken = 0
    for place, c in enumerate(said):
        taken += get_character_cell_size(c)
        if taken > width:
            return said[:place]
    return said


def filled(said: str, width: int) -> str:
    """With blanks behind it, to so many columns."""
    return said + " " * (width - cell_len(said))


def wrapped(said: str, width: int, lines: int, ellipsis: str = "…") -> list[str]:
    """A name over at most so many lines, broken anywhere; what is too long for them loses its middle."""
    said = middle(said, width * lines, ellipsis)
    found: list[str] = []
    while said and len(found) < lines:
        piece = _fitting(said, width)
        if not piece:
            break
        found.append(piece)
        said = said[len(piece) :]
    return found or [""]


def folded(said: str, width: int, lines: int, ellipsis: str = "…") -> list[str]:
    """Prose over at most so many lines, broken at blanks where there are some."""
    found: list[str] = []
    rest = said
    while rest and len(found) < lines:
        piece = _fitting(rest, width)
        if not piece:
            break
        if len(piece) < len(rest):
            if len(found) == lines - 1:
                found.append(cut(rest, width, ellipsis))
                break
            at = piece.rfind(" ") if rest[len(piece)] != " " else len(piece)
            if at > width // 3:
                piece = piece[:at]
        found.append(piece)
        rest = rest[len(piece) :].lstrip(" ")
    return found or [""]


def length(pieces: Sequence[Piece]) -> int:
    """Columns that pieces take."""
    return sum([cell_len(said) for said, _ in pieces])


def command_line(facts: Mapping[str, Any]) -> str:
    """The command of a session, in words."""
    words = facts.get("command")
    return " ".join([name(word, 400) for word in words if isinstance(word, str)]) if isinstance(words, list) else ""


def session_name(facts: Mapping[str, Any]) -> str:
    return text(str(facts.get("id", "")), 40) or text(os.path.basename(str(facts.get("path", ""))), 40)
