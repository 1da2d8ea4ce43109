"""TCP: P48 and P78. Connections are made by the supervisor, judged and recorded; for programs nothing differs."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
import support
from hazards.path_programs.tools import attack, give, same_as_native

pytestmark = pytest.mark.both_identities

ERRNOS = """
import select, socket, struct, threading
def server(family=socket.AF_INET, host="127.0.0.1", backlog=999):
    s = socket.socket(family); s.bind((host, 0)); s.listen(backlog); return s
v4 = lambda host, port, family=2: struct.pack("=H", family) + port.to_bytes(2, "big") + socket.inet_aton(host) + bytes(8)
v6 = lambda host, port, scope=0: struct.pack("=H", 10) + port.to_bytes(2, "big") + bytes(4) + socket.inet_pton(10, host) + struct.pack("=I", scope)
def connect(label, family, data, size=None, later=False):
    with socket.socket(family) as s:
        s.setblocking(not later)
        answer = word(call("connect", s.fileno(), ctypes.create_string_buffer(data, 256), len(data) if size is None else size))
        if answer == "EINPROGRESS":
            select.select([], [s], [], 5); answer = ["EINPROGRESS", errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "ok")]
        note(label, answer)
s4, s6, both = server(), server(socket.AF_INET6, "::1"), server(socket.AF_INET6, "::")
p4, p6, pb = s4.getsockname()[1], s6.getsockname()[1], both.getsockname()[1]
shut = server(); ps = shut.getsockname()[1]; shut.close()
for later in (False, True):
    for family in (2, 10):
        for label, data in {"v4": v4("127.0.0.1", p4), "v6": v6("::1", p6), "mapped": v6("::ffff:127.0.0.1", p4), "any": v4("0.0.0.0", p4), "any6": v6("::", p6),
                            "shut": v4("127.0.0.1", ps), "shut6": v6("::1", ps), "port 0": v4("127.0.0.1", 0), "unspec": v4("127.0.0.1", p4, 0), "unix": v4("127.0.0.1", p4, 1),
                            "other loopback": v4("127.9.9.9", pb), "broadcast": v4("255.255.255.255", 9), "nowhere": v6("fe80::1", 9), "multicast": v4("224.0.0.1", 9)}.items():
            connect(f"{label} {family} {later}", family, data, later=later)
for size in (0, 1, 2, 8, 15, 16, 17, 28, 128, 129): connect(f"size {size}", 2, v4("127.0.0.1", p4), size); connect(f"size6 {size}", 10, v6("::1", p6), size)
s = socket.socket(); s.connect(("127.0.0.1", p4)); note("twice", word(-errno_of(s.connect, ("127.0.0.1", p4))))
note("peer", s.getpeername() == ("127.0.0.1", p4)); s.setblocking(False); note("twice later", word(-errno_of(s.connect, ("127.0.0.1", p4))))
note("a listening one", word(-errno_of(s4.connect, ("127.0.0.1", p6))))
s = socket.socket(); s.bind(("127.0.0.1", 0)); mine = s.getsockname(); s.connect(("127.0.0.1", p4)); note("own port", s.getsockname() == mine)
s = socket.socket(); note("disconnect", [word(-errno_of(s.connect, ("127.0.0.1", p4))), word(call("connect", s.fileno(), ctypes.create_string_buffer(bytes(16), 16), 16)), word(-errno_of(s.getpeername))])
s = socket.socket(); s.settimeout(3); note("with a timeout", word(-errno_of(s.connect, ("127.0.0.1", p4))))
s = socket.socket(); s.setsockopt(socket.IPPROTO_TCP, 30, 1); note("fast open later", word(-errno_of(s.connect, ("127.0.0.1", p4)))); s.send(b"x")
for host, family in (("127.0.0.1", 2), ("::1", 10)):
    s = socket.socket(family); s.bind((host, 0)); port = s.getsockname()[1]
    t = socket.socket(family); note(f"in use {family}", word(-errno_of(t.bind, (host, port)))); note(f"bind twice {family}", word(-errno_of(s.bind, (host, 0))))
    t = socket.socket(family); t.listen(); note(f"no bind {family}", t.getsockname()[1] > 0)
    for size in (0, 1, 2, 8, 16, 24, 28, 129):
        t = socket.socket(family); note(f"bind {family} {size}", word(call("bind", t.fileno(), ctypes.create_string_buffer((v4(host, 0) if family == 2 else v6(host, 0)), 256), size)))
    t = socket.socket(family); note(f"not here {family}", word(-errno_of(t.bind, ("192.0.2.1" if family == 2 else "2001:db8::1", 0))))
t = socket.socket(10); note("bind v4 to v6", word(call("bind", t.fileno(), ctypes.create_string_buffer(v4("127.0.0.1", 0), 28), 16)))
t = socket.socket(); note("bind unspec", word(call("bind", t.fileno(), ctypes.create_string_buffer(v4("0.0.0.0", 0, 0), 28), 16))); note("bind unspec host", word(call("bind", t.fileno(), ctypes.create_string_buffer(v4("127.0.0.1", 0, 0), 28), 16)))
a, b = socket.socket(), socket.socket()
for one in (a, b): one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
a.bind(("127.0.0.1", 0)); note("reuse", word(-errno_of(b.bind, a.getsockname())))
report()
"""


def test_p48_tcp_answers_as_native(runner: support.Runner) -> None:
    """Every error of connect and bind, blocking and not, IPv4 and IPv6; but what is asked about is so before the kernel
    knows that it cannot be reached.
    """
    asked = {"broadcast 2", "multicast 2", "nowhere 10"}
    refused = {f"{label} {later}": "EACCES" for label in asked for later in (False, True)}
    found = same_as_native(runner, ERRNOS, allowed=refused)
    words = {str(value) for value in found.values()}
    assert {"ok", "ECONNREFUSED", "EINVAL", "EAFNOSUPPORT", "EISCONN", "EADDRINUSE", "EADDRNOTAVAIL"} <= words, words


def test_p48_a_connection_that_waits_holds_nobody_else(runner: support.Runner) -> None:
    """A server whose queue is full: the caller waits, answers its signals, can be killed; all others go on."""
    found = same_as_native(
        runner,
        """
import signal, socket, threading
full = socket.socket(); full.bind(("127.0.0.1", 0)); full.listen(0)
held = []
for _ in range(6):
    s = socket.socket(); s.setblocking(False); errno_of(s.connect, full.getsockname()); held.append(s)
rest = socket.socket()
thread = threading.Thread(target=lambda: errno_of(rest.connect, full.getsockname()), daemon=True); thread.start()
for number in range(50): os.mkdir(f"d{number}")
note("others", len(os.listdir("."))); note("waits", thread.is_alive())
if os.fork() == 0:
    signal.signal(signal.SIGALRM, lambda *_: 1 / 0); signal.setitimer(signal.ITIMER_REAL, 0.2)
    try: socket.socket().connect(full.getsockname())
    except ZeroDivisionError: os._exit(7)
    os._exit(8)
note("handler", os.waitstatus_to_exitcode(os.wait()[1]))
child = os.fork()
if child == 0: socket.socket().connect(full.getsockname()); os._exit(0)
os.kill(child, signal.SIGKILL); note("killed", os.waitstatus_to_exitcode(os.wait()[1]))
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, b"".join(n.to_bytes(8, "little") for n in (0, 100000)))
note("SO_SNDTIMEO", word(-errno_of(s.connect, full.getsockname())))
report()
""",
    )
    assert found["handler"] == 7 and found["killed"] == -9 and found["waits"] is True


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A TCP server outside of the run."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


PROFILE = """
extends = "default"

[[rule]]
effects = ["connect"]
paths = ["//**"]
verdict = "deny"
reason = "nobody"

[[rule]]
effects = ["connect"]
paths = ["//127.0.0.2:*"]
verdict = "allow"
reason = "that one"
"""

TRY = """
import socket
port = int(sys.argv[1])
def reach(host, family=socket.AF_INET, *more):
    with socket.socket(family) as s: return word(-errno_of(s.connect, (host, port, *more)))
for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0"): note(host, reach(host))
note("mapped", reach("::ffff:127.0.0.1", socket.AF_INET6)); note("mapped any", reach("::ffff:0.0.0.0", socket.AF_INET6))
s = socket.socket(); s.setblocking(False); note("later", word(-errno_of(s.connect, ("127.0.0.1", port))))
report()
"""


def test_p48_a_profile_judges_addresses(runner: support.Runner, stranger: socket.socket) -> None:
    """By whatever address means the same host."""
    give(runner, runner.base / "p.toml", PROFILE.encode())
    port = str(stranger.getsockname()[1])
    found, result = attack(runner, TRY, port, options=("--quiet", "-p", str(runner.base / "p.toml")))
    assert found.pop("127.0.0.2") == "ECONNREFUSED"
    assert set(found.values()) == {"EACCES"}, found
    with pytest.raises(BlockingIOError):
        stranger.accept()
    assert {entry["path"] for entry in result.denied() if entry["effect"] == "connect"} == {f"//127.0.0.1:{port}"}


def test_p48_the_default_profile_asks_about_others_and_records_each(
    runner: support.Runner, stranger: socket.socket
) -> None:
    """What listens on this machine outside of the run is a host like others; `--allow-net` opens it by each address."""
    port = stranger.getsockname()[1]
    found, result = attack(runner, TRY, str(port))
    assert found.pop("127.0.0.2") == "ECONNREFUSED"  # nobody is there
    assert set(found.values()) == {"EACCES"}, found
    assert {entry["path"] for entry in result.denied()} == {f"//127.0.0.1:{port}"}
    found, result = attack(runner, TRY, str(port), options=("--quiet", "--allow-net", f"localhost:{port}"))
    assert found["127.0.0.1"] == found["mapped"] == "ok" and found["later"] == "EINPROGRESS"
    records = [entry for entry in result.decisions if entry["path"] == f"//127.0.0.1:{port}"]
    assert len(records) == 5 and {entry["outcome"] for entry in records} == {"done"}
    assert [entry.get("post") for entry in records if entry.get("post")] == ["in progress"]


OWN = """
extends = "default"

[[rule]]
effects = ["connect"]
paths = ["//**"]
verdict = "deny"
reason = "nobody"

[[rule]]
effects = ["connect"]
paths = ["//127.0.0.1:*", "//::1:*"]
when = "bound"
verdict = "allow"
reason = "servers of its own"
"""


@pytest.mark.parametrize("twin", ["inline", "process"])
def test_p68_a_server_of_the_run_is_known_by_its_socket(
    runner: support.Runner, stranger: socket.socket, twin: str
) -> None:
    """Not by its port: one that a stranger shares, or had first at another address, is not the run's own."""
    give(runner, runner.base / "p.toml", OWN.encode())
    with socket.socket() as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        os.fchown(shared.fileno(), runner.identity.uid, runner.identity.gid)
        shared.bind(("127.0.0.1", 0))
        shared.listen()
        found, result = attack(
            runner,
            """
import socket
theirs, shared = map(int, sys.argv[1:])
def reach(host, port, family=socket.AF_INET):
    with socket.socket(family) as s: return word(-errno_of(s.connect, (host, port)))
own = socket.create_server(("127.0.0.1", 0)); port = own.getsockname()[1]
note("own", reach("127.0.0.1", port)); note("own by any", reach("0.0.0.0", port)); note("mapped", reach("::ffff:127.0.0.1", port, socket.AF_INET6))
note("theirs", reach("127.0.0.1", theirs)); note("nobody", reach("127.0.0.1", 1))
wide = socket.socket(); wide.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); note("over theirs", word(-errno_of(wide.bind, ("0.0.0.0", theirs)))); errno_of(wide.listen)
note("theirs below it", reach("127.0.0.1", theirs))
beside = socket.socket(); beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); note("beside", word(-errno_of(beside.bind, ("127.0.0.1", shared)))); errno_of(beside.listen)
note("shared", reach("127.0.0.1", shared))
six = socket.create_server(("::1", 0), family=socket.AF_INET6); note("six", reach("::1", six.getsockname()[1], socket.AF_INET6))
gone = own.getsockname(); own.close(); note("closed", reach(*gone))
report()
""",
            str(stranger.getsockname()[1]),
            str(shared.getsockname()[1]),
            options=("--quiet", "--twin", twin, "-p", str(runner.base / "p.toml")),
        )
    assert {found.pop(name) for name in ("own", "own by any", "mapped", "six")} == {"ok"}
    assert {found.pop(name) for name in ("theirs", "theirs below it", "shared")} == {"EACCES"}, found
    assert {found.pop(name) for name in ("nobody", "closed")} == {"ECONNREFUSED"}
    with pytest.raises(BlockingIOError):
        stranger.accept()
    assert ["bound", True] in next(e for e in result.decisions if e["effect"] == "connect")["facts"]


def test_p48_no_address_is_judged_and_another_one_reached(runner: support.Runner) -> None:
    """0.0.0.0 means what the socket is bound to, which another thread binds meanwhile."""
    with socket.create_server(("127.0.0.2", 0)) as stranger:
        stranger.setblocking(False)
        found, _ = attack(
            runner,
            """
import random, socket, threading, time
port = int(sys.argv[1])
own = socket.create_server(("127.0.0.1", port), backlog=200)
with socket.socket() as s: note("openly", word(-errno_of(s.connect, ("127.0.0.2", port))))
def later(s, after): time.sleep(after); errno_of(s.bind, ("127.0.0.2" if s.family == socket.AF_INET else "::ffff:127.0.0.2", 0))
ends = []
for family, nothing in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::ffff:0.0.0.0"):
    for _ in range(60):
        with socket.socket(family) as s:
            binds = threading.Thread(target=later, args=(s, random.random() * 0.003)); binds.start()
            ends.append(word(-errno_of(s.connect, (nothing, port)))); binds.join()
note("ends", sorted(set(ends))); report()
""",
            str(stranger.getsockname()[1]),
        )
        assert found["openly"] == "EACCES" and "ok" in found["ends"], found
        with pytest.raises(BlockingIOError):
            stranger.accept()


TALK = b"""
import asyncio, http.server, os, shutil, subprocess, sys, threading, urllib.request
os.mkdir("site"); open("site/f", "w").write("content")
class Quiet(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a): super().__init__(*a, directory="site")
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
port = server.server_address[1]
print("urllib", urllib.request.urlopen(f"http://127.0.0.1:{port}/f").read())
def run(*words): print(words[0], subprocess.run(words, capture_output=True, text=True, timeout=50).stdout)
if shutil.which("curl"): run("curl", "-s", f"http://localhost:{port}/f")
if shutil.which("node"): run("node", "-e", f"require('http').get('http://localhost:{port}/f', r => r.on('data', d => console.log(String(d))))")
if shutil.which("git"):
    subprocess.run("git init -q --bare site/r.git; git init -q w; cd w; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m; git push -q ../site/r.git HEAD:main; cd ../site/r.git; git update-server-info", shell=True, check=True)
    run("git", "ls-remote", f"http://127.0.0.1:{port}/r.git", "main")
async def both():
    r, w = await asyncio.open_connection("localhost", port, happy_eyeballs_delay=0.2); w.write(b"GET /f HTTP/1.0\\r\\n\\r\\n"); print("asyncio", (await r.read())[-7:]); w.close()
asyncio.run(both())
"""


def test_p78_programs_that_use_the_network(runner: support.Runner) -> None:
    """curl, git, node, asyncio with two addresses for one name, all against servers of the run's own."""
    env = {"GIT_AUTHOR_DATE": "@1 +0000", "GIT_COMMITTER_DATE": "@1 +0000"}
    printed = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        give(runner, runner.work / "talk.py", TALK)
        result = run([runner.identity.python, "-I", "talk.py"], env=env)
        assert result.status == 0, result
        printed.append(result.out)
    assert printed[0] == printed[1] and printed[0].count("content") >= 2, printed
