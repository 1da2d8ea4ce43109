"""Refusals that honest use asks for, too: refused as any other, and counted apart."""

from __future__ import annotations

import json
import re

import pytest
import support
from hazards.path_programs.tools import give

pytestmark = pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")

PROFILE = """
extends = "default"
[[rule]]
effects = ["connect"]
paths = ["//statistics.example:443"]
verdict = "deny"
expected = 1
reason = "it reports how it is used"
[[rule]]
effects = ["read"]
paths = ["{home}/usage.json"]
exe = ["**/cat"]
verdict = "deny"
expected = 1
reason = "it looks for what it has reported"
"""
STEPS = """
for port in 443 80 443; do
    "$PYTHON" -c "import socket; socket.socket().connect(('statistics.example', $port))"
done
cat "$HOME/usage.json"
ps -e > processes.txt
cp /usr/bin/cat . && ./cat "$HOME/usage.json"
front=$(cut -d ' ' -f 4 "/proc/$PPID/stat")
cat "/proc/$front/environ"
exit 0
"""


def test_what_is_expected_is_refused_and_counted_apart(runner: support.Runner) -> None:
    """As often as the rule says; but nothing beside the exact name, nor by a program that the run could have made.

    ps asks for the environment of each process, whatever it is to show: that is expected of it, and of nobody else.
    """
    give(runner, runner.home / ".config/pincer-trace/profiles/mine.toml", PROFILE.encode())
    give(runner, runner.home / "usage.json", b"a secret of mine")
    give(runner, runner.work / "steps.sh", STEPS.encode())
    outputs = ("--report", "report.json", "--sarif", "denials.sarif")
    done = runner.supervise(["sh", "steps.sh"], options=("-p", "mine", *outputs))
    assert done.status == 0, done
    assert "a secret" not in done.out
    refused = [entry for entry in done.decisions if entry["kind"] == "denied" and not entry.get("native")]
    expected = [entry for entry in refused if entry.get("expected")]
    denied = [entry for entry in refused if not entry.get("expected")]
    assert {re.sub("[0-9]+", "N", entry["path"]) for entry in expected if entry["exe"] == "/usr/bin/ps"} == {
        "/proc/N/environ"
    }
    others = [entry for entry in expected if entry["exe"] != "/usr/bin/ps"]
    usage = str(runner.home / "usage.json")
    assert [entry["path"] for entry in others] == ["//statistics.example:443", usage]
    assert {entry["verdict"] for entry in others} == {"deny"}
    hosts = ["//statistics.example:80", "//statistics.example:443"]
    assert [entry["path"] for entry in denied][:3] == [*hosts, usage]
    assert denied[2]["exe"] == str(runner.work / "cat")
    assert [re.sub("[0-9]+", "N", entry["path"]) for entry in denied[3:]] == ["/proc/N/environ"]

    assert f", {len(denied)} denied, {len(expected)} expected refusals; log" in done.err
    assert json.loads((done.session / "session.json").read_text())["counts"]["expected"] == len(expected)
    assert len(done.trace.denials) == len(denied)
    report = json.loads((runner.work / "report.json").read_text())
    assert (report["counts"]["denied"], report["counts"]["expected"]) == (len(denied), len(expected))
    assert sum(group["count"] for group in report["expected"]) == len(expected)
    assert set(report["hosts"]["counts"].values()) == {1}
    (sarif,) = json.loads((runner.work / "denials.sarif").read_text())["runs"]
    notes = [each["properties"]["record"] for each in sarif["results"] if each["level"] == "note"]
    assert {others[0]["seq"], others[1]["seq"]} <= set(notes)
    told = (done.session / "denials.txt").read_text()
    assert "statistics.example:80" in told and told.count("statistics.example:443") == 2  # what, and how to allow it

    page = runner.subcommand("report", done.session).stdout
    assert f"expected  {len(expected)} times: refused, and asked for in honest use, too" in page
    log = runner.subcommand("log", done.session).stdout
    assert log.count("asked for in honest use, too: counted apart") == len(expected)
    why = support.explanation(runner.subcommand("why", str(others[0]["seq"]), done.session))
    assert "asked for in honest use, too" in why["done"][0]


def test_expected_refusals_alone_fail_no_job(runner: support.Runner) -> None:
    """And a profile in the work tree can call nothing expected."""
    profile = give(runner, runner.home / ".config/pincer-trace/profiles/mine.toml", PROFILE.encode())
    give(runner, runner.home / "usage.json", b"x")
    command = ["sh", "-c", 'cat "$HOME/usage.json"; exit 0']
    done = runner.supervise(command, options=("-p", "mine", "--fail-on", "confirm"))
    assert done.status == 0, done
    assert "0 denied, 1 expected refusal; log" in done.err
    give(runner, runner.work / "mine.toml", profile.read_bytes())
    done = runner.supervise(command, options=("-p", "./mine.toml"))
    assert done.status == 125, done
    assert "mine.toml:5: key 'expected': not in a file of the work tree" in done.err
