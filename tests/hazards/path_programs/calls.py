"""What the attacker programs of the path tests share: raw system calls that give an errno, and a report in JSON.

Sent to the worker as the head of `python -c`. `call("openat", ...)` gives the result, or minus the errno; `note` adds
a line to the report, which `report()` prints.
"""

import ctypes
import errno
import json
import os
import platform
import stat  # noqa: F401 - used by the programs that follow this head
import sys

_X86 = {
    "open": 2, "fcntl": 72, "mkdir": 83, "chmod": 90, "fchmod": 91, "fchown": 93, "kill": 62, "ptrace": 101,
    "prctl": 157, "fsetxattr": 190, "fremovexattr": 199, "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260,
    "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268, "utimensat": 280,
    "setpriority": 141, "sched_setaffinity": 203, "sched_setscheduler": 144, "ioprio_set": 251, "prlimit64": 302,
    "renameat2": 316, "execveat": 322, "kcmp": 312, "process_vm_readv": 310, "process_vm_writev": 311,
    "openat2": 437, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "fchmodat2": 452, "truncate": 76,
    "ioctl": 16, "tgkill": 234, "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243,
    "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "socketpair": 53, "sendmmsg": 307, "bind": 49,
    "setresuid": 117, "setresgid": 119, "setfsuid": 122,
}  # fmt: skip
_ARM = {
    "fcntl": 25, "fchmod": 52, "fchown": 55, "kill": 129, "ptrace": 117, "prctl": 167, "fsetxattr": 7,
    "fremovexattr": 16, "openat": 56, "mkdirat": 34, "mknodat": 33, "fchownat": 54, "unlinkat": 35, "renameat": 38,
    "linkat": 37, "symlinkat": 36, "fchmodat": 53, "utimensat": 88, "setpriority": 140, "sched_setaffinity": 122,
    "sched_setscheduler": 119, "ioprio_set": 30, "prlimit64": 261, "renameat2": 276, "execveat": 281, "kcmp": 272,
    "process_vm_readv": 270, "process_vm_writev": 271, "openat2": 437, "pidfd_open": 434, "pidfd_getfd": 438,
    "pidfd_send_signal": 424, "fchmodat2": 452, "truncate": 45, "ioctl": 29, "tgkill": 131, "mq_open": 180,
    "mq_unlink": 181, "mq_timedsend": 182, "mq_timedreceive": 183, "socket": 198, "connect": 203,
    "sendto": 206, "sendmsg": 211, "socketpair": 199, "sendmmsg": 269, "bind": 200, "setresuid": 147, "setresgid": 149,
    "setfsuid": 151,
}  # fmt: skip
NUMBERS = _X86 if platform.machine() == "x86_64" else _ARM
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR = -100, 0x1000, 0x400, 0x100, 0x200
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_notes = []


def call(name, *arguments):
    """The raw call: its result, or minus the errno. Strings are paths; integers fill whole registers."""
    converted = [ctypes.c_long(NUMBERS[name])]
    for one in arguments:
        if isinstance(one, str):
            one = os.fsencode(one)
        converted.append(ctypes.c_long(one) if isinstance(one, int) else one)
    result = _libc.syscall(*converted)
    return -ctypes.get_errno() if result == -1 else result


def errno_of(function, *arguments, **named):
    """0, or the errno with which a Python call failed."""
    try:
        result = function(*arguments, **named)
    except OSError as error:
        return error.errno
    if function is os.open:
        os.close(result)
    return 0


def word(number):
    """An errno in words, a result that is none as `ok`."""
    return errno.errorcode.get(abs(number), str(number)) if number < 0 else "ok"


def note(label, value):
    """One line of the report."""
    _notes.append([label, value])


def report():
    """Print the notes as JSON."""
    print(json.dumps(_notes))
    sys.stdout.flush()


def make(path, data=b"", mode=0o644):
    """A file with these bytes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(descriptor, data)
    os.close(descriptor)
