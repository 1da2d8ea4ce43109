"""The net effect of a run: whatever is done, what is told is the difference between the tree before and after."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import shutil
import stat
import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pincer_trace.ledger import Session
from pincer_trace.ledger.read import entries, load_session
from pincer_trace.ledger.verify import Walk
from pincer_trace.review.account import Account
from pincer_trace.review.tree import CHANGED, CREATED, DELETED, MOVED

NAMES = ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f", "f/a", "f/d", "f/d/a", "g\n\udcff"]
EXCHANGE = 2
ALLOW = {"verdict": "allow", "rule": "r:1", "reason": "so", "exe": b"/usr/bin/agent", "pid": 7}
LIBC = ctypes.CDLL(None, use_errno=True)


class Machine:
    """Performs operations on a real tree, and writes the records that the executor writes of them."""

    def __init__(self, base):
        self.top = os.path.join(base, "tree")
        os.mkdir(self.top)
        self.session = Session.create(
            Session.reserve(os.path.join(base, "sessions")), command=[b"agent"], profile_name="default",
            profile_digest=bytes(32), workspace=os.fsencode(self.top), details={},
        )  # fmt: skip
        self.ledger = None
        self.numbers = itertools.count()
        self.births = {}  # inode to a number of its own: the kernel uses inodes again

    def at(self, name):
        return os.path.join(self.top, name)

    def record(self, effect, name, found=None, extra=None):
        if self.ledger is None:
            return None
        dev, ino = (found.st_dev, found.st_ino) if found is not None else (0, 0)
        return self.ledger.intent(effect, os.fsencode(self.at(name)), dev=dev, ino=ino, extra=extra, **ALLOW)

    def done(self, number, name, error=0):
        if number is None:
            return
        found = look(self.at(name))
        post = f"{found.st_dev}:{found.st_ino}" if found is not None else "gone"
        self.ledger.outcome(number, error, "" if error else post)

    def born(self, name):
        self.births[os.lstat(self.at(name)).st_ino] = next(self.numbers)

    def do(self, verb, name, other):
        """Whatever of it can be done; what the kernel refuses is recorded with its errno, as an effect that failed."""
        path, found = self.at(name), look(self.at(name))
        if verb in ("create", "mkdir", "symlink", "mknod") and found is None and os.path.isdir(os.path.dirname(path)):
            number = self.record(verb, name, extra={"to": "x"} if verb == "symlink" else None)
            if verb == "create":
                with open(path, "x") as file:
                    file.write(f"{next(self.numbers)}")
            elif verb == "mkdir":
                os.mkdir(path)
            elif verb == "symlink":
                os.symlink(f"{next(self.numbers)}", path)
            else:
                os.mkfifo(path)
            self.born(name)
            self.done(number, name)
        elif found is None:
            return
        elif verb in ("write", "truncate") and stat.S_ISREG(found.st_mode):
            number = self.record(verb, name, found)
            with open(path, "a" if verb == "write" else "w") as file:
                file.write(f" {next(self.numbers)}")
            self.done(number, name)
        elif verb == "chmod" and not stat.S_ISLNK(found.st_mode):
            number = self.record(verb, name, found, {"mode": "0755", "was": f"{stat.S_IMODE(found.st_mode):04o}"})
            os.chmod(path, 0o755)
            self.done(number, name)
        elif verb == "link" and stat.S_ISREG(found.st_mode) and self.ledger is not None:
            if look(self.at(other)) is None and os.path.isdir(os.path.dirname(self.at(other))):
                number = self.record(verb, other, found, {"from": path})
                os.link(path, self.at(other))
                self.done(number, other)
        elif verb in ("unlink", "rmdir"):
            number = self.record(verb, name, found)
            try:
                os.unlink(path) if verb == "unlink" else os.rmdir(path)
            except OSError as error:
                self.done(number, name, error.errno)
            else:
                self.done(number, name)
        elif verb in ("rename", "exchange"):
            self.rename(name, found, other, EXCHANGE if verb == "exchange" else 0)

    def rename(self, name, found, other, flags):
        replaced = look(self.at(other))
        if replaced is not None and os.path.samestat(found, replaced):
            return
        extra = {"to": self.at(other)}
        if replaced is not None:
            extra["exchanged" if flags else "replaced"] = f"{replaced.st_dev}:{replaced.st_ino}"
        number = self.record("rename", name, found, extra)
        names = os.fsencode(self.at(name)), os.fsencode(self.at(other))
        error = ctypes.get_errno() if LIBC.renameat2(-100, names[0], -100, names[1], flags) else 0
        self.done(number, other, error)

    def snapshot(self):
        found = {}
        for parent, folders, files in os.walk(self.top):
            for name in folders + files:
                path = os.path.join(parent, name)
                info = os.lstat(path)
                content = ""
                if stat.S_ISREG(info.st_mode):
                    with open(path) as file:
                        content = file.read()
                found[path] = (self.births[info.st_ino], content)
        return found


def look(path):
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def report_of(path):
    session = load_session(path)
    walk, account = Walk(session), Account(session)
    for record in entries(path, see=walk.see):
        account.add(record)
    return account.report(load_session(path), walk.conclude())


def agrees(report, before, after):
    """Whether what is told comes to the difference between the two snapshots."""
    assert report.found.faults == []
    changes = [change for change in report.changes if change.path.startswith(report.workspace + "/")]
    assert changes == report.changes
    of = {what: {c.path for c in changes if c.what == what} for what in (CREATED, CHANGED, DELETED, MOVED)}
    sources = {c.source: c.path for c in changes if c.what == MOVED}
    assert len({(c.what, c.path) for c in changes}) == len(changes), "told twice"
    replaced = {c.path for c in changes if c.replaced}
    newcomers = replaced | {c.path for c in changes if c.vacated}
    back = {path for path in sources if sources[path] == path}
    came = of[CREATED] | (of[MOVED] - back) | newcomers
    went = of[DELETED] | (sources.keys() - back) | newcomers
    for path in before:  # what moved directories took along
        above = max((s for s in sources if path.startswith(s + "/")), key=len, default=None)
        if above is not None and sources[above] != above and path not in of[DELETED] | sources.keys() | replaced:
            went.add(path)
            came.add(sources[above] + path[len(above) :])
    assert came - went == after.keys() - before.keys()
    assert went - came == before.keys() - after.keys()
    differ = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    changed = of[CHANGED] | {c.path for c in changes if c.path in back and c.changed}
    assert (came & went) | (changed & before.keys() & after.keys()) == differ


VERBS = ["create", "write", "truncate", "rename", "exchange", "unlink", "rmdir", "mkdir", "symlink", "mknod", "link",
         "chmod"]  # fmt: skip
OPERATION = st.tuples(st.sampled_from(VERBS), st.sampled_from(NAMES), st.sampled_from(NAMES))
LIKELY = [("mkdir", "d", ""), ("mkdir", "d/e", ""), ("create", "a", ""), ("create", "d/a", ""), ("create", "d/e/a", "")]


def play(setup, run):
    base = tempfile.mkdtemp(prefix="pincer-tree-")
    try:
        machine = Machine(base)
        for operation in [*LIKELY, *setup]:
            machine.do(*operation)
        before = machine.snapshot()
        machine.ledger = machine.session.ledger
        for operation in run:
            machine.do(*operation)
        machine.ledger.close(0, 0)
        agrees(report_of(machine.session.path), before, machine.snapshot())
    finally:
        shutil.rmtree(base)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATION, max_size=8), st.lists(OPERATION, max_size=25))
@example([], [("rename", "d", "f"), ("unlink", "f/a", ""), ("create", "f/a", ""), ("mkdir", "d", "")])
@example([], [("link", "a", "b"), ("unlink", "a", ""), ("write", "b", ""), ("link", "b", "c")])
@example([], [("create", "b", ""), ("rename", "b", "a"), ("chmod", "a", "")])
@example([("create", "b", "")], [("rename", "b", "a"), ("exchange", "a", "d")])
def test_what_is_told_is_the_difference_of_the_trees(setup, run):
    play(setup, run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_the_same_of_long_runs(seed):
    dice = random.Random(seed)

    def operations(number):
        return [(dice.choice(VERBS), dice.choice(NAMES), dice.choice(NAMES)) for _ in range(number)]

    play(operations(30), operations(400))
