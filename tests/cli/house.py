"""A running session as its engine keeps it: ledger, questions, and the real approval channel, in the tests' process."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time

from pincer_trace.channel import Channel, address, answering, asked, showing
from pincer_trace.executor.before import Before
from pincer_trace.kernel.peers import is_within
from pincer_trace.ledger import LedgerFull, Session
from pincer_trace.profile import Places
from pincer_trace.twin.grants import Grants, Key, entry
from pincer_trace.twin.questions import Questions

TREE = b"tree"


class House:
    """A running session of the program's user, as its engine keeps it: ledger, questions, channel."""

    def __init__(self, program, directory=None, ancestor=None, profile="default", **details):
        self.lines, self.full, self.woken = [], False, 0
        self.program = program
        tree = program.state / "project"
        tree.mkdir(parents=True, exist_ok=True)
        self.places = Places.of(str(tree), program.environ, None)
        parent = directory or os.path.join(program.state, "pincer-trace", "sessions")
        judged_by = {
            "profile": profile, "allow_write": [], "allow_connect": [], "allow_net": [], "protect": [],
            "compiled": None,
            "places": self.places.told(),
        }  # fmt: skip
        self.session = Session.create(
            Session.reserve(str(parent)), command=[b"agent"], profile_name=profile, profile_digest=bytes(32),
            workspace=b"/tree", details={"confirm": "ask", "judged_by": judged_by, **details},
        )  # fmt: skip
        self.grants = Grants()
        self.before = Before()
        self.questions = Questions(self.grants, record=self.record, wake=self.wake, changed=lambda: self.channel.tell())
        self.engine = subprocess.Popen(["sleep", "100"]) if ancestor is None else None
        above = self.engine.pid if self.engine else ancestor
        self.channel = Channel(
            {**answering(self.questions), **showing(self.before)}, lambda pid: is_within(pid, above),
            news=asked(self.questions), watched=self.before.watch,
        )  # fmt: skip
        self.channel.start()
        self.session.note(feed=self.channel.facts())
        self.session.save()

    def record(self, line):
        if self.full:
            raise LedgerFull(28)
        self.lines.append(line)
        return len(self.lines)

    def wake(self):
        self.woken += 1

    def ask(self, path=b"/w/x", effect="write", token=None, **shown):
        directory, _, name = path.rpartition(b"/")
        place = entry(1, 2, name, directory=directory)
        told = {"effect": effect, "path": path, "exe": b"/usr/bin/node", "pid": 77, "rule": "default.toml:9"}
        told |= {"reason": "it runs later"}
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        key = Key(bytes(32), TREE, effect, [place])
        return self.questions.ask(key, told | shown, now, object() if token is None else token)

    def answered(self):
        return [(line["question"], line["answer"]) for line in self.lines]

    def connect(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(address(self.channel.name))
        return client

    def end(self):
        self.channel.close()
        self.session.ledger.close(0, 0)
        if self.engine:
            self.engine.kill()
            self.engine.wait()


def read_line(client):
    data = b""
    while not data.endswith(b"\n"):
        piece = client.recv(1 << 16)
        if not piece:
            break
        data += piece
    return json.loads(data) if data else None


def request(client, message):
    client.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
    return read_line(client)


def fails(done, words):
    assert (done.returncode, done.stdout) == (125, "")
    assert re.fullmatch(r"pincer-trace: [^\n]+\n", done.stderr) and words in done.stderr
    return True
