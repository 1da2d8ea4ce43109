"""What makes git run a program, asked of one entry at a time; and what the user's template holds."""

from __future__ import annotations

import os

import pytest

from pincer_trace.gateway.gitconfig import Hope, Written
from pincer_trace.gateway.repositories import Entry, Repositories, Templates
from pincer_trace.twin.target import Target

GOOD, EVIL = b"[core]\n\tbare = false\n", b"[core]\n\tfsmonitor = x\n"
REFERENCE = b"0" * 40 + b"\n"
OWN = "gitdir: ../own/.git/modules/x\n"


@pytest.fixture
def ask(work, monkeypatch):
    """The danger of what an open would make of `path` with `content`; False: nothing is known, True: the best."""
    monkeypatch.setenv("HOME", str(work / "home"))
    monkeypatch.delenv("GIT_TEMPLATE_DIR", raising=False)
    top = os.fsencode(work)
    repositories = Repositories(top + b"/repo/.git", lambda path: b"/templates/" in path, lambda _path: False)

    def ask(path: str, content: bytes | bool = False, effect: str = "create") -> str | None:
        full = top + b"/" + path.encode()
        directory, _, name = full.rpartition(b"/")
        os.makedirs(directory, exist_ok=True)
        parent = os.open(directory, os.O_PATH)
        witness = None if content is False else Hope() if content is True else Written(b"", content)
        try:
            target = Target(full, parent=parent, name=name)
            entry = Entry(effect, target, parent, witness, lambda place: place.startswith(top + b"/own"))
            return repositories.danger(entry)
        finally:
            os.close(parent)

    return ask


def head(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/HEAD", "w") as file:
        file.write("ref: refs/heads/x\n")


@pytest.mark.parametrize("where", ["r", "r.git", ".bare", "x/.git", "x/.git/modules/a", "repo/.git"])
def test_configuration_is_judged_by_content_where_git_reads_it(ask, where):
    if where == "r":
        assert ask("r/config", EVIL) == ""  # any file of that name
        head("r")
    for name in ("config", "config.worktree"):
        path = f"{where}/{name}"
        assert ask(path, GOOD) == ask(path, True) == ""
        assert "core.fsmonitor" in ask(path, EVIL)
        assert ask(path) and ask(path, b"[core") and ask(path, GOOD, "symlink")
        assert ask(path, REFERENCE) == ""  # git cannot read it, so it is a branch


def test_names_of_branches_are_free(ask):
    head("x/.git/refs/remotes/o")
    for path in ("refs/heads/config", "logs/refs/heads/config", "logs/refs/heads/hooks/pre-push", "logs/refs/o/HEAD"):
        assert ask(f"x/.git/{path}", b"anything") == "", path
    assert ask("x/.git/refs/remotes/o/config.lock") == ask("x/.git/refs/remotes/o/hooks/fix.lock") == ""
    assert ask("x/.git/refs/remotes/o/config", EVIL)
    assert ask("x/.git/logs/x/commondir", b"../..\n")


def test_hooks_are_those_of_the_users_template(ask, work):
    (work / "home/.git-templates/templates/hooks").mkdir(parents=True)
    (work / "home/.git-templates/templates/hooks/pre-commit").write_bytes(b"mine")
    (work / "home/.gitconfig").write_text("[init]\n\ttemplateDir = ~/.git-templates/templates\n")
    head("r")
    for where in ("r", "x/.git", "x/.git/modules/a"):
        assert ask(f"{where}/hooks/pre-commit", b"mine") == ask(f"{where}/hooks/pre-commit", True) == ""
        assert ask(f"{where}/hooks/pre-commit", b"other") and ask(f"{where}/hooks/pre-commit")
        assert ask(f"{where}/hooks/pre-push", b"mine") and ask(f"{where}/hooks/pre-push", True)
        assert ask(f"{where}/hooks/pre-push.sample", b"any") == ask(f"{where}/hooks/.pre-push.Xy12", b"any") == ""
        assert ask(f"{where}/hooks", effect="symlink") == "a link"
    assert ask("src/hooks/pre-commit", b"any") == ask("src/hooks", effect="symlink") == ""
    assert ask("src/any/post-index-change", b"any")


def test_a_template_that_the_worker_could_write_is_none(work, monkeypatch):
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(work / "t"))
    (work / "t/hooks").mkdir(parents=True)
    (work / "t/hooks/update").write_bytes(b"x")
    assert Templates(lambda _path: True).hook(b"update") == b"x"
    assert Templates(lambda _path: False).hook(b"update") is None
    assert Templates(lambda _path: True).hook(b"absent") is None


def test_a_head_is_judged_by_what_lies_beside_it(ask, work):
    assert ask("r/HEAD") == ""
    (work / "r/config").write_bytes(EVIL)
    assert "core.fsmonitor" in ask("r/HEAD")
    with open(work / "r/config", "r+b") as writer:
        writer.truncate(0)
        assert "config beside it" in ask("r/HEAD")
    assert ask("r/HEAD") == ""
    os.link(work / "r/config", work / "second")
    assert ask("r/HEAD")
    os.unlink(work / "second")
    (work / "r/hooks").mkdir()
    (work / "r/hooks/x.sample").write_bytes(b"")
    assert ask("r/HEAD") == ""
    (work / "r/hooks/update").write_bytes(b"x")
    assert "hooks beside it" in ask("r/HEAD")
    (work / "r/hooks/update").unlink()
    (work / "r/commondir").write_bytes(b"..")
    assert "commondir beside it" in ask("r/HEAD")
    head("r")
    assert ask("r/HEAD", effect="rename") is None  # it goes away
    assert ask("r/HEAD") == ""  # there was one, so they were judged


def test_a_directory_of_that_name_is_no_head(ask, work):
    (work / "r/HEAD").mkdir(parents=True)
    (work / "r/config").write_bytes(EVIL)
    assert ask("r/HEAD")


def test_a_pointer_leads_to_what_the_session_made(ask, work):
    os.makedirs(work / "own/.git/modules/x")
    os.makedirs(work / "other/.git")
    os.makedirs(work / "repo/.git/modules/y")
    os.symlink("../other/.git", work / "own/link")
    for text, fine in (
        (OWN, True),
        (f"gitdir: {work}/own/.git/modules/x\n", True),
        ("gitdir: ../own/nothing/yet\n", True),
        ("gitdir: ../repo/.git/modules/y\n", True),
        ("gitdir: ../repo/.git/worktrees/y\n", True),
        ("gitdir: ../repo/.git\n", False),
        ("gitdir: ../repo/.git/objects\n", False),
        ("gitdir: ../other/.git\n", False),
        ("gitdir: ../own/link\n", False),
        ("gitdir: ../nowhere\n", False),
        ("gitdir: \n", False),
        (OWN + OWN, False),
        ("git: ../own\n", False),
        ("", True),
        ("\n", False),
    ):
        assert (ask("sub/.git", text.encode()) == "") == fine, text
    assert ask("sub/.git", True) == ""
    assert ask("sub/.git") and ask("sub/.git", effect="symlink") == "a link"


def test_commondir_is_what_git_writes(ask, work):
    head("x.git/worktrees/n")
    for where in ("x/.git/worktrees/n", "x.git/worktrees/n", "repo/.git/worktrees/n", "x/.git/modules/a/worktrees/n"):
        assert ask(f"{where}/commondir", b"../..\n") == ask(f"{where}/commondir", True) == ""
        assert ask(f"{where}/commondir", b"../../../evil\n")
    assert ask("x/.git/commondir", b"../..\n")
    head("r/worktrees/n")
    assert ask("r/worktrees/n/commondir", b"../..\n")  # whose configuration is free while it has no HEAD
    head("r")
    assert ask("r/worktrees/n/commondir", b"../..\n") == ask("r/worktrees/n/commondir", True) == ""
    assert ask("r/worktrees/n/commondir", b"../../x\n")
    assert ask("y/worktrees/n/commondir", b"anything") == ""
    for content, fine in ((b"../..\n", True), (b"../../y\n", False)):  # as programs do that write it before HEAD
        (work / "r/worktrees/m").mkdir(exist_ok=True)
        (work / "r/worktrees/m/commondir").write_bytes(content)
        assert (ask("r/worktrees/m/HEAD", b"ref: refs/heads/x\n") == "") == fine


def test_what_a_linked_work_tree_takes_its_files_from_is_judged_without_head(ask, work):
    assert ask("r/config", EVIL) == ask("r/hooks/post-checkout", b"x") == ""
    head("r/worktrees/n")
    (work / "r/worktrees/a").touch()
    assert ask("r/config", EVIL) == ask("r/hooks/post-checkout", b"x") == ""
    (work / "r/worktrees/n/commondir").write_bytes(b"../..\n")
    assert "core.fsmonitor" in ask("r/config", EVIL)
    assert ask("r/hooks/post-checkout", b"x") and ask("r/commondir", b"../x\n")
    assert ask("r/config", GOOD) == ""
    assert ask("x/config", EVIL) == ""
    (work / "x/worktrees").mkdir()
    for number in range(1001):
        (work / f"x/worktrees/{number}").mkdir()
    assert ask("x/config", EVIL)


def test_the_work_tree_of_a_submodule_lies_beside_its_repository(ask):
    def configuration(place: str) -> bytes:
        return f"[core]\n\tworktree = {place}\n".encode()

    assert ask("x/.git/modules/a/config", configuration("../../../a")) == ""
    assert ask("x/.git/modules/a/config", configuration("../../../../a"))
    assert ask("x/.git/modules/a/config", configuration("../../hooks"))  # a checkout would write there what git runs
    assert ask("x/.git/modules/a/config", configuration("/etc"))
    assert ask("x/.git/config", configuration("a"))
    assert ask("x/.git/modules/a/config", configuration("../../../a") + b"\tfsmonitor = x\n")
