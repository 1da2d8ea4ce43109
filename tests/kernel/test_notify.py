"""The notification protocol on the real kernel: P4, P9, P95 and P96. A forked child under a real filter is the worker.

Only the packing of answers (P9) is looked at through a replaced ioctl, since it must hold for every value.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel.trapped import exit_when, limit, trapped_call, worker

from pincer_trace.kernel import notify

_RESPONSE = struct.Struct("=QqiI")


def test_p04_a_task_killed_while_queued_does_not_end_the_loop() -> None:
    """Poll says that a notification is there, its task dies, another task's comes: RECV gives that one."""

    def two() -> int:
        go, done = os.pipe()
        victim = os.fork()
        if victim == 0:
            trapped_call(1)
            os._exit(7)
        os.write(report[1], b"%d\n" % victim)
        os.close(done)
        os.waitpid(victim, 0)
        os.close(go)
        return exit_when(trapped_call(2) == 42)

    report = os.pipe()
    with worker(two) as one, limit(10):
        victim = int(os.read(report[0], 16))
        assert one.listener.wait(5000)  # the victim's call is queued
        pidfd = os.pidfd_open(victim)
        os.kill(victim, signal.SIGKILL)
        assert select.select([pidfd], [], [], 5)[0]  # it has left the queue
        os.close(pidfd)
        received = one.listener.receive()
        assert received is not None
        assert received[6] == 2, "the notification of the killed task was given"
        assert one.listener.respond(received[0], 42)
        assert one.status() == 0
        assert one.listener.receive() is None
    for descriptor in report:
        os.close(descriptor)


def test_p04_answering_a_killed_task_is_no_error() -> None:
    with worker(lambda: trapped_call(1)) as one, limit(10):
        received = one.listener.receive()
        assert received is not None
        assert one.listener.valid(received[0])
        one.kill()
        assert one.status() == -signal.SIGKILL
        assert not one.listener.valid(received[0])
        assert one.listener.respond(received[0], 0) is False
        null = os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(notify.Gone):
            one.listener.inject(received[0], null, 0)
        os.close(null)
        assert one.listener.receive() is None


def test_p04_many_killed_between_poll_and_receive() -> None:
    """200 tasks, half of them killed while queued; every survivor is answered, once."""
    count = 200

    def storm() -> int:
        children = []
        for index in range(count):
            child = os.fork()
            if child == 0:
                os._exit(exit_when(trapped_call(index) == index + 1))
            children.append(child)
            if index % 2 == 0:
                os.kill(child, signal.SIGKILL)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        return exit_when(all(status == 0 for status in statuses[1::2]))

    with worker(storm) as one, limit(30):
        answered = []
        while (received := one.listener.receive()) is not None:
            if one.listener.respond(received[0], received[6] + 1):
                answered.append(received[6])
        assert one.status() == 0
        assert set(range(1, count, 2)) <= set(answered)
        assert len(answered) == len(set(answered))


def test_p95_the_end_is_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last task RECV returns ENOENT at once, for ever: receive must end, not spin."""
    calls = []
    real = fcntl.ioctl

    def counting(descriptor: int, request: int, *rest: object) -> object:
        calls.append(request)
        if len(calls) > 1000:
            raise AssertionError("receive spins on a listener without tasks")
        return real(descriptor, request, *rest)  # type: ignore[call-overload]

    with worker(lambda: 0) as one, limit(10):
        assert one.status() == 0
        monkeypatch.setattr(fcntl, "ioctl", counting)
        assert one.listener.receive() is None
        assert one.listener.receive() is None
        assert calls.count(notify.IOCTL_RECV) <= 4


def test_p95_the_end_comes_while_receiving() -> None:
    """The last task ends while another thread sleeps in RECV."""
    with worker(lambda: int(os.read(gate[0], 1) == b"x")) if (gate := os.pipe()) else contextlib.nullcontext() as one:
        result: list[object] = []
        thread = threading.Thread(target=lambda: result.append(one.listener.receive()), daemon=True)
        thread.start()
        os.write(gate[1], b"x")
        one.status()
        # Kernels before 6.11 leave RECV asleep: the engine's reaper sends a signal then, and so do we.
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)
        thread.join(2)
        if thread.is_alive():
            signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
        thread.join(5)
        signal.signal(signal.SIGUSR1, before)
        assert result == [None]
        for descriptor in gate:
            os.close(descriptor)


def test_p96_the_number_of_an_injected_descriptor_is_not_lost() -> None:
    """ADDFD without SEND gives the number in the worker's table; with an immutable buffer Python drops it."""

    def check() -> int:
        number = trapped_call(5)
        return exit_when(number >= 40 and os.fstat(number).st_rdev == os.makedev(1, 3) and os.get_inheritable(number))

    def act() -> int:
        null = os.open(os.devnull, os.O_RDONLY)
        for number in range(3, 40):  # so that the right number is none that could come by chance
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue
            os.dup2(null, number)
        return check()

    with worker(act) as one, limit(10):
        received = one.listener.receive()
        assert received is not None
        null = os.open(os.devnull, os.O_RDONLY)
        number = one.listener.inject(received[0], null, 0)
        os.close(null)
        assert number >= 40
        one.listener.respond(received[0], number)
        assert one.status() == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOENT, errno.EMFILE, errno.ENOSYS, 4095])
def test_p09_a_denial_reaches_the_worker_as_it_was_meant(number: int) -> None:
    with worker(lambda: exit_when(trapped_call(1) == -number)) as one, limit(10):
        received = one.listener.receive()
        assert received is not None
        assert one.listener.respond(received[0], error=number)
        assert one.status() == 0


class _Captured(Exception):
    pass


def packed(monkey: pytest.MonkeyPatch, *arguments: object, **words: object) -> tuple[int, int, int, int]:
    """(id, val, error, flags) of the response that `respond` would send; no kernel involved."""
    sent = []
    listener = object.__new__(notify.Listener)
    listener.descriptor = -1
    with monkey.context() as patch:
        patch.setattr(fcntl, "ioctl", lambda _fd, request, data: sent.append((request, bytes(data))))
        assert listener.respond(*arguments, **words)  # type: ignore[arg-type]
    ((request, raw),) = sent
    assert request == notify.IOCTL_SEND
    return _RESPONSE.unpack(raw)  # type: ignore[return-value]


IDS = st.integers(0, 2**64 - 1)
REASONS = st.sampled_from([notify.Continue.REGISTERS_ONLY, notify.Continue.FLOOR_HOLDS, notify.Continue.VERIFIED_AFTER])


@given(IDS, st.integers(1, 4095), st.integers(-(2**63), 2**63 - 1), st.none() | REASONS)
def test_p09_a_denial_is_a_denial(identity: int, number: int, value: int, reason: str | None) -> None:
    """Whatever else is passed by mistake: deny => flags 0, val 0, error below zero."""
    resume = notify.Continue(reason) if reason else None
    with pytest.MonkeyPatch.context() as monkey:
        assert packed(monkey, identity, value, error=number, resume=resume) == (identity, 0, -number, 0)


@given(IDS, REASONS, st.integers(-(2**63), 2**63 - 1))
def test_p09_continue_carries_nothing_else(identity: int, reason: str, value: int) -> None:
    """CONTINUE with a value or an error is EINVAL, and the worker would stay stuck."""
    with pytest.MonkeyPatch.context() as monkey:
        sent = packed(monkey, identity, value, resume=notify.Continue(reason))
        assert sent == (identity, 0, 0, notify.FLAG_CONTINUE)


@given(IDS, st.integers(-(2**63), 2**63 - 1))
def test_p09_a_value_is_no_continue(identity: int, value: int) -> None:
    with pytest.MonkeyPatch.context() as monkey:
        assert packed(monkey, identity, value) == (identity, value, 0, 0)


@given(st.text(max_size=20))
def test_p09_continue_demands_a_known_reason(reason: str) -> None:
    if reason in ("RegistersOnly", "FloorHolds", "VerifiedAfter"):
        assert notify.Continue(reason).reason == reason
    else:
        with pytest.raises(ValueError):
            notify.Continue(reason)


def test_p09_nothing_else_answers() -> None:
    """One function builds every response: no other module names the SEND ioctl or the CONTINUE flag.

    But for the fast path, which answers values and one errno, and whose source knows no CONTINUE.
    """
    import pathlib

    package = pathlib.Path(notify.__file__).parent.parent
    fast = (package / "kernel" / "fastpath.c").read_text()
    assert fast.count("SECCOMP_IOCTL_NOTIF_SEND") == 1
    assert "CONTINUE" not in fast
    assert not [path for path in package.rglob("*.c") if path.name != "fastpath.c"]
    users = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in ("IOCTL_SEND", "FLAG_CONTINUE", "0xC0182101", "NOTIF_SEND"))
    ]
    assert set(users) <= {"kernel/notify.py", "doctor.py"}


def test_p04_the_end_is_reported_by_poll() -> None:
    with worker(lambda: 0) as one, limit(10):
        one.status()
        poll = select.poll()
        poll.register(one.listener.descriptor, select.POLLIN)
        assert any(event & select.POLLHUP for _, event in poll.poll(2000))
