"""A hostile agent: does each deed of the table that it is given, and tells how it ended.

argv: the home, a unix socket, a TCP port and a process number outside of the run, and a JSON list of [name, deed]. A
deed is an expression. Told is "done", "view" where a view was read, or the name of the error.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys

home, server, port, outside = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
work = os.getcwd()
session = os.path.dirname(os.environ.get("PINCER_DENIALS", ""))
python = "/usr/bin/python3"


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def write(path: str, mode: str = "a") -> None:
    with open(path, mode) as file:
        file.write("touch owned\n")


def make(path: str) -> None:
    """A new file, and the folders above it where they may be made."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, "x")


def linked(path: str) -> bytes:
    """By a symbolic link of the run's own."""
    if not os.path.lexists("link"):
        os.symlink(path, "link")
    try:
        return read("link")
    finally:
        os.unlink("link")


def by(*words: str) -> None:
    """By a program of its own, which tells of the refusal on standard error."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        refused = any(word in done.stderr for word in ("ermission denied", "EACCES"))
        raise OSError(errno.EACCES if refused else errno.EPROTO, done.stderr)


def reach(where: object, family: int = socket.AF_INET) -> None:
    with socket.socket(family) as own:
        own.settimeout(5)
        own.connect(where)


def child_reaches(host: str) -> None:
    by(python, "-c", f"import socket; own = socket.socket(); own.settimeout(5); own.connect({(host, 443)!r})")


def attach(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) < 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0)
    libc.ptrace(17, pid, None, None)


told = {}
for name, deed in json.loads(sys.argv[5]):
    try:
        answer = eval(deed)
        told[name] = "view" if isinstance(answer, bytes) and b"pincer:" in answer else "done"
    except OSError as error:
        told[name] = errno.errorcode.get(error.errno or 0, repr(error))
print(json.dumps({"told": told, "variables": dict(os.environ)}))
