"""`--confirm ask` in real runs: who is held, who is not, and what an answer is worth (P75, P74, DESIGN 4)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import textwrap
from pathlib import Path
from typing import Any

import pytest
import support
from hazards.programs.p_kit import Live, kill, state, until

pytestmark = pytest.mark.both_identities

PROFILE = """\
description = "one file is asked about"
extends = "default"

[settings]
hold = {hold}

[[rule]]
effects = ["change", "read"]
paths = ["{{workspace}}/asked", "{{workspace}}/asked.tmp.*", "{{workspace}}/other", "{{workspace}}/d/inner*"]
verdict = "confirm"
reason = "the test asks"
protection = true
"""


class Run(Live):
    """A run that asks, and the person in another terminal."""

    def __init__(
        self, runner: support.Runner, command: list[str], hold: float = 60.0, *, quiet: bool = True, **how: Any
    ) -> None:
        place = runner.base / "ask.toml"
        place.write_text(PROFILE.format(hold=hold))
        place.chmod(0o644)
        for name in ("asked", "other"):
            file = runner.work / name
            file.write_text(f"{name}\n")
            os.chown(file, runner.identity.uid, runner.identity.gid)
        options = (*(("--quiet",) if quiet else ()), "--confirm", "ask", "-p", str(place))
        super().__init__(runner, command, options=options, **how)

    def person(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the person's, about this session."""
        program = [self.runner.identity.python, "-I", "-m", "pincer_trace", *words, str(self.session)]
        return subprocess.run(
            [*self.runner.identity.switch, *program],
            env=self.environment, cwd=self.runner.base, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def pending(self, count: int = 1) -> list[dict[str, Any]]:
        """The questions, once there are so many."""
        for _ in until(f"{count} questions", 20):
            if not list(self.sessions.rglob("session.json")):
                continue
            done = self.person("pending", "--json")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            if len(lines) >= count:
                return lines
        raise AssertionError

    def answer(self, *words: str) -> None:
        done = self.person(*words)
        assert done.returncode == 0, done.stderr

    def refusals(self) -> list[tuple[str, str]]:
        """(code, name) of what was refused."""
        found = [record for record in self.decisions() if record["kind"] == "denied" and not record.get("native")]
        return [(record["code"], os.path.basename(record["path"])) for record in found]

    def done(self, effect: str) -> list[dict[str, Any]]:
        return [record for record in self.decisions() if record["effect"] == effect and record["outcome"] == "done"]


def shell(text: str) -> list[str]:
    return ["sh", "-c", textwrap.dedent(text)]


def test_a_yes_lets_the_held_call_go_on_and_no_other(runner):
    with Run(runner, shell("echo 1 >> asked; echo $?; echo 2 >> asked; echo $?")) as run:
        (question,) = run.pending()
        assert (question["effect"], os.path.basename(question["path"])) == ("write", "asked")
        run.answer("approve", str(question["id"]))
        assert run.line() == "0"
        (question,) = run.pending()  # once is once
        run.answer("deny", str(question["id"]))
        assert run.line() == "2"
        run.end()
        assert (runner.work / "asked").read_text() == "asked\n1\n"
        assert run.refusals() == [("REFUSED_BY_PERSON", "asked")]
        (written,) = run.done("write")
        answers = [record for record in ledger(run) if record["kind"] == "answer"]
        assert written["extra"]["confirmed"] == [answers[0]["seq"]]
        assert [record["answer"] for record in answers] == ["once", "deny"]
        assert answers[0]["by"]["uid"] == runner.identity.uid


def ledger(run: Run) -> list[dict[str, Any]]:
    lines = (run.session / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_confirmed_read_uses_its_yes_up(runner):
    with Run(runner, shell("cat asked; cat asked; echo $?")) as run:
        run.answer("approve", str(run.pending()[0]["id"]))
        assert run.line() == "asked"
        run.answer("deny", str(run.pending()[0]["id"]))
        assert run.line() == "1"
        assert [os.path.basename(record["path"]) for record in run.done("read") if record["pid"]] == ["asked"]


def test_for_the_session_holds_for_every_process_and_a_no_outranks_it(runner):
    with Run(
        runner, shell("for i in 1 2 3; do sh -c 'echo x >> asked' && echo yes; done; echo y > other; echo $?")
    ) as run:
        run.answer("approve", str(run.pending()[0]["id"]), "--for", "session")
        assert [run.line() for _ in range(3)] == ["yes"] * 3
        (question,) = run.pending()
        run.answer("deny", str(question["id"]), "--session")
        assert run.line() == "2"
    with Run(runner, shell("echo y > other; echo $?; read line; echo z > other; echo $?")) as run:
        run.answer("deny", str(run.pending()[0]["id"]), "--session")
        assert run.line() == "2"
        run.say()
        assert run.line() == "2"  # at once: nobody is asked again
        assert run.refusals() == [("REFUSED_BY_PERSON", "other")] * 2


def test_nobody_answers_and_a_late_yes_lets_another_process_pass(runner):
    with Run(runner, shell("echo 1 >> asked; echo $?; read line; sh -c 'echo 2 >> asked'; echo $?"), hold=1.0) as run:
        assert run.line(20) == "2"
        assert run.refusals() == [("NOT_ANSWERED", "asked")]
        run.answer("approve", str(run.pending()[0]["id"]))
        run.say()
        assert run.line() == "0"
        assert (runner.work / "asked").read_text() == "asked\n2\n"


def test_a_retry_under_another_staging_name_is_the_same_question(runner):
    save = "f=asked.tmp.$$.$(printf %06x $(($$ * 7919 % 16777216))); echo $1 > $f && mv $f asked; echo $?"
    with Run(runner, shell(f"sh -c '{save}' sh one; read line; sh -c '{save}' sh two")) as run:
        for effect in ("create", "rename"):
            (question,) = [question for question in run.pending() if question["effect"] == effect]
            assert question["covers"] == "asked.tmp.*.*" if effect == "create" else question["to"].endswith("/asked")
            run.answer("approve", str(question["id"]), "--for", "session")
        assert run.line() == "0"
        run.say()
        assert run.line() == "0"
        assert (runner.work / "asked").read_text() == "two\n"


def test_p75_everybody_else_goes_on_while_a_person_thinks(runner):
    with Run(
        runner, shell("echo 1 >> asked & for i in $(seq 200); do echo $i > f$i; done; echo made; wait; echo end")
    ) as run:
        (question,) = run.pending()
        assert run.line() == "made"
        assert question["waiting"] == 1
        run.answer("approve", str(question["id"]))
        assert run.line() == "end"


def test_p74_a_held_question_hears_signals(runner):
    code = """\
        import os, signal, threading
        heard = []
        signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
        signal.siginterrupt(signal.SIGUSR1, True)
        print(os.getpid(), flush=True)
        class Stop(Exception): pass
        def stop(*_): raise Stop
        signal.signal(signal.SIGUSR1, stop)
        try:
            open("asked", "a")
        except Stop:
            print("heard", flush=True)
        try:
            open("asked", "a")
        except PermissionError:
            print("refused", flush=True)
    """
    with Run(runner, ["python3", "-c", textwrap.dedent(code)]) as run:
        worker = int(run.line())
        (question,) = run.pending()
        kill(worker, signal.SIGUSR1)
        assert run.line() == "heard"
        (again,) = run.pending()
        assert again["id"] == question["id"]  # the same question
        run.answer("deny", str(again["id"]))
        assert run.line() == "refused"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_p74_a_held_worker_can_be_ended(runner, number):
    with Run(runner, shell("sh -c 'echo $$; echo 1 >> asked'; echo ended")) as run:
        worker = int(run.line())
        run.pending()
        kill(worker, number)
        assert run.line() == "ended"
        run.end()
        assert run.refusals() == []
        assert (runner.work / "asked").read_text() == "asked\n"


def test_the_end_of_the_front_ends_a_held_tree(runner):
    with Run(runner, shell("echo $$; echo 1 >> asked")) as run:
        worker = int(run.line())
        run.pending()
        engine = run.engine
        kill(run.front)
        for _ in until("the end of the tree", 10):
            if state(worker) in "XZ" and state(engine) in "XZ":
                break
        assert (runner.work / "asked").read_text() == "asked\n"


def test_what_is_performed_is_copied_after_the_answer(runner):
    """While the question is held another thread writes another path into the call's memory."""
    code = """\
        import ctypes, os, threading, sys
        libc = ctypes.CDLL(None, use_errno=True)
        path = ctypes.create_string_buffer(b"asked", 64)
        def swap():
            sys.stdin.readline()
            path.value = b"other"
            print("swapped", flush=True)
        threading.Thread(target=swap).start()
        got = libc.open(path, os.O_WRONLY | os.O_APPEND)
        print("opened" if got >= 0 else "refused", flush=True)
    """
    with Run(runner, ["python3", "-c", textwrap.dedent(code)]) as run:
        (question,) = run.pending()
        assert os.path.basename(question["path"]) == "asked"
        run.say()
        assert run.line() == "swapped"
        run.answer("approve", str(question["id"]))
        (question,) = run.pending()  # a yes to one is none to the other
        assert os.path.basename(question["path"]) == "other"
        run.answer("deny", str(question["id"]))
        assert run.line() == "refused"
        assert run.done("write") == []


def own(runner: support.Runner, name: str) -> None:
    """A file of the user's."""
    file = runner.work / name
    for place in (file.parent, file):
        if place == file:
            file.write_text(f"{name}\n")
        else:
            place.mkdir(exist_ok=True)
        os.chown(place, runner.identity.uid, runner.identity.gid)


def test_a_yes_to_a_rename_is_none_to_an_exchange(runner):
    code = """\
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        open("x", "w").write("x")
        os.rename("x", "asked")
        print("renamed", flush=True)
        open("x", "w").write("y")
        print(libc.renameat2(-100, b"x", -100, b"asked", 2), flush=True)
    """
    with Run(runner, ["python3", "-c", textwrap.dedent(code)]) as run:
        (question,) = run.pending()
        assert "manner" not in question
        run.answer("approve", str(question["id"]), "--for", "session")
        assert run.line() == "renamed"
        (question,) = run.pending()
        assert question["manner"] == "exchanging the two"
        run.answer("deny", str(question["id"]))
        assert run.line() == "-1"


def test_a_question_about_a_link_names_both_ends(runner):
    with Run(runner, shell("ln asked notes; echo $?")) as run:
        (question,) = run.pending()
        assert (os.path.basename(question["path"]), os.path.basename(question["to"])) == ("asked", "notes")
        run.answer("deny", str(question["id"]))
        assert run.line() == "1"


def test_each_name_below_a_directory_that_moves_is_asked_about(runner):
    own(runner, "d/inner1")
    own(runner, "d/inner2")
    with Run(runner, shell("mv d e; echo $?")) as run:
        asked = set()
        for _ in range(2):
            (question,) = run.pending()
            asked.add(os.path.basename(question["path"]))
            run.answer("approve", str(question["id"]))
        assert run.line() == "0"
        assert asked == {"inner1", "inner2"}


def test_a_question_is_told_on_standard_error(runner):
    with Run(runner, shell("echo 1 >> asked; echo $?"), quiet=False) as run:
        run.pending()
        told = run.errors().decode().splitlines()
        assert told[-1].startswith(
            f"pincer-trace: write {runner.work}/asked waits for an answer: pincer-trace approve 1"
        )
        assert "pincer-trace pending" in told[-2]
        run.answer("deny", "1")
        assert run.line() == "2"


def test_a_question_does_not_garble_a_program_that_has_the_terminal(runner):
    code = """\
        import tty
        tty.setraw(0)
        print("raw", flush=True)
        try:
            open("asked", "a")
        except PermissionError:
            print("refused", flush=True)
    """
    with Run(runner, ["python3", "-c", textwrap.dedent(code)], quiet=False, terminal=True) as run:
        run.read_until(b"raw\n")
        run.answer("deny", str(run.pending()[0]["id"]))
        shown = run.read_until(b"refused\n")
        assert b"waits for" not in shown and shown.count(b"\a") == 1  # a bell moves nothing


def test_who_has_the_terminal_is_held_for_less_long(runner):
    """A person sits before it and sees nothing move; what it started apart from the terminal can wait."""
    code = """
    import subprocess, sys, tty
    apart = subprocess.Popen(["sh", "-c", "echo x > other"], start_new_session=True, stderr=subprocess.DEVNULL)
    tty.setraw(0)
    try:
        open("asked", "a")
    except PermissionError:
        pass
    """
    with Run(runner, ["python3", "-c", textwrap.dedent(code)], hold=60, terminal=True) as run:
        held = {os.path.basename(each["path"]): each["held"] for each in run.pending(2)}
        assert held["asked"] <= 10 < held["other"] <= 60


def test_identical_questions_are_one(runner):
    with Run(runner, shell("for i in 1 2 3; do echo $i >> asked & done; wait; echo end")) as run:
        for _ in until("three held calls", 20):
            (question,) = run.pending()
            if question["waiting"] == 3:
                break
        run.answer("approve", str(question["id"]), "--for", "session")
        assert run.line() == "end"
        assert len((runner.work / "asked").read_text().split()) == 4


def test_a_worker_cannot_answer_itself(runner):
    inside = f"{runner.identity.python} -I -m pincer_trace approve 1"
    with Run(
        runner,
        shell(f"echo 1 >> asked & read line; {inside}; echo $?; wait; echo end"),
    ) as run:
        (question,) = run.pending()
        run.say()
        assert run.line() == "125"
        assert b"supervised" in run.errors()
        run.answer("deny", str(question["id"]))
        assert run.line() == "end"
        assert (runner.work / "asked").read_text() == "asked\n"


def test_once_for_a_mode_is_not_for_another(runner):
    with Run(runner, shell("chmod 600 asked; echo $?; chmod 4755 asked; echo $?")) as run:
        (question,) = run.pending()
        assert "mode 0600" in str(question.get("manner"))
        run.answer("approve", str(question["id"]), "--for", "session")
        assert run.line() == "0"
        (question,) = run.pending()
        assert "mode 4755" in str(question.get("manner"))
        run.answer("deny", str(question["id"]))
        assert run.line() == "1"


def test_the_log_of_a_run_that_asked_is_whole(runner):
    with Run(runner, shell("echo 1 >> asked; echo $?")) as run:
        run.answer("approve", str(run.pending()[0]["id"]))
        assert run.line() == "0"
        run.end()
        done = run.person("verify")
        assert done.returncode == 0, done.stdout
        assert Path(run.session).is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for other ids")
def test_p68_questions_and_refusals_for_other_ids_where_only_root_reaches_the_library(runner):
    """By the ids of its caller the engine could import nothing: all that it needs is there before."""
    import pincer_trace

    if runner.identity.uid:
        pytest.skip("nobody but root acts for other ids")
    hidden = runner.base / "hidden"
    (hidden / "lib").mkdir(parents=True)
    hidden.chmod(0o700)
    (hidden / "lib" / f"python{sysconfig.get_python_version()}").symlink_to(sysconfig.get_path("stdlib"))
    (hidden / "packages").symlink_to(sysconfig.get_path("purelib"))
    (hidden / "product").symlink_to(Path(pincer_trace.__file__).parent.parent)
    env = {"PYTHONHOME": str(hidden), "PYTHONPATH": f"{hidden}/product:{hidden}/packages", "PINCER_TRACE_DEBUG": "1"}
    (runner.home / ".ssh").mkdir()
    for folder in (runner.work, runner.home / ".ssh"):
        folder.chmod(0o777)
    worker = """
        exec setpriv --reuid=61234 --regid=61234 --clear-groups -- sh -c '
        cat asked; true > asked.tmp.12.abcdef; echo $?; true > "asked.tmp.\u00e9"; echo $?
        true > "$HOME/.ssh/\u00e9"; echo $?; git init -q g; git -C g config core.fsmonitor x; echo end'
    """
    with Run(runner, shell(worker), words=("-m", "pincer_trace"), env=env) as run:
        run.answer("approve", str(run.pending()[0]["id"]))
        assert run.line() == "asked"
        (question,) = run.pending()
        assert (question["effect"], question["covers"]) == ("create", "asked.tmp.*.*")
        run.answer("approve", str(question["id"]))
        assert run.line() == "0"
        run.answer("deny", str(run.pending()[0]["id"]))
        assert [run.line() for _ in range(2)] == ["2", "2"]
        (question,) = run.pending()
        assert "core.fsmonitor" in question["reason"]
        run.answer("deny", str(question["id"]))
        assert run.line() == "end"
        run.end()
        person, rule = "REFUSED_BY_PERSON", "POLICY_DENY"
        assert run.refusals() == [(person, "asked.tmp.\u00e9"), (rule, "\u00e9"), (person, "config")]
        assert not [record for record in ledger(run) if record["kind"] == "failure"]
        assert "--allow-write" in (run.session / "denials.txt").read_text()
