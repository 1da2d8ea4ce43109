"""Facts about tasks, read from /proc. The numbers must be checked by ID_VALID afterwards (P2)."""

from __future__ import annotations

import errno
import os

_ADDR_NO_RANDOMIZE = 0x0040000  # personality(2)
_RANDOMIZE = "/proc/sys/kernel/randomize_va_space"


class Status:
    """What the gateway needs of /proc/TID/status. Signal sets are masks: signal n is bit n-1."""

    __slots__ = (
        "blocked", "capabilities", "egid", "euid", "fsgid", "fsuid", "groups", "ignored", "parent", "pending_process",
        "pending_thread", "tgid", "threads", "umask",
    )  # fmt: skip

    def __init__(self, text: bytes) -> None:
        fields = {}
        for line in text.split(b"\n"):
            key, _, value = line.partition(b":")
            fields[key] = value
        if b"Umask" not in fields:  # it has given up its directories: it is dying
            raise ProcessLookupError(errno.ESRCH, "dying")
        self.tgid = int(fields[b"Tgid"])
        self.parent = int(fields[b"PPid"])
        self.umask = int(fields[b"Umask"], 8)
        users, groups = fields[b"Uid"].split(), fields[b"Gid"].split()  # real, effective, saved, of the file system
        self.euid, self.fsuid = int(users[1]), int(users[3])
        self.egid, self.fsgid = int(groups[1]), int(groups[3])
        self.groups = tuple(int(g) for g in fields[b"Groups"].split())
        self.threads = int(fields[b"Threads"])
        self.pending_thread = int(fields[b"SigPnd"], 16)
        self.pending_process = int(fields[b"ShdPnd"], 16)
        self.blocked = int(fields[b"SigBlk"], 16)
        self.ignored = int(fields[b"SigIgn"], 16)
        self.capabilities = int(fields[b"CapEff"], 16)


def read(path: str) -> bytes:
    """The whole of a small /proc file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        data = os.read(descriptor, 65536)
        while len(data) and len(data) % 4096 == 0:
            more = os.read(descriptor, 65536)
            if not more:
                break
            data += more
        return data
    finally:
        os.close(descriptor)


def status(tid: int) -> Status:
    """Raises OSError when the task is gone or dying, ValueError or KeyError when the answer is not understood."""
    return Status(read(f"/proc/{tid}/status"))


class Stat:
    """/proc/TID/stat: parent, process group, session, terminal (`tty`, a device number) with the group in its
    `foreground`, start and processor.
    """

    __slots__ = ("foreground", "group", "parent", "processor", "session", "start", "state", "tty")

    def __init__(self, text: bytes) -> None:
        fields = text[text.rindex(b")") + 2 :].split()  # the name may hold spaces and parentheses
        self.state = fields[0]
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.tty = int(fields[4]) & 0xFFFFFFFF
        self.foreground = int(fields[5])  # -1 without a terminal
        self.start = int(fields[19])
        self.processor = int(fields[36])


def image(tid: int) -> tuple[int, ...]:
    """What tells a started program from every other: its file, and where the kernel laid it out, by chance. Forks and
    threads have the same. Raises OSError when the task is gone, ValueError where that cannot be seen.
    """
    program = os.stat(b"/proc/%d/exe" % tid)
    text = read(f"/proc/{tid}/stat")
    fields = text[text.rindex(b")") + 2 :].split()
    placed = tuple(int(fields[number]) for number in (23, 25, 45, 47))  # code, stack, arguments, environment
    if not all(placed):
        raise ValueError("an image that we may not look at")
    return program.st_dev, program.st_ino, *placed


def is_placed_by_chance(tid: int) -> bool:
    """Whether the kernel laid out its program by chance: else two of them may have the same `image`. Raises OSError."""
    return not int(read(f"/proc/{tid}/personality"), 16) & _ADDR_NO_RANDOMIZE and read(_RANDOMIZE).strip() != b"0"


def environment(tid: int) -> tuple[int, int]:
    """Where in its memory the environment is that a program was started with. Raises OSError, ValueError."""
    text = read(f"/proc/{tid}/stat")
    fields = text[text.rindex(b")") + 2 :].split()
    start, end = int(fields[47]), int(fields[48])
    if not start:
        raise ValueError("an image that we may not look at")
    return start, end


def stat(tid: int) -> Stat:
    """Raises OSError when the task is gone."""
    return Stat(read(f"/proc/{tid}/stat"))


def forks() -> int:
    """How many processes and threads have begun since the machine was started."""
    for line in read("/proc/stat").split(b"\n"):
        if line.startswith(b"processes "):
            return int(line.split()[1])
    raise OSError(errno.ENOENT, "/proc/stat")


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents first."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                below.setdefault(stat(int(name)).parent, []).append(int(name))
            except (OSError, ValueError, IndexError):
                continue
    found: list[int] = []
    todo = [pid]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def is_below(pid: int, ancestor: int) -> bool:
    """Whether `pid` is `ancestor`'s descendant (the engine is a subreaper, so orphans stay below it)."""
    for _ in range(4096):
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
        try:
            pid = stat(pid).parent
        except (OSError, ValueError, IndexError):
            return False
    return False


def mounts() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """(device, root inside of its file system, mount point, type) of every mount, the last one on top."""
    return [(row.device, row.root, row.point, row.kind) for row in mount_rows("self").values()]


class Mount:
    """A line of mountinfo: `device`, `root` inside of its file system, mount `point` from the reader's root, `kind`."""

    __slots__ = ("device", "kind", "point", "root")

    def __init__(self, line: bytes) -> None:
        head, _, tail = line.partition(b" - ")
        fields = head.split(b" ")
        self.device = fields[2]
        self.root, self.point = _unescaped(fields[3]), _unescaped(fields[4])
        self.kind = tail.split(b" ")[0]


def _mountinfo(process: str) -> bytes:
    """All of it: a read gives whole lines, and about a page of them. Raises OSError."""
    descriptor = os.open(f"/proc/{process}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(descriptor, 65536):
            data += more
        return data
    finally:
        os.close(descriptor)


def mount_rows(process: str) -> dict[int, Mount]:
    """Every mount that a process can reach, by its id, in their order. Raises OSError."""
    lines = _mountinfo(process).splitlines()
    return {int(line.partition(b" ")[0]): Mount(line) for line in lines}


def mount_row(tid: int, identity: int) -> Mount | None:
    """The one of that id, if the task can reach it. Raises OSError."""
    text = b"\n" + _mountinfo(f"{tid}")
    at = text.find(b"\n%d " % identity)
    return Mount(text[at + 1 :].partition(b"\n")[0]) if at >= 0 else None


def numbers(pid: int) -> list[int]:
    """The numbers of a process in its PID namespaces, from ours inwards. Raises OSError."""
    return numbers_in(read(f"/proc/{pid}/status"))


def numbers_in(status: bytes) -> list[int]:
    """The same from the text of a /proc/PID/status, of whatever PID namespace that is. Raises OSError."""
    for line in status.split(b"\n"):
        if line.startswith(b"NSpid:"):
            return [int(number) for number in line.split()[1:]]
    raise OSError(errno.ENOENT, "NSpid")


def _unescaped(text: bytes) -> bytes:
    """Spaces and the like are octal there. proc_pid_mountinfo(5)"""
    for code in (b"040", b"011", b"012", b"134"):
        text = text.replace(b"\\" + code, bytes([int(code, 8)]))
    return text


_FORMATS = "/proc/sys/fs/binfmt_misc"


def registered_formats() -> set[tuple[int, int]] | None:
    """(device, inode) of the programs that the kernel starts for files of other formats; None when it cannot be told.

    An interpreter that was opened when it was registered (flag F) may be a file of another place.
    """
    try:
        if read(f"{_FORMATS}/status").strip() != b"enabled":
            return set()
        entries = [read(f"{_FORMATS}/{name}") for name in os.listdir(_FORMATS) if name not in ("status", "register")]
    except OSError:
        return None  # not mounted here
    found = set()
    for entry in entries:
        enabled, *lines = entry.split(b"\n")
        fields = dict(line.partition(b" ")[::2] for line in lines)
        if enabled != b"enabled":
            continue
        if b"F" in fields.get(b"flags:", b""):
            return None
        try:
            interpreter = os.stat(fields[b"interpreter"])
        except (OSError, KeyError):
            continue  # what is not there is not started
        found.add((interpreter.st_dev, interpreter.st_ino))
    return found
