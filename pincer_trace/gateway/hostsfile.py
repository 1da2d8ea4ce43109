"""/etc/hosts as the worker is to see it: each name with its address of the session, so that it is judged as one (P83).

Pure. What leads to this machine itself stays as it is, `localhost` among it: programs bind to these addresses, too, and
their servers are known by them. hosts(5)
"""

from __future__ import annotations

from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.hosts import Hosts

    Listed = dict[bytes, tuple[bytes, ...]]  # the addresses of each name, or the names of each address, in their order

_MOST = 4096  # names; the rest of a longer file stays as it is


def words_of(line: bytes) -> list[bytes]:
    """An address and its names; nothing where the line is a comment."""
    return line.partition(b"#")[0].split()


def names_by_address(content: bytes) -> Listed:
    """The names that the file gives to each address, but `localhost`."""
    found: Listed = {}
    for line in content.split(b"\n"):
        words = words_of(line)
        raw = inet.unmapped(inet.read(words[0].decode("ascii", "replace"))) if words else b""
        for host in map(inet.host_name, words[1:]) if raw else ():
            if host and host != b"localhost" and host not in found.get(raw, ()):
                found[raw] = (*found.get(raw, ()), host)
    return found


def named(content: bytes, hosts: Hosts, stays: Callable[[bytes], bool]) -> tuple[bytes, Listed]:
    """The file with an address of the session for each name, and where these names lead.

    `stays` tells of an address (4 or 16 bytes) whether its line is left alone.
    """
    listed: Listed = {}
    out = []
    known = set()
    for line in content.split(b"\n"):
        words = words_of(line)
        raw = inet.read(words[0].decode("ascii", "replace")) if words else b""
        real = inet.unmapped(raw)
        if not raw or len(listed) >= _MOST or stays(real):
            out.append(line)
            continue
        family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
        for word in words[1:]:
            host = inet.host_name(word)
            address = hosts.address(host, family) if host else b""
            if not address:
                out.append(b"%b %b" % (words[0], word))
                continue
            if real not in listed.get(host, ()):
                listed[host] = (*listed.get(host, ()), real)
            here = b"%b %b" % (inet.written(address).encode(), host)
            if here not in known:
                known.add(here)
                out.append(here)
    return b"\n".join(out), listed
