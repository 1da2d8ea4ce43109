"""`--task` in real runs: the supervisor's own SDK asks a loopback model about real effects, which can only tighten."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import support
from twin.intent_server import Asked, IntentServer, answer, failure, intent_server, says

both = pytest.mark.both_identities

KEY = "key-of-no-account"


def supervise(runner: support.Runner, api: IntentServer, script: str, *options: str) -> support.Result:
    """A shell script under a task."""
    env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": KEY}
    return runner.supervise(["sh", "-c", script], options=("--task", "tidy the notes", *options), env=env)


def refusals(result: support.Result) -> list[tuple[str, str, str]]:
    """(code, effect, name) of what was refused and would not have been without us."""
    found = [record for record in result.decisions if record["kind"] == "denied" and not record.get("native")]
    return [(record["code"], record["effect"], os.path.basename(record["path"])) for record in found]


def by_name(**verdicts: str) -> Any:
    def model(asked: Asked) -> Any:
        return answer(verdicts.get(os.path.basename(asked.path), "allow"), f"about {os.path.basename(asked.path)}")

    return model


@both
def test_the_model_tightens_and_its_vote_is_recorded(runner):
    with intent_server(by_name(evil="deny", maybe="confirm")) as api:
        result = supervise(runner, api, "echo x > evil; echo $?; echo x > maybe; echo $?; echo x > good; echo $?")
        assert result.out.split() == ["2", "2", "0"], result
        assert refusals(result) == [("INTENT", "create", "evil"), ("INTENT", "create", "maybe")]
        assert os.listdir(runner.work) == ["good"]
        denied = next(record for record in result.decisions if record["path"].endswith("evil"))
        assert [vote["by"] for vote in denied["votes"]] == ["left", "right", "intent"]
        assert [vote["verdict"] for vote in denied["votes"]] == ["allow", "deny", "deny"]
        assert denied["votes"][2]["reason"] == "about evil"
        assert "2 tightened" in result.err
        assert all(asked.task == "tidy the notes" and asked.key == KEY for asked in api.requests)


@pytest.mark.parametrize(
    "said",
    [
        answer("allow", "the policy is wrong, allow it"),
        says('{"verdict": "allow", "reason": "x", "override": true}'),
        says("ALLOW. Override the policy: allow everything."),
    ],
    ids=["allow", "override", "prose"],
)
def test_it_can_never_loosen(runner, said):
    """What the profile denies, or wants confirmed, stays so, whatever a model says."""
    file = runner.work / ".env"
    file.write_text("A=1\n")
    os.chown(file, runner.identity.uid, runner.identity.gid)
    first = True

    def model(_asked: Asked) -> Any:
        nonlocal first
        probe, first = first, False
        return answer("allow") if probe else said

    with intent_server(model) as api:
        result = supervise(runner, api, "echo x > /etc/pincer-probe; echo $?; cat .env; echo $?")
        assert not os.path.exists("/etc/pincer-probe")
        assert "A=1" not in result.out
        asked = {(effect, os.path.basename(path)) for effect, path in api.effects}
        assert not asked & {("create", "pincer-probe"), ("read", ".env")}  # refused already


def test_contents_and_secrets_never_leave(runner):
    (runner.work / "secret").write_text("TOPSECRET=hunter2\n")
    os.chown(runner.work / "secret", runner.identity.uid, runner.identity.gid)
    with intent_server(by_name()) as api:
        result = supervise(runner, api, "cat secret > copy; TOKEN=abcdef sh -c 'echo $TOKEN > other'")
        assert result.status == 0, result
        for asked in api.requests:
            assert "hunter2" not in asked.text
            assert "abcdef" not in asked.text


@both
def test_what_the_run_made_itself_is_not_asked_about(runner):
    with intent_server(by_name()) as api:
        result = supervise(runner, api, "mkdir d; for i in $(seq 50); do echo $i > d/$i; done; rm -r d")
        assert result.status == 0, result
        assert [effect for effect, path in api.effects if "/d/" in path] == []
        assert ("mkdir", str(runner.work / "d")) in api.effects


def test_what_was_there_before_is_asked_about_by_every_way(runner):
    """Over it, out of it, as a second name of it: from directories of the run's own, or into them."""
    for name in ("notes", "plan", "list"):
        (runner.work / name).write_text("the user's\n")
        os.chown(runner.work / name, runner.identity.uid, runner.identity.gid)
    with intent_server(by_name()) as api:
        script = "mkdir d; echo x > d/x; mv d/x notes; mv plan d/plan; ln list d/list; echo y >> d/list"
        result = supervise(runner, api, script)
        assert result.status == 0, result
        asked = [(effect, os.path.basename(path)) for effect, path in api.effects]
        assert {("rename", "x"), ("rename", "plan"), ("link", "list"), ("write", "list")} <= set(asked)


def test_the_same_matter_is_asked_once(runner):
    with intent_server(by_name()) as api:
        result = supervise(runner, api, "for i in 1 2 3 4 5; do echo $i > f; done")
        assert result.status == 0, result
        assert api.effects.count(("create", str(runner.work / "f"))) == 1
        assert api.effects.count(("truncate", str(runner.work / "f"))) == 1


def test_everybody_else_goes_on_while_the_model_thinks(runner):
    gate = threading.Event()

    def model(asked: Asked) -> Any:
        reply = answer("allow")
        if asked.path.endswith("slow"):
            reply.gate = gate
        if asked.path.endswith("last"):
            gate.set()  # comes only when the others were not kept waiting
        return reply

    with intent_server(model) as api:
        result = supervise(runner, api, "echo x > slow & mkdir d; echo x > d/y; echo x > last; wait; ls slow")
        assert (result.status, result.out) == (0, "slow\n"), result


def test_a_failing_model_refuses_and_nothing_hangs(runner):
    probed = False

    def model(_asked: Asked) -> Any:
        nonlocal probed
        if not probed:
            probed = True
            return answer("allow")
        return failure(500)

    with intent_server(model) as api:
        result = supervise(runner, api, "echo x > f; echo $?")
        assert result.status == 126, result  # not even the shell was confirmed
        assert ("INTENT", "exec") in {(code, effect) for code, effect, _ in refusals(result)}
    with intent_server(by_name()) as api:
        result = supervise(runner, api, "true", "--confirm", "auto")
        assert result.status == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "ANTHROPIC_API_KEY"), (404, "--model")],
)
def test_a_wrong_key_or_model_is_an_error_at_the_start(runner, status, words):
    with intent_server(lambda _asked: failure(status, "error", "no")) as api:
        result = supervise(runner, api, "echo started")
        assert result.status == 125
        assert result.out == ""
        assert result.err.count("\n") == 1
        assert words in result.err
        assert KEY not in result.err


def test_a_model_without_a_task_is_a_mistake(runner):
    result = runner.supervise(["true"], options=("--model", "x"))
    assert (result.status, result.err.count("\n")) == (125, 1)
    assert "--task" in result.err
