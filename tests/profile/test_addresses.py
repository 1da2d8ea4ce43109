"""Addresses in rules and options, against the standard library's own networks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.errors import UserError
from pincer_trace.gateway import peers
from pincer_trace.kernel import inet
from pincer_trace.profile import ALLOW, DENY, Facts, Overlay, addresses, load
from pincer_trace.profile.globs import GlobError, components, matches

V4, V6 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address), st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)


def holds(written: bytes, peer: bytes) -> bool:
    return any(matches(components(pattern), peer) for pattern in addresses.patterns(written))


@pytest.mark.parametrize(("bits", "addresses_of"), [(32, V4), (128, V6)])
@given(data=st.data())
def test_a_prefix_holds_exactly_its_addresses(data, bits: int, addresses_of) -> None:
    inside, length = data.draw(addresses_of), data.draw(st.integers(0, bits))
    kind = type(inside)
    network = ipaddress.ip_network(f"{kind(int(inside) >> bits - length << bits - length)}/{length}")
    if network.network_address in MAPPED:
        return  # an address of IPv4
    written = data.draw(st.sampled_from(FORMS[bits])).format(network.network_address, length).encode()
    edges = {int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1, int(inside)}
    for number in {*edges, int(data.draw(addresses_of))}:
        if 0 <= number < 2**bits:
            peer = peers.host_peer(inet.unmapped(kind(number).packed), 443)
            assert holds(written, peer) == (kind(number) in network and kind(number) not in MAPPED), (written, peer)
            assert not holds(written, peer.replace(b":443", b":444"))
    assert not holds(written, b"//::1:443" if bits == 32 else b"//127.0.0.1:443")
    assert not holds(written, b"//a.name:443")


FORMS = {32: ["{}/{}:443"], 128: ["{}/{}:443", "[{}/{}]:443"]}
MAPPED = ipaddress.ip_network("::ffff:0:0/96")


def test_a_prefix_holds_addresses_of_links() -> None:
    """Which have the number of their link behind them."""
    for peer in (b"//fe80::1%2:80", b"//fe80::1:80", b"//febf::%17:80"):
        assert holds(b"fe80::/10:80", peer)
    assert not holds(b"fe80::/10:80", b"//fec0::%2:80")


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        (b"[::1]:80", b"//::1:80"),
        (b"::1:80", b"//::1:80"),
        (b"2001:DB8::0:1:80", b"//2001:db8::1:80"),
        (b"[::ffff:10.0.0.1]:80", b"//10.0.0.1:80"),
        (b"10.0.0.1:*", b"//10.0.0.1:*"),
        (b"*.example.com:443", b"//*.example.com:443"),
        (b"*.Example.COM.:443", b"//*.example.com:443"),
        ("*.b\u00fccher.de:443".encode(), b"//*.xn--bcher-kva.de:443"),
        (b"*:443", b"//*:443"),
        (b"**", b"//**"),
        (b"10.0.0.0/8:443", b"//10.0.0.0/8:443"),
        (b"2001:DB8:0::/48:*", b"//2001:db8::/48:*"),
        (b"[2001:db8::]:1", b"//2001:db8:::1"),
        (b"[2001:db8::/32]:443", b"//2001:db8::/32:443"),
        (b"::/0:80", b"//::/0:80"),
    ],
)
def test_one_spelling(written: bytes, pattern: bytes) -> None:
    assert addresses.patterns(written) == [pattern]


@pytest.mark.parametrize(
    "written",
    [b"10.0.0.1/8:80", b"10.0.0.0/33:80", b"10.0.0.0/:80", b"::1/64:80", b"::/129:80", b"::ffff:10.0.0.0/104:80",
     b"x/8:80", b"10.0.0.0/-1:80", b"/8:1", b"10.0.0.0/8", b"[2001:db8::/32]", b"2001:db8::/32", b"[::1]"],
)  # fmt: skip
def test_a_prefix_that_is_none(written: bytes) -> None:
    with pytest.raises(GlobError):
        addresses.patterns(written)


RULE = '[[rule]]\neffects = ["connect"]\npaths = [{}]\nverdict = "allow"\nreason = "r"\n'


def test_a_profile_and_an_option_take_them(places, write) -> None:
    path = write(RULE.format('"//{10.0.0.0/9,192.0.2.1,2001:db8::/33}:443", "//[::1]:*"'))
    for peer, verdict, options in (
        (b"//10.127.255.255:443", ALLOW, []),
        (b"//10.128.0.0:443", DENY, []),
        (b"//192.0.2.1:443", ALLOW, []),
        (b"//::1:9", ALLOW, []),
        (b"//10.128.0.0:443", ALLOW, ["10.0.0.0/8:443"]),
        (b"//::2:9", ALLOW, ["[0:0::2]:9"]),
        (b"//2001:db8:7fff::1:443", ALLOW, []),
        (b"//2001:db8:8000::1:443", DENY, []),
        (b"//2001:db8:8000::1:443", ALLOW, ["2001:db8::/32:443,[::]/3:*"]),
        (b"//1fff::1:9", ALLOW, ["[::/3]:*"]),
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
    "value",
    [
        "10.0.0.1",
        "10.0.0.0/8",
        "::1/64:80",
        "a/b:1",
        "a b:1",
        "x..y:1",
        ":1",
        "x:y",
        "x:99999",
        "a:1,",
        "a:1,b",
        "//a:1",
    ],
)
def test_an_option_that_could_match_nothing_is_refused(places, value: str) -> None:
    with pytest.raises(UserError, match="--allow-net"):
        load("default", places, overlay=Overlay(allow_net=[value]))


@pytest.mark.parametrize(
    "written", ["10.0.0.0/8", "10.0.0.0/16", "0.0.0.0/0", "10.*", "10.0.*", "10.0.0.*", "10.0.0.?", "1*"]
)
def test_a_pattern_of_addresses_matches_no_name(written: str) -> None:
    """The last label of a name is no number."""
    wanted = f"{written}:443".encode()
    for name in (
        b"10.evil.com",
        b"10.0.evil.com",
        b"10.0.0.evil.com",
        b"10.0.0.0.example",
        b"10.com",
        b"10.0.0.x",
        b"1and1.com",
    ):
        assert not holds(wanted, b"//%b:443" % name), name
    inside = b"//1.2.3.4:443" if written == "1*" else b"//10.0.0.7:443"
    assert holds(wanted, inside) and not holds(wanted, b"//11.0.0.7:44")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST."])
def test_localhost_is_this_machine(name: str) -> None:
    for peer in (b"//127.0.0.1:80", b"//::1:80", b"//localhost:80"):
        assert holds(f"{name}:80".encode(), peer)
    assert not holds(f"{name}:80".encode(), b"//127.0.0.2:80")


def test_names_and_several_at_once(places) -> None:
    """`--allow-net` takes names, wildcards, and several with commas; each in any spelling."""
    options = ["API.example.com.:443,*.npmjs.org:443", "{a,b}.test:*", "B\u00fccher.de:1"]
    profile = load("default", places, overlay=Overlay(allow_net=options))
    for peer, source in (
        (b"//api.example.com:443", True), (b"//registry.npmjs.org:443", True), (b"//a.test:9", True),
        (b"//b.test:9", True),
        (b"//xn--bcher-kva.de:1", True), (b"//example.com:443", False), (b"//npmjs.org:443", False),
        (b"//evil-npmjs.org:443", False), (b"//api.example.com:80", False), (b"//x.npmjs.org.evil.com:443", False),
    ):  # fmt: skip
        decision = profile.judge("connect", peer, Facts())
        assert (decision.rule is not None and decision.rule.source == "--allow-net") is source, peer
