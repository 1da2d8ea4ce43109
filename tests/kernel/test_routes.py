"""Whose an address is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from pincer_trace.kernel import routes


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("127.9.9.9", True), ("192.0.2.250", False), ("203.0.113.9", False)]
)
def test_the_kernel_tells_whether_it_is_this_machine_s(host: str, own: bool) -> None:
    assert (routes.way_to(socket.inet_aton(host)) == routes.OWN) is own


def test_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6):
        assert routes.way_to(socket.inet_pton(socket.AF_INET6, "::1")) == routes.OWN
    assert routes.way_to(socket.inet_pton(socket.AF_INET6, "2001:db8:9::9")) == routes.BEYOND


ROUTES = """
ip link add link0 type veth peer name link1; ip link set link0 up; ip link set link1 up; ip link set lo up
ip addr add 203.0.113.1/24 dev link0; ip -6 addr add 2001:db8:1::1/64 dev link0 nodad
ip route add default via 203.0.113.254; ip -6 route add default via 2001:db8:1::9
ip route add 198.51.100.0/24 via 203.0.113.9; ip route add blackhole 192.0.2.0/24
ip route add 198.18.0.0/15 nexthop via 203.0.113.7 nexthop via 203.0.113.8
ip -6 route add 2001:db8:3::/64 dev link0
if ip tuntap add tun0 mode tun 2>&-; then ip link set tun0 up; ip -6 route add 2001:db8:2::/48 dev tun0; fi
"""
WAYS = {
    "203.0.113.1": routes.OWN, "203.0.113.77": routes.LINK, "8.8.8.8": routes.BEYOND, "198.51.100.7": routes.BEYOND,
    "198.18.0.1": routes.BEYOND, "192.0.2.1": routes.BEYOND, "2001:db8:1::1": routes.OWN, "2001:db8:1::7": routes.LINK,
    "2001:db8:3::7": routes.LINK, "2001:db8:9::9": routes.BEYOND,
}  # fmt: skip
LOOK = (
    "import socket; from pincer_trace.kernel import inet, routes\n"
    "for each in {!r}: print(each, routes.way_to(inet.read(each)), sep='=')\n"
    "try: socket.if_nametoindex('tun0')\nexcept OSError: print('no tunnel')\n"
    "else: print(routes.way_to(inet.read('2001:db8:2::1')))"
)


def test_neighbours_are_on_the_link_and_others_beyond() -> None:
    """By prefixes, gateways, several of them, tunnels and the default route, in a network of its own."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network namespace of its own needs root, and the Debian package iproute2")
    code = LOOK.format(list(WAYS))
    told = subprocess.run(
        ["unshare", "-n", "sh", "-ec", f'{ROUTES}exec "$0" -c "$1"', sys.executable, code],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert dict(line.split("=") for line in told[:-1]) == WAYS
    assert told[-1] in ("no tunnel", routes.BEYOND)
