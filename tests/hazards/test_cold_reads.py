"""First reads of files in real runs: most are let pass by their folder, and none that is to be judged by itself."""

from __future__ import annotations

import os

import support

READER = """
import os, sys
for turn in range(2):
    for name in sorted(os.listdir(".")):
        try:
            with open(name, "rb") as file: print(name, file.read().decode())
        except OSError as error: print(name, error.strerror)
"""

PROFILE = """
extends = "default"
[[rule]]
effects = ["read"]
paths = ["**/*.pem", "**/id_*"]
verdict = "deny"
protection = true
reason = "keys of the test"
"""


def test_a_folder_with_secrets_in_it(runner: support.Runner) -> None:
    """Ordinary files, secrets by their whole name, its beginning or its end, and one by a second name."""
    work = runner.work / "folder"
    work.mkdir()
    ordinary = [f"file{number}" for number in range(40)]
    secret = (".env", ".env.local", "server.pem", "id_rsa")
    for name in (*ordinary, *secret):
        (work / name).write_text(f"TOKEN=value-of-{name}\n")
    os.link(work / ".env.local", work / "linked")
    profile = runner.base / "keys.toml"
    profile.write_text(PROFILE)
    profile.chmod(0o644)
    for name in (".", *os.listdir(work)):
        os.chown(work / name, runner.identity.uid, runner.identity.gid)
    result = runner.supervise(
        [runner.identity.python, "-I", "-S", "-c", READER], options=("-p", str(profile)), cwd=work
    )
    assert result.status == 0, result
    for name in ordinary:
        assert result.out.count(f"{name} TOKEN=value-of-{name}\n") == 2
    for name in (*secret, "linked"):
        assert f"value-of-{name}" not in result.out, result
    rows = [row for row in result.decisions if row["effect"] == "read" and str(row["path"]).startswith(str(work))]
    counts: dict[str, int] = {}
    for row in rows:
        if row["verdict"] == "allow":
            name = os.path.basename(row["path"])
            found = os.stat(row["path"])
            assert (row["dev"], row["ino"]) == (found.st_dev, found.st_ino)
            assert row["rule"].startswith("default.toml:") and row["exe"] == os.path.realpath(runner.identity.python)
            counts[name] = counts.get(name, 0) + row["count"]
    assert {name: counts.get(name) for name in ordinary} == dict.fromkeys(ordinary, 2)
    assert not counts.keys() & {"server.pem", "id_rsa"}
    assert len([row for row in rows if row["verdict"] == "deny"]) == 4


def test_a_secret_that_has_lost_its_protected_name(runner: support.Runner) -> None:
    """Found at the start by `scan`, it stays one when it has a single name that nothing protects."""
    work = runner.work / "folder"
    work.mkdir()
    profile = runner.base / "scan.toml"
    profile.write_text('extends = "default"\n[protect]\nscan = true\n')
    profile.chmod(0o644)
    (work / ".env").write_text("TOKEN=value-of-a-secret\n")
    os.link(work / ".env", work / "notes")
    for name in ("one", "two"):
        (work / name).write_text(f"{name}\n")
    for name in (".", *os.listdir(work)):
        os.chown(work / name, runner.identity.uid, runner.identity.gid)
    command = ["sh", "-c", "cat one two && rm -f .env && cat two notes && stat -c %h notes"]
    result = runner.supervise(command, options=("-q", "-p", str(profile)), cwd=work)
    assert result.status == 0 and result.out.startswith("one\ntwo\ntwo\n") and result.out.endswith("\n1\n"), result
    assert "value-of-a-secret" not in result.out and "TOKEN=pincer:" in result.out, result
