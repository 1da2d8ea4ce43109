"""The matrix: every verb on every protected path, by every route, by every kind of process: thousands of cells a run.

The same program does each cell natively first, on equal files made anew for each: what works there must be refused,
with a record that names the path, and change nothing. So no cell is refused because it is a bad attack.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import support
from attacks.kit import between_marks, compiled
from hazards.path_programs.tools import Unchanged, folder, give
from hazards.programs.p_kit import new_sessions

from pincer_trace.ledger.verify import verify

SCRIPT = b"#!/bin/sh\nexit 42\n"

ACTORS = ("thread", "shared", "fork", "orphan", "memfd", "script", "loader", "listener")
ROUTES = (
    "direct", "dots", "cwd", "self-cwd", "self-root", "task-root", "parent-root", "link-to-folder", "links",
    "link-to-magic", "link", "folder-descriptor", "sent-folder", "odd-register", "self-fd-folder", "thread-fd-folder",
    "dev-fd-folder", "self-fd", "sent-file", "pid-fd", "empty",
)  # fmt: skip
FULL = {("self", "direct"), ("self", "folder-descriptor")}  # what all verbs take in the ordinary run, too
RESOLVE = ("plain", "no_xdev", "no_magic", "no_links", "beneath", "in_root", "many")
READS = ("read", *(f"read2-{flags}" for flags in RESOLVE), "read2-cached", "open-read", "exec")
CHMODS = ("chmod", "chmod2", "held-chmod", "old-chmod")
CHOWNS = ("chown", "held-chown", "old-chown", "old-lchown")
UTIMES = ("utime", "held-utime", "old-utime", "old-utimes", "old-futimesat")
PRESENT = (
    *READS, *CHMODS, *CHOWNS, *UTIMES, "write", "append", "both", "empty", "read-empty", "over", "over-empty",
    *(f"write2-{flags}" for flags in RESOLVE), "write2-cached", "open-write", "creat", "truncate", "unlink",
    "rename-from", "rename-onto", "exchange", "exchange-back", "link-from", "link-followed", "xattr", "lxattr",
    "no-xattr", "held-xattr", "held-no-xattr", "held-flags", "old-unlink", "old-rename", "old-link",
)  # fmt: skip
ABSENT = (
    "create", "create-alone", *(f"create2-{flags}" for flags in RESOLVE), "nameless", "rename-new", "link-to",
    "symlink", "mkdir", "fifo", "mknod", "bind", "old-symlink", "old-mkdir", "old-mknod",
)  # fmt: skip
# Doors that the filter itself shuts, by registers: no notification, so no record.
I386 = ("read", "write", "openat", "truncate", "unlink", "rename", "link", "chmod", "chown", "utime", "xattr")
CREATING = {"i386-create", "i386-symlink", "i386-mkdir", "i386-mknod", "ring-create", "ring-mkdir"}
RING = ("read", "write", "unlink", "rename")
SHUT = {
    **dict.fromkeys((f"i386-{verb}" for verb in I386), errno.ENOSYS),
    **dict.fromkeys((f"ring-{verb}" for verb in RING), errno.ENOSYS),
    **dict.fromkeys(sorted(CREATING), errno.ENOSYS),
    **dict.fromkeys(("x32-write", "x32-unlink", "xattr-at", "no-xattr-at", "file-attr"), errno.ENOSYS),
    **dict.fromkeys(("handle-read", "handle-write"), errno.EPERM),
}
# One verb for each effect, for ways that are not tried with all.
CORE = {
    "read", "exec", "write", "empty", "over", "truncate", "unlink", "rename-from", "rename-onto", "exchange",
    "link-from", "chmod", "held-chmod", "chown", "utime", "xattr", "read2-plain", "write2-no_links", "create",
    "link-to", "symlink", "mkdir", "fifo", "bind",
}  # fmt: skip
KINDS = {"key", "hook", "module"}  # denied, confirmed, built in: one of each for those ways
# What does not work natively either: kernels without x32; handles need a privilege.
NEVER = {"root": {"x32-write", "x32-unlink"}, "user": {"x32-write", "x32-unlink", "handle-read", "handle-write"}}


class Target(NamedTuple):
    """A protected file, a name beside it that is free, and the verbs that the default profile allows on it."""

    path: str
    free: str
    allowed: frozenset[str] = frozenset()


class Cell(NamedTuple):
    target: str
    actor: str
    route: str
    verb: str
    path: str


class Around(support.Identity):
    """An identity whose runs begin with descriptor 9 on a folder; root's, with everything mounted a second time."""

    def __init__(self, who: support.Identity, base: Path, held: Path) -> None:
        super().__init__(who.name, who.uid, who.gid, who.python)
        self._before = who.switch or ["env"]
        self._base, self._held = base, held
        self.mounts = os.geteuid() == 0

    @property
    def switch(self) -> list[str]:
        mount = f"mount --bind {self._base} {self._base}/again && " if self.mounts else ""
        head = ["unshare", "--mount"] if self.mounts else []
        return [*head, "sh", "-c", f'{mount}exec 9<{self._held} && exec "$@"', "sh", *self._before]


class House:
    """The protected files of one test, and the runs of the program."""

    def __init__(self, runner: support.Runner, service: Path, whole: bool) -> None:
        self.runner = runner
        base, home, work = runner.base, runner.home, runner.work
        runner.identity = Around(runner.identity, base, home / ".ssh")
        readable = frozenset(READS)
        attributes = frozenset([*CHMODS, *CHOWNS, *UTIMES])
        module = base / "lib" / "pincer_trace"
        self.targets = {
            "key": Target(f"{home}/.ssh/id_ed25519", f"{home}/.ssh/id_rsa"),
            "hook": Target(
                f"{work}/.git/hooks/pre-commit", f"{work}/.git/hooks/post-commit", readable | {*CHOWNS, *UTIMES}
            ),
            "shell": Target(f"{home}/.bashrc", f"{home}/.zshrc", readable),
            "agent": Target(
                f"{work}/.claude/settings.json", f"{work}/.claude/settings.local.json", readable | attributes
            ),
            "module": Target(f"{module}/extra.py", f"{module}/json.py", readable),
            "ledger": Target("@/ledger.jsonl", "@/extra"),
        }
        shutil.copytree(support.REPOSITORY / "pincer_trace", module)
        shutil.copytree(support.REPOSITORY / "profiles", module / "profiles")
        self.scratch = folder(runner, work / "scratch")
        self.marks = folder(runner, base / "home/.aws/sso")
        self.socket = service
        folder(runner, base / "again")
        for parent, _, names in os.walk(base / "lib"):
            for name in (".", *names):
                os.chown(os.path.join(parent, name), runner.identity.uid, runner.identity.gid)
        self.furnish()
        self.plan = base / "plan"
        self.cells = list(self._cells(whole))
        self.plan.write_text("".join(f"{n} {c.actor} {c.route} {c.verb} {c.path}\n" for n, c in enumerate(self.cells)))

    def furnish(self) -> None:
        """The protected files as they are before a run, and their free names free."""
        for name, target in self.targets.items():
            if name != "ledger":
                for path in (target.path, target.free):
                    if os.path.lexists(path):
                        subprocess.run(["rm", "-r", path], check=True)
                os.setxattr(give(self.runner, Path(target.path), SCRIPT, 0o755), "user.there", b"1")

    def _cells(self, whole: bool) -> Iterator[Cell]:
        """What each actor does directly, and each route leads to; a name that is free for what makes something."""
        ways = [*(("self", route) for route in ROUTES), *((actor, "direct") for actor in ACTORS)]
        for name, target in self.targets.items():
            of_this = [*ways, *[("self", "inherited")] * (name == "key")]
            if self.runner.identity.mounts and name != "ledger":
                of_this.append(("self", "alias"))
            for actor, route in of_this:
                every = whole or (actor, route) in FULL
                for verb in (*PRESENT, *ABSENT, *(SHUT if every else ())):
                    if not (every or (verb in CORE and name in KINDS)) or (name, verb) == ("ledger", "exec"):
                        continue  # of the rest; and what nobody may execute
                    path = target.free if verb in ABSENT or verb in CREATING else target.path
                    if route == "alias":
                        path = path.replace(str(self.runner.base), f"{self.runner.base}/again")
                    yield Cell(name, actor, route, verb, path)
        for route in ROUTES:
            yield Cell("socket", "self", route, "connect", str(self.socket))

    def look(self) -> dict[str, Any]:
        """All that is protected; but for the times and modes that the profile lets be set."""
        home, work = self.runner.home, self.runner.work
        kept = Unchanged(home, self.runner.base / "lib", self.runner.base / "outside").look()
        return kept | {
            f"{top}/{name}": line if top.name == ".git" else line.partition(" ")[2]
            for top in (work / ".git", work / ".claude")
            for name, line in support.snapshot(top).items()
        }

    def natively(self) -> list[str]:
        """What each cell gives where nobody stands in the way, on an object made anew for each."""
        pretended = folder(self.runner, self.runner.base / "pretended") / "denials.txt"
        before = support.Runner(self.runner.base, self.runner.identity)
        result = before.native(self._words("fresh"), env={"PINCER_DENIALS": str(pretended)}, timeout=120)
        support.remove_tree(self.scratch)  # what lies there would be the user's, and no link may stand in its place
        folder(self.runner, self.scratch)
        self.furnish()
        return self._results(result)

    def supervised(self) -> tuple[list[str], support.Result]:
        """What it gives under a supervisor whose own modules lie where this user may write."""
        code = (
            f"import sys; sys.path.insert(0, {str(self.runner.base / 'lib')!r})\n"
            "from pincer_trace.__main__ import main; sys.exit(main())"
        )
        sessions = new_sessions(self.runner)
        options = ["--session-dir", str(sessions), "--pass-fd", "9", "--quiet"]
        ours = [self.runner.identity.python, "-I", "-B", "-c", code, *options, "--"]
        result = self.runner._run([*ours, *self._words()], sessions, {"timeout": 120})
        return self._results(result), result

    def _words(self, *more: str) -> list[str]:
        return [compiled("matrix", "verbs"), str(self.scratch), str(self.marks), str(self.plan), *more]

    def _results(self, result: support.Result) -> list[str]:
        assert result.status == 0, result
        found = dict(line.split() for line in result.out.splitlines())
        assert list(found) == [str(n) for n in range(len(self.cells))]
        return list(found.values())


@pytest.fixture
def service(runner: support.Runner) -> Iterator[Path]:
    """A socket outside of the run, on which somebody listens."""
    path = folder(runner, runner.base / "outside") / "service"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        os.chown(path, runner.identity.uid, runner.identity.gid)
        server.listen(128)
        yield path


def wrong(cell: Cell, native: str, ours: str, records: list[dict[str, Any]], target: Target) -> str:
    """What is wrong with the outcome of a cell, in words."""
    refused = str(-errno.EACCES)
    if native == "-" or ours == "-":
        return "" if native == ours else "the route is taken here and not there"
    if cell.verb in target.allowed and cell.actor != "listener":
        strict = cell.route in ("alias", "parent-root")  # a second mount, and the supervisor's own root
        answers = {native, refused, str(-errno.ELOOP)} if strict else {native}
        return "" if ours in answers else "allowed, and not as natively"
    if ours == "0":
        return "done"
    if native != "0":
        return ""
    if cell.actor == "listener":
        return "" if ours == str(-errno.EBUSY) else "not the answer to a second listener"
    if cell.verb in SHUT:
        before = {refused} if cell.route == "parent-root" else set()  # where handles have no look at
        return "" if ours in {str(-SHUT[cell.verb]), *before} else "not the answer of the filter"
    if ours != refused:
        return "another errno"
    refusals = [record for record in records if record["verdict"] != "allow"]
    named = {word for record in refusals for word in (record["path"], *record.get("extra", {}).values())}
    if cell.route == "parent-root":  # refused on the way already
        named = {target.path for path in named if path.startswith("/proc/")}
    return "" if {target.path, target.free, cell.path} & named else f"no record that names it, but {records}"


def check(runner: support.Runner, service: Path, whole: bool) -> None:
    house = House(runner, service, whole)
    native = house.natively()
    before = house.look()
    ours, result = house.supervised()
    assert house.look() == before
    logged = between_marks(result.decisions, house.marks)
    problems = []
    for number, cell in enumerate(house.cells):
        target = house.targets.get(cell.target, Target(str(service), ""))
        if cell.target == "ledger":
            target = Target(*(path.replace("@", str(result.session)) for path in target[:2]), target.allowed)
        word = wrong(cell, native[number], ours[number], logged[str(number)], target)
        if word:
            problems.append(f"{number} {word}: {cell} natively {native[number]}, supervised {ours[number]}")
    assert not problems, f"{len(problems)} of {len(house.cells)}\n" + "\n".join(problems[:50])
    # The cells themselves: every verb, route and actor works natively at least once.
    worked = [cell for cell, result in zip(house.cells, native, strict=True) if result == "0"]
    assert len(worked) > len(native) / 2
    idle = {*PRESENT, *ABSENT, *SHUT} - {cell.verb for cell in worked}
    assert idle <= NEVER[runner.identity.name]
    elsewhere = set() if runner.identity.uid == os.geteuid() else {"parent-root"}  # which is another user's then
    assert {*ROUTES, "inherited"} - {cell.route for cell in worked} <= elsewhere
    assert {*ACTORS} <= {cell.actor for cell in worked}
    # The log, which was one of the targets, is whole, and its files are what they were.
    found = verify(str(result.session))
    assert not found.faults, found.faults
    assert {path.name for path in result.session.iterdir()} == {"ledger.jsonl", "session.json", "denials.txt"}
    for path in result.session.iterdir():
        info = path.stat()
        assert (info.st_mode & 0o777, info.st_uid, info.st_nlink) == (0o600, runner.identity.uid, 1)
        assert not os.listxattr(path)


@pytest.mark.both_identities
def test_p66_every_verb_by_every_route(runner: support.Runner, service: Path) -> None:
    check(runner, service, whole=False)


@pytest.mark.slow
@pytest.mark.both_identities
def test_p66_every_verb_by_every_route_and_every_actor(runner: support.Runner, service: Path) -> None:
    check(runner, service, whole=True)
