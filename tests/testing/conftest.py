"""What these tests share: a work tree, a home with a secret in it, and a program that does a bit of all."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = """
import os, socket, subprocess, sys
home = os.path.expanduser("~")
for name in (".ssh/id_ed25519", "notes.txt"):
    try:
        open(f"{home}/{name}").read()
    except OSError as error:
        print(name, error.strerror)
open(".env").read()
open("made.txt", "w").write("1")
os.mkdir("sub")
open("sub/old", "w").close()
os.rename("sub/old", "sub/new")
open("gone", "w").close()
os.unlink("gone")
subprocess.run(["sh", "-c", "cat /dev/null > shell.txt; cat ~/.ssh/id_ed25519"], check=False)
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).close()
print("said", file=sys.stderr)
sys.exit(3)
"""


class House:
    """A folder for one test: `work` with `agent.py` in it, and `home`."""

    def __init__(self, base: Path) -> None:
        self.work, self.home = base / "work", base / "home"
        self.work.mkdir()
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id_ed25519").write_text("key")
        (self.home / "notes.txt").write_text("notes")
        (self.work / "agent.py").write_text(PROGRAM)
        (self.work / ".env").write_text("TOKEN=secret\n")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
