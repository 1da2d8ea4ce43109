"""Between an intent and its outcome, with what was seen afterwards."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context


GONE = "gone"


class Outcome:
    """Between an intent and its outcome: whatever happens, the ledger hears of it. Without a `sequence`, no record."""

    __slots__ = ("_context", "_post", "_sequence")

    def __init__(self, context: Context, sequence: int | None) -> None:
        self._context = context
        self._sequence = sequence
        self._post = ""

    def __enter__(self) -> Outcome:
        return self

    def saw(self, found: os.stat_result | None, judged: os.stat_result | None = None) -> None:
        """What the entry holds now: the post-state. `judged` is the object that should be there, if it is known."""
        if found is None:
            self._post = GONE
        elif judged is not None and not os.path.samestat(found, judged):
            self._post = f"another object, {found.st_dev}:{found.st_ino}"
        else:
            self._post = f"{found.st_dev}:{found.st_ino}"

    def look_at(self, parent: int, name: bytes, judged: os.stat_result | None = None) -> None:
        """The same, looked up: where that fails the effect is done all the same."""
        try:
            self.saw(os.stat(name, dir_fd=parent, follow_symlinks=False), judged)
        except FileNotFoundError:
            self.saw(None)
        except OSError as error:
            self._post = f"not seen: {error.strerror}"

    def leave_open(self) -> None:
        """Another thread performs the effect, and writes the outcome."""
        self._sequence = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._sequence is None:
            return
        number = 0
        if error is not None:
            number = (error.errno or errno.EIO) if isinstance(error, OSError) else errno.EIO
        self._context.authority.done(self._sequence, number, "" if number else self._post)
