"""Inside of tmux: a pane below the command's, in which a person sees and answers, and which goes with the run."""

from __future__ import annotations

import os
import shlex

import support
from hazards.path_programs.tools import give
from hazards.programs.p_kit import new_sessions
from screens import Screen

from .test_inline import PROFILE

ABOVE, BELOW = ":.0", ":.1"


def line(runner: support.Runner, script: str, *options: str) -> str:
    """What a person types."""
    profile = give(runner, runner.base / "ask.toml", PROFILE.encode())
    words = [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(new_sessions(runner)), "-p"]
    return shlex.join([*words, str(profile), *options, "--", "bash", "--norc", "-c", script])


def panes(screen: Screen) -> int:
    return len(screen.tmux("list-panes").splitlines())


def test_a_person_sees_the_question_below_and_answers_it_there(runner: support.Runner) -> None:
    """The command keeps the keyboard until the person goes below; the pane goes when the run has ended."""
    with Screen(runner, 100, 44) as screen:
        screen.type(line(runner, "echo one > asked; echo $?; echo two > asked; echo end=$?", "--confirm", "ask"))
        screen.see("question", BELOW)
        assert screen.tmux("display-message", "-p", "#{pane_index}").strip() == "0"
        screen.see("asked", BELOW)
        screen.tmux("select-pane", "-t", BELOW)
        screen.keys("1")
        screen.see("a allow once", BELOW)
        screen.keys("a")
        while "? 2" not in "".join(screen.lines(BELOW)):
            assert (runner.work / "asked").exists() or "1" in "".join(screen.lines(BELOW))
        assert (runner.work / "asked").read_text() == "one\n"
        screen.keys("2")
        screen.see("x deny", BELOW)
        screen.keys("x")
        screen.see("end=1", ABOVE)
        screen.see("reads allowed", ABOVE)
        while panes(screen) > 1:
            pass
        assert (runner.work / "asked").read_text() == "one\n"


def test_p49_the_command_cannot_press_the_keys_itself(runner: support.Runner) -> None:
    """The tmux server would type for it: it is not told where that is, and cannot connect to where it knows it is."""
    with Screen(runner, 100, 44) as screen:
        (socket,) = screen.tmux("display-message", "-p", "#{socket_path}").split()
        keys = f"tmux send-keys -t :.1 1; tmux -S {socket} send-keys -t :.1 1; echo tried=$?"
        screen.type(line(runner, f"echo one > asked & sleep 2; {keys}; wait; echo ended", "--confirm", "ask"))
        screen.see("connect", BELOW)  # at this place nothing says what listens: the person is asked about that too
        screen.tmux("select-pane", "-t", BELOW)
        assert "allow once" not in "".join(screen.lines(BELOW)) and not (runner.work / "asked").exists()
        screen.keys("2")
        screen.see("x deny", BELOW)
        screen.keys("x")  # it tries more than once
        screen.see("tried=1", ABOVE)
        screen.keys("1")
        screen.see("d deny", BELOW)
        screen.keys("d")
        screen.see("ended", ABOVE)


def test_a_pane_that_was_closed_comes_back_with_the_next_question(runner: support.Runner) -> None:
    with Screen(runner, 100, 44) as screen:
        screen.type(line(runner, "read word; echo one > asked; echo end=$?", "--confirm", "ask"))
        screen.see("running", BELOW)
        screen.tmux("kill-pane", "-t", BELOW)
        screen.type("go")
        screen.see("asked", BELOW)
        screen.tmux("select-pane", "-t", BELOW)
        screen.keys("1")
        screen.see("d deny", BELOW)
        screen.keys("d")
        screen.see("end=1", ABOVE)


def test_a_short_command_opens_none_and_a_long_one_does(runner: support.Runner) -> None:
    with Screen(runner, 100, 44) as screen:
        screen.type(line(runner, "echo made > file") + "; tmux list-panes | wc -l | sed s/^/panes=/")
        screen.see("panes=1")
        screen.type(line(runner, "read word"))
        while panes(screen) < 2:
            pass
        screen.see("running", BELOW)
        screen.type("go")
        while panes(screen) > 1:
            pass


def test_p81_the_program_that_opens_it_is_not_the_one_that_path_finds(runner: support.Runner) -> None:
    """An earlier run could have put a `tmux` into a directory that is before the others in PATH."""
    planted = give(runner, runner.work / "bin" / "tmux", b"#!/bin/sh\necho taken > ~/taken\n", 0o755)
    with Screen(runner, 100, 44) as screen:
        screen.type(f"PATH={planted.parent}:$PATH {line(runner, 'read word', '--ui', 'tmux')}")
        while panes(screen) < 2:
            pass
        screen.see("running", BELOW)
        screen.type("go")
        screen.see("reads allowed", ABOVE)
    assert not (runner.home / "taken").exists()


def test_where_no_pane_can_be_lines_have_to_do(runner: support.Runner) -> None:
    """A low terminal; and one that is not the pane that the environment names."""
    with Screen(runner, 100, 16) as screen:
        screen.type(line(runner, "sleep 1.2; echo x >> ~/.bashrc; echo denied=$?"))
        screen.see("no pane below: it would take too much of 16 lines")
        screen.see("pincer-trace: denied create" if not os.path.exists(runner.home / ".bashrc") else "denied write")
        screen.see("denied=1")
        assert panes(screen) == 1
    runner.base = runner.base / "other"
    runner.base.mkdir()
    with Screen(runner, 100, 44) as screen:
        screen.type("HISTFILE= script -qc bash /dev/null")
        screen.see(screen.prompt.strip())
        screen.type("clear; " + line(runner, "sleep 1.2; echo end=$?"))
        screen.see("no pane below: the pane that TMUX_PANE names is another terminal")
        screen.see("end=0")
        assert panes(screen) == 1
        screen.type("exit")
        screen.see(screen.prompt.strip())


def test_p81_the_pane_imports_from_where_the_run_does(runner: support.Runner) -> None:
    """The tmux server's environment may name places that nobody has checked, which an earlier run could write to."""
    planted = give(runner, runner.base / "planted" / "textual.py", b"raise SystemExit(1)\n")
    with Screen(runner, 100, 44, environment={"PYTHONPATH": str(planted.parent)}) as screen:
        words = line(runner, "read word", "--ui", "tmux").replace(" -I ", " -P ", 1)
        screen.type(f"echo path=$PYTHONPATH; unset PYTHONPATH; {words}")
        screen.see(f"path={planted.parent}")
        screen.until(lambda _: panes(screen) > 1, "pane")
        screen.see("running", BELOW)
        screen.type("go")
        screen.see("reads allowed", ABOVE)


def test_p81_a_number_that_another_process_has_by_now_is_not_the_server(runner: support.Runner) -> None:
    """TMUX outlives its server; what has its number then, and chose the program of that number, is not executed."""
    with Screen(runner, 100, 44) as screen:
        screen.type(f"TMUX=${{TMUX%%,*}},$$,0 {line(runner, 'true', '--ui', 'tmux')}; echo status=$?")
        screen.see("status=125")
        assert "has ended; nothing was started" in "".join(screen.lines()).replace("\n", "")
