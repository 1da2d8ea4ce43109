"""`pending`, `approve` and `deny`: real client processes and a real channel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pincer_trace.channel import Channel
from pincer_trace.profile import Facts, load
from pincer_trace.twin.grants import Grants
from pincer_trace.twin.staging import staged_name

from .conftest import NASTY
from .house import fails

# -- the commands ----------------------------------------------------------------------------------------------------


def test_nothing_waits(house, program):
    done = program("pending")
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing waits for an answer\n", "")
    assert program("pending", "--json").stdout == ""


def test_pending_tells_what_a_person_must_know(house, program):
    house.ask()
    house.ask(token=2)
    house.ask(b"/w/settings.json.tmp.12.abcdef", "rename", to=b"/w/settings.json", covers=b"settings.json.tmp.*.*")
    done = program("pending")
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\d\d s left", "NN s left", done.stdout)
    assert text == (
        f"session {house.session.id}\n"
        "   1 write /w/x\n"
        "     by /usr/bin/node (process 77), asked 2 times\n"
        "     reason: it runs later (default.toml:9)\n"
        "     NN s left, then it is denied\n"
        "   2 rename /w/settings.json.tmp.12.abcdef -> /w/settings.json\n"
        "     by /usr/bin/node (process 77)\n"
        "     reason: it runs later (default.toml:9)\n"
        "     a yes covers settings.json.tmp.*.* in that directory: a name to save under\n"
        "     NN s left, then it is denied\n"
        "answer: pincer-trace approve ID, or deny ID\n"
    )


def test_p53_names_are_harmless_and_whole(house, program):
    path = NASTY + b"/" + b"d" * 3000 + b"/end\x1b[1A[/bold]"
    house.ask(path, to=NASTY, exe=NASTY, reason="x\x1b[2J\u202e\nanswer: yes")
    plain = program("pending")
    assert plain.stdout.replace("\n", "").isprintable() and len(plain.stdout.splitlines()) == 6
    assert "/end\\x1b[1A[/bold]" in plain.stdout, "the end of a long name is what matters"
    as_json = program("pending", "--json").stdout
    assert as_json.isascii() and as_json.replace("\n", "").isprintable()
    (question,) = map(json.loads, as_json.splitlines())
    assert question["path"].encode("utf-8", "surrogateescape") == path
    assert (question["session"], question["id"], question["waiting"]) == (house.session.id, 1, 1)
    done = program("approve", "1")
    assert done.stdout.rstrip("\n").isprintable() and done.returncode == 0


def test_approve_once_and_the_retry_passes(house, program):
    house.ask(token="a")
    done = program("approve", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "allowed once: write /w/x; 1 held call goes on\n"
    (resumed,) = house.questions.take()
    assert (resumed.token, resumed.yes, house.woken) == ("a", True, 1)
    assert house.ask(token="b").kind == "once"


def test_who_answered_is_in_the_record(house, program):
    house.ask()
    command = subprocess.Popen(program.command("approve", "1"), env=program.environ, stdout=subprocess.PIPE)
    command.communicate(timeout=60)
    (line,) = house.lines
    exe = os.fsencode(os.path.realpath(sys.executable))
    assert line["by"] == {"uid": os.getuid(), "pid": command.pid, "exe": exe}
    assert (line["question"], line["answer"], line["effect"], line["path"]) == (1, "once", "write", b"/w/x")


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["approve", "1", "--for", "once"], "once", "allowed once: write /w/x; 2 held calls go on\n"),
        (["approve", "1", "--for", "session"], "session", "allowed for the session: write /w/x; 2 held calls go on\n"),
        (["deny", "1"], "deny", "denied: write /w/x; 2 held calls refused\n"),
        (["deny", "1", "--session"], "deny-session", "denied for the session: write /w/x; 2 held calls refused\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_answer(house, program, words, kind, said):
    house.ask()
    house.ask()
    done = program(*words, house.session.id)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    assert house.answered() == [(1, kind)]
    assert {each.yes for each in house.questions.take()} == {kind in ("once", "session")}


def test_a_late_yes(house, program):
    house.ask()
    house.questions.expire(time.clock_gettime(time.CLOCK_BOOTTIME) + 31)
    assert "denied by now; a yes lets the next try pass, for 10 more minutes\n" in program("pending").stdout
    done = program("approve", "1")
    assert done.stdout.endswith("no call is held any more: the next try passes, within ten minutes\n")
    assert house.ask().kind == "once"


def test_errors_are_one_line(house, program):
    house.ask()
    name = house.session.id
    words = "there is no question 2 in this session: `pincer-trace pending` shows them"
    assert fails(program("approve", "2"), f"session {name}: {words}")
    assert fails(program("deny", "7", "--session"), "there is no question 7 in this session")
    assert fails(program("approve", "9", "--for", "always"), "there is no question 9 in this session")
    program("deny", "1", "--session")
    assert fails(program("approve", "1"), "answered already: denied for the session by process ")
    assert fails(program("deny", "1"), "answered already")
    for wrong in (["approve"], ["approve", "0"], ["approve", "x"], ["deny", "-1"], ["approve", "1", "--for", "ever"]):
        assert fails(program(*wrong), "")
    for wrong in ("0", "x", "\u0663", "9" * 30):
        assert fails(
            program("approve", wrong), f"'{wrong}' is no number of a question, as `pincer-trace pending` shows"
        )
    house.ask(b"/w/y")
    house.full = True
    assert fails(program("approve", "2"), "the log cannot be written (ENOSPC)")
    assert house.answered() == [(1, "deny-session")] and house.questions.take()[0].yes is False


def test_a_session_that_ended(house, program):
    house.ask()
    house.end()
    for words in (["approve", "1"], ["deny", "1"], ["pending"]):
        done = program(*words, house.session.id)
        assert fails(done, f"session {house.session.id} has ended: nothing of it can be answered any more")
    assert fails(program("approve", "1"), "no session goes on that asks: questions come from")
    assert program("pending").stdout == "nothing waits for an answer\n"


def test_a_session_that_asks_nobody(program, house):
    house.session.note(feed=None)
    house.session._facts.pop("feed")
    house.session._facts["confirm"] = "deny"
    house.session.save()
    assert fails(program("approve", "1", house.session.id), "asks nobody: it was started with --confirm deny")


def test_a_supervisor_that_is_gone(house, program):
    """The socket is closed, and session.json still names it."""
    house.channel.close()
    try:
        assert fails(program("approve", "1"), "does not answer: it has ended")
        assert program("pending").returncode == 0
    finally:
        house.channel = Channel({}, lambda pid: True, news=dict)


def test_another_process_behind_the_name(house, program):
    """Whoever takes the name of a socket that is gone does not pass for the supervisor."""
    house.session.note(feed={**house.channel.facts(), "pid": 1})
    house.session.save()
    assert fails(program("approve", "1"), "its socket is not its supervisor's")
    assert house.lines == []


def test_two_sessions_that_go_on(make_house, program):
    """Question 1 of one is not question 1 of the other."""
    houses = [make_house(), make_house()]
    for house in houses:
        house.ask()
    assert fails(program("approve", "1"), "2 sessions go on")
    assert all(house.lines == [] for house in houses)
    text = program("pending").stdout
    assert all(f"session {house.session.id}\n" in text for house in houses)
    assert text.endswith("answer: pincer-trace approve ID SESSION, or deny ID SESSION\n")
    assert program("approve", "1", houses[1].session.id).returncode == 0
    assert houses[0].lines == [] and houses[1].answered() == [(1, "once")]


def test_a_session_elsewhere(make_house, program, tmp_path):
    house = make_house(directory=tmp_path / "elsewhere")
    house.ask()
    assert fails(program("approve", "1"), "no session goes on that asks")
    assert program("approve", "1", "--session-dir", tmp_path / "elsewhere").returncode == 0
    assert fails(program("deny", "1", house.session.path), "answered already")


# -- always ----------------------------------------------------------------------------------------------------------


def test_always_is_a_line_in_the_users_profile(house, program):
    path = os.fsencode(program.state) + b"/.bashrc"
    other = os.fsencode(program.state) + b"/.profile"
    before = load("default", house.places).judge("write", path, Facts())
    assert before.verdict != "allow"
    for number, each in enumerate((path, path, other), 1):
        house.ask(each, rule=before.rule.source, token=number)
        done = program("approve", str(house.ask(each, rule=before.rule.source).id), "--for", "always")
        assert (done.returncode, done.stderr) == (0, "")
        first, second, *lines = done.stdout.splitlines()
        file = os.path.join(program.state, ".config/pincer-trace/profiles/default.toml")
        assert first == f"allowed always: write {os.fsdecode(each)}; 2 held calls go on"
        assert second == f"{'already in' if number == 2 else 'added to'} {file}, for later runs:"
        assert "\n".join(lines) in Path(file).read_text()
        house.grants = house.questions._grants = Grants()  # ask the same again
    assert (
        Path(file).read_text().startswith('extends = "default"\n\n[[rule]]\nprotection = true\neffects = ["write"]\n')
    )
    assert Path(file).read_text().count("[[rule]]") == 4
    now = load("default", house.places)
    assert {now.judge("write", each, Facts()).verdict for each in (path, other)} == {"allow"}
    assert now.judge("unlink", path, Facts()).verdict != "allow"
    assert now.judge("write", os.fsencode(program.state) + b"/.zshrc", Facts()).verdict != "allow"
    assert house.answered()[0] == (1, "always")


@pytest.mark.parametrize(
    ("manner", "names"),
    [
        ("emptying it first", ["write", "truncate"]),
        ("emptying it first and reading it too", ["write", "truncate"]),  # nothing protects it from being read
        ("reading it too", ["write"]),
        ("xattr user.emptying it first", ["write"]),
    ],
)
def test_always_covers_what_the_call_does_besides(house, program, manner, names):
    """Opening with O_TRUNC is a write and a truncation: with the write alone, the next run would be refused."""
    path = os.fsencode(program.state) + b"/.bashrc"
    house.ask(path, rule=load("default", house.places).judge("write", path, Facts()).rule.source, manner=manner)
    done = program("approve", "1", "--for", "always")
    assert (done.returncode, done.stderr) == (0, "")
    now = load("default", house.places)
    allowed = {
        each for each in ("write", "truncate", "unlink", "chmod") if now.judge(each, path, Facts()).verdict == "allow"
    }
    assert allowed == set(names)
    assert "effects = [" + ", ".join(f'"{name}"' for name in names) + "]" in done.stdout


def test_always_for_a_secret_that_is_read_too(house, program):
    own = os.path.join(os.fsdecode(house.places.config), "pincer-trace/profiles/default.toml")
    os.makedirs(os.path.dirname(own))
    with open(own, "w") as file:
        file.write('extends = "default"\n[[rule]]\nprotection = true\neffects = ["read"]\n')
        file.write('paths = ["{workspace}/**/token*"]\nverdict = "confirm"\nreason = "a secret of mine"\n')
    path = os.fsencode(program.state) + b"/project/token"
    before = load("default", house.places)
    assert before.judge("write", path, Facts()).verdict == "allow"
    wanted = before.judge("read", path, Facts())
    assert wanted.verdict == "confirm"
    house.ask(path, rule=wanted.rule.source, manner="reading it too")
    assert 'effects = ["read"]\n' in program("approve", "1", "--for", "always").stdout
    now = load("default", house.places)
    assert [now.judge(each, path, Facts()).verdict for each in ("read", "write")] == ["allow", "allow"]
    assert now.judge("read", path + b".local", Facts()).verdict == "confirm"


def test_always_of_what_another_effect_names_so(house, program):
    """Only of a write are the words ours: an attribute may be called as the worker likes."""
    path = os.fsencode(program.state) + b"/.bashrc"
    rule = load("default", house.places).judge("xattr", path, Facts()).rule
    house.ask(path, "xattr", rule=rule.source, manner="emptying it first")
    assert program("approve", "1", "--for", "always").returncode == 0
    now = load("default", house.places)
    assert [now.judge(each, path, Facts()).verdict == "allow" for each in ("xattr", "truncate")] == [True, False]


def test_always_for_a_name_to_save_under(house, program):
    """The line covers the next try too, and no other name; whatever bytes the fixed part has."""
    home = os.fsencode(program.state)
    for number, stem in enumerate((b".gitconfig", b'.ssh/a*b"c\\d\x1b[2J\xe2\x80\xae\xff'), 1):
        path, retry = (home + b"/" + stem + end for end in (b".tmp.12.abcdef012345", b".tmp.99.fedcba987654"))
        rule = load("default", house.places).judge("create", path, Facts()).rule
        source = rule.source if rule else ""
        house.ask(path, "create", rule=source, covers=staged_name(path.rpartition(b"/")[2]))
        done = program("approve", str(number), "--for", "always")
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.replace("\n", "").isprintable()
        now = load("default", house.places)
        for each, verdict in ((path, "allow"), (retry, "allow"), (home + b"/" + stem, "deny")):
            found = now.judge("create", each, Facts()).verdict
            assert (found == "allow") == (verdict == "allow" and bool(source)), each
        assert house.answered()[-1] == (number, "always" if source else "session")
        assert source or "not always: it was not a rule for this path that wanted a confirmation\n" in done.stdout


def test_always_for_a_name_that_no_profile_can_hold_is_for_no_ordinary_one(house, program):
    """Where a name is not UTF-8 a pattern can only say "any byte", which is to be none of ASCII."""
    path = os.fsencode(program.state) + b"/bin/\xff\xfe"
    rule = load("default", house.places).judge("create", path, Facts()).rule
    house.ask(path, "create", rule=rule.source)
    assert "added to" in program("approve", "1", "--for", "always").stdout
    now = load("default", house.places)
    verdicts = [now.judge("create", each, Facts()).verdict for each in (path, path[:-2] + b"ls")]
    assert verdicts[0] == "allow" != verdicts[1]


def test_always_for_a_rename_is_about_where_it_arrives(house, program):
    home = os.fsencode(program.state)
    rule = load("default", house.places).judge("rename", home + b"/.bashrc", Facts()).rule
    house.ask(home + b"/project/new", "rename", to=home + b"/.bashrc", rule=rule.source)
    assert "added to" in program("approve", "1", "--for", "always").stdout
    now = load("default", house.places)
    assert now.judge("rename", home + b"/.bashrc", Facts()).verdict == "allow"
    assert now.judge("write", home + b"/.bashrc", Facts()).verdict != "allow"


def test_always_keeps_what_is_in_the_profile(house, program):
    directory = os.path.join(program.state, ".config/pincer-trace/profiles")
    os.makedirs(directory)
    file = os.path.join(directory, "default.toml")
    mine = 'extends = "default"\n# mine\n[[rule]]\neffects = ["read"]\npaths = ["/x"]\nverdict = "deny"\nreason = "r"'
    with open(file, "w") as stream:
        stream.write(mine)
    path = os.fsencode(program.state) + b"/.bashrc"
    house.ask(path, rule=load("default", house.places).judge("write", path, Facts()).rule.source)
    assert program("approve", "1", "--for", "always").returncode == 0
    assert Path(file).read_text().startswith(mine + "\n\n[[rule]]\n")
    assert load("default", house.places).judge("write", path, Facts()).verdict == "allow"
    with open(file, "a") as stream:
        stream.write("broken")
    house.ask(b"/w/other")
    assert fails(program("approve", "2", "--for", "always"), "default.toml:")
    assert house.answered() == [(1, "always")], "nothing is answered when it is known beforehand that it cannot be"


def test_always_under_a_profile_that_is_a_file(make_house, program, tmp_path):
    file = tmp_path / "team.toml"
    file.write_text('[[rule]]\neffects = ["write"]\npaths = ["/w/**"]\nverdict = "confirm"\nreason = "ask me"\n')
    before = file.read_text()
    house = make_house(profile=str(file))
    house.ask(rule=f"{file}:3")
    done = program("approve", "1", "--for", "always")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *lines = done.stdout.splitlines()
    assert first == "allowed for the session: write /w/x; 1 held call goes on"
    assert second == f"not always: the profile is the file {file}, which is yours to edit; add to it:"
    assert lines[:3] == ["[[rule]]", 'effects = ["write"]', 'paths = ["/w/x"]']
    assert file.read_text() == before and house.answered() == [(1, "session")]


# -- a whole run ----------------------------------------------------------------------------------------------------


AGENT = """
import os, subprocess, sys
target = os.path.join(os.environ["HOME"], ".bashrc")
writer = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write('x')", target])
for words in (["approve", "1"], ["approve", "1", "--for", "always"], ["deny", "1"], ["pending"]):
    done = subprocess.run([sys.executable, "-P", "-m", "pincer_trace", *words], capture_output=True, text=True)
    print(done.returncode, done.stdout + done.stderr, end="")
print("tried", flush=True)
print("status", writer.wait())
"""


def test_a_run_that_asks_is_answered_from_outside_and_later_runs_know(program, tmp_path):
    """Real runs: the agent cannot answer for itself, a person can, and `always` holds in the next one."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "agent.py").write_text(AGENT)
    program.environ |= {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "kept")}
    os.makedirs(program.environ["HOME"])
    command = program.command("-q", "--confirm", "ask", "--", sys.executable, "agent.py")
    with subprocess.Popen(command, cwd=work, env=program.environ, stdout=subprocess.PIPE, text=True) as run:
        try:
            tried = [run.stdout.readline() for _ in range(5)]
            assert tried.pop() == "tried\n" and all(line.startswith("125 pincer-trace: this process") for line in tried)
            (question,) = map(json.loads, program("pending", "--json").stdout.splitlines())
            assert question["path"] == os.path.join(program.environ["HOME"], ".bashrc")
            done = program("approve", str(question["id"]), "--for", "always")
            assert (done.returncode, done.stderr) == (0, "") and "1 held call goes on\nadded to " in done.stdout
            assert run.communicate(timeout=60)[0] == "status 0\n" and run.returncode == 0
        finally:
            run.kill()
    records = [json.loads(line) for line in next((tmp_path / "kept").rglob("ledger.jsonl")).read_text().splitlines()]
    (answer,) = [record for record in records if record["kind"] == "answer"]
    assert (answer["answer"], answer["question"], answer["by"]["uid"]) == ("always", 1, os.getuid())
    assert Path(program.environ["HOME"], ".bashrc").read_text() == "x"
    append = ["-q", "--", "sh", "-c", 'echo y >> "$HOME/.bashrc"']
    assert program(*append, cwd=work).returncode != 0, "it was the creation that was allowed always, not every writing"
    os.unlink(question["path"])
    assert program(*append, cwd=work).returncode == 0
