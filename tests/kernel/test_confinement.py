"""A confined process: what is left to it, call by call; and that each of the two layers holds by itself."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import threading
from pathlib import Path

import pytest
import support
from kernel import bpf

from pincer_trace.kernel import table
from pincer_trace.kernel.confinement import RELAYS, onlooker
from pincer_trace.kernel.landlock import Floor

# Confines itself as it is told, and then tries everything; its last line tells with which errno. argv: layer, folder,
# and where somebody listens.
PROBE = """
import ctypes, fcntl, json, os, socket, sys
from pincer_trace.kernel import confinement, libc, table
from pincer_trace.kernel.landlock import Floor
layer, folder, port, path, name = sys.argv[1:]
os.chdir(folder)
held = os.open("file", os.O_RDONLY)
raw = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if raw.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def connect(family, address):
    with socket.socket(family) as one:
        one.settimeout(2)
        one.connect(address)
def run(act, *arguments):
    try:
        act(*arguments)
        return 0
    except OSError as error:
        return error.errno
N = libc.NUMBER
TRIES = {
    "open to write": lambda: os.open("file", os.O_WRONLY),
    "open for both": lambda: os.open("file", os.O_RDWR),
    "cut": lambda: os.open("file", os.O_RDONLY | os.O_TRUNC),
    "create": lambda: os.open("new", os.O_RDONLY | os.O_CREAT),
    "nameless": lambda: os.open(".", os.O_RDWR | os.O_TMPFILE),
    "by another door": lambda: call(N["openat2"], -100, b"file", ctypes.byref(libc.OpenHow(1, 0, 0)), 24),
    "again": lambda: os.open(f"/proc/self/fd/{held}", os.O_WRONLY),
    "own memory": lambda: os.open("/proc/self/mem", os.O_RDWR),
    "mkdir": lambda: os.mkdir("d"),
    "mknod": lambda: os.mknod("n"),
    "fifo": lambda: os.mkfifo("p"),
    "symlink": lambda: os.symlink("x", "s"),
    "link": lambda: os.link("file", "l"),
    "rename": lambda: os.rename("file", "moved"),
    "unlink": lambda: os.unlink("file"),
    "rmdir": lambda: os.rmdir("empty"),
    "truncate": lambda: os.truncate("file", 0),
    "chmod": lambda: os.chmod("file", 0o600),
    "fchmod": lambda: os.fchmod(held, 0o600),
    "chown": lambda: os.chown("file", os.getuid(), -1),
    "utime": lambda: os.utime("file"),
    "utime held": lambda: os.utime(held),
    "xattr": lambda: os.setxattr("file", "user.x", b"v"),
    "xattr held": lambda: os.setxattr(held, "user.x", b"v"),
    "inode flags": lambda: fcntl.ioctl(held, table.FS_IOC_SETFLAGS, bytes(4)),
    "tcp": lambda: connect(socket.AF_INET, ("127.0.0.1", int(port))),
    "path": lambda: connect(socket.AF_UNIX, path),
    "abstract": lambda: connect(socket.AF_UNIX, "\\0" + name),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    "signal": lambda: os.kill(os.getppid(), 0),
    "signal oneself": lambda: os.kill(os.getpid(), 0),
    "trace": lambda: call(N["ptrace"], 16, os.getppid(), 0, 0),
    "take": lambda: call(N["pidfd_getfd"], 3, 0, 0),
    "fork": os.fork,
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "mount": lambda: call(N["mount"], b"x", os.fsencode(os.path.abspath("empty")), b"tmpfs", 0, 0),
    "another identity": lambda: os.setuid(os.getuid()),
    "visible again": lambda: libc.prctl(4, 1),
    "memory of others": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
}
READS = {
    "read": lambda: os.read(os.open("file", os.O_RDONLY), 9),
    "list": lambda: os.listdir("."),
    "stat": lambda: os.stat("file"),
    "pin": lambda: os.open("file", os.O_PATH),
    "name": lambda: os.readlink(f"/proc/self/fd/{held}"),
    "identity": lambda: libc.object_identity(held),
    "born": lambda: libc.birth_time(held),
    "lease": lambda: [fcntl.fcntl(held, fcntl.F_SETLEASE, kind) for kind in (fcntl.F_RDLCK, fcntl.F_UNLCK)],
}
if layer == "both":
    confinement.confine()
elif layer == "filter":
    libc.set_no_new_privileges()
    libc.install_filter(confinement.onlooker(table.machine()), 0)
elif layer == "landlock":
    libc.set_no_new_privileges()
    Floor.probe().restrict_to_reading()
LEFT_OUT = {
    "both": (), "filter": ("memory of others",), "landlock": ("fork",),
    "neither": ("fork", "execute", "trace", "mount"),  # as root that would be done, on whoever runs the tests
}
found = {name: run(act) for name, act in (*READS.items(), *TRIES.items()) if name not in LEFT_OUT[layer]}
print(json.dumps([list(READS), found]))
"""
BY_LANDLOCK = {
    "open to write", "open for both", "cut", "create", "nameless", "by another door", "again", "own memory", "mkdir",
    "mknod", "fifo", "symlink", "link", "rename", "unlink", "rmdir", "truncate", "tcp", "abstract", "signal", "execute",
}  # fmt: skip


class Listeners:
    """Somebody who would answer: over TCP, at a path, at an abstract name."""

    def __init__(self, folder: Path) -> None:
        self.sockets = [
            socket.create_server(("127.0.0.1", 0)),
            socket.socket(socket.AF_UNIX),
            socket.socket(socket.AF_UNIX),
        ]
        self.port = str(self.sockets[0].getsockname()[1])
        self.path, self.name = str(folder / "socket"), f"pincer-{os.getpid()}-{threading.get_native_id()}"
        for one, address in zip(self.sockets[1:], (self.path, "\0" + self.name), strict=True):
            one.bind(address)
            one.listen()
        os.chmod(self.path, 0o777)

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sockets:
            one.close()


def probe(runner: support.Runner, layer: str) -> tuple[dict[str, int], dict[str, int]]:
    """The errno of each try, and of each look."""
    folder = runner.work
    for name in ("file", "empty"):
        (folder / name).write_text("content\n") if name == "file" else (folder / name).mkdir()
        os.chown(folder / name, runner.identity.uid, runner.identity.gid)
    with Listeners(runner.base) as there:
        words = [runner.identity.python, "-I", "-c", PROBE, layer, str(folder), there.port, there.path, there.name]
        result = runner.native(words)
    assert result.status == 0, result
    reads, found = json.loads(result.stdout.splitlines()[-1])
    return {name: number for name, number in found.items() if name not in reads}, {name: found[name] for name in reads}


def unchanged(folder: Path) -> bool:
    return sorted(os.listdir(folder)) == ["empty", "file"] and (folder / "file").read_text() == "content\n"


@pytest.mark.both_identities
@pytest.mark.parametrize("layer", ["both", "filter"])
def test_it_looks_and_does_nothing_else(runner: support.Runner, layer: str) -> None:
    tries, reads = probe(runner, layer)
    file = (runner.work / "file").stat()
    assert set(reads.values()) == {0}, reads
    done = {name for name, number in tries.items() if number == 0}
    assert not done
    assert unchanged(runner.work)
    assert file.st_mode & 0o777 == 0o644
    assert file.st_nlink == 1


@pytest.mark.both_identities
def test_the_domain_alone(runner: support.Runner) -> None:
    """It does not know modes, times and attributes, or sockets by path: for these there is the filter."""
    tries, reads = probe(runner, "landlock")
    assert set(reads.values()) == {0}, reads
    floor = Floor.probe()
    assert floor.abi >= 6, "this kernel's Landlock is too old for the test"
    assert {name for name in BY_LANDLOCK if tries[name] == 0} == set()
    assert tries["path"] == tries["chmod"] == tries["utime"] == 0


@pytest.mark.both_identities
def test_without_either_it_could(runner: support.Runner) -> None:
    """The tries are real: nothing of it is refused to a process of this user otherwise."""
    tries, _ = probe(runner, "neither")
    expected = {
        "tcp", "path", "abstract", "udp", "fchmod", "utime held", "mkdir", "rename", "open to write", "signal oneself",
    }  # fmt: skip
    assert {name for name in expected if tries.get(name)} == set()


@pytest.mark.parametrize("architecture", sorted(table.AUDIT_ARCH))
def test_every_number(architecture: str) -> None:
    """What the table has refused or judged is refused here, whatever the registers; what is not in it is ENOSYS."""
    program = bpf.decode(onlooker(architecture))
    arch = table.AUDIT_ARCH[architecture]
    rows = table.load(architecture)
    allowed = set()
    for number in (*range(600), 0x40000000, 0x40000001, 0xFFFFFFFF):
        answers = {
            bpf.run(program, bpf.data(number, arch, [word] * 6)) for word in (0, 1, 2, 0x40, 0x200, 2**64 - 1, 2**32)
        }
        if number not in rows:
            assert answers == {bpf.ERRNO | errno.ENOSYS}
        elif bpf.ALLOW in answers:
            allowed.add(rows[number].name)
            assert answers == {bpf.ALLOW} or rows[number].name in ("open", "openat")
    assert not {row.name for row in rows.values() if row.disposition in ("notify", "refuse")} & allowed - {
        "open",
        "openat",
    }
    assert not allowed & {"socket", "connect", "kill", "ptrace", "clone", "fork", "prctl", "ioctl", "shmat", "msgsnd"}
    assert {"read", "close", "openat", "recvmsg", "sendto", "fcntl", "readlinkat", "statx"} <= allowed
    assert bpf.run(program, bpf.data(0, arch ^ 1)) == bpf.ERRNO | errno.ENOSYS


@pytest.mark.parametrize("architecture", sorted(table.AUDIT_ARCH))
def test_a_relay_has_what_its_connections_take(architecture: str) -> None:
    """A row of the table that is judged from now on must not take away from the broker what it lives by."""
    program = bpf.decode(onlooker(architecture, RELAYS))
    arch = table.AUDIT_ARCH[architecture]
    numbers = {row.name: row.number for row in table.load(architecture).values()}
    needed = {
        "socket", "connect", "accept4", "setsockopt", "getsockopt", "getsockname", "getpeername", "sendto", "recvfrom",
        "sendmsg", "recvmsg", "sendmmsg", "shutdown", "close", "read", "write", "epoll_ctl", "epoll_pwait", "futex",
        "clone", "mmap", "mprotect", "munmap", "openat", "fcntl", "exit_group",
    }  # fmt: skip
    stream = [table.AF_INET, 1, 0, 0, 0, 0]  # what `socket` is asked for
    answers = {name: bpf.run(program, bpf.data(numbers[name], arch, stream)) for name in needed}
    assert {name for name, answer in answers.items() if answer != bpf.ALLOW} == set()
    for command, answer in ((0x5421, bpf.ALLOW), (0x5401, bpf.ERRNO | errno.ENOTTY)):  # FIONBIO, TCGETS
        assert bpf.run(program, bpf.data(numbers["ioctl"], arch, [0, command, 0, 0, 0, 0])) == answer
    refused = {"execve", "execveat", "ptrace", "kill", "bind", "unlinkat", "mkdirat", "renameat2", "prctl", "setns"}
    assert not {name for name in refused if bpf.run(program, bpf.data(numbers[name], arch, [0] * 6)) == bpf.ALLOW}


@pytest.mark.parametrize("flag", ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"])
def test_opening_only_to_read(flag: str) -> None:
    program = bpf.decode(onlooker("x86_64"))
    arch = table.AUDIT_ARCH["x86_64"]
    numbers = {row.name: row.number for row in table.load("x86_64").values()}
    flags = getattr(os, flag) | (os.O_RDWR if flag == "O_TMPFILE" else 0)
    for name, place in (("open", 1), ("openat", 2)):
        for given in (flags, flags | os.O_CLOEXEC, flags | 1 << 40):
            registers = [0] * 6
            registers[place] = given
            assert bpf.run(program, bpf.data(numbers[name], arch, registers)) == bpf.ERRNO | errno.EACCES
        registers[place] = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_PATH
        assert bpf.run(program, bpf.data(numbers[name], arch, registers)) == bpf.ALLOW


def test_it_fits() -> None:
    """A program has at most 4096 instructions."""
    for architecture in table.AUDIT_ARCH:
        assert len(onlooker(architecture)) // struct.calcsize("=HBBI") < 1024
