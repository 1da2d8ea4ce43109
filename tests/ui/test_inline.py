"""`--ui inline` on a real terminal: our lines stay below, the program behaves as in a shell, questions are answered."""

from __future__ import annotations

import os
import shlex
import signal

import pytest
import support
from hazards.path_programs.terminal import Terminal
from hazards.path_programs.tools import give
from hazards.programs.p_kit import PATIENCE, children, new_sessions, state, until
from screens import Screen

from pincer_trace.ui.inline.footer import Footer

PROFILE = """\
description = "one file is asked about"
extends = "default"

[[rule]]
effects = ["change"]
paths = ["{workspace}/asked*", "{workspace}/*/asked*"]
verdict = "confirm"
reason = "the test asks"
protection = true
"""


def line(runner: support.Runner, script: str, *options: str) -> str:
    """What a person types: `script` by bash, with our lines below."""
    profile = give(runner, runner.base / "ask.toml", PROFILE.encode())
    words = [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(new_sessions(runner)), "-p"]
    return shlex.join([*words, str(profile), "--ui", "inline", *options, "--", "bash", "--norc", "-c", script])


def ours(lines: list[str]) -> list[str]:
    """The lines from the last rule on."""
    (*_, last) = [place for place, text in enumerate(lines) if "\u2500\u2500 pincer-trace \u2500\u2500" in text]
    return lines[last:]


def test_our_lines_stay_below_whatever_is_written(runner: support.Runner) -> None:
    """The last four lines of the terminal, in every state of a flood with escape sequences in it."""
    hostile = r"\033[24;1HFORGED\033[1;24r\033[?6l\033[99B\n\033[2J\033]2;FORGED\007\033[?1049h\033[H\033[99Efake\n"
    script = f"for i in $(seq 300); do printf '{hostile}'; done; echo over; read line"
    with Screen(runner, 100, 24) as screen:
        screen.type(line(runner, script))
        screen.see("\u2500\u2500 pincer-trace")
        for _ in range(20):
            assert "FORGED" not in "".join(screen.lines()[20:]) and "fake" not in "".join(screen.lines()[20:])
        screen.until(lambda lines: any(line.strip() == "over" for line in lines), "end of the flood")
        lines = screen.see("whole screen")
        assert len(ours(lines)) == 4 and not any("FORGED" in line or "fake" in line for line in ours(lines))
        assert screen.tmux("display-message", "-p", "#{pane_title}").strip() != "FORGED"
        screen.keys("Enter")
        screen.see("effects and")
        screen.type("clear; seq 1 40")
        assert "40" in screen.until(lambda lines: lines[-1].startswith(screen.prompt.strip()), "whole terminal")[-2]


def test_the_size_is_what_is_left_and_follows(runner: support.Runner) -> None:
    with Screen(runner, 90, 30) as screen:
        screen.type(line(runner, "stty size; trap 'stty size; exit 3' WINCH; while :; do sleep 0.05; done"))
        screen.see("26 90")
        screen.tmux("resize-window", "-x", "70", "-y", "20")
        screen.see("16 70")
        screen.see("effects and")
        screen.type("echo status=$?; stty size")
        screen.see("status=3")
        screen.see("20 70")


def test_keys_of_the_terminal_do_what_they_do_in_a_shell(runner: support.Runner) -> None:
    with Screen(runner, 90, 24) as screen:
        screen.type("exec env HISTFILE= bash --norc")
        screen.type("echo $BASH")
        screen.see("/bash")
        screen.type(line(runner, "echo up; read word; echo got=$word; exec sleep 60"))
        screen.see("up")
        screen.keys("C-z")
        screen.see("Stopped")
        screen.type("stty -a | tr ';' '\\n' | grep -c icanon")
        screen.see("1")
        screen.type("clear; fg")
        screen.see("\u2500\u2500 pincer-trace")
        screen.type("hello")
        screen.see("got=hello")
        screen.keys("C-c")
        screen.see("effects and")
        screen.type("clear; echo status=$?")
        screen.see("status=")


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)])
def test_the_status_is_the_command_s_own(runner: support.Runner, script: str, status: int) -> None:
    with Screen(runner, 90, 24) as screen:
        screen.type(line(runner, script) + "; echo status=$?")
        screen.see(f"status={status}")


def test_a_question_rings_and_is_answered_by_keys_that_are_not_the_program_s(runner: support.Runner) -> None:
    """What is typed is the program's, also an `a`; after Ctrl-] it is ours, and counts once the question was seen."""
    script = "echo one > asked-1; echo $?; read word; echo got=$word; echo two > asked-2; echo second=$?"
    with Screen(runner, 100, 24) as screen:
        screen.tmux("set-option", "-g", "set-titles", "on")
        screen.type(line(runner, script, "--confirm", "ask"))
        screen.see("? 1")
        assert "create" in "".join(ours(screen.lines())) and "asked-1" in "".join(ours(screen.lines()))
        assert screen.tmux("display-message", "-p", "#{pane_title}").strip() == "pincer-trace: 1 question"
        screen.keys("a", "Enter")  # for the program: it answers nothing
        screen.keys("C-]", "a")  # too fast: nobody can have read it
        lines = screen.see("- allow once")
        assert "the test asks" in "".join(ours(lines)) and not (runner.work / "asked-1").exists()
        screen.see(" a allow once")
        screen.keys("a")
        screen.see("got=a")
        assert (runner.work / "asked-1").read_text() == "one\n"
        screen.see("? 2")
        screen.keys("C-]")
        screen.see(" x deny for")
        screen.keys("x")
        screen.see("second=1")
        assert not (runner.work / "asked-2").exists()
        screen.see("effects and")


def test_p53_what_cannot_be_read_whole_is_not_allowed_here(runner: support.Runner) -> None:
    """A name that goes on in the second line is; of a longer one the middle is missing, so only a no counts."""
    inside, outside = "d" * 60, "e" * 200
    give(runner, runner.work / inside / "x", b"")
    give(runner, runner.work / outside / "x", b"")
    script = f"echo one > {inside}/asked; echo first=$?; echo two > {outside}/asked; echo second=$?"
    with Screen(runner, 80, 24) as screen:
        screen.type(line(runner, script, "--confirm", "ask"))
        screen.see("? 1")
        screen.keys("C-]")
        lines = ours(screen.see(" a allow once"))
        first, second = (each.strip().replace(" by bash", "").strip("\u2026") for each in lines[1:3])
        assert f"{inside}/asked" in first + second
        screen.keys("a")
        screen.see("first=0")
        screen.see("? 2")
        screen.keys("C-]")
        shown = "".join(ours(screen.see(" d deny ")))
        assert "too long" in shown and "allow once" not in shown
        screen.keys("a")
        screen.until(lambda lines: " - deny " in "".join(ours(lines)), "key that is seen")
        assert not (runner.work / outside / "asked").exists()
        screen.see(" d deny ")
        screen.keys("d")
        screen.see("second=1")


def test_p53_no_key_answers_what_is_not_on_the_screen(runner: support.Runner) -> None:
    """Where there is no room for our lines, every key is the program's; and what is moved must be seen anew."""
    small = "while [ \"$(stty size < /dev/tty)\" != '10 90' ]; do sleep 0.05; done; echo s''mall"
    script = f"({small}) & read -N 2 keys; printf %q $keys; echo; read more; echo end=$?"
    with Screen(runner, 90, 24) as screen:
        screen.type(line(runner, f"(echo one > asked-1) & {script}", "--confirm", "ask"))
        screen.see("? 1")
        screen.keys("C-]")
        screen.see(" a allow once")
        screen.tmux("resize-window", "-y", "10")
        screen.see("small")  # the program has its new size, so our lines are gone: tmux itself cuts them off earlier
        screen.keys("C-]")
        screen.keys("a")
        screen.see(r"$'\035a'")
        assert not (runner.work / "asked-1").exists()
        screen.tmux("resize-window", "-y", "24")
        screen.see("? 1")
        screen.keys("C-]")
        screen.see(" d deny ")
        screen.keys("d")
        screen.until(lambda lines: "? 1" not in "".join(lines), "answer")
        screen.keys("Enter")
        screen.see("end=0")


def test_p53_a_key_for_a_question_that_is_gone_is_nobody_s(runner: support.Runner) -> None:
    footer = Footer()
    footer._state.apply_questions([{"id": 1, "effect": "write", "path": "/a", "waiting": 1, "held": 9.0}], 0.0)
    assert footer.call() and footer.answering
    footer._state.apply_questions([], 0.0)
    footer.hear()
    assert footer.answering


LEADER_IN_FRONT = """\
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, os.getsid(0))
print("taken", flush=True)
signal.pause()
"""
DEAF_CHILD_IN_FRONT = """\
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()
os.setpgid(child, child)
os.tcsetpgrp(0, child)
print("taken", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("program", [LEADER_IN_FRONT, DEAF_CHILD_IN_FRONT], ids=["leader", "child"])
def test_p76_the_program_does_not_choose_who_hears_the_person(runner: support.Runner, program: str) -> None:
    """Whatever it makes the foreground group of its terminal: our own keys and `kill` reach the command."""
    give(runner, runner.work / "program.py", program.encode())
    words = line(runner, "").rpartition(" bash ")[0] + f" {runner.identity.python} program.py"
    with Screen(runner, 90, 24) as screen:
        screen.type(f"{words} & echo relay=$!; fg; echo status=$?")
        screen.see("taken")
        if program is LEADER_IN_FRONT:
            screen.keys("C-z", "C-c")  # it has no job above it that could be stopped: as a shell, it ignores that
            screen.see("KeyboardInterrupt")
            screen.see("reads allowed")
        else:
            relay = next(int(each.partition("=")[2]) for each in screen.lines() if each.startswith("relay="))
            os.kill(relay, signal.SIGTERM)
            screen.see("status=143")


def test_p53_only_ascii_where_the_terminal_may_take_other_bytes_for_controls(runner: support.Runner) -> None:
    """U+06DB is DB 9B in UTF-8, and 9B begins a control sequence on a terminal of one byte a character."""
    plain = "env LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "
    words = line(runner, r"printf 'x\333\23324;1Hy\n'; read word").replace(" -I ", " -P ", 1)
    with Screen(runner, 90, 24) as screen:
        screen.type(plain + words)
        screen.see("x?24;1Hy")
        screen.keys("Enter")
        screen.see("reads allowed")


def test_standard_error_that_is_elsewhere_stays_there(runner: support.Runner) -> None:
    with Screen(runner, 90, 24) as screen:
        screen.type(line(runner, "echo out; echo mistake >&2") + " 2> errors; echo over=$?")
        screen.see("over=0")
        assert not any(each.startswith("mistake") for each in screen.lines())
    assert (runner.work / "errors").read_text().count("mistake\n") == 1


def test_without_a_terminal_it_is_a_mistake(runner: support.Runner) -> None:
    result = runner.supervise(["touch", "made"], options=("--ui", "inline"))
    assert result.status == 125 and "no terminal; nothing was started" in result.err
    assert os.listdir(runner.work) == [] and len(result.err.splitlines()) == 1


def test_a_mistake_is_told_and_the_terminal_is_as_it_was(runner: support.Runner) -> None:
    with Screen(runner, 120, 24) as screen:
        screen.type(line(runner, "true").replace("bash --norc", "/no/such/command") + "; echo status=$?; stty size")
        screen.see("status=127")
        screen.see("24 120")


def test_when_the_terminal_goes_so_do_we_and_the_program_hears_it(runner: support.Runner) -> None:
    """As natively: what does not want to hear it lives on, supervised, until it ends by itself."""
    for script in ("echo up; sleep 60", "trap '' HUP; echo up; read line < fifo; echo $line > heard"):
        fifo = runner.work / "fifo"
        if not fifo.exists():
            os.mkfifo(fifo)
            os.chown(fifo, runner.identity.uid, runner.identity.gid)
        environ = support.environment(runner.identity, runner.home)
        words = [*runner.identity.switch, *shlex.split(line(runner, script))]
        with Terminal(words, cwd=runner.work, env=environ, owner=runner.identity.uid) as terminal:
            terminal.expect("up")
            tree = descendants(terminal.pid)
            os.close(terminal.master)
            terminal.master = os.open(os.devnull, os.O_RDWR)
            os.waitpid(terminal.pid, 0)
            terminal.status = 0
        if "trap" in script:
            assert sum(map(lives, tree)) == len(tree) - 1  # all but the leader of the session
            fifo.write_text("go\n")
        for _ in until("all have ended", PATIENCE):
            if not any(map(lives, tree)):
                break
    assert (runner.work / "heard").read_text() == "go\n"


def lives(pid: int) -> bool:
    return state(pid) not in "ZX"


def descendants(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        found += children(each)
    return found[1:]
