"""The questions of a session as a view keeps them. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pincer_trace.ui.words import Places

_SHOWN = ("effect", "path", "to", "manner", "covers", "reason", "rule", "programs")
_MOST = 100  # more than any supervisor of ours tells


class Pending:
    """One question: `told` is what the supervisor says of it, `until` when the call that waits is refused.

    `since` is when what a person decides on was first seen as it is now.
    """

    __slots__ = ("answerable_until", "id", "since", "told", "until", "waiting")

    def __init__(self, told: dict[str, Any], now: float, since: float) -> None:
        self.id: int = told["id"]
        self.told = told
        self.since = since
        self.waiting = int(_number(told.get("waiting")))
        self.until = now + _number(told.get("held"))
        self.answerable_until = now + _number(told.get("answerable"))

    def target(self, places: Places) -> str:
        """What it is about, as a line of a view has it."""
        path, to = self.told.get("path"), self.told.get("to")
        said = places.short(path) if isinstance(path, str) else ""
        return f"{said} -> {places.short(to)}" if isinstance(to, str) and to else said

    def is_as(self, other: Pending) -> bool:
        """Whether a person would decide on the same."""
        return all(self.told.get(name) == other.told.get(name) for name in _SHOWN)


class Asked:
    """All that can be answered, the oldest first."""

    def __init__(self) -> None:
        self._pending: dict[int, Pending] = {}

    def update(self, questions: Iterable[dict[str, Any]], now: float) -> bool:
        """What the supervisor tells now; whether anything differs but the time that is left."""
        found: dict[int, Pending] = {}
        differs = False
        for told in questions:
            if not isinstance(told, dict) or type(told.get("id")) is not int or len(found) >= _MOST:
                continue
            new = Pending(told, now, now)
            old = self._pending.get(new.id)
            if old is not None and old.is_as(new):
                new.since = old.since
                if abs(old.until - new.until) < 1:  # it counts down evenly, whatever a message takes
                    new.until = old.until
                differs = differs or (old.waiting, old.told.get("asked")) != (new.waiting, told.get("asked"))
            else:
                differs = True
            found[new.id] = new
        differs = differs or found.keys() != self._pending.keys()
        self._pending = found
        return differs

    def all(self) -> list[Pending]:
        """Those for which a call waits first, then the late ones; the oldest first in both."""
        pending = sorted(self._pending.values(), key=lambda each: each.id)
        return [each for each in pending if each.waiting] + [each for each in pending if not each.waiting]

    def find(self, number: int | None) -> Pending | None:
        return self._pending.get(number) if number is not None else None

    def __len__(self) -> int:
        return len(self._pending)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e9 else 0.0
