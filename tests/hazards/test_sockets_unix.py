"""Unix sockets: P48, P49, P64, P68, P71 and P77. Who is outside is not reached; who is inside is, as natively."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import attack, folder, give, same_as_native

pytestmark = pytest.mark.both_identities


class Server:
    """A stranger's socket at a path, or by an abstract name: who connected, and what they said."""

    def __init__(self, address: str, kind: int = socket.SOCK_STREAM) -> None:
        self.heard: list[bytes] = []
        self.peers: list[tuple[int, int, int]] = []
        self._socket = socket.socket(socket.AF_UNIX, kind)
        try:
            self._socket.bind(address)
        except OSError:
            self._socket.close()
            raise
        if address[0] != "\0":
            os.chmod(address, 0o777)
        if kind != socket.SOCK_DGRAM:
            self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                if self._socket.type == socket.SOCK_DGRAM:
                    data = self._socket.recv(100)
                    if not data:
                        return
                    self.heard.append(data)
                    continue
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                self.peers.append(tuple(int.from_bytes(credentials[at : at + 4], "little") for at in (0, 4, 8)))  # type: ignore[arg-type]
                with contextlib.suppress(OSError):  # who connected may have gone without a word
                    connection.sendall(b"%d %d %d" % self.peers[-1])
                    self.heard.append(connection.recv(100))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # not every kind of socket can be
            self._socket.shutdown(socket.SHUT_RDWR)  # accept fails, and recv gives nothing
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def server(address: Path | str, kind: int = socket.SOCK_STREAM) -> Iterator[Server]:
    """A server outside of every run. Nobody may have connected to it who must not: the test says who."""
    made = Server(str(address), kind)
    try:
        yield made
    finally:
        made.close()
        if str(address)[0] != "\0":
            Path(address).unlink(missing_ok=True)


REACH = """
import select, socket, threading
def reach(name, kind=socket.SOCK_STREAM, how=None):
    with socket.socket(socket.AF_UNIX, kind) as s:
        if how == "later":
            s.setblocking(False)
        answer = word(-errno_of(s.connect, name))
        if answer == "ok":
            s.settimeout(5); s.send(b"hello")
        return answer
"""


# -- strangers -----------------------------------------------------------------------------------------------


def test_p48_a_stranger_is_not_reached_by_any_name(runner: support.Runner) -> None:
    """By its path, a relative one, links, a descriptor's, a second name, after a move, by each kind of socket."""
    path = runner.work / "theirs.sock"
    with server(path) as stranger:
        os.chown(path, runner.identity.uid, runner.identity.gid)
        found, result = attack(
            runner,
            REACH
            + """
here = os.getcwd()
os.symlink("theirs.sock", "link"); os.symlink(here, "folder"); os.mkdir("own")
for name in ("theirs.sock", here + "/theirs.sock", "link", "folder/theirs.sock", "./own/../theirs.sock", "/proc/self/cwd/theirs.sock"):
    note(name.replace(here, "$CWD"), reach(name)); note("later " + name.replace(here, "$CWD"), reach(name, how="later"))
pin = os.open("theirs.sock", os.O_PATH)
note("by descriptor", reach(f"/proc/self/fd/{pin}"))
note("a datagram", word(-errno_of(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)))
os.link("theirs.sock", "own/second"); note("second name", reach("own/second"))
os.rename("theirs.sock", "own/moved"); note("moved", reach("own/moved"))
mine = socket.socket(socket.AF_UNIX); mine.bind("own/mine"); mine.listen()
call("renameat2", AT_FDCWD, "own/moved", AT_FDCWD, "own/mine", 2); note("exchanged", reach("own/mine")); note("mine", reach("own/moved"))
os.rename("own/mine", "theirs.sock")
report()
""",
        )
    assert found.pop("mine") == "ok"
    assert set(found.values()) == {"EACCES"} and len(found) == 17, found
    assert stranger.heard == [] and stranger.peers == []
    refused = result.denied(path)
    assert refused[0]["effect"] == "connect" and "outside of this run" in refused[0]["reason"]
    assert [entry["effect"] for entry in result.decisions if entry["effect"] == "connect"].count("connect") >= 17


def test_p48_a_flipping_address_reaches_nobody_else(runner: support.Runner) -> None:
    """Another thread writes a stranger's path over the own one, and exchanges the descriptors, while it is judged."""
    path = runner.base / "theirs.sock"
    with server(path) as stranger:
        found, _ = attack(
            runner,
            REACH
            + """
theirs = sys.argv[1].encode()
own = socket.socket(socket.AF_UNIX); own.bind("own.sock"); own.listen(4096)
mine = os.path.abspath("own.sock").encode().ljust(len(theirs), b"\\0")
assert len(mine) == len(theirs) or len(theirs) < len(mine)
size = max(len(mine), len(theirs)) + 3
buffer = ctypes.create_string_buffer(b"\\1\\0" + mine, 128)
stop = False
def flip():
    while not stop:
        buffer[2:2 + len(theirs) + 1] = theirs + b"\\0"
        buffer[2:2 + len(mine) + 1] = mine + b"\\0"
thread = threading.Thread(target=flip, daemon=True); thread.start()
answers = {}
for _ in range(1500):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    answer = word(call("connect", s.fileno(), buffer, size))
    answers[answer] = answers.get(answer, 0) + 1
    if answer == "ok" and s.getpeername() != mine.rstrip(b"\\0").decode() and s.getpeername() != "own.sock":
        note("reached", s.getpeername())
    s.close()
    while True:
        own.setblocking(False)
        try: own.accept()[0].close()
        except BlockingIOError: break
stop = True; thread.join()
note("answers", answers)
report()
""",
            str(path),
        )
    assert "reached" not in found, found
    assert found["answers"].keys() <= {"ok", "EACCES", "ENOENT"} and found["answers"].get("ok"), found
    assert stranger.peers == []


def test_p48_datagrams_have_a_record(runner: support.Runner) -> None:
    """DGRAM and RAW, with flags and noise: refused; pairs work, and nothing arrives elsewhere."""
    path = runner.work / "log.sock"
    with server(path, socket.SOCK_DGRAM) as stranger:
        found, result = attack(
            runner,
            """
import fcntl, socket, struct
pair = ctypes.create_string_buffer(8)
for label, kind in (("dgram", 2), ("raw", 3), ("flags", 2 | 0x80800), ("noise", 2 | 1 << 40)):
    note(label, word(call("socket", 1, kind, 0)))
    note(label + " pair", word(call("socketpair", 1, kind, 0, pair)))
    ends = [socket.socket(fileno=number) for number in struct.unpack("=2i", pair.raw)]
    for at in (0, 1):
        sent = [ends[at].send(b"one"), ends[at].sendto(b"two", sys.argv[1])]
        note(f"{label} sent {at}", [*sent, ends[1 - at].recv(9).decode(), ends[1 - at].recv(9).decode()])
    note(label + " kept", [bool(fcntl.fcntl(end, 3) & os.O_NONBLOCK) == bool(kind & 0x800) and
                           end.get_inheritable() == (not kind & 0x80000) for end in ends])
note("nowhere", word(call("socketpair", 1, 2, 0, ctypes.c_long(8))))
note("no protocol", word(call("socketpair", 1, 2, 6, pair)))
note("no flag", word(call("socketpair", 1, 2 | 0x100, 0, pair)))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
note("seqpacket", a.sendto(b"x", sys.argv[1])); note("went", b.recv(9).decode())
a, b = socket.socketpair()
note("stream", word(-errno_of(a.sendto, b"x", sys.argv[1])))
report()
""",
            str(path),
        )
    for label in ("dgram", "raw", "flags", "noise"):
        assert found.pop(label) == "EACCES"
        assert found.pop(f"{label} pair") == "ok"
        assert [found.pop(f"{label} sent {at}") for at in (0, 1)] == [[3, 3, "one", "two"]] * 2
        assert found.pop(f"{label} kept") == [True, True]
    wrong = [found.pop(label) for label in ("nowhere", "no protocol", "no flag")]
    assert wrong == ["EFAULT", "EPROTONOSUPPORT", "EINVAL"]
    assert found == {"seqpacket": 1, "went": "x", "stream": "EISCONN"}
    assert stranger.heard == []
    refused = [entry for entry in result.denied() if entry["effect"] == "send"]
    assert len(refused) == 4 and "datagrams" in refused[0]["reason"] and refused[0]["code"] == "BUILT_IN"


def test_p68_abstract_names_of_strangers(runner: support.Runner) -> None:
    """Also one that was this run's own before: the name counts as long as the very socket has it."""
    name = f"\0pincer-{os.getpid()}-{runner.identity.name}-"
    with server(name + "theirs") as stranger, server(name + "packets", socket.SOCK_SEQPACKET):
        found, result = attack(
            runner,
            REACH
            + """
base = "\\0" + sys.argv[1]
note("theirs", reach(base + "theirs")); note("later", reach(base + "theirs", how="later"))
note("another kind", reach(base + "packets")); note("packets", reach(base + "packets", socket.SOCK_SEQPACKET))
note("nobody", reach(base + "nobody"))
own = socket.socket(socket.AF_UNIX); own.bind(base + "own/../.%\\0\\xff"); own.listen()
note("own", reach(base + "own/../.%\\0\\xff")); own.close(); note("closed", reach(base + "own/../.%\\0\\xff"))
auto = socket.socket(socket.AF_UNIX); auto.bind(b""); auto.listen(); note("auto", reach(auto.getsockname()))
report()
""",
            name[1:],
        )
    assert found == {
        "theirs": "EPERM", "later": "EPERM", "another kind": "ECONNREFUSED", "packets": "EPERM", "nobody": "ECONNREFUSED",
        "own": "ok", "closed": "ECONNREFUSED", "auto": "ok",
    }  # fmt: skip
    assert stranger.peers == []
    assert result.denied()[-1]["path"].startswith("//@pincer-")


DEPUTIES = {  # a place that the default profile knows -> a word of the reason
    "/tmp/ssh-pincer{uid}/agent.1": "keys",
    "/tmp/tmux-{uid}-pincer/default": "terminal",
    "/tmp/.X11-unix/X7{uid}": "display",
    "{home}/.gnupg/S.gpg-agent": "keys",
    "{home}/.docker/run/docker.sock": "containers",
    "/run/dbus/pincer-{uid}": "bus",
    "/run/user/{uid}/bus": "bus",
    "/run/user/{uid}/wayland-0": "display",
    "/run/user/{uid}/gnupg/S.gpg-agent": "keys",
    "/run/user/{uid}/vscode-git-1.sock": "editor",
    "/run/nscd/pincer-{uid}": "looks",
    "/run/systemd/resolve/io.pincer-{uid}": "looks",
}


@pytest.mark.parametrize("place", DEPUTIES)
def test_p49_a_deputy_is_refused_by_name(runner: support.Runner, place: str) -> None:
    """One stand-in for each: `--confirm auto` does not open it, `--allow-connect` does."""
    with support.alone("deputies"):
        refused_by_name(runner, place)


def refused_by_name(runner: support.Runner, place: str) -> None:
    path = Path(place.format(uid=runner.identity.uid, home=runner.home))
    made = [above for above in path.parents if not above.exists()]
    there = made[-1].parent if made else path.parent
    if not os.access(there, os.W_OK):
        pytest.skip(f"{there} cannot be written")
    folder(runner, path.parent) if made else None
    try:
        with server(path) as stranger:
            code = REACH + "note('it', reach(sys.argv[1]))\nreport()\n"
            found, result = attack(runner, code, str(path), options=("--quiet", "--confirm", "auto"))
            assert found == {"it": "EACCES"} and stranger.peers == []
            assert DEPUTIES[place] in result.denied(path)[0]["reason"]
            found, _ = attack(runner, code, str(path), options=("--quiet", "--allow-connect", str(path)))
            assert found == {"it": "ok"} and len(stranger.peers) == 1
    finally:
        for above in made:
            above.rmdir()


def test_p49_an_outer_terminal_server_is_not_told_to_type(runner: support.Runner) -> None:
    """`tmux -S SOCKET send-keys` to a real server outside, in the work tree and at its own place."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing (Debian package tmux)")
    outer, mark = runner.work / "outer", runner.base / "mark"
    env = support.environment(
        runner.identity, runner.home, {"TERM": "xterm", "TMUX_TMPDIR": str(folder(runner, runner.base / "t"))}
    )
    start = [*runner.identity.switch, "tmux", "-S", str(outer), "-f", "/dev/null", "new-session", "-d", "exec sh"]
    subprocess.run(start, env=env, cwd=runner.work, check=True, timeout=30, start_new_session=True)
    try:
        for options in ((), ("-L", "default")):
            words = ["tmux", *(options or ("-S", str(outer))), "send-keys", f"touch {mark}", "Enter"]
            result = runner.supervise(words, env={"TERM": "xterm", "TMUX": f"{outer},1,0"})
            assert result.status == 1, result
        assert "Permission denied" in runner.supervise(["tmux", "-S", str(outer), "ls"], env={"TERM": "xterm"}).err
        ask = [*runner.identity.switch, "tmux", "-S", str(outer), "display-message", "-p", "#{pane_current_command}"]
        assert subprocess.run(ask, env=env, capture_output=True, timeout=30).returncode == 0
        assert not mark.exists()
    finally:
        kill = [*runner.identity.switch, "tmux", "-S", str(outer), "kill-server"]
        subprocess.run(kill, env=env, timeout=30, check=True)


def test_p49_an_outer_ssh_agent_signs_nothing(runner: support.Runner) -> None:
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is missing (Debian package openssh-client)")
    path = folder(runner, runner.base / "ssh-x", 0o700) / "agent.1"
    words = [*runner.identity.switch, "ssh-agent", "-D", "-a", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={"PATH": support.SYSTEM_PATH}) as agent:
        try:
            assert agent.stdout and b"SSH_AUTH_SOCK" in agent.stdout.readline()
            env = {"SSH_AUTH_SOCK": str(path)}
            natively = runner.native(["ssh-add", "-l"], env=env)
            assert "no identities" in natively.out
            unset = runner.supervise(["sh", "-c", 'echo "<$SSH_AUTH_SOCK>"; ssh-add -l'], env=env, options=())
            assert unset.out == "<>\n" and "not passed on" in unset.err and "SSH_AUTH_SOCK" in unset.err
            forced = runner.supervise(["env", f"SSH_AUTH_SOCK={path}", "ssh-add", "-l"])
            assert "ermission denied" in forced.err, forced
            granted = runner.supervise(["ssh-add", "-l"], env=env, options=("--allow-connect", str(path)))
            assert granted.out == natively.out and "not passed on" not in granted.err
        finally:
            agent.kill()


# -- the run's own -------------------------------------------------------------------------------------------


ERRNOS = """
import socket, struct
give = lambda path, extra=b"\\0": struct.pack("H", socket.AF_UNIX) + os.fsencode(path) + extra
def connect(label, data, size=None, kind=socket.SOCK_STREAM, later=False, fd=None):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.setblocking(not later)
        buffer = ctypes.create_string_buffer(data, 256) if isinstance(data, bytes) else data
        note(label, word(call("connect", s.fileno() if fd is None else fd, buffer, len(data) if size is None else size)))
def listening(name, kind=socket.SOCK_STREAM, backlog=999):
    s = socket.socket(socket.AF_UNIX, kind); s.bind(name); s.listen(backlog); return s
stream, packets = listening("stream"), listening("packets", socket.SOCK_SEQPACKET)
only_bound = socket.socket(socket.AF_UNIX); only_bound.bind("bound")
gone = listening("gone"); gone.close()
open("file", "w").close(); os.mkdir("dir"); os.symlink("stream", "link"); os.symlink("nowhere", "dangling"); os.mkfifo("fifo")
os.symlink("loop", "loop"); listening("closed"); os.chmod("closed", 0)
for name in ("stream", "packets", "bound", "gone", "file", "dir", "link", "dangling", "fifo", "loop", "absent", "absent/x", "file/x", "dir/",
             "stream/", ".", "..", "/", "./stream", "dir/../stream", "x" * 108, "closed", "/etc/shadow", "/dev/null", "/proc/self/fd/0", ""):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        for later in (False, True):
            connect(f"{name[:20]} {int(kind)} {later}", give(name, b"" if len(name) == 108 else b"\\0"), kind=kind, later=later)
for size in (0, 1, 2, 3, 4, 9, 110, 111, 128, 129, 200, 1 << 31, -1):
    connect(f"size {size}", give("stream"), size)
connect("no address", 0, 10); connect("unmapped", 1, 10); connect("page end", 8, 20)
for family in (0, 2, 10, 16, 99):
    connect(f"family {family}", struct.pack("H", family) + bytes(30))
connect("inside nul", give("stream", b"\\0junk")); connect("no nul", give("stream", b""), 8)
connect("closed descriptor", give("stream"), fd=99); connect("negative", give("stream"), fd=-1); connect("high half", give("stream"), fd=99 | 1 << 40)
plain, pin = os.open("file", os.O_RDWR), os.open("stream", os.O_PATH)
connect("a file", give("stream"), fd=plain); connect("a pin", give("stream"), fd=pin); connect("a file, no address", 0, 10, fd=plain)
s = socket.socket(socket.AF_UNIX); s.connect("stream")
note("twice", word(-errno_of(s.connect, "stream"))); note("listening", word(-errno_of(stream.connect, "stream")))
a, b = socket.socketpair(); note("of a pair", word(-errno_of(a.connect, "stream")))
full = listening("full", backlog=0)
ends = []
for _ in range(4):
    s = socket.socket(socket.AF_UNIX); s.setblocking(False); ends.append(s); note(f"full {len(ends)}", word(-errno_of(s.connect, "full")))
s = socket.socket(socket.AF_UNIX); s.settimeout(0.05); note("in time", errno_of(s.connect, "full") and "not")
s = socket.socket(socket.AF_UNIX); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50000)); note("SO_SNDTIMEO", word(-errno_of(s.connect, "full")))
c = socket.socket(socket.AF_UNIX); c.bind("client"); c.connect("stream"); d, name = stream.accept()
while name != "client": d, name = stream.accept()
note("names", [c.getpeername(), c.getsockname(), d.getsockname(), d.getpeername()])
note("who", struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)) == (os.getpid(), os.geteuid(), os.getegid()))
note("ids", list(struct.unpack("3i", d.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:]) == [os.geteuid(), os.getegid()])
os.mkdir("deep"); os.chdir("deep"); connect("elsewhere", give("../stream")); os.rmdir("../deep"); connect("in no directory", give("stream"))
report()
"""


def test_p48_errno_is_as_native(runner: support.Runner) -> None:
    """Every error of connect(2), the names on both ends, who is told of whom: natively the same but for the process."""
    found = same_as_native(runner, ERRNOS)
    assert {"ok", "ENOENT", "ECONNREFUSED", "EPROTOTYPE", "EAGAIN", "EINVAL", "EFAULT", "EBADF", "ENOTSOCK", "EISCONN",
            "ELOOP", "ENOTDIR"} <= {value for value in found.values() if isinstance(value, str)}  # fmt: skip


def test_p48_a_full_server_holds_one_caller_and_nobody_else(runner: support.Runner) -> None:
    """The one that waits goes on when there is room; a signal reaches its handler; the rest of the tree does not wait."""
    found = same_as_native(
        runner,
        """
import signal, socket, threading, time
full = socket.socket(socket.AF_UNIX); full.bind("full"); full.listen(0)
first = socket.socket(socket.AF_UNIX); first.connect("full")
waits = socket.socket(socket.AF_UNIX)
answers = []
thread = threading.Thread(target=lambda: answers.append(errno_of(waits.connect, "full"))); thread.start()
while not any(open(f"/proc/self/task/{t}/wchan").read() not in ("0", "") and int(t) != os.getpid() for t in os.listdir("/proc/self/task")): pass
for number in range(50): os.mkdir(f"d{number}")
note("others", len(os.listdir(".")) - 1); note("waits", answers == [])
full.accept()[0].close(); thread.join(); note("goes on", answers)
rest = socket.socket(socket.AF_UNIX)
heard = []
if os.fork() == 0:
    for signum in (signal.SIGALRM,): signal.signal(signum, lambda *_: heard.append(1) or 1 / 0)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try: rest.connect("full")
    except ZeroDivisionError: os._exit(7)
    os._exit(8)
note("handler", os.waitstatus_to_exitcode(os.wait()[1]))
child = os.fork()
if child == 0:
    rest.connect("full"); os._exit(0)
os.kill(child, signal.SIGKILL)
note("killed", os.waitstatus_to_exitcode(os.wait()[1]))
report()
""",
    )
    assert found == {"others": 50, "waits": True, "goes on": [0], "handler": 7, "killed": -9}


def test_p18_the_other_end_is_told_the_ids_in_force(runner: support.Runner) -> None:
    """After set-id calls, with another file system id, with groups: what a server of the run sees of its client."""
    if runner.identity.uid:
        pytest.skip("only root changes ids")
    same_as_native(
        runner,
        """
import socket, struct
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen(); os.chmod("s", 0o777); os.chmod(".", 0o777)
def seen(label):
    with socket.socket(socket.AF_UNIX) as c:
        answer = word(-errno_of(c.connect, "s"))
        if answer != "ok": return note(label, answer)
        d, _ = server.accept()
        groups = d.getsockopt(socket.SOL_SOCKET, 59, 400)  # SO_PEERGROUPS
        note(label, [*struct.unpack("3i", d.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:], list(groups)])
seen("root")
os.setgroups([4, 2000]); seen("groups")
call("setresgid", -1, 3000, -1); seen("group")
call("setresuid", -1, 1234, -1); seen("effective")
call("setresuid", -1, 0, -1); seen("back")
call("setfsuid", 1235); seen("file system"); call("setfsuid", 0)
os.chmod("s", 0o700); call("setresuid", -1, 1234, -1); seen("no right"); call("setresuid", -1, 0, -1); os.chmod("s", 0o777)
if os.fork() == 0:
    os.setresgid(77, 77, 77); os.setresuid(78, 78, 78); seen("for good")
    os.write(2, json.dumps(_notes[-1]).encode()); os._exit(0)
os.wait(); seen("at the end")
report()
""",
    )


def test_p48_programs_that_talk_among_themselves(runner: support.Runner) -> None:
    """multiprocessing, asyncio, node, an ssh-agent that the run starts."""
    give(
        runner,
        runner.work / "talk.py",
        b"""
import asyncio, multiprocessing as m, socketserver, threading, socket, os
from multiprocessing.connection import Client, Listener
def work(address, key): print("client", Client(address, authkey=key).recv(), flush=True)
async def talk():
    async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()
    server = await asyncio.start_unix_server(serve, "a.sock")
    r, w = await asyncio.open_unix_connection("a.sock"); w.write(b"line\\n"); print("asyncio", await r.readline()); w.close(); server.close()
if __name__ == "__main__":
    m.set_start_method("forkserver")
    with Listener(family="AF_UNIX", authkey=b"k") as l:
        p = m.Process(target=work, args=(l.address, b"k")); p.start()
        with l.accept() as c: c.send("hello")
        p.join()
    asyncio.run(talk())
""",
    )
    words = [runner.identity.python, "-I", "talk.py"]
    assert runner.supervise(words).out == runner.native(words).out == "client hello\nasyncio b'line\\n'\n"
    if shutil.which("node"):
        code = (
            "const n=require('net');const s=n.createServer(c=>c.end('hi')).listen('n.sock',()=>"
            "n.connect('n.sock').on('data',d=>{console.log(String(d));s.close()}))"
        )
        assert runner.supervise(["node", "-e", code]).out == "hi\n"
    if shutil.which("ssh-agent"):
        line = 'eval "$(ssh-agent)" >/dev/null; ssh-add -l 2>&1; ssh-agent -k >/dev/null'
        assert runner.supervise(["sh", "-c", line]).out == runner.native(["sh", "-c", line]).out != ""


def test_p49_a_stale_socket_does_not_stop_a_server(runner: support.Runner) -> None:
    """What a server outside left behind is answered as natively: a program that finds it starts its own."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(runner.work / "left"))
    left.close()
    os.chown(runner.work / "left", runner.identity.uid, runner.identity.gid)
    found, result = attack(runner, REACH + "note('left', reach('left'))\nreport()\n")
    assert found == {"left": "ECONNREFUSED"} and not result.denied(runner.work / "left")


@pytest.mark.parametrize("twin", ["inline", "process"])
def test_p48_both_evaluators_vote_on_a_connection(runner: support.Runner, twin: str) -> None:
    found, result = attack(
        runner,
        REACH
        + """
own = socket.socket(socket.AF_UNIX); own.bind("own.sock"); own.listen(); note("own", reach("own.sock"))
name = f"\\0pincer-twin-{os.getpid()}"
own = socket.socket(socket.AF_UNIX); own.bind(name); own.listen(); note("abstract", reach(name))
report()
""",
        options=("--quiet", "--twin", twin),
    )
    assert found == {"own": "ok", "abstract": "ok"}
    for entry in [entry for entry in result.decisions if entry["effect"] == "connect"]:
        assert [(vote["by"], vote["verdict"]) for vote in entry["votes"]] == [("left", "allow"), ("right", "allow")]
        assert ["bound", True] in entry["facts"] and entry["outcome"] == "done"


def test_p53_the_approval_channel_takes_no_connection_of_the_supervisor_for_a_worker(runner: support.Runner) -> None:
    """Abstract, and so never connected to on behalf; what the worker does by itself the scope refuses."""
    found, _ = attack(
        runner,
        REACH
        + """
names = [line.split()[-1] for line in open("/proc/net/unix") if "@pincer-trace-" in line]
note("seen", len(names) > 0); note("answers", [reach("\\0" + name[1:]) for name in names])
report()
""",
        options=("--quiet", "--confirm", "ask"),
    )
    assert found["seen"] and set(found["answers"]) == {"EPERM"}, found


def test_p71_flags_that_connect(runner: support.Runner) -> None:
    """MSG_FASTOPEN in each call, and the families and protocols that nothing judges."""
    found, _ = attack(
        runner,
        """
import socket
server = socket.create_server(("127.0.0.1", 0))
address = ctypes.create_string_buffer(b"\\2\\0" + server.getsockname()[1].to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8), 16)
s = socket.socket()
note("sendto", word(call("sendto", s.fileno(), address, 4, 0x20000000, address, 16)))
note("sendto noise", word(call("sendto", s.fileno(), address, 4, 0x20004000 | 1 << 40, address, 16)))
header = ctypes.create_string_buffer((ctypes.addressof(address)).to_bytes(8, "little") + (16).to_bytes(8, "little") + bytes(40), 64)
note("sendmsg", word(call("sendmsg", s.fileno(), header, 0x20000000))); note("sendmmsg", word(call("sendmmsg", s.fileno(), header, 1, 0x20000000)))
server.setblocking(False); note("nobody", word(-errno_of(server.accept)))
for label, words in {"mptcp": (2, 1, 262), "sctp": (2, 1, 132), "sctp packets": (2, 5, 132), "smc": (2, 1, 256), "vsock": (40, 1, 0), "packet": (17, 3, 0),
                     "alg": (38, 5, 0), "tipc": (30, 5, 0), "usersock": (16, 3, 2), "audit": (16, 3, 9)}.items():
    note(label, word(call("socket", *words)))
pair = ctypes.create_string_buffer(8); note("tipc pair", word(call("socketpair", 30, 5, 0, pair)))
report()
""",
    )
    assert {found.pop(name) for name in ("sendto", "sendto noise", "sendmsg", "sendmmsg")} == {
        "ENOTSUP"
    }  # EOPNOTSUPP by its other name
    assert found.pop("nobody") == "EAGAIN"
    assert set(found.values()) == {"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}
