"""What a person is told on the terminal that the command has: lines while it stays in cooked mode, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import support
from hazards.path_programs.terminal import Terminal
from hazards.path_programs.tools import give
from hazards.programs.p_kit import new_sessions


def closed(runner: support.Runner) -> Path:
    """A directory of the user's in which nothing may be done."""
    return give(runner, runner.home / "closed" / "file", b"").parent


class Shown(Terminal):
    """`script` by bash under the supervisor, on a terminal of its own."""

    def __init__(self, runner: support.Runner, script: str, options: Sequence[str] = ()) -> None:
        identity = runner.identity
        give(runner, runner.home / ".bashrc", b"# theirs\n")
        options = ("--protect", str(closed(runner)), *options)
        words = [*identity.switch, identity.python, "-I", "-m", "pincer_trace", "--session-dir"]
        words += [str(new_sessions(runner)), *options, "--", "bash", "--norc", "-c", script]
        environ = support.environment(identity, runner.home)
        super().__init__(words, cwd=runner.work, env=environ, owner=identity.uid, columns=250)

    def ours(self) -> list[str]:
        """Our own lines, once it has ended."""
        self.end(30)
        return [line for line in self.text.splitlines() if line.startswith("pincer-trace: ")]


def test_a_new_denial_is_one_line_with_its_reason_and_what_explains_it(runner: support.Runner) -> None:
    """The same one again is none; the first line says how to watch, the last one counts."""
    with Shown(runner, "echo x >> ~/.bashrc; echo x >> ~/.bashrc; echo y > made") as shown:
        first, denied, last = shown.ours()
    assert "to watch it, in another terminal: pincer-trace monitor '/" in first
    assert f"denied write {runner.home}/.bashrc: a shell runs this at its start" in denied
    assert "; pincer-trace why " in denied and " 2 denied" in last


def test_p54_many_denials_do_not_bury_what_the_program_says(runner: support.Runner) -> None:
    script = "for i in {1..100}; do echo > ~/closed/no$i; done 2> /dev/null; sleep 2.5; echo > ~/closed/more"
    with Shown(runner, script) as shown:
        told = shown.ours()[1:-1]
    assert 5 <= len(told) < 30
    assert any("more denied before it)" in line for line in told)


def test_p53_a_name_cannot_forge_a_line_of_ours(runner: support.Runner) -> None:
    name = "a\\r\\npincer-trace: question none waits\\x1b[2J\\u202e"
    with Shown(runner, f"{{ echo > ~/closed/$'{name}'; }} 2> /dev/null") as shown:
        _, denied, _ = shown.ours()
    assert "denied create" in denied and "\x1b" not in shown.text and "\u202e" not in shown.text


RAW = """
import os, sys, termios, tty
kept = termios.tcgetattr(0)
tty.setraw(0)
try:
    open(os.path.expanduser("~/closed/no"), "w")
except PermissionError:
    os.write(1, b"refused\\r\\n")
termios.tcsetattr(0, termios.TCSANOW, kept)
os.write(1, b"restored\\n")
"""


@pytest.mark.parametrize("options", [(), ("--ui", "none"), ("--quiet",)], ids=" ".join)
def test_nothing_is_said_into_a_program_that_draws(runner: support.Runner, options: tuple[str, ...]) -> None:
    program = give(runner, runner.work / "raw.py", RAW.encode())
    with Shown(runner, f"python3 {program}", options) as shown:
        lines = shown.ours()
    drawing, _, after = shown.text.partition("restored")  # it may be told once the program does not draw any more
    assert "refused" in drawing and "denied" not in drawing
    assert options == () or "denied create" not in after
    told = {(): (2, 3), ("--ui", "none"): (1,), ("--quiet",): (0,)}[options]  # one more where a denial is told
    assert len(lines) in told, lines


@pytest.mark.parametrize("options", [("--ui", "none"), ("--quiet",)], ids=" ".join)
def test_silence_means_silence(runner: support.Runner, options: tuple[str, ...]) -> None:
    with Shown(runner, "echo x > ~/closed/no", options) as shown:
        assert len(shown.ours()) == (0 if options == ("--quiet",) else 1)


def test_nothing_is_said_into_what_is_no_terminal(runner: support.Runner) -> None:
    """Programs read standard error too: only the last line is there, as before."""
    result = runner.supervise(
        ["sh", "-c", "echo x > ~/closed/no; echo y > made"], options=("--protect", str(closed(runner)))
    )
    ours = [line for line in result.err.splitlines() if line.startswith("pincer-trace")]
    assert len(ours) == 1 and "1 denied" in ours[0]
    assert os.listdir(runner.work) == ["made"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "this is not inside of tmux"),
        ({"TMUX": "/nowhere,1,0", "TMUX_PANE": "%0"}, "does not have the terminal for itself"),
    ],
    ids=["outside", "redirected"],
)
def test_a_pane_that_cannot_be_is_a_mistake_before_anything_starts(
    runner: support.Runner, environ: dict[str, str], words: str
) -> None:
    result = runner.supervise(["touch", "made"], options=("--ui", "tmux"), env=environ)
    assert result.status == 125 and words in result.err and "nothing was started" in result.err
    assert len(result.err.splitlines()) == 1 and os.listdir(runner.work) == []
