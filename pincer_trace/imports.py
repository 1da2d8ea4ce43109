"""Modules of this package are found where their compiled halves lie: a start has a hundred of them to find.

The usual import looks through the folder, asks for the kinds of modules that there could be, and reads in small steps.
What is taken is what it would take, by the same check (PEP 552: time and size of the source). Whatever else is there,
or nothing, is left to it, and so is the compiling.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import CodeType, ModuleType

    MAGIC_NUMBER: bytes
else:  # `importlib` is this, and more imports
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

_PACKAGE = __name__.rpartition(".")[0] + "."
_HEADER = 16
_CHECKED_BY_TIME = MAGIC_NUMBER + bytes(4)
_SUFFIX = f".{sys.implementation.cache_tag}.pyc"
_READ = 1 << 16  # nearly all are smaller


def hasten() -> None:
    """From now on modules of this package are found so, if their compiled halves are where they usually are."""
    if not sys.flags.optimize and sys.pycache_prefix is None:
        sys.meta_path.insert(0, Finder)


class _Loader(SourceFileLoader):
    """The usual one, which is given the code."""

    _code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        code, self._code = self._code, None
        return code or super().get_code(fullname)


class Finder:
    """A meta path finder. importlib.abc.MetaPathFinder"""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec, or None for the usual search."""
        if not name.startswith(_PACKAGE) or path is None or len(path) != 1:
            return None
        folder, last = path[0], name.rpartition(".")[2]
        source, inner = f"{folder}/{last}.py", ""
        try:
            try:
                found = os.stat(source)
            except FileNotFoundError:
                inner = f"{folder}/{last}"
                folder, last, source = inner, "__init__", f"{inner}/__init__.py"
                found = os.stat(source)
            cached = f"{folder}/__pycache__/{last}{_SUFFIX}"
            data = _read(cached)
            time, size = int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF
            if data[:_HEADER] != _CHECKED_BY_TIME + time.to_bytes(4, "little") + size.to_bytes(4, "little"):
                return None
            code = marshal.loads(memoryview(data)[_HEADER:])  # noqa: S302  as the usual import does
        except (OSError, ValueError, EOFError, TypeError):
            return None
        loader = _Loader(name, source)
        loader._code = code
        spec = ModuleSpec(name, loader, origin=source, is_package=bool(inner))
        spec.has_location = True
        spec.cached = cached
        if inner and spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(inner)
        return spec


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _READ)
        while len(data) % _READ == 0 and (more := os.read(descriptor, _READ)):
            data += more
        return data
    finally:
        os.close(descriptor)
