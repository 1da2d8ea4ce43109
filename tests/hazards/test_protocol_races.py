"""Attacks on the moment between the look and the act: P1, P2, P12, P17, P40 and P94. Each attacker is a small program
that would win natively, or under a supervisor that lets the kernel read the worker's memory again.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import give, new_sessions, numbers, outside, program, script, secret

TRIES = 1000
SLOW = 100_000


def counts(runner: support.Runner, command: list[str], timeout: float = 60) -> dict[str, int]:
    return numbers(runner.supervise(command, timeout=timeout))


def names(runner: support.Runner, forbidden: Path) -> list[str]:
    """Two names that differ in one letter: of an allowed object, and of `forbidden`."""
    allowed = give(runner, runner.work / "real" / forbidden.name, b"plain\n")
    for letter, target in (("a", allowed), ("b", forbidden)):
        (runner.work / letter).symlink_to(target.parent)
    return [str(runner.work / letter / forbidden.name) for letter in "ab"]


def assert_raced(found: dict[str, int]) -> None:
    """The attack was made, and never came through."""
    assert found["reached"] == found["other"] == 0, found
    assert found["done"] and found["refused"], f"the race did not happen: {found}"


@pytest.mark.parametrize("tries", [TRIES, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p01_a_flipped_path_never_reads_the_secret(runner: support.Runner, tries: int) -> None:
    assert_raced(counts(runner, [program("p1_flip"), "read", str(tries), *names(runner, secret(runner))], 600))


@pytest.mark.parametrize("tries", [TRIES, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p01_a_flipped_path_never_opens_for_writing(runner: support.Runner, tries: int) -> None:
    assert_raced(counts(runner, [program("p1_flip"), "write", str(tries), *names(runner, outside(runner))], 600))


@pytest.mark.parametrize("tries", [3000, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p13_a_full_table_is_no_way_around(runner: support.Runner, tries: int) -> None:
    """Injecting fails with EMFILE while another thread frees a number: never may the kernel be let to open the path."""
    found = counts(runner, [program("p1_flip"), "full", str(tries), *names(runner, secret(runner))], 600)
    assert found["reached"] == 0
    assert found["done"] and found["refused"] and found["other"], f"the race did not happen: {found}"


@pytest.mark.parametrize("call", ["truncate", "chmod", "unlink", "rename", "onto"])
@pytest.mark.parametrize("tries", [600, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p01_a_flipped_path_never_changes_the_other(runner: support.Runner, call: str, tries: int) -> None:
    forbidden = outside(runner)
    before = support.snapshot(forbidden.parent), forbidden.stat().st_ino
    assert_raced(counts(runner, [program("p1_flip"), call, str(tries), *names(runner, forbidden)], 600))
    assert (support.snapshot(forbidden.parent), forbidden.stat().st_ino) == before


def test_p02_killed_while_asking(runner: support.Runner) -> None:
    """Every record of a file that is named after a process bears that process."""
    result = runner.supervise([program("p2_storm"), "killed", "150"])
    assert numbers(result) == {"wrong": 0}
    named = [entry for entry in result.decisions if Path(entry["path"]).name.startswith("own-") and entry["pid"]]
    assert len({entry["pid"] for entry in named}) > 10  # more or fewer are killed before they ask
    wrong = [entry for entry in named if Path(entry["path"]).name.split("-")[1] != str(entry["pid"])]
    assert not wrong
    assert not [entry["reason"] for entry in result.decisions if "supervisor failed" in entry["reason"]]
    # a file that is left bears its maker's number or nothing: the killed one had opened it, not another
    for path in runner.work.glob("own-*"):
        assert path.read_bytes() in (b"", path.name.split("-")[1].encode() + b"\n")


@pytest.mark.both_identities
def test_p02_pid_numbers_that_come_round(runner: support.Runner) -> None:
    """In a pid namespace of some 300 numbers, a process has the number of a dead one all the time. It must never
    get the dead one's memory, descriptors or working directory."""
    root = support.identities()["root"]
    if not isinstance(root, support.Identity):
        pytest.skip("making a pid namespace with a small pid_max needs root")
    for side in "ab":
        give(runner, runner.work / side / "who", side.encode())
    limit = 'mount -t proc proc /proc && echo 340 > /proc/sys/kernel/pid_max || exit 77; exec "$@"'
    words = ["unshare", "--pid", "--fork", "--mount", "sh", "-c", limit, "sh", *runner.identity.switch]
    words += [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(new_sessions(runner)), "--quiet"]
    maker = support.Runner(runner.base, root)
    result = maker.native([*words, "--", program("p2_storm"), "reuse", "500"])
    if result.status == 77:
        pytest.skip("pid_max of a pid namespace cannot be set (Linux 6.14)")
    assert numbers(result) == {"wrong": 0, "failed": 0}
    assert (runner.work / "a" / "mine").read_bytes() == b"a" * 500
    assert (runner.work / "b" / "mine").read_bytes() == b"b" * 500


@pytest.mark.parametrize("tries", [2000, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p12_flipped_flags_of_openat2_read_nothing(runner: support.Runner, tries: int) -> None:
    found = counts(runner, [program("p12_flags"), str(tries), str(secret(runner))], 600)
    assert found["data"] == 0
    assert found["path"] == 0, "O_PATH by openat2 was continued: its flags can be flipped"
    assert found["refused"] and found["absent"], "the race did not happen"
    assert found["other"] == 0


@pytest.mark.parametrize("call", ["create", "unlink", "fchmod", "chmodat"])
@pytest.mark.parametrize("tries", [TRIES, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p17_a_descriptor_that_is_replaced(runner: support.Runner, call: str, tries: int) -> None:
    allowed, forbidden = give(runner, runner.work / "d" / "x", b"plain\n"), outside(runner, "x")
    before = support.snapshot(forbidden.parent), forbidden.stat().st_ino
    found = counts(runner, [program("p17_table"), call, str(tries), str(allowed.parent), str(forbidden.parent)], 600)
    assert found["reached"] == 0
    assert (support.snapshot(forbidden.parent), forbidden.stat().st_ino) == before
    assert found["done"] and found["refused"], "the race did not happen"


@pytest.mark.parametrize("tries", [TRIES, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_p17_a_descriptor_that_is_replaced_reads_nothing(runner: support.Runner, tries: int) -> None:
    """The same for reading: `x` is innocent in one folder and a key in the other."""
    allowed = give(runner, runner.work / "d" / "x", b"plain\n")
    key = give(runner, runner.home / ".ssh" / "x", b"canary-5e1f\n", 0o600)
    found = counts(runner, [program("p17_table"), "read", str(tries), str(allowed.parent), str(key.parent)], 600)
    assert found["reached"] == 0
    assert found["done"], "the race did not happen"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="int 0x80 and x32 are doors of x86_64")
def test_p40_foreign_calls_answer_enosys_and_do_nothing(runner: support.Runner) -> None:
    give(runner, runner.work / "there", b"as it was\n")
    before = support.snapshot(runner.work)
    found = counts(runner, [program("p40_foreign")])
    assert len(found) == 20
    assert {name: value for name, value in found.items() if value != -errno.ENOSYS} == {}
    assert support.snapshot(runner.work) == before


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="int 0x80 and x32 are doors of x86_64")
def test_p40_the_attacker_can_attack(runner: support.Runner) -> None:
    """Without us the same program does reach the file: else the test above proves nothing."""
    give(runner, runner.work / "there", b"as it was\n")
    found = numbers(runner.native([program("p40_foreign")]))
    if found["i386-getpid"] == -errno.ENOSYS:
        pytest.skip("this kernel has no i386 emulation")
    assert found["i386-getpid"] > 0
    assert found["i386-open"] >= 0
    assert not (runner.work / "there").exists()


def test_p94_spawned_children_open_what_they_name(runner: support.Runner) -> None:
    """Under setarch -R the child's buffer has the address that its parent's had."""
    found = counts(runner, ["setarch", "-R", program("p94_spawn"), "50"])
    assert found == {"wrong": 0, "failed": 0}


@pytest.mark.both_identities
def test_p12_what_an_o_path_descriptor_is_good_for(runner: support.Runner) -> None:
    command = [runner.identity.python, "-I", script("p12_uses")]
    native = runner.native(command)
    runner.fresh()
    supervised = runner.supervise(command)
    assert native.status == 0, native
    assert supervised.out == native.out
    assert supervised.status == 0, supervised


@pytest.mark.both_identities
def test_p12_an_o_path_descriptor_is_no_way_around(runner: support.Runner) -> None:
    key, other = secret(runner), outside(runner)
    before = [support.snapshot(path.parent) for path in (key, other)]
    result = runner.supervise([runner.identity.python, "-I", script("p12_tricks"), str(key), str(other)])
    assert result.status == 0, result
    answers = dict(line.split(" ", 1) for line in result.out.splitlines())
    assert len(answers) == 12
    assert answers.pop("empty") in ("EACCES", "ENOENT")  # ENOENT is the kernel's own without a capability
    assert {name: answer for name, answer in answers.items() if answer != "EACCES"} == {}
    assert "canary" not in result.out
    assert [support.snapshot(path.parent) for path in (key, other)] == before
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
