"""Every verb against every protected path (P66), files that run later (P52), git's own needs (P86)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, Unchanged, attack, folder, give, outside

pytestmark = pytest.mark.both_identities

# Each verb on one path that exists. `own` is a file in the work tree, `free` a name that is not taken there.
VERBS = """
path, own = sys.argv[1:3]
free = own + "-free"
W = os.O_WRONLY
verbs = {
    "write": lambda: call("openat", AT_FDCWD, path, W, 0),
    "append": lambda: call("openat", AT_FDCWD, path, W | os.O_APPEND, 0),
    "both": lambda: call("openat", AT_FDCWD, path, os.O_RDWR, 0),
    "truncating open": lambda: call("openat", AT_FDCWD, path, W | os.O_TRUNC, 0),
    "truncating read": lambda: call("openat", AT_FDCWD, path, os.O_RDONLY | os.O_TRUNC, 0),
    "creating open": lambda: call("openat", AT_FDCWD, path, W | os.O_CREAT, 0o644),
    "creating truncating open": lambda: call("openat", AT_FDCWD, path, W | os.O_CREAT | os.O_TRUNC, 0o644),
    "openat2": lambda: call("openat2", AT_FDCWD, path, ctypes.c_char_p((W).to_bytes(24, "little")), 24),
    "truncate": lambda: call("truncate", path, 0),
    "rename onto": lambda: call("renameat", AT_FDCWD, own, AT_FDCWD, path),
    "rename away": lambda: call("renameat", AT_FDCWD, path, AT_FDCWD, free),
    "exchange": lambda: call("renameat2", AT_FDCWD, path, AT_FDCWD, own, EXCHANGE),
    "exchange back": lambda: call("renameat2", AT_FDCWD, own, AT_FDCWD, path, EXCHANGE),
    "link from": lambda: call("linkat", AT_FDCWD, path, AT_FDCWD, free, 0),
    "unlink": lambda: call("unlinkat", AT_FDCWD, path, 0),
    "chmod": lambda: call("fchmodat", AT_FDCWD, path, 0o777),
    "fchmodat2": lambda: call("fchmodat2", AT_FDCWD, path, 0o777, 0),
    "chown": lambda: call("fchownat", AT_FDCWD, path, os.getuid(), os.getgid(), 0),
    "chown away": lambda: call("fchownat", AT_FDCWD, path, 61235, 61235, 0),
    "utime": lambda: call("utimensat", AT_FDCWD, path, 0, 0),
    "xattr": lambda: -errno_of(os.setxattr, path, "user.x", b"1"),
}
absent = {
    "create": lambda: call("openat", AT_FDCWD, path, W | os.O_CREAT, 0o644),
    "create alone": lambda: call("openat", AT_FDCWD, path, W | os.O_CREAT | os.O_EXCL, 0o644),
    "create to read": lambda: call("openat", AT_FDCWD, path, os.O_RDONLY | os.O_CREAT, 0o644),
    "rename to": lambda: call("renameat", AT_FDCWD, own, AT_FDCWD, path),
    "rename to, new": lambda: call("renameat2", AT_FDCWD, own, AT_FDCWD, path, NOREPLACE),
    "link to": lambda: call("linkat", AT_FDCWD, own, AT_FDCWD, path, 0),
    "symlink": lambda: call("symlinkat", own, AT_FDCWD, path),
    "mkdir": lambda: call("mkdirat", AT_FDCWD, path, 0o755),
    "fifo": lambda: call("mknodat", AT_FDCWD, path, stat.S_IFIFO | 0o644, 0),
    "mknod": lambda: call("mknodat", AT_FDCWD, path, stat.S_IFREG | 0o644, 0),
}
through = os.path.dirname(own) + "/via"
os.symlink(path, through)
verbs["write by link"] = lambda: call("openat", AT_FDCWD, through, W | os.O_CREAT | os.O_TRUNC, 0o644)
verbs["chmod by link"] = lambda: call("fchmodat", AT_FDCWD, through, 0o777)
verbs["truncate by link"] = lambda: call("truncate", through, 0)
absent["create by link"] = verbs["write by link"]
for label, act in (verbs if os.path.lexists(path) else absent).items():
    note(label, word(act()))
report()
"""

HOOK = b"#!/bin/sh\nexit 0\n"
CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tpager = less\n"


def lay_out(runner: support.Runner) -> dict[str, Path]:
    """The protected files, all there, and one file of the work tree."""
    give(runner, runner.work / "own", b"[core]\n\tfsmonitor = evil\n", 0o755)
    give(runner, runner.home / ".ssh/other", SECRET, 0o600)
    return {
        "bashrc": give(runner, runner.home / ".bashrc", b"# mine\n"),
        "hook": give(runner, runner.work / ".git/hooks/pre-commit", HOOK, 0o755),
        "config": give(runner, runner.work / ".git/config", CONFIG),
        "keys": give(runner, runner.home / ".ssh/authorized_keys", b"ssh-ed25519 AAAA me\n", 0o600),
        "outside": outside(runner),
    }


# Attributes that decide nothing: of the configuration all (`git init` tries its mode, P86); of a hook, which runs
# by its mode, the times, and the owner that it has.
LOOSE = {
    "config": {"chmod", "fchmodat2", "chmod by link", "chown", "chown away", "utime"},
    "hook": {"chown", "utime"},
}


@pytest.mark.parametrize("name", ["bashrc", "hook", "config", "keys", "outside"])
def test_p66_no_verb_changes_a_protected_file(runner: support.Runner, name: str) -> None:
    path = lay_out(runner)[name]
    before, content = Unchanged(path.parent, runner.home).look(), path.read_bytes()
    found, result = attack(runner, VERBS, str(path), str(runner.work / "own"))
    found = {verb: answer for verb, answer in found.items() if verb not in LOOSE.get(name, set())}
    assert len(found) > 15
    assert path.read_bytes() == content
    after = Unchanged(path.parent, runner.home).look()
    if name == "hook":  # but for the time
        before, after = ({entry: look[:2] for entry, look in looks.items()} for looks in (before, after))
    if name != "config":
        assert after == before
    wrong = {verb: answer for verb, answer in found.items() if answer != "EACCES"}
    assert not wrong
    recorded = result.denied()
    assert len(recorded) >= len(found)
    assert len(result.denied(path)) >= len(found) - 3, [entry["path"] for entry in recorded]


@pytest.mark.parametrize("name", ["bashrc", "hook", "config", "keys"])
def test_p66_no_verb_makes_a_protected_file(runner: support.Runner, name: str) -> None:
    path = lay_out(runner)[name]
    path.unlink()
    with Unchanged(path.parent, runner.home):
        found, result = attack(runner, VERBS, str(path), str(runner.work / "own"))
    assert len(found) > 10
    wrong = {verb: answer for verb, answer in found.items() if answer != "EACCES"}
    assert not wrong
    assert len(result.denied(path)) >= len(found), result.denied()


def test_p66_the_same_verbs_work_on_the_workers_own_file(runner: support.Runner) -> None:
    """The matrix itself: without a protection every verb does something, so the denials above are denials."""
    give(runner, runner.work / "own", b"a")
    give(runner, runner.work / "target", b"b")
    found, result = attack(runner, VERBS, str(runner.work / "target"), str(runner.work / "own"))
    assert {verb for verb, answer in found.items() if answer == "ok"} > {
        "write", "truncating open", "truncate", "rename onto", "chmod by link",
    }  # fmt: skip
    assert not result.denied()


# What the user, or a program of the user, runs or obeys later. {h}: home, {w}: work tree
LATER = [
    "{h}/.bashrc",
    "{h}/.bash_profile",
    "{h}/.profile",
    "{h}/.zshrc",
    "{h}/.zshenv",
    "{h}/.inputrc",
    "{h}/.config/fish/config.fish",
    "{h}/.config/systemd/user/x.service",
    "{h}/.config/autostart/x.desktop",
    "{h}/.local/share/applications/x.desktop",
    "{h}/.local/bin/ls",
    "{h}/bin/ls",
    "{h}/.local/lib/python3.11/site-packages/x.pth",
    "{h}/.gitconfig",
    "{h}/.config/git/config",
    "{h}/.npmrc",
    "{h}/.vimrc",
    "{h}/.tmux.conf",
    "{h}/.config/pip/pip.conf",
    "{h}/.cargo/config.toml",
    "{h}/.gdbinit",
    "{h}/.ssh/config",
    "{h}/.ssh/authorized_keys",
    "{h}/.ssh/rc",
    "{h}/.aws/credentials",
    "{h}/.netrc",
    "{h}/.pam_environment",
    "{w}/.git/hooks/pre-commit",
    "{w}/.git/hooks/post-checkout",
    "{w}/.git/hooks/nested/x",
    "{w}/.git/config.worktree",
    "{w}/.git/modules/m/hooks/pre-commit",
    "{w}/.envrc",
    "{w}/.vscode/tasks.json",
    "{w}/.vscode/settings.json",
    "{w}/.idea/workspace.xml",
    "{w}/.mcp.json",
    "{w}/.claude/settings.json",
    "{w}/.claude/hooks/x",
    "{w}/.cursor/mcp.json",
    "{w}/sub/.envrc",
    "{w}/sub/.vscode/tasks.json",
    "{w}/sub/.git/hooks/pre-commit",
    "{w}/.devcontainer/devcontainer.json",
    "{w}/x.code-workspace",
    "{w}/.exrc",
]


def test_p52_what_runs_later_is_not_written(runner: support.Runner) -> None:
    paths = [Path(line.format(h=runner.home, w=runner.work)) for line in LATER]
    for path in paths:
        folder(runner, path.parent)
    with Unchanged(runner.home, runner.work):
        found, result = attack(
            runner,
            "for path in json.loads(sys.argv[1]):\n"
            "    note(path, [word(call('openat', AT_FDCWD, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)),\n"
            "        word(call('symlinkat', '/bin/ls', AT_FDCWD, path))])\n"
            "report()",
            json.dumps([str(path) for path in paths]),
        )
    assert len(found) == len(paths)
    assert not {path: answer for path, answer in found.items() if answer != ["EACCES", "EACCES"]}
    for path in paths:
        records = result.denied(path)
        assert len(records) == 2 and all(record["reason"] and record["rule"] for record in records), path


def git(runner: support.Runner, *words: str) -> None:
    done = runner.native(["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words])
    assert done.status == 0, done


def test_p86_git_makes_repositories_with_their_hooks(runner: support.Runner) -> None:
    """Sample hooks and the configuration of a repository made in this session are written; git runs to the end."""
    result = runner.supervise(
        ["sh", "-ec", "git init -q a && cd a && git config user.name n && git config user.email e@example.org && "
         "git commit -q --allow-empty -m 1 && git branch topic && cd .. && git clone -q a b && cd b && "
         "git checkout -q --track origin/topic && git config branch.topic.merge"],
    )  # fmt: skip
    assert result.status == 0, result
    assert result.out.strip() == "refs/heads/topic"
    assert (runner.work / "b/.git/hooks/pre-commit.sample").exists()
    assert not result.denied(), result.denied()


def test_p86_git_tracks_branches_in_the_users_repository(runner: support.Runner) -> None:
    """checkout --track rewrites .git/config: judged by the keys that change."""
    git(runner, "init", "-q")
    git(runner, "commit", "-q", "--allow-empty", "-m", "1")
    git(runner, "branch", "topic")
    result = runner.supervise(["sh", "-ec", "git checkout -q --track -b work topic && git config branch.work.merge"])
    assert result.status == 0, result
    assert result.out.strip() == "refs/heads/topic"


@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "core.hooksPath",
        "core.pager",
        "alias.st",
        "include.path",
        "filter.x.clean",
        "credential.helper",
    ],
)
def test_p86_no_executable_key_enters_the_users_configuration(runner: support.Runner, key: str) -> None:
    git(runner, "init", "-q")
    with Unchanged(runner.work):
        result = runner.supervise(["git", "config", key, "!evil"])
        assert result.status != 0
    assert result.denied(runner.work / ".git/config")


def test_p86_a_branch_key_does_not_carry_another_one_along(runner: support.Runner) -> None:
    """Written in place, by rename and by link: the content decides, not the writer."""
    git(runner, "init", "-q")
    config = runner.work / ".git/config"
    good = config.read_bytes() + b'[branch "x"]\n\tremote = origin\n'
    evil = good + b"[core]\n\tfsmonitor = /bin/evil\n"
    give(runner, runner.work / "good", good)
    give(runner, runner.work / "evil", evil)
    result = runner.supervise(
        ["sh", "-c", "mv evil .git/config; cat evil > .git/config; cat evil >> .git/config; ln -f evil .git/config;"
                     "ln -sf ../evil .git/config; cp evil .git/config.lock; mv .git/config.lock .git/config;"
                     "git config --get core.fsmonitor"],
    )  # fmt: skip
    assert b"evil" not in config.read_bytes() and not config.is_symlink()
    assert result.status == 1, result
    assert subprocess.run(["cmp", str(config), str(runner.work / "evil")], capture_output=True).returncode == 1
