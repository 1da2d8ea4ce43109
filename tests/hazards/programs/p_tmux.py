"""A tmux server of a test's own: a pane with a program in it, keys typed into it, and what its screen shows."""

from __future__ import annotations

import time
from collections.abc import Sequence

import support
from screens import Server


class Tmux(Server):
    """`words` in the only pane of a new server. No sleeps: `see` waits for the text."""

    def __init__(
        self, runner: support.Runner, words: Sequence[str], *, columns: int = 80, rows: int = 24, **env: str
    ) -> None:
        # a shell around it tells its status: the server itself misses the end of a child now and then
        words = ["sh", "-c", '"$@"; echo status=$?; read line', "sh", *words]
        super().__init__(runner, words, columns, rows, env)

    def __call__(self, *words: str) -> str:
        return self.tmux(*words)

    def screen(self, *more: str) -> str:
        return self("capture-pane", "-p", *more)

    def see(self, *texts: str, without: str = "", patience: float = 30) -> str:
        """Wait until all of these are on the screen."""
        deadline = time.monotonic() + patience
        while True:
            screen = self.screen()
            if all(text in screen for text in texts) and (not without or without not in screen):
                return screen
            assert time.monotonic() < deadline, f"no {texts!r} (without {without!r}) in:\n{screen}"
            time.sleep(0.02)  # tmux announces nothing that could be awaited

    def type(self, *keys: str) -> None:
        """Names of keys as tmux has them."""
        self("send-keys", *keys)

    def type_until(self, key: str, *texts: str) -> str:
        """Again and again, as somebody whose first try came too soon."""
        for _ in range(10):
            self.type(key)
            try:
                return self.see(*texts, patience=3)
            except AssertionError:
                pass  # too soon: again
        raise AssertionError(self.screen())

    def resize(self, columns: int, rows: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(rows))

    def status(self) -> int:
        """The exit status of what ran in the pane, once it has ended and the terminal is as it was."""
        return int(self.see("status=").partition("status=")[2].split()[0])

    def pid(self) -> int:
        """What runs in the pane."""
        shell = self("display-message", "-p", "#{pane_pid}").strip()
        with open(f"/proc/{shell}/task/{shell}/children") as file:
            return int(file.read().split()[0])
