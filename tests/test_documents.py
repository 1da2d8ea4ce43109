"""The documents say what is true: tests that they name exist, hazards that are tested are explained, commands parse,
paths and names are there.
"""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pincer_trace import cli, options

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/threats.md", "docs/architecture.md", "docs/ci.md",
                             "docs/guide.md", "docs/differences.md")
]  # fmt: skip
README, CONTRIBUTING, THREATS, ARCHITECTURE, CI, GUIDE, DIFFERENCES = (path.read_text() for path in TEXTS)
TESTING = (ROOT / "docs/testing.md").read_text()  # tests/testing/test_tutorial.py does what it says
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAME_NO_FILE = {"differences.md", "testing.md"}
ROWS = {int(n): row for n, row in re.findall(r"^\| P(\d+) \|(.*)\|$", THREATS, re.M)}
NAMES = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
}
TESTS = {short for name in NAMES for short in re.findall(r"^test_p\d+(?=_)", name)}
# A test may carry several numbers: test_p30_p98_...
CARRIED = {
    int(n) for name in NAMES for head in re.findall(r"^test_(?:p\d+_)+", name) for n in re.findall(r"p(\d+)", head)
}
FOUND = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", THREATS.partition("## What a reviewer broke")[2], re.M)[1:]


def test_every_hazard_has_a_row_once() -> None:
    assert sorted(ROWS) == list(range(1, 100))
    assert len(re.findall(r"^\| P\d+ \|", THREATS, re.M)) == len(ROWS)


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_names_tests_that_exist_or_says_why_not(number: int) -> None:
    named = re.findall(r"test_p\d+", ROWS[number].rpartition("|")[2])
    assert bool(named) != bool(re.search("none here: .", ROWS[number]))
    assert set(named) <= TESTS


@pytest.mark.parametrize("name", sorted(TESTS))
def test_every_tested_hazard_names_its_tests(name: str) -> None:
    number = int(name.removeprefix("test_p"))
    assert re.search(rf"{name}\b", ROWS[number]), f"{name} is not in the row of P{number}"


def test_every_number_in_a_tests_name_is_explained() -> None:
    assert len(CARRIED) > 50
    assert set(ROWS) >= CARRIED


@pytest.mark.parametrize("row", FOUND, ids=lambda row: row[0][:40])
def test_a_way_that_was_found_is_tried_again(row: tuple[str, str, str]) -> None:
    named = set(re.findall(r"test_\w+", row[2]))
    assert named or row[2].startswith("none")
    assert named <= NAMES, named - NAMES


def test_every_attack_is_on_the_page() -> None:
    written = {
        name
        for path in (ROOT / "tests/hazards").glob("test_attacks*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert written
    assert not {name for name in written if name not in THREATS}


def test_every_invariant_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d) \| .* \| (.*) \|$", ARCHITECTURE, re.M)
    assert [number for number, _ in rows] == list("123456789")
    for number, shown in rows:
        named = set(re.findall(r"test_\w+", shown))
        assert named, number
        assert named <= NAMES, named - NAMES


def blocks(text: str) -> list[str]:
    """The lines of the fenced blocks."""
    return [line.strip() for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]


COMMANDS = sorted(
    {line for text in (README, CONTRIBUTING, CI, GUIDE) for line in blocks(text) if line.startswith("pincer-trace ")}
)
RUNS = [line for line in COMMANDS if " -- " in line and "[OPTIONS]" not in line]
SUBCOMMANDS = [line for line in COMMANDS if " -- " not in line]
SPOKEN = sorted(
    set(
        re.findall(
            r"`(pincer-trace [a-z][^`]*)`", "\n".join((README, CONTRIBUTING, THREATS, ARCHITECTURE, TESTING, CI, GUIDE))
        )
    )
)


def test_commands_were_found() -> None:
    assert len(RUNS) >= 2
    assert len(SUBCOMMANDS) >= 5
    assert SPOKEN


@pytest.mark.parametrize("line", RUNS)
def test_a_run_of_the_documents_parses(line: str) -> None:
    parsed = options.parse_run(shlex.split(line, comments=True)[1:])
    assert parsed is not None
    assert list(parsed.command) == shlex.split(line.partition(" -- ")[2], comments=True)


@pytest.mark.parametrize("line", [*SUBCOMMANDS, *SPOKEN])
def test_a_subcommand_of_the_documents_exists(line: str) -> None:
    """`a|b` are alternatives, [x] is optional, what follows two spaces is explained."""
    words = re.split(r"\s{2,}", line)[0].replace("[", "").replace("]", "").split()[1:]
    command: click.Command = cli.main
    for word in words:
        if isinstance(command, click.Group):
            found = [command.commands[name] for name in word.split("|")]
            command = found[0]
        elif word.startswith("-"):
            assert word in {flag for one in command.params for flag in one.opts}, word
    assert command is not cli.main


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_paths_in_the_documents_exist(path: Path) -> None:
    text = path.read_text()
    named = set(re.findall(r"\b(?:scripts|docs|tests|profiles|pincer_trace)/[\w./-]*\w", text))
    assert bool(named) != (path.name in NAME_NO_FILE)
    missing = [name for name in named if not (ROOT / name).exists()]
    links = [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (path.parent / link).exists()]
    assert not missing + links


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_modules_in_the_documents_exist(path: Path) -> None:
    """`gateway/`, `front.py`, `profile/gitconfig.py`: below the package."""
    package = ROOT / "pincer_trace"
    folders = "|".join(one.parent.name for one in package.glob("*/__init__.py"))
    named = re.findall(rf"(?<![\w/.])(?:(?:{folders})/[\w./]*|[a-z_]+\.py\b)", path.read_text())
    files = {one.name for one in package.rglob("*.py")}
    made = {"agent.py", "test_agent.py"}  # by who reads
    assert not [name for name in named if not (package / name).exists() and name not in files | made]


CLASSES = sorted(set(re.findall(r"`([A-Z]+[a-z]\w*)(?:\.(\w+))?`", THREATS + ARCHITECTURE)))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_in_the_documents_exist(name: tuple[str, str]) -> None:
    kind, member = name
    found = [text for path in (ROOT / "pincer_trace").rglob("*.py") if f"\nclass {kind}" in (text := path.read_text())]
    assert found
    assert not member or any(f"def {member}(" in text for text in found)


def test_options_of_the_readme_are_the_options() -> None:
    usage = README.partition("## Use it")[2].partition("```\n")[2].partition("```")[0].partition("pincer-trace log")[0]
    shown = set(re.findall(r"(?<![\w-])(--[a-z-]+)", usage))
    known = {flag for row in options.TABLE for flag in row.flags if flag.startswith("--")}
    assert shown == known


def test_known_differences_are_a_list() -> None:
    items = re.findall(r"^\* (.+)$", DIFFERENCES, re.M)
    assert len(items) >= 5
    assert len(set(items)) == len(items)


def test_the_picture_is_of_a_real_run(tmp_path: Path) -> None:
    """Its script draws it anew: the question, the denial and the counts are those of the demo's agent."""
    drawn = tmp_path / "monitor.svg"
    subprocess.run([sys.executable, ROOT / "scripts/picture", drawn], check=True, timeout=120)
    said, shown = (
        html.unescape(re.sub(r"<[^>]*>", "", file.read_text())).replace("\xa0", " ")
        for file in (drawn, ROOT / "docs/monitor.svg")
    )
    for words in (
        "python3 agent.py",
        "1 question, 1 held",
        "a shell runs this at its start",
        "~/.ssh/id_ed25519",
        "DENIED",
    ):
        assert words in said
        assert words in shown
    assert "font-face" not in drawn.read_text()


def test_the_five_minutes_of_the_readme(tmp_path: Path) -> None:
    """Its commands one after the other, with a small agent in the place of `claude`; the monitor wants a terminal."""
    project = tmp_path / "home/project"
    project.mkdir(parents=True)
    (project / "agent.py").write_text("from pathlib import Path\nPath('report.txt').write_text('fine\\n')\n")
    (project / ".env").write_text("API_KEY=a-value-to-hide\n")
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}
    said = {}
    for line in blocks(README.partition("## Five minutes")[2].partition("## Use it")[0]):
        if line.startswith("pincer-trace ") and " monitor" not in line:
            command = line.replace("-- claude", "-- python agent.py")
            done = subprocess.run(
                ["sh", "-c", command], cwd=project, env=env, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == (1 if " why " in line else 0), (line, done)
            said[line.partition("#")[0].strip()] = done.stdout
    assert "report.txt" in said["pincer-trace report"]
    assert said["pincer-trace why read ~/.ssh/id_ed25519"].startswith("deny")
    view = said["pincer-trace -- cat .env"]
    assert view.startswith("API_KEY=pincer:")
    assert "a-value-to-hide" not in view
    assert (project / ".env").read_text() == "API_KEY=a-value-to-hide\nPORT=8080\n"
    assert '"{workspace}/report.txt"' in (project / "agent.toml").read_text()
