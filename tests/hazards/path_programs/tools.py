"""What the path, identity, signal and front tests share: compiling attacker programs, running code natively and
supervised, files that must not change.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import support

PROGRAMS = Path(__file__).parent
PRELUDE = (PROGRAMS / "calls.py").read_text()
SECRET = b"canary-7f3a-secret\n"


@functools.cache
def build_folder() -> Path:
    """Where compiled programs lie: readable and executable for every identity."""
    folder = Path(tempfile.mkdtemp(prefix="pincer-programs-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, True)
    return folder


@functools.cache
def compiled(name: str, *flags: str) -> str:
    """The program of `NAME.c`, compiled. Skips when there is no C compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing (Debian package gcc)")
    path = build_folder() / "-".join([name, *(flag.strip("-").replace("=", "") for flag in flags)])
    words = ["gcc", "-O1", "-g", "-Wall", "-Werror", *flags, "-o", str(path), str(PROGRAMS / f"{name}.c"), "-lpthread"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return str(path)


def python(runner: support.Runner, code: str, *arguments: str) -> list[str]:
    """The command that runs `code` after calls.py."""
    return [runner.identity.python, "-I", "-S", "-c", f"{PRELUDE}\n{code}", *arguments]


def notes(result: support.Result) -> dict[str, Any]:
    """The report of a program."""
    assert result.status == 0, result
    return dict(json.loads(result.stdout.splitlines()[-1]))


def attack(runner: support.Runner, code: str, *arguments: str, **how: Any) -> tuple[dict[str, Any], support.Result]:
    """Run `code` supervised: its report and the result."""
    result = runner.supervise(python(runner, code, *arguments), **how)
    return notes(result), result


def same_as_native(
    runner: support.Runner,
    code: str,
    *arguments: str,
    setup: Callable[[], None] = lambda: None,
    allowed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run `code` natively and supervised in equal folders: same report, same tree. The report.

    `allowed` holds the known differences: label -> the supervised value.
    """
    found = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        setup()
        result = run(python(runner, code, *arguments))
        found.append((notes(result), support.snapshot(runner.work)))
    (native, native_tree), (ours, our_tree) = found
    expected = native | dict(allowed or {})
    wrong = {label: (expected[label], ours.get(label)) for label in expected if expected[label] != ours.get(label)}
    assert not wrong, f"(native, supervised) differ: {wrong}"
    assert native.keys() == ours.keys()
    assert not support.differences(native_tree, our_tree)
    assert native, "the program reported nothing"
    return ours


def give(runner: support.Runner, path: Path, data: bytes = b"", mode: int = 0o644) -> Path:
    """A file (with its folders) that belongs to the identity of the test."""
    made = []
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            made.append(folder)
    path.write_bytes(data)
    path.chmod(mode)
    for one in [*made, path]:
        os.chown(one, runner.identity.uid, runner.identity.gid)
    return path


def folder(runner: support.Runner, path: Path, mode: int = 0o755) -> Path:
    """A directory (with its parents) that belongs to the identity of the test."""
    give(runner, path / ".made").unlink()
    path.chmod(mode)
    return path


def outside(runner: support.Runner, name: str = "f", data: bytes = SECRET) -> Path:
    """A file of the identity's own that lies outside of the work tree and was there before the run."""
    return give(runner, runner.base / "outside" / name, data)


def forms(mark: bytes) -> set[bytes]:
    """`mark` as programs show what they read: backwards, in hex, and as much of its base64 as it alone decides."""
    encoded = (
        base64.b64encode(bytes(before) + mark)[-(-8 * before // 6) : 8 * (before + len(mark)) // 6]
        for before in range(3)
    )
    return {mark, mark.lower(), mark[::-1], mark.hex().encode(), mark.hex().upper().encode(), *encoded}


class Unchanged:
    """A context in which everything below some folders stays as it is, the files' times of change included.

    The supervisor keeps its sessions below ~/.local, which is therefore not looked at.
    """

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for top in self.folders:
            if top.is_file():
                info = top.stat()
                found[str(top)] = (
                    top.read_bytes(),
                    info.st_mode,
                    info.st_uid,
                    info.st_nlink,
                    info.st_ino,
                    info.st_ctime_ns,
                )
                continue
            for name, line in support.snapshot(top).items():
                if Path(name).parts[:1] == (".local",):
                    continue
                info = os.lstat(top / name)
                found[f"{top}/{name}"] = (line, info.st_ino, 0 if stat.S_ISDIR(info.st_mode) else info.st_ctime_ns)
        return found

    def __enter__(self) -> Unchanged:
        self.before = self.look()
        assert self.before
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            after = self.look()
            changed = {
                name: (self.before.get(name), after.get(name))
                for name in self.before.keys() | after.keys()
                if self.before.get(name) != after.get(name)
            }
            assert not changed, f"(before, after): {changed}"
