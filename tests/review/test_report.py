"""`pincer-trace report` as a person and a program get it: of real runs, of odd ones, and of logs that lie."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from pincer_trace.ledger.chain import link
from pincer_trace.review.page import Page
from pincer_trace.twin import codes

from .test_tree import report_of

AGENT = """
set -e
mkdir -p node_modules/x/lib
for i in 1 2 3 4 5 6 7 8 9; do echo $i > node_modules/x/lib/$i.js; done
echo new > src/a.py.tmp.4711 && mv src/a.py.tmp.4711 src/a.py
echo more >> src/b.py
rm old.txt; mv docs documentation; chmod 755 run.sh
t=$(mktemp) && rm "$t"
git add -A; git -c user.name=a -c user.email=b commit -qm x
echo x >> "$HOME/notes.txt" || echo refused
cat "$HOME/.ssh/id" || cat "$HOME/.ssh/id" || true
echo evil > .git/hooks/post-commit || true
echo 1 > /tmp/pincer-report-$$; mv /tmp/pincer-report-$$ kept
exit 3
"""
NASTY = "\x1b[31m\u202e\n[/bold]\udcff\u200d"


@pytest.fixture
def ran(runner):
    work, home = runner.work, runner.home
    for name in ("src/a.py", "src/b.py", "old.txt", "docs/a.md", "run.sh"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(name)
    (work / "run.sh").chmod(0o644)
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("secret")
    subprocess.run(["git", "init", "-q", work], check=True)
    subprocess.run(["chown", "-R", f"{runner.identity.uid}:{runner.identity.gid}", work, home], check=True)
    result = runner.supervise(["sh", "-c", AGENT], options=["--quiet", "--allow-write", str(home / "notes.txt")])
    assert result.status == 3, result
    return result


def report(runner, *arguments, columns=None, check=True, **environ):
    who = runner.identity
    words = [*who.switch, who.python, "-I", "-m", "pincer_trace", "report", *map(str, arguments)]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(runner.home), "TZ": "UTC", "LANG": "C.UTF-8", **environ}
    done = subprocess.run(words, cwd=runner.work, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "") or not check, done
    return done


def drawn(path, width=None):
    """The lines of a session's report, without style."""
    return ["".join(words for words, _ in row) for row in Page(report_of(str(path)), "ID", width).lines()]


def rows(lines):
    """Label to text of the lines with one."""
    return {line[:10].strip(): line[10:] for line in lines if re.match(r"[a-z]", line)}


# -- real runs -----------------------------------------------------------------------------------------------------


@pytest.mark.both_identities
def test_a_real_run_in_a_minute(runner, ran):
    lines = report(runner, ran.session).stdout.splitlines()
    found = rows(lines)
    assert found["state"].startswith("exit 3 after ")
    assert found["log"].startswith("whole, ")
    assert found["denied"].startswith("3 times")
    assert "  2x read ~/.ssh/id (record " in "\n".join(lines)
    assert any(line.startswith("  1x create .git/hooks/post-commit (record ") for line in lines)
    told = {line.strip() for line in lines}
    for line in (
        "created  ~/notes.txt  dash", "moved    docs -> documentation  mv",
        "created  node_modules/ 9 files  mkdir, dash", "changed  src/a.py  dash, mv", "changed  src/b.py  dash",
        "deleted  old.txt  rm",
        "set      run.sh mode 0644 to 0755  chmod",
    ):  # fmt: skip
        assert line in told, "\n".join(lines)
    assert re.search(r"^git 3, mv 3, .*, in \d\d processes$", found["programs"])
    assert found["outside"] == "of the work tree: 1 created"  # what was moved into it from /tmp was made by the run
    assert any(line.startswith("created  kept  dash, mv") for line in told)
    assert any(re.fullmatch(r"created  \.git/ \d+ files  git", line) for line in told)
    hint = next(line for line in lines if "pincer-trace why " in line)
    words = shlex.split(hint.partition(": ")[2])
    who = runner.identity
    why = subprocess.run(
        [*who.switch, who.python, "-I", "-m", *[words[0].replace("-", "_"), *words[1:]]],
        env={"PATH": "/usr/bin:/bin", "HOME": str(runner.home)}, cwd=runner.work, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert why.returncode == 1 and "remedy" in why.stdout, why


def test_the_object_for_programs(runner, ran):
    told = json.loads(report(runner, "--json", ran.session).stdout)
    assert set(told) == {
        "id", "path", "command", "profile", "workspace", "state", "exit", "leftover", "started", "confirm", "seconds",
        "counts", "log", "closed", "denials", "expected", "answers", "confirmed", "errors", "unended", "peers",
        "changes", "beyond", "programs", "devices", "reads", "hosts",
    }  # fmt: skip
    assert (told["state"], told["exit"], told["log"]["whole"]) == ("ended", 3, True)
    counts = json.loads((ran.session / "session.json").read_text())["counts"]
    for name, own in (("effects", "allowed"), ("denied", "denied"), ("reads", "reads")):
        assert told["counts"][name] == counts[own]
    by_path = {change["path"]: change for change in told["changes"]}
    changed = by_path[f"{runner.work}/src/a.py"]
    assert (changed["what"], changed["replaced"], changed["inside"]) == ("changed", True, True)
    assert {os.path.basename(by) for by in changed["by"]} == {"dash", "mv"}
    assert by_path[f"{runner.work}/documentation"]["from"] == f"{runner.work}/docs"
    assert by_path[f"{runner.work}/run.sh"]["attributes"] == {"mode": ["0644", "0755"]}
    assert not [path for path in by_path if "/tmp." in path or "tmp.4711" in path or "pincer-report" in path]
    programs = told["programs"]["counts"]
    assert programs[shutil.which("git", path="/usr/bin:/bin")] == 2 and programs["/usr/bin/cat"] == 2


def test_a_quiet_run_is_told_in_a_few_lines(runner):
    result = runner.supervise(["sh", "-c", "cat /etc/hostname; echo x > y"])
    lines = report(runner, result.session).stdout.splitlines()
    assert len(lines) <= 12
    assert rows(lines)["denied"].startswith("nothing") and rows(lines)["outside"] == "of the work tree: nothing"
    assert "  created  y  dash" in lines


def test_a_run_that_goes_on_and_one_that_was_killed(runner):
    os.mkfifo(runner.work / "wait")
    os.chown(runner.work / "wait", runner.identity.uid, runner.identity.gid)
    sessions = runner.base / "live"
    sessions.mkdir()
    os.chown(sessions, runner.identity.uid, runner.identity.gid)
    who = runner.identity
    words = [*who.switch, who.python, "-I", "-m", "pincer_trace", "-q", "--session-dir", sessions, "--"]
    with subprocess.Popen(
        [*words, "sh", "-c", "echo x > made; echo up; read line < wait"], stdout=subprocess.PIPE, cwd=runner.work,
        env={"PATH": "/usr/bin:/bin", "HOME": str(runner.home)},
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"up\n"
        lines = report(runner, "--session-dir", sessions).stdout.splitlines()
        assert rows(lines)["state"].startswith("goes on, ") and rows(lines)["log"].startswith("whole, ")
        assert "  created  made  dash" in lines
        engine = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(engine, signal.SIGKILL)
    lines = report(runner, "--session-dir", sessions).stdout.splitlines()
    assert rows(lines)["state"].startswith("killed: no end was recorded")
    assert any("the run was killed" in line for line in lines)


WORKER = """
import ctypes, os, random, stat, sys
libc, dice = ctypes.CDLL(None), random.Random(int(sys.argv[1]))
names = sys.argv[2:]
for number in range(300):
    verb = dice.choice("create append mkdir unlink rmdir rename exchange symlink link chmod".split())
    name, other = dice.choice(names), dice.choice(names)
    try:
        if verb == "create": open(name, "x").write(f"{number}")
        elif verb == "append" and not os.path.islink(name): open(name, "r+").write(f"{number} again")
        elif verb == "mkdir": os.mkdir(name)
        elif verb == "unlink": os.unlink(name)
        elif verb == "rmdir": os.rmdir(name)
        elif verb == "rename": os.rename(name, other)
        elif verb == "exchange": libc.renameat2(-100, os.fsencode(name), -100, os.fsencode(other), 2)
        elif verb == "symlink": os.symlink(f"to {number}", name)
        elif verb == "link" and os.path.isfile(name): os.link(name, other)
        elif verb == "chmod": os.chmod(name, 0o755)
    except OSError:
        pass
"""


@pytest.mark.parametrize("seed", range(4))
def test_what_a_supervised_program_did_at_random(runner, seed):
    """The executor's own records: made, gone and kept names are those of the file system."""
    dice = random.Random(seed)
    names = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "e/d", "e/d/a"]
    for folder in ("d", "e", "e/d"):
        (runner.work / folder).mkdir()
    for name in dice.sample(["a", "b", "d/a", "d/b", "e/a", "e/d/a"], 4):
        (runner.work / name).write_text(name)
    subprocess.run(["chown", "-R", f"{runner.identity.uid}:{runner.identity.gid}", runner.work], check=True)
    before = {str(path) for path in runner.work.rglob("*")}
    result = runner.supervise([runner.identity.python, "-c", WORKER, str(seed), *names])
    assert result.status == 0, result
    after = {str(path) for path in runner.work.rglob("*")}
    changes = json.loads(report(runner, "--json", result.session).stdout)["changes"]
    changes = [change for change in changes if change["inside"]]
    newcomers = {c["path"] for c in changes if "replaced" in c or "vacated" in c}
    moved = {c["from"]: c["path"] for c in changes if c["what"] == "moved"}
    came = {c["path"] for c in changes if c["what"] == "created"} | set(moved.values()) | newcomers
    went = {c["path"] for c in changes if c["what"] == "deleted"} | set(moved) | newcomers
    replaced = {c["path"] for c in changes if "replaced" in c}
    for path in before - went:
        above = max((s for s in moved if path.startswith(s + "/")), key=len, default=None)
        if above is not None and moved[above] != above and path not in replaced:
            went.add(path)
            came.add(moved[above] + path[len(above) :])
    assert (came - went, went - came) == (after - before, before - after)


def test_mistakes(runner, ran):
    session = ran.session
    for wrong, said in (
        (["nope"], "no session nope"), (["--bad"], "No such option"), (["/etc/"], "is no session"),
        ([session, "more"], "unexpected extra argument"),
    ):  # fmt: skip
        done = report(runner, *wrong, "--session-dir", session.parent, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
        assert said in done.stderr, done.stderr
    (session / "ledger.jsonl").unlink()
    done = report(runner, session, check=False)
    assert done.returncode == 125 and "ledger.jsonl: No such file" in done.stderr


# -- what else there is to tell --------------------------------------------------------------------------------------


def test_questions_answers_and_what_became_of_them(made):
    one = made(confirm="ask")
    by = {"uid": 0, "pid": 99, "exe": b"/usr/bin/pincer-trace"}
    yes = one.ledger.answer({"question": 1, "answer": "session", "by": by, "effect": "write", "path": one.at("a")})
    no = one.ledger.answer({"question": 2, "answer": "deny", "by": by, "effect": "unlink", "path": b"/etc/x"})
    late = one.ledger.answer({"question": 3, "answer": "once", "by": by, "effect": "write", "path": one.at("b")})
    for _ in range(3):
        one.allow("write", one.at("a"), verdict="confirm", extra={"confirmed": [yes]})
    one.deny("unlink", b"/etc/x", verdict="confirm", code=codes.REFUSED_BY_PERSON, reason="refused")
    one.deny("write", one.at("b"), verdict="confirm", code=codes.NOT_ANSWERED, reason="nobody answered")
    one.ledger.close(0, 0)
    lines = drawn(one.session.path)
    assert rows(lines)["answered"] == "3 questions"
    said = "\n".join(lines)
    assert re.search(
        rf"allowed for the session: write a \(record {yes}\)\n +at \S+ by process 99, pincer-trace; used 3 times", said
    )
    assert f"denied: unlink /etc/x (record {no})" in said
    assert re.search(rf"allowed once: write b \(record {late}\)\n.*; not used", said)
    assert "[REFUSED_BY_PERSON]" in said and "[NOT_ANSWERED]" in said
    answers = report_of(one.session.path).told()["answers"]
    assert [each["used"] for each in answers] == [3, 0, 0] and answers[0]["pid"] == 99


def test_what_confirm_auto_allowed(made):
    one = made(confirm="auto")
    for name in ("a", "b"):
        one.allow("write", one.at(name), verdict="confirm", reason="runs later", extra={"confirmed": "auto"})
    one.ledger.close(0, 0)
    lines = drawn(one.session.path)
    assert rows(lines)["allowed"] == "2 effects that wanted a confirmation, by --confirm auto"
    assert "  2x write a and 1 more (record 1, sh)" in lines


def test_what_failed_closed_stands_before_what_rules_refuse(made):
    one = made()
    one.deny("read", one.at("k.pem"))
    one.ledger.failure("gateway", ValueError("odd"), pid=3)
    one.deny("write", one.at("x"), rule="", reason="another directory", code=codes.OBSERVATION_MISMATCH)
    one.ledger.close(0, 0)
    lines = drawn(one.session.path)
    labels = list(rows(lines))
    assert labels.index("refused") < labels.index("denied")
    assert rows(lines)["refused"].startswith("2 calls, ")
    assert any("the supervisor failed in gateway: ValueError: odd [SUPERVISOR_FAILURE]" in line for line in lines)
    report = report_of(one.session.path)
    assert report.denied == 3 and [group.code for group in report.closed] == [
        "SUPERVISOR_FAILURE",
        "OBSERVATION_MISMATCH",
    ]


def test_what_every_run_is_refused_comes_last(made):
    """`ps` asks for each process; the one thing that a rule refused must not stand below all that."""
    one = made()
    for number in range(9):
        one.deny("read", b"/proc/%d/environ" % number, rule="built-in", reason="not of the tree", code=codes.BUILT_IN)
    one.deny("read", one.at("k.pem"))
    one.ledger.close(0, 0)
    assert [group.code for group in report_of(one.session.path).denials] == [codes.POLICY_DENY, codes.BUILT_IN]


def test_a_log_that_was_changed_is_told_first(made):
    one = made()
    one.allow("write", one.at("a"))
    one.allow("write", one.at("b"))
    one.ledger.close(0, 0)
    file = Path(one.session.path) / "ledger.jsonl"
    file.write_bytes(file.read_bytes().replace(b"work/b", b"work/c"))
    lines = drawn(one.session.path)
    assert rows(lines)["log"] == "NOT what was written: do not rely on what follows"
    assert "is not what was written" in lines[5]
    assert report_of(one.session.path).told()["log"]["whole"] is False


def test_lines_that_could_not_be_written_and_errors_and_unknown_ends(made):
    one = made()
    for _ in range(2):
        number = one.ledger.intent("unlink", one.at("a"), verdict="allow", rule="r", reason="so", **one.subject())
        one.ledger.outcome(number, 2)
    one.ledger.intent("write", one.at("b"), verdict="allow", rule="r", reason="so", **one.subject())
    one.ledger.unrecorded = 7
    one.ledger.close(None, 2)
    lines = drawn(one.session.path)
    found = rows(lines)
    assert found["state"].startswith("exit not known after") and found["state"].endswith("2 processes outlived it")
    assert any("7 lines could not be written" in line for line in lines)
    assert any("write " in line and "whether it was done is not known" in line for line in lines)
    assert found["errors"].endswith("unlink ENOENT 2x (record 1)")
    assert found["changed"] == "in the work tree: nothing"  # nothing of that is known to be done


def test_peers_and_the_processes_of_a_later_version(made):
    one = made()
    for address in (b"//pypi.org:443", b"//pypi.org:443", b"/run/user/0/bus"):
        one.allow("connect", address, exe=b"/usr/bin/pip")
    one.deny("connect", b"//192.0.2.1:80")
    path = Path(one.session.path)
    text = b'{"seq":8,"time":1.0,"kind":"process","pid":7,"of":7,"parent":1,"exe":"/bin/sh"'
    last = json.loads((path / "ledger.jsonl").read_bytes().splitlines()[-1])["chain"]
    with open(path / "ledger.jsonl", "ab") as file:
        file.write(text + b',"chain":"' + link(bytes.fromhex(last), text).hex().encode() + b'"}\n')
    lines = drawn(path)
    assert rows(lines)["network"] == "2 peers"
    assert "  connect  //pypi.org:443 2x, pip" in lines and "  connect  /run/user/0/bus 1x, pip" in lines
    assert report_of(str(path)).told()["counts"]["processes"] == 1
    assert report_of(str(path)).found.faults == []


def test_devices_are_no_changes_of_files(made):
    one = made()
    one.allow("write", b"/dev/tty")
    one.allow("write", b"/proc/7/oom_score_adj")
    one.allow("create", b"/dev/shm/x")
    one.ledger.close(0, 0)
    told = report_of(one.session.path)
    assert told.devices.counts == {"/dev/tty": 1, "/proc/7/oom_score_adj": 1}
    assert [change.path for change in told.changes] == ["/dev/shm/x"]


def test_a_set_user_bit_on_a_new_file_is_told(made):
    one = made()
    for mode, name in (("0755", "plain"), ("4755", "suid"), ("2755", "sgid")):
        one.allow("create", one.at(name))
        one.allow("chmod", one.at(name), extra={"mode": mode, "was": "0644"})
    one.allow("chmod", one.at("there"), extra={"mode": "0600", "was": "0644"})
    one.allow("chmod", one.at("there"), extra={"mode": "0644", "was": "0600"})  # and back: nothing
    one.ledger.close(0, 0)
    lines = drawn(one.session.path)
    assert [line for line in lines if line.startswith("  created")] == [
        "  created  plain  sh", "  created  sgid mode 0644 to 2755  sh", "  created  suid mode 0644 to 4755  sh",
    ]  # fmt: skip
    assert not any("there" in line for line in lines)


# -- how it looks --------------------------------------------------------------------------------------------------


@pytest.fixture
def busy(made):
    """A session with much of everything, and names that are long and nasty."""
    one = made(confirm="auto", allow_write=[NASTY])
    long = "x" * 200 + "/" + "y" * 120
    nasty = NASTY.encode("utf-8", "surrogateescape")
    for number in range(40):
        one.allow("create", one.at(f"src/{number}/{long}"), exe=b"/usr/bin/" + nasty)
        one.allow("write", b"/opt/%d/" % number + nasty)
        one.deny("write", one.at(f"no/{number}/{long}"), rule=f"r:{number}", reason=f"{NASTY} because " + "word " * 40)
        one.allow(
            "write", one.at(f"m{number}"), extra={"confirmed": "auto"}, reason=f"{NASTY}{number}", verdict="confirm"
        )
        one.allow("rename", one.at(f"{number}{long}"), extra={"to": os.fsdecode(one.at(f"{number}b/{long}"))})
        one.allow("connect", b"//" + nasty + b"%d:80" % number)
        one.allow("exec", b"/bin/" + nasty + b"%d" % number)
        one.ledger.answer(
            {"answer": "once", "by": {"pid": 3, "exe": nasty}, "effect": "write", "path": nasty, "to": long}
        )
        one.ledger.failure(NASTY, ValueError(f"{NASTY}{number}"), pid=3)
        one.allow("chmod", one.at(f"mode{number}"), extra={"mode": NASTY, "was": long})
    one.ledger.close(0, 0)
    return one


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(busy, width):
    for line in drawn(busy.session.path, width):
        assert line.isprintable()
        if "pincer-trace" not in line and width > 40:  # a command is to be copied: the terminal breaks it
            assert len(line) <= width, line


def test_it_is_bounded_whatever_happened(busy):
    lines = drawn(busy.session.path, 80)
    assert len(lines) < 250
    assert any(re.search(r"and \d+x? (more|for \d+ more reasons)", line) for line in lines)


def test_p53_nothing_of_a_name_is_taken_as_markup_or_control(busy, program):
    done = program("report", busy.session.path)
    assert done.returncode == 0 and done.stderr == ""
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert "[/bold]" in done.stdout and "\\x1b[31m\\u202e\\n" in done.stdout


def test_a_terminal_gets_the_same_text_with_styles(busy, program, tmp_path):
    words = shlex.join(["env", "-u", "COLUMNS", "TERM=xterm", *program_words(program, busy.session.path)])
    done = subprocess.run(
        ["script", "-qec", f"stty cols 100; {words}", "/dev/null"], capture_output=True, timeout=60, check=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    text = done.stdout.decode()
    assert "\x1b[1m" in text and "\x1b[31m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n").splitlines()
    assert plain == [line.rstrip() for line in drawn_as(busy.session.path, 100)]


def program_words(program, path):
    import sys

    import pincer_trace

    root = os.path.dirname(os.path.dirname(pincer_trace.__file__))
    return [f"PYTHONPATH={root}", "TZ=UTC", "LANG=C.UTF-8", sys.executable, "-m", "pincer_trace", "report", path]


def drawn_as(path, width):
    """As drawn, with the selector of a session elsewhere."""
    page = Page(report_of(path), path, width)
    return ["".join(words for words, _ in row) for row in page.lines()]
