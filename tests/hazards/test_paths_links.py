"""Hard links, renames and exchanges around protected objects: hazards P28, P29 and P66."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, Unchanged, attack, folder, give, outside, python

pytestmark = pytest.mark.both_identities

LINKS = """
target, where = sys.argv[1:3]
descriptor = os.open(target, os.O_RDONLY) if sys.argv[3] == "open" else os.open(target, os.O_PATH)
note("linkat", word(call("linkat", AT_FDCWD, target, AT_FDCWD, where + "1", 0)))
note("by proc", word(call("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, where + "2", AT_SYMLINK_FOLLOW)))
note("by thread", word(call(
    "linkat", AT_FDCWD, f"/proc/thread-self/fd/{descriptor}", AT_FDCWD, where + "3", AT_SYMLINK_FOLLOW)))
note("empty", word(call("linkat", descriptor, "", AT_FDCWD, where + "4", AT_EMPTY_PATH)))
os.symlink(target, where + "s")
note("by symlink", word(call("linkat", AT_FDCWD, where + "s", AT_FDCWD, where + "5", AT_SYMLINK_FOLLOW)))
report()
"""


@pytest.mark.parametrize("name", [".ssh/id_ed25519", ".bashrc", ".netrc"])
def test_p28_no_second_name_for_a_protected_file(runner: support.Runner, name: str) -> None:
    target = give(runner, runner.home / name, SECRET, 0o600)
    how = "path" if name != ".bashrc" else "open"
    with Unchanged(runner.home):
        found, result = attack(runner, LINKS, str(target), str(runner.work / "x"), how)
    assert found.pop("empty") in ("EACCES", "ENOENT")  # the kernel's ENOENT where it wants a capability
    assert set(found.values()) == {"EACCES"}
    assert {path.name for path in runner.work.iterdir()} == {"xs"}
    assert len(result.denied(target)) >= 4


@pytest.mark.parametrize("place", ["workspace", "own folder in tmp"])
def test_p28_a_link_does_not_make_a_strangers_file_ours(runner: support.Runner, place: str) -> None:
    """A file of another session in /tmp, linked into a folder where everything may be changed."""
    target = outside(runner)
    where = runner.work if place == "workspace" else runner.base / "open" / "mine"
    folder(runner, runner.base / "open")
    with Unchanged(target.parent):
        found, _ = attack(
            runner,
            """
            target, where = sys.argv[1:]
            os.makedirs(where, exist_ok=True)
            name = where + "/second"
            call("linkat", AT_FDCWD, target, AT_FDCWD, name, 0)
            note("write", word(call("openat", AT_FDCWD, name, os.O_WRONLY | os.O_TRUNC, 0)))
            note("chmod", word(call("fchmodat", AT_FDCWD, name, 0o777)))
            report()
            """.replace("\n            ", "\n"),
            str(target),
            str(where),
        )
    assert "ok" not in found.values()


def test_p28_a_second_name_made_before_the_run_shows_no_secret(runner: support.Runner) -> None:
    """The name in the work tree is innocent; the inode is that of a private key."""
    target = give(runner, runner.home / ".ssh/id_ed25519", SECRET, 0o600)
    os.link(target, runner.work / "notes.txt")
    result = runner.supervise(["cat", "notes.txt"])
    assert SECRET not in result.stdout
    assert result.status == 1


def test_p28_a_second_name_from_before_is_found_where_the_profile_says_so(runner: support.Runner) -> None:
    """Of a file that only a pattern protects which begins with `**`, in the home, by names in and out of it."""
    secret = give(runner, runner.home / "project/sub/.env", b"TOKEN=" + SECRET)
    outside = runner.base / "outside"
    for name in (runner.home / "notes.txt", runner.work / "config", outside):
        os.link(secret, name)
    command = ["cat", str(runner.home / "notes.txt"), "config", str(outside)]
    assert runner.supervise(command).stdout.count(SECRET) == 3  # docs/threats.md says so
    profile = give(runner, runner.base / "p.toml", b'extends = "default"\n[protect]\nscan = true\n')
    result = runner.supervise(command, options=("-q", "-p", str(profile)))
    assert (result.status, result.out.count("TOKEN=pincer:")) == (0, 3), result
    assert SECRET not in result.stdout


def test_p28_a_second_name_made_before_the_run_changes_nothing(runner: support.Runner) -> None:
    target = give(runner, runner.home / ".bashrc", b"# mine\n")
    os.link(target, runner.work / "notes.txt")
    runner.supervise(["sh", "-c", "echo evil >> notes.txt"])
    assert target.read_bytes() == b"# mine\n"


def test_p28_links_within_the_work_tree_are_made(runner: support.Runner) -> None:
    give(runner, runner.work / "a", b"a")
    result = runner.supervise(["sh", "-c", "ln a b && ln -s a c && ln c d && stat -c %h a"])
    assert result.out.strip() == "2", result  # GNU ln links a symlink itself
    assert os.path.samefile(runner.work / "a", runner.work / "b")


MOVES = """
for line in json.loads(sys.argv[1]):
    old, new, flags = line
    note(f"{old} {new} {flags}", word(call("renameat2", AT_FDCWD, old, AT_FDCWD, new, flags)))
report()
"""


def moves(runner: support.Runner, *lines: tuple[Path | str, Path | str, int]) -> support.Result:
    """Try the renames; each must be refused with EACCES."""
    import json

    found, result = attack(runner, MOVES, json.dumps([[str(old), str(new), flags] for old, new, flags in lines]))
    assert set(found.values()) == {"EACCES"}, found
    assert result.denied()
    return result


def test_p29_a_folder_with_hooks_stays_where_it_is(runner: support.Runner) -> None:
    """Parents of .git/hooks, the folder itself, and another put in its place."""
    hooks = folder(runner, runner.work / "sub/project/.git/hooks")
    give(runner, hooks / "pre-commit", b"#!/bin/sh\n", 0o755)
    give(runner, runner.work / "mine/pre-commit", b"#!/bin/sh\nevil\n", 0o755)
    git, mine = hooks.parent, runner.work / "mine"
    with Unchanged(runner.work):
        moves(
            runner,
            (hooks, runner.work / "taken", 0),
            (git, runner.work / "taken", 0),
            (git.parent, runner.work / "taken", 0),
            (runner.work / "sub", runner.work / "taken", 0),
            (hooks, mine, 2),
            (mine, hooks, 2),
            (git, mine, 2),
            (mine, git, 2),
            (git.parent, mine, 2),
            (mine, git.parent, 2),
            (runner.work / "sub", mine, 2),
            (mine, runner.work / "sub", 2),
            (hooks / "pre-commit", mine / "pre-commit", 2),
            (mine / "pre-commit", hooks / "pre-commit", 2),
        )


def test_p29_a_folder_that_holds_a_home_stays(runner: support.Runner) -> None:
    """Renaming a parent of protected files, then making new ones under the old name."""
    give(runner, runner.home / ".config/fish/config.fish", b"# mine\n")
    give(runner, runner.home / ".bashrc", b"# mine\n")
    give(runner, runner.work / "mine/.bashrc", b"evil\n")
    with Unchanged(runner.home):
        moves(
            runner,
            (runner.home, runner.base / "taken", 0),
            (runner.home, runner.work / "taken", 0),
            (runner.home, runner.work / "mine", 2),
            (runner.work / "mine", runner.home, 2),
            (runner.home / ".config", runner.work / "taken", 0),
            (runner.home / ".config", runner.work / "mine", 2),
            (runner.home / ".config/fish", runner.work / "mine", 2),
        )
    assert not (runner.base / "taken").exists()


def test_p29_no_folder_is_moved_under_a_protected_name(runner: support.Runner) -> None:
    """A folder made under innocent names whose contents would become hooks, start files, systemd units."""
    folder(runner, runner.work / ".git")
    folder(runner, runner.home / ".config")
    give(runner, runner.work / "mine/pre-commit", b"#!/bin/sh\nevil\n", 0o755)
    give(runner, runner.work / "tree/fish/config.fish", b"evil\n")
    give(runner, runner.work / "units/user/evil.service", b"evil\n")
    with Unchanged(runner.home, runner.work):
        moves(
            runner,
            (runner.work / "mine", runner.work / ".git/hooks", 0),
            (runner.work / "mine", runner.work / ".git/hooks", 1),
            (runner.work / "tree", runner.home / ".config", 0),
            (runner.work / "units", runner.home / ".config/systemd", 0),
        )


def test_p29_a_workspace_in_the_home_is_not_taken_away(runner: support.Runner) -> None:
    """The work tree itself, and what is above it, are not the worker's to move."""
    project = folder(runner, runner.home / "projects/one")
    give(runner, project / ".git/hooks/pre-commit", b"#!/bin/sh\n", 0o755)
    give(runner, runner.home / "projects/two/f", b"")
    with Unchanged(runner.home):
        result = runner.supervise(
            python(
                runner,
                "p = sys.argv[1]\n"
                "note('up', word(call('renameat', AT_FDCWD, p + '/projects', AT_FDCWD, p + '/x')))\n"
                "note('self', word(call('renameat', AT_FDCWD, p + '/projects/one', AT_FDCWD, p + '/projects/x')))\n"
                "note('swap', word(call('renameat2', AT_FDCWD, p + '/projects/one', AT_FDCWD, p + '/projects/two', 2)))\n"
                "report()\n",
                str(runner.home),
            ),
            cwd=project,
        )
    assert result.out.count("EACCES") == 3, result


def test_p29_moves_within_the_work_tree_happen(runner: support.Runner) -> None:
    give(runner, runner.work / "a/b/c", b"c")
    give(runner, runner.work / "d/e", b"e")
    result = runner.supervise(
        python(
            runner,
            "note('swap', word(call('renameat2', AT_FDCWD, 'a', AT_FDCWD, 'd', EXCHANGE)))\n"
            "note('move', word(call('renameat2', AT_FDCWD, 'd', AT_FDCWD, 'f', NOREPLACE)))\n"
            "note('taken', word(call('renameat2', AT_FDCWD, 'f', AT_FDCWD, 'a', NOREPLACE)))\nreport()",
        )
    )
    assert result.out.count("ok") == 2 and "EEXIST" in result.out, result
    assert (runner.work / "f/b/c").read_bytes() == b"c"
    assert (runner.work / "a/e").read_bytes() == b"e"
