"""What kind of file a protected object is, by its name and a look at its content."""

from __future__ import annotations

from pincer_trace.plaintext import formats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.formats import Format


class Kind:
    """A format, and the name by which it was found. A view of the same name is always judged in the same way."""

    __slots__ = ("format", "name")

    def __init__(self, format: Format, name: bytes) -> None:
        self.format = format
        self.name = name

    @classmethod
    def of(cls, path: bytes, content: bytes) -> Kind:
        """By the last names of the path; by content where these do not say."""
        name = path.rpartition(b"/")[2]
        if name == b".env" or name.startswith(b".env.") or name.endswith(b".env") or name == b".envrc":
            return cls(formats.DOTENV, path)
        return cls(formats.OPAQUE, path)

    def again(self, content: bytes) -> Kind:
        """The kind of the same file with another content."""
        return Kind.of(self.name, content)

    def __repr__(self) -> str:
        return f"Kind({self.format.name})"
