"""Whether an effect serves the task: Claude is asked beside the twin, and can only tighten.

`Intent.opinion` never waits. A few threads ask; whatever is no valid answer counts as "confirm", and a key that is not
accepted any more as "deny". No lock is held while a question is on its way.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from pincer_trace.errors import UserError
from pincer_trace.profile import ALLOW, CONFIRM, DENY
from pincer_trace.twin import claude, matter
from pincer_trace.twin.claude import DEFAULT_MODEL, Failure
from pincer_trace.twin.matter import Malformed, Matter, Opinion, tighten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_MODEL", "Intent", "Limits", "Matter", "Opinion", "Usage", "tighten"]

_TASK = 4000  # characters
_RECENT = 20
_KEPT = 4096  # opinions
_FAILURE_HOLDS = 30.0  # seconds in which a failure is the answer to the same question
_OUTAGE = 3  # failures in a row, after which no question is asked for that long
_LATE = 3.0  # times the timeout: then a question that is still not answered counts as failed
_BUDGET = "the budget for asking the model is used up"
_PROBE = ("exec", b"/bin/true", b"/bin/true")


class Limits:
    """Seconds that an answer may take; tokens and seconds of asking in a session; questions under way and waiting."""

    __slots__ = ("queue", "seconds", "threads", "timeout", "tokens")

    def __init__(
        self,
        *,
        timeout: float = 20.0,
        tokens: int = 200_000,
        seconds: float = 600.0,
        threads: int = 2,
        queue: int = 16,
    ) -> None:
        self.timeout = timeout
        self.tokens = tokens
        self.seconds = seconds
        self.threads = threads
        self.queue = queue


class Usage:
    """What asking has cost: questions put, answers from memory, answers that tighten, questions without an answer."""

    __slots__ = ("asked", "cached", "failures", "input_tokens", "output_tokens", "seconds", "tightened")

    def __init__(self) -> None:
        self.asked = 0
        self.cached = 0
        self.tightened = 0
        self.failures = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.seconds = 0.0

    @property
    def tokens(self) -> int:
        """Of questions and answers."""
        return self.input_tokens + self.output_tokens


class _Kept:
    """An opinion in memory: until when, and whether it was handed out."""

    __slots__ = ("opinion", "told", "until")

    def __init__(self, opinion: Opinion, until: float | None) -> None:
        self.opinion = opinion
        self.until = until
        self.told = False


class Intent:
    """Asks about matters, each once. `probe` in the front; `start`, `opinion`, `note` and `close` in the engine, on the
    receiving thread. `wake` is called by another thread whenever an opinion has come in.
    """

    def __init__(
        self,
        task: str,
        *,
        model: str | None,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        limits: Limits | None = None,
    ) -> None:
        self.model = model or DEFAULT_MODEL
        self.limits = limits or Limits()
        self.usage = Usage()
        self.wake = wake
        self._task = task
        self._clock = clock
        self._key = claude.given_key()
        self._effort = True
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=_RECENT)
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        self._some = threading.Condition(threading.Lock())  # guards all below; nothing waits under it
        self._queue: deque[tuple[Matter, str]] = deque()
        self._asking: dict[str, float] = {}  # by key: since when
        self._kept: dict[str, _Kept] = {}
        self._row = 0  # failures that concern more than one question
        self._outage = _failed("")
        self._outage_until = 0.0

    # -- before the run --------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Ask once, so that a wrong key, model or URL is a mistake to mend and not a refusal of each effect.

        Raises UserError. Imports the SDK, which takes a second or two; may run on a thread of its own until the fork.
        """
        nothing = "or run without --task; nothing was started"
        if not self._task.strip():
            raise UserError(f"--task is empty; say in words what the command is to do, {nothing}")
        if len(self._task) > _TASK:
            raise UserError(f"--task has {len(self._task)} characters, more than {_TASK}; shorten it, {nothing}")
        if not self._key:
            raise UserError(f"--task needs {claude.KEY} in the environment, and it is not set; set it, {nothing}")
        try:
            client = claude.Client(self._key, self.model, timeout=self.limits.timeout)
        except ImportError as error:
            name = (error.name or "anthropic").partition(".")[0]
            raise UserError(
                f"--task needs the Python package {name}, which cannot be imported; pip install anthropic, {nothing}"
            ) from None
        except Failure as failure:
            raise UserError(f"--task: {failure}; mend it, {nothing}") from None
        try:
            self._probe(client)
        except Failure as failure:
            raise UserError(f"--task: {failure}; {self._remedy(failure)}, {nothing}") from None
        finally:
            client.close()

    def _probe(self, client: claude.Client) -> None:
        asked = matter.question(self._task, Matter(*_PROBE), ())
        try:
            reply = client.ask(matter.SYSTEM, asked, matter.SCHEMA, effort=True)
        except Failure as failure:
            if failure.status != 400:
                raise
            self._effort = False  # older models do not know it
            reply = client.ask(matter.SYSTEM, asked, matter.SCHEMA, effort=False)
        self._opinion_of(reply)

    def _remedy(self, failure: Failure) -> str:
        if failure.permanent:
            return f"set {claude.KEY} to a key that is valid there"
        if failure.status == 404:
            return "name another with --model, or mend ANTHROPIC_BASE_URL"
        if failure.status == 400:
            return "name another model with --model"
        if not failure.outage:
            return "word the task differently, name another model with --model"
        return "try again, check ANTHROPIC_BASE_URL"

    def start(self) -> None:
        """Start the threads that ask. In the engine, before the loop: they keep the ids that are in force now."""
        for number in range(self.limits.threads):
            thread = threading.Thread(target=self._work, name=f"intent-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                raise UserError(
                    "--task: no thread can be started, the limit of processes is reached (ulimit -u); "
                    "end some, or run without --task; nothing was started"
                ) from None
            self._threads.append(thread)

    # -- on the receiving thread -----------------------------------------------------------------------------

    def opinion(self, asked: Matter) -> Opinion | None:
        """What the model thinks, or what the lack of its answer comes to; None while it is being asked. Never waits."""
        now = self._clock()
        with self._some:
            kept = self._kept.get(asked.key)
            if kept is not None and (kept.until is None or now < kept.until):
                self.usage.cached += kept.told
                kept.told = True
                return kept.opinion
            since = self._asking.get(asked.key)
            if since is not None:
                if now - since < _LATE * self.limits.timeout:
                    return None
                return _failed("no answer in time")
            refusal = self._unaskable(now)
            if refusal is not None:
                return refusal
            self._asking[asked.key] = now
            self.usage.asked += 1
            self._queue.append((asked, matter.question(self._task, asked, self._recent)))
            self._some.notify()
        return None

    def _unaskable(self, now: float) -> Opinion | None:
        """Why no question can be put now."""
        if self._closed.is_set() or not self._threads:
            return _failed("no questions are put now")
        barred = self._barred(now)
        if barred is not None:
            return barred
        if len(self._queue) >= self.limits.queue:
            return _failed("too many questions to the model")
        return None

    def _barred(self, now: float) -> Opinion | None:
        """Why no question is worth while now."""
        if self._row >= _OUTAGE and now < self._outage_until:
            return self._outage
        return _failed(_BUDGET) if self._spent() else None

    def _spent(self) -> bool:
        return self.usage.tokens >= self.limits.tokens or self.usage.seconds >= self.limits.seconds

    def note(self, effect: str, path: bytes) -> None:
        """An effect that was done: the model sees the last of them by name."""
        done = (effect, path)
        if not self._recent or self._recent[-1] != done:
            self._recent.append(done)

    def summary(self) -> str:
        """What asking has cost, for the last line of a run."""
        usage = self.usage
        tokens = f"{usage.tokens / 1000:.1f}k" if usage.tokens >= 1000 else str(usage.tokens)
        text = f"intent: {usage.asked} asked, {tokens} tokens, {usage.tightened} tightened"
        if usage.failures:
            text += f", {usage.failures} not answered"
        if self._spent():
            text += ", budget used up"
        return text

    def close(self, patience: float = 0.0) -> None:
        """End the threads: at once where nobody waits for them, else after `patience` seconds each."""
        self._closed.set()
        with self._some:
            self._queue.clear()
            self._some.notify_all()
        if patience:
            for thread in self._threads:
                thread.join(patience)

    # -- on the asking threads -------------------------------------------------------------------------------

    def _work(self) -> None:
        """Ask until the end. Whatever goes wrong is an opinion, and somebody is woken for it (P96)."""
        client: claude.Client | None = None
        while (next_one := self._next()) is not None:
            asked, text = next_one
            began = time.monotonic()
            failure: Failure | None = None
            try:
                with self._some:
                    opinion = self._barred(self._clock())
                if opinion is not None:  # by what became of others while this one waited
                    failure = Failure(opinion.reason, outage=False)
                else:
                    if client is None:  # a connection does not survive the fork
                        client = claude.Client(
                            self._key, self.model, timeout=self.limits.timeout, pause=self._closed.wait
                        )
                    opinion = self._opinion_of(client.ask(matter.SYSTEM, text, matter.SCHEMA, effort=self._effort))
            except Failure as problem:
                failure = problem
                opinion = _failed(str(failure), DENY if failure.permanent else CONFIRM)
            except BaseException as error:  # noqa: BLE001 - the thread must live on
                failure = Failure(f"asking failed: {type(error).__name__}")
                opinion = _failed(str(failure))
            self._settle(asked, opinion, began, failure)
            try:
                self.wake()
            except Exception:  # noqa: BLE001 - not ours to mend, and others wait for their answers
                pass
        if client is not None:
            client.close()

    def _next(self) -> tuple[Matter, str] | None:
        with self._some:
            while not self._queue and not self._closed.is_set():
                self._some.wait()
            return None if self._closed.is_set() else self._queue.popleft()

    def _opinion_of(self, reply: claude.Reply) -> Opinion:
        """What a reply says; its tokens are counted whatever it is. Raises Failure."""
        with self._some:
            self.usage.input_tokens += reply.input_tokens
            self.usage.output_tokens += reply.output_tokens
        if reply.problem:
            raise Failure(reply.problem, outage=False)
        try:
            return matter.parse(reply.text)
        except Malformed as error:
            raise Failure(f"malformed answer: {error}", outage=False) from None

    def _settle(self, asked: Matter, opinion: Opinion, began: float, failure: Failure | None) -> None:
        now = self._clock()
        with self._some:
            usage = self.usage
            usage.seconds += time.monotonic() - began
            if failure is None:
                self._row = 0
                usage.tightened += opinion.verdict != ALLOW
            else:
                usage.failures += 1
                if failure.outage:
                    self._row += _OUTAGE if failure.permanent else 1
                    self._outage, self._outage_until = opinion, now + _FAILURE_HOLDS
            self._asking.pop(asked.key, None)
            self._kept[asked.key] = _Kept(opinion, None if failure is None else now + _FAILURE_HOLDS)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]


def _failed(reason: str, verdict: str = CONFIRM) -> Opinion:
    return Opinion(verdict, f"the model was asked whether it serves the task, without an answer: {reason}")
