"""Effects on processes outside of the tree, and what the supervisor does on behalf: P45, P51, P68, P69, P70, P77, P79,
P81 and P91.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import (
    SECRET,
    Unchanged,
    attack,
    compiled,
    give,
    notes,
    outside,
    python,
    same_as_native,
)

pytestmark = pytest.mark.both_identities


@pytest.fixture
def victim(runner: support.Runner) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that is not supervised, with a secret in its environment and a file open."""
    path = give(runner, runner.base / "held", SECRET, 0o600)
    words = [*runner.identity.switch, "sh", "-c", "exec 7<>" + str(path) + "; echo up; exec cat"]
    env = {"PATH": support.SYSTEM_PATH, "CANARY": SECRET.decode().strip()}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=runner.base)
    try:
        assert process.stdout and process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


OTHERS = """
pid = int(sys.argv[1])
limit = ctypes.create_string_buffer((1).to_bytes(8, "little") * 2, 16)
zeros = ctypes.create_string_buffer(64)
tries = {
    "prlimit": ("prlimit64", pid, 0, limit, 0), "prlimit junk": ("prlimit64", pid | 1 << 40, 0, limit, 0),
    "nice": ("setpriority", 0, pid, 10), "nice group": ("setpriority", 1, os.getpgid(pid), 10), "nice user": ("setpriority", 2, 0, 10),
    "affinity": ("sched_setaffinity", pid, 8, ctypes.create_string_buffer(b"\\1" + bytes(7), 8)),
    "scheduler": ("sched_setscheduler", pid, 3, zeros), "ioprio": ("ioprio_set", 1, pid, 3 << 13),
    "ioprio group": ("ioprio_set", 2, os.getpgid(pid), 3 << 13), "ioprio user": ("ioprio_set", 3, os.getuid(), 3 << 13),
    "kill": ("kill", pid, 15), "kill 0": ("kill", pid, 0), "tgkill": ("tgkill", pid, pid, 15), "attach": ("ptrace", 16, pid, 0, 0),
    "seize": ("ptrace", 0x4206, pid, 0, 0), "vm read": ("process_vm_readv", pid, zeros, 1, zeros, 1, 0),
    "vm write": ("process_vm_writev", pid, zeros, 1, zeros, 1, 0), "kcmp": ("kcmp", pid, os.getpid(), 0, 7, 0),
}
for label, words in tries.items():
    note(label, word(call(*words)))
pidfd = call("pidfd_open", pid, 0)
if pidfd >= 0:
    note("getfd", word(call("pidfd_getfd", pidfd, 7, 0)))
    note("pidfd signal", word(call("pidfd_send_signal", pidfd, 15, 0, 0)))
for name in ("mem", "environ", "maps", "fd/7", "fd", "root", "root/etc/passwd", "cwd/held", "exe", "auxv", "pagemap", "fdinfo/7", "map_files",
             "smaps", "numa_maps", "ns/user", "syscall", "stack", "wchan", "personality", "io", "task/%d/environ" % pid, "task/%d/mem" % pid):
    for kind, flags in (("", os.O_RDONLY), (" w", os.O_RDWR)):
        note("open " + name + kind, word(call("openat", AT_FDCWD, f"/proc/{pid}/{name}", flags, 0)))
os.symlink(f"/proc/{pid}", "p")
note("by link", word(call("openat", AT_FDCWD, "p/environ", os.O_RDONLY, 0)))
proc = os.open("/proc", os.O_RDONLY)
note("by directory", word(call("openat", proc, f"{pid}/environ", os.O_RDONLY, 0)))
inside = os.open(f"/proc/{pid}", os.O_PATH)
note("by pin", word(call("openat", inside, "environ", os.O_RDONLY, 0)))
note("by parent", word(call("openat", AT_FDCWD, f"/proc/self/../{pid}/environ", os.O_RDONLY, 0)))
note("link fd", word(call("linkat", AT_FDCWD, f"/proc/{pid}/fd/7", AT_FDCWD, "stolen", AT_SYMLINK_FOLLOW)))
note("truncate fd", word(call("truncate", f"/proc/{pid}/fd/7", 0)))
note("chmod fd", word(call("fchmodat", AT_FDCWD, f"/proc/{pid}/fd/7", 0o777)))
for name in ("comm", "oom_score_adj", "timerslack_ns", "coredump_filter", "attr/current", "clear_refs", "setgroups"):
    note("write " + name, word(call("openat", AT_FDCWD, f"/proc/{pid}/{name}", os.O_WRONLY, 0)))
note("exec", word(call("execveat", AT_FDCWD, f"/proc/{pid}/cwd/held", 0, 0, 0)))
note("chdir", word(-errno_of(os.chdir, f"/proc/{pid}/cwd")))
note("chdir open", word(call("openat", AT_FDCWD, "held", os.O_RDWR, 0)))
os.chdir("/")
for name in ("stat", "status", "statm", "cmdline", "comm", "cgroup", "limits", "mountinfo"):
    note("ps " + name, word(call("openat", AT_FDCWD, f"/proc/{pid}/{name}", os.O_RDONLY, 0)))
report()
"""
HARMLESS = {"chdir open"}  # the victim's folder is a folder like another: the file is judged where it lies


def state_of(pid: int) -> tuple[object, ...]:
    """What others could have changed about a process."""
    comm = Path(f"/proc/{pid}/comm").read_text().replace("sh", "cat")  # it may not have got to its exec yet
    limits = Path(f"/proc/{pid}/limits").read_text()
    policy = (os.sched_getscheduler(pid), os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid))
    return (comm, limits, policy, Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_p69_an_outside_process_keeps_what_it_has(runner: support.Runner, victim: subprocess.Popen[bytes]) -> None:
    """P45, P68 and P69: limits, priorities, signals, memory, descriptors and /proc files of an outsider."""
    before = state_of(victim.pid)
    with Unchanged(runner.base / "held"):
        found, _ = attack(runner, OTHERS, str(victim.pid))
    assert state_of(victim.pid) == before
    assert victim.poll() is None
    shown = {label: answer for label, answer in found.items() if label.startswith("ps ")}
    assert set(shown.values()) == {"ok"}
    refused = {
        label: answer for label, answer in found.items() if not label.startswith("ps ") and label not in HARMLESS
    }
    assert len(refused) > 70
    got_through = {
        label: answer for label, answer in refused.items() if answer == "ok" and label not in ("open fd", "chdir")
    }
    assert not got_through


def test_p45_the_supervisor_is_out_of_reach(runner: support.Runner) -> None:
    """The same attacks on the engine and the front, which are the worker's ancestors."""
    found, _ = attack(
        runner,
        """
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
engine = parent(os.getpid()); front = parent(engine)
for label, pid in (("engine", engine), ("front", front)):
    assert b"pincer_trace" in open(f"/proc/{pid}/cmdline", "rb").read(), label
    for name, words in {
        "kill": ("kill", pid, 9), "stop": ("kill", pid, 19), "tgkill": ("tgkill", pid, pid, 9), "attach": ("ptrace", 16, pid, 0, 0),
        "prlimit": ("prlimit64", pid, 7, ctypes.create_string_buffer(16), 0), "nice": ("setpriority", 0, pid, 19),
        "affinity": ("sched_setaffinity", pid, 8, ctypes.create_string_buffer(b"\\1" + bytes(7), 8))}.items():
        note(f"{label} {name}", word(call(*words)))
    pidfd = call("pidfd_open", pid, 0)
    for number in range(3, 12):
        note(f"{label} getfd {number}", word(call("pidfd_getfd", pidfd, number, 0)))
        note(f"{label} fd {number}", word(call("openat", AT_FDCWD, f"/proc/{pid}/fd/{number}", os.O_RDWR, 0)))
    note(f"{label} pidfd", word(call("pidfd_send_signal", pidfd, 9, 0, 0)))
    for name in ("mem", "environ", "maps"):
        note(f"{label} {name}", word(call("openat", AT_FDCWD, f"/proc/{pid}/{name}", os.O_RDWR if name == "mem" else 0, 0)))
note("group", word(call("kill", -engine, 9)))
note("still here", word(call("openat", AT_FDCWD, "/etc/passwd", os.O_RDONLY, 0)))
report()
""",
    )
    assert found.pop("still here") == "ok"
    assert len(found) > 50
    assert "ok" not in found.values(), {label for label, answer in found.items() if answer == "ok"}


def test_p63_no_credential_of_the_environment_reaches_the_worker(runner: support.Runner) -> None:
    """Neither its own environment has it, nor that of any process that it can look at: the front and the engine do."""
    code = """
import subprocess, glob
found = [name for name, value in os.environb.items() if b"canary" in value]
note("own", sorted(map(os.fsdecode, found)))
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/task/*/environ"):
    try: text = open(path, "rb").read()
    except OSError: continue
    note(path, b"canary-withheld" in text)
note("child", subprocess.run(["env"], capture_output=True).stdout.count(b"canary"))
report()
"""
    env = {
        "DEPLOY_TOKEN": "canary-withheld",
        "GIVEN_TOKEN": "canary-given",
        "PLAIN": "ghp_canary7withheld" + "0a1b2c3d" * 4,
    }
    found, result = attack(runner, code, env=env, options=("--pass-env", "GIVEN_TOKEN", "--pass-env", "ABSENT"))
    assert found.pop("own") == ["GIVEN_TOKEN"]
    assert found.pop("child") == 1
    assert found and not any(found.values()), found
    assert "since they hold credentials: DEPLOY_TOKEN, PLAIN (--pass-env NAME passes one)" in result.err
    assert "--pass-env: not set: ABSENT" in result.err
    assert json.loads((result.session / "session.json").read_text())["withheld"] == ["DEPLOY_TOKEN", "PLAIN"]


def test_p69_inside_the_tree_everything_is_allowed(runner: support.Runner) -> None:
    found, _ = attack(
        runner,
        """
import subprocess
child = subprocess.Popen(["sleep", "60"]); nice = os.getpriority(os.PRIO_PROCESS, 0)
limit = ctypes.create_string_buffer((100).to_bytes(8, "little") * 2, 16)
for label, words in {"prlimit": ("prlimit64", child.pid, 7, limit, 0), "nice": ("setpriority", 0, child.pid, nice + 3),
    "self": ("setpriority", 0, 0, nice + 1), "self pid": ("setpriority", 0, os.getpid(), nice + 2), "ioprio": ("ioprio_set", 1, child.pid, 3 << 13),
    "affinity": ("sched_setaffinity", child.pid, 128, ctypes.create_string_buffer(b"\\xff" * 16, 128)),
    "missing": ("setpriority", 0, 4194000, 5), "kill": ("kill", child.pid, 15)}.items():
    note(label, word(call(*words)))
note("ended", child.wait())
note("limits", open("/proc/self/limits").read() != "")
report()
""",
    )
    assert found.pop("missing") == "ESRCH"
    assert found.pop("ended") == -15
    assert set(found.values()) == {"ok", True}


def test_p68_an_outside_abstract_socket(runner: support.Runner) -> None:
    """Refused by the floor's scope; one that the tree bound itself is connected."""
    name = f"\0pincer-{os.getpid()}-{runner.identity.name}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        found, _ = attack(
            runner,
            """
import socket
def reach(name):
    with socket.socket(socket.AF_UNIX) as s:
        return word(-errno_of(s.connect, name))
note("outside", reach("\\0" + sys.argv[1]))
own = socket.socket(socket.AF_UNIX); own.bind("\\0" + sys.argv[1] + "own"); own.listen()
note("own", reach("\\0" + sys.argv[1] + "own"))
report()
""",
            name[1:],
        )
    assert found == {"outside": "EPERM", "own": "ok"}


def test_p68_root_inside_is_not_root_outside(runner: support.Runner) -> None:
    """Capabilities that the worker does not have are not lent to it: devices, /proc/sys, raw disks."""
    found, _ = attack(
        runner,
        """
note("disk node", word(call("mknodat", AT_FDCWD, "disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))))
note("mem node", word(call("mknodat", AT_FDCWD, "mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))))
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/sys/kernel/mm/ksm/run", "/dev/kmsg",
             "/proc/kcore", "/proc/kmsg", "/dev/mem"):
    if os.path.exists(path):
        note(path, word(call("openat", AT_FDCWD, path, os.O_RDWR, 0)))
report()
""",
    )
    assert len(found) > 4 and "ok" not in found.values(), found
    assert not list(runner.work.iterdir())


def test_p51_no_descriptor_is_inherited(runner: support.Runner) -> None:
    """Descriptors 9 and 200 are open on a secret at the start; --pass-fd lets one through, for reading as it was."""
    path = outside(runner)
    line = "cat <&9; cat <&200; ls /proc/self/fd | wc -l"
    ours = [runner.identity.python, "-m", "pincer_trace", "--session-dir", str(runner.base / "s"), "--quiet"]
    (runner.base / "s").mkdir()
    os.chown(runner.base / "s", runner.identity.uid, runner.identity.gid)
    for option, expected in (([], 0), (["--pass-fd", "9"], 1)):
        with path.open("rb") as stream:
            done = subprocess.run(
                [*runner.identity.switch, "bash", "-c", 'exec 9<&0 200<&0 </dev/null; exec "$@"', "-", *ours, *option,
                 "--", "bash", "-c", line],
                stdin=stream, capture_output=True, cwd=runner.work, timeout=20,
                env=support.environment(runner.identity, runner.home),
            )  # fmt: skip
        assert done.stdout.count(SECRET) == expected, done
        assert int(done.stdout.split()[-1]) == 4 + expected, done


def test_p79_asan_finds_its_leak(runner: support.Runner) -> None:
    """LeakSanitizer traces its own process: it must run, and report as natively."""
    program = compiled("leak", "-fsanitize=address")
    native, ours = runner.native([program]), runner.supervise([program])
    if "detected memory leaks" not in native.err:
        pytest.skip(f"no working LeakSanitizer here: {native.err[-200:]}")
    assert "detected memory leaks" in ours.err, ours
    assert ours.status == native.status != 0


@pytest.mark.parametrize("tool", ["gdb", "strace"])
def test_p79_debuggers_run_inside(runner: support.Runner, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing")
    words = {
        "gdb": ["gdb", "-nx", "-batch", "-ex", "run", "-ex", "info inferiors", "--args", "true"],
        "strace": ["strace", "-f", "-o", "trace", "sh", "-c", "cat /etc/passwd | wc -l; true"],
    }[tool]
    result = runner.supervise(words)
    assert result.status == 0, result
    if tool == "strace":
        assert "exited with 0" in (runner.work / "trace").read_text()
    else:
        assert "exited normally" in result.out, result


def test_p70_message_queues_of_the_tree(runner: support.Runner) -> None:
    """Made, used, and removed by the tree."""
    name = f"pincer-own-{os.getpid()}-{runner.identity.name}"
    found = same_as_native(
        runner,
        """
q = sys.argv[1]
attributes = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (0, 4, 64, 0)) + bytes(32), 64)
d = call("mq_open", q, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600, attributes)
note("open", word(d))
note("again", word(call("mq_open", q, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600, attributes)))
note("other", word(call("mq_open", q, os.O_WRONLY, 0, 0)))
note("send", word(call("mq_timedsend", d, ctypes.c_char_p(b"hello"), 5, 1, 0)))
text = ctypes.create_string_buffer(64)
note("receive", [call("mq_timedreceive", d, text, 64, 0, 0), text.value.decode()])
note("slash", word(call("mq_open", "a/b", os.O_CREAT | os.O_RDWR, 0o600, 0)))
note("empty", word(call("mq_open", "", os.O_CREAT | os.O_RDWR, 0o600, 0)))
note("missing", word(call("mq_open", q + "-no", os.O_RDWR, 0, 0)))
note("unlink missing", word(call("mq_unlink", q + "-no")))
note("cloexec", call("fcntl", d, 1))
note("unlink", word(call("mq_unlink", q)))
note("gone", word(call("mq_open", q, os.O_RDWR, 0, 0)))
report()
""",
        name,
    )
    assert found["receive"] == [5, "hello"]


def test_p70_message_queues_of_others(runner: support.Runner) -> None:
    name = f"pincer-other-{os.getpid()}-{runner.identity.name}"
    make = python(
        runner, "note('x', word(call('mq_open', sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600, 0)))\nreport()", name
    )
    assert notes(runner.native(make)) == {"x": "ok"}
    try:
        found, _ = attack(
            runner,
            """
note("write", word(call("mq_open", sys.argv[1], os.O_RDWR, 0, 0)))
note("create", word(call("mq_open", sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600, 0)))
note("unlink", word(call("mq_unlink", sys.argv[1])))
note("by path", word(call("unlinkat", AT_FDCWD, "/dev/mqueue/" + sys.argv[1], 0)))
report()
""",
            name,
        )
        left = notes(runner.native(make))
        assert set(found.values()) <= {"EACCES", "ENOENT"}, found
        assert found["unlink"] == found["write"] == "EACCES"
    finally:
        gone = runner.native(python(runner, "note('x', word(call('mq_unlink', sys.argv[1])))\nreport()", name))
    assert left == {"x": "ok"} and notes(gone) == {"x": "ok"}, "the queue was removed"


BINDS = """
import socket, threading
def bound(name, mask=0o022, where=None):
    os.umask(mask)
    s = socket.socket(socket.AF_UNIX)
    try: s.bind(name)
    except OSError as error: return [errno.errorcode.get(error.errno, "python")]
    s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(name)
    a, _ = s.accept()
    shown = lambda text: text if isinstance(text, str) else repr(text)
    return [shown(s.getsockname()), shown(c.getpeername()), oct(os.lstat(name).st_mode) if isinstance(name, str) and name[:1] != chr(0) else 0]
note("relative", bound("s1")); note("mask", bound("s2", 0o077)); note("open", bound("s3", 0))
note("absolute", bound(os.path.abspath("s4"))[2])
note("taken", bound("s1")); note("missing", bound("none/s")); note("file", (make("f"), bound("f"))[1])
note("under file", bound("f/s")); note("slash", bound("s5/")); note("dot", bound(".")); note("long", bound("x" * 107)[2:]); note("too long", bound("y" * 108)[2:])
import socket
os.mkdir("d"); d = os.open("d", os.O_PATH)
os.symlink("d", "dl"); note("by link", bound("dl/s2")); os.symlink("s9", "dangling"); note("dangling", bound("dangling"))
os.chdir("d"); note("after chdir", bound("s3")); os.chdir("..")
note("abstract", len(bound(chr(0) + f"pincer-bind-{os.getpid()}")))
s = socket.socket(socket.AF_UNIX); s.bind(b""); note("autobind", len(s.getsockname()))
t = socket.socket(); t.bind(("127.0.0.1", 0)); note("inet", t.getsockname()[0])
note("twice", word(-errno_of(s.bind, "s7")))
thread = threading.Thread(target=lambda: note("thread", bound("s10"))); thread.start(); thread.join()
a, b = socket.socketpair(); note("cred", [b.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:] == a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:]])
report()
"""


def test_p77_bind_answers_as_native(runner: support.Runner) -> None:
    """Names as written, modes under the umask, the errno of each refusal."""
    found = same_as_native(runner, BINDS)
    assert found["relative"] == ["s1", "s1", "0o140755"]
    assert found["mask"][2] == "0o140700" and found["taken"] == ["EADDRINUSE"]


def test_p77_bind_through_the_supervisors_descriptors(runner: support.Runner) -> None:
    """The verbatim bind must not read `/proc/self/fd/N` as the supervisor's N, which can be a protected folder."""
    give(runner, runner.home / ".ssh/known_hosts")
    with Unchanged(runner.home / ".ssh"):
        found, result = attack(
            runner,
            """
import socket
os.mkdir("d"); os.symlink("/proc/self/fd", "fds"); os.symlink("/proc/thread-self/fd", "tfds")
if os.fork() == 0:  # its working directory is kept open by the supervisor
    os.chdir(sys.argv[1])
    call("openat", AT_FDCWD, "known_hosts", os.O_RDONLY, 0)
    call("openat", AT_FDCWD, "none", os.O_RDONLY, 0)
    os.execlp("sleep", "sleep", "60")
    os._exit(0)
while not b"sleep" in open(f"/proc/self/task/{os.getpid()}/children", "rb").read() and b"sleep" not in open(
        "/proc/" + open(f"/proc/self/task/{os.getpid()}/children").read().split()[0] + "/cmdline", "rb").read():
    pass
d = os.open("d", os.O_PATH)
for n in range(10, 80):
    os.dup2(d, n)
    for label, name in (("fd", f"/proc/self/fd/{n}/evil"), ("link", f"fds/{n}/evil"), ("thread", f"tfds/{n}/evil")):
        s = socket.socket(socket.AF_UNIX)
        note(f"{label} {n}", errno_of(s.bind, name))
        if os.path.lexists("d/evil"): os.unlink("d/evil")
note("children", os.kill(int(open(f"/proc/self/task/{os.getpid()}/children").read().split()[0]), 9))
report()
""",
            str(runner.home / ".ssh"),
        )
    assert not list(result.session.rglob("evil")), "a socket in the session's own folder"
    assert len(found) == 211


def test_p77_bind_of_a_protected_name(runner: support.Runner) -> None:
    (runner.work / ".git/hooks").mkdir(parents=True)
    for path in (runner.work / ".git", runner.work / ".git/hooks"):
        os.chown(path, runner.identity.uid, runner.identity.gid)
    with Unchanged(runner.home, runner.work):
        found, result = attack(
            runner,
            """
import socket
for name in (sys.argv[1] + "/.bashrc", ".git/hooks/pre-commit", "/etc/pincer-x"):
    note(name, word(-errno_of(socket.socket(socket.AF_UNIX).bind, name)))
report()
""",
            str(runner.home),
        )
    assert len(found) == 3 and set(found.values()) == {"EACCES"}
    assert result.denied(runner.home / ".bashrc")[0]["effect"] == "bind"


def test_p77_multiprocessing_manager(runner: support.Runner) -> None:
    code = (
        "import multiprocessing as m\n"
        "if __name__ == '__main__':\n"
        "    with m.Manager() as manager:\n"
        "        d = manager.dict(); ps = [m.Process(target=d.__setitem__, args=(i, i * i)) for i in range(3)]\n"
        "        [p.start() for p in ps]; [p.join() for p in ps]; print(sorted(d.items()))\n"
    )
    give(runner, runner.work / "manage.py", code.encode())
    result = runner.supervise([runner.identity.python, "-I", "manage.py"], timeout=30)
    assert result.out == "[(0, 0), (1, 1), (2, 4)]\n", result


def test_p77_tmux_inside(runner: support.Runner) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing (Debian package tmux)")
    line = (
        "tmux -S $PWD/t -f /dev/null new-session -d -x 80 -y 24 'echo inside-$((6*7)); tmux -S $PWD/t wait-for -S up; cat';"
        "tmux -S $PWD/t wait-for up; tmux -S $PWD/t capture-pane -p | head -1; tmux -S $PWD/t kill-server"
    )
    result = runner.supervise(["sh", "-c", line], timeout=30, env={"TERM": "xterm", "SHELL": "/bin/sh"})
    assert result.out.strip() == "inside-42", result


def test_p91_the_peer_of_a_terminal(runner: support.Runner) -> None:
    """TIOCGPTPEER by itself, with garbage in the high half; the pair carries bytes and is this tree's own."""
    found = same_as_native(
        runner,
        """
import termios, tty
for label, command in (("plain", 0x5441), ("high", 0x5441 | 0x7EADBEEF << 32)):
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    note("lock", word(call("ioctl", master, 0x40045431, ctypes.byref(ctypes.c_int(0)))))
    peer = call("ioctl", master, command, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    note(label, word(peer))
    tty.setraw(peer)
    os.write(master, b"down"); note(label + " down", os.read(peer, 9).decode())
    os.write(peer, b"up"); note(label + " up", os.read(master, 9).decode())
    note(label + " tty", [os.isatty(peer), os.ttyname(peer).startswith("/dev/pts/"), call("fcntl", peer, 1)])
    named = os.open(os.ttyname(peer), os.O_RDWR | os.O_NOCTTY); note(label + " named", os.fstat(named).st_rdev == os.fstat(peer).st_rdev)
note("no tty", word(call("ioctl", os.open("/etc/passwd", os.O_RDONLY), 0x5441, os.O_RDWR)))
note("closed", word(call("ioctl", 77, 0x5441, os.O_RDWR)))
import pty
pid, fd = pty.fork()
if pid == 0:
    os.write(1, os.ttyname(0)[:9].encode()); open("/dev/tty", "w").write("+tty"); os._exit(5)
text = b""
while True:
    try: more = os.read(fd, 99)
    except OSError: break
    if not more: break
    text += more
note("forkpty", [text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])])
report()
""",
    )
    assert found["plain"] == found["high"] == "ok" and found["forkpty"] == ["/dev/pts/+tty", 5]


def test_p91_the_terminal_of_another_session(runner: support.Runner) -> None:
    """It can be neither typed on nor listened to."""
    import pty

    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave)
        os.fchown(slave, runner.identity.uid, runner.identity.gid)
        found, result = attack(
            runner,
            "for flags in (0, 1, 2): note(str(flags), word(call('openat', AT_FDCWD, sys.argv[1], flags | os.O_NOCTTY, 0)))\nreport()",
            name,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert set(found.values()) == {"EACCES"}
    assert result.denied(name)


@pytest.fixture
def package(runner: support.Runner) -> Path:
    """A copy of the program, with its dependencies, that belongs to the user: as after `pip install --user`."""
    where = runner.work / "site"
    source = Path(support.REPOSITORY)
    shutil.copytree(source / "pincer_trace", where / "pincer_trace", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(source / "profiles", where / "profiles")
    for top, folders, files in os.walk(where):
        for one in [top, *(os.path.join(top, name) for name in [*folders, *files])]:
            os.chown(one, runner.identity.uid, runner.identity.gid)
    return where


START = (
    "import sys, site; sys.path.insert(0, sys.argv[1]); sys.argv[1:2] = []; import pincer_trace;"
    "assert pincer_trace.__file__.startswith(sys.path[0]); from pincer_trace.__main__ main; sys.exit(main())"
).replace("__main__ main", "__main__ import main")


def test_p81_the_program_cannot_be_rewritten_for_the_next_run(runner: support.Runner, package: Path) -> None:
    """It lies inside the work tree and belongs to the user: refused to start, or closed to the worker."""
    sessions = runner.base / "s"
    sessions.mkdir()
    os.chown(sessions, runner.identity.uid, runner.identity.gid)
    line = (
        "echo evil >> site/pincer_trace/engine.py; echo evil > site/pincer_trace/new.py; mv site/pincer_trace site/gone;"
        "rm site/pincer_trace/front.py; echo evil >> site/profiles/default.toml; echo evil > site/sitecustomize.py;"
        "mv site moved; ln -s /tmp site/json; echo evil > site/json.py; mkdir site/select; chmod 777 site/pincer_trace; true"
    )
    command = [
        runner.identity.python,
        "-I",
        "-B",
        "-c",
        START,
        str(package),
        "--session-dir",
        str(sessions),
        "--",
        "sh",
        "-c",
        line,
    ]
    with Unchanged(package):
        result = runner.native(command)
    assert result.status in (0, 125), result
    if result.status == 125:
        assert result.err.count("\n") == 1 and str(package) in result.err, result


def test_p81_interpreter_and_libraries_are_closed(runner: support.Runner) -> None:
    """Even where the profile is told to allow their folder: the interpreter's own folders run in the next session."""
    probe = "import sys, pincer_trace; print('\\n'.join([sys.prefix, *[p for p in sys.path if p], pincer_trace.__path__[0]]))"
    places = runner.native([runner.identity.python, "-I", "-c", probe]).out.split("\n")[:-1]
    assert len(places) > 3
    found, _ = (
        attack(
            runner,
            """
import tempfile
for place in sys.argv[1:]:
    if os.path.isdir(place):
        note(place, word(call("openat", AT_FDCWD, place + "/pincer-test-evil.pth", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)))
        note(place + " mkdir", word(call("mkdirat", AT_FDCWD, place + "/pincer-test-evil", 0o700)))
report()
""",
            *places,
            options=(
                "--quiet",
                *[word for place in places for word in ("--allow-write", place) if os.path.isdir(place)],
            ),
        )
        if runner.identity.uid
        else attack(runner, "note('user only', 'EACCES')\nreport()")
    )
    assert set(found.values()) <= {"EACCES", "EROFS"}, found
    for place in places:
        assert not os.path.exists(place + "/pincer-test-evil.pth")


@pytest.mark.parametrize(
    "name", ["json", "select", "signal", "msgspec", "tomllib", "click", "socket", "sitecustomize", "usercustomize"]
)
def test_p81_modules_in_the_work_tree_are_not_imported(runner: support.Runner, name: str) -> None:
    """The working directory and PYTHONPATH belong to the worker of the last run."""
    body = f"open({str(runner.base / 'mark')!r} + str(__import__('os').getpid()), 'w')\n"
    give(runner, runner.work / f"{name}.py", body.encode())
    runner.base.chmod(0o777)
    command = [runner.identity.python, "-m", "pincer_trace", "--session-dir", str(runner.base / "s"), "--", "true"]
    (runner.base / "s").mkdir()
    os.chown(runner.base / "s", runner.identity.uid, runner.identity.gid)
    start = runner.native([runner.identity.python, "-I", *command[1:]], env={"PYTHONPATH": str(runner.work)})
    assert start.status == 0, start
    assert not [path.name for path in runner.base.iterdir() if path.name.startswith("mark")]


@pytest.mark.parametrize("place", [".cache/python", "", "not-there"])
def test_p81_compiled_modules_of_the_next_start_are_not_the_worker_s(runner: support.Runner, place: str) -> None:
    """PYTHONPYCACHEPREFIX says where Python takes compiled modules from, ours too: often a place in ~/.cache."""
    (runner.base / "s").mkdir()
    os.chown(runner.base / "s", runner.identity.uid, runner.identity.gid)
    prefix = runner.home / place if place != "not-there" else runner.work / place
    command = [runner.identity.python, "-P", "-m", "pincer_trace", "--session-dir", str(runner.base / "s"), "--"]
    script = f"mkdir -p {prefix}/x && echo evil > {prefix}/x/errors.pyc"
    result = runner.native([*command, "sh", "-c", script], env={"PYTHONPYCACHEPREFIX": str(prefix)})
    assert result.status != 0, result
    assert not (prefix / "x").exists()
    assert ("nothing was started" in result.err) == (place == ""), result  # what holds a home cannot be closed


def test_p77_bind_by_way_of_proc_is_refused(runner: support.Runner) -> None:
    """A known difference (docs/differences.md): the supervisor's own walk of those bytes would mean *its* descriptor of that number."""
    found, result = attack(
        runner,
        """
import socket
os.mkdir("d"); d = os.open("d", os.O_PATH)
s = socket.socket(socket.AF_UNIX)
note("bind", word(-errno_of(s.bind, f"/proc/self/fd/{d}/s")))
note("made", os.listdir("d"))
report()
""",
    )
    assert found == {"bind": "EACCES", "made": []}
    assert any("by way of /proc" in d["reason"] for d in result.denied())
