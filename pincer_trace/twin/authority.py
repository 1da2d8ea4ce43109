"""The one place where an effect is decided and recorded: nothing is performed that did not pass `demand`.

An allowed effect gets its intent in the ledger before it happens and its outcome after; a refused one gets one record.
Whatever goes wrong on the way is a refusal (invariant 4).
"""

from __future__ import annotations

import errno
import os
import stat
import time

from pincer_trace.effects import LINK, RENAME, TRUNCATE, WRITE
from pincer_trace.gateway.aliases import TooMany
from pincer_trace.gateway.repositories import Entry, Repositories, arriving_content
from pincer_trace.kernel import libc
from pincer_trace.ledger import LedgerFull
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Decision, Facts
from pincer_trace.profile.gitconfig import changed_keys
from pincer_trace.twin import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.gitconfig import Witness
    from pincer_trace.gateway.provenance import Ancestry, Provenance, Within
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.ledger import Ledger
    from pincer_trace.profile import Profile

_ALL_LEVELS = 4096  # up to the root
_WRITES = (WRITE, TRUNCATE, LINK)
NOBODY_TO_ASK = "needs a confirmation, and nobody can be asked in this run"


class Denied(Exception):
    """A refusal that is already in the ledger. The worker gets EACCES."""


class Target:
    """What one effect is about: the name by which it is judged, and the pins behind that name.

    `descriptor`, or `name` in the pinned directory `parent`, is the object; `found` its lstat, None when it is absent.
    `moved` is the object (parent, name) where another one than `name` will lie there after a rename; one that `arrives`
    gets this name only now. Inside a directory that moves, `parent` is where it lies now, and `above` knows the
    directories over it, here or there; where it `replaces` one of the user's, that it was made in this session lifts no
    protection. `needs` is the access to the object itself that the kernel asks for too, where that is certain. An
    object that is `named` was reached by the only name that it can have.
    """

    __slots__ = (
        "above",
        "arrives",
        "descriptor",
        "found",
        "moved",
        "name",
        "named",
        "needs",
        "parent",
        "path",
        "replaces",
    )

    def __init__(
        self,
        path: bytes,
        *,
        parent: int = -1,
        name: bytes = b"",
        descriptor: int = -1,
        found: os.stat_result | None = None,
        above: Ancestry | Within | None = None,
        arrives: bool = False,
        replaces: bool = False,
        needs: int = 0,
        named: bool = False,
    ) -> None:
        self.path = path
        self.needs = needs
        self.named = named
        self.parent = parent
        self.name = name
        self.descriptor = descriptor
        self.found = found
        self.moved: tuple[int, bytes] | None = None
        self.above = above
        self.arrives = arrives
        self.replaces = replaces

    def comes_from(self, parent: int, name: bytes) -> None:
        """It is `name` in `parent` that will lie here, and gets this name only then."""
        self.moved = (parent, name)
        self.arrives = True


class EffectFacts(Facts):
    """The facts that a rule may ask for, observed only when a rule asks."""

    __slots__ = (
        "_danger", "_effect", "_executable", "_looked", "_profile", "_provenance", "_repositories", "_target",
        "_witness",
    )  # fmt: skip

    def __init__(
        self,
        profile: Profile,
        provenance: Provenance,
        target: Target,
        executable: bytes,
        effect: str = "",
        witness: Witness | None = None,
        repositories: Repositories | None = None,
    ) -> None:
        self._danger: str | None = None
        self._looked = False
        self._effect = effect
        self._repositories = repositories
        self._profile = profile
        self._provenance = provenance
        self._target = target
        self._executable = executable
        self._witness = witness

    def created_by_tree(self, below: bytes) -> bool:
        if self._object_is_ours():
            return True
        target = self._target
        directory = target.path.rpartition(b"/")[0]
        if (target.found is None or target.arrives) and self._provenance.is_vacated(directory):
            return False
        return self._covered(directory, below)

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
        target = self._target
        if self._provenance.is_vacated(directory):
            return False
        if directory == target.path and self._object_is_ours():
            return True
        return self._covered(directory, below)

    def _covered(self, directory: bytes, below: bytes) -> bool:
        """Climbs from the pinned parent, never by name: `directory` tells only how far up to begin."""
        target = self._target
        depth = target.path.count(b"/") - 1  # of the parent; the root has 0
        skip = max(depth - _depth(directory), 0)
        count = depth - skip - _depth(below)
        if count <= 0:
            return False
        if target.above is not None:
            return target.above.covers(skip, count)
        parent = target.parent if target.parent >= 0 else self._parent_of_file()
        if parent < 0:
            return False
        try:
            return self._provenance.covers(parent, skip, count)
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
        if self._witness is not None:
            return self._witness.changes()
        if self._effect == RENAME and not self._target.arrives:  # it goes away, with a directory
            return frozenset() if self.created_by_tree(b"/") else None
        content = arriving_content(self._effect, self._target)
        return changed_keys(b"", content) if content is not None else None

    def git_danger(self) -> str | None:
        if not self._looked:
            self._looked = True
            self._danger = self._look_for_danger()
        return self._danger

    def _look_for_danger(self) -> str | None:
        if self._repositories is None:
            return super().git_danger()
        target = self._target
        parent = target.parent if target.parent >= 0 else self._parent_of_file()
        try:
            return self._repositories.danger(Entry(self._effect, target, parent, self._witness, self._is_made))
        finally:
            if parent >= 0 and parent != target.parent:
                os.close(parent)

    def _is_made(self, directory: bytes) -> bool:
        """Whether this session made that directory, or one above it; of one that is absent, what there is above it."""
        while True:
            try:
                pin = os.open(directory, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
                break
            except FileNotFoundError:
                directory = directory.rpartition(b"/")[0] or b"/"
            except OSError:
                return False
        try:
            return not self._provenance.is_vacated(directory) and self._provenance.covers(pin, 0, _ALL_LEVELS)
        finally:
            os.close(pin)

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
        self._repositories = Repositories(profile.repository, profile.is_closed, self._is_writable)

    def _is_writable(self, directory: bytes) -> bool:
        """Whether what lies in it may be written, whatever the facts."""
        decision = self._profile.settled(WRITE, directory + b"/x")
        return decision is not None and decision.verdict == ALLOW

    def judge(self, task: Task, effect: str, target: Target, witness: Witness | None = None) -> Decision:
        """The profile's decision, without a record."""
        decision = self._profile.settled(effect, target.path)
        if decision is None:
            facts = self._facts(task, effect, target, witness)
            decision = self._profile.judge(effect, target.path, facts)
        found = target.found
        if (
            effect in _WRITES
            and target.descriptor >= 0
            and not target.arrives
            and not target.named
            and not _is_named(target)
        ):
            return Decision(CONFIRM, None, "the name by which it was opened is gone, and it has another one")
        if found is not None and found.st_nlink > 1 and self._is_old(target):
            try:
                name = self._aliases.protected_name(found, effect)
            except TooMany:
                return Decision(
                    CONFIRM, None, "it has other names, and those of the protected files cannot be looked up"
                )
            decision = self._stricter(task, decision, effect, name, target, witness)
        for place in self._aliases.protected_places(target.path):
            decision = self._stricter(task, decision, effect, place, target, witness)
        return decision

    def _facts(self, task: Task, effect: str, target: Target, witness: Witness | None) -> EffectFacts:
        return EffectFacts(
            self._profile, self._provenance, target, task.executable, effect, witness, self._repositories
        )

    def judge_asked(self, task: Task, effect: str, link: Target, target: Target) -> Decision | None:
        """The decision of a protection for the user's symbolic link that led to `target`: from now on it holds for that
        object by every name. None where there is none; what the tree itself links it can also open by its name.
        """
        if self.is_own(link) or target.found is None:
            return None
        reached = Target(link.path, descriptor=target.descriptor, found=target.found)
        facts = EffectFacts(self._profile, self._provenance, reached, task.executable)
        decision = self._profile.judge(effect, link.path, facts)
        if decision.verdict == ALLOW or decision.rule is None or not decision.rule.tier:
            return None
        self._aliases.note_link(target.path, link.path, target.found)
        return Decision(decision.verdict, decision.rule, f"it is also {display(link.path, 200)}: {decision.reason}")

    def is_own(self, target: Target) -> bool:
        """Whether the tree made this object, or a directory above it."""
        return EffectFacts(self._profile, self._provenance, target, b"").created_by_tree(b"/")

    def lies_in_own(self, target: Target) -> bool:
        """Whether the tree made the directory that it lies in, or one above that."""
        directory = target.path.rpartition(b"/")[0]
        return EffectFacts(self._profile, self._provenance, target, b"").directory_created_by_tree(directory, b"/")

    def is_free(self, target: Target) -> bool:
        """Whether every file effect on it is allowed, so that a call with several need not ask for each."""
        found = target.found
        return (
            (found is None or found.st_nlink < 2 or stat.S_ISDIR(found.st_mode) or not self._is_old(target))
            and self._profile.is_free(target.path)
            and not self._aliases.protected_places(target.path)
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

    def _stricter(
        self,
        task: Task,
        decision: Decision,
        effect: str,
        name: bytes | None,
        target: Target,
        witness: Witness | None,
    ) -> Decision:
        """The decision by another name of the same object, where that is stricter."""
        if name is None or not self.permits(decision):
            return decision
        other = self._profile.judge(effect, name, self._facts(task, effect, target, witness))
        if other.verdict == ALLOW:
            return decision
        return Decision(other.verdict, other.rule, f"it is also {display(name, 200)}: {other.reason}")

    def permits(self, decision: Decision) -> bool:
        return decision.verdict == ALLOW or (decision.verdict == CONFIRM and self._confirm_all)

    def demand(self, task: Task, effect: str, target: Target, witness: Witness | None = None) -> Decision:
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

    def refuse(self, task: Task, effect: str, target: Target, decision: Decision) -> NoReturn:
        """Record a refusal by rule. Raises Denied, always."""
        reason = decision.reason
        if decision.verdict == CONFIRM:
            reason = f"{reason}: {NOBODY_TO_ASK}" if reason else NOBODY_TO_ASK
        self._record(task, effect, target, decision.verdict, _source(decision), reason)
        raise Denied(reason)

    def forbid(self, task: Task, effect: str, target: Target, reason: str) -> NoReturn:
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
            native=native.refuses(effect, target),
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

    def note_failure(self, where: str, failure: BaseException, pid: int) -> None:
        """Record that the supervisor failed, and that what was asked is refused."""
        try:
            self._ledger.failure(where, failure, pid=pid)
        except LedgerFull:
            pass  # it is refused all the same

    def cares_below(self, effect: str, directory: bytes) -> bool:
        """Whether a rule could refuse `effect` on something below `directory`."""
        return bool(self._profile.below(effect, directory)) or self._aliases.holds_place(directory)

    def passes(self, effect: str, path: bytes) -> bool:
        """Whether the rules allow `effect` there whatever the facts: what has one name then needs no judgement."""
        decision = self._profile.settled(effect, path)
        return decision is not None and decision.verdict == ALLOW and not self._aliases.protected_places(path)

    def is_closed_below(self, directory: bytes) -> bool:
        """Whether this session can have put nothing into `directory`, or below it."""
        return self._profile.is_closed_below(directory)


def _is_named(target: Target) -> bool:
    """Whether a pinned file that has a name has the one that the kernel tells: a descriptor keeps the one by which it
    was opened, though the file may be moved on by another.
    """
    found = target.found
    if found is None or not found.st_nlink or not stat.S_ISREG(found.st_mode):
        return True
    try:
        return os.path.samestat(os.lstat(target.path), found)
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG  # found by its walk, not told by the kernel


def _identity(target: Target) -> tuple[int, int]:
    found = target.found
    return (found.st_dev, found.st_ino) if found is not None else (0, 0)


def _source(decision: Decision) -> str:
    return decision.rule.source if decision.rule is not None else ""


def _depth(directory: bytes) -> int:
    """How many components an absolute directory has."""
    return directory.rstrip(b"/").count(b"/")
