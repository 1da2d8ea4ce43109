"""Calls that wait and calls that are interrupted: P10 signals around effects, P14 opens that block."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, numbers, program, script, until


@pytest.mark.both_identities
@pytest.mark.parametrize("way", ["restart", "handle"])
@pytest.mark.parametrize("rounds", [60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_p10_interrupted_calls_happen_once(runner: support.Runner, way: str, rounds: int) -> None:
    """A timer each 200 us and nine kinds of effects: none is lost, none is done twice, and with SA_RESTART no EINTR."""
    found = numbers(runner.supervise([program("p10_signals"), str(rounds), "200", way], timeout=600))
    assert found["signals"] > rounds
    assert found["twice"] == found["lost"] == found["failed"] == 0, found
    if way == "restart":
        assert found["interrupted"] == 0
    assert list(runner.work.iterdir()) == []


def test_p10_four_at_once(runner: support.Runner) -> None:
    """The same with a queue in front of the supervisor: signals hit calls that wait to be received."""
    attacker = program("p10_signals")
    code = f"for i in 1 2 3 4; do {attacker} 30 300 restart & done; wait"
    result = runner.supervise(["sh", "-c", code], timeout=60)
    assert len(result.out.splitlines()) == 4, result
    for line in result.out.splitlines():
        assert line.startswith("twice=0 lost=0 failed=0 interrupted=0 "), line
    assert list(runner.work.iterdir()) == []


def test_p14_waiting_opens_stop_nobody(runner: support.Runner) -> None:
    """64 opens of FIFOs wait; others go on; each is then served, or dies of a signal at once."""
    with Live(runner, [runner.identity.python, "-I", script("p14_fifos")]) as live:
        assert live.line() == "waiting"
        engine = Path(f"/proc/{live.engine}/task")
        for _ in until("64 waiting opens", 10):
            names = [(thread / "comm").read_text() for thread in engine.iterdir() if thread.exists()]
            if len(names) >= 64:
                break
        live.say()
        assert live.line(10) == "worked"
        live.say()
        answers = live.read_until(b"all\n", 20).decode().splitlines()[:-1]
        wanted = [
            f"{number} {-signal.SIGKILL if number % 4 == 3 else -signal.SIGTERM}"
            if number % 4 > 1
            else f"{number} {f'text {number}'.encode()!r} 0"
            for number in range(64)
        ]
        assert answers == wanted
        assert live.end() == 0


@pytest.mark.both_identities
def test_p14_a_timeout_around_a_waiting_open(runner: support.Runner) -> None:
    started = time.monotonic()
    result = runner.supervise(["sh", "-c", "mkfifo p; timeout 0.3 cat p; echo $?; timeout -s KILL 0.3 cat p; echo $?"])
    assert result.out.split() == ["124", "137"], result
    assert time.monotonic() - started < 5


@pytest.mark.both_identities
@pytest.mark.parametrize("aim", ["process", "thread"])
def test_p14_a_handler_runs_while_an_open_waits(runner: support.Runner, aim: str) -> None:
    """alarm() around an open that waits: the handler runs and the open ends, as natively (P74 has the rest)."""
    result = runner.supervise([runner.identity.python, "-I", script("p14_alarm"), aim], timeout=10)
    assert (result.out, result.status) == ("late\n", 0), result


def test_p14_the_end_does_not_wait_for_waiting_opens(runner: support.Runner) -> None:
    """The command ends while a child's open still waits: the run ends, and says that it ended it."""
    result = runner.supervise(["sh", "-c", "mkfifo p; cat p & echo left"], options=(), timeout=20)
    assert result.out == "left\n"
    assert result.status == 0
    assert "1 process outlived the command and ended" in result.err


@pytest.mark.both_identities
def test_p14_every_reader_waits(runner: support.Runner) -> None:
    """Three readers of one FIFO, by the same program: each waits for a writer, whatever was learnt from the first."""
    code = """
import os, select
path = os.path.abspath("p")
os.mkfifo(path)
told, tell = os.pipe()
pids = []
for number in range(3):
    pid = os.fork()
    if not pid:
        os.write(tell, b"b")
        os.open(path, os.O_RDONLY)
        os.write(tell, b"O")
        os._exit(0)
    pids.append(pid)
    assert os.read(told, 1) == b"b"
    print(select.select([told], [], [], 0.1)[0])  # nothing may come
writer = os.open(path, os.O_WRONLY)
for pid in pids:
    os.waitpid(pid, 0)
print(os.read(told, 9))
"""
    result = runner.supervise([runner.identity.python, "-I", "-c", code], timeout=20)
    assert result.out == "[]\n[]\n[]\nb'OOO'\n", result


def test_p14_writers_wait_too(runner: support.Runner) -> None:
    code = "mkfifo p; (echo one >p) & (read x <p; echo got $x) ; wait; (sleep 0.05; cat p) & echo two >p; wait"
    result = runner.supervise(["sh", "-c", code], timeout=20)
    assert result.out.split() == ["got", "one", "two"], result
