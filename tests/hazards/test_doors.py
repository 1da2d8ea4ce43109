"""The calls that no worker has, each attempted: io_uring, mounts, namespaces, bpf, keys, handles, modules, clocks, names,
other processes, in its own user namespace too. What a program may do for itself works beside them.

P5, P25, P32, P34, P39, P41, P44, P45, P47, P50, P58, P65, P69, P73, P79, P82, P92.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import json
import shlex
import socket
import time
from typing import Any

import pytest
import support
from hazards.path_programs.tools import attack, folder, python

from pincer_trace.kernel import table

pytestmark = pytest.mark.both_identities

NEWNS, NEWUSER, NEWNET, NEWUTS, NEWPID, NEWIPC, NEWCGROUP = (
    0x20000, 0x10000000, 0x40000000, 0x4000000, 0x20000000, 0x8000000, 0x2000000,
)  # fmt: skip
NOISE = 1 << 40  # in the half of a register that the kernel does not look at

# what is tried: the call, its arguments ("$": 256 bytes of zeros; other texts are paths), and the answer
SHUT: dict[str, tuple[list[Any], str]] = {
    "ring": (["io_uring_setup", 8, "$"], "ENOSYS"),
    "ring enter": (["io_uring_enter", 0, 1, 1, 0, 0, 0], "ENOSYS"),
    "ring register": (["io_uring_register", 0, 0, "$", 0], "ENOSYS"),
    "clone3": (["clone3", "$", 88], "ENOSYS"),
    "uffd": (["userfaultfd", 1], "EPERM"),
    "mount": (["mount", "none", "/mnt", "tmpfs", 0, 0], "EPERM"),
    "bind mount": (["mount", "/", "/mnt", 0, 0x1000, 0], "EPERM"),
    "remount": (["mount", "none", "/", 0, 0x20 | 0x40000, 0], "EPERM"),
    "umount": (["umount2", "/proc", 2], "EPERM"),
    "pivot": (["pivot_root", ".", "."], "EPERM"),
    "chroot": (["chroot", "/"], "EPERM"),
    "move_mount": (["move_mount", -100, "/", -100, "/mnt", 0], "EPERM"),
    "open_tree": (["open_tree", -100, "/", 1], "EPERM"),
    "open_tree_attr": (["open_tree_attr", -100, "/", 1, "$", 32], "EPERM"),
    "fsopen": (["fsopen", "tmpfs", 0], "EPERM"),
    "fsconfig": (["fsconfig", 0, 0, 0, 0, 0], "EPERM"),
    "fsmount": (["fsmount", 0, 0, 0], "EPERM"),
    "fspick": (["fspick", -100, "/", 0], "EPERM"),
    "mount_setattr": (["mount_setattr", -100, "/", 0, "$", 32], "EPERM"),
    "setns": (["setns", 0, 0], "EPERM"),
    "unshare mounts": (["unshare", NEWNS], "EPERM"),
    "unshare user and mounts": (["unshare", NEWUSER | NEWNS], "EPERM"),
    "unshare mounts, noise": (["unshare", NEWNS | NOISE], "EPERM"),
    "clone mounts": (["clone", NEWNS | 17, 0, 0, 0, 0], "EPERM"),
    "clone user and mounts": (["clone", NEWUSER | NEWNS | 17, 0, 0, 0, 0], "EPERM"),
    "bpf": (["bpf", 0, "$", 72], "EPERM"),
    "perf": (["perf_event_open", "$", 0, -1, -1, 0], "EPERM"),
    "add_key": (["add_key", "user", "pincer", "$", 8, -3], "EPERM"),
    "request_key": (["request_key", "user", "pincer", 0, -3], "EPERM"),
    "keyctl": (["keyctl", 0, -3, 1, 0, 0], "EPERM"),
    "handle": (["open_by_handle_at", -100, "$", 0], "EPERM"),
    "fanotify": (["fanotify_init", 0x200, 0], "EPERM"),
    "init_module": (["init_module", "$", 16, ""], "EPERM"),
    "finit_module": (["finit_module", 0, "", 0], "EPERM"),
    "delete_module": (["delete_module", "pincer_none", 0], "EPERM"),
    "kexec": (["kexec_load", 0, 0, 0, 0], "EPERM"),
    "kexec file": (["kexec_file_load", 0, 0, 0, 0, 0], "EPERM"),
    "reboot": (["reboot", 0xFEE1DEAD, 672274793, 0, 0], "EPERM"),  # the command that only switches Ctrl-Alt-Del off
    "swapon": (["swapon", "/nowhere", 0], "EPERM"),
    "swapoff": (["swapoff", "/nowhere"], "EPERM"),
    "acct": (["acct", 0], "EPERM"),
    "quota": (["quotactl", 0x80000600, "/", 0, "$"], "EPERM"),
    "quota by descriptor": (["quotactl_fd", 0, 0x80000600, 0, "$"], "EPERM"),
    "syslog": (["syslog", 5, 0, 0], "EPERM"),
    "vhangup": (["vhangup"], "EPERM"),
    "settimeofday": (["settimeofday", "$", 0], "EPERM"),
    "clock_settime": (["clock_settime", 0, "$"], "EPERM"),
    "adjtimex": (["adjtimex", "$"], "EPERM"),
    "clock_adjtime": (["clock_adjtime", 0, "$"], "EPERM"),
    "sethostname": (["sethostname", "pincer", 6], "EPERM"),
    "setdomainname": (["setdomainname", "pincer", 6], "EPERM"),
    "vm read": (["process_vm_readv", 1, "$", 1, "$", 1, 0], "EPERM"),
    "vm write": (["process_vm_writev", 1, "$", 1, "$", 1, 0], "EPERM"),
    "madvise others": (["process_madvise", 0, "$", 1, 20, 0], "EPERM"),
    "mrelease": (["process_mrelease", 0, 0], "EPERM"),
    "getfd": (["pidfd_getfd", 0, 0, 0], "EPERM"),
    "kcmp": (["kcmp", 1, 1, 0, 0, 0], "EPERM"),
    "label": (["lsm_set_self_attr", 100, "$", 32, 0], "EPERM"),
    "own memory map": (["prctl", 35, 1, 0, 0, 0], "EPERM"),
    "own memory map, noise": (["prctl", 35 | NOISE, 1, 0, 0, 0], "EPERM"),
    "listener": (["seccomp", 1, 8, "$"], "EBUSY"),
    "listener, noise": (["seccomp", 1 | NOISE, 8 | NOISE, "$"], "EBUSY"),
    "lease": (["fcntl", 0, 1024, 0], "EINVAL"),
    "lease, noise": (["fcntl", 0, 1024 | NOISE, 0], "EINVAL"),
    "fast open": (["sendto", 1000, "$", 1, 0x20000000, "$", 16], "ENOTSUP"),
    "fast open, message": (["sendmsg", 1000, "$", 0x20000000 | NOISE], "ENOTSUP"),
    "source route": (["setsockopt", 1000, 0, 4, "$", 8], "EPERM"),
    "routing header": (["setsockopt", 1000, 41, 57, "$", 40], "EPERM"),
    "routing header, noise": (["setsockopt", 1000, 41 | NOISE, 57 | NOISE, "$", 40], "EPERM"),
    "routing header, older": (["setsockopt", 1000, 41, 6, "$", 64], "EPERM"),
    "vsock": (["socket", 40, 1, 0], "EAFNOSUPPORT"),
    "packets": (["socket", 17, 3, 0], "EAFNOSUPPORT"),
    "crypto": (["socket", 38, 5, 0], "EAFNOSUPPORT"),
    "multipath": (["socket", 2, 1, 262], "EPROTONOSUPPORT"),
    "audit": (["socket", 16, 3, 9], "EPROTONOSUPPORT"),
    "type into the terminal": (["ioctl", 0, 0x5412, "$"], "EPERM"),
    "type into the terminal, noise": (["ioctl", 0, 0x5412 | 1 << 32, "$"], "EPERM"),
    "console": (["ioctl", 0, 0x541C, "$"], "EPERM"),
    "console, noise": (["ioctl", 0, 0x541C | 0xFFFFFFFF << 32, "$"], "EPERM"),
}
X86 = {"iopl": (["iopl", 3], "EPERM"), "ioperm": (["ioperm", 0x80, 1, 1], "EPERM")}
PROBES = (
    335,
    336,
)  # uretprobe and uprobe: the kernel lets them pass every filter; they mean something in a probe alone
# The same as what looks like root, in a user namespace of the caller's own: flags that may be had
INSIDE = (
    "mount",
    "bind mount",
    "chroot",
    "setns",
    "unshare mounts",
    "bpf",
    "sethostname",
    "fsopen",
    "keyctl",
    "handle",
    "pivot",
    "perf",
    "uffd",
    "open_tree",
)

CODE = r"""
tries, numbers, unknown, inside = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(256)
def do(name, *words):
    number = numbers[name] if isinstance(name, str) else name
    result = libc.syscall(ctypes.c_long(number), *[buffer if w == "$" else os.fsencode(w) if isinstance(w, str) else ctypes.c_long(w) for w in words])
    if result == 0 and name == "clone": os._exit(0)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "ok"
import pty, fcntl, subprocess
master, slave = pty.openpty(); os.dup2(slave, 0)
def all_of(where, labels):
    for label in labels: note(where + label, do(*tries[label]))
all_of("", tries)
for number in unknown: note(f"number {number}", do(number, 0, 0, 0, 0, 0, 0))
# what works
note("dumpable", [libc.prctl(4, 0, 0, 0, 0), libc.prctl(3, 0, 0, 0, 0)])
note("queue of the terminal", os.get_blocking(master) and fcntl.ioctl(slave, 0x541B, b"\0" * 4) == b"\0" * 4)
note("secret memory", do("memfd_secret", 0) in ("ok", "ENOSYS"))
note("own limits", [do("prlimit64", 0, 4, 0, "$"), do("prlimit64", os.getpid(), 4, 0, "$"), do("sched_setaffinity", 0, 0, "$"), do("ioprio_set", 1, 0, 0)])
note("filter of its own", do("seccomp", 2, 0, "$"))
for label, flags in (("user", 0x10000000), ("net", 0x50000000), ("uts", 0x14000000), ("ipc", 0x18000000), ("pid", 0x30000000), ("cgroup", 0x12000000)):
    pid = os.fork()
    if not pid:
        got = do("unshare", flags)
        if got == "ok" and label == "uts": os._exit(0 if all(do(*tries[one]) == tries_answer[one] for one in inside) else 9)
        os._exit(0 if got == "ok" else 1)
    note("namespace " + label, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
note("capabilities", [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")]); note("no new privileges", status["NoNewPrivs"].strip())
note("device", do("mknodat", -100, "device", 0o020600, os.makedev(1, 3))); note("raw", do("socket", 2, 3, 1)); note("low port", None)
import socket
try: socket.socket().bind(("127.0.0.1", 7)); note("low port", "ok")
except OSError as error: note("low port", errno.errorcode[error.errno])
report()
"""


def test_what_no_worker_has(runner: support.Runner) -> None:
    """Each call is refused by its registers, as root too, and in a user namespace; nothing of the machine changes."""
    rows = table.load()
    known = {row.name: row.number for row in rows.values()}
    tries = {label: words for label, (words, _) in SHUT.items() if words[0] in known}
    answers = {label: answer for label, (_, answer) in SHUT.items()}
    if table.machine() == "x86_64":
        tries |= {label: words for label, (words, _) in X86.items()}
        answers |= {label: answer for label, (_, answer) in X86.items()}
    unknown = [
        number for number in range(520) if number not in rows and not 387 <= number < 424 and number not in PROBES
    ]
    unknown += [1 << 30, (1 << 30) + 2, -1, 1 << 31]
    before = socket.gethostname(), time.get_clock_info("monotonic").adjustable
    code = CODE.replace("tries_answer[one]", f"{answers!r}[one]")
    found, result = attack(runner, code, json.dumps([tries, known, unknown, list(INSIDE)]))
    assert (socket.gethostname(), time.get_clock_info("monotonic").adjustable) == before
    wrong = {label: found[label] for label in tries if found[label] != answers[label]}
    assert not wrong and len(tries) > 70, wrong
    open_doors = {label: answer for label, answer in found.items() if label.startswith("number") and answer != "ENOSYS"}
    assert not open_doors
    assert found["dumpable"] == [0, 1] and found["queue of the terminal"] and found["secret memory"]
    assert found["own limits"] == ["ok", "ok", "EINVAL", "ok"] and found["filter of its own"] == "ok"
    spaces = {label: code for label, code in found.items() if label.startswith("namespace ")}
    assert len(spaces) == 6 and (set(spaces.values()) == {0} or set(spaces.values()) == {1}), spaces
    root = runner.identity.uid == 0
    effective, permitted, bounding, inheritable, ambient = found["capabilities"]
    assert effective == permitted == (0x1DF if root else 0) and inheritable == ambient == 0
    assert bounding == 0x1DF if root else not bounding & ~0x1FFFFFFFFFF
    assert found["no new privileges"] == "1"
    assert (found["device"], found["raw"], found["low port"]) == ("EPERM", "EPERM", "EACCES")
    assert not [d for d in result.decisions if d["kind"] == "failure"]


ATTACKS = r"""
def stat_of(pid): return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
def parent(pid): return int(stat_of(pid)[1])
engine = parent(os.getpid()); front = parent(engine)
victims = {"engine": engine, "front": front}
above = [front]
while b"pincer_trace" in open(f"/proc/{parent(above[-1])}/cmdline", "rb").read(): above.append(parent(above[-1]))
for name in map(int, filter(str.isdigit, os.listdir("/proc"))):
    try:
        if name not in (engine, front, os.getpid()) and (name in above or parent(name) in above): victims[open(f"/proc/{name}/comm").read().strip() + " %d" % len(victims)] = name
    except OSError: pass  # it has ended
numbers = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(b"\1" + bytes(255), 256)
def do(name, *words):
    result = libc.syscall(ctypes.c_long(numbers[name]), *[buffer if w == "$" else os.fsencode(w) if isinstance(w, str) else ctypes.c_long(w) for w in words])
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "ok"
for who, pid in victims.items():
    group, session = int(stat_of(pid)[2]), int(stat_of(pid)[3])
    pidfd = os.pidfd_open(pid)
    tries = [["kill", pid, 0], ["kill", pid, 9], ["kill", pid | 1 << 40, 19], ["tkill", pid, 9], ["tgkill", pid, pid, 9], ["rt_sigqueueinfo", pid, 9, "$"], ["rt_tgsigqueueinfo", pid, pid, 9, "$"],
        ["pidfd_send_signal", pidfd, 9, 0, 0], ["pidfd_send_signal", pidfd, 9, 0, 1], ["pidfd_send_signal", pidfd, 9, 0, 2], ["ptrace", 16, pid, 0, 0], ["ptrace", 0x4206, pid, 0, 0], ["process_vm_readv", pid, "$", 1, "$", 1, 0],
        ["process_vm_writev", pid, "$", 1, "$", 1, 0], ["pidfd_getfd", pidfd, 3, 0], ["kcmp", pid, pid, 0, 3, 3], ["process_madvise", pidfd, "$", 1, 20, 0], ["process_mrelease", pidfd, 0],
        ["prlimit64", pid, 0, "$", 0], ["prlimit64", pid | 1 << 40, 0, "$", 0], ["setpriority", 0, pid, 19], ["setpriority", 1, group, 19], ["setpriority", 2, os.getuid(), 19], ["sched_setaffinity", pid, 8, "$"],
        ["sched_setscheduler", pid, 5, "$"], ["sched_setparam", pid, "$"], ["sched_setattr", pid, "$", 0], ["ioprio_set", 1, pid, 0x6000], ["ioprio_set", 2, group, 0x6000], ["ioprio_set", 3, os.getuid(), 0x6000],
        ["migrate_pages", pid, 8, "$", "$"], ["move_pages", pid, 1, "$", "$", "$", 0], ["setpgid", pid, pid], ["get_robust_list", pid, "$", "$"], ["setns", pidfd, 0x2000000]]
    for number, words in enumerate(tries): note(f"{who} {words[0]} {number}", do(*words))
    for name in ("mem", "environ", "maps", "auxv", "fd/0", "fd/5", "root/etc/hostname", "cwd/x", "exe", "task/%d/mem" % pid, "stack", "syscall", "io", "pagemap", "map_files", "fdinfo/0", "timers"):
        for flags in (os.O_RDONLY, os.O_RDWR): note(f"{who} open {name} {flags}", do("openat", -100, f"/proc/{pid}/{name}", flags, 0))
    for name in ("comm", "oom_score_adj", "oom_adj", "timerslack_ns", "coredump_filter", "clear_refs", "autogroup", "sched", "loginuid", "attr/current", "setgroups", "uid_map", "gid_map", "projid_map", "make-it-fail"):
        note(f"{who} write {name}", do("openat", -100, f"/proc/{pid}/{name}", os.O_WRONLY, 0))
note("who", sorted(victims)); note("alive", [os.path.exists(f"/proc/{pid}") for pid in victims.values()]); note("works", do("openat", -100, "after", os.O_CREAT | os.O_WRONLY, 0o600)); open("report", "w").write(json.dumps(_notes))
"""


@pytest.mark.parametrize("ui", ["none", "inline"])
def test_p45_every_process_of_the_supervisor(runner: support.Runner, ui: str) -> None:
    """Front, engine, right evaluator and the two of `--ui inline`: no signal, trace, descriptor, limit, priority or file
    of theirs is had.
    """
    known = json.dumps({row.name: row.number for row in table.load().values()})
    if ui == "none":
        result = runner.supervise(python(runner, ATTACKS, known), options=("--quiet", "--twin", "process"))
    else:
        sessions = folder(runner, runner.base / "inline", 0o700)
        ours = [
            runner.identity.python,
            "-I",
            "-m",
            "pincer_trace",
            "--session-dir",
            str(sessions),
            "--ui",
            "inline",
            "--",
        ]
        line = shlex.join([*ours, *python(runner, ATTACKS, known)])
        result = runner.native(["script", "-qec", line, "/dev/null"])
    assert result.status == 0, result
    found = dict(json.loads((runner.work / "report").read_text()))
    who, alive = found.pop("who"), found.pop("alive")
    ours = [name for name in who if not name.startswith(("script", "sh "))]  # these two are the test's own
    assert len(ours) == (3 if ui == "none" else 4) and all(alive), who
    assert found.pop("works") == "ok"
    got = {label for label, answer in found.items() if answer == "ok" and " open fdinfo/0 0" not in label}
    assert not got and len(found) > 200, got
