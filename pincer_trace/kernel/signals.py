"""Signals as readable events, with who sent them. signalfd(2)"""

from __future__ import annotations

import ctypes
import os
import struct

from pincer_trace.kernel.libc import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_INFO_SIZE = 128  # struct signalfd_siginfo
_HEAD = struct.Struct("=Iii")  # number, errno, code


def signal_descriptor(numbers: Iterable[int]) -> int:
    """A descriptor that becomes readable when one of `numbers` (which must be blocked) is pending."""
    mask = ctypes.c_uint64(sum(1 << (number - 1) for number in numbers))
    buffer = (ctypes.c_uint64 * 16)(mask.value)
    descriptor: int = libc.signalfd(-1, ctypes.byref(buffer), os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor


def read_signals(descriptor: int) -> list[tuple[int, int]]:
    """The pending ones as (number, code); code 0x80 (SI_KERNEL) came from the terminal. sigaction(2)"""
    found: list[tuple[int, int]] = []
    while True:
        try:
            data = os.read(descriptor, _INFO_SIZE * 16)
        except BlockingIOError:
            return found
        for at in range(0, len(data), _INFO_SIZE):
            number, _, code = _HEAD.unpack_from(data, at)
            found.append((number, code))
