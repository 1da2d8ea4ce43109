"""The worker of the canary test: reads secrets in every way that there is, and shows and keeps what it gets.

argv: the secrets' paths. Each way may fail; what it gets goes to standard output, to files, or both.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import mmap
import os
import shutil
import socket
import subprocess
import sys

PATHS = [os.fsencode(path) for path in sys.argv[1:]]
OUT = b"out"
NUMBERS = {
    "open": 2, "openat": 257, "openat2": 437, "open_by_handle_at": 304, "name_to_handle_at": 303,
    "process_vm_readv": 310, "io_uring_setup": 425, "ptrace": 101, "pidfd_getfd": 438, "fanotify_init": 300,
}  # fmt: skip
libc = ctypes.CDLL(None, use_errno=True)
count = 0
done: list[str] = []


def show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def fresh() -> bytes:
    global count
    count += 1
    return OUT + b"/%d" % count


def drain(descriptor: int) -> None:
    with contextlib.suppress(OSError), open(descriptor, "rb") as file:  # what opens may refuse: a folder, a memory
        show(file.read())


def through(path: bytes) -> None:
    drain(os.open(path, os.O_RDONLY))


def raw(name: str, *arguments: object) -> int:
    number = NUMBERS[name]
    result = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(result)


# -- system calls ---------------------------------------------------------------------------------------------


def by_read(path):
    through(path)


def by_legacy_open(path):
    drain(raw("open", path, 0, 0))


def by_openat2(path):
    drain(raw("openat2", -100, path, ctypes.create_string_buffer(24), 24))


def by_creating_open(path):
    drain(os.open(path, os.O_RDONLY | os.O_CREAT))


def by_read_write_open(path):
    drain(os.open(path, os.O_RDWR))


def by_read_write_create(path):
    drain(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))


def by_noatime_nofollow(path):
    drain(os.open(path, os.O_RDONLY | os.O_NOATIME | os.O_NOFOLLOW))


def by_mmap(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        show(mapped[:])


def by_sendfile(path):
    with open(path, "rb") as file, open(fresh(), "wb") as out:
        os.sendfile(out.fileno(), file.fileno(), 0, 1 << 16)


def by_splice(path):
    read, write = os.pipe()
    with open(path, "rb") as file:
        os.splice(file.fileno(), write, 1 << 15)
    os.close(write)
    drain(read)


def by_copy_file_range(path):
    with open(path, "rb") as file, open(fresh(), "wb") as out:
        os.copy_file_range(file.fileno(), out.fileno(), 1 << 16)


def by_reflink(path):
    with open(path, "rb") as file, open(fresh(), "wb") as out:
        fcntl.ioctl(out.fileno(), 0x40049409, file.fileno())


def by_path_descriptor(path):
    pin = os.open(path, os.O_PATH)
    for name in ("/proc/self/fd/%d", "/proc/thread-self/fd/%d", "/dev/fd/%d"):
        with contextlib.suppress(OSError):  # the next one may be open
            through(os.fsencode(name % pin))


def by_proc_root(path):
    through(b"/proc/self/root" + path)


def by_proc_cwd(path):
    through(b"/proc/self/cwd/" + os.path.relpath(path, os.getcwdb()))


def by_handle(path):
    handle = ctypes.create_string_buffer(b"\x80\0\0\0", 200)
    mount = ctypes.c_int()
    raw("name_to_handle_at", -100, path, handle, ctypes.byref(mount), 0)
    drain(raw("open_by_handle_at", -100, handle, 0))


def by_passed_descriptor(path):
    left, right = socket.socketpair()
    with open(path, "rb") as file:
        left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
    _, [(_, _, data)], _, _ = right.recvmsg(1, 100)
    drain(array.array("i", data)[0])


def by_socket(path):
    left, right = socket.socketpair()
    with open(path, "rb") as file:
        left.sendfile(file)
    left.close()
    show(right.recv(1 << 16))


# -- other names ----------------------------------------------------------------------------------------------


def by_hard_link(path):
    name = fresh()
    os.link(path, name)
    through(name)


def by_symbolic_link(path):
    name = fresh()
    os.symlink(path, name)
    through(name)


def by_rename(path):
    name = fresh()
    os.rename(path, name)
    try:
        through(name)
    finally:
        os.rename(name, path)


def by_exchange(path):
    name = fresh()
    with open(name, "wb") as file:
        file.write(b"other\n")
    libc.renameat2(-100, path, -100, name, 2)
    through(name)


def by_folder(path):
    folder = os.path.dirname(path)
    if folder == os.getcwdb():
        folder = path
    name = fresh()
    os.rename(folder, name)
    try:
        through(name + b"/" + os.path.basename(path))
    finally:
        os.rename(name, folder)


def by_swapped_folder(path):
    name = fresh()
    os.mkdir(name)
    os.mkdir(name + b"/real")
    os.symlink(os.path.dirname(path), name + b"/now")
    for _ in range(20):
        os.rename(name + b"/now", name + b"/then")
        os.rename(name + b"/then", name + b"/now")
        through(name + b"/now/" + os.path.basename(path))


def by_other_case(path):
    through(
        os.path.dirname(path)
        + b"/./"
        + b"../"
        + os.path.basename(os.path.dirname(path))
        + b"/"
        + os.path.basename(path)
    )


def by_removed_name(path):
    pin = os.open(path, os.O_PATH)
    name = path + b".aside"
    os.rename(path, name)
    try:
        through(b"/proc/self/fd/%d" % pin)
    finally:
        os.rename(name, path)


# -- programs -------------------------------------------------------------------------------------------------


def run(*words: bytes | str, **how: object) -> None:
    if shutil.which(os.fsdecode(words[0])) is None:
        raise FileNotFoundError(words[0])
    found = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, **how)  # type: ignore[call-overload]
    show(found.stdout + found.stderr)


def program(*words: str):
    def way(path):
        run(*[word.encode().replace(b"PATH", path).replace(b"NEW", fresh()) for word in words])

    return way


PROGRAMS = {
    "cat": program("cat", "PATH"),
    "cp": program("cp", "PATH", "NEW"),
    "cp --reflink": program("cp", "--reflink=auto", "PATH", "NEW"),
    "cp -l": program("cp", "-l", "PATH", "NEW"),
    "mv to another file system": program("mv", "PATH", f"/dev/shm/pincer-canary-{os.getpid()}"),
    "dd": program("dd", "if=PATH", "of=NEW"),
    "head": program("head", "-c", "999", "PATH"),
    "sed": program("sed", "-n", "p", "PATH"),
    "grep -r": program("grep", "-r", "", "PATH"),
    "tar": program("tar", "-cf", "NEW", "PATH"),
    "rsync": program("rsync", "PATH", "NEW"),
    "diff": program("diff", "/dev/null", "PATH"),
    "sh source": program("sh", "-x", "-c", ". PATH"),
    "sh read": program("sh", "-c", "while read line; do echo $line; done < PATH"),
    "find -exec": program("find", "PATH", "-exec", "cat", "{}", "+"),
    "git add": program("sh", "-c", "git add -f PATH && git show :$(git ls-files | tail -1)"),
    "git hash-object": program("sh", "-c", "git cat-file -p $(git hash-object -w PATH)"),
    "git diff": program("git", "diff", "--no-index", "/dev/null", "PATH"),
    "git stash": program("git", "stash", "push", "-u", "PATH"),
    "git --config": program("git", "config", "-f", "PATH", "-l"),
    "sqlite3": program("sqlite3", "PATH", ".dump"),
    "sqlite3 import": program("sqlite3", ":memory:", "create table t(x)", ".import PATH t", "select * from t"),
    "vim": program("vim", "-es", "-u", "NONE", "-i", "NONE", "+%print", "+w! NEW", "+qa!", "PATH"),
    "perl": program("perl", "-pe", "", "PATH"),
    "strace": program("strace", "-s", "9999", "cat", "PATH"),
    "exec": program("sh", "-c", "chmod u+x PATH; PATH; ./PATH"),
    "interpreter": program("perl", "PATH"),
    "gcc": program("gcc", "-E", "-x", "c", "PATH"),
    "curl": program("curl", "-s", "file://PATH"),
    "ssh-keygen": program("ssh-keygen", "-y", "-f", "PATH"),
}


# -- whoever has it in memory -----------------------------------------------------------------------------------


def others() -> list[int]:
    found, pid = [], os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def look_at_others() -> None:
    for pid in others():
        for name in ("environ", "maps", "mem", "fd/3", "root/etc/hostname", "cwd"):
            with contextlib.suppress(OSError):  # that it is refused is well: what matters is what is shown
                through(os.fsencode(f"/proc/{pid}/{name}"))
        for name in ("ptrace", "process_vm_readv", "pidfd_getfd"):
            with contextlib.suppress(OSError):  # likewise
                raw(name, 16, pid, 0, 0, 0, 0)
    for name in ("io_uring_setup", "fanotify_init"):
        with contextlib.suppress(OSError):  # likewise
            raw(name, 8, 0)
    show(repr(dict(os.environ)).encode())
    with open("/proc/self/environ", "rb") as file:
        show(file.read())


def main() -> None:
    os.mkdir(OUT)
    ways = {name: way for name, way in globals().items() if name.startswith("by_")} | PROGRAMS
    here = os.getcwdb() + b"/"
    for path in PATHS:
        thorough = path.startswith(here)
        for name, way in ways.items():
            if not thorough and name not in ("by_read", "by_hard_link", "by_path_descriptor", "cat", "cp", "by_rename"):
                continue
            try:
                way(path)
                done.append(name)
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                print(name, error.__class__.__name__, getattr(error, "errno", ""), file=sys.stderr)
    look_at_others()
    print("ways:", len(ways), file=sys.stderr)
    print("worked:", " ".join(sorted(set(done))), file=sys.stderr)


main()
