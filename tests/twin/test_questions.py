"""Questions: merged, bounded, timed, answered once, and never lost between two threads."""

from __future__ import annotations

import os
import random
import threading

import pytest

from pincer_trace.ledger import LedgerFull
from pincer_trace.twin import questions as module
from pincer_trace.twin.grants import DENY, DENY_SESSION, KINDS, ONCE, SESSION, YES, Grants, Key, Person, entry
from pincer_trace.twin.questions import (
    HOLD,
    LATE,
    MOST,
    MOST_HELD,
    PERIOD,
    RATE,
    NotAnswerable,
    Question,
    Questions,
    TooManyQuestions,
)

BY = Person(1000, 4711, b"/usr/bin/pincer-trace")
SEED = int(os.environ.get("PINCER_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


def key(name=b"x"):
    return Key(bytes(32), b"tree", "write", [entry(1, 2, name)])


def shown(name=b"x", **more):
    return {"effect": "write", "path": b"/w/" + name, "exe": b"/bin/sh", "pid": 7, "rule": "a.toml:1", **more}


class Desk:
    """Questions, with what was recorded and how often somebody was woken."""

    def __init__(self, **more):
        self.grants, self.lines, self.wakes, self.full = Grants(), [], 0, False
        self.questions = Questions(self.grants, record=self.record, wake=self.wake, **more)

    def record(self, line):
        if self.full:
            raise LedgerFull(28)
        self.lines.append(line)
        return 100 + len(self.lines)

    def wake(self):
        assert not self.questions._mutex.locked(), "woken with the lock held"
        self.wakes += 1

    def ask(self, name=b"x", now=0.0, token=None, **more):
        return self.questions.ask(key(name), shown(name), now, object() if token is None else token, **more)


@pytest.fixture
def desk():
    return Desk()


def tokens(resumed):
    return [(each.token, each.yes) for each in resumed]


def test_a_yes_lets_every_held_call_go_on_and_meets_the_retry(desk):
    first = desk.ask(token=1)
    assert desk.ask(token=2) is first and desk.ask(b"y", token=3) is not first
    resumed = desk.questions.answer(first.id, ONCE, BY, 5.0)
    assert tokens(resumed) == [(1, True), (2, True)]
    assert desk.wakes == 1 and tokens(desk.questions.take()) == [(1, True), (2, True)]
    assert desk.questions.take() == []
    answer = desk.ask(token=4, now=6.0)
    assert not isinstance(answer, Question) and answer.yes and answer.id == 101
    assert desk.grants.use([key()], 7.0) == [answer]
    assert isinstance(desk.ask(token=1, now=8.0), Question), "one use was one use: the second call is asked for anew"


def test_a_no_is_for_this_question_only_unless_it_is_for_the_session(desk):
    question = desk.ask(token=1)
    assert tokens(desk.questions.answer(question.id, DENY, BY, 1.0)) == [(1, False)]
    again = desk.ask(token=2, now=2.0)
    assert isinstance(again, Question) and again.id != question.id
    assert tokens(desk.questions.answer(again.id, DENY_SESSION, BY, 3.0)) == [(2, False)]
    assert not desk.ask(token=3, now=4.0).yes


def test_ids_are_small_numbers_and_never_used_again(desk):
    ids = [desk.ask(b"n%d" % number).id for number in range(5)]
    assert ids == [1, 2, 3, 4, 5]
    desk.questions.answer(3, DENY, BY, 1.0)
    assert desk.ask(b"n2", now=2.0).id == 6


def test_p74_the_hold_ends_and_a_late_yes_lets_the_retry_pass(desk):
    question = desk.ask(now=100.0, token=1)
    assert desk.questions.due() == 100.0 + HOLD
    assert desk.questions.expire(100.0 + HOLD - 0.1) == []
    assert desk.questions.expire(100.0 + HOLD) == [(1, question)]
    assert desk.questions.expire(100.0 + HOLD) == [] and desk.questions.due() is None
    (view,) = desk.questions.pending(140.0)
    assert (view["waiting"], view["held"], view["age"]) == (0, 0.0, 40.0)
    assert view["answerable"] == 100.0 + HOLD + LATE - 140.0
    assert desk.questions.answer(question.id, ONCE, BY, 140.0) == []
    assert desk.ask(now=141.0, token=2).yes


def test_after_ten_minutes_more_it_is_over(desk):
    question = desk.ask(now=0.0, token=1)
    desk.questions.expire(HOLD)
    assert desk.questions.pending(HOLD + LATE) == []
    with pytest.raises(NotAnswerable, match="its time is over"):
        desk.questions.answer(question.id, ONCE, BY, HOLD + LATE)
    fresh = desk.ask(now=HOLD + LATE + 1, token=2)
    assert isinstance(fresh, Question) and fresh.id != question.id


def test_expiry_tidies_up_what_nobody_answered(desk):
    desk.ask(now=0.0, token=1)
    desk.questions.expire(HOLD)
    desk.questions.expire(HOLD + LATE)
    assert desk.questions._open == {} and desk.questions._by_key == {}


@pytest.mark.parametrize("woken_by", ["answer", "ask"])
def test_p74_a_machine_that_slept_loses_no_held_call(desk, woken_by):
    """Everything is over at once, and whoever comes first may not be the thread that refuses held calls."""
    question = desk.ask(now=0.0, token=1)
    later = HOLD + LATE + 3600.0
    if woken_by == "answer":
        with pytest.raises(NotAnswerable, match="its time is over"):
            desk.questions.answer(question.id, SESSION, BY, later)
    else:
        assert desk.ask(now=later, token=2) is not question
    assert desk.questions.due() == 0.0
    assert desk.questions.expire(later) == [(1, question)] and desk.questions.expire(later) == []
    assert desk.grants.answer(key(), later) is None


def test_each_call_has_a_hold_of_its_own(desk):
    question = desk.ask(now=0.0, token=1)
    desk.ask(now=20.0, token=2, hold=5.0)
    desk.ask(now=20.0, token=3)
    assert desk.questions.due() == 25.0
    assert desk.questions.expire(26.0) == [(2, question)]
    assert desk.questions.expire(HOLD) == [(1, question)]
    assert tokens(desk.questions.answer(question.id, SESSION, BY, 31.0)) == [(3, True)]


def test_a_caller_that_died_is_withdrawn(desk):
    question = desk.ask(token=1)
    desk.ask(token=2)
    assert desk.questions.withdraw(1) and not desk.questions.withdraw(1) and not desk.questions.withdraw(99)
    assert tokens(desk.questions.answer(question.id, SESSION, BY, 1.0)) == [(2, True)]
    desk.questions.withdraw(2)
    assert desk.questions.take() == [], "it died between the answer and its being heard"


def test_who_answers_twice_is_told_so(desk):
    question = desk.ask()
    desk.questions.answer(question.id, SESSION, BY, 1.0)
    for kind in KINDS:
        with pytest.raises(NotAnswerable, match=r"answered already: allowed for the session by process 4711, \d\d:"):
            desk.questions.answer(question.id, kind, BY, 2.0)
    assert len(desk.lines) == 1
    for unknown in (0, -1, 2, 10**9):
        with pytest.raises(NotAnswerable, match=f"no question {unknown} in this session: ") as raised:
            desk.questions.answer(unknown, ONCE, BY, 1.0)
        assert raised.value.code == "unknown"
    with pytest.raises(ValueError, match="'maybe' is no answer"):
        desk.questions.answer(1, "maybe", BY, 1.0)


def test_no_yes_to_what_was_denied_for_the_session(desk):
    """The same key, asked while the no was on its way."""
    question = desk.ask(token=1)
    desk.grants.add(key(), DENY_SESSION, BY, 0.5, answer_id=1)
    with pytest.raises(NotAnswerable, match="denied for the session") as raised:
        desk.questions.answer(question.id, SESSION, BY, 1.0)
    assert raised.value.code == "refused" and desk.lines == []
    assert tokens(desk.questions.answer(question.id, DENY, BY, 1.0)) == [(1, False)]


def test_an_answer_is_in_the_ledger_before_it_counts(desk):
    question = desk.questions.ask(key(), shown(to=b"/w/\x1b"), 0.0, 1)
    desk.full = True
    with pytest.raises(LedgerFull):
        desk.questions.answer(question.id, SESSION, BY, 1.0)
    assert desk.grants.answer(key(), 1.0) is None and desk.questions.take() == [] and desk.wakes == 0
    desk.full = False
    desk.questions.answer(question.id, SESSION, BY, 2.0)
    assert desk.lines == [
        {
            "question": 1,
            "key": key().digest(),
            "answer": "session",
            "by": {"uid": 1000, "pid": 4711, "exe": b"/usr/bin/pincer-trace"},
            "effect": "write",
            "path": b"/w/x",
            "to": b"/w/\x1b",
        }
    ]
    assert desk.grants.answer(key(), 3.0).id == 101


# -- floods (P54) ----------------------------------------------------------------------------------------------------


def test_p54_a_thousand_questions(desk):
    asked = refused = 0
    for number in range(1000):
        try:
            desk.ask(b"n%d" % number, now=number / 1000)
            asked += 1
        except TooManyQuestions:
            refused += 1
    assert (asked, refused) == (MOST, 1000 - MOST) and len(desk.questions.pending(1.0)) == MOST
    desk.questions.answer(1, DENY, BY, 1.0)
    assert desk.ask(b"after", now=1.0).id == MOST + 1


def test_p54_no_more_than_so_many_a_minute(desk):
    for number in range(RATE):
        desk.questions.answer(desk.ask(b"n%d" % number, now=0.0).id, DENY, BY, 0.0)
    with pytest.raises(TooManyQuestions, match="200 questions within 60 seconds"):
        desk.ask(b"one more", now=PERIOD - 0.1)
    assert desk.ask(b"one more", now=PERIOD).id == RATE + 1


def test_p54_identical_ones_are_one_question_and_do_not_count(desk):
    question = desk.ask()
    for _ in range(RATE + 50):
        assert desk.ask() is question
    assert question.asked == RATE + 51 and len(desk.questions.pending(0.0)) == 1


def test_p54_held_calls_are_bounded_too(desk):
    for _ in range(MOST_HELD):
        desk.ask()
    with pytest.raises(TooManyQuestions, match="calls wait"):
        desk.ask()


def test_what_nobody_answered_makes_room_for_what_is_held_now(desk):
    for number in range(MOST):
        desk.ask(b"n%d" % number, now=0.0, token=number)
    desk.questions.expire(HOLD)
    desk.ask(b"n5", now=HOLD, token="again")
    for number in range(MOST - 1):
        desk.ask(b"new%d" % number, now=HOLD + 1)
    with pytest.raises(TooManyQuestions):
        desk.ask(b"last", now=HOLD + 1)
    with pytest.raises(NotAnswerable, match="newer questions took its place"):
        desk.questions.answer(1, ONCE, BY, HOLD + 1)
    assert 6 in [view["id"] for view in desk.questions.pending(HOLD + 1)], "the one that is held again stays"


def test_a_token_is_held_once(desk):
    desk.ask(token=1)
    with pytest.raises(ValueError, match="held already"):
        desk.ask(b"y", token=1)


def test_what_is_remembered_of_the_past_is_bounded(desk):
    for number in range(300):
        desk.questions.answer(desk.ask(b"n%d" % number, now=number * 1.0).id, DENY, BY, number * 1.0)
    with pytest.raises(NotAnswerable, match="it is over"):
        desk.questions.answer(1, ONCE, BY, 300.0)
    assert len(desk.questions._over) <= module._REMEMBERED and len(desk.questions._recent) <= RATE


def test_programs_that_ask_the_same_are_all_told(desk):
    desk.questions.ask(key(), shown(), 0.0, 1)
    for number in range(20):
        desk.questions.ask(key(), shown(exe=b"/bin/%d" % (number % 7)), 0.0, (number, "token"))
    (view,) = desk.questions.pending(0.0)
    assert view["programs"] == [b"/bin/sh", b"/bin/0", b"/bin/1", b"/bin/2"] and view["asked"] == 21


# -- any order -------------------------------------------------------------------------------------------------------


def test_any_order_of_events():
    """Every held call gets exactly one end: resumed, refused in time, or withdrawn. Nothing passes without a yes."""
    print(f"PINCER_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    for _ in range(150):
        desk, now, held, ended, ids = Desk(), 0.0, {}, set(), []
        said = {}
        for step in range(120):
            now += dice.choice((0.0, 0.5, 10.0))
            act = dice.randrange(6)
            if act < 3:
                name = b"n%d.tmp.%d.abcdef" % (dice.randrange(4), step)
                found = desk.ask(name, now=now, token=step)
                if isinstance(found, Question):
                    held[step] = found
                    ids.append(found.id)
                    assert found.key == key(name)
                else:
                    assert said[found.id][0] == key(name) and found.kind == said[found.id][1]
                    if found.yes:
                        assert desk.grants.use([key(name)], now) is not None
            elif act == 3 and ids:
                kind, number = dice.choice(KINDS[:4]), dice.choice(ids)
                try:
                    resumed = desk.questions.answer(number, kind, BY, now)
                except NotAnswerable:
                    continue
                said[100 + len(desk.lines)] = (next(q.key for q in held.values() if q.id == number), kind)
                assert {each.yes for each in resumed} <= {kind in YES}
                for each in desk.questions.take():
                    assert held[each.token].id == number and each.token not in ended
                    ended.add(each.token)
            elif act == 4:
                for token, _ in desk.questions.expire(now):
                    assert token not in ended
                    ended.add(token)
            elif held:
                token = dice.choice(list(held))
                if desk.questions.withdraw(token):
                    assert token not in ended
                    ended.add(token)
            waiting = set(desk.questions._by_token)
            assert waiting == set(held) - ended
        for token, _ in desk.questions.expire(now + HOLD):
            ended.add(token)
        assert ended == set(held) and desk.questions.due() is None


def test_two_people_answer_at_once():
    """Each question is answered by exactly one of them, whatever the timing."""
    for _ in range(30):
        desk = Desk()
        ids = [desk.ask(b"n%d" % number, token=number).id for number in range(MOST)]
        taken, start = [], threading.Barrier(4)

        def person(kind, desk=desk, ids=ids, taken=taken, start=start):
            start.wait()
            for number in ids:
                try:
                    desk.questions.answer(number, kind, BY, 1.0)
                    taken.append(number)
                except NotAnswerable:
                    pass  # another one was first

        threads = [threading.Thread(target=person, args=(kind,)) for kind in (ONCE, DENY, SESSION, DENY_SESSION)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == ids and len(desk.lines) == MOST
        resumed = desk.questions.take()
        assert sorted(each.token for each in resumed) == list(range(MOST))
        kinds = {line["question"]: line["answer"] for line in desk.lines}
        assert all(each.yes == (kinds[each.question.id] in YES) for each in resumed)
        for number in range(MOST):
            answer = desk.grants.answer(key(b"n%d" % number), 2.0)
            expected = kinds[ids[number]]
            assert (answer.kind if answer else DENY) == expected


def test_an_answer_that_comes_while_it_is_asked_is_not_missed():
    """A call is either resumed or finds the answer: it never waits for a question that was answered."""
    for _ in range(200):
        desk = Desk()
        question = desk.ask(token="first")
        start = threading.Barrier(2)

        def person(desk=desk, question=question, start=start):
            start.wait()
            desk.questions.answer(question.id, SESSION, BY, 1.0)

        thread = threading.Thread(target=person)
        thread.start()
        start.wait()
        found = desk.ask(token="second", now=1.0)
        thread.join()
        resumed = {each.token for each in desk.questions.take()}
        assert resumed == ({"first", "second"} if isinstance(found, Question) else {"first"})
