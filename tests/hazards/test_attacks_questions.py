"""Ways to have a person say yes to something else, that a reviewer found: each is tried again here."""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import support
from hazards.path_programs.tools import attack, folder, give
from hazards.test_asked import Run

pytestmark = pytest.mark.both_identities

MADE_UP = "20991130-120000-abcdef"


def python(code: str) -> list[str]:
    return ["python3", "-c", textwrap.dedent(code)]


@pytest.mark.parametrize("below", ["work/sessions", "other"])
def test_p53_no_made_up_session_beside_the_real_one(runner: support.Runner, below: str) -> None:
    """People would read and answer it: `pending`, `log` and `approve` go by what lies in that place."""
    sessions = folder(runner, runner.base / below)
    runner.supervise(["true"], options=("--quiet", "--session-dir", str(sessions)))
    (earlier,) = os.listdir(sessions)
    give(runner, runner.work / "session/session.json", b"{}")
    before = {each.name: each.read_bytes() for each in (sessions / earlier).iterdir()}
    found, _ = attack(
        runner,
        """
place, made, earlier = sys.argv[1:]
note("mkdir", errno_of(os.mkdir, f"{place}/{made}"))
note("rename", errno_of(os.rename, "session", f"{place}/{made}"))
note("link", errno_of(os.symlink, os.path.abspath("session"), f"{place}/{made}"))
note("append", errno_of(os.open, f"{place}/{earlier}/ledger.jsonl", os.O_WRONLY | os.O_APPEND))
note("remove", errno_of(os.unlink, f"{place}/{earlier}/session.json"))
note("away", errno_of(os.rename, f"{place}/{earlier}", "earlier"))
note("whole", errno_of(os.rename, place, f"{place}2"))
note("another name", errno_of(os.mkdir, "20991130-120000-abcde"))
report()
""",
        str(sessions),
        MADE_UP,
        earlier,
        options=("--quiet", "--session-dir", str(sessions), "--allow-write", str(sessions)),
    )
    assert found == {**dict.fromkeys(("mkdir", "rename", "link", "append", "remove", "away", "whole"), 13),
                     "another name": 0}  # fmt: skip
    assert {each.name: each.read_bytes() for each in (sessions / earlier).iterdir()} == before
    assert not os.path.lexists(sessions / MADE_UP)


def test_p53_a_name_does_not_look_like_more(runner: support.Runner) -> None:
    """What is in a name is shown in its quotes, not as what is asked for."""
    code = """\
        import os
        for name in ("x/.envrc, mode 0600", "x/\\u0430sked -> y"):
            os.mkdir(os.path.dirname(name)) if not os.path.isdir("x") else None
            try:
                os.rename("asked", name)
            except PermissionError:
                print("refused", flush=True)
    """
    with Run(runner, python(code)) as run:
        for name in ("x/.envrc, mode 0600", "x/\u0430sked -> y"):
            (question,) = run.pending()
            shown = run.person("pending").stdout
            assert f'   {question["id"]} rename {runner.work}/asked -> "{runner.work}/{name}"\n' in shown
            run.answer("deny", str(question["id"]))
            assert run.line() == "refused"


def test_p53_the_line_on_standard_error_shows_the_end_of_a_name(runner: support.Runner) -> None:
    """A long name is cut in its middle there, and what is in a name stays in its quotes."""
    deep = "/".join("d" * 100 for _ in range(4)) + "/a, mode 0600 waits"
    with Run(runner, ["sh", "-c", f"mkdir -p '{deep}'; mv asked '{deep}/.envrc'; echo $?"], quiet=False) as run:
        (question,) = run.pending()
        line = run.errors().decode().splitlines()[-1]
        assert line.startswith(f'pincer-trace: rename {runner.work}/asked -> "{str(runner.work)[:20]}')
        assert '/a, mode 0600 waits/.envrc" waits for an answer: pincer-trace approve 1' in line
        run.answer("deny", str(question["id"]))
        assert run.line() == "1"


def _manners(run: Run, count: int) -> list[str]:
    """Say yes for the session to each question: with which values it was."""
    found = []
    for _ in range(count):
        (question,) = run.pending()
        found.append(str(question.get("manner", "")))
        run.answer("approve", str(question["id"]), "--for", "session")
        assert run.line() == "done"
    return found


def test_a_yes_to_one_length_is_none_to_another(runner: support.Runner) -> None:
    code = """\
        import os
        for length in (9, 9, 0):
            os.truncate("asked", length)
            print("done", flush=True)
    """
    with Run(runner, python(code)) as run:
        assert _manners(run, 1) == ["to 9 bytes"]
        assert run.line() == "done"  # the same again
        assert _manners(run, 1) == ["to 0 bytes"]


def test_a_yes_to_writing_is_none_to_inode_flags(runner: support.Runner) -> None:
    code = """\
        import fcntl, os, struct
        os.close(os.open("asked", os.O_WRONLY))
        print("done", flush=True)
        try:
            held = os.open("asked", os.O_RDONLY)
            print("done", flush=True)
            fcntl.ioctl(held, 0x40086602, struct.pack("i", 0x80))
            print("set", flush=True)
        except OSError as error:
            print(error.errno, flush=True)
    """
    with Run(runner, python(code)) as run:
        assert _manners(run, 2) == ["", ""]
        (question,) = run.pending()
        assert (question["effect"], question["manner"]) == ("write", "its inode flags")
        run.answer("deny", str(question["id"]))
        assert run.line() == "13"


def test_a_yes_to_one_link_is_none_to_another(runner: support.Runner) -> None:
    (runner.work / "asked").unlink(missing_ok=True)
    code = """\
        import os
        os.unlink("asked")
        print("done", flush=True)
        for text in ("other", "f", "f"):
            os.symlink(text, "asked")
            print("done", flush=True)
            os.unlink("asked")
    """
    with Run(runner, python(code)) as run:
        assert _manners(run, 2) == ["", "leading to other"]
        assert _manners(run, 1) == ["leading to f"]
        assert run.line() == "done"


def test_p53_a_ledger_from_elsewhere_shows_text_only(runner: support.Runner, tmp_path: Path) -> None:
    """A log may come from a machine that nobody trusts: no member of any record reaches the terminal as it is, and none
    of another type than it should have ends the listing.
    """
    result = runner.supervise(["sh", "-c", "echo x > f; mv f g; cat /etc/shadow; echo y > .envrc"])
    lines = [json.loads(line) for line in (result.session / "ledger.jsonl").read_text().splitlines()]
    facts = json.loads((result.session / "session.json").read_text())
    last = next(line for line in lines if line["kind"] == "denied")["seq"]
    place = folder(runner, runner.base / "elsewhere")

    def write(name: str, content: str) -> None:
        give(runner, place / name, content.encode())

    def told(*words: str) -> str:
        environment = support.environment(runner.identity, runner.home)
        command = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", *words]
        done = support.subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
        text = done.stdout + done.stderr
        assert "internal error" not in text, text
        assert text.replace("\n", "").isprintable(), (words, text)
        return text

    first = {(line["kind"], line.get("effect")): line for line in reversed(lines)}
    for evil in ("\x1b[2J", [["\x1b[2J"]], {"\x1b": 1}, 1e300, -1, None):
        changed: list[dict[str, Any]] = []
        for line in lines:
            if line is first.get((line["kind"], line.get("effect"))) and line["seq"] != last:
                changed += [{**line, member: evil} for member in line if member not in ("kind", "chain")]
            changed.append(line)
        write("ledger.jsonl", "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in changed))
        write("session.json", json.dumps(facts))
        assert re.search(rf"^ *{last} ", told("log", str(place)), re.MULTILINE)
        for words in (("verify",), ("replay",), ("why", str(last)), ("why", str(changed[0]["seq"]))):
            told(*words, str(place))
