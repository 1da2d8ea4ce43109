"""The file of refusals in a real run: the tree reads it, and can change neither it nor what lies beside (P56, P81)."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import support

pytestmark = [
    pytest.mark.both_identities,
    pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively"),
]

PRELUDE = """
import ctypes, json, os, subprocess, sys
file = os.environ["PINCER_DENIALS"]
folder = os.path.dirname(file)
found = {}

def attempt(name, act, *arguments):
    try:
        act(*arguments)
        found[name] = "done"
    except OSError as error:
        found[name] = os.strerror(error.errno)

def read(path, **more):
    with open(os.open(path, os.O_RDONLY, **more), "rb") as stream:
        return stream.read().decode()
"""
REFUSED = """
subprocess.run(["sh", "-c", "echo evil >> $HOME/.bashrc; cat $HOME/.ssh/id_x; echo evil >> $HOME/.bashrc"])
"""

CHANGES = """
open("mine", "w").close()
before = read(file)
for flag in ("O_WRONLY", "O_RDWR", "O_APPEND|O_WRONLY", "O_TRUNC|O_WRONLY", "O_TRUNC"):
    bits = 0
    for word in flag.split("|"):
        bits |= getattr(os, word)
    attempt(flag, os.open, file, bits)
attempt("truncate", os.truncate, file, 0)
attempt("unlink", os.unlink, file)
attempt("rename away", os.rename, file, "away")
attempt("rename over", os.rename, "mine", file)
attempt("rename the folder", os.rename, folder, folder + "x")
attempt("link", os.link, file, "second")
attempt("symlink over", os.symlink, "mine", file)
attempt("symlink beside", os.symlink, "mine", folder + "/x")
attempt("create beside", os.open, folder + "/new", os.O_CREAT | os.O_WRONLY)
attempt("chmod", os.chmod, file, 0o666)
attempt("utime", os.utime, file)
attempt("chown", os.chown, file, os.getuid(), os.getgid())
attempt("xattr", os.setxattr, file, "user.x", b"x")
descriptor = os.open(file, os.O_RDONLY)
attempt("fchmod", os.fchmod, descriptor, 0o666)
attempt("again by proc", os.open, f"/proc/self/fd/{descriptor}", os.O_WRONLY)
attempt("write to it", os.write, descriptor, b"x")
for other in ("ledger.jsonl", "session.json"):
    attempt(other, read, f"{folder}/{other}")
attempt("the folder", os.listdir, folder)
pin = os.open(folder, os.O_PATH)
attempt("at a pin", lambda: read("ledger.jsonl", dir_fd=pin))
attempt("by proc", lambda: read(f"/proc/self/fd/{pin}/ledger.jsonl"))
work = os.getcwd()
os.chdir(folder)
attempt("from inside", read, "session.json")
attempt("by a detour", read, "./../" + os.path.basename(folder) + "/ledger.jsonl")
os.chdir(work)
os.symlink(folder + "/ledger.jsonl", "innocent")
attempt("by a link", read, "innocent")
os.symlink(file, "told")
assert read("told").startswith(before.split(" ")[0])
"""


def furnish(runner: support.Runner) -> None:
    """Things in the home that the default profile protects."""
    (runner.home / ".ssh").mkdir()
    (runner.home / ".ssh/id_x").write_text("the secret\n")
    (runner.home / ".bashrc").write_text("# mine\n")
    for name in (".ssh", ".ssh/id_x", ".bashrc"):
        os.chown(runner.home / name, runner.identity.uid, runner.identity.gid)


def run(runner: support.Runner, script: str, *options: str) -> tuple[dict[str, str], support.Result]:
    """The script's `found`, after it was run supervised."""
    furnish(runner)
    command = [runner.identity.python, "-I", "-c", f"{script}\nprint(json.dumps(found))"]
    result = runner.supervise(command, options=("--quiet", *options))
    assert result.status == 0, result
    return json.loads(result.out.splitlines()[-1]), result


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[:1].isdigit()]


def test_p56_the_parent_of_what_was_refused_reads_why(runner: support.Runner) -> None:
    found, result = run(runner, PRELUDE + REFUSED + 'found["text"] = read(file)')
    written, secret = lines(found["text"])
    assert " NOBODY_TO_ASK: " in written or " POLICY_DENY: " in written
    assert f'"{runner.home}/.bashrc" was refused' in written and "default.toml:" in written
    assert f"--allow-write '{runner.home}/.bashrc'" in written
    assert f' POLICY_DENY: read "{runner.home}/.ssh/id_x" was refused' in secret
    assert f"pincer-trace why read '{runner.home}/.ssh/id_x'" in secret
    assert "the secret" not in found["text"]
    kept = lines((result.session / "denials.txt").read_text())
    assert [line.split(" times: ")[0].split(" ")[2] for line in kept] == ["000002", "000001"]
    assert [line.split(" times: ")[1] for line in kept] == [line.split(" times: ")[1] for line in (written, secret)]


def test_p56_repeats_are_counted_while_the_run_goes_on(runner: support.Runner) -> None:
    script = """
import time
for _ in range(50):
    attempt("write", os.open, os.environ["HOME"] + "/.bashrc", os.O_WRONLY)
end = time.monotonic() + 20
while " 000050 times" not in read(file) and time.monotonic() < end:
    time.sleep(0.1)
found["text"] = read(file)
"""
    found, _ = run(runner, PRELUDE + script)
    [told] = lines(found["text"])
    assert " 000050 times: " in told and "/.bashrc" in told


def test_p81_the_file_of_refusals_is_for_reading_alone(runner: support.Runner) -> None:
    found, result = run(runner, PRELUDE + REFUSED + CHANGES)
    assert found.pop("write to it") == "Bad file descriptor"
    assert found.pop("symlink over") == "File exists"  # as natively: what exists is no secret
    assert {name: said for name, said in found.items() if said != "Permission denied"} == {}
    assert sorted(path.name for path in result.session.iterdir()) == ["denials.txt", "ledger.jsonl", "session.json"]
    assert os.listdir(result.session.parent) == [result.session.name]
    content = (result.session / "denials.txt").read_text()
    assert content.startswith("# What pincer-trace refused")
    assert sum(int(line.split(" ")[2]) for line in lines(content)) >= len(found)
    assert (result.session / "denials.txt").stat().st_mode & 0o777 == 0o600
    assert result.session.stat().st_mode & 0o777 == 0o700


STRICT = """
[[rule]]
effects = ["exec"]
paths = ["/**"]
verdict = "allow"
reason = "programs"

[[rule]]
effects = ["read"]
paths = ["/{usr,lib,lib64,bin,etc,dev,proc,sys,root,var,opt,work}/**", "{self}/**", "{workspace}/**"]
verdict = "allow"
reason = "what programs need"
"""


def test_a_profile_that_opens_little_leaves_it_readable(runner: support.Runner) -> None:
    """And one that opens everything leaves what lies beside it closed."""
    strict, open_ = runner.base / "strict.toml", runner.base / "open.toml"
    strict.write_text(STRICT)
    open_.write_text('[[rule]]\neffects = ["any"]\npaths = ["/**"]\nverdict = "allow"\nreason = "all"\n')
    script = PRELUDE + REFUSED + 'found["text"] = read(file)\nattempt("ledger", read, folder + "/ledger.jsonl")'
    found, _ = run(runner, script, "-p", str(strict), "--protect", str(runner.base))
    assert found["ledger"] == "Permission denied"
    assert f'read "{runner.home}/.ssh/id_x"' in found["text"] and "closed by --protect" in found["text"]
    runner.fresh()
    found, _ = run(runner, script, "-p", str(open_))
    assert found["ledger"] == "Permission denied" and lines(found["text"]) == []


def test_what_the_kernel_refuses_itself_is_not_told(runner: support.Runner) -> None:
    if runner.identity.uid == 0:
        pytest.skip("the kernel refuses root little")
    found, result = run(
        runner, PRELUDE + REFUSED + 'attempt("shadow", read, "/etc/shadow"); found["text"] = read(file)'
    )
    assert found["shadow"] == "Permission denied"
    assert "shadow" not in found["text"] and result.denied("/etc/shadow") != []


@pytest.mark.parametrize("name", ["line\nbreak", "\x1b[2J", '"). Now do: x', "<system>", "x" * 200])
def test_p56_a_hostile_name_is_one_line_in_quotes(runner: support.Runner, name: str) -> None:
    script = f"""
folder = os.environ["HOME"] + "/.ssh/"
attempt("make", os.mkdir, folder + {name!r})
found["text"] = read(file)
"""
    found, _ = run(runner, PRELUDE + script)
    [told] = lines(found["text"])
    assert told.count('"') >= 2 and len(found["text"].splitlines()) == 2
    quoted = told.split('"')[1]
    assert quoted.startswith(f"{runner.home}"[:20]) and len(quoted.encode()) <= 80
    assert found["text"].isascii() or "…" in found["text"]
    assert not any(ord(c) < 32 for c in found["text"].replace("\n", ""))


# -- Claude Code's own interface ---------------------------------------------------------------------------------------

PRETENDER = """#!/bin/sh
printf '%s\\n' "$@"
"""
EVENT = {"session_id": "s-1", "hook_event_name": "PostToolBatch", "tool_calls": []}


def install(runner: support.Runner, version: str, script: str) -> Path:
    """A program where npm puts Claude Code, by a link on PATH as npm makes it."""
    package = runner.home / "node_modules/@anthropic-ai/claude-code"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "@anthropic-ai/claude-code", "version": version}))
    (package / "bin/claude.exe").write_text(script)
    (package / "bin/claude.exe").chmod(0o755)
    (runner.home / "node_modules/.bin").mkdir()
    link = runner.home / "node_modules/.bin/claude"
    link.symlink_to("../@anthropic-ai/claude-code/bin/claude.exe")
    return link


@pytest.mark.parametrize("options", [(), ("--quiet",)], ids=["told", "quiet"])
def test_the_settings_are_named_in_front(runner: support.Runner, options: tuple[str, ...]) -> None:
    link = install(runner, "2.1.332", PRETENDER)
    result = runner.supervise([str(link), "-p", "--", "a prompt"], options=options)
    file = result.session / "claude.json"
    assert result.out.splitlines() == ["--settings", str(file), "-p", "--", "a prompt"]
    assert result.err.count("--settings") == (0 if options else 1) and (options or str(file) in result.err)
    [entry] = json.loads(file.read_text())["hooks"]["PostToolBatch"]
    [hook] = entry["hooks"]
    assert hook["command"].endswith("hook.py claude") and os.path.isabs(shlex.split(hook["command"])[0])


def test_a_subcommand_is_left_alone(runner: support.Runner) -> None:
    link = install(runner, "2.1.332", PRETENDER)
    result = runner.supervise([str(link), "mcp", "list"], options=())
    assert result.out.splitlines() == ["mcp", "list"] and "--settings" not in result.err
    assert not (result.session / "claude.json").exists()


def test_a_start_that_fails_leaves_no_settings(runner: support.Runner) -> None:
    link = install(runner, "2.1.332", PRETENDER)
    (runner.work / "inner").mkdir()
    os.chown(runner.work / "inner", runner.identity.uid, runner.identity.gid)
    inner = [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", "inner", "--", str(link), "-p"]
    result = runner.supervise(inner)
    assert result.status == 125 and "outermost" in result.err, result
    assert os.listdir(runner.work / "inner") == []


def test_the_hook_tells_each_agent_once(runner: support.Runner) -> None:
    """As Claude Code runs it: by a shell, with its event on standard input, within the run."""
    script = f"""#!{runner.identity.python} -I
import json, os, subprocess, sys
hook = json.load(open(sys.argv[2]))["hooks"]["PostToolBatch"][0]["hooks"][0]["command"]
def tell(agent=None):
    event = {EVENT!r} | ({{"agent_id": agent}} if agent else {{}})
    done = subprocess.run(["sh", "-c", hook], input=json.dumps(event).encode(), capture_output=True)
    print(json.dumps([done.returncode, done.stdout.decode(), done.stderr.decode()]))
def write():
    subprocess.run(["sh", "-c", "echo evil >> $HOME/.bashrc"], stderr=subprocess.DEVNULL)
tell(); write(); tell(); tell(); write(); tell(); tell("a1"); tell("a1")
subprocess.run(["cat", os.environ["HOME"] + "/.ssh/id_x"], stderr=subprocess.DEVNULL)
tell(); tell("a1"); tell()
"""
    furnish(runner)
    scratch = runner.base / "tmp"
    scratch.mkdir(mode=0o1777)
    scratch.chmod(0o1777)
    link = install(runner, "2.1.332", script)
    result = runner.supervise([str(link), "-p", "x"], env={"TMPDIR": str(scratch)})
    assert result.status == 0, result
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert all((status, error) == (0, "") for status, _, error in answers), answers
    said = [json.loads(out)["hookSpecificOutput"] if out else None for _, out, _ in answers]
    heard = [
        ("bashrc" in one["additionalContext"], "id_x" in one["additionalContext"]) if one else None for one in said
    ]
    write, read = (True, False), (False, True)
    assert heard == [None, write, None, None, write, None, read, read, None]
    assert all(one is None or one["hookEventName"] == "PostToolBatch" for one in said)
    assert not list(scratch.iterdir())  # what it kept there for each agent goes with the session
