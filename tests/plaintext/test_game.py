"""The games behind the handles: confinement (PAPER Theorem 2) and what views can tell (Theorem 3).

In the first an adversary who adapts tries to get the value of a handle: it resolves as whomever it likes, changes one
thing of what it knows, guesses, waits, lets handles be revoked and keeps all that it was ever told. The referee knows
who may have which value. In the second it reads and saves one of two files, and has to tell which.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pincer_trace.plaintext import handles, restoring
from pincer_trace.plaintext.handles import Handle, HandleStore, Save, Scope, Sink
from pincer_trace.plaintext.kinds import Kind
from pincer_trace.plaintext.refusal import Refusal
from pincer_trace.plaintext.restoring import Restored, restore
from pincer_trace.plaintext.summary import View, summarise

SESSIONS, PRINCIPALS, OBJECTS = ("s1", "s2"), ("tree", "curl"), ("o1", "o2")
SINKS = ("ssh", "curl")
LIFE = 50.0


class Store(HandleStore):
    """The real store, with its records open to the referee."""

    def allowed(self, handle: Handle, scope: Scope, use: Sink | Save, now: float, revoked: set[Handle]) -> bool:
        """What the rules say, in other words than the store's."""
        record = self._records.get(handle.id)
        if record is None or handle in revoked:
            return False
        bound = record.scope
        same = [getattr(bound, name) == getattr(scope, name) for name in ("session", "principal", "object", "version")]
        return (
            all(same) and now - (record.expires - LIFE) < LIFE and (isinstance(use, Save) or use.name in record.sinks)
        )


def play(store: Store, seed: int, moves: int = 400) -> list[str]:
    """The values that the adversary got and should not have: by which move."""
    dice = random.Random(seed)
    known: list[tuple[Handle, Scope]] = []
    revoked: set[Handle] = set()
    now, wins = 0.0, []
    for number in range(moves):
        scope = Scope(dice.choice(PRINCIPALS), dice.choice(SESSIONS), dice.choice(OBJECTS), dice.randrange(3))
        match dice.choice(
            ["issue", "resolve", "resolve", "resolve", "mutate", "mutate", "mutate", "guess", "wait", "revoke"]
        ):
            case "issue":
                sinks = frozenset(dice.sample(SINKS, dice.randrange(2)))
                handle = store.issue(b"secret %d" % number, field="F", scope=scope, now=now, sinks=sinks, ttl=LIFE)
                known.append((handle, scope))
                assert "secret" not in f"{handle!r} {store!r} {store.field(handle)}"
                continue
            case "wait":
                now += dice.choice([1.0, LIFE / 2])
                continue
            case "revoke" if known:
                handle = dice.choice(known)[0]
                store.revoke(handle)
                revoked.add(handle)
                continue
            case "guess":
                handle = Handle.parse(dice.choice(known)[0].text) if known and dice.random() < 0.5 else None
                number_of = bytearray(handle.id if handle is not None else dice.randbytes(16))
                number_of[dice.randrange(16)] ^= 1 << dice.randrange(8)
                handle = Handle(bytes(number_of))
            case "mutate" if known:  # what it knows, with one thing of it another
                handle, bound = dice.choice(known[-8:])
                fields = [bound.principal, bound.session, bound.object, bound.version]
                other = [scope.principal, scope.session, scope.object, scope.version]
                which = dice.randrange(4)
                fields[which] = other[which]
                scope = Scope(*fields)
            case _ if known:
                handle, scope = dice.choice(known[-8:])
            case _:
                continue
        use: Sink | Save = dice.choice([Save(), *map(Sink, SINKS)])
        answer = store.resolve(handle, scope, use, now)
        allowed = store.allowed(handle, scope, use, now, revoked)
        if isinstance(answer, bytes) and not allowed:
            wins.append(f"{handle} as {scope} for {use} at {now}")
        if isinstance(answer, Refusal):
            assert "secret" not in repr(answer)
            assert not allowed, answer
    return wins


@pytest.mark.parametrize("seed", range(6))
def test_no_value_is_given_that_was_not_for_whoever_asked(seed: int) -> None:
    assert play(Store(random=random.Random(seed).randbytes), seed) == []


def blind(*names: str) -> Callable[[Store], None]:
    """A store that does not look at these fields of a scope."""

    def weaken(store: Store) -> None:
        real = store.resolve

        def resolve(handle: Handle, scope: Scope, use: Sink | Save, now: float) -> bytes | Refusal:
            record = store._records.get(handle.id)
            bound = record.scope if record is not None else scope
            mixed = [
                getattr(bound if name in names else scope, name)
                for name in ("principal", "session", "object", "version")
            ]
            return real(handle, Scope(*mixed), use, now)

        store.resolve = resolve

    return weaken


def timeless(store: Store) -> None:
    real = store.resolve
    store.resolve = lambda handle, scope, use, now: real(handle, scope, use, 0.0)


def for_all_sinks(store: Store) -> None:
    real = store.resolve
    store.resolve = lambda handle, scope, use, now: real(handle, scope, Save(), now)


def without_revocation(store: Store) -> None:
    store.revoke = lambda handle: True


def guessable(store: Store) -> None:
    """Ids that are counted, and a text that shows the next one."""
    real = store.resolve

    def resolve(handle: Handle, scope: Scope, use: Sink | Save, now: float) -> bytes | Refusal:
        near = min(
            store._records,
            key=lambda number: bin(int.from_bytes(number) ^ int.from_bytes(handle.id)).count("1"),
            default=b"",
        )
        return real(Handle(near) if near else handle, scope if not near else store._records[near].scope, use, now)

    store.resolve = resolve


WEAK = {
    **{name: blind(name) for name in ("principal", "session", "object", "version")},
    "expiry": timeless,
    "sink": for_all_sinks,
    "revocation": without_revocation,
    "id": guessable,
}


@pytest.mark.parametrize("check", WEAK)
def test_a_store_without_one_of_its_checks_loses_the_game(check: str) -> None:
    for seed in range(20):
        store = Store(random=random.Random(seed).randbytes)
        WEAK[check](store)
        if play(store, seed):
            return
    pytest.fail(f"nobody misses the check of {check}")


# -- which of two files is it ----------------------------------------------------------------------------------------

COINS = [
    (b"A=first\nB=x\nC=y\n", b"A=other\nB=y\nC=y\n"),
    (b'A="x=1"\nfirst\nB=x\n# y="\n', b"A=#'$(`\\\nother\nB=y\n# z\\'\n"),
    (b"A='first\nfirst=1\n'\nC=abc\n# x\n", b"A='other\nother=2\n'\nC=a'b\n# \"\n"),
    (b"A='one\nfirst'\nB=x\n", b"A='one other'\nB=x\n"),
]


class Desk:
    """One file with its views and saves, as an agent has them; which of the two it is only the referee knows."""

    def __init__(self, content: bytes, seed: int) -> None:
        self.store = HandleStore(random=random.Random(seed).randbytes)
        self.content = content
        self.version = 0

    def scope(self) -> Scope:
        return Scope("tree", "s1", "o1", self.version)

    def read(self) -> View:
        scope = self.scope()
        kind = Kind.of(b".env", self.content)
        return summarise(
            self.content, kind, lambda value, field: self.store.issue(value, field=field, scope=scope, now=0.0)
        )

    def save(self, view: View, edited: bytes) -> str:
        def check(handle: Handle) -> Refusal | None:
            answer = self.store.resolve(handle, self.scope(), Save(), 0.0)
            return answer if isinstance(answer, Refusal) else None

        answer = restore(edited, view, check)
        if not isinstance(answer, Restored):
            return answer.code
        self.content = answer.content
        self.version += 1
        return "saved"


def transcript(content: bytes, seed: int) -> list[object]:
    """All that an adversary sees of twenty reads and saves; its moves depend on what it saw, and on the same dice."""
    desk, dice = Desk(content, seed), random.Random(seed)
    seen: list[object] = []
    for _ in range(20):
        view = desk.read()
        seen += [view.text, len(view.handles), repr(view)]
        lines = view.text.splitlines(keepends=True)
        words = [
            b'"',
            b"'",
            b"=",
            b"\n",
            b"# ",
            b"A=",
            b"x",
            b"export ",
            b"\\",
            *(handle.text.encode() for handle in view.handles),
        ]
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(lines))
            match dice.randrange(6):
                case 0:
                    lines.insert(at, lines.pop(dice.randrange(len(lines))))
                case 1:
                    cut = dice.randrange(len(lines[at]) + 1)
                    lines[at] = lines[at][:cut] + dice.choice(words) + lines[at][cut:]
                case 2 if len(lines) > 2:
                    del lines[at]
                case 3:
                    lines.insert(at, b"NEW_%c=1\n" % dice.choice(b"ABC"))
                case 4:
                    lines[at] = b"# " + lines[at]
                case _:
                    lines[at] = lines[at].partition(b"=")[2].strip() + b"=1\n"
        seen.append(desk.save(view, b"".join(lines)))
    return seen


@pytest.mark.parametrize("coin", range(len(COINS)))
def test_what_is_seen_of_two_files_with_other_values_is_the_same(coin: int) -> None:
    """So nothing that is made of it tells them apart (Theorem 3, with a distance of 0)."""
    saved = 0
    for seed in range(20):
        first, other = (transcript(content, seed) for content in COINS[coin])
        assert first == other, seed
        saved += first.count("saved")
    assert saved > 30


def anywhere(self) -> list[tuple[int, int, Handle]]:
    mine = set(self._view.handles)
    return [(start, end, handle) for start, end, handle in handles.mentioned(self._text) if handle in mine]


def test_a_restorer_that_lets_handles_stand_anywhere_loses_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pincer_trace.plaintext.lines._Text.places", anywhere)
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_reappears", lambda *what: None)
        assert any(transcript(COINS[0][0], seed) != transcript(COINS[0][1], seed) for seed in range(10))
    # and what would be seen is stopped by the second check
    for seed in range(10):
        seen = b"".join(text for text in transcript(COINS[0][0], seed) if isinstance(text, bytes))
        assert b"first" not in seen
