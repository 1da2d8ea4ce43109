"""Giving answers: the same as `approve` and `deny` do, for a view. Called beside it, in threads."""

from __future__ import annotations

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.twin.grants import ALWAYS, DENY, DENY_SESSION, ONCE, SESSION
from pincer_trace.twin.questions import PAST
from pincer_trace.ui import always
from pincer_trace.ui.answers import consequence, subject
from pincer_trace.ui.feed import Feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ui.always import Addition

    Facts = dict[str, Any]


ANSWERS = (  # key, the answer, what is said of it, and in few words
    ("a", ONCE, "allow once", "once"),
    ("s", SESSION, "for the session", "session"),
    ("w", ALWAYS, "always...", "always..."),
    ("d", DENY, "deny", "deny"),
    ("x", DENY_SESSION, "deny for the session", "deny session"),
)
KINDS = {key: kind for key, kind, _, _ in ANSWERS}


class Said:
    """What came of an answer, in words that are safe, and about what; `taken`: whether the supervisor has it."""

    __slots__ = ("about", "taken", "words")

    def __init__(self, words: str, about: str = "", *, taken: bool) -> None:
        self.words = words
        self.about = about
        self.taken = taken


def answer(facts: Facts, number: int, kind: str) -> Said:
    """Give it."""
    try:
        with Feed(facts) as connection:
            told = connection.ask(op="answer", id=number, answer=kind)
    except UserError as error:
        return Said(str(error).removeprefix(f"session {paths.display(str(facts.get('id')))}: "), taken=False)
    return Said(f"{PAST[kind]}; {consequence(PAST[kind], told)}:", subject(told["question"]), taken=True)


def answer_always(facts: Facts, number: int, addition: Addition) -> Said:
    """Give it, and then add to the profile."""
    said = answer(facts, number, ALWAYS)
    if not said.taken:
        return said
    try:
        how = "added to" if addition.write() else "already in"
    except UserError as error:
        return Said(f"allowed for this session, but not for later runs: {error}", taken=True)
    return Said(f"{said.words.rstrip(':')}; {how}", paths.named(addition.file), taken=True)


def addition(facts: Facts, question: dict[str, Any]) -> tuple[Addition | None, str]:
    """What `always` would add; None and why nothing can be."""
    try:
        return always.addition(facts, question), ""
    except (always.NoLine, UserError) as why:
        return None, str(why)
