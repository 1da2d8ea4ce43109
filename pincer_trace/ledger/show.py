"""Decisions and sessions as lines for people: pure functions from records to styled pieces of text.

A piece is (text, style); whoever prints may drop the style. Every foreign string has been through
`paths.display` (hazard P53), so a piece is safe on any terminal.
"""

from __future__ import annotations

import os
import shlex
import time
from fnmatch import fnmatchcase

from pincer_trace import paths
from pincer_trace.ledger.read import raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ledger.read import Record

Piece = tuple[str, str]

PLAIN, DIM, GOOD, BAD, WARN, BOLD = "", "dim", "green", "red", "yellow", "bold"
NATIVE = "the kernel refuses this user too: not counted"
EXPECTED = "asked for in honest use, too: counted apart"
_TWIN = frozenset({"left", "right"})
_LEAST, _NARROW = 12, 24  # columns for a name: on one line with the rest, and where that is broken
NOT_ALLOWED = frozenset({"denied", "failure"})
LOG_HEADER = f"{'SEQ':>6} {'TIME':8} {'PID':>7} {'PROGRAM':10} {'EFFECT':8} {'OUTCOME':7} PATH"
SESSIONS_HEADER = f"{'SESSION':22} {'STARTED':16} {'STATE':7} {'EXIT':>4} {'ALLOWED':>7} {'DENIED':>6} COMMAND"


class Filter:
    """Which decisions are wanted: each given criterion must hold, and one value of it is enough."""

    __slots__ = ("effects", "globs", "pids", "verdicts")

    def __init__(
        self,
        effects: tuple[str, ...],
        verdicts: tuple[str, ...],
        globs: tuple[str, ...],
        pids: tuple[int, ...],
    ) -> None:
        self.effects = effects
        self.verdicts = verdicts
        self.globs = globs
        self.pids = pids

    def wants(self, decision: Record) -> bool:
        """Whether `decision` meets every criterion. `*` crosses slashes; a glob without one meets names."""
        path = decision["path"] or ""
        name = path.rpartition("/")[2]
        return (
            (not self.effects or decision["effect"] in self.effects)
            and (not self.verdicts or decision["verdict"] in self.verdicts)
            and (not self.pids or decision["pid"] in self.pids)
            and (not self.globs or any(fnmatchcase(path if "/" in glob else name, glob) for glob in self.globs))
        )


def decision_lines(decision: Record, width: int | None) -> list[list[Piece]]:
    """One line for a decision, one with rule and reason when it was not just allowed, one with votes that differ.

    `width` in columns shortens the path in its middle; None leaves it whole.
    """
    when = time.strftime("%H:%M:%S", time.localtime(_number(decision["time"])))
    program = os.path.basename(_shown(decision["exe"], 200)) or "-"
    outcome = _shown(decision["outcome"], 40)
    pid = decision["pid"]
    count = decision.get("count")
    head = f"{decision['seq']:>6} {when} {'-' if pid is None else pid:>7} {_cut(program, 10):10} "
    path = _shown(decision["path"], 5000) or "-"
    extra = decision.get("extra")
    if isinstance(extra, dict) and isinstance(extra.get("to"), str):
        path += " -> " + _shown(extra["to"], 5000)
    tail = f" x{count}" if isinstance(count, int) and count > 1 else ""
    if width is not None:
        path = _middle(path, _room(width, len(head) + 17 + len(tail)))
    refused = decision.get("kind") in NOT_ALLOWED
    note = told_apart(decision) if refused else ""
    style = DIM if note else BAD if refused else GOOD if outcome == "done" else WARN
    lines: list[list[Piece]] = [
        [
            (head, DIM),
            (f"{_shown(decision['effect'], 20) or '-':8} ", PLAIN),
            (f"{outcome:7}", style),
            (f" {path}", PLAIN),
            (tail, DIM),
        ]
    ]
    why = ": ".join(filter(None, (_shown(decision["rule"], 1000), _shown(decision["reason"], 2000))))
    if refused:
        if note:
            why += f" ({note})"
        lines.append([(f"{'':7}{_shown(decision['verdict'], 20)}: {why}", DIM)])
    elif by := confirmed_by(decision):
        lines.append([(f"{'':7}confirm: {why}: allowed by {by}", DIM)])
    elif shown := shown_as(decision):
        lines.append([(f"{'':7}{shown}: {why}", DIM)])
    said = votes(decision)
    if len({verdict for by, verdict, _ in said if by in _TWIN}) > 1:
        lines.append([(f"{'':7}" + ", ".join(f"{by} {verdict} ({why})" for by, verdict, why in said), DIM)])
    return lines


def told_apart(decision: Record) -> str:
    """Why a refusal is none of those that are counted as denied; empty where it is one."""
    return NATIVE if decision.get("native") else EXPECTED if decision.get("expected") else ""


def confirmed_by(decision: Record) -> str:
    """Who allowed what a rule wanted confirmed; empty where nothing was to be."""
    extra = decision.get("extra")
    answers = extra.get("confirmed") if isinstance(extra, dict) else None
    if answers == "auto":
        return "--confirm auto"
    numbers = [str(number) for number in answers if type(number) is int] if isinstance(answers, list) else []
    return f"a person (record{'s' if len(numbers) > 1 else ''} {', '.join(numbers)})" if numbers else ""


def shown_as(decision: Record) -> str:
    """How much a view has that was given in the place of a file, or was saved there; empty where none was."""
    extra = decision.get("extra")
    for name, words in (
        ("view", "read as a view"),
        ("saved", "an edited view was saved"),
        ("given", "its value was given to a sink as"),
    ):
        what = extra.get(name) if isinstance(extra, dict) else None
        if isinstance(what, str):
            return f"{words}: {_shown(what, 80)}"
    return ""


def votes(decision: Record) -> list[tuple[str, str, str]]:
    """Each vote of a decision: by whom, the verdict, and the rule or the reason for it."""
    found = []
    for vote in decision["votes"] if isinstance(decision["votes"], list) else ():
        match vote:
            case {"by": str(by), "verdict": str(verdict), **more}:
                why = _shown(more.get("rule"), 1000) or _shown(more.get("reason"), 1000) or "no rule"
                found.append((_shown(by, 20), _shown(verdict, 20), why))
    if any(by == "intent" for by, _, _ in found):  # the right one's vote is then the model's, which has no rule
        found = [(by, verdict, "as the model says" if why == "no rule" else why) for by, verdict, why in found]
    return found


def session_line(facts: Record, counts: Record, width: int | None) -> list[Piece]:
    """One line for a session: `facts` from `load_session`, `counts` from it or from `count_records`."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(_number(facts["started"])))
    state = facts["state"]
    status = facts.get("exit")
    head = f"{_shown(facts.get('id'), 22):22} {when} "
    allowed, denied, failures = (_number(counts.get(name)) for name in ("allowed", "denied", "failures"))
    numbers = f" {status if isinstance(status, int) else '-':>4} {allowed:>7.0f} {denied + failures:>6.0f} "
    command = facts.get("command")
    words = [shlex.quote(_shown(word, 400)) for word in command] if isinstance(command, list) else []
    text = " ".join(words)
    if width is not None:
        text = _cut(text, _room(width, len(head) + 7 + len(numbers)))
    return [
        (head, PLAIN),
        (f"{state:7}", GOOD if state == "running" else WARN if state == "killed" else DIM),
        (numbers, PLAIN),
        (text, BOLD),
    ]


def _shown(text: object, limit: int) -> str:
    """A string of a record, safe for a terminal."""
    return paths.display(raw(text), limit) if isinstance(text, str) else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _room(width: int, taken: int) -> int:
    """For what stands last on a line: its rest; on a narrow terminal, where the line is broken anyway, another line."""
    room = width - taken
    while room < (_LEAST if taken < width else _NARROW):
        room += max(width, 1)
    return room


def _middle(text: str, width: int) -> str:
    """Shorten in the middle: the end of a path tells most, its beginning the place."""
    if len(text) <= width:
        return text
    left = (width - 1) // 3
    return text[:left] + "…" + text[len(text) - (width - 1 - left) :]
