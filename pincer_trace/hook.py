"""`pincer-trace hook claude`: Claude Code runs it after each batch of tool calls, so that its model hears of refusals.

Claude Code gives the event as JSON on standard input and takes the answer as JSON from standard output; what stands in
`hookSpecificOutput.additionalContext` is in the model's next request. Each agent of a session, the main one and every
sub-agent, is told of each refusal once: how far it was told is kept in a small file of the temporary directory. Where
no such file can be made, what was refused within the last minute is told.

The process runs inside of the supervised tree. It can be started as a file by itself (`python -I -S hook.py claude`),
the quickest start, since it imports nothing of this package. Whatever goes wrong, the agent hears nothing and goes on.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SKIPPED = b' times: BUILT_IN: read "/proc/'  # what `ps` and its like do without; Claude Code starts one itself
FILE = "pincer-trace-told-"  # in the temporary directory; then the names of the session and of the agent
LINES = 8  # told at a time, the latest; each at most recovery.LINE_BYTES
_MINUTE = 60
_FILE_BYTES = 512 * 1024  # more than the file is ever long


def main(arguments: list[str]) -> int:
    """The exit status, which is always 0: a hook that fails would be an event of its own for the agent."""
    try:
        event = sys.stdin.buffer.read() if sys.stdin is not None else b""  # to its end: or the agent's write would fail
        if arguments == ["claude"]:
            answer = claude(event, os.environ)
            if answer:
                os.write(1, answer)
        else:
            _note("only claude is known")
    except BaseException as error:  # noqa: BLE001 - the agent must go on
        _note(f"{type(error).__name__}: {error}")
    return 0


def _note(message: str) -> None:
    """For a person who looks for the reason: Claude Code keeps it in its debug log."""
    try:
        os.write(2, f"pincer-trace hook: {ascii(message)[:200]}\n".encode())
    except OSError:
        pass  # nobody listens, and an agent must not fail for it


def claude(event: bytes, environ: Mapping[str, str]) -> bytes:
    """What Claude Code is to be answered; nothing where there is nothing new, or no supervised run."""
    file = environ.get("PINCER_DENIALS", "")
    denials = _read(file) if file else b""
    if not any(line[:1].isdigit() for line in denials.split(b"\n")):
        return b""
    import json

    told = json.loads(event)
    name, agent = told["hook_event_name"], f"{told.get('session_id', '')}-{told.get('agent_id', '')}"
    state = _State(environ.get("TMPDIR") or "/tmp", f"{os.path.basename(os.path.dirname(file))}-{agent}")  # noqa: S108
    try:
        news = _news(denials, state)
        if not news:
            return b""
        output = {"hookEventName": name, "additionalContext": _context(news, file)}
        answer = json.dumps({"hookSpecificOutput": output}).encode()
        state.keep(_end(denials))
        return answer
    finally:
        state.close()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while len(content) < _FILE_BYTES and (piece := os.read(descriptor, _FILE_BYTES)):
            content += piece
        return content
    finally:
        os.close(descriptor)


def _end(denials: bytes) -> int:
    """Where the whole lines end."""
    return denials.rfind(b"\n") + 1


def _news(denials: bytes, state: _State) -> list[str]:
    """The lines that this agent was not told yet."""
    start = state.offset if 0 <= state.offset <= len(denials) else 0
    lines = [line for line in denials[start : _end(denials)].split(b"\n") if line[:1].isdigit() and SKIPPED not in line]
    if not state.kept:
        import time

        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _MINUTE)).encode()
        lines = [line for line in lines if line.split(b" ")[1] >= since]
    return [line.decode("utf-8", "replace") for line in lines]


def _context(news: list[str], file: str) -> str:
    """For the model: the lines without their numbers, times and counts, which say nothing to it."""
    told = [line.partition(" times: ")[2] for line in news[-LINES:]]
    before = f"{len(news) - LINES} more, before these, are in the file {file!a}.\n" if len(news) > LINES else ""
    does = "refused" if all(" was refused: " in line for line in told) else "tells"
    return f"This run is supervised by pincer-trace, which {does} the following.\n{before}" + "\n".join(told)


class _State:
    """How far one agent was told: a number in a file of ours, held alone. `kept` is false without such a file."""

    def __init__(self, directory: str, name: str) -> None:
        self.offset = 0
        self.kept = False
        self._descriptor = -1
        safe = "".join(c for c in name if c.isascii() and (c.isalnum() or c == "-"))[:200]
        path = os.path.join(directory, FILE + safe)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            import fcntl
            import stat

            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.offset = int(os.read(self._descriptor, 20) or b"0")
            self.kept = True
        except (OSError, ValueError):
            pass  # another hook has it, or it is no file of ours: what is new is told from the start, and not kept

    def keep(self, offset: int) -> None:
        """Remember it for the next time."""
        if self.kept:
            os.pwrite(self._descriptor, b"%020d" % offset, 0)

    def close(self) -> None:
        """Let the next one look."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
