"""The paper's bypass suite, made again at the system-call boundary: what each of its checks is here, and its code.

A real call goes through the gateway, both evaluators and the executor; between the votes and the eight checks the
attacker has them in hand. Then nothing happens, and the record has the code of that check: the paper's own suite passed
where a request was refused for another reason (PAPER section 5.7). `TABLE` maps its 25 attacks and 4 controls, and the
2 on confirmation; where this boundary has no such thing, the row says so and has the nearest real one.
"""

from __future__ import annotations

import errno
import os
import stat

import pytest
from executor.desks import altered, flip

from pincer_trace.executor.acceptance import WINDOW, Acceptance
from pincer_trace.gateway.request import MAGIC, Claim, Request, origin, subject
from pincer_trace.profile import CONFIRM
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Keys, Share, action_id
from pincer_trace.twin.tokens import mint

AT = -100
TEXT = b"text"


class Submission:
    """What reaches the eight checks: the attacker's to change. `past` are those of calls before, accepted or not."""

    def __init__(self, bench, shares, own: Request, now: int, token: bytes, past: list[Submission]) -> None:
        self.bench = bench
        self.keys = bench.authority._keys
        self.shares = list(shares)
        self.own = own
        self.now = now
        self.token = token
        self.past = past

    # -- the parts of the executor's own request

    @property
    def origin(self) -> bytes:
        return origin(self.bench.session.id, self.bench.profile.digest)

    def head(self, old: bytes, new: bytes) -> None:
        assert self.own.head.count(old) == 1, "the field is in the request, once"
        self.own = Request(self.own.head.replace(old, new), self.own.claims, self.own.tail)

    def tail(self, old: bytes, new: bytes) -> None:
        assert self.own.tail.count(old) == 1, "the field is in the request, once"
        self.own = Request(self.own.head, self.own.claims, self.own.tail.replace(old, new))

    def claim(self, **fields) -> None:
        first, *rest = self.own.claims
        values = {name: getattr(first, name) for name in ("effect", "path", "place", "name", "found")} | fields
        self.own = Request(self.own.head, [Claim(**values), *rest], self.own.tail)

    def each(self, **fields) -> None:
        self.shares = [altered(share, **fields) for share in self.shares]


def session(s: Submission) -> None:
    s.head(s.origin, origin(s.bench.session.id[:-1] + "x", s.bench.profile.digest))


def caller(s: Submission) -> None:
    task = s.bench.task()
    here = os.stat("/proc/self/exe")
    other = subject(task.tid + 1, 1, (here.st_dev, here.st_ino), task.executable)
    s.head(task.subject, other)


def external_principal(s: Submission) -> None:
    task = s.bench.task()
    label = task.executable
    s.head(len(label).to_bytes(4, "big") + label, (14).to_bytes(4, "big") + b"/usr/bin/claud")


def delegation(s: Submission) -> None:
    s.own = Request(s.own.head, s.own.claims, with_argument(s.own.tail, 0, b"\0" * 24))


def text(s: Submission) -> None:
    s.tail(TEXT, b"texT")


def recipient(s: Submission) -> None:
    s.claim(path=os.fsencode(os.path.abspath("dir/inner")), found=os.lstat("dir/inner"))


def channel(s: Submission) -> None:
    s.head((5).to_bytes(4, "big") + b"xattr", (5).to_bytes(4, "big") + b"chmod")


def domain(s: Submission) -> None:
    above = os.stat("dir")
    s.claim(place=(above.st_dev, above.st_ino))


def capsule_hash(s: Submission) -> None:
    s.own = Request(s.own.head, s.own.claims, with_argument(s.own.tail, None, b"\xcc" * 32))


def with_argument(tail: bytes, at: int | None, value: bytes) -> bytes:
    """The tail of a request with argument `at` replaced, or one more."""
    numbers, rest, found = tail[:16], tail[20:], []
    while rest:
        size = 9 if rest[:1] == b"i" else 5 + int.from_bytes(rest[1:5], "big")
        found.append(rest[:size])
        rest = rest[size:]
    new = b"b" + len(value).to_bytes(4, "big") + value
    found = [*found, new] if at is None else [*found[:at], new, *found[at + 1 :]]
    return numbers + len(found).to_bytes(4, "big") + b"".join(found)


def replay(s: Submission) -> None:
    before = s.past[-1]
    s.shares, s.own, s.now = before.shares, before.own, before.now


def mac_flip(s: Submission) -> None:
    s.shares[0] = altered(s.shares[0], mac=flip(s.shares[0].mac))


def swap_sides(s: Submission) -> None:
    s.shares = [altered(share, by=RIGHT if share.by == LEFT else LEFT) for share in s.shares]


def mix(s: Submission) -> None:
    s.shares[1] = s.past[-1].shares[1]


def version(s: Submission) -> None:
    """A share of another version of the format, under the right key."""
    for index, key in enumerate((s.keys.left, s.keys.right)):
        message = s.shares[index].message()
        assert message.startswith(b"pincer-trace share 1\0")
        s.shares[index] = altered(s.shares[index], mac=key.tag(message.replace(b"share 1", b"share 2")))


def format_version(s: Submission) -> None:
    s.head(MAGIC, MAGIC.replace(b"1", b"2"))


def expired(s: Submission) -> None:
    s.now = s.shares[0].time + WINDOW + 1


def future(s: Submission) -> None:
    s.now = s.shares[0].time - 1


def other_session(s: Submission) -> None:
    """Genuine votes on the very same bytes, of another supervisor."""
    keys, program = Keys(), s.bench.profile.digest
    digest = s.keys.bind.tag(s.own.data)
    s.shares = [
        Share.sign(key, by, action_id(), program, digest, s.shares[0].time, "allow")
        for key, by in ((keys.left, LEFT), (keys.right, RIGHT))
    ]


def both(*changes):
    def change(s: Submission) -> None:
        for each in changes:
            each(s)

    return change


def token_of_another_action(s: Submission) -> None:
    share = s.shares[0]
    s.token = mint(s.keys.confirm, action_id(), share.program, share.digest)


def token_of_another_request(s: Submission) -> None:
    share = s.shares[0]
    s.token = mint(s.keys.confirm, share.action, share.program, s.keys.bind.tag(s.past[-1].own.data))


ATTACK, CONTROL = False, True
WRITES, ASKED = ("setxattr", b"file", b"user.x", TEXT, 4, 0), ("setxattr", b"asked/hook", b"user.x", TEXT, 4, 0)
TABLE = [
    # the paper's check, what it is at this boundary, the attack, its code, the call
    ("replay", "the same artifact and request again", replay, codes.REPLAY, WRITES),
    ("session", "the session's id in the request", session, codes.REQUEST_CHANGED, WRITES),
    ("caller", "the subject: thread, start, program", caller, codes.REQUEST_CHANGED, WRITES),
    ("external_principal", "the name of the program", external_principal, codes.REQUEST_CHANGED, WRITES),
    ("delegation_jti", "none here; nearest: on whose behalf, the ids", delegation, codes.REQUEST_CHANGED, WRITES),
    ("missing share", "one evaluator's vote is missing", lambda s: s.shares.pop(), codes.MISSING_SHARE, WRITES),
    ("MAC flip", "a bit of a share's MAC", mac_flip, codes.BAD_SHARE, WRITES),
    ("text", "an argument of the call: the value", text, codes.REQUEST_CHANGED, WRITES),
    ("action_id", "the action id in both shares", lambda s: s.each(action=action_id()), codes.BAD_SHARE, WRITES),
    ("expired", "a nanosecond after the window", expired, codes.STALE, WRITES),
    ("future ts", "a vote of the future", future, codes.STALE, WRITES),
    ("server-id swap", "left as right and right as left", swap_sides, codes.BAD_SHARE, WRITES),
    ("cross-commit mix", "the left vote of this call, the right of another", mix, codes.NOT_BOUND, WRITES),
    ("wrong version", "a share of another format, and a request of one", version, codes.BAD_SHARE, WRITES),
    ("empty commit", "no shares", lambda s: s.shares.clear(), codes.MISSING_SHARE, WRITES),
    ("null shares", "None for the shares", lambda s: setattr(s, "shares", None), codes.MISSING_SHARE, WRITES),
    ("recipient", "the object and its path", recipient, codes.REQUEST_CHANGED, WRITES),
    ("channel", "the effect", channel, codes.REQUEST_CHANGED, WRITES),
    ("domain", "the directory in which it lies", domain, codes.REQUEST_CHANGED, WRITES),
    ("capsule-hash injection", "one more field in the request", capsule_hash, codes.REQUEST_CHANGED, WRITES),
    ("empty action_id", "an action id of no bytes", lambda s: s.each(action=b""), codes.BAD_SHARE, WRITES),
    ("expired+text", "both wrong: the first check that fails", both(expired, text), codes.REQUEST_CHANGED, WRITES),
    ("MAC+recipient", "both wrong: the first check that fails", both(mac_flip, recipient), codes.BAD_SHARE, WRITES),
    ("cross-session replay", "genuine votes of another supervisor", other_session, codes.BAD_SHARE, WRITES),
    ("confirm missing", "the token is dropped", lambda s: setattr(s, "token", b""), codes.BAD_CONFIRM_TOKEN, ASKED),
    ("control 1", "fresh", lambda s: None, CONTROL, WRITES),
    ("control 2", "confirmed", lambda s: None, CONTROL, ASKED),
    ("control 3", "the same call as a second action", lambda s: None, CONTROL, WRITES),
    ("control 4", "at the last moment", lambda s: setattr(s, "now", s.shares[0].time + WINDOW), CONTROL, WRITES),
    ("confirm binds the action", "a token for another action", token_of_another_action, codes.BAD_CONFIRM_TOKEN, ASKED),
    ("confirm binds the request", "a token for another request", token_of_another_request, codes.BAD_CONFIRM_TOKEN,
     ASKED),
]  # fmt: skip
MORE = [
    ("wrong version of the request", "its first bytes", format_version, codes.REQUEST_CHANGED, WRITES),
]


@pytest.fixture
def boundary(make_bench, monkeypatch, work):
    """The bench, and a list: attacks for the calls to come. A call without one is left alone."""
    bench = make_bench(confirm_all=True)
    attacks: list = []
    seen: list[Submission] = []
    real = Acceptance.accept

    def accept(self, shares, own, now, *, token=b"", objects=None, gives="allow"):
        submitted = Submission(bench, shares, own, now, token, seen[:])
        seen.append(Submission(bench, shares, own, now, token, []))
        if attacks:
            attacks[0](submitted)
        return real(self, submitted.shares, submitted.own, submitted.now, token=submitted.token, objects=objects)

    monkeypatch.setattr(Acceptance, "accept", accept)
    return bench, attacks


def state(name: bytes) -> tuple:
    found = os.lstat(name)
    values = [(key, os.getxattr(name, key)) for key in os.listxattr(name)]
    return found.st_ctime_ns, stat.S_IMODE(found.st_mode), found.st_size, values


@pytest.mark.parametrize(("name", "here", "attack", "code", "call"), TABLE + MORE, ids=[row[0] for row in TABLE + MORE])
def test_the_bypass_suite(boundary, name, here, attack, code, call):
    del name, here
    bench, attacks = boundary
    assert bench.call(*call).succeeded, "what was there before: an accepted artifact that the attacker has"
    assert bench.records("intent")[-1]["verdict"] == (CONFIRM if call is ASKED else "allow")
    os.removexattr(call[1], call[2])
    before, known = state(call[1]), len(bench.records())
    attacks.append(attack)
    answer = bench.call(*call)
    records = bench.records()[known:]
    if code is CONTROL:
        assert answer.succeeded
        assert [record["kind"] for record in records] == ["intent", "outcome"]
        assert state(call[1]) != before
        return
    assert answer.error == errno.EACCES
    assert [(record["kind"], record["code"]) for record in records] == [("denied", code)]
    assert state(call[1]) == before, "nothing happened"
    attacks.clear()
    assert bench.call(*call).succeeded, "and it was for that attack alone"
    assert state(call[1]) != before


def test_the_suite_is_whole():
    """25 attacks, 4 controls and 2 on confirmation, as the paper has them; every code that a check has is there."""
    names = [row[0] for row in TABLE]
    assert len(names) == len(set(names)) == 31
    assert sum(row[3] is CONTROL for row in TABLE) == 4
    assert sum(name.startswith("confirm binds") for name in names) == 2
    found = {row[3] for row in TABLE}
    assert found >= {codes.REPLAY, codes.REQUEST_CHANGED, codes.MISSING_SHARE, codes.BAD_SHARE, codes.STALE,
                     codes.NOT_BOUND, codes.BAD_CONFIRM_TOKEN}  # fmt: skip
