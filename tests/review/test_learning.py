"""Profiles learned from records: what they allow, what they keep back, and how they are written."""

from __future__ import annotations

import json
import re
import tomllib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pincer_trace.profile import ALLOW, Facts, load
from pincer_trace.review import lessons
from pincer_trace.review.draft import draft
from pincer_trace.review.generalise import MANY, Generaliser
from pincer_trace.review.lessons import Lessons

from .conftest import PROFILE


def learned(*ones, keeps=None):
    """The text of the profile, and what was learned."""
    found = Lessons()
    for one in ones:
        found.add(one.past(), str(keeps or one.file))
    patterns = Generaliser(found).patterns(found.deeds)
    return draft(found, patterns, str(keeps or ones[0].file)), found


def loaded(text, one):
    file = one.base / "new.toml"
    file.write_text(text)
    return load(str(file), one.places)


def kept(text):
    """The commented rules, as TOML would have them, and the lines in front of each."""
    lines = text.partition("# What the runs did")[0].splitlines()
    body = [line[2:] for line in lines if line.startswith("# ")]
    start = next((i for i, line in enumerate(body) if line.startswith("KEPT BACK")), len(body))
    return "\n".join(line for line in body[start:] if line.startswith(("[[", "protection", "effects", "paths", "verd")))


def test_what_was_done_is_allowed_and_nothing_beside_it(made):
    one = made()
    one.allow("create", one.at("out.txt"))
    one.allow("mkdir", one.at("d"))
    one.allow("rename", one.at("a"), extra={"to": str(one.work / "b")})
    one.allow("exec", b"/usr/bin/git", "old.toml:3")
    text, _ = learned(one)
    profile = loaded(text, one)

    def verdict(effect, path):
        return profile.judge(effect, path, Facts()).verdict

    done = [
        ("create", "out.txt"),
        ("write", "out.txt"),
        ("mkdir", "d"),
        ("rename", "a"),
        ("rename", "b"),
        ("unlink", "b"),
    ]
    assert {verdict(effect, one.at(name)) for effect, name in done} == {ALLOW}
    assert verdict("exec", b"/usr/bin/git") == ALLOW
    beside = [("create", "out2.txt"), ("unlink", "out.txt"), ("chmod", "out.txt"), ("mkdir", "e"), ("create", "d/x"),
              ("mkdir", "b")]  # fmt: skip
    assert ALLOW not in {verdict(effect, one.at(name)) for effect, name in beside}
    assert verdict("exec", b"/usr/bin/curl") != ALLOW
    assert verdict("connect", b"//127.0.0.1:80") != ALLOW


def test_many_names_are_a_directory_and_few_are_names(made):
    one = made()
    for number in range(MANY):
        one.allow("create", one.at(f"many/{'abcdefgh'[number]}"))
    for number in range(MANY - 1):
        one.allow("create", one.at(f"few/{'abcdefgh'[number]}"))
    text, _ = learned(one)
    assert '"{workspace}/many/**"' in text
    assert '"{workspace}/few/a"' in text
    assert "few/**" not in text


def test_a_home_is_never_taken_as_a_whole(made):
    one = made(allow_write=["/"])
    for letter in "abcdefghij":
        one.allow("create", one.places.home + b"/" + letter.encode())
        one.allow("create", b"/" + letter.encode())
    text, _ = learned(one)
    assert '"{home}/a"' in text
    assert '"{home}/**"' not in text
    assert '"/**"' not in text


def test_temporary_things_are_allowed_by_pattern_and_changed_only_when_own(made):
    one = made()
    one.allow("mkdir", b"/tmp/of-the-session/tmpzc6_uwiq", "old.toml:8")
    one.allow("create", b"/tmp/of-the-session/tmpzc6_uwiq/x", "old.toml:8")
    facts = [["own", "/tmp/of-the-session", True]]
    one.allow("unlink", b"/tmp/of-the-session/tmpzc6_uwiq/x", "old.toml:13", facts=facts)
    text, found = learned(one)
    assert not found.kept_back
    rules = tomllib.loads(text)["rule"]
    found = {rule.get("when"): set(rule["effects"]) for rule in rules if "{tmp}/tmp????????/**" in rule["paths"]}
    assert found == {None: {"create", "mkdir"}, "own": {"truncate", "unlink", "write"}}


def test_what_stands_against_it_comes_first_commented_out_and_as_a_question(made):
    """A hostile run that everything was allowed to: nothing of what a protection is about is taken over."""
    hostile = """
[[rule]]
effects = ["any"]
paths = ["/**", "//**"]
verdict = "allow"
reason = "all of it"
"""
    other = made(hostile)
    keeps = other.base / "keeps.toml"
    keeps.write_text(PROFILE)
    other.allow("create", other.at("fine"), "old.toml:2")
    other.allow("create", other.at(".vscode/tasks.json"), "old.toml:2")
    other.allow("rename", other.at("x"), "old.toml:2", extra={"to": str(other.work / "sub/Makefile")})
    other.allow("read", other.at("key.pem"), "old.toml:2")
    other.allow("write", b"/etc/crontab", "old.toml:2")
    other.allow("connect", b"//203.0.113.9:443", "old.toml:2")
    text, found = learned(other, keeps=keeps)
    assert len(found.kept_back) >= 5
    first = text.index("KEPT BACK")
    assert first < text.index("# What the runs did")
    assert "[[rule]]" not in "\n".join(
        line for line in text[: text.index("# What the runs did")].splitlines() if line[:1] != "#"
    )
    profile = loaded(text, other)
    hostile_ones = [
        ("create", other.at(".vscode/tasks.json")),
        ("rename", other.at("sub/Makefile")),
        ("write", b"/etc/crontab"),
        ("read", other.at("key.pem")),
        ("connect", b"//203.0.113.9:443"),
    ]
    assert all(profile.judge(effect, path, Facts()).verdict != ALLOW for effect, path in hostile_ones)
    assert profile.judge("create", other.at("fine"), Facts()).verdict == ALLOW
    opened = tomllib.loads(kept(text))["rule"]
    assert {rule["verdict"] for rule in opened} == {"confirm"}
    # what a person takes the marks away from is a question, not an open door
    profile = loaded(text + kept(text).replace('verdict = "confirm"', 'verdict = "confirm"\nreason = "r"'), other)
    assert {profile.judge(effect, path, Facts()).verdict for effect, path in hostile_ones} == {"confirm"}


def test_what_was_refused_is_kept_back(made):
    one = made()
    one.allow("create", one.at("a"))
    one.deny("create", b"/etc/x", "", reason="no rule allows it")
    text, found = learned(one)
    assert [each.path for each in found.kept_back.values()] == [b"/etc/x"]
    assert "refused in that run" in text


def test_no_pattern_covers_what_was_kept_back(made):
    """Ten names in a directory, and one between them that was refused: they are written out."""
    one = made()
    for letter in "abcdefghij":
        one.allow("create", one.at(f"d/{letter}"))
    one.deny("create", one.at("d/evil"), "", reason="no rule allows it")
    text, _ = learned(one)
    profile = loaded(text, one)
    assert profile.judge("create", one.at("d/evil"), Facts()).verdict != ALLOW
    assert profile.judge("create", one.at("d/a"), Facts()).verdict == ALLOW


def test_no_pattern_of_sockets_covers_one_that_was_refused(made):
    """Nor is one allowed that was refused before it was allowed."""
    one = made("""
[[rule]]
effects = ["any"]
paths = ["/**", "//**"]
verdict = "allow"
reason = "all of it"
""")
    refused = (b"/srv/agent-7654321.sock", b"//192.0.2.1:443")
    for peer in refused:
        one.deny("connect", peer, "", reason="no rule allows it")
    for peer in (b"/srv/agent-1234567.sock", b"//192.0.2.1:443", b"//192.0.2.2:443"):
        one.allow("connect", peer, "old.toml:2")
    text, _ = learned(one)
    profile = loaded(text, one)
    assert ALLOW not in {profile.judge("connect", peer, Facts()).verdict for peer in refused}
    for peer in (b"/srv/agent-1234567.sock", b"//192.0.2.2:443"):
        assert profile.judge("connect", peer, Facts()).verdict == ALLOW


def test_no_crowd_of_refusals_hides_one_from_the_patterns(made):
    """The same after more refusals than are told apart: nothing is taken as a whole any more."""
    one = made()
    for letter in "abcdefghij":
        one.allow("create", one.at(f"d/{letter}"))
    for number in range(lessons._MOST_KEPT_BACK):
        one.deny("create", b"/etc/%d" % number, "", reason="no rule allows it")
    one.deny("create", one.at("d/evil"), "", reason="no rule allows it")
    one.deny("create", one.at("d/j"), "", reason="no rule allows it, any more")
    text, _ = learned(one)
    profile = loaded(text, one)
    verdicts = [profile.judge("create", one.at(f"d/{name}"), Facts()).verdict for name in ("a", "evil", "j")]
    assert [verdict == ALLOW for verdict in verdicts] == [True, False, False]
    assert "each name is written out" in text


def test_two_runs_make_one_profile(made):
    one = made()
    one.allow("create", one.at("a"))
    two = made()
    two.allow("create", two.at("b"))
    text, _ = learned(one, two)
    assert "2 recorded runs" in text
    profile = loaded(text, two)
    assert {profile.judge("create", two.at(name), Facts()).verdict for name in "ab"} == {ALLOW}


PIECES = [
    b"\n", b'"', b"'", b"\\", b"#", b"[[rule]]", b"{a,b}", b"*", b"?", b"[", b"]", b"!", b"\x1b[2J", b"\xff", b"\r",
    b"\t", b"\x7f", b" ", b"a", b"\xc3\xa9", b"\xed\xa0\x80", "\u202e\u0301\u2028".encode(),
]  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(b"".join)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_p53_a_hostile_name_ends_no_string_and_no_comment(made, names):
    """Each line is a comment, or TOML that says just what it should; a name stands for itself and for nothing else."""
    one = made()
    for name in names:
        one.allow("create", one.at("d") + b"/" + name, exe=b"/bin/" + name)
        one.deny("create", one.at("d") + b"/" + name + b"/x", "", reason="no rule allows it")
    text, _ = learned(one)
    assert all(line.isprintable() for line in text.splitlines())
    tree = tomllib.loads(text)
    assert set(tree) == {"description", "protections", "rule"}
    assert {rule["verdict"] for rule in tree["rule"]} == {"allow"}
    profile = loaded(text, one)
    for name in names:
        assert profile.judge("create", one.at("d") + b"/" + name, Facts()).verdict == ALLOW
        assert profile.judge("create", one.at("d") + b"/" + name + b"/x", Facts()).verdict != ALLOW
    assert profile.judge("create", one.at("d/other"), Facts()).verdict != ALLOW
    assert tomllib.loads(kept(text))["rule"]


def test_learned_checked_and_compared_on_the_command_line(made, program, tmp_path):
    one = made()
    one.allow("exec", b"/usr/bin/agent", "old.toml:3")
    one.allow("create", one.at("out.txt"))
    one.deny("read", one.at("key.pem"))
    one.past()
    session, new = one.session.path, tmp_path / "new.toml"
    done = program("profile", "learn", session, "--protections", one.file, "-o", new)
    assert (done.returncode, done.stdout) == (0, ""), done
    assert done.stderr == f"pincer-trace: {new}: 2 patterns from 3 decisions; 1 thing kept back, commented out\n"
    assert program("profile", "learn", session, "--protections", one.file).stdout == new.read_text()

    done = program("profile", "learn", session, "-o", new)
    assert (done.returncode, done.stdout) == (125, "")
    assert "is there already" in done.stderr

    done = program("profile", "check", new, session)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[1:] == [one.id, "2 allowed decisions: all would pass"]

    narrow = tmp_path / "narrow.toml"
    narrow.write_text(new.read_text().replace("out.txt", "other.txt"))
    done = program("profile", "check", narrow, session)
    assert done.returncode == 1
    assert "allow -> deny" in done.stdout
    assert str(one.at("out.txt").decode()) in done.stdout
    assert done.stdout.splitlines()[-1] == "2 allowed decisions: 1 would be refused or asked about"
    (told, summary) = map(json.loads, program("profile", "check", narrow, session, "--json").stdout.splitlines())
    assert (told["path"], told["now"], summary["differ"]) == (one.at("out.txt").decode(), "deny", 1)

    line = 1 + [line.strip()[:22] for line in new.read_text().splitlines()].index('"{workspace}/out.txt",')
    done = program("profile", "diff", new, narrow, cwd=one.work)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "deny -> allow",
        f"    create, truncate, write  (no rule -> {narrow}:{line})",
        f"        {one.work}/other.txt",
        "allow -> deny",
        f"    create, truncate, write  ({new}:{line} -> no rule)",
        f"        {one.work}/out.txt",
    ]
    open_too = one.base / "open.toml"
    open_too.write_text(
        new.read_text() + '[settings]\nudp = "unpoliced"\n[[pass_env]]\nnames = ["X_TOKEN"]\nreason = "x"\n'
    )
    done = program("profile", "diff", new, open_too, cwd=one.work)
    assert done.returncode == 1, done.stderr
    assert re.match(r"settings: udp \w+ -> unpoliced\npass_env: \+ X_TOKEN\nnothing is decided ", done.stdout), (
        done.stdout
    )
    labelled = one.base / "labelled.toml"
    labelled.write_text(
        new.read_text() + '[[rule]]\neffects = ["read"]\npaths = ["{home}/for-cat"]\n'
        'exe = ["/usr/bin/cat"]\nverdict = "allow"\nreason = "x"\n'
    )
    done = program("profile", "diff", new, labelled, cwd=one.work)
    assert done.returncode == 1, done
    assert done.stdout.splitlines()[0] == "deny -> allow, for /usr/bin/cat", done.stdout
    assert done.stdout.splitlines()[2].strip().endswith("/for-cat")
    done = program("profile", "diff", new, new)
    assert (done.returncode, done.stdout) == (0, "nothing is decided differently\n")


def test_what_a_check_passes_needs_no_option_of_that_run(made, program):
    """The run had --allow-write; the profile is asked by itself."""
    one = made(allow_write=["/srv/data"])
    one.allow("write", b"/srv/data/x", "--allow-write", reason="allowed by --allow-write")
    one.past()
    assert program("replay", one.session.path, "-p", one.file).returncode == 0
    done = program("profile", "check", one.file, one.session.path)
    assert done.returncode == 1
    assert "/srv/data/x" in done.stdout
