"""The bench of the errno matrix: raw system calls, a small tree to try them on, and what each attempt
changed.

It is a program of the worker: plain standard library, any Python 3.11+, no import from the project. Every
case runs in a tree that is built anew when the case before it changed anything, and prints exactly one
line:

    call(arguments) -> ok or ERRNO [what came back] ; what changed in the tree

so that a native and a supervised run are compared line by line.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import shutil
import signal
import stat
import sys

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_REMOVEDIR = 0x200
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
EFAULT_POINTER = 0x10
MASK64 = (1 << 64) - 1

_X86_64 = {
    "open": 2, "ioctl": 16, "bind": 49, "execve": 59, "truncate": 76, "chdir": 80, "fchdir": 81, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "mknod": 133, "setxattr": 188, "lsetxattr": 189,
    "fsetxattr": 190, "getxattr": 191, "lgetxattr": 192, "fgetxattr": 193, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "utimes": 235, "mq_open": 240, "mq_unlink": 241, "openat": 257,
    "mkdirat": 258, "mknodat": 259, "fchownat": 260, "futimesat": 261, "unlinkat": 263, "renameat": 264,
    "linkat": 265, "symlinkat": 266, "fchmodat": 268, "utimensat": 280, "renameat2": 316, "execveat": 322,
    "openat2": 437, "fchmodat2": 452,
}  # fmt: skip
_AARCH64 = {
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "getxattr": 8, "lgetxattr": 9, "fgetxattr": 10,
    "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "ioctl": 29, "mknodat": 33, "mkdirat": 34,
    "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "chdir": 49, "fchdir": 50,
    "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "utimensat": 88, "mq_open": 180,
    "mq_unlink": 181, "bind": 200, "execve": 221, "renameat2": 276, "execveat": 281, "openat2": 437,
    "fchmodat2": 452,
}  # fmt: skip
NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}[platform.machine()]

_place = {"cwd": "?"}  # where the tree stands, for lines without its name
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

FIXED = {
    "file": 100,
    "dir": 101,
    "o_path_dir": 102,
    "o_path_file": 103,
    "pipe": 104,
    "gone": 105,
    "writable": 106,
}
CLOSED = 99


def raw(name: str, *args: int | bytes | ctypes.Array | ctypes.Structure | None) -> int:
    """Make one system call by number: integers go in whole registers, bytes as pointers. The
    result or -errno."""
    words = []
    for arg in args:
        if arg is None:
            words.append(ctypes.c_void_p(None))
        elif isinstance(arg, int):
            words.append(ctypes.c_ulong(arg & MASK64))
        elif isinstance(arg, bytes):
            words.append(ctypes.c_char_p(arg))
        else:
            words.append(ctypes.cast(ctypes.byref(arg), ctypes.c_void_p))
    ctypes.set_errno(0)
    value = _libc.syscall(ctypes.c_long(NUMBERS[name]), *words)
    return value if value >= 0 else -ctypes.get_errno()


def name_of(value: int) -> str:
    """`ok` or the errno's name."""
    return "ok" if value >= 0 else errno.errorcode.get(-value, str(-value))


def text(path: int | bytes | None) -> str:
    """A path as the line shows it: long ones by length, pointers by value."""
    if not isinstance(path, bytes):
        return f"<{path}>"
    shown = path.replace(os.fsencode(_place["cwd"]), b"$CWD") if path.startswith(b"/") else path
    return repr(shown)[1:] if len(path) < 60 else f"'{shown[:6].decode()}..{len(path)}'"


class Tree:
    """The scratch tree: `case/` with `cwd/` in it, where the program stands."""

    def __init__(self, top: str) -> None:
        self.case = os.path.join(top, "case")
        self.cwd = os.path.join(self.case, "cwd")
        _place["cwd"] = self.cwd
        self.before: dict[str, tuple] = {}
        self.fresh = False

    def build(self) -> None:
        """Make the tree anew, stand in `cwd/` and open the fixed descriptors."""
        os.chdir("/")
        if os.path.lexists(self.case):
            shutil.rmtree(self.case)
        os.mkdir(self.case)
        os.mkdir(self.cwd)
        os.chdir(self.cwd)
        for name in ("file", "other"):
            with open(name, "w") as stream:
                stream.write(f"text of {name}\n")
        os.chmod("file", 0o644)
        for name in ("dir", "empty", "full"):
            os.mkdir(name)
        for name in ("dir/inner", "full/inner"):
            with open(name, "w") as stream:
                stream.write("inner\n")
        os.link("file", "hard")
        os.symlink("file", "link")
        os.symlink("nowhere", "dangling")
        os.symlink("dir", "dlink")
        os.symlink("loop", "loop")
        os.symlink(self.cwd + "/absent2", "dangling_absolute")
        os.mkfifo("fifo")
        self.open_fixed()
        self.before = self.snapshot()
        self.fresh = True

    def open_fixed(self) -> None:
        """Descriptors of known numbers, far from where new ones land."""
        os.mkdir("gone")
        gone = os.open("gone", os.O_RDONLY)
        os.rmdir("gone")
        reading, writing = os.pipe()
        opened = {
            "file": os.open("file", os.O_RDONLY),
            "dir": os.open("dir", os.O_RDONLY),
            "o_path_dir": os.open("dir", os.O_PATH),
            "o_path_file": os.open("file", os.O_PATH),
            "pipe": reading,
            "gone": gone,
            "writable": os.open("other", os.O_RDWR),
        }
        for name, descriptor in opened.items():
            os.dup2(descriptor, FIXED[name], inheritable=False)
            os.close(descriptor)
        os.close(writing)

    def snapshot(self) -> dict[str, tuple]:
        """Every name under `case/` with what can be seen of it: (inode, description)."""
        entries = {}
        stack = [("..", self.case)]
        while stack:
            shown, path = stack.pop()
            info = os.lstat(path)
            kind = stat.S_IFMT(info.st_mode)
            words = [f"{info.st_mode:o}", f"{info.st_uid}:{info.st_gid}"]
            if kind == stat.S_IFREG:
                words.append(f"{info.st_size}b x{info.st_nlink}")
                if 0 < info.st_size <= 64:
                    words.append(self.contents(path))
            elif kind == stat.S_IFLNK:
                words.append("->" + text(os.readlink(os.fsencode(path))))
            elif kind in (stat.S_IFCHR, stat.S_IFBLK):
                words.append(f"dev {info.st_rdev:x}")
            if info.st_mtime < 1e9:
                words.append(f"mtime {info.st_mtime_ns}")
            if info.st_atime < 1e9:
                words.append(f"atime {info.st_atime_ns}")
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                words += [
                    f"{name}={os.getxattr(path, name)!r}" for name in sorted(os.listxattr(path, follow_symlinks=False))
                ]
            entries[shown] = (info.st_ino, " ".join(words))
            if kind == stat.S_IFDIR:
                for name in os.listdir(path):
                    label = name if shown == "cwd" else f"{shown}/{name}"
                    label = name if shown == ".." else label
                    stack.append((label, os.path.join(path, name)))
        return entries

    @staticmethod
    def contents(path: str) -> str:
        """The bytes of a small file, or why they cannot be read."""
        try:
            with open(path, "rb") as stream:
                return repr(stream.read())[1:]
        except OSError as error:
            return f"unreadable {errno.errorcode[error.errno]}"

    def changes(self) -> str:
        """What differs from the freshly built tree, inodes named by where they were."""
        try:
            after = self.snapshot()
        except PermissionError:
            self.fresh = False
            os.chmod(self.case, 0o755)
            for folder, names, _ in os.walk(self.case):
                for name in names:
                    os.chmod(os.path.join(folder, name), 0o755)
            return " ; the tree became unreadable"
        if after == self.before:
            return ""
        self.fresh = False
        home = {inode: name for name, (inode, _) in sorted(self.before.items())}
        words = []
        for name in sorted(self.before.keys() | after.keys(), key=os.fsencode):
            was, now = self.before.get(name), after.get(name)
            if was == now:
                continue
            shown = text(os.fsencode(name))
            if now is None:
                words.append(f"-{shown}")
            elif was is not None and was[0] == now[0]:
                words.append(f"{shown}: {now[1]}")
            else:
                words.append(f"+{shown}={home.get(now[0], 'new')}: {now[1]}")
        return " ; " + ", ".join(words)


class Bench:
    """Runs cases one by one and prints their lines."""

    def __init__(self, top: str) -> None:
        self.tree = Tree(top)
        self.count = 0
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, True)

    def run(self, label: str, call: str, *args: object, opens: bool = False) -> int:
        """One case. A call that does not come back in 5 s shows as EINTR."""
        if call not in NUMBERS:
            return 0
        if not self.tree.fresh:
            self.tree.build()
        signal.setitimer(signal.ITIMER_REAL, 5)
        value = raw(call, *args)
        signal.setitimer(signal.ITIMER_REAL, 0)
        came = f" {describe(value)}" if opens and value >= 0 else "" if value <= 0 else f" {value}"
        changed = self.tree.changes()
        if opens and value >= 0:
            os.close(value)
        print(f"{label} -> {name_of(value)}{came}{changed}")
        self.count += 1
        return value

    def path(self, path: bytes | int | None) -> bytes | int | None:
        """Fill in the place of the tree, for absolute paths."""
        if not self.tree.fresh:
            self.tree.build()
        return path.replace(b"$CWD", os.fsencode(self.tree.cwd)) if isinstance(path, bytes) else path


def describe(descriptor: int) -> str:
    """A new descriptor: its number, flags, and what it is."""
    info = os.fstat(descriptor)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)  # O_NOFOLLOW is masked: lost on existing files (docs/differences.md)
    cloexec = fcntl.fcntl(descriptor, fcntl.F_GETFD)
    words = f"fd={descriptor} fl={flags & ~os.O_NOFOLLOW:o} fdfl={cloexec} mode={info.st_mode:o}"
    if stat.S_ISREG(info.st_mode):
        words += f" size={info.st_size} nlink={info.st_nlink} own={info.st_uid}:{info.st_gid}"
    return words


def main(sections: dict[str, object]) -> None:
    """`PROGRAM [SECTION ...]`: run the named sections, or all, in a new directory below the current one."""
    chosen = sys.argv[1:] or list(sections)
    os.umask(0o022)
    top = os.path.join(os.getcwd(), "matrix")
    os.mkdir(top)
    bench = Bench(top)
    for name in chosen:
        before = bench.count
        sections[name](bench)  # type: ignore[operator]
        print(f"section {name}: {bench.count - before} cases")
    os.chdir("/")
    shutil.rmtree(top)
