"""Questions to a person, and the calls that are held until one is answered.

The receiving thread asks, lets go of everything, and goes on; the approval channel's thread answers and wakes it. No
lock is held while anybody thinks (invariant 9). A held call waits `hold` seconds, then it is refused; its question can
be answered for ten minutes more, so that the program's next try passes. The default is no.
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from collections import deque

from pincer_trace.twin.grants import DENY, DENY_SESSION, KINDS, YES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pincer_trace.twin.grants import Answer, Grants, Key, Person

HOLD = 30.0  # seconds that a call is held
BRIEF = 10.0  # the same of a program that a person sits before, and which looks dead meanwhile
LATE = 600.0  # seconds after that in which its question can be answered
MOST = 32  # questions at a time
MOST_HELD = 1024  # calls held at a time
RATE, PERIOD = 200, 60.0  # new questions in so many seconds
_REMEMBERED = 64  # answered questions, to say so to whoever answers twice
_PROGRAMS = 4  # executables that are told of one question


class TooManyQuestions(Exception):
    """Nobody can be asked this now: refuse it, TOO_MANY_QUESTIONS. The text says which bound was met."""


class NotAnswerable(Exception):
    """Whoever answers is told the text: there is no such question, or it is over. `code` is one word for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Question:
    """One question. `shown` is what a person sees; what their decision depends on is determined by `key`.

    `waiting` maps the token of each held call to when its hold ends; `asked` counts calls, held ones and others.
    """

    __slots__ = ("answerable_until", "asked", "id", "key", "programs", "shown", "since", "waiting")

    def __init__(self, question_id: int, key: Key, shown: dict[str, object], now: float) -> None:
        self.id = question_id
        self.key = key
        self.shown = shown
        self.since = now
        self.answerable_until = now
        self.asked = 0
        self.programs: list[object] = []
        self.waiting: dict[Hashable, float] = {}

    def hold(self, token: Hashable, shown: dict[str, object], now: float, seconds: float) -> None:
        self.asked += 1
        self.waiting[token] = now + seconds
        self.answerable_until = max(self.answerable_until, now + seconds + LATE)
        exe = shown.get("exe")
        if exe is not None and exe not in self.programs and len(self.programs) < _PROGRAMS:
            self.programs.append(exe)

    def view(self, now: float) -> dict[str, object]:
        """What the channel tells of it. Seconds are left ones: `held` until no call waits any more, `answerable`."""
        left = max(self.waiting.values(), default=now) - now
        return {
            "id": self.id,
            **self.shown,
            "programs": list(self.programs),
            "age": round(now - self.since, 1),
            "held": round(max(left, 0.0), 1),
            "waiting": len(self.waiting),
            "asked": self.asked,
            "answerable": round(max(self.answerable_until - now, 0.0), 1),
        }


class Resumed:
    """A call that need not wait any more: yes, then it is judged again and meets the grant; or a person's no."""

    __slots__ = ("question", "token", "yes")

    def __init__(self, token: Hashable, question: Question, *, yes: bool) -> None:
        self.token = token
        self.question = question
        self.yes = yes


class Questions:
    """The questions of one session, for any thread.

    `record` writes an answer into the ledger, before it counts, and gives the line's number; what it raises is raised
    by `answer`, and then nothing was answered. `wake` tells the receiving thread to `take` what was answered; `changed`
    tells whoever shows the questions that `pending` is another now: it does not wait, and calls nothing of these.
    """

    def __init__(
        self,
        grants: Grants,
        *,
        record: Callable[[dict[str, object]], int],
        wake: Callable[[], None],
        changed: Callable[[], None] = lambda: None,
        hold: float = HOLD,
    ) -> None:
        self._grants = grants
        self._record = record
        self._wake = wake
        self._changed = changed
        self._hold = hold
        self._mutex = allocate_lock()  # before that of `Grants` and of the ledger; never while anybody is asked
        self._next = 1
        self._open: dict[int, Question] = {}  # the oldest first
        self._by_key: dict[Key, Question] = {}
        self._by_token: dict[Hashable, Question] = {}
        self._over: dict[int, str] = {}  # what became of the last ones, in words
        self._recent: deque[float] = deque()
        self._resumed: list[Resumed] = []
        self._ended: list[tuple[Hashable, Question]] = []  # held calls of questions that went before `expire` saw it

    # -- for the receiving thread ----------------------------------------------------------------------------

    def ask(
        self, key: Key, shown: dict[str, object], now: float, token: Hashable, hold: float | None = None
    ) -> Question | Answer:
        """Hold the call `token` for an answer to `key`: the question, which may be an older one with the same key.

        `hold` is for one that cannot wait as long as others. Gives the answer instead if there is one by now. Raises
        TooManyQuestions.
        """
        with self._mutex:
            answer = self._grants.answer(key, now)
            if answer is not None:
                return answer
            if token in self._by_token:
                raise ValueError(f"{token!r} is held already")
            if len(self._by_token) >= MOST_HELD:
                raise TooManyQuestions(f"{MOST_HELD} calls wait for answers already")
            question = self._by_key.get(key)
            if question is not None and now >= question.answerable_until:
                self._close(question, "its time is over")
                question = None
            if question is None:
                question = self._new(key, shown, now)
            question.hold(token, shown, now, self._hold if hold is None else min(hold, self._hold))
            self._by_token[token] = question
            self._changed()
            return question

    def take(self) -> list[Resumed]:
        """The calls that were answered since the last time."""
        with self._mutex:
            resumed, self._resumed = self._resumed, []
        return resumed

    def expire(self, now: float) -> list[tuple[Hashable, Question]]:
        """The calls whose hold has ended: to be refused, NOT_ANSWERED. Their questions can still be answered."""
        with self._mutex:
            for token, question in list(self._by_token.items()):
                if now >= question.waiting[token]:
                    self._release(token)
                    self._ended.append((token, question))
            for question in list(self._open.values()):
                if now >= question.answerable_until:
                    self._close(question, "its time is over")
            ended, self._ended = self._ended, []
            return ended

    def due(self) -> float | None:
        """When the first hold ends; None when no call is held."""
        with self._mutex:
            if self._ended:
                return 0.0
            return min((question.waiting[token] for token, question in self._by_token.items()), default=None)

    def withdraw(self, token: Hashable) -> bool:
        """The held call is gone (its caller died, or heard a signal). The question stays: it may try again."""
        with self._mutex:
            self._resumed = [each for each in self._resumed if each.token != token]
            self._ended = [each for each in self._ended if each[0] != token]
            return self._release(token)

    # -- for the approval channel ----------------------------------------------------------------------------

    def pending(self, now: float) -> list[dict[str, object]]:
        """Every question that can be answered, the oldest first, as the channel tells them."""
        with self._mutex:
            return [each.view(now) for each in self._open.values() if now < each.answerable_until]

    def find(self, question_id: int, now: float) -> Question:
        """An open question. Raises NotAnswerable."""
        with self._mutex:
            return self._find(question_id, now)

    def answer(self, question_id: int, kind: str, by: Person, now: float) -> list[Resumed]:
        """Answer a question, once and for all: the held calls that go on, which `take` gives too.

        Raises NotAnswerable, ValueError, and what `record` raises.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no answer: {', '.join(KINDS)}")
        with self._mutex:
            question = self._find(question_id, now)
            refusal = self._grants.refused(question.key)
            if refusal is not None and kind in YES:
                raise NotAnswerable("refused", "it was denied for the session, and that no stands until its end")
            number = self._record(_line(question, kind, by))
            self._grants.add(question.key, kind, by, now, answer_id=number)
            resumed = [Resumed(token, question, yes=kind in YES) for token in question.waiting]
            self._resumed += resumed
            for each in resumed:
                self._release(each.token)
            self._close(question, f"answered already: {PAST[kind]} by process {by.pid}, {_clock()}")
        self._wake()
        return resumed

    # -- with the mutex held ---------------------------------------------------------------------------------

    def _new(self, key: Key, shown: dict[str, object], now: float) -> Question:
        recent = self._recent
        while recent and now - recent[0] >= PERIOD:
            recent.popleft()
        if len(recent) >= RATE:
            raise TooManyQuestions(f"{RATE} questions within {PERIOD:.0f} seconds")
        if len(self._open) >= MOST:
            idle = next((each for each in self._open.values() if not each.waiting), None)
            if idle is None:
                raise TooManyQuestions(f"{MOST} questions wait for answers already")
            self._close(idle, "newer questions took its place; it is asked again when the program tries again")
        question = Question(self._next, key, shown, now)
        self._next += 1
        recent.append(now)
        self._open[question.id] = question
        self._by_key[key] = question
        return question

    def _find(self, question_id: int, now: float) -> Question:
        question = self._open.get(question_id)
        if question is not None and now < question.answerable_until:
            return question
        if question is not None:
            self._close(question, "its time is over")
        over = self._over.get(question_id)
        if over is not None:
            raise NotAnswerable("over", over)
        if 0 < question_id < self._next:
            raise NotAnswerable("over", "it is over")
        words = "in this session: `pincer-trace pending` shows them"
        raise NotAnswerable("unknown", f"there is no question {question_id} {words}")

    def _release(self, token: Hashable) -> bool:
        question = self._by_token.pop(token, None)
        if question is None:
            return False
        del question.waiting[token]
        self._changed()
        return True

    def _close(self, question: Question, why: str) -> None:
        for token in list(question.waiting):  # a machine that slept: everything is over at once
            self._release(token)
            self._ended.append((token, question))
        del self._open[question.id]
        del self._by_key[question.key]
        self._over[question.id] = why
        self._changed()
        if len(self._over) > _REMEMBERED:
            del self._over[next(iter(self._over))]


PAST = {  # what became of a question, for people
    "once": "allowed once",
    "session": "allowed for the session",
    "always": "allowed always",
    DENY: "denied",
    DENY_SESSION: "denied for the session",
    "reveal": "revealed",  # what was no question
    "undo": "taken back",
}


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _line(question: Question, kind: str, by: Person) -> dict[str, object]:
    """The members of an answer's line in the ledger; what it answers is bound by the key's digest."""
    shown = question.shown
    line: dict[str, object] = {
        "question": question.id,
        "key": question.key.digest(),
        "answer": kind,
        "by": by.told,
        "effect": question.key.effect,
        "path": shown.get("path", b""),
    }
    if shown.get("to"):
        line["to"] = shown["to"]
    return line
