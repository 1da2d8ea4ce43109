"""Random system calls as the worker: the supervisor lives and answers all, nothing outside changes, the log verifies.

As an unprivileged user, in folders that are thrown away. What it may not call is a table with reasons.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support
from attacks.kit import compiled
from hazards.path_programs.tools import SECRET, Unchanged, folder, give, outside
from hazards.programs.p_kit import numbers

from pincer_trace.kernel import table
from pincer_trace.ledger.verify import verify

# What the program must not call, and why.
LEFT_OUT = {
    "it would signal processes at random, its own family first": [
        "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal",
    ],
    "it would lose its own memory": [
        "munmap", "mremap", "mprotect", "pkey_mprotect", "mmap", "brk", "madvise", "remap_file_pages", "arch_prctl",
        "shmat", "shmdt", "rseq", "modify_ldt", "map_shadow_stack", "mseal", "set_robust_list", "rt_sigaction",
    ],
    "it would end": ["exit", "exit_group"],
    "processes without number": ["fork", "vfork", "clone", "clone3"],
    "it would become another program": ["execve", "execveat"],
    "it would stop for ever, or hold another": [
        "ptrace", "pause", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigreturn", "restart_syscall", "vhangup",
    ],
    "the machine would be slow for everybody": ["sync", "syncfs", "fsync", "fdatasync", "sync_file_range", "msync"],
    "it would take itself the time, or the means": [
        "alarm", "setitimer", "timer_create", "timer_settime", "setrlimit", "prlimit64",
    ],
    "objects that outlive the run": [
        "shmget", "semget", "msgget", "mq_open", "shmctl", "semctl", "msgctl", "msgsnd", "mq_unlink",
    ],
}  # fmt: skip
SIGNATURES = {
    "open": "pfm", "openat": "dpfm", "openat2": "dphn", "creat": "pm", "rename": "pp", "renameat": "dpdp",
    "renameat2": "dpdpf", "unlink": "p", "unlinkat": "dpf", "rmdir": "p", "link": "pp", "linkat": "dpdpf",
    "symlink": "pp", "symlinkat": "pdp", "mkdir": "pm", "mkdirat": "dpm", "mknod": "pmn", "mknodat": "dpmn",
    "truncate": "pn", "chmod": "pm", "fchmod": "dm", "fchmodat": "dpm", "fchmodat2": "dpmf", "chown": "pnn",
    "fchown": "dnn", "lchown": "pnn", "fchownat": "dpnnf", "utime": "pb", "utimes": "pb", "futimesat": "dpb",
    "utimensat": "dpbf", "setxattr": "ppbnf", "lsetxattr": "ppbnf", "fsetxattr": "dpbnf", "removexattr": "pp",
    "lremovexattr": "pp", "fremovexattr": "dp", "chdir": "p", "fchdir": "d", "umask": "m", "bind": "dan",
    "connect": "dan", "sendto": "dbnfan", "sendmsg": "dbf", "dup2": "dd", "dup3": "ddf", "ioctl": "d*b",
    "fcntl": "d*b", "socket": "nnn", "socketpair": "nnnb",
}  # fmt: skip
OFTEN = 8  # times as often as the others: what the supervisor is asked about


def plan() -> str:
    """A line for each call that may be made, more for those that are judged."""
    excluded = {name for names in LEFT_OUT.values() for name in names}
    rows = [row for row in table.load().values() if row.name not in excluded]
    lines = []
    for row in rows:
        signature = SIGNATURES.get(row.name, "").ljust(6, "*")
        asked = row.disposition.startswith("notify") or row.name in SIGNATURES
        lines += [f"{row.number} {signature}"] * (OFTEN if asked else 1)
    return "\n".join(lines) + "\n"


def test_what_is_left_out_is_known() -> None:
    known = {row.name for row in table.load("x86_64").values()}
    assert {name for names in LEFT_OUT.values() for name in names} <= known
    assert SIGNATURES.keys() <= known


@pytest.fixture
def aside(identity: support.Identity) -> Iterator[support.Runner]:
    """A runner whose folders lie in no temporary directory: there anybody may make new things."""
    above = Path(
        os.environ.get("PINCER_TEST_CACHE", "/var/cache/pincer-trace-tests" if os.geteuid() == 0 else Path.home())
    )
    if any(map(above.resolve().is_relative_to, ("/tmp", "/var/tmp", "/dev/shm"))):
        pytest.skip(f"{above} is a temporary directory")
    above.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="pincer-test-", dir=above)).resolve()
    base.chmod(0o755)
    os.chown(base, identity.uid, identity.gid)
    made = support.Runner(base, identity)
    made.fresh()
    yield made
    support.remove_tree(base)


def lay_out(runner: support.Runner) -> tuple[list[Path], list[str]]:
    """Files of all kinds: those that must stay as they are, and the paths to try."""
    home, work = runner.home, runner.work
    protected = [
        give(runner, home / ".ssh/id_ed25519", SECRET, 0o600),
        give(runner, home / ".aws/credentials", SECRET, 0o600),
        give(runner, home / ".bashrc", b"# mine\n"),
        give(runner, work / ".git/hooks/pre-commit", b"#!/bin/sh\n", 0o755),
        give(runner, home / ".config/fish/config.fish", b"# mine\n"),
        outside(runner),
    ]
    folder(runner, work / "fuzz/d")
    made = runner.native(
        ["sh", "-euc", "cd fuzz; for n in a b d/c; do echo $n > $n; done; ln a hard; ln -s a link; ln -s no dangling;"
         "ln -s loop loop; ln -s ../../home/.ssh secrets; ln -s ../.git/hooks hooks; mkfifo fifo"],
    )  # fmt: skip
    assert made.status == 0, made
    names = ["a", "b", "d", "d/c", "d/new", "hard", "link", "dangling", "loop", "fifo", "new", "x", "y"]
    names += ["secrets", "secrets/id_ed25519", "secrets/new", "hooks"]
    paths = [*names, "hooks/pre-commit", "", ".", "..", "../..", "/", "d/../a", "./././a", "//a"]
    paths += (
        [str(path) for path in protected]
        + [f"{path}.new" for path in protected]
        + [str(path.parent) for path in protected]
    )
    paths += [
        "/proc/self",
        "/proc/self/mem",
        "/proc/self/fd",
        "/proc/thread-self/attr/current",
        "/proc/1/environ",
        "/dev/null",
    ]
    paths += [
        "/dev/fd/3",
        "/dev/stdin",
        "/dev/tty",
        "/dev/ptmx",
        "/etc/passwd",
        "/etc/shadow",
        "/sys/kernel",
        "user.x",
        "user.y",
    ]
    return protected, paths


def at_hooks(runner: support.Runner) -> dict[str, str]:
    """The hooks, but for their times; of the directory only the names, since its mode may be set."""
    above = runner.work / ".git/hooks"
    above.chmod(0o755)
    return {name: line for name, line in support.snapshot(above).items() if name != "."}


def fuzz(runner: support.Runner, seed: int, children: int, calls: int) -> None:
    if runner.identity.uid == 0:
        pytest.skip("only as an unprivileged user: what got through would harm the machine")
    protected, paths = lay_out(runner)
    give(runner, runner.base / "plan" / "calls", plan().encode())
    give(runner, runner.base / "plan" / "paths", "".join(f"{path}\n" for path in paths).encode())
    marks = []
    for path in protected:
        info = path.stat()
        marks.append(f"{info.st_dev}:{info.st_ino}:{'r' if info.st_mode & 0o777 == 0o600 else 'w'}")
    command = [
        compiled("fuzz"),
        str(seed),
        str(children),
        str(calls),
        *(str(runner.base / "plan" / name) for name in ("calls", "paths")),
    ]
    print(f"seed {seed}")
    hooks = at_hooks(runner)
    with Unchanged(runner.home, runner.base / "outside"):
        result = runner.supervise([*command, *marks], cwd=runner.work / "fuzz", options=(), timeout=60 + children)
        assert result.status == 0, (seed, result)
    assert at_hooks(runner) == hooks, seed
    there = {path.name for path in runner.base.iterdir()}
    assert there == {"work", "home", "outside", "plan", *(f"sessions{n + 1}" for n in range(runner.count))}, seed
    found = numbers(result)
    assert found["opened"] == 0, seed
    assert found["made"] > children * calls / 10, (seed, found)
    assert found["succeeded"] > found["made"] / 20, (seed, found)
    assert SECRET.strip() not in result.stdout + result.stderr
    check_log(result, seed)


def check_log(result: support.Result, seed: int) -> None:
    """The supervisor took nothing for an error of its own, ended all that it began, and its log is whole."""
    decisions: list[dict[str, Any]] = result.decisions
    failures = [record for record in decisions if record["kind"] == "failure"]
    assert not failures, (seed, {record["reason"] for record in failures})
    assert not [record for record in decisions if record["outcome"] == "unknown"], seed
    assert {record["verdict"] for record in decisions} == {"allow", "view", "confirm", "deny"}, seed
    assert not verify(str(result.session)).faults, seed


def test_random_calls_change_nothing_outside(aside: support.Runner) -> None:
    fuzz(aside, random.SystemRandom().getrandbits(32), children=32, calls=600)


@pytest.mark.slow
def test_many_random_calls_change_nothing_outside(aside: support.Runner) -> None:
    for _ in range(4):
        aside.fresh()
        fuzz(aside, random.SystemRandom().getrandbits(32), children=200, calls=1000)
