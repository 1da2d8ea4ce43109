"""Each evaluator alone, and what becomes of the two when they disagree: with each other, with the gateway, with the
world.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat

import pytest
from executor.benches import PROFILE

from pincer_trace.effects import CHANGES, CHMOD, CREATE, MKDIR, READ, RENAME, UNLINK, WRITE
from pincer_trace.gateway.request import Claim, Request
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Decision
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Keys, Share, action_id, now, strictest
from pincer_trace.twin.authority import Denied, Judgement
from pincer_trace.twin.evaluator import Evaluator, Mismatch, mismatch
from pincer_trace.twin.target import Target

AT = -100
ORDER = (ALLOW, CONFIRM, DENY)


def at(path: str) -> bytes:
    return os.fsencode(os.path.abspath(path))


class Pinned:
    """A target as the gateway makes it: the entry `name` in a pinned directory; closed at the end."""

    def __init__(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self.parent = os.open(directory or ".", os.O_PATH)
        found = None
        if os.path.lexists(path):
            found = os.lstat(path)
        self.target = Target(at(path), parent=self.parent, name=os.fsencode(name), found=found)

    def __enter__(self) -> Target:
        return self.target

    def __exit__(self, *_: object) -> None:
        os.close(self.parent)


def left(bench, claim: Claim, **how) -> Decision:
    return bench.authority.left.judge(bench.task(), claim, **{"arrives": False, "named": False, "lies": b""} | how)


def right(bench, claim: Claim, target: Target) -> Decision:
    return bench.authority.right.judge(bench.task(), claim, target)


# -- the left one: names alone ---------------------------------------------------------------------------------


class NoPins:
    """For a while no descriptor can be looked at or through."""

    def __init__(self, monkeypatch) -> None:
        for name in ("fstat", "readlink", "open", "dup"):
            monkeypatch.setattr(os, name, self.refuse)
        real = os.stat

        def by_name(path, *, dir_fd=None, follow_symlinks=True):
            if isinstance(path, int) or dir_fd is not None:
                raise AssertionError("the left evaluator has looked through a descriptor")
            return real(path, follow_symlinks=follow_symlinks)

        monkeypatch.setattr(os, "stat", by_name)

    def refuse(self, *_arguments, **_words):
        raise AssertionError("the left evaluator has touched a pin")


@pytest.mark.parametrize(
    ("name", "effect", "verdict"),
    [
        ("file", WRITE, ALLOW), ("dir/new", CREATE, ALLOW), ("secret/key", WRITE, DENY), ("secret/new", MKDIR, DENY),
        ("asked/hook", CHMOD, CONFIRM), ("../outside", UNLINK, DENY), ("shared/foreign", UNLINK, ALLOW),
    ],
)  # fmt: skip
def test_the_left_judges_by_names_alone(bench, monkeypatch, name, effect, verdict):
    """What only facts could allow (`when = "own"`) it grants: facts are for the other one."""
    with Pinned(name) as target:
        claim, task = Claim.of(effect, target), bench.task()
        with monkeypatch.context() as patch:
            NoPins(patch)
            decision = bench.authority.left.judge(task, claim, arrives=False, named=False, lies=b"")
    assert decision.verdict == verdict


def test_the_left_finds_that_the_name_leads_elsewhere(bench):
    other = os.stat("dir")
    claim = Claim(WRITE, at("file"), (other.st_dev, other.st_ino), b"file", os.lstat("file"))
    decision = left(bench, claim)
    assert isinstance(decision, Mismatch)
    assert decision.verdict == DENY


def test_the_left_finds_that_the_name_leads_nowhere(bench):
    here = os.stat(".")
    claim = Claim(CREATE, at("nowhere/new"), (here.st_dev, here.st_ino), b"new", None)
    assert isinstance(left(bench, claim), Mismatch)


def test_the_left_looks_where_a_thing_lies_until_it_arrives(bench):
    """A name inside of a folder that moves is judged as where it comes to; it is looked up where it still is."""
    above = os.stat("dir")
    claim = Claim(RENAME, at("new/inner"), (above.st_dev, above.st_ino), b"inner", None)
    assert isinstance(left(bench, claim), Mismatch)
    assert left(bench, claim, lies=at("dir/inner"), arrives=True).verdict == ALLOW
    assert isinstance(left(bench, claim, lies=at("empty/inner"), arrives=True), Mismatch)


def test_the_left_asks_about_a_descriptor_whose_name_is_another_files(bench, work):
    """What it is really called nobody can tell by then."""
    held = os.lstat("file")
    os.link("file", "kept")
    os.unlink("file")
    (work / "file").write_text("another\n")
    claim = Claim(WRITE, at("file"), (0, 0), b"", held)
    assert left(bench, claim).verdict == CONFIRM
    assert left(bench, claim, named=True).verdict == ALLOW
    assert left(bench, Claim(READ, at("file"), (0, 0), b"", held)).verdict == ALLOW


# -- the right one: pins alone ---------------------------------------------------------------------------------


def test_the_right_finds_that_the_path_is_another(bench):
    with Pinned("file") as target:
        target.path = at("dir/inner")
        decision = right(bench, Claim.of(WRITE, target), target)
        assert isinstance(decision, Mismatch)
        assert at("file").decode() in decision.reason


@pytest.mark.parametrize("effect", [WRITE, CHMOD])
def test_the_right_names_what_it_holds_by_itself(bench, effect):
    """An object that is known by its descriptor alone: its name is read from that, whatever the gateway said."""
    descriptor = os.open("secret/key", os.O_PATH)
    try:
        found = os.fstat(descriptor)
        claimed = Target(at("file"), descriptor=descriptor, found=found)
        decision = right(bench, Claim.of(effect, claimed), claimed)
        assert isinstance(decision, Mismatch)
        honest = Target(at("secret/key"), descriptor=descriptor, found=found)
        decision = right(bench, Claim.of(effect, honest), honest)
        assert not isinstance(decision, Mismatch)
        assert decision.verdict == DENY
    finally:
        os.close(descriptor)


def test_the_right_finds_that_the_directory_is_another(bench):
    with Pinned("file") as target:
        claim = Claim.of(WRITE, target)
        claim = Claim(claim.effect, claim.path, (claim.place[0], claim.place[1] + 1), claim.name, claim.found)
        assert isinstance(right(bench, claim, target), Mismatch)


class As:
    """A stat result with some fields another."""

    def __init__(self, found: os.stat_result, **fields: int) -> None:
        for name in ("st_dev", "st_ino", "st_mode", "st_ctime_ns", "st_size", "st_nlink"):
            setattr(self, name, fields.get(name, getattr(found, name)))


@pytest.mark.parametrize("by", ["name", "descriptor", "where it comes from"])
@pytest.mark.parametrize(
    "change", [{"st_ino": 5}, {"st_dev": 5}, {"st_mode": stat.S_IFDIR | 0o755}, {"st_mode": stat.S_IFIFO}], ids=str
)
def test_the_right_finds_that_the_object_is_another(bench, by, change):
    descriptor = os.open("file", os.O_PATH)
    try:
        with Pinned("dir/new" if by == "where it comes from" else "file") as target, Pinned("file") as origin:
            target.found = origin.found
            if by == "descriptor":
                target.descriptor = descriptor
            elif by == "where it comes from":
                target.comes_from(origin.parent, origin.name)
            assert right(bench, Claim.of(RENAME, target), target).verdict == ALLOW
            target.found = As(target.found, **change)
            assert isinstance(right(bench, Claim.of(RENAME, target), target), Mismatch)
    finally:
        os.close(descriptor)


def test_the_right_finds_that_the_object_is_gone(bench):
    with Pinned("file") as target:
        os.unlink("file")
        assert isinstance(right(bench, Claim.of(UNLINK, target), target), Mismatch)


def test_the_right_grants_no_fact_that_it_does_not_see(bench):
    """`when = "own"`: the left takes the best case, this one looks."""
    with Pinned("shared/foreign") as target:
        assert right(bench, Claim.of(UNLINK, target), target).verdict == DENY
        assert bench.authority.judge(bench.task(), UNLINK, target).verdict == DENY
    assert bench.call("mkdirat", AT, b"shared/made", 0o755).succeeded
    with Pinned("shared/made") as target:
        assert right(bench, Claim.of("rmdir", target), target).verdict == ALLOW


# -- votes -----------------------------------------------------------------------------------------------------


def ask(bench, *claims: Claim) -> Request:
    return Request.of(b"origin", b"subject", WRITE, claims)


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_a_vote_is_on_what_was_judged(bench, side):
    evaluator: Evaluator = getattr(bench.authority, side)

    def verdict(*claims: Claim) -> str:
        return evaluator.vote(action_id(), ask(bench, *claims), now()).verdict

    with Pinned("file") as target, Pinned("dir/inner") as other, Pinned("secret/key") as secret:
        allowed = bench.authority.judge(bench.task(), WRITE, target).claim
        assert verdict(allowed) == ALLOW
        equal = Claim.of(WRITE, target)
        assert equal.data == allowed.data
        assert verdict(equal) == DENY, "one that says the same, but was not judged"
        assert verdict(Claim.of(WRITE, other)) == DENY
        assert verdict(allowed, equal) == DENY
        assert verdict() == DENY, "a request without claims"
        denied = bench.authority.judge(bench.task(), WRITE, secret).claim
        assert verdict(denied) == DENY
        assert verdict(allowed, denied) == verdict(denied, allowed) == DENY
        assert verdict(allowed, allowed) == ALLOW
        bench.authority.begin()
        assert verdict(allowed) == DENY, "of the call before"
        again = bench.authority.judge(bench.task(), WRITE, target).claim
        assert verdict(again) == ALLOW
        assert verdict(again, allowed) == DENY


def test_another_call_begins_with_no_ballots(bench):
    """The engine's own loop: whatever a call has judged, the next one cannot use."""
    assert bench.call("mkdirat", AT, b"one", 0o755).succeeded
    claims = [*bench.authority.left._ballot, *bench.authority.right._ballot]
    assert claims
    bench.call("getpid")
    assert not bench.authority.left._ballot
    assert not bench.authority.right._ballot
    assert bench.call("mkdirat", AT, b"two", 0o755).succeeded
    assert not set(claims) & {*bench.authority.left._ballot, *bench.authority.right._ballot}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(ORDER, ORDER)))
def test_deny_beats_confirm_beats_allow(bench, one, other):
    """For all nine pairs: the judgement, the votes, and what the record says."""
    worst = max((one, other), key=ORDER.index)
    assert strictest(one, other) == worst
    with Pinned("file") as target:
        claim = Claim.of(WRITE, target)
        authority = bench.authority
        authority.left.cast(claim, Decision(one, None, "left"))
        authority.right.cast(claim, Decision(other, None, "right"))
        judgement = Judgement(claim, target, Decision(one, None, "left"), Decision(other, None, "right"))
        assert judgement.verdict == worst
        assert judgement.reason == ("left" if ORDER.index(one) > ORDER.index(other) else "right")
        shares = authority.vote(action_id(), ask(bench, claim), now())
        assert [share.verdict for share in shares] == [one, other]
        if worst != ALLOW:
            with pytest.raises(Denied):
                authority.refuse(bench.task(), WRITE, target, judgement)
            [record] = bench.records("denied")
            assert record["verdict"] == worst
            assert record["code"] == (codes.NOBODY_TO_ASK if worst == CONFIRM else codes.POLICY_DENY)
            assert [(vote["by"], vote["verdict"]) for vote in record["votes"]] == [(LEFT, one), (RIGHT, other)]


@pytest.mark.parametrize(("one", "other"), list(itertools.product(ORDER, ORDER)))
def test_within_one_request_too(bench, one, other):
    with Pinned("file") as target:
        claims = [Claim.of(WRITE, target), Claim.of(READ, target)]
        evaluator = bench.authority.left
        for claim, verdict in zip(claims, (one, other), strict=True):
            evaluator.cast(claim, Decision(verdict, None, ""))
        share = evaluator.vote(action_id(), ask(bench, *claims), now())
        assert share.verdict == max((one, other), key=ORDER.index)


def test_without_a_vote_nothing_is_allowed():
    assert strictest() == DENY


@pytest.mark.parametrize("side", [LEFT, RIGHT])
@pytest.mark.parametrize("rest", ORDER)
def test_a_mismatch_is_told_as_one_whatever_the_other_says(bench, side, rest):
    wrong, other = mismatch("a test"), Decision(rest, None, "other")
    with Pinned("file") as target:
        claim = Claim.of(WRITE, target)
        pair = (wrong, other) if side == LEFT else (other, wrong)
        judgement = Judgement(claim, target, *pair)
        assert judgement.verdict == DENY
        assert judgement.code == codes.OBSERVATION_MISMATCH
        with pytest.raises(Denied):
            bench.authority.refuse(bench.task(), WRITE, target, judgement)
    [record] = bench.records("denied")
    assert record["code"] == codes.OBSERVATION_MISMATCH
    assert "not what is there: a test" in record["reason"]
    assert {vote["by"]: vote["verdict"] for vote in record["votes"]} == {
        side: DENY,
        {LEFT: RIGHT, RIGHT: LEFT}[side]: rest,
    }


def test_each_signs_with_a_key_of_its_own(bench):
    """And with nobody else's: a share of one is none of the other, nor of another session."""
    keys, strangers = bench.authority._keys, Keys()
    with Pinned("file") as target:
        claim = bench.authority.judge(bench.task(), WRITE, target).claim
        shares = bench.authority.vote(action_id(), ask(bench, claim), now())
    for share, own, others in (
        (shares[0], keys.left, (keys.right, keys.bind, strangers.left)),
        (shares[1], keys.right, (keys.left, keys.bind, strangers.right)),
    ):
        assert own.tag(share.message()) == share.mac
        assert all(other.tag(share.message()) != share.mac for other in others)
    assert (shares[0].action, shares[0].program, shares[0].digest) == (
        shares[1].action,
        bench.profile.digest,
        keys.bind.tag(ask(bench, claim).data),
    )
    assert isinstance(shares[0], Share)


# -- end to end ------------------------------------------------------------------------------------------------


@pytest.fixture
def between(monkeypatch):
    """What an outside process does once, after the gateway's walk and before the judgement."""

    def arrange(act, effect: str) -> list[int]:
        done: list[int] = []
        real = Claim.of.__func__

        def of(cls, what, target):
            claim = real(cls, what, target)
            if what == effect and not done:
                done.append(1)
                act()
            return claim

        monkeypatch.setattr(Claim, "of", classmethod(of))
        return done

    return arrange


@pytest.mark.parametrize(
    ("call", "effect", "act"),
    [
        (("mkdirat", AT, b"dir/made", 0o755), MKDIR, lambda: os.rename("dir", "moved")),
        (("mkdirat", AT, b"dir/made", 0o755), MKDIR, lambda: os.rename("dir", "secret/dir")),
        (("unlinkat", AT, b"dir/inner", 0), UNLINK, lambda: os.rename("dir", "secret/dir")),
        (("unlinkat", AT, b"dir/inner", 0), UNLINK, lambda: os.rename("file", "dir/inner")),
        (("unlinkat", AT, b"file", 0), UNLINK, lambda: os.unlink("file")),
        (("renameat2", AT, b"dir/inner", AT, b"new", 0), RENAME, lambda: os.rename("dir", "secret/dir")),
        (("openat", AT, b"dir/new", os.O_WRONLY | os.O_CREAT, 0o644), CREATE, lambda: os.rename("dir", "secret/dir")),
        (("fchmodat", AT, b"dir/inner", 0o600), CHMOD, lambda: os.rename("dir", "secret/dir")),
        (("openat", AT, b"dir/inner", os.O_WRONLY, 0), WRITE, lambda: os.rename("dir", "secret/dir")),
    ],
    ids=["folder moved", "folder hidden", "folder of it hidden", "another file", "gone", "source hidden",
         "created in it", "held in it", "opened in it"],
)  # fmt: skip
def test_a_world_that_changes_in_between_is_a_mismatch(bench, work, between, call, effect, act):
    """Both votes are recorded, and nothing is done where it is not called as it was judged."""
    done = between(act, effect)
    answer = bench.call(*call)
    assert done
    assert answer.error == errno.EACCES
    [record] = bench.records("denied")
    assert record["code"] == codes.OBSERVATION_MISMATCH
    assert [vote["by"] for vote in record["votes"]] == [LEFT, RIGHT]
    assert DENY in {vote["verdict"] for vote in record["votes"]}
    assert not bench.records("intent")
    assert not (work / "secret/dir/made").exists()
    assert not (work / "secret/dir/new").exists()
    assert not (work / "new").exists()


def test_nothing_changes_in_between(bench, between):
    """The control: the same seam, and a world that stays."""
    done = between(lambda: None, MKDIR)
    assert bench.call("mkdirat", AT, b"dir/made", 0o755).succeeded
    assert done


@pytest.mark.parametrize(
    ("call", "act"),
    [
        (("unlinkat", AT, b"file", 0), lambda: os.rename("dir/inner", "file")),
        (("unlinkat", AT, b"file", 0), lambda: os.unlink("file")),
        (("renameat2", AT, b"file", AT, b"new", 0), lambda: os.rename("dir/inner", "file")),
        (("renameat2", AT, b"dir/inner", AT, b"new", 0), lambda: os.rename("dir/inner", "empty/inner")),
    ],
    ids=["another", "gone", "moved one", "moved away"],
)
def test_a_world_that_changes_after_the_judgement_is_noticed_too(bench, monkeypatch, call, act):
    """The executor's last check: what lies there is what both have judged."""
    real, done = bench.authority.vote, []

    def vote(*arguments):
        if not done:
            done.append(1)
            act()
        return real(*arguments)

    monkeypatch.setattr(bench.authority, "vote", vote)
    before = sorted(os.listdir("."))
    answer = bench.call(*call)
    assert answer.error == errno.EACCES
    assert [record["code"] for record in bench.records("denied")] == [codes.OBJECT_CHANGED]
    assert not bench.records("intent")
    assert "new" not in sorted(os.listdir("."))
    assert before


def test_both_votes_are_in_every_record(bench):
    assert bench.call("mkdirat", AT, b"made", 0o755).succeeded
    assert bench.call("mkdirat", AT, b"secret/made", 0o755).error == errno.EACCES
    for record in (*bench.records("intent"), *bench.records("denied")):
        assert [vote["by"] for vote in record["votes"]] == [LEFT, RIGHT]
        assert all(vote["rule"] for vote in record["votes"]), "the rule by which it was decided, on both sides"
    assert CHANGES


GUARD = """
[[rule]]
protection = true
effects = ["change"]
paths = ["{workspace}/guard/deep/**"]
verdict = "confirm"
reason = "below it somebody must say"
"""


@pytest.mark.parametrize("kind", ["symlink", "rename", "link"])
@pytest.mark.parametrize("confirm_all", [True, False])
def test_a_link_at_a_guarded_name_is_voted_on(make_bench, kind, confirm_all):
    """What is confirmed only for what would come below the name is confirmed all the same, and recorded as that."""
    bench = make_bench(PROFILE + GUARD, confirm_all=confirm_all)
    assert bench.call("symlinkat", b"dir", AT, b"here").succeeded
    call = {
        "symlink": ("symlinkat", b"dir", AT, b"guard"),
        "rename": ("renameat2", AT, b"here", AT, b"guard", 0),
        "link": ("linkat", AT, b"here", AT, b"guard", 0),
    }[kind]
    assert bench.call(*call).succeeded == confirm_all
    record = bench.records("intent" if confirm_all else "denied")[-1]
    assert record["verdict"] == CONFIRM
    assert [vote["verdict"] for vote in record["votes"]] == [CONFIRM, CONFIRM]
    assert "below this name" in record["reason"]


def test_without_its_token_such_a_link_is_not_made(make_bench, monkeypatch):
    bench = make_bench(PROFILE + GUARD, confirm_all=True)
    monkeypatch.setattr(bench.authority, "confirm", lambda _judged: None)
    assert bench.call("symlinkat", b"dir", AT, b"guard").error == errno.EACCES
    assert bench.records("denied")[-1]["code"] == codes.BAD_CONFIRM_TOKEN
    assert not os.path.lexists("guard")
