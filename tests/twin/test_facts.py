"""What rules asked: noted, written as JSON, read back, and asked again."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pincer_trace.ledger.encode import encode
from pincer_trace.profile import Facts
from pincer_trace.profile.gitconfig import danger
from pincer_trace.twin.facts import Recorded, Recording, Unknown, told

ABOUT = ("write", b"/w/.git/config")


class Observed(Facts):
    """Answers as an engine would give them, and counts the questions."""

    def __init__(self, *, made: bytes = b"/tmp/d", changes=frozenset(), danger="", program=b"/usr/bin/git"):
        self.made, self.changes, self.danger, self.program = made, changes, danger, program
        self.asked = 0

    def created_by_tree(self, below):
        self.asked += 1
        return self.made != below and self.made.startswith(below.rstrip(b"/") + b"/")

    def directory_created_by_tree(self, directory, below):
        self.asked += 1
        return directory.startswith(self.made) and self.created_by_tree(below)

    def git_config_changes(self):
        self.asked += 1
        return self.changes

    def git_danger(self):
        self.asked += 1
        return self.danger

    def executable(self):
        self.asked += 1
        return self.program

    def trusted_executable(self):
        self.asked += 1
        return b""


def through_json(*judged, effect=ABOUT[0], path=ABOUT[1]):
    """The rows as somebody reads them from a ledger; `judged` are recordings of that very effect, or with another."""
    rows = [(*ABOUT, one.rows) if isinstance(one, Recording) else one for one in judged]
    return json.loads(encode(told(effect, path, rows)))


def asked_all(facts, below=b"/tmp", directory=b"/tmp/d/e"):
    return (
        facts.created_by_tree(below),
        facts.directory_created_by_tree(directory, below),
        facts.git_config_changes(),
        facts.git_danger(),
        facts.executable(),
        facts.trusted_executable(),
    )


@pytest.mark.parametrize(
    "facts",
    [
        Observed(),
        Observed(made=b"/home/u", changes=None, danger=None),
        Observed(changes=frozenset({"core.pager", "user.name"}), danger="core.pager: git runs what it names"),
        Observed(program=b"/\xff\n"),
    ],
)
def test_every_answer_comes_back(facts):
    recording = Recording(facts)
    said = asked_all(recording)
    assert said == asked_all(facts)
    rows = through_json(recording)
    assert [row[0] for row in rows] == ["own", "own-directory", "git-config", "git-danger", "exe", "trusted-exe"]
    assert asked_all(Recorded(rows)) == said


def test_the_rows_are_the_ones_that_are_documented():
    recording = Recording(Observed(changes=frozenset({"user.name"})))
    asked_all(recording, b"/tmp", b"/tmp/d")
    assert through_json(recording) == [
        ["own", "/tmp", True],
        ["own-directory", "/tmp/d", "/tmp", True],
        ["git-config", ["user.name"]],
        ["git-danger", ""],
        ["exe", "/usr/bin/git"],
        ["trusted-exe", ""],
    ]


def test_a_question_is_looked_up_once():
    facts = Observed(danger="a hook")
    recording = Recording(facts)
    assert [recording.git_danger(), recording.git_danger()] == ["a hook", "a hook"]
    assert (facts.asked, len(recording.rows)) == (1, 1)


def test_two_answers_of_two_objects_by_one_name_are_none():
    """Such as of an exchange, where one object comes to the name that another one leaves."""
    one, other = Recording(Observed(danger="", made=b"/x/y")), Recording(Observed(danger="a hook"))
    for recording in (one, other):
        recording.git_danger()
        recording.created_by_tree(b"/tmp")
    facts = Recorded(through_json(one, other))
    with pytest.raises(Unknown):
        facts.git_danger()
    with pytest.raises(Unknown):
        facts.created_by_tree(b"/tmp")
    assert Recorded(through_json(one, one)).git_danger() == ""


def test_answers_about_another_name_are_kept_apart():
    here, there = ("rename", b"/w/a"), ("rename", b"/w/b")
    one, other = Recording(Observed(made=b"/x")), Recording(Observed(made=b"/w/a"))
    one.created_by_tree(b"/w")
    other.created_by_tree(b"/w")
    judged = [(*there, other.rows), ("write", b"/w/b", []), (*here, one.rows)]
    rows = through_json(*judged, effect=here[0], path=here[1])
    assert rows == [["own", "/w", False], ["about", "rename", "/w/b"], ["own", "/w", True], ["about", "write", "/w/b"]]
    assert not Recorded(rows).created_by_tree(b"/w")
    assert Recorded(rows, about=there).created_by_tree(b"/w")
    with pytest.raises(Unknown):
        Recorded(rows, about=("write", b"/w/b")).created_by_tree(b"/w")


def test_a_directory_with_many_names_makes_no_long_record():
    judged = [("rename", b"/w/%d" % number, [["own", "/w", False]]) for number in range(100_000)]
    rows = through_json(*judged, effect="rename", path=b"/w/99999")
    assert rows[0] == ["own", "/w", False] and len(rows) < 40


def test_another_name_of_the_object_is_told():
    recording = Recording(Observed())
    recording.also(b"/home/u/.ssh/\xff")
    rows = through_json(recording)
    assert Recorded(rows).also == (b"/home/u/.ssh/\xff",)
    assert Recorded(rows, about=("read", b"/")).also == ()


def test_what_was_not_asked_is_not_made_up():
    facts = Recorded([])
    for ask, answers in (
        (lambda: facts.created_by_tree(b"/"), (True, False)),
        (lambda: facts.directory_created_by_tree(b"/a", b"/"), (True, False)),
        (facts.git_config_changes, (frozenset(), None)),
        (facts.git_danger, ("", Facts().git_danger(), None)),
        (facts.executable, ()),
        (facts.trusted_executable, ()),
    ):
        with pytest.raises(Unknown) as unknown:
            ask()
        assert unknown.value.answers == answers
        if answers:
            known = Recorded([], assumed={unknown.value.question: answers[0]})
            name = {"own": "created_by_tree", "own-directory": "directory_created_by_tree"}.get(
                unknown.value.question[0], unknown.value.question[0].replace("-", "_")
            )
            arguments = [text.encode() for text in unknown.value.question[1:]]
            name = "git_config_changes" if name == "git_config" else name
            assert getattr(known, name)(*arguments) == answers[0]


PATHS = st.lists(st.sampled_from([b"a", b"b"]), max_size=4).map(lambda parts: b"/" + b"/".join(parts))


@given(made=PATHS, known=st.lists(PATHS, max_size=3), asked=PATHS)
@example(made=b"/a/b", known=[b"/a"], asked=b"/")
@example(made=b"/a/b", known=[b"/a/b"], asked=b"/a/b/a")
def test_an_answer_for_another_place_is_only_inferred_where_it_must_be_so(made, known, asked):
    truth = Observed(made=made)
    recording = Recording(truth)
    for below in known:
        recording.created_by_tree(below)
    try:
        said = Recorded(through_json(recording)).created_by_tree(asked)
    except Unknown:
        assert asked not in known
    else:
        assert said == truth.created_by_tree(asked)


def test_a_program_is_the_records_own_and_believed_by_the_profile_that_asks():
    rows = [["exe", "/usr/bin/other"], ["trusted-exe", "/usr/bin/other"]]
    facts = Recorded(rows, executable=b"/w/git", is_closed=lambda path: path.startswith(b"/usr/"))
    assert (facts.executable(), facts.trusted_executable()) == (b"/w/git", b"")
    facts = Recorded(rows, executable=b"/usr/bin/git", is_closed=lambda path: path.startswith(b"/usr/"))
    assert facts.trusted_executable() == b"/usr/bin/git"


@given(
    st.frozensets(
        st.one_of(
            st.sampled_from(["core.pager", "user.name", "alias.x"]),
            st.builds("submodule.{}.update".format, st.text(max_size=300)),
            st.builds(
                "http.{}.{}".format, st.text(max_size=300), st.sampled_from(["proxy", "sslverify", "postbuffer"])
            ),
            st.builds("branch.x{:05}.merge".format, st.integers(0, 99999)),
        ),
        max_size=120,
    )
)
@example(frozenset(f"branch.x{number}.merge" for number in range(5000)) | {"zz.zz", "core.sshcommand"})
@example(frozenset({"submodule." + "x" * 100_000 + ".update"}))
def test_a_large_configuration_stays_short_and_as_dangerous_as_it_was(changes):
    recording = Recording(Observed(changes=changes))
    recording.git_config_changes()
    rows = through_json(recording)
    assert len(encode(rows)) < 40 * 200 * 6 + 100
    back = Recorded(rows).git_config_changes()
    assert any(danger(key.lower()) for key in back) == any(danger(key.lower()) for key in changes)
    if len(changes) > 40:
        assert rows[0][2] == len(changes)


@pytest.mark.parametrize(
    "rows",
    [[1], [[]], [["own"]], [["own", 1, True]], [["own", "/", "yes"]], [["git-config", [1]]], [["git-danger", 7]],
     [["exe", None]], ["own"], [["about"]], [["also", 3]], [["own", "/tmp", True], ["own", "/tmp", False]]],
)  # fmt: skip
def test_damaged_rows_answer_nothing(rows):
    facts = Recorded(rows)
    for ask in (lambda: facts.created_by_tree(b"/tmp"), facts.git_config_changes, facts.git_danger, facts.executable):
        with pytest.raises(Unknown):
            ask()


@pytest.mark.parametrize("bound", [True, False])
def test_whether_a_socket_was_bound_comes_back(bound):
    class Socket(Facts):
        def bound_by_tree(self):
            return bound

    recording = Recording(Socket())
    assert recording.bound_by_tree() is bound
    rows = through_json(("connect", b"/s", recording.rows), effect="connect", path=b"/s")
    assert rows == [["bound", bound]]
    assert Recorded(rows).bound_by_tree() is bound
    with pytest.raises(Unknown) as caught:
        Recorded([]).bound_by_tree()
    assert caught.value.answers == (True, False)
