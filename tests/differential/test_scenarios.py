"""Each program of `scenarios/` natively and supervised: same status, same outputs, same tree.

A scenario is a shell script or a Python program that runs in an empty work folder. Its first comment lines
may say

    # needs: NAME ...          binaries or files without which it is skipped, visibly
    # contents: REGEX          names whose contents are not compared (they hold times or inode numbers)
    # names: REGEX             names that are not compared at all
    # output: REGEX            parts of the outputs that are replaced by `*` before they are compared
    # timeout: SECONDS         of each of the two runs; 60 when absent
    # slow                     runs only with scripts/test --all
    # both                     runs as both identities in the ordinary run too
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import support

FOLDER = Path(__file__).parent / "scenarios"


def headers(path: Path) -> dict[str, list[str]]:
    """The `# key: value` lines at the top of a scenario."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if match := re.fullmatch(r"# (needs|contents|names|output|timeout|slow|both)(?:: (.*))?", line):
            found.setdefault(match[1], []).append(match[2] or "")
    return found


def parameters() -> list[object]:
    """One test a file, marked as its header says."""
    marked = []
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in (".sh", ".py"):
            says = headers(path)
            marks = [pytest.mark.slow] * ("slow" in says) + [pytest.mark.both_identities] * ("both" in says)
            marked.append(pytest.param(path, id=path.stem, marks=marks))
    return marked


def run(
    runner: support.Runner, scenario: Path, supervised: bool, says: dict[str, list[str]]
) -> tuple[support.Result, dict]:
    """One run in fresh folders; the result and the tree it left."""
    runner.fresh()
    place = runner.base / scenario.name
    shutil.copy(scenario, place)
    place.chmod(0o644)
    start = ["/bin/bash", "-eu"] if scenario.suffix == ".sh" else [runner.identity.python, "-B"]
    outside = Path("/dev/shm") / f"pincer-test-{runner.base.name}"
    env = {"OUTSIDE": str(outside)}
    try:
        timeout = float(says.get("timeout", ["60"])[0])
        result = (runner.supervise if supervised else runner.native)([*start, str(place)], env=env, timeout=timeout)
    finally:
        support.remove_tree(outside)
    hidden = [re.compile(pattern) for pattern in says.get("names", [])]
    vague = [re.compile(pattern) for pattern in says.get("contents", [])]
    tree = {}
    for name, words in support.snapshot(runner.work).items():
        if any(pattern.search(name) for pattern in hidden):
            continue
        if any(pattern.search(name) for pattern in vague):
            words = re.sub(r"\d+ bytes [0-9a-f]{16}", "contents not compared", words)
        tree[name] = words
    return result, tree


def outputs(result: support.Result, says: dict[str, list[str]]) -> tuple[str, str]:
    """Both outputs, the parts that vary from run to run replaced."""
    out, err = result.out, result.err
    for pattern in says.get("output", []):
        out, err = (re.sub(pattern, "*", each) for each in (out, err))
    return out, err


@pytest.mark.parametrize("scenario", parameters())
def test_same_as_native(runner: support.Runner, scenario: Path) -> None:
    """Status, stdout, stderr and tree of a supervised run are those of a native one."""
    says = headers(scenario)
    for need in " ".join(says.get("needs", [])).split():
        if not (os.path.exists(need) if need.startswith("/") else shutil.which(need, path=support.SYSTEM_PATH)):
            pytest.skip(f"{need} is missing")
    native, native_tree = run(runner, scenario, supervised=False, says=says)
    assert native.status == 0, f"the scenario itself fails natively: {native}"
    ours, our_tree = run(runner, scenario, supervised=True, says=says)
    assert ours.status == native.status, f"native {native}\n\nsupervised {ours}"
    assert outputs(ours, says) == outputs(native, says)
    changed = support.differences(native_tree, our_tree)
    assert not changed, "\n".join(changed[:40])
