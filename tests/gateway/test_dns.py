"""The resolver's answers: any bytes, every kind of question, and the table of names behind them (P83)."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.gateway import dns, hosts
from pincer_trace.gateway.hosts import Hosts
from pincer_trace.kernel import inet

A, NS, PTR, TXT, AAAA, SRV, OPT, HTTPS, ANY = 1, 2, 12, 16, 28, 33, 41, 65, 255
OK, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP = range(5)


def wire(name: str) -> bytes:
    return b"".join(b"%c%b" % (len(label), label) for label in name.encode().split(b".") if label) + b"\0"


def ask(
    name: str | bytes,
    kind: int = A,
    *,
    number: int = 7,
    flags: int = 0x0100,
    counts=(1, 0, 0, 0),
    group: int = 1,
    rest=b"",
):
    raw = name if isinstance(name, bytes) else wire(name)
    return struct.pack(">6H", number, flags, *counts) + raw + struct.pack(">2H", kind, group) + rest


class Reply:
    """An answer, read by other code than wrote it."""

    def __init__(self, data: bytes, question: bytes) -> None:
        self.number, self.flags, questions, self.count, *rest = struct.unpack_from(">6H", data)
        assert self.flags & 0x8000 and rest == [0, 0]
        self.code = self.flags & 15
        self.records: list[tuple[int, bytes]] = []
        at = 12
        if questions:
            size = question.index(b"\0", 12) + 5 - 12
            assert data[at : at + size] == question[at : at + size]  # letters in their size, as libraries compare them
            at += size
        for _ in range(self.count):
            pointer, kind, group, _, size = struct.unpack_from(">HHHIH", data, at)
            assert (pointer, group) == (0xC00C, 1)
            self.records.append((kind, data[at + 12 : at + 12 + size]))
            at += 12 + size
        assert at == len(data)


def reply(question: bytes, table: Hosts) -> Reply:
    return Reply(dns.answer(question, table), question)


@pytest.mark.parametrize(
    ("name", "kind", "code", "kinds"),
    [
        ("api.Example.com", A, OK, [A]),
        ("api.example.com", AAAA, OK, [AAAA]),
        ("api.example.com", ANY, OK, [A, AAAA]),
        *(("api.example.com", kind, OK, []) for kind in (NS, TXT, SRV, HTTPS, OPT)),
        ("build", A, OK, [A]),
        ("_srv._tcp.example.com", SRV, OK, []),
        *(
            (bad, A, NXDOMAIN, [])
            for bad in ("", "1.2.3.4", "a b.c", "x.0x7f", "b\u00fccher.de", "a*b", "a." * 125 + "a.7")
        ),
        ("1.0.0.10.in-addr.arpa", PTR, NXDOMAIN, []),
        ("1.0.ip6.arpa", PTR, NXDOMAIN, []),
        ("16.0.224.127.in-addr.arpa", A, NXDOMAIN, []),
        ("999.0.224.127.in-addr.arpa", PTR, NXDOMAIN, []),
    ],
)
def test_every_kind_of_question(name: str, kind: int, code: int, kinds: list[int]) -> None:
    told = reply(ask(name, kind), Hosts())
    assert (told.number, told.code, [each for each, _ in told.records]) == (7, code, kinds)


def test_an_address_means_its_name_and_back() -> None:
    table = Hosts()
    [(_, four)] = reply(ask("api.example.com"), table).records
    [(_, six)] = reply(ask("API.example.COM", AAAA), table).records
    assert table.name(four) == table.name(six) == b"api.example.com"
    assert hosts.is_ours(four) and hosts.is_ours(six) and not inet.is_far(four) and not inet.is_far(six)
    back = ".".join(map(str, reversed(four))) + ".in-addr.arpa"
    assert reply(ask(back, PTR), table).records == [(PTR, wire("api.example.com"))]
    [(_, other)] = reply(ask("other.example.com"), table).records
    assert other != four and table.name(other) == b"other.example.com"
    for name, kind, raw in (("localhost", A, "127.0.0.1"), ("a.localhost", A, "127.0.0.1"), ("localhost", AAAA, "::1")):
        family = socket.AF_INET if kind == A else socket.AF_INET6
        assert reply(ask(name, kind), table).records == [(kind, socket.inet_pton(family, raw))]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (ask("a.b", counts=(0, 0, 0, 0)), FORMERR),
        (ask("a.b", counts=(2, 0, 0, 0)), FORMERR),
        (ask("a.b", counts=(1, 1, 0, 0)), FORMERR),
        (ask(b"\xc0\x0c"), FORMERR),  # a name that points to itself
        (ask(b"\1a\xc0\x0e"), FORMERR),
        (ask(b"\x40" + b"a" * 64 + b"\0"), FORMERR),
        (ask(b"\x3fa"), FORMERR),
        (ask((b"\x3f" + b"a" * 63) * 5 + b"\0"), FORMERR),
        (ask("a.b")[:-1], FORMERR),
        (ask("a.b", rest=bytes(5000)), FORMERR),
        (ask("a.b", flags=0x2900), NOTIMP),
        (ask(b"\3a.b\0"), NXDOMAIN),  # a dot inside of a label
        (ask("a.b", group=3), NXDOMAIN),  # CHAOS
        (ask("a.b", counts=(1, 0, 0, 1), rest=b"\0\0\x29\4\xd0\0\0\0\0\0\0"), OK),  # EDNS
    ],
)
def test_what_is_no_question_of_ours(question: bytes, code: int) -> None:
    told = dns.answer(question, Hosts())
    assert told[:2] == question[:2] and told[3] & 15 == code


@given(st.binary(max_size=600))
def test_any_bytes_are_answered_shortly_or_not_at_all(data: bytes) -> None:
    for question in (data, ask(data), ask("a.b")[:12] + data):
        told = dns.answer(question, Hosts())
        assert len(told) <= len(question) + 2 * 28
        assert not told or (told[:2] == question[:2] and told[2] & 0x80)
    assert dns.answer(b"\0\0\x80\0" + bytes(8), Hosts()) == b""  # an answer is not answered


@given(st.lists(st.text("ab.-_", min_size=1, max_size=6)))
def test_names_keep_their_addresses(names: list[str]) -> None:
    table = Hosts()
    given_out: dict[bytes, bytes] = {}
    for text in names:
        if name := inet.host_name(text.encode()):
            address = table.address(name, socket.AF_INET)
            assert given_out.setdefault(name, address) == address
    assert len(set(given_out.values())) == len(given_out)
    assert all(table.name(address) == name for name, address in given_out.items())


def test_a_full_table_says_so_and_forgets_nothing() -> None:
    table = Hosts(limit=3)
    first = [reply(ask(f"n{number}.x"), table).records for number in range(3)]
    assert reply(ask("n3.x"), table).code == reply(ask("n3.x", AAAA), table).code == SERVFAIL
    assert [reply(ask(f"n{number}.x"), table).records for number in range(3)] == first
    assert reply(ask("localhost"), table).code == OK
    for unknown in (hosts.stub_address(), bytes(4), b"\x7f\xe0\xff\xff", b"\x7f\0\0\1", bytes(16)):
        assert table.name(unknown) == b""


def test_numbers_are_given_out_once() -> None:
    table = Hosts()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: table.address(b"n%d" % (number % 500), socket.AF_INET), range(4000)))
    assert len(set(found)) == 500
    assert all(table.name(address) == b"n%d" % (number % 500) for number, address in enumerate(found))


def test_the_networks_hold_the_whole_table() -> None:
    """And nothing else: their neighbours are hosts like others."""
    table = Hosts(limit=0)
    assert hosts.LIMIT + 16 < 1 << 20
    for address, ours in {
        "127.224.0.0": True,
        "127.239.255.255": True,
        "127.223.255.255": False,
        "127.240.0.0": False,
    }.items():
        assert hosts.is_ours(socket.inet_aton(address)) is ours
    assert not hosts.is_ours(socket.inet_pton(socket.AF_INET6, "fd70:696e:6365:7201::1")) and not table.name(
        b"\x7f\xe0\0\x10"
    )
    assert hosts.is_stub(hosts.stub_address(), 53) and not hosts.is_stub(hosts.stub_address(), 54)
