"""A real terminal for tests: a command on its own pty as session leader, what it wrote, and waiting for words.

No sleeps: `expect` waits until the text is there. What is read from the terminal is kept in `text`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Terminal:
    """`words` started as the leader of a new session, with a pty of `rows` x `columns` as controlling terminal."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        owner: int = 0,
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        self.text = ""
        self.status: int | None = None
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.fchown(0, owner, -1) if os.geteuid() == 0 else None
                os.chdir(cwd)
                os.execvpe(words[0], list(words), dict(env))
            finally:
                os._exit(127)
        self.resize(rows, columns)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self.master)
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGHUP)
                os.kill(self.pid, signal.SIGCONT)
            deadline = time.monotonic() + 3
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                select.select([], [], [], 0.01)

    def resize(self, rows: int, columns: int) -> None:
        """Another window size; the foreground group gets SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def expect(self, wanted: str, timeout: float = 10) -> str:
        """Wait until `wanted` is in what was written since the last expect; what came before it."""
        deadline = time.monotonic() + timeout
        while wanted not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"no {wanted!r} within {timeout} s; the terminal shows: {self.text!r}")
            try:
                data = os.read(self.master, 4096)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"the terminal ended before {wanted!r}: {self.text!r}")
            self.text += data.decode(errors="replace").replace("\r\n", "\n")
        before, _, self.text = self.text.partition(wanted)
        return before

    def end(self, timeout: float = 10) -> int:
        """Wait for the end of the command; its status as a shell has it (128 + n for a signal)."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    self.text += os.read(self.master, 4096).decode(errors="replace").replace("\r\n", "\n")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = code if code >= 0 else 128 - code
                return self.status
        raise AssertionError(f"no end within {timeout} s; the terminal shows: {self.text!r}")
