"""Other names of protected objects: second names from before the session, and links at protected places."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from pincer_trace.gateway import aliases as aliases_module
from pincer_trace.gateway.aliases import Aliases, TooMany
from pincer_trace.paths import is_inside
from pincer_trace.profile.globs import matches
from pincer_trace.profile.model import PROTECTION

AT = -100
ANYWHERE = """
[[rule]]
effects = ["read"]
paths = ["/**"]
verdict = "allow"
reason = "r"
[[rule]]
protection = true
effects = ["read"]
paths = ["**/*.secret"]
verdict = "view"
reason = "r"
"""


def test_p28_a_second_name_from_before(make_bench, work):
    os.link("secret/key", "innocent")
    bench = make_bench()
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        assert bench.call("openat", AT, b"innocent", flags, 0).error == errno.EACCES
    for call in (("unlink", b"innocent"), ("chmod", b"innocent", 0o777), ("rename", b"innocent", b"x"),
                 ("link", b"innocent", b"x"), ("truncate", b"innocent", 0)):  # fmt: skip
        assert bench.call(*call).error == errno.EACCES, call
    assert "it is also" in str(bench.records("denied")[0]["reason"])
    assert os.path.getsize("secret/key")


def test_p28_what_asks_by_its_other_name(make_bench, work):
    os.link("asked/hook", "innocent")
    bench = make_bench()
    assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).succeeded  # only changes are protected there
    assert bench.call("openat", AT, b"innocent", os.O_WRONLY, 0).error == errno.EACCES
    assert bench.records("denied")[0]["verdict"] == "confirm"
    bench = make_bench(confirm_all=True)
    assert bench.call("openat", AT, b"innocent", os.O_WRONLY, 0).succeeded


def test_p28_where_not_all_can_be_looked_through(make_bench, work, monkeypatch):
    """By the number of names, or since a folder of ours is closed to us: then nothing is known."""
    os.makedirs("deep/er")
    for name in ("deep/er/it.secret", "plain"):
        with open(name, "w"):
            pass
        os.link(name, f"{name}.other")
    bench = make_bench(ANYWHERE)
    aliases, here = bench.engine._authority._aliases, os.getcwdb()
    assert aliases.anywhere([here]) == [here + b"/deep/er/it.secret"]
    real = os.scandir
    monkeypatch.setattr(aliases_module.os, "scandir", lambda path: _closed() if path.endswith(b"er") else real(path))
    with pytest.raises(TooMany):
        aliases.anywhere([here])
    monkeypatch.undo()
    monkeypatch.setattr(aliases_module, "_LIMIT", 3)
    with pytest.raises(TooMany):
        aliases.anywhere([here])


def _closed():
    raise PermissionError(errno.EACCES, "closed")


def test_an_innocent_second_name_is_free(make_bench, work):
    os.link("file", "other")
    bench = make_bench()
    assert bench.call("openat", AT, b"other", os.O_RDWR, 0).succeeded
    assert bench.call("unlink", b"other").succeeded


def test_a_link_at_a_protected_place(make_bench, work):
    """secret -> vault: what is protected is where it really lies."""
    shutil.move("secret", "vault")
    os.symlink("vault", "secret")
    bench = make_bench()
    for path in (b"vault/key", b"secret/key", b"./vault/../vault/key"):
        assert bench.call("openat", AT, path, os.O_RDONLY, 0).error == errno.EACCES, path
    assert bench.call("openat", AT, b"vault/new", os.O_RDWR | os.O_CREAT, 0o600).error == errno.EACCES
    os.mkdir("vaults")
    assert bench.call("openat", AT, b"vaults/new", os.O_RDWR | os.O_CREAT, 0o600).succeeded  # only looks alike


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.EACCES])
@pytest.mark.parametrize("function", ["scandir", "lstat"])
def test_what_cannot_be_looked_up_is_asked_about(make_bench, work, monkeypatch, function, number):
    """One failure must not leave a protected file unknown for the rest of the session."""
    os.link("secret/key", "innocent")
    bench = make_bench()
    real = getattr(os, function)

    def fail(*arguments):
        raise OSError(number, "scripted")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).error == errno.EACCES
    assert getattr(os, function) is real
    assert bench.call("openat", AT, b"innocent", os.O_RDONLY, 0).error == errno.EACCES


def test_a_link_over_a_guarded_name_is_refused(bench, work):
    """A link `repo2/.git`-like name would put what lies elsewhere in a protected place below it."""
    os.rename("secret", "elsewhere")
    os.mkdir("free")
    assert bench.call("symlink", b"free", b"secret").error == errno.EACCES
    assert bench.call("symlink", b"free", b"harmless").succeeded
    assert bench.call("rename", b"harmless", b"secret").error == errno.EACCES
    assert bench.call("link", b"harmless", b"secret").error == errno.EACCES


def test_links_inside_a_place_of_secrets(make_bench, work):
    """secret/one -> a file elsewhere, secret/two -> a folder elsewhere, below further folders too."""
    os.makedirs("elsewhere/folder")
    os.makedirs("secret/below/deep")
    for name in ("one", "folder/two", "three", "innocent"):
        shutil.copy("secret/key", f"elsewhere/{name}")
    os.symlink("../elsewhere/one", "secret/one")
    os.symlink("../elsewhere/folder", "secret/two")
    os.symlink(work / "elsewhere/three", "secret/below/deep/three")
    os.symlink("..", "secret/above")  # means nothing that would not be protected anyway
    bench = make_bench()
    for path in (b"elsewhere/one", b"elsewhere/folder/two", b"elsewhere/three", b"secret/one", b"secret/two/two"):
        for flags in (os.O_RDONLY, os.O_RDWR):
            assert bench.call("openat", AT, path, flags, 0).error == errno.EACCES, path
    assert "it is also" in str(bench.records("denied")[0]["reason"])
    assert bench.call("rename", b"elsewhere", b"moved").error == errno.EACCES
    assert bench.call("openat", AT, b"elsewhere/innocent", os.O_RDWR, 0).succeeded
    assert bench.call("openat", AT, b"file", os.O_RDWR, 0).succeeded
    os.link("elsewhere/one", "second")
    assert bench.call("openat", AT, b"second", os.O_RDONLY, 0).error == errno.EACCES


ENVIRONMENT = """
[[rule]]
protection = true
effects = ["read", "rename", "link"]
paths = ["{workspace}/**/.env"]
verdict = "confirm"
reason = "environment files"
"""


@pytest.fixture
def with_environment(work):
    """A profile with a pattern for any folder, and a link at such a name."""
    from executor.benches import PROFILE

    os.makedirs("a/b/c")
    os.symlink("../../../file", "a/b/c/.env")
    return PROFILE + ENVIRONMENT


def test_a_link_at_a_name_that_is_protected_anywhere(make_bench, with_environment):
    bench = make_bench(with_environment)
    for path in (b"file", b"a/b/c/.env"):
        assert bench.call("openat", AT, path, os.O_RDONLY, 0).error == errno.EACCES
    assert bench.call("rename", b"file", b"x").error == errno.EACCES
    bench = make_bench(with_environment, confirm_all=True)
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded


def test_a_link_that_the_first_look_did_not_reach(make_bench, with_environment, monkeypatch):
    """It counts from the moment that it is met, also for what was allowed by another name before."""
    monkeypatch.setattr("pincer_trace.gateway.aliases._FIRST_LOOK", 2)
    bench = make_bench(with_environment)
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded
    bench.reads.moved()
    for call in (("open", b"a/b/c/.env", os.O_RDONLY), ("openat", AT, b"file", os.O_RDONLY, 0)):
        assert bench.call(*call).error == errno.EACCES, call
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_CREAT):
        bench = make_bench(with_environment)
        assert bench.call("openat", AT, b"a/b/c/.env", flags, 0).error == errno.EACCES
        assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).error == errno.EACCES


def test_a_link_that_is_not_known_yet_protects_no_object(make_bench, with_environment, monkeypatch):
    """A known limit (docs/threats.md): before the link is met, its object is any file."""
    monkeypatch.setattr("pincer_trace.gateway.aliases._FIRST_LOOK", 2)
    bench = make_bench(with_environment)
    assert bench.call("openat", AT, b"file", os.O_RDONLY, 0).succeeded
    assert bench.call("openat", AT, b"a/b/c/.env", os.O_RDONLY, 0).succeeded  # the same object, judged before


def test_links_of_the_tree_protect_nothing(make_bench, with_environment):
    """What the tree itself links it can also open by its name."""
    bench = make_bench(with_environment)
    assert bench.call("symlink", b"dir/inner", b".env").succeeded
    assert bench.call("open", b".env", os.O_RDONLY).succeeded
    assert bench.call("openat", AT, b"dir/inner", os.O_RDONLY, 0).succeeded


def test_links_are_looked_for_within_bounds(make_bench, work, monkeypatch):
    monkeypatch.setattr("pincer_trace.gateway.aliases._LINKS", 3)
    for number in range(50):
        os.symlink(f"../dir/{number}", f"secret/{number}")
    bench = make_bench()
    assert len(bench.authority._aliases.moved) < 10


def test_a_file_system_of_the_kernel_at_another_place(make_bench, work, monkeypatch):
    from pincer_trace.kernel import procfs

    real = procfs.mounts()
    monkeypatch.setattr(procfs, "mounts", lambda: [*real, (b"0:999", b"/kernel", os.fsencode(work / "dir"), b"proc")])
    bench = make_bench(OF_THE_KERNEL)
    assert bench.call("openat", AT, b"dir/inner", os.O_RDWR, 0).error == errno.EACCES
    assert bench.call("openat", AT, b"file", os.O_RDWR, 0).succeeded


OF_THE_KERNEL = """
[[rule]]
effects = ["read", "change"]
paths = ["/**"]
verdict = "allow"
reason = "all"

[[rule]]
protection = true
effects = ["change"]
paths = ["/proc/**"]
verdict = "deny"
reason = "the kernel"
"""


def test_starting_a_program_with_two_names_looks_at_what_may_not_be_started_alone(make_bench, work, monkeypatch):
    """git is such a program; what is closed to changes may be a whole home (seconds)."""
    shutil.copy("/bin/true", "program")
    os.link("program", "second")
    bench = make_bench()
    looked = []
    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked.append(path), listed(path))[1])
    assert bench.call("execve", b"second", 0, 0).resume
    assert not [path for path in looked if path.endswith(b"/asked")]  # closed to changes alone
    assert bench.call("chmod", b"second", 0o700).succeeded
    assert [path for path in looked if path.endswith(b"/asked")]


MANY = """
[[rule]]
protection = true
effects = ["read"]
paths = ["{workspace}/**/{.env,.env.*}", "{workspace}/**/keys/*", "{workspace}/keys/**", "{workspace}/**/a/**/[xy]?",
         "{workspace}/**/*.pem", "{workspace}/de*/**/deep", "{workspace}/**/l/key", "{workspace}/exact"]
verdict = "deny"
reason = "secrets"

[[rule]]
effects = ["read"]
paths = ["/**"]
verdict = "allow"
reason = "the rest"
"""


def test_the_search_finds_what_the_patterns_match_and_looks_once_into_each_directory(make_bench, work, monkeypatch):
    """All patterns that hold for a whole tree are looked for in one walk of it."""
    names = (".env", ".env.local", "env", "keys", "keyring.pem", "deep", "x1", "yy", "zz", "exact", ".pem", "key")
    places = (".", "a", "a/b", "keys", "keys/keys", "den", "den/l", "other", "other/a/keys/deeper")
    for place in places:
        os.makedirs(place, exist_ok=True)
    for place in places:
        for name in names:
            if not os.path.isdir(f"{place}/{name}"):
                with open(f"{place}/{name}", "w") as file:
                    file.write(place)
                os.link(f"{place}/{name}", f"{place}/{name}-")
    os.mkdir("linked")
    os.symlink("../keys", "linked/keys")  # what a pattern names is followed
    os.symlink("../keys", "linked/l")
    os.symlink("../other", "linked/den")  # what only `**` passes is not
    bench = make_bench(MANY)
    top = os.fsencode(os.getcwd())
    rules = [rule for rule in bench.profile.rules if rule.tier == PROTECTION]
    expected = set()
    for directory, _, files in os.walk(top):
        for name in files:
            found = os.lstat(directory + b"/" + name)
            if any(matches(rule.components, directory + b"/" + name) for rule in rules):
                expected.add((found.st_dev, found.st_ino))
    for name in names:  # by way of the links at names that patterns have
        found = os.lstat(f"keys/{name}")
        if os.path.isfile(f"keys/{name}"):
            expected.add((found.st_dev, found.st_ino))
    looked: list[bytes] = []
    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked.append(path), listed(path))[1])
    known = Aliases(bench.profile)._scan(frozenset({"read"}))
    assert {key for key, path in known.items() if is_inside(path, top)} == expected
    assert len(expected) > 40
    assert looked.count(top + b"/other/a/keys/deeper") <= 4  # of nine patterns: below /**, below a/**, in keys/


def test_records_of_earlier_sessions_are_not_walked_through(make_bench, monkeypatch):
    """There are more of them with each run, and each has one name: a run does not take longer for it."""
    bench = make_bench(MANY)
    os.makedirs("keys/deep/er", exist_ok=True)
    bench.profile.state = os.fsencode(os.path.realpath("keys"))
    looked: list[bytes] = []
    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked.append(path), listed(path))[1])
    Aliases(bench.profile)._scan(frozenset({"read"}))
    assert looked
    assert not [path for path in looked if is_inside(path, bench.profile.state)]
