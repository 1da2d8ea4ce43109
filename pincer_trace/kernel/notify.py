"""The notification protocol of seccomp_unotify(2): receive, inject descriptors, answer.

`Listener` is the small interface behind which the real kernel sits; `pincer_trace.testing.fakes` has the scripted one.
All answers go through `Listener.respond`, so that a denial can never carry CONTINUE (hazard P9); but for those of
kernel/fastpath.c, which knows no CONTINUE.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct

# <linux/seccomp.h>; a test compares them with what a C program prints (P3)
IOCTL_RECV = 0xC0502100
IOCTL_SEND = 0xC0182101
IOCTL_ID_VALID = 0x40082102
IOCTL_ADDFD = 0x40182103
IOCTL_SET_FLAGS = 0x40082104
FLAG_CONTINUE = 1
ADDFD_FLAG_SETFD, ADDFD_FLAG_SEND = 1, 2
FD_SYNC_WAKE_UP = 1

NOTIFICATION_SIZE = 80
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, nr, arch, instruction pointer, six arguments
_RESPONSE = struct.Struct("=QqiI")  # id, val, error, flags
_ADDFD = struct.Struct("=QIIII")  # id, flags, srcfd, newfd, newfd_flags
_ID = struct.Struct("=Q")
_ZERO = bytes(NOTIFICATION_SIZE)
unpack = _NOTIFICATION.unpack  # a buffer of NOTIFICATION_SIZE

ERESTARTSYS = 512  # the kernel restarts the call or gives EINTR, as the signal's sigaction says (P74)


class Gone(Exception):
    """The notification is no longer valid: its task was killed."""


class Continue:
    """Permission to let the kernel run the call. It cannot be made without the reason why that is safe (P1)."""

    __slots__ = ("reason",)

    REGISTERS_ONLY = "RegistersOnly"  # the decision depends on register values only
    FLOOR_HOLDS = "FloorHolds"  # whatever rewritten memory could name, the kernel floor refuses it
    VERIFIED_AFTER = "VerifiedAfter"  # exec alone: the started image is compared; a label, not a boundary

    def __init__(self, reason: str) -> None:
        if reason not in (self.REGISTERS_ONLY, self.FLOOR_HOLDS, self.VERIFIED_AFTER):
            raise ValueError(reason)
        self.reason = reason


class Listener:
    """The real one. `receive` belongs to one thread; the answering methods may be called from any."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._buffer = bytearray(NOTIFICATION_SIZE)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        try:  # the worker is woken on our processor: a third off each round trip; Linux 6.6
            fcntl.ioctl(descriptor, IOCTL_SET_FLAGS, FD_SYNC_WAKE_UP)
        except OSError:
            pass

    def receive(self) -> tuple[int, ...] | None:
        """(id, pid, flags, nr, arch, ip, six arguments) of the next notification, or None after the last task's end."""
        buffer = self._buffer
        while True:
            buffer[:] = _ZERO  # the kernel refuses a dirty buffer with EINVAL (P4)
            try:
                fcntl.ioctl(self.descriptor, IOCTL_RECV, buffer, True)
            except OSError as error:
                if self.is_over(error.errno):
                    return None
                continue
            return unpack(buffer)

    def is_over(self, error: int | None) -> bool:
        """Whether RECV failed with `error` because the last task has ended. Raises OSError for any other cause."""
        if error in (errno.ENOENT, errno.EINTR):  # a task was killed meanwhile, or none is left (P95)
            return any(event & select.POLLHUP for _, event in self._poll.poll(0))
        raise OSError(error, "SECCOMP_IOCTL_NOTIF_RECV")

    def wait(self, milliseconds: int) -> bool:
        """Whether a notification (or the end) is there within the time. For any thread but the receiving one."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def respond(self, identity: int, value: int = 0, error: int = 0, resume: Continue | None = None) -> bool:
        """Answer: `value`, or the errno `error` (positive), or CONTINUE. False when the task is gone."""
        if error:
            packed = _RESPONSE.pack(identity, 0, -error, 0)
        elif resume is not None:
            packed = _RESPONSE.pack(identity, 0, 0, FLAG_CONTINUE)
        else:
            packed = _RESPONSE.pack(identity, value, 0, 0)
        while True:
            try:
                fcntl.ioctl(self.descriptor, IOCTL_SEND, packed)
                return True
            except OSError as failure:
                if failure.errno == errno.EINTR:
                    continue
                if failure.errno == errno.ENOENT:
                    return False
                raise

    def inject(self, identity: int, source: int, flags: int, instead: int | None = None) -> int:
        """Put `source` into the worker's table, in the place of its descriptor `instead` or at a free number, and tell
        its number there; the call stays paused. Raises OSError, Gone.

        ADDFD without SEND, and the answer apart: a signal that meets ADDFD with SEND after the worker was woken makes
        its call return 0 with nothing installed, and our copy would outlive the answer (P72).
        """
        where = (0, source, 0) if instead is None else (ADDFD_FLAG_SETFD, source, instead)
        packed = bytearray(_ADDFD.pack(identity, *where, flags))  # mutable: else the number is lost (P96)
        while True:
            try:
                number: int = fcntl.ioctl(self.descriptor, IOCTL_ADDFD, packed, True)
                return number
            except OSError as error:
                if error.errno == errno.EINTR:  # nothing was installed
                    continue
                if error.errno == errno.ENOENT:
                    raise Gone from None
                raise

    def valid(self, identity: int) -> bool:
        """Whether the task still waits for this answer."""
        try:
            fcntl.ioctl(self.descriptor, IOCTL_ID_VALID, _ID.pack(identity))
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.close(self.descriptor)
