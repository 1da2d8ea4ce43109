"""`monitor` as a person has it: a real run that asks, and the view in a pane of tmux, with keys and what is seen.

Hazards P53 and P54: nothing that the worker does forges, floods, garbles or answers it.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess

import pytest
import support
from hazards.path_programs.terminal import Terminal
from hazards.programs.p_kit import Live, give, secret, state, until
from hazards.programs.p_tmux import Tmux
from hazards.test_asked import Run, ledger, shell


def monitor(run: Live, *more: str, columns: int = 80, rows: int = 24, **env: str) -> Tmux:
    """The view of this run, once the run has a session."""
    for _ in until("the session", 20):
        if list(run.sessions.rglob("session.json")):
            break
    words = [run.runner.identity.python, "-I", "-m", "pincer_trace", "monitor", *more, str(run.session)]
    return Tmux(run.runner, words, columns=columns, rows=rows, **env)


def answer(pane: Tmux, number: int, key: str, lit: str = "a allow once") -> None:
    """As a person does: open it, see that the keys are lit, press."""
    pane.type(str(number))
    pane.see(f" {number}  ", lit)
    pane.type(key)


def answers(run: Live) -> list[tuple[int, str]]:
    return [(record["question"], record["answer"]) for record in ledger(run) if record["kind"] == "answer"]


def test_questions_are_answered_by_keys(runner: support.Runner) -> None:
    """Once; again, since once is once; for the session; and no for the session, which a second try meets at once."""
    text = """
        echo 1 >> asked; echo $?; echo 2 >> asked; echo $?
        echo 3 >> asked; echo $?; echo 4 >> asked; echo $?
        echo 5 >> other; echo $?; echo 6 >> other; echo $?; read line
    """
    with Run(runner, shell(text)) as run, monitor(run) as pane:
        screen = pane.see("1 question, 1 held", "write ./asked", "the test asks")
        assert "running" in screen
        answer(pane, 1, "a")
        pane.see("allowed once; 1 held call goes on: write")
        assert run.line() == "0"
        pane.see("? 2 ")
        answer(pane, 2, "d")
        pane.see("denied; 1 held call refused")
        assert run.line() == "2"
        pane.see("? 3 ")
        answer(pane, 3, "s")
        pane.see("allowed for the session; 1 held call goes on")
        assert (run.line(), run.line()) == ("0", "0")
        pane.see("? 4 ", "./other")
        answer(pane, 4, "x")
        pane.see("denied for the session; 1 held call refused")
        assert (run.line(), run.line()) == ("2", "2")
        assert answers(run) == [(1, "once"), (2, "deny"), (3, "session"), (4, "deny-session")]
        screen = pane.see("DENIED", "» yes", "» no")
        pane.type("q")
        assert pane.status() == 0, pane.screen()
        assert (runner.work / "asked").read_text() == "asked\n1\n3\n4\n"


def test_two_questions_at_once_and_one_that_nobody_answers(runner: support.Runner) -> None:
    text = "echo 1 >> asked & echo 2 >> other; wait; echo done; read line"
    with Run(runner, shell(text), hold=12) as run, monitor(run, columns=120, rows=40) as pane:
        screen = pane.see("2 questions, 2 held", "write ./asked", "write ./other", " s ")
        number = 1 if "? 1 " in next(line for line in screen.splitlines() if "./asked" in line) else 2
        answer(pane, number, "a")
        pane.see("1 question, 1 held", "allowed once")
        pane.see("1 question", "10 min", without="1 held", patience=60)
        assert run.line() == "done"
        assert (runner.work / "asked").read_text() == "asked\n1\n" and (runner.work / "other").read_text() == "other\n"
        pane.type(str(3 - number))
        pane.see("denied by now; a yes lets the next try pass, for 10 min")


def test_always_is_added_to_the_profile_and_holds_in_the_next_run(runner: support.Runner) -> None:
    command = shell("echo x >> $HOME/.bashrc; echo $?; read line")
    options = ("--quiet", "--confirm", "ask")
    give(runner, runner.home / ".bashrc", b"mine\n")
    with Live(runner, command, options=options) as run, monitor(run) as pane:
        pane.see("1 question", "~/.bashrc")
        answer(pane, 1, "w")
        pane.see("allow always", "[[rule]]", 'effects = ["write"]', "- add it, and allow")
        pane.type("Enter")
        pane.see("1 question", without="[[rule]]")
        assert answers(run) == []
        pane.type_until("w", "[[rule]]", "w add it, and allow")
        pane.type("w")
        pane.see("allowed always; 1 held call goes on; added to")
        assert run.line() == "0" and answers(run) == [(1, "always")]
    done = runner.supervise(command, options=options, input=b"\n")
    assert done.status == 0 and done.out == "0\n"
    assert (runner.home / ".bashrc").read_text() == "mine\nx\nx\n"


GARBLE = """
import os, sys
names = [b"\\x1b[2J\\x1b]0;pwned\\x07\\x1b[1;1H", b"[/bold][red]x", b"\\xe2\\x80\\xaetxt.exe", b"a\\nb\\r\\tc",
         b"\\xff\\xfe", "\\u05d0\\u05d1_\\u2630\\U0001f3fb\\u3248".encode(), b"d" * 255, b" -> /etc/x", b"~",
         b"\\x1bPq#0\\x1b\\\\\\\\"]
for name in names:
    os.makedirs(os.path.join(b".", os.path.dirname(name)), exist_ok=True)
    open(name, "w").close()
    os.rename(name, name[:200] + b"2")
    for path in (os.path.join(os.environb[b"HOME"], b".ssh", name), name * 1 + b"/" * 3000):
        try:
            open(path, "w").close()
        except OSError:
            pass  # denied, or too long: it is the name in the log that matters
os.mkdir(b"\\x1b[31m")
os.symlink(sys.executable, b"\\x1b[31m/\\x1b[7m")
os.system("for i in 1 2; do sh -c 'exec \\"$0\\" -c pass' $'\\\\x1b[31m/\\\\x1b[7m' 2>/dev/null; done")
print("\\x1b[2J made", flush=True)
try:
    open("asked\\x1b[2J\\u202e.tmp.1", "w")
except OSError:
    pass  # the view ends, and nobody answered
"""


@pytest.mark.parametrize("size", [(80, 24), (250, 70), (40, 12)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_p53_a_worker_garbles_nothing(runner: support.Runner, size: tuple[int, int]) -> None:
    """Its names hold escape sequences, markup, marks, characters of doubtful width, all 255 bytes there are."""
    (runner.home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    os.chown(runner.home / ".ssh", runner.identity.uid, runner.identity.gid)
    command = [runner.identity.python, "-I", "-c", GARBLE + "input()"]
    with Live(runner, command, options=("--quiet", "--confirm", "ask")) as run:
        with monitor(run, columns=size[0], rows=size[1], PINCER_TRACE_DEBUG="1") as pane:
            assert run.line().endswith(" made")
            pane.see("running", "denied")
            title = pane("display-message", "-p", "#{pane_title}")
            for keys in (
                ["n"],
                ["Enter"],
                ["N", "N"],
                ["Escape"],
                ["Escape"],
                ["p"],
                ["p"],
                ["!"],
                ["Home"],
                ["End"],
                ["?"],
                ["x"],
            ):
                pane.type(*keys)
                screen = pane.screen()
                assert screen.replace("\n", "").isprintable(), screen
                assert not {"\u202e", "\u05d0", "\u2630"} & set(screen)
            first = pane.see("running").splitlines()[0]
            assert first.startswith(" running") and "denied" in first, "the first line is where it was"
            assert pane("display-message", "-p", "#{pane_title}") == title and "pwned" not in title
            pane.type("q")
            assert pane.status() == 0, pane.screen()


FLOOD = """
import os
for number in range(10**9):
    name = "d%d/x%d" % (number % 50, number)
    if number < 50:
        os.mkdir("d%d" % number)
    open(name, "w").close()
    os.unlink(name)
    try:
        open(os.environ["HOME"] + "/.ssh/id_ed25519")
    except OSError:
        pass  # as it must be: a denial each time
"""


def test_p54_resizing_in_a_flood(runner: support.Runner) -> None:
    """The view stays whole whatever size it gets, answers keys, and says so when the supervisor is killed."""
    secret(runner)
    command = [runner.identity.python, "-I", "-c", FLOOD]
    with Live(runner, command) as run, monitor(run) as pane:
        pane.see("running", "k effects", patience=60)
        for columns, rows in ((250, 70), (40, 12), (20, 5), (120, 40), (300, 90), (81, 25), (10, 3), (80, 24)) * 2:
            pane.resize(columns, rows)
            pane.type("p", "p", "Up", "End")
            screen = pane.screen()
            assert len(screen.splitlines()) <= rows and max(map(len, screen.splitlines())) <= columns
        pane.see("running", "decisions", "denied")
        assert len(pane.screen().splitlines()) == 24
        pane.type("!")
        screen = pane.see("decisions: denied", "DENIED", "~/.ssh/id_ed25519")
        pane.type("/", *"x7", "Enter")
        pane.see("decisions: x7")
        os.kill(run.engine, signal.SIGKILL)
        pane.see("killed: the supervisor is gone", patience=60)
        pane.type("?")
        pane.see("any key: back")
        pane.type("x")
        pane.type("q")
        assert pane.status() == 0, pane.screen()


def test_what_a_write_changed(runner: support.Runner) -> None:
    """Kept by the supervisor while somebody watches, and set against what the file holds by now."""
    give(runner, runner.work / "note", b"first\nsecond\x1b[2J\n")
    text = "echo 1 >> asked; echo more >> note; echo done; read line"
    with Run(runner, shell(text)) as run, monitor(run, columns=100, rows=40) as pane:
        pane.see("1 question")  # so it is watched
        answer(pane, 1, "a")
        assert run.line() == "done"
        pane.type("/", "write", "Space", "note", "Enter")
        pane.see("decisions: write note", "./note")
        pane.type("Enter")
        screen = pane.see("write     ", "changed ", "+ more")
        assert "second\\x1b[2J" in screen


def test_compact_ends_with_the_session(runner: support.Runner) -> None:
    text = "cat $HOME/.ssh/id_rsa; echo 1 >> asked; echo $?; read line"
    with Run(runner, shell(text)) as run, monitor(run, "--compact", columns=80, rows=10) as pane:
        pane.see("1 question", "write ./asked")
        answer(pane, 1, "a")
        assert run.line() == "0"
        run.say()
        assert pane.status() == 0, pane.screen()


def test_the_terminal_is_as_it_was(runner: support.Runner) -> None:
    """After leaving by a key, and when the pane is closed under it."""
    with Run(runner, shell("echo up; read line")) as run:
        assert run.line() == "up"
        with monitor(run) as pane:
            pane.see("running", "decisions")
            shown = pane("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split()
            assert shown == ["1", "0", "1"]
            pane.type("q")
            assert pane.status() == 0
            assert "decisions" not in pane.screen()
            pane.type("typed")
            pane.see("typed")  # the terminal echoes again
            shown = pane("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split()
            assert shown == ["0", "1", "0"]
        with monitor(run) as pane:
            pane.see("running", "decisions")
            viewer = pane.pid()
        for _ in until("the viewer's end", 20):
            if state(viewer) in "XZ":
                break


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw(runner: support.Runner, term: str) -> None:
    env = support.environment(runner.identity, runner.home) | {"TERM": term}
    words = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "monitor"]
    with Terminal(words, cwd=runner.base, env=env, owner=runner.identity.uid) as terminal:
        status = terminal.end()
        assert status == 125 and terminal.text.startswith("pincer-trace: TERM is ") and terminal.text.count("\n") == 1


def plain(runner: support.Runner, *words: str) -> subprocess.CompletedProcess[str]:
    program = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "monitor", *words]
    env = support.environment(runner.identity, runner.home) | {"TERM": "xterm"}
    return subprocess.run(program, cwd=runner.base, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def test_no_terminal_and_no_session(runner: support.Runner) -> None:
    done = plain(runner)
    assert (
        (done.returncode, done.stdout) == (125, "") and "is no terminal" in done.stderr and done.stderr.count("\n") == 1
    )
    words = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "monitor"]
    env = support.environment(runner.identity, runner.home) | {"TERM": "xterm"}
    for more, said in (([], "no sessions in"), (["nothing"], "no sessions in"), (["./x/"], "is no session")):
        with Terminal([*words, *more], cwd=runner.base, env=env, owner=runner.identity.uid) as terminal:
            assert terminal.end() == 125
            assert (
                terminal.text.startswith("pincer-trace: ") and said in terminal.text and terminal.text.count("\n") == 1
            )


def test_p53_the_worker_cannot_watch_itself(runner: support.Runner) -> None:
    """It has our terminal, and is refused; its session's directory is closed to it as well."""
    code = (
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-I', '-m', 'pincer_trace', 'monitor']\n"
        "done = subprocess.run(words, stderr=subprocess.PIPE, text=True)\n"
        "print(done.returncode, done.stderr, flush=True)\n"
    )
    env = support.environment(runner.identity, runner.home) | {"TERM": "xterm"}
    words = [runner.identity.python, "-I", "-m", "pincer_trace", "--ui", "none", "--quiet", "--"]
    words = [*runner.identity.switch, *words, runner.identity.python, "-I", "-c", code]
    with Terminal(words, cwd=runner.work, env=env, owner=runner.identity.uid) as terminal:
        terminal.expect("125 pincer-trace: this process is supervised by pincer-trace itself")
        assert terminal.end() == 0


def test_a_session_of_another_user(runner: support.Runner) -> None:
    """Root sees whose it is; everybody else does not get that far."""
    if os.geteuid() != 0 or runner.identity.uid == 0:
        pytest.skip("needs root and a user")
    with Run(runner, shell("echo up; read line")) as run:
        assert run.line() == "up"
        root = support.identities()["root"]
        words = [root.python, "-I", "-m", "pincer_trace", "monitor", str(run.session)]
        env = support.environment(root, pwd.getpwuid(0).pw_dir) | {"TERM": "xterm"}
        with Terminal(words, cwd=runner.base, env=env) as terminal:
            assert terminal.end() == 125
            assert f"is user {runner.identity.uid}'s" in terminal.text and terminal.text.count("\n") == 1
    theirs = support.Runner(runner.base, root)
    theirs.count = runner.count
    with Live(theirs, shell("echo up; read line")) as run:
        assert run.line() == "up"
        words = [
            *runner.identity.switch,
            runner.identity.python,
            "-I",
            "-m",
            "pincer_trace",
            "monitor",
            str(run.session),
        ]
        env = support.environment(runner.identity, runner.home) | {"TERM": "xterm"}
        with Terminal(words, cwd=runner.base, env=env, owner=runner.identity.uid) as terminal:
            assert terminal.end() == 125
            assert terminal.text.startswith("pincer-trace: ") and terminal.text.count("\n") == 1


def test_a_terminal_that_hangs_up_ends_it(runner: support.Runner) -> None:
    """Also where the shell around it ignores the signal: what reads then is the end of file, again and again."""
    with Run(runner, shell("echo up; read line")) as run:
        assert run.line() == "up"
        words = [runner.identity.python, "-I", "-m", "pincer_trace", "monitor", str(run.session)]
        line = ["sh", "-c", "trap '' HUP; \"$@\"; exit 3", "sh", *words]
        env = support.environment(runner.identity, runner.home) | {"TERM": "xterm"}
        with Terminal(
            [*runner.identity.switch, *line], cwd=runner.base, env=env, owner=runner.identity.uid
        ) as terminal:
            terminal.expect("decisions", 30)
            os.close(terminal.master)
            terminal.master = -1
            for _ in until("its end", 20):
                if state(terminal.pid) in "XZ":
                    break
            assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 3
            terminal.status = 3


def test_to_the_shell_and_back(runner: support.Runner) -> None:
    """Ctrl-Z and fg: all is drawn again; Ctrl-L draws over what another program has written there."""
    with Run(runner, shell("cat $HOME/.ssh/id_rsa; echo up; echo 1 >> asked; read line")) as run:
        assert run.line() == "up"
        words = [runner.identity.python, "-I", "-m", "pincer_trace", "monitor", str(run.session)]
        with Tmux(runner, ["env", "PS1=ready> ", "HISTFILE=", "bash", "--norc", "--noprofile", "-i"]) as pane:
            pane.see("ready>")
            pane.type(" ".join(words), "Enter")
            whole = pane.see("1 question", "decisions", "? help").splitlines()
            pane.type("C-z")
            pane.see("Stopped", without="decisions")
            pane.type("fg", "Enter")
            assert len(pane.see("1 question", "decisions", "OUTCOME", "? help").splitlines()) == len(whole)
            with open(pane("display-message", "-p", "#{pane_tty}").strip(), "w") as terminal:
                terminal.write("\x1b[2Jsomebody else")
            pane.see(without="OUTCOME")  # what it draws anew each second may be there again already
            pane.type("C-l")
            pane.see("1 question", "decisions", "OUTCOME", "? help", without="somebody")
            pane.type("q")
            pane.see("ready>", without="decisions")


def test_no_colour_where_none_is_wanted(runner: support.Runner) -> None:
    with (
        Run(runner, shell("cat $HOME/.ssh/id_rsa; echo 1 >> asked; read line")) as run,
        monitor(run, NO_COLOR="1") as pane,
    ):
        pane.see("1 question", "running")
        drawn = pane.screen("-e")
        assert not [
            code for code in (*range(30, 39), *range(40, 49)) if f"\x1b[{code}m" in drawn or f";{code}m" in drawn
        ]
