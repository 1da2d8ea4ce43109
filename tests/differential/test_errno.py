"""The errno matrix, natively and supervised, line by line (P12, P19, P22, P26, P77, P90, P98, P99)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import support

HERE = Path(__file__).parent
SECTIONS = [
    "opens", "open_at", "open_at2", "removes", "renames", "links", "makes", "modes", "owners",
    "sizes", "times",
    "xattrs", "inode_flags", "sockets", "places", "execs",
]  # fmt: skip


def known_differences(identity: str) -> list[tuple[re.Pattern[str], str]]:
    """Lines of `known_errno.txt`: `root|user|any  REGEX  # reason`; the regex matches the case,
    left of the arrow."""
    known = []
    for number, line in enumerate((HERE / "known_errno.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        who, pattern, reason = re.fullmatch(r"(root|user|any)\s+(\S.*?)\s+#\s*(\S.*)", line).groups()  # type: ignore[union-attr]
        assert who in ("root", "user", "any"), f"known_errno.txt:{number}"
        if who in ("any", identity):
            known.append((re.compile(pattern), reason))
    return known


def run_section(runner: support.Runner, section: str, supervised: bool) -> support.Result:
    """One section of the matrix in a fresh work folder, with the program beside it and not in it."""
    runner.fresh()
    programs = runner.base / "programs"
    if not programs.exists():
        shutil.copytree(HERE / "programs", programs, ignore=shutil.ignore_patterns("__pycache__"))
    command = [runner.identity.python, "-B", str(programs / "errno_matrix.py"), section]
    result = (runner.supervise if supervised else runner.native)(command, timeout=240)
    assert result.status == 0, result
    return result


def head(result: str) -> str:
    """The part of a result that names its kind: errno, or the flags and mode of what was opened."""
    return re.sub(r" size=.*| ;.*", "", result)


@pytest.mark.parametrize("section", SECTIONS)
def test_p19_errno_is_as_native(runner: support.Runner, section: str) -> None:
    """Every case answers as it does without us, and leaves the same tree."""
    natively = run_section(runner, section, supervised=False).out.splitlines()
    supervised = run_section(runner, section, supervised=True).out.splitlines()
    assert len(natively) > 10
    assert [line.split(" -> ")[0] for line in natively] == [line.split(" -> ")[0] for line in supervised]
    known = known_differences(runner.identity.name)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for native, ours in zip(natively, supervised, strict=True):
        case, _, expected = native.partition(" -> ")
        if native != ours and not any(pattern.search(case) for pattern, _ in known):
            got = ours.partition(" -> ")[2]
            key = (case.partition("(")[0].strip(), head(expected), head(got))
            groups.setdefault(key, []).append(f"    {case}\n      natively   {expected}\n      supervised {got}")
    shown = [
        f"{call}: {len(cases)} x natively {expected}, supervised {got}\n" + "\n".join(cases[:3])
        for (call, expected, got), cases in groups.items()
    ]
    total = sum(map(len, groups.values()))
    assert not groups, f"{total} of {len(natively)} cases differ, in {len(groups)} kinds:\n" + "\n".join(shown)
