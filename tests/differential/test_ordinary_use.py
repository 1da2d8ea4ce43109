"""Honest use of a repository that was there before: what it needs succeeds, and what it is refused is told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import support

pytestmark = pytest.mark.both_identities

# A repository with all that the profile protects in it, as an earlier session or a person made it.
MAKE = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
git init -q . && echo a > a && git add a && git commit -qm a
git config extensions.worktreeConfig true && git config --worktree core.sparseCheckout false
printf '#!/bin/sh\\n' > .git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit
mkdir -p .vscode .husky/_ .claude/hooks .claude/commands .devcontainer mod
for name in .vscode/settings.json .envrc .mcp.json .claude/settings.json .claude/commands/x.md .vimrc .autoenv
do echo '{}' > $name; done
for name in .husky/pre-commit .husky/_/h .claude/hooks/x.sh .devcontainer/y.sh; do echo : > $name; chmod 755 $name; done
mkdir .git/modules && git init -q --bare .git/modules/mod && echo 'gitdir: ../.git/modules/mod' > mod/.git
"""


@pytest.fixture
def repository(runner: support.Runner) -> Path:
    """Made without us."""
    made = runner.native(["sh", "-euc", MAKE])
    assert made.status == 0, made
    return runner.work


@pytest.mark.parametrize(
    "command",
    [
        "chmod -R u+w .",
        "chmod -R a+rX .",
        "chown -R $(id -u):$(id -g) .",
        "chgrp -R $(id -g) .",
        "find . -type d -exec touch {} +",
        "find . -exec $PYTHON -c 'import os, sys; [os.utime(n, (9, 9)) for n in sys.argv[1:]]' {} +",
        "chmod 600 .git/config .git/config.worktree .vscode/settings.json .envrc .vimrc .mcp.json",
        "chmod 700 .git .git/hooks",
    ],
)
def test_attributes_that_decide_nothing_are_set_as_without_us(
    runner: support.Runner, repository: Path, command: str
) -> None:
    done = runner.supervise(["sh", "-euc", command])
    assert done.status == 0, done
    supervised = support.snapshot(repository, contents=False)
    assert done.denied() == []
    runner.fresh()
    assert runner.native(["sh", "-euc", MAKE]).status == 0
    assert runner.native(["sh", "-euc", command]).status == 0
    native = support.snapshot(repository, contents=False)
    assert {name: words.split()[:2] for name, words in supervised.items() if "objects/" not in name} == {
        name: words.split()[:2] for name, words in native.items() if "objects/" not in name
    }


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", ".husky/pre-commit", ".husky/_/h", ".claude/hooks/x.sh", ".devcontainer/y.sh"]
)
def test_what_runs_by_its_mode_keeps_it(runner: support.Runner, repository: Path, path: str) -> None:
    for mode in (0o644, 0o4755, 0o777):
        trace = runner.supervise(["chmod", f"{mode:o}", path]).trace
        trace.assert_exit(1)
        trace.assert_denied("chmod", path)
        assert len(trace.denials) == 1
    assert (repository / path).stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_no_repository_of_another_user_is_made_trusted(runner: support.Runner, repository: Path) -> None:
    """git runs what a repository says only if it belongs to the caller: its owner is a decision."""
    if runner.identity.uid != 0:
        pytest.skip("a user cannot take what belongs to another")
    inner = repository / "inner"
    shutil.copytree(repository / ".git", inner / ".git")
    os.chown(inner / ".git", support.USER_ID, support.USER_ID)
    trace = runner.supervise(["chown", "-R", "0:0", "inner"]).trace
    trace.assert_exit(1)
    trace.assert_denied("chown", "inner/.git")
    assert len(trace.denials) == 1
    assert (inner / ".git").stat().st_uid == support.USER_ID


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("git config core.fsmonitor false", 0),
        ("git config core.fsmonitor true", 0),
        ("git config core.fsmonitor ./x", 4),
        ("git config pager.log false", 0),
        ("git config pager.log ./x", 4),
        ("git config http.proxy http://x:1", 4),
    ],
)
def test_a_switch_is_set_and_a_program_is_not(
    runner: support.Runner, repository: Path, command: str, status: int
) -> None:
    done = runner.supervise(command.split())
    assert done.status == status, done
    reasons = [entry["reason"] for entry in done.denied()]
    assert bool(reasons) == bool(status)
    if "http.proxy" in command:
        assert "http.proxy: it sends the user's traffic and credentials elsewhere" in reasons[0]


def test_an_interactive_rebase_works(runner: support.Runner, repository: Path) -> None:
    """Its todo list may say `exec`: whoever says `git rebase --continue` runs it (docs/threats.md)."""
    script = """
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
    for n in 1 2 3; do echo $n > f$n; git add f$n; git -c core.hooksPath=/dev/null commit -qm $n; done
    GIT_SEQUENCE_EDITOR='sed -i "2a exec touch ran"' git rebase -q -i HEAD~3 && test -e ran
    """
    trace = runner.supervise(["sh", "-euc", script]).trace
    trace.assert_exit(0)
    trace.assert_no_denials()


def test_a_fresh_home_is_furnished(runner: support.Runner) -> None:
    """`mkdir -p` down to a cache that may be written works, and to an application's entry does not."""
    script = 'mkdir -p "$HOME/.local/share/uv/cache/x" "$HOME/.cargo/registry/index"'
    trace = runner.supervise(["sh", "-euc", script]).trace
    trace.assert_exit(0)
    trace.assert_no_denials()
    trace = runner.supervise(["mkdir", "-p", str(runner.home / ".local/share/applications")]).trace
    trace.assert_exit(1)
    assert [call.verdict for call in trace.denials] == ["confirm"]


def test_no_prompt_from_the_cache_directory(runner: support.Runner) -> None:
    """What a shell or an editor runs at its start from there is no package cache."""
    names = ["p10k-instant-prompt-me.zsh", "gitstatus/gitstatusd", "nvim/luac/x.luac", "zsh/zcompdump"]
    for name in names:
        (runner.home / ".cache" / name).parent.mkdir(parents=True, exist_ok=True)
    (runner.home / ".cache/zsh/zcompdump").write_text("# clean\n")
    for folder in (runner.home / ".cache").rglob("*"):
        os.chown(folder, runner.identity.uid, runner.identity.gid)
    os.chown(runner.home / ".cache", runner.identity.uid, runner.identity.gid)
    script = (
        'cd "$HOME/.cache"; mkdir pip && echo x > pip/y; mkdir q && echo evil > q/zcompdump; '
        f"for name in {' '.join(names)}; do echo evil > $name; done; "
        "mv q/zcompdump zsh/zcompdump; ln -f q/zcompdump zsh/zcompdump; mv zsh old; mv q p10k-x; exit 0"
    )
    done = runner.supervise(["bash", "-c", script])
    assert done.status == 0
    assert (runner.home / ".cache/pip/y").exists()
    assert (runner.home / ".cache/zsh/zcompdump").read_text() == "# clean\n"
    assert not [name for name in names[:3] if (runner.home / ".cache" / name).exists()]
    assert not (runner.home / ".cache/p10k-x").exists()
    assert len(done.denied()) >= 7


REMOVED = """
import os, tempfile
for place in (None, tempfile.mkdtemp(), "."):
    descriptor, path = tempfile.mkstemp(dir=place)
    os.unlink(path)
    os.utime(descriptor, (1, 1))
    os.fchmod(descriptor, 0o640)
    os.chmod(f"/proc/self/fd/{descriptor}", 0o600)
    os.setxattr(descriptor, "user.x", b"1")
    os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), b"x")
    folder = tempfile.mkdtemp(dir=place)
    descriptor = os.open(folder, os.O_RDONLY)
    os.rmdir(folder)
    os.fchmod(descriptor, 0o700)
os.makedirs(os.path.expanduser("~/.cache/tool"))
open(os.path.expanduser("~/.cache/tool/.git"), "w").close()  # uv: git goes no further up
"""


def test_what_is_removed_while_it_is_open_is_the_runs_own(runner: support.Runner) -> None:
    """As gunicorn has a file by whose times a worker says that it lives."""
    trace = runner.supervise([runner.identity.python, "-c", REMOVED]).trace
    trace.assert_exit(0)
    trace.assert_no_denials()


def test_tools_take_up_what_their_last_run_left_in_the_temporary_directory(runner: support.Runner) -> None:
    """As jest does, which fails where it cannot; nothing else is taken up: tests put whole homes below pytest's."""
    tests, cache, other = (Path(f"/tmp/{kind}{runner.base.name}") for kind in ("pytest-of-", "jest_", "other-"))
    script = f"""
mkdir -p {tests}/pytest-0 {tests}/pytest-$$ {cache}/d {other}
rm -f {tests}/pytest-current; ln -s pytest-$$ {tests}/pytest-current
echo x > {cache}/d/map; touch {cache}; echo x > {tests}/pytest-0/f; echo x > {other}/f
"""
    try:
        for refused in ([], [str(tests / "pytest-0/f"), str(other / "f")]):
            trace = runner.supervise(["sh", "-c", script]).trace
            assert [call.path for call in trace.denials] == refused
    finally:
        for path in (tests, cache, other):
            support.remove_tree(path)
