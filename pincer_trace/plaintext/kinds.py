"""What kind of file a protected object is, by its name and a look at its content."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pincer_trace.plaintext import formats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.formats import Format

# The last names of a path, most telling first; `*` is any part of a name.
_NAMES: tuple[tuple[Format, tuple[str, ...]], ...] = (
    (formats.OPAQUE, ("*_history", ".lesshst", ".viminfo", "*.gpg", "*.kdbx", "*.p12", "*.pfx", "*.jks")),
    (formats.PEM, ("*.pem", "*.key", "*.crt", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")),
    (formats.DOTENV, (".env", ".env.*", "*.env", ".envrc", "environment", "*.env.local")),
    (formats.NETRC, (".netrc", "_netrc", ".authinfo")),
    (formats.GIT_CREDENTIALS, (".git-credentials", "git/credentials")),
    (formats.INI, (".aws/credentials", ".aws/config", ".npmrc", "npmrc", ".pypirc", "pip.conf", ".gitconfig")),
    (
        formats.INI,
        ("git/config", "*.ini", "*.cfg", ".my.cnf", "*.cnf", ".s3cfg", ".boto", "*.properties", "rclone.conf"),
    ),
    (formats.INI, (".oci/config", "configurations/config_*")),
    (formats.YAML, (".kube/config", "kubeconfig", "*.yaml", "*.yml", ".gem/credentials", ".config/hub")),
    (formats.TOML, ("*.toml", ".cargo/credentials")),
    (formats.JSON, ("*.json", ".dockercfg")),
    (formats.CSV, ("*.csv", "*.tsv")),
)


class Kind:
    """A format, and the path by which it was found. A view of the same path is always judged in the same way."""

    __slots__ = ("format", "path")

    def __init__(self, format: Format, path: bytes) -> None:
        self.format = format
        self.path = path

    @classmethod
    def of(cls, path: bytes, content: bytes) -> Kind:
        """By content where that is plain to see, else by the last names of the path."""
        if content.startswith(b"SQLite format 3\0"):
            return cls(formats.OPAQUE, path)
        if content.startswith(b"-----BEGIN "):
            return cls(formats.PEM, path)
        return cls(_by_name(path), path)

    def again(self, content: bytes) -> Kind:
        """The kind of the same file with another content."""
        return Kind.of(self.path, content)

    def opaque(self) -> Kind:
        """For a content that is not of the format."""
        return Kind(formats.OPAQUE, self.path)

    def __repr__(self) -> str:
        return f"Kind({self.format.name})"


def _by_name(path: bytes) -> Format:
    names = path.split(b"/")[-2:]
    for format, patterns in _NAMES:
        for pattern in patterns:
            name = b"/".join(names if "/" in pattern else names[-1:])
            if fnmatchcase(name, pattern.encode()):
                return format
    return formats.OPAQUE
