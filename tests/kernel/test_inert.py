"""UDP sockets that send nothing: whatever call, option or address is tried, nothing arrives and nothing comes in."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pincer_trace.kernel import inert, libc

CORK, SEGMENT, MORE, ZEROCOPY = 1, 103, 0x8000, 0x4000000
DETACH_FILTER, LOCK_FILTER, ADDRFORM = 27, 44, 1
SILENT = {errno.EPIPE, errno.EDESTADDRREQ, errno.ENOTCONN, errno.EISCONN}


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def other(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """Somebody who would be sent to."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as other:
        other.bind((request.param, 0))
        other.setblocking(False)
        yield other


def sends(own: socket.socket, to: object, file: int, pipe: int) -> dict[str, Callable[[], object]]:
    """Each way to send a datagram."""
    return {
        "sendto": lambda: own.sendto(b"x", to),
        "empty": lambda: own.sendto(b"", to),
        "more": lambda: own.sendto(b"x", MORE, to),
        "sendmsg": lambda: own.sendmsg([b"x", b"y"], [], 0, to),
        "zero copy": lambda: own.sendto(b"x" * 999, ZEROCOPY, to),
        "send": lambda: own.send(b"x"),
        "write": lambda: os.write(own.fileno(), b"x"),
        "writev": lambda: os.writev(own.fileno(), [b"x", b"y"]),
        "sendfile": lambda: os.sendfile(own.fileno(), file, 0, 9),
        "splice": lambda: os.splice(pipe, own.fileno(), 3),
    }


def failure(act: Callable[[], object]) -> int:
    with pytest.raises(OSError) as caught:
        act()
    return caught.value.errno or 0


def test_p82_nothing_is_sent_by_it_and_nothing_comes(other: socket.socket) -> None:
    to = other.getsockname()
    with socket.socket(fileno=inert.make(other.family, socket.SOCK_DGRAM, 17)) as own, open(__file__, "rb") as file:
        pipe, end = os.pipe()
        os.write(end, b"abc")
        assert inert.is_inert(own.fileno()) and not inert.is_inert(other.fileno())
        steps: list[Callable[[], object]] = [
            lambda: None,
            lambda: own.connect(to),
            lambda: own.setsockopt(socket.IPPROTO_UDP, CORK, 1),
            lambda: own.setsockopt(socket.IPPROTO_UDP, CORK, 0),
            lambda: own.setsockopt(socket.IPPROTO_UDP, SEGMENT, 1),
            lambda: own.setsockopt(socket.SOL_SOCKET, LOCK_FILTER, 0),
            lambda: own.setsockopt(socket.SOL_SOCKET, DETACH_FILTER, 0),
            lambda: own.shutdown(socket.SHUT_RD),
            lambda: libc.call("connect", own.fileno(), bytes(16), 16),
            lambda: own.connect(to),
        ]
        for number, step in enumerate(steps):
            with suppress(OSError):
                step()
            for name, send in sends(own, to, file.fileno(), pipe).items():
                assert failure(send) in SILENT, (number, name)
        assert own.getsockname()[0] == other.getsockname()[0]  # what it is there for: a way, and from where
        other.sendto(b"x", own.getsockname())
        other.sendto(b"x", to)  # to itself: it has come, and so would have the first
        assert select.select([other], [], [], 20)[0] and other.recv(9) == b"x"
        with pytest.raises(BlockingIOError):
            other.recv(9)
        own.setblocking(False)
        with pytest.raises(BlockingIOError):
            own.recv(9)
        if to[0].startswith("::ffff:"):  # made a socket of IPv4
            own.setsockopt(socket.IPPROTO_IPV6, ADDRFORM, socket.AF_INET)
            with socket.socket(fileno=os.dup(own.fileno())) as four:
                assert four.family == socket.AF_INET
                for name, send in sends(four, ("127.0.0.1", to[1]), file.fileno(), pipe).items():
                    assert failure(send) in SILENT, name
        os.close(pipe)
        os.close(end)


def test_p82_a_kernel_that_would_send_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one that is not shut fails the trial which each family is put to once."""
    monkeypatch.setattr(inert, "_proven", set())
    monkeypatch.setattr(inert, "_shut", lambda *words: socket.socket(*words))
    for family in (socket.AF_INET, socket.AF_INET6):
        with pytest.raises(OSError, match="udp"):
            inert.make(family, socket.SOCK_DGRAM, 0)
