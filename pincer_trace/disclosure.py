"""What the person alone is given, over the approval channel: a value behind a handle, what a saved file held before.

What is supervised cannot connect there. Each of these is a line of the log, written before anything is given, with the
name of what it is and its size, and never with the value.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from threading import Lock

from pincer_trace.channel import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pincer_trace.channel import Message, Operation
    from pincer_trace.executor.secrets import Secrets
    from pincer_trace.executor.versions import Versions
    from pincer_trace.twin.grants import Person

BUDGET = 8192  # bytes that one session reveals in all
REVEAL, UNDO = "reveal", "undo"


def disclosing(
    secrets: Secrets, versions: Versions, record: Callable[[Mapping[str, object]], int], session: str
) -> dict[str, Operation]:
    """The operations. `record` writes a line of the log."""
    mutex = Lock()  # guards `left`
    left = BUDGET

    def reveal(by: Person, message: Message) -> Message:
        from pincer_trace.plaintext.handles import Handle
        from pincer_trace.plaintext.refusal import Refusal

        nonlocal left
        handle = Handle.parse(str(message.get("handle")))
        if handle is None:
            raise Refused("malformed", "that is no handle: one is `pincer:` and 26 letters")
        store = secrets.issued
        if store is None:
            raise Refused("unknown", "this run has given no handle")
        value = store.reveal(handle, session, time.monotonic())
        if isinstance(value, Refusal):
            raise Refused("unknown", value.text)
        path = secrets.path_of(handle)
        about = {"field": store.field(handle) or "", "path": path, "bytes": len(value)}
        if message.get("only") == "about":
            return {**about, "path": os.fsdecode(path)}
        with mutex:
            if len(value) > left:
                raise Refused("budget", f"a session reveals {BUDGET:,} bytes, and {left:,} of these are left")
            record(_line(REVEAL, by, {**about, "handle": handle.text}))
            left -= len(value)
        return {"value": b64encode(value).decode("ascii")}

    def saved(_by: Person, _message: Message) -> Message:
        rows = [
            {"number": each.number, "path": os.fsdecode(each.path), "bytes": len(each.content), "time": each.time}
            for each in versions.all()
        ]
        return {"versions": rows}

    def version(by: Person, message: Message) -> Message:
        number = message.get("number")
        found = versions.get(number) if type(number) is int else None
        if found is None:
            raise Refused("unknown", "no version of this number is kept: `pincer-trace undo` lists them")
        record(_line(UNDO, by, {"path": found.path, "bytes": len(found.content), "version": found.number}))
        content = b64encode(found.content).decode("ascii")
        return {"content": content, "path": os.fsdecode(found.path), "mode": found.mode}

    return {"reveal": reveal, "versions": saved, "version": version}


def _line(answer: str, by: Person, members: Mapping[str, object]) -> dict[str, object]:
    return {"answer": answer, "by": by.told, "effect": "read" if answer == REVEAL else "write", **members}
