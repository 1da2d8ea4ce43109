"""Many records, and many threads: no memory grows, and the chain stays whole."""

from __future__ import annotations

import gc
import json
import os
import threading
import tracemalloc

import pytest

from pincer_trace.ledger.read import decisions
from pincer_trace.ledger.verify import verify

VOTES = (("left", "allow", "default.toml:12"), ("right", "allow", "default.toml:12"))
FACTS = [["own", "/tmp", True], ["git-config", ["user.name"]]]


def write(ledger, number, allow, deny):
    """What one call leaves: each with a name and a reason of its own."""
    path = b"/tree/%d/" % number + b"x" * (number % 300)
    more = {"votes": VOTES, "action": number.to_bytes(16, "big"), "request": bytes(32), "facts": FACTS}
    sequence = ledger.intent("write", path, **{**allow, "reason": f"r{number}", "exe": b"/bin/%d" % number}, **more)
    ledger.outcome(sequence, number % 3, "the entry is the pinned inode")
    if number % 10 == 0:
        ledger.denied("read", path, **deny, votes=VOTES, facts=FACTS, code="POLICY_DENY")
        ledger.reads([(b"/bin/cat", path, 1, number, 3, 1.0, "r")])
    if number % 1000 == 0:
        ledger.sign()


def test_memory_does_not_grow_with_records(make, allow, deny):
    """20,000 of them. Up to 1024 quotations are kept and then thrown away: looked at when that has just happened."""
    ledger = make().ledger
    tracemalloc.start()
    try:
        for number in range(3072):
            write(ledger, number, allow, deny)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        peaks = []
        for start in range(3072, 3072 + 4 * 2048, 2048):
            tracemalloc.reset_peak()
            for number in range(start, start + 2048):
                write(ledger, number, allow, deny)
            gc.collect()
            peaks.append(tracemalloc.get_traced_memory())
        after = peaks[-1][0]
    finally:
        tracemalloc.stop()
    assert after - before < 100_000, "what is kept grows"
    assert peaks[-1][1] < peaks[0][1] + 100_000, "the peak grows"


@pytest.mark.parametrize("durable", [False, True])
def test_eight_threads_at_once_keep_one_chain(make, allow, deny, durable):
    session = make(durable=durable)
    ledger = session.ledger
    each = 15 if durable else 250
    start = threading.Barrier(9)
    failed = []

    def work(number):
        try:
            start.wait()
            for turn in range(each):
                write(ledger, number * each + turn, allow, deny)
        except BaseException as error:
            failed.append(error)

    def sign():
        start.wait()
        for _ in range(20):
            ledger.sign()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)] + [threading.Thread(target=sign)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    ledger.close(0, 0)
    with open(os.path.join(session.path, "ledger.jsonl"), "rb") as file:
        records = [json.loads(line) for line in file]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    found = verify(session.path)
    assert (found.faults, found.notes) == ([], [])
    done = [d for d in decisions(session.path) if d["kind"] == "intent"]
    assert len({d["action"] for d in done}) == 8 * each == len(done) == ledger.allowed
    for decision in done:  # the outcome is that of this very intent
        number = int(decision["action"], 16)
        assert decision["outcome"] == {0: "done", 1: "EPERM", 2: "ENOENT"}[number % 3]
        assert decision["path"].startswith(f"/tree/{number}/")
