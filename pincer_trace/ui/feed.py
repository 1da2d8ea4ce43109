"""The other end of the approval channel: finding the sessions that go on, and talking to one of them."""

from __future__ import annotations

import json
import os
import select
import socket
import threading

from pincer_trace import paths
from pincer_trace.channel import address
from pincer_trace.errors import UserError
from pincer_trace.kernel import peers, procfs
from pincer_trace.ledger import read
from pincer_trace.ledger.session import sessions_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self

    Fits = Callable[[dict[str, Any]], bool]

SUPERVISED = (
    "this process is supervised by pincer-trace itself: questions are seen and answered from outside of a run, "
    "in another terminal"
)
_PATIENCE = 10.0  # seconds
_MOST = 1 << 24  # bytes of one answer


def refuse_when_supervised() -> None:
    """Raises UserError inside of a supervised tree, where nothing could be answered anyway."""
    if b"\nSeccomp:\t2\n" not in procfs.read("/proc/self/status"):
        return
    from pincer_trace.doctor import is_supervised

    if is_supervised():
        raise UserError(SUPERVISED)


def running(directory: str | None = None, fits: Fits | None = None) -> list[dict[str, Any]]:
    """session.json of every session under `directory` that goes on and `fits` (it asks), the oldest first."""
    found = []
    parent = os.path.abspath(sessions_directory(directory))
    for name in read.listed_ids(directory)[0]:
        path = os.path.join(parent, name)
        if not read.is_running(path):
            continue
        try:
            facts = read.load_session(path)
        except UserError:
            continue  # it ended just now
        if facts["state"] == "running" and (fits or _asks)(facts):
            found.append(facts)
    return found


def choose(selector: str | None, directory: str | None = None, fits: Fits | None = None) -> dict[str, Any]:
    """session.json of the session that `selector` means and that `fits`; without one, of the only one that goes on.

    Question 1 of one session is not question 1 of another: where several go on, one has to be named.
    """
    if selector is None:
        found = running(directory, fits)
        if not found and fits is not None:
            raise UserError("no session goes on")
        if not found:
            raise UserError("no session goes on that asks: questions come from `pincer-trace --confirm ask -- COMMAND`")
        if len(found) > 1:
            ids = [str(facts["id"]) for facts in reversed(found)]
            raise UserError(f"{len(ids)} sessions go on: {read.some(ids)}; name one of them")
        return found[0]
    facts = read.load_session(read.find_session(selector, directory))
    name = paths.display(str(facts.get("id")))
    if facts["state"] != "running":
        raise UserError(f"session {name} has {facts['state']}: nothing of it can be answered any more")
    if fits is not None and not fits(facts):
        raise UserError(f"session {name} does not answer yet: try again in a second")
    if fits is None and not _asks(facts):
        raise UserError(f"session {name} asks nobody: it was started with --confirm {facts.get('confirm')}")
    return facts


def _asks(facts: dict[str, Any]) -> bool:
    """Whether that session asks anybody."""
    return answers(facts) and facts.get("confirm") == "ask"


def answers(facts: dict[str, Any]) -> bool:
    """Whether its supervisor can be talked to: all of them can, from half a second on."""
    return "feed" in facts


class Feed:
    """A connection to one session's supervisor. Raises UserError when it cannot be had."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.id = paths.display(str(facts.get("id")))
        self._rest = b""
        self._news: dict[str, Any] | None = None  # the last one that came and was not taken
        feed = facts.get("feed") or {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.connect(address(str(feed["name"])))
            pid, uid = peers.credentials(self._socket)
        except PermissionError as error:
            self._socket.close()
            raise UserError(SUPERVISED) from error
        except (OSError, KeyError, TypeError, ValueError) as error:
            self._socket.close()
            raise UserError(f"session {self.id} does not answer: it has ended") from error
        if (pid, uid) != (feed.get("pid"), os.getuid()):
            self._socket.close()
            raise UserError(f"session {self.id} does not answer: its socket is not its supervisor's (process {pid})")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is heard or asked any more."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket, to wait for news on; `news(0)` until it gives None."""
        return self._socket.fileno()

    def interrupt(self) -> None:
        """Whoever waits for news or an answer, in another thread, waits no longer: it gets UserError."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def ask(self, **message: object) -> dict[str, Any]:
        """One request; the answer. Raises UserError with the supervisor's words."""
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.sendall(json.dumps(message).encode("ascii") + b"\n", socket.MSG_NOSIGNAL)
        except OSError:
            pass  # it says why, or it has ended
        answer = self._message()
        while "event" in answer:
            self._news = answer
            answer = self._message()
        if not answer.get("ok"):
            raise UserError(f"session {self.id}: {paths.display(str(answer.get('error') or 'no answer'))}")
        return answer

    def watch(self) -> None:
        """From now on there is news. Raises UserError."""
        self.ask(op="watch")

    def news(self, seconds: float) -> dict[str, Any] | None:
        """What came last, waiting so long for it; None when nothing did. Raises UserError when the run has ended."""
        news, self._news = self._news, None
        while news is None or b"\n" in self._rest or self._has(0.0):
            if b"\n" not in self._rest and not self._has(seconds):
                break
            message = self._message()
            if "event" in message:
                news = message
        return news

    def _has(self, seconds: float) -> bool:
        """Whether there is something to read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _message(self) -> dict[str, Any]:
        try:
            message = json.loads(self._line())
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"session {self.id} does not answer: it has ended") from error
        if not isinstance(message, dict):
            raise UserError(f"session {self.id}: no answer")
        return message

    def _line(self) -> bytes:
        pieces = [self._rest]
        size = len(self._rest)
        while b"\n" not in pieces[-1]:
            piece = self._socket.recv(1 << 16)
            size += len(piece)
            if not piece or size > _MOST:
                raise ConnectionError
            pieces.append(piece)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line


class Watch:
    """What can be answered in one session, told as it changes: for a thread that waits. Raises UserError as `Feed`."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._feed = Feed(facts)
        self._closed = False
        self._using = threading.Lock()
        try:
            self._feed.watch()
        except UserError:
            self._feed.close()
            raise

    def next(self) -> list[dict[str, Any]] | None:
        """All questions, whenever they are others; None after `close`. Raises UserError when the session has ended."""
        with self._using:
            while not self._closed:
                try:
                    news = self._feed.news(_PATIENCE)
                except UserError:
                    if self._closed:
                        return None
                    raise
                questions = news.get("questions") if news is not None else None
                if isinstance(questions, list):
                    return [each for each in questions if isinstance(each, dict)]
            return None

    def close(self) -> None:
        """End the waiting; from any thread."""
        self._closed = True
        self._feed.interrupt()
        with self._using:
            self._feed.close()
