"""/etc/hosts with names in the place of addresses."""

from __future__ import annotations

import socket

from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.gateway import hostsfile
from pincer_trace.gateway.hosts import Hosts
from pincer_trace.kernel import inet

NAMES = st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3})?", fullmatch=True)
ADDRESSES = st.one_of(st.ip_addresses().map(str), st.sampled_from(["10.0.0.1", "127.0.0.1", "fd00::1", "bad"]))
LINES = st.lists(st.tuples(ADDRESSES, st.lists(NAMES, max_size=3)), max_size=6)


def only_far(host: bytes) -> bool:
    return not inet.is_unicast(host)


@given(LINES)
def test_each_name_leads_where_the_file_says(lines: list[tuple[str, list[str]]]) -> None:
    """By the table of the session, name for name, in their order; and no address of another machine is left."""
    content = "".join(f"{address}\t{' '.join(names)}  # said\n" for address, names in lines).encode()
    hosts = Hosts()
    shown, listed = hostsfile.named(content, hosts, only_far)
    wanted: dict[bytes, list[bytes]] = {}
    stays = []
    for address, names in lines:
        raw = inet.unmapped(inet.read(address))
        if not raw or only_far(raw):
            stays.append(address)
        elif names:
            for name in names:
                places = wanted.setdefault(name.encode(), [])
                if raw not in places:
                    places.append(raw)
    wanted.pop(b"localhost", None)
    assert {name: list(places) for name, places in listed.items()} == wanted
    for line in shown.split(b"\n"):
        words = hostsfile.words_of(line)
        if words and words[0].decode() not in stays:
            assert hosts.name(inet.read(words[0].decode())) == words[1] and len(words) == 2


def test_what_stays_as_it_is() -> None:
    """Comments, what is no address or no name, and lines of which that was said."""
    content = b"# 10.0.0.1 a\n\n10.0.0.1\n10.0.0.2 1.2.3.4 x..y ok # c\nfe80::1%eth0 link\n127.0.0.1 localhost l\n"
    shown, listed = hostsfile.named(content, Hosts(), only_far)
    assert shown == (
        b"# 10.0.0.1 a\n\n10.0.0.2 1.2.3.4\n10.0.0.2 x..y\n127.224.0.16 ok\nfe80::1%eth0 link\n127.0.0.1 localhost l\n"
    )
    assert listed == {b"ok": (socket.inet_aton("10.0.0.2"),)}
    assert hostsfile.names_by_address(content) == {
        socket.inet_aton("10.0.0.2"): (b"ok",),
        socket.inet_aton("127.0.0.1"): (b"l",),
    }


def test_a_list_of_a_hundred_thousand_names_takes_few_of_them() -> None:
    content = b"".join(b"10.0.%d.%d n%d\n" % (number >> 8 & 255, number & 255, number) for number in range(100_000))
    shown, listed = hostsfile.named(content, Hosts(), only_far)
    assert len(listed) == 4096 and shown.count(b"\n127.224.") == 4095 and shown.endswith(b"10.0.134.159 n99999\n")
