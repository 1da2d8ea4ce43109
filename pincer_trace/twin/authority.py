"""The one place where an effect is decided and recorded: nothing is performed that did not pass `demand`.

An allowed effect gets its intent in the ledger before it happens and its outcome after; a refused one gets one record.
Whatever goes wrong on the way is a refusal (invariant 4).
"""

from __future__ import annotations

import os
import stat
import time

from pincer_trace.gateway.aliases import TooMany
from pincer_trace.kernel import libc
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Decision, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.gitconfig import ConfigWitness
    from pincer_trace.gateway.provenance import Provenance
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.ledger import Ledger
    from pincer_trace.profile import Profile

_ALL_LEVELS = 4096  # up to the root
NOBODY_TO_ASK = "needs a confirmation, and nobody can be asked in this run"


class Denied(Exception):
    """A refusal that is already in the ledger. The worker gets EACCES."""


class Target:
    """What one effect is about: the name by which it is judged, and the pins behind that name.

    `descriptor`, or `name` in the pinned directory `parent`, is the object; `found` its lstat, None when it is absent.
    `moved` is the object (parent, name) where another one than `name` will lie there after a rename. Inside a directory
    that moves, `parent` is where it lies now: `inner` directories up from there move with it, above them comes `outer`;
    where the directory `replaces` one of the user's, that it was made in this session lifts no protection.
    """

    __slots__ = ("descriptor", "found", "inner", "moved", "name", "outer", "parent", "path", "replaces")

    def __init__(
        self,
        path: bytes,
        *,
        parent: int = -1,
        name: bytes = b"",
        descriptor: int = -1,
        found: os.stat_result | None = None,
        moved: tuple[int, bytes] | None = None,
        inner: int = 0,
        outer: int = -1,
        replaces: bool = False,
    ) -> None:
        self.path = path
        self.parent = parent
        self.name = name
        self.descriptor = descriptor
        self.found = found
        self.moved = moved
        self.inner = inner
        self.outer = outer
        self.replaces = replaces


class EffectFacts(Facts):
    """The facts that a rule may ask for, observed only when a rule asks."""

    __slots__ = ("_executable", "_profile", "_provenance", "_target", "_witness")

    def __init__(
        self,
        profile: Profile,
        provenance: Provenance,
        target: Target,
        executable: bytes,
        witness: ConfigWitness | None = None,
    ) -> None:
        self._profile = profile
        self._provenance = provenance
        self._target = target
        self._executable = executable
        self._witness = witness

    def created_by_tree(self, below: bytes) -> bool:
        if self._object_is_ours():
            return True
        return self.directory_created_by_tree(self._target.path.rpartition(b"/")[0], below)

    def _object_is_ours(self) -> bool:
        target = self._target
        if target.replaces:
            return False
        if target.descriptor >= 0 and self._provenance.holds(target.descriptor):
            return True
        if target.moved is not None:
            parent, name = target.moved
            return self._provenance.holds_entry(parent, name) or self._provenance.covers(parent, 0, _ALL_LEVELS)
        return target.parent >= 0 and bool(target.name) and self._provenance.holds_entry(target.parent, target.name)

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        """Climbs from the pinned parent, never by name: `directory` tells only how far up to begin."""
        target = self._target
        if directory == target.path and self._object_is_ours():
            return True
        depth = target.path.count(b"/") - 1  # of the parent; the root has 0
        skip = max(depth - _depth(directory), 0)
        count = depth - skip - _depth(below)
        if count <= 0:
            return False
        parent = target.parent if target.parent >= 0 else self._parent_of_file()
        if parent < 0:
            return False
        try:
            if target.outer < 0:
                return self._provenance.covers(parent, skip, count)
            within = max(min(skip + count, target.inner) - skip, 0)
            if within and not target.replaces and self._provenance.covers(parent, skip, within):
                return True
            rest = count - within
            return rest > 0 and self._provenance.covers(target.outer, max(skip - target.inner, 0), rest)
        finally:
            if parent != target.parent:
                os.close(parent)

    def _parent_of_file(self) -> int:
        """The directory of an object that is known by its descriptor alone: by name, checked to hold exactly it."""
        target = self._target
        directory, _, name = target.path.rpartition(b"/")
        try:
            parent = os.open(directory or b"/", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return -1
        same = False
        try:
            held, pinned = os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(target.descriptor)
            same = os.path.samestat(held, pinned)
        except OSError:
            pass
        finally:
            if not same:
                os.close(parent)
        return parent if same else -1

    def git_config_changes(self) -> frozenset[str] | None:
        return self._witness.changes() if self._witness is not None else None

    def executable(self) -> bytes:
        return self._executable

    def trusted_executable(self) -> bytes:
        return self._executable if self._profile.is_closed(self._executable) else b""


class Authority:
    """Decides by the profile, records in the ledger. `confirm_all` is `--confirm auto`."""

    def __init__(
        self, profile: Profile, ledger: Ledger, provenance: Provenance, aliases: Aliases, *, confirm_all: bool
    ) -> None:
        self._profile = profile
        self._aliases = aliases
        self._ledger = ledger
        self._provenance = provenance
        self._confirm_all = confirm_all
        self._began = time.time_ns()

    def judge(self, task: Task, effect: str, target: Target, witness: ConfigWitness | None = None) -> Decision:
        """The profile's decision, without a record."""
        decision = self._profile.settled(effect, target.path)
        if decision is None:
            facts = EffectFacts(self._profile, self._provenance, target, task.executable, witness)
            decision = self._profile.judge(effect, target.path, facts)
        found = target.found
        if found is not None and found.st_nlink > 1 and self._is_old(target):
            try:
                name = self._aliases.protected_name(found, effect)
            except TooMany:
                return Decision(
                    CONFIRM, None, "it has other names, and those of the protected files cannot be looked up"
                )
            decision = self._stricter(task, decision, effect, name, target)
        place = self._aliases.protected_place(target.path)
        return decision if place is None else self._stricter(task, decision, effect, place, target)

    def is_own(self, target: Target) -> bool:
        """Whether the tree made this object, or a directory above it."""
        return EffectFacts(self._profile, self._provenance, target, b"").created_by_tree(b"/")

    def is_free(self, target: Target) -> bool:
        """Whether every file effect on it is allowed, so that a call with several need not ask for each."""
        found = target.found
        return (
            (found is None or found.st_nlink < 2 or stat.S_ISDIR(found.st_mode) or not self._is_old(target))
            and self._profile.is_free(target.path)
            and self._aliases.protected_place(target.path) is None
        )

    def _is_old(self, target: Target) -> bool:
        """Whether an object was there before this session: only then can it have a name that nobody judged."""
        try:
            if target.descriptor >= 0:
                born = libc.birth_time(target.descriptor)
            elif target.moved is not None:
                born = libc.birth_time(*target.moved)
            else:
                born = libc.birth_time(target.parent, target.name)
        except OSError:
            return True
        return born < self._began

    def _stricter(self, task: Task, decision: Decision, effect: str, name: bytes | None, target: Target) -> Decision:
        """The decision by another name of the same object, where that is stricter."""
        if name is None or not self.permits(decision):
            return decision
        other = self._profile.judge(effect, name, EffectFacts(self._profile, self._provenance, target, task.executable))
        if other.verdict == ALLOW:
            return decision
        return Decision(other.verdict, other.rule, f"it is also {display(name, 200)}: {other.reason}")

    def permits(self, decision: Decision) -> bool:
        return decision.verdict == ALLOW or (decision.verdict == CONFIRM and self._confirm_all)

    def demand(self, task: Task, effect: str, target: Target, witness: ConfigWitness | None = None) -> Decision:
        """The decision, if it permits the effect. Raises Denied (recorded), LedgerFull."""
        decision = self.judge(task, effect, target, witness)
        if not self.permits(decision):
            self.refuse(task, effect, target, decision)
        return decision

    def demand_link(self, task: Task, effect: str, target: Target) -> None:
        """A symbolic link of this name would put what lies elsewhere in a protected place below it. Raises Denied."""
        rule = self._profile.guarded_below(effect, target.path)
        if rule is not None and not self.permits(rule.decide()):
            self.refuse(task, effect, target, Decision(rule.verdict, rule, f"below this name: {rule.reason}"))

    def refuse(self, task: Task, effect: str, target: Target, decision: Decision) -> None:
        """Record a refusal by rule. Raises Denied, always."""
        reason = decision.reason
        if decision.verdict == CONFIRM:
            reason = f"{reason}: {NOBODY_TO_ASK}" if reason else NOBODY_TO_ASK
        self._record(task, effect, target, decision.verdict, _source(decision), reason)
        raise Denied(reason)

    def forbid(self, task: Task, effect: str, target: Target, reason: str) -> None:
        """Record a refusal that no rule can lift. Raises Denied, always."""
        self._record(task, effect, target, DENY, "built-in", reason)
        raise Denied(reason)

    def _record(self, task: Task, effect: str, target: Target, verdict: str, rule: str, reason: str) -> None:
        dev, ino = _identity(target)
        self._ledger.denied(
            effect,
            target.path,
            pid=task.tid,
            exe=task.executable,
            dev=dev,
            ino=ino,
            verdict=verdict,
            rule=rule,
            reason=reason,
        )

    def intend(
        self,
        task: Task,
        effect: str,
        target: Target,
        decision: Decision,
        extra: dict[str, object] | None = None,
    ) -> int:
        """Write the intent. Raises LedgerFull: then nothing may happen."""
        dev, ino = _identity(target)
        return self._ledger.intent(
            effect,
            target.path,
            pid=task.tid,
            exe=task.executable,
            dev=dev,
            ino=ino,
            verdict=decision.verdict,
            rule=_source(decision),
            reason=decision.reason,
            extra=extra,
        )

    def done(self, sequence: int, error: int = 0) -> None:
        """Write the outcome: 0, or the errno with which the kernel refused."""
        self._ledger.outcome(sequence, error)

    def cares_below(self, effect: str, directory: bytes) -> bool:
        """Whether a rule could refuse `effect` on something below `directory`."""
        return bool(self._profile.below(effect, directory))


def _identity(target: Target) -> tuple[int, int]:
    found = target.found
    return (found.st_dev, found.st_ino) if found is not None else (0, 0)


def _source(decision: Decision) -> str:
    return decision.rule.source if decision.rule is not None else ""


def _depth(directory: bytes) -> int:
    """How many components an absolute directory has."""
    return directory.rstrip(b"/").count(b"/")
