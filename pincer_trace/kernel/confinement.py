"""A process that only looks: no call is left to it that changes anything, reaches others, or starts something. And one
that relays: it connects besides, by TCP to named ports alone, and asks for the addresses of names.

Two layers that do not depend on each other: a Landlock domain without any right to write (`landlock.py`), and a filter
made from the table of calls. The filter also holds what Landlock does not know: modes, owners, times, attributes,
sockets by path, and, on a kernel without Landlock, opening for writing.
"""

from __future__ import annotations

import errno
import os
import struct

from pincer_trace.kernel import libc, table
from pincer_trace.kernel.filter import guard
from pincer_trace.kernel.landlock import Floor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LD, _JEQ, _JSET, _RET = 0x20, 0x15, 0x45, 0x06  # <linux/bpf_common.h>
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NR, _FLAGS = 0, {"open": 24, "openat": 32}  # offsets in struct seccomp_data: number, low half of the flags' register
_CHANGES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
_DAC_READ_SEARCH, _LEASE = 2, 28  # <linux/capability.h>
# What the table lets a worker do by itself, and an onlooker has no use for: others, and what begins something.
_REACHES = frozenset(
    (
        "socket", "socketpair", "connect", "listen", "accept", "accept4", "kill", "tkill", "tgkill",
        "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "pidfd_open", "ptrace", "fork", "vfork",
        "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv",
        "msgctl", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr", "setrlimit", "io_setup",
        "io_submit", "inotify_init", "inotify_init1", "inotify_add_watch",
    )
)  # fmt: skip
# For whoever accepts connections and makes them; threads look names up, by datagrams. `clone` starts no program.
RELAYS = frozenset(("socket", "connect", "accept4", "clone", "sendmmsg", "ioctl", "setsockopt"))
_COMMAND, _SOCKET_IOCTLS = 24, (0x5421, 0x541B)  # FIONBIO, FIONREAD
_STAY = frozenset(("fcntl", "sendto", "sendmsg"))  # the cases that the table refuses of them do nothing here
_ERRNO = {"ioctl": errno.ENOTTY, "openat2": errno.ENOSYS, "clone3": errno.ENOSYS}  # where libraries go on without it


def confine() -> None:
    """Restrict the calling process, which has one thread for good. Raises OSError: then it must not go on."""
    _drop_capabilities(1 << _DAC_READ_SEARCH | 1 << _LEASE)  # reading another's file, and knowing that nobody writes it
    libc.set_no_new_privileges()
    Floor.probe().restrict_to_reading()
    libc.install_filter(onlooker(table.machine()), 0)


def confine_relay(ports: Sequence[int]) -> None:
    """The same for a process with one thread so far, that relays to these TCP ports. Raises OSError."""
    _drop_capabilities(0)
    libc.set_no_new_privileges()
    Floor.probe().restrict_to_reading(ports)
    libc.install_filter(onlooker(table.machine(), RELAYS), 0)


def _drop_capabilities(kept: int) -> None:
    """As root."""
    _, permitted, _ = libc.get_capabilities()
    kept &= permitted
    libc.set_capabilities(kept, kept, 0)


def onlooker(architecture: str, beside: frozenset[str] = frozenset()) -> bytes:
    """The filter: an array of `struct sock_filter`. What is not in the table is ENOSYS; `beside` is allowed too."""
    code = [(_LD, 0, 0, _NR)]
    for row in table.load(architecture).values():
        if row.name in _FLAGS:
            code += [
                (_JEQ, 0, 4, row.number),
                (_LD, 0, 0, _FLAGS[row.name]),
                (_JSET, 0, 1, _CHANGES),
                (_RET, 0, 0, _REFUSE | errno.EACCES),
                (_RET, 0, 0, _ALLOW),
            ]
        elif row.name == "ioctl" and row.name in beside:
            code += [
                (_JEQ, 0, 5, row.number),
                (_LD, 0, 0, _COMMAND),
                *((_JEQ, at, 0, command) for at, command in zip((2, 1), _SOCKET_IOCTLS, strict=True)),
                (_RET, 0, 0, _REFUSE | errno.ENOTTY),
                (_RET, 0, 0, _ALLOW),
            ]
        elif row.name not in _STAY | beside and (row.disposition != "allow" or row.name in _REACHES):
            code += [(_JEQ, 0, 1, row.number), (_RET, 0, 0, _REFUSE | _ERRNO.get(row.name, errno.EPERM))]
    code.append((_RET, 0, 0, _ALLOW))
    return guard(architecture) + b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
