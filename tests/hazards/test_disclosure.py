"""`reveal` and `undo` in a real run: for the person outside of it, with a record, and for nobody inside."""

from __future__ import annotations

import json
import os
import re
import subprocess

import support
from hazards.programs.p_kit import Live, give, until

TEXT = b"API_KEY=canary-key\nDEBUG=canary-true\n# canary\n"
HANDLE = re.compile(rb"pincer:[a-z2-7]{26}")
WORKER = """
cat .env
sed -i s/DEBUG=.*/DEBUG=0/ .env
echo saved
read line
"$PYTHON" -I -m pincer_trace reveal "$line" "$SESSION" --yes 2>&1; echo "status $?"
"$PYTHON" -I -m pincer_trace undo 1 "$SESSION" 2>&1; echo "status $?"
read line
cat .env
"""


def test_only_the_person_is_given_what_a_handle_stands_for_and_what_was_before(runner: support.Runner) -> None:
    file = give(runner, runner.work / ".env", TEXT, 0o640)
    with Live(runner, ["sh", "-c", f"SESSION=$(ls -d {runner.base}/*/2*-*); {WORKER}"]) as run:
        key = HANDLE.search(run.read_until(b"saved\n"))
        assert key is not None
        handle = key[0].decode()
        for _ in until("the channel", 20):
            if "feed" in json.loads((run.session / "session.json").read_text()):
                break

        def person(*words: str, **how: object) -> subprocess.CompletedProcess[bytes]:
            program = [runner.identity.python, "-I", "-m", "pincer_trace", *words, str(run.session)]
            return subprocess.run(
                [*runner.identity.switch, *program], env=run.environment, cwd=runner.base, capture_output=True,
                timeout=60, stdin=subprocess.DEVNULL, **how,  # type: ignore[call-overload]
            )  # fmt: skip

        assert person("reveal", handle, "--yes").stdout == b"canary-key"
        for words, said in (
            (("reveal", handle), b"add --yes"),
            (("reveal", handle[:-2] + "aa", "--yes"), b"no handle of this run"),
            (("reveal", "secret", "--yes"), b"no handle"),
            (("undo", "7"), b"no version of this number"),
        ):
            done = person(*words)
            assert (done.returncode, said in done.stderr, done.stdout) == (125, True, b""), done
        listed = person("undo")
        assert b"1 " in listed.stdout and os.fsencode(f"{runner.work}/.env  46 bytes") in listed.stdout, listed
        assert file.read_bytes() == TEXT.replace(b"canary-true", b"0")
        run.say(handle.encode() + b"\n")
        for _ in range(2):
            inside = run.read_until(b"status 125\n")
            assert b"supervised" in inside and b"canary" not in inside, inside
        assert person("undo", "1").returncode == 0
        assert file.read_bytes() == TEXT
        assert file.stat().st_mode & 0o777 == 0o640
        assert sorted(os.listdir(runner.work)) == [".env"]
        run.say()
        after = run.read_until(b"rest of the file: keep\n")
        assert b"canary" not in after and handle.encode() not in after
        assert run.end() == 0
    ledger = (run.session / "ledger.jsonl").read_bytes()
    assert b"canary" not in ledger
    lines = [json.loads(line) for line in ledger.splitlines()]
    told = [(line["answer"], line.get("field"), line.get("bytes")) for line in lines if line["kind"] == "answer"]
    assert told == [("reveal", "API_KEY", 10), ("undo", None, 46)]
    report = runner.native([runner.identity.python, "-I", "-m", "pincer_trace", "report", str(run.session)])
    assert report.status == 0 and "revealed" in report.out, report
