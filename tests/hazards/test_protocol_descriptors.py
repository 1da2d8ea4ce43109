"""What a worker can see of the descriptors that it was given: P11 close-on-exec, P13 a full table, P15 terminals, P16
locks, P99 unix sockets. Most run the same program natively and supervised, and compare every line.
"""

from __future__ import annotations

import os
import re
from itertools import zip_longest
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, give


def both(runner: support.Runner, code: str, *arguments: str) -> str:
    """Run Python `code` natively and supervised in fresh folders: what both printed, which must be the same."""
    command = [runner.identity.python, "-I", "-c", code, *arguments]
    runner.fresh()
    native = runner.native(command)
    runner.fresh()
    supervised = runner.supervise(command)
    assert native.status == 0, native
    pairs = zip_longest(native.out.splitlines(), supervised.out.splitlines())
    wrong = [f"natively {left}; supervised {right}" for left, right in pairs if left != right]
    assert not wrong, "\n".join(wrong)
    assert (supervised.err, supervised.status) == (native.err, native.status)
    return native.out


FLAGS = """
import ctypes, fcntl, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
class How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]
def openat2(path, flags, mode):
    how = How(flags, mode, 0)
    return libc.syscall(437, -100, path, ctypes.byref(how), ctypes.sizeof(how))
def status(number):
    # known difference: the flags of the walk do not read back, since the object was opened by its pin
    return oct(fcntl.fcntl(number, fcntl.F_GETFL) & ~(os.O_DIRECTORY | os.O_NOFOLLOW))
open("f", "w").write("text")
os.mkdir("d")
os.mkfifo("p")
keep = os.open("p", os.O_RDWR)
ways = {
    "open": lambda path, flags: libc.open(path, flags, 0o600),
    "openat": lambda path, flags: libc.openat(-100, path, flags, 0o600),
    "openat2": lambda path, flags: openat2(path, flags, 0o600 if flags & os.O_CREAT else 0),
}
access = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "c": os.O_CREAT | os.O_RDWR, "a": os.O_WRONLY | os.O_APPEND,
          "n": os.O_RDWR | os.O_NONBLOCK, "sync": os.O_WRONLY | os.O_SYNC, "dsync": os.O_WRONLY | os.O_DSYNC,
          "noatime": os.O_RDONLY | os.O_NOATIME, "nofollow": os.O_RDONLY | os.O_NOFOLLOW, "path": os.O_PATH,
          "trunc": os.O_WRONLY | os.O_TRUNC, "tmp": os.O_TMPFILE | os.O_RDWR, "dir": os.O_DIRECTORY}
for way, call in ways.items():
    for word, flags in access.items():
        for path in (b"f", b"d", b"p", b"/dev/null", b"/proc/self/stat", b"/dev/ptmx"):
            if way == "openat2" and word == "path" or path == b"p" and word in ("r", "w", "a", "sync", "dsync", "noatime", "nofollow", "trunc"):
                continue
            if b"proc" in path and word not in ("r", "noatime", "nofollow", "path", "dir"):
                continue  # the profile lets nobody write there; root could natively
            for cloexec in (0, os.O_CLOEXEC):
                number = call(path, flags | cloexec)
                if number < 0:
                    print(way, word, path, bool(cloexec), "errno", ctypes.get_errno())
                else:
                    print(way, word, path, bool(cloexec), number, fcntl.fcntl(number, fcntl.F_GETFD), status(number))
                    os.close(number)
number = libc.creat(b"made", 0o640)
print("creat", fcntl.fcntl(number, fcntl.F_GETFD), status(number))
"""


@pytest.mark.both_identities
def test_p11_flags_of_every_open(runner: support.Runner) -> None:
    """Close-on-exec, status flags, descriptor number and errno of each way to open each kind of object."""
    printed = both(runner, FLAGS)
    assert len(printed.splitlines()) > 350
    assert " 1 0o" in printed and " 0 0o" in printed


def test_p11_a_shell_keeps_its_descriptors(runner: support.Runner) -> None:
    give(runner, runner.work / "f", b"kept\n")
    code = "exec 3<f; cat <&3; exec 4>g; echo one >&4; sh -c 'echo two >&4'; exec 5<>f; cat <&5; cat g; ls -l /proc/self/fd | wc -l"
    native = runner.native(["bash", "-c", code])
    (runner.work / "g").unlink()
    supervised = runner.supervise(["bash", "-c", code])
    assert native.out.startswith("kept\nkept\none\ntwo\n")
    assert (supervised.out, supervised.status) == (native.out, 0)


def test_p11_pass_fds(runner: support.Runner) -> None:
    printed = both(
        runner,
        "import os, subprocess, sys\n"
        "open('f', 'w').write('passed on')\n"
        "kept, closed = os.open('f', os.O_RDONLY), os.open('f', os.O_RDONLY)\n"
        "code = f'import os; print(os.read({kept}, 9)); print(os.path.exists(\"/proc/self/fd/{closed}\"))'\n"
        "subprocess.run([sys.executable, '-I', '-c', code], pass_fds=[kept])\n",
    )
    assert printed == "b'passed on'\nFalse\n"


FULL = """
import errno, os, resource
open("full", "w").write("as it was")
os.mkdir("d")
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
kept = []
def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
try:
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print("filled", errno.errorcode[error.errno], len(kept))
attempt("read", lambda: os.open("full", os.O_RDONLY))
attempt("write", lambda: os.open("full", os.O_WRONLY))
attempt("create", lambda: os.open("new", os.O_CREAT | os.O_WRONLY, 0o600))
attempt("exclusive", lambda: os.open("newer", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
attempt("truncate", lambda: os.open("full", os.O_WRONLY | os.O_TRUNC))
attempt("directory", lambda: os.open("d", os.O_DIRECTORY))
attempt("nameless", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
attempt("proc", lambda: os.open("/proc/self/stat", os.O_RDONLY))
attempt("mkdir", lambda: os.mkdir("still"))  # needs no descriptor
attempt("unlink", lambda: os.rmdir("still"))
os.close(kept.pop())
print("again", os.read(os.open("full", os.O_RDONLY), 99))
"""


def test_p13_a_full_table_is_emfile_and_nothing_is_stuck(runner: support.Runner) -> None:
    printed = both(runner, FULL)
    assert "filled EMFILE" in printed
    assert "create EMFILE" in printed
    assert "again b'as it was'" in printed, "the refused O_TRUNC destroyed the content"


def test_p13_a_refused_create_leaves_no_file(runner: support.Runner) -> None:
    """Natively the number is taken before the walk: no name appears, and no content goes, with EMFILE."""
    both(runner, FULL)
    assert sorted(path.name for path in runner.work.iterdir()) == ["d", "full"]
    assert (runner.work / "full").read_text() == "as it was"


TERMINAL = """
import ctypes, errno, os, stat, sys
def shown(name, flags=os.O_RDWR):
    try:
        descriptor = os.open(name, flags)
    except OSError as error:
        return errno.errorcode[error.errno]
    found = os.fstat(descriptor)
    answer = f"{os.isatty(descriptor)} {found.st_rdev == os.fstat(0).st_rdev} {stat.S_IFMT(found.st_mode):o} {os.ttyname(descriptor) == os.ttyname(0)}"
    os.close(descriptor)
    return answer
libc = ctypes.CDLL(None)
name = os.ttyname(0)
for path in ("/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/proc/self/fd/0", name):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC):
        print("tty", path.replace(name, "NAME"), flags, shown(path, flags))
print("foreground", os.tcgetpgrp(0) == os.getpgrp(), libc.tcgetsid(0) == os.getsid(0))
sys.stdout.flush()
pid = os.fork()
if not pid:
    os.setsid()  # no controlling terminal any more
    print("apart", shown("/dev/tty"))
    print("apart own", shown("/dev/stdin", os.O_RDWR | os.O_NOCTTY))
    print("apart still", shown("/dev/tty"))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
import getpass
print("password", getpass.getpass("Secret please: "))
print("end of it")
sys.stdin.readline()
"""


@pytest.mark.both_identities
def test_p15_the_terminal_is_the_callers(runner: support.Runner) -> None:
    """In a terminal of its own, /dev/tty and its kin are that terminal; without one, ENXIO; getpass asks on it."""
    with Live(runner, [runner.identity.python, "-I", "-c", TERMINAL], terminal=True) as live:
        printed = live.read_until(b"Secret please: ").decode()
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        opened = [line for line in lines if line.startswith("tty ")]
        assert len(opened) == 28
        assert [line for line in opened if not line.endswith("True True 20000 True")] == []
        rest = [line for line in lines if not line.startswith("tty ")]
        own = "apart own True True 20000 True"
        assert rest == ["foreground True True", "apart ENXIO", own, "apart still ENXIO", "Secret please:"]
        live.say(b"open sesame\n")
        after = live.read_until(b"end of it").decode()
        assert "open sesame" in after.split("password", 1)[1]
        assert "open sesame" not in after.split("password", 1)[0], "the terminal echoed the password"
        live.say(b"\n")
        assert live.end() == 0


def test_p15_without_a_terminal(runner: support.Runner) -> None:
    printed = both(
        runner,
        "import errno, os\n"
        "for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NOCTTY, os.O_RDWR | os.O_CREAT):\n"
        "    try: os.open('/dev/tty', flags)\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n",
    )
    assert printed.split() == ["ENXIO"] * 5


def test_p15_the_supervisor_takes_no_terminal(runner: support.Runner) -> None:
    """Terminals that the worker makes and opens become nobody's controlling terminal but its own."""
    code = """
import os, sys
for _ in range(5):
    master, slave = os.openpty()
    os.close(os.open(os.ttyname(slave), os.O_RDWR))
print("made"); sys.stdout.flush(); sys.stdin.readline()
"""
    with Live(runner, [runner.identity.python, "-I", "-c", code]) as live:
        assert live.line() == "made"
        for pid in (live.front, live.engine):
            terminal = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4]
            assert terminal == "0"
        live.say()
        assert live.end() == 0


LOCKS = """
import fcntl, os, struct, subprocess, sys
def lock(descriptor, kind, how):
    try:
        if how == "flock": fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        elif how == "posix": fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        else:
            word = {fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}[kind]
            fcntl.fcntl(descriptor, 37, struct.pack("hhqqi4x", word, 0, 0, 0, 0))  # F_OFD_SETLK
        return "got"
    except OSError as error:
        return type(error).__name__
def elsewhere(how, kind, code=""):
    pid = os.fork()
    if not pid:
        answer = lock(os.open("f", os.O_RDWR), kind, how)
        os._exit({"got": 0, "BlockingIOError": 1}.get(answer, 2))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
open("f", "w").write("x")
for how in ("flock", "ofd", "posix"):
    one, two = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    print(how, "first", lock(one, fcntl.LOCK_EX, how), "second", lock(two, fcntl.LOCK_EX, how), "other", elsewhere(how, fcntl.LOCK_EX))
    print(how, "down", lock(one, fcntl.LOCK_SH, how), lock(two, fcntl.LOCK_SH, how), elsewhere(how, fcntl.LOCK_SH), elsewhere(how, fcntl.LOCK_EX))
    os.close(two)
    print(how, "after a close", elsewhere(how, fcntl.LOCK_EX))
    os.close(one)
    print(how, "after both", elsewhere(how, fcntl.LOCK_EX))
for how in ("flock", "ofd"):  # nobody else may hold the description: free at once after close
    wrong = 0
    for turn in range(300):
        one = os.open("f", os.O_RDWR if turn % 3 else os.O_RDONLY)
        lock(one, fcntl.LOCK_EX if turn % 3 else fcntl.LOCK_SH, how)
        os.close(one)
        two = os.open("f", os.O_RDWR)
        wrong += lock(two, fcntl.LOCK_EX, how) != "got"
        os.close(two)
    print(how, "wrong", wrong)
"""


@pytest.mark.both_identities
def test_p16_locks_are_as_natively(runner: support.Runner) -> None:
    printed = both(runner, LOCKS)
    assert "flock wrong 0" in printed
    assert "ofd wrong 0" in printed


def test_p16_flock_between_two_children(runner: support.Runner) -> None:
    """One child holds the lock until it is told to go; another gets nothing before and everything after."""
    holder = "exec 9>l; flock 9; echo held >&3; read x <go; exit"
    other = "flock -n l echo free || echo busy"
    code = f"mkfifo go told; bash -c '{holder}' 3>told & read x <told; echo $x; {other}; echo >go; wait; {other}"
    result = runner.supervise(["bash", "-c", code])
    assert result.out.split() == ["held", "busy", "free"], result


SOCKETS = """
import ctypes, errno, os, socket, stat, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def mode(path):
    return oct(os.lstat(path).st_mode)
os.makedirs("sub/deep")
os.chdir("sub")
for mask in (0o000, 0o022, 0o077, 0o177):
    os.umask(mask)
    for name in ("s.sock", "./dot.sock", "deep/../up.sock", "deep/d.sock", os.getcwd() + "/abs.sock"):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(name)
        server.listen(1)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(name)
        print(oct(mask), name.rsplit("/", 1)[1] if name[0] == "/" else name, server.getsockname() == name, client.getpeername() == name, mode(name))
        for one in (server, client):
            one.close()
        os.unlink(name)
os.umask(0o022)
def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def bind(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.bind(path)
        return one.getsockname()
attempt("first", lambda: bind("again"))
attempt("again", lambda: bind("again"))
attempt("absent folder", lambda: bind("no/such"))
attempt("a file as folder", lambda: bind("/etc/passwd/x"))
os.symlink("nowhere", "dangling")
attempt("dangling", lambda: bind("dangling"))
attempt("slash", lambda: bind("slash/"))
attempt("long", lambda: bind("x" * 107))
attempt("twice", lambda: (lambda one: (one.bind("t1"), one.bind("t2")))(socket.socket(socket.AF_UNIX)))
attempt("raw bytes", lambda: bind(b"\\xff\\n\\x1b"))
print(sorted(os.listdir(b".")))
# a thread with a directory and umask of its own
os.mkdir("mine")
def apart():
    print("unshare", libc.unshare(0x200))
    os.chdir("mine")
    os.umask(0o007)
    print("apart", bind("thread.sock"), mode("thread.sock"))
thread = threading.Thread(target=apart)
thread.start()
thread.join()
print("main", bind("main.sock"), mode("main.sock"), sorted(os.listdir("mine")))
# a directory that has lost its name
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
attempt("gone", lambda: bind("x.sock"))
"""


@pytest.mark.both_identities
def test_p99_bound_names_read_back_as_they_were_written(runner: support.Runner) -> None:
    printed = both(runner, SOCKETS)
    assert "0o77 s.sock True True 0o140700" in printed
    assert "again EADDRINUSE" in printed


def test_p99_the_engine_keeps_its_own_place(runner: support.Runner) -> None:
    """A bind in the worker's directory leaves the supervisor's directory alone, and no thread behind for each one."""
    code = """
import os, socket, sys
for round in range(2):
    for number in range(20):
        os.makedirs(f"r{round}/{number}", exist_ok=True)
        os.chdir(f"r{round}/{number}")
        os.umask(number)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("s")
        os.chdir("../..")
    print("bound"); sys.stdout.flush(); sys.stdin.readline()
"""
    with Live(runner, [runner.identity.python, "-I", "-c", code]) as live:
        assert live.line() == "bound"
        engine = Path(f"/proc/{live.engine}")
        before = os.readlink(engine / "cwd"), len(os.listdir(engine / "task"))
        live.say()
        assert live.line() == "bound"
        assert (os.readlink(engine / "cwd"), len(os.listdir(engine / "task"))) == before
        live.say()
        assert live.end() == 0


def test_p11_nothing_of_ours_is_inherited(runner: support.Runner) -> None:
    """The command has the three streams and what it opens; neither the listener nor the log nor a socket of ours."""
    result = runner.supervise(["sh", "-c", "ls -l /proc/$$/fd"])
    targets = re.findall(r"(\d+) -> (.*)", result.out)
    assert {number for number, _ in targets} == {"0", "1", "2"}, result.out
