"""What the black-box tests share: running a command natively and supervised, as root and as a user, and
comparing.

Only the command line is used (`pincer-trace [OPTIONS] -- COMMAND`, `log --json`) and what the package offers for tests,
never the modules inside, so that these tests hold for any rewrite of them. Environment variables:

    PINCER_TEST_PYTHON       an interpreter with pincer-trace that an unprivileged user may run
    PINCER_TEST_PREFIX       words instead of the supervisor: `env --` runs native against native
    PINCER_TEST_IDENTITIES   default | all | user | root: whom `identity` stands for
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pincer_trace.testing import Trace

REPOSITORY = Path(__file__).resolve().parent.parent
PREFIX = shlex.split(os.environ.get("PINCER_TEST_PREFIX", ""))
USER_ID = 61234  # an unprivileged id that no distribution hands out
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Identity:
    """Who runs: a name, ids, the interpreter, and the words that a command is started with."""

    def __init__(self, name: str, uid: int, gid: int, python: str) -> None:
        self.name, self.uid, self.gid, self.python = name, uid, gid, python

    def __repr__(self) -> str:
        return self.name

    @property
    def switch(self) -> list[str]:
        """The command prefix that becomes this identity; empty when we are it already."""
        if self.uid == os.geteuid():
            return []
        ids = [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        # setpriv keeps root's capabilities up to its own exec, which therefore opens anything: env
        # is that exec
        return ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--", "env"]

    @functools.cached_property
    def works(self) -> bool:
        """Whether the interpreter runs as this identity and has pincer-trace, isolated (hazard P81)."""
        probe = [*self.switch, self.python, "-I", "-c", "import pincer_trace, msgspec"]
        done = subprocess.run(probe, cwd="/", env={"PATH": SYSTEM_PATH}, capture_output=True)
        return done.returncode == 0


@functools.cache
def identities() -> dict[str, Identity | str]:
    """The identities of this machine; for one that cannot be had, the reason in words."""
    us, group = os.geteuid(), os.getegid()
    if us == 0:
        return {"root": first_working("root", 0, 0), "user": first_working("user", USER_ID, USER_ID)}
    return {"root": "not started as root", "user": first_working("user", us, group)}


def first_working(name: str, uid: int, gid: int) -> Identity | str:
    """This identity with the first interpreter that it may run and that has pincer-trace."""
    if uid != os.geteuid() and shutil.which("setpriv") is None:
        return "setpriv is missing (Debian package util-linux)"
    for python in filter(None, (sys.executable, os.environ.get("PINCER_TEST_PYTHON"))):
        identity = Identity(name, uid, gid, python)
        if identity.works:
            return identity
    return f"no interpreter with pincer-trace that {name} may run: start through scripts/test"


def chosen_identities(both: bool) -> list[str]:
    """Names to run a test as: by default the user, and root too for tests that ask for both."""
    choice = os.environ.get("PINCER_TEST_IDENTITIES", "default")
    if choice in ("root", "user"):
        return [choice]
    if choice == "all" or both:
        return ["user", "root"]
    return ["user"] if isinstance(identities()["user"], Identity) or os.geteuid() else ["root"]


class Result:
    """What a run gave: the shell's status (128+n for a signal), both outputs, and the decisions of
    its ledger."""

    command: Sequence[str] = ()

    def __init__(self, status: int, stdout: bytes, stderr: bytes, log: _Log | None = None) -> None:
        self.status, self.stdout, self.stderr, self._log = status, stdout, stderr, log

    @property
    def out(self) -> str:
        return self.stdout.decode(errors="surrogateescape")

    @property
    def err(self) -> str:
        return self.stderr.decode(errors="surrogateescape")

    @functools.cached_property
    def decisions(self) -> list[dict[str, Any]]:
        """The records of `log --json`, in order. Empty for a native run."""
        return self._log.read() if self._log else []

    @property
    def session(self) -> Path:
        """The session's directory."""
        assert self._log is not None
        return self._log.session()

    @functools.cached_property
    def trace(self) -> Trace:
        """The run as the pytest plugin gives one, with its assertions."""
        return Trace(str(self.session), self.command, self.status, self.out, self.err)

    def denied(self, path: str | Path | None = None) -> list[dict[str, Any]]:
        """Decisions whose verdict is not allow, of one path or of all."""
        refused = [entry for entry in self.decisions if entry["verdict"] != "allow"]
        return [entry for entry in refused if path is None or entry["path"] == str(path)]

    def __repr__(self) -> str:
        return f"status {self.status}\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


class _Log:
    """The ledger of one run, read through the command line when somebody asks."""

    def __init__(self, folder: Path, identity: Identity, env: Mapping[str, str]) -> None:
        self.folder, self.identity, self.env = folder, identity, env

    def session(self) -> Path:
        found = [path.parent for path in self.folder.rglob("ledger.jsonl")]
        assert len(found) == 1, f"expected one session below {self.folder}, found {found}"
        return found[0]

    def read(self) -> list[dict[str, Any]]:
        if PREFIX:
            return []
        words = [
            *self.identity.switch,
            self.identity.python,
            "-I",
            "-m",
            "pincer_trace",
            "log",
            str(self.session()),
            "--json",
        ]
        done = subprocess.run(words, cwd="/", env=dict(self.env), capture_output=True, timeout=60)
        assert done.returncode == 0, f"log --json: {done.stderr.decode()}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def environment(identity: Identity, home: Path | str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A small, equal environment for both runs."""
    env = {
        "PATH": SYSTEM_PATH,
        "HOME": str(home),
        "USER": identity.name,
        "LOGNAME": identity.name,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "SHELL": "/bin/sh",
        "PYTHON": identity.python,
    }
    return env | dict(extra or {})


class Runner:
    """Runs commands of one test as one identity, each supervised run with a session directory of its own."""

    def __init__(self, base: Path, identity: Identity) -> None:
        self.base, self.identity = base, identity
        self.work, self.home = base / "work", base / "home"
        self.count = 0

    def fresh(self) -> None:
        """New empty work and home folders, at the same paths as before."""
        for folder in (self.work, self.home):
            remove_tree(folder)
            folder.mkdir()
            os.chown(folder, self.identity.uid, self.identity.gid)

    def native(self, command: Sequence[str], **how: Any) -> Result:
        """Run `command` as it is."""
        return self._run(list(command), None, how)

    def supervise(self, command: Sequence[str], *, options: Sequence[str] = ("--quiet",), **how: Any) -> Result:
        """Run `command` under pincer-trace (or under PINCER_TEST_PREFIX)."""
        if PREFIX:
            return self._run([*PREFIX, *command], None, how)
        self.count += 1
        sessions = self.base / f"sessions{self.count}"
        sessions.mkdir(mode=0o700)
        os.chown(sessions, self.identity.uid, self.identity.gid)
        ours = [self.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(sessions), *options, "--"]
        result = self._run([*ours, *command], sessions, how)
        result.command = command
        return result

    def subcommand(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """`pincer-trace WORDS...` by this user, outside of the work folder."""
        command = [*self.identity.switch, self.identity.python, "-I", "-m", "pincer_trace", *map(str, words)]
        env = environment(self.identity, self.home)
        return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=120)

    def _run(self, words: list[str], sessions: Path | None, how: dict[str, Any]) -> Result:
        cwd, timeout = how.pop("cwd", self.work), how.pop("timeout", 60)
        env = environment(self.identity, self.home, how.pop("env", None))
        data = how.pop("input", None)
        words = [*self.identity.switch, *words]
        how.setdefault("stdin", subprocess.DEVNULL if data is None else subprocess.PIPE)
        with subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **how,
        ) as process:
            for pipe in (process.stdout, process.stderr):
                os.fchown(pipe.fileno(), self.identity.uid, self.identity.gid)  # type: ignore[union-attr]
            try:
                out, err = process.communicate(data, timeout)
            except subprocess.TimeoutExpired:
                states = describe_tree(process.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                shown = Result(-1, out, err)
                raise AssertionError(f"no end after {timeout} s: {shlex.join(words)}\n{states}\n{shown}") from None
        code = process.returncode
        log = _Log(sessions, self.identity, env) if sessions else None
        return Result(code if code >= 0 else 128 - code, out, err, log)


def supervise(
    command: Sequence[str],
    *,
    options: Sequence[str] = (),
    cwd: Path,
    env: Mapping[str, str] | None = None,
    user: Identity | None = None,
    timeout: float = 60,
    input: bytes | None = None,
) -> Result:
    """Run `command` under pincer-trace in `cwd`, whose parent gets the session directory and
    serves as HOME."""
    identity = user or next(who for who in identities().values() if isinstance(who, Identity))
    runner = Runner(cwd.parent, identity)
    while (cwd.parent / f"sessions{runner.count + 1}").exists():
        runner.count += 1
    runner.work, runner.home = cwd, cwd.parent
    return runner.supervise(command, options=options, env=env, timeout=timeout, input=input)


def explanation(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What `why` prints, as name -> lines, and its first line under ""."""
    head, *rest = done.stdout.splitlines()
    found: dict[str, Any] = {"": head}
    name = ""
    for line in rest:
        name = line[:8].strip() or name
        found.setdefault(name, []).append(line[8:])
    return found


def snapshot(folder: Path | str, contents: bool = True) -> dict[str, str]:
    """Every name below `folder` with its type, mode, owner, link target, link group, extended
    attributes and contents.

    Times are left out: they differ between any two runs. Directory link counts are left out too,
    since file systems differ.
    """
    top = os.fsencode(folder)
    entries: dict[bytes, tuple[os.stat_result, list[str]]] = {}
    groups: dict[tuple[int, int], list[bytes]] = {}
    for parent, folders, files in os.walk(top):
        for name in [*folders, *files, *([b"."] if parent == top else [])]:
            path = os.path.join(parent, name)
            info = os.lstat(path)
            words = [stat.filemode(info.st_mode), f"{info.st_uid}:{info.st_gid}"]
            relative = os.path.relpath(path, top)
            if stat.S_ISREG(info.st_mode):
                groups.setdefault((info.st_dev, info.st_ino), []).append(relative)
                words.append(f"{info.st_size} bytes")
                if contents:
                    words.append(digest(path))
            elif stat.S_ISLNK(info.st_mode):
                words.append("-> " + repr(os.readlink(path)))
            elif stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
                words.append(f"device {info.st_rdev:x}")
            if not stat.S_ISLNK(info.st_mode):
                with contextlib.suppress(OSError):
                    words += [f"{key}={os.getxattr(path, key)!r}" for key in sorted(os.listxattr(path))]
            entries[relative] = (info, words)
    for names in groups.values():
        if len(names) > 1:
            for name in names:
                entries[name][1].append("same file as " + repr(min(names)))
    return {os.fsdecode(name): " ".join(words) for name, (_, words) in sorted(entries.items())}


def digest(path: bytes) -> str:
    """A short digest of a file's bytes; `unreadable` where its mode keeps us out."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except PermissionError:
        return "unreadable"


def differences(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """What two snapshots differ in, one line each."""
    return [
        f"{name!r}: natively {left.get(name, 'absent')}; supervised {right.get(name, 'absent')}"
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    ]


def children() -> set[int]:
    """Our direct children; as a subreaper we get every orphan too."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found


def describe_tree(pid: int) -> str:
    """The processes below `pid`, a line each, for the message of a failed test."""
    lines = []
    stack = [pid]
    while stack:
        one = stack.pop()
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0]
            call = (
                Path(f"/proc/{one}/syscall").read_text().split()[0]
                if os.access(f"/proc/{one}/syscall", os.R_OK)
                else ""
            )
            lines.append(f"  {one} {state} call {call} {command[:120]}")
            for task in os.listdir(f"/proc/{one}/task"):
                stack += [int(word) for word in Path(f"/proc/{one}/task/{task}/children").read_text().split()]
    return "\n".join(lines)


def reap(known: set[int], patience: float = 10.0) -> list[str]:
    """Wait for children that a test left behind, then end them. The descriptions of those that had
    to be ended."""
    end = time.monotonic() + patience
    while True:
        left = children() - known
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = children() - known
        if not left or time.monotonic() > end:
            break
        time.sleep(0.02)
    ended = []
    while left:
        for pid in left:
            ended.append(describe_tree(pid) or str(pid))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        left = children() - known
    return ended


def open_descriptors() -> dict[int, str]:
    """Our own descriptors and what they point to, without the one that lists them."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return {number: target for number, target in found.items() if not target.endswith(f"/{os.getpid()}/fd")}


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Nobody else's test of the same `what` meanwhile, in no process: for names that are the same in all of them."""
    with open(Path(tempfile.gettempdir()) / f"pincer-test-{os.geteuid()}-{what}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def left_open(known: Mapping[int, str], patience: float = 10.0) -> dict[int, str]:
    """The descriptors that are not among the known ones. One that a thread has only just now closes by itself."""
    end = time.monotonic() + patience
    while True:
        left = {number: target for number, target in open_descriptors().items() if known.get(number) != target}
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)


def remove_tree(folder: Path) -> None:
    """Remove a tree whatever its modes."""
    if not os.path.lexists(folder):
        return
    os.chmod(folder, 0o700)
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder)
