"""Between an intent and its outcome."""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context


class Outcome:
    """Between an intent and its outcome: whatever happens, the ledger hears of it. Without a `sequence`, no record."""

    __slots__ = ("_context", "_sequence")

    def __init__(self, context: Context, sequence: int | None) -> None:
        self._context = context
        self._sequence = sequence

    def __enter__(self) -> Outcome:
        return self

    def leave_open(self) -> None:
        """Another thread performs the effect, and writes the outcome."""
        self._sequence = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._sequence is None:
            return
        number = 0
        if error is not None:
            number = (error.errno or errno.EIO) if isinstance(error, OSError) else errno.EIO
        self._context.authority.done(self._sequence, number)
