"""A real terminal that can be looked at: a tmux server of the test's own, with keys and captured screens. tmux(1)"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import support

PATIENCE = 20.0  # seconds until a test fails that waits for something on the screen


class Server:
    """A tmux server as the identity of `runner`, with one window in which `words` run. Ended at the exit."""

    def __init__(
        self, runner: support.Runner, words: Sequence[str], columns: int, rows: int, environment: Mapping[str, str]
    ) -> None:
        self._runner = runner
        self._socket = runner.base / f"tmux{time.monotonic_ns()}"
        self.environment = support.environment(runner.identity, runner.home) | {"TERM": "xterm-256color"} | environment
        os.chown(runner.base, runner.identity.uid, runner.identity.gid)
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(runner.work), "--", *words)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server")

    def tmux(self, *words: str, may_fail: bool = False) -> str:
        """A command of tmux; what it prints."""
        done = subprocess.run(
            [*self._runner.identity.switch, "tmux", "-u", "-S", str(self._socket), "-f", "/dev/null", *words],
            env=self.environment, cwd=self._runner.base, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert may_fail or done.returncode == 0, done
        return done.stdout


class Screen(Server):
    """A shell in it. `prompt` is what that shows when it is ready."""

    prompt = "ready> "

    def __init__(
        self, runner: support.Runner, columns: int = 90, rows: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(runner, ["env", f"PS1={self.prompt}", "sh"], columns, rows, environment or {})
        self.see(self.prompt.strip())

    def type(self, line: str) -> None:
        """Type a line, and Enter."""
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def keys(self, *names: str) -> None:
        """Press keys, by their names."""
        self.tmux("send-keys", *names)

    def lines(self, pane: str = "") -> list[str]:
        """What is on it; nothing, where there is no such pane."""
        where = ["-t", pane] if pane else []
        return self.tmux("capture-pane", "-p", *where, may_fail=bool(pane)).split("\n")[:-1]

    def see(self, text: str, pane: str = "") -> list[str]:
        """Wait until it shows `text`."""
        return self.until(lambda lines: any(text in line for line in lines), text, pane)

    def until(self, holds: Callable[[Sequence[str]], bool], what: str, pane: str = "") -> list[str]:
        """Wait until that holds for its lines."""
        deadline = time.monotonic() + PATIENCE
        while not holds(lines := self.lines(pane)):
            assert time.monotonic() < deadline, f"no {what}:\n" + "\n".join(lines)
            time.sleep(0.02)  # tmux announces nothing that could be awaited
        return lines
