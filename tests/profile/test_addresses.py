"""Addresses in rules and options, against the standard library's own networks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.errors import UserError
from pincer_trace.profile import ALLOW, DENY, Facts, Overlay, addresses, load
from pincer_trace.profile.globs import GlobError, components, matches

V4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)


def holds(written: bytes, peer: bytes) -> bool:
    return any(matches(components(pattern), peer) for pattern in addresses.patterns(written))


@given(st.data(), st.integers(0, 32), V4)
def test_a_prefix_holds_exactly_its_addresses(data, bits: int, inside) -> None:
    network = ipaddress.IPv4Network((int(inside) >> 32 - bits << 32 - bits, bits))
    written = f"{network.network_address}/{bits}:443".encode()
    edges = {int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1, int(inside)}
    for number in {*edges, int(data.draw(V4))}:
        if 0 <= number < 2**32:
            address = ipaddress.IPv4Address(number)
            assert holds(written, f"//{address}:443".encode()) == (address in network), (written, address)
            assert not holds(written, f"//{address}:444".encode())
    assert not holds(written, b"//::1:443")


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        (b"[::1]:80", b"//::1:80"),
        (b"::1:80", b"//::1:80"),
        (b"2001:DB8::0:1:80", b"//2001:db8::1:80"),
        (b"[::ffff:10.0.0.1]:80", b"//10.0.0.1:80"),
        (b"10.0.0.1:*", b"//10.0.0.1:*"),
        (b"*.example.com:443", b"//*.example.com:443"),
        (b"10.0.*:80", b"//10.0.*:80"),
        (b"**", b"//**"),
    ],
)
def test_one_spelling(written: bytes, pattern: bytes) -> None:
    assert addresses.patterns(written) == [pattern]


@pytest.mark.parametrize(
    "written", [b"10.0.0.1/8:80", b"10.0.0.0/33:80", b"10.0.0.0/:80", b"::/0:80", b"x/8:80", b"10.0.0.0/-1:80", b"/8:1"]
)
def test_a_prefix_that_is_none(written: bytes) -> None:
    with pytest.raises(GlobError):
        addresses.patterns(written)


RULE = '[[rule]]\neffects = ["connect"]\npaths = [{}]\nverdict = "allow"\nreason = "r"\n'


def test_a_profile_and_an_option_take_them(places, write) -> None:
    path = write(RULE.format('"//{10.0.0.0/9,192.0.2.1}:443", "//[::1]:*"'))
    for peer, verdict, options in (
        (b"//10.127.255.255:443", ALLOW, []),
        (b"//10.128.0.0:443", DENY, []),
        (b"//192.0.2.1:443", ALLOW, []),
        (b"//::1:9", ALLOW, []),
        (b"//10.128.0.0:443", ALLOW, ["10.0.0.0/8:443"]),
        (b"//::2:9", ALLOW, ["[0:0::2]:9"]),
        (b"//8.8.8.8:53", ALLOW, ["*:53"]),
        (b"/a/path", DENY, ["*:*"]),
    ):
        assert load(path, places, overlay=Overlay(allow_net=options)).judge("connect", peer, Facts()).verdict == verdict
    with pytest.raises(UserError, match="bits of the address"):
        load(
            write(RULE.format('"//10.0.0.1/8:1"'), "q.toml"),
            places,
        )


@pytest.mark.parametrize(
    "value", ["example.com:443", "*.x.com:*", "localhost:80", "10.0.0.1", "10.0.0.0/8", "::1/64:80", "a/b:1"]
)
def test_an_option_that_could_match_nothing_is_refused(places, value: str) -> None:
    with pytest.raises(UserError, match="--allow-net"):
        load("default", places, overlay=Overlay(allow_net=[value]))
