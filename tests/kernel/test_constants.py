"""P3: every number of the kernel's interface that the package spells out, against a C program that includes the
headers. A wrong flag or ioctl number is silent otherwise.
"""

from __future__ import annotations

import errno
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from pincer_trace.executor import identity, terminals
from pincer_trace.kernel import landlock, libc, notify, table

INCLUDES = (
    "stddef.h", "stdio.h", "fcntl.h", "sched.h", "linux/seccomp.h", "linux/audit.h", "linux/openat2.h",
    "linux/landlock.h", "linux/capability.h", "linux/prctl.h", "linux/fs.h", "linux/fsverity.h", "linux/fscrypt.h",
    "linux/btrfs.h", "asm/ioctls.h", "linux/fiemap.h", "linux/msdos_fs.h",
)  # fmt: skip

# What the header says -> what the package says. The header's word is any C expression.
PAIRS = {
    "SECCOMP_IOCTL_NOTIF_RECV": notify.IOCTL_RECV,
    "SECCOMP_IOCTL_NOTIF_SEND": notify.IOCTL_SEND,
    "SECCOMP_IOCTL_NOTIF_ID_VALID": notify.IOCTL_ID_VALID,
    "SECCOMP_IOCTL_NOTIF_ADDFD": notify.IOCTL_ADDFD,
    "SECCOMP_IOCTL_NOTIF_SET_FLAGS": notify.IOCTL_SET_FLAGS,
    "SECCOMP_USER_NOTIF_FLAG_CONTINUE": notify.FLAG_CONTINUE,
    "SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP": notify.FD_SYNC_WAKE_UP,
    "SECCOMP_ADDFD_FLAG_SEND": notify.ADDFD_FLAG_SEND,
    "SECCOMP_ADDFD_FLAG_SETFD": notify.ADDFD_FLAG_SETFD,
    "sizeof(struct seccomp_notif)": notify.NOTIFICATION_SIZE,
    "sizeof(struct seccomp_notif_resp)": notify._RESPONSE.size,
    "sizeof(struct seccomp_notif_addfd)": notify._ADDFD.size,
    "SECCOMP_SET_MODE_FILTER": libc.SECCOMP_SET_MODE_FILTER,
    "SECCOMP_FILTER_FLAG_NEW_LISTENER": libc.FILTER_FLAG_NEW_LISTENER,
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV": libc.FILTER_FLAG_WAIT_KILLABLE_RECV,
    "AUDIT_ARCH_X86_64": table.AUDIT_ARCH["x86_64"],
    "AUDIT_ARCH_AARCH64": table.AUDIT_ARCH["aarch64"],
    "AT_FDCWD": libc.AT_FDCWD,
    "AT_EMPTY_PATH": libc.AT_EMPTY_PATH,
    "AT_SYMLINK_FOLLOW": libc.AT_SYMLINK_FOLLOW,
    "AT_SYMLINK_NOFOLLOW": libc.AT_SYMLINK_NOFOLLOW,
    "RESOLVE_NO_XDEV": libc.RESOLVE_NO_XDEV,
    "RESOLVE_NO_MAGICLINKS": libc.RESOLVE_NO_MAGICLINKS,
    "RESOLVE_NO_SYMLINKS": libc.RESOLVE_NO_SYMLINKS,
    "RESOLVE_BENEATH": libc.RESOLVE_BENEATH,
    "RESOLVE_IN_ROOT": libc.RESOLVE_IN_ROOT,
    "RESOLVE_CACHED": libc.RESOLVE_CACHED,
    "sizeof(struct open_how)": libc.HOW_SIZE.value,
    "PR_SET_PDEATHSIG": libc.PR_SET_PDEATHSIG,
    "PR_SET_DUMPABLE": libc.PR_SET_DUMPABLE,
    "PR_SET_NO_NEW_PRIVS": libc.PR_SET_NO_NEW_PRIVS,
    "PR_SET_CHILD_SUBREAPER": libc.PR_SET_CHILD_SUBREAPER,
    "PR_CAPBSET_DROP": libc.PR_CAPBSET_DROP,
    "_LINUX_CAPABILITY_VERSION_3": libc._CAPABILITY_VERSION_3,
    "CAP_CHOWN": identity.CHOWN,
    "CAP_DAC_OVERRIDE": identity.DAC_OVERRIDE,
    "CAP_DAC_READ_SEARCH": identity.DAC_READ_SEARCH,
    "CAP_FOWNER": identity.FOWNER,
    "CAP_FSETID": identity.FSETID,
    "CAP_SETGID": identity.SETGID,
    "CAP_SETUID": identity.SETUID,
    "CAP_SETPCAP": identity.SETPCAP,
    "CAP_SYS_PTRACE": identity.SYS_PTRACE,
    "LANDLOCK_ACCESS_FS_WRITE_FILE": landlock.WRITE_FILE,
    "LANDLOCK_ACCESS_FS_REMOVE_DIR": landlock.REMOVE_DIR,
    "LANDLOCK_ACCESS_FS_REMOVE_FILE": landlock.REMOVE_FILE,
    "LANDLOCK_ACCESS_FS_MAKE_CHAR": landlock.MAKE_CHAR,
    "LANDLOCK_ACCESS_FS_MAKE_DIR": landlock.MAKE_DIR,
    "LANDLOCK_ACCESS_FS_MAKE_REG": landlock.MAKE_REG,
    "LANDLOCK_ACCESS_FS_MAKE_SOCK": landlock.MAKE_SOCK,
    "LANDLOCK_ACCESS_FS_MAKE_FIFO": landlock.MAKE_FIFO,
    "LANDLOCK_ACCESS_FS_MAKE_BLOCK": landlock.MAKE_BLOCK,
    "LANDLOCK_ACCESS_FS_MAKE_SYM": landlock.MAKE_SYM,
    "LANDLOCK_ACCESS_FS_REFER": landlock.REFER,
    "LANDLOCK_ACCESS_FS_TRUNCATE": landlock.TRUNCATE,
    "LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET": landlock.SCOPE_ABSTRACT_UNIX_SOCKET,
    "LANDLOCK_SCOPE_SIGNAL": landlock.SCOPE_SIGNAL,
    "CLONE_NEWUSER": table.CLONE_NEWUSER,
    "PR_SET_MM": table._PR_SET_MM,
    "TIOCGPTPEER": table.TIOCGPTPEER,
    "TIOCGPTN": terminals._TIOCGPTN,
    "FS_IOC_SETFLAGS": table.FS_IOC_SETFLAGS,
    "FS_IOC32_SETFLAGS": table.FS_IOC32_SETFLAGS,
    "FS_IOC_FSSETXATTR": table.FS_IOC_FSSETXATTR,
    "FS_IOC_SETVERSION": table.FS_IOC_SETVERSION,
    "FS_IOC32_SETVERSION": table.FS_IOC32_SETVERSION,
}

# Too new for some distributions' headers: their text there, so that nothing is skipped (Linux 6.18, the same files).
NEWER = {
    "SECCOMP_IOCTL_NOTIF_SET_FLAGS": "SECCOMP_IOW(4, __u64)",
    "SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP": "(1UL << 0)",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV": "(1UL << 5)",
    "LANDLOCK_ACCESS_FS_TRUNCATE": "(1ULL << 14)",
    "LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET": "(1ULL << 0)",
    "LANDLOCK_SCOPE_SIGNAL": "(1ULL << 1)",
}

REFUSED_IOCTLS = (
    "TIOCSTI", "TIOCLINUX", "FS_IOC_ENABLE_VERITY", "FS_IOC_SETFSLABEL", "FS_IOC_SET_ENCRYPTION_POLICY",
    "BTRFS_IOC_SNAP_CREATE", "BTRFS_IOC_SUBVOL_CREATE", "BTRFS_IOC_SNAP_DESTROY", "BTRFS_IOC_SNAP_CREATE_V2",
    "BTRFS_IOC_SUBVOL_CREATE_V2", "BTRFS_IOC_SNAP_DESTROY_V2", "BTRFS_IOC_SUBVOL_SETFLAGS", "FAT_IOCTL_SET_ATTRIBUTES",
)  # fmt: skip
READING_IOCTLS = (
    "FS_IOC_GETFLAGS", "FS_IOC32_GETFLAGS", "FS_IOC_GETVERSION", "FS_IOC32_GETVERSION", "_IOR('f', 3, long)",
    "FS_IOC_FSGETXATTR", "FS_IOC_FIEMAP", "FS_IOC_GETFSLABEL", "FS_IOC_GET_ENCRYPTION_POLICY",
    "FS_IOC_GET_ENCRYPTION_POLICY_EX", "FS_IOC_GET_ENCRYPTION_KEY_STATUS", "FS_IOC_GET_ENCRYPTION_NONCE",
    "FS_IOC_MEASURE_VERITY", "FS_IOC_READ_VERITY_METADATA", "BTRFS_IOC_FS_INFO", "BTRFS_IOC_DEV_INFO",
    "BTRFS_IOC_SPACE_INFO", "BTRFS_IOC_SUBVOL_GETFLAGS", "BTRFS_IOC_GET_SUBVOL_INFO", "BTRFS_IOC_GET_SUBVOL_ROOTREF",
    "BTRFS_IOC_INO_LOOKUP", "BTRFS_IOC_INO_LOOKUP_USER", "BTRFS_IOC_GET_FEATURES", "BTRFS_IOC_TREE_SEARCH",
    "BTRFS_IOC_TREE_SEARCH_V2",
)  # fmt: skip
SHARING_IOCTLS = ("FICLONE", "FICLONERANGE", "FIDEDUPERANGE")


@functools.cache
def header_values(folder: Path) -> dict[str, int]:
    """Each expression that the headers here know, as the compiler sees it."""
    lines = ["#define _GNU_SOURCE", *(f"#include <{name}>" for name in INCLUDES), "int main(void) {"]
    offsets = [f"offsetof(struct seccomp_{where})" for where in OFFSETS]
    for word in [*PAIRS, *REFUSED_IOCTLS, *READING_IOCTLS, *SHARING_IOCTLS, *offsets]:
        if word in NEWER:
            lines += [f"#ifndef {word}", f"#define {word} {NEWER[word]}", "#endif"]
        lines.append(f'printf("%s\\t%lld\\n", "{word}", (long long)({word}));')
    source, binary = folder / "constants.c", folder / "constants"
    source.write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(["gcc", "-o", binary, source], check=True)
    printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    return {word: int(value) for word, _, value in (line.partition("\t") for line in printed.splitlines())}


OFFSETS = {
    "notif, id": 0, "notif, pid": 8, "notif, flags": 12, "notif, data.nr": 16, "notif, data.arch": 20,
    "notif, data.instruction_pointer": 24, "notif, data.args": 32,
    "notif_resp, id": 0, "notif_resp, val": 8, "notif_resp, error": 16, "notif_resp, flags": 20,
    "notif_addfd, id": 0, "notif_addfd, flags": 8, "notif_addfd, srcfd": 12, "notif_addfd, newfd": 16,
    "notif_addfd, newfd_flags": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return header_values(tmp_path_factory.mktemp("constants"))


@pytest.mark.parametrize("word", PAIRS)
def test_p03_constant(header: dict[str, int], word: str) -> None:
    assert PAIRS[word] & 0xFFFFFFFF == header[word] & 0xFFFFFFFF


def test_p03_structures(header: dict[str, int]) -> None:
    """The order in which the package packs and unpacks is the header's."""
    assert {where: header[f"offsetof(struct seccomp_{where})"] for where in OFFSETS} == OFFSETS
    raw = notify._ADDFD.pack(1, 2, 3, 4, 5)
    assert [int.from_bytes(raw[at : at + 4], "little") for at in (0, 8, 12, 16, 20)] == [1, 2, 3, 4, 5]
    raw = notify._RESPONSE.pack(1, 2, -3, 4)
    assert [int.from_bytes(raw[a:b], "little", signed=True) for a, b in ((0, 8), (8, 16), (16, 20), (20, 24))] == [
        1,
        2,
        -3,
        4,
    ]
    raw = bytes(range(80))
    assert notify._NOTIFICATION.unpack(raw)[3] == int.from_bytes(raw[16:20], "little")
    assert notify._NOTIFICATION.unpack(raw)[6] == int.from_bytes(raw[32:40], "little")


def test_p03_refused_ioctls(header: dict[str, int]) -> None:
    assert set(table._REFUSED_IOCTLS) == {header[word] & 0xFFFFFFFF for word in REFUSED_IOCTLS}


def test_p03_reading_ioctls(header: dict[str, int]) -> None:
    assert set(table._READING_IOCTLS) == {header[word] & 0xFFFFFFFF for word in READING_IOCTLS}
    assert set(table._SHARING_IOCTLS) == {header[word] & 0xFFFFFFFF for word in SHARING_IOCTLS}


def test_p03_the_kernel_takes_the_sizes() -> None:
    """SECCOMP_GET_NOTIF_SIZES of the running kernel: a larger structure would be written past our buffer."""
    script = (
        "import ctypes; from pincer_trace.kernel import libc; sizes = (ctypes.c_uint16 * 3)();"
        "libc.call('seccomp', 3, 0, ctypes.byref(sizes)); print(*sizes)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(notify.NOTIFICATION_SIZE), str(notify._RESPONSE.size), "64"]


def test_p03_errno_of_restart() -> None:
    """ERESTARTSYS is the kernel's own (include/linux/errno.h): no user header has it, and no errno may collide."""
    assert notify.ERESTARTSYS == 512
    assert notify.ERESTARTSYS not in errno.errorcode


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_p03_numbers_of_the_table(architecture: str, tmp_path: Path) -> None:
    """Each number of the table that the headers here know has the table's name, and no known one is missing (P33)."""
    text = '#include <asm/unistd.h>\n' if architecture == "x86_64" else (
        "#define __ARCH_WANT_NEW_STAT\n#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_SET_GET_RLIMIT\n"
        "#define __ARCH_WANT_TIME32_SYSCALLS_NOT\n#define __BITS_PER_LONG 64\n#define __ARCH_WANT_SYS_CLONE3\n"
        "#define __ARCH_WANT_MEMFD_SECRET\n#include <asm-generic/unistd.h>\n"
    )  # fmt: skip
    source = tmp_path / "numbers.c"
    source.write_text(text)
    defined = subprocess.run(["gcc", "-E", "-dM", source], check=True, capture_output=True, text=True).stdout
    macros = dict(line.split(" ", 2)[1:] for line in defined.splitlines() if line.count(" ") >= 2)
    known = {}
    for word, value in macros.items():
        if word.startswith("__NR_"):
            while value in macros:
                value = macros[value]
            if value.isdigit():
                known[word.removeprefix("__NR_").removeprefix("3264_")] = int(value)
    for word in ("syscalls", "arch_specific_syscall"):
        known.pop(word, None)
    ours = {row.name: row.number for row in table.load(architecture).values()}
    renamed = {"fadvise64_64": "fadvise64"}
    wrong = {
        name: (number, ours.get(name, ours.get(renamed.get(name, ""))))
        for name, number in known.items()
        if number not in (ours.get(name), ours.get(renamed.get(name, "")))
    }
    assert len(known) > 300
    assert not wrong, f"header, table: {wrong}"
