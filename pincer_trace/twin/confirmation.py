"""What becomes of an effect that wants a confirmation: nobody is asked, everything is confirmed, or a person is asked.

The first two are here; what asks a person is in `twin.interactive`, which a run that asks nobody never imports.
"""

from __future__ import annotations

from pincer_trace.twin import codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pincer_trace.twin.authority import Judgement, Refusal
    from pincer_trace.twin.questions import Question
    from pincer_trace.twin.target import Target

_NOBODY = "needs a confirmation, and nobody can be asked in this run"


class Asked(Exception):
    """The call waits: for a person, or for a model. It is judged again from the start, with a fresh copy of everything.

    `refusal` is what is recorded if no answer comes; None where one is certain to come. `question` is the one that was
    asked, where it is new.
    """

    def __init__(self, refusal: Refusal | None, question: Question | None = None) -> None:
        super().__init__("asked")
        self.refusal = refusal
        self.question = question


class Confirmation:
    """Nobody is asked: `--confirm deny`."""

    def begin(self, notification: int) -> None:
        """The call that is judged from now on; 0 for none that could wait."""

    def about(self, effect: str, target: Target, manner: str) -> None:
        """What that call is as a whole, for all that is judged for it."""

    def permits(self, judgement: Judgement) -> bool:
        """Whether what wants a confirmation has one."""
        return False

    def refusal(self, judgement: Judgement, refusal: Refusal) -> tuple[str, str]:
        """Why it is refused, (code, words). Raises Asked where that is not known yet."""
        return codes.NOBODY_TO_ASK, _NOBODY

    def use(self, judged: Sequence[Judgement]) -> list[int] | None:
        """The grants that confirm all of them, each used once more; None where one is not confirmed."""
        return None


class Automatic(Confirmation):
    """Everything is confirmed: `--confirm auto`. What is denied stays so."""

    def permits(self, judgement: Judgement) -> bool:
        return True

    def use(self, judged: Sequence[Judgement]) -> list[int] | None:
        return []
