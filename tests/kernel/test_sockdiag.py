"""What the kernel tells of unix sockets, against real ones."""

from __future__ import annotations

import _socket
import errno
import os
import socket
import struct

import pytest

from pincer_trace.kernel import sockdiag

STREAM, PACKETS = int(socket.SOCK_STREAM), int(socket.SOCK_SEQPACKET)


def test_an_abstract_name_belongs_to_one_socket() -> None:
    name = b"\0pincer-diag\0%d\xff" % os.getpid()
    with socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as other:
        inode = os.fstat(own.fileno()).st_ino
        assert not sockdiag.is_abstract(inode, STREAM, name)
        own.bind(name)
        assert sockdiag.is_abstract(inode, STREAM, name)
        assert not sockdiag.has_abstract(STREAM, name)  # nobody listens
        own.listen()
        assert sockdiag.has_abstract(STREAM, name)
        assert not sockdiag.has_abstract(PACKETS, name)
        assert not sockdiag.is_abstract(inode, PACKETS, name)
        assert not sockdiag.is_abstract(inode, STREAM, name[:-1])
        assert not sockdiag.is_abstract(os.fstat(other.fileno()).st_ino, STREAM, name)
    assert not sockdiag.is_abstract(inode, STREAM, name)


def test_who_listens_at_a_path(tmp_path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(path))
        assert not sockdiag.listens(os.stat(path))
        own.listen()
        assert sockdiag.listens(os.stat(path))
    assert not sockdiag.listens(os.stat(path))


def test_many_sockets_come_in_many_parts(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # an address has room for 108 bytes
    made = []
    try:
        for number in range(400):
            one = socket.socket(socket.AF_UNIX)
            made.append(one)
            one.bind(f"{number}-{'x' * 60}")
            one.listen()
        for number in (0, 199, 399):
            assert sockdiag.listens(os.stat(tmp_path / f"{number}-{'x' * 60}"))
    finally:
        for one in made:
            one.close()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOENT, errno.EPROTONOSUPPORT])
def test_a_kernel_that_does_not_tell(monkeypatch, tmp_path, number: int) -> None:
    """For whom it matters: nothing is taken for the run's own, and a server for one that listens."""
    refusal = struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -number) + bytes(16)

    class Refusing(_socket.socket):
        def recvmsg(self, *_):
            return refusal, [], 0, None

    monkeypatch.setattr(sockdiag.socket, "socket", Refusing)
    if number == errno.ENOENT:
        assert not sockdiag.is_abstract(1, STREAM, b"\0x")
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            sockdiag.is_abstract(1, STREAM, b"\0x")
    assert sockdiag.listens(os.stat(tmp_path))


def test_a_message_that_did_not_fit_is_no_answer(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        monkeypatch.setattr(sockdiag, "_SIZE", 64)
        with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
            sockdiag.tcp_listeners(socket.inet_aton("127.0.0.1"), own.getsockname()[1])


def test_many_servers_come_in_many_parts() -> None:
    """Those of both families at one port, which the kernel tells in one pass."""
    here, servers = socket.inet_aton("127.0.0.1"), []
    try:
        for number in range(600):
            one = socket.socket(socket.AF_INET6 if number % 2 else socket.AF_INET)
            servers.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if number % 2:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(("::1" if number % 2 else "127.0.0.1", servers[0].getsockname()[1] if number else 0))
            one.listen()
        port = servers[0].getsockname()[1]
        inodes = [os.fstat(one.fileno()).st_ino for one in servers]
        assert sorted(sockdiag.tcp_listeners(here, port)) == sorted(inodes[::2])
        assert sorted(sockdiag.tcp_listeners(socket.inet_pton(socket.AF_INET6, "::1"), port)) == sorted(inodes[1::2])
    finally:
        for one in servers:
            one.close()


def test_who_listens_at_a_port() -> None:
    """By that address or by any of either family; nobody else, and nobody who does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as own, socket.socket() as bound:
        port, inode = own.getsockname()[1], os.fstat(own.fileno()).st_ino
        bound.bind(("127.0.0.1", 0))
        here, other = socket.inet_aton("127.0.0.1"), socket.inet_aton("127.0.0.2")
        assert sockdiag.tcp_listeners(here, port) == [inode]
        assert sockdiag.tcp_listeners(other, port) == []
        assert sockdiag.tcp_listeners(here, bound.getsockname()[1]) == []
        with socket.create_server(("127.0.0.2", port)) as second:
            assert sockdiag.tcp_listeners(here, port) == [inode]
            assert sockdiag.tcp_listeners(other, port) == [os.fstat(second.fileno()).st_ino]
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
        port, inode = both.getsockname()[1], os.fstat(both.fileno()).st_ino
        for host in (here, socket.inet_pton(socket.AF_INET6, "::1")):
            assert sockdiag.tcp_listeners(host, port) == [inode]
    with socket.socket(socket.AF_INET6) as mapped:
        mapped.bind(("::ffff:127.0.0.1", 0))
        mapped.listen()
        assert sockdiag.tcp_listeners(here, mapped.getsockname()[1]) == [os.fstat(mapped.fileno()).st_ino]
