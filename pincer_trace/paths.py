"""Where things live: the user's state directory, the shipped profiles, and what is said of them to a person."""

from __future__ import annotations

import os

from pincer_trace.errors import UserError

DENIALS_FILE = "denials.txt"  # of a session's directory: what was refused, for the worker to read
CLAUDE_FILE = "claude.json"  # settings with which Claude Code reads it by itself
TOLD_FILES = (DENIALS_FILE, CLAUDE_FILE)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+@%=:~#*[]\\")


def state_directory() -> str:
    """Where sessions and compiled profiles are: `$XDG_STATE_HOME/pincer-trace`. Raises UserError without a home."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        given = os.environ.get("HOME", "/")
        if not os.path.isabs(given):
            raise UserError(f"HOME is {display(given) or 'empty'}, no absolute path; mend it, or set XDG_STATE_HOME")
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            raise UserError("HOME is not set, and this user has no home directory; set HOME or XDG_STATE_HOME")
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "pincer-trace")


def shipped_profiles() -> str:
    """The directory of the profiles that ship: inside the wheel, or beside the package in a checkout."""
    package = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(package, "profiles")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "profiles")


def is_inside(path: bytes, directory: bytes) -> bool:
    """Whether `path` is `directory` or lies below it, by name."""
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def counted(number: int, noun: str) -> str:
    """`1 effect`, `2 effects`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def word(text: str) -> str:
    """As shlex.quote, for the start path and the refusals: that imports `re`, which costs 3 ms."""
    if text and all((c.isalnum() and c.isascii()) or c in "@%+=:,./-_" for c in text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def display(raw: bytes | str, limit: int = 400) -> str:
    r"""Foreign bytes as text that is safe on any terminal (hazard P53).

    Control characters, ESC, bidirectional and combining marks, and bytes that are not UTF-8 come out as `\n`,
    `\x1b`, `\u202e`, `\xff`; everything printable stays. At most `limit` characters.
    """
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    if not text.isprintable() or not text.isascii() or "\\" in text:
        text = "".join(_shown(c) for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def named(raw: bytes | str, limit: int = 30_000) -> str:
    """The same of a name among other words: in quotes where it could pass for more, or for another one.

    What is too long is cut in its middle: the end of a path tells most.
    """
    text = display(raw, 1 << 20)
    if len(text) > limit:
        left = limit // 3
        text = f"{text[:left]}…{text[1 + left - limit :]}"
    return text if _PLAIN.issuperset(text) else '"' + text.replace('"', '\\"') + '"'


def _shown(c: str) -> str:
    if c == "\\":
        return "\\\\"
    if c.isascii() and c.isprintable():
        return c
    point = ord(c)
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if c.isprintable():
        import unicodedata

        if not unicodedata.category(c).startswith("M"):
            return c
    if point < 0x100:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(c, f"\\x{point:02x}")
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
