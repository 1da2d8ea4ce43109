"""The left evaluator: it sees names only, the path that the gateway resolved, against the rules of the profile.

It looks each name up from the root, by itself: what it finds there must be the place that was pinned. Of facts about
objects it knows none, so it grants to a conditional rule what the best of them could.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import LINK, TRUNCATE, WRITE
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Decision
from pincer_trace.profile.model import EveryFact
from pincer_trace.twin.artifact import LEFT
from pincer_trace.twin.evaluator import Evaluator, mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.request import Claim
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.profile import Profile
    from pincer_trace.twin.artifact import Keys

_WRITES = (WRITE, TRUNCATE, LINK)
# It may not look there, or the name is longer than a call can say: then the name is not known to be wrong.
_UNSEEN = (errno.EACCES, errno.ENAMETOOLONG)


class _Names(EveryFact):
    """The labels that a name carries, and the best of all that is no name."""

    __slots__ = ("_label", "_profile")

    def __init__(self, profile: Profile, label: bytes) -> None:
        self._profile = profile
        self._label = label

    def executable(self) -> bytes:
        return self._label

    def trusted_executable(self) -> bytes:
        return self._label if self._profile.is_closed(self._label) else b""


class NameEvaluator(Evaluator):
    """The names of protected places, by which a path may be known too, come from `aliases`."""

    by = LEFT

    def __init__(self, profile: Profile, keys: Keys, aliases: Aliases) -> None:
        super().__init__(profile, keys.left, keys.bind)
        self._aliases = aliases

    def judge(
        self, task: Task, claim: Claim, *, arrives: bool, named: bool, lies: bytes, marked: bool = True
    ) -> Decision:
        """The verdict on a claim by its name.

        `arrives`: the object gets this name only now; `named`: it can have no other; `lies`: where it is until then;
        `marked`: the kernel may have said that the name is removed.
        """
        contradiction = self._contradiction(claim, lies or claim.path) if claim.name else ""
        if contradiction:
            decision: Decision = mismatch(contradiction)
        else:
            decision = self._decide(task.executable, claim.effect, claim.path)
            writes = claim.effect in _WRITES and not (claim.name or arrives or named)
            if writes and decision.verdict == ALLOW and not _is_named(claim, marked=marked):
                decision = Decision(CONFIRM, None, "the name by which it was opened is gone, and it has another one")
        self._ballot[claim] = decision.verdict
        return decision

    def _decide(self, label: bytes, effect: str, path: bytes) -> Decision:
        profile = self._profile
        decision = profile.settled(effect, path)
        if decision is None:
            decision = profile.judge(effect, path, _Names(profile, label))
        for place in self._aliases.protected_places(path):
            if decision.verdict == DENY:
                break
            other = profile.judge(effect, place, _Names(profile, label))
            if other.verdict != ALLOW:
                decision = other
        return decision

    def _contradiction(self, claim: Claim, path: bytes) -> str:
        """Whether the name of the directory leads to another one than was pinned; empty if it does not."""
        try:
            above = os.stat(path.rpartition(b"/")[0] or b"/")
        except OSError as error:
            return "" if error.errno in _UNSEEN else f"the name leads nowhere: {error.strerror}"
        return "" if (above.st_dev, above.st_ino) == claim.place else "the name leads to another directory"


def _is_named(claim: Claim, *, marked: bool) -> bool:
    """Whether a pinned file that has a name has the one that the kernel tells: a descriptor keeps the one by which it
    was opened, though the file may be moved on by another. Where it may not be looked up, the kernel's mark tells.
    """
    found = claim.found
    if found is None or not found.st_nlink or not stat.S_ISREG(found.st_mode):
        return True
    try:
        return os.path.samestat(os.lstat(claim.path), found)
    except OSError as error:
        if error.errno == errno.EACCES:
            return not marked
        return error.errno == errno.ENAMETOOLONG  # found by its walk, not told by the kernel
