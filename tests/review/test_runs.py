"""Sessions of real runs, decided again: by their own profile nothing differs, by another one what it changes."""

from __future__ import annotations

import json
import subprocess

import pytest

GIT = """
git init -q . && git config user.email a@b && git config user.name n
echo one > a && git add a && git commit -qm one && git mv a b && git commit -qm two && git checkout -qb side
git gc -q && git config core.abbrev 10 && git status -s
"""
REST = """
echo x >> .git/config
git config core.pager less
echo bad > .git/hooks/pre-commit
echo x > "$HOME/.bashrc"; cat "$HOME/.ssh/id"
mkdir -p d/e && echo m > d/Makefile && mv d f && ln -s b link && ln b second && rm second && chmod 600 b
t=$(mktemp) && echo x > "$t" && mv "$t" "$t.2" && rm "$t.2"
"""


def asked(runner, result, *arguments, subcommand="replay"):
    """A subcommand on the session of a run, as its own user."""
    who = runner.identity
    words = [*who.switch, who.python, "-I", "-m", "pincer_trace", subcommand, *arguments]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(runner.home)}
    done = subprocess.run(words, cwd=runner.work, env=environ, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def objects(runner, result, *arguments):
    done = asked(runner, result, str(result.session), "--json", *arguments)
    assert done.returncode in (0, 1), done.stderr
    *groups, summary = map(json.loads, done.stdout.splitlines())
    assert (done.returncode == 1) == bool(summary["differ"])
    return groups, summary


@pytest.fixture
def ran(runner):
    """A run that does a bit of everything, much of which is refused."""
    (runner.home / ".ssh").mkdir()
    (runner.home / ".ssh/id").write_text("secret")
    for path in (runner.home / ".ssh", runner.home / ".ssh/id"):
        subprocess.run(["chown", f"{runner.identity.uid}:{runner.identity.gid}", path], check=True)
    result = runner.supervise(["sh", "-c", GIT + REST])
    assert result.status == 0, result
    return result


@pytest.mark.both_identities
def test_the_same_profile_decides_a_real_run_as_it_did(runner, ran):
    effects = {entry["effect"] for entry in ran.decisions}
    assert {"create", "write", "rename", "mkdir", "symlink", "link", "unlink", "exec", "read", "chmod"} <= effects
    assert len(ran.denied()) >= 4
    groups, summary = objects(runner, ran)
    assert summary["differ"] == 0, groups
    assert summary["unknown"] == 0, groups
    assert summary["decisions"] == sum(entry.get("count", 1) for entry in ran.decisions)
    assert asked(runner, ran, str(ran.session)).stdout == f"{summary['decisions']} decisions: nothing differs\n"


def test_a_stricter_and_a_looser_profile(runner, ran):
    rule = '[[rule]]\neffects = ["{}"]\npaths = ["{}"]\nverdict = "{}"\nreason = "so"\nprotection = {}\n'
    (runner.work / "new.toml").write_text(
        'extends = "default"\n' + rule.format("rename", "{workspace}/f", "deny", "true")
        + rule.format("read", "{workspace}/b", "deny", "true") + rule.format("any", "{home}/.ssh/**", "allow", "true")
    )  # fmt: skip
    groups, summary = objects(runner, ran, "-p", "./new.toml")
    work, home = runner.work, runner.home
    found = {(g["effect"], g["path"], g["then"], g["now"]) for g in groups if g["kind"] == "differs"}
    assert {
        ("rename", f"{work}/d", "allow", "deny"),
        ("read", f"{work}/b", "allow", "deny"),
        ("link", f"{work}/second", "allow", "deny"),  # a second name needs what reading the first one needs
        ("read", f"{home}/.ssh/id", "deny", "allow"),
    } <= found
    assert all("/.git/" not in path for _, path, _, _ in found)
    read = next(g for g in groups if (g["effect"], g["path"], g["kind"]) == ("read", f"{work}/b", "differs"))
    assert read["rule"].endswith(f"{work}/new.toml:10") and read["rule_then"].startswith("default.toml:")
    assert summary["differ"] == sum(g["count"] for g in groups if g["kind"] == "differs")


def test_every_decision_of_a_real_run_can_be_explained(runner, ran):
    seen = set()
    for entry in ran.decisions:
        kind = (entry["effect"], entry["verdict"], entry["kind"])
        if kind in seen:
            continue
        seen.add(kind)
        done = asked(runner, ran, str(entry["seq"]), str(ran.session), subcommand="why")
        assert done.returncode == (0 if entry["kind"] in ("intent", "reads") else 1), done
        assert done.stderr == "" and f"{entry['effect']} {entry['path']}" in done.stdout.splitlines()[0]
        rows = done.stdout.splitlines()
        assert ("remedy" in {row[:8].strip() for row in rows}) == (entry["kind"] == "denied"), done.stdout
    assert len(seen) > 8
