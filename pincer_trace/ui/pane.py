"""A pane of tmux below the one that the command runs in, with `pincer-trace monitor --compact` in it. tmux(1)

The pane is the tmux server's child, so it is no part of the supervised tree. Its program ends with the session.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PATIENCE = 5.0  # seconds for an answer of the server
_LEAST = 20  # lines of a pane that can give some away
# Where Python imports from: as here, where that was checked (P81). The server's environment is another, and older, one.
_IMPORTS = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX")
_PLACES = "/usr/local/bin:/usr/bin:/bin"


class Pane:
    """Where a pane can be opened: the tmux program, its server's socket, and the pane that we are in."""

    def __init__(self, program: str, socket: str, ours: str) -> None:
        self._program = program
        self._socket = socket
        self._ours = ours
        self._opened = ""  # the pane that was opened last

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> tuple[Pane | None, str]:
        """The place, or None and why there is none.

        The program is the one that the server runs: what PATH finds might be the worker's, from an earlier run (P81).
        """
        socket, _, rest = environ.get("TMUX", "").partition(",")
        ours = environ.get("TMUX_PANE", "")
        if not socket or not ours:
            return None, "this is not inside of tmux"
        if not all(map(os.isatty, (0, 1, 2))):
            return None, "the command does not have the terminal for itself"
        server = rest.partition(",")[0]
        if _listener(socket) != server:
            return None, "the tmux server that TMUX names has ended"
        program = f"/proc/{server}/exe"
        if not os.access(program, os.X_OK):
            found = [os.path.join(place, "tmux") for place in _PLACES.split(":")]
            program = next((each for each in found if os.access(each, os.X_OK)), "")
            if not program:
                return None, "the tmux program cannot be found"
        return cls(program, socket, ours), ""

    def open(self, session: str) -> str:
        """Open it for the session's directory, unless it is open; why that cannot be, or nothing. Takes a while."""
        if self._opened and self._opened in self._ask("list-panes", "-a", "-F", "#{pane_id}")[1].split():
            return ""
        status, told = self._ask("display-message", "-p", "-t", self._ours, "#{pane_tty} #{pane_height}")
        terminal, _, height = told.strip().partition(" ")
        if status or not height.isdecimal():
            return f"tmux does not answer: {_first(told)}"
        try:
            if terminal != os.ttyname(2):
                return "the pane that TMUX_PANE names is another terminal"
        except OSError:
            return "there is no terminal any more"
        if int(height) < _LEAST:
            return f"it would take too much of {height} lines"
        size = "12" if int(height) >= 2 * _LEAST else "8"
        isolation = "-I" if sys.flags.isolated else "-P"
        words = [sys.executable, isolation, "-m", "pincer_trace", "monitor", "--compact", session]
        opens = ["split-window", "-d", "-v", "-P", "-F", "#{pane_id}", "-l", size, "-t", self._ours, "-c", "/"]
        places = [word for name in _IMPORTS for word in ("-e", f"{name}={os.environ.get(name, '')}")]
        status, told = self._ask(*opens, *places, *words)
        if status:
            return f"tmux says: {_first(told)}"
        self._opened = told.strip()
        return ""

    def _ask(self, *words: str) -> tuple[int, str]:
        """(exit status, what it says). Nothing that it says may be from a file name: only of panes."""
        import subprocess

        environ = {"PATH": _PLACES, "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                [self._program, "-S", self._socket, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environ, timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, type(error).__name__
        return done.returncode, done.stdout.decode("utf-8", "replace")


def _listener(path: str) -> str:
    """The number of the process that listens there; empty where none does. Another may have the number of a dead one.

    Whoever that is chose what `exe` leads to.
    """
    from pincer_trace.kernel.bare import socket
    from pincer_trace.kernel.peers import credentials

    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        connection.connect(path)
        return str(credentials(connection)[0])
    except (OSError, ValueError):
        return ""
    finally:
        connection.close()


def _first(text: str) -> str:
    from pincer_trace.paths import display

    return display(text.partition("\n")[0], 200)
