"""What a run did as lines: the same for each run of the same thing, short, and with everything in it that matters."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from pincer_trace.profile import Places
from pincer_trace.review.naming import Names
from pincer_trace.testing import Trace, supervise
from pincer_trace.testing.behaviour import _shown, _without_made_up, behaviour, folded
from pincer_trace.testing.calls import unversioned
from pincer_trace.testing.snapshot import file_of


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{workspace}/.git/objects/3f/9c0a51e28f4b6d7c8e9f0a1b2c3d4e5f607182", "{workspace}/.git/objects/*/*"),
        ("{home}/.npm/_cacache/sha512/ab/0f/0123456789abcdef0123", "{home}/.npm/_cacache/sha512/*/*/*"),
        ("{home}/.npm/_logs/2026-11-30T03_42_45_123Z-debug-0.log", "{home}/.npm/_logs/*-debug-0.log"),
        ("{tmp}/tmpk3j_x9ab", "{tmp}/tmp*"),
        ("{tmp}/tmp_abcdefg", "{tmp}/tmp*"),
        ("{tmp}/tmpk3j_x9ab/tmpfile", "{tmp}/tmp*/tmpfile"),
        ("{tmp}/pip-unpack-k3jx9ab_", "{tmp}/pip-unpack-*"),
        ("{tmp}/out.AbCdEf.txt", "{tmp}/out.*.txt"),
        ("{tmp}/pytest-of-me/pytest-17/test_a0", "{tmp}/pytest-of-me/pytest-*/test_a0"),
        ("{home}/.local/lib/python3.11/site-packages/x.py", "{home}/.local/lib/python3.*/site-packages/x.py"),
        ("{home}/.pyenv/versions/3.11.7/bin", "{home}/.pyenv/versions/*/bin"),
        ("{home}/.npmrc", "{home}/.npmrc"),
        ("{home}/.agent/3fa85f64-5717-4562-b3fc-2c963f66afa6.json", "{home}/.agent/*.json"),
        ("{workspace}/a.pyc.140233224", "{workspace}/a.pyc.*"),
        ("{workspace}/x25519.c", "{workspace}/x25519.c"),
        ("{workspace}/tmpk3j_x9ab/my-library.c", "{workspace}/tmpk3j_x9ab/my-library.c"),
        ("{workspace}/ab/cd", "{workspace}/ab/cd"),
    ],
)  # fmt: skip
def test_what_is_made_up_anew_is_left_out(name: str, told: str) -> None:
    assert _without_made_up(name) == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("python3.11", "python"), ("python3", "python"), ("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc"),
        ("perl5.36.0", "perl"), ("sha256sum", "sha256sum"), ("md5", "md5"), ("7z", "7z"), ("pip3.11", "pip"), ("", ""),
    ],
)  # fmt: skip
def test_programs_are_told_without_their_versions(name: str, told: str) -> None:
    assert unversioned(name) == told


def test_the_snapshots_of_two_tests_are_two_files() -> None:
    test = Path("/t/test_x.py")
    assert file_of(test, "test_a[b/c d]", "more") == Path("/t/snapshots/test_x.test_a[b_c_d].more.txt")
    assert file_of(test, "../../x") == Path("/t/snapshots/test_x..._.._x.txt")
    long = {file_of(test, f"test_{'a' * 300}[{number}]") for number in range(2)}
    assert len(long) == 2
    assert max(len(file.name) for file in long) < 128


def test_many_names_are_one_line_but_no_new_place_is_hidden() -> None:
    many = [f"{{home}}/.npm/cache/{n}/file" for n in range(9)]
    few = ["{home}/.config/a/x", "{home}/.config/b/y", *(f"{{home}}/.{n}rc" for n in "abcdefgh")]
    marked = {f"{{home}}/.npm/cache/{n}/.npmrc": True for n in range(3)}
    empty = {"{workspace}/new/": False, "{workspace}/new/full/": False, "{workspace}/new/full/x": False}
    found = folded(dict.fromkeys((*many, *few), False) | marked | empty)
    assert found == {
        "{home}/.npm/cache/**": 9, **dict.fromkeys((*few, *marked), 1), "{workspace}/new/full/x": 1,
    }  # fmt: skip


def test_a_folder_of_protected_files_has_an_end() -> None:
    found = folded({f"{{home}}/.ssh/{n}": True for n in range(100)})
    assert len(found) == 21
    assert found["{home}/.ssh/**"] == 80


def test_compiled_modules_are_told_by_their_folder() -> None:
    assert folded({"{workspace}/a/__pycache__/b.cpython-311.pyc": False}) == {"{workspace}/a/__pycache__/**": 1}


def test_names_are_quoted_where_they_could_pass_for_more() -> None:
    assert _shown("{home}/.npmrc") == "{home}/.npmrc"
    assert _shown("{home}") == "{home}"
    assert _shown("{workspace}/a by sh") == '"{workspace}/a by sh"'
    assert _shown("{workspace}/a\n+ exit 0") == '"{workspace}/a\\n+ exit 0"'
    assert _shown("{x}") == "{x}"


def test_places_are_named_from_the_innermost() -> None:
    places = Places(
        cwd=b"/home/me/w/sub", workspace=b"/home/me/w", home=b"/home/me", tmp=b"/tmp", state=b"/home/me/.local/state",
        cache=b"/var/c", homes=(b"/home/me", b"/root"),
    )  # fmt: skip
    names = Names(places, {"mine": "/tmp/mine"})
    shorts = {
        "/home/me/w": "{workspace}", "/home/me/w/a": "{workspace}/a", "/home/me/wa": "{home}/wa",
        "/tmp/mine/x": "{mine}/x", "/var/c/x": "{cache}/x", "/home/me/.config/x": "{config}/x", "/root/x": "{homes}/x",
        "/etc/x": "/etc/x", "//127.0.0.1:1": "//127.0.0.1:1",
    }  # fmt: skip
    assert {path: names.short(path) for path in shorts} == shorts
    assert names.pattern("a") == names.pattern("/home/me/w/sub/a")
    assert names.pattern(".") == names.pattern("/home/me/w/sub")
    assert names.pattern("~/x") == names.pattern("{home}/x") == names.pattern("/home/me/x")


WORKLOADS = {
    "git": """
        git init -q . && echo 1 > a && git add a && git commit -qm one && git checkout -qb two && echo 2 >> a
        git commit -qam two && git gc -q && git clone -q . ../clone && git worktree add -q ../clone/linked""",
    "pip": f"""
        {sys.executable} -I -m pip install -q --no-index --no-deps --disable-pip-version-check --target lib \\
        demo-1-py3-none-any.whl""",
    "npm": "npm install --no-audit --no-fund --offline ./dep",
    "pytest": f"{sys.executable} -m pytest -q -p no:randomly --basetemp=base test_it.py",
}  # fmt: skip
IDENTITY = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(workload: str, base: Path) -> Trace:
    """One run from nothing, in folders of the same names."""
    shutil.rmtree(base, ignore_errors=True)
    work = base / "work"
    (work / "dep").mkdir(parents=True)
    with zipfile.ZipFile(work / "demo-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("demo.py", "x = 1\n")
        wheel.writestr("demo-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1\n")
        wheel.writestr("demo-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("demo-1.dist-info/RECORD", "")
    (work / "package.json").write_text('{"name": "work", "version": "1.0.0"}')
    (work / "dep/package.json").write_text('{"name": "dep", "version": "1.0.0", "bin": "f1.js"}')
    for number in range(20):
        (work / f"dep/f{number}.js").write_text("#!/usr/bin/env node\n")
    (work / "test_it.py").write_text("def test_it(tmp_path):\n    (tmp_path / 'x').write_text('1')\n")
    trace = supervise(
        ["sh", "-ec", WORKLOADS[workload]], cwd=work, home=base / "home", env=IDENTITY, sessions=base / "sessions",
        timeout=200,
    )  # fmt: skip
    trace.assert_exit(0)
    return trace


def lines(workload: str, base: Path) -> list[str]:
    return [line.text for line in behaviour(run(workload, base), more={"base": str(base)})]


@pytest.mark.parametrize("workload", ["git", "pip"])
def test_three_runs_have_the_same_lines(workload: str, tmp_path: Path) -> None:
    first = lines(workload, tmp_path / "base")
    assert 8 < len(first) < 40
    for _ in range(2):
        assert lines(workload, tmp_path / "base") == first


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_fifty_runs_have_the_same_lines(workload: str, tmp_path: Path) -> None:
    if workload == "npm" and shutil.which("npm") is None:
        pytest.skip("npm is missing (Debian package npm)")
    first = lines(workload, tmp_path / "base")
    assert 8 < len(first) < 40
    for _ in range(49):
        assert lines(workload, tmp_path / "base") == first
