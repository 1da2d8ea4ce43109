"""The formats that views are made of, each a scanner in a module of its own, and how a file's format is found."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pincer_trace.plaintext.pieces import Line


class Format:
    """One format: the module with its `lines`, how a comment begins where it has any, and quotes around a handle.

    `heads`: the first line names what is in the others.
    """

    __slots__ = ("_module", "comment", "heads", "name", "quote")

    def __init__(
        self, name: str, module: str = "", *, comment: bytes = b"", quote: bytes = b"", heads: bool = False
    ) -> None:
        self.name = name
        self._module = module
        self.comment = comment
        self.quote = quote
        self.heads = heads

    def lines(self, content: bytes, limit: int | None = None) -> Iterator[Line]:
        """What of the content may be shown, from the front. Raises Malformed where it is not of this format.

        With a `limit`, of what begins before it: no search goes further.
        """
        scanner = self.load()
        if scanner is None:
            return iter(())
        found: Iterator[Line] = scanner.lines(content, len(content) if limit is None else limit)
        return found

    def load(self) -> ModuleType | None:
        """Its module, if it has one."""
        return import_module(f"{__name__}.{self._module}") if self._module else None

    def last(self, remainder: bytes, line: Line | None) -> bytes:
        """The last line of a view, for the remainder; `line` is the one before."""
        if self is JSON:
            from pincer_trace.plaintext.formats import json

            return json.last(remainder, line)
        if self is NETRC:  # a comment there is one word to some parsers
            return self.comment + remainder.partition(b" ")[0] + b"\n"
        return (self.comment + b" " if self.comment else b"") + remainder + b"\n"

    def __repr__(self) -> str:
        return f"Format({self.name})"


OPAQUE = Format("unknown")
DOTENV = Format("dotenv", "dotenv", comment=b"#")
INI = Format("INI", "ini", comment=b"#")
TOML = Format("TOML", "toml", comment=b"#", quote=b'"')
YAML = Format("YAML", "yaml", comment=b"#")
JSON = Format("JSON", "json", quote=b'"')
CSV = Format("CSV", "csv", heads=True)
NETRC = Format("netrc", "netrc", comment=b"#")
PEM = Format("PEM", "pem")
GIT_CREDENTIALS = Format("git credentials", "credentials")
ALL = (OPAQUE, DOTENV, INI, TOML, YAML, JSON, CSV, NETRC, PEM, GIT_CREDENTIALS)
