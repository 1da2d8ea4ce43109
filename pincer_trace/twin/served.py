"""The right evaluator as it is served in its own process: messages in, verdicts and votes out.

A message names objects by bare pins. Claims and targets are put together here, and looked at here; a vote is on claims
that are in the ballot here, whatever the engine holds for them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import unicodedata  # noqa: F401 - for display(): imported before the process is confined

from pincer_trace.gateway import sinks  # noqa: F401 - the same
from pincer_trace.gateway.aliases import Aliases
from pincer_trace.gateway.gitconfig import ConfigWitness, Hope, Written
from pincer_trace.gateway.places import long_path
from pincer_trace.gateway.provenance import Ancestry, Provenance, Within
from pincer_trace.gateway.request import Claim, Request
from pincer_trace.gateway.tasks import Task
from pincer_trace.profile import Decision
from pincer_trace.twin.artifact import OwnKeys
from pincer_trace.twin.evaluator import Mismatch
from pincer_trace.twin.link import raw, receive, reply, text
from pincer_trace.twin.objects import ObjectEvaluator, repositories
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pincer_trace.gateway.gitconfig import Witness
    from pincer_trace.profile import Profile
    from pincer_trace.twin.link import Message


class _Inside(Within):
    """The directories above one that moves with another, by what is seen from its own pin: the one that moves is
    `depth` - 1 levels above it.
    """

    def __init__(self, here: Ancestry | None, depth: int, outer: Ancestry | None) -> None:
        super().__init__((), depth, outer)
        self._here = here

    def covers(self, skip: int, count: int) -> bool:
        inside = min(count, self.depth - skip)
        if inside > 0 and self._here is not None and self._here.covers(skip, inside):
            return True
        return super().covers(skip, count)


class Served:
    """Asked over `connection`."""

    def __init__(self, profile: Profile, connection: socket.socket) -> None:
        self._connection = connection
        self._profile = profile
        self._provenance = Provenance()
        self._aliases = Aliases(profile)
        self._names = os.open("/proc/self/fd", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        self._evaluator: ObjectEvaluator | None = None
        self._call = 0
        self._claims: dict[int, Claim] = {}
        self._witnesses: dict[int, ConfigWitness] = {}
        self._asked: dict[str, Callable[[Message, list[int]], Message]] = {
            "keys": self._take_keys,
            "judge": self._judge,
            "held": lambda a, pins: self._judge(a, pins, held=True),
            "below": lambda a, pins: self._judge(a, pins, below=True),
            "vote": self._vote,
            "release": lambda a, _: self._release(a[0]),
        }
        provenance, aliases = self._provenance, self._aliases
        self._told: dict[str, Callable[[Message, list[int]], object]] = {
            "tighten": self._tighten,
            "note": lambda a, pins: provenance.note(pins[a[0]], raw(a[1])),
            "note_socket": lambda a, pins: provenance.note_socket(pins[a[0]], raw(a[1])),
            "note_abstract": lambda a, _: provenance.note_abstract(raw(a[0]), a[1]),
            "note_port": lambda a, _: provenance.note_port(a[0]),
            "note_descriptor": lambda a, pins: provenance.note_descriptor(pins[a[0]], pins[a[1]]),
            "note_object": lambda a, pins: provenance.note_object(pins[a[0]]),
            "note_nameless": lambda a, pins: provenance.note_nameless(pins[a[0]]),
            "keep": lambda a, pins: provenance.keep(pins[a[0]], raw(a[1])),
            "forget": lambda a, _: provenance.forget(_found(*a)),
            "vacate": lambda a, _: provenance.vacate(raw(a[0])),
            "note_secret": self._note_secret,
            "note_link": lambda a, _: aliases.note_link(raw(a[0]), raw(a[1]), _found(a[2], a[3])),
        }

    def serve(self) -> None:
        """Until the engine has ended. What goes wrong with a question is its answer; with anything else, the end."""
        while (received := receive(self._connection)) is not None:
            (operation, number, *arguments), pins = received
            try:
                told = self._told.get(operation)
                if told is not None:
                    told(arguments, pins)
                    continue
                ask = self._asked[operation]
                try:
                    answer = ask(arguments, pins)
                except Exception as error:  # noqa: BLE001 - the engine denies, and says why
                    answer = [None, f"{type(error).__name__}: {error}"]
                reply(self._connection, [number, *answer])
            finally:
                for pin in pins:
                    os.close(pin)

    def _take_keys(self, a: Message, _pins: list[int]) -> Message:
        """The first question."""
        if self._evaluator is not None:
            raise ValueError("it has keys")
        self._evaluator = ObjectEvaluator(
            self._profile,
            OwnKeys(raw(a[0]), raw(a[1])),
            self._provenance,
            self._aliases,
            repositories(self._profile),
            self._name_of,
        )
        return ["ready"]

    def _name_of(self, descriptor: int) -> bytes:
        """The path of a pin, as `gateway.resolve.Resolver.path_of`."""
        try:
            return os.readlink(b"%d" % descriptor, dir_fd=self._names)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
        return long_path(descriptor)

    # -- verdicts --------------------------------------------------------------------------------------------

    def _ready(self, call: int) -> ObjectEvaluator:
        """The evaluator, for this call: what was judged for another counts no more."""
        if self._evaluator is None:
            raise ValueError("it has no keys yet")
        if call != self._call:
            self._call = call
            self._claims.clear()
            for number in tuple(self._witnesses):
                self._release(number)
            self._evaluator.begin()
        return self._evaluator

    def _judge(self, a: Message, pins: list[int], *, held: bool = False, below: bool = False) -> Message:
        call, number, effect, path, place, name, found, executable, described, known = a
        evaluator = self._ready(call)
        with contextlib.ExitStack() as stack:
            target = self._target(raw(path), raw(name), described, pins, stack)
            if found is not None:
                device, inode, mode, ctime, size = found
                target.found = _found(device, inode, mode, self._names_of(target), ctime, size)
            claim = Claim(effect, target.path, tuple(place), target.name, target.found)
            witness = self._witness(known, pins)
            if held:
                decision = evaluator.held(claim, target)
            elif below:
                decision = evaluator.below(claim, target)
            else:
                decision = evaluator.judge(Task(0, -1, raw(executable), 0, 0.0), claim, target, witness)
        self._claims[number] = claim
        rule = decision.rule
        return [
            decision.verdict,
            rule.rank if rule is not None else None,
            decision.reason,
            isinstance(decision, Mismatch),
            isinstance(witness, ConfigWitness) and witness.leased,
            [] if held or below else list(evaluator.asked),
        ]

    def _names_of(self, target: Target) -> int:
        """How many names the object has, by our own look; many when that cannot be told."""
        seen = None
        with contextlib.suppress(OSError):
            if target.descriptor >= 0:
                seen = os.fstat(target.descriptor)
            elif target.parent >= 0:
                parent, name = target.moved or (target.parent, target.name)
                seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return seen.st_nlink if seen is not None else 2

    def _target(
        self, path: bytes, name: bytes, described: Message, pins: list[int], stack: contextlib.ExitStack
    ) -> Target:
        parent, descriptor, moved, within, arrives, replaces, named, lies, listeners = described
        above = None
        if within is not None:
            depth, beyond = within
            here = None if replaces else stack.enter_context(Ancestry(self._provenance, _pin(pins, parent)))
            outer = stack.enter_context(Ancestry(self._provenance, pins[beyond])) if beyond >= 0 else None
            above = _Inside(here, depth, outer)
        target = Target(
            path,
            parent=_pin(pins, parent),
            name=name,
            descriptor=_pin(pins, descriptor),
            above=above,
            arrives=arrives,
            replaces=replaces,
            named=named,
            lies=raw(lies),
        )
        target.listeners = tuple(listeners)
        if moved is not None:
            target.moved = pins[moved[0]], raw(moved[1])
        return target

    def _witness(self, known: Message | None, pins: list[int]) -> Witness | None:
        if known is None:
            return None
        kind, *rest = known
        if kind == "hope":
            return Hope()
        if kind == "written":
            before, after = (None if content is None else raw(content) for content in rest)
            return Written(before, after)
        number, source, source_name, (device, inode), goal, goal_name = rest
        witness = self._witnesses.get(number)
        if witness is None:
            kept = os.dup(pins[source]), os.dup(pins[goal])
            found = _found(device, inode)
            witness = ConfigWitness(kept[0], raw(source_name), found, kept[1], raw(goal_name))
            self._witnesses[number] = witness
        return witness

    def _release(self, number: int) -> Message:
        """The rename is over: others may write the file."""
        witness = self._witnesses.pop(number, None)
        if witness is not None:
            witness.close()
            os.close(witness.source)
            os.close(witness.goal)
        return []

    def _note_secret(self, a: Message, pins: list[int]) -> None:
        secret, device, inode, mode, descriptor, parent, name, moved = a
        target = Target(b"", parent=_pin(pins, parent), name=raw(name), descriptor=_pin(pins, descriptor))
        target.found = _found(device, inode, mode)
        if moved is not None:
            target.moved = pins[moved[0]], raw(moved[1])
        self._aliases.note_secret(target, raw(secret))

    def _tighten(self, a: Message, _pins: list[int]) -> None:
        call, number, verdict = a
        claim = self._claims.get(number)
        if claim is not None and call == self._call and self._evaluator is not None:
            self._evaluator.tighten(claim, Decision(verdict, None, ""))

    # -- votes -----------------------------------------------------------------------------------------------

    def _vote(self, a: Message, _pins: list[int]) -> Message:
        call, action, head, tail, numbers, time = a
        evaluator = self._ready(call)
        request = Request(raw(head), [self._claims[number] for number in numbers], raw(tail))
        share = evaluator.vote(raw(action), request, time)
        return [
            text(share.action), text(share.program), text(share.digest), share.time, share.verdict, text(share.mac)
        ]  # fmt: skip


def _pin(pins: list[int], place: int) -> int:
    return pins[place] if place >= 0 else -1


def _found(dev: int, ino: int, mode: int = 0, names: int = 0, ctime: int = 0, size: int = 0) -> os.stat_result:
    """A description of an object: the part of its lstat that decides anything."""
    return os.stat_result((mode, ino, dev, names, 0, 0, size, 0, 0, 0), {"st_ctime_ns": ctime})
