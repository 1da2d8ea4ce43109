"""Real runs: what a command has in the place of its key, and what it can make of that."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
import support
from broker.conftest import KEY, Origin, ok
from hazards.programs.p_kit import Live, children, kill, name, state, until

# Looks for the key wherever a process of the run may look, then uses its handle by the SDK and by curl.
WORKER = """
import json, os, subprocess, sys, urllib.request
import anthropic
said = {"env": dict(os.environ)}
child = subprocess.Popen(["sleep", "60"])
found = []
for pid in [pid for pid in os.listdir("/proc") if pid.isdigit()]:
    for name in ("environ", "cmdline"):
        try:
            found.append(open(f"/proc/{pid}/{name}", "rb").read())
        except OSError:
            pass  # of another user, or it has ended
child.kill(); child.wait()
said["seen"] = b"".join(found).decode("latin-1")
client = anthropic.Anthropic()
message = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
said["text"] = message.content[0].text
with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
    said["streamed"] = "".join(stream.text_stream)
url, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"]
curl = ["curl", "-s", "-i", url + "/echo", "-H", "x-api-key: " + key]
said["curl"] = subprocess.run(curl, capture_output=True, text=True).stdout
said["wrong"] = subprocess.run([*curl, "-H", "x-api-key: sk-guessed"], capture_output=True, text=True).stdout
print(json.dumps(said))
"""

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "all done"}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip


def keys(request) -> list[str]:
    """What came in either header: releases of the SDK use the one or the other."""
    return request["x-api-key"] + [value.removeprefix("Bearer ") for value in request["authorization"]]


def api(request, _line) -> bytes:
    """The Messages API, and an echo of what it was sent."""
    if request.target == "/echo":
        return ok(request.raw, b"x-echo: " + request["x-api-key"][0].encode())
    if b'"stream":true' not in request.body.replace(b" ", b""):
        return ok(json.dumps(MESSAGE).encode(), b"content-type: application/json")
    from clients.messages_api import events

    text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events(MESSAGE))
    return ok(text.encode(), b"content-type: text/event-stream")


def test_a_command_uses_a_key_that_it_never_holds(runner: support.Runner) -> None:
    """By the real SDK, streaming and not, and by curl, under the default profile."""
    if support.PREFIX:
        pytest.skip("natively it holds it")
    if not shutil.which("curl"):
        pytest.skip("curl is missing")
    with Origin() as origin:
        origin.answer, upstream = api, origin.url
        env = {
            "ANTHROPIC_BASE_URL": origin.url,
            "ANTHROPIC_API_KEY": KEY,
            "HTTP_PROXY": "http://127.0.0.1:1",
            "NO_PROXY": "x",
        }
        command = [runner.identity.python, "-c", WORKER]
        result = runner.supervise(command, options=(), env=env)
        assert result.status == 0, result
        sent = [(request.target, keys(request)) for request in origin.requests]
    assert sent == [("/v1/messages", [KEY]), ("/v1/messages", [KEY]), ("/echo", [KEY])]
    said = json.loads(result.out)
    assert KEY not in result.out + result.err
    handle, url = said["env"]["ANTHROPIC_API_KEY"], said["env"]["ANTHROPIC_BASE_URL"]
    assert handle.endswith("-pincer-trace-handle") and handle in said["seen"] and handle not in result.err
    assert said["text"] == said["streamed"] == "all done"
    assert said["env"]["NO_PROXY"] == "x,127.0.0.1"
    assert "*" * len(KEY) in said["curl"] and said["wrong"].startswith("HTTP/1.1 401")
    assert f"ANTHROPIC_API_KEY: kept by the broker anthropic, which uses it for {upstream} alone" in result.err
    to = f"//{url.removeprefix('http://')}"
    reached = [entry for entry in result.decisions if entry["path"] == to]
    assert reached and {entry["verdict"] for entry in reached} == {"allow"}
    assert all("broker anthropic" in entry["reason"] for entry in reached)
    report = runner.subcommand("report", result.session)
    assert report.returncode == 0 and to[2:] in report.stdout, report
    assert not any(KEY.encode() in path.read_bytes() for path in runner.base.rglob("*") if path.is_file())


def test_what_becomes_of_a_variable(runner: support.Runner) -> None:
    """Passed by name, it is the key itself and there is no broker; a profile can have another one, or none, and the key
    in a file that is closed to the command.
    """
    if support.PREFIX:
        pytest.skip("natively it holds it")
    show = ["sh", "-c", 'echo "$ANTHROPIC_API_KEY $MY_KEY $MY_URL"; cat key 2>&1']
    key = runner.work / "key"
    key.write_text("sk-of-a-file-0123456789\n")
    os.chown(key, runner.identity.uid, runner.identity.gid)
    profile = runner.base / "p.toml"
    table = f'name = "mine"\nupstream = "http://127.0.0.1:1/v1"\nbase_url = "MY_URL"\nfile = "{key}"\n'
    profile.write_text(
        'extends = "default"\n[[broker]]\nname = "anthropic"\nupstream = "https://x"\nbase_url = "X"\nvariables = []\n'
        f'[[broker]]\n{table}variables = ["MY_KEY"]\n'
    )
    env = {"ANTHROPIC_API_KEY": KEY}
    result = runner.supervise(show, options=("--pass-env", "ANTHROPIC_API_KEY"), env=env)
    assert result.out.splitlines()[0] == f"{KEY}  " and "broker" not in result.err
    result = runner.supervise(show, options=("-p", str(profile)), env=env)
    first, second = result.out.splitlines()
    assert first.split()[0].endswith("-pincer-trace-handle") and first.split()[1].startswith("http://127.0.0.1:")
    assert "ermission denied" in second and "sk-of-a-file" not in result.out
    assert "not passed on, since they hold credentials: ANTHROPIC_API_KEY" in result.err
    result = runner.supervise(show, options=("-p", str(profile)), env={"MY_URL": "file:///x"})
    assert result.status == 125 and "broker mine: MY_URL=file:///x: neither https:// nor http://" in result.err
    assert len(result.err.splitlines()) == 1


CODEX = """#!/bin/sh
echo "$*"
env
url=${2#*\\"} && url=${url%\\"}
curl -s "$url/models" -H "Authorization: Bearer $CODEX_API_KEY"
"""


def test_a_program_is_told_of_its_broker_by_arguments(runner: support.Runner) -> None:
    """Codex reads no variable for that. Where the person's own leads elsewhere, that is the upstream."""
    if support.PREFIX:
        pytest.skip("natively it holds it")
    if not shutil.which("curl"):
        pytest.skip("curl is missing")
    program = runner.work / "codex"
    program.write_text(CODEX)
    program.chmod(0o755)
    with Origin() as origin:
        origin.answer = lambda _request, _line: ok(b"these models")
        env = {"OPENAI_BASE_URL": f"{origin.url}/v1", "CODEX_API_KEY": KEY, "OPENAI_API_KEY": "sk-of-another-provider"}
        result = runner.supervise([str(program), "exec", "hi"], options=(), env=env)
        assert result.status == 0, result
        assert [(request.target, request["authorization"]) for request in origin.requests] == [
            ("/v1/models", [f"Bearer {KEY}"])
        ]
    first, *rest = result.out.splitlines()
    assert re.fullmatch(r'-c openai_base_url="http://127\.0\.0\.1:[0-9]+" exec hi', first)
    assert rest[-1] == "these models"
    assert not any(line.startswith(("OPENAI_BASE_URL", "OPENAI_API_KEY")) for line in rest)
    assert KEY not in result.out + result.err
    assert "added to the command, for that broker: -c openai_base_url=" in result.err
    assert "not passed on, since they hold credentials: OPENAI_API_KEY" in result.err


def test_the_broker_ends_with_the_run(runner: support.Runner) -> None:
    """And when its engine is killed."""
    if support.PREFIX:
        pytest.skip("there is none")
    with Live(runner, ["sh", "-c", "echo ready; read line"], env={"ANTHROPIC_API_KEY": KEY}) as live:
        assert live.line() == "ready"
        (broker,) = (pid for pid in children(live.front) if name(pid) == "pincer-broker")
        kill(live.engine)
        for _ in until("the broker's end", 5.0):
            if state(broker) in "XZ":
                break
    result = runner.supervise(["sh", "-c", "exit 7"], env={"ANTHROPIC_API_KEY": KEY})
    assert result.status == 7  # that no process is left behind is looked at after each test
