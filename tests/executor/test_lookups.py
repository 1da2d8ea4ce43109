"""Looking hosts up: not twice at once, anew after a while, and a failure is told like an answer."""

from __future__ import annotations

import socket
import threading

import pytest

from pincer_trace.executor import lookups
from pincer_trace.executor.lookups import Lookups


class Names:
    """In the place of the machine's resolver: answers when it is told to, and counts."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers: dict[bytes, object] = {}
        self.go = threading.Event()

    def __call__(self, name: bytes) -> tuple[bytes, ...]:
        self.asked.append(name)
        assert self.go.wait(20)
        found = self.answers[name]
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[return-value]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(lookups, "look_up", names)
    return names


def test_one_is_looked_up_once_at_a_time_and_anew_later(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: threading.Semaphore = threading.Semaphore(0)
    table = Lookups(woken.release)
    names.answers = {
        b"a.b": (b"\1\2\3\4",),
        b"none": socket.gaierror(-2, "Name or service not known"),
        b"odd": ValueError(),
    }
    assert [table.of(name) for name in (b"a.b", b"a.b", b"none", b"odd")] == [None] * 4
    names.go.set()
    for _ in range(3):
        assert woken.acquire(timeout=20)
    assert sorted(names.asked) == [b"a.b", b"none", b"odd"]
    found = {name: table.of(name) for name in (b"a.b", b"none", b"odd")}
    assert found[b"a.b"].addresses == (b"\1\2\3\4",) and not found[b"a.b"].missing
    assert found[b"none"].missing == "Name or service not known" and not found[b"none"].addresses
    assert "ValueError" in found[b"odd"].missing
    names.answers[b"a.b"] = (b"\5\6\7\x08",)
    monkeypatch.setattr(lookups, "monotonic", lambda: found[b"a.b"].until)  # its time is over
    assert table.of(b"a.b") is None and woken.acquire(timeout=20)
    assert names.asked.count(b"a.b") == 2


def test_many_names_and_few_threads(names: Names) -> None:
    woken: threading.Semaphore = threading.Semaphore(0)
    table = Lookups(woken.release)
    wanted = [b"n%d" % number for number in range(100)]
    names.answers = dict.fromkeys(wanted, (b"\x01\x01\x01\x01",))
    before = threading.active_count()
    assert [table.of(name) for name in wanted] == [None] * 100
    assert threading.active_count() - before <= 8
    names.go.set()
    for _ in wanted:
        assert woken.acquire(timeout=20)
    assert all(table.of(name) is not None for name in wanted)


def test_the_real_resolver() -> None:
    assert b"\x7f\0\0\1" in lookups.look_up(b"localhost")
    with pytest.raises(OSError):
        lookups.look_up(b"no.such.name.invalid")
