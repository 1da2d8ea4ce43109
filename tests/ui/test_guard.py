"""When a key may answer: the default is no. Hazards P53 and P54."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.ui.guard import QUIET, SEEN, Guard


def test_nothing_is_answered_that_was_not_seen():
    guard = Guard()
    assert not guard.listens(1e9)
    guard.seen(10)
    assert not guard.listens(10) and not guard.listens(10 + SEEN / 2) and guard.listens(10 + SEEN)
    guard.hidden()
    assert not guard.listens(100)


def test_what_changes_must_be_seen_anew():
    guard = Guard()
    guard.seen(10)
    guard.seen(20)
    assert not guard.listens(20.1) and guard.listens(20 + SEEN)


def test_typed_text_answers_nothing():
    guard = Guard()
    guard.seen(0)
    guard.typed(10)
    assert not guard.listens(10.1) and guard.listens(10 + QUIET)


@given(st.lists(st.floats(0.001, QUIET * 0.99), min_size=1, max_size=50), st.floats(0, 5))
def test_p53_whoever_types_on_never_answers(pauses, start):
    """Text that is typed blindly, or a key that is held down, from before the question was opened."""
    guard = Guard()
    now = start
    guard.typed(now)
    guard.seen(now)
    for pause in pauses:
        now += pause
        assert not guard.listens(now)
        guard.typed(now)
