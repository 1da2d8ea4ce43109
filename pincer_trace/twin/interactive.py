"""What becomes of an effect that wants a confirmation where a person is asked.

A person's yes is a grant, found by what was asked and not by who asked just then; the request that meets it gets a
token of its own, bound to its (a, p, h).
"""

from __future__ import annotations

import os
from time import CLOCK_BOOTTIME, clock_gettime

from pincer_trace.kernel import libc
from pincer_trace.profile import CONFIRM
from pincer_trace.twin import codes
from pincer_trace.twin.confirmation import Asked, Confirmation
from pincer_trace.twin.grants import Answer, Key, entry, pinned
from pincer_trace.twin.questions import BRIEF, TooManyQuestions
from pincer_trace.twin.staging import staged_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pincer_trace.twin.authority import Judgement, Refusal
    from pincer_trace.twin.grants import Grants, Place
    from pincer_trace.twin.questions import Questions
    from pincer_trace.twin.target import Target

_TREE = b"tree"  # whom an answer is for: everything of the session


class Interactive(Confirmation):
    """A person is asked: `--confirm ask`. `program` is the digest of the profile; who `draws` is held for less long."""

    def __init__(
        self, program: bytes, grants: Grants, questions: Questions, draws: Callable[[int], bool] = lambda _tid: False
    ) -> None:
        self._program = program
        self._draws = draws
        self._grants = grants
        self._questions = questions
        self._notification = 0
        self._about: tuple[str, Target, str] | None = None

    def begin(self, notification: int) -> None:
        self._notification = notification
        self._about = None

    def about(self, effect: str, target: Target, manner: str) -> None:
        self._about = effect, target, manner

    def permits(self, judgement: Judgement) -> bool:
        answer = self._grants.answer(self._key(judgement), _now())
        return answer is not None and answer.yes

    def refusal(self, judgement: Judgement, refusal: Refusal) -> tuple[str, str]:
        key = self._key(judgement)
        if not self._notification:
            answer = self._grants.answer(key, _now())
            if answer is None or answer.yes:
                return codes.NOBODY_TO_ASK, "needs a confirmation, and is found out too late for asking"
        else:
            try:
                shown = _shown(*self._subject(judgement), refusal)
                hold = BRIEF if self._draws(refusal.pid) else None
                asked = self._questions.ask(key, shown, _now(), self._notification, hold)
            except TooManyQuestions as many:
                return codes.TOO_MANY_QUESTIONS, f"needs a confirmation: {many}"
            if not isinstance(asked, Answer):
                raise Asked(refusal, asked if asked.asked == 1 else None)
            answer = asked
        if answer.yes:
            raise Asked(None)  # it came just now
        return codes.REFUSED_BY_PERSON, f"refused for the session by a person (record {answer.id})"

    def use(self, judged: Sequence[Judgement]) -> list[int] | None:
        keys = [self._key(judgement) for judgement in judged if judgement.verdict == CONFIRM]
        used = self._grants.use(keys, _now())
        return None if used is None else [answer.id for answer in used]

    def _subject(self, judgement: Judgement) -> tuple[str, Target, str]:
        """The call as a whole; what lies below a directory that moves is a question of its own: it must be shown."""
        target = judgement.target
        if self._about is None or target.lies:
            return judgement.claim.effect, target, target.manner
        return self._about

    def _key(self, judgement: Judgement) -> Key:
        """One question for a call and a rule: whatever else that rule wants confirmed in it is answered too."""
        effect, target, manner = self._subject(judgement)
        if judgement.rule is not None:
            why = judgement.rule.source
        else:  # the twin's words tell which doubt it is; the model's vary
            why = "" if judgement.opinion is not None else judgement.reason
        return Key(self._program, _TREE, effect, _places(target), f"{manner}\0{why}")


def _now() -> float:
    return clock_gettime(CLOCK_BOOTTIME)


def _places(target: Target) -> list[Place]:
    """Where it is; of what moves or gets another name, both ends."""
    if not target.name:
        if target.found is None or target.descriptor < 0:
            return [(b"name", target.path)]
        return [_pinned(target.descriptor, target.found.st_dev, target.found.st_ino)]
    directory = target.path.rpartition(b"/")[0]
    places = [entry(*target.place(), target.name, directory=directory)]
    if target.moved is not None:
        parent, name = target.moved
        above = os.fstat(parent)
        places.append(entry(above.st_dev, above.st_ino, name, directory=_name_of(parent)))
    elif target.arrives and target.descriptor >= 0 and target.found is not None:
        places.append(_pinned(target.descriptor, target.found.st_dev, target.found.st_ino))
    return places


def _name_of(pinned: int) -> bytes:
    try:
        return os.readlink(b"/proc/self/fd/%d" % pinned)
    except OSError:
        return b"a name that is too long to be told"


def _pinned(descriptor: int, dev: int, ino: int) -> Place:
    return pinned(dev, ino, born=libc.birth_time(descriptor))


def _shown(effect: str, target: Target, manner: str, refusal: Refusal) -> dict[str, object]:
    """What a person is told of it."""
    shown: dict[str, object] = {
        "effect": effect,
        "path": target.path,
        "exe": refusal.exe,
        "pid": refusal.pid,
        "rule": refusal.rule,
        "reason": refusal.reason,
    }
    if target.moved is not None:
        parent, name = target.moved
        shown["path"] = _name_of(parent).rstrip(b"/") + b"/" + name
        shown["to"] = target.path
    elif target.arrives and target.descriptor >= 0:
        shown["path"] = _name_of(target.descriptor)
        shown["to"] = target.path
    elif target.lies and target.lies != target.path:
        shown["path"] = target.lies
        shown["to"] = target.path
    if manner:
        shown["manner"] = manner
    covers = staged_name(target.name)
    if covers != target.name:
        shown["covers"] = covers
    return shown
