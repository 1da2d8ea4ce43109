"""What a run keeps to itself of its environment: which keys, where their brokers listen, what the worker gets instead.

Imported by a run that has a broker to start; the broker's own process alone imports the rest.
"""

from __future__ import annotations

import os
import select

from pincer_trace import companion
from pincer_trace.broker.upstream import Upstream
from pincer_trace.credentials import named
from pincer_trace.errors import UserError
from pincer_trace.kernel.bare import socket
from pincer_trace.paths import display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pincer_trace.environ import Given
    from pincer_trace.profile.brokers import Broker

NAME = b"pincer-broker"  # what `ps` shows
# The last twenty characters are the same in all runs: by these Claude Code remembers that a person let it use a key.
HANDLE = "sk-%s-pincer-trace-handle"
_HOST = "127.0.0.1"
_BYPASS = (b"no_proxy", b"NO_PROXY")
_PROXIES = (b"http_proxy", b"HTTP_PROXY", b"all_proxy", b"ALL_PROXY")


class Desk:
    """The brokers of one run, from the environment that the supervisor was started with."""

    def __init__(self, environment: Mapping[bytes, bytes], passed: Sequence[str]) -> None:
        """`passed` are the variables that the command is to have as they are."""
        self._environment = environment
        self._is_passed = named(passed)
        self._opened: list[_Opened] = []
        self._started: list[companion.Companion] = []
        self.said: list[str] = []

    def open(self, broker: Broker) -> int | None:
        """The port where it will listen; None when there is no key to keep. Raises UserError."""
        keys = self._keys(broker)
        if not keys:
            return None
        upstream = self._upstream(broker)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((_HOST, 0))
            listener.listen(128)  # from now on who connects waits for the process to start
        except OSError as error:
            raise _failed(broker, f"no socket to listen on: {error.strerror}") from error
        opened = _Opened(broker, upstream, listener, keys)
        self._opened.append(opened)
        names = ", ".join(display(name) for name in keys)
        plain = "" if upstream.is_private else ", over http that others can read"
        self.said.append(
            f"{names}: kept by the broker {broker.name}, which uses it for {display(upstream.url)} alone{plain}"
        )
        if opened.arguments:
            self.said.append(f"added to the command, for that broker: {display(' '.join(opened.arguments))}")
        return opened.port

    def fit(self, given: Given) -> None:
        """Give the worker its handles, and the way to the broker."""
        environment = given.environment
        for opened in self._opened:
            if opened.broker.arguments:
                environment.pop(os.fsencode(opened.broker.base_url), None)
            environment |= opened.replaced
        given.credentials = [name for name in given.credentials if os.fsencode(name) not in environment]
        if self._opened and any(environment.get(name) for name in _PROXIES):
            for name in _BYPASS:
                rest = environment.get(name, b"")
                environment[name] = rest + (b"," if rest else b"") + _HOST.encode()

    def start(self, *, outlives: bool) -> None:
        """Start the processes. Raises UserError."""
        for opened in self._opened:
            try:
                self._started.append(opened.start(outlives=outlives))
            except OSError as error:
                raise _failed(opened.broker, f"no process can be started: {error.strerror}") from None
            opened.listener.close()

    def leave(self) -> None:
        """From now on they end when the engine does."""
        for each in self._started:
            each.leave()

    def end(self) -> None:
        """End them, and reap them."""
        for opened in self._opened:
            opened.listener.close()
        for each in self._started:
            each.end()

    def arguments(self, given: list[str]) -> list[str]:
        """The command with what tells it of a broker that no variable does, in front of its own arguments."""
        told = [word for opened in self._opened for word in opened.arguments]
        return [given[0], *told, *given[1:]]

    @property
    def ports(self) -> dict[str, int]:
        """By name, for whoever loads the profile of this run again."""
        return {opened.broker.name: opened.port for opened in self._opened}

    def _keys(self, broker: Broker) -> dict[str, bytes]:
        """The secrets by the variables that hold them. A file is the first one's, where that is not set."""
        found = {}
        for name in broker.variables:
            value = self._environment.get(os.fsencode(name), b"").strip()
            if not value and broker.file and name == broker.variables[0]:
                value = _content(broker)
            if value and not self._is_passed(os.fsencode(name)):
                found[name] = value
                if not (value.isascii() and value.decode().isprintable() and b" " not in value):
                    raise _failed(broker, f"{name} holds what no header of a request can carry")
        return found

    def _upstream(self, broker: Broker) -> Upstream:
        """That of the profile, or the one that the person who started the run has set."""
        given = os.fsdecode(self._environment.get(os.fsencode(broker.base_url), b"")).strip()
        try:
            return Upstream.parse(given or broker.upstream)
        except ValueError as error:
            raise _failed(broker, f"{broker.base_url}={display(given)}: {error}") from None


class _Opened:
    """A broker that listens already."""

    def __init__(self, broker: Broker, upstream: Upstream, listener: socket.socket, keys: dict[str, bytes]) -> None:
        self.broker = broker
        self.listener = listener
        self.port: int = listener.getsockname()[1]
        self._upstream = upstream
        handles = {name: (HANDLE % os.urandom(16).hex()).encode() for name in keys}
        self._by_handle = {handles[name]: keys[name] for name in keys}
        url = f"http://{_HOST}:{self.port}".encode()
        self.replaced = {os.fsencode(name): handles[name] for name in keys}
        if not broker.arguments:
            self.replaced[os.fsencode(broker.base_url)] = url
        self.arguments = [word.replace("{base_url}", url.decode()) for word in broker.arguments]

    def start(self, *, outlives: bool) -> companion.Companion:
        """Raises OSError."""

        def live(control: socket.socket) -> None:
            poll = select.poll()  # most commands never ask: what relays is imported for the first that does
            for each in (control, self.listener):
                poll.register(each, select.POLLIN)
            if any(ready == control.fileno() for ready, _ in poll.poll()):
                return
            from pincer_trace.broker import process

            process.live(control, self.listener.detach(), self._upstream, self._by_handle)

        return companion.start(live, name=NAME, outlives=outlives, keep=[self.listener.fileno()])


def _path(broker: Broker) -> str:
    return os.path.expanduser(broker.file)


def _content(broker: Broker) -> bytes:
    try:
        with open(_path(broker), "rb") as file:
            return file.read(1 << 16).strip()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _failed(broker, f"{display(broker.file)} cannot be read: {error.strerror}") from None


def _failed(broker: Broker, what: str) -> UserError:
    return UserError(f"{broker.source}: broker {broker.name}: {what}; nothing was started")
