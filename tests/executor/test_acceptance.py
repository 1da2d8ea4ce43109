"""The executor's eight checks: each alone, by its own code. All of them against an adversary: test_game.py."""

from __future__ import annotations

import pytest
from executor.desks import START, Desk, alter, altered, cast, flip, put, rejected, request

from pincer_trace.executor.acceptance import WINDOW, Rejected
from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Keys, action_id

# -- each check alone ------------------------------------------------------------------------------------------


def spend(desk: Desk) -> None:
    desk.accept()


OTHER = request(b"/w/other")
ATTACKS = {
    # 1: the MACs, and that both shares are there
    "a bit of the MAC": (alter(0, mac=lambda d: flip(d.shares[0].mac)), codes.BAD_SHARE),
    "the other MAC": (alter(1, mac=lambda d: d.shares[0].mac), codes.BAD_SHARE),
    "no MAC": (alter(0, mac=b""), codes.BAD_SHARE),
    "half a MAC": (alter(0, mac=lambda d: d.shares[0].mac[:16]), codes.BAD_SHARE),
    "a longer MAC": (alter(0, mac=lambda d: d.shares[0].mac + b"\0"), codes.BAD_SHARE),
    "a MAC of zeros": (alter(1, mac=bytes(32)), codes.BAD_SHARE),
    "a MAC in words": (alter(1, mac=lambda d: d.shares[1].mac.hex()[:32]), codes.BAD_SHARE),
    "verdict exchanged in a share": (alter(0, verdict=DENY), codes.BAD_SHARE),
    "action exchanged in a share": (alter(0, action=bytes(16)), codes.BAD_SHARE),
    "program exchanged in a share": (alter(1, program=bytes(32)), codes.BAD_SHARE),
    "digest exchanged in a share": (alter(1, digest=bytes(32)), codes.BAD_SHARE),
    "time exchanged in a share": (alter(0, time=START - 1), codes.BAD_SHARE),
    "a verdict that is none": (alter(0, verdict="yes"), codes.BAD_SHARE),
    "a verdict that is no word": (alter(0, verdict=[ALLOW]), codes.BAD_SHARE),
    "a time before all time": (alter(0, time=-1), codes.BAD_SHARE),
    "a time that is no number": (alter(0, time=float(START)), codes.BAD_SHARE),
    "an action that is too short": (alter(0, action=b"short"), codes.BAD_SHARE),
    "an action that can be written to": (alter(0, action=lambda d: bytearray(d.action)), codes.BAD_SHARE),
    "an empty action": (alter(0, action=b""), codes.BAD_SHARE),
    "an action in words": (alter(0, action="a" * 16), codes.BAD_SHARE),
    "signed by the right key as the left": (
        lambda d: d.shares.__setitem__(0, d.share(LEFT, key=d.keys.right)),
        codes.BAD_SHARE,
    ),
    "signed by the key of digests": (
        lambda d: d.shares.__setitem__(0, d.share(LEFT, key=d.keys.bind)),
        codes.BAD_SHARE,
    ),
    "signed in another session": (
        lambda d: d.shares.__setitem__(0, d.share(LEFT, key=Keys().left)),
        codes.BAD_SHARE,
    ),
    "sides exchanged": (
        lambda d: put("shares", [altered(d.shares[0], by=RIGHT), altered(d.shares[1], by=LEFT)])(d),
        codes.BAD_SHARE,
    ),
    "a voter that is none": (alter(0, by="middle"), codes.BAD_SHARE),
    "a voter that is no word": (alter(0, by=[LEFT]), codes.BAD_SHARE),
    "a share that is none": (lambda d: d.shares.__setitem__(1, None), codes.BAD_SHARE),
    "shares as a number": (put("shares", 7), codes.BAD_SHARE),
    "no share": (put("shares", []), codes.MISSING_SHARE),
    "nothing for the shares": (put("shares", None), codes.MISSING_SHARE),
    "the left alone": (lambda d: d.shares.pop(1), codes.MISSING_SHARE),
    "the right alone": (lambda d: d.shares.pop(0), codes.MISSING_SHARE),
    "the left twice": (lambda d: d.shares.__setitem__(1, d.shares[0]), codes.DUPLICATE_SHARE),
    "three shares": (lambda d: d.shares.append(d.shares[1]), codes.DUPLICATE_SHARE),
    # 2: (a, p, h) are those of one artifact
    "votes on two actions": (cast({}, {"action": action_id()}), codes.NOT_BOUND),
    "votes under two profiles": (cast({}, {"program": bytes(32)}), codes.NOT_BOUND),
    "votes on two requests": (cast({}, {"request": OTHER}), codes.NOT_BOUND),
    "votes under another profile": (cast({"program": bytes(32)}, {"program": bytes(32)}), codes.NOT_BOUND),
    # 3: what would be performed is what was voted on
    "another object": (put("request", OTHER), codes.REQUEST_CHANGED),
    "another mode": (put("request", request(mode=0o4755)), codes.REQUEST_CHANGED),
    "another flag": (put("request", request(flags=1)), codes.REQUEST_CHANGED),
    "another argument": (put("request", request(arguments=(b"x",))), codes.REQUEST_CHANGED),
    "votes of both on another request": (cast({"request": OTHER}, {"request": OTHER}), codes.REQUEST_CHANGED),
    # 4: fresh
    "too late": (put("now", START + WINDOW + 1), codes.STALE),
    "much too late": (put("now", START * 5), codes.STALE),
    "before it was voted on": (put("now", START - 1), codes.STALE),
    "the left of before": (cast({"time": START - WINDOW - 1}, {}), codes.STALE),
    "the right of before": (cast({}, {"time": START - WINDOW - 1}), codes.STALE),
    "the right of the future": (cast({}, {"time": START + 1}), codes.STALE),
    # 5: once
    "again": (spend, codes.REPLAY),
    "again, much later in the window": (lambda d: (spend(d), put("now", START + WINDOW)(d)), codes.REPLAY),
    "again, with new votes": (lambda d: (spend(d), cast({"time": START}, {"time": START})(d)), codes.REPLAY),
    # 6: allowed
    "both deny": (cast({"verdict": DENY}, {"verdict": DENY}), codes.POLICY_DENY),
    "the left denies": (cast({"verdict": DENY}, {}), codes.POLICY_DENY),
    "the right denies": (cast({}, {"verdict": DENY}), codes.POLICY_DENY),
}

CONFIRMATIONS = {
    # 7: confirmed
    "nobody asked": (put("token", b""), codes.BAD_CONFIRM_TOKEN),
    "a word for it": (put("token", True), codes.BAD_CONFIRM_TOKEN),
    "nothing for it": (put("token", None), codes.BAD_CONFIRM_TOKEN),
    "a text for it": (put("token", "ä" * 32), codes.BAD_CONFIRM_TOKEN),
    "a bit of it": (put("token", lambda d: flip(d.token)), codes.BAD_CONFIRM_TOKEN),
    "half of it": (put("token", lambda d: d.token[:16]), codes.BAD_CONFIRM_TOKEN),
    "for another action": (put("token", lambda d: d.mint(action=action_id())), codes.BAD_CONFIRM_TOKEN),
    "for another profile": (put("token", lambda d: d.mint(program=bytes(32))), codes.BAD_CONFIRM_TOKEN),
    "for another request": (put("token", lambda d: d.mint(digest=bytes(32))), codes.BAD_CONFIRM_TOKEN),
    "of another session": (put("token", lambda d: d.mint(Keys().confirm)), codes.BAD_CONFIRM_TOKEN),
    "the digest itself": (put("token", lambda d: d.shares[0].digest), codes.BAD_CONFIRM_TOKEN),
    "a vote's MAC": (put("token", lambda d: d.shares[0].mac), codes.BAD_CONFIRM_TOKEN),
    # 8: the objects
    "another object is there": (put("objects", lambda _: lambda: False), codes.OBJECT_CHANGED),
    "confirmed, and denied by the other": (
        lambda d: put("shares", [d.share(LEFT, CONFIRM), d.share(RIGHT, DENY)])(d),
        codes.POLICY_DENY,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_each_check_fails_by_its_own_code(name):
    """Everything else is right: the same desk without the change accepts, before and after."""
    change, code = ATTACKS[name]
    desk = Desk()
    genuine = desk.shares[:]
    change(desk)
    assert rejected(desk) == code
    used = code == codes.REPLAY
    desk.shares, desk.request, desk.now = genuine, request(), START
    if used:
        assert rejected(desk) == codes.REPLAY
        desk.shares = desk.vote(desk.request, action_id())
    assert desk.accept().verdict == ALLOW, "a refusal uses nothing up"


@pytest.mark.parametrize("name", CONFIRMATIONS)
@pytest.mark.parametrize("verdicts", [(CONFIRM, ALLOW), (ALLOW, CONFIRM), (CONFIRM, CONFIRM)])
def test_each_check_of_a_confirmed_one_fails_by_its_own_code(name, verdicts):
    change, code = CONFIRMATIONS[name]
    desk = Desk(verdicts)
    genuine, token = desk.shares[:], desk.token
    change(desk)
    assert rejected(desk) == code
    desk.shares, desk.token, desk.objects = genuine, token, lambda: True
    assert desk.accept() is genuine[0]
    assert rejected(desk) == codes.REPLAY


@pytest.mark.parametrize(
    "control",
    [
        lambda d: None,
        put("now", START + WINDOW),  # the last moment
        lambda d: d.shares.reverse(),
        lambda d: put("shares", tuple(d.shares))(d),
        cast({"time": START - WINDOW}, {"time": START}),
        put("token", b"nobody asks for it"),
    ],
    ids=["fresh", "at the last moment", "the other order", "a tuple", "of two moments", "a token too many"],
)
def test_controls(control):
    desk = Desk()
    control(desk)
    assert desk.accept().action == desk.action


@pytest.mark.parametrize("verdicts", [(ALLOW, VIEW), (VIEW, VIEW), (VIEW, ALLOW)])
def test_where_a_vote_lets_a_view_pass_nothing_else_does(verdicts):
    desk = Desk(verdicts)
    assert rejected(desk) == codes.POLICY_DENY
    desk.acceptance.accept(desk.shares, desk.request, desk.now, gives=VIEW)
    for stricter, code in ((CONFIRM, codes.BAD_CONFIRM_TOKEN), (DENY, codes.POLICY_DENY)):
        desk = Desk((VIEW, stricter))
        with pytest.raises(Rejected) as caught:
            desk.acceptance.accept(desk.shares, desk.request, desk.now, gives=VIEW)
        assert caught.value.code == code


def test_a_second_action_is_another():
    desk = Desk()
    desk.accept()
    desk.action = action_id()
    desk.shares = desk.vote(desk.request, desk.action)
    assert desk.accept().action == desk.action


def test_without_objects_none_is_looked_at():
    desk = Desk()
    desk.objects = None
    assert desk.accept()


def test_the_first_check_that_fails_decides():
    """In the paper's order, so that a code tells that everything before it was right."""
    order = [
        ("a bit of the MAC", codes.BAD_SHARE), ("votes on two actions", codes.NOT_BOUND),
        ("another object", codes.REQUEST_CHANGED), ("too late", codes.STALE), ("again", codes.REPLAY),
        ("both deny", codes.POLICY_DENY), ("nobody asked", codes.BAD_CONFIRM_TOKEN),
        ("another object is there", codes.OBJECT_CHANGED),
    ]  # fmt: skip
    faults = {  # each on a desk of its own kind, so that several can be combined
        codes.BAD_SHARE: lambda d: alter(0, mac=bytes(32))(d),
        codes.NOT_BOUND: lambda d: put("shares", [d.shares[0], d.share(RIGHT, d.shares[1].verdict, action=bytes(16))])(
            d
        ),
        codes.REQUEST_CHANGED: put("request", OTHER),
        codes.STALE: put("now", START + WINDOW + 1),
        codes.REPLAY: lambda d: d.acceptance._used.add(d.action),
        codes.POLICY_DENY: lambda d: put("shares", [d.share(LEFT, CONFIRM), d.share(RIGHT, DENY)])(d),
        codes.BAD_CONFIRM_TOKEN: put("token", b""),
        codes.OBJECT_CHANGED: put("objects", lambda _: lambda: False),
    }
    names = [code for _, code in order]
    for first in range(len(names)):
        desk = Desk((CONFIRM, CONFIRM))
        for later in reversed(range(first, len(names))):  # the votes are cast before they are spoilt
            if names[later] in (codes.NOT_BOUND,) and first < later:
                continue
            faults[names[later]](desk)
        assert rejected(desk) == names[first], names[first:]


# -- replay and the clock --------------------------------------------------------------------------------------


def test_an_action_is_remembered_for_as_long_as_it_counts():
    """At every moment of three windows, in steps: a second time it is a replay, or too old; never accepted."""
    for began in (START, START + 1, START + WINDOW // 2, START + WINDOW - 1):
        desk = Desk()
        desk.now = began
        desk.shares = desk.vote(desk.request, desk.action)
        desk.accept()
        genuine, step = desk.shares, WINDOW // 8
        for moment in range(began, began + 3 * WINDOW, step):
            desk.now = moment
            desk.shares = genuine
            assert rejected(desk) == (codes.REPLAY if moment - began <= WINDOW else codes.STALE)
            desk.shares = desk.vote(desk.request, action_id())
            desk.accept()  # others go on, and move the guard's windows


@pytest.mark.parametrize("there", [START - WINDOW, START - 5 * WINDOW, START + 3 * WINDOW, START * 2])
def test_a_clock_that_goes_away_and_comes_back_forgets_nothing(there):
    desk = Desk()
    desk.accept()
    genuine = desk.shares
    for moment in (there, START + WINDOW // 2, there, START):
        desk.now = moment
        desk.shares = desk.vote(desk.request, action_id())
        try:
            desk.accept()
        except Rejected as refused:
            assert refused.code == codes.STALE  # a clock that went back
        desk.now, desk.shares = START + 1, genuine
        assert rejected(desk) in (codes.REPLAY, codes.STALE)


def test_memory_does_not_grow_with_the_run():
    desk = Desk()
    for number in range(3000):
        desk.now = START + number * (WINDOW // 100)
        desk.shares = desk.vote(desk.request, action_id())
        desk.accept()
        assert len(desk.acceptance._used) + len(desk.acceptance._before) <= 201
