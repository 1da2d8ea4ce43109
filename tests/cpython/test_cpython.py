"""CPython's own tests, natively and supervised: each test has the same result.

The interpreter is the first of PINCER_TEST_CPYTHON, the one that runs us, and /usr/bin/python3 that has its
`test` package (Debian: libpython3.11-testsuite). A test that differs is run once more on both sides before
it counts.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import support

HERE = Path(__file__).parent


def table(name: str) -> list[str]:
    """First words of the lines of a list whose every line has a reason."""
    words = []
    for number, line in enumerate((HERE / name).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            word, _, reason = line.partition("#")
            assert reason.strip(), f"{name}:{number} lacks its reason"
            words.append(word.strip())
    return words


@functools.cache
def interpreter(name: str) -> str | None:
    """An interpreter with CPython's tests that this identity may run."""
    identity = support.identities()[name]
    assert isinstance(identity, support.Identity)
    ours = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    for python in (os.environ.get("PINCER_TEST_CPYTHON"), ours, "/usr/bin/python3"):
        if python:
            find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('test.test_os') is None)"
            probe = [*identity.switch, python, "-c", find]
            env = {"PATH": support.SYSTEM_PATH, "LANG": "C.UTF-8"}
            if subprocess.run(probe, cwd="/", env=env, capture_output=True).returncode == 0:
                return python
    return None


def results(runner: support.Runner, supervised: bool, module: str, match: list[str]) -> dict[str, str]:
    """{test: passed | failed | skipped} of one module, from the report that regrtest writes."""
    python = interpreter(runner.identity.name)
    runner.fresh()
    report, temporary = runner.work / "report.xml", runner.work / "temporary"
    temporary.mkdir()
    os.chown(temporary, runner.identity.uid, runner.identity.gid)
    assert python
    words = [python, "-B", "-m", "test", "--timeout", "600"]
    words += ["--junit-xml", str(report), "--tempdir", str(temporary)]
    for pattern in match:
        words += ["-m", pattern]
    for pattern in table("exclude.txt"):
        who, _, name = pattern.rpartition(":")
        if who in ("", runner.identity.name):
            words += ["-i", name]
    before = support.children()
    how = {"timeout": 1500, "env": {"PYTHONDONTWRITEBYTECODE": "1"}}
    result = (runner.supervise if supervised else runner.native)([*words, module], **how)
    if not supervised:
        support.reap(before, patience=0.5)  # natively some leave processes; supervised nothing may be left
    if not report.exists():
        if result.status == 0 and f"{module} skipped" in result.out:
            return {}
        return {"(the whole module)": f"status {result.status}: {result.out[-2000:]} {result.err[-2000:]}"}
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        found[case.get("name", "?")] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        if failed:
            found[case.get("name", "?") + " says"] = " ".join(
                (case.findtext("failure") or case.findtext("error") or "").split()
            )[-300:]
    return found


def compare(runner: support.Runner, module: str, match: list[str], least: int) -> None:
    """Run both ways; what differs is run once more, alone; then it must agree."""
    if interpreter(runner.identity.name) is None:
        pytest.skip("no interpreter has the `test` package (Debian package libpython3.11-testsuite)")
    native = results(runner, False, module, match)
    ours = results(runner, True, module, match)
    if not native and not ours:
        pytest.skip(f"{module} skips itself here, natively and supervised")
    assert sum(not name.endswith(" says") for name in native) >= least, native

    def differing() -> list[str]:
        names = {name for name in native.keys() | ours.keys() if not name.endswith(" says")}
        return sorted(name for name in names if native.get(name) != ours.get(name))

    first = differing()
    if first and first != ["(the whole module)"] and len(first) < 40:
        again = [name.split(" ")[0] for name in first]
        native |= results(runner, False, module, again)
        ours |= results(runner, True, module, again)
    lines = [
        f"{name}: natively {native.get(name, 'absent')}, supervised {ours.get(name, 'absent')}: "
        + ours.get(name + " says", "")
        for name in differing()
    ]
    assert not lines, f"{len(lines)} of {len(native)} tests of {module} differ:\n" + "\n".join(lines[:40])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("module", "match", "least"),
    [
        ("test_fileio", [], 40),
        ("test_tempfile", [], 80),
        (
            "test_os",
            [
                "FileTests",
                "UtimeTests",
                "MakedirTests",
                "FDInheritanceTests",
                "LinkTests",
                "TestScandir",
                "ChownFileTests",
                "*xattr*",
            ],
            60,
        ),
        ("test_fcntl", [], 5),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_cpython_subset(runner: support.Runner, module: str, match: list[str], least: int) -> None:
    """The part that the ordinary run takes."""
    compare(runner, module, match, least)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("module", table("modules.txt"))
def test_cpython_module(runner: support.Runner, module: str) -> None:
    """A whole module."""
    compare(runner, module, [], 1)
