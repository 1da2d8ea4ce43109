"""What a run leaves for a CI system: a report, SARIF, an exit status; and the commands of docs/ci.md."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess

import pytest
import support
from hazards.path_programs.tools import folder, give
from hazards.programs.p_kit import new_sessions

pytestmark = pytest.mark.skipif(bool(support.PREFIX), reason="nothing is written natively")

DEEDS = r"""
import os
def tried(deed):
    try:
        deed()
    except OSError as error:
        assert error.errno == 13, error
open("made", "w").close()
os.mkdir(".husky")
tried(lambda: open(".husky/a b\n[x]#%é", "w"))
tried(lambda: os.chmod(os.environ["HOME"], 0o700))
for _ in range(3):
    tried(lambda: open(os.environ["HOME"] + "/.npmrc", "w"))
for name in ("out/report.json", "out/denials.sarif"):  # of the run itself: not for it to change
    tried(lambda: open(name, "w"))
    tried(lambda: os.unlink(name))
    tried(lambda: os.rename(name, "mine"))
    tried(lambda: os.link(name, "mine"))
tried(lambda: os.rename("out", "moved"))
"""
OUTPUTS = ("--report", "out/report.json", "--sarif", "out/denials.sarif")


def valid(document: object) -> dict[str, object]:
    """The one run of a SARIF document, after the main demands of its schema."""
    assert isinstance(document, dict)
    assert (document["version"], len(document["runs"])) == ("2.1.0", 1)
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    assert set(run) <= {"tool", "invocations", "results", "originalUriBaseIds"}
    driver = run["tool"]["driver"]
    names = [rule["id"] for rule in driver["rules"]]
    assert driver["name"] == "pincer-trace"
    assert len(set(names)) == len(names)
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
        for key in ("startTimeUtc", "endTimeUtc"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", invocation[key])
    for base in run["originalUriBaseIds"].values():
        assert base["uri"].startswith("file:///")
        assert base["uri"].endswith("/")
    for result in run["results"]:
        assert set(result) <= {
            "ruleId", "ruleIndex", "level", "message", "locations", "occurrenceCount", "partialFingerprints",
            "properties",
        }  # fmt: skip
        assert names[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["occurrenceCount"] >= 1
        assert result["message"]["text"].isprintable()
        for location in result["locations"]:
            if "physicalLocation" in location:
                artifact = location["physicalLocation"]["artifactLocation"]
                assert re.fullmatch(r"[A-Za-z0-9._~/:%-]+", artifact["uri"])
                assert artifact["uri"].startswith("file:///") != ("uriBaseId" in artifact)
                assert artifact.get("uriBaseId", "%SRCROOT%") in run["originalUriBaseIds"]
            else:
                assert location["logicalLocations"][0]["fullyQualifiedName"]
    return run


def test_a_run_leaves_a_report_and_its_refusals_and_fails_by_policy(runner: support.Runner) -> None:
    sarif = give(runner, runner.work / "out/denials.sarif", b"x" * 100_000)
    report = sarif.with_name("report.json")
    program = ["sh", "-c", '$PYTHON -c "$DEEDS"']
    done = runner.supervise(program, options=("--fail-on", "deny", *OUTPUTS), env={"DEEDS": DEEDS})
    assert done.status == 123, done
    told = json.loads(report.read_text())
    denied = [entry for entry in done.decisions if entry["kind"] == "denied" and not entry.get("native")]
    assert told["counts"]["denied"] == len(denied) >= 13
    assert (told["state"], told["exit"], told["log"]["whole"]) == ("ended", 0, True)
    assert f"--fail-on deny: {len(denied)} denied, so the exit status is 123" in done.err
    run = valid(json.loads(sarif.read_text()))
    results = run["results"]
    assert sum(result["occurrenceCount"] for result in results) == len(denied)
    found = {
        (result["properties"]["effect"], result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]): result
        for result in results
    }
    hook = found["create", ".husky/a%20b%0A%5Bx%5D%23%25%C3%A9"]
    assert hook["ruleId"].startswith("default.toml:")
    assert (hook["level"], hook["properties"]["verdict"]) == ("warning", "confirm")
    assert found["chmod", f"file://{runner.home}"]["ruleId"] == "no-rule"
    assert found["create", f"file://{runner.home}/.npmrc"]["occurrenceCount"] == 3
    for name in ("out/report.json", "out/denials.sarif"):
        assert {effect for effect, where in found if where == name} >= {"unlink", "rename"}
    assert sorted(os.listdir(runner.work)) == [".husky", "made", "out"]
    assert stat.S_IMODE(report.stat().st_mode) == 0o644


def test_what_was_confirmed_fails_where_that_is_asked_for(runner: support.Runner) -> None:
    """And the command's own failure stays, whatever was refused."""
    program = ["sh", "-c", "echo > .vimrc"]
    done = runner.supervise(program, options=("--confirm", "auto", "--fail-on", "confirm"))
    assert done.status == 123, done
    assert "--fail-on confirm: 1 confirmed, so the exit status is 123" in done.err
    assert runner.supervise(program, options=("--confirm", "auto", "--fail-on", "deny", "-q")).status == 0
    done = runner.supervise(["sh", "-c", "echo > .vimrc; exit 7"], options=("--fail-on", "confirm"))
    assert done.status == 7, done
    assert "exit status is 123" not in done.err
    assert runner.supervise(["true"], options=("--fail-on", "confirm")).status == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_them_too(runner: support.Runner, number: int) -> None:
    """As a CI system ends it: a signal to the supervisor alone. By SIGKILL nothing, also of an earlier run."""
    words = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "-q", "--session-dir"]
    out = folder(runner, runner.work / "out")
    for name in ("report.json", "denials.sarif"):
        give(runner, out / name, b"of an earlier run")
    program = "echo > .vimrc 2> /dev/null; echo ready; exec sleep 100"
    words += [str(new_sessions(runner)), *OUTPUTS, "--fail-on", "deny", "--", "sh", "-c", program]
    env = support.environment(runner.identity, runner.home)
    with subprocess.Popen(
        words, cwd=runner.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, number)
        assert child.wait(60) in (-number, 128 + number)
        assert child.stdout.read() == b""  # all that had it have ended
    if number == signal.SIGKILL:
        assert [file.read_bytes() for file in out.iterdir()] == [b"", b""]
        return
    told = json.loads((out / "report.json").read_text())
    assert (told["exit"], told["state"], told["counts"]["denied"]) == (128 + number, "ended", 1)
    (result,) = valid(json.loads((out / "denials.sarif").read_text()))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == ".vimrc"


def test_a_file_that_cannot_be_written_is_told_before_anything_starts(runner: support.Runner) -> None:
    (runner.work / "fifo").touch()
    (runner.work / "fifo").unlink()
    os.mkfifo(runner.work / "fifo", 0o666)
    (runner.work / "link").symlink_to(runner.home / ".bashrc")  # an earlier run may leave such a thing
    (runner.work / "nowhere").symlink_to(runner.home / ".bash_login")
    (runner.home / ".bashrc").write_text("the user's")
    (runner.home / ".bashrc").chmod(0o666)
    (runner.work / "second").hardlink_to(runner.home / ".bashrc")
    for options, words in (
        (("--report", "none/x"), "--report none/x: cannot be written: No such file or directory; nothing was started"),
        (("--sarif", "."), "--sarif .: cannot be written: Is a directory; nothing was started"),
        (("--sarif", "fifo"), "--sarif fifo: "),
        (("--report", "link"), "--report link: cannot be written: it is a link; name the file itself; nothing was"),
        (("--sarif", "nowhere"), "--sarif nowhere: cannot be written: it is a link; name the file itself; nothing"),
        (("--report", "second"), "--report second: cannot be written: it has other names, too; nothing was started"),
        (("--report", ""), "--report: a file is needed; nothing was started"),
        (("--report", "x", "--sarif", "x"), "--report and --sarif name one file; nothing was started"),
        (("--report", "x", "--sarif", "none/y"), "--sarif none/y: cannot be written"),
        (("--report", "x", "-p", "nobody"), "no profile is named 'nobody'"),
    ):
        done = runner.supervise(["sh", "-c", "echo > started"], options=options)
        assert (done.status, done.out) == (125, ""), done
        assert done.err.startswith(f"pincer-trace: {words}"), done.err
        assert done.err.count("\n") == 1
    assert sorted(os.listdir(runner.work)) == ["fifo", "link", "nowhere", "second"]
    assert (runner.home / ".bashrc").read_text() == "the user's"


CI = (support.REPOSITORY / "docs/ci.md").read_text()


def test_the_commands_of_the_page_on_ci_do_what_it_says(runner: support.Runner) -> None:
    """Those of the example for GitHub Actions and of the other blocks, in order; but the one that installs."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", CI, re.M | re.S)
    steps = next(text for kind, text in blocks if kind == "yaml")
    lines = re.sub(r"\| *\n +", "", steps.replace("\\\n", ""))
    runs = [" ".join(line.split()) for line in re.findall(r"^ +- run: (.*)$", lines, re.M)]
    assert len(runs) == 3
    assert runs.pop(0).endswith('pip" install pincer-trace')
    commands = runs + [line for kind, text in blocks if not kind for line in text.splitlines()]
    assert len(commands) == 6
    place = runner.base / "temp/pincer/bin"
    place.mkdir(parents=True)
    (place / "pincer-trace").write_text(f'#!/bin/sh\nexec {runner.identity.python} -I -m pincer_trace "$@"\n')
    (place / "pincer-trace").chmod(0o755)
    (runner.work / "agent.py").write_text("open('out', 'w').write('1')\n")
    env = {"RUNNER_TEMP": str(runner.base / "temp"), "PATH": f"{place}:{support.SYSTEM_PATH}"}
    for command in commands:
        done = runner.native(["sh", "-euc", command], env=env)
        assert done.status == 0, (command, done)
    assert json.loads((runner.work / "report.json").read_text())["counts"]["denied"] == 0
    assert valid(json.loads((runner.work / "denials.sarif").read_text()))["results"] == []
    # and what another version does beside it fails
    (runner.work / "agent.py").write_text("try:\n    open('other', 'w')\nexcept OSError:\n    pass\n")
    assert runner.native(["sh", "-euc", commands[-1]], env=env).status == 123
