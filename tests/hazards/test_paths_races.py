"""Names that change while they are walked (P21, P37), descriptors that must be gone (P72), leases (P73)."""
# ruff: noqa: E501 - programs in strings

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, Unchanged, attack, compiled, folder, give

NEEDLE = SECRET.decode().strip()


def lay_out(runner: support.Runner) -> Path:
    """`d` is a folder of the work tree, `l` a link to the user's ~/.ssh with the same names in it."""
    for name in ("f", "f-old"):
        give(runner, runner.home / ".ssh" / name, SECRET, 0o600)
        give(runner, runner.work / "d" / name, b"own\n")
    (runner.work / "l").symlink_to(runner.home / ".ssh")
    return runner.home / ".ssh"


SWAP = ["swap", "d", "l"]


def race(runner: support.Runner, words: str, swapper: str, rounds: int, swap: Sequence[str] = SWAP) -> list[int]:
    """Run `race WORDS` against a swapper (of `d` and `l`), which is supervised or not: its counts.

    Again, up to ten times, until both sides were seen: a busy machine may not let the two meet in one run.
    """
    counts = [0, 0, 0, 0]
    for _ in range(10):
        counts = [a + b for a, b in zip(counts, _race_once(runner, words, swapper, rounds, swap), strict=True)]
        if counts[0] and counts[1]:
            break
    return counts


def _race_once(runner: support.Runner, words: str, swapper: str, rounds: int, how: Sequence[str]) -> list[int]:
    program = compiled("race")
    swap = [program, *how, "100000000"]
    outside = subprocess.Popen(swap, cwd=runner.work, stdout=subprocess.DEVNULL) if swapper == "outside" else None
    try:
        inside = f"{shlex.join(swap)} >/dev/null & " if outside is None else ""
        line = f"{inside}{program} {words.format(n=rounds)}; kill $! 2>/dev/null; true"
        result = runner.supervise(["sh", "-c", line])
    finally:
        if outside is not None:
            outside.kill()
            outside.wait()
    assert result.status == 0, result
    return [int(word) for word in result.out.split()]


@pytest.mark.parametrize("swapper", ["inside", "outside"])
@pytest.mark.parametrize("rounds", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_p21_a_swapped_directory_shows_no_secret(runner: support.Runner, swapper: str, rounds: int) -> None:
    lay_out(runner)
    done, refused, found, _ = race(runner, f"read d/f {{n}} {NEEDLE}", swapper, rounds)
    assert found == 0
    assert done and refused, "both sides of the race must have been seen"


@pytest.mark.parametrize("swapper", ["inside", "outside"])
@pytest.mark.parametrize("rounds", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_p21_a_link_that_is_replaced_shows_no_secret(runner: support.Runner, swapper: str, rounds: int) -> None:
    """A link at the end of the path and one in its middle, to an innocent file and to the secret in turn."""
    secrets = lay_out(runner)
    for path, inner, outer in (("n/f", "d", secrets), ("n", "d/f", secrets / "f")):
        swap = ["link", "n", inner, str(outer)]
        done, refused, found, _ = race(runner, f"read {path} {{n}} {NEEDLE}", swapper, rounds, swap)
        assert found == 0
        # One that is outside may be so quick that no two looks see the same: that is refused, too.
        assert refused and (done or swapper == "outside"), "both sides of the race must have been seen"
        (runner.work / "n").unlink()


@pytest.mark.parametrize("swapper", ["inside", "outside"])
@pytest.mark.parametrize("verb", ["write", "truncate", "create", "chmod", "mkdir", "link"])
@pytest.mark.parametrize("rounds", [500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_p21_a_swapped_directory_changes_nothing_there(
    runner: support.Runner, verb: str, swapper: str, rounds: int
) -> None:
    """Also P37: with the swapper inside, two supervised tasks race each other."""
    with Unchanged(lay_out(runner)):
        done, refused, _, _ = race(runner, f"{verb} d/f {{n}}", swapper, rounds)
    assert done and refused, "both sides of the race must have been seen"


@pytest.mark.parametrize("verb", ["unlink", "rename"])
def test_p37_two_tasks_that_move_names(runner: support.Runner, verb: str) -> None:
    """The file is made again each time, so that there is always something to lose."""
    program = compiled("race")
    with Unchanged(lay_out(runner)):
        result = runner.supervise(
            ["sh", "-c", f"{program} swap d l 100000000 >/dev/null & a=$!\n"
                         f"{program} create d/again 100000000 >/dev/null & b=$!\n"
                         f"{program} {verb} d/f 500; kill $a $b"],
        )  # fmt: skip
    done, refused, _, other = (int(word) for word in result.out.split())
    assert refused and done + refused + other == 500, result


def test_p37_swapped_parents_of_a_rename(runner: support.Runner) -> None:
    """A moves files between two folders while B exchanges the folders: no file is lost or doubled."""
    for number in range(20):
        give(runner, runner.work / f"a/{number}", str(number).encode())
    folder(runner, runner.work / "b")
    program = compiled("race")
    result = runner.supervise(
        ["sh", "-c", f"{program} swap a b 100000000 >/dev/null & s=$!\n"
                     "i=0; while [ $i -lt 100 ]; do mv a/$((i % 20)) b/ 2>/dev/null || mv b/$((i % 20)) a/ 2>/dev/null\n"
                     "i=$((i + 1)); done; kill $s"],
    )  # fmt: skip
    assert result.status == 0, result
    left = sorted(path.name for where in ("a", "b") for path in (runner.work / where).iterdir())
    assert left == sorted(str(number) for number in range(20))


@pytest.mark.parametrize("what", ["exec", "lock", "fifo"])
@pytest.mark.parametrize("rounds", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_p72_after_close_nothing_is_held(runner: support.Runner, what: str, rounds: int) -> None:
    """Beside two loops of opens that keep the supervisor busy."""
    program = compiled("again")
    line = f"{program} busy & a=$!; {program} busy & b=$!; {program} {what} {rounds}; s=$?; kill $a $b; exit $s"
    result = runner.supervise(["sh", "-c", line])
    assert result.status == 0, result
    assert result.out == "0\n"


HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, lambda *_: None)
descriptor = os.open(sys.argv[1], os.O_RDONLY if sys.argv[2] == "read" else os.O_RDWR)
fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK if sys.argv[2] == "read" else fcntl.F_WRLCK)
print("held", flush=True)
open(sys.argv[3]).read()
fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"""


@pytest.mark.parametrize(("kind", "opens"), [("write", "cat f"), ("write", "echo x >>f"), ("read", "echo x >>f")])
def test_p73_a_lease_holds_only_the_one_who_opens(runner: support.Runner, kind: str, opens: str) -> None:
    """Somebody outside has a lease on a file: the opener waits as it would natively, everybody else goes on."""
    leased, go = give(runner, runner.work / "f", b"leased\n"), runner.work / "go"
    os.mkfifo(go)
    os.chown(go, runner.identity.uid, runner.identity.gid)
    words = [*runner.identity.switch, runner.identity.python, "-c", HOLDER, str(leased), kind, str(go)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"PATH": support.SYSTEM_PATH}) as holder:
        try:
            assert holder.stdout and holder.stdout.readline() == "held\n"
            line = (
                f"({opens} >/dev/null; echo opened) & for i in 1 2 3 4 5; do cat /etc/passwd >/dev/null; echo $i >g; done;"
                "echo others went on; echo >go; wait"
            )
            result = runner.supervise(["sh", "-c", line.replace(">>f >/dev/null", ">>f")], timeout=15)
        finally:
            holder.kill()
    assert result.out == "others went on\nopened\n", result


def test_p73_the_worker_takes_no_lease(runner: support.Runner) -> None:
    """Which could freeze the supervisor; locks are taken as always."""
    found, _ = attack(
        runner,
        """
import fcntl
make("f", b"x")
d = os.open("f", os.O_RDWR)
for label, command in (("setlease", 1024), ("high", 1024 + 2**32), ("notify", 1026)):
    note(label, word(call("fcntl", d, command, 1)))
note("flock", errno_of(fcntl.flock, d, fcntl.LOCK_EX))
note("lockf", errno_of(fcntl.lockf, d, fcntl.LOCK_EX))
report()
""",
    )
    assert found["setlease"] == found["high"] == "EINVAL"
    assert found["flock"] == found["lockf"] == 0
