"""By what a session was judged: its profile, loaded again for the places and options of that run."""

from __future__ import annotations

import os

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import load_session, raw
from pincer_trace.profile import Overlay, Places, is_file, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pincer_trace.profile import Profile


class Past:
    """One session. Raises `UserError` when its session.json cannot be read, or does not tell by what it was judged."""

    def __init__(self, path: str) -> None:
        self.session = load_session(path)
        self.path = path
        self.id = str(self.session.get("id"))
        told: Any = self.session.get("judged_by")
        try:
            self.name, self._compiled = str(told["profile"]), told["compiled"]
            self._options = {"allow_write": list(told["allow_write"]), "protect": list(told["protect"])}
            self._places = Places(**{name: _restored(told["places"][name]) for name in Places.__slots__})
        except (KeyError, TypeError, AttributeError):
            raise UserError(
                f"session {paths.display(self.id)} does not tell where it ran and with which options: an older version "
                "of pincer-trace recorded it, so its decisions cannot be made again"
            ) from None

    def profile(
        self, name: str | None = None, *, allow_write: Iterable[str] = (), protect: Iterable[str] = ()
    ) -> Profile:
        """The session's own profile, or another one, with the session's own options and these.

        A file, and the paths of options, are those of the caller's working directory. Errors: `UserError`.
        """
        options = self._options
        given = [[os.path.abspath(path) if path else path for path in more] for more in (allow_write, protect)]
        overlay = Overlay([*options["allow_write"], *given[0]], [*options["protect"], *given[1]])
        named = self.name if name is None else os.path.abspath(os.path.expanduser(name)) if is_file(name) else name
        return load(named, self._places, overlay=overlay, cache_directory=self._compiled, use_cache=False)

    def is_own(self, profile: Profile) -> bool:
        """Whether it is, to the last rule, the one that the session was judged by."""
        return profile.digest.hex() == self.session.get("digest")

    @property
    def asks_nobody(self) -> bool:
        """Whether what wanted a confirmation was refused in that run."""
        return self.session.get("confirm") == "deny"


def _restored(value: Any) -> Any:
    """As `Places` has it: bytes, None, or a tuple of bytes."""
    if value is None:
        return None
    return raw(value) if isinstance(value, str) else tuple(raw(item) for item in value)
