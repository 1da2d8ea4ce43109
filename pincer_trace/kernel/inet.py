"""Internet addresses as bytes and in words, one spelling each. inet(3)"""

from __future__ import annotations

from pincer_trace.kernel.bare import socket

MAPPED = bytes(10) + b"\xff\xff"  # in front of an IPv4 address in IPv6


def unmapped(raw: bytes) -> bytes:
    """IPv4 in IPv6 as IPv4."""
    return raw.removeprefix(MAPPED)


def written(raw: bytes) -> str:
    """4 or 16 bytes in words."""
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
