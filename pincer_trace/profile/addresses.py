"""HOST:PORT of rules and options, as patterns of what the gateway calls a peer: `//HOST:PORT`, one spelling a host.

A connection to a name is judged by the name, one to an address by the address, and no pattern of the one matches the
other: the last label of a name is never a number, and that of an address always is. An IPv6 address may stand in
brackets, `[::1]:443`; a prefix, `10.0.0.0/8:443` and `2001:db8::/32:443`, is one pattern, which holds addresses alone.
`localhost` is this machine's addresses, as its files say.
"""

from __future__ import annotations

from pincer_trace.kernel import inet
from pincer_trace.profile.globs import GlobError

_OCTETS = 4
_ANY = (b"*", b"**")
_DIGITS = (b"[0-9]", b"[0-9][0-9]", b"[0-9][0-9][0-9]")  # a last octet, which no name has
_LOCAL = (b"127.0.0.1", b"::1")


def patterns(text: bytes) -> list[bytes]:
    """The patterns that `text`, behind the two slashes, stands for. Raises GlobError for a prefix that is none, or for
    a name that no host can have.
    """
    host, colon, port = text.rpartition(b":")
    if b"/" in port or (port.endswith(b"]") and b"[" not in port):
        raise GlobError("a port comes last: HOST:PORT, or HOST:* for every one")
    if not colon:
        return [b"//" + text]
    return [b"//%b:%b" % (each, port) for each in _hosts(host)]


def is_any(pattern: bytes) -> bool:
    """Whether it stands for any host, so that it says nothing about the one at hand."""
    return pattern[2:].rpartition(b":")[0] in _ANY or pattern == b"//**"


def _hosts(host: bytes) -> list[bytes]:
    if b"/" in host:
        return [_prefix(*_bare(host).split(b"/", 1))]
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
    try:
        return inet.unmapped(inet.read(_bare(host).decode("ascii")))
    except UnicodeDecodeError:
        return b""


def _bare(host: bytes) -> bytes:
    """Without brackets: `[2001:db8::]/32` and `[2001:db8::/32]`, too."""
    inside, closed, rest = host[1:].partition(b"]") if host[:1] == b"[" else (host, b"", b"")
    return inside + rest if closed else host


def _numbers(host: bytes) -> list[bytes]:
    """A pattern of digits, which is to match addresses alone: what it ends with is made a number."""
    if host.endswith(b"?"):
        return [host[:-1] + _DIGITS[0]]
    if not host.endswith(b"*"):
        return [host]
    head = host[:-1]
    joins = (b"",) if host.endswith(b".*") and host.count(b".") == _OCTETS - 1 else (b"", b"*.")
    return [head + join + digits for join in joins for digits in _DIGITS]


def _prefix(address: bytes, bits: bytes) -> bytes:
    """`ADDRESS/BITS` in its one spelling. Of IPv4 in IPv6 there is none: such an address is one of IPv4."""
    raw = _address(address)
    if not raw or (len(raw) == _OCTETS and b":" in address):
        raise GlobError("no prefix of what is no address" if not raw else "write it as a prefix of IPv4")
    most = 8 * len(raw)
    if not (bits.isdigit() and int(bits) <= most):
        raise GlobError(f"a prefix has 0 to {most} bits")
    if int.from_bytes(raw, "big") & ((1 << most - int(bits)) - 1):
        raise GlobError("bits of the address are set behind its prefix")
    return b"%b/%d" % (inet.written(raw).encode(), int(bits))
