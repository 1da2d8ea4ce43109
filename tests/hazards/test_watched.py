"""What a viewer is told of a real run: questions as they come and go, and what a file held before (P53)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import support
from hazards.programs.p_kit import Live, give, script, until
from hazards.test_asked import Run, shell

pytestmark = pytest.mark.both_identities


class Viewer:
    """Another process of the same user, outside of the run."""

    def __init__(self, run: Live) -> None:
        for _ in until("the channel", 20):
            found = list(run.sessions.rglob("session.json"))
            if found and "feed" in json.loads(found[0].read_text()):
                break
        words = [*run.runner.identity.switch, run.runner.identity.python, "-I", script("p_watch"), str(run.session)]
        self._process = subprocess.Popen(
            words, env=run.environment, cwd=run.runner.base, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(20) == 0

    def news(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def until(self, count: int) -> list[dict[str, Any]]:
        """The questions, once so many are told of."""
        while True:
            news = self.news()
            if news.get("event") == "questions" and len(news["questions"]) == count:
                return news["questions"]

    def ask(self, **message: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        while "event" in (answer := self.news()):
            pass
        return answer

    def before(self, sequence: int) -> bytes | str:
        answer = self.ask(op="before", of=sequence)
        return answer["why"] if answer["content"] is None else base64.b64decode(answer["content"])


def test_questions_are_told_as_they_come_and_go(runner: support.Runner) -> None:
    with Run(runner, shell("echo 1 >> asked & echo 2 >> other; wait; read line")) as run:
        run.pending(2)
        with Viewer(run) as viewer:
            asked = viewer.until(2)
            assert {os.path.basename(each["path"]) for each in asked} == {"asked", "other"}
            assert viewer.ask(op="answer", id=asked[0]["id"], answer="once")["resumed"] == 1
            (left,) = viewer.until(1)
            assert left["id"] == asked[1]["id"] and left["held"] > 0
            run.answer("deny", str(left["id"]))
            assert viewer.until(0) == []
            run.process.stdin.close()
            while viewer.news()["event"] != "end":
                pass


EDITOR = """
read line
printf 'new\\n' > plain
printf 'saved\\n' > plain.new; mv plain.new renamed
head -c 40000 /dev/zero > large
python3 -c 'import os; os.truncate("cut", 1)'
printf x > fresh
read line
"""


def test_what_files_held_before_is_kept_while_somebody_watches(runner: support.Runner) -> None:
    for name in ("plain", "renamed", "cut"):
        give(runner, runner.work / name, f"{name} as it was\n".encode())
    give(runner, runner.work / "large", bytes(1 << 16))
    with Live(runner, ["bash", "-c", EDITOR]) as run:
        with Viewer(run) as viewer:
            assert viewer.news() == {"event": "questions", "questions": []}
            run.process.stdin.write(b"\n")
            run.process.stdin.flush()
            for _ in until("all of it is done", 20):
                done = {_name(each): each["seq"] for each in run.decisions() if each["outcome"] == "done"}
                if ("create", "fresh") in done:
                    break
            assert viewer.before(done["truncate", "plain"]) == b"plain as it was\n"
            assert viewer.before(done["rename", "renamed"]) == b"renamed as it was\n"
            assert viewer.before(done["truncate", "cut"]) == b"cut as it was\n"
            assert viewer.before(done["truncate", "large"]) == "it was larger than 32 KiB"
            assert "nobody watched" in viewer.before(done["create", "fresh"])
            answer = viewer.ask(op="pending")
            assert answer == {"ok": True, "questions": []}
        run.process.stdin.write(b"\n")


def _name(record: dict[str, Any]) -> tuple[str, str]:
    return record["effect"], os.path.basename(record.get("extra", {}).get("to", record["path"]))


def test_processes_are_told_before_what_they_do(runner: support.Runner) -> None:
    """With all above them up to the command, also those that did nothing themselves; threads by their process."""
    threaded = "import threading as t; w = t.Thread(target=lambda: open('t', 'w')); w.start(); w.join()"
    result = runner.supervise(["bash", "-c", f'(: ; (echo > inner; :); :); python3 -c "{threaded}"; cat missing'])
    records = _records(result.session)
    told = {each["pid"]: each for each in records if each["kind"] == "process"}
    (top,) = [each["pid"] for each in told.values() if each["parent"] not in told]
    for record in records:
        if record["kind"] in ("intent", "denied"):
            assert told[record["pid"]]["seq"] < record["seq"]
            pid = record["pid"]
            while pid != top:
                pid = told[pid]["of"] if told[pid]["of"] != pid else told[pid]["parent"]
    inner = next(
        each["pid"] for each in records if each.get("path", "").endswith("/inner") and each["kind"] == "intent"
    )
    assert told[told[inner]["parent"]]["parent"] == top
    (thread,) = [each for each in told.values() if each["of"] != each["pid"]]
    assert "python" in thread["exe"]


def _records(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "ledger.jsonl").read_bytes().splitlines()]
