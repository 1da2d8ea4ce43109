"""The formats that views are made of, each a scanner in a module of its own, and how a file's format is found."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.plaintext.pieces import Line


class Format:
    """One format: the module with its `lines`, and how a comment begins, where it has any."""

    __slots__ = ("_module", "comment", "name")

    def __init__(self, name: str, module: str, comment: bytes = b"") -> None:
        self.name = name
        self._module = module
        self.comment = comment

    def lines(self, content: bytes) -> Iterator[Line]:
        """What of the content may be shown, from the front. Raises Malformed where it is not of this format."""
        if not self._module:
            return iter(())
        found: Iterator[Line] = import_module(f"{__name__}.{self._module}").lines(content)
        return found

    def last(self, remainder: bytes, line: Line | None) -> bytes:
        """The last line of a view, for the remainder; `line` is the one before."""
        return (self.comment + b" " if self.comment else b"") + remainder + b"\n"

    def __repr__(self) -> str:
        return f"Format({self.name})"


OPAQUE = Format("unknown", "")
DOTENV = Format("dotenv", "dotenv", b"#")
