"""Internet addresses as bytes and in words, and names of hosts: one spelling each. inet(3), hostname(7)"""

from __future__ import annotations

from pincer_trace.kernel.bare import socket

MAPPED = bytes(10) + b"\xff\xff"  # in front of an IPv4 address in IPv6
_LABEL, _NAME = 63, 253  # bytes at most. RFC 1035
_HOST = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
# Networks of this machine, a site or a provider, and what is no host: (first bytes, bits). RFC 6890 and its registry.
# Those of documentation are nobody's, and lead nowhere near.
_SPECIAL = tuple(
    (socket.inet_pton(socket.AF_INET if "." in address else socket.AF_INET6, address), bits)
    for address, bits in (
        ("0.0.0.0", 8),  # noqa: S104 - named, not bound to
        ("10.0.0.0", 8), ("100.64.0.0", 10), ("127.0.0.0", 8), ("169.254.0.0", 16),
        ("172.16.0.0", 12), ("192.0.0.0", 24), ("192.88.99.0", 24), ("192.168.0.0", 16),
        ("198.18.0.0", 15), ("224.0.0.0", 3),
        ("2001::", 23), ("2002::", 16),
    )
)  # fmt: skip
_GLOBAL = bytes((0x20,)), 3  # 2000::/3: all else of IPv6 is none of the public internet
_NAT64 = b"\0d\xff\x9b" + bytes(8)  # 64:ff9b::/96, with an IPv4 address behind it


def unmapped(raw: bytes) -> bytes:
    """IPv4 in IPv6 as IPv4."""
    return raw.removeprefix(MAPPED)


def written(raw: bytes) -> str:
    """4 or 16 bytes in words."""
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def read(text: str) -> bytes:
    """The 4 or 16 bytes of an address in words; b"" for what is none."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return b""


def is_unicast(raw: bytes) -> bool:
    """Whether that is an address of one host, which needs no more to be reached: not of this machine, of a group, or of
    a link.
    """
    if len(raw) == 4:
        return 0 < raw[0] < 224 and raw[0] != 127
    return any(raw[:-1]) and raw[0] != 0xFF and not within(raw, b"\xfe\x80" + bytes(14), 10)


def is_far(raw: bytes) -> bool:
    """Whether that address (4 or 16 bytes) is one of the internet, not of this machine or of a network near."""
    raw = unmapped(raw)
    if len(raw) != 4:
        if raw.startswith(_NAT64):
            return is_far(raw[-4:])
        if not within(raw, *_GLOBAL):
            return False
    return not any(len(first) == len(raw) and within(raw, first, bits) for first, bits in _SPECIAL)


def within(raw: bytes, first: bytes, bits: int) -> bool:
    """Whether an address of the same family begins with the first `bits` bits of `first`."""
    rest = 8 * len(first) - bits
    return int.from_bytes(raw[: len(first)], "big") >> rest == int.from_bytes(first, "big") >> rest


def host_name(text: bytes) -> bytes:
    """A host's name in small letters, without the dot at its end; b"" for what can be none.

    A last label of digits, or of 0x and more, makes it an address to most programs: such a name is none.
    """
    name = text.lower().removesuffix(b".")
    labels = name.split(b".")
    last = labels[-1]
    if not 0 < len(name) <= _NAME or last.isdigit() or last.startswith(b"0x"):
        return b""
    if all(0 < len(label) <= _LABEL and _HOST.issuperset(label) for label in labels):
        return name
    return b""
