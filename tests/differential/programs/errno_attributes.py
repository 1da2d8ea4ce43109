"""The half of the errno matrix on attributes: modes, owners, sizes, times, extended attributes, flags,
sockets, exec.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from kit import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_SYMLINK_NOFOLLOW,
    EFAULT_POINTER,
    FIXED,
    Bench,
    name_of,
    raw,
    text,
)

PATHS: list[bytes | int] = []  # filled by errno_matrix: the two halves share the kinds
DIRFDS: dict[str, int] = {}
AT_PATHS: list[bytes | int] = []
FDS = {**FIXED, "closed": 99, "-1": -1}


def modes(bench: Bench) -> None:
    """chmod, fchmodat, fchmodat2, fchmod."""
    for path in PATHS:
        bench.run(f"chmod({text(path)}, 640)", "chmod", bench.path(path), 0o640)
    for mode in (0, 0o7777, 0o2644, 0o100644, 0o177777, 0x1_0000_0000 | 0o600):
        for path in (b"file", b"dir", b"fifo"):
            bench.run(f"chmod({text(path)}, {mode:o})", "chmod", path, mode)
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            bench.run(f"fchmodat({kind}, {text(path)})", "fchmodat", dirfd, bench.path(path), 0o640)
            for name, flags in (
                ("0", 0),
                ("NOFOLLOW", AT_SYMLINK_NOFOLLOW),
                ("EMPTY", AT_EMPTY_PATH),
                ("BAD", 1),
            ):
                label = f"fchmodat2({kind}, {text(path)}, {name})"
                bench.run(label, "fchmodat2", dirfd, bench.path(path), 0o640, flags)
    bench.run("fchmodat2('link', NOFOLLOW)", "fchmodat2", AT_FDCWD, b"link", 0o640, AT_SYMLINK_NOFOLLOW)
    for kind, descriptor in FDS.items():
        for mode in (0o600, 0o4755):
            bench.run(f"fchmod({kind}, {mode:o})", "fchmod", descriptor, mode)


def owners(bench: Bench) -> None:
    """chown, lchown, fchownat, fchown: to ourselves, to nobody in particular, to another."""
    me, group = os.getuid(), os.getgid()
    for path in PATHS:
        bench.run(f"chown({text(path)}, me)", "chown", bench.path(path), me, group)
        bench.run(f"lchown({text(path)}, -1)", "lchown", bench.path(path), -1, -1)
    for who, (uid, gid) in {
        "other": (12345, 12345),
        "uid": (12345, -1),
        "group": (-1, 12345),
        "none": (-1, -1),
    }.items():
        for call in ("chown", "lchown"):
            for path in (b"file", b"link", b"dir", b"dangling", b"absent"):
                bench.run(f"{call}({text(path)}, {who})", call, path, uid, gid)
        for kind, descriptor in FDS.items():
            bench.run(f"fchown({kind}, {who})", "fchown", descriptor, uid, gid)
    bench.tree.fresh or bench.tree.build()
    os.chmod("file", 0o6755)
    bench.tree.fresh = False
    bench.tree.before = bench.tree.snapshot()
    bench.tree.fresh = True
    bench.run("chown(set-id file, me)", "chown", b"file", me, group)
    for kind, dirfd in DIRFDS.items():
        for path in AT_PATHS:
            for name, flags in (
                ("0", 0),
                ("NOFOLLOW", AT_SYMLINK_NOFOLLOW),
                ("EMPTY", AT_EMPTY_PATH),
                ("BAD", 1),
            ):
                label = f"fchownat({kind}, {text(path)}, {name})"
                bench.run(label, "fchownat", dirfd, bench.path(path), me, group, flags)


def sizes(bench: Bench) -> None:
    """truncate."""
    for path in PATHS:
        bench.run(f"truncate({text(path)}, 3)", "truncate", bench.path(path), 3)
    for length in (0, 100, -1, 1 << 62):
        for path in (b"file", b"dir", b"fifo", b"absent", b"/dev/null"):
            bench.run(f"truncate({text(path)}, {length})", "truncate", path, length)


NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
FORMS = {
    "set": (1000, 5, 2000, 6), "now,now": (0, NOW, 0, NOW), "omit,omit": (0, OMIT, 0, OMIT),
    "omit,set": (0, OMIT, 2000, 6), "set,omit": (1000, 5, 0, OMIT), "now,omit": (0, NOW, 0, OMIT),
    "bad nsec": (1000, 1_000_000_000, 2000, 6), "negative nsec": (1000, -1, 2000, 6),
    "before 1970": (-5, 0, -5, 0),
}  # fmt: skip


def times(bench: Bench) -> None:
    """utimensat in all its forms, utimes, utime, futimesat."""
    shapes: dict[str, ctypes.Array | int] = {
        name: ctypes.create_string_buffer(struct.pack("qqqq", *form), 32) for name, form in FORMS.items()
    }
    shapes |= {"NULL": 0, "<16>": EFAULT_POINTER}
    for path in PATHS:
        bench.run(f"utimensat({text(path)}, set)", "utimensat", AT_FDCWD, bench.path(path), shapes["set"], 0)
    for name, shape in shapes.items():
        for path in (b"file", b"link", b"dangling", b"dir", b"absent", b"fifo"):
            for flag, flags in (("0", 0), ("NOFOLLOW", AT_SYMLINK_NOFOLLOW), ("BAD", 1)):
                label = f"utimensat({text(path)}, {name}, {flag})"
                bench.run(label, "utimensat", AT_FDCWD, path, shape, flags)
            bench.run(f"utimes({text(path)}, {name})", "utimes", path, shape)
            bench.run(f"futimesat({text(path)}, {name})", "futimesat", AT_FDCWD, path, shape)
            bench.run(f"utime({text(path)}, {name})", "utime", path, shape)
    for kind, dirfd in DIRFDS.items():
        for path in [*AT_PATHS, 0]:
            for flag, flags in (("0", 0), ("EMPTY", AT_EMPTY_PATH), ("NOFOLLOW", AT_SYMLINK_NOFOLLOW)):
                label = f"utimensat({kind}, {text(path)}, set, {flag})"
                bench.run(label, "utimensat", dirfd, bench.path(path), shapes["set"], flags)


NAMES = [
    b"user.one", b"user.", b"user", b"", b"nonsense.x", b"user." + b"n" * 250,
    b"user." + b"n" * 251, b"trusted.x",
    b"security.x", b"system.x", EFAULT_POINTER, b"user.\xff\n",
]  # fmt: skip


def xattrs(bench: Bench) -> None:
    """setxattr, getxattr and removexattr by path, by link and by descriptor."""
    value = ctypes.create_string_buffer(b"value", 70000)
    for path in PATHS:
        for call in ("setxattr", "lsetxattr"):
            bench.run(f"{call}({text(path)})", call, bench.path(path), b"user.one", value, 5, 0)
        for call in ("removexattr", "lremovexattr"):
            bench.run(f"{call}({text(path)})", call, bench.path(path), b"user.one")
        bench.run(f"getxattr({text(path)})", "getxattr", bench.path(path), b"user.one", value, 10)
    for name in NAMES:
        bench.run(f"setxattr('file', {text(name)})", "setxattr", b"file", name, value, 5, 0)
        bench.run(f"removexattr('file', {text(name)})", "removexattr", b"file", name)
        bench.run(f"getxattr('file', {text(name)})", "getxattr", b"file", name, value, 10)
    for flags in (1, 2, 3, 4):
        bench.run(f"setxattr('file', flags {flags})", "setxattr", b"file", b"user.one", value, 5, flags)
    for size in (0, 3000, 65536, 65537):
        bench.run(f"setxattr('file', {size} bytes)", "setxattr", b"file", b"user.one", value, size, 0)
    bench.run("setxattr('file', value <16>)", "setxattr", b"file", b"user.one", EFAULT_POINTER, 5, 0)
    bench.run("setxattr('file', NULL, 0)", "setxattr", b"file", b"user.one", 0, 0, 0)
    for kind, descriptor in FDS.items():
        bench.run(f"fsetxattr({kind})", "fsetxattr", descriptor, b"user.one", value, 5, 0)
        bench.run(f"fremovexattr({kind})", "fremovexattr", descriptor, b"user.one")
        bench.run(f"fgetxattr({kind})", "fgetxattr", descriptor, b"user.one", value, 10)
    bench.tree.fresh or bench.tree.build()
    os.setxattr("file", b"user.two", b"2")
    bench.tree.before = bench.tree.snapshot()
    bench.run("setxattr(present, CREATE)", "setxattr", b"file", b"user.two", value, 5, 1)
    bench.run("setxattr(present, REPLACE)", "setxattr", b"file", b"user.two", value, 5, 2)
    bench.run("removexattr(absent)", "removexattr", b"file", b"user.nine")


GETFLAGS, SETFLAGS, NODUMP = 0x80086601, 0x40086602, 0x40


def inode_flags(bench: Bench) -> None:
    """FS_IOC_SETFLAGS, read back: it works on descriptors that were opened for reading."""
    for kind, descriptor in FDS.items():
        for name, word in (("NODUMP", NODUMP), ("none", 0)):
            now = ctypes.create_string_buffer(8)
            raw("ioctl", descriptor, GETFLAGS, now)
            flags = ctypes.create_string_buffer(struct.pack("l", struct.unpack("l", now.raw)[0] & ~NODUMP | word), 8)
            bench.run(f"FS_IOC_SETFLAGS({kind}, {name})", "ioctl", descriptor, SETFLAGS, flags)
            got = ctypes.create_string_buffer(8)
            value = raw("ioctl", descriptor, GETFLAGS, got)
            nodump = bool(struct.unpack("l", got.raw)[0] & NODUMP)
            print(f"FS_IOC_GETFLAGS({kind}) -> {name_of(value)} nodump={nodump}")
    bench.run("FS_IOC_SETFLAGS(file, <16>)", "ioctl", FIXED["file"], SETFLAGS, EFAULT_POINTER)


def sockets(bench: Bench) -> None:
    """bind(2) of unix paths: the name that comes back, and what it leaves in the tree (P77, P99)."""
    long_ = b"s" * 107
    for path in (b"made", b"file", b"dir", b"dangling", b"absent/x", b"file/x", b"", b"dir/made",
                         b"./made", long_,
                 b"s" * 108, b"$CWD/made"):  # fmt: skip
        where = bench.path(path)
        assert isinstance(where, bytes)
        if len(where) > 108:
            continue
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):  # there are no unix datagrams (P48)
            with socket.socket(socket.AF_UNIX, kind) as end:
                address = ctypes.create_string_buffer(struct.pack("H", socket.AF_UNIX) + where + b"\0", 128)
                size = min(2 + len(where) + 1, 110)
                value = bench.run(f"bind({kind.name}, {text(path)})", "bind", end.fileno(), address, size)
                name = end.getsockname() if value == 0 else ""
                shown = name.replace(os.fsdecode(bench.tree.cwd), "$CWD") if isinstance(name, str) else name
                print(f"  named {shown!r}")
    with socket.socket(socket.AF_UNIX) as end:
        for size in (0, 1, 2, 3, 111, 200):
            address = ctypes.create_string_buffer(struct.pack("H", socket.AF_UNIX) + b"zz\0", 256)
            bench.run(f"bind(size {size})", "bind", end.fileno(), address, size) if size != 2 else None
    for kind, descriptor in FDS.items():
        address = ctypes.create_string_buffer(struct.pack("H", socket.AF_UNIX) + b"zz\0", 128)
        bench.run(f"bind({kind}, 'zz')", "bind", descriptor, address, 5)


def places(bench: Bench) -> None:
    """chdir and fchdir, and what a relative name means after them."""
    for path in PATHS:
        where = bench.path(path)
        value = raw("chdir", where)  # type: ignore[arg-type]
        if value == 0:
            print(f"chdir({text(path)}) -> ok at {os.path.relpath(os.getcwd(), bench.tree.cwd)!r}")
            bench.run(
                f"  creat('here') in {text(path)}",
                "openat",
                AT_FDCWD,
                b"here",
                os.O_CREAT | 1,
                0o600,
                opens=True,
            )
            bench.tree.build()
        else:
            print(f"chdir({text(path)}) -> {name_of(value)}")
    for kind, descriptor in FDS.items():
        value = raw("fchdir", descriptor)
        print(f"fchdir({kind}) -> {name_of(value)}")
        if value == 0:
            bench.run(f"  creat('here') in {kind}", "openat", AT_FDCWD, b"here", os.O_CREAT | 1, 0o600, opens=True)
            bench.tree.build()


SCRIPTS = {
    b"script": b"#!/bin/sh\nexit 7\n", b"lost": b"#!/nonexistent/interpreter\n", b"bare": b"exit 3\n",
    b"nothing": b"", b"long": b"#!" + b"/" * 300 + b"bin/sh\n",
}  # fmt: skip


def execs(bench: Bench) -> None:
    """execve and execveat: errno, or the exit status of what ran."""
    bench.tree.fresh or bench.tree.build()
    for name, body in SCRIPTS.items():
        with open(name, "wb") as stream:
            stream.write(body)
        os.chmod(name, 0o755)
    os.symlink("script", "to_script")
    bench.tree.before = bench.tree.snapshot()
    argv = (ctypes.c_char_p * 2)(b"name", None)

    def attempt(label: str, call: str, *args: object) -> None:
        child = os.fork()
        if child == 0:
            value = raw(call, *args)  # type: ignore[arg-type]
            os._exit(100 + min(-value, 150))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{label} -> {name_of(100 - code) if code >= 100 else f'exit {code}'}{bench.tree.changes()}")

    for path in [*SCRIPTS, b"to_script", b"file", b"dir", b"absent", b"dangling", b"loop",
                         b"script/", b"file/x", b"",
                 b"n" * 256, EFAULT_POINTER, b"/bin/true", b"/bin/false", b"fifo"]:  # fmt: skip
        attempt(f"execve({text(path)})", "execve", path, argv, 0)
    attempt("execve(argv <16>)", "execve", b"script", EFAULT_POINTER, 0)
    for kind, dirfd in DIRFDS.items():
        for path, flags in ((b"script", 0), (b"", AT_EMPTY_PATH), (b"../script", 0), (b"to_script", 0x100)):
            attempt(f"execveat({kind}, {text(path)}, {flags:#x})", "execveat", dirfd, path, argv, 0, flags)
    program = os.open("/bin/false", os.O_RDONLY)
    for label, descriptor in (("program", program), ("O_PATH", os.open("/bin/false", os.O_PATH))):
        attempt(f"execveat({label}, '', EMPTY)", "execveat", descriptor, b"", argv, 0, AT_EMPTY_PATH)
        os.close(descriptor)
    bench.tree.fresh = False


SECTIONS = {
    "modes": modes,
    "owners": owners,
    "sizes": sizes,
    "times": times,
    "xattrs": xattrs,
    "inode_flags": inode_flags,
    "sockets": sockets,
    "places": places,
    "execs": execs,
}
