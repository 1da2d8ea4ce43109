"""The supervisor killed with -9 at random points: nobody lives on, nothing happens any more, the log has it all."""

from __future__ import annotations

import copy
import random
import time

import pytest
import support
from attacks.journal import Journal, walk
from hazards.programs.p_kit import Live, children, kill, state, until

from pincer_trace.ledger.verify import verify

# Three processes, one of them in a session of its own, that make, move and remove without end.
WORKER = """
import os
def work(name):
    while True:
        os.mkdir(name); os.rename(name, name + "2"); os.symlink(name, name + "3")
        file = name + "2/f"
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY)); os.link(file, name + "4"); os.unlink(file)
        os.chmod(name + "4", 0o600); os.unlink(name + "3"); os.unlink(name + "4"); os.rmdir(name + "2")
for name in "ab":
    if not os.fork():
        if name == "b":
            os.setsid()
        work(name)
print("ready", flush=True)
work("c")
"""


def kill_once(runner: support.Runner, victim: str, delay: float) -> int:
    """One run whose half `victim` is killed `delay` seconds after the first effects. How many effects it recorded."""
    start = Journal([runner.work])
    with Live(runner, [runner.identity.python, "-I", "-S", "-c", WORKER]) as live:
        assert live.line() == "ready"
        engine = live.engine
        for _ in until("the three workers", 10):
            if len(children(live.worker)) == 2:
                break
        tree = [pid for pid in live.tree() if pid != engine]
        time.sleep(delay)
        kill({"engine": engine, "front": live.front}[victim])
        for _ in until("the end of the tree", 1.0):
            if all(state(pid) in "XZ" for pid in (engine, *tree)):
                break
        left = walk([runner.work])
        live.process.wait(5)
        assert walk([runner.work]) == left
        records = [record for record in live.decisions() if record["kind"] == "intent"]
        found = verify(str(live.session))
    assert not found.faults, found.faults
    # What was under way may have happened or not: `verify` says so, and the tree is the one or the other.
    doubtful = [record for record in records if record["outcome"] == "unknown"]
    assert len(doubtful) <= 1
    ways = []
    for outcome in ("unknown", "done"):
        journal = copy.deepcopy(start)
        for record in records:
            journal.apply(record | {"outcome": outcome} if record in doubtful else record)
        ways.append(journal.compare(left))
    assert [] in ways, (doubtful, ways)
    return len(records)


def kill_often(runner: support.Runner, runs: int) -> None:
    chance = random.SystemRandom()
    recorded = []
    for number in range(runs):
        runner.fresh()
        victim = "engine" if number % 2 else "front"
        recorded.append(kill_once(runner, victim, chance.random() * 0.2))
    assert len(set(recorded)) > runs / 2, f"always at one point: {recorded}"


def test_p05_killed_at_random(runner: support.Runner) -> None:
    kill_often(runner, 10)


@pytest.mark.slow
@pytest.mark.both_identities
def test_p05_killed_at_random_a_hundred_times(runner: support.Runner) -> None:
    kill_often(runner, 100)
