"""By what a session was judged: its profile, loaded again for the places and options of that run."""

from __future__ import annotations

import os

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import load_session, raw
from pincer_trace.profile import Overlay, Places, is_file, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pincer_trace.profile import Profile


_OPTIONS = Overlay.__slots__
_SEVERAL = frozenset({"exposed", "extra", "homes", "own", "path_dirs"})  # of the places


class Past:
    """One session. Raises `UserError` when its session.json cannot be read, or does not tell by what it was judged."""

    def __init__(self, path: str) -> None:
        self.session = load_session(path)
        self.path = path
        self.id = str(self.session.get("id"))
        told: Any = self.session.get("judged_by")
        try:
            self.name, self._compiled = _text(told["profile"]), _text(told["compiled"] or "") or None
            self._options = {name: [_text(each) for each in told[name]] for name in _OPTIONS}
            self._ports = {_text(name): int(port) for name, port in told.get("brokers", {}).items()}
            self.places = Places(**{name: _restored(name, told["places"][name]) for name in Places.__slots__})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(
                f"session {paths.display(self.id)} does not tell where it ran and with which options: an older version "
                "of pincer-trace recorded it, so its decisions cannot be made again"
            ) from None

    def profile(self, name: str | None = None, **more: Iterable[str]) -> Profile:
        """The session's own profile, or another one, with the session's own options and these.

        A file, and the paths of options (`more`, by their names in an `Overlay`), are those of the caller's working
        directory. Errors: `UserError`.
        """
        overlay = Overlay(**{option: [*self._options[option], *_absolute(option, more)] for option in _OPTIONS})
        return self._load(self.name if name is None else name, overlay)

    def alone(self, name: str) -> Profile:
        """That profile, without the session's own options."""
        return self._load(name, None)

    def _load(self, name: str, overlay: Overlay | None) -> Profile:
        named = os.path.abspath(os.path.expanduser(name)) if is_file(name) else name
        return load(
            named,
            self.places,
            overlay=overlay,
            cache_directory=self._compiled,
            use_cache=False,
            port_of=lambda broker: self._ports.get(broker.name),
        )

    def shipped(self) -> Profile:
        """The default profile that ships, for this run's places: what it protects is protected whoever judged."""
        default = os.path.join(paths.shipped_profiles(), "default.toml")
        known = self._compiled is not None and os.path.isdir(self._compiled)
        return load(default, self.places, cache_directory=self._compiled, use_cache=known)

    def is_own(self, profile: Profile) -> bool:
        """Whether it is, to the last rule, the one that the session was judged by."""
        return profile.digest.hex() == self.session.get("digest")

    @property
    def asks_nobody(self) -> bool:
        """Whether what wanted a confirmation was refused in that run."""
        return self.session.get("confirm") == "deny"


def _absolute(option: str, more: Mapping[str, Iterable[str]]) -> list[str]:
    """The values of that option: paths by their whole name."""
    values = more.get(option, ())
    if option == "allow_net":
        return list(values)
    return [os.path.abspath(path) if path else path for path in values]


def _restored(name: str, value: Any) -> Any:
    """As `Places` has it: a tuple of bytes, or bytes, which one may lack. Raises TypeError for all else."""
    if name in _SEVERAL:
        if not isinstance(value, list):
            raise TypeError(name)
        return tuple(raw(_text(item)) for item in value)
    return None if value is None and name == "git_common_dir" else raw(_text(value))


def _text(value: object) -> str:
    """A string of session.json that can name a file. Raises TypeError for all else."""
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("no text")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TypeError("no text") from None
    return value
