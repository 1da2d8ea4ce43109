"""Every command that README, CONTRIBUTING and docs/ show is run: here, or by a test that is named here, or it is said
why no test can. A command that is new on a page and in none of these tables fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WORDS = (
    r"(?:pincer-trace|scripts/[\w-]+|\.venv/bin/\w+|\$RUNNER_TEMP/\S+|pipx?|pytest|python3?|mkdir|cat|sudo|strace|py-spy|git"
    r"|npm)"
)
SESSION = "20261130-034245-e2cc26"  # of the pages

# Here, in the order of the pages: what is run for it (it itself, if that is empty), and what it must print
HERE = {
    "pincer-trace -- python agent.py": ("", ""),
    "pincer-trace report": ("", "report.txt"),
    "pincer-trace report [SESSION] [--json]": ("pincer-trace report {session} --json", "report.txt"),
    "pincer-trace report --json": ("", "report.txt"),
    "pincer-trace --help": ("", "profile"),
    "pincer-trace log [SESSION] [--json]": ("pincer-trace log {session} --json", '"verdict": *"allow"'),
    "pincer-trace log --verdict deny --verdict confirm": ("", r"id_ed25519"),
    "pincer-trace verify [SESSION] [--key HEX]": ("pincer-trace verify {session}", "whole"),
    "pincer-trace sessions": ("", r"\d{8}-\d{6}-\w{6}"),
    "pincer-trace why": ("pincer-trace why read agent.py", "allow"),
    "pincer-trace why EFFECT TARGET": ("pincer-trace why write ~/.bashrc || [ $? = 1 ]", r"default\.toml:\d+"),
    "pincer-trace why RECORD": ("pincer-trace why {record} || [ $? = 1 ]", "id_ed25519"),
    "pincer-trace why RECORD [SESSION]": ("pincer-trace why {record} {session} || [ $? = 1 ]", "id_ed25519"),
    "pincer-trace replay SESSION -p PROFILE": ("pincer-trace replay {session} -p strict || [ $? = 1 ]", "differ"),
    "pincer-trace profile list|show|check": ("pincer-trace profile list && pincer-trace profile show strict", "strict"),
    "pincer-trace profile list": ("", "observe"),
    "pincer-trace profile show NAME": ("pincer-trace profile show ci", "later steps"),
    "pincer-trace profile learn [SESSION]...": ("pincer-trace profile learn {session}", r"\{workspace\}/report.txt"),
    f"pincer-trace profile learn {SESSION} -o agent.toml": ("", ""),
    f"pincer-trace profile check agent.toml {SESSION}": ("", "all would pass"),
    "pincer-trace profile check FILE": ("pincer-trace profile check agent.toml", "fine"),
    "pincer-trace -p ./agent.toml -- python agent.py": ("", ""),
    "pincer-trace profile diff A B": ("pincer-trace profile diff agent.toml default || [ $? = 1 ]", "deny -> allow"),
    "pincer-trace doctor": ("", "."),
    "scripts/demo": (f"PYTHON={sys.executable} {ROOT}/scripts/demo", "why write ~/.bashrc"),
}
# By another test, which is given the command, or one like it
ELSEWHERE = {
    "test_the_five_minutes_of_the_readme": [
        "pincer-trace -- claude", "pincer-trace why read ~/.ssh/id_ed25519", "pincer-trace --confirm ask -- claude",
        "pincer-trace -- cat .env", "pincer-trace -- sh -c 'echo PORT=8080 >> .env'",
        "pincer-trace profile learn -o agent.toml",
    ],
    "test_each_command_and_each_file_of_the_page": [
        ".venv/bin/pytest", ".venv/bin/pytest --pincer-update", "cat snapshots/test_agent.test_everything.txt",

    ],
    "test_the_page_from_a_clone": [
        "mkdir try && cd try", "python3 -m venv .venv", ".venv/bin/pip install ../pincer-trace pytest", "pip install .",
    ],
    "test_the_commands_of_the_page_on_ci_do_what_it_says": [
        "pincer-trace --report report.json --sarif denials.sarif --fail-on deny -- python3 agent.py",
        "$RUNNER_TEMP/pincer/bin/pincer-trace doctor", "pincer-trace profile check agent.toml",
        "$RUNNER_TEMP/pincer/bin/pincer-trace --fail-on deny --report report.json --sarif denials.sarif "
        "-- python3 agent.py", "pincer-trace -p ./agent.toml --fail-on deny -- python3 agent.py",
    ],
    "test_a_run_that_asks_is_answered_from_outside_and_later_runs_know": [
        "pincer-trace pending", "pincer-trace pending [SESSION]", "pincer-trace approve ID [SESSION]",
        "pincer-trace approve 3 --for session",
    ],
    "test_every_answer": ["pincer-trace deny ID [SESSION]"],
    "test_only_the_person_is_given_what_a_handle_stands_for_and_what_was_before": [
        "pincer-trace reveal HANDLE", "pincer-trace reveal HANDLE [SESSION]", "pincer-trace undo",
        "pincer-trace undo [NUMBER] [SESSION]",
    ],
    "test_the_picture_is_of_a_real_run": ["pincer-trace monitor", "pincer-trace monitor [SESSION]"],
    "test_where_nothing_can_be_supervised_a_test_is_skipped_or_fails": [
        "pytest --pincer-require --junitxml=behaviour.xml"
    ],
    "test_a_failure_names_the_call_and_keeps_its_session": ["pytest -n auto"],
    "test_bench_measures_and_prints_ratios": ["scripts/bench", "scripts/bench --quick"],
}  # fmt: skip
NOT = {
    "it runs the tests": [
        "scripts/test", "scripts/test --all", "scripts/test tests/gateway -k p26", "scripts/test -k p10",
        ".venv/bin/ruff format . && .venv/bin/ruff check . && .venv/bin/mypy", "scripts/compile",
    ],
    "it takes minutes, and judges what other tests hold": ["scripts/measure_summary"],
    "its page is compared with what it makes": ["scripts/reference-page"],
    "it needs a release in a registry, a distribution's packages, or changes the environment of whoever tests": [
        "pipx install .", "pip install pincer-trace pytest", "sudo apt-get install --yes libseccomp2",
        'python3 -m venv "$RUNNER_TEMP/pincer" && "$RUNNER_TEMP/pincer/bin/pip" install pincer-trace',
    ],
    "it is told of, or is another program's": [
        "pincer-trace [OPTIONS] -- COMMAND [ARG...]", "git push", "git worktree add ../other", "npm install", "git add",
        "git rebase -i", "git rebase --continue", "git status", "strace -f -p ENGINE", "strace --seccomp-bpf",
        "py-spy record -p ENGINE",
    ],
}  # fmt: skip
AGENT = """from pathlib import Path
Path("report.txt").write_text("three files, all fine")
try:
    (Path.home() / ".ssh/id_ed25519").read_text()
except OSError:
    pass
"""


def shown(page: Path) -> set[str]:
    """The commands of a page: lines of its blocks, steps of its workflows, and what it names in the text."""
    text = page.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    lines = [line for kind, block in blocks if kind in ("", "sh") for line in block.splitlines()]
    for kind, block in blocks:
        if kind == "yaml":
            joined = re.sub(r"\| *\n +", "", block.replace("\\\n", ""))
            lines += [" ".join(line.split()) for line in re.findall(r"^ +- run: (.*)$", joined, re.M)]
    spoken = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    lines += [" ".join(each.split()) for each in spoken]
    found = {" ".join(re.split(r"\s+#\s|\s{2,}", line)[0].split()) for line in lines if not line.startswith(" ")}
    return {line for line in found if re.match(rf"{WORDS}(?: |$)", line) and not re.search(r"^[\w-]+$|\.py: ", line)}


def named(table: dict[str, list[str]]) -> set[str]:
    return {command for commands in table.values() for command in commands}


def test_every_command_is_run_or_it_is_said_why_not() -> None:
    commands = set().union(*map(shown, PAGES))
    assert len(commands) > 50
    assert commands - set(HERE) - named(ELSEWHERE) - named(NOT) == set()
    assert (set(HERE) | named(ELSEWHERE) | named(NOT)) - commands == set(), "on no page any more"
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert set(ELSEWHERE) <= tests


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with the agent of the pages, and the environment of who reads them, with one run that went before."""
    base = tmp_path_factory.mktemp("pages")
    work = base / "home/project"
    (base / "home/.ssh").mkdir(parents=True)
    work.mkdir()
    (base / "home/.ssh/id_ed25519").write_text("no real key")
    (work / "agent.py").write_text(AGENT)
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(base / "home"), "LANG": "C.UTF-8"}
    return work, env


def test_the_commands_that_are_run_here_do_what_their_pages_say(project: tuple[Path, dict[str, str]]) -> None:
    work, env = project

    def sh(command: str) -> str:
        done = subprocess.run(["sh", "-c", command], cwd=work, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (command, done)
        return done.stdout

    sh("pincer-trace -q -- python agent.py")
    (session,) = os.listdir(work.parent / ".local/state/pincer-trace/sessions")
    (record,) = re.findall(r'"seq": *(\d+)', next(
        line for line in sh("pincer-trace log --json").splitlines() if "id_ed25519" in line
    ))  # fmt: skip
    for command, (instead, wanted) in HERE.items():
        run = (instead or command).replace(SESSION, session).format(session=session, record=record)
        assert re.search(wanted, sh(run)), (run, wanted)
    assert (work / "report.txt").read_text() == "three files, all fine"
