"""Questions as lines for people, and what is said to an answer: text only, every foreign string made harmless (P53)."""

from __future__ import annotations

from pincer_trace import paths
from pincer_trace.ledger.read import raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ledger.show import Piece

_WHOLE = 30_000  # a name is shown whole: its end is what matters
_INDENT = " " * 5
_LARGE = 1 << 53


def question_lines(question: dict[str, Any]) -> list[list[Piece]]:
    """What a person must know to answer."""
    lines: list[list[Piece]] = [[(f"{_number(question.get('id')):>4.0f} ", "bold"), (subject(question), "bold")]]
    programs = [_name(each) for each in question.get("programs") or [question.get("exe")] if each]
    if programs:
        process = f"(process {_number(question.get('pid')):.0f})"
        lines.append(_line(f"by {', '.join(programs)} {process}{_times(question)}"))
    reason, rule = _words(question.get("reason")), _words(question.get("rule"))
    if reason or rule:
        lines.append(_line(f"reason: {reason}{f' ({rule})' if rule else ''}"))
    if question.get("covers"):
        lines.append(_line(f"a yes covers {_name(question['covers'])} in that directory: a name to save under"))
    lines.append([(_INDENT, ""), (_time_left(question), "yellow" if question.get("waiting") else "dim")])
    return lines


def subject(question: dict[str, Any]) -> str:
    """Effect and names."""
    text = f"{_words(question.get('effect'))} {_name(question.get('path'))}"
    if question.get("to"):
        text += f" -> {_name(question['to'])}"
    return f"{text}, {_words(question['manner'])}" if question.get("manner") else text


def outcome(said: str, answer: dict[str, Any]) -> str:
    """One line about an answer that was taken."""
    return f"{said}: {subject(answer['question'])}; {consequence(said, answer)}"


def consequence(said: str, answer: dict[str, Any]) -> str:
    """What became of the calls that were held."""
    resumed = int(_number(answer.get("resumed")))
    allowed = said.startswith("allowed")
    if resumed:
        calls = paths.counted(resumed, "held call")
        return f"{calls} {'goes' if resumed == 1 else 'go'} on" if allowed else f"{calls} refused"
    if said == "allowed once":
        return "no call is held any more: the next try passes, within ten minutes"
    return "no call is held any more"


def _times(question: dict[str, Any]) -> str:
    asked = question.get("asked")
    return f", asked {asked} times" if isinstance(asked, int) and asked > 1 else ""


def _time_left(question: dict[str, Any]) -> str:
    if question.get("waiting"):
        return f"{_number(question.get('held')):.0f} s left, then it is denied"
    minutes = _number(question.get("answerable")) / 60
    return f"denied by now; a yes lets the next try pass, for {minutes:.0f} more minutes"


def _line(text: str) -> list[Piece]:
    return [(_INDENT + text, "")]


def _words(value: object) -> str:
    """Our own text, with whatever foreign is in it made harmless."""
    return paths.display(raw(value), _WHOLE) if isinstance(value, str) else ""


def _name(value: object) -> str:
    """A name that the worker may have chosen."""
    return paths.named(raw(value), _WHOLE) if isinstance(value, str) else ""


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and abs(value) < _LARGE else 0
