"""Effects that are committed while the supervisor is killed, and by many threads at once.

At every step from the votes to the answer the engine is ended by SIGKILL in a real run. Then: the tree is dead, the
worker was not answered, nothing happened twice, and `verify` names the effect exactly where it may or may not have
happened.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, give, program, script

from pincer_trace.ledger.verify import Verification, verify

MKDIR = "pincer_trace.executor.names:Names._mkdir"
RENAME = "pincer_trace.executor.names:Names._rename"
WRITE = "pincer_trace.executor.opens:Opens._write_existing"
# step: what is killed before or after it; is the intent written; is the effect done; is the outcome written
STEPS = {
    "before the votes": ("pincer_trace.twin.authority:Authority.vote before", False, False, False),
    "after the votes, before the mark": ("pincer_trace.twin.authority:Authority.vote after", False, False, False),
    "before the mark": ("pincer_trace.executor.acceptance:Acceptance._mark before", False, False, False),
    "after the mark, before the intent": (
        "pincer_trace.executor.acceptance:Acceptance._mark after",
        False,
        False,
        False,
    ),
    "before the intent": ("pincer_trace.ledger.writer:Ledger.intent before", False, False, False),
    "after the intent, before the effect": ("pincer_trace.ledger.writer:Ledger.intent after", True, False, False),
    "after the effect, before the outcome": ("pincer_trace.ledger.writer:Ledger.outcome before", True, True, False),
    "after the outcome, before the answer": ("pincer_trace.ledger.writer:Ledger.outcome after", True, True, True),
    "before the answer": ("pincer_trace.kernel.notify:Listener.respond before", True, True, True),
    "after the answer": ("pincer_trace.kernel.notify:Listener.respond after", True, True, True),
}
# effect: its function, what the worker does, whether it is done by now
EFFECTS = {
    "mkdir": (MKDIR, "os.mkdir('made')", lambda work: (work / "made").is_dir()),
    "rename": (RENAME, "os.rename('there', 'made')", lambda work: (work / "made").exists()),
    "truncate": (WRITE, "os.open('there', os.O_WRONLY | os.O_TRUNC)", lambda work: not (work / "there").stat().st_size),
}
WORKER = "import os, sys; sys.stdin.readline(); {}; sys.stdout.write('answered'); sys.stdout.flush(); sys.stdin.read()"


def records(session: Path) -> list[dict]:
    """The whole lines of a ledger."""
    return [json.loads(line) for line in (session / "ledger.jsonl").read_bytes().splitlines(keepends=True) if line]


def of(found: list[dict], effect: str) -> tuple[list[dict], list[dict]]:
    """The intents of an effect, and their outcomes."""
    intents = [record for record in found if record["kind"] == "intent" and record["effect"] == effect]
    numbers = {record["seq"] for record in intents}
    return intents, [record for record in found if record["kind"] == "outcome" and record["of"] in numbers]


def unknown(found: Verification) -> list[str]:
    return [note for note in found.notes if "whether it was done is not known" in note]


def prepare(runner: support.Runner) -> None:
    give(runner, runner.work / "there", b"content\n")


@pytest.mark.both_identities
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("effect", EFFECTS)
def test_killed_at_a_step(runner: support.Runner, step: str, effect: str) -> None:
    place, intended, done, told = STEPS[step]
    function, act, is_done = EFFECTS[effect]
    prepare(runner)
    words = ["-I", script("p_crash"), f"{function}={place}"]
    with Live(runner, [runner.identity.python, "-I", "-c", WORKER.format(act)], words=words, options=()) as live:
        live.engine
        tree = live.tree()
        live.say()
        assert live.process.wait(20) == 125
        output, errors = live.process.stdout.read(), live.process.stderr.read()  # type: ignore[union-attr]
        session = live.session
    assert b"the supervisor ended unexpectedly" in errors
    assert not [pid for pid in tree if Path(f"/proc/{pid}/mem").exists() and state_of(pid) not in "XZ"], (
        "the tree is dead"
    )
    if step != "after the answer":
        assert output == b"", "the worker heard nothing"

    found = records(session)
    intents, outcomes = of(found, effect)
    assert len(intents) == intended
    assert len(outcomes) == told
    assert all(record["outcome"] == "done" for record in outcomes)
    assert is_done(runner.work) == done
    checked = verify(str(session))
    assert checked.faults == []
    rest = [note for note in unknown(checked) if f", {effect} " in note]
    assert len(rest) == (intended and not told), checked.notes
    if rest:
        assert f"record {intents[0]['seq']}, {effect}" in rest[0]
        where = "made" if effect == "mkdir" else "there"
        assert str(runner.work / where) in rest[0]

    result = runner.supervise([runner.identity.python, "-I", "-c", WORKER.format(act)], input=b"\n")
    again = records(result.session)
    native = {"mkdir": done, "rename": done, "truncate": False}[effect]  # the kernel's own answer to a second one
    assert (b"answered" not in result.stdout) == native, result
    assert verify(str(result.session)).faults == []
    assert unknown(verify(str(result.session))) == []
    assert is_done(runner.work)
    total = sum(1 for record in outcomes + of(again, effect)[1] if record["outcome"] == "done")
    if effect != "truncate":
        assert total + (intended and done and not told) == 1, "it was done exactly once"


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_the_verdict_of_verify_is_in_words(runner: support.Runner) -> None:
    """A person who looks after a crash is told by the command which effect may have happened."""
    prepare(runner)
    words = ["-I", script("p_crash"), f"{MKDIR}={STEPS['after the intent, before the effect'][0]}"]
    command = [runner.identity.python, "-I", "-c", WORKER.format("os.mkdir('made')")]
    with Live(runner, command, words=words, options=()) as live:
        live.engine
        live.say()
        live.process.wait(20)
        session = live.session
    told = subprocess.run(
        [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "verify", str(session)],
        cwd="/",
        env=support.environment(runner.identity, runner.home),
        capture_output=True,
        text=True,
    )
    assert f"mkdir {runner.work}/made: whether it was done is not known" in told.stdout + told.stderr
    assert "killed" in told.stdout + told.stderr


# -- many at once ----------------------------------------------------------------------------------------------

THREADS, TURNS = 8, 60


@pytest.mark.both_identities
@pytest.mark.parametrize("how", ["fast", "pure"])
def test_eight_threads_commit(runner: support.Runner, how: str) -> None:
    """Each effect has one intent and one outcome, no action id comes twice, and the chain holds."""
    command = [program("p_commits"), str(THREADS), str(TURNS)]
    env = {"PINCER_TRACE_PURE": "1"} if how == "pure" else {}
    result = runner.supervise(command, env=env, timeout=240)
    assert result.status == 0, result
    found = records(result.session)
    intents = [record for record in found if record["kind"] == "intent"]
    outcomes = [record for record in found if record["kind"] == "outcome"]
    assert not [record for record in found if record["kind"] in ("denied", "failure")]
    per_thread = {"create": 1, "mkdir": 1, "rename": 2, "chmod": 1, "link": 1, "symlink": 1, "unlink": 3, "rmdir": 1}
    counted = Counter(record["effect"] for record in intents if record["effect"] != "exec")
    assert counted == {effect: count * THREADS * TURNS for effect, count in per_thread.items()}
    actions = [record["action"] for record in intents]
    assert len(set(actions)) == len(actions)
    assert len({record["request"] for record in intents}) < len(actions), "the same request, again, is another action"
    assert Counter(record["of"] for record in outcomes) == Counter(record["seq"] for record in intents)
    assert {record["outcome"] for record in outcomes} == {"done"}
    assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
    before = {record["seq"]: at for at, record in enumerate(found) if record["kind"] == "intent"}
    assert all(before[record["of"]] < at for at, record in enumerate(found) if record["kind"] == "outcome")
    checked = verify(str(result.session))
    assert (checked.faults, unknown(checked)) == ([], [])
    assert checked.records == len(found)
    assert not list(runner.work.iterdir())


def test_eight_threads_for_one_name(runner: support.Runner) -> None:
    """All want to make the same folder: one does, and is the only one with an intent that was done."""
    code = """
import os, threading
barrier, made = threading.Barrier(8), []
def work():
    for turn in range(40):
        barrier.wait()
        try:
            os.mkdir(f"d{turn}")
        except FileExistsError:
            continue
        made.append(turn)
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(made) == list(range(40)))
"""
    result = runner.supervise([runner.identity.python, "-I", "-c", code])
    assert result.out.split() == ["True"], result
    intents, outcomes = of(records(result.session), "mkdir")
    done = Counter(record["outcome"] for record in outcomes)
    assert done["done"] == 40
    assert set(done) <= {"done", "EEXIST"}
    assert len(intents) == len(outcomes)
    assert len({record["action"] for record in intents}) == len(intents)
