"""The documents say what is true: tests that they name exist, hazards that are tested are explained, commands parse."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pincer_trace import cli, options

ROOT = Path(__file__).resolve().parent.parent
THREATS = (ROOT / "docs/threats.md").read_text()
ROWS = {int(n): row for n, row in re.findall(r"^\| P(\d+) \|(.*)\|$", THREATS, re.M)}
TESTS = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_p\d+)_", path.read_text())
}
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/threats.md"]


def test_every_hazard_has_a_row() -> None:
    assert sorted(ROWS) == list(range(1, 100))


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_row_names_tests_that_exist_or_says_why_not(number: int) -> None:
    named = re.findall(r"test_p\d+", ROWS[number].rpartition("|")[2])
    assert named or "none here" in ROWS[number]
    assert set(named) <= TESTS


def test_every_tested_hazard_names_its_tests() -> None:
    for name in TESTS:
        number = int(name.removeprefix("test_p"))
        assert name in ROWS[number], f"{name} is not in the row of P{number}"


def commands() -> list[str]:
    blocks = [block for text in TEXTS for block in re.findall(r"^```\n(.*?)^```", text.read_text(), re.M | re.S)]
    return sorted({line.strip() for block in blocks for line in block.splitlines() if "pincer-trace " in line[:15]})


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_documents_exists(line: str) -> None:
    words = shlex.split(re.split(r"\s{2,}|: \d", line)[0].replace("[", "").replace("]", "").replace("...", ""))
    if "--" in words:
        head = [word for word in words[1 : words.index("--")] if word.startswith("-")]
        assert all(word in options.BY_FLAG for word in head)
    elif words[0] == "pincer-trace":
        for name in words[1].split("|"):
            assert name in cli.main.commands


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_paths_in_the_documents_exist(path: Path) -> None:
    named = re.findall(r"\b(?:scripts|docs|tests)/[\w./-]*\w", path.read_text())
    assert all((ROOT / name).exists() for name in named), named


def test_options_of_the_readme_are_the_options() -> None:
    shown = set(
        re.findall(
            r"(--[a-z-]+)", TEXTS[0].read_text().partition("## Use it")[2].partition("```")[2].partition("```")[0]
        )
    )
    known = {flag for row in options.TABLE for flag in row.flags if flag.startswith("--")}
    assert known <= shown
