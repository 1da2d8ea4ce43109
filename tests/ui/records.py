"""Records as a ledger has them, for tests of what views make of them."""

from __future__ import annotations

import itertools


class Maker:
    """Numbers records and gives them times."""

    def __init__(self, time=1000.0):
        self.time = time
        self._numbers = itertools.count(1)

    def _record(self, kind, **members):
        return {"seq": next(self._numbers), "time": self.time, "kind": kind, **members}

    def intent(self, path="/w/a", effect="write", pid=7, exe="/usr/bin/node", **more):
        return self._record(
            "intent", pid=pid, exe=exe, effect=effect, path=path, dev=1, ino=2, verdict="allow", rule="default.toml:9",
            reason="the work tree", votes=[], **more,
        )  # fmt: skip

    def outcome(self, intent, word="done", **more):
        return self._record("outcome", of=intent["seq"], outcome=word, **more)

    def denied(self, path="/h/.bashrc", effect="write", pid=7, exe="/usr/bin/node", **more):
        members = {
            "verdict": "deny",
            "rule": "default.toml:20",
            "reason": "it runs later",
            "code": "POLICY_DENY",
        } | more
        return self._record(
            "denied", pid=pid, exe=exe, effect=effect, path=path, dev=1, ino=2, outcome="EACCES", **members
        )

    def failure(self):
        return self._record("failure", pid=7, exe="", effect="", path="", verdict="deny", rule="", reason="it failed")

    def reads(self, path="/usr/lib/x", count=3, exe="/usr/bin/node"):
        return self._record(
            "reads", pid=None, exe=exe, effect="read", path=path, verdict="allow", count=count, outcome="done"
        )

    def process(self, pid, parent, exe="/bin/sh", of=None):
        return self._record("process", pid=pid, of=pid if of is None else of, parent=parent, exe=exe)

    def answer(self, kind="once"):
        return self._record("answer", question=1, answer=kind, effect="write", path="/h/.bashrc", by={"pid": 3})

    def end(self, status=0):
        return self._record("end", exit=status, leftover=0)


def question(number=1, path="/h/.bashrc", *, held=30.0, waiting=1, **more):
    """As the channel tells it."""
    return {
        "id": number, "effect": "write", "path": path, "exe": "/usr/bin/node", "pid": 77, "rule": "default.toml:9",
        "reason": "it runs later", "programs": ["/usr/bin/node"], "age": 0.0, "held": held, "waiting": waiting,
        "asked": 1, "answerable": 600 + held, **more,
    }  # fmt: skip
