"""HOST:PORT of rules and options, as patterns of what the gateway calls a peer: `//HOST:PORT`, one spelling a host.

A connection to a name is judged by the name, one to an address by the address, and no pattern of the one matches the
other: the last label of a name is never a number, and that of an address always is. `10.0.0.0/8:443` is written out as
patterns; an IPv6 address may stand in brackets, `[::1]:443`. `localhost` is this machine's addresses, as its files say.
"""

from __future__ import annotations

from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket
from pincer_trace.profile.globs import GlobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_OCTETS, _BITS = 4, 32
_ANY = (b"*", b"**")
_DIGITS = (b"[0-9]", b"[0-9][0-9]", b"[0-9][0-9][0-9]")  # a last octet, which no name has
_LOCAL = (b"127.0.0.1", b"::1")


def patterns(text: bytes) -> list[bytes]:
    """The patterns that `text`, behind the two slashes, stands for. Raises GlobError for a prefix that is none, or for
    a name that no host can have.
    """
    host, colon, port = text.rpartition(b":")
    if not colon:
        return [b"//" + text]
    return [b"//%b:%b" % (each, port) for each in _hosts(host)]


def is_any(pattern: bytes) -> bool:
    """Whether it stands for any host, so that it says nothing about the one at hand."""
    return pattern[2:].rpartition(b":")[0] in _ANY or pattern == b"//**"


def _hosts(host: bytes) -> list[bytes]:
    address, slash, bits = host.partition(b"/")
    if slash:
        return _prefix(address, bits)
    canonical = _address(host)
    if canonical:
        return [inet.written(canonical).encode()]
    if host in _ANY:
        return [host]
    if not host.strip(b"0123456789.*?"):
        return _numbers(host)
    name = _ascii(host).lower().removesuffix(b".")
    if name == b"localhost":
        return [*_LOCAL, name]
    if not any(special in name for special in b"*?[\\") and not inet.host_name(name):
        raise GlobError("no host can have this name")
    return [name]


def _ascii(host: bytes) -> bytes:
    """A name as it is asked for: labels of other letters as xn-- and what follows (RFC 5891 and before)."""
    if host.isascii():
        return host
    try:
        return b".".join(
            label if label.isascii() else label.decode().encode("idna").lower() for label in host.split(b".")
        )
    except UnicodeError:
        raise GlobError("no host can have this name") from None


def _address(host: bytes) -> bytes:
    """The bytes of an address, IPv4 in IPv6 as IPv4; b"" for none."""
    if host[:1] == b"[" and host[-1:] == b"]":
        host = host[1:-1]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return inet.unmapped(socket.inet_pton(family, host.decode("ascii")))
        except (OSError, UnicodeDecodeError, ValueError):
            continue  # no address of this family
    return b""


def _numbers(host: bytes) -> list[bytes]:
    """A pattern of digits, which is to match addresses alone: what it ends with is made a number."""
    if host.endswith(b"?"):
        return [host[:-1] + _DIGITS[0]]
    if not host.endswith(b"*"):
        return [host]
    head = host[:-1]
    joins = (b"",) if host.endswith(b".*") and host.count(b".") == _OCTETS - 1 else (b"", b"*.")
    return [head + join + digits for join in joins for digits in _DIGITS]


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
    cuts = list(_decades(raw[whole], raw[whole] + (1 << 8 - cut))) if cut else [b"*"]
    rest = [b"*"] * (_OCTETS - whole - 2)
    if whole == _OCTETS - 1:
        return [b".".join([*head, last]) for last in (cuts if cut else _DIGITS)]
    return [b".".join([*head, each, *rest, last]) for each in cuts for last in _DIGITS]


def _decades(first: int, end: int) -> Iterator[bytes]:
    """The numbers from `first` to before `end`, as patterns: one for those that differ in their last digit alone."""
    while first < end:
        last = min(end, first - first % 10 + 10) - 1
        yield b"%b[%d-%d]" % (b"%d" % (first // 10) if first > 9 else b"", first % 10, last % 10)
        first = last + 1
