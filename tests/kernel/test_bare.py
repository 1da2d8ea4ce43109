"""Descriptors over a socket of the C half."""

from __future__ import annotations

import os

import pytest

from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, socket


@pytest.fixture
def pair():
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_descriptors_arrive_in_their_order_and_close_on_exec(pair, count):
    ours, theirs = pair
    assert not os.get_inheritable(ours.fileno())
    sent = [os.open(path, os.O_PATH) for path in ("/", "/dev", "/dev/null")[:count]]
    send_descriptors(ours, b"text", sent)
    data, received, flags = receive_descriptors(theirs, 64, 3)
    try:
        assert data == b"text" and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        assert [os.fstat(one).st_ino for one in received] == [os.fstat(one).st_ino for one in sent]
        assert not set(received) & set(sent)
        assert not any(os.get_inheritable(one) for one in received)
    finally:
        for descriptor in (*sent, *received):
            os.close(descriptor)


def test_at_most_as_many_arrive_as_there_is_room_for(pair):
    ours, theirs = pair
    send_descriptors(ours, b"text", [0] * 40)
    before = len(os.listdir("/proc/self/fd"))
    _, received, flags = receive_descriptors(theirs, 64, 2)
    assert len(os.listdir("/proc/self/fd")) == before + len(received)
    for descriptor in received:
        os.close(descriptor)
    assert len(received) == 2 and flags & socket.MSG_CTRUNC


def test_the_other_end_is_gone(pair):
    ours, theirs = pair
    ours.close()
    assert receive_descriptors(theirs, 64, 2)[:2] == (b"", [])
    with pytest.raises(BrokenPipeError):
        send_descriptors(theirs, b"text", [0])
