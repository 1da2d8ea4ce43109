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


def question_lines(question: dict[str, Any]) -> list[list[Piece]]:
    """What a person must know to answer."""
    lines: list[list[Piece]] = [[(f"{question.get('id'):>4} ", "bold"), (subject(question), "bold")]]
    programs = [_name(each) for each in question.get("programs") or [question.get("exe")] if each]
    if programs:
        lines.append(_line(f"by {', '.join(programs)} (process {question.get('pid')}){_times(question)}"))
    reason, rule = _name(question.get("reason")), _name(question.get("rule"))
    if reason or rule:
        lines.append(_line(f"reason: {reason}{f' ({rule})' if rule else ''}"))
    if question.get("covers"):
        lines.append(_line(f"a yes covers {_name(question['covers'])} in that directory: a name to save under"))
    lines.append([(_INDENT, ""), (_time_left(question), "yellow" if question.get("waiting") else "dim")])
    return lines


def subject(question: dict[str, Any]) -> str:
    """Effect and names."""
    text = f"{_name(question.get('effect'))} {_name(question.get('path'))}"
    if question.get("to"):
        text += f" -> {_name(question['to'])}"
    return f"{text}, {_name(question['manner'])}" if question.get("manner") else text


def outcome(said: str, answer: dict[str, Any]) -> str:
    """One line about an answer that was taken."""
    resumed = answer.get("resumed")
    allowed = said.startswith("allowed")
    if resumed:
        calls = paths.counted(resumed, "held call")
        what = f"{calls} {'goes' if resumed == 1 else 'go'} on" if allowed else f"{calls} refused"
    elif said == "allowed once":
        what = "no call is held any more: the next try passes, within ten minutes"
    else:
        what = "no call is held any more"
    return f"{said}: {subject(answer['question'])}; {what}"


def _times(question: dict[str, Any]) -> str:
    asked = question.get("asked")
    return f", asked {asked} times" if isinstance(asked, int) and asked > 1 else ""


def _time_left(question: dict[str, Any]) -> str:
    if question.get("waiting"):
        return f"{question.get('held', 0):.0f} s left, then it is denied"
    return f"denied by now; a yes lets the next try pass, for {question.get('answerable', 0) / 60:.0f} more minutes"


def _line(text: str) -> list[Piece]:
    return [(_INDENT + text, "")]


def _name(value: object) -> str:
    return paths.display(raw(value), _WHOLE) if isinstance(value, str) else ""
