"""Starting a view: which session, on what terminal; and one line for whatever is wrong with either."""

from __future__ import annotations

import locale
import os
import signal
import sys

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger import read
from pincer_trace.ledger.session import sessions_directory
from pincer_trace.ui import feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(session: str | None, session_dir: str | None, *, view: str, mouse: bool) -> None:
    """Show it until a person leaves. `view`: full or compact. Raises UserError."""
    feed.refuse_when_supervised()
    refuse_without_terminal()
    path = find(session, session_dir)
    facts = read.load_session(path)
    refuse_when_foreign(facts)
    if view == "compact" and facts["state"] != "running":
        said = f"session {paths.display(str(facts.get('id')))} has {facts['state']}"
        raise UserError(f"{said}, and --compact is for one that goes on; without it, all of it can be looked at")
    from pincer_trace.ui.follow import Follower
    from pincer_trace.ui.monitor.compact import Compact
    from pincer_trace.ui.monitor.full import Monitor
    from pincer_trace.ui.words import Look

    follower = Follower(path)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a terminal that is gone ends us, also below `nohup`
        look = Look(os.environ, locale.getencoding())
        app = (Compact if view == "compact" else Monitor)(follower, facts, look)
        app.run(mouse=mouse)
    finally:
        follower.close()
    if app.failure is not None:
        if os.environ.get("PINCER_TRACE_DEBUG"):
            raise app.failure
        name = type(app.failure).__name__
        raise UserError(f"the monitor failed ({name}), which is a defect; the session is not touched by that")


def find(selector: str | None, directory: str | None) -> str:
    """The session's directory; without a selector the latest that goes on, else the latest."""
    if selector is not None:
        return read.find_session(selector, directory)
    parent = os.path.abspath(sessions_directory(directory))
    for name in reversed(read.split_ids(directory)[0]):
        path = os.path.join(parent, name)
        if read.is_running(path):
            return path
    return read.find_session(None, directory)


def refuse_without_terminal() -> None:
    """Raises UserError where nothing can be drawn, or no key be read."""
    for stream, name in (
        (sys.stdin, "standard input"),
        (sys.stdout, "standard output"),
        (sys.stderr, "standard error"),
    ):
        if stream is None or not stream.isatty():
            raise UserError(f"{name} is no terminal, and monitor wants one; `pincer-trace log` prints the same as text")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        said = paths.named(os.environ.get("TERM", ""), 40)
        raise UserError(f"TERM is {said or 'not set'}: nothing can be drawn there; `pincer-trace log` prints text")


def refuse_when_foreign(facts: dict[str, Any]) -> None:
    """Raises UserError for a session of another user: its questions are that user's to answer."""
    uid = facts.get("uid")
    if isinstance(uid, int) and uid != os.getuid() and facts["state"] == "running":
        name = paths.display(str(facts.get("id")))
        raise UserError(
            f"session {name} is user {uid}'s: only that user sees and answers its questions; `log` shows it"
        )
