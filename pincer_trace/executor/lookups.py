"""Looking up where a host really is: what the machine's own resolver says, on a thread, at the moment of a connection.

Only names that were allowed get here. An answer is kept for some seconds: programs open several connections at once.
"""

from __future__ import annotations

import threading
from _queue import SimpleQueue
from time import monotonic

from pincer_trace.gateway import hosts
from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = 8
_KEPT = 512
_FOUND_LASTS, _MISSING_LASTS = 15.0, 2.0  # seconds
_MOST = 16  # addresses of a host that are tried


class Found:
    """What was found: addresses (4 or 16 bytes) in the order in which they are to be tried; else `missing` says why.
    `listed`: they stand in /etc/hosts, and nobody was asked.
    """

    __slots__ = ("addresses", "listed", "missing", "until")

    def __init__(self, addresses: tuple[bytes, ...], missing: str = "", *, listed: bool = False) -> None:
        self.addresses = addresses
        self.listed = listed
        self.missing = missing
        self.until = monotonic() + (_FOUND_LASTS if addresses else _MISSING_LASTS)


class Lookups:
    """`wake` is called by another thread whenever something was found."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._mutex = threading.Lock()  # guards the two tables
        self._found: dict[bytes, Found] = {}
        self._pending: set[bytes] = set()
        self._work: SimpleQueue[bytes] = SimpleQueue()
        self._threads = 0

    def of(self, name: bytes) -> Found | None:
        """What is known of a host; None while it is being looked up. Never waits."""
        with self._mutex:
            found = self._found.get(name)
            if found is not None and monotonic() < found.until:
                return found
            if name in self._pending:
                return None
            self._pending.add(name)
        if self._threads < min(_THREADS, len(self._pending)):
            try:
                threading.Thread(target=self._serve, name="lookup", daemon=True).start()
                self._threads += 1
            except RuntimeError:  # the process limit is reached
                if not self._threads:
                    self._keep(name, Found((), "no thread to look it up"))
                    return self._found[name]
        self._work.put(name)
        return None

    def _serve(self) -> None:
        while True:
            name = self._work.get()
            try:
                addresses = look_up(name)
                found = Found(addresses, "" if addresses else "it has no address")
            except OSError as error:
                found = Found((), str(error.args[-1]) if error.args else "it cannot be looked up")
            except Exception as failure:  # noqa: BLE001 - whoever waits must hear of it
                found = Found((), f"looking it up failed: {type(failure).__name__}")
            self._keep(name, found)
            self._wake()

    def _keep(self, name: bytes, found: Found) -> None:
        with self._mutex:
            self._pending.discard(name)
            self._found.pop(name, None)
            self._found[name] = found
            if len(self._found) > _KEPT:
                del self._found[next(iter(self._found))]


def look_up(name: bytes) -> tuple[bytes, ...]:
    """The addresses of a host, by this machine's own files and servers. Raises OSError (gaierror).

    No address at all (0.0.0.0), which would mean this machine, is no host's, nor are those of the session. A name
    with a dot is meant as it is: what was judged is not to become another one by a search list.
    """
    told = socket.getaddrinfo(name + b"." if b"." in name else name, None, 0, socket.SOCK_STREAM)
    raw = [inet.unmapped(socket.inet_pton(family, str(place[0]).partition("%")[0])) for family, _, _, _, place in told]
    return tuple(each for each in dict.fromkeys(raw) if any(each) and not hosts.is_ours(each))[:_MOST]
