"""Reading git's configuration, compared with what git itself reads; and which keys run programs."""

import shutil
import subprocess

import pytest

from pincer_trace.profile.gitconfig import LEADS, RUNS, TRUSTS, changed_keys, danger, parse

FILES = [
    b'[core]\n\tbare = false\n\tfilemode\n[remote "origin"]\n\turl = x\n\tfetch = +refs/*:refs/x/*\n',
    b'[a]b=1\n[A]B = 2 ; comment\n  # more\n[x.Y]z = "q \\" # no" tail  \n',
    b'[core]\n\tpager = less \\\n  -R\n[alias "Q.q"] s = !sh\n',
    b'\xef\xbb\xbf[u "a\\\\b"]\r\n\tk = v\r\n',
]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("content", FILES)
def test_the_keys_and_values_are_those_of_git(tmp_path, content):
    file = tmp_path / "config"
    file.write_bytes(content)
    listed = subprocess.run(["git", "config", "-z", "-f", file, "--list"], capture_output=True, check=True).stdout
    expected: dict[str, list] = {}
    for item in listed.decode().split("\0")[:-1]:
        key, newline, value = item.partition("\n")
        expected.setdefault(key, []).append(value if newline else None)
    assert parse(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"k = v\n",
        b"[a\nb=1\n",
        b'[a]\nb = "x\n',
        b"[a]\nb = \\q\n",
        b"[a]\n1=2\n",
        b"\0",
        b'[a "b]\n',
        b"[a]\nb c\n",
    ],
)
def test_what_is_not_understood_is_unknown(content):
    assert parse(content) is None
    assert changed_keys(b"", content) is None


def test_changes_are_the_keys_whose_values_differ():
    before = b'[a]\nx = 1\ny = 2\n[b "c"]\nz = 3\n'
    after = b'[b "c"]\nz = 3\nz = 4\n[a]\ny = 2\n'
    assert changed_keys(before, after) == {"a.x", "b.c.z"}
    assert changed_keys(before, b'# said otherwise\n[A]\nX=1\nY="2"\n[b "c"]\nz=3') == frozenset()


@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "core.hookspath",
        "core.sshcommand",
        "core.pager",
        "core.editor",
        "alias.st",
        "filter.lfs.smudge",
        "diff.x.textconv",
        "diff.x.command",
        "merge.x.driver",
        "credential.helper",
        "credential.https://x.helper",
        "include.path",
        "includeif.gitdir:/x.path",
        "url.git@x:.insteadof",
        "gpg.program",
        "gpg.ssh.program",
        "remote.origin.uploadpack",
        "remote.a.b.receivepack",
        "remote.o.vcs",
        "pager.log",
        "core.worktree",
        "submodule.x.update",
    ],
)
def test_keys_that_are_dangerous(key):
    assert danger(key)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("core.sshcommand", RUNS),
        ("alias.st", RUNS),
        ("diff.x.textconv", RUNS),
        ("core.hookspath", LEADS),
        ("include.path", LEADS),
        ("http.proxy", TRUSTS),
        ("http.https://x.sslverify", TRUSTS),
        ("http.delegation", TRUSTS),
        ("remote.origin.proxy", TRUSTS),
        ("url.git@x:.insteadof", TRUSTS),
    ],
)
def test_the_danger_that_is_named_is_true_for_the_key(key, what):
    assert danger(key) == what


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("[core]\nfsmonitor = false", set()),
        ("[core]\nfsmonitor = True", set()),
        ("[core]\nfsmonitor", set()),
        ("[core]\nfsmonitor = /tmp/x", {"core.fsmonitor"}),
        ("[core]\nfsmonitor = 1", {"core.fsmonitor"}),  # git before 2.36 runs what is so named
        ("[core]\nfsmonitor = true\nfsmonitor = x", {"core.fsmonitor"}),
        ("[pager]\nlog = false", set()),
        ("[pager]\nlog = less", {"pager.log"}),
        ('[submodule "a.b"]\nupdate = rebase', set()),
        ('[submodule "a"]\nupdate = !sh', {"submodule.a.update"}),
        ("[core]\nhookspath = true", {"core.hookspath"}),
        ("[alias]\nst = false", {"alias.st"}),
    ],
)
def test_a_switch_that_names_no_program_is_no_change(text, changed):
    assert changed_keys(b"", text.encode()) == changed
    assert changed_keys(b"[core]\nfsmonitor = /x", b"") == set()  # back to the user's own setting
    assert changed_keys(b"[core]\nhookspath = /x", b"") == {"core.hookspath"}


@pytest.mark.parametrize(
    "key",
    [
        "core.bare",
        "core.repositoryformatversion",
        "remote.origin.url",
        "remote.origin.fetch",
        "branch.main.remote",
        "branch.main.merge",
        "user.name",
        "user.email",
        "submodule.x.url",
        "submodule.active",
        "extensions.worktreeconfig",
        "merge.conflictstyle",
        "diff.algorithm",
        "lfs.https://x.access",
    ],
)
def test_keys_that_do_not(key):
    assert not danger(key)
