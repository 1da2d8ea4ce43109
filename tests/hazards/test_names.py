"""Names of hosts: P83. Each is judged, asked and recorded as a name, looked up only when that is allowed, and must not lead
where its rule does not say; what goes past our resolver is judged by address.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import support
from hazards.net_programs.away import Internet
from hazards.path_programs.tools import attack, give, notes, python
from hazards.test_asked import Run

CLOSED = b"""
extends = "default"

[[rule]]
effects = ["connect"]
paths = ["//93.184.216.99:*"]
verdict = "deny"
reason = "never there"
"""
PUBLIC, OTHER, SIX = "93.184.216.34", "93.184.216.99", "2606:2800::1"
OWN = ("93.184.216.40", "2606:2800::40")  # public, and of the machine that the run is on
NEIGHBOURS = ("93.184.216.41", "2606:2800::41")  # public, and on the same link
NEAR = ("127.0.0.1", "10.0.0.5", "169.254.169.254", "fd12::7")
ZONE = {
    "api.test": [PUBLIC],
    "six.test": [SIX],
    "both.test": [SIX, PUBLIC],
    "multi.test": ["203.0.113.9", OTHER, PUBLIC],
    "rebind.test": list(NEAR),
    "own.test": list(OWN),
    "neighbour.test": list(NEIGHBOURS),
    "mixed.test": ["10.0.0.5", PUBLIC],
    "near.test": ["10.9.9.9"],
    "closed.test": [OTHER],
    "self.test": ["127.224.0.16", "fd70:696e:6365:7200::10"],
    "zero.test": ["0.0.0.0", "::"],
    "other.test": [PUBLIC],
    "x.search.test": [PUBLIC],
}
SERVERS = [(address, 80) for address in (PUBLIC, SIX, "10.9.9.9", *NEAR, *OWN, *NEIGHBOURS)]

REACH = """
import select, signal, socket
def connect(s, address):
    error = s.connect_ex(address)
    if error == errno.EINPROGRESS: select.select([], [s], [], 9); error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error: return errno.errorcode[error]
    s.setblocking(True); s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"); s.settimeout(9)
    return s.makefile("rb").read().split()[-1].decode()
def reach(name, family=2, later=False, port=80, only=False):
    try: address = socket.getaddrinfo(name, port, family, socket.SOCK_STREAM)[0][4]
    except socket.gaierror as e: return {socket.EAI_NONAME: "NONAME", socket.EAI_AGAIN: "AGAIN"}.get(e.errno, str(e))
    with socket.socket(family) as s:
        s.setblocking(not later)
        if only: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return connect(s, address)
"""
ALLOWED = "{own,neighbour,api,six,both,multi,rebind,mixed,none,closed,self,zero,near,x,silent}.test:80,*.wild.test:80,10.9.9.9:80"


def test_p83_a_name_is_judged_and_leads_only_where_it_may(runner: support.Runner) -> None:
    """All in one run: families, non-blocking, several addresses, rebinding, addresses that mean no name, other processes,
    signals while a name is looked up.
    """
    internet = Internet(runner, ZONE, SERVERS, OWN, NEIGHBOURS)
    give(runner, runner.base / "p.toml", CLOSED)
    result = internet.supervise(
        python(
            runner,
            REACH
            + """
for later in (False, True):
    for name in ("api.test", "API.Test.", "six.test", "both.test", "multi.test", "none.test", "self.test", "zero.test", "a.wild.test"):
        for family in (2, 10): note(f"{name} {family} {later}", reach(name, family, later))
    for name in ("rebind.test", "closed.test", "other.test", "api.test.evil.test", "wild.test", "127.0.0.1", "93.184.216.34", "10.0.0.5"): note(f"{name} {later}", reach(name, later=later))
for place in ("own", "neighbour"): note(f"{place} place", [reach(f"{place}.test", family, later) for family in (2, 10) for later in (False, True)])
with socket.socket() as s: note("neighbour itself", connect(s, ("93.184.216.41", 80)))
note("only", reach("api.test", 10, only=True)); note("mixed", reach("mixed.test")); note("port", reach("api.test", port=81))
def ring(*_): raise InterruptedError
signal.signal(signal.SIGALRM, ring)
def in_time(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: return reach("silent.test")
    except InterruptedError: return "rang"
    finally: signal.setitimer(signal.ITIMER_REAL, 0)
waits = os.fork()
if waits == 0: in_time(60); os._exit(0)
note("silent", in_time(0.2)); note("others", reach("api.test"))
os.kill(waits, signal.SIGKILL); note("killed", os.waitstatus_to_exitcode(os.wait()[1]))
note("search", reach("x.test")); note("near", reach("near.test"))
told = socket.getaddrinfo("api.test", 80, 2, socket.SOCK_STREAM)[0][4]
with socket.socket() as s: note("before", connect(s, told)); note("peer", s.getpeername()[0])
if os.fork() == 0:
    with socket.socket() as s: os._exit(0 if connect(s, told) == "93.184.216.34" else 1)
note("another process", os.waitstatus_to_exitcode(os.wait()[1]))
for label, where in {"nobody's": ("127.224.99.9", 80), "the first": ("127.224.0.0", 80), "the resolver's": ("127.224.0.1", 80), "six": ("fd70:696e:6365:7200::ffff", 80)}.items():
    with socket.socket(10 if ":" in where[0] else 2) as s: note(label, connect(s, where))
with socket.socket() as s: note("bind", word(-errno_of(s.bind, (told[0], 0)))); note("mapped", word(-errno_of(s.bind, ("127.224.0.1", 80))))
with socket.socket(10) as s: note("bind 6", word(-errno_of(s.bind, ("::ffff:127.239.1.1", 0)))); note("bind fd", word(-errno_of(s.bind, ("fd70:696e:6365:7200::10", 0))))
with socket.socket() as s: note("other family", word(call("connect", s.fileno(), ctypes.create_string_buffer(b"\\x0a\\0\\0\\x50" + bytes(4) + socket.inet_pton(10, "fd70:696e:6365:7200::10") + bytes(4)), 28)))
own = socket.create_server(("127.0.0.1", 0)); note("own", word(-errno_of(socket.socket().connect, own.getsockname())))
with socket.socket() as s: note("sendto", word(-errno_of(s.sendto, b"x", 0, told))); note("fast open", word(-errno_of(s.sendto, b"x", 0x20000000, told)))
report()
""",
        ),
        options=("--quiet", "-p", str(runner.base / "p.toml"), "--allow-net", ALLOWED),
    )
    found = notes(result)
    for later in (False, True):
        for family in (2, 10):
            for name, wanted in {
                "api.test": PUBLIC,
                "API.Test.": PUBLIC,
                "six.test": SIX if family == 10 else "ENETUNREACH",
                "both.test": SIX if family == 10 else PUBLIC,
                "multi.test": PUBLIC,
                **dict.fromkeys(("none.test", "self.test", "zero.test"), "EHOSTUNREACH"),
                "a.wild.test": "EHOSTUNREACH",
            }.items():
                assert found.pop(f"{name} {family} {later}") == wanted, (name, family, later)
        for name in ("rebind.test", "closed.test", "other.test", "api.test.evil.test", "wild.test"):
            assert found.pop(f"{name} {later}") == "EACCES", name
        assert {found.pop(f"{address} {later}") for address in ("127.0.0.1", PUBLIC, "10.0.0.5")} == {"EACCES"}
    assert found == {
        "own place": ["EACCES"] * 4, "neighbour place": ["EACCES"] * 4, "neighbour itself": "EACCES", "silent": "rang", "others": PUBLIC, "killed": -9, "only": "ENETUNREACH", "mixed": PUBLIC, "port": "EACCES", "search": "EHOSTUNREACH", "near": "10.9.9.9", "before": PUBLIC, "peer": PUBLIC,
        "another process": 0, "nobody's": "ECONNREFUSED", "the first": "ECONNREFUSED", "the resolver's": "ECONNREFUSED",
        "six": "ECONNREFUSED", "bind": "EADDRNOTAVAIL", "mapped": "EADDRNOTAVAIL", "bind 6": "EADDRNOTAVAIL",
        "bind fd": "EADDRNOTAVAIL", "other family": "EAFNOSUPPORT", "own": "ok", "sendto": "EPIPE", "fast open": "ENOTSUP",
    }  # fmt: skip
    assert internet.saw("connected") == {f"{PUBLIC} 80", f"{SIX} 80", "10.9.9.9 80"}
    asked = internet.saw("asked")
    assert not asked & {"other.test", "api.test.evil.test", "wild.test"} and not any("search" in name for name in asked)
    refused = {entry["path"] for entry in result.denied()}
    assert {"//other.test:80", "//api.test:81", f"//{OTHER}:80", "//10.0.0.5:80", "//127.0.0.1:80"} <= refused
    assert "//rebind.test:80" not in refused  # the name may be, and where it leads may not
    assert any(entry["reason"].startswith("rebind.test leads there: ") for entry in result.denied())
    done = [entry for entry in result.decisions if entry["path"] == "//both.test:80" and entry["outcome"] == "done"]
    assert {tuple(entry["extra"]["addresses"]) for entry in done} == {(SIX, PUBLIC), (PUBLIC,)}


LISTED = """\
# the user's own
10.1.2.3\tdb.internal db  # and another name
2606:2800::1 six.internal
10.1.2.4 by-address.internal closed.internal
93.184.216.99 shut.internal
93.184.216.40 me.internal
2606:2800::40 me6.internal
127.0.0.1 app.internal
0.0.0.0 nowhere.internal
10.1.2.3 DB.internal
bad line
"""
IN_HOSTS = (
    REACH
    + """
for name, family in (("db.internal", 2), ("DB.Internal", 2), ("db", 2), ("six.internal", 10), ("by-address.internal", 2), ("by-address.internal", 10), ("closed.internal", 2), ("shut.internal", 2), ("me.internal", 2), ("me6.internal", 10), ("app.internal", 2)):
    note(f"{name} {family}", reach(name, family))
note("raw", [connect(socket.socket(), (host, 80)) for host in ("10.1.2.3", "10.1.2.4")])
note("app", socket.gethostbyname("app.internal")); note("nowhere", socket.gethostbyname("nowhere.internal")); note("local", socket.gethostbyname("localhost"))
note("here", socket.gethostbyname("me.internal")); note("reverse", socket.getnameinfo((socket.gethostbyname("db.internal"), 0), socket.NI_NAMEREQD)[0])
with socket.create_server(("app.internal", 0)) as own: note("own", word(-errno_of(socket.socket().connect, ("app.internal", own.getsockname()[1]))))
with open("/etc/hosts") as f: note("file", f.read())
report()
"""
)
CLOSED_NAME = CLOSED.replace(b"//93.184.216.99:*", b'//closed.internal:*", "//93.184.216.99:*')


def test_p83_names_in_hosts_are_names(runner: support.Runner) -> None:
    """Judged and recorded by them, believed where they lead, never asked of a server; this machine's stay addresses."""
    there = ("10.1.2.3", "10.1.2.4")
    internet = Internet(runner, ZONE, [*SERVERS, *((each, 80) for each in there)], OWN, there, LISTED)
    give(runner, runner.base / "p.toml", CLOSED_NAME)
    allowed = "{db,six,shut,me6,app}.internal:80,10.1.2.4:80"
    result = internet.supervise(
        python(runner, IN_HOSTS), options=("--quiet", "-p", str(runner.base / "p.toml"), "--allow-net", allowed)
    )
    found = notes(result)
    shown = found.pop("file")
    assert "10.1.2.3" not in shown and "127.0.0.1 app.internal\n" in shown and "\nbad line\n" in shown
    assert shown.count(" db.internal\n") == 1 and "# the user's own\n" in shown
    assert found == {
        "db.internal 2": "10.1.2.3", "DB.Internal 2": "10.1.2.3", "db 2": "EACCES", "six.internal 10": SIX,
        "by-address.internal 2": "10.1.2.4", "by-address.internal 10": "10.1.2.4", "closed.internal 2": "EACCES",
        "shut.internal 2": "EACCES", "me.internal 2": "EACCES", "me6.internal 10": OWN[1],
        "app.internal 2": "127.0.0.1", "raw": ["EACCES", "10.1.2.4"], "app": "127.0.0.1",
        "nowhere": "0.0.0.0", "local": "127.0.0.1", "here": "93.184.216.40", "reverse": "db.internal", "own": "ok",
    }  # fmt: skip
    refused = {entry["path"] for entry in result.denied()}
    assert refused == {"//db:80", "//closed.internal:80", f"//{OTHER}:80", "//93.184.216.40:80", "//10.1.2.3:80"}
    done = [entry["path"] for entry in result.decisions if entry["effect"] == "connect" and entry["outcome"] == "done"]
    assert (
        done.count("//db.internal:80") == 2
        and done.count("//10.1.2.4:80") == 3
        and {"//six.internal:80", "//me6.internal:80", "//app.internal:80"} <= set(done)
    )
    assert not any("internal" in name or name == "db" for name in internet.saw("asked"))
    result = internet.supervise(
        python(runner, IN_HOSTS), options=("--quiet", "--allow-write", "/etc/hosts", "--allow-net", allowed)
    )
    found = notes(result)  # whoever may write it is not believed
    assert {found[f"{name} 2"] for name in ("db.internal", "app.internal")} == {"EACCES"}
    assert {"//10.1.2.3:80", "//127.0.0.1:80"} <= {entry["path"] for entry in result.denied()}


FILES = """
import socket
def look(path):
    with open(path) as f: return f.read()
here = os.getcwd(); os.symlink("/etc/resolv.conf", "link")
note("same", sorted({look(p) for p in ("/etc/resolv.conf", "link", "/proc/self/root/etc/resolv.conf", "/etc/../etc/resolv.conf", "/proc/self/cwd/link")}))
pin = os.open("/etc/resolv.conf", os.O_PATH); note("by pin", look(f"/proc/self/fd/{pin}") == look("/etc/resolv.conf"))
one, two = open("/etc/hosts", "rb"), open("/etc/hosts", "rb"); one.read(); note("own offsets", two.read(9) != b"")
note("sealed", word(-errno_of(lambda: os.write(os.open(f"/proc/self/fd/{one.fileno()}", os.O_RDWR), b"x"))))
note("hosts", [l for l in look("/etc/hosts").splitlines() if "listed" in l]); note("switch", [l for l in look("/etc/nsswitch.conf").splitlines() if l.startswith("hosts")])
note("as it was", look("/etc/hosts").splitlines()[0]); note("found", [a[4][0] for a in socket.getaddrinfo("listed.example", 1, type=socket.SOCK_STREAM)])
def missing(name):
    try: socket.getaddrinfo(name, 1)
    except socket.gaierror as e: return e.errno == socket.EAI_NONAME
note("missing", [missing(name) for name in (b"a..b", b"1.2.3.999", b"x" * 64 + b".y", b"a b.c")])
note("reverse", socket.getnameinfo((socket.gethostbyname("asked.example"), 0), socket.NI_NAMEREQD)[0]); note("local", socket.gethostbyname("localhost"))
try: open("/etc/resolv.conf", "a")
except OSError as e: note("write", errno.errorcode[e.errno])
report()
"""


def test_p83_the_files_that_lead_to_the_resolver(runner: support.Runner) -> None:
    """By each of their names, each open its own; nothing is changed; names in the profile also stand in hosts."""
    before = [Path(path).read_bytes() for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")]
    found, result = attack(runner, FILES, options=("--quiet", "--allow-net", "listed.example:443,*.not.example:1"))
    [same] = found["same"]
    assert "nameserver 127.224.0.1\n" in same and "use-vc" in same
    assert found["by pin"] is True and found["own offsets"] is True and found["sealed"] == "EPERM"
    assert found["hosts"] == ["127.224.0.16 listed.example", "fd70:696e:6365:7200::10 listed.example"]
    assert found["switch"] == ["hosts: files dns"] and found["as it was"] == before[1].decode().splitlines()[0]
    assert "127.224.0.16" in found["found"]
    assert found["missing"] == [True] * 4
    assert found["reverse"] == "asked.example" and found["local"] == "127.0.0.1" and found["write"] == "EACCES"
    assert [Path(path).read_bytes() for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")] == before
    assert [entry["path"] for entry in result.decisions if entry["effect"] == "read" and entry["path"] == "/etc/hosts"]


NO_FILE = """
for name in ("api.test", "other.test"): note(name, reach(name))
pin = os.open("/etc", os.O_PATH); note("by another way", word(-errno_of(os.open, "resolv.conf", os.O_RDONLY, dir_fd=pin)))
for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, os.O_RDONLY | os.O_DIRECTORY, os.O_RDWR): note(str(flags), word(-errno_of(os.open, "/etc/resolv.conf", flags)))
report()
"""


@pytest.mark.parametrize("resolver", ["none", "", "nameserver 127.0.0.53\n"])
def test_p83_names_are_looked_up_where_this_machine_would(runner: support.Runner, resolver: str) -> None:
    """Without resolv.conf, with an empty one, with systemd-resolved's: a server on this machine, asked by us alone."""
    internet = Internet(runner, ZONE, SERVERS, resolver=resolver)
    result = internet.supervise(python(runner, REACH + NO_FILE), options=("--quiet", "--allow-net", "api.test:80"))
    found = notes(result)
    missing = resolver == "none"
    assert (found.pop("api.test"), found.pop("other.test")) == (PUBLIC, "EACCES")
    assert found == {
        "by another way": "ENOENT" if missing else "ok",
        str(os.O_RDONLY): "ok",
        str(os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK): "ok",
        str(os.O_RDONLY | os.O_DIRECTORY): "ENOENT" if missing else "ENOTDIR",
        str(os.O_RDWR): "ENOENT" if missing else "EACCES",
    }
    assert internet.saw("asked") == {"api.test"} and internet.saw("connected") == {f"{PUBLIC} 80"}


BOMBS = """
import socket, struct
where = ("127.224.0.1", 53)
def ask(data, size=None):
    with socket.create_connection(where, 9) as s:
        try:
            s.sendall(struct.pack(">H", len(data) if size is None else size) + data)
            return s.recv(9999)
        except OSError as e: return e
q = lambda name, kind=1: struct.pack(">6H", 9, 256, 1, 0, 0, 0) + name + struct.pack(">2H", kind, 1)
ok = q(b"\\3api\\4test\\0")
note("plain", len(ask(ok)) > len(ok)); note("loop", ask(q(b"\\xc0\\x0c"))[5] & 15); note("too long", not ask(bytes(5000)) or "reset"); note("answer", ask(b"\\0\\1\\x80\\0" + bytes(8)) == b"")
note("empty", ask(b"") == b"")
with socket.create_connection(where) as s:  # byte by byte, and two at once
    for byte in struct.pack(">H", len(ok)) + ok: s.send(bytes([byte]))
    note("in pieces", len(s.recv(999)) > len(ok)); s.sendall((struct.pack(">H", len(ok)) + ok) * 3); f = s.makefile("rb"); note("three", [f.read(int.from_bytes(f.read(2), "big")).count(b"\\4test") for _ in range(3)])
held = [socket.create_connection(where) for _ in range(200)]
for s in held: s.send(b"\\xff")  # the start of a long message that never comes
note("beside them", len(ask(ok)) > len(ok))
big = socket.create_connection(where); big.settimeout(30); sent = 0
try:
    while sent < 3 << 20: sent += big.send((struct.pack(">H", len(ok)) + ok) * 500)
    note("never reads", "taken")
except ConnectionError as e: note("never reads", "closed")
note("after", len(ask(ok)) > len(ok))
with socket.create_connection(where) as s: port = s.getpeername()[1]
with socket.create_connection(("127.0.0.1", port)) as s:
    try: s.send(b"\\0"); note("by its real port", s.recv(9) == b"")
    except ConnectionError: note("by its real port", True)
report()
"""


def test_p83_the_resolver_takes_what_comes(runner: support.Runner) -> None:
    """Bombs, pieces, connections that never end or never read: it answers all the same, and nobody but this run."""
    found, result = attack(runner, BOMBS, options=("--quiet", "--allow-net", "127.0.0.1:*"))
    assert found.pop("loop") == 1 and found.pop("three") == [1] * 3 and found.pop("never reads") == "closed"
    assert found.pop("too long") in (True, "reset")
    assert set(found.values()) == {True}, found
    assert len([entry for entry in result.decisions if entry["effect"] == "connect"]) == 1  # by its real port


CLIENTS = {
    "curl": ["curl", "-sS", "http://api.test/"],
    "curl by IPv6": ["curl", "-sS", "http://six.test/"],
    "curl around a dead end": ["curl", "-sS", "http://dead.test/"],
    "node by IPv6": ["node", "-e", "fetch('http://six.test/').then(r => r.text()).then(console.log)"],
    "node around a dead end": ["node", "-e", "fetch('http://dead.test/').then(r => r.text()).then(console.log)"],
    "node": ["node", "-e", "fetch('http://api.test/').then(r => r.text()).then(console.log)"],
    "c-ares": ["node", "-e", "require('dns').resolve4('api.test', (e, a) => console.log(e || 'from ' + a.length))"],
    "busybox": ["busybox", "wget", "-q", "-O-", "http://api.test/"],
    "asyncio": [
        "$PYTHON", "-c", "import asyncio\nasync def m():\n r, w = await asyncio.open_connection('api.test', 80, happy_eyeballs_delay=0.1); "
        "w.write(b'GET / HTTP/1.0\\r\\n\\r\\n'); print((await r.read()).decode().split('\\r\\n')[-1])\nasyncio.run(m())",
    ],
    "urllib": ["$PYTHON", "-c", "import urllib.request as u; print(u.urlopen('http://api.test/').read().decode())"],
}  # fmt: skip


def test_p83_real_clients_by_name(runner: support.Runner) -> None:
    """Each as it is installed; all see one host, and the log names it."""
    zone = {"api.test": [SIX, PUBLIC], "six.test": [SIX], "dead.test": ["2606:2800::dead", PUBLIC]}
    internet = Internet(runner, zone, SERVERS)
    there = {name: words for name, words in CLIENTS.items() if shutil.which(words[0]) or words[0] == "$PYTHON"}
    lines = [
        f"echo {name}: $({support.shlex.join(words).replace(chr(39) + '$PYTHON' + chr(39), '$PYTHON')})"
        for name, words in there.items()
    ]
    give(runner, runner.work / "all.sh", "\n".join(lines).encode())
    result = internet.supervise(["sh", "all.sh"], options=("--quiet", "--allow-net", "{api,six,dead}.test:80"))
    said = dict(line.split(": ", 1) for line in result.out.splitlines() if ": " in line)
    assert said.keys() == there.keys() and all(text.startswith("from ") for text in said.values()), result
    result.trace.assert_no_network(but=[f"//{name}:80" for name in zone])
    assert result.trace.peers[0].program == "curl"


BY_UDP = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found;
        char text[99] = "";
        if (!getaddrinfo(names[i], "80", &wanted, &found))
            for (int error = 1; found && error; found = found->ai_next) {
                int s = socket(found->ai_family, SOCK_STREAM, 0);
                error = connect(s, found->ai_addr, found->ai_addrlen);
                snprintf(text, sizeof text, "%s", error ? strerror(errno) : "from");
                if (!error && write(s, "GET / HTTP/1.0\r\n\r\n", 18) == 18)
                    while (read(s, text, sizeof text) > 0);
                close(s);
            }
        printf("%s: %s\n", names[i], text[0] ? text : "no such name");
    }
}
"""


def test_p83_a_static_program_of_musl(runner: support.Runner) -> None:
    """It asks by UDP alone."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is missing (Debian package musl-tools)")
    program = runner.work / "lookup"
    source = give(runner, runner.work / "lookup.c", BY_UDP.encode())
    subprocess.run(["musl-gcc", "-static", "-o", program, source], check=True)
    there = ("10.1.2.3", "10.1.2.4")
    internet = Internet(runner, ZONE, [*SERVERS, *((each, 80) for each in there)], OWN, there, LISTED)
    names = ["api.test", "six.test", "db.internal", "db", "x.wild.test", "other.test"]
    result = internet.supervise(
        [str(program), *names], options=("--quiet", "--allow-net", "{api,six}.test:80,*.wild.test:80,db.internal:80")
    )
    said = dict(line.split(": ", 1) for line in result.out.splitlines() if ": " in line)
    assert said["api.test"].startswith("HTTP/1.0 200") and said["db.internal"].startswith("HTTP/1.0 200"), result
    assert said["db"] == "Permission denied"
    assert (said["x.wild.test"], said["other.test"]) == ("Host is unreachable", "Permission denied")
    assert {entry["path"] for entry in result.denied()} == {"//db:80", "//other.test:80"}
    assert internet.saw("asked") == {"api.test", "six.test", "x.wild.test"}


ASKED = """
import errno, socket, sys
def reach(host, port):
    with socket.socket() as s: print(errno.errorcode.get(s.connect_ex(socket.getaddrinfo(host, port, 2, 1)[0][4]), "ok"), flush=True)
for name in ("asked.invalid", "Asked.Invalid"): reach(name, 443)
reach("127.0.0.1", int(sys.argv[1]))
"""


def test_p83_a_person_is_asked_about_the_name(runner: support.Runner) -> None:
    """And about an address where that was asked for; a yes for the session holds for the name in each spelling."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with Run(runner, [runner.identity.python, "-I", "-c", ASKED, str(port)]) as run:
            (question,) = run.pending()
            assert (question["effect"], question["path"]) == ("connect", "//asked.invalid:443")
            run.answer("approve", str(question["id"]), "--for", "session")
            assert run.line(20) == "EHOSTUNREACH" and run.line(20) == "EHOSTUNREACH"  # there is no such name
            (question,) = run.pending()
            assert question["path"] == f"//127.0.0.1:{port}"
            run.answer("approve", str(question["id"]))
            assert run.line() == "ok"
            run.end()
            (connected,) = run.done("connect")
            assert connected["path"] == f"//127.0.0.1:{port}"
