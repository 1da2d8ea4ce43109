"""Who has a terminal for itself just now. termios(3), proc_pid_stat(5)"""

from __future__ import annotations

import os
import termios

from pincer_trace.kernel import procfs

_PTS_MAJORS = range(136, 144)  # UNIX98_PTY_SLAVE_MAJOR and the seven after it, 256 minors each. <linux/major.h>
_FLAGS = os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
_LOCAL = 3  # c_lflag in what `tcgetattr` gives


def is_cooked(descriptor: int) -> bool:
    """Whether lines are edited by the kernel there: then no program draws on the whole screen. Raises termios.error."""
    return bool(termios.tcgetattr(descriptor)[_LOCAL] & termios.ICANON)


def draws(tid: int) -> bool:
    """Whether a task is in the foreground of a terminal that takes each key by itself: a person waits before it."""
    try:
        stat = procfs.stat(tid)
        major, minor = os.major(stat.tty), os.minor(stat.tty)
        if stat.group != stat.foreground or major not in _PTS_MAJORS:
            return False
        descriptor = os.open(f"/dev/pts/{(major - _PTS_MAJORS.start) * 256 + minor}", _FLAGS)
    except (OSError, ValueError, IndexError):
        return False
    try:
        return os.fstat(descriptor).st_rdev == stat.tty and not is_cooked(descriptor)
    except (OSError, termios.error):
        return False
    finally:
        os.close(descriptor)
