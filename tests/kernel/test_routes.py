"""Whose an address is."""

from __future__ import annotations

import socket

import pytest

from pincer_trace.kernel import routes


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("127.9.9.9", True), ("192.0.2.250", False), ("203.0.113.9", False)]
)
def test_the_kernel_tells_whether_it_is_this_machine_s(host: str, own: bool) -> None:
    assert routes.is_own(socket.inet_aton(host)) is own


def test_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6):
        assert routes.is_own(socket.inet_pton(socket.AF_INET6, "::1"))
    assert not routes.is_own(socket.inet_pton(socket.AF_INET6, "2001:db8:9::9"))
