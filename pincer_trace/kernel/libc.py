"""System calls that Python's os module lacks, through libc's syscall(2). Each raises OSError as os functions do."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from pincer_trace.kernel import table

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long

NUMBER = {row.name: row.number for row in table.load().values()}

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_SYMLINK_FOLLOW = 0x400
AT_SYMLINK_NOFOLLOW = 0x100
AT_REMOVEDIR = 0x200  # of unlinkat(2)
AT_EACCESS = 0x200  # of faccessat2(2): the ids in force, not the real ones

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4

RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x01, 0x02, 0x04
RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_CACHED = 0x08, 0x10, 0x20

_SECCOMP = NUMBER["seccomp"]
_OPENAT2 = NUMBER["openat2"]
_OPENAT = NUMBER["openat"]
_PIDFD_OPEN = NUMBER["pidfd_open"]
_PIDFD_GETFD = NUMBER["pidfd_getfd"]
_PRCTL = NUMBER["prctl"]


def call(name: str, *arguments: object) -> int:
    """The system call `name` by its number; integers are passed as longs, bytes as pointers."""
    result: int = syscall(NUMBER[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class OpenHow(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOWS: dict[tuple[int, int, int], object] = {}


def how(flags: int, mode: int = 0, resolve: int = RESOLVE_NO_MAGICLINKS) -> object:
    """A reusable pointer to an `open_how`: the hot path asks for the same few again and again."""
    key = (flags, mode, resolve)
    kept = _HOWS.get(key)
    if kept is None:
        if len(_HOWS) > 512:
            _HOWS.clear()
        kept = _HOWS[key] = ctypes.byref(OpenHow(flags, mode, resolve))
    return kept


OPENAT2 = ctypes.c_long(_OPENAT2)
HOW_SIZE = ctypes.c_size_t(24)
get_errno = ctypes.get_errno


def openat2(directory: int, path: bytes, how_pointer: object) -> int:
    """Open with a pointer made by `how`; the path ends at its first NUL. See openat2(2)."""
    result: int = syscall(OPENAT2, directory, path, how_pointer, HOW_SIZE)
    if result < 0:
        number = get_errno()
        raise OSError(number, path)
    return result


def pidfd_open(pid: int, flags: int = 0) -> int:
    """A descriptor of a process; PIDFD_THREAD: of a thread that is no leader (Linux 6.9). See pidfd_open(2)."""
    return call("pidfd_open", pid, flags)


PIDFD_THREAD = 0x80
_KCMP_FILE = 0


def is_same_file(one: int, other: int) -> bool:
    """Whether two descriptors of ours are copies of each other. See kcmp(2)."""
    return call("kcmp", os.getpid(), os.getpid(), _KCMP_FILE, one, other) == 0


def pidfd_getfd(pidfd: int, descriptor: int) -> int:
    """Copy a descriptor out of the task behind `pidfd`, close-on-exec. See pidfd_getfd(2)."""
    result: int = syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
    if result < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, *arguments: int) -> int:
    """Missing arguments are zero. See prctl(2)."""
    return call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])


PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24


def set_name(name: bytes) -> None:
    """What `ps` calls the calling thread: at most 15 bytes."""
    call("prctl", PR_SET_NAME, name + b"\0", 0, 0, 0)


def set_no_new_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


SECCOMP_SET_MODE_FILTER = 1
FILTER_FLAG_NEW_LISTENER, FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 3, 1 << 5


def install_filter(program: bytes, flags: int = FILTER_FLAG_NEW_LISTENER | FILTER_FLAG_WAIT_KILLABLE_RECV) -> int:
    """Put the calling thread under `program` and give the listener's descriptor, if `flags` ask for one.

    seccomp(2), Linux 5.19.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = _FilterProgram(len(program) // 8, ctypes.addressof(code))
    return call("seccomp", SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(header))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CAPABILITY_VERSION_3 = 0x20080522


def set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    """capset(2) for the calling thread; each set is a 64-bit mask."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(
        effective & 0xFFFFFFFF, permitted & 0xFFFFFFFF, inheritable & 0xFFFFFFFF,
        effective >> 32, permitted >> 32, inheritable >> 32,
    )  # fmt: skip
    call("capset", ctypes.byref(header), ctypes.byref(data))


def get_capabilities() -> tuple[int, int, int]:
    """capget(2) of the calling thread: effective, permitted, inheritable."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    call("capget", ctypes.byref(header), ctypes.byref(data))
    return (data[0] | data[3] << 32, data[1] | data[4] << 32, data[2] | data[5] << 32)


def set_filesystem_ids(uid: int, gid: int, groups: tuple[int, ...]) -> None:
    """setgroups, setfsgid, setfsuid of the calling *thread* (raw calls: glibc's wrappers change every thread)."""
    array = (ctypes.c_uint32 * max(1, len(groups)))(*groups)
    call("setgroups", len(groups), ctypes.byref(array))
    for name, value in (("setfsgid", gid), ("setfsuid", uid)):
        call(name, value)
        if call(name, -1) != value:  # these two report the old value and never fail: ask again
            raise OSError(1, f"{name} {value}")


def set_effective_ids(uid: int, gid: int) -> None:
    """setresgid, setresuid of the calling *thread*, the effective ids alone. Its real and saved ones stay."""
    call("setresgid", -1, gid, -1)
    call("setresuid", -1, uid, -1)


def _plain(name: str, *arguments: object) -> None:
    """A call whose integers are all C ints: ctypes passes those as they are."""
    if syscall(NUMBER[name], *arguments) < 0:
        number = get_errno()
        raise OSError(number, os.strerror(number))


def renameat2(old_directory: int, old: bytes, new_directory: int, new: bytes, flags: int) -> None:
    _plain("renameat2", old_directory, old, new_directory, new, flags)


def linkat(old_directory: int, old: bytes, new_directory: int, new: bytes, flags: int) -> None:
    _plain("linkat", old_directory, old, new_directory, new, flags)


def fchmodat(directory: int, name: bytes, mode: int) -> None:
    _plain("fchmodat", directory, name, mode)


def fchownat(directory: int, name: bytes, uid: int, gid: int, flags: int) -> None:
    _plain("fchownat", directory, name, uid, gid, flags)


def utimensat(directory: int, name: bytes | None, times: bytes | None, flags: int) -> None:
    """Set times, from the worker's own two struct timespec: UTIME_NOW and UTIME_OMIT pass. See utimensat(2)."""
    _plain("utimensat", directory, name, times, flags)


class _Statx(ctypes.Structure):
    """The beginning of `struct statx`, up to the birth time, and room for the rest."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_before", ctypes.c_byte * 0x4C),
        ("birth_seconds", ctypes.c_int64),
        ("birth_nanoseconds", ctypes.c_uint32),
        ("_between", ctypes.c_byte * 0x34),
        ("mount", ctypes.c_uint64),
        ("_after", ctypes.c_byte * 0x68),
    )


_HANDLE = struct.Struct("=Ii")  # `struct file_handle`: size and kind, with room behind it for the largest one
_HANDLE_ROOM = 128
_NO_HANDLE = _HANDLE.pack(_HANDLE_ROOM, 0)


def object_identity(directory: int, name: bytes = b"") -> bytes:
    """What no other object of the file system ever had or will have: its handle, which holds the inode's generation.

    Of `name` in `directory` (not followed), or without a name of what the descriptor holds. Where a file system has no
    handles, its birth time. Raises OSError. See name_to_handle_at(2).
    """
    handle = ctypes.create_string_buffer(_NO_HANDLE, _HANDLE.size + _HANDLE_ROOM)
    mount = ctypes.c_int()
    try:
        _plain("name_to_handle_at", directory, name, handle, ctypes.byref(mount), AT_EMPTY_PATH)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EOVERFLOW):
            raise
        return b"%d" % birth_time(directory, name)
    data = handle.raw
    return data[_HANDLE.size : _HANDLE.size + _HANDLE.unpack_from(data)[0]]


_STATX_BTIME, _STATX_MNT_ID, _STATX_MNT_ID_UNIQUE = 0x800, 0x1000, 0x4000


def birth_time(directory: int, name: bytes = b"") -> int:
    """When `name` in `directory` (not followed), or without a name the descriptor, was made: in ns, 0 if unknown.

    Raises OSError. See statx(2).
    """
    found = _Statx()
    _plain("statx", directory, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, _STATX_BTIME, ctypes.byref(found))
    if not found.mask & _STATX_BTIME:
        return 0
    born: int = found.birth_seconds * 1_000_000_000 + found.birth_nanoseconds
    return born


def mount_id(descriptor: int) -> int:
    """The mount through which it was opened, as mountinfo counts them: no other one has it while it is open.

    Raises OSError. See statx(2), Linux 5.8.
    """
    found = _Statx()
    _plain("statx", descriptor, b"", AT_EMPTY_PATH, _STATX_MNT_ID, ctypes.byref(found))
    if not found.mask & _STATX_MNT_ID:
        raise OSError(errno.EOPNOTSUPP, "mount id")
    mount: int = found.mount
    return mount


def unique_mount_id(descriptor: int) -> int:
    """The same as a number that no other mount ever has; 0 before Linux 6.8. Raises OSError. See statx(2)."""
    found = _Statx()
    _plain("statx", descriptor, b"", AT_EMPTY_PATH, _STATX_MNT_ID_UNIQUE, ctypes.byref(found))
    unique: int = found.mount if found.mask & _STATX_MNT_ID_UNIQUE else 0
    return unique


_STATFS_SIZE, _FSID = 120, slice(56, 64)


def file_system(descriptor: int) -> tuple[int, bytes]:
    """The type (a magic number) and the id of the file system that it lies on. Raises OSError. See statfs(2)."""
    found = ctypes.create_string_buffer(_STATFS_SIZE)
    _plain("fstatfs", descriptor, found)
    return int.from_bytes(found.raw[:8], "little"), found.raw[_FSID]
