"""HOST:PORT of rules and options, as patterns of what the gateway calls a peer: `//HOST:PORT`, one spelling an address.

`10.0.0.0/8:443` is written out as patterns; an IPv6 address may stand in brackets, `[::1]:443`. A connection is judged
by its address: what is no address is kept as it is written, and matches nothing yet.
"""

from __future__ import annotations

from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket
from pincer_trace.profile.globs import GlobError

_OCTETS, _BITS = 4, 32


def patterns(text: bytes) -> list[bytes]:
    """The patterns that `text`, behind the two slashes, stands for. Raises GlobError for a prefix that is none."""
    host, colon, port = text.rpartition(b":")
    if not colon:
        return [b"//" + text]
    address, slash, bits = host.partition(b"/")
    if slash:
        return [b"//%b:%b" % (each, port) for each in _prefix(address, bits)]
    canonical = _address(address)
    return [b"//%b:%b" % (inet.written(canonical).encode(), port)] if canonical else [b"//" + text]


def is_addresses(text: bytes) -> bool:
    """Whether it can match an address at all: one, a prefix, or a pattern of digits; any host is `*`."""
    host = text.rpartition(b":")[0]
    return host == b"*" or b"/" in host or bool(_address(host)) or not host.strip(b"0123456789.*?")


def _address(host: bytes) -> bytes:
    """The bytes of an address, IPv4 in IPv6 as IPv4; b"" for none."""
    if host[:1] == b"[" and host[-1:] == b"]":
        host = host[1:-1]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return inet.unmapped(socket.inet_pton(family, host.decode("ascii")))
        except (OSError, UnicodeDecodeError, ValueError):
            continue
    return b""


def _prefix(address: bytes, bits: bytes) -> list[bytes]:
    """The hosts of `ADDRESS/BITS`, of IPv4: whole octets, each value of the one that is cut, and any behind it."""
    raw = _address(address)
    if len(raw) != _OCTETS:
        what = "of an IPv6 address; name the addresses" if raw else "of what is no address"
        raise GlobError(f"no prefix {what}")
    if not (bits.isdigit() and int(bits) <= _BITS):
        raise GlobError("a prefix has 0 to 32 bits")
    number = int.from_bytes(raw, "big")
    if number & ((1 << _BITS - int(bits)) - 1):
        raise GlobError("bits of the address are set behind its prefix")
    whole, cut = divmod(int(bits), 8)
    head = [b"%d" % octet for octet in raw[:whole]]
    if whole == _OCTETS:
        return [b".".join(head)]
    rest = [b"*"] * (_OCTETS - whole - 1)
    values = range(raw[whole], raw[whole] + (1 << 8 - cut)) if cut else ()
    nexts = [b"%d" % value for value in values] or [b"*"]
    return [b".".join([*head, each, *rest]) for each in nexts]
