"""The real Claude Code on a real terminal, a person before it, who answers in the pane below."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import give
from hazards.programs.p_kit import new_sessions
from screens import Screen

sys.path.insert(0, str(Path(__file__).parent))
from messages_api import MessagesApi, say, use
from test_claude_code import claude, final_results

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]
__all__ = ["claude"]
KEY = "test-key-of-no-account-0123456789"
ABOVE, BELOW = ":.0", ":.1"


def settle(runner: support.Runner) -> None:
    """What a person has answered once: the theme, the handle that a broker gives, that the folder is trusted."""
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["-pincer-trace-handle"], "rejected": []},
        "projects": {str(runner.work): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    give(runner, runner.home / ".claude.json", json.dumps(answered).encode(), 0o600)


@pytest.mark.parametrize("answer", ["a", "d"], ids=["allowed", "denied"])
def test_a_write_outside_is_asked_about_in_the_pane(runner: support.Runner, claude: Path, answer: str) -> None:
    """Allowed, it lands, and the report says who allowed it; denied, the model is told why and goes on."""
    if support.PREFIX:
        pytest.skip("nothing is asked about natively")
    settle(runner)
    start_file = give(runner, runner.home / ".bashrc", b"# mine\n")
    give(runner, runner.work / "step.sh", f"echo 'export A=1' >> {start_file}\n".encode())
    turns = [
        [use("Bash", command="sh step.sh", description="append")],
        [use("Write", file_path=str(runner.work / "after.txt"), content="still here\n")],
        [say("Finished after all.")],
    ]
    sessions = new_sessions(runner)
    with MessagesApi(turns) as api, Screen(runner, 110, 46) as screen:
        environ = {
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }
        words = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
        words += [
            runner.identity.python,
            "-I",
            "-m",
            "pincer_trace",
            "--session-dir",
            str(sessions),
            "--confirm",
            "ask",
            "--allow-net",
            api.url.partition("//")[2],
        ]
        words += ["--", str(claude), "--allowedTools", "'Bash Write'", "--", "'Do it.'"]
        screen.type(" ".join(words))
        screen.see("~/.bashrc", BELOW)
        screen.tmux("select-pane", "-t", BELOW)
        (number,) = [line.split()[1] for line in screen.see("~/.bashrc", BELOW) if "~/.bashrc" in line]
        screen.keys(number)  # it asks about other things too, at its start
        screen.see(f"{answer} {'allow once' if answer == 'a' else 'deny'}", BELOW)
        screen.keys(answer)
        screen.tmux("select-pane", "-t", ABOVE)
        screen.see("Finished after all.", ABOVE)
        screen.keys("C-c")
        screen.keys("C-c")
        screen.see("reads allowed", ABOVE)
        assert (runner.work / "after.txt").read_text() == "still here\n"
        (step, _) = final_results(api)
        (session,) = [path for path in sessions.iterdir() if path.is_dir()]
        records = [json.loads(line) for line in (session / "ledger.jsonl").read_text().splitlines()]
        (given,) = [record for record in records if record["kind"] == "answer"]
        assert given["answer"] == ("once" if answer == "a" else "deny") and given["by"]["uid"] == runner.identity.uid
        if answer == "a":
            assert start_file.read_text() == "# mine\nexport A=1\n" and not step[0]
            assert any(given["seq"] in record.get("extra", {}).get("confirmed", ()) for record in records)
        else:
            assert start_file.read_text() == "# mine\n" and "ermission denied" in step[1]
            told = [json.dumps(request["messages"]) for request in api.requests]
            assert any("a person was asked and said no" in text for text in told)
        words = [*runner.identity.switch, runner.identity.python, "-I", "-m", "pincer_trace", "report", str(session)]
        report = subprocess.run(words, env=screen.environment, cwd=runner.base, capture_output=True, text=True)
        print(report.stdout)
        assert report.returncode == 0 and ("allowed once" if answer == "a" else "denied") in report.stdout
