"""`replay`: the same rules decide the same again, other rules differ, and what nobody knows is said to be unknown."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace.errors import UserError
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Facts
from pincer_trace.profile.model import EveryFact
from pincer_trace.review.past import Past
from pincer_trace.review.replay import Replay
from pincer_trace.twin import codes
from pincer_trace.twin.facts import Recording
from pincer_trace.twin.facts import told as rows_of

from .conftest import PROFILE, Made

STRICTNESS = {ALLOW: 0, CONFIRM: 1, DENY: 2}


def replayed(one, text=None, **options):
    """The session decided again by this profile; None: by its own."""
    past = one.past()
    if text is not None:
        (one.base / "new.toml").write_text(text)
    found = Replay(past, past.profile(str(one.base / "new.toml") if text is not None else None, **options))
    found.run()
    return found


def told(groups):
    """The groups in short: effect, name, then, now, how often."""
    return sorted((g.effect, os.path.basename(g.path), g.then, g.now, g.count) for g in groups.values())


def line_of(text, pattern):
    """Where a pattern stands in a profile: the place by which its rule is named."""
    return text[: text.index(pattern)].count("\n") + 1


def rule(paths, verdict, *, effects="change", reason="shut", **more):
    """One more rule."""
    given = {"effects": [effects], "paths": [paths], "verdict": verdict, "reason": reason, **more}
    return "[[rule]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())


def text_of(found):
    return "\n".join("".join(text for text, _ in line) for line in found.lines())


# -- the same profile -----------------------------------------------------------------------------------------


class World(Facts):
    """Random, but consistent facts about one object."""

    def __init__(self, made, danger, changes):
        self.made, self.danger, self.changes = made, danger, changes

    def created_by_tree(self, below):
        return self.made.startswith(below.rstrip(b"/") + b"/")

    def directory_created_by_tree(self, directory, below):
        return directory.startswith(self.made) and self.created_by_tree(below)

    def git_config_changes(self):
        return self.changes

    def git_danger(self):
        return self.danger

    def executable(self):
        return b"/bin/sh"


NAMES = st.sampled_from(
    ["a", "d/a", "d/Makefile", "Makefile", "k.pem", ".git/config", ".git/x", ".vscode/tasks.json", ".vscode",
     "/tmp/of-the-session/a", "/tmp/of-the-session/d/Makefile", "/etc/x"]
)  # fmt: skip
WORLDS = st.builds(
    World,
    made=st.sampled_from([b"/tmp/of-the-session/d", b"/nowhere", b"/"]),
    danger=st.sampled_from(["", None, "a hook"]),
    changes=st.sampled_from([frozenset(), None, frozenset({"core.pager"}), frozenset({"user.name"})]),
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "create", "mkdir", "unlink", "read", "chmod"]), NAMES, WORLDS),
        st.tuples(st.just("truncate"), NAMES, WORLDS, st.booleans()),
        # two names of one thing: to rename it is nothing, and is not judged
        st.tuples(st.just("rename"), NAMES, NAMES, WORLDS, WORLDS, st.booleans()).filter(lambda c: c[1] != c[2]),
        st.tuples(st.just("link"), NAMES, NAMES, WORLDS, WORLDS).filter(lambda c: c[1] != c[2]),
        st.tuples(st.just("symlink"), NAMES, WORLDS),
    ),
    max_size=12,
)


def recorded_as_the_engine_does(one, call, *, votes):
    """Judge a call by the session's own profile, all its parts in turn, and record what came of it."""
    effect, name, *rest = call
    path = one.at(name)
    other = one.at(rest[0]) if effect in ("rename", "link") else b""
    worlds = [world for world in rest if isinstance(world, World)]
    own = (effect, path)
    claims = [(*own, worlds[0])]
    if effect == "truncate" and rest[1]:
        claims.insert(0, ("write", path, worlds[0]))
    if effect == "rename":
        claims += [("rename", other, worlds[1]), ("write", other, worlds[1])]
        if rest[3]:
            claims.append(("unlink", other, worlds[1]))
    if effect == "link":
        claims = [*((each, other, worlds[1]) for each in ("read", "write", "link")), *claims]
    judged, first = [], None
    for asked, where, world in claims:
        recording = Recording(world)
        decision = one.profile.judge(asked, where, recording)
        judged.append((asked, where, recording.rows))
        guarded = one.profile.guarded_below(asked, where) if asked == "symlink" else None
        reason = decision.reason
        if decision.verdict == ALLOW and guarded is not None:
            decision, reason = guarded.decide(), f"below this name: {guarded.reason}"
        rule = decision.rule.source if decision.rule else ""
        left = one.profile.judge(asked, where, EveryFact())
        ballot = (("left", left.verdict, left.rule.source if left.rule else ""), ("right", decision.verdict, rule))
        said = {"rule": rule, "reason": reason, "verdict": decision.verdict}
        if votes:
            said["votes"] = ballot
        if decision.verdict != ALLOW:
            code = codes.NOBODY_TO_ASK if decision.verdict == CONFIRM else codes.POLICY_DENY
            one.deny(asked, where, code=code, facts=rows_of(asked, where, judged[-1:]), **said)
            return
        if first is None or (asked, where) == own:
            first = said
    extra = (
        {"to": os.fsdecode(other)} if effect == "rename" else {"from": os.fsdecode(other)} if effect == "link" else {}
    )
    one.allow(effect, path, extra=extra, facts=rows_of(*own, judged), **first)


@settings(max_examples=200, deadline=None)
@given(calls=CALLS, votes=st.booleans())
def test_the_same_profile_decides_everything_again_as_it_did(calls, votes):
    with tempfile.TemporaryDirectory() as base:
        one = Made(Path(base), PROFILE, "deny")
        try:
            for call in calls:
                recorded_as_the_engine_does(one, call, votes=votes)
            found = replayed(one)
        finally:
            one.ledger.close(0, 0)
    assert not found.differ, told(found.differ)
    doubts = {group.asks for group in found.unknown.values()}
    if votes:
        # of a link, a move or a second name it is not recorded what kind of file it was
        assert doubts <= {
            "whether it is a symbolic link", "whether it is a file that was moved to where it can be read",
        }, told(found.unknown)  # fmt: skip
    assert found.decisions == len(calls) and found.left == 0


# -- another profile ------------------------------------------------------------------------------------------


def test_what_differs_is_grouped_counted_and_told_with_both_rules(made):
    one = made()
    for _ in range(3):
        one.allow("write", one.at("README"))
    one.allow("write", one.at("other"))
    one.ledger.reads([(b"/bin/cat", b"/etc/secret", 1, 2, 40, 1.0, "old.toml:3")])
    one.deny("read", one.at("k.pem"), rule="old.toml:23")
    text = PROFILE.replace("/**/*.pem", "/**/*.key")
    text += rule("/etc/secret", "deny", effects="read")
    text += rule("{workspace}/README", "confirm", effects="write", reason="ask")
    found = replayed(one, text)
    assert told(found.differ) == [
        ("read", "k.pem", "deny", "allow", 1),
        ("read", "secret", "allow", "deny", 40),
        ("write", "README", "allow", "confirm", 3),
    ]
    assert not found.unknown
    new = f"{one.base}/new.toml"
    assert text_of(found).splitlines() == [
        "allow -> confirm",
        f"      3 write    {one.work}/README",
        f"        now   {new}:{line_of(text, '{workspace}/README')}: ask",
        "        then  old.toml:20",
        "allow -> deny",
        "     40 read     /etc/secret",
        f"        now   {new}:{line_of(text, '/etc/secret')}: shut",
        "        then  old.toml:3",
        "deny -> allow",
        f"      1 read     {one.work}/k.pem",
        f"        now   {new}:{line_of(text, '/**')}: reads are open",
        "        then  old.toml:23",
        "45 decisions: 44 would differ",
    ]
    objects = list(found.objects())
    assert [thing["kind"] for thing in objects] == ["differs"] * 3 + ["summary"]
    assert objects[0] == {
        "kind": "differs", "first": 1, "count": 3, "effect": "write", "path": f"{one.work}/README", "then": "allow",
        "now": "confirm", "rule_then": "old.toml:20", "rule": f"{new}:{line_of(text, '{workspace}/README')}",
        "reason": "ask",
    }  # fmt: skip
    assert objects[-1] == {"kind": "summary", "decisions": 45, "same": 1, "differ": 44, "unknown": 0, "left": 0}
    assert json.loads(json.dumps(objects)) == objects


def test_both_ends_of_a_rename_are_judged_and_what_it_brings(made):
    one = made()
    for name, to in (("src", "d/x"), ("d/x", "dst"), ("plain", "other")):
        one.allow("rename", one.at(name), extra={"to": os.fsdecode(one.at(to))})
    found = replayed(one, PROFILE + rule("{workspace}/d/**", "deny", effects="rename"))
    assert told(found.differ) == [("rename", "src", "allow", "deny", 1), ("rename", "x", "allow", "deny", 1)]
    found = replayed(one, PROFILE + rule("{workspace}/d/**", "deny", effects="write"))
    assert told(found.differ) == [("rename", "src", "allow", "deny", 1)]
    found = replayed(one, PROFILE + rule("{workspace}/d/**", "deny", effects="unlink"))
    assert not found.differ
    assert [(group.path, group.asks) for group in found.unknown.values()] == [
        (os.fsdecode(one.at("src")), "whether something was there")
    ]


def test_what_a_rename_replaced_counts_where_it_is_recorded(made):
    one = made()
    there = os.fsdecode(one.at("d/x"))
    judged = [["about", "rename", there], ["about", "write", there]]
    one.allow("rename", one.at("a"), extra={"to": there}, facts=[*judged, ["about", "unlink", there]])
    one.allow("rename", one.at("b"), extra={"to": there}, facts=judged)
    found = replayed(one, PROFILE + rule("{workspace}/d/**", "deny", effects="unlink"))
    assert told(found.differ) == [("rename", "a", "allow", "deny", 1)] and not found.unknown


def test_a_secret_that_moves_to_where_it_can_be_read(made):
    one = made()
    one.deny("rename", one.at("k.pem"), rule=f"{one.file}:{line_of(PROFILE, '/**/*.pem')}")  # the rule for reading it
    one.allow("rename", one.at("old.key"), extra={"to": os.fsdecode(one.at("text"))})
    found = replayed(one)
    assert not found.differ and not found.unknown
    found = replayed(one, PROFILE.replace("*.pem", "*.key"))
    assert told(found.differ) == [("rename", "k.pem", "deny", "allow", 1)]
    assert [group.asks for group in found.unknown.values()] == [
        "whether it is a file that was moved to where it can be read"
    ]


def test_a_second_name_needs_what_the_first_one_does(made):
    one = made()
    one.allow("link", one.at("new"), extra={"from": os.fsdecode(one.at("d/x"))})
    found = replayed(one, PROFILE + rule("{workspace}/d/**", "deny", effects="read"))
    assert told(found.differ) == [("link", "new", "allow", "deny", 1)]


def test_what_a_symbolic_link_would_put_below_a_name(made):
    one = made()
    one.deny("symlink", one.at(".vscode"), rule="old.toml:59", reason="below this name: an editor runs this")
    one.allow("symlink", one.at("e/.idea"))
    one.allow("rename", one.at("x"), extra={"to": os.fsdecode(one.at("e/.idea"))})
    assert replayed(one).summary() == {"decisions": 3, "same": 3, "differ": 0, "unknown": 0, "left": 0}
    found = replayed(one, PROFILE.replace("/**/.vscode/tasks.json", "{workspace}/e/.idea/x"))
    assert told(found.differ) == [("symlink", ".idea", "allow", "deny", 1), ("symlink", ".vscode", "deny", "allow", 1)]
    assert [group.asks for group in found.unknown.values()] == ["whether it is a symbolic link"]


@pytest.mark.parametrize(
    ("effect", "other", "asks"),
    [
        ("write", "read", "whether it was opened to be read, too"),
        ("truncate", "write", "whether it was opened to be written"),
    ],
)
def test_what_an_open_needs_beside(made, effect, other, asks):
    """Records with votes tell all that was judged; those without leave it open."""
    one = made()
    votes = (("left", "allow", "old.toml:20"), ("right", "allow", "old.toml:20"))
    one.allow(effect, one.at("older"))
    one.allow(effect, one.at("alone"), votes=votes)
    one.allow(effect, one.at("both"), votes=votes, facts=[["about", other, os.fsdecode(one.at("both"))]])
    found = replayed(one, PROFILE + rule("{workspace}/*", "deny", effects=other))
    assert told(found.differ) == [(effect, "both", "allow", "deny", 1)]
    assert [(os.path.basename(group.path), group.asks) for group in found.unknown.values()] == [("older", asks)]


# -- what is not known ----------------------------------------------------------------------------------------


def test_what_nobody_asked_then_cannot_be_told(made):
    one = made()
    one.allow("write", one.at("a"))
    one.deny("write", one.at("b"), reason="no rule allows it", rule="")
    text = PROFILE.replace('paths = ["{workspace}/**"]', 'paths = ["{workspace}/d/**"]')
    found = replayed(one, text + rule("{workspace}/*", "allow", when="own"))
    assert not found.differ
    assert told(found.unknown) == [
        ("write", "a", "allow", "allow or deny", 1),
        ("write", "b", "deny", "allow or deny", 1),
    ]
    assert {group.asks for group in found.unknown.values()} == {"whether the run created it, or a directory above it"}
    lines = text_of(found).splitlines()
    assert lines[0] == "cannot be told" and lines[-1] == "2 decisions: nothing differs, 2 cannot be told"
    assert lines[2] == "        asks  whether the run created it, or a directory above it"


def test_a_question_that_does_not_matter_is_no_doubt(made):
    one = made()
    one.allow("write", one.at("a"))
    found = replayed(one, PROFILE + rule("{workspace}/a", "allow", when="own"))
    assert found.summary()["same"] == 1


def test_verdicts_that_are_all_other_ones_differ_whatever_was_not_recorded(made):
    one = made()
    one.allow("write", one.at("a"))
    text = PROFILE + rule("{workspace}/a", "deny", protection=True)
    text += rule("{workspace}/a", "confirm", protection=True, when="git-active")
    found = replayed(one, text)
    assert told(found.differ) == [("write", "a", "allow", "confirm or deny", 1)]
    assert found.unknown == {}
    assert "whether its content makes git run a program" in text_of(found)


def test_recorded_facts_decide_by_other_rules(made):
    one = made()
    one.allow("write", b"/tmp/of-the-session/d/a", facts=[["own", "/tmp/of-the-session/d", True]])
    one.allow("write", b"/tmp/of-the-session/d/b", facts=[["own", "/", False]])
    assert told(replayed(one).differ) == [("write", "b", "allow", "deny", 1)]  # it is not as if it had been allowed
    other = PROFILE.replace('paths = ["{tmp}/**"]\nwhen = "own"', 'paths = ["/tmp/**"]\nwhen = "own"')
    assert told(replayed(one, other).differ) == [("write", "b", "allow", "deny", 1)]


def test_another_name_that_decided(made):
    one = made()
    reason = "it is also /home/u/k.pem: a key"
    one.deny("read", one.at("a"), reason=reason)
    one.deny("read", one.at("b"), reason=reason, facts=[["also", "/home/u/k.pem"]])
    found = replayed(one)
    assert not found.differ
    assert [(os.path.basename(group.path), group.asks) for group in found.unknown.values()] == [
        ("a", "which other name of it is protected")
    ]
    found = replayed(one, PROFILE.replace("/**/*.pem", "/home/u/*.pem"))
    assert not found.differ
    found = replayed(one, PROFILE.replace("/**/*.pem", "/**/*.key"))
    assert told(found.differ) == [("read", "b", "deny", "allow", 1)]


def test_a_part_that_may_have_been_confirmed_then(made):
    """Records without votes tell the verdict of one end only."""
    for confirm, differ, unknown in (("deny", 1, 0), ("auto", 0, 1)):
        one = made(confirm=confirm)
        one.allow("rename", one.at("a"), extra={"to": os.fsdecode(one.at("b"))})
        found = replayed(one, PROFILE + rule("{workspace}/a", "confirm", effects="rename"))
        assert (len(found.differ), len(found.unknown)) == (differ, unknown)


# -- who decided ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(codes.CODES - {
    codes.POLICY_DENY, codes.NOBODY_TO_ASK, codes.REFUSED_BY_PERSON, codes.NOT_ANSWERED, codes.TOO_MANY_QUESTIONS,
    codes.INTENT}))  # fmt: skip
def test_what_no_rule_decided_is_left_as_it_is(made, code):
    one = made()
    one.deny("write", one.at("a"), rule="", reason="odd", code=code)
    one.deny("write", one.at("a"), rule="built-in", reason="odd")
    one.deny("write", one.at("a"), rule="", reason="its name is gone", verdict="confirm")
    one.allow("write", one.at("a"), rule="", reason="the caller holds a descriptor with this access")
    one.ledger.failure("gateway", ValueError(), pid=1)
    assert replayed(one).summary() == {"decisions": 5, "same": 0, "differ": 0, "unknown": 0, "left": 5}


@pytest.mark.parametrize("code", [codes.REFUSED_BY_PERSON, codes.NOT_ANSWERED, codes.INTENT])
def test_what_a_person_or_a_model_said_is_not_what_the_rules_said(made, code):
    one = made()
    votes = (("left", "allow", "old.toml:20"), ("right", "allow", "old.toml:20"), ("intent", "deny", ""))
    one.deny("write", one.at("a"), rule="", reason="it does not serve the task", code=code, votes=votes)
    assert replayed(one).summary() == {"decisions": 1, "same": 1, "differ": 0, "unknown": 0, "left": 0}
    assert told(replayed(one, PROFILE.replace("{workspace}", "/elsewhere")).differ) == [
        ("write", "a", "allow", "deny", 1)
    ]


def test_the_rules_that_protect_pincer_trace_itself_stay(made):
    one = made()
    one.deny("write", os.fsencode(one.base / "own/x"), rule="built in", reason="itself")
    assert replayed(one, rule("/**", "allow", effects="any")).summary()["same"] == 1


# -- options, and what cannot be replayed ----------------------------------------------------------------------


def test_the_sessions_own_options_hold_and_others_are_added(made, monkeypatch):
    one = made(allow_write=["/opt/x"], protect=["secret"])
    one.allow("write", b"/opt/x/f", rule="--allow-write")
    one.deny("read", one.at("secret/f"), rule="--protect")
    assert replayed(one).summary()["same"] == 2
    assert replayed(one, PROFILE).summary()["same"] == 2
    monkeypatch.chdir("/opt")
    assert told(replayed(one, protect=["x"]).differ) == [("write", "f", "allow", "deny", 1)]


def test_the_sessions_own_profile_is_known_by_its_digest(made):
    one = made(allow_write=["/opt/x"])
    past = one.past()
    assert past.is_own(past.profile())
    assert not past.is_own(past.profile(allow_write=["/opt/y"]))
    one.file.write_text(PROFILE.replace("/**/*.pem", "/**/*.key"))
    assert not past.is_own(past.profile())


def test_a_session_of_an_older_version_says_so(made):
    one = made()
    one.past()
    file = Path(one.session.path, "session.json")
    facts = json.loads(file.read_text())
    for broken in ({}, {"judged_by": 1}, {"judged_by": {**facts["judged_by"], "places": {}}}):
        file.write_text(json.dumps({**{k: v for k, v in facts.items() if k != "judged_by"}, **broken}))
        with pytest.raises(UserError, match="an older version"):
            Past(one.session.path)


@pytest.mark.parametrize("evil", ["\ud800", [["x"]], {"a": 1}, 1e300, -1, [1], None, "x\0y"], ids=repr)
def test_a_session_from_elsewhere_is_read_or_refused_in_words(made, evil):
    """Every member of what it says of its run may be anything."""
    one = made()
    one.past()
    file = Path(one.session.path, "session.json")
    facts = json.loads(file.read_text())
    judged = facts["judged_by"]
    changed = [{**facts, member: evil} for member in facts]
    changed += [{**facts, "judged_by": {**judged, member: evil}} for member in judged]
    places = judged["places"]
    changed += [{**facts, "judged_by": {**judged, "places": {**places, member: evil}}} for member in places]
    for wrong in changed:
        file.write_text(json.dumps(wrong))
        try:
            Past(one.session.path).profile()
        except UserError as error:
            assert str(error)


def test_foreign_bytes_are_shown_harmlessly(made):
    one = made()
    name = one.at("x") + b"\n\x1b[2J\xff"
    one.allow("rename", name, extra={"to": os.fsdecode(name)}, rule="old.toml:1\x1b", reason="\x1b")
    text = text_of(replayed(one, PROFILE.replace("{workspace}", "/elsewhere")))
    assert "1 would differ" in text
    assert all(line.isprintable() for line in text.splitlines())
