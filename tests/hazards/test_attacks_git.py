"""The user's `git status` above what the worker made: git opens whatever an index calls a submodule (P86).

The other side is as long: what people do with git in repositories that the session made.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import PROGRAMS, attack, folder, give, notes, python

pytestmark = pytest.mark.both_identities

SETTINGS = b"""[user]
\tname = a
\temail = a@example.com
[protocol "file"]
\tallow = always
"""
GOOD = "[core]\\n\\tbare = false\\n"
FIXTURE = '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "touch {}; false"\n'


def prepare(runner: support.Runner) -> Path:
    """A work tree with a commit, a folder in it, and the user's settings. The folder for marks of what ran."""
    give(runner, runner.home / ".gitconfig", SETTINGS)
    give(runner, runner.work / "docs/page", b"the user's\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        result = runner.native(["git", *words])
        assert result.status == 0, result
    return folder(runner, runner.base / "marks")


def look(runner: support.Runner, place: Path, *options: str) -> None:
    how = {"cwd": place} if place != runner.work else {}
    runner.native(["timeout", "5", "git", *options, "status", "-s"], **how)


@pytest.mark.parametrize("supervised", [False, True], ids=["native", "supervised"])
def test_p86_no_repository_runs_a_program_at_git_status(runner: support.Runner, supervised: bool) -> None:
    """Some sixty ways to make one, with the user's `git status` above it and in it afterwards."""
    marks = prepare(runner)
    other = folder(runner, runner.base / "other")
    runner.native(["git", "init", "-q", str(other)])
    runner.native(["git", "-C", str(other), "config", "core.fsmonitor", f"touch {marks}/foreign; false"])
    for name in ("one", "two"):  # repositories that somebody committed into the project, as fixtures are
        fixture = runner.work / "fixtures" / name
        for inner in ("objects", "refs/heads"):
            folder(runner, fixture / inner)
        give(runner, fixture / "HEAD", b"ref: refs/heads/x\n")
        give(runner, fixture / "config", FIXTURE.format(marks / name).encode())
    code = (PROGRAMS / "repositories.py").read_text()
    run = runner.supervise if supervised else runner.native
    result = run([runner.identity.python, "-I", "-S", "-c", code, str(marks), str(other)])
    assert result.status == 0, result
    found = json.loads(result.stdout.splitlines()[-1])
    look(runner, runner.work)
    for way in found:
        place = runner.work / way
        if place.is_dir():
            look(runner, place)
            look(runner, place, "-c", "core.hooksPath=.hooks")
        for repository in (runner.work / f"q_{way}", runner.work / ".git/modules" / way):
            if (repository / "HEAD").is_file():
                look(runner, runner.work, f"--git-dir={repository}")
    ran = {path.name for path in marks.iterdir()}
    if supervised:
        assert ran == set()
        assert (runner.work / ".git/config").read_bytes().count(b"fsmonitor") == 0
    else:
        assert len(ran & found.keys()) > 40, sorted(found.keys() - ran)
        assert {"one", "two", "foreign"} <= ran


def test_p86_a_refusal_at_the_last_close_has_its_record(runner: support.Runner) -> None:
    """The open succeeds, since nothing is known then; the file does not appear, and the log says why."""
    prepare(runner)
    found, result = attack(
        runner,
        """
os.makedirs("q"); make("q/HEAD", b"ref: refs/heads/x\\n")
note("evil", errno_of(make, "q/config", b"[core]\\n\\tfsmonitor = x\\n")); note("there", os.path.exists("q/config"))
note("good", errno_of(make, "q/config.worktree", b"[core]\\n\\tbare = false\\n")); os.listdir("q")
note("content", open("q/config.worktree").read()); report()
""",
    )
    assert found == {"evil": 0, "there": False, "good": 0, "content": "[core]\n\tbare = false\n"}
    (refused,) = result.denied()
    assert refused["path"] == str(runner.work / "q/config")
    assert "core.fsmonitor" in refused["reason"]


def test_p86_what_was_written_keeps_its_attributes(runner: support.Runner) -> None:
    """Mode, times and content of a file that was judged at its last close are those that its writer gave it."""
    result = runner.supervise(
        python(
            runner,
            """
os.makedirs("q"); make("q/HEAD", b"ref: refs/heads/x\\n")
f = os.open("q/config", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o604)
os.write(f, b"[core]\\n"); os.fchmod(f, 0o640); os.utime(f, ns=(10**18, 10**18 + 5))
note("second", errno_of(os.open, "q/config", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
g = os.open("q/config", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600); os.write(g, b"\\tbare = false\\n"); os.close(g)
os.utime(f, ns=(10**18, 10**18 + 5)); os.close(f)
info = os.stat(os.open("q/config", os.O_RDONLY))
note("mode", stat.S_IMODE(info.st_mode)); note("time", info.st_mtime_ns - 10**18); note("names", info.st_nlink)
note("text", open("q/config").read()); report()
""",
        )
    )
    assert notes(result) == {"second": 17, "mode": 0o640, "time": 5, "names": 1, "text": "[core]\n\tbare = false\n"}
    assert not result.denied()


def test_p86_what_is_open_at_the_end_is_judged_too(runner: support.Runner) -> None:
    """The last act of the command: nothing is received after it."""
    prepare(runner)
    result = runner.supervise(["sh", "-c", "mkdir q; echo ref: refs/heads/x >q/HEAD; echo '[core]' >q/config"])
    assert result.status == 0
    assert (runner.work / "q/config").read_bytes() == b"[core]\n"
    assert not result.denied()


def test_a_descriptor_tells_no_name_that_is_gone(runner: support.Runner) -> None:
    """A file with two names: opened by one, which is removed, and moved on by the other."""
    found, _ = attack(
        runner,
        """
make("one", b"x"); os.link("one", "two"); held = os.open("one", os.O_RDONLY); os.unlink("one")
note("write", errno_of(os.open, f"/proc/self/fd/{held}", os.O_WRONLY))
note("truncate", errno_of(os.truncate, f"/proc/self/fd/{held}", 0))
note("link", word(call("linkat", AT_FDCWD, f"/proc/self/fd/{held}", AT_FDCWD, "three", AT_SYMLINK_FOLLOW)))
note("by its name", errno_of(os.open, "two", os.O_WRONLY))
make("four", b"x"); last = os.open("four", os.O_RDONLY); os.unlink("four")
note("no name at all", errno_of(os.open, f"/proc/self/fd/{last}", os.O_WRONLY)); report()
""",
    )
    assert found == {"write": 13, "truncate": 13, "link": "EACCES", "by its name": 0, "no name at all": 0}


HONEST = {
    "clones": r"""
git clone -q src c
git clone -q --bare src b.git
git clone -q --bare src b
git clone -q --mirror src m
for d in c b.git b m; do git -C $d log -1 >log; done
rm -rf c b.git b m
""",
    "init": r"""
git init -q i
git init -q --bare n
git init -q --bare n.git
for r in n n.git; do git -C src push -q ../$r HEAD; git -C $r config core.logAllRefUpdates true; done
(cd docs; git init -q; git add .; git commit -q -m x)
rm -rf i n n.git docs/.git
""",
    "separate": r"""
git init -q --separate-git-dir=apart s
cd s
git rev-parse --absolute-git-dir | grep -q apart
""",
    "work trees": r"""
cd src
git worktree add -q wt
git worktree add -q ../out
cd ../out
echo 2 >b
git add b
git commit -q -m 2
git rebase -q HEAD~1
echo 3 >b
git stash -q
git stash pop -q
git gc -q
cd ../src
git worktree move ../out ../far
git -C ../far status -s
git worktree remove --force ../far
git worktree prune
""",
    "work trees of bare": r"""
git clone -q --bare src w.git
git -C w.git worktree add -q ../one
git clone -q --bare src .bare
git -C .bare worktree add -q ../two
git -C one status -s
git -C two status -s
""",
    "submodules": r"""
git clone -q src top
cd top
git submodule --quiet add ../src mod
git commit -q -m m
git status -s
git mv mod n
git mv n mod
git submodule --quiet deinit -f mod
git submodule --quiet update --init
git -C mod log -1 >log
cd ..
git clone -q --recurse-submodules top again
git -C again/mod log -1 >log
git clone -q src top/late
cd top
git submodule --quiet add ../src late
git submodule absorbgitdirs
git -C late status -s
""",
    "copies": r"""
git clone -q src top
git -C top submodule --quiet add ../src mod
git -C top commit -q -m m
git init -q --bare b
cp -a top t2
git -C t2/mod log -1 >log
mv t2 t3
git -C t3/mod status -s
cp -r b b2
mv b2 b3
git -C b3 status -s || true
tar cf t.tar top
mkdir x
tar xf t.tar -C x
git -C x/top/mod log -1 >log
rsync -a top/ t4/
git -C t4/mod log -1 >log
mkdir a
git init -q a/r
mv a a2
git -C a2/r status
rm -rf t3 x t4 top
""",
    "linked work trees of a bare repository": r"""
for name in plain r.git .bare; do
git clone -q --bare src $name
git -C $name worktree add -q -b one ../one_$name
cd one_$name
git commit -q --allow-empty -m y
git config user.name x
git worktree add -q ../two_$name
git worktree move ../two_$name ../three_$name
cd ..
git -C three_$name status -s
git -C $name worktree remove ../three_$name
done
""",
    "shutil": r"""
git clone -q src top
git -C top submodule --quiet add ../src mod
"$PYTHON" -c 'import shutil; shutil.copytree("top", "t2", symlinks=True)'
git -C t2/mod log -1 >log
""",
    "names of branches": r"""
cd src
git branch config
git branch hooks/x
git checkout -q config
git commit -q --allow-empty -m y
git init -q --bare ../r
git push -q ../r config hooks/x
git clone -q . ../c
cd ../c
git remote add o ../r
git fetch -q o
git remote set-head o config
git rev-parse o/config o/hooks/x >log
""",
    "sources": r"""
mkdir -p app/src/hooks
echo x >app/src/hooks/use.ts
echo x >app/config
mv app/src/hooks app/h
mv app/h app/src/hooks
echo y >>app/src/hooks/use.ts
ln -s config app/config.worktree
rm -r app
""",
}


@pytest.mark.parametrize("above", ["repository", "plain folder"])
@pytest.mark.parametrize("what", HONEST)
def test_p86_repositories_of_the_session_work(runner: support.Runner, what: str, above: str) -> None:
    """Everything passes, and nothing is refused on the way."""
    if above == "repository":
        prepare(runner)
    else:
        give(runner, runner.home / ".gitconfig", SETTINGS)
        give(runner, runner.work / "docs/page", b"the user's\n")
    first = "git init -q src; (cd src; echo 1 >a; git add a; git commit -q -m 1);"
    result = runner.supervise(["sh", "-ec", first + HONEST[what]])
    assert result.status == 0, result
    assert not result.denied(), result.denied()


def test_p86_bare_repositories_of_the_user_have_linked_work_trees(runner: support.Runner) -> None:
    """Of any name, with branches that change in their work trees, which lie beside them."""
    give(runner, runner.home / ".gitconfig", SETTINGS)
    lines = """
git init -q src; (cd src; git commit -q --allow-empty -m 1; git branch -m main)
for name in .bare plain; do git clone -q --bare src $name; git -C $name worktree add -q ../of_$name main; done
"""
    assert runner.native(["sh", "-ec", lines]).status == 0
    lines = """
for name in .bare plain; do
git -C $name worktree add -q -b new ../new_$name
cd of_$name
git checkout -q -b other; git commit -q --allow-empty -m 2; git checkout -q --detach; git rebase -q other
git gc -q; git reflog expire --all
cd ..
git -C $name worktree remove ../new_$name
done
"""
    result = runner.supervise(["sh", "-ec", lines])
    assert result.status == 0 and not result.denied(), (result, result.denied())


def test_p86_the_repository_of_the_work_tree_takes_part(runner: support.Runner) -> None:
    """Work trees and submodules of the user's own repository, one of them with its folder and its parts from before."""
    prepare(runner)
    lines = """
git clone -q . lib; git submodule --quiet add ./lib old; git commit -q -m o
git submodule --quiet deinit -f old
"""
    assert runner.native(["sh", "-ec", lines]).status == 0
    lines = """
git submodule --quiet update --init; git -C old log -1; git submodule --quiet add ./lib new; git commit -q -m n
git worktree add -q .trees/x; git -C .trees/x status -s; git worktree remove .trees/x
git submodule --quiet deinit -f new; git submodule --quiet update --init; git status -s
"""
    result = runner.supervise(["sh", "-ec", lines])
    assert result.status == 0, result
    assert not result.denied(), result.denied()


def test_p86_no_helper_among_the_hooks_by_a_name_of_gits_own(runner: support.Runner) -> None:
    """In the folder of hooks HEAD and `hooks` are any file: what a hook of the user's calls is not the program's."""
    prepare(runner)
    helper = give(runner, runner.work / ".git/hooks/hooks", b"echo fine\n")
    result = runner.supervise(
        ["sh", "-c", "cd .git/hooks; for n in hooks HEAD; do true > $n; echo evil >> $n; mv ../../docs/page $n; done"]
    )
    assert helper.read_bytes() == b"echo fine\n" and not (helper.parent / "HEAD").exists()
    assert {record["path"] for record in result.denied()} == {str(helper), str(helper.parent / "HEAD")}


def test_p86_hooks_of_the_users_own_template(runner: support.Runner) -> None:
    """`git init` copies them, also into a folder that was there; no other hook gets their names."""
    prepare(runner)
    template = runner.home / ".git-templates"
    give(runner, template / "hooks/pre-commit", b"#!/bin/sh\nexit 0\n", 0o755)
    give(runner, runner.home / ".gitconfig", SETTINGS + b"[init]\n\ttemplateDir = ~/.git-templates\n")
    found, result = attack(
        runner,
        """
import subprocess
def git(*words): return subprocess.run(["git", *words], capture_output=True).returncode
note("new", git("init", "-q", "new")); note("docs", git("-C", "docs", "init", "-q"))
note("bare", git("init", "-q", "--bare", "b")); note("clone", git("clone", "-q", "new", "c"))
note("there", [os.path.exists(f"{r}/hooks/pre-commit") for r in ("new/.git", "docs/.git", "b", "c/.git")])
note("denied so far", 0)
os.unlink("new/.git/hooks/pre-commit"); make("new/.git/hooks/pre-commit", b"#!/bin/sh\\nevil\\n"); os.listdir(".")
note("other", errno_of(os.open, "new/.git/hooks/pre-push", os.O_WRONLY | os.O_CREAT, 0o755))
open("new/f").close() if os.path.exists("new/f") else None; os.mkdir("last")
note("evil", os.path.exists("new/.git/hooks/pre-commit")); report()
""",
    )
    assert found == {
        "new": 0,
        "docs": 0,
        "bare": 0,
        "clone": 0,
        "there": [True] * 4,
        "denied so far": 0,
        "other": 13,
        "evil": False,
    }
    assert [os.path.basename(entry["path"]) for entry in result.denied()] == ["pre-commit", "pre-push"]
