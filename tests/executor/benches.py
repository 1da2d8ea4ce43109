"""A bench whose working directory is its workspace, under a profile with one place of each kind."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pincer_trace.testing.fakes import Bench

PROFILE = """
[[rule]]
effects = ["read", "exec"]
paths = ["/**"]
verdict = "allow"
reason = "reads are open"

[[rule]]
effects = ["connect"]
paths = ["{workspace}/**", "//**"]
verdict = "allow"
reason = "everybody near"

[[rule]]
effects = ["change"]
paths = ["{workspace}/**"]
verdict = "allow"
reason = "the work tree"

[[rule]]
effects = ["change"]
paths = ["{workspace}/shared/**"]
verdict = "deny"
reason = "other people's"

[[rule]]
effects = ["create", "mkdir", "mknod", "symlink", "link", "bind"]
paths = ["{workspace}/shared/**"]
verdict = "allow"
reason = "new things"

[[rule]]
effects = ["change"]
paths = ["{workspace}/shared/**"]
when = "own"
verdict = "allow"
reason = "its own things"

[[rule]]
protection = true
effects = ["read", "change", "exec", "connect"]
paths = ["{workspace}/secret/**"]
verdict = "deny"
reason = "secrets"

[[rule]]
protection = true
effects = ["change"]
paths = ["{workspace}/asked/**"]
verdict = "confirm"
reason = "somebody must say"

[[rule]]
protection = true
effects = ["change"]
paths = ["**/.git/config"]
verdict = "confirm"
reason = "git runs what its configuration names"

[[rule]]
protection = true
effects = ["change"]
paths = ["**/.git/config"]
when = "git-config"
verdict = "allow"
reason = "no key that runs a program"
"""

WORKSPACE = b"work"  # what the workspace is called, in its directory
MakeBench = Callable[..., Bench]


def populate(work: Path) -> None:
    """The places that the profile speaks of."""
    for name in ("dir", "empty", "shared", "secret", "asked", "repo/.git"):
        (work / name).mkdir(parents=True)
    for name in ("file", "dir/inner", "shared/foreign", "secret/key", "asked/hook"):
        (work / name).write_text(f"content of {name}\n")
        (work / name).chmod(0o644)
    (work / "repo/.git/config").write_text("[core]\n\tbare = false\n")
    (work / "link").symlink_to("file")
    (work / "dangling").symlink_to("made-by-link")
    (work / "to-secret").symlink_to("secret/key")
    os.mkfifo(work / "fifo", 0o644)


def without_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no file system has files without a name."""
    native = os.open

    def refuse(path, flags, *rest, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "O_TMPFILE")
        return native(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)


@pytest.fixture
def populated() -> Callable[[Path], None]:
    """What fills an empty workspace."""
    return populate


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace, which is also the working directory; umask 022."""
    place = tmp_path.resolve() / WORKSPACE.decode()
    place.mkdir()
    populate(place)
    monkeypatch.chdir(place)
    before = os.umask(0o022)
    yield place
    os.umask(before)


@pytest.fixture
def make_bench(tmp_path: Path, work: Path) -> Iterator[MakeBench]:
    """Make benches; they are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(profile: str = PROFILE, *, confirm_all: bool = False) -> Bench:
            number = len(list(tmp_path.glob("bench*")))
            place = tmp_path.resolve() / f"bench{number}"
            place.mkdir()
            home = str(tmp_path.resolve() / "home")
            return stack.enter_context(
                Bench(str(place), profile, workspace=str(work), home=home, confirm_all=confirm_all)
            )

        yield make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """One bench under the ordinary profile."""
    return make_bench()
