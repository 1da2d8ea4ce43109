"""Agents from their registries in typical use, each under the profile that is taken for it by name: nothing is denied.

A scripted model on the loopback has them work in a linked work tree: files, edits, commits and branches, packages from
folders, a database, a server of their own, sub-processes, and whatever they save by themselves; then a second run takes
up the session of the first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import support

sys.path.insert(0, str(Path(__file__).parent))
import gemini_api as gemini_model
from messages_api import MessagesApi, say, tool_results, use
from responses_api import ResponsesApi, call, outputs
from responses_api import say as answer
from test_claude_code import (
    cache,
    claude,  # noqa: F401 - the fixture that installs it
)

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]

REPOSITORY = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
git init -q main && cd main && echo one > a.txt && git add . && git commit -qm one && git worktree add -q ../linked
mkdir -p ../linked/pkg ../linked/tool
printf '{"name": "pkg", "version": "1.0.0", "main": "index.js"}' > ../linked/pkg/package.json
echo 'module.exports = 7' > ../linked/pkg/index.js
git config --global user.name a; git config --global user.email a@x
"""
STEPS = [
    "git status --short && git log --oneline | wc -l",
    "git add a.txt note.txt && git commit -qm 'from the agent' && git show --stat HEAD | tail -1",
    "npm install --offline --no-audit --no-fund --loglevel=error --no-update-notifier ./pkg",
    "node -e 'console.log(require(\"pkg\"))'",
    "python3 -m venv --without-pip v && v/bin/python -c 'import tempfile; print(tempfile.mkdtemp())' && find v -delete",
    "for n in 1 2 3; do (sleep 0.1; echo $n > part$n) & done; wait; cat part*; rm part*",
    "find . -name '*.txt' | sort | head -3; grep -rn one . | head -2",
    "git switch -qc topic && echo t > t.txt && git add t.txt && git commit -qm topic && git switch -q - && "
    "git merge -q topic && git branch -qd topic && git rebase -q HEAD && git stash list && git gc -q",
    "git worktree add -q .trees/x && git -C .trees/x status -s && git worktree remove .trees/x && rmdir .trees",
    "mkdir -p src/deep && cp t.txt src/deep && mv src/deep src/far && ln -s far/t.txt src/link && "
    "chmod 600 src/link && tar czf t.tgz src && rm -r src && tar xzf t.tgz && rm -r src t.tgz",
    "printf 'all: out\\nout:\\n\\techo made > out\\n' > Makefile && make -s && cat out && rm Makefile out",
    "python3 -c \"import sqlite3; own = sqlite3.connect('x.db'); own.execute('create table t (a)')\" && rm x.db",
    'python3 -c "import http.server as h, threading, urllib.request as r; '
    "s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
    "threading.Thread(target=s.serve_forever, daemon=True).start(); "
    "print(r.urlopen('http://127.0.0.1:%d/t.txt' % s.server_port).read())\"",
]


def linked(runner: support.Runner) -> Path:
    """The linked work tree that the agent works in."""
    made = runner.native(["sh", "-euc", REPOSITORY])
    assert made.status == 0, made
    return runner.work / "linked"


def goes_on(runner: support.Runner, command: list[str], env: dict[str, str], tree: Path) -> None:
    """A later run takes up the session that an earlier one has saved; nothing is refused there either."""
    again = runner.supervise(command, options=(), env=env, cwd=tree, timeout=240)
    assert again.status == 0, again
    assert refused(again) == []


def refused(result: support.Result) -> list[str]:
    """What was denied, a line each."""
    lines = {
        f"{entry['exe']}: {entry['effect']} {entry['path']}: {entry['rule']}: {entry['reason']}"
        for entry in result.denied()
        if not entry.get("expected")
    }
    return sorted(lines)


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_claude_code_in_typical_use(runner: support.Runner, real_home: Path, claude: Path) -> None:  # noqa: F811
    tree = linked(runner)
    note = tree / "note.txt"
    turns = [
        [say("I look."), use("Read", file_path=str(tree / "a.txt"))],
        [use("Edit", file_path=str(tree / "a.txt"), old_string="one", new_string="two")],
        [use("Write", file_path=str(note), content="alpha\n")],
        *([use("Bash", command=step, description="step")] for step in STEPS),
        [say("All done.")],
    ]
    with MessagesApi(turns) as api:
        env = {"ANTHROPIC_API_KEY": "test-key-of-no-account", "ANTHROPIC_BASE_URL": api.url}
        command = [str(claude), "-p", "Do it.", "--output-format", "json", "--allowedTools", "Bash Write Edit Read"]
        result = runner.supervise(command, options=(), env=env, cwd=tree, timeout=240)
        assert result.status == 0, result
        results = max((tool_results(request) for request in api.requests), key=len)
        before = len(api.requests)
        goes_on(runner, [str(claude), "-c", "-p", "Once more."], env, tree)
        assert max(len(tool_results(request)) for request in api.requests[before:]) == len(results)
    assert json.loads(result.stdout)["result"] == "All done."
    assert [words for failed, words in results if failed] == []
    assert "profile claude, by the name of the program" in result.err
    assert refused(result) == []
    assert json.loads((result.session / "session.json").read_text())["profile"] == "claude"
    saved = [entry["path"] for entry in result.decisions if entry["effect"] in ("create", "rename")]
    for place in (".claude/projects/", ".claude/shell-snapshots/", ".claude.json"):
        assert any(place in path for path in saved), place
    assert os.listdir(tree / "node_modules")


@pytest.fixture(scope="session")
def python_agents() -> Path:
    """The bin of an environment with mini-swe-agent and smolagents. Skips, visibly, where they cannot be had."""
    folder = cache() / "python-agents"
    if not (folder / "bin/mini").exists() or not (folder / "bin/smolagent").exists():
        base = shutil.which("python3", path=support.SYSTEM_PATH) or sys.executable
        folder.parent.mkdir(parents=True, exist_ok=True)
        for words in (
            [base, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin/pip"), "install", "-q", "mini-swe-agent", "smolagents"],
        ):
            done = subprocess.run(words, capture_output=True, text=True, timeout=600)
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
                pytest.skip(f"{' '.join(words)}: {done.stderr.strip()[-300:]}")
    return folder / "bin"


@pytest.fixture
def real_home(runner: support.Runner) -> Iterator[Path]:
    """A home that lies in no directory for temporary things, where that can be made: there new files are free."""
    place = Path(tempfile.mkdtemp(dir="/var/lib" if os.access("/var/lib", os.W_OK) else None))
    os.chown(place, runner.identity.uid, runner.identity.gid)
    runner.home = place
    yield place
    support.remove_tree(place)


MODEL = {"model_class": "deterministic", "model_name": "scripted", "cost_per_call": 0}


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_mini_swe_agent_in_typical_use(runner: support.Runner, real_home: Path, python_agents: Path) -> None:
    """With a scripted model of its own; its trajectory is saved, its settings are not for its steps to change."""
    tree = linked(runner)
    steps = ["echo alpha > note.txt; sed -i s/one/two/ a.txt", *STEPS]
    steps += ["echo 'MSWEA_X=1' >> ~/.config/mini-swe-agent/.env", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    extra = [{"cost": 0, "timestamp": 1, "actions": [{"command": step}]} for step in steps]
    outputs = [{"role": "assistant", "content": "step", "extra": each} for each in extra]
    (runner.base / "model.yaml").write_text(json.dumps({"model": {**MODEL, "outputs": outputs}}))
    command = [str(python_agents / "mini"), "-t", "Do it.", "-y", "--exit-immediately", "-c", "mini.yaml"]
    env = {"MSWEA_CONFIGURED": "true"}
    result = runner.supervise(
        [*command, "-c", str(runner.base / "model.yaml")], options=(), env=env, cwd=tree, timeout=240
    )
    assert result.status == 0, result
    assert "profile python-agent, by the name of the program" in result.err
    (line,) = refused(result)
    assert f"{real_home}/.config/mini-swe-agent/.env: python-agent.toml:" in line
    saved = json.loads((real_home / ".config/mini-swe-agent/last_mini_run.traj.json").read_text())
    told = [each["extra"] for each in saved["messages"] if "returncode" in each.get("extra", {})]
    (failed,) = [each["raw_output"] for each in told if each["returncode"]]
    assert "ermission denied" in failed
    assert len(told) >= len(STEPS) + 2
    assert (tree / "a.txt").read_text() == "two\n"


AGENT = """
import sys
from smolagents import CodeAgent
from smolagents.models import ChatMessage, MessageRole, Model

STEPS = ["import subprocess; print(subprocess.run(%r, shell=True, capture_output=True, text=True))" % step
         for step in sys.argv[1:]] + ["final_answer('finished')"]

class Scripted(Model):
    def generate(self, messages, **_):
        text = "Thought: a step.\\n<code>\\n" + STEPS.pop(0) + "\\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)

print(CodeAgent(tools=[], model=Scripted(), additional_authorized_imports=["subprocess"]).run("Do it."))
"""


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_smolagents_in_typical_use(runner: support.Runner, real_home: Path, python_agents: Path) -> None:
    """A script of one's own, under the profile by its name."""
    tree = linked(runner)
    (tree / "agent.py").write_text(AGENT)
    command = [str(python_agents / "python"), "agent.py", "echo alpha > note.txt; sed -i s/one/two/ a.txt", *STEPS]
    result = runner.supervise(command, options=("-p", "python-agent"), cwd=tree, timeout=240)
    assert result.status == 0, result
    assert "finished" in result.out
    assert refused(result) == []
    assert (tree / "a.txt").read_text() == "two\n"


def from_npm(name: str, package: str) -> Path:
    """The folder of modules with this package, kept for later runs. Skips, visibly, where it cannot be had."""
    folder = cache() / name
    modules = folder / "node_modules"
    if not (modules / package).exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is missing (Debian package npm)")
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", package]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode != 0 or not (modules / package).exists():
            pytest.skip(f"npm cannot install {package}: {done.stderr.strip()[-300:]}")
    return modules


@pytest.fixture(scope="session")
def codex() -> Path:
    return sorted(from_npm("codex", "@openai/codex").glob("@openai/codex-linux-*/vendor/*/bin/codex"))[0]


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_codex_in_typical_use(runner: support.Runner, real_home: Path, codex: Path) -> None:
    """At its start it asks a public host for plugins, which is expected."""
    tree = linked(runner)
    steps = ["echo alpha > note.txt; sed -i s/one/two/ a.txt; cat a.txt", *STEPS]
    turns = [*([call("exec_command", cmd=step)] for step in steps), [answer("All done.")]]
    with ResponsesApi(turns) as api:
        env = {"CODEX_API_KEY": "test-key-of-no-account", "OPENAI_BASE_URL": f"{api.url}/v1"}
        command = [str(codex), "exec", "-s", "danger-full-access", "--json", "-m", "scripted"]
        result = runner.supervise([*command, "Do it."], options=(), env=env, cwd=tree, timeout=240)
        assert result.status == 0, result
        told = max((outputs(request) for request in api.requests), key=len)
        before = len(api.requests)
        goes_on(runner, [*command, "resume", "--last", "Once more."], env, tree)
        assert max(len(outputs(request)) for request in api.requests[before:]) == len(told)
        assert set(api.keys) == {"Bearer test-key-of-no-account"}  # by the broker
    assert '"text":"All done."' in result.out
    assert len(told) == len(steps)
    assert [words for words in told if "exited with code 0" not in words] == []
    assert "profile codex, by the name of the program" in result.err
    assert refused(result) == []
    saved = [entry["path"] for entry in result.decisions if entry["effect"] in ("create", "rename")]
    assert any(f"{real_home}/.codex/sessions/" in path for path in saved)
    assert (tree / "a.txt").read_text() == "two\n"


@pytest.fixture(scope="session")
def opencode() -> Path:
    """What npm's `opencode` leads to."""
    return (from_npm("opencode", "opencode-ai") / ".bin/opencode").resolve()


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_opencode_in_typical_use(runner: support.Runner, real_home: Path, opencode: Path) -> None:
    """Its package for plugins is expected to be refused, and a line in the settings of its snapshots."""
    tree = linked(runner)
    note = tree / "note.txt"
    turns = [
        [say("I look."), use("read", filePath=str(tree / "a.txt"))],
        [use("edit", filePath=str(tree / "a.txt"), oldString="one", newString="two")],
        [use("write", filePath=str(note), content="alpha\n")],
        *([use("bash", command=step, description="step")] for step in STEPS),
        [say("All done.")],
    ]
    with MessagesApi(turns) as api:
        env = {"ANTHROPIC_API_KEY": "test-key-of-no-account", "ANTHROPIC_BASE_URL": f"{api.url}/v1"}
        command = [str(opencode), "run", "--model", "anthropic/claude-sonnet-4-5", "--format", "json"]
        result = runner.supervise([*command, "Do it."], options=(), env=env, cwd=tree, timeout=240)
        assert result.status == 0, result
        results = max((tool_results(request) for request in api.requests), key=len)
        before = len(api.requests)
        goes_on(runner, [*command, "-c", "Once more."], env, tree)
        assert max(len(tool_results(request)) for request in api.requests[before:]) == len(results)
        assert set(api.keys) == {"test-key-of-no-account"}  # by the broker
    assert '"text":"All done."' in result.out
    assert len(results) == len(turns) - 1
    assert [words for failed, words in results if failed] == []
    assert "profile opencode, by the name of the program" in result.err
    assert refused(result) == []
    saved = [entry["path"] for entry in result.decisions if entry["effect"] in ("create", "rename")]
    state = f"{real_home}/.local/share/opencode/"
    assert any(path.startswith(state + "opencode.db") for path in saved)
    assert any(path.startswith(state + "snapshot/") and "/objects/" in path for path in saved)
    assert (tree / "a.txt").read_text() == "two\n"
    assert os.listdir(tree / "node_modules")


@pytest.fixture(scope="session")
def gemini() -> Path:
    """What npm's `gemini` leads to, a script for Node."""
    return (from_npm("gemini", "@google/gemini-cli") / ".bin/gemini").resolve()


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
def test_gemini_in_typical_use(runner: support.Runner, real_home: Path, gemini: Path) -> None:
    tree = linked(runner)
    path, note = str(tree / "a.txt"), str(tree / "note.txt")
    identity = "git config user.name a && git config user.email a@x"  # it gives git none of the user's settings
    call = gemini_model.call
    turns = [
        [gemini_model.say("I look."), call("read_file", file_path=path)],
        [call("replace", file_path=path, old_string="one", new_string="two", instruction="two")],
        [call("write_file", file_path=note, content="alpha\n")],
        *([call("run_shell_command", command=step, description="step")] for step in (identity, *STEPS)),
        [gemini_model.say("All done.")],
    ]
    settings = real_home / ".gemini/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    for made in (settings.parent, settings):
        os.chown(made, runner.identity.uid, runner.identity.gid)
    with gemini_model.GeminiApi(turns) as api:
        env = {"GEMINI_API_KEY": "test-key-of-no-account", "GOOGLE_GEMINI_BASE_URL": api.url}
        env["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
        command = [str(gemini), "-m", gemini_model.MODEL, "--approval-mode", "yolo", "--output-format", "json", "-p"]
        result = runner.supervise([*command, "Do it."], options=(), env=env, cwd=tree, timeout=240)
        assert result.status == 0, result
        told = max((gemini_model.responses(request) for request in api.requests), key=len)
        before = len(api.requests)
        goes_on(runner, [*command, "Once more.", "--resume", "latest"], env, tree)
        assert max(len(gemini_model.responses(request)) for request in api.requests[before:]) >= len(told)  # twice
        assert set(api.keys) == {"test-key-of-no-account"}  # by the broker
    assert json.loads(result.stdout)["response"] == "All done."
    assert len(told) == len(turns) - 1
    assert [words for words in told if "error" in words or "Exit Code: " in words["output"]] == []
    assert "profile gemini, by the name of the program" in result.err
    assert refused(result) == []
    saved = [entry["path"] for entry in result.decisions if entry["effect"] in ("create", "rename")]
    assert any(f"{real_home}/.gemini/tmp/" in path and "/chats/" in path for path in saved)
    assert Path(path).read_text() == "two\n"
    assert os.listdir(tree / "node_modules")
