"""Agents that can be told of a refusal by an interface of their own: how their command is started then.

Claude Code takes settings from a file beside those of the user (`--settings FILE`), and runs the hooks in it. The file
lies in the session's directory; nothing of the user's is written.
"""

from __future__ import annotations

import os
import sys

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.encode import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SINCE = (2, 1, 145)  # knows PostToolBatch; before 2.1.101 it would not start with settings that name it
_NO_RUN = frozenset({"-h", "--help", "-v", "-V", "--version"})
_PACKAGE = "@anthropic-ai/claude-code"
_MANIFEST_BYTES = 64 * 1024
_SECONDS = 10  # after which Claude Code goes on without the hook's answer


class Wiring:
    """What becomes of a command: its `arguments`, what is `said` of that, and whether they name the settings file."""

    __slots__ = ("arguments", "said", "used")

    def __init__(self, arguments: list[str], said: str = "", *, used: bool = False) -> None:
        self.arguments = arguments
        self.said = said
        self.used = used


def wire(executable: str, arguments: Sequence[str], directory: str) -> Wiring:
    """For the command `arguments` (its first is its name), which is the program `executable`.

    The option goes in front of all others: there it precedes `--`, the prompt, and options that take what follows them.
    A single word first may be a subcommand, which knows no such option, and is left alone.
    """
    given = list(arguments)
    version = claude_version(executable, given[0])
    if version is None:
        return Wiring(given)
    options = given[1 : given.index("--")] if "--" in given else given[1:]
    if not _NO_RUN.isdisjoint(options) or (options and _may_be_subcommand(options[0])):
        return Wiring(given)
    file = os.path.join(directory, paths.CLAUDE_FILE)
    if version < SINCE:
        needed, found = ".".join(map(str, SINCE)), ".".join(map(str, version))
        return Wiring(
            given,
            f"this Claude Code, {found}, is older than {needed}: it is not told of refusals by itself; "
            f"they are in the file that PINCER_DENIALS names",
        )
    if any(word == "--settings" or word.startswith("--settings=") for word in options):
        return Wiring(
            given,
            "--settings is given already: for Claude Code to hear of refusals, add this to your file: "
            + paths.display(settings().strip(), 2000),
        )
    said = f"added to the command, so that Claude Code hears of refusals: --settings {paths.display(file)}"
    return Wiring([given[0], "--settings", file, *given[1:]], said, used=True)


def write_settings(directory: str) -> None:
    """The file that `wire` names. Raises UserError."""
    path = os.path.join(directory, paths.CLAUDE_FILE)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(settings().encode("ascii"))
    except OSError as error:
        raise UserError(f"{paths.display(path)} cannot be written: {error.strerror}; nothing was started") from error


def tidy(directory: str, environment: Mapping[bytes, bytes]) -> None:
    """Remove what the hook kept for itself during the session of that directory: `hook._State`."""
    from pincer_trace import hook

    place = environment.get(b"TMPDIR") or b"/tmp"
    beginning = os.fsencode(f"{hook.FILE}{os.path.basename(directory)}-")
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith(beginning):
                    os.unlink(entry.path)
    except OSError:
        pass  # somebody else's, or gone


def settings() -> str:
    """Settings of Claude Code, with the hook alone. It runs by our own interpreter, and needs no installed package."""
    from shlex import join

    from pincer_trace import hook

    command = join([sys.executable, "-I", "-S", "-B", os.path.abspath(hook.__file__), "claude"])
    one = {"type": "command", "command": command, "timeout": _SECONDS}
    return encode({"hooks": {"PostToolBatch": [{"hooks": [one]}]}}) + "\n"


def claude_version(executable: str, name: str) -> tuple[int, ...] | None:
    """The version, if the program is Claude Code: by where it lies, or by the manifest of its npm package.

    What is called so and is something else, or cannot be told, is None: an unknown option could keep it from starting.
    """
    real = os.path.realpath(executable)
    called = {os.path.basename(name), os.path.basename(executable), os.path.basename(real)}
    directory = os.path.dirname(real)
    if "/claude/versions/" in real:  # the native installation: ~/.local/share/claude/versions/2.1.332
        return _numbers(os.path.basename(real))
    if called.isdisjoint({"claude", "claude.exe"}):
        return None
    for place in (directory, os.path.dirname(directory)):
        try:
            with open(os.path.join(place, "package.json"), "rb") as file:
                manifest = file.read(_MANIFEST_BYTES)
        except OSError:
            continue
        if (_field(manifest, b"name") or "").startswith(_PACKAGE):
            return _numbers(_field(manifest, b"version") or "")
    return None


def _field(manifest: bytes, key: bytes) -> str | None:
    """The first text of that name: enough for a manifest that npm wrote, without the JSON package (10 ms)."""
    _, found, rest = manifest.partition(b'"' + key + b'"')
    parts = rest.split(b'"', 2)
    if not found or len(parts) < 3 or parts[0].strip() != b":":
        return None
    return parts[1].decode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(map(int, parts))


def _may_be_subcommand(word: str) -> bool:
    return word[:1].isalpha() and word.replace("-", "").isalpha() and word.isascii() and word == word.lower()
