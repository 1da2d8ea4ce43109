"""The errno matrix: every path call x every kind of path, flag and directory descriptor, one line each
(hazard P19).

Run as `python errno_matrix.py [SECTION ...]` in an empty directory; `kit.py` says what the lines mean.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

import errno_attributes
from kit import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_REMOVEDIR,
    AT_SYMLINK_FOLLOW,
    CLOSED,
    EFAULT_POINTER,
    FIXED,
    Bench,
    main,
    text,
)

PATHS: list[bytes | int] = [
    b"file", b"hard", b"absent", b"dangling", b"dangling_absolute", b"link", b"dir", b"empty",
    b"dlink", b"loop",
    b"file/", b"dir/", b"absent/", b"link/", b"dlink/", b"dangling/", b"file/.", b"file/..",
    b"dir/.", b"dir/..",
    b".", b"..", b"./", b"./file", b"dir/../file", b"dir//inner", b"dlink/inner", b"dlink/absent",
    b"dir/absent",
    b"", b"n" * 255, b"n" * 256, b"dir/" + b"n" * 256, b"./" * 2045 + b"/file", b"./" * 2045 + b"//file",
    b"./" * 2046 + b"file", b"n/" * 3000, 0, EFAULT_POINTER, b"file/x", b"loop/x", b"absent/x", b"$CWD/file",
    b"$CWD/absent", b"$CWD/dir/../file", b"/proc/self/cwd/file", b"/proc/self/cwd/absent",
    b"/proc/thread-self/cwd/file", b"\xff\xfe", b"new\nline", b"\x1b[31m",
]  # fmt: skip
FD_PATHS: list[bytes | int] = [
    b"/proc/self/fd/100", b"/proc/self/fd/101", b"/proc/self/fd/101/inner", b"/proc/self/fd/102/inner",
    b"/proc/self/fd/103", b"/dev/fd/100", b"/dev/fd/99", b"/proc/self/fd/106", b"/proc/self/fd/105/x",
]  # fmt: skip

FLAGS = {
    "R": os.O_RDONLY, "W": os.O_WRONLY, "RW": os.O_RDWR, "ACC3": 3,
    "R|CREAT": os.O_CREAT, "W|CREAT": os.O_WRONLY | os.O_CREAT,
    "W|CREAT|EXCL": os.O_WRONLY | os.O_CREAT | os.O_EXCL, "RW|EXCL": os.O_RDWR | os.O_EXCL,
    "W|TRUNC": os.O_WRONLY | os.O_TRUNC, "R|TRUNC": os.O_TRUNC,
    "W|CREAT|TRUNC": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "R|NOFOLLOW": os.O_NOFOLLOW,
    "W|CREAT|NOFOLLOW": os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, "R|DIRECTORY": os.O_DIRECTORY,
    "R|DIRECTORY|NOFOLLOW": os.O_DIRECTORY | os.O_NOFOLLOW, "W|DIRECTORY": os.O_WRONLY | os.O_DIRECTORY,
    "R|CREAT|DIRECTORY": os.O_CREAT | os.O_DIRECTORY, "W|TMPFILE": os.O_WRONLY | os.O_TMPFILE,
    "RW|TMPFILE|EXCL": os.O_RDWR | os.O_TMPFILE | os.O_EXCL, "R|TMPFILE": os.O_TMPFILE,
    "PATH": os.O_PATH, "PATH|NOFOLLOW": os.O_PATH | os.O_NOFOLLOW,
    "PATH|DIRECTORY": os.O_PATH | os.O_DIRECTORY,
    "PATH|CREAT": os.O_PATH | os.O_CREAT, "W|APPEND": os.O_WRONLY | os.O_APPEND,
    "W|APPEND|CREAT": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "W|APPEND|TRUNC": os.O_WRONLY | os.O_APPEND | os.O_TRUNC,
    "R|NONBLOCK|CLOEXEC": os.O_NONBLOCK | os.O_CLOEXEC, "R|NOATIME|SYNC": os.O_NOATIME | os.O_SYNC,
    "R|UNKNOWN": 1 << 30,
}  # fmt: skip

DIRFDS = {
    "AT_FDCWD": AT_FDCWD, "AT_FDCWD32": 0xFFFFFF9C, "AT_FDCWD+garbage": 0xDEADBEEF_FFFFFF9C,
    "dir": FIXED["dir"],
    "dir+garbage": (0x1234 << 32) | FIXED["dir"], "o_path_dir": FIXED["o_path_dir"], "file": FIXED["file"],
    "o_path_file": FIXED["o_path_file"], "pipe": FIXED["pipe"], "gone": FIXED["gone"],
    "closed": CLOSED, "-1": -1,
    "int_max": 0x7FFFFFFF,
}  # fmt: skip
AT_PATHS: list[bytes | int] = [
    b"file", b"inner", b"absent", b"", b".", b"..", b"../file", b"$CWD/file", b"/proc/self/fd/100",
    EFAULT_POINTER,
    b"inner/", b"absent/",
]  # fmt: skip


def opens(bench: Bench) -> None:
    """open(2) and creat(2) over every path and flag combination."""
    for name, flags in FLAGS.items():
        for path in PATHS + FD_PATHS:
            bench.run(f"open({text(path)}, {name})", "open", bench.path(path), flags, 0o7666, opens=True)
        if flags & (os.O_NONBLOCK | os.O_PATH | 3) in (os.O_RDWR, os.O_NONBLOCK, os.O_PATH):
            bench.run(f"open('fifo', {name})", "open", b"fifo", flags, 0o600, opens=True)
    bench.run("open('fifo', W|NONBLOCK)", "open", b"fifo", os.O_WRONLY | os.O_NONBLOCK, 0, opens=True)
    for path in PATHS:
        bench.run(f"creat({text(path)})", "creat", bench.path(path), 0o640, opens=True)
    for path in (
        b"/",
        b"/dev/null",
        b"/dev/zero",
        b"/dev/tty",
        b"/proc/self/status",
        b"/proc/self/cwd",
        b"/proc/self",
    ):
        for name in ("R", "W", "RW", "W|CREAT", "R|DIRECTORY", "PATH|NOFOLLOW", "R|NOFOLLOW"):
            bench.run(f"open({text(path)}, {name})", "open", path, FLAGS[name], 0o600, opens=True)


def open_at(bench: Bench) -> None:
    """openat(2) over every kind of directory descriptor."""
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            for name in ("R", "W|CREAT", "W|CREAT|EXCL", "PATH", "R|DIRECTORY"):
                label = f"openat({kind}, {text(path)}, {name})"
                bench.run(label, "openat", dirfd, bench.path(path), FLAGS[name], 0o666, opens=True)
    for name, flags in FLAGS.items():
        for path in (b"file", b"absent", b"dangling", b"dir", b""):
            bench.run(f"openat(AT_FDCWD, {text(path)}, {name})", "openat", AT_FDCWD, path, flags, 0o666, opens=True)


RESOLVE = {
    "-": 0,
    "NO_XDEV": 1,
    "NO_MAGICLINKS": 2,
    "NO_SYMLINKS": 4,
    "BENEATH": 8,
    "IN_ROOT": 16,
    "BAD": 1 << 20,
}


def open_at2(bench: Bench) -> None:
    """openat2(2): resolve flags, sizes of the structure, and its stricter argument checks."""
    for resolve_name, resolve in RESOLVE.items():
        for path in (b"file", b"absent", b"link", b"dlink/inner", b"..", b"../cwd/file", b"/file",
                             b"$CWD/file",
                     b"dangling_absolute", b"/proc/self/fd/100", b"", b"file/",
                     b"/proc/self/status"):  # fmt: skip
            for name in ("R", "W|CREAT", "R|NOFOLLOW", "PATH"):
                flags = FLAGS[name]
                if path == b"/file" and flags & os.O_CREAT and resolve not in (8, 16):
                    continue  # root would really make it
                how = ctypes.create_string_buffer(
                    struct.pack("QQQ", flags, 0o640 if flags & os.O_CREAT else 0, resolve), 24
                )
                label = f"openat2({text(path)}, {name}, {resolve_name})"
                bench.run(label, "openat2", AT_FDCWD, bench.path(path), how, 24, opens=True)
    shapes = {
        "mode without create": (struct.pack("QQQ", 0, 0o600, 0), 24),
        "mode too wide": (struct.pack("QQQ", os.O_CREAT | 1, 0o100600, 0), 24),
        "unknown flag": (struct.pack("QQQ", 1 << 30, 0, 0), 24),
        "flag of 64 bits": (struct.pack("QQQ", 1 << 40, 0, 0), 24),
        "beneath and in_root": (struct.pack("QQQ", 0, 0, 24), 24),
        "size 0": (struct.pack("QQQ", 0, 0, 0), 0),
        "size 16": (struct.pack("QQQ", 0, 0, 0), 16),
        "size 32, zero tail": (struct.pack("QQQQ", 0, 0, 0, 0), 32),
        "size 32, other tail": (struct.pack("QQQQ", 0, 0, 0, 1), 32),
        "size 8192": (struct.pack("QQQ", 0, 0, 0), 8192),
        "tmpfile without write": (struct.pack("QQQ", os.O_TMPFILE, 0, 0), 24),
        "path and create": (struct.pack("QQQ", os.O_PATH | os.O_CREAT, 0, 0), 24),
    }
    for label, (packed, size) in shapes.items():
        how = ctypes.create_string_buffer(packed, max(len(packed), 8192))
        bench.run(f"openat2('file', {label})", "openat2", AT_FDCWD, b"file", how, size, opens=True)
    bench.run("openat2('file', how <16>)", "openat2", AT_FDCWD, b"file", EFAULT_POINTER, 24, opens=True)
    for kind, dirfd in DIRFDS.items():
        how = ctypes.create_string_buffer(struct.pack("QQQ", 0, 0, 8), 24)
        bench.run(f"openat2({kind}, 'inner', R, BENEATH)", "openat2", dirfd, b"inner", how, 24, opens=True)


def removes(bench: Bench) -> None:
    """unlink, rmdir, unlinkat."""
    for path in [*PATHS, b"full", b"full/", b"empty/", b"empty/.", b"dir/inner/..", b"fifo", *FD_PATHS]:
        bench.run(f"unlink({text(path)})", "unlink", bench.path(path))
        bench.run(f"rmdir({text(path)})", "rmdir", bench.path(path))
    for kind, dirfd in DIRFDS.items():
        for path in [*AT_PATHS, b"../empty"]:
            for name, flags in (("0", 0), ("REMOVEDIR", AT_REMOVEDIR)):
                bench.run(f"unlinkat({kind}, {text(path)}, {name})", "unlinkat", dirfd, bench.path(path), flags)
    for flags in (AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, 1 << 20, AT_REMOVEDIR | (1 << 35)):
        bench.run(f"unlinkat('file', {flags:#x})", "unlinkat", AT_FDCWD, b"file", flags)


ENDS: list[bytes | int] = [
    b"file", b"other", b"hard", b"absent", b"dangling", b"link", b"dir", b"empty", b"full",
    b"dlink", b"absent/",
    b"file/", b"dir/", b"dlink/", b"dir/inner", b"dir/sub", b".", b"..", b"", b"n" * 256,
    b"file/x", b"loop/x",
    b"absent/x", EFAULT_POINTER, b"fifo",
]  # fmt: skip
RENAME_FLAGS = {"0": 0, "NOREPLACE": 1, "EXCHANGE": 2, "NOREPLACE|EXCHANGE": 3, "BAD": 1 << 5}


def renames(bench: Bench) -> None:
    """rename, renameat, renameat2 over every pair of ends."""
    for old in ENDS:
        for new in ENDS:
            bench.run(f"rename({text(old)}, {text(new)})", "rename", bench.path(old), bench.path(new))
    few = [
        b"file",
        b"hard",
        b"absent",
        b"link",
        b"dir",
        b"empty",
        b"full",
        b"dir/inner",
        b"dir/sub",
        b".",
        b"absent/",
    ]
    for name, flags in RENAME_FLAGS.items():
        for old in few:
            for new in few:
                label = f"renameat2({text(old)}, {text(new)}, {name})"
                bench.run(label, "renameat2", AT_FDCWD, old, AT_FDCWD, new, flags)
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            label = f"renameat({kind}, {text(path)}, AT_FDCWD, 'target')"
            bench.run(label, "renameat", dirfd, bench.path(path), AT_FDCWD, b"target")
            label = f"renameat(AT_FDCWD, 'file', {kind}, {text(path)})"
            bench.run(label, "renameat", AT_FDCWD, b"file", dirfd, bench.path(path))
    bench.run("rename('file', '/dev/shm/x')", "rename", b"file", b"/dev/shm/pincer-trace-test-x")
    bench.run("rename('file', '/proc/x')", "rename", b"file", b"/proc/x")


LINK_FLAGS = {"0": 0, "FOLLOW": AT_SYMLINK_FOLLOW, "EMPTY": AT_EMPTY_PATH, "BOTH": 0x1400, "BAD": 1}


def links(bench: Bench) -> None:
    """link, linkat (with O_TMPFILE files too) and symlink."""
    for old in ENDS:
        for new in ENDS:
            bench.run(f"link({text(old)}, {text(new)})", "link", bench.path(old), bench.path(new))
    for name, flags in LINK_FLAGS.items():
        for old in [b"file", b"link", b"dangling", b"dlink", b"absent", b"dir", b"", b"loop", *FD_PATHS]:
            label = f"linkat({text(old)}, 'target', {name})"
            bench.run(label, "linkat", AT_FDCWD, bench.path(old), AT_FDCWD, b"target", flags)
        for kind, dirfd in DIRFDS.items():
            for old in (b"", b"inner"):
                label = f"linkat({kind}, {text(old)}, AT_FDCWD, 'target', {name})"
                bench.run(label, "linkat", dirfd, old, AT_FDCWD, b"target", flags)
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            label = f"linkat(AT_FDCWD, 'file', {kind}, {text(path)})"
            bench.run(label, "linkat", AT_FDCWD, b"file", dirfd, bench.path(path), 0)
            bench.run(f"symlinkat('to', {kind}, {text(path)})", "symlinkat", b"to", dirfd, bench.path(path))
    for name, flags in (("TMPFILE", 0), ("TMPFILE|EXCL", os.O_EXCL)):
        for how in ("/proc/self/fd", "empty path"):
            bench.tree.fresh or bench.tree.build()
            descriptor = os.open(".", os.O_RDWR | os.O_TMPFILE | flags, 0o640)
            os.write(descriptor, b"temporary\n")
            by_path = (AT_FDCWD, b"/proc/self/fd/%d" % descriptor, AT_FDCWD, b"made", AT_SYMLINK_FOLLOW)
            by_fd = (descriptor, b"", AT_FDCWD, b"made", AT_EMPTY_PATH)
            bench.run(f"linkat({name} by {how}, 'made')", "linkat", *(by_path if how[0] == "/" else by_fd))
            os.close(descriptor)
    for target in (
        b"to",
        b"",
        b"/absolute/to",
        b"t" * 4095,
        b"t" * 4096,
        0,
        EFAULT_POINTER,
        b"a\nb",
        b"\xff",
    ):
        bench.run(f"symlink({text(target)}, 'made')", "symlink", target, b"made")
    for path in PATHS:
        bench.run(f"symlink('to', {text(path)})", "symlink", b"to", bench.path(path))


NODES = {
    "0": 0, "REG": stat.S_IFREG | 0o666, "FIFO": stat.S_IFIFO | 0o666, "SOCK": stat.S_IFSOCK | 0o777,
    "DIR": stat.S_IFDIR | 0o700, "LNK": stat.S_IFLNK | 0o700, "BAD": 0o030000, "SUID": stat.S_IFREG | 0o6755,
}  # fmt: skip


def makes(bench: Bench) -> None:
    """mkdir and mknod, and their at-forms."""
    for path in PATHS + FD_PATHS:
        bench.run(f"mkdir({text(path)})", "mkdir", bench.path(path), 0o777)
        bench.run(f"mknod({text(path)}, FIFO)", "mknod", bench.path(path), NODES["FIFO"], 0)
        bench.run(f"mknod({text(path)}, REG)", "mknod", bench.path(path), NODES["REG"], 0)
    for mode in (0, 0o700, 0o1777, 0o2755, 0o4755, 0o7777, 0o100777, 0xFFFF_0000_01FF):
        bench.run(f"mkdir('made', {mode:o})", "mkdir", b"made", mode)
    for name, mode in NODES.items():
        bench.run(f"mknod('made', {name})", "mknod", b"made", mode, 0)
    for high in (1 << 16, 1 << 32, 0xFFFF << 48):  # which the kernel does not look at
        bench.run(f"mknod('made', FIFO, {high:#x} above)", "mknod", b"made", NODES["FIFO"] | high, 0)
    bench.run("mknod('made', CHR 1:3)", "mknod", b"made", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    bench.run("mknod('made', BLK 7:0)", "mknod", b"made", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    bench.run("mknod('made', CHR 0:0)", "mknod", b"made", stat.S_IFCHR | 0o666, 0)
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            bench.run(f"mkdirat({kind}, {text(path)})", "mkdirat", dirfd, bench.path(path), 0o755)
            bench.run(f"mknodat({kind}, {text(path)}, SOCK)", "mknodat", dirfd, bench.path(path), NODES["SOCK"], 0)
    for path in (b"/", b"/proc", b"/proc/x", b"/dev/null", b"/dev/null/x"):
        bench.run(f"mkdir({text(path)})", "mkdir", path, 0o755)


SECTIONS = {
    "opens": opens,
    "open_at": open_at,
    "open_at2": open_at2,
    "removes": removes,
    "renames": renames,
    "links": links,
    "makes": makes,
    **errno_attributes.SECTIONS,
}

if __name__ == "__main__":
    errno_attributes.PATHS, errno_attributes.DIRFDS, errno_attributes.AT_PATHS = (
        PATHS + FD_PATHS,
        DIRFDS,
        AT_PATHS,
    )
    main(SECTIONS)
