"""Faults on demand: every function by which the gateway, twin and executor reach the kernel can be made to fail once.

`Faults` replaces those functions before a bench is made. Armed with a number, the so many-th use by one of our modules
fails, in the way a system call fails (OSError) or as a bug would (any other exception).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
import threading

from pincer_trace.gateway import tasks
from pincer_trace.kernel import libc

_WATCHED = ("pincer_trace.gateway", "pincer_trace.twin", "pincer_trace.executor", "pincer_trace.kernel")
_OS = (
    "open", "fstat", "stat", "lstat", "readlink", "dup", "read", "scandir", "mkdir", "mknod", "symlink", "rename",
    "unlink", "rmdir", "fchmod", "fchown", "setxattr", "removexattr", "truncate", "ftruncate", "umask", "fchdir",
)  # fmt: skip


class Faults:
    """`used` lists the places of the last armed run, as "module.function: os function"."""

    def __init__(self, monkeypatch) -> None:
        self.used: list[str] = []
        self._left = -1
        self._error: BaseException = RuntimeError()
        self._armed = False
        self._lock = threading.Lock()
        for name in _OS:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))
        for name in ("fcntl", "ioctl"):
            monkeypatch.setattr(fcntl, name, self._wrap(name, getattr(fcntl, name)))
        monkeypatch.setattr(tasks, "_pread", self._wrap("pread", os.pread))
        monkeypatch.setattr(os, "pread", self._wrap("pread", os.pread))
        monkeypatch.setattr(libc, "syscall", self._wrap("syscall", libc.syscall, raw=True))

    def arm(self, left: int, error: BaseException) -> None:
        """Fail the use number `left` (from 0) from now on; -1 counts only."""
        self.used = []
        self._left = left
        self._error = error
        self._armed = True

    def disarm(self) -> None:
        self._armed = False

    def _wrap(self, name, real, *, raw=False):
        def call(*arguments, **keywords):
            frame = sys._getframe(1)
            module = frame.f_globals.get("__name__", "")
            if not self._armed or not module.startswith(_WATCHED) or threading.current_thread().name == "held":
                return real(*arguments, **keywords)  # "held" looks around at times of its own
            while frame.f_globals["__name__"].startswith("pincer_trace.kernel") and frame.f_back is not None:
                frame = frame.f_back
            where = f"{frame.f_globals['__name__'].removeprefix('pincer_trace.')}.{frame.f_code.co_name}: {name}"
            with self._lock:
                number = len(self.used)
                self.used.append(where)
            if number != self._left:
                return real(*arguments, **keywords)
            if raw and isinstance(self._error, OSError):
                ctypes.set_errno(self._error.errno or errno.EIO)
                return -1
            raise self._error

        return call
