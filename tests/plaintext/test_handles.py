"""The handle store: each check has its own refusal, and nothing of a value is shown."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.handles import LENGTH, TTL, Handle, HandleStore, Save, Scope, Sink
from pincer_trace.plaintext.refusal import Refusal

MINE = Scope("tree", "s1", (1, 2, 3), (10, 4))
SECRET = b"hunter2-canary"


@pytest.fixture
def store() -> HandleStore:
    return HandleStore()


@pytest.fixture
def handle(store: HandleStore) -> Handle:
    return store.issue(SECRET, field="PASSWORD", scope=MINE, now=100.0, sinks=frozenset({"ssh"}), ttl=60.0)


@pytest.mark.parametrize("use", [Sink("ssh"), Save()])
def test_whom_it_is_for_gets_the_value(store: HandleStore, handle: Handle, use: Sink | Save) -> None:
    assert store.resolve(handle, MINE, use, 159.9) == SECRET
    assert store.reveal(handle, "s1", 159.9) == SECRET


@pytest.mark.parametrize(
    ("scope", "use", "now", "code"),
    [
        (Scope("tree", "s2", MINE.object, MINE.version), Save(), 100.0, refusal.OTHER_SESSION),
        (Scope("curl", "s1", MINE.object, MINE.version), Save(), 100.0, refusal.OTHER_PRINCIPAL),
        (Scope("tree", "s1", (1, 2, 4), MINE.version), Save(), 100.0, refusal.OTHER_OBJECT),
        (Scope("tree", "s1", MINE.object, (11, 4)), Save(), 100.0, refusal.OTHER_VERSION),
        (MINE, Sink("curl"), 100.0, refusal.SINK_BLOCKED),
        (MINE, Sink("ssh"), 160.0, refusal.EXPIRED),
        (MINE, Save(), 160.0, refusal.EXPIRED),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_refuses_with_its_own_code(
    store: HandleStore, handle: Handle, scope: Scope, use: Sink | Save, now: float, code: str
) -> None:
    refused = store.resolve(handle, scope, use, now)
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert SECRET.decode() not in repr(refused)


def test_a_guessed_and_a_revoked_one_give_nothing(store: HandleStore, handle: Handle) -> None:
    guessed = store.resolve(Handle(bytes(16)), MINE, Save(), 100.0)
    assert isinstance(guessed, Refusal)
    assert guessed.code == refusal.UNKNOWN
    assert store.revoke(handle)
    assert not store.revoke(Handle(bytes(16)))
    for answer in (store.resolve(handle, MINE, Save(), 100.0), store.reveal(handle, "s1", 100.0)):
        assert isinstance(answer, Refusal)
        assert answer.code == refusal.REVOKED


def test_a_person_of_another_session_gets_nothing(store: HandleStore, handle: Handle) -> None:
    answer = store.reveal(handle, "s2", 100.0)
    assert isinstance(answer, Refusal)
    assert answer.code == refusal.OTHER_SESSION


def test_all_of_an_object_are_revoked_together(store: HandleStore, handle: Handle) -> None:
    other = store.issue(b"x", field="OTHER", scope=Scope("tree", "s1", "elsewhere", 1), now=100.0)
    assert store.revoke_object(MINE.object) == 1
    assert store.revoke_object(MINE.object) == 0
    assert isinstance(store.resolve(handle, MINE, Save(), 100.0), Refusal)
    assert store.reveal(other, "s1", 100.0) == b"x"


def test_equal_values_get_different_handles(store: HandleStore, handle: Handle) -> None:
    again = store.issue(SECRET, field="PASSWORD", scope=MINE, now=100.0)
    assert again != handle
    assert len({again, handle, Handle.parse(handle.text)}) == 2


def test_nothing_prints_a_value(store: HandleStore, handle: Handle) -> None:
    assert SECRET.decode() not in f"{store!r} {handle!r} {MINE!r} {Save()!r} {Sink('ssh')!r} {store._records}"


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16))
def test_the_text_of_a_handle_is_read_back_and_no_other(number: bytes) -> None:
    text = Handle(number).text
    assert len(text) == LENGTH
    assert Handle.parse(text) == Handle(number)
    for other in (text.upper(), text[:-1], text + "a", text[:-1] + "b", text.replace("pincer:", "")):
        assert Handle.parse(other) is None


def test_the_oldest_are_forgotten_beyond_the_bounds() -> None:
    store = HandleStore(most=3, most_bytes=10)
    first, second, third = (store.issue(b"abc", field=name, scope=MINE, now=0.0) for name in ("a", "b", "c"))
    fourth = store.issue(b"abcde", field="d", scope=MINE, now=0.0)
    assert [isinstance(store.reveal(each, "s1", 1.0), bytes) for each in (first, second, third, fourth)] == [
        False, False, True, True,
    ]  # fmt: skip
    large = store.issue(b"x" * 11, field="large", scope=MINE, now=0.0)
    answer = store.reveal(large, "s1", 1.0)
    assert isinstance(answer, Refusal)
    assert answer.code == refusal.TOO_LARGE
    assert store.sweep(TTL + 1.0) == len((third, fourth, large))
    assert len(store) == 0
    assert store._bytes == 0


def test_a_hundred_thousand_live_handles_take_less_than_100_mb() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        store = HandleStore()
        for number in range(20_000):
            store.issue(b"%032d" % number, field=f"KEY_{number}", scope=MINE, now=0.0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(store) == 20_000
    assert 5 * used < 100_000_000  # all that it holds grows with their number
