"""What the kernel refuses the caller anyway is recorded and not counted as a denial; all else is counted."""

from __future__ import annotations

import json
import os

import pytest
import support
from hazards.path_programs.tools import attack

pytestmark = pytest.mark.both_identities

# Each act with the name of a record. The last ones must count: natively they succeed, or are refused by another rule.
ACTS = """
def tell(name, act, *arguments):
    note(name, errno_of(act, *arguments))
import ctypes, socket
"""


def run(runner: support.Runner, body: str, *words: str) -> tuple[dict, list[dict], int]:
    """What the acts answered, the denials, and the number that the session has counted."""
    found, done = attack(runner, ACTS + body + "\nreport()", *words)
    counts = json.loads((done.session / "session.json").read_text())["counts"]
    return found, done.denied(), counts["denied"]


def test_what_belongs_to_root_is_no_denial_of_ours(runner: support.Runner) -> None:
    """As root, the kernel refuses nothing of it: then each is a denial."""
    body = """
tell("mkdir", os.mkdir, "/usr/pincer-x")
tell("create", os.open, "/usr/pincer-x", os.O_CREAT | os.O_WRONLY)
tell("symlink", os.symlink, "x", "/usr/pincer-x")
tell("mknod", os.mknod, "/usr/pincer-x", 0o10600)
tell("unlink", os.unlink, "/etc/hosts")
tell("write", os.open, "/etc/hosts", os.O_WRONLY)
tell("truncate", os.open, "/etc/hosts", os.O_WRONLY | os.O_TRUNC)
tell("read", os.open, "/etc/shadow", os.O_RDONLY)
"""
    found, denied, counted = run(runner, body)
    assert set(found.values()) == {13} and len(denied) == 8
    native = runner.identity.uid != 0
    assert [entry.get("native", False) for entry in denied] == [native] * 8
    assert counted == (0 if native else 8)


def test_what_the_user_could_do_without_us_counts(runner: support.Runner) -> None:
    """Their own files, a link (of which the kernel asks no write access), a mode, a rename, and a read of a secret."""
    home = runner.home
    for name in ("own", "readonly", ".ssh/id_x", ".local/bin/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
        (home / name).chmod(0o444 if name == "readonly" else 0o600)
        for path in (home / name, (home / name).parent):
            os.chown(path, runner.identity.uid, runner.identity.gid)
    body = """
home = sys.argv[1] + "/"
tell("mkdir", os.mkdir, home + ".local/bin/d")
tell("write", os.open, home + "own", os.O_WRONLY)
tell("unlink", os.unlink, home + "own")
tell("rename", os.rename, home + "own", home + "other")
tell("chmod", os.chmod, home + "readonly", 0o600)
tell("link", os.link, home + "readonly", "here")
tell("read", os.open, home + ".ssh/id_x", os.O_RDONLY)
tell("both", os.open, home + ".ssh/id_x", os.O_RDWR)
"""
    found, denied, counted = run(runner, body, str(home))
    assert set(found.values()) == {13}
    assert counted == len(denied) == 8 and not [entry for entry in denied if "native" in entry]


def test_the_ids_in_force_are_asked(runner: support.Runner) -> None:
    """A worker that gave up root is refused by the kernel what root is not."""
    if runner.identity.uid:
        pytest.skip("only root has ids to give up")
    body = """
tell("root", os.mkdir, "/usr/pincer-x")
os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
tell("user", os.mkdir, "/usr/pincer-x")
tell("shadow", os.open, "/etc/shadow", os.O_RDONLY)
"""
    found, denied, counted = run(runner, body)
    assert set(found.values()) == {13}
    assert [entry.get("native", False) for entry in denied] == [False, True, True] and counted == 1


def test_the_last_line_counts_alike(runner: support.Runner) -> None:
    """Effects as lines of the log; reads as the sum of theirs; without what the kernel refused too."""
    (runner.home / "no").write_text("")
    os.chown(runner.home / "no", runner.identity.uid, runner.identity.gid)
    script = "cat /etc/hosts /etc/hosts; echo x > new; mkdir /usr/pincer-x; cat /etc/shadow; echo x > $HOME/no; exit 0"
    done = runner.supervise(["sh", "-c", script], options=())
    trace = done.trace
    effects = [call for call in trace.calls if call.allowed and call.effect != "read"]
    reads = sum(call.count for call in trace.reads)
    assert f"pincer-trace: {len(effects)} effects and {reads} reads allowed, {len(trace.denials)} denied; " in done.err
    assert len(trace.denials) == (1 if runner.identity.uid else 3)
