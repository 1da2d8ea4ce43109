"""What the supervisor knows about each worker task: its memory, descriptors, working directory, umask and executable.

Nothing here decides anything. A stale entry could only make a worker's own call name another object, which is then
judged as that object; the entries are nevertheless dropped before a task number can come round again (P2).
"""

from __future__ import annotations

import errno
import os
import time

from pincer_trace.gateway.request import subject
from pincer_trace.gateway.starts import Starts
from pincer_trace.kernel import libc, procfs
from pincer_trace.kernel.notify import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.identity import Credentials
    from pincer_trace.gateway.mounts import Mounts
    from pincer_trace.kernel.fastpath import FastPath
    from pincer_trace.kernel.notify import Listener

_PATH_MAX = 4096  # <linux/limits.h>, with the final NUL
_FIRST = 256
_EXECUTABLES = 4096
_EVERYBODY = 0  # no process has this number
_RDONLY = os.O_RDONLY | os.O_CLOEXEC
_O_PATH = os.O_PATH | os.O_CLOEXEC
_pread = os.pread


class Task:
    """One thread of the worker's tree. Descriptors are -1 until needed."""

    __slots__ = (
        "away",
        "credentials",
        "cwd",
        "executable",
        "executable_id",
        "expires",
        "introduced",
        "mem",
        "pidfd",
        "quick",
        "subject_or_empty",
        "tgid_or_zero",
        "tid",
        "umask",
    )

    def __init__(
        self, tid: int, mem: int, executable: bytes, executable_id: int, expires: float, *, subject: bytes = b""
    ) -> None:
        self.tid = tid
        self.mem = mem
        self.executable = executable
        self.executable_id = executable_id
        self.expires = expires
        self.credentials: Credentials | None = None  # once read, until a call of its own changes them
        self.tgid_or_zero = 0
        self.pidfd = -1
        self.cwd = -1
        self.umask = -1
        self.away = False  # its paths begin at another root than ours
        self.quick = True  # neither that nor its directory is on a mount of the run's own: it has the hot path
        self.introduced = False  # to the ledger, with the process it is of
        self.subject_or_empty = subject

    @property
    def subject(self) -> bytes:
        """Who it is, as requests have it. Raises OSError when the task is gone."""
        if not self.subject_or_empty:
            program = os.stat(b"/proc/%d/exe" % self.tid)
            image = (program.st_dev, program.st_ino)
            self.subject_or_empty = subject(self.tid, procfs.stat(self.tid).start, image, self.executable)
        return self.subject_or_empty

    @property
    def tgid(self) -> int:
        """The process (thread group) number."""
        if not self.tgid_or_zero:
            self.tgid_or_zero = procfs.status(self.tid).tgid
        return self.tgid_or_zero

    def close(self) -> None:
        for descriptor in (self.mem, self.pidfd, self.cwd):
            if descriptor >= 0:
                os.close(descriptor)
        self.mem = self.pidfd = self.cwd = -1


class Unreadable(Exception):
    """The task's memory cannot be read: an execute-only program, or one that made itself undumpable (P65)."""


class Impostor(Exception):
    """Another program runs than the one that was judged (P42). `path` is what runs."""

    def __init__(self, path: bytes) -> None:
        super().__init__("another program runs than the one that was judged")
        self.path = path


class Tasks:
    """The table of tasks. Belongs to the receiving thread."""

    def __init__(self, listener: Listener, *, limit: int = 1024) -> None:
        self._listener = listener
        self._fast: FastPath | None = None
        self._table: dict[int, Task] = {}
        self._limit = limit
        self._executables: dict[bytes, int] = {}
        self._next_executable = 1
        # Processes whose threads changed directory or umask: shared state, so it is read anew for each call.
        self.shared_cwd: set[int] = set()
        self._shared_umask: set[int] = set()
        self._alone = True  # no process shares these with another
        self._settled = True  # the root of each task is the one that was seen
        with open("/proc/sys/kernel/pid_max", "rb") as limit_file:
            # No machine forks 10^5 times a second: a number cannot come round within this time (seconds).
            self._lifetime = min(1.0, int(limit_file.read()) / 100_000)
        self._sweep_at = 0.0
        self.starts = Starts()
        self.mounts: Mounts | None = None  # the run's own, where it may have some

    def attach(self, fast: FastPath) -> None:
        """From now on this fast path knows the tasks too."""
        self._fast = fast

    def get(self, tid: int, identity: int) -> Task:
        """The task behind notification `identity`. Raises Gone, Unreadable."""
        task = self._table.get(tid)
        now = time.monotonic()
        if task is not None:
            if now < task.expires:
                return task
            self.drop(tid)
        if now > self._sweep_at or len(self._table) >= self._limit:
            self._sweep(now)
        return self._open(tid, identity, now)

    def _open(self, tid: int, identity: int, now: float) -> Task:
        if tid == 0:  # not visible from our pid namespace (P23)
            raise Unreadable("the task is outside of the supervisor's pid namespace")
        try:
            mem = os.open(f"/proc/{tid}/mem", _RDONLY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH) or not self._listener.valid(identity):
                raise Gone from None
            raise Unreadable("its program cannot be read (execute-only), so its calls cannot be either") from None
        mounts = self.mounts if self.mounts is not None and self.mounts.any else None
        away = False
        try:
            try:
                executable = os.readlink(b"/proc/%d/exe" % tid) if mounts is None else mounts.executable(tid)
            except OSError:
                executable = b""
            if mounts is not None:
                away = mounts.is_away(tid)
            if tid in self.starts.awaited and not self.starts.verify(tid):
                raise Impostor(executable)
            if not self._listener.valid(identity):  # after the open, before any use: else another task's (P2)
                raise Gone
        except BaseException:
            os.close(mem)
            raise
        number = self._executables.get(executable, 0)
        if not number:
            if len(self._executables) >= _EXECUTABLES:
                self._executables.clear()  # their numbers are not given out again
            number = self._executables[executable] = self._next_executable
            self._next_executable += 1
        # While an exec is on its way this memory can become another program's at any moment: for this call only (P94).
        lifetime = self._lifetime if self._settled and tid not in self.starts.awaited else 0.0
        task = self._table[tid] = Task(tid, mem, executable, number, now + lifetime)
        task.away, task.quick = away, not away
        if self._fast is not None and task.quick:
            self._fast.task(tid, number, mem, task.expires, executable)
        return task

    def drop(self, tid: int) -> None:
        """Forget a task: it executes another program, or its entry is old."""
        task = self._table.pop(tid, None)
        if task is not None:
            if self._fast is not None:
                self._fast.forget(tid)
            task.close()

    def _sweep(self, now: float) -> None:
        for tid in [tid for tid, task in self._table.items() if task.expires < now]:
            self.drop(tid)
        while len(self._table) >= self._limit:
            self.drop(next(iter(self._table)))
        self._sweep_at = now + 1.0
        self.starts.sweep()
        if len(self.shared_cwd) + len(self._shared_umask) > 1024:
            living = {t for t in self.shared_cwd if t == _EVERYBODY or os.path.exists(f"/proc/{t}")}
            self.shared_cwd.intersection_update(living)
            self._shared_umask = {tgid for tgid in self._shared_umask if os.path.exists(f"/proc/{tgid}")}

    def has_quick(self, task: Task) -> bool:
        """Whether a path of this task is where our own walk of it leads, so that the hot path may make it."""
        if self.mounts is None or not self.mounts.any:
            return True
        if task.quick and task.cwd < 0:
            self.directory(task)
        return task.quick

    def close(self) -> None:
        """Forget all."""
        for tid in list(self._table):
            self.drop(tid)

    def executes(
        self,
        tid: int,
        tgid: int,
        born: int,
        sequence: int,
        goal: frozenset[tuple[int, int]] | None,
        old: tuple[int, int],
    ) -> None:
        """Thread `tid` of `tgid`, which began at `born`, is about to run another program (P94): its memory, and its
        leader's, will be another.

        `goal` are the (device, inode) of which one must run then (None: cannot be told), `old` runs now; `sequence` is
        its record.
        """
        self.drop(tid)
        self.drop(tgid)
        self.starts.expect(tid, tgid, born, sequence, goal, old)

    # -- memory ----------------------------------------------------------------------------------------------

    def read_path(self, task: Task, address: int) -> bytes:
        """The NUL-terminated path at `address`, copied once. Raises OSError EFAULT or ENAMETOOLONG, as native."""
        try:
            data = _pread(task.mem, _FIRST, address)
        except (OSError, OverflowError):
            data = b""
        end = data.find(0)
        if end >= 0:
            return data[:end]
        while len(data) < _PATH_MAX and data:  # to the next page end each time: what follows may be unmapped (P36)
            position = address + len(data)
            try:
                more = _pread(task.mem, min(_PATH_MAX - len(data), 4096 - position % 4096), position)
            except (OSError, OverflowError):
                more = b""
            if not more:
                break
            end = more.find(0)
            if end >= 0:
                return data + more[:end]
            data += more
        if len(data) >= _PATH_MAX:
            raise OSError(errno.ENAMETOOLONG, "path")
        raise OSError(errno.EFAULT, "path")

    def read_bytes(self, task: Task, address: int, size: int) -> bytes:
        """Exactly `size` bytes at `address`. Raises OSError EFAULT."""
        data = b""
        try:
            while len(data) < size:
                more = _pread(task.mem, size - len(data), address + len(data))
                if not more:
                    break
                data += more
        except (OSError, OverflowError):
            pass
        if len(data) != size:
            raise OSError(errno.EFAULT, "memory")
        return data

    def write_bytes(self, task: Task, address: int, data: bytes) -> None:
        """Put an answer into the caller's memory. Raises OSError EFAULT."""
        try:
            memory = os.open(f"/proc/{task.tid}/mem", os.O_WRONLY | os.O_CLOEXEC)
            try:
                written = os.pwrite(memory, data, address)
            finally:
                os.close(memory)
        except (OSError, OverflowError):
            written = -1
        if written != len(data):
            raise OSError(errno.EFAULT, "memory")

    # -- descriptors and places ------------------------------------------------------------------------------

    def descriptor(self, task: Task, number: int) -> int:
        """A copy of the worker's descriptor `number`, the caller's to close. Raises OSError EBADF."""
        if number < 0:
            raise OSError(errno.EBADF, "descriptor")
        if task.pidfd < 0:
            try:
                task.pidfd = libc.pidfd_open(task.tid, libc.PIDFD_THREAD)  # a thread may have a table of its own
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                task.pidfd = libc.pidfd_open(task.tgid)  # before Linux 6.9
            if self._fast is not None and task.quick:
                self._fast.thread(task.tid, task.pidfd)
        return libc.pidfd_getfd(task.pidfd, number)

    def is_closed_by_exec(self, task: Task, number: int) -> bool:
        """Whether the worker's descriptor `number` is (FD_CLOEXEC). Raises OSError."""
        with open(f"/proc/{task.tid}/fdinfo/{number}", "rb") as told:
            flags = next(line for line in told if line.startswith(b"flags:"))
        return bool(int(flags.split()[1], 8) & os.O_CLOEXEC)

    def directory(self, task: Task) -> int:
        """The worker's working directory, O_PATH; the table's to close."""
        if task.cwd >= 0:
            if task.quick and self._alone and (not self.shared_cwd or task.tgid not in self.shared_cwd):
                return task.cwd
            os.close(task.cwd)
            task.cwd = -1
        task.cwd = os.open(f"/proc/{task.tid}/cwd", _O_PATH)
        if task.quick and self.mounts is not None and self.mounts.any and not self.mounts.is_ours(task.cwd):
            task.quick = False
            if self._fast is not None:
                self._fast.forget(task.tid)
        if task.quick and self._fast is not None and not self.shared_cwd:
            self._fast.directory(task.tid, task.cwd)
        return task.cwd

    def changes_directory(self, task: Task) -> None:
        """A chdir or fchdir of this task is about to run."""
        for other in self._table.values():  # processes can share it without being threads (CLONE_FS)
            if other.cwd >= 0:
                if self._fast is not None:
                    self._fast.directory(other.tid, -1)
                os.close(other.cwd)
                other.cwd = -1
        status = procfs.status(task.tid)
        if status.threads > 1:
            self.shared_cwd.add(status.tgid)
            if self._fast is not None:
                self._fast.relative(False)

    def share_places(self) -> None:
        """A process begins that shares its directory and umask with another (CLONE_FS): from now on both are read anew
        for each call of all, since the other may change them at any moment.
        """
        self._alone = False
        self.shared_cwd.add(_EVERYBODY)
        if self._fast is not None:
            self._fast.relative(False)

    def mask(self, task: Task) -> int:
        """The worker's umask."""
        if task.umask < 0 or not self._alone or (self._shared_umask and task.tgid in self._shared_umask):
            task.umask = procfs.status(task.tid).umask
        return task.umask

    def changes_places(self, task: Task) -> None:
        """A task is about to mount, unmount, or get another root. No pin of ours may keep a mount.

        Who shares its root with others may call before it has changed: from now on nothing is remembered of tasks.
        """
        if not self._alone or procfs.status(task.tid).threads > 1:
            self._settled = False
        self.close()

    def changes_mask(self, task: Task, mask: int) -> None:
        """A umask of this task is about to run."""
        for other in self._table.values():
            other.umask = -1
        task.umask = mask & 0o777
        status = procfs.status(task.tid)
        if status.threads > 1:
            self._shared_umask.add(status.tgid)
