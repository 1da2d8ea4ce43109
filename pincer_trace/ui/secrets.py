"""`reveal` and `undo`: what only the person may do with protected files of a run that goes on."""

from __future__ import annotations

import os
import sys
import time
from base64 import b64decode

import click

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ui import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@click.command()
@click.argument("handle")
@arguments.session
@click.option("--yes", is_flag=True, help="Do not ask first.")
@arguments.session_dir
def reveal(handle: str, session: str | None, yes: bool, session_dir: str | None) -> None:
    """Show the value that HANDLE stands for, as it is in the file.

    Without SESSION, of the only one that goes on. A session reveals 8,192 bytes in all; each time is in its log.
    """
    from pincer_trace.ui.feed import Feed

    with Feed(_chosen(session, session_dir)) as connection:
        about = connection.ask(op="reveal", handle=handle, only="about")
        if not yes:
            what = f"{paths.display(str(about['field']), 60)} of {paths.display(str(about['path']), 200)}"
            if not sys.stdin.isatty():
                raise UserError("nobody can be asked here whether to show it: add --yes")
            if not click.confirm(f"show {what}, {paths.counted(int(about['bytes']), 'byte')}, here?", err=True):
                raise UserError("not shown")
        value = b64decode(str(connection.ask(op="reveal", handle=handle)["value"]))
    if sys.stdout.isatty():
        print(paths.display(value))
        return
    sys.stdout.buffer.write(value)


@click.command()
@click.argument("number", metavar="[NUMBER]", required=False)
@arguments.session
@arguments.session_dir
def undo(number: str | None, session: str | None, session_dir: str | None) -> None:
    """Bring back what a protected file held before a save. Without NUMBER, list what can be brought back.

    It is kept until the run ends. Without SESSION, of the only one that goes on.
    """
    from pincer_trace.cli import Printer
    from pincer_trace.ui.feed import Feed

    if number is not None and not (number.isascii() and number.isdecimal() and len(number) < 10):
        if session is not None:
            raise click.BadParameter(f"{paths.display(number)} is no number, as `pincer-trace undo` lists them")
        number, session = None, number
    facts = _chosen(session, session_dir)
    printer = Printer()
    with Feed(facts) as connection:
        if number is not None:
            found = connection.ask(op="version", number=int(number))
            path = os.fsencode(str(found["path"]))
            _put(path, b64decode(str(found["content"])), int(found["mode"]))
            printer.line([(f"{paths.display(path)} holds again what it held before save {number}", "")])
            return
        rows = connection.ask(op="versions")["versions"]
    for row in rows:
        when = time.strftime("%H:%M:%S", time.localtime(float(row["time"])))
        size = paths.counted(int(row["bytes"]), "byte")
        where = paths.display(os.fsencode(str(row["path"])))
        printer.line([(f"{row['number']:>5} {when} ", "dim"), (where, ""), (f"  {size}", "dim")])
    said = "bring one back: pincer-trace undo NUMBER" if rows else "no protected file was saved or removed"
    printer.line([(said, "dim")])


COMMANDS = (reveal, undo)


def _chosen(session: str | None, session_dir: str | None) -> dict[str, Any]:
    from pincer_trace.ui import feed

    feed.refuse_when_supervised()
    return feed.choose(session, session_dir, feed.answers)


def _put(path: bytes, content: bytes, mode: int) -> None:
    """Write it anew in one step, through no symbolic link: the program may have put one there. Raises UserError."""
    from pincer_trace.kernel import libc

    above, _, name = path.rpartition(b"/")
    between = name + b".pincer-trace-undo-%d" % os.getpid()
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        directory = libc.openat2(libc.AT_FDCWD, above or b"/", libc.how(flags, 0, libc.RESOLVE_NO_SYMLINKS))
        try:
            made = os.open(between, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                with open(made, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fchmod(file.fileno(), mode)
                    os.fsync(file.fileno())
                os.rename(between, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(between, dir_fd=directory)
                raise
        finally:
            os.close(directory)
    except OSError as error:
        raise UserError(f"{paths.display(path)} cannot be written: {error.strerror}; it is as it was") from error
