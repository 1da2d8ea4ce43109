"""P64: a Landlock domain that a process of the run puts itself in holds for what the supervisor does for it, too."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import json

import pytest
import support
from hazards.path_programs.tools import attack, give, python, same_as_native

pytestmark = pytest.mark.both_identities

CONFINE = r"""
import socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
EXECUTE, WRITE, READ, DIR = 1, 2, 4, 8
EVERY = (1 << 15) - 1
def ruleset(handled, *rules, net=0, ports=(), scoped=0):
    attribute = struct.pack("=QQQ", handled, net, scoped)
    fd = libc.syscall(444, attribute, 24, 0)
    assert fd >= 0, ctypes.get_errno()
    for path, rights in rules:
        pin = os.open(path, os.O_PATH)
        assert libc.syscall(445, fd, 1, struct.pack("=Qi", rights, pin), 0) == 0, (path, ctypes.get_errno()); os.close(pin)
    for port in ports: assert libc.syscall(445, fd, 2, struct.pack("=QQ", 2, port), 0) == 0, ctypes.get_errno()
    return fd
def confine(fd, flags=0): assert libc.prctl(38, 1, 0, 0, 0) == 0; return -ctypes.get_errno() if libc.syscall(446, fd, flags) else 0
def e(act, *words, **named):
    try: result = act(*words, **named)
    except OSError as error: return errno.errorcode.get(error.errno, error.errno)
    if isinstance(result, int) and result > 2 and act is os.open: os.close(result)
    return "ok"
def r(path): return e(os.open, path, os.O_RDONLY)
def w(path): return e(os.open, path, os.O_WRONLY)
def make(path, text=b""):
    with open(path, "wb") as f: f.write(text)
"""

VERBS = (
    CONFINE
    + r"""
os.makedirs("in/sub"); os.makedirs("out"); os.mkdir("look")
for name in ("in/a", "in/sub/b", "out/a", "out/b", "look/a"): make(name, b"text")
os.mkfifo("in/pipe"); os.mkfifo("out/pipe"); os.symlink("../out/a", "in/link"); os.symlink("../in/a", "out/link")
held = os.open("out/b", os.O_RDWR)
def tries(who):
    n = lambda label, answer: note(who + " " + label, answer)
    for d in ("in", "out", "look", "in/sub"):
        n(d + " read", r(d + "/a" if d != "in/sub" else d + "/b")); n(d + " write", w(d + "/a" if d != "in/sub" else d + "/b")); n(d + " list", e(os.listdir, d))
        n(d + " create", e(os.open, d + "/new" + who, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)); n(d + " mkdir", e(os.mkdir, d + "/dir" + who)); n(d + " rmdir", e(os.rmdir, d + "/dir" + who))
        n(d + " symlink", e(os.symlink, "x", d + "/sym" + who)); n(d + " fifo", e(os.mkfifo, d + "/fifo" + who)); n(d + " bind", e(socket.socket(socket.AF_UNIX).bind, d + "/sock" + who))
        n(d + " unlink", e(os.unlink, d + "/new" + who)); n(d + " truncate", e(os.truncate, d + "/a" if d != "in/sub" else d + "/b", 2))
        n(d + " nameless", e(os.open, d, os.O_TMPFILE | os.O_RDWR)); n(d + " chmod", e(os.chmod, d, 0o755))
    n("trunc", [e(os.open, "in/a", os.O_WRONLY | os.O_TRUNC), e(os.open, "out/a", os.O_WRONLY | os.O_TRUNC), e(os.open, "out/a", os.O_RDONLY | os.O_TRUNC)])
    n("links", [r("in/link"), r("out/link"), w("in/link"), w("out/link")])
    e(make, "in/m" + who); n("move inside", e(os.rename, "in/m" + who, "in/n" + who)); n("move down", e(os.rename, "in/n" + who, "in/sub/n" + who))
    n("move out", e(os.rename, "in/sub/n" + who, "out/n" + who)); n("move in", e(os.rename, "out/a", "in/stolen" + who)); n("link in", e(os.link, "out/a", "in/hard" + who)); n("link inside", e(os.link, "in/a", "in/hard2" + who))
    n("exchange", e(lambda: _raise(call("renameat2", AT_FDCWD, "in/a", AT_FDCWD, "out/a", 2)))); n("remove outside", e(os.unlink, "out/b"))
    n("held", [e(os.write, held, b"x"), e(os.ftruncate, held, 3), r(f"/proc/self/fd/{held}")])
    n("pipe", e(os.open, "out/pipe", os.O_RDONLY | (os.O_NONBLOCK if who == "free" else 0)))
    if who != "twice": threading.Thread(target=lambda: e(os.open, "in/pipe", os.O_WRONLY)).start(); n("pipe inside", e(os.open, "in/pipe", os.O_RDONLY))
    n("proc", [r("/proc/self/maps"), r("/proc/self/status"), r("/proc/meminfo"), r("/proc/self/environ"), w("/proc/self/comm")]); n("null", [r("/dev/null"), w("/dev/null"), r("/dev/zero")])
    n("exec", os.waitstatus_to_exitcode(os.system("true")))
def _raise(result):
    if result < 0: raise OSError(-result, "")
def in_child(act, *words):
    pid = os.fork()
    if not pid: act(*words); report(); sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
def confined():
    fd = ruleset(EVERY, ("in", EVERY), ("/usr", EXECUTE | READ | DIR), ("/lib", EXECUTE | READ | DIR), ("/lib64", EXECUTE | READ | DIR) if os.path.exists("/lib64") else ("/lib", READ), ("/etc", READ | DIR), ("look", READ | DIR), ("/proc", READ | DIR), ("/dev/null", READ | WRITE))
    note("confined", confine(fd)); tries("self")
    second = ruleset(EVERY, ("in/sub", EVERY), ("look", READ | DIR | WRITE)); note("again", confine(second)); tries("twice")
def without_truncation():
    make("in/a", b"text")
    note("confined so", confine(ruleset(EVERY, ("in", EVERY & ~(1 << 14)), ("/", READ | DIR))))
    before = len(os.listdir("/proc/self/fd"))
    note("empty", [e(os.open, "in/a", os.O_WRONLY | os.O_TRUNC), e(os.open, "in/a", os.O_WRONLY), e(os.truncate, "in/a", 0), e(os.open, "in/a", os.O_RDWR | os.O_CREAT | os.O_TRUNC), os.path.getsize("in/a") > 0, len(os.listdir("/proc/self/fd")) == before])
    fd = os.open("in/a", os.O_RDWR); note("empty held", e(os.ftruncate, fd, 0))
in_child(confined); in_child(without_truncation)
tries("free"); report()
"""
)


def test_p64_its_own_domain_holds(runner: support.Runner) -> None:
    """Every verb inside of the domain, outside of it, in a second one, and by a process that is in none: as natively."""
    outputs = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        result = run(python(runner, VERBS))
        assert result.status == 0 and len(result.out.splitlines()) == 3, result
        outputs.append({label: answer for line in result.out.splitlines() for label, answer in json.loads(line)})
        tree = support.snapshot(runner.work)
        outputs[-1]["tree"] = sorted(tree)
    native, ours = outputs
    wrong = {label: (native[label], ours.get(label)) for label in native if native[label] != ours.get(label)}
    assert not wrong, wrong
    assert ours["self out write"] == ours["self out read"] == "EACCES" and ours["self in write"] == "ok"
    assert ours["empty"] == ["EACCES", "ok", "EACCES", "EACCES", True, True] and ours["empty held"] == "EACCES"
    assert ours["twice in write"] == "EACCES" and ours["twice in/sub write"] == "ok" and ours["free out write"] == "ok"


ESCAPES = (
    CONFINE
    + r"""
os.mkdir("in"); os.mkdir("out"); make("out/a", b"text")
mark = os.open("/proc/self/coredump_filter", os.O_RDONLY)
def attempt(label): note(label, [r("out/a"), w("out/a"), e(os.open, "out/" + label.replace(" ", "-"), os.O_CREAT | os.O_WRONLY), e(os.mkdir, "out/d" + label.replace(" ", "-")), r("in")])
def told(act):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read); global _notes; _notes.clear(); act(); os.write(write, json.dumps(_notes).encode()); os._exit(0)
    os.close(write); text = b""
    while piece := os.read(read, 65536): text += piece
    os.waitpid(pid, 0); os.close(read); _notes.extend(json.loads(text) if text else [["nothing", pid]])
def rules(): return ruleset(EVERY, ("in", EVERY), ("/usr", EXECUTE | READ | DIR), ("/lib", EXECUTE | READ | DIR), ("/etc", READ | DIR), ("/proc", EVERY))
def confined():
    assert confine(rules()) == 0
    attempt("itself")
    thread = threading.Thread(target=attempt, args=("thread",)); thread.start(); thread.join()
    told(lambda: attempt("child"))
    def orphan():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while os.getppid() == parent: time.sleep(0.01)
                attempt("orphan"); os.write(pipe[1], json.dumps(_notes).encode()); os._exit(0)
            os._exit(0)
        os.wait(); os._exit(0)
    pipe = os.pipe(); _notes_before = len(_notes)
    if os.fork() == 0:
        _notes.clear(); parent = os.getpid(); orphan()
    os.close(pipe[1]); text = b""
    while piece := os.read(pipe[0], 65536): text += piece
    _notes.extend(json.loads(text))
    for flags in (os.O_WRONLY, os.O_RDWR):
        note("unmark %d" % flags, e(os.open, "/proc/self/coredump_filter", flags)); note("unmark parent %d" % flags, e(os.open, f"/proc/{os.getppid()}/coredump_filter", flags))
    note("by shell", os.waitstatus_to_exitcode(os.system("cat out/a 2>/dev/null || echo x 2>/dev/null > out/shell")))
    attempt("after exec")
note("write before", e(os.open, "/proc/self/coredump_filter", os.O_WRONLY))
told(confined)
many = [rules() for _ in range(3)]
def layers():
    note("layers", [confine(fd) for fd in many] + [confine(many[0]), confine(many[2])])
    note("bad", [confine(999), confine(os.open("/usr", os.O_RDONLY)), confine(ruleset(EVERY), 1 << 20), confine(-1)])
    note("many", [confine(ruleset(EVERY)) for _ in range(20)].count(-errno.E2BIG) >= 5); attempt("many layers")
told(layers)
for _ in range(70):
    pid = os.fork()
    if not pid: os._exit(confine(rules()) or (0 if w("out/a") == "EACCES" else 1))
    if os.waitpid(pid, 0)[1]: note("one of many", "failed")
def racing():
    stop = []; seen = set(); fd = rules()
    def other():
        while not stop: seen.add(w("out/a"))
    threads = [threading.Thread(target=other) for _ in range(3)]
    for t in threads: t.start()
    libc.syscall(446, fd, 0); own = {w("out/a") for _ in range(200)}; stop.append(1)
    for t in threads: t.join()
    note("racing", sorted(own))
libc.prctl(38, 1, 0, 0, 0); told(racing)
attempt("outside of it"); report()
"""
)


def test_p64_nobody_leaves_it(runner: support.Runner) -> None:
    """Neither a thread, a child, an orphan nor another program; the mark stays; domains of the dead are forgotten."""
    found, result = attack(runner, ESCAPES)
    closed = ["EACCES", "EACCES", "EACCES", "EACCES", "ok"]
    for who in ("itself", "thread", "child", "orphan", "after exec"):
        assert found[who] == closed, (who, found)
    assert found["outside of it"] == ["ok"] * 5
    assert found["many layers"][:4] == ["EACCES"] * 4 and found["many"] is True and found["layers"] == [0] * 5
    assert found["bad"][:3] == [-9, -77, -22] and "one of many" not in found and "nothing" not in found
    assert {answer for label, answer in found.items() if label.startswith(("unmark", "write before"))} == {"EACCES"}
    assert found["by shell"] != 0 and not (runner.work / "out/shell").exists()
    assert found["racing"] == ["EACCES"]
    assert any("core dumps are off" in d["reason"] for d in result.denied())


GIT = (
    CONFINE
    + r"""
import subprocess
os.mkdir("in"); os.mkdir("out"); os.environ |= {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
def git(*words): return subprocess.run(["git", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
note("before", git("-C", "out", "init", "-q", "there"))
note("confined", confine(ruleset(EVERY, ("in", EVERY), ("/", READ | DIR | EXECUTE), ("/dev/null", READ | WRITE))))
note("inside", [git("-C", "in", "init", "-q", "r"), git("-C", "in/r", "config", "user.name", "x"), git("-C", "in/r", "commit", "-q", "--allow-empty", "-m", "m"), git("-C", "in", "clone", "-q", "r", "s"), git("-C", "in/r", "worktree", "add", "-q", "../w"), git("-C", "in/r", "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../s", "sub"), os.path.isfile("in/s/.git/config")])
note("outside", [git("-C", "out", "init", "-q", "r") != 0, git("-C", "out/there", "config", "user.name", "x") != 0, os.listdir("out")]); note("names", sorted(os.listdir("in/r/.git"))); report()
"""
)


def test_p64_git_in_a_domain(runner: support.Runner) -> None:
    """What the supervisor completes by itself when it has been written is asked of the domain before."""
    reports = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        reports.append(dict(json.loads(run(python(runner, GIT)).out.splitlines()[-1])))
    assert reports[0] == reports[1]
    assert reports[1]["inside"] == [0] * 6 + [True] and reports[1]["outside"] == [True, True, ["there"]]


NETWORK = (
    CONFINE
    + r"""
server = socket.create_server(("127.0.0.1", 0)); port = server.getsockname()[1]; other = socket.create_server(("127.0.0.1", 0)); closed = other.getsockname()[1]
named = socket.socket(socket.AF_UNIX); named.bind("s"); named.listen()
def connect(where, family=socket.AF_INET):
    s = socket.socket(family)
    try: return e(s.connect, where)
    finally: s.close()
def confined():
    note("confined", confine(ruleset(0, net=3, ports=(port,))))
    note("connect", [connect(("127.0.0.1", port)), connect(("127.0.0.1", closed)), connect("s", socket.AF_UNIX)])
    s = socket.socket(); note("bind", e(s.bind, ("127.0.0.1", 0)))
note("free", [connect(("127.0.0.1", port)), connect(("127.0.0.1", closed))]); confined(); report()
"""
)


def test_p64_its_own_ports_hold(runner: support.Runner) -> None:
    found = same_as_native(runner, NETWORK)
    assert found["connect"] == ["ok", "EACCES", "ok"] and found["bind"] == "EACCES"


def test_p64_who_confines_nobody_pays_nothing(runner: support.Runner) -> None:
    """Creating a ruleset alone changes nothing; and the filter of core dumps reads as ever."""
    give(runner, runner.work / "f", b"x")
    code = (
        CONFINE
        + r"""
ruleset(EVERY, (".", EVERY)); note("read", [r("f"), w("f")]); note("filter", open("/proc/self/coredump_filter").read().strip()); report()
"""
    )
    same_as_native(runner, code, setup=lambda: give(runner, runner.work / "f", b"x"))
