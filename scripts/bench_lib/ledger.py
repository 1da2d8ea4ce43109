"""What a record costs, that memory does not grow with them, and how long `verify` takes.

A process of its own writes through the real Ledger, as an effect does: an intent with votes and facts, and its outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .report import Report
from .rounds import Bench, Failed

GROWTH_KIB = 1024  # resident, from the first tenth on; the allocator may keep a page or two
SECONDS = 900.0
DURABLE = 200  # effects
_SCRIPT = """
import json, sys, time
from pincer_trace.ledger import Session
from pincer_trace.ledger.verify import verify

place, records, durable = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))

def make(**more):
    return Session.create(Session.reserve(place), command=[b"bench"], profile_name="default",
                          profile_digest=bytes(32), workspace=b"/w", details={}, **more)

votes = (("left", "allow", "default.toml:82"), ("right", "allow", "default.toml:82"))
facts = [["own", "/tmp", True], ["git-danger", ""]]
row = {"pid": 7, "exe": b"/usr/bin/git", "dev": 65024, "verdict": "allow", "rule": "default.toml:82",
       "reason": "the work tree", "votes": votes, "request": bytes(32)}

def effect(ledger, number):
    action = number.to_bytes(16, "big")
    more = {"facts": facts} if number % 10 == 0 else {}
    path = b"/w/src/package/module%d.py" % number
    ledger.outcome(ledger.intent("write", path, ino=number, action=action, **row, **more), 0)

def write(session, first, last):
    began = time.perf_counter()
    for number in range(first, last):
        effect(session.ledger, number)
        if number % 10000 == 0:
            session.ledger.sign()
    return time.perf_counter() - began

session = make()
tenth, pairs = records // 20, records // 2
write(session, 0, tenth)
before = status("VmRSS")
seconds = write(session, tenth, pairs)
after = status("VmRSS")
session.ledger.close(0, 0)
sizes = {}
for name, lasting in (("plain", False), ("durable", True)):
    other = make(durable=lasting)
    sizes[name] = write(other, 1, durable + 1) / durable * 1e6
    other.ledger.close(0, 0)
began = time.perf_counter()
found = verify(session.path)
checked = time.perf_counter() - began
print(json.dumps({
    "records": 2 * pairs, "us_a_record": seconds / (2 * (pairs - tenth)) * 1e6, "resident_before_kib": before,
    "resident_after_kib": after, "us_an_effect": sizes["plain"], "us_an_effect_durable": sizes["durable"],
    "verify_seconds": checked, "verify_peak_kib": status("VmHWM"), "faults": found.faults,
}))
"""


def measure(bench: Bench, records: int) -> dict[str, Any]:
    """The numbers by name. Raises Failed."""
    place = os.path.join(bench.root, "ledger")  # on a disk: the one in memory has nothing to sync
    words = [sys.executable, "-c", _SCRIPT, place, str(records), str(min(DURABLE, records))]
    try:
        done = subprocess.run(words, env=bench.env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"it took more than {SECONDS:.0f} s") from None
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["faults"]:
        raise Failed(f"verify: {found['faults'][0]}")
    return found


def show(out: Report, title: str, found: dict[str, Any]) -> None:
    """Print them, and keep them for `--json`."""
    growth = found["resident_after_kib"] - found["resident_before_kib"]
    out.line(f"\n{title}")
    out.line(f"  {'a record (half an effect)':<54} {found['us_a_record']:8.1f} us")
    out.line(f"  {'intent and outcome':<54} {found['us_an_effect']:8.1f} us")
    out.line(f"  {'the same with --durable':<54} {found['us_an_effect_durable']:8.1f} us")
    state = "ok" if growth <= GROWTH_KIB else "over"
    sizes = f"{found['resident_before_kib'] / 1024:.1f} -> {found['resident_after_kib'] / 1024:.1f} MiB"
    out.line(f"  {'resident after a tenth of them, and after all':<54} {sizes}   target +{GROWTH_KIB} KiB  {state}")
    peak = f"peak {found['verify_peak_kib'] / 1024:.1f} MiB"
    out.line(f"  {'verify':<54} {found['verify_seconds']:8.2f} s    {peak}")
    out.data["ledger"] = {**found, "growth_kib": growth, "target_kib": GROWTH_KIB, "state": state}
