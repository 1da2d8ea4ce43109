"""The game of the paper's section 1: an adversary who holds everything, against both evaluators and the eight checks.

It has both oracles: a twin that votes on whatever it asks (`Game.preview`), with a person who confirms some of it
(`Game.confirm`), and the executor (`Game.commit`). It keeps everything that was ever answered, makes new things out of
it, and sets the clock. The referee knows what was authorized, and nothing else counts.
"""

from __future__ import annotations

import os
import random
import struct
from collections import Counter

import pytest
from executor.desks import START, altered, flip

from pincer_trace.effects import CREATE, UNLINK, WRITE
from pincer_trace.executor import acceptance
from pincer_trace.executor.acceptance import WINDOW, Acceptance, Rejected
from pincer_trace.gateway.request import Request, origin
from pincer_trace.profile import ALLOW, CONFIRM, DENY
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Keys, Share
from pincer_trace.twin.target import Target
from pincer_trace.twin.tokens import mint


class Game:
    """Both oracles and the referee. The twin is the real one, on a bench; so are the keys and the executor."""

    FILES = ("file", "dir/inner", "secret/key", "asked/hook", "shared/foreign", "absent", "secret/absent", "../out")
    EFFECTS = (WRITE, UNLINK, CREATE)

    def __init__(self, bench, dice: random.Random) -> None:
        self.dice = dice
        self.task = bench.task()
        self.authority = bench.authority
        self.keys: Keys = bench.authority._keys
        self.program = bench.profile.digest
        self.acceptance = Acceptance(self.keys, self.program)
        self.origin = origin(bench.session.id, self.program)
        self.now = START
        self.latest = 0  # when something was performed last
        self.authorized: dict[tuple[bytes, bytes], set[str]] = {}  # (action, request): what the twin said of it
        self.confirmed: set[tuple[bytes, bytes]] = set()
        self.performed: Counter[bytes] = Counter()
        self.wins: list[str] = []

    def judge(self, effect: str, name: str):
        path = os.path.abspath(name)
        try:
            found = os.lstat(path)
        except OSError:
            found = None
        return self.authority.judge(self.task, effect, Target(os.fsencode(path), found=found))

    def request(self, effect: str, names: list[str], **how) -> Request:
        """A request whose claims were judged just now."""
        self.authority.begin()
        self.judged = [self.judge(effect, name) for name in names]
        return Request.of(self.origin, self.task.subject, effect, [each.claim for each in self.judged], **how)

    def fresh(self) -> bytes:
        """Ids are the gateway's to choose: who asks gets a new one."""
        return self.dice.randbytes(16)

    def preview(self, asked: Request, action: bytes) -> tuple[Share, ...]:
        shares = self.authority.vote(action, asked, self.now)
        worst = max((share.verdict for share in shares), key=(ALLOW, CONFIRM, DENY).index)
        self.authorized.setdefault((action, asked.data), set()).add(worst)
        return shares

    def confirm(self, asked: Request, action: bytes) -> bytes:
        """A person says yes to exactly this, whatever it is."""
        self.confirmed.add((action, asked.data))
        return mint(self.keys.confirm, action, self.program, self.keys.bind.tag(asked.data))

    def commit(self, shares, own: Request, token) -> str:
        """The code of the refusal; empty when the effect was performed. Nothing but `Rejected` may come out."""
        try:
            accepted = self.acceptance.accept(shares, own, self.now, token=token)
        except Rejected as refused:
            assert refused.code in codes.CODES
            return refused.code
        key = accepted.action, own.data
        said = self.authorized.get(key, set())
        if not said:
            self.wins.append("performed what nobody authorized")
        if ALLOW not in said and not (CONFIRM in said and key in self.confirmed):
            self.wins.append(f"performed what was judged {said}, {'' if key in self.confirmed else 'not '}confirmed")
        self.latest = max(self.latest, self.now)
        if not 0 <= self.latest - accepted.time <= WINDOW:
            self.wins.append("performed by an old vote")
        self.performed[accepted.action] += 1
        if self.performed[accepted.action] > 1:
            self.wins.append("performed twice")
        return ""


class Adversary:
    """Asks, remembers, and submits what it makes out of what it has. `dice` is the source of all that is random."""

    def __init__(self, game: Game, dice: random.Random) -> None:
        self.game = game
        self.dice = dice
        self.requests: list[Request] = []
        self.actions: list[bytes] = []
        self.asked: dict[bytes, int] = {}  # when
        self.shares: list[Share] = []
        self.tokens: list[object] = [b"", None, True, "token", bytes(32)]
        self.artifacts: list[tuple[tuple[Share, ...], Request, bytes]] = []
        self.answers: Counter[str] = Counter()
        self.latest = game.now
        self.key = Keys(dice.randbytes(32))

    def ask(self) -> None:
        """Preview, mostly of a new request as a new action; sometimes of another one as the same, at that moment."""
        dice, game = self.dice, self.game
        names = dice.sample(game.FILES, dice.choice((1, 1, 1, 2, 3)))
        how = {"flags": dice.choice((0, 1, 2)), "mode": dice.choice((0, 0o644, 0o4755))}
        if dice.random() < 0.3:
            how["arguments"] = [dice.choice((b"a", b"b", 1, 2)) for _ in range(dice.randrange(3))]
        asked = game.request(dice.choice(game.EFFECTS), names, **how)
        if self.requests and dice.random() < 0.1:
            asked = dice.choice(self.requests)  # judged in a call before: its claims are of no account now
        again = dice.choice(self.actions[-3:]) if self.actions and dice.random() < 0.3 else b""
        action = again if self.asked.get(again) == game.now else game.fresh()
        self.asked[action] = game.now
        shares = game.preview(asked, action)
        token = b""
        if dice.random() < 0.5:
            token = game.confirm(asked, action)
            self.tokens.append(token)
        self.requests.append(asked)
        self.actions.append(action)
        self.shares += shares
        self.artifacts.append((shares, asked, token))

    def play(self) -> None:
        dice, game = self.dice, self.game
        roll = dice.random()
        if roll < 0.3 or not self.artifacts:
            self.ask()
        elif roll < 0.4:
            game.now += dice.choice((1, WINDOW // 3, WINDOW, WINDOW + 1, 3 * WINDOW, 40 * WINDOW))
            self.latest = max(self.latest, game.now)
        elif roll < 0.5:
            game.now -= dice.choice((1, WINDOW // 3, WINDOW, WINDOW + 1, 3 * WINDOW, 40 * WINDOW))
            game.now = max(game.now, 0)
        elif roll < 0.62:  # as it should be done, mostly by a clock that goes on: there must be something to replay
            game.now = self.latest if dice.random() < 0.8 else game.now
            self.ask()
            self.submit(*self.artifacts[-1])
        elif roll < 0.72:  # again
            self.submit(*dice.choice(self.artifacts[-20:]))
        else:
            self.submit(*self.forge())

    def forge(self):
        """An artifact of which some part is of another, or of nobody."""
        dice = self.dice
        shares, own, token = dice.choice(self.artifacts[-30:])
        shares = list(shares)
        for _ in range(dice.choice((1, 1, 2, 3))):
            what = dice.randrange(14)
            at = dice.randrange(len(shares)) if shares else 0
            if what == 0:
                own = dice.choice(self.requests)
            elif what == 1:
                own = Request(own.head, dice.choice(self.requests).claims, own.tail)
            elif what == 2:
                own = Request(own.head, own.claims, dice.choice(self.requests).tail)
            elif what == 3:
                token = dice.choice(self.tokens)
            elif not shares:
                continue
            elif what == 4:
                shares[at] = dice.choice(self.shares)
            elif what == 5:
                shares[at] = self.mutate(shares[at])
            elif what == 6:
                shares[at] = self.sign(shares[at])
            elif what == 7:
                shares.reverse()
            elif what == 8:
                shares.pop(at)
            elif what == 9:
                shares.append(dice.choice(shares))
            elif what == 10:
                shares = self.each(shares, lambda each: {"by": RIGHT if each.by == LEFT else LEFT})
            elif what == 11:
                shares[at] = dice.choice((None, 7, b""))
            elif what == 12:  # both the same, so that only their MACs can tell
                shares = self.each(shares, lambda _: {"verdict": ALLOW})
            else:
                name, other = dice.choice(("action", "digest", "time")), dice.choice(self.shares)
                shares = self.each(shares, lambda _: {name: getattr(other, name)})
        return shares, own, token

    def each(self, shares, fields) -> list:
        return [altered(one, **fields(one)) if isinstance(one, Share) else one for one in shares]

    def mutate(self, share: Share | None) -> Share | None:
        """Another value in one field: random, of another share, of another type or length."""
        if not isinstance(share, Share):
            return share
        dice, name = self.dice, self.dice.choice(Share.__slots__)
        value = getattr(share, name)
        options = [getattr(dice.choice(self.shares), name), None, 7, "x" * 32, b"x" * 32, []]
        if isinstance(value, bytes) and value:
            options += [flip(value, dice.randrange(8)), value[:-1], value + b"\0", bytearray(value), bytes(len(value))]
        if isinstance(value, int):
            options += [value + 1, value - WINDOW, -value, self.game.now, float(value), 1 << 64]
        if name == "verdict":
            options += [ALLOW, "Allow", b"allow"]
        return altered(share, **{name: dice.choice(options)})

    def sign(self, share: Share | None) -> Share | None:
        """Signed anew, by a key of its own, to say yes."""
        if not isinstance(share, Share):
            return share
        try:
            return Share.sign(
                self.dice.choice((self.key.left, self.key.right, self.key.bind)),
                share.by,
                self.dice.choice(self.actions),
                share.program,
                share.digest,
                self.game.now,
                ALLOW,
            )
        except (KeyError, TypeError, ValueError, struct.error):
            return share

    def submit(self, shares, own, token) -> None:
        self.answers[self.game.commit(shares, own, token)] += 1


@pytest.mark.parametrize("turn", range(3))
def test_no_adversary_wins_the_game(bench, turn):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    game = Game(bench, dice)
    adversary = Adversary(game, dice)
    for _ in range(4000):
        adversary.play()
        assert not game.wins, game.wins
    answers = adversary.answers
    assert answers[""] > 50, "what is authorized is performed"
    expected = {codes.BAD_SHARE, codes.MISSING_SHARE, codes.DUPLICATE_SHARE, codes.NOT_BOUND, codes.REQUEST_CHANGED,
                codes.STALE, codes.REPLAY, codes.POLICY_DENY, codes.BAD_CONFIRM_TOKEN, ""}  # fmt: skip
    assert set(answers) == expected, "every check had something to refuse"


def test_an_executor_without_one_of_its_checks_loses_the_game(bench, monkeypatch):
    """So the referee sees what it is there for: with any one check taken away, the adversary wins soon."""

    def without_macs(self, share):
        del self, share

    def without_digest(one, other):
        return len(one) == len(other) or one == other

    def without_marks(self, action, now):
        del self, action, now

    for name, change in {
        "macs": lambda patch: patch.setattr(Acceptance, "_authenticate", without_macs),
        "digest": lambda patch: patch.setattr(acceptance, "compare_digest", without_digest),
        "marks": lambda patch: patch.setattr(Acceptance, "_mark", without_marks),
        "verdict": lambda patch: patch.setattr(acceptance, "DENY", "never"),
        "freshness": lambda patch: patch.setattr(acceptance, "WINDOW", START),
        "token": lambda patch: patch.setattr(acceptance, "check", lambda *_: True),
    }.items():
        seed = random.randrange(2**32)
        print(f"{name}: seed {seed}")
        with monkeypatch.context() as patch:
            change(patch)
            dice = random.Random(seed)
            game = Game(bench, dice)
            adversary = Adversary(game, dice)
            for _ in range(4000):
                try:
                    adversary.play()
                except (KeyError, TypeError, AttributeError, struct.error):
                    continue  # a broken executor may break
                if game.wins:
                    break
            assert game.wins, f"without {name} nobody noticed"
