"""The one place where an effect is decided and recorded: nothing is performed that did not pass `demand` and `vote`.

An allowed effect gets its intent in the ledger before it happens and its outcome after; a refused one gets one record.
Whatever goes wrong on the way is a refusal (invariant 4).
"""

from __future__ import annotations

import os
import stat

from pincer_trace.effects import CHANGES, READ
from pincer_trace.gateway.request import Claim
from pincer_trace.ledger import LedgerFull
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW, Decision
from pincer_trace.profile.globs import matches
from pincer_trace.profile.model import STRICTNESS, AnyProgram, Ordinary
from pincer_trace.twin import codes, native
from pincer_trace.twin.artifact import INTENT, LEFT, RIGHT
from pincer_trace.twin.confirmation import Asked
from pincer_trace.twin.evaluator import Mismatch, NoVerdict
from pincer_trace.twin.facts import ALSO, Recording, told
from pincer_trace.twin.introductions import Introductions
from pincer_trace.twin.names import NameEvaluator
from pincer_trace.twin.objects import ObjectEvaluator, repositories
from pincer_trace.twin.target import Target
from pincer_trace.twin.tokens import mint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.gitconfig import Witness
    from pincer_trace.gateway.mounts import Mounts
    from pincer_trace.gateway.provenance import Provenance
    from pincer_trace.gateway.request import Request
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.ledger import Ledger
    from pincer_trace.ledger.writer import Votes
    from pincer_trace.profile import Profile
    from pincer_trace.profile.model import Rule
    from pincer_trace.profile.sinks import Sink
    from pincer_trace.twin.artifact import Keys, Share
    from pincer_trace.twin.confirmation import Confirmation
    from pincer_trace.twin.facts import Row
    from pincer_trace.twin.intent import Intent
    from pincer_trace.twin.link import Link
    from pincer_trace.twin.matter import Opinion
    from pincer_trace.twin.recovery import Denials
    from pincer_trace.twin.remote import RemoteEvaluator


# It reads the environment of every process, whatever it is to show. procps 4
_PS = frozenset({b"/bin/ps", b"/usr/bin/ps"})


class Denied(Exception):
    """A refusal that is already in the ledger. The worker gets EACCES."""


class Judgement(Decision):
    """What both evaluators said of one claim, and the stricter of it."""

    __slots__ = ("asked", "claim", "left", "opinion", "right", "target")

    def __init__(
        self,
        claim: Claim,
        target: Target,
        left: Decision,
        right: Decision,
        asked: Sequence[Row] = (),
        opinion: Opinion | None = None,
    ) -> None:
        stricter = right
        if left.verdict != ALLOW and (
            STRICTNESS[left.verdict] > STRICTNESS[right.verdict] or isinstance(left, Mismatch)
        ):
            stricter = left
        self.verdict = stricter.verdict
        self.rule = stricter.rule
        self.reason = stricter.reason
        self.claim = claim
        self.target = target
        self.left = left
        self.right = right
        self.asked = asked
        self.opinion = opinion  # the model's, where that made it stricter

    @property
    def code(self) -> str:
        """Why it is refused, if it is."""
        if isinstance(self.right, NoVerdict):
            return self.right.code
        if isinstance(self.left, Mismatch) or isinstance(self.right, Mismatch):
            return codes.OBSERVATION_MISMATCH
        if self.opinion is not None:
            return codes.INTENT
        return codes.NOBODY_TO_ASK if self.verdict == CONFIRM else codes.POLICY_DENY

    def votes(self) -> Votes:
        """Who said what by which rule, as records keep it."""
        left, right, opinion = self.left, self.right, self.opinion
        votes: Votes = ((LEFT, left.verdict, _source(left)),)
        if not isinstance(right, NoVerdict):
            votes = (*votes, (RIGHT, right.verdict, _source(right)))
        return votes if opinion is None else (*votes, (INTENT, opinion.verdict, opinion.reason))


class Refusal:
    """All that the record of a refusal holds but for the cause, without a pin: it may be written much later."""

    __slots__ = (
        "dev", "effect", "exe", "expected", "facts", "ino", "native", "path", "pid", "reason", "rule", "verdict",
        "votes",
    )  # fmt: skip

    def __init__(
        self,
        task: Task,
        effect: str,
        target: Target,
        decision: Decision,
        rule: str,
        votes: Votes,
        facts: Sequence[Row] = (),
        *,
        expected: bool,
    ) -> None:
        found = target.found
        self.facts = facts
        self.expected = expected  # honest use asks for it, too
        self.effect = effect
        self.path = target.path
        self.pid = task.tid
        self.exe = task.executable
        self.dev, self.ino = (found.st_dev, found.st_ino) if found is not None else (0, 0)
        self.verdict = decision.verdict
        self.rule = rule
        self.reason = decision.reason
        self.votes = votes
        self.native = native.refuses(effect, target)


class Authority:
    """Decides by the twin, records in the ledger."""

    def __init__(
        self,
        profile: Profile,
        ledger: Ledger,
        provenance: Provenance,
        aliases: Aliases,
        keys: Keys,
        name_of: Callable[[int], bytes],
        confirmation: Confirmation,
    ) -> None:
        self._profile = profile
        self._aliases = aliases
        self._ledger = ledger
        self._introductions = Introductions(ledger)
        self._confirmation = confirmation
        self.denials: Denials | None = None  # what the worker is told
        self.announce: Callable[[int, str, bytes, str], None] = _nobody  # record, effect, path, reason of a new denial
        self.intent: Intent | None = None  # the model that is asked too
        self.mounts: Mounts | None = None  # the run's own, where it may have some
        self.met: Callable[[], None] = _nothing  # something turned out to be protected: all is judged anew
        self.sunk: Callable[[Task, Target, bytes, Sink], None] = _used  # who is about to read as a sink, of what name
        self._notification = 0
        self._begun = True  # something was judged for this call, which must be forgotten with the next
        self._expected: dict[Rule, int] = {}  # how many refusals by a rule were
        self._keys = keys
        self.left = NameEvaluator(profile, keys, aliases)
        self.right: ObjectEvaluator | RemoteEvaluator = ObjectEvaluator(
            profile, keys, provenance, aliases, repositories(profile), name_of
        )

    def judge_apart(self, link: Link, names: int) -> None:
        """From now on the right one is the one behind `link`; `names` is the directory of our descriptors."""
        from pincer_trace.twin.remote import RemoteEvaluator

        assert isinstance(self.right, ObjectEvaluator)
        self.right = RemoteEvaluator(self._profile, self.right, link, names)

    # -- judging ---------------------------------------------------------------------------------------------

    def begin(self, notification: int = 0) -> None:
        """Another call, which waits for an answer to `notification`: nothing that was judged before counts."""
        self._notification = notification
        if self._begun:
            self._begun = False
            self.left.begin()
            self.right.begin()

    def _judge_first(self) -> None:
        """The first judgement of a call: most calls are reads that need none."""
        if not self._begun:
            self._begun = True
            self._confirmation.begin(self._notification)

    def about(self, effect: str, target: Target, manner: str = "") -> None:
        """What this call is as a whole, where it takes several judgements: a person is asked once for it."""
        self._judge_first()
        self._confirmation.about(effect, target, manner)

    def judge(self, task: Task, effect: str, target: Target, witness: Witness | None = None) -> Judgement:
        """What the twin says, without a record. Where it lets a view pass, what gives more wants a confirmation."""
        judgement = self.judge_reading(task, effect, target, witness)
        return judgement if judgement.verdict != VIEW else self.in_full(judgement)

    def judge_reading(self, task: Task, effect: str, target: Target, witness: Witness | None = None) -> Judgement:
        """The same for who can give a view: that may be the verdict. From then on the object is protected by itself."""
        self._judge_first()
        claim = Claim.of(effect, target)
        if self.mounts is not None and self.mounts.any:
            if self._is_memory(target) and not (effect == READ and self._aliases.copied_from(target)):
                return Judgement(
                    claim, target, self.left.of_the_run(claim, target), self.right.of_the_run(claim, target)
                )
            if effect in CHANGES:
                self.mounts.check_writable(target.parent, target.descriptor, needs=target.needs)
        arrives, named = target.arrives, target.named
        left = self.left.judge(task, claim, arrives=arrives, named=named, marked=target.marked, lies=target.lies)
        right = self.right.judge(task, claim, target, witness)
        judgement = Judgement(claim, target, left, right, self.right.asked)
        if judgement.verdict == VIEW and self._aliases.secret_name(target) is None:
            self._note_secret(target, self._secret_name(judgement, (VIEW,)))
        rule = judgement.rule
        if rule is not None and rule.sink is not None and judgement.verdict == ALLOW:
            self.sunk(task, target, self._secret_name(judgement, (VIEW, CONFIRM, DENY)), rule.sink)
        return judgement

    def _is_memory(self, target: Target) -> bool:
        """Whether it lies on a file system that was mounted for the run alone."""
        if self.mounts is None or not self.mounts.any:
            return False
        return self.mounts.is_memory(target.descriptor if target.descriptor >= 0 else target.parent)

    def _note_secret(self, target: Target, name: bytes) -> None:
        """From now on it is protected by itself; by another name it may have been let pass before."""
        if self._aliases.note_secret(target, name):
            self.met()

    def note_copy(self, identity: bytes, found: os.stat_result, names: tuple[bytes, ...]) -> None:
        """From now on this object is protected as these secrets are. Raises TooMany."""
        self._aliases.note_copy(identity, found, names)

    def _secret_name(self, judgement: Judgement, verdicts: Sequence[str]) -> bytes:
        """By which of its names the object is protected so."""
        path = judgement.target.path
        also = [os.fsencode(str(row[1])) for row in judgement.asked if row[0] == ALSO]
        for name in (path, *also, *self._aliases.protected_places(path)):
            if self._profile.judge(READ, name, AnyProgram()).verdict in verdicts:
                return name
        return path

    def secret_name(self, target: Target) -> bytes:
        """The protected name of what is read as a view."""
        return self._aliases.secret_name(target) or target.path

    def in_full(self, judgement: Judgement) -> Judgement:
        """The judgement on what a view would not do for: another name, or the content itself."""
        return self._tightened(judgement, VIEW, _confirmed)

    def doubt(self, task: Task, effect: str, target: Target, reason: str) -> Judgement:
        """The judgement on an effect that wants a confirmation for this reason, if it permits. Raises Denied, Asked."""
        judgement = self.judge(task, effect, target)
        doubtful = self._tightened(judgement, ALLOW, lambda _: Decision(CONFIRM, None, reason))
        return self.insist(task, effect, target, doubtful)

    def _tightened(self, judgement: Judgement, loose: str, stricter: Callable[[Decision], Decision]) -> Judgement:
        """The judgement with the stricter decision of each evaluator that has given the `loose` verdict."""
        claim, left, right = judgement.claim, judgement.left, judgement.right
        if left.verdict == loose:
            left = self.left.tighten(claim, stricter(left))
        if right.verdict == loose:
            right = self.right.tighten(claim, stricter(right))
        return Judgement(claim, judgement.target, left, right, judgement.asked)

    def is_view_by_name(self, path: bytes) -> bool:
        """Whether any file of this name is read as a view, whoever made it."""
        return self._profile.judge(READ, path, AnyProgram()).verdict == VIEW

    def reveals(self, arriving: Target) -> bool:
        """Whether what is read as a view could be read in full once it lies there, in this run or in another one."""
        return self._profile.judge(READ, arriving.path, AnyProgram()).verdict == ALLOW or self.lies_in_own(arriving)

    def lets_read(self, path: bytes, pin: int, found: os.stat_result) -> Decision | None:
        """As `judge` of a plain read that both evaluators allow without a question; None where one has any."""
        if self.left.lets_read(path) is None:
            return None
        return self.right.lets_read_pinned(path, pin, found)

    def lets_read_in(self, directory: bytes) -> Ordinary | None:
        """As `lets_read` of what is ordinary in `directory` for both evaluators: of directories, and of files that have
        but one name and never were a secret.
        """
        left, right = self.left.lets_read_in(directory), self.right.lets_read_in(directory)
        if left is None or right is None or left.named is not right.named:
            return None
        return Ordinary(right.decision, right.named, deep=left.deep and right.deep)

    def judge_held(self, task: Task, effect: str, target: Target) -> Judgement:
        """The caller has this access already, by a descriptor: what is done adds nothing to it. Raises Denied."""
        self._judge_first()
        claim = Claim.of(effect, target)
        judgement = Judgement(claim, target, self.left.held(claim, target), self.right.held(claim, target))
        return self.insist(task, effect, target, judgement)

    def judge_asked(self, task: Task, effect: str, link: Target, target: Target) -> Judgement | None:
        """The decision of a protection for the user's symbolic link that led to `target`: from now on it holds for that
        object by every name. None where there is none; what the tree itself links it can also open by its name.
        """
        self._judge_first()
        if self.is_own(link) or target.found is None:
            return None
        reached = Target(link.path, descriptor=target.descriptor, found=target.found)
        facts = Recording(self.right.facts(task, "", reached))
        facts.also(link.path)
        decision = self._profile.judge(effect, link.path, facts)
        if decision.verdict == ALLOW or decision.rule is None or not decision.rule.tier:
            return None
        if self._aliases.note_link(target.path, link.path, target.found):
            self.met()  # it may have been let pass by another name
        if decision.verdict == VIEW:
            self._note_secret(reached, link.path)
        by_link = Decision(decision.verdict, decision.rule, f"it is also {display(link.path, 200)}: {decision.reason}")
        return Judgement(Claim.of(effect, target), target, by_link, by_link, facts.rows)

    def tell_secrets(self, hear: Callable[[int, int], None]) -> None:
        """Tell `hear` the device and inode of each object that `is_secret` knows, now and as they come."""
        self._aliases.tell(hear)

    def is_secret(self, found: os.stat_result) -> bool:
        """Whether this may be an object that is read as a view."""
        return self._aliases.is_secret(found)

    def is_own(self, target: Target) -> bool:
        """Whether the tree made this object, or a directory above it."""
        return self.right.facts(None, "", target).created_by_tree(b"/")

    def lies_in_own(self, target: Target) -> bool:
        """Whether the tree made the directory that it lies in, or one above that."""
        directory = target.path.rpartition(b"/")[0]
        return self.right.facts(None, "", target).directory_created_by_tree(directory, b"/")

    def _is_in_own(self, target: Target) -> bool:
        """The same, where the object is not one from before the session under another name."""
        found = target.found
        if found is not None and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode) and self.right.is_old(target):
            return False
        return self.lies_in_own(target)

    def is_free(self, target: Target) -> bool:
        """Whether every file effect on it is allowed, so that a call with several need not ask for each."""
        found = target.found
        return (
            (found is None or found.st_nlink < 2 or stat.S_ISDIR(found.st_mode) or not self.right.is_old(target))
            and self._profile.is_free(target.path)
            and not self._aliases.protected_places(target.path)
        )

    def cares_below(self, effect: str, directory: bytes) -> bool:
        """Whether a rule could refuse `effect` on something below `directory`."""
        return bool(self._profile.below(effect, directory)) or self._aliases.holds_place(directory)

    def passes(self, effect: str, path: bytes) -> bool:
        """Whether the rules allow `effect` there whatever the facts: what has one name then needs no judgement."""
        decision = self._profile.settled(effect, path)
        return decision is not None and decision.verdict == ALLOW and not self._aliases.protected_places(path)

    def shows(self, path: bytes, found: os.stat_result) -> bool:
        """Whether by this name, and by what is known of the object, it may be read in full."""
        return self.passes(READ, path) and not self._aliases.is_secret(found)

    def is_closed_below(self, directory: bytes) -> bool:
        """Whether this session can have put nothing into `directory`, or below it."""
        return self._profile.is_closed_below(directory)

    # -- refusing --------------------------------------------------------------------------------------------

    def permits(self, judgement: Judgement) -> bool:
        """Whether it may be done: allowed, or confirmed."""
        if judgement.verdict == ALLOW:
            return True
        return judgement.verdict == CONFIRM and self._confirmation.permits(judgement)

    def demand(self, task: Task, effect: str, target: Target, witness: Witness | None = None) -> Judgement:
        """The judgement, if it permits the effect. Raises Denied (recorded), Asked, LedgerFull."""
        return self.insist(task, effect, target, self.judge(task, effect, target, witness))

    def insist(self, task: Task, effect: str, target: Target, judgement: Judgement) -> Judgement:
        """The judgement, if it permits; what it refuses is recorded under `effect`. Raises as `demand`."""
        if not self.permits(judgement):
            self.refuse(task, effect, target, judgement)
        return judgement

    def demand_link(self, task: Task, effect: str, target: Target) -> list[Judgement]:
        """A symbolic link of this name would put what lies elsewhere in a protected place below it. What was judged.

        Raises Denied, Asked.
        """
        if self._profile.guarded_below(effect, target.path) is None or self._is_memory(target):
            return []
        self._judge_first()
        claim = Claim.of(effect, target)
        judgement = Judgement(claim, target, self.left.below(claim, target), self.right.below(claim, target))
        return [self.insist(task, effect, target, judgement)]

    def refuse(self, task: Task, effect: str, target: Target, judgement: Judgement) -> NoReturn:
        """Record a refusal by rule. Raises Denied or LedgerFull, or Asked where it is not refused yet; nothing else."""
        self._judge_first()
        self._introductions.of(task)
        facts = told(effect, target.path, [(judgement.claim.effect, judgement.claim.path, judgement.asked)])
        code, words = judgement.code, ""
        expected = code == codes.POLICY_DENY and judgement.rule is not None and self._expects(judgement.rule, task)
        votes, source = judgement.votes(), _source(judgement)
        refusal = Refusal(task, effect, target, judgement, source, votes, facts, expected=expected)
        if judgement.verdict == CONFIRM:
            why, words = self._confirmation.refusal(judgement, refusal)
            code = why if why != codes.NOBODY_TO_ASK else code
        self.record(refusal, code, words)
        raise Denied(code)

    def forbid(
        self, task: Task, effect: str, target: Target, reason: str, code: str = codes.BUILT_IN, *, habit: bool = False
    ) -> NoReturn:
        """Record a refusal that no rule can lift; `habit`: of what ps asks for. Raises Denied or LedgerFull, always."""
        self._introductions.of(task)
        expected = habit and task.executable in _PS and self._profile.is_closed(task.executable)
        self.record(
            Refusal(task, effect, target, Decision(DENY, None, reason), "built-in", (), expected=expected), code
        )
        raise Denied(code)

    def _expects(self, rule: Rule, task: Task) -> bool:
        """Whether this refusal by `rule` is one of those that honest use meets; counts it. Of programs that the rule
        names, none that the worker could have made.
        """
        met = self._expected.get(rule, 0)
        if met >= rule.expected:
            return False
        if rule.exe_components is not None:
            program = task.executable
            if not (matches(rule.exe_components, program) and self._profile.is_closed(program)):
                return False
        self._expected[rule] = met + 1
        return True

    def record(self, refusal: Refusal, code: str, words: str = "") -> None:
        """Write the record of a refusal, `words` behind its reason. Raises LedgerFull."""
        reason = ": ".join(part for part in (refusal.reason, words) if part)
        number = self._ledger.denied(
            refusal.effect,
            refusal.path,
            pid=refusal.pid,
            exe=refusal.exe,
            dev=refusal.dev,
            ino=refusal.ino,
            verdict=refusal.verdict,
            rule=refusal.rule,
            reason=reason,
            code=code,
            votes=refusal.votes,
            facts=refusal.facts,
            native=refusal.native,
            expected=refusal.expected,
        )
        if refusal.native or refusal.expected or self.denials is None:
            return
        if self.denials.tell(refusal.effect, refusal.path, code, refusal.rule, reason):
            self.announce(number, refusal.effect, refusal.path, reason)

    # -- performing ------------------------------------------------------------------------------------------

    def consult(
        self, task: Task, effect: str, target: Target, judged: Sequence[Judgement], path: bytes, to: bytes, flags: str
    ) -> Sequence[Judgement]:
        """The same with the model's opinion on the call as a whole, which is about `path` and `to` in these words.

        Where everything that it is about lies in directories of the session's own it is not asked about, nor what has
        no effect. Raises Denied, Asked.
        """
        first = judged[0]
        if self.intent is None or effect == READ or all(self._is_in_own(each.target) for each in judged):
            return judged
        from pincer_trace.twin.matter import Matter, Opinion, staged, tighten

        opinion = self.intent.opinion(Matter(effect, task.executable, staged(path), staged(to), flags))
        if opinion is None:
            if self._notification:
                raise Asked(None)
            opinion = Opinion(CONFIRM, "found out too late for asking the model whether it serves the task")
        decision = tighten(first.right, opinion)
        if decision is first.right:
            return judged
        right = self.right.tighten(first.claim, decision)
        stricter = Judgement(first.claim, first.target, first.left, right, first.asked, opinion)
        return self.insist(task, effect, target, stricter), *judged[1:]

    def vote(self, action: bytes, request: Request, time: int) -> tuple[Share, ...]:
        """Both votes on a request whose claims were judged. Raises Unheard."""
        return self.left.vote(action, request, time), self.right.vote(action, request, time)

    def confirm(self, judged: Sequence[Judgement]) -> list[int] | None:
        """The records of the answers that confirm everything which needs it, each used once more; None without them."""
        return self._confirmation.use(judged)

    def token(self, action: bytes, digest: bytes) -> bytes:
        """The token of what was confirmed, for exactly this action."""
        return mint(self._keys.confirm, action, self._profile.digest, digest)

    def intend(
        self,
        task: Task,
        effect: str,
        target: Target,
        judgement: Judgement,
        action: bytes,
        digest: bytes,
        extra: dict[str, object] | None = None,
        facts: Sequence[Row] = (),
    ) -> int:
        """Write the intent. Raises LedgerFull: then nothing may happen."""
        self._introductions.of(task)
        found = target.found
        dev, ino = (found.st_dev, found.st_ino) if found is not None else (0, 0)
        if self.intent is not None:
            self.intent.note(effect, target.path)
        return self._ledger.intent(
            effect,
            target.path,
            pid=task.tid,
            exe=task.executable,
            dev=dev,
            ino=ino,
            verdict=judgement.verdict,
            rule=_source(judgement),
            reason=judgement.reason,
            votes=judgement.votes(),
            action=action,
            request=digest,
            facts=facts,
            extra=extra,
        )

    def done(self, sequence: int, error: int = 0, post: str = "") -> None:
        """Write the outcome: 0, or the errno with which the kernel refused; and what was seen afterwards."""
        self._ledger.outcome(sequence, error, post)

    def note_failure(self, where: str, failure: BaseException, pid: int) -> None:
        """Record that the supervisor failed, and that what was asked is refused."""
        try:
            self._ledger.failure(where, failure, pid=pid)
        except LedgerFull:
            pass  # it is refused all the same


def _confirmed(decision: Decision) -> Decision:
    return Decision(CONFIRM, decision.rule, f"{decision.reason}, and it is read as a view only")


def _used(_task: Task, _target: Target, _name: bytes, _sink: Sink) -> None:
    """Where nobody keeps what sinks have read."""


def _nothing() -> None:
    """Where nothing depends on it."""


def _nobody(_number: int, _effect: str, _path: bytes, _reason: str) -> None:
    """Where no person is told of denials."""


def _source(decision: Decision) -> str:
    return decision.rule.source if decision.rule is not None else ""
