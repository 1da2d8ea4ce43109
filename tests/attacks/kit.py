"""What the attack tests share: programs of several files, compiled once; a log read in pieces that marks divide."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hazards.path_programs.tools import build_folder

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def compiled(*names: str) -> str:
    """The path of the program whose parts are `NAME.c`."""
    binary = build_folder() / names[0]
    words = ["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-pthread", "-o", str(binary)]
    done = subprocess.run([*words, *(str(PROGRAMS / f"{name}.c") for name in names)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(binary)


def between_marks(decisions: Iterable[dict[str, Any]], marks: Path) -> dict[str, list[dict[str, Any]]]:
    """The records that follow each refused attempt to make something in the folder `marks`, by its name there."""
    found: dict[str, list[dict[str, Any]]] = {}
    current: list[dict[str, Any]] = []
    for record in decisions:
        path = Path(record["path"])
        if path.parent == marks:
            assert record["verdict"] != "allow", record
            current = found[path.name] = []
        elif record["kind"] != "reads":
            current.append(record)
    return found
