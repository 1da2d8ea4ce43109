"""The right evaluator: it sees the pinned objects, looks at them itself, and derives their names from the pins.

It never goes by the path that the gateway resolved: it compares that with its own (invariant 2).
"""

from __future__ import annotations

import errno
import os
import stat
import time

from pincer_trace.effects import READ, RENAME, WRITE
from pincer_trace.gateway.aliases import TooMany
from pincer_trace.gateway.repositories import Entry, Repositories, arriving_content
from pincer_trace.gateway.resolve import join, live_name, look
from pincer_trace.kernel import libc
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW, Decision, Facts
from pincer_trace.profile.gitconfig import changed_keys
from pincer_trace.profile.model import SINK, STRICTNESS
from pincer_trace.twin.artifact import RIGHT
from pincer_trace.twin.evaluator import Evaluator, mismatch
from pincer_trace.twin.facts import Recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.gitconfig import Witness
    from pincer_trace.gateway.provenance import Provenance
    from pincer_trace.gateway.request import Claim
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.profile import Profile
    from pincer_trace.profile.sinks import Sink
    from pincer_trace.twin.artifact import Keys, OwnKeys
    from pincer_trace.twin.facts import Row
    from pincer_trace.twin.target import Target

_ALL_LEVELS = 4096  # up to the root
_TYPE = 12  # where the type begins in a mode


class EffectFacts(Facts):
    """The facts that a rule may ask for, observed only when a rule asks."""

    __slots__ = (
        "_danger", "_effect", "_executable", "_looked", "_profile", "_provenance", "_repositories", "_target",
        "_task", "_witness",
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
        task: int = 0,
    ) -> None:
        self._task = task
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
            pass  # the name is gone: it is not the same
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

    def bound_by_tree(self) -> bool:
        target = self._target
        if target.descriptor >= 0:
            return self._provenance.has_bound(target.descriptor)
        return self._provenance.has_ports(target.listeners) or self._provenance.bound_abstract(target.path) != 0

    def sink_doubt(self, sink: Sink) -> str:
        if self._task <= 0:
            return super().sink_doubt(sink)
        from pincer_trace.gateway.sinks import doubt

        return doubt(self._task, sink, self._provenance.launch, self._profile.is_closed)

    def executable(self) -> bytes:
        return self._executable

    def trusted_executable(self) -> bytes:
        return self._executable if self._profile.is_closed(self._executable) else b""


class _OfCopy(EffectFacts):
    """Of what a sink wrote: that the tree made the file lifts nothing from what is in it."""

    __slots__ = ()

    def created_by_tree(self, below: bytes) -> bool:
        return False

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        return False


class ObjectEvaluator(Evaluator):
    """`name_of` tells the path of a pinned directory."""

    by = RIGHT

    def __init__(
        self,
        profile: Profile,
        keys: Keys | OwnKeys,
        provenance: Provenance,
        aliases: Aliases,
        repositories: Repositories,
        name_of: Callable[[int], bytes],
    ) -> None:
        super().__init__(profile, keys.right, keys.bind)
        self._provenance = provenance
        self._aliases = aliases
        self._repositories = repositories
        self._name_of = name_of
        self._began = time.time_ns()
        self.asked: Sequence[Row] = ()  # what rules asked for the last judgement, and the answers

    def judge(self, task: Task, claim: Claim, target: Target, witness: Witness | None = None) -> Decision:
        """The verdict on a claim, by what the pins of `target` show."""
        self.asked = ()
        contradiction = self._contradiction(claim, target)
        decision = mismatch(contradiction) if contradiction else self._decide(task, claim, target, witness)
        self._ballot[claim] = decision.verdict
        return decision

    def lets_read_pinned(self, path: bytes, pin: int, found: os.stat_result) -> Decision | None:
        """The allowance of a plain read, where a look at the pin raises no question; None where it does."""
        seen = os.fstat(pin)
        if not _is_same(seen, found) or (seen.st_nlink > 1 and stat.S_ISREG(seen.st_mode)):
            return None  # of a file with several names each may be protected
        if self._aliases.is_secret(seen):
            return None
        return self.lets_read(path)

    def held(self, claim: Claim, target: Target) -> Decision:
        """What is held is looked at all the same."""
        contradiction = self._contradiction(claim, target)
        if contradiction:
            return self.cast(claim, mismatch(contradiction))
        return super().held(claim, target)

    def of_the_run(self, claim: Claim, target: Target) -> Decision:
        """The same, where the name and the object are what is seen here."""
        contradiction = self._contradiction(claim, target)
        if contradiction:
            return self.cast(claim, mismatch(contradiction))
        return super().of_the_run(claim, target)

    def _contradiction(self, claim: Claim, target: Target) -> str:
        """In what the claim is not what is seen here; empty if in nothing."""
        if target.parent >= 0:
            above = os.fstat(target.parent)
            if (above.st_dev, above.st_ino) != claim.place:
                return "the directory is another one"
            if target.name:
                name = join(self._name_of(target.parent), target.name)
                if name != (target.lies or claim.path):
                    return f"by its directory it is {display(name, 200)}"
        elif target.descriptor >= 0 and not target.named and claim.effect != READ:  # of reads nobody votes
            name = self._name_held(target.descriptor)
            if name and claim.path not in (name, live_name(name, os.fstat(target.descriptor))):
                return f"by its descriptor it is {display(name, 200)}"
        found = claim.found
        if found is not None and not target.lies:
            seen = self._look(target)
            if seen is None or not _is_same(seen, found):
                return "the object is another one"
        return ""

    def _name_held(self, descriptor: int) -> bytes:
        """The name that the kernel tells of an object; empty when it is too long to be told."""
        try:
            return self._name_of(descriptor)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return b""

    def _look(self, target: Target) -> os.stat_result | None:
        if target.descriptor >= 0:
            return os.fstat(target.descriptor)
        if target.moved is not None:
            return look(*target.moved)
        return look(target.parent, target.name) if target.parent >= 0 else target.found

    def _decide(self, task: Task, claim: Claim, target: Target, witness: Witness | None) -> Decision:
        effect, path, profile = claim.effect, claim.path, self._profile
        decision = profile.settled(effect, path)
        if decision is None:
            decision = profile.judge(effect, path, self._recording(task, effect, target, witness))
        found = claim.found
        copied = self._aliases.copied_from(target) if effect == READ else ()
        if copied:
            decision = self._of_copy(task, path, copied, target)
        if found is not None and found.st_nlink > 1 and self.is_old(target):
            try:
                name = self._aliases.protected_name(found, effect)
            except TooMany:
                return Decision(
                    CONFIRM, None, "it has other names, and those of the protected files cannot be looked up"
                )
            decision = self._stricter(task, decision, effect, name, target, witness)
        if found is not None and self._aliases.is_secret(found):
            name = self._aliases.secret_name(target)
            if name != path:
                decision = self._stricter(task, decision, effect, name, target, witness)
        places = self._aliases.protected_places(path)
        for place in places:
            decision = self._stricter(task, decision, effect, place, target, witness)
        return decision

    def _of_copy(self, task: Task, path: bytes, names: tuple[bytes, ...], target: Target) -> Decision:
        """The decision on reading what a sink wrote that had read the secrets `names`. A view of it is given by its own
        name alone: what it holds is not of the format of those.
        """
        own = _OfCopy(self._profile, self._provenance, target, task.executable, READ, task=task.tid)
        facts = Recording(own)
        decision = self._profile.judge(READ, path, facts)
        for name in names:
            facts.also(name)
            other = self._profile.judge(READ, name, facts)
            verdict = CONFIRM if other.verdict == VIEW != decision.verdict else other.verdict
            if STRICTNESS[verdict] > STRICTNESS[decision.verdict]:
                reason = f"it was written by a program that has read {display(name, 200)}: {other.reason}"
                decision = Decision(verdict, other.rule, reason)
        self.asked = facts.rows
        return decision

    def facts(self, task: Task | None, effect: str, target: Target, witness: Witness | None = None) -> EffectFacts:
        """What conditional rules may ask about it."""
        return EffectFacts(
            self._profile,
            self._provenance,
            target,
            task.executable if task is not None else b"",
            effect,
            witness,
            self._repositories,
            task.tid if task is not None else 0,
        )

    def _recording(self, task: Task, effect: str, target: Target, witness: Witness | None) -> Recording:
        """The facts, with what is asked of them noted in `asked`, behind what was asked before."""
        facts = Recording(self.facts(task, effect, target, witness), self.asked)
        self.asked = facts.rows
        return facts

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
        if name is None or decision.verdict == DENY:
            return decision
        facts = self._recording(task, effect, target, witness)
        facts.also(name)
        other = self._profile.judge(effect, name, facts)
        if other.verdict == ALLOW:
            return other if other.rule is not None and other.rule.when == SINK else decision
        return Decision(other.verdict, other.rule, f"it is also {display(name, 200)}: {other.reason}")

    def is_old(self, target: Target) -> bool:
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


def repositories(profile: Profile) -> Repositories:
    """What judges the files that git reads, under this profile."""

    def is_writable(directory: bytes) -> bool:
        decision = profile.settled(WRITE, directory + b"/x")
        return decision is not None and decision.verdict == ALLOW

    return Repositories(profile.repository, profile.is_closed, is_writable)


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    """The same object, and of the same type."""
    if one.st_ino != other.st_ino or one.st_dev != other.st_dev:
        return False
    return one.st_mode >> _TYPE == other.st_mode >> _TYPE


def _depth(directory: bytes) -> int:
    """How many components an absolute directory has."""
    return directory.rstrip(b"/").count(b"/")
