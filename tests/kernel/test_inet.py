"""Addresses and names in one spelling, and which addresses are of the public internet."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pincer_trace.kernel import inet

DOCUMENTATION = [
    ipaddress.ip_network(network)
    for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
]
NEAR = [
    f"{a}.{b}.0.1" for a, b in ((10, 0), (100, 64), (127, 0), (169, 254), (172, 16), (192, 168), (198, 18), (255, 255))
]


@pytest.mark.parametrize(
    ("written", "far"),
    [
        *(
            (address, False)
            for address in (*NEAR, "0.0.0.0", "224.0.0.1", "::", "::1", "fe80::1", "fc00::1", "ff02::1")
        ),
        *((address, False) for address in ("2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001::1")),
        *(
            (address, True)
            for address in (
                "8.8.8.8",
                "203.0.113.80",
                "2001:db8::1",
                "100.128.0.1",
                "172.32.0.1",
                "2606:2800::1",
                "64:ff9b::808:808",
            )
        ),
    ],
)
def test_what_is_near(written: str, far: bool) -> None:
    family = socket.AF_INET6 if ":" in written else socket.AF_INET
    raw = socket.inet_pton(family, written)
    assert inet.is_far(raw) is far
    if family == socket.AF_INET:
        assert inet.is_far(inet.MAPPED + raw) is far


@given(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)))
@example(socket.inet_aton("192.0.2.1"))
def test_nothing_is_far_that_the_registry_says_is_not(raw: bytes) -> None:
    """Against the standard library's reading of the registries, which translates no NAT64."""
    address = ipaddress.ip_address(raw)
    if inet.is_far(raw) and not raw.startswith(b"\0d\xff\x9b"):
        documentation = any(address in network for network in DOCUMENTATION if network.version == address.version)
        assert documentation or (address.is_global and not address.is_multicast and not address.is_reserved)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"Example.COM.", b"example.com"),
        (b"a_b.c-d", b"a_b.c-d"),
        (b"xn--bcher-kva.de", b"xn--bcher-kva.de"),
        (b"x" * 63 + b".y", b"x" * 63 + b".y"),
        *(
            (bad, b"")
            for bad in (b"", b".", b"a..b", b".a", b"a..", b"x" * 64, b"a." * 127 + b"a", b"a b", b"a/b", b"a:1")
        ),
        *(
            (bad, b"")
            for bad in (b"b\xc3\xbccher.de", b"a\0b", b"1.2.3.4", b"10.evil.7", b"127", b"0x7f", b"a.0X1", b"*.a")
        ),
    ],
)
def test_names_of_hosts(text: bytes, name: bytes) -> None:
    assert inet.host_name(text) == name
    assert inet.host_name(name) == name


@given(st.text("abcx0123456789.-", max_size=20))
def test_no_name_is_an_address(text: str) -> None:
    """What inet_aton(3) takes for one in any of its spellings is no name."""
    try:
        socket.inet_aton(text)
    except OSError:
        return
    assert not inet.host_name(text.encode())
