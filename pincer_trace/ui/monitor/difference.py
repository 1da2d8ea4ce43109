"""What a write changed: what the file held before it, as the supervisor kept it, against what it holds by now.

Of small text files only. The file is opened as whoever watches, so never through a last link, never a device or a FIFO,
and only while it is the object that the record tells.
"""

from __future__ import annotations

import base64
import difflib
import os
import stat

from pincer_trace.effects import RENAME, TRUNCATE, WRITE
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import raw
from pincer_trace.review.parts import destination
from pincer_trace.ui.feed import Feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ledger.read import Record

SAME, GONE, NEW = " ", "-", "+"
_LARGEST = 1 << 15  # bytes of a file, as the supervisor has it
_MATCHED = 100  # lines that are matched, whole, with as many: what is more is told as gone and new
_SHOWN = 40  # lines of it
_AROUND = 2


class Unknown(Exception):
    """It cannot be told; the text says why."""


def difference(facts: dict[str, Any], record: Record) -> list[tuple[str, str]]:
    """Lines, each with `SAME`, `GONE` or `NEW`; none for a record of another kind. Raises `Unknown`."""
    if record["kind"] != "intent" or record["effect"] not in (WRITE, TRUNCATE, RENAME) or facts["state"] != "running":
        return []
    if record["effect"] == RENAME and not destination(record):
        return []
    return lines(_text(_before(facts, record["seq"])), _text(_now(record)))


def lines(before: str, now: str) -> list[tuple[str, str]]:
    """The difference of two texts, with a few lines around it."""
    old, new = before.splitlines(), now.splitlines()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if not gone and not come:
        return [(SAME, "as it was" if before == now else "but for the end of its last line as it was")]
    marked: list[tuple[str, str]] = []
    if len(gone) <= _MATCHED and len(come) <= _MATCHED:
        matched = difflib.SequenceMatcher(None, gone, come).get_matching_blocks()
    else:
        matched = [difflib.Match(len(gone), len(come), 0)]
    a = b = 0
    for block in matched:
        marked += [(GONE, each) for each in gone[a : block.a]] + [(NEW, each) for each in come[b : block.b]]
        a, b = block.a + block.size, block.b + block.size
        marked += [(SAME, each) for each in gone[block.a : a]]
    found = [(SAME, each) for each in old[max(head - _AROUND, 0) : head]] + marked
    found += [(SAME, each) for each in old[len(old) - tail :][:_AROUND]]
    if len(found) > _SHOWN:
        found = [*found[:_SHOWN], (SAME, f"... and {len(found) - _SHOWN} lines more")]
    return found


def _before(facts: dict[str, Any], number: int) -> bytes:
    try:
        with Feed(facts) as connection:
            told = connection.ask(op="before", of=number)
    except UserError as error:
        raise Unknown(str(error)) from error
    content = told.get("content")
    if not isinstance(content, str):
        raise Unknown(f"what it held before is not known: {told.get('why')}")
    try:
        return base64.b64decode(content)
    except ValueError as error:
        raise Unknown("what it held before is not known") from error


def _now(record: Record) -> bytes:
    path = destination(record) if record["effect"] == RENAME else raw(record["path"])
    known = record.get("post") or f"{record['dev']}:{record['ino']}"
    try:
        content = _read(path, known)
    except (OSError, ValueError) as error:
        raise Unknown("what it holds now cannot be read") from error
    if len(content) > _LARGEST:
        raise Unknown("it is large by now")
    return content


def _read(path: bytes, known: str) -> bytes:
    """Of a regular file that is `known` (its device and number): what else may lie there is not even opened."""
    pinned = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(pinned)
        if not stat.S_ISREG(found.st_mode) or f"{found.st_dev}:{found.st_ino}" != known:
            raise Unknown("another file has its name by now")
        descriptor = os.open(f"/proc/self/fd/{pinned}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(pinned)
    try:
        return os.read(descriptor, _LARGEST + 1)
    finally:
        os.close(descriptor)


def _text(content: bytes) -> str:
    if b"\0" in content:
        raise Unknown("it is no text")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Unknown("it is no text") from error
