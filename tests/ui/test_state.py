"""What views show of records, without any terminal: rows, folding, counters, processes, questions."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pincer_trace.ui import state as states
from pincer_trace.ui.filters import Filter, Mistake
from pincer_trace.ui.state import Selection, Skim, State
from pincer_trace.ui.words import ANSWER, DENIED, DONE, FAILED, FAILURE, NATIVE, OPEN, UNSEEN

from .records import Maker, question


def applied(*records):
    state = State()
    for record in records:
        state.apply(record)
    return state


def test_an_effect_is_begun_and_then_done(make):
    intent = make.intent()
    state = applied(intent)
    (row,) = state.rows()
    assert (row.kind, row.path, row.count) == (OPEN, "/w/a", 1)
    state.apply(make.outcome(intent, post="1:2"))
    assert (row.kind, row.record["outcome"], row.record["post"]) == (DONE, "done", "1:2")


def test_what_the_kernel_refused(make):
    intent = make.intent()
    (row,) = applied(intent, make.outcome(intent, "EEXIST")).rows()
    assert (row.kind, row.errno) == (FAILED, "EEXIST")


def test_every_kind_has_its_row_and_its_counter(make):
    native = make.denied("/x/y", native=True)
    records = [make.denied(), native, make.failure(), make.reads(count=12), make.answer(), make.intent(), make.end(3)]
    state = applied(*records, {"kind": "torn", "line": 1, "bytes": 2})
    assert [row.kind for row in state.rows()] == [DENIED, NATIVE, FAILURE, DONE, ANSWER, OPEN]
    counts = state.counts
    assert (counts.denied, counts.native, counts.failures, counts.reads, counts.answers, counts.allowed) == (
        1,
        1,
        1,
        12,
        1,
        1,
    )
    assert counts.torn == 1 and state.ending["exit"] == 3


def test_what_is_alike_is_one_row_for_a_while(make):
    state = State()
    for number in range(5):
        state.apply(make.denied(f"/h/.ssh/key{number}"))
        make.time += 0.5
    (row,) = state.rows()
    assert (row.count, row.directory, row.path, len(row.names)) == (5, "/h/.ssh", "", 5)
    make.time += 3
    state.apply(make.denied("/h/.ssh/key0"))
    assert [each.count for each in state.rows()] == [5, 1]


@pytest.mark.parametrize(
    "other",
    [{"exe": "/bin/sh"}, {"effect": "unlink"}, {"path": "/h/x/.bashrc"}, {"rule": "r:1"}, {"native": True}],
)
def test_what_differs_is_a_row_of_its_own(make, other):
    assert len(applied(make.denied(), make.denied(**other)).rows()) == 2


def test_processes_of_one_program_share_a_row(make):
    (row,) = applied(*(make.denied(pid=pid) for pid in range(5))).rows()
    assert (row.count, list(row.pids)) == (5, [0, 1, 2, 3, 4])


def test_a_row_that_goes_on_ends_after_a_while(make):
    state = State()
    for _ in range(100):
        state.apply(make.denied())
        make.time += 0.25
    assert 2 <= len(state.rows()) <= 4 and sum(row.count for row in state.rows()) == 100


def test_p54_a_flood_is_a_few_rows_whatever_it_varies(make):
    """Other directories, other processes, other programs, other effects: a person still reads along."""
    state = State()
    effects = ["write", "unlink", "rename", "mkdir", "chmod"]
    for number in range(20_000):
        state.apply(
            make.denied(
                f"/h/{number}/x", effects[number % 5], pid=number, exe=f"/w/{number % 400}", rule=f"r:{number % 90}"
            )
        )
        make.time += 1 / 20_000
    rows = state.rows()
    assert len(rows) < 100
    assert sum(row.count for row in rows) == state.counts.denied == 20_000
    assert rows[-1].directory == "/h"
    assert all(len(row.names) <= 12 and len(row.pids) <= 12 and len(row.exes) <= 12 for row in rows)


def test_p54_a_flood_of_what_is_allowed_does_not_push_a_denial_out(make):
    state = applied(make.denied())
    for number in range(states.KEPT * 3):
        make.time += 11
        state.apply(make.intent(f"/w/{number}/x"))
    assert Selection(Filter("denied")).of(state)[0].path == "/h/.bashrc"
    assert len(state.rows()) == states.KEPT + 1


def test_memory_is_bounded(make):
    state = State()
    for number in range(12_000):
        make.time += 11
        state.apply(make.intent(f"/w/{number}/" + "x" * 3000, pid=number))
        state.apply(make.denied(f"/h/{number}/" + "y" * 3000, pid=number))
        state.apply(make.reads(f"/r/{number}", exe=f"/bin/{number}"))
    assert len(state.rows()) == 2 * states.KEPT
    assert len(state.processes) <= 1000 and len(state.processes.reads) <= 1000
    assert len(state._open) <= 4096 and len(state._groups) <= 4097 and len(state._starts) <= 4097
    assert state.counts.allowed == state.counts.denied == 12_000


def test_rows_are_in_the_order_of_their_beginning_and_never_move(make):
    state = State()
    seen = []
    for number in range(300):
        make.time += 0.3
        state.apply(make.intent(f"/w/{number % 7}/x") if number % 3 else make.denied(f"/h/{number % 5}/x"))
        now = [row.number for row in state.rows()]
        assert now[: len(seen)] == seen and now == sorted(now)
        seen = now


def test_reads_of_a_program_are_one_row(make):
    state = applied(
        *(make.reads(f"/usr/{number}/lib", count=2) for number in range(50)), make.reads("/etc/x", exe="/bin/cat")
    )
    assert [(row.count, len(row.exes)) for row in state.rows()] == [(100, 1), (3, 1)]
    assert state.processes.reads == {"/usr/bin/node": 100, "/bin/cat": 3}


def test_a_part_that_was_only_counted(make):
    before = make.intent()
    state = applied(before)
    skim = Skim()
    skim.counts.allowed, skim.counts.denied = 70_000, 1
    skim.refused.append(make.denied())
    skim.processes.append(make.process(9, 7))
    state.skipped(skim)
    state.apply(make.denied("/h/later/x"))
    rows = state.rows()
    assert [row.kind for row in rows] == [UNSEEN, DENIED, DENIED]
    assert (state.counts.allowed, state.counts.denied) == (70_001, 2)
    state.apply(make.outcome(before))  # its intent is waited for no more
    assert rows[0].kind == UNSEEN


def test_what_was_before_comes_before(make):
    skim = Skim()
    skim.refused.extend([make.denied("/h/1/x"), make.failure(), make.denied("/h/2/x", native=True)])
    skim.counts.denied = 1
    make.time += 100
    state = applied(make.intent("/w/now"))
    state.older(skim)
    assert [row.kind for row in state.rows()] == [DENIED, FAILURE, NATIVE, OPEN]
    assert state.counts.denied == 1


def test_rates(make):
    state = State()
    assert state.rate(make.time) == 0.0
    for number in range(1000):
        make.time += 0.01
        state.apply(make.intent() if number % 2 else make.denied())
    assert state.rate(make.time) == pytest.approx(100, rel=0.15)
    assert state.rate(make.time + 5) == pytest.approx(50, rel=0.2)
    assert state.rate(make.time + 11) == 0.0


TEXT = st.sampled_from(["/", "//", "", "/a", "a/", "\udcff/\x1b", "/h/.bashrc"])
ANYTHING = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXT | st.lists(TEXT, max_size=2)
LINES = ["intent", "outcome", "denied", "failure", "reads", "answer", "process", "head", "end", "?"]
RECORD = st.fixed_dictionaries(
    {"kind": st.sampled_from(LINES), "seq": st.integers(-5, 50), "time": st.floats(-1e10, 1e10)},
    optional={
        **dict.fromkeys(("exe", "effect", "path", "rule", "code", "outcome"), TEXT),
        **dict.fromkeys(("of", "parent", "native", "answer", "by"), ANYTHING),
        "pid": st.none() | st.integers(-3, 9),
        "count": st.integers(-9, 9),
        "votes": st.lists(ANYTHING, max_size=2),
        "extra": st.dictionaries(TEXT, ANYTHING, max_size=2),
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(RECORD, max_size=30))
def test_a_log_from_elsewhere_breaks_nothing(records):
    """Any record that is formed as `ledger.read` demands."""
    state = applied(*records)
    Selection(Filter("-read denied x *.y by:1")).of(state)
    state.rate(1e9)
    assert len(state.processes.lines()) <= len(records)


# -- processes -------------------------------------------------------------------------------------------------------


def shown(state):
    return [(line.depth, line.pid, line.exe, line.alike, line.allowed, line.denied) for line in state.processes.lines()]


def test_the_tree(make):
    records = [make.process(1, 0, "/bin/sh"), make.process(2, 1, "/bin/node"), make.process(3, 2, "/bin/git")]
    state = applied(*records, make.intent(pid=3, exe="/bin/git"), make.denied(pid=2, exe="/bin/node"))
    assert shown(state) == [(0, 1, "/bin/sh", 1, 0, 0), (1, 2, "/bin/node", 1, 0, 1), (2, 3, "/bin/git", 1, 1, 0)]


def test_threads_count_for_their_process(make):
    state = applied(
        make.process(5, 1, "/bin/node"), make.process(6, 1, "/bin/node", of=5), make.intent(pid=6, exe="/bin/node")
    )
    assert shown(state) == [(0, 5, "/bin/node", 1, 1, 0)]


def test_a_number_that_is_used_again_is_another_process(make):
    state = applied(make.process(5, 1, "/bin/sh"), make.process(8, 5, "/bin/a"), make.intent(pid=5, exe="/bin/sh"))
    state.apply(make.process(5, 1, "/bin/sh"))
    assert (0, 5, "/bin/sh", 1, 1, 0) in shown(state), "it is only told again"
    state.apply(make.process(5, 2, "/bin/new"))
    assert (0, 5, "/bin/new", 1, 0, 0) in shown(state)
    assert {pid for _, pid, *_ in shown(state)} == {5, 8}


def test_brothers_alike_are_one_line(make):
    state = applied(make.process(1, 0, "/bin/make"), *(make.process(10 + n, 1, "/bin/cc1") for n in range(50)))
    for number in range(50):
        state.apply(make.intent(pid=10 + number, exe="/bin/cc1"))
    assert shown(state) == [(0, 1, "/bin/make", 1, 0, 0), (1, 10, "/bin/cc1", 50, 50, 0)]


def test_many_processes_are_forgotten_and_counted_at_their_parent(make):
    state = applied(make.process(1, 0, "/bin/sh"), make.denied(pid=1, exe="/bin/sh"))
    make.time += 1
    for pid in range(2, 5000):
        state.apply(make.process(pid, 1, "/bin/true"))
        state.apply(make.intent(pid=pid, exe="/bin/true"))
    assert len(state.processes) <= 1000
    lines = state.processes.lines()
    assert lines[0].exe == "/bin/sh" and lines[0].gone + sum(line.alike for line in lines[1:]) == 4998


def test_a_ring_of_parents_ends(make):
    state = applied(make.process(1, 3), make.process(2, 1), make.process(3, 2), make.process(1, 3), make.process(4, 4))
    assert sorted(line.pid for line in state.processes.lines()) == [1, 2, 3, 4]


def test_a_deep_tree_is_no_deep_recursion(make):
    depth = sys.getrecursionlimit() - 200
    state = applied(*(make.process(pid, pid - 1, f"/bin/{pid}") for pid in range(1, depth)))
    assert state.processes.lines()[-1].depth == 200


# -- questions -------------------------------------------------------------------------------------------------------


def test_questions_count_down_and_keep_since_when_they_are_seen():
    state = State()
    state.apply_questions([question(1), question(2, held=0.0, waiting=0)], 10.0)
    assert [(each.id, each.until, each.waiting) for each in state.asked.all()] == [(1, 40.0, 1), (2, 10.0, 0)]
    revision = state.revision
    state.apply_questions([question(1, held=29.2), question(2, held=0.0, waiting=0)], 11.0)
    assert state.revision == revision, "nothing differs but the time"
    assert state.asked.find(1).until == 40.0 and state.asked.find(1).since == 10.0
    state.apply_questions([question(1, held=28.0, programs=["/usr/bin/node", "/bin/sh"])], 12.0)
    assert state.asked.find(1).since == 12.0 and state.revision > revision
    state.apply_questions([], 13.0)
    assert len(state.asked) == 0 and state.asked.find(1) is None


@given(st.lists(ANYTHING | st.dictionaries(st.sampled_from(["id", "held", "waiting", "path"]), ANYTHING)))
def test_questions_from_elsewhere_break_nothing(told):
    state = State()
    state.apply_questions(told, 1.0)
    assert len(state.asked.all()) == len(state.asked)


# -- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", "abcd"),
        ("denied", "c"),
        ("allow", "abd"),
        ("write", "ac"),
        ("change", "abc"),
        ("-read", "abc"),
        ("change -write", "b"),
        ("-denied", "abd"),
        ("bashrc", "c"),
        ("*rc", "c"),
        ("/w/*", "ab"),
        ("/w/ /h/", "abc"),
        ("-/w/", "cd"),
        ("by:git", "b"),
        ("by:9", "b"),
        ("-by:git", "acd"),
        ("write denied", "c"),
        ("write by:git", ""),
        ("Write DENIED", "c"),
    ],
)
def test_filters(make, words, wanted):
    records = {
        "a": make.intent("/w/a"),
        "b": make.intent("/w/b", "unlink", 9, "/usr/bin/git"),
        "c": make.denied(),
        "d": make.reads(),
    }
    state = applied(*records.values())
    names = {id(record): name for name, record in records.items()}
    assert "".join(names[id(row.record)] for row in Selection(Filter(words)).of(state)) == wanted


@pytest.mark.parametrize("words", ["-", "by:", "-by:"])
def test_a_filter_that_says_nothing_is_a_mistake(words):
    with pytest.raises(Mistake):
        Filter(words)


def test_a_filter_is_a_value():
    assert (
        Filter(" write  denied ") == Filter("write denied") != Filter("write") and len({Filter("a"), Filter("a ")}) == 1
    )


def test_a_selection_follows_what_changes(make):
    """It remembers what it was told of each row, and no longer than the row is as it was."""
    state = State()
    failed = Selection(Filter("failed"))
    intent = make.intent()
    state.apply(intent)
    assert failed.of(state) == []
    state.apply(make.outcome(intent, "EIO"))
    assert len(failed.of(state)) == 1
    named = Selection(Filter("other"))
    assert named.of(state) == []
    state.apply(make.intent("/w/other"))
    assert len(named.of(state)) == 1 and len(state.rows()) == 1


def test_counts_that_no_log_of_ours_has(make):
    state = applied(make.reads(count=10**400), make.reads(count=-5, exe="/bin/x"))
    assert state.counts.reads == 1 << 53


def test_a_maker_numbers_its_records():
    make = Maker()
    assert [make.intent()["seq"], make.denied()["seq"]] == [1, 2]
