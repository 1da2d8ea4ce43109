"""The names by which rules know whom a socket is connected to."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.gateway import peers
from pincer_trace.profile.globs import components, matches


def inet(host: str, port: int, family: int = socket.AF_INET) -> bytes:
    return struct.pack("=H", family) + port.to_bytes(2, "big") + socket.inet_pton(family, host) + bytes(8)


def inet6(host: str, port: int, scope: int = 0) -> bytes:
    return struct.pack("=H", socket.AF_INET6) + port.to_bytes(2, "big") + bytes(4) + socket.inet_pton(
        socket.AF_INET6, host
    ) + struct.pack("=I", scope)  # fmt: skip


def named(family: int, address: bytes, bound: tuple[str, int] | None = None) -> bytes:
    with socket.socket(family) as own:
        if bound is not None:
            own.bind(bound)
        return peers.inet_peer(peers.Socket(own.fileno()), address)


@pytest.mark.parametrize(
    ("family", "address", "name"),
    [
        (socket.AF_INET, inet("10.1.2.3", 443), b"//10.1.2.3:443"),
        (socket.AF_INET, inet("0.0.0.0", 80), b"//127.0.0.1:80"),
        (socket.AF_INET6, inet6("::1", 65535), b"//::1:65535"),
        (socket.AF_INET6, inet6("2001:DB8:0:0:0:0:0:1", 1), b"//2001:db8::1:1"),
        (socket.AF_INET6, inet6("::ffff:10.1.2.3", 443), b"//10.1.2.3:443"),
        (socket.AF_INET6, inet6("::ffff:0.0.0.0", 443), b"//127.0.0.1:443"),
        (socket.AF_INET6, inet6("::", 443), b"//::1:443"),
        (socket.AF_INET6, inet6("fe80::1", 443, 2), b"//fe80::1%2:443"),
        (socket.AF_INET6, inet6("fe80::1", 443)[:24], b"//fe80::1:443"),
        (socket.AF_INET, inet("10.1.2.3", 443)[:15], b""),
        (socket.AF_INET6, inet6("::1", 443)[:23], b""),
        (socket.AF_INET, bytes(16), b""),
        (socket.AF_INET, b"\2", b""),
        (socket.AF_INET, b"", b""),
    ],
)
def test_the_address_is_named(family: int, address: bytes, name: bytes) -> None:
    assert named(family, address) == name


def test_no_address_is_the_one_that_the_socket_has() -> None:
    """tcp_v4_connect takes its own address for none: a rule about 127.0.0.1 must not be met by another one."""
    assert named(socket.AF_INET, inet("0.0.0.0", 80), ("127.0.0.2", 0)) == b"//127.0.0.2:80"
    assert named(socket.AF_INET6, inet6("::", 80), ("::ffff:127.0.0.2", 0)) == b"//127.0.0.2:80"


def test_a_mapped_nothing_is_this_machine_too() -> None:
    """What the kernel makes of it is what a connection shows."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as own:
        own.connect(("::ffff:0.0.0.0", server.getsockname()[1]))
        assert own.getpeername()[0] == "::ffff:127.0.0.1"


@given(st.binary(min_size=1, max_size=107))
def test_an_abstract_name_is_one_component_and_its_own(name: bytes) -> None:
    address = struct.pack("=H", socket.AF_UNIX) + b"\0" + name
    assert peers.abstract_name(address) == b"\0" + name
    assert peers.unix_path(address) == b""
    peer = peers.abstract_peer(b"\0" + name)
    assert matches(components(b"//@*"), peer)
    assert not matches(components(b"/**"), peer)
    raw = bytearray()
    text = peer[3:]
    while text:
        size = 3 if text[:1] == b"%" else 1
        raw.append(int(text[1:3], 16) if size == 3 else text[0])
        text = text[size:]
    assert bytes(raw) == name


@pytest.mark.parametrize("size", range(112))
def test_a_path_is_what_the_kernel_takes_for_one(size: int) -> None:
    address = (struct.pack("=H", socket.AF_UNIX) + b"/" + b"p" * 150)[:size]
    assert peers.unix_path(address) == (address[2:] if 2 < size <= 110 else b"")
    assert peers.abstract_name(address) == b""


def test_a_socket_is_looked_at_and_not_closed(tmp_path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as own:
        what = peers.Socket(own.fileno())
        assert (what.family, what.kind, what.inode) == (socket.AF_UNIX, 5, os.fstat(own.fileno()).st_ino)
        own.bind(b"\0pincer-peer-%d" % os.getpid())
        assert what.name() == b"\0pincer-peer-%d" % os.getpid()
    plain = os.open(tmp_path, os.O_RDONLY)
    pin = os.open(tmp_path, os.O_PATH)
    try:
        for descriptor, number in ((plain, errno.ENOTSOCK), (pin, errno.EBADF)):
            with pytest.raises(OSError) as caught:
                peers.Socket(descriptor)
            assert caught.value.errno == number
    finally:
        os.close(plain)
        os.close(pin)
