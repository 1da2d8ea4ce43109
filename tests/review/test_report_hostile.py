"""Logs that lie, and logs that are large: a report never fails on one, shows nothing raw, and stays bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace import effects
from pincer_trace.ledger import Session
from pincer_trace.ledger.verify import Verification
from pincer_trace.review import account
from pincer_trace.review.account import Account
from pincer_trace.review.page import Page
from pincer_trace.review.tree import CHANGED, CREATED, Tree

from .test_tree import report_of

NASTY = st.text("\x1b\u202e\n\0[/]\udcff\ud800ab/.~", max_size=8)
TEXTS = NASTY | st.sampled_from(
    ["", "/", "//", "/a", "/a/b", "/a/b/c", "/w", "/w/x", "/w/.git/HEAD", "done", "unknown"]
)
ODD = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.lists(TEXTS, max_size=2)
ODD |= st.dictionaries(TEXTS, TEXTS, max_size=2)
PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/b", "/b/a", "/w", "/w/a"]) | TEXTS
ANY_ODD = dict.fromkeys(("replaced", "exchanged", "mode", "was", "owner", "attribute", "removed"), ODD)  # fmt: skip
EXTRA = st.fixed_dictionaries(
    {},
    optional={
        **ANY_ODD, "to": PATHS | ODD, "from": PATHS | ODD,
        "confirmed": st.just("auto") | st.lists(st.integers(0, 9)) | ODD,
    },
)  # fmt: skip
KINDS = ["intent", "outcome", "denied", "failure", "reads", "answer", "head", "end", "process", "torn", "x"]
SMALL = st.integers(0, 3) | ODD
RECORD = st.fixed_dictionaries(
    {"seq": st.integers(0, 30), "kind": st.sampled_from(KINDS)},
    optional={
        **dict.fromkeys(("exe", "verdict", "rule", "reason", "code"), TEXTS | ODD),
        **dict.fromkeys(("pid", "votes", "count", "native", "by", "answer", "to", "exit"), ODD),
        **dict.fromkeys(("dev", "ino"), SMALL),
        "time": st.floats() | st.integers(0, 2**40) | ODD, "effect": st.sampled_from(sorted(effects.EFFECTS)) | ODD,
        "path": PATHS | ODD, "outcome": st.just("done") | ODD, "of": st.integers(0, 30) | ODD,
        "post": st.sampled_from(["gone", "1:2"]) | ODD, "extra": EXTRA | ODD,
    },
)  # fmt: skip
MEMBERS = ("command", "profile", "workspace", "exit", "leftover", "confirm", "task", "model", "ended", "counts",
           "missing", "key")  # fmt: skip
PLACES = st.fixed_dictionaries({"home": ODD})
JUDGED_BY = ODD | st.fixed_dictionaries({"allow_write": ODD, "places": PLACES})
HUGE = st.sampled_from([10**400, -(10**400), float("inf"), float("nan"), 1e300])
FACTS = st.fixed_dictionaries({}, optional={**dict.fromkeys(MEMBERS, ODD | HUGE), "judged_by": JUDGED_BY})


@settings(max_examples=400, deadline=None)
@given(FACTS, st.lists(RECORD, max_size=12), st.sampled_from([1, 40, 80, None]))
def test_p53_a_report_of_anything(facts, records, width):
    with tempfile.TemporaryDirectory() as folder:
        told = {"format": 1, "id": "20260101-000000-abcdef", "started": 1.5, "workspace": "/w", **facts}
        (Path(folder) / "session.json").write_text(json.dumps(told))
        (Path(folder) / "ledger.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        report = report_of(folder)
    for row in Page(report, "ID", width).lines():
        assert "".join(words for words, _ in row).isprintable()
    json.dumps(report.told(), allow_nan=False)


def test_directories_that_a_lying_log_puts_into_themselves():
    tree = Tree()
    for number in range(20):
        tree.made("mkdir", f"/a{'/d' * number}", "x")
    tree.renamed("/a", "/a/d/d/d", "x")
    tree.renamed("/a/d", "/b", "x", exchanged=True)
    tree.renamed("/b", "/b/c", "x", exchanged=True)
    tree.linked("/l", "/b", "x", None)
    tree.linked("/b/l", "/l", "x", None)
    tree.made("create", "/l/x", "x")
    tree.made("create", "/b/l/x", "x")
    assert len(list(tree.changes())) < 60


def test_directories_that_are_moved_together_to_any_depth():
    """Paths would have gigabytes together: what lies deeper than any program can name is counted."""
    tree = Tree()
    deep = "/x" * 1000
    for number in range(200):
        tree.made("create", f"/t{number}{deep}/f", "x")
        if number:
            tree.renamed(f"/t{number - 1}", f"/t{number}{deep}/t", "x")
    changes = list(tree.changes())
    assert max(len(change.path) for change in changes) < 20_000 and sum(tree.beyond.values()) >= 1


def test_more_names_than_are_followed():
    tree = Tree(most=100)
    for number in range(300):
        tree.made("create", f"/w/d{number % 7}/f{number}", "x")
    for number in range(300):
        tree.wrote(f"/w/old{number}", "x", (1, number))
    changes = list(tree.changes())
    files = [change for change in changes if change.what in (CREATED, CHANGED)]
    assert len(files) + sum(tree.beyond.values()) >= 600 and len(files) < 100
    assert {"/w", "/w/d0"} & tree.beyond.keys()
    for number in range(300):  # what is followed makes room again, when it goes
        tree.removed(f"/w/d{number % 7}/f{number}", "x")
    tree.made("create", "/w/last", "x")
    assert "/w/last" in {change.path for change in tree.changes()}


def test_what_is_made_and_removed_leaves_nothing_behind():
    tree = Tree(most=50)
    for number in range(5000):
        tree.made("mkdir", f"/w/t{number}", "x", (1, number))
        tree.made("create", f"/w/t{number}/f", "x", (2, number))
        tree.removed(f"/w/t{number}/f", "x")
        tree.removed(f"/w/t{number}", "x")
    assert list(tree.changes()) == [] and tree.beyond == {}


def test_a_descriptor_of_what_was_removed_changes_nothing():
    tree = Tree()
    tree.made("create", "/w/t", "x", (1, 5))
    tree.removed("/w/t", "x", found=(1, 5))
    tree.wrote("/w/t", "x", (1, 5))
    tree.set_attribute("/w/t", "x", (1, 5), "mode", "0600", "0644")
    assert list(tree.changes()) == []
    tree.made("create", "/w/u", "x", (1, 5))  # the number is given to another file
    tree.wrote("/w/u", "x", (1, 5))
    assert [change.path for change in tree.changes()] == ["/w/u"]


def test_groups_and_tables_are_bounded(monkeypatch):
    monkeypatch.setattr(account, "_GROUPS", 10)
    monkeypatch.setattr(account, "_FILES", 10)
    facts = {"started": 0.0, "workspace": "/w", "state": "ended"}
    one = Account(facts)
    for number in range(100):
        common = {"seq": number, "time": 1.0, "exe": f"/bin/{number}", "outcome": "done", "path": f"/w/{number}"}
        one.add({"kind": "denied", **common, "reason": f"{number}", "effect": "write"})
        one.add({"kind": "failure", **common, "reason": f"{number}"})
        one.add({"kind": "answer", **common})
        one.add({"kind": "reads", **common, "count": 2})
        one.add({"kind": "intent", **common, "effect": "connect", "path": f"//h{number}:1"})
        one.add({"kind": "intent", **common, "effect": "write", "outcome": f"E{number}"})
    report = one.report(facts, Verification())
    assert [len(each) for each in (report.denials, report.closed, report.answers, report.peers, report.errors)] == [
        10
    ] * 5
    assert report.more == 5 * 90
    assert (report.reads.inside, report.reads.files_inside, report.reads.more) == (200, 10, True)
    assert any("450 decisions are in no group" in words for row in Page(report, "ID").lines() for words, _ in row)


MEASURE = """
import json, resource, sys
from click.testing import CliRunner
from pincer_trace.cli import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
done = CliRunner().invoke(main, ["report", sys.argv[1]])
assert done.exit_code == 0, done
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, done.output]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [False, True])
def test_a_million_records(tmp_path, distinct):
    """Written by the real writer; memory for the names that are kept, and for nothing else."""
    session = Session.create(
        Session.reserve(str(tmp_path)), command=[b"npm", b"ci"], profile_name="default", profile_digest=bytes(32),
        workspace=b"/w", details={},
    )  # fmt: skip
    ledger, count = session.ledger, 500_000
    votes = (("left", "allow", "default.toml:89"), ("right", "allow", "default.toml:89"))
    subject = {
        "pid": 7,
        "exe": b"/usr/bin/node",
        "dev": 1,
        "verdict": "allow",
        "rule": "r:1",
        "reason": "so",
        "votes": votes,
    }
    for number in range(count):
        if distinct:
            path, effect = b"/w/node_modules/p%d/lib/f%d.js" % (number // 50, number), "create"
        else:
            path, effect = b"/w/f%d" % (number % 100), "write"
        sequence = ledger.intent(effect, path, ino=number, action=bytes(16), request=bytes(32), **subject)
        ledger.outcome(sequence, 0, f"1:{number}")
        if number % 10_000 == 0:
            ledger.sign()
    ledger.close(0, 0)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, session.path], capture_output=True, text=True, check=True, timeout=200,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    kilobytes, output = json.loads(done.stdout)
    assert kilobytes < (250 if distinct else 30) * 1024
    lines = output.splitlines()
    assert len(lines) < (20 if distinct else 30) and any(line.startswith("log       whole, 1,0") for line in lines)
    told = "created  node_modules/" if distinct else "changed  f0"
    assert any(line.strip().startswith(told) for line in lines), output
    assert distinct == any("effects on more names than are followed one by one" in line for line in lines)
