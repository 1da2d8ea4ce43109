"""`why` and `profile`: the verdict, the rule, and remedies that work when they are followed."""

from __future__ import annotations

import os
import re
import shlex

import pytest
from support import explanation

from pincer_trace.paths import shipped_profiles

PROFILE = """
description = "for tests"
[[rule]]
effects = ["any"]
paths = ["{workspace}/**"]
verdict = "allow"
reason = "the work tree"
[[rule]]
effects = ["read"]
paths = ["/**/*.pem"]
verdict = "deny"
reason = "a key"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/Makefile"]
verdict = "confirm"
reason = "runs later"
protection = true
[[rule]]
effects = ["change"]
paths = ["/**/Makefile"]
when = "own"
verdict = "allow"
reason = "this session wrote it"
protection = true
"""


@pytest.fixture
def place(program, tmp_path):
    """A work tree with a profile file outside of it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "p.toml").write_text(PROFILE)
    return tree


def ask(program, place, *arguments, profile=None):
    return program("why", *arguments, "-p", profile or str(place.parent / "p.toml"), cwd=place)


def test_allowed(program, place):
    done = ask(program, place, "write", "a")
    assert (done.returncode, done.stderr) == (0, "")
    assert explanation(done) == {
        "": f"allow   write {place}/a",
        "rule": [f"{place.parent}/p.toml:5"],
        "reason": ["the work tree"],
    }


def test_denied_by_a_rule_of_a_file_and_line(program, place):
    done = ask(program, place, "read", "x.pem")
    assert done.returncode == 1
    found = explanation(done)
    assert (found[""], found["reason"]) == (f"deny    read {place}/x.pem", ["a key"])
    assert found["rule"] == [f"{place.parent}/p.toml:10"]


def test_confirm_names_the_condition_and_each_remedy(program, place):
    done = ask(program, place, "write", "Makefile")
    found = explanation(done)
    assert done.returncode == 1 and found[""].startswith("confirm write ")
    assert found["unless"] == [
        f"the run created it, or a directory above it ({place.parent}/p.toml:22: this session wrote it)"
    ]
    assert found["remedy"][0] == "--confirm ask, and then answer with `pincer-trace approve`"
    assert found["remedy"][1].startswith("--confirm auto")
    assert found["remedy"][2:] == [f"--allow-write {place}/Makefile"]


def test_a_lift_without_a_condition_is_named_and_ends_the_protections(program, place):
    """What a protection after it would ask decides nothing any more, and must not read as if it did."""
    mine = place.parent / "mine.toml"
    rule = '[[rule]]\nprotection = true\neffects = ["write"]\npaths = ["/**/Makefile"]\nverdict = "allow"\n'
    mine.write_text(f'extends = "p.toml"\n{rule}reason = "mine"\n')
    done = ask(program, place, "write", "Makefile", profile=str(mine))
    assert (done.returncode, done.stderr) == (0, "")
    assert explanation(done) == {
        "": f"allow   write {place}/Makefile",
        "rule": [f"{place.parent}/p.toml:5"],
        "reason": ["the work tree"],
        "lifted": [f"the protections of that name, by {mine}:5: mine"],
    }


def test_what_no_rule_names(program, place):
    done = ask(program, place, "write", "/elsewhere/x")
    assert done.returncode == 1
    assert explanation(done)["rule"] == ["none of profile p"]


@pytest.mark.parametrize("target", ["Makefile", "/elsewhere/x", "/elsewhere/a b", "/e/it's", "/e/*"])
def test_a_proposed_option_works(program, place, target):
    remedy = explanation(ask(program, place, "write", target))["remedy"][-1]
    assert remedy.startswith("--allow-write ")
    assert ask(program, place, "write", target, *shlex.split(remedy)).returncode == 0


@pytest.mark.parametrize("target", ["x.pem", "/elsewhere/x", "/e/y.pem", '/e/"\\*[1].pem', "/e/é"])
def test_a_proposed_rule_works(program, place, target):
    found = explanation(ask(program, place, "read", target))["remedy"]
    (place.parent / "mine.toml").write_text('extends = "p.toml"\n' + "\n".join(found[1:]))
    assert ask(program, place, "read", target, profile=str(place.parent / "mine.toml")).returncode == 0


def test_the_program_itself_cannot_be_opened(program, place):
    import pincer_trace

    done = ask(program, place, "write", pincer_trace.__file__)
    assert explanation(done)["rule"] == ["built in"] and "--allow-write" not in done.stdout


def test_a_target_is_resolved_as_the_effect_takes_it(program, place):
    (place / "real.pem").write_text("")
    (place / "link").symlink_to("real.pem")
    assert explanation(ask(program, place, "read", "link"))[""] == f"deny    read {place}/real.pem"
    assert explanation(ask(program, place, "unlink", "link"))[""] == f"allow   unlink {place}/link"
    (place / "dir").mkdir()
    (place / "to").symlink_to("dir")
    assert explanation(ask(program, place, "mkdir", "to/new/"))[""] == f"allow   mkdir {place}/dir/new"
    assert explanation(ask(program, place, "unlink", "to/../x"))[""] == f"allow   unlink {place}/x"


@pytest.mark.parametrize("target", [b"/e/\x1b[2J\n\xff", b"\xff.pem", b"/e/\xe2\x80\xae"])
def test_foreign_bytes(program, place, target):
    done = ask(program, place, "write", target)
    assert done.stderr == "" and all(line.isprintable() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fly", "x"], 125, "no effect fly: one of bind, "),
        (["change", "x"], 125, "no effect change: "),
        (["read", ""], 125, "TARGET is empty"),
        (["read"], 125, "Missing argument 'TARGET'"),
        (["read", "x", "--command", "no-such-program"], 125, "no program no-such-program"),
        (["read", "x", "-p", "nope"], 125, "no profile is named 'nope'"),
    ],
)
def test_mistakes(program, arguments, status, message):
    done = program("why", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"pincer-trace: {message}") and done.stderr.count("\n") == 1


def test_a_working_directory_that_is_gone(program, tmp_path):
    (tmp_path / "gone").mkdir()

    def leave():
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")

    for target in ("/x", "x"):
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = program("why", "write", target, preexec_fn=leave)
        assert (done.returncode, done.stderr.count("\n")) == (125, 1)
        assert "the working directory cannot be used: No such file or directory" in done.stderr


def test_profile_list_show_and_check(program, place):
    done = program("profile", "list")
    assert done.returncode == 0 and re.search(r"^default +\S", done.stdout, re.M)
    done = program("profile", "show", str(place.parent / "p.toml"), cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{place}/**" in done.stdout and "the work tree" in done.stdout
    done = program("profile", "check", str(place.parent / "p.toml"), cwd=place)
    assert re.fullmatch(r"\S+p\.toml: fine, 4 rules, digest [0-9a-f]{16}\n", done.stdout)
    done = program("profile", "check", "default")
    shipped = os.path.join(shipped_profiles(), "default.toml")
    with open(shipped) as file:
        number = sum(line.strip() == "[[rule]]" for line in file)
    assert (done.returncode, f": fine, {number} rules," in done.stdout) == (0, True)


def test_a_profile_that_allows_no_exec_is_doubted_and_says_who_refused(program, place):
    (place / "empty.toml").write_text("")
    done = program("profile", "check", "./empty.toml", cwd=place)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "but no rule allows exec: no command can be started under it"
    assert "\nbut" not in program("profile", "check", "default").stdout
    done = program("-p", "./empty.toml", "--", "/bin/true", cwd=place)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (126, "", 1)
    assert re.search(r"; the profile denies exec of /\S+: no rule allows it; log: pincer-trace log \d", done.stderr)
    (place / "named.toml").write_text(
        '[[rule]]\neffects = ["exec"]\npaths = ["/**"]\nverdict = "deny"\nreason = "nothing starts here"\n'
    )
    done = program("-p", "./named.toml", "--", "/bin/true", cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (126, 1)
    assert re.search(r"named\.toml:3 denies exec of /\S+: nothing starts here;", done.stderr)


def test_a_broken_profile_is_told_by_file_line_and_key(program, place):
    (place / "bad.toml").write_text(PROFILE.replace('"confirm"', '"maybe"'))
    for arguments in (["profile", "check", "./bad.toml"], ["why", "read", "x", "-p", "./bad.toml"]):
        done = program(*arguments, cwd=place)
        assert (done.returncode, done.stdout) == (125, "")
        assert re.fullmatch(r"pincer-trace: \S*bad\.toml:17: rule 3: key 'verdict': [^\n]+\n", done.stderr)
