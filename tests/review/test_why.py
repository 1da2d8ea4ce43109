"""`why SEQ`: a recorded decision explained, and remedies that work when they are followed."""

from __future__ import annotations

import json
import os
import shlex

import pytest
from support import explanation

from pincer_trace.twin import codes

from .conftest import PROFILE
from .test_replay import line_of


def ask(program, one, number, *more, **how):
    one.ledger.close(0, 0)
    return program("why", number, one.session.path, *more, **how)


def votes(left, right, rule="old.toml:20"):
    return (("left", left, rule), ("right", right, rule))


def test_an_effect_that_was_done(made, program):
    one = made()
    facts = [["git-danger", ""], ["about", "write", "/b"], ["own", "/tmp", False]]
    number = one.allow("rename", one.at(".git/a"), extra={"to": "/b"}, facts=facts, votes=votes("allow", "allow"))
    done = ask(program, one, number)
    assert (done.returncode, done.stderr) == (0, "")
    found = explanation(done)
    assert found[""] == f"allow   rename {one.work}/.git/a -> /b"
    assert found["record"][0].startswith(f"1 of {one.id}, ") and found["record"][0].endswith(" by /bin/sh (7)")
    assert found["votes"] == ["left allow (old.toml:20)", "right allow (old.toml:20)"]
    assert (found["rule"], found["reason"], found["done"]) == (["old.toml:20"], ["the work tree"], ["yes"])
    assert found["fact"] == [
        "its content makes git run nothing",
        "write /b: the run created neither it nor a directory above it below /tmp",
    ]
    assert "remedy" not in found


def test_outcomes_in_words(made, program):
    one = made()
    failed = one.ledger.intent("write", b"/a", verdict="allow", rule="r", reason="", **one.subject())
    one.ledger.outcome(failed, 28)
    lost = one.ledger.intent("write", b"/b", verdict="allow", rule="r", reason="", **one.subject())
    one.ledger.reads([(b"/bin/cat", b"/etc/passwd", 1, 2, 12, 1.0, "old.toml:3")])
    refused = one.deny("read", one.at("k.pem"), native=True)
    seen = one.ledger.intent("mkdir", b"/c", verdict="allow", rule="r", reason="", **one.subject())
    one.ledger.outcome(seen, 0, "the entry is the pinned inode")
    assert explanation(ask(program, one, failed))["done"] == ["no: the kernel answered ENOSPC"]
    assert explanation(ask(program, one, lost))["done"] == ["not known: the run was killed before it told, or goes on"]
    assert explanation(ask(program, one, lost + 1))["done"] == ["it was read 12 times"]
    assert explanation(ask(program, one, refused))["done"][0].startswith(
        "nothing: the caller got EACCES; the kernel refuses"
    )
    assert explanation(ask(program, one, seen))["after"] == ["the entry is the pinned inode"]


CONFIRMED = {"verdict": "confirm", "rule": "old.toml:25", "reason": "runs later"}


def test_who_allowed_what_wanted_a_confirmation(made, program):
    one = made()
    by = {"uid": 1, "pid": 77, "exe": b"/bin/sh"}
    said = {"question": 1, "key": "0", "answer": "session", "by": by, "effect": "write", "path": b"/w/\x1b"}
    number = one.ledger.answer(said)
    asked = one.allow("write", b"/w/\x1b", extra={"confirmed": [number]}, **CONFIRMED)
    both = one.allow("rename", b"/w/a", extra={"to": "/w/b", "confirmed": [number, 99]}, **CONFIRMED)
    auto = one.allow("write", b"/w/c", extra={"confirmed": "auto"}, **CONFIRMED)
    assert explanation(ask(program, one, asked))["answer"] == [f"allowed by a person (record {number})"]
    assert explanation(ask(program, one, both))["answer"] == [f"allowed by a person (records {number}, 99)"]
    assert explanation(ask(program, one, auto))["answer"] == ["allowed by --confirm auto"]
    log = program("log", one.session.path).stdout
    assert f"       confirm: old.toml:25: runs later: allowed by a person (record {number})\n" in log
    assert "       confirm: old.toml:25: runs later: allowed by --confirm auto\n" in log
    done = ask(program, one, number)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"record {number} of {one.id} is a person's answer: allowed for the session at " in done.stderr
    assert done.stderr.endswith(r" by process 77: write /w/\x1b" + "\n")


@pytest.mark.parametrize("odd", [[], [None, "x", True], {}, 7, "me"])
def test_an_odd_confirmation_is_none(made, program, odd):
    one = made()
    number = one.allow("write", b"/w/a", extra={"confirmed": odd}, **CONFIRMED)
    assert "answer" not in explanation(ask(program, one, number))


def test_a_vote_that_is_the_models_does_not_say_no_rule(made, program):
    one = made()
    said = (("left", "allow", "old.toml:20"), ("right", "deny", ""), ("intent", "deny", "not the task"))
    number = one.deny("write", one.at("x"), rule="", reason="so", code=codes.INTENT, votes=said)
    assert explanation(ask(program, one, number))["votes"] == [
        "left allow (old.toml:20)", "right deny (as the model says)", "intent deny (not the task)",
    ]  # fmt: skip


def test_a_refusal_names_what_would_allow_it_and_that_works(made, program):
    one = made()
    source = f"{one.file}:{line_of(PROFILE, '/**/Makefile')}"
    number = one.deny(
        "write", one.at("d/Makefile"), rule=source, verdict="confirm", reason="runs later", code=codes.NOBODY_TO_ASK,
        facts=[["own-directory", os.fsdecode(one.at("d")), "/", False]],
        votes=votes("allow", "confirm"),
    )  # fmt: skip
    done = ask(program, one, number)
    found = explanation(done)
    assert done.returncode == 1 and found[""] == f"confirm write {one.work}/d/Makefile"
    assert (found["code"], found["rule"]) == (["NOBODY_TO_ASK"], [source])
    assert found["votes"] == ["left allow (old.toml:20)", "right confirm (old.toml:20)"]
    assert found["unless"][0].startswith("the run created a directory above the one that the rule is about (")
    assert [line.split(",")[0] for line in found["remedy"][:2]] == ["--confirm ask", "--confirm auto"]
    option = shlex.split(found["remedy"][2])
    assert option[0] == "--allow-write"
    again = program("replay", one.session.path, *option, "--json")
    assert again.returncode == 1
    group = json.loads(again.stdout.splitlines()[0])
    assert (group["then"], group["now"], group["rule"]) == ("confirm", "allow", "--allow-write")


def test_a_refused_read_is_allowed_by_the_rule_that_is_proposed(made, program):
    one = made()
    number = one.deny("read", one.at("k.pem"), code=codes.POLICY_DENY)
    found = explanation(ask(program, one, number))
    assert found["remedy"][0] == "in a profile of your own that has extends = 'old':"
    mine = one.base / "mine.toml"
    mine.write_text(f"extends = {json.dumps(str(one.file))}\n" + "\n".join(found["remedy"][1:]))
    again = program("replay", one.session.path, "-p", "./mine.toml", cwd=one.base)
    assert again.returncode == 1 and again.stdout.splitlines()[0] == "deny -> allow"


@pytest.mark.parametrize("code", sorted(codes.CODES))
def test_every_code_says_what_to_do(made, program, code):
    one = made()
    by_rule = code in (codes.POLICY_DENY, codes.NOBODY_TO_ASK)
    rule = "old.toml:23" if by_rule else ""
    path = one.at("k.pem") if by_rule else one.at("text")
    number = one.deny("read", path, rule=rule, reason="so", code=code, votes=votes("allow", "allow"))
    found = explanation(ask(program, one, number))
    assert found["code"] == [code] and found["remedy"][0]
    assert ("[[rule]]" in found["remedy"]) == by_rule


def test_a_failure_of_the_supervisor(made, program):
    one = made()
    number = one.ledger.failure("gateway", ValueError("odd"), pid=3)
    found = explanation(ask(program, one, number))
    assert found["code"] == ["SUPERVISOR_FAILURE"] and "PINCER_TRACE_DEBUG" in found["remedy"][0]
    assert found["done"] == ["nothing: the caller got EACCES"]


def test_a_profile_that_has_changed_or_is_gone_is_no_guide(made, program):
    one = made()
    number = one.deny("read", one.at("k.pem"), code=codes.POLICY_DENY)
    one.file.write_text(PROFILE.replace("/**/*.pem", "/**/*.key"))
    found = explanation(ask(program, one, number))
    assert "remedy" not in found and "is not what it was in that run" in found["note"][0]
    one.file.unlink()
    found = explanation(ask(program, one, number))
    assert "remedy" not in found and f"{one.file} cannot be read" in found["note"][0]


def test_what_a_rule_asks_and_nobody_recorded(made, program):
    one = made()
    number = one.deny("write", one.at("d/Makefile"), verdict="confirm", code=codes.NOBODY_TO_ASK, rule="old.toml:30")
    found = explanation(ask(program, one, number))
    assert found["note"] == [
        f"a rule asks whether the run created {one.work}/d, or a directory above that, which is not recorded"
    ]


def test_numbers_that_are_no_decision(made, program):
    one = made()
    one.allow("write", one.at("a"))
    for number, said in ((2, "is the outcome of record 1"), (3, "the line `end`"), (99, "its last one is 4")):
        done = ask(program, one, number)
        assert (done.returncode, done.stdout) == (125, "")
        assert said in done.stderr and done.stderr.count("\n") == 1


def test_alone_it_explains_the_last_refusal(made, program):
    one = made()
    where = ("--session-dir", os.path.dirname(one.session.path))
    one.allow("write", one.at("a"))
    nothing = program("why", *where)
    assert (nothing.returncode, nothing.stdout, nothing.stderr.count("\n")) == (125, "", 1)
    assert "nothing was refused" in nothing.stderr
    one.deny("write", one.at("b"))
    one.deny("write", one.at("c"))
    one.deny("write", one.at("known"), expected=True)
    one.allow("write", one.at("d"))
    one.ledger.close(0, 0)
    done = program("why", *where)
    assert done.returncode == 1 and explanation(done)[""].split() == ["deny", "write", f"{one.work}/c"]


@pytest.mark.parametrize(
    "option", [("-p", "default"), ("--protect", "/x"), ("--allow-write", "/x"), ("--command", "ls")]
)
def test_options_that_are_about_no_record(made, program, option):
    one = made()
    done = ask(program, one, 1, *option)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert "is not for a record" in done.stderr


def test_foreign_bytes_are_shown_harmlessly(made, program):
    one = made()
    nasty = "\x1b[2J\n\udcff"
    facts = [["own-directory", nasty, nasty, True], ["git-danger", nasty], ["git-config", [nasty]], ["also", nasty],
             ["about", nasty, nasty], ["exe", nasty], ["trusted-exe", nasty]]  # fmt: skip
    number = one.allow(
        "rename", nasty.encode("utf-8", "surrogateescape"), rule=nasty, reason=nasty, extra={"to": nasty},
        exe=nasty.encode("utf-8", "surrogateescape"), facts=facts, votes=(("left", "allow", nasty),),
    )  # fmt: skip
    done = ask(program, one, number)
    assert done.returncode == 0
    assert all(line.isprintable() for line in done.stdout.splitlines())


# -- replay on the command line, and votes in the log -----------------------------------------------------------


def test_replay_tells_by_its_status_whether_something_differs(made, program):
    one = made()
    one.allow("write", one.at("a"))
    one.ledger.close(0, 0)
    done = program("replay", one.session.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 decision: nothing differs\n", "")
    done = program("replay", one.session.path, "--protect", one.work / "a")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "1 decision: 1 would differ"
    done = program("replay", one.session.path, "--protect", "a", "--json", cwd=one.work)
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["differs", "summary"]
    for wrong in (["-p", "nope"], ["--protect", ""], ["x", "y"]):
        done = program("replay", one.session.path, *wrong)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)


def test_replay_tells_of_torn_lines(made, program):
    one = made()
    one.allow("write", one.at("a"))
    one.ledger.close(0, 0)
    with open(os.path.join(one.session.path, "ledger.jsonl"), "ab") as file:
        file.write(b"{")
    done = program("replay", one.session.path)
    assert done.returncode == 0 and "line 5 of the ledger is torn (1 bytes)" in done.stderr


def test_the_log_shows_votes_where_they_differ_and_json_all_that_was_recorded(made, program):
    one = made()
    one.allow("write", one.at("a"), votes=votes("allow", "allow"), action=b"\x01" * 16, request=b"\x02" * 32)
    more = {"votes": votes("allow", "deny"), "facts": [["own", "/", False]], "code": codes.OBSERVATION_MISMATCH}
    one.deny("write", one.at("b"), rule="", reason="another directory", **more)
    one.allow("write", one.at("c"), votes=(("left", "allow", "r"), ("right", "confirm", "s")), verdict="confirm")
    one.ledger.close(0, 0)
    lines = program("log", one.session.path).stdout.splitlines()
    assert [line[:7].strip() for line in lines] == ["SEQ", "1", "3", "", "", "4", ""]
    assert lines[4] == " " * 7 + "left allow (old.toml:20), right deny (old.toml:20)"
    assert lines[6] == " " * 7 + "left allow (r), right confirm (s)"
    found = [json.loads(line) for line in program("log", "--json", one.session.path).stdout.splitlines()]
    assert found[0]["votes"] == [
        {"by": "left", "verdict": "allow", "rule": "old.toml:20"},
        {"by": "right", "verdict": "allow", "rule": "old.toml:20"},
    ]
    assert (found[0]["action"], found[0]["request"]) == ("01" * 16, "02" * 32)
    assert (found[1]["code"], found[1]["facts"]) == ("OBSERVATION_MISMATCH", [["own", "/", False]])
