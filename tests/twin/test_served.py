"""Both ends of the link to the right evaluator's process, here in one process: they agree with one evaluator inline, in
every verdict, fact, vote and thing that is known; and the link itself.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time

import pytest

from pincer_trace.effects import CREATE, MKDIR, READ, RENAME, SYMLINK, UNLINK, WRITE
from pincer_trace.gateway.gitconfig import ConfigWitness, Hope, Written
from pincer_trace.gateway.provenance import Ancestry, Within
from pincer_trace.gateway.request import Claim, Request
from pincer_trace.profile import ALLOW, DENY, Decision
from pincer_trace.twin import codes, link
from pincer_trace.twin.artifact import Keys, action_id, now
from pincer_trace.twin.evaluator import HELD, Mismatch, NoVerdict, Unheard
from pincer_trace.twin.objects import ObjectEvaluator, repositories
from pincer_trace.twin.remote import Pins, RemoteEvaluator, ToldAliases, ToldProvenance, connect
from pincer_trace.twin.served import Served, _Inside
from pincer_trace.twin.target import Target

ROOT = b"r" * 32
O_PATH = os.O_PATH


class Pair:
    """An evaluator of this process and one behind a link, under the same keys, which hear of the same things."""

    def __init__(self, bench) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs = theirs
        self.served = Served(bench.profile, theirs)
        self.thread = threading.Thread(target=self.served.serve)
        self.thread.start()
        self.link = connect(ours, ROOT, patience=5)
        names = bench.resolver.names
        self.provenance = ToldProvenance(self.link, names)
        self.aliases = ToldAliases(bench.profile, self.link, bench.resolver.names)
        rules = repositories(bench.profile)
        self.local = ObjectEvaluator(
            bench.profile, Keys(ROOT), self.provenance, self.aliases, rules, bench.resolver.path_of
        )
        self.remote = RemoteEvaluator(bench.profile, self.local, self.link, names)
        self.served._evaluator._began = self.local._began
        self.task = bench.task()

    def settle(self) -> None:
        """Until it has heard of everything: it answers in order."""
        assert self.link.ask("vote", [self.remote._call, "", "", "", [-1], 0])[0] is None

    def judge(self, effect: str, target: Target, witness=None):
        """The verdict and the facts of both, which must be one."""
        found = []
        for evaluator in (self.local, self.remote):
            claim = Claim.of(effect, target)
            decision = evaluator.judge(self.task, claim, target, witness)
            rule = decision.rule.rank if decision.rule is not None else None
            facts = [list(row) for row in evaluator.asked]
            found.append((decision.verdict, rule, decision.reason, type(decision), facts))
        assert found[0] == found[1]
        return found[0]

    def close(self) -> None:
        self.link.close()
        self.thread.join()
        os.close(self.served._names)
        self.theirs.close()


@pytest.fixture
def pair(bench):
    made = Pair(bench)
    yield made
    made.close()


def at(path: str) -> bytes:
    return os.fsencode(os.path.abspath(path))


class Pinned:
    def __init__(self, path: str, **how) -> None:
        directory, _, name = path.rpartition("/")
        self.parent = os.open(directory or ".", O_PATH)
        found = os.lstat(path) if os.path.lexists(path) else None
        self.target = Target(at(path), parent=self.parent, name=os.fsencode(name), found=found, **how)

    def __enter__(self) -> Target:
        return self.target

    def __exit__(self, *_: object) -> None:
        os.close(self.parent)


EFFECTS = (READ, WRITE, CREATE, MKDIR, UNLINK, RENAME, SYMLINK)
PLACES = (
    "file", "new", "dir", "dir/inner", "shared/foreign", "shared/made", "shared/own/x", "secret/key", "asked/hook",
    "link", "repo/.git/config", "repo/.git/new", "../outside", "fifo",
)  # fmt: skip


def test_every_verdict_is_the_same(pair) -> None:
    os.mkdir("shared/own")
    with Pinned("shared/own") as target:
        pair.provenance.note(target.parent, target.name)
    for path, effect in itertools.product(PLACES, EFFECTS):
        with Pinned(path) as target:
            pair.judge(effect, target)
            for name in ("file", "shared/own"):
                moved = Target(target.path, parent=target.parent, name=target.name, found=os.lstat(name))
                here = os.open(os.path.dirname(name) or ".", O_PATH)
                moved.comes_from(here, os.path.basename(name).encode())
                pair.judge(effect, moved)
                os.close(here)
    for path in ("file", "secret/key", "dir", "fifo"):
        descriptor = os.open(path, O_PATH)
        pair.judge(WRITE, Target(at(path), descriptor=descriptor, found=os.stat(path)))
        assert pair.judge(WRITE, Target(at("other"), descriptor=descriptor, found=os.stat(path)))[3] is Mismatch
        os.close(descriptor)


def test_descriptors_that_could_write_are_not_handed_over(pair) -> None:
    descriptor = os.open("file", os.O_RDWR)
    seen = []
    served = pair.served._judge
    pair.served._asked["judge"] = lambda a, pins: seen.extend(_flags(pin) for pin in pins) or served(a, pins)
    pair.judge(WRITE, Target(at("file"), descriptor=descriptor, found=os.stat("file")))
    os.close(descriptor)
    assert seen
    assert all(flags & O_PATH for flags in seen)


def _flags(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


@pytest.mark.parametrize("content", ["[core]\n\tbare = true\n", "[core]\n\tfsmonitor = x\n", "[alias]\n\tx = !y\n"])
def test_witnesses(pair, content) -> None:
    with open("repo/.git/config.lock", "w") as file:
        file.write(content)
    with Pinned("repo/.git/config") as target:
        target.found = os.lstat("repo/.git/config.lock")
        target.comes_from(target.parent, b"config.lock")
        looked = ConfigWitness(target.parent, b"config.lock", target.found, target.parent, b"config")
        verdict = pair.judge(RENAME, target, looked)[0]
        assert verdict == (ALLOW if "bare" in content else "confirm")
        pair.settle()
        (theirs,) = pair.served._witnesses.values()
        assert theirs.leased
        looked.close()
        pair.settle()
        assert not pair.served._witnesses
        target.moved = None
        target.arrives = False
        for witness in (
            Written(b"", content.encode()),
            Written(None, None),
            Hope(),
            Written(b"x" * 90_000, b"\xff" * 9),
        ):
            pair.judge(WRITE, target, witness)


def test_an_unused_witness_takes_no_lease(pair) -> None:
    with Pinned("file") as target:
        witness = ConfigWitness(target.parent, b"file", target.found, target.parent, b"other")
        pair.judge(WRITE, target, witness)
        assert witness.closed is None
        pair.remote.begin()
        pair.judge(WRITE, target)
        assert not pair.served._witnesses  # another call: whatever was left of the one before is closed
        witness.close()


def test_votes_are_the_same_bytes(pair) -> None:
    with Pinned("file") as target, Pinned("asked/hook") as other:
        for targets in ([target], [other], [target, other]):
            claims = [Claim.of(WRITE, each) for each in targets]
            for evaluator in (pair.local, pair.remote):
                evaluator.begin()
                for claim, each in zip(claims, targets, strict=True):
                    evaluator.judge(pair.task, claim, each)
            request = Request.of(
                b"origin", b"subject", WRITE, claims, flags=3, mode=5, arguments=(b"\xff" * 70_000, -7)
            )
            action, time_ = action_id(), now()
            one, two = pair.local.vote(action, request, time_), pair.remote.vote(action, request, time_)
            assert [getattr(one, name) for name in one.__slots__] == [getattr(two, name) for name in two.__slots__]


def test_it_votes_on_what_it_has_judged_alone(pair) -> None:
    with Pinned("file") as target, Pinned("dir/inner") as other:
        judged, strange = Claim.of(WRITE, target), Claim.of(WRITE, other)
        pair.remote.judge(pair.task, judged, target)
        for claims in ([strange], [judged, strange]):
            with pytest.raises(Unheard) as unheard:
                pair.remote.vote(action_id(), Request.of(b"", b"", WRITE, claims), now())
            assert unheard.value.code == codes.SUPERVISOR_FAILURE
        request = Request.of(b"", b"", WRITE, [judged])
        assert pair.remote.vote(action_id(), request, now()).verdict == ALLOW
        pair.remote.begin()
        with pytest.raises(Unheard):
            pair.remote.vote(action_id(), request, now())
        assert pair.remote.vote(action_id(), Request.of(b"", b"", WRITE, []), now()).verdict == DENY


def test_a_claim_that_was_changed_after_it_was_judged(pair) -> None:
    """The vote is on what was judged, so the request that would be performed is another one."""
    with Pinned("file") as target:
        claim = Claim.of(WRITE, target)
        pair.remote.judge(pair.task, claim, target)
        before = Request.of(b"", b"", WRITE, [claim])
        claim.path, claim._data = at("secret/key"), b""
        after = Request.of(b"", b"", WRITE, [claim])
        keys = Keys(ROOT)
        share = pair.remote.vote(action_id(), after, now())
        assert share.digest == keys.bind.tag(before.data) != keys.bind.tag(after.data)


@pytest.mark.parametrize("verdict", ["confirm", "deny", "allow"])
def test_it_is_only_tightened(pair, verdict) -> None:
    for path, own in (("file", ALLOW), ("asked/hook", "confirm"), ("secret/key", DENY)):
        with Pinned(path) as target:
            claim = Claim.of(WRITE, target)
            pair.remote.judge(pair.task, claim, target)
            pair.remote.tighten(claim, Decision(verdict, None, ""))
            share = pair.remote.vote(action_id(), Request.of(b"", b"", WRITE, [claim]), now())
            order = (ALLOW, "confirm", DENY)
            assert share.verdict == max(own, verdict, key=order.index)


def test_what_is_held(pair) -> None:
    descriptor = os.open("secret/key", os.O_RDWR)
    target = Target(at("secret/key"), descriptor=descriptor, found=os.stat("secret/key"))
    claim = Claim.of(WRITE, target)
    held = pair.remote.held(claim, target)
    assert (held.verdict, held.reason, held.rule) == (ALLOW, HELD, None)
    assert pair.remote.vote(action_id(), Request.of(b"", b"", WRITE, [claim]), now()).verdict == ALLOW
    other = Target(at("secret/key"), descriptor=descriptor, found=os.stat("file"))
    assert isinstance(pair.remote.held(Claim.of(WRITE, other), other), Mismatch)
    os.close(descriptor)


def test_what_fails_there_is_a_denial(pair) -> None:
    descriptor = os.open("file", O_PATH)
    pair.served._asked["judge"] = lambda a, pins: 1 // 0
    decision = pair.remote.judge(pair.task, *_claimed(descriptor))
    assert isinstance(decision, NoVerdict)
    assert decision.code == codes.SUPERVISOR_FAILURE
    assert "ZeroDivisionError" in decision.reason
    os.close(descriptor)


def _claimed(descriptor: int) -> tuple[Claim, Target]:
    target = Target(at("file"), descriptor=descriptor, found=os.stat("file"))
    return Claim.of(WRITE, target), target


@pytest.mark.parametrize("seed", range(5))
def test_both_know_the_same(pair, seed) -> None:
    """Over a few hundred acts of every kind, told in their order."""
    chance = random.Random(seed)
    os.chdir("shared")
    here = os.open(".", O_PATH)
    names = [f"n{number}" for number in range(12)]
    provenance = pair.provenance
    for _ in range(300):
        name, other = chance.sample(names, 2)
        pair.settle()  # as before each effect, which both have to judge
        act = chance.choice(["file", "dir", "in", "move", "link", "remove", "nameless", "vacate", "object"])
        there = os.path.lexists(name)
        if act == "file" and not there:
            opened = os.open(name, os.O_CREAT | os.O_WRONLY)
            provenance.note_descriptor(opened, here)
            os.close(opened)
        elif act == "dir" and not there:
            os.mkdir(name)
            provenance.note(here, name.encode())
        elif act == "in" and os.path.isdir(name) and not os.listdir(name):
            inside = os.open(name, O_PATH)
            os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
            provenance.note(inside, b"x")
            os.close(inside)
        elif act == "move" and there and not os.path.lexists(other):
            os.rename(name, other)
            provenance.keep(here, other.encode())
        elif act == "link" and os.path.isfile(name) and not os.path.lexists(other):
            os.link(name, other)
            provenance.keep(here, other.encode())
        elif act == "remove" and there:
            found = os.lstat(name)
            if os.path.isdir(name):
                for inner in os.listdir(name):
                    provenance.forget(os.lstat(f"{name}/{inner}"))
                    os.unlink(f"{name}/{inner}")
                os.rmdir(name)
            else:
                os.unlink(name)
            provenance.forget(found)
        elif act == "nameless":
            opened = os.open(".", os.O_TMPFILE | os.O_RDWR)
            provenance.note_nameless(opened)
            os.close(opened)
        elif act == "object" and there:
            opened = os.open(name, O_PATH)
            provenance.note_object(opened)
            os.close(opened)
        elif act == "vacate":
            provenance.vacate(at(f"{name}/{other}"))
    pair.aliases.note_link(at("n1"), at("n2"), os.stat("."))
    pair.settle()
    theirs = pair.served._provenance
    assert provenance._born == theirs._born
    assert provenance._nameless == theirs._nameless
    assert (provenance._vacated, provenance._above_vacated) == (theirs._vacated, theirs._above_vacated)
    assert pair.aliases.moved == pair.served._aliases.moved
    assert provenance._born
    os.close(here)


def test_directories_above_are_seen_from_the_pin(pair, tmp_path) -> None:
    """What the engine has listed on its way down, the process finds by going up."""
    parts = [f"d{number}" for number in range(7)]
    os.makedirs("/".join(parts))
    chance = random.Random(1)
    for _ in range(40):
        pair.provenance._born.clear()
        pair.served._provenance._born.clear()
        ours = sorted(chance.sample(range(7), chance.randrange(5)))
        for number in ours:
            directory = os.open("/".join(parts[: number + 1]), O_PATH)
            pair.provenance.note_object(directory)
            os.close(directory)
        pair.settle()
        moves = chance.randrange(1, 6)  # the directory of that number moves; the pin is of the last one
        depth = 7 - moves
        above, pin = os.open("/".join(parts[:moves]), O_PATH), os.open("/".join(parts), O_PATH)
        known = tuple(number - moves + 1 for number in ours if number >= moves)
        theirs = pair.served._provenance
        with (
            Ancestry(pair.provenance, above) as outer,
            Ancestry(theirs, above) as their_outer,
            Ancestry(theirs, pin) as here,
        ):
            for beyond, their_beyond in ((outer, their_outer), (None, None)):
                told, seen = Within(known, depth, beyond), _Inside(here, depth, their_beyond)
                replaced, also = Within((), depth, beyond), _Inside(None, depth, their_beyond)
                for skip, count in itertools.product(range(12), range(1, 12)):
                    assert told.covers(skip, count) == seen.covers(skip, count), (ours, moves, skip, count)
                    assert replaced.covers(skip, count) == also.covers(skip, count)
        os.close(above)
        os.close(pin)


def test_inside_of_what_moves(pair) -> None:
    """The same verdict on an entry of a directory that moves, with the directories above it."""
    os.makedirs("shared/d/.git")
    with open("shared/d/.git/config", "w") as file:
        file.write("[core]\n")
    with Pinned("shared/d") as moving:
        pair.provenance.note(moving.parent, moving.name)
        inner = os.open("shared/d/.git", os.O_RDONLY | os.O_DIRECTORY)
        with Ancestry(pair.provenance, moving.parent) as origin:
            for replaces in (False, True):
                above = Within(() if replaces else (1,), 2, origin)
                lies = at("shared/d/.git/config")
                for path, arrives in ((lies, False), (at("dir/e/.git/config"), True)):
                    target = Target(
                        path, parent=inner, name=b"config", above=above, arrives=arrives, replaces=replaces, lies=lies
                    )
                    pair.judge(RENAME, target)
        os.close(inner)


# -- the link --------------------------------------------------------------------------------------------------


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield link.Link(ours, patience=0.2), theirs


def served(theirs: socket.socket, *answers: bytes) -> threading.Thread:
    """Answers one question with these."""

    def answer() -> None:
        received = link.receive(theirs)
        assert received is not None
        for each in answers:
            theirs.send(each)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_late_answers_are_dropped(ends) -> None:
    ours, theirs = ends
    with pytest.raises(Unheard) as unheard:
        ours.ask("judge", [])
    assert unheard.value.code == codes.LATE_SHARE
    link.receive(theirs)
    began = time.monotonic()
    with pytest.raises(Unheard) as unheard:
        ours.ask("judge", [])
    assert unheard.value.code == codes.LATE_SHARE
    # Less than the patience of 0.2 s, which the first one had.
    assert time.monotonic() - began < 0.15, "it waits for what is late only a little"
    theirs.send(b'[1,"late"]')
    thread = served(theirs, b'[1,"late again"]', b'[2,"in time"]')
    assert ours.ask("judge", []) == ["in time"]
    thread.join()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0", b"null", b"7", b"[]", b'["1","x"]', b"[true]", b"[1.0]", b"[2,3]", b"[-1]", b"[0]", b"{}", b"[1",
     b"[NaN]", b"[" * 90_000, b"\xff\xfe", b"[1" + b"0" * 5000 + b"]"],
)  # fmt: skip
def test_what_is_no_answer(ends, answer) -> None:
    ours, theirs = ends
    thread = served(theirs, answer)
    with pytest.raises(Unheard) as unheard:
        ours.ask("judge", [])
    thread.join()
    assert unheard.value.code == (codes.BAD_SHARE if answer else codes.MISSING_SHARE)
    if answer:
        thread = served(theirs, b'[2,"well"]')
        assert ours.ask("judge", []) == ["well"]
        thread.join()


def test_the_other_end_has_gone(ends) -> None:
    ours, theirs = ends
    theirs.close()
    for _ in range(2):
        with pytest.raises(Unheard) as unheard:
            ours.ask("judge", [])
        assert unheard.value.code == codes.MISSING_SHARE
    ours.tell("vacate", [])
    assert ours.gone


def test_what_cannot_be_told_is_the_end_of_it(ends) -> None:
    """An update that is lost could make the other side looser than it should be: so nothing is asked any more."""
    ours, theirs = ends
    began = time.monotonic()
    for _ in range(10_000):
        ours.tell("vacate", ["x" * 1000])
        if ours.gone:
            break
    assert ours.gone
    assert time.monotonic() - began < 5  # not 10,000 times the patience: the caller of each waits
    with pytest.raises(Unheard) as unheard:
        ours.ask("judge", [])
    assert unheard.value.code == codes.MISSING_SHARE
    while (received := link.receive(theirs)) is not None:
        assert received[0][0] == "vacate"


@pytest.mark.parametrize("size", [0, 1, 59_000, 70_000, 3_000_000])
def test_messages_of_any_size(ends, size) -> None:
    ours, theirs = ends
    descriptor = os.open(".", O_PATH)
    for pins in ((), (descriptor,), (descriptor, descriptor)):
        ours.tell("note", [link.text(bytes(range(256)) * (size // 256) + b"x" * (size % 256))], pins)
        received = link.receive(theirs)
        assert received is not None
        message, descriptors = received
        assert len(link.raw(message[2])) == size
        assert len(descriptors) == len(pins)
        for each in descriptors:
            assert os.path.samestat(os.fstat(each), os.fstat(descriptor))
            assert not os.get_inheritable(each)
            os.close(each)
    os.close(descriptor)


def test_descriptors_from_the_other_side_never_arrive(ends) -> None:
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    descriptor = os.open(".", O_PATH)

    def answer() -> None:
        link.receive(theirs)
        socket.send_fds(theirs, [b'[1,"x"]'], [descriptor] * 50)

    thread = threading.Thread(target=answer)
    thread.start()
    assert ours.ask("judge", []) == ["x"]
    thread.join()
    os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == before


def test_pins_are_closed(bench) -> None:
    before = len(os.listdir("/proc/self/fd"))
    opened = os.open("file", os.O_RDWR)
    pinned = os.open("file", O_PATH)
    with Pins(bench.resolver.names) as pins:
        assert [pins.add(each) for each in (-1, opened, pinned, opened)] == [-1, 0, 1, 0]
        assert all(_flags(each) & O_PATH for each in pins.descriptors)
    os.close(opened)
    os.close(pinned)
    assert len(os.listdir("/proc/self/fd")) == before
