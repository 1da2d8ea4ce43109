"""The canary test: secrets of many kinds, every way of reading them, and no byte of one that the program gets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import support
from hazards.path_programs.tools import forms, give

PROGRAM = Path(__file__).parent / "programs/p_canary.py"
MARK = b"canary7"

# Kinds of secret files, as they lie in a home.
SECRETS = {
    ".ssh/id_rsa": b"-----BEGIN OPENSSH PRIVATE KEY-----\n@\n-----END OPENSSH PRIVATE KEY-----\n",
    ".ssh/keys/deploy": b"@",
    ".gnupg/private-keys-v1.d/0A.key": b"(private-key @)",
    ".aws/credentials": b"[default]\naws_access_key_id = AKIA@\naws_secret_access_key = @\n",
    ".aws/sso/cache/a.json": b'{"accessToken": "@"}',
    ".azure/msal_token_cache.json": b'{"secret": "@"}',
    ".config/gcloud/application_default_credentials.json": b'{"private_key": "@"}',
    ".config/rclone/rclone.conf": b"[r]\npass = @\n",
    ".config/gh/hosts.yml": b"github.com:\n  oauth_token: @\n",
    ".kube/config": b"users:\n- user:\n    token: @\n",
    ".docker/config.json": b'{"auths": {"r": {"auth": "@"}}}',
    ".vault-token": b"@",
    ".pgpass": b"h:5432:d:u:@\n",
    ".my.cnf": b"[client]\npassword=@\n",
    ".s3cfg": b"[default]\nsecret_key = @\n",
    ".netrc": b"machine h login u password @\n",
    ".git-credentials": b"https://u:@@h\n",
    ".npmrc": b"//registry/:_authToken=@\n",
    ".pypirc": b"[pypi]\npassword = @\n",
    ".cargo/credentials.toml": b'[registry]\ntoken = "@"\n',
    ".terraform.d/credentials.tfrc.json": b'{"credentials": {"t": {"token": "@"}}}',
    ".huggingface/token": b"@",
    ".password-store/mail.gpg": b"@",
    ".local/share/keyrings/login.keyring": b"@",
    ".mozilla/firefox/p/logins.json": b'{"encryptedPassword": "@"}',
    ".bash_history": b"export TOKEN=@\n",
    ".claude/.credentials.json": b'{"accessToken": "@"}',
    ".codex/auth.json": b'{"OPENAI_API_KEY": "@"}',
}
# In a work tree they are views.
VIEWS = {
    ".env": b'# @\nAPI_KEY=@\nexport DB="postgres://u:@@h/d" # @\nPLAIN=@\n',
    "sub/.env.production": b"#!/bin/sh\nTOKEN='@'\n",
    "sub/.env.local": b"@@@ no dotenv at all \xff\n",
}
VARIABLES = {name: MARK.decode() for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD")}


def give_secret(runner: support.Runner, path: Path, content: bytes) -> None:
    give(runner, path, content.replace(b"@", MARK), 0o600)


def traces(data: bytes) -> list[bytes]:
    """The forms in which the canary is in these bytes."""
    return [form for form in forms(MARK) if form in data]


def test_no_byte_of_a_secret_reaches_the_program(runner: support.Runner) -> None:
    assert len(SECRETS) >= 25
    program = runner.base / "p_canary.py"
    program.write_bytes(PROGRAM.read_bytes())
    program.chmod(0o644)
    for name, content in SECRETS.items():
        give_secret(runner, runner.home / name, content)
    for name, content in VIEWS.items():
        give_secret(runner, runner.work / name, content)
    runner.native(["git", "init", "-q"])
    secrets = [*(runner.work / name for name in VIEWS), *(runner.home / name for name in SECRETS)]
    before = {path: (path.read_bytes(), os.stat(path).st_mode & 0o600) for path in secrets}
    shared = set(os.listdir("/dev/shm"))
    result = runner.supervise([runner.identity.python, str(program), *map(str, secrets)], env=VARIABLES, timeout=240)
    assert result.status == 0, result
    ways = int(result.err.partition("ways: ")[2].split()[0])
    worked = set(result.err.partition("worked: ")[2].split("\n")[0].split())
    assert ways >= 40
    assert {"by_read", "by_mmap", "by_splice", "cat", "tar", "perl", "by_path_descriptor"} <= worked  # it did try
    assert b"pincer:" in result.stdout
    places = [runner.work, runner.home, *(Path("/dev/shm") / name for name in set(os.listdir("/dev/shm")) - shared)]
    found = {"standard output": traces(result.stdout), "standard error": traces(result.stderr)}
    for place in [*places, result.session]:
        for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
            if path.is_file() and not path.is_symlink() and path not in before:
                found[str(path)] = traces(path.read_bytes())
    assert not {name: seen for name, seen in found.items() if seen}
    for path, (content, mode) in before.items():
        assert (path.read_bytes(), os.stat(path).st_mode & 0o600) == (content, mode), path


def test_p84_programs_that_compare_refuse_by_themselves(runner: support.Runner) -> None:
    """What they say, and that they say it: the list is part of what a view costs."""
    give_secret(runner, runner.work / ".env", b"TOKEN=@\n")
    runner.native(["git", "init", "-q"])
    runner.native(["git", "add", "-f", ".env"])
    runner.native(["git", "-c", "user.name=u", "-c", "user.email=u@h", "commit", "-qm", "one"])
    give_secret(runner, runner.work / ".env", b"TOKEN=@\nMORE=@\n")
    moved = Path("/dev/shm") / f"{runner.base.name}-moved"
    script = f"""
try() {{ echo "== $1"; shift; "$@" 2>&1 | grep -v '^hint'; }}
try cp cp .env copy
try mv mv .env {moved}
try install install -m 600 .env copy2
try add git add -f .env
try stash git stash
"""
    result = runner.supervise(["sh", "-c", script], timeout=60)
    said = {part.split("\n")[0]: part.partition("\n")[2] for part in result.out.split("== ")[1:]}
    assert "as it was replaced while being copied" in said["cp"], said
    assert "as it was replaced while being copied" in said["install"], said
    assert "as it was replaced while being copied" in said["mv"], said
    for name in ("add", "stash"):  # it would not refuse by itself: a view that is longer than the file is cut off
        assert "Permission denied" in said[name], said
    assert not moved.exists()
    assert (runner.work / ".env").read_bytes() == b"TOKEN=@\nMORE=@\n".replace(b"@", MARK)
    objects = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch"], cwd=runner.work, capture_output=True
    )
    assert b"pincer:" not in objects.stdout, "a view was taken for the file"
