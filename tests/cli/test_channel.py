"""The approval channel: bounds, failures, and the worker that stays outside."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from pincer_trace.channel import MOST_BYTES, MOST_CLIENTS, address
from pincer_trace.kernel import peers
from pincer_trace.kernel.peers import Peer, is_within
from pincer_trace.twin.target import Target

from .house import fails, read_line, request


def test_requests_in_any_shape(house):
    with house.connect() as client:
        for wrong in (b"\n", b"[]\n", b"{\n", b"\xff\xfe\n", b"[" * 5000 + b"\n", b'"pending"\n', b"9" * 9999 + b"\n"):
            assert request(client, wrong)["code"] == "malformed"
        for wrong in ({}, {"op": None}, {"op": ["answer"]}, {"op": "stop"}):
            answer = request(client, wrong)
            assert answer == {
                "ok": False,
                "code": "malformed",
                "error": "no such operation: one of answer, before, pending, watch",
            }
        for number, kind in ((1.0, "once"), (True, "once"), ("1", "once"), (None, "once"), (1, "yes"), (1, None)):
            assert request(client, {"op": "answer", "id": number, "answer": kind})["code"] == "malformed"
        assert request(client, {"op": "answer", "id": 1 << 70, "answer": "once"})["code"] == "unknown"
        client.sendall(b'{"op":"pen')
        time.sleep(0.05)
        assert request(client, b'ding"}\n') == {"ok": True, "questions": []}
        client.sendall(b'{"op":"pending"}\n{"op":"no"}\n')
        data = b""
        while data.count(b"\n") < 2:
            data += client.recv(1 << 16)
        assert [json.loads(line)["ok"] for line in data.splitlines()] == [True, False]
    assert house.lines == []


def test_a_failure_of_ours_answers_nothing_and_ends_nothing(house):
    house.ask()
    house.questions._record = lambda line: 1 / 0
    with house.connect() as client:
        answer = request(client, {"op": "answer", "id": 1, "answer": "once"})
        assert answer["code"] == "failure" and "ZeroDivisionError" in answer["error"]
        assert [each["id"] for each in request(client, {"op": "pending"})["questions"]] == [1]
    assert house.grants.answer(house.questions.find(1, 0.0).key, 0.0) is None


def test_who_watches_is_told_at_once_and_of_every_change(house):
    house.ask(b"/w/a")
    with house.connect() as client, house.connect() as other:
        client.sendall(b'{"op":"watch"}\n')
        with client.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"ok": True}
            (first,) = json.loads(lines.readline())["questions"]
            assert (first["id"], first["path"]) == (1, "/w/a")
            house.ask(b"/w/b")
            assert len(json.loads(lines.readline())["questions"]) == 2
            assert request(other, {"op": "answer", "id": 1, "answer": "once"})["ok"]
            while len(json.loads(lines.readline())["questions"]) == 2:
                pass  # of the held call that goes on
            client.sendall(b'{"op":"pending"}\n')
            assert [each["id"] for each in json.loads(lines.readline())["questions"]] == [2]


def test_who_reads_slowly_gets_the_last_news_and_costs_nothing_more(house):
    """Each piece of news is larger than what the socket takes; there are many more of them than are sent."""
    with house.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b'{"op":"watch"}\n')
        assert client.recv(12) == b'{"ok":true}\n'
        for number in range(30):
            house.ask(b"/w/%d-" % number + b"x" * 3900)
            house.channel.tell()
        (kept,) = house.channel._clients.values()
        assert len(kept.outgoing) < 1 << 18
        told = 0
        with client.makefile("rb") as lines:
            while len(json.loads(lines.readline())["questions"]) < 30:
                told += 1
        assert told < 30


def test_what_a_file_held_is_told_only_while_somebody_watches(house, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"as it was \xff")
    with open(file, "rb") as pinned:
        target = Target(os.fsencode(file), descriptor=pinned.fileno(), found=os.fstat(pinned.fileno()))
        with house.connect() as client:
            for wrong in (None, "1", 1.0, True):
                assert request(client, {"op": "before", "of": wrong})["code"] == "malformed"
            assert not house.before.watched
            with house.connect() as viewer:
                viewer.sendall(b'{"op":"watch"}\n')
                assert viewer.recv(12) == b'{"ok":true}\n'
                assert house.before.watched
                house.before.keep(5, target)
                answer = request(client, {"op": "before", "of": 5})
                assert base64.b64decode(answer["content"]) == b"as it was \xff"
                assert request(client, {"op": "before", "of": 6})["content"] is None
            deadline = time.monotonic() + 10
            while house.before.watched and time.monotonic() < deadline:
                request(client, {"op": "pending"})
            house.before.keep(5, target)
            assert "nobody watched" in request(client, {"op": "before", "of": 5})["why"]


def test_a_message_has_a_bound(house):
    with house.connect() as client:
        try:
            for _ in range(40):
                client.sendall(b"x" * (MOST_BYTES // 8))
            assert client.recv(1) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was dropped before it had sent all of that
    with house.connect() as client:
        assert request(client, {"op": "pending"})["ok"]


def test_clients_have_a_bound(house):
    clients = [house.connect() for _ in range(MOST_CLIENTS)]
    try:
        assert all(request(client, {"op": "pending"})["ok"] for client in clients)
        with house.connect() as more:
            assert read_line(more)["error"] == f"{MOST_CLIENTS} programs are connected already"
            assert more.recv(1) == b""
        clients.pop().close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with house.connect() as more:
                if request(more, {"op": "pending"})["ok"]:
                    break
        else:
            pytest.fail("the place of one that left is not free")
    finally:
        for client in clients:
            client.close()


def test_a_client_that_stops_reading_loses_its_place(house, monkeypatch):
    """Even where it asked for little: one answer, larger than what the kernel keeps for it."""
    monkeypatch.setattr("pincer_trace.channel.STUCK", 0.5)
    for number in range(32):
        house.ask(b"/w/" + b"%d" % number + b"\x01" * 3000)
    with house.connect() as deaf:
        deaf.sendall(b'{"op":"pending"}\n')
        assert deaf.recv(10)
        assert len(house.channel._clients) == 1
        deadline = time.monotonic() + 10
        while house.channel._clients and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not house.channel._clients


def test_a_client_that_reads_nothing_costs_nothing(house):
    """It is dropped for what it asked for, and others are served meanwhile."""
    for number in range(32):
        house.ask(b"/w/" + b"%d" % number + b"\x01" * 3000)
    with house.connect() as deaf, house.connect() as client:
        deaf.settimeout(0.2)
        asked = 0
        try:
            for _ in range(500):
                deaf.sendall(b'{"op":"pending"}\n')
                asked += 1
        except OSError:
            pass  # TimeoutError: nobody reads from it any more, or it was dropped
        started = time.monotonic()
        assert len(request(client, {"op": "pending"})["questions"]) == 32
        assert time.monotonic() - started < 5  # "costs nothing": another client never waits for the deaf one
        deadline = time.monotonic() + 10
        while len(house.channel._clients) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(house.channel._clients) == 1
        assert request(client, {"op": "pending"})["ok"]


def test_a_person_who_kills_the_command(house, program):
    """Clients that vanish at any moment leave no trace."""
    house.ask()
    for wait in (0.0, 0.05, 0.1, 0.2):
        child = subprocess.Popen(program.command("pending"), env=program.environ, stdout=subprocess.DEVNULL)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert program("approve", "1").returncode == 0


def test_many_people_at_once(house, program):
    """One of them answers, all are told."""
    house.ask()
    words = [["approve", "1"], ["deny", "1"], ["approve", "1", "--for", "session"], ["deny", "1", "--session"]]
    children = [
        subprocess.Popen(program.command(*each), env=program.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for each in words
    ]
    done = [(child.communicate(timeout=60), child.returncode) for child in children]
    assert sorted(status for _, status in done) == [0, 125, 125, 125]
    assert all(b"answered already" in error for (_, error), status in done if status)
    assert len(house.lines) == 1


# -- who may not -----------------------------------------------------------------------------------------------------


def test_p53_what_is_inside_of_the_tree_is_refused(make_house, program):
    """Where the kernel has no scope: by whom the process descends from. Everything that we start is inside here."""
    house = make_house(ancestor=os.getpid())
    house.ask()
    assert fails(program("approve", "1"), "what is supervised cannot answer its own questions")
    grandchild = f"import subprocess, sys; subprocess.run({program.command('approve', '1')!r}); sys.exit(3)"
    done = subprocess.run([sys.executable, "-c", grandchild], env=program.environ, capture_output=True)
    assert done.returncode == 3 and b"cannot answer its own questions" in done.stderr
    assert house.lines == []


def test_p53_a_process_that_ended_is_refused(make_house):
    """Its number may be another's by now."""
    house = make_house()
    house.ask()
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(bytes.fromhex(sys.argv[1]));"
        's.sendall(b\'{"op":"answer","id":1,"answer":"session"}\\n\')'
    )
    house.channel._is_inside = lambda pid: bool(time.sleep(0.5))
    child = subprocess.Popen([sys.executable, "-S", "-c", code, address(house.channel.name).hex()])
    child.wait()
    time.sleep(1.0)
    assert house.lines == []


def test_who_descends_from_whom():
    assert is_within(os.getpid(), os.getpid()) and is_within(os.getpid(), os.getppid()) and is_within(os.getpid(), 1)
    child = subprocess.Popen(["sleep", "100"])
    assert is_within(child.pid, os.getpid()) and not is_within(os.getpid(), child.pid)
    assert not is_within(1, os.getpid())
    child.kill()
    child.wait()
    assert is_within(child.pid, 1 << 30), "of one that is gone nothing can be told: it counts as inside"
    assert is_within(0, os.getpid()) and is_within(-1, os.getpid())


@pytest.mark.parametrize("change", ["gone", "given out again"])
def test_a_parent_that_ends_while_one_climbs(monkeypatch, change):
    """The climb begins anew: neither a missing parent nor a stranger with its number makes a descendant a stranger."""
    parent = subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    looks, real = [], peers.procfs.stat

    def stat(pid):
        looks.append(pid)
        found = real(1 if pid == parent.pid and looks.count(pid) == 1 and change != "gone" else pid)
        if pid == parent.pid and looks.count(pid) == 1:
            if change == "gone":
                raise ProcessLookupError
            found.start = 1 << 60  # a process that is younger than its child
        return found

    monkeypatch.setattr(peers.procfs, "stat", stat)
    assert is_within(child, os.getpid()) and looks.count(child) == looks.count(parent.pid) == 2
    monkeypatch.undo()
    os.kill(child, signal.SIGKILL)
    parent.stdout.close()
    parent.wait()


def test_a_tree_that_is_reparented_all_the_time_stays_inside():
    """Parents that end while one climbs: never once does a descendant look like a stranger."""
    code = (
        "import os, sys, time\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end:\n"
        "    if os.fork(): os._exit(0)\n"  # the child of one that is gone goes to the subreaper, and so on
        "    if os.getpid() % 16 == 0: print(os.getpid(), flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    outside = looked = 0
    for line in child.stdout:
        looked += 1
        outside += not is_within(int(line), os.getpid())
    child.stdout.close()
    child.wait()
    assert looked > 5 and not outside


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(house):
    house.ask()
    code = (
        "import os, socket, sys; os.setresuid(61234, 61234, 61234); s = socket.socket(socket.AF_UNIX);"
        "s.connect(bytes.fromhex(sys.argv[1])); sys.stdout.buffer.write(s.recv(4096))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code, address(house.channel.name).hex()], capture_output=True)
    assert json.loads(done.stdout)["error"] == "the session is another user's"


def test_who_connects_is_pinned():
    """The uid, the process and what it runs, of a real connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0pincer-test-" + os.urandom(8).hex().encode())
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(listener.getsockname())
            connection, _ = listener.accept()
            with connection:
                peer = Peer(connection)
                assert (peer.pid, peer.uid, peer.lives()) == (os.getpid(), os.getuid(), True)
                assert peer.executable() == os.fsencode(os.path.realpath(sys.executable))
                assert not os.get_inheritable(peer._pidfd)
                peer.close()


WORKER = """
import errno, json, os, socket, subprocess, sys
found = {}
name = bytes.fromhex(sys.argv[1])
kinds = {"stream": socket.SOCK_STREAM, "packets": socket.SOCK_SEQPACKET, "datagrams": socket.SOCK_DGRAM}
for word, kind in kinds.items():
    try:
        with socket.socket(socket.AF_UNIX, kind) as s:
            s.connect(name)
            found[word] = "connected"
    except OSError as error:
        found[word] = errno.errorcode[error.errno]
with socket.socket(socket.AF_UNIX) as s:
    try:
        s.bind(name)
        found["bind"] = "bound"
    except OSError as error:
        found["bind"] = errno.errorcode[error.errno]
for file in ("session.json", "ledger.jsonl"):
    try:
        found[file] = open(os.path.join(sys.argv[2], file)).read()[:20]
    except OSError as error:
        found[file] = errno.errorcode[error.errno]
for words in (["approve", "1", sys.argv[2]], ["deny", "1"], ["pending"]):
    done = subprocess.run([sys.executable, "-P", "-m", "pincer_trace", *words], capture_output=True, text=True)
    found[words[0]] = [done.returncode, done.stdout, done.stderr]
print(json.dumps(found))
"""


def test_p53_the_worker_cannot_reach_the_channel(make_house, program, tmp_path):
    """A real run beside a real channel: by name, by the commands, by taking the name."""
    program.environ["XDG_STATE_HOME"] = str(program.state / "kept")
    house = make_house(directory=program.state / "kept" / "pincer-trace" / "sessions")
    house.ask()
    work = tmp_path / "work"
    work.mkdir()
    (work / "worker.py").write_text(WORKER)
    name = address(house.channel.name).hex()
    done = program("-q", "--", sys.executable, "worker.py", name, house.session.path, cwd=work)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("bind") == "EADDRINUSE"
    assert (found.pop("stream"), found.pop("packets"), found.pop("datagrams")) == ("EPERM", "ECONNREFUSED", "EACCES")
    assert found.pop("session.json") == found.pop("ledger.jsonl") == "EACCES"
    for status, out, error in found.values():
        assert (status, out, error.count("\n")) == (125, "", 1)
        assert error.startswith("pincer-trace: this process is supervised by pincer-trace itself: questions are seen")
    assert house.lines == [] and house.channel._clients == {}
