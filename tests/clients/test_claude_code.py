"""The real Claude Code against a scripted model: it writes, reads, edits and runs a shell; a denied write
reaches the model.

The client comes from npm into a cache folder on first use (some 250 MB) and never into the project.
PINCER_TEST_CACHE names another folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import support

sys.path.insert(0, str(Path(__file__).parent))
from messages_api import MessagesApi, say, tool_results, use

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]
PACKAGE = "@anthropic-ai/claude-code"
KEY = "test-key-of-no-account"


def cache() -> Path:
    """Where clients are kept: readable by the unprivileged identity also when we are root."""
    if chosen := os.environ.get("PINCER_TEST_CACHE"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/cache/pincer-trace-tests")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pincer-trace-tests"


@pytest.fixture(scope="session")
def claude() -> Path:
    """The client's binary. Skips, visibly, where npm is missing or cannot reach its registry."""
    folder = cache() / "claude-code"

    def installed() -> list[Path]:
        return sorted((folder / "node_modules" / "@anthropic-ai").glob("claude-code-linux-*/claude"))

    if not installed():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is missing (Debian package npm)")
        folder.mkdir(parents=True, exist_ok=True)
        words = [
            npm,
            "install",
            "--prefix",
            str(folder),
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            PACKAGE,
        ]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode != 0 or not installed():
            pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-300:]}")
    binary = next((path for path in installed() if "musl" not in path.parent.name), installed()[0])
    if not os.access(binary, os.X_OK):
        pytest.skip(f"{binary} is not executable")
    return binary


def run(
    runner: support.Runner, claude: Path, api: MessagesApi, supervised: bool
) -> tuple[support.Result, dict[str, Any]]:
    """One `claude -p` run; the result and the JSON that it prints."""
    env = {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    command = [str(claude), "-p", "Do it.", "--output-format", "json", "--add-dir", str(runner.home)]
    command += ["--allowedTools", "Bash Write Edit Read"]
    how: dict[str, Any] = {"env": env, "timeout": 180}
    options = ("--allow-net", api.url.partition("//")[2])  # the model's stand-in
    result = runner.supervise(command, options=options, **how) if supervised else runner.native(command, **how)
    assert result.status == 0, result
    return result, json.loads(result.stdout)


def final_results(api: MessagesApi) -> list[tuple[bool, str]]:
    """The tool results of the last and longest conversation."""
    return max((tool_results(request) for request in api.requests), key=len)


@pytest.mark.parametrize("supervised", [False, True], ids=["native", "supervised"])
def test_claude_code_writes_reads_edits_and_runs(runner: support.Runner, claude: Path, supervised: bool) -> None:
    """Four tools in a row; the files and what the model is told are as without us."""
    note = runner.work / "note.txt"
    turns = [
        [say("I write."), use("Write", file_path=str(note), content="alpha\nbeta\n")],
        [use("Read", file_path=str(note))],
        [use("Edit", file_path=str(note), old_string="beta", new_string="gamma")],
        [
            use(
                "Bash",
                command="mkdir -p made && cp note.txt made/copy.txt && cat made/copy.txt | wc -l",
                description="copy",
            )
        ],
        [say("All done.")],
    ]
    with MessagesApi(turns) as api:
        result, answer = run(runner, claude, api, supervised)
    assert answer["is_error"] is False
    assert answer["result"] == "All done."
    results = final_results(api)
    assert [failed for failed, _ in results] == [False] * 4, results
    assert "beta" in results[1][1]
    assert results[3][1].strip() == "2"
    assert note.read_text() == (runner.work / "made/copy.txt").read_text() == "alpha\ngamma\n"
    assert sorted(os.listdir(runner.work)) == ["made", "note.txt"]
    if supervised and not support.PREFIX:
        allowed = [entry for entry in result.decisions if entry["verdict"] == "allow"]
        effects = {
            entry["effect"] for entry in allowed if str(note) in (entry["path"], *entry.get("extra", {}).values())
        }
        assert {"rename", "write", "create"} & effects, effects


def test_claude_code_is_told_of_a_denied_write(runner: support.Runner, claude: Path) -> None:
    """A write to a protected file changes nothing, the model reads an error, and the next tool works."""
    if support.PREFIX:
        pytest.skip("nothing is denied natively")
    start_file = runner.home / ".bashrc"
    start_file.write_text("# mine\n")
    os.chown(start_file, runner.identity.uid, runner.identity.gid)
    new_file = runner.home / ".kshrc"  # where that lies, new files may be made: it is the name that is protected
    # in a script: what Claude Code reads in a command line it may refuse by itself
    (runner.work / "step.sh").write_text(f"echo 'touch /tmp/owned' >> {start_file}\n")
    turns = [
        [use("Write", file_path=str(new_file), content="# not asked for\n")],
        [use("Bash", command="sh step.sh", description="append")],
        [use("Write", file_path=str(runner.work / "after.txt"), content="still here\n")],
        [say("Finished anyway.")],
    ]
    with MessagesApi(turns) as api:
        result, answer = run(runner, claude, api, supervised=True)
    results = final_results(api)
    assert [failed for failed, _ in results] == [True, True, False], results
    assert "EACCES" in results[0][1] or "ermission denied" in results[0][1]
    assert "ermission denied" in results[1][1]
    assert start_file.read_text() == "# mine\n"
    assert not new_file.exists()
    assert (runner.work / "after.txt").read_text() == "still here\n"
    assert answer["result"] == "Finished anyway."
    assert result.denied(start_file)
    assert any(entry["path"].startswith(str(new_file)) for entry in result.denied())


def test_claude_code_works_with_a_key_that_it_never_holds(runner: support.Runner, claude: Path) -> None:
    """The key arrives with each request. What leaves in them holds none, whatever its tools look at; nor
    does what the agent keeps of it.
    """
    if support.PREFIX:
        pytest.skip("natively it holds it")
    look = (
        "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -a -e _API_KEY= -e account\n"
        "curl -s $ANTHROPIC_BASE_URL/v1/models"
    )
    (runner.work / "look.sh").write_text(look + "\n")
    turns = [[use("Bash", command="sh look.sh", description="look")], [say("Seen.")]]
    with MessagesApi(turns) as api:
        result, answer = run(runner, claude, api, supervised=True)
    assert answer["result"] == "Seen."
    assert len(api.keys) >= 2 and set(api.keys) == {KEY}
    (seen,) = final_results(api)
    assert "-pincer-trace-handle" in seen[1] and "authentication_error" in seen[1]
    assert KEY not in json.dumps(api.requests) + result.out + result.err
    kept = [path for path in runner.base.rglob("*") if path.is_file() and not path.is_symlink()]
    assert kept and not any(KEY.encode() in path.read_bytes() for path in kept)


def test_claude_code_edits_secrets_that_it_never_sees(runner: support.Runner, claude: Path) -> None:
    """It reads `.env`, adds variables, and runs the program that uses the file: no secret leaves in a request.

    After a write it compares the size on disk, which is that of the file and not of the view, and calls the edit
    failed; what is true is told to the model in the same step.
    """
    if support.PREFIX:
        pytest.skip("natively it sees them")
    secrets = "# canary-0\nAPI_KEY=canary-1\nDEBUG=canary-2\nDB=postgres://u:canary-3@h/d\n"
    file = runner.work / ".env"
    file.write_text(secrets)
    file.chmod(0o640)
    (runner.work / "app.sh").write_text(". ./.env; echo started on $PORT for $HOST_NAME with $API_KEY\n")
    for path in (file, runner.work / "app.sh"):
        os.chown(path, runner.identity.uid, runner.identity.gid)
    turns = [
        [use("Read", file_path=str(file))],
        [use("Edit", file_path=str(file), old_string="DEBUG=", new_string="PORT=8080\nDEBUG=")],
        [use("Read", file_path=str(file))],
        [use("Edit", file_path=str(file), old_string="API_KEY=", new_string="HOST_NAME=h\nAPI_KEY=")],
        [use("Bash", command="sh app.sh; cat .env app.sh; grep -r canary . ; env", description="run it")],
        [say("It runs.")],
    ]
    with MessagesApi(turns) as api:
        result, answer = run(runner, claude, api, supervised=True)
    assert answer["result"] == "It runs."
    results = final_results(api)
    assert [failed for failed, _ in results] == [False, True, False, True, False], results
    assert all("bytes on disk, expected" in results[number][1] for number in (1, 3)), results
    assert not list(Path("/tmp").glob(f"pincer-trace-told-{result.session.name}-*"))
    hooked = json.dumps(api.requests)
    assert "was saved, with each handle as what it stands for" in hooked
    assert "PORT=pincer:" in results[2][1]
    assert "API_KEY=pincer:" in results[0][1]
    assert "started on pincer:" in results[4][1]
    sent = json.dumps(api.requests)
    assert "canary-" not in sent + result.out + result.err
    wanted = secrets.replace("API_KEY", "HOST_NAME=h\nAPI_KEY").replace("DEBUG", "PORT=8080\nDEBUG")
    assert file.read_text() == wanted
    assert file.stat().st_mode & 0o777 == 0o640
    kept = [path for path in runner.base.rglob("*") if path.is_file() and not path.is_symlink() and path != file]
    assert kept and not any(b"canary-" in path.read_bytes() for path in kept if path.name != "app.sh")


def told(request: dict[str, Any]) -> list[str]:
    """What pincer-trace's hook said up to a request, a piece each."""
    pieces = []
    for message in request["messages"]:
        content = message["content"]
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            text = block.get("text", "") if block["type"] == "text" else ""
            if "which refused the following" in text:
                pieces.append(text)
    return pieces


def test_the_next_model_turn_hears_of_a_refusal_once(runner: support.Runner, claude: Path) -> None:
    """By Claude Code's own hooks: what was refused, by which rule, and what to do, in the request after that step."""
    if support.PREFIX:
        pytest.skip("nothing is denied natively")
    start_file = runner.home / ".bashrc"
    start_file.write_text("# mine\n")
    os.chown(start_file, runner.identity.uid, runner.identity.gid)
    (runner.work / "step.sh").write_text(f"echo 'touch /tmp/owned' >> {start_file}\n")
    again = use("Bash", command="sh step.sh", description="append")
    turns = [
        [use("Bash", command="echo fine", description="nothing to tell")],
        [again, use("Bash", command="echo beside", description="in the same step")],
        [again],
        [use("Write", file_path=str(runner.home / ".kshrc"), content="# not asked for\n")],
        [say("Finished anyway.")],
    ]
    with MessagesApi(turns) as api:
        result, answer = run(runner, claude, api, supervised=True)
    assert answer["result"] == "Finished anyway."
    assert result.err.count("--settings") == 1 and str(result.session / "claude.json") in result.err
    steps = {len(tool_results(request)): told(request) for request in api.requests if request.get("tools")}
    assert sorted(steps) == [0, 1, 3, 4, 5]
    assert steps[0] == steps[1] == []
    [first] = steps[3]
    assert f'"{start_file}" was refused' in first and "default.toml:" in first and "Do not try it again" in first
    assert f"--allow-write '{start_file}'" in first
    assert steps[4] == steps[3]  # a repeat is counted, not repeated
    assert steps[5][:1] == [first] and len(steps[5]) == 2
    assert ".kshrc" in steps[5][1] and ".bashrc" not in steps[5][1]
    assert sum(".bashrc" in line for line in (result.session / "denials.txt").read_text().splitlines()) == 1
