"""What a run did against what somebody reviewed: a text file beside the test, a line for each thing that it does.

Lines that begin with `#` are for readers, and stay where they are while the line below them does.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import secrets

from pincer_trace import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pincer_trace.testing.behaviour import Line

FOLDER = "snapshots"
_HEAD = "# What this test was seen to do. `pytest --pincer-update` writes it anew: read a change of it as one of code."
_EXAMPLES = 5
_LONGEST, _DIGEST = 120, 12


def file_of(test: Path, name: str, suffix: str = "") -> Path:
    """Where the snapshot of a test of the module `test` lies."""
    words = re.sub(r"[^\w.\[\]-]+", "_", ".".join([test.stem, name, *([suffix] if suffix else [])]))
    if len(words) > _LONGEST:  # what is cut off must not make two of them one
        digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
        words = f"{words[: _LONGEST - _DIGEST - 1]}-{digest}"
    return test.parent / FOLDER / f"{words}.txt"


def compare(file: Path, reviewed: str | None, lines: Sequence[Line], how: str) -> None:
    """Raise AssertionError with what differs from the text `reviewed`, None for none; `how` writes it anew."""
    __tracebackhide__ = True
    now = [line.text for line in lines]
    if reviewed is None:
        head = f"nobody has reviewed what this does: there is no {file}"
        rows = (f"  + {text}" for text in now)
        raise AssertionError("\n".join((head, *rows, f"To make it, then to read it and to commit it: {how}")))
    before = [line for line in map(str.strip, reviewed.splitlines()) if line and not line.startswith("#")]
    if set(before) == set(now):
        return
    changes = [each for each in difflib.ndiff(before, now) if each[:2] in ("+ ", "- ")]
    changes = [each for each in changes if (each[2:] in before) != (each[2:] in now)]  # an order says nothing
    new = [line.call for line in lines if line.call is not None and line.text not in before]
    calls = [f"  {call}".replace("\n", "\n  ") for call in new[:_EXAMPLES]]
    if len(new) > _EXAMPLES:
        calls.append(f"  ... and {len(new) - _EXAMPLES} others")
    told = [f"  {paths.display(each, 2000)}" for each in changes]
    if calls:
        told += ["calls behind the new lines:", *calls]
    head = f"what this does is not what was reviewed in {file}"
    raise AssertionError("\n".join((head, *told, f"If that is as it should be: {how}")))


def write(file: Path, reviewed: str | None, lines: Sequence[Line]) -> bool:
    """Write the snapshot, with the comments that the reviewed one has; one that says the same stays as it is, and the
    answer is no.
    """
    comments: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in map(str.strip, (reviewed or "").splitlines()):
        if line.startswith("#") and line != _HEAD:
            pending.append(line)
        elif line and line != _HEAD:
            comments[line], pending = pending, []
    now = [line.text for line in lines]
    if reviewed is not None and set(comments) == set(now):
        return False
    rows = [_HEAD]
    for text in now:
        rows += [*comments.get(text, ()), text]
    file.parent.mkdir(exist_ok=True)
    new = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with open(new, "x", encoding="utf-8") as out:  # never through a link that what ran has put there
        out.write("\n".join([*rows, *pending]) + "\n")
    new.replace(file)
    return True
