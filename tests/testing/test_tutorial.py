"""docs/testing.md, done as it says: its files are written, its commands run, and fail where it says so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import support

from pincer_trace import effects, pytest_plugin
from pincer_trace.testing import Call, Process, Trace

PAGE = (support.REPOSITORY / "docs/testing.md").read_text()
# Each fenced block, with the line that was last said before it
BLOCKS = [
    (told, *block)
    for before, *block in re.findall(r"(.*?)^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
    for told in [before.strip().rpartition("\n")[2]]
]
SETUP = 3  # commands that make folder and environment


def commands() -> list[str]:
    return [line for _, language, text in BLOCKS if language == "sh" for line in text.splitlines()]


def follow(folder: Path, env: Mapping[str, str], skip: int) -> list[str]:
    """Do what the page says, in `folder`, without the first commands; what each command printed."""
    said = []
    for told, language, text in BLOCKS:
        named = re.findall(r"`(\w+\.py)`", told)
        if language == "python" and named:
            with open(folder / named[-1], "a" if "append" in told else "w") as file:
                file.write(text)
        for line in text.splitlines() if language == "sh" else ():
            if skip:
                skip -= 1
                continue
            done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True)
            assert (done.returncode != 0) == line.endswith("# fails"), f"{line}\n{done.stdout}{done.stderr}"
            said.append(done.stdout)
    return said


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PINCER_"))}
    return {**kept, "PYTEST_DEBUG_TEMPROOT": str(tmp_path), **more}


def check(said: list[str]) -> None:
    """What the commands printed is what the page shows of it."""
    first, debug, fixed, unreviewed, _, shown, reviewed, keys = said
    assert all("1 passed" in each for each in (first, fixed))
    assert "2 passed" in reviewed
    assert re.search(
        r"E +AssertionError: 1 change of other files than report\.txt\nE +allowed create /.*/debug\.log", debug
    )
    assert "nobody has reviewed what this does" in unreviewed
    assert "write {workspace}/report.txt by python\n" in shown
    page = next(text for _, _, text in BLOCKS if text.startswith("# What this test"))
    assert [line.split()[0] for line in shown.splitlines()[:4]] == [line.split()[0] for line in page.splitlines()[:4]]
    assert re.search(r"E +\+ deny read \{home\}/\.ssh/id_ed25519 by python\nE +calls behind the new lines:", keys)


def test_each_command_and_each_file_of_the_page(tmp_path: Path) -> None:
    assert commands()[:SETUP] == [
        "mkdir try && cd try", "python3 -m venv .venv", ".venv/bin/pip install ../pincer-trace pytest",
    ]  # fmt: skip
    folder = tmp_path / "try"
    (folder / ".venv/bin").mkdir(parents=True)
    pytest_ = folder / ".venv/bin/pytest"
    pytest_.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pytest -p pincer_trace.pytest_plugin "$@"\n')
    pytest_.chmod(0o755)
    check(follow(folder, environment(tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), SETUP))


@pytest.mark.slow
def test_the_page_from_a_clone(tmp_path: Path) -> None:
    """All of it, with the environment that it says, which pip fills."""
    clone = ["git", "clone", "-q", str(support.REPOSITORY), str(tmp_path / "pincer-trace")]
    subprocess.run(clone, check=True)
    for line in commands()[:SETUP]:
        where = tmp_path if line.startswith("mkdir") else tmp_path / "try"
        subprocess.run(["bash", "-c", line], cwd=where, env=environment(tmp_path), check=True)
    check(follow(tmp_path / "try", environment(tmp_path), SETUP))


def test_the_page_names_what_there_is() -> None:
    named = set(re.findall(r"\bassert_\w+", PAGE))
    assert named == {name for name in dir(Trace) if name.startswith("assert_")}
    section = PAGE.partition("## What there is")[2]
    arguments = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section.partition("A trace has")[0], re.M)))
    )
    known = pytest_plugin.Pincer.run.__kwdefaults__
    assert arguments == set(known)
    for name in ("calls", "effects", "reads", "denials", "peers", "processes", "changes", "find"):
        assert hasattr(Trace, name)
        assert f"`{name}" in section or f".{name}(" in section
    for name in (
        "effect",
        "path",
        "to",
        "verdict",
        "rule",
        "reason",
        "outcome",
        "program",
        "process",
        "count",
        "record",
    ):
        assert name in Call.__dataclass_fields__
    assert {"pid", "program", "parent"} <= set(Process.__dataclass_fields__)
    told = section.partition("Effects are")[2].partition("Patterns are")[0]
    assert set(re.findall(r"`(\w+)`", told)) == effects.EFFECTS | set(effects.GROUPS)


def test_the_options_of_the_page_are_there() -> None:
    asked = set(re.findall(r"--pincer-\w+", PAGE))
    source = Path(pytest_plugin.__file__).read_text()
    assert asked == set(re.findall(r'"(--pincer-\w+)"', source))
