"""Modules are found where their compiled halves lie, and only where the usual import would take those."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

import pincer_trace
from pincer_trace.imports import Finder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with a module and a package, both compiled."""
    (tmp_path / "inner").mkdir()
    for source in (tmp_path / "module.py", tmp_path / "inner" / "__init__.py"):
        source.write_text("def place():\n    return __file__\n")
        py_compile.compile(str(source), doraise=True)
    return tmp_path


def find(folder: Path, name: str):
    return Finder.find_spec(f"pincer_trace.{name}", [str(folder)])


def compiled(folder: Path) -> Path:
    return folder / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"


@pytest.mark.parametrize(("name", "file"), [("module", "module.py"), ("inner", "inner/__init__.py")])
def test_a_module_is_as_the_usual_import_makes_it(folder, name, file):
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    made = []
    for spec in (find(folder, name), PathFinder.find_spec(f"pincer_trace.{name}", [str(folder)])):
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        made.append(
            [getattr(module, what, None) for what in ("__name__", "__package__", "__file__", "__cached__", "__path__")]
        )
        assert module.place() == str(folder / file)
        assert spec.loader.get_source(spec.name) == (folder / file).read_text()
        assert spec.loader.get_code(spec.name).co_filename == str(folder / file)
    assert made[0] == made[1]


def longer(folder: Path) -> None:
    os.utime(edit(folder), ns=(0, (folder / "inner" / "__init__.py").stat().st_mtime_ns))


def later(folder: Path) -> None:
    os.utime(folder / "module.py", (0, 1 << 20))


def edit(folder: Path) -> Path:
    source = folder / "module.py"
    source.write_text(source.read_text() + "\n")
    return source


def cut(folder: Path) -> None:
    os.truncate(compiled(folder), compiled(folder).stat().st_size - 5)


def of_another_python(folder: Path) -> None:
    data = compiled(folder).read_bytes()
    compiled(folder).write_bytes(bytes([data[0] ^ 1]) + data[1:])


def by_hash(folder: Path) -> None:
    source = str(folder / "module.py")
    py_compile.compile(source, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def no_source(folder: Path) -> None:
    (folder / "module.py").unlink()


def not_compiled(folder: Path) -> None:
    compiled(folder).unlink()


@pytest.mark.parametrize("spoil", [longer, later, cut, of_another_python, by_hash, no_source, not_compiled])
def test_whatever_else_is_left_to_the_usual_import(folder, spoil):
    assert find(folder, "module") is not None
    spoil(folder)
    assert find(folder, "module") is None


@pytest.mark.parametrize(
    ("name", "path"),
    [("json", None), ("pincer_trace", None), ("pincer_trace.module", ["a", "b"]), ("other.module", ["a"])],
)
def test_what_is_not_of_this_package_alone_is_left_to_it(name, path):
    assert Finder.find_spec(name, path) is None


def test_a_start_finds_its_modules_so(tmp_path):
    root = os.path.dirname(os.path.dirname(pincer_trace.__file__))
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); sys.argv[1:] = ['-q', '--', '/nonexistent/command']\n"
        "from pincer_trace.__main__ import main; status = main()\n"
        "print(status, *{type(m.__loader__).__name__ for n, m in sys.modules.items() if n.startswith('pincer_trace.')"
        " and n not in ('pincer_trace.__main__', 'pincer_trace.errors', 'pincer_trace.imports')})"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for _ in range(2):  # the first compiles what is not compiled yet
        done = subprocess.run(
            [sys.executable, "-c", script, root],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.split() == ["127", "_Loader"]
