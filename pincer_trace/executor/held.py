"""Calls that wait for a person or a model. While they wait nothing of theirs is kept: no pin, no copy, no lock.

Once there is an answer the call is served again from the start, as if it came only now (invariant 9). A held caller
stays killable and answers its signals (P74).
"""

from __future__ import annotations

import errno
import os
import select
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

from pincer_trace.executor.blocking import interruption
from pincer_trace.ledger import LedgerFull
from pincer_trace.twin import codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.kernel.notify import Listener
    from pincer_trace.twin.authority import Authority, Refusal
    from pincer_trace.twin.confirmation import Asked
    from pincer_trace.twin.questions import Questions

    Notification = tuple[int, ...]

_INTERVAL = 0.05  # seconds between two looks at the held callers
_PATIENCE = 60.0  # seconds until a model is asked again
_EACH = 0.0005  # seconds that a look at one of them may take of our time, ten times over
_QUICK = 0.005  # the same while files are staged, which are settled in between


class _Call:
    """A held call: `refusal` is what is recorded without an answer, None where it waits for the model, `since` then."""

    __slots__ = ("notification", "refusal", "since")

    def __init__(self, notification: Notification, refusal: Refusal | None) -> None:
        self.notification = notification
        self.refusal = refusal
        self.since = monotonic()


class Held:
    """Belongs to the receiving thread; `wake` is for any."""

    def __init__(self, listener: Listener, authority: Authority) -> None:
        self._listener = listener
        self._authority = authority
        self.questions: Questions | None = None
        self.calls: dict[int, _Call] = {}
        self._again: list[Notification] = []
        self._look_at = 0.0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        if listener.descriptor >= 0:
            self._poll.register(listener.descriptor, select.POLLIN)

    def close(self) -> None:
        os.close(self._event)

    @property
    def busy(self) -> bool:
        """Whether calls wait, for an answer or to be served again."""
        return bool(self.calls or self._again)

    def wake(self) -> None:
        """Something was answered."""
        os.eventfd_write(self._event, 1)

    def hold(self, notification: Notification, asked: Asked) -> None:
        """Answer this call later."""
        self.calls[notification[0]] = _Call(notification, asked.refusal)

    def wait(self, *, quick: bool) -> tuple[bool, Notification | None]:
        """Until there is something to do: (True, a call to be served again), or (True, None) when a new one is there.

        (False, None) when it is time to look after other things, soon if it should be `quick`.
        """
        if self._again:
            return True, self._again.pop(0)
        if monotonic() >= self._look_at:
            self._look()
            self._look_at = monotonic() + max(_INTERVAL, len(self.calls) * _EACH)
        events = {number for number, _ in self._poll.poll((_QUICK if quick else _INTERVAL) * 1000)}
        if self._event in events:
            os.eventfd_read(self._event)
            self._take()
        if self._again:
            return True, self._again.pop(0)
        return self._listener.wait(0), None

    def _take(self) -> None:
        """What was answered: yes is judged again, no is refused; whoever waits for the model asks again."""
        if self.questions is not None:
            for resumed in self.questions.take():
                number: int = resumed.token  # type: ignore[assignment]
                if resumed.yes:
                    self._resume(number)
                else:
                    self._refuse(number, codes.REFUSED_BY_PERSON, "refused by a person")
        for number in [number for number, held in self.calls.items() if held.refusal is None]:
            self._resume(number)

    def _resume(self, number: int) -> None:
        held = self.calls.pop(number, None)
        if held is not None:
            self._again.append(held.notification)

    def _refuse(self, number: int, code: str, words: str) -> None:
        held = self.calls.pop(number, None)
        if held is None or held.refusal is None:
            return
        try:
            self._authority.record(held.refusal, code, words)
        except LedgerFull:
            pass  # it is refused all the same
        self._listener.respond(number, error=errno.EACCES)

    def _look(self) -> None:
        """Who has waited for too long, who is gone, who has a signal to hear."""
        if self.questions is not None:
            for token, question in self.questions.expire(clock_gettime(CLOCK_BOOTTIME)):
                words = f"nobody answered question {question.id} in time"
                self._refuse(token, codes.NOT_ANSWERED, words)  # type: ignore[arg-type]
        late = monotonic() - _PATIENCE
        for number in [number for number, held in self.calls.items() if held.refusal is None and held.since < late]:
            self._resume(number)  # the model's threads have given it up by now, and say so
        for number, held in list(self.calls.items()):
            error = interruption(self._listener, number, held.notification[1])
            if error:
                del self.calls[number]
                if self.questions is not None:
                    self.questions.withdraw(number)
                self._listener.respond(number, error=error)
