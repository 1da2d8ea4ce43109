"""What a trace tells of a run, what its assertions accept, and what they say when they do not."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pincer_trace.pytest_plugin import Pincer
from pincer_trace.testing import CannotStart, TimedOut, Trace, launcher, supervise

from .conftest import House

COMMAND = [sys.executable, "-I", "-S", "agent.py"]
PYTHON = Path(sys.executable).resolve().name
SHELL = Path("/bin/sh").resolve().name


def message(check: object, *arguments: object, **more: object) -> str:
    with pytest.raises(AssertionError) as failed:
        check(*arguments, **more)  # type: ignore[operator]
    return str(failed.value)


def test_a_run_and_all_that_may_be_asserted_of_it(pincer: Pincer, house: House) -> None:
    trace = pincer.run(COMMAND, cwd=house.work, home=house.home)
    trace.assert_exit(3)
    assert trace.stdout == ".ssh/id_ed25519 Permission denied\n"
    assert "said" in trace.stderr
    assert "pincer-trace" not in trace.stderr
    what_there_is(trace, house)
    what_is_accepted(trace, house)
    what_is_said(trace, house)


def what_there_is(trace: Trace, house: House) -> None:
    assert [(call.effect, call.path, call.program) for call in trace.denials] == [
        ("read", f"{house.home}/.ssh/id_ed25519", name) for name in (PYTHON, "cat")
    ]
    inner = trace.denials[1].process
    assert inner is not None
    assert [each.program for each in inner.ancestors()] == [SHELL, PYTHON]
    assert trace.processes[0] is inner.ancestors()[-1]
    assert {call.path for call in trace.reads} >= {f"{house.home}/notes.txt", f"{house.work}/agent.py"}
    assert [call.effect for call in trace.peers] == ["connect"]
    assert {call.effect for call in trace.effects} >= {"create", "rename", "unlink", "mkdir", "exec", "connect"}
    assert {(change.what, change.path) for change in trace.changes} == {
        ("created", f"{house.work}/{name}") for name in ("made.txt", "sub", "sub/new", "shell.txt")
    }
    assert len(trace.find("rename", "{workspace}/sub/new")) == 1  # by its goal


def what_is_accepted(trace: Trace, house: House) -> None:
    trace.assert_denied(effect="read", path="~/.ssh/**")
    trace.assert_denied(path="{home}/.ssh/id_ed25519")
    trace.assert_denied("read", house.home / ".ssh")
    trace.assert_allowed(effect="create", path="made.txt")
    trace.assert_allowed("change", "{workspace}/sub/*")
    trace.assert_allowed("connect", "//127.0.0.1:*")
    trace.assert_only_writes("{workspace}/**")
    trace.assert_only_writes("made.txt", "./{sub,gone}/**", "**/shell.txt")
    trace.assert_only_writes(house.work)
    trace.assert_unchanged(house.home)
    trace.assert_unchanged("~/.ssh")
    trace.assert_unchanged(house.work / "gone")  # made, and removed again
    trace.assert_no_network(but=["//127.0.0.0/8:*"])
    trace.assert_viewed("**/.env")


def what_is_said(trace: Trace, house: House) -> None:
    said = message(trace.assert_exit)
    assert said.startswith("exit status 3, expected 0: ")
    assert re.search(rf"by cat \(\d+\), of {SHELL} \(\d+\), of {PYTHON} \(\d+\)\n +default\.toml:\d+: SSH keys", said)
    assert "    .ssh/id_ed25519 Permission denied" in said
    said = message(trace.assert_only_writes, "{workspace}/sub/**")
    assert said.startswith("4 changes of other files than {workspace}/sub/**\n")
    assert f"allowed create {house.work}/made.txt (record " in said
    assert "the work tree" in said
    assert "shell.txt" in message(trace.assert_only_writes)
    said = message(trace.assert_no_network)
    assert said.startswith("1 connection to the network, expected none\n")
    assert "connect //127.0.0.1:" in said
    said = message(trace.assert_unchanged, "{workspace}/sub")
    assert f"created {house.work}/sub/new\n" in said
    assert "rename" in said
    assert "was never asked for" in message(trace.assert_denied, "read", "~/.aws/**")
    assert "allowed create" in message(trace.assert_denied, "create", "made.txt")
    assert "SSH keys" in message(trace.assert_allowed, "read", "~/.ssh/**")
    nearest = message(trace.assert_denied, "write", "~/.ssh/id_ed25519")
    assert "nearest" in nearest
    assert "denied read" in nearest
    assert message(trace.assert_no_denials).startswith("2 denials, expected none\n")
    assert "notes.txt was no view" in message(trace.assert_viewed, "~/notes.txt")
    assert "never asked for, expected a view" in message(trace.assert_viewed, "x.env")
    assert "read .env was allowed" in (said := message(trace.assert_denied, "read", ".env"))
    assert f"allowed read {house.work}/.env as a view" in said
    for wrong in ("{nowhere}/x", "/a//b", "//10.0.0.1/8:1"):
        with pytest.raises(ValueError, match="is no pattern"):
            trace.assert_only_writes(wrong)
    with pytest.raises(ValueError, match="no effect 'delete'"):
        trace.find("delete")


def test_scripts_are_known_by_their_own_names(pincer: Pincer, house: House) -> None:
    """Also through `env`, and in a process that was forked from them."""
    tool = house.work / "tool"
    tool.write_text("#!/usr/bin/env sh\n(: > made; true)\n: > also\n")
    tool.chmod(0o755)
    trace = pincer.run(["sh", "-c", "./tool; ./tool"], cwd=house.work, home=house.home)
    assert {(call.program, call.by) for call in trace.find("change")} == {("tool", f"{SHELL} > tool")}


def test_what_cannot_run_says_why(pincer: Pincer, house: House) -> None:
    with pytest.raises(CannotStart, match="nosuchprogram: command not found on PATH"):
        pincer.run(["nosuchprogram"], cwd=house.work, home=house.home)
    with pytest.raises(CannotStart, match=r"none\.toml"):
        pincer.run(["true"], cwd=house.work, home=house.home, profile=house.work / "none.toml")
    with pytest.raises(CannotStart, match=r"an option is unknown or its value is wrong; .* --no-such-option$"):
        pincer.run(["true"], cwd=house.work, home=house.home, options=["--no-such-option"])
    with pytest.raises(CannotStart, match=r"/notes\.txt' is no directory and cannot be made: File exists"):
        pincer.run(["true"], cwd=house.work, home=house.home / "notes.txt")
    with pytest.raises(CannotStart, match=r"/none: No such file or directory; nothing was started"):
        pincer.run(["true"], cwd=house.work / "none", home=house.home)


@pytest.mark.parametrize(
    ("command", "more", "told"),
    [
        ("echo hello", {}, "a command is a list of words, not 'echo hello'; for a shell's line"),
        (["sleep", 0], {}, "a word of a command is text or a path, not 0"),
        (["echo", "a\0b"], {}, "holds NUL"),
        ([], {}, "the list is empty"),
        (["true"], {"confirm": "yes"}, "confirm is one of deny, ask, auto, not 'yes'"),
        (["true"], {"timeout": None}, "timeout is a number of seconds, more than none, not None"),
        (["true"], {"timeout": 0}, "more than none, not 0"),
        (["true"], {"env": {"A": 1}}, "env: 'A': 1; a variable is text"),
    ],
)
def test_a_wrong_use_is_told_before_anything_starts(command: list[str], more: dict[str, object], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        supervise(command, **more)  # type: ignore[arg-type]


def test_options_input_and_environment(pincer: Pincer, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "1")
    monkeypatch.setenv("TAKEN", "1")
    profile = house.home / "own.toml"
    profile.write_text('extends = "default"\n[[rule]]\neffects = ["create"]\npaths = ["{workspace}/**"]\n'
                       'verdict = "confirm"\nreason = "ask first"\n')  # fmt: skip
    script = 'cat; echo "$INHERITED ${TAKEN-no} $MORE"; : > new; kill -9 $$'
    before = os.umask(0o027)
    try:
        trace = pincer.run(
            ["sh", "-c", script], cwd=house.work, home=house.home, profile=profile, confirm="auto", input="typed\n",
            env={"TAKEN": None, "MORE": "2"}, options=["--protect", house.work / "x"],
        )  # fmt: skip
    finally:
        os.umask(before)
    trace.assert_exit(137)
    assert trace.stdout == "typed\n1 no 2\n"
    assert [call.confirmed for call in trace.find("create", "new")] == [True]
    assert (house.work / "new").stat().st_mode & 0o777 == 0o640


def test_runs_at_once_large_streams_and_another_launcher(pincer: Pincer, house: House) -> None:
    """What starts supervisors serves several tests' threads, and is replaced when it has ended."""
    text = "0123456789abcdef" * 20_000  # more than a pipe holds

    def run(number: int) -> tuple[int, str, str]:
        script = f"cat; echo {number} >&2; exec <&- >&- 2>&-; : > file{number}; exit {number}"
        trace = pincer.run(["sh", "-c", script], cwd=house.work, home=house.home, input=text)
        trace.assert_only_writes(f"file{number}")
        return trace.exit, trace.stdout, trace.stderr

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [(number, text, f"{number}\n") for number in range(3)]
    one = launcher.current()
    watched = os.pidfd_open(one.pid)
    os.kill(one.pid, signal.SIGKILL)
    assert select.select([watched], [], [], 30)[0]
    os.close(watched)
    assert run(7) == (7, text, "7\n")
    assert launcher.current() is not one
    pincer.run(["sh", "-c", "exec sleep 0"], cwd=house.work, input=text).assert_exit(0)  # that nobody reads


def test_after_the_timeout_nothing_is_left(pincer: Pincer, house: House) -> None:
    script = 'sleep 1000 & setsid sh -c "sleep 1000" & echo begun; exec sleep 1000'
    for seconds in (1, 4, 16, 64):  # a machine may be slow
        with pytest.raises(TimedOut, match=rf"no end after {seconds} s; .*\n") as late:
            pincer.run(["sh", "-c", script], cwd=house.work, home=house.home, timeout=seconds)
        trace = late.value.trace
        assert not [each for each in trace.processes if is_alive(each.pid)]
        if trace.stdout == "begun\n" and len(trace.find("exec", "/**/sleep")) == 3:
            break
    else:
        pytest.fail(f"it never began: {trace.stdout}")
    assert re.search(r"^  sleep \(\d+\)$", str(late.value), re.M)


def test_more_output_than_is_kept_is_read_and_said(
    pincer: Pincer, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "KEPT", 1000)
    script = "yes 123456789 | head -n 100000; echo ended >&2"
    trace = pincer.run(["sh", "-c", script], cwd=house.work, home=house.home)
    trace.assert_exit(0)
    assert trace.stdout == "123456789\n" * 100 + "\n[pincer-trace: 999,000 bytes more were written, and are not kept]\n"
    assert trace.stderr == "ended\n"
    assert "999,000 bytes more" in message(trace.assert_exit, 1)


def test_output_that_is_always_there_puts_off_no_timeout() -> None:
    told, theirs = socket.socketpair()
    with told, theirs, launcher._Pipes() as pipes, subprocess.Popen(["sleep", "1000"]) as run:
        front = os.pidfd_open(run.pid)
        os.write(pipes.theirs()[1], b"more")
        theirs.send(b"0")
        pipes.leave()
        try:
            assert launcher._attend(front, told, pipes, b"", 0.0).late
        finally:
            run.kill()
            os.close(front)


def test_p81_one_run_prepares_no_home_for_the_next(pincer: Pincer, house: House) -> None:
    (house.home / "kept").write_text("mine")
    rule = 'effects = ["change"]\npaths = ["/**"]\nverdict = "allow"\nreason = "mine"'
    script = f"""
        mkdir -p next/.local/state; mkdir -p made/pincer-trace/profiles; mv made next/.config
        mkdir -p next/.config/pincer-trace/profiles; mkdir -p next/.local/state/pincer-trace/compiled
        echo '[[rule]]\n{rule}' > next/.config/pincer-trace/profiles/default.toml; echo mine too > {house.home}/kept"""
    for home in (house.work.parent / "first", house.work / "next"):
        trace = pincer.run(["sh", "-c", script], cwd=house.work, home=home)
        trace.assert_denied("write", house.home / "kept")
    trace = pincer.run(["sh", "-c", "mkdir -p .config/other && echo > .config/other/x"], cwd=house.work)
    trace.assert_exit(0)


def is_alive(pid: int) -> bool:
    """Whether it has not ended; one that only waits to be reaped by us has."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
