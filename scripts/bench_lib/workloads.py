"""Whole workloads: git, npm, pip, pytest, a build. Each is prepared untimed, then run as one command.

Everything is made here and is local: nothing is fetched. The command runs in `work/` of a fresh directory,
with an empty temporary directory beside it.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import sys
import tarfile
import zipfile

from .micro import write
from .rounds import Bench, Failed, Table, Variant, fresh_directory, interleave

RUNNERS = ("native", "pincer", "strace")
COMMAND_SECONDS = 180.0

GIT_SCRIPT = """\
set -e
git init -q .
i=0
while [ $i -lt 200 ]; do
    mkdir -p d$((i % 10)); echo "file $i" > d$((i % 10))/f$i; i=$((i + 1))
done
git add .
git commit -q -m first
i=1
while [ $i -lt 30 ]; do
    echo "change $i" >> d$((i % 10))/f$i; echo "new $i" > new$i
    git add new$i; git commit -q -a -m "commit $i"
    git status --short
    i=$((i + 1))
done
git log --stat > log.txt
git gc -q
git status --short > status.txt
test "$(git rev-list --count HEAD)" = 30
"""
GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "gc.auto",  # a collection in the background would end after the clock is read
    "GIT_CONFIG_VALUE_0": "0",
}
NPM_ENV = {
    "npm_config_offline": "true",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "npm_config_ignore_scripts": "true",
}
NPM_PACKAGES = 8
NPM_FILES = 40
WHEEL_MODULES = 60
BUILD_FILES = 40


class Workload:
    """One workload: `prepare` makes its directory, `command` runs in it."""

    name = ""
    title = ""
    env: dict[str, str] = {}

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""
        return ""

    def prepare(self, bench: Bench, place: str) -> None:
        """Make what the command needs in the directory `place`; not timed."""

    def command(self) -> list[str]:
        """The argument vector; the working directory is the prepared one."""
        raise NotImplementedError


def without(*programs: str) -> str:
    """The reason to skip when one of the programs is absent."""
    return ", ".join(f"{name} is not installed" for name in programs if shutil.which(name) is None)


class Git(Workload):
    """A repository of 200 files, 30 commits with a status after each, log, gc."""

    name = "git"
    title = "git: 200 files, 30 commits, status, log, gc"
    env = GIT_ENV

    def missing(self) -> str:
        return without("git")

    def prepare(self, bench: Bench, place: str) -> None:
        write(os.path.join(place, "..", "scenario.sh"), GIT_SCRIPT)

    def command(self) -> list[str]:
        return ["sh", "../scenario.sh"]


class Npm(Workload):
    """npm ci of local package archives with a cold cache."""

    name = "npm"
    title = f"npm ci: {NPM_PACKAGES} local packages of {NPM_FILES} files"
    env = NPM_ENV

    def missing(self) -> str:
        return without("npm")

    def prepare(self, bench: Bench, place: str) -> None:
        base = os.path.join(bench.root, "npm-base")
        if not os.path.isfile(os.path.join(base, "package-lock.json")):
            os.makedirs(base, exist_ok=True)
            names = [f"part{number}" for number in range(NPM_PACKAGES)]
            for name in names:
                npm_archive(os.path.join(base, f"{name}.tgz"), name)
            links = ", ".join(f'"{name}": "file:{name}.tgz"' for name in names)
            write(
                os.path.join(base, "package.json"),
                f'{{"name": "app", "version": "1.0.0", "dependencies": {{{links}}}}}\n',
            )
            cache = bench.directory("npm-cache")
            bench.run(["npm", "install", "--package-lock-only", "--cache", cache], base, env=NPM_ENV)
        shutil.copytree(base, place, dirs_exist_ok=True)

    def command(self) -> list[str]:
        return ["npm", "ci", "--cache", ".npm-cache"]


def npm_archive(path: str, name: str) -> None:
    """A package archive as `npm pack` makes it: everything below `package/`."""
    files = {"package.json": f'{{"name": "{name}", "version": "1.0.0", "main": "m0.js"}}\n'}
    files |= {f"m{number}.js": f"module.exports = {number};\n" * 20 for number in range(NPM_FILES)}
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"package/{file}")
            info.size = len(text)
            info.mode = 0o644
            archive.addfile(info, io.BytesIO(text.encode()))


class Pip(Workload):
    """pip install of a local wheel into a virtual environment."""

    name = "pip"
    title = f"pip install: a local wheel of {WHEEL_MODULES} modules into a venv"

    def missing(self) -> str:
        return "" if importlib.util.find_spec("pip") else "this Python has no pip"

    def prepare(self, bench: Bench, place: str) -> None:
        bench.run([sys.executable, "-m", "venv", "--without-pip", "venv"], place)
        wheel(os.path.join(place, "benchpart-1.0-py3-none-any.whl"))

    def command(self) -> list[str]:
        options = ["--no-index", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
        python = os.path.join("venv", "bin", "python")
        return [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            *options,
            "./benchpart-1.0-py3-none-any.whl",
        ]


def wheel(path: str) -> None:
    """A pure Python wheel, written by hand: pip then needs no build step."""
    info = "benchpart-1.0.dist-info"
    files = {f"benchpart/m{number}.py": f"VALUE = {number}\n" * 20 for number in range(WHEEL_MODULES)}
    files["benchpart/__init__.py"] = ""
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: benchpart\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


class Pytest(Workload):
    """A pytest run of 100 small tests, half of them with files."""

    name = "pytest"
    title = "pytest: 100 tests, 50 of them with a temporary file"
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def missing(self) -> str:
        return "" if importlib.util.find_spec("pytest") else "this Python has no pytest"

    def prepare(self, bench: Bench, place: str) -> None:
        test = (
            "def test_plain_{0}():\n    assert {0} + 1 == {1}\n\n"
            "def test_file_{0}(tmp_path):\n    file = tmp_path / 'a'\n    file.write_text('x')\n"
            "    assert file.read_text() == 'x'\n\n"
        )
        for module in range(10):
            text = "".join(test.format(number, number + 1) for number in range(5))
            write(os.path.join(place, f"test_m{module}.py"), text)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "pytest", "-q"]


class Build(Workload):
    """A C build with make."""

    name = "build"
    title = f"make -j2: {BUILD_FILES} C files"

    def missing(self) -> str:
        return without("make", "cc")

    def prepare(self, bench: Bench, place: str) -> None:
        objects = " ".join(f"p{number}.o" for number in range(BUILD_FILES))
        write(
            os.path.join(place, "Makefile"),
            f"CFLAGS = -O1\nprogram: {objects} main.o\n\tcc -o $@ $^\n{objects} main.o: all.h\n",
        )
        declared = "".join(f"int p{number}(int);\n" for number in range(BUILD_FILES))
        write(os.path.join(place, "all.h"), declared)
        head = "".join(f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string", "unistd"))
        head += '#include "all.h"\n'
        for number in range(BUILD_FILES):
            body = f'char t[64]; snprintf(t, sizeof t, "%d", x); return atoi(t) + {number};'
            body = f"int p{number}(int x) {{ {body} }}\n"
            write(os.path.join(place, f"p{number}.c"), head + body)
        calls = " + ".join(f"p{number}(1)" for number in range(BUILD_FILES))
        write(os.path.join(place, "main.c"), f'{head}int main(void) {{ printf("%d\\n", {calls}); return 0; }}\n')

    def command(self) -> list[str]:
        return ["make", "-s", "-j2"]


ALL: tuple[type[Workload], ...] = (Git, Npm, Pip, Pytest, Build)


def run(bench: Bench, workload: Workload, rounds: int) -> Table:
    """Wall time of the whole command, supervisor's start and end included, s."""

    def measure(variant: Variant, turn: int) -> dict[str, float]:
        with fresh_directory(bench.root, f"{workload.name}-{variant.name}-{turn}") as outer:
            place, temporary = os.path.join(outer, "work"), os.path.join(outer, "tmp")
            os.mkdir(place)
            os.mkdir(temporary)
            try:
                workload.prepare(bench, place)
            except (Failed, OSError) as error:
                raise Failed(f"cannot be prepared: {error}") from error
            env = workload.env | {"TMPDIR": temporary}
            outcome = bench.run(workload.command(), place, variant, env, COMMAND_SECONDS)
        return {"wall": outcome.seconds}

    return interleave(bench, bench.usable(RUNNERS), ["wall"], measure, rounds)
