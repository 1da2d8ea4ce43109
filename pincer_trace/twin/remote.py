"""The right evaluator as the engine knows it when that runs in a process of its own (`twin.process`).

It is asked for each verdict and each vote, and told what the tree made, moved and removed, so that it knows as well as
the engine what belongs to the session. No verdict of its is made here: what is not answered in time, or in another form
than an answer has, is a denial with its own code.
"""

from __future__ import annotations

import fcntl
import os

from pincer_trace.errors import UserError
from pincer_trace.gateway.aliases import Aliases
from pincer_trace.gateway.gitconfig import ConfigWitness
from pincer_trace.gateway.provenance import Provenance, Within
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, DENY, Decision
from pincer_trace.profile.model import VERDICTS
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import RIGHT, OwnKeys, Share
from pincer_trace.twin.evaluator import HELD, Mismatch, NoVerdict, Unheard
from pincer_trace.twin.link import Link, raw, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from pincer_trace.gateway.gitconfig import Witness
    from pincer_trace.gateway.request import Claim, Request
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.profile import Profile, Rule
    from pincer_trace.twin.facts import Row
    from pincer_trace.twin.link import Message
    from pincer_trace.twin.objects import ObjectEvaluator
    from pincer_trace.twin.target import Target

_O_PATH = os.O_PATH | os.O_CLOEXEC
_REASON = 2000  # characters
_CELL = 8192  # characters of one text in a fact


def connect(connection: socket.socket, root: bytes, *, patience: float | None = None) -> Link:
    """Hand over its keys, which no other process than the two ever holds. Raises UserError."""
    link = Link(connection, patience=patience)
    try:
        answer = link.ask("keys", [text(key) for key in OwnKeys.derive(root)])
        problem = "" if answer == ["ready"] else display(f"the evaluator of objects cannot start: {answer}", _REASON)
    except Unheard as unheard:
        problem = unheard.reason
    if problem:
        raise UserError(f"--twin process: {problem}; nothing was started, see: pincer-trace doctor")
    return link


class Pins:
    """Descriptors that go along with one message: bare pins, by which nothing can be read or written."""

    def __init__(self, names: int) -> None:
        self._names = names
        self._places: dict[int, int] = {}
        self._made: list[int] = []
        self.descriptors: list[int] = []

    def add(self, descriptor: int) -> int:
        """Its place among them; -1 for none. Raises OSError."""
        if descriptor < 0:
            return -1
        if descriptor not in self._places:
            self._places[descriptor] = len(self.descriptors)
            if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_PATH:
                bare = os.open(b"%d" % descriptor, _O_PATH, dir_fd=self._names)
                self._made.append(bare)
                self.descriptors.append(bare)
            else:
                self.descriptors.append(descriptor)
        return self._places[descriptor]

    def __enter__(self) -> Pins:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._made:
            os.close(descriptor)


class RemoteEvaluator:
    """In the place of an `ObjectEvaluator`. `local` is one in this process: it tells facts, and decides nothing.

    `names` is the directory of our own descriptors. Belongs to the receiving thread.
    """

    by = RIGHT

    def __init__(self, profile: Profile, local: ObjectEvaluator, link: Link, names: int) -> None:
        self._profile = profile
        self._local = local
        self._link = link
        self._names = names
        self._rules: dict[int, Rule] = {rule.rank: rule for rule in profile.rules}
        self._call = 0
        self._claims: dict[Claim, int] = {}  # those that it has judged in this call, by its numbers for them
        self._witnesses: dict[ConfigWitness, int] = {}
        self._count = 0
        self.asked: Sequence[Row] = ()
        self.facts = local.facts
        self.is_old = local.is_old

    def begin(self) -> None:
        """Another call: what was judged before counts no more."""
        self._call += 1
        self._claims.clear()
        self._witnesses.clear()

    # -- verdicts --------------------------------------------------------------------------------------------

    def judge(self, task: Task, claim: Claim, target: Target, witness: Witness | None = None) -> Decision:
        """Its verdict on a claim."""
        return self._verdict("judge", task.executable, claim, target, witness)

    def lets_read_pinned(self, _path: bytes, _pin: int, _found: os.stat_result) -> Decision | None:
        """None: it is asked for every verdict."""
        return None

    def lets_read_in(self, _directory: bytes) -> None:
        """The same."""
        return

    def held(self, claim: Claim, target: Target) -> Decision:
        """The caller has this access already, by a descriptor: it looks at the object alone."""
        return self._verdict("held", b"", claim, target, None)

    of_the_run = held  # it knows of no file systems of the run's own

    def below(self, claim: Claim, target: Target) -> Decision:
        """Its verdict on a link for what that would put in a protected place below its name."""
        return self._verdict("below", b"", claim, target, None)

    def _verdict(
        self, operation: str, executable: bytes, claim: Claim, target: Target, witness: Witness | None
    ) -> Decision:
        self.asked = ()
        self._count += 1
        try:
            with Pins(self._names) as pins:
                found = claim.found
                arguments: Message = [
                    self._call,
                    self._count,
                    claim.effect,
                    text(claim.path),
                    claim.place,
                    text(claim.name),
                    found and (found.st_dev, found.st_ino, found.st_mode, found.st_ctime_ns, found.st_size),
                    text(executable),
                    _described(target, pins),
                    self._known(witness, pins),
                ]
                answer = self._link.ask(operation, arguments, pins.descriptors)
            decision, holds = self._decision(answer, held=operation == "held")
        except Unheard as unheard:
            return NoVerdict(unheard)
        if holds and isinstance(witness, ConfigWitness):
            number = self._witnesses[witness]
            witness.closed = lambda: self._release(number)
        self._claims[claim] = self._count
        return decision

    def _release(self, number: int) -> None:
        """It is to drop a lease: the caller may open the file as soon as it has its answer, so this waits for that."""
        try:
            self._link.ask("release", [number])
        except Unheard:
            pass  # the next judgement says so, and with its next call or its end the lease is gone too

    def _known(self, witness: Witness | None, pins: Pins) -> object:
        """What is known of the content: of a file that is there only where to look."""
        if isinstance(witness, ConfigWitness):
            number = self._witnesses.setdefault(witness, self._count)
            here, there = pins.add(witness.source), pins.add(witness.goal)
            place = witness.found.st_dev, witness.found.st_ino
            return ["config", number, here, text(witness.source_name), place, there, text(witness.goal_name)]
        if witness is None:
            return None
        if witness.hopeful:
            return ["hope"]
        before, after = witness.before(), witness.content()
        return ["written", None if before is None else text(before), None if after is None else text(after)]

    def _decision(self, answer: Message, *, held: bool) -> tuple[Decision, bool]:
        """The verdict that an answer says, and whether it holds a lease. Raises Unheard."""
        match answer:
            case [str(verdict), int() | None as rank, str(reason), bool(differs), bool(holds), list(rows)]:
                pass
            case [None, str(failure)]:
                failed = f"the evaluator of objects failed: {display(failure, _REASON)}"
                raise Unheard(codes.SUPERVISOR_FAILURE, failed)
            case _:
                raise _malformed()
        rule = self._rules.get(rank) if rank is not None else None
        if rank is not None and (rule is None or rule.verdict != verdict):
            raise _malformed()
        if verdict not in VERDICTS or not all(_is_row(row) for row in rows) or (differs and verdict != DENY):
            raise _malformed()
        self.asked = rows
        if verdict == ALLOW and rule is None:
            if not held:
                raise _malformed()
            return Decision(ALLOW, None, HELD), holds
        if rule is not None and reason == rule.reason:
            return rule.decide(), holds
        if not (reason.isascii() and reason.isprintable() and len(reason) <= _REASON):
            reason = display(reason, _REASON)
        return (Mismatch if differs else Decision)(verdict, rule, reason), holds

    def tighten(self, claim: Claim, decision: Decision) -> Decision:
        """A third has judged it more strictly: then that counts there too."""
        self._link.tell("tighten", [self._call, self._claims.get(claim, -1), decision.verdict])
        return decision

    # -- votes -----------------------------------------------------------------------------------------------

    def vote(self, action: bytes, request: Request, time: int) -> Share:
        """Its vote on a request, which it puts together itself, from what it has judged. Raises Unheard."""
        claims = [self._claims.get(claim, -1) for claim in request.claims]
        parts = text(action), text(request.head), text(request.tail)
        answer = self._link.ask("vote", [self._call, *parts, claims, time])
        match answer:
            case [str(its_action), str(program), str(digest), int(its_time), str(verdict), str(mac)]:
                try:
                    return Share(RIGHT, raw(its_action), raw(program), raw(digest), its_time, verdict, raw(mac))
                except ValueError:
                    raise _malformed() from None
            case [None, str(failure)]:
                failed = f"the evaluator of objects failed: {display(failure, _REASON)}"
                raise Unheard(codes.SUPERVISOR_FAILURE, failed)
        raise _malformed()


def _malformed() -> Unheard:
    return Unheard(codes.BAD_SHARE, "what the evaluator of objects answered is no verdict")


def _is_row(row: object) -> bool:
    """Whether it is a fact as records hold them: texts, answers, a list of texts."""
    if type(row) is not list or not row or type(row[0]) is not str:
        return False
    texts = [cell for cell in row if type(cell) is str]
    for cell in row:
        if type(cell) is list:
            if not all(type(each) is str for each in cell):
                return False
            texts += cell
        elif type(cell) not in (str, bool, int, type(None)):
            return False
    return all(len(each) <= _CELL for each in texts)


def _described(target: Target, pins: Pins) -> Message:
    """A target without its path, name and `found`, which the claim has."""
    moved = target.moved and (pins.add(target.moved[0]), text(target.moved[1]))
    within = None
    if isinstance(target.above, Within):
        within = target.above.depth, pins.add(target.above.outer.directory if target.above.outer is not None else -1)
    places = pins.add(target.parent), pins.add(target.descriptor)
    more = target.arrives, target.replaces, target.named, text(target.lies), target.listeners
    return [*places, moved, within, *more]


class ToldProvenance(Provenance):
    """A provenance whose other copy hears of every change."""

    def __init__(self, link: Link, names: int) -> None:
        super().__init__()
        self._link = link
        self._names = names

    def _tell(self, operation: str, *arguments: object, pinned: tuple[int, ...] = ()) -> None:
        with Pins(self._names) as pins:
            places = [pins.add(descriptor) for descriptor in pinned]
            self._link.tell(operation, [*places, *arguments], pins.descriptors)

    def note(self, parent: int, name: bytes) -> os.stat_result | None:
        found = super().note(parent, name)
        self._tell("note", text(name), pinned=(parent,))
        return found

    def note_socket(self, parent: int, name: bytes) -> None:
        super().note_socket(parent, name)
        self._tell("note_socket", text(name), pinned=(parent,))

    def note_abstract(self, peer: bytes, inode: int) -> None:
        super().note_abstract(peer, inode)
        self._tell("note_abstract", text(peer), inode)

    def note_port(self, inode: int) -> None:
        super().note_port(inode)
        self._tell("note_port", inode)

    def note_descriptor(self, descriptor: int, parent: int) -> os.stat_result:
        found = super().note_descriptor(descriptor, parent)
        self._tell("note_descriptor", pinned=(descriptor, parent))
        return found

    def note_object(self, descriptor: int) -> None:
        super().note_object(descriptor)
        self._tell("note_object", pinned=(descriptor,))

    def note_nameless(self, descriptor: int) -> None:
        super().note_nameless(descriptor)
        self._tell("note_nameless", pinned=(descriptor,))

    def keep(self, parent: int, name: bytes) -> None:
        super().keep(parent, name)
        self._tell("keep", text(name), pinned=(parent,))

    def forget(self, found: os.stat_result) -> None:
        super().forget(found)
        self._tell("forget", found.st_dev, found.st_ino, found.st_mode, found.st_nlink)

    def vacate(self, path: bytes) -> None:
        super().vacate(path)
        self._tell("vacate", text(path))


class ToldAliases(Aliases):
    """The same of the other names of protected files."""

    def __init__(self, profile: Profile, link: Link, names: int) -> None:
        super().__init__(profile)
        self._other = link
        self._names = names

    def note_link(self, real: bytes, name: bytes, found: os.stat_result) -> bool:
        new = super().note_link(real, name, found)
        self._other.tell("note_link", [text(real), text(name), found.st_dev, found.st_ino])
        return new

    def note_secret(self, target: Target, name: bytes) -> bool:
        new, found = super().note_secret(target, name), target.found
        if new and found is not None:
            with Pins(self._names) as pins:
                object_ = found.st_dev, found.st_ino, found.st_mode
                moved = target.moved and (pins.add(target.moved[0]), text(target.moved[1]))
                place = pins.add(target.descriptor), pins.add(target.parent), text(target.name), moved
                self._other.tell("note_secret", [text(name), *object_, *place], pins.descriptors)
        return new
