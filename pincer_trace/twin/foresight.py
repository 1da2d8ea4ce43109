"""What can be told of an effect before anybody asks for it: the facts of `pincer-trace why`."""

from __future__ import annotations

import os

from pincer_trace.gateway.repositories import ABSENT, Entry, Repositories
from pincer_trace.profile.model import AnyProgram
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile import Profile

_DIRECTORY = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY


class PathFacts(AnyProgram):
    """What can be told of a path before anything happens there."""

    __slots__ = ("_effect", "_path", "_repositories")

    def __init__(self, profile: Profile, effect: str, path: bytes) -> None:
        self._effect = effect
        self._path = path
        self._repositories = Repositories(profile.repository, profile.is_closed, lambda _directory: False)

    def git_danger(self) -> str | None:
        directory, _, name = self._path.rpartition(b"/")
        try:
            parent = os.open(directory or b"/", _DIRECTORY)
        except FileNotFoundError:
            parent = ABSENT
        except OSError:
            parent = -1
        try:
            target = Target(self._path, parent=parent, name=name)
            return self._repositories.danger(Entry(self._effect, target, parent, None, lambda _directory: False))
        finally:
            if parent >= 0:
                os.close(parent)
