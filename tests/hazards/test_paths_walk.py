"""Walks: descriptors and magic links of the caller, trailing slashes, names as bytes, openat2. Hazards P19, P20, P22,
P23, P26, P30, P31, P36, P90 and P98: the same answer as native, and the caller's objects, never the supervisor's.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import (
    Unchanged,
    attack,
    compiled,
    folder,
    give,
    notes,
    outside,
    python,
    same_as_native,
)

pytestmark = pytest.mark.both_identities

OPENS = """
LINKS = {"dangling": "nowhere", "link": "file", "dirlink": "dir", "far": "/nonexistent/x", "loop": "loop", "twice": "dangling",
         "slash": "made/"}
def fresh():
    for name in os.listdir("t") if os.path.isdir("t") else ():
        if name not in LINKS and name not in ("file", "dir"):
            os.unlink("t/" + name)
    for name in os.listdir("t/dir") if os.path.isdir("t/dir") else ():
        os.unlink("t/dir/" + name)
    os.makedirs("t/dir", exist_ok=True)
    for name, text in LINKS.items():
        if not os.path.islink("t/" + name):
            os.symlink(text, "t/" + name)
    make("t/file", b"content")
names = ["file", "absent", "dangling", "link", "dir", "dirlink", "far", "loop", "twice", "slash", "file/", "absent/",
         "dir/", "dir/.", "dir/..", "dangling/", "file/x", "dir/new", "dirlink/new", "absent/new", "."]
access = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "3": 3}
extra = {"": 0, "c": os.O_CREAT, "cx": os.O_CREAT | os.O_EXCL, "t": os.O_TRUNC, "ct": os.O_CREAT | os.O_TRUNC,
         "n": os.O_NOFOLLOW, "cn": os.O_CREAT | os.O_NOFOLLOW, "d": os.O_DIRECTORY, "dn": os.O_DIRECTORY | os.O_NOFOLLOW,
         "cd": os.O_CREAT | os.O_DIRECTORY, "x": os.O_EXCL, "tmp": os.O_TMPFILE, "tmpc": os.O_TMPFILE | os.O_CREAT,
         "a": os.O_APPEND, "p": os.O_PATH, "pn": os.O_PATH | os.O_NOFOLLOW, "na": os.O_NOATIME}
chosen = sys.argv[1].split(",")
UNSHOWN = 0o100000 | os.O_NOFOLLOW | os.O_DIRECTORY  # O_LARGEFILE; and what belongs to the walk, a listed difference
fresh()
for name in names:
    for a in access:
        for e in chosen:
            if a == "3" and e.startswith("tmp"):
                continue
            found = call("openat", AT_FDCWD, "t/" + name, access[a] | extra[e], 0o640)
            answer = word(found)
            if found >= 0:
                info = os.fstat(found)
                flags = call("fcntl", found, 3)
                answer = [stat.filemode(info.st_mode), info.st_size, flags & ~UNSHOWN]
                os.close(found)
            listing = sorted((n, stat.filemode(os.lstat(top + "/" + n).st_mode), os.lstat(top + "/" + n).st_size * (n != "dir"))
                             for top, below, files in os.walk("t") for n in below + files)
            note(f"{name} {a} {e}", [answer, str(listing)])
            if found >= 0 and extra[e] & (os.O_CREAT | os.O_TRUNC):
                fresh()
report()
"""


@pytest.mark.parametrize("flags", [",c,cx", "t,ct", "n,cn,d,dn,cd", "x,tmp,tmpc", "a,p,pn,na"])
def test_p19_every_kind_of_open_answers_as_native(runner: support.Runner, flags: str) -> None:
    same_as_native(runner, OPENS, flags)


def test_p19_a_link_is_judged_where_it_ends(runner: support.Runner) -> None:
    """Dangling and living links to what may not be made or written: nothing happens, truncation included."""
    target = outside(runner)
    links = {
        "made": runner.home / ".bashrc",
        "two": runner.work / "made",
        "hook": runner.work / ".git/hooks/pre-commit",
        "there": target,
    }
    folder(runner, runner.work / ".git/hooks")
    for name, goal in links.items():
        (runner.work / name).symlink_to(goal)
    with Unchanged(runner.home, runner.work, target.parent):
        found, result = attack(
            runner,
            """
for name in ("made", "two", "hook", "there"):
    for label, flags in (("c", os.O_CREAT), ("ct", os.O_CREAT | os.O_TRUNC), ("cw", os.O_CREAT | os.O_WRONLY),
                         ("ctw", os.O_CREAT | os.O_TRUNC | os.O_RDWR), ("t", os.O_TRUNC), ("tw", os.O_TRUNC | os.O_WRONLY)):
        note(name + " " + label, word(call("openat", AT_FDCWD, name, flags, 0o600)))
note("excl", word(call("openat", AT_FDCWD, "made", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)))
report()
""",
        )
    assert found.pop("excl") == "EEXIST"
    assert found.pop("there c") == "ok", "it exists, so O_CREAT alone is a read"
    for label in ("made t", "made tw", "two t", "two tw", "hook t", "hook tw"):
        assert found.pop(label) == "ENOENT"
    assert set(found.values()) == {"EACCES"}, found
    assert {".bashrc", "pre-commit", "f"} <= {Path(entry["path"]).name for entry in result.denied()}


def test_p19_a_nameless_file_gets_no_protected_name(runner: support.Runner) -> None:
    folder(runner, runner.work / ".git/hooks")
    with Unchanged(runner.home, runner.work / ".git"):
        found, _ = attack(
            runner,
            """
descriptor = call("openat", AT_FDCWD, ".", os.O_TMPFILE | os.O_RDWR, 0o755)
assert descriptor >= 0, descriptor
os.write(descriptor, b"evil")
for label, where in (("hook", ".git/hooks/pre-commit"), ("home", sys.argv[1] + "/.bashrc"), ("own", "made")):
    note(label, word(call("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, where, AT_SYMLINK_FOLLOW)))
    note(label + " empty", word(call("linkat", descriptor, "", AT_FDCWD, where, AT_EMPTY_PATH)))
note("in hooks", word(call("openat", AT_FDCWD, ".git/hooks", os.O_TMPFILE | os.O_RDWR, 0o755)))
report()
""",
            str(runner.home),
        )
    assert found["hook"] == found["home"] == found["in hooks"] == "EACCES"
    assert found["hook empty"] in ("EACCES", "ENOENT") and found["home empty"] in ("EACCES", "ENOENT")
    assert found["own"] == "ok"
    assert (runner.work / "made").read_bytes() == b"evil"


FCALLS = """
descriptor = os.open(sys.argv[1], os.O_RDONLY)
note("fchmod", word(call("fchmod", descriptor, 0o777)))
note("fchown", word(call("fchown", descriptor, os.getuid(), os.getgid())))
note("fsetxattr", word(call("fsetxattr", descriptor, "user.x", ctypes.c_char_p(b"1"), 1, 0)))
note("fremovexattr", word(call("fremovexattr", descriptor, "user.y")))
note("futimens", word(call("utimensat", descriptor, 0, 0, 0)))
note("empty path", word(call("fchownat", descriptor, "", os.getuid(), os.getgid(), AT_EMPTY_PATH)))
note("fchmodat2", word(call("fchmodat2", descriptor, "", 0o777, AT_EMPTY_PATH)))
flags = ctypes.c_long(0x40)
note("setflags", word(call("ioctl", descriptor, 0x40086602, ctypes.byref(flags))))
note("setflags high", word(call("ioctl", descriptor, 0x40086602 + 2**32, ctypes.byref(flags))))
note("by proc", word(call("fchmodat", AT_FDCWD, f"/proc/self/fd/{descriptor}", 0o777)))
note("truncate by proc", word(call("truncate", f"/proc/self/fd/{descriptor}", 0)))
note("write by proc", word(call("openat", AT_FDCWD, f"/proc/self/fd/{descriptor}", os.O_WRONLY, 0)))
note("write by dev", word(call("openat", AT_FDCWD, f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_TRUNC, 0)))
report()
"""


def test_p20_a_descriptor_for_reading_changes_nothing(runner: support.Runner) -> None:
    target = outside(runner)
    with Unchanged(target.parent):
        found, result = attack(runner, FCALLS, str(target))
    assert set(found.values()) == {"EACCES"}, found
    assert len(result.denied(target)) >= len(found) - 1


def test_p20_on_the_own_file_they_answer_as_native(runner: support.Runner) -> None:
    found = same_as_native(runner, FCALLS, "f", setup=lambda: give(runner, runner.work / "f", b"abc") and None)
    assert found["fchmod"] == "ok"


DIRFDS = """
os.mkdir("top"); os.chdir("top")
os.makedirs("a/sub"); make("a/f", b"first"); make("other", b"other")
d = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
p = os.open("a", os.O_PATH | os.O_DIRECTORY)
f = os.open("other", os.O_RDONLY)
os.rename("a", "b"); os.mkdir("a"); make("a/f", b"decoy!")
closed = os.dup(f); os.close(closed)
junk = 0x7EADBEEF << 32
def size(found):
    if found < 0: return word(found)
    n = os.fstat(found).st_size; os.close(found); return n
for label, fd in (("read", d), ("path", p), ("file", f), ("closed", closed), ("minus one", -1), ("cwd", AT_FDCWD),
                  ("cwd 32", 0xFFFFFF9C), ("cwd 64", 0xFFFFFFFFFFFFFF9C - 2**64), ("cwd junk", junk | 0xFFFFFF9C),
                  ("junk", junk | d), ("big", 2**31 - 1), ("minus 101", -101)):
    for name in ("f", "sub", "", ".", "..", "../other", "missing", os.path.abspath("other")):
        short = "abs" if name.startswith("/") else name
        note(f"{label} open {short}", size(call("openat", fd, name, os.O_RDONLY, 0)))
        note(f"{label} write {short}", size(call("openat", fd, name, os.O_WRONLY | junk, 0)))
        note(f"{label} unlinkat empty {short}", word(call("unlinkat", fd, name, AT_EMPTY_PATH)))
        note(f"{label} chmod {short}", word(call("fchmodat", fd, name, 0o755)))
        note(f"{label} chown {short}", word(call("fchownat", fd, name, -1, -1, AT_EMPTY_PATH | junk)))
        note(f"{label} chown2 {short}", word(call("fchownat", fd, name, -1, -1, 0)))
        note(f"{label} utime {short}", word(call("utimensat", fd, name, 0, 0)))
        note(f"{label} utimensat null {short}", word(call("utimensat", fd, 0, 0, 0)))
        note(f"{label} link {short}", word(call("linkat", fd, name, AT_FDCWD, "f", 0)))
        note(f"{label} mkdir {short}", word(call("mkdirat", fd, name, 0o755)) if short != "missing" else 0)
        note(f"{label} symlink {short}", word(call("symlinkat", "x", fd, name)) if short != "missing" else 0)
        note(f"{label} rename {short}", word(call("renameat", fd, name, fd, name)))
        note(f"{label} openat2 {short}", size(call("openat2", fd, name, ctypes.c_char_p(bytes(24)), 24)))
    note(f"{label} mkdir", word(call("mkdirat", fd, "made-" + label.replace(" ", ""), 0o755)))
    note(f"{label} create", size(call("openat", fd, "new-" + label.replace(" ", ""), os.O_WRONLY | os.O_CREAT, 0o600)))
    note(f"{label} rmdir", word(call("unlinkat", fd, "made-" + label.replace(" ", ""), AT_REMOVEDIR | junk)))
os.fchdir(d); note("after fchdir", size(call("openat", AT_FDCWD, "f", os.O_RDONLY, 0)))
os.chdir(".."); os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
for name in ("x", ".", "..", "../other"):
    note("gone " + name, word(call("openat", AT_FDCWD, name, os.O_RDONLY, 0)))
    note("gone create " + name, word(call("openat", AT_FDCWD, name, os.O_CREAT | os.O_WRONLY, 0o600)))
    note("gone mkdir " + name, word(call("mkdirat", AT_FDCWD, name, 0o700)))
report()
"""


def test_p22_relative_names_start_at_the_callers_descriptor(runner: support.Runner) -> None:
    found = same_as_native(runner, DIRFDS)
    assert found["read open f"] == found["junk open f"] == found["path open f"] == 5
    assert found["closed open f"] == "EBADF"


FCALL_KINDS = """
make("f", b"abc"); os.mkdir("d"); os.mkfifo("p"); os.symlink("f", "l")
r, w = os.pipe()
import socket
kinds = {
    "read": os.open("f", os.O_RDONLY), "write": os.open("f", os.O_WRONLY), "path": os.open("f", os.O_PATH),
    "dir": os.open("d", os.O_RDONLY), "dir path": os.open("d", os.O_PATH), "link": os.open("l", os.O_PATH | os.O_NOFOLLOW),
    "fifo": os.open("p", os.O_RDWR), "pipe": r, "socket": socket.socket().fileno(), "memfd": os.memfd_create("m"),
    "closed": 999, "negative": -1, "cwd": AT_FDCWD, "proc": os.open("/proc/self/status", os.O_RDONLY),
}
gone = os.open("x", os.O_RDWR | os.O_CREAT, 0o600); os.unlink("x"); kinds["removed"] = gone
keep = socket.socket(); kinds["socket"] = keep.fileno()
for label, fd in kinds.items():
    note(label + " fchmod", word(call("fchmod", fd, 0o711)))
    note(label + " fchown", word(call("fchown", fd, -1, -1)))
    if fd != AT_FDCWD:  # Linux 6.13 takes it there by accident
        note(label + " fsetxattr", word(call("fsetxattr", fd, "user.x", ctypes.c_char_p(b"1"), 1, 0)))
        note(label + " fsetxattr bad", word(call("fsetxattr", fd, "nonsense", ctypes.c_char_p(b"1"), 1, 0)))
    note(label + " fremovexattr", word(call("fremovexattr", fd, "user.absent")))
    note(label + " futimens", word(call("utimensat", fd, 0, 0, 0)))
    note(label + " fchownat empty", word(call("fchownat", fd, "", -1, -1, AT_EMPTY_PATH)))
    note(label + " fchmodat2 empty", word(call("fchmodat2", fd, "", 0o700, AT_EMPTY_PATH)))
    note(label + " setflags", word(call("ioctl", fd, 0x40086602, ctypes.byref(ctypes.c_long(0)))))
    note(label + " setflags null", word(call("ioctl", fd, 0x40086602, 0)))
report()
"""


def test_p98_calls_by_descriptor_answer_as_native(runner: support.Runner) -> None:
    found = same_as_native(runner, FCALL_KINDS)
    assert found["path fchmod"] == found["closed fchmod"] == "EBADF"


def test_p98_long_relative_paths(runner: support.Runner) -> None:
    """Deeper than PATH_MAX by chdir, and relative paths of up to 4,095 bytes."""
    same_as_native(
        runner,
        """
here = os.open(".", os.O_RDONLY)
long = "./" * 2046 + "ab"
for n in (4080, 4090, 4094, 4095, 4096, 4097, 5000):
    name = "./" * ((n - 1) // 2) + "a" * (1 + (n - 1) % 2)
    assert len(name) == n
    note(f"create {n}", word(call("openat", AT_FDCWD, name, os.O_CREAT | os.O_WRONLY, 0o600)))
    note(f"open {n}", word(call("openat", here, name, os.O_RDONLY, 0)))
    note(f"unlink {n}", word(call("unlinkat", AT_FDCWD, name, 0)))
part = "d" * 250
for _ in range(20):
    note(f"mkdir {_}", word(call("mkdirat", AT_FDCWD, part, 0o755)))
    os.chdir(part)
note("create deep", word(call("openat", AT_FDCWD, "f", os.O_CREAT | os.O_WRONLY, 0o600)))
note("link deep", word(call("linkat", AT_FDCWD, "f", AT_FDCWD, "h", 0)))
note("unlink the other deep", word(call("unlinkat", AT_FDCWD, "h", 0)))
note("rename deep", word(call("renameat", AT_FDCWD, "f", AT_FDCWD, "g")))
note("read deep", word(call("openat", AT_FDCWD, "g", os.O_RDONLY, 0)))
note("chmod deep", word(call("fchmodat", AT_FDCWD, "g", 0o600)))
note("unlink deep", word(call("unlinkat", AT_FDCWD, "g", 0)))
for _ in range(20):
    os.chdir("..")
    note(f"rmdir {_}", word(call("unlinkat", AT_FDCWD, part, AT_REMOVEDIR)))
report()
""",
    )


def test_p23_a_thread_outlives_its_leader(runner: support.Runner) -> None:
    """The leader has exited; opens, creates and relative names of the thread still work, and mean its process."""
    program = compiled("leaderless")
    found = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        found.append(run([program]))
    native, ours = found
    assert native.status == ours.status == 0, ours
    assert native.out == ours.out and "created" in native.out


def test_p23_thread_self_is_the_thread(runner: support.Runner) -> None:
    found = same_as_native(
        runner,
        """
import threading
def look():
    tid = threading.get_native_id()
    fields = open("/proc/thread-self/stat").read().split()
    note("thread", int(fields[0]) == tid)
    note("process", int(open("/proc/self/stat").read().split()[0]) == os.getpid())
    note("task", int(open(f"/proc/self/task/{tid}/stat").read().split()[0]) == tid)
    note("link", os.readlink("/proc/thread-self") == f"{os.getpid()}/task/{tid}")
    open("/proc/thread-self/comm", "w").write("renamed")
    note("comm", [open("/proc/thread-self/comm").read(), open("/proc/self/comm").read() == "renamed"])
thread = threading.Thread(target=look); thread.start(); thread.join(); report()
""",
    )
    assert found["thread"] and found["process"] and found["task"]


def test_p23_node_with_many_threads(runner: support.Runner) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is missing")
    script = """
    const {Worker, isMainThread} = require('worker_threads'), fs = require('fs');
    if (isMainThread) { let n = 0; for (let i = 0; i < 4; i++) new Worker(__filename).on('exit', () => {
        if (++n == 4) Promise.all([...Array(50).keys()].map(i => fs.promises.readFile('o' + i % 4)))
            .then(all => console.log(all.length, fs.readdirSync('.').length)); }) }
    else { const t = require('worker_threads').threadId; fs.writeFileSync('o' + (t - 1), 'x'.repeat(t));
        fs.mkdirSync('d' + t); fs.renameSync('d' + t, 'e' + t); }
    """
    give(runner, runner.base / "threads.js", script.encode())
    result = runner.supervise(["node", str(runner.base / "threads.js")], timeout=30)
    assert result.out == "50 8\n", result


MAGIC = r"""
exec 3>out; echo three >/proc/self/fd/3; exec 3>&-; cat out
cat /dev/stdin <in; cat /proc/self/fd/0 <in; cat - </dev/stdin <in
cat <(echo substituted) <(echo twice)
exec 4<in; cat /dev/fd/4; cat <&4
echo o >/dev/stdout; echo e 2>/dev/stderr >&2; echo p | tee /dev/stderr
(cd /proc; read -r pid rest <self/stat; [ "$pid" = "$BASHPID" ] && echo cd-self)
(cd /proc/self; read -r pid rest <stat; [ "$pid" = "$BASHPID" ] && echo cd-inside)
ln -s /proc/self/stat st; read -r pid rest <st; [ "$pid" = "$$" ] && echo link-self
ln -s /proc/self/environ env; ENVMARK=mine cat env | tr '\0' '\n' | grep -c ENVMARK=mine
ln -s /proc/self/fd/5 five; exec 5<in; cat five
ln -s /proc/self p; read -r pid rest <p/stat; [ "$pid" = "$$" ] && echo through
ln -s ../../../../../../proc/self/fd f; exec 6<in; cat f/6
cat /proc/self/cwd/in /proc/self/root"$PWD"/in
cmp /proc/self/exe "$(command -v cmp)" && echo exe
diff <(cat /proc/mounts) <(cat /proc/$$/mounts) && echo mounts
head -c 5 /proc/net/dev | wc -c
[ "$(readlink /proc/self/fd/0)" = "$(cat /dev/null; readlink /proc/$$/fd/0)" ] && echo names
cat /proc/self/cmdline | tr '\0' ' '
(exec 7<in; exec 8<>/dev/fd/7 && echo again >&8) 2>&1; cat in
echo x >/dev/null; cat /dev/null; head -c 4 /dev/zero | wc -c
cat /proc/self/../self/comm; cat /proc/self/task/../comm; cat /proc/self/fd/../comm
[ -e /etc/mtab ] && cmp /etc/mtab /proc/self/mounts && echo mtab
"""


def test_p26_magic_links_are_the_callers(runner: support.Runner) -> None:
    """And P90: reached by chdir, by links and by the middle of a path."""
    found = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        give(runner, runner.work / "in", b"input\n")
        found.append(run(["bash", "-c", MAGIC]))
    native, ours = found
    assert ours.out == native.out
    assert ours.err == native.err
    for word in ("three", "twice", "cd-self", "cd-inside", "link-self", "through", "exe", "mounts", "again"):
        assert word in ours.out.split(), word


SELF = """
make("file", b"abc")
third = os.open("file", os.O_RDONLY)
os.dup2(third, 3)
proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
here = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
fds = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
os.symlink("/proc/self/fd/3", "to-3"); os.symlink("/proc/self", "to-self"); os.symlink("to-self/fd", "to-fd")
os.symlink("/proc/thread-self/fd/3", "to-thread-3")
def same(found):
    if found < 0: return word(found)
    try: return os.path.samestat(os.fstat(found), os.stat("file"))
    finally: os.close(found)
def who(found):
    if found < 0: return word(found)
    try: return int(os.read(found, 100).split()[0]) == os.getpid()
    finally: os.close(found)
for flags, f in (("r", os.O_RDONLY), ("rw", os.O_RDWR), ("c", os.O_CREAT | os.O_RDWR), ("t", os.O_WRONLY | os.O_TRUNC)):
    note("to-3 " + flags, same(call("openat", AT_FDCWD, "to-3", f, 0o600)))
    note("to-thread-3 " + flags, same(call("openat", AT_FDCWD, "to-thread-3", f, 0o600)))
    note("to-fd " + flags, same(call("openat", AT_FDCWD, "to-fd/3", f, 0o600)))
    note("fds " + flags, same(call("openat", fds, "3", f, 0o600)))
    note("here " + flags, same(call("openat", here, "fd/3", f, 0o600)))
    note("proc " + flags, same(call("openat", proc, "self/fd/3", f, 0o600)))
    note("dots " + flags, same(call("openat", fds, "../../self/fd/3", f, 0o600)))
    note("nofollow " + flags, same(call("openat", fds, "3", f | os.O_NOFOLLOW, 0o600)))
    note("excl " + flags, same(call("openat", fds, "3", f | os.O_CREAT | os.O_EXCL, 0o600)))
    note("slash " + flags, same(call("openat", fds, "3/", f, 0o600)))
    note("none " + flags, same(call("openat", fds, "99", f, 0o600)))
note("stat proc", who(call("openat", proc, "self/stat", os.O_RDONLY, 0)))
note("stat here", who(call("openat", here, "stat", os.O_RDONLY, 0)))
note("stat link", who(call("openat", AT_FDCWD, "to-self/stat", os.O_RDONLY, 0)))
note("stat task", who(call("openat", AT_FDCWD, f"to-self/task/{os.getpid()}/stat", os.O_RDONLY, 0)))
note("readonly dir", word(call("openat", AT_FDCWD, "/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY, 0)))
note("listing", sorted(os.listdir("/proc/self/fd"))[:4])
note("create in proc", word(call("openat", AT_FDCWD, "/proc/self/x", os.O_CREAT | os.O_WRONLY, 0o600)))
note("mkdir in proc", word(call("mkdirat", here, "x", 0o700)))
note("unlink in proc", word(call("unlinkat", here, "stat", 0)))
note("chmod", word(call("fchmodat", AT_FDCWD, "to-3", 0o640)))
note("mode", oct(os.stat("file").st_mode))
note("truncate", word(call("truncate", "to-3", 1)))
note("exec", os.spawnl(os.P_WAIT, "/proc/self/exe", "python3", "-I", "-S", "-c", "raise SystemExit(7)"))
report()
"""


def test_p90_proc_self_means_the_caller_however_it_is_reached(runner: support.Runner) -> None:
    found = same_as_native(runner, SELF)
    assert found["to-3 r"] is True and found["proc rw"] is True and found["stat proc"] is True


def test_p90_what_lies_behind_a_magic_link_is_judged(runner: support.Runner) -> None:
    """A read-only descriptor is not a way to write, whatever name leads to it."""
    target = outside(runner)
    with Unchanged(target.parent):
        found, _ = attack(
            runner,
            """
d = os.open(sys.argv[1], os.O_RDONLY); p = os.open(sys.argv[1], os.O_PATH)
top = os.open(os.path.dirname(sys.argv[1]), os.O_PATH)
os.symlink(f"/proc/self/fd/{d}", "l"); os.symlink(f"/proc/self/fd/{top}", "t")
for label, name in (("fd", f"/proc/self/fd/{d}"), ("path", f"/proc/self/fd/{p}"), ("link", "l"), ("dir", "t/f"),
                    ("pid", f"/proc/{os.getpid()}/fd/{d}"), ("dev", f"/dev/fd/{p}"),
                    ("cwd", "/proc/self/root" + sys.argv[1]), ("task", f"/proc/self/task/{os.getpid()}/fd/{d}")):
    for kind, flags in (("w", os.O_WRONLY), ("rw", os.O_RDWR), ("t", os.O_RDONLY | os.O_TRUNC), ("c", os.O_CREAT | os.O_WRONLY)):
        note(label + kind, word(call("openat", AT_FDCWD, name, flags, 0o600)))
    note(label + " truncate", word(call("truncate", name, 0)))
    note(label + " chmod", word(call("fchmodat", AT_FDCWD, name, 0o777)))
report()
""",
            str(target),
        )
    assert set(found.values()) == {"EACCES"}, found


NAMES = """
def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            remove(path + "/" + name)
        os.rmdir(path)
    else:
        os.unlink(path)
def lay_out():
    for name in os.listdir("."):
        remove(name)
    os.makedirs("d/full/x"); make("f", b"f"); os.symlink("d", "dl"); os.symlink("f", "fl"); os.symlink("none", "dangling")
    os.mkdir("empty"); os.mkdir("e2"); os.mkfifo("fifo")
lay_out()
names = ["f", "f/", "f/.", "f/..", "d", "d/", "d/.", "d/..", "d//", ".", "..", "/", "./", "dl", "dl/", "dl/.", "fl", "fl/", "dangling",
         "dangling/", "none", "none/", "none/x", "f/x", "", "empty", "empty/", "empty/.", "d/full", "d/full/", "fifo/", "//", "x" * 256,
         "x" * 256 + "/", "e2/../f/"]
for name in names:
    label = name[:12]
    note("unlink " + label, word(call("unlinkat", AT_FDCWD, name, 0)) if name not in ("f", "dl", "fl", "dangling") else 0)
    note("rmdir " + label, word(call("unlinkat", AT_FDCWD, name, AT_REMOVEDIR)) if name not in ("empty", "empty/") else 0)
    note("mkdir " + label, word(call("mkdirat", AT_FDCWD, name, 0o755)) if name not in ("none", "none/", "dangling/") else 0)
    note("fifo " + label, word(call("mknodat", AT_FDCWD, name, stat.S_IFIFO | 0o600, 0)) if name != "none" else 0)
    note("mknod dir " + label, word(call("mknodat", AT_FDCWD, name, stat.S_IFDIR | 0o600, 0)))
    note("symlink " + label, word(call("symlinkat", "t", AT_FDCWD, name)) if name != "none" else 0)
    note("symlink empty " + label, word(call("symlinkat", "", AT_FDCWD, name)))
    note("link " + label, word(call("linkat", AT_FDCWD, "f", AT_FDCWD, name, 0)) if name != "none" else 0)
    note("link of " + label, word(call("linkat", AT_FDCWD, name, AT_FDCWD, "e2/l", 0)))
    if os.path.lexists("e2/l"): os.unlink("e2/l")
    note("link of followed " + label, word(call("linkat", AT_FDCWD, name, AT_FDCWD, "e2/l", AT_SYMLINK_FOLLOW)))
    if os.path.lexists("e2/l"): os.unlink("e2/l")
    for other in ("f", "d", "d/", "empty", "none", "none/", "dl", "dl/", "dangling", ".", "d/full/x", "d/full/../..", "", "f/"):
        for flags in (0, 1, 2, 3, 8) if other in ("f", "none", "d/") else (0, 2):
            label2 = f"rename {label} {other} {flags}"
            if os.path.lexists("moved"): raise SystemExit("moved")
            before = sorted(os.listdir("."))
            answer = call("renameat2", AT_FDCWD, name, AT_FDCWD, other, flags)
            note(label2, word(answer))
            if answer == 0:
                note(label2 + " =", sorted(os.listdir(".")))
                lay_out()
report()
"""


def test_p30_the_last_component_answers_as_native(runner: support.Runner) -> None:
    """`.`, `..`, trailing slashes, links to directories: the errno is the kernel's."""
    same_as_native(runner, NAMES)


def test_p29_whiteouts_are_not_made(runner: support.Runner) -> None:
    """RENAME_WHITEOUT leaves a device node: refused as on a file system without it, nothing moves."""
    give(runner, runner.work / "f")
    found, _ = attack(runner, "note('x', word(call('renameat2', AT_FDCWD, 'f', AT_FDCWD, 'g', WHITEOUT)))\nreport()")
    assert found == {"x": "EPERM"}
    assert [path.name for path in runner.work.iterdir()] == ["f"]


def test_p30_sticky_directories(runner: support.Runner) -> None:
    """As a user, entries of others in a sticky directory stay; everything else as native."""

    def setup() -> None:
        folder(runner, runner.work / "sticky", 0o1777)
        os.chown(runner.work / "sticky", 0 if os.geteuid() == 0 else os.geteuid(), 0 if os.geteuid() == 0 else -1)
        (runner.work / "sticky/root").write_bytes(b"")
        (runner.work / "sticky/rootdir").mkdir()
        give(runner, runner.work / "sticky/mine")
        give(runner, runner.work / "x")

    same_as_native(
        runner,
        """
for label, args in {
    "unlink": ("unlinkat", AT_FDCWD, "sticky/root", 0), "rmdir": ("unlinkat", AT_FDCWD, "sticky/rootdir", AT_REMOVEDIR),
    "onto": ("renameat", AT_FDCWD, "x", AT_FDCWD, "sticky/root"), "away": ("renameat", AT_FDCWD, "sticky/root", AT_FDCWD, "y"),
    "swap": ("renameat2", AT_FDCWD, "sticky/mine", AT_FDCWD, "sticky/root", EXCHANGE),
    "mine": ("unlinkat", AT_FDCWD, "sticky/mine", 0), "new": ("mkdirat", AT_FDCWD, "sticky/new", 0o700),
    "create": ("openat", AT_FDCWD, "sticky/root", os.O_CREAT | os.O_WRONLY, 0o600),
    "chmod": ("fchmodat", AT_FDCWD, "sticky/root", 0o600), "utime": ("utimensat", AT_FDCWD, "sticky/root", 0, 0)}.items():
    note(label, word(call(*args)))
report()
""",
        setup=setup,
    )


OPENAT2 = """
import itertools
os.makedirs("d/e"); make("d/f", b"f"); os.symlink("f", "d/l"); os.symlink("../x", "d/up"); os.symlink(os.path.abspath("d/f"), "d/abs")
os.symlink("/proc/self/fd/0", "d/magic"); make("x", b"x")
d = os.open("d", os.O_RDONLY)
def how(flags, mode=0, resolve=0, tail=b""):
    return ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (flags & (2**64 - 1), mode, resolve)) + tail, 24 + len(tail))
def do(name, buffer, size=None, fd=d):
    found = call("openat2", fd, name, buffer, len(buffer) if size is None else size)
    if found >= 0:
        info = os.fstat(found); os.close(found); return [stat.filemode(info.st_mode), info.st_size]
    return word(found)
for resolve in (0, 1, 2, 4, 8, 16, 32, 8 | 16, 4 | 8, 2 | 8, 64, 1 << 40):
    for name in ("f", "l", "up", "abs", "magic", "../x", "e/../f", "e/../../x", "/x", "none", "e", "", "./f", "/"):
        note(f"{resolve} {name}", do(name, how(os.O_RDONLY, 0, resolve)))
    for name in ("new", "up2", "../y", "e/new", "l", "up", "abs", "..", ".", "e/", "none/new", "/none/new2"):
        answer = do(name, how(os.O_CREAT | os.O_WRONLY, 0o600, resolve)) if resolve != 32 else 0
        note(f"create {resolve} {name}", answer)
        note(f"create excl {resolve} {name}", do(name, how(os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, resolve)) if resolve != 32 else 0)
        for made in ("d/new", "y", "d/e/new"):
            if os.path.exists(made): os.unlink(made)
for size in (0, 1, 8, 16, 23, 24, 25, 32, 4096, 4097, 1 << 20):
    note(f"size {size}", do("f", how(0, 0, 0, bytes(5000)), size))
    note(f"size junk {size}", do("f", how(0, 0, 0, bytes(8) + b"x" * 5000), size))
for label, buffer in {
    "mode": how(0, 0o600), "mode bits": how(os.O_CREAT, 0o10000), "flags": how(1 << 40), "flag 31": how(1 << 31), "flag 30": how(1 << 30), "access 3": how(3),
    "tmp": how(os.O_TMPFILE | os.O_RDWR, 0o600), "tmp mode": how(os.O_TMPFILE, 0o600), "dir create": how(os.O_CREAT | os.O_DIRECTORY, 0o600),
    "dir": how(os.O_DIRECTORY), "nofollow": how(os.O_NOFOLLOW), "sync": how(os.O_SYNC | os.O_WRONLY), "trunc": how(os.O_TRUNC | os.O_WRONLY)}.items():
    note(label, [do(name, buffer) for name in ("f", "l", "e")])
note("null", word(call("openat2", d, "f", 0, 24)))
note("null path", word(call("openat2", d, 0, how(0), 24)))
note("bad fd", do("f", how(0), fd=77))
report()
"""


def test_p31_openat2_answers_as_native(runner: support.Runner) -> None:
    found = same_as_native(runner, OPENAT2)
    assert found["8 up"] == "EXDEV" and found["4 l"] == "ELOOP" and found["size junk 4096"] == "E2BIG"


def test_p31_restricted_walks_do_not_widen_what_is_allowed(runner: support.Runner) -> None:
    target = outside(runner)
    with Unchanged(target.parent):
        found, _ = attack(
            runner,
            """
os.symlink(sys.argv[1], "l")
top = os.open("/", os.O_PATH)
for resolve in (0, 2, 4, 8, 16):
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_TRUNC, os.O_CREAT | os.O_WRONLY):
        for fd, name in ((AT_FDCWD, "l"), (AT_FDCWD, sys.argv[1]), (top, sys.argv[1][1:]), (top, sys.argv[1])):
            mode = 0o600 if flags & os.O_CREAT else 0
            how = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (flags, mode, resolve)), 24)
            note(f"{resolve} {flags} {fd} {name}", word(call("openat2", fd, name, how, 24)))
report()
""",
            str(target),
        )
    assert "ok" not in found.values() and "EACCES" in found.values()


def test_p36_names_are_bytes(runner: support.Runner) -> None:
    found = same_as_native(
        runner,
        r"""
for name in (b"\xff\xfe", b"new\nline", b"\x1b[2Jesc", b"\x01", b"sp ace", b"\xe2\x80\xaertl", b"-dash", b"*", b"q\"'", b"b\\s", b"a" * 255):
    label = ascii(name)[:20]
    note(label, word(call("openat", AT_FDCWD, ctypes.c_char_p(name), os.O_CREAT | os.O_WRONLY, 0o600)))
    note(label + " read", word(call("openat", AT_FDCWD, ctypes.c_char_p(name), os.O_RDONLY, 0)))
    note(label + " dir", word(call("mkdirat", AT_FDCWD, ctypes.c_char_p(name[:250] + b"d"), 0o700)))
    note(label + " move", word(call("renameat", AT_FDCWD, ctypes.c_char_p(name), AT_FDCWD, ctypes.c_char_p(name[:250] + b"d/x"))))
    note(label + " link", word(call("symlinkat", ctypes.c_char_p(name), AT_FDCWD, ctypes.c_char_p(name))))
note("long", word(call("openat", AT_FDCWD, "a" * 256, os.O_CREAT | os.O_WRONLY, 0o600)))
note("long read", word(call("openat", AT_FDCWD, "a" * 256, os.O_RDONLY, 0)))
note("link text 4095", word(call("symlinkat", "t" * 4095, AT_FDCWD, "l4095")))
note("link text 4096", word(call("symlinkat", "t" * 4096, AT_FDCWD, "l4096")))
report()
""",
    )
    assert found["long"] == "ENAMETOOLONG"


def test_p36_strange_names_reach_the_log_and_not_the_terminal(runner: support.Runner) -> None:
    folder(runner, runner.home / ".ssh")
    evil = b"\x1b[2J\x1b]0;t\x07new\nline\xff\xe2\x80\xae"
    result = runner.supervise(
        python(
            runner,
            "import ast\n"
            "note('x', word(call('openat', AT_FDCWD, ctypes.c_char_p(os.fsencode(sys.argv[1]) + ast.literal_eval(sys.argv[2])),"
            "os.O_CREAT | os.O_WRONLY, 0o600)))\nreport()",
            f"{runner.home}/.ssh/",
            repr(evil),
        )
    )
    assert notes(result) == {"x": "EACCES"}
    (record,) = [entry for entry in result.denied() if "/.ssh/" in entry["path"]]
    assert os.fsencode(record["path"]).startswith(os.fsencode(str(runner.home)) + b"/.ssh/\x1b[2J")
    shown = runner.native([runner.identity.python, "-m", "pincer_trace", "log", str(result.session)])
    assert shown.status == 0 and "/.ssh/" in shown.out, shown
    assert b"\x1b[2J" not in shown.stdout and b"\x07" not in shown.stdout and "\u202e" not in shown.out


def test_p36_pointers_at_the_edge_of_memory(runner: support.Runner) -> None:
    """A path that ends at the last byte of a mapping is read; one that crosses it is EFAULT."""
    found = same_as_native(
        runner,
        """
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p; libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
base = libc.mmap(None, 4 * 4096, 3, 0x22, -1, 0)
edge = base + 2 * 4096
assert libc.munmap(ctypes.c_void_p(edge), ctypes.c_size_t(4096)) == 0
make("f", b"f"); make("a" * 200, b"a")
for name in (b"f", b"a" * 200, b"./" * 1500 + b"f"):
    for over in (0, 1):
        ctypes.memmove(edge - len(name) - 1 + over, name + b"\\0"[: 1 - over], len(name) + 1 - over)
        for call_name, args in (("openat", (os.O_RDONLY, 0)), ("openat", (os.O_RDWR, 0)), ("fchmodat", (0o600,)), ("unlinkat", (0x10000,))):
            note(f"{call_name} {args} {len(name)} {over}", word(call(call_name, AT_FDCWD, edge - len(name) - 1 + over, *args)))
for label, address in (("null", 0), ("one", 1), ("unmapped", edge), ("high", -1), ("kernel", -(1 << 40))):
    for call_name, args in (("openat", (os.O_RDONLY, 0)), ("openat", (os.O_CREAT | os.O_WRONLY, 0o600)), ("mkdirat", (0o700,)), ("unlinkat", (0,)),
                            ("fchmodat", (0o600,)), ("fchownat", (-1, -1, 0)), ("mknodat", (stat.S_IFIFO, 0))):
        note(f"{label} {call_name} {args}", word(call(call_name, AT_FDCWD, address, *args)))
    note(label + " symlink", word(call("symlinkat", address, AT_FDCWD, "s")))
    note(label + " symlink to", word(call("symlinkat", "s", AT_FDCWD, address)))
    note(label + " rename", word(call("renameat", AT_FDCWD, address, AT_FDCWD, "s")))
    note(label + " rename to", word(call("renameat", AT_FDCWD, "f", AT_FDCWD, address)))
    note(label + " link", word(call("linkat", AT_FDCWD, address, AT_FDCWD, "s", 0)))
    note(label + " utime", word(call("utimensat", AT_FDCWD, "f", address, 0)) if address else 0)
    note(label + " xattr", word(call("fsetxattr", os.open("f", os.O_RDONLY), address, ctypes.c_char_p(b"1"), 1, 0)))
report()
""",
    )
    assert found["null openat (0, 0)"] == "EFAULT"


def test_p36_guard_pages(runner: support.Runner) -> None:
    """A page without rights is EFAULT natively; /proc/PID/mem reads it all the same: a known difference (docs/differences.md)."""
    same_as_native(
        runner,
        """
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p; libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
bad = libc.mmap(None, 4096, 0, 0x22, -1, 0)
note("open", word(call("openat", AT_FDCWD, bad, os.O_RDONLY, 0)))
note("mkdir", word(call("mkdirat", AT_FDCWD, bad, 0o700)))
report()
""",
        allowed={"open": "ENOENT", "mkdir": "ENOENT"},  # the page reads as zeros: an empty path
    )


def test_p26_the_supervisors_own_data_is_never_read(runner: support.Runner) -> None:
    """Every file of /proc/self that can be opened is compared with the one reached by the caller's number."""
    found, _ = attack(
        runner,
        """
for name in sorted(os.listdir("/proc/self")):
    for prefix in ("/proc/self/", "/proc/thread-self/", f"/proc/self/task/{os.getpid()}/"):
        path = prefix + name
        if not os.path.isfile(path) or name in ("mem", "pagemap", "kmsg", "exe", "clear_refs", "stack"): continue
        try: a = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError: continue
        number = str(os.getpid())
        real = os.readlink(f"/proc/self/fd/{a}").split("/")
        if real[2] != number: note(path, real)
        os.close(a)
note("cmdline", open("/proc/self/cmdline").read() == open(f"/proc/{os.getpid()}/cmdline").read())
note("done", True)
report()
""",
    )
    assert found == {"cmdline": True, "done": True}
