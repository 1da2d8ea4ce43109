"""The hot path: a plain read of what was judged before, or of a name that is not there."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from pincer_trace.executor.descriptors import OURS, STATUS, WALK
from pincer_trace.executor.hostfiles import RESOLVER
from pincer_trace.executor.opens import EFFECTFUL, KNOWN, PLAIN
from pincer_trace.gateway.resolve import live_name
from pincer_trace.kernel import libc
from pincer_trace.kernel.libc import how
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.kernel.fastpath import FastPath
    from pincer_trace.twin.reads import Entry

_FILES = 20_000
_NUMBERED = 4095  # descriptors whose decimal names are at hand
_PIN = os.O_PATH | os.O_CLOEXEC


def _admission(
    c: Context, short: Callable[[Task, bytes, int, os.stat_result], Entry | None] | None = None
) -> Callable[[Task, int, os.stat_result, bytes], Entry | None]:
    """Judges a pinned object that nobody has judged, by its own name: its entry, or None for the long way.

    What the `short` way has no answer to is judged in full.
    """
    names, numbers, readlink, judge = c.resolver.names, c.resolver.numbers, os.readlink, c.reads.admit_plain
    is_secret = c.authority.is_secret
    has_view = c.host_files.serves

    def admit(task: Task, pin: int, found: os.stat_result, path: bytes) -> Entry | None:
        kind = found.st_mode & 0o170000
        if kind not in PLAIN or is_secret(found):
            return None
        name = readlink(numbers[pin], dir_fd=names)
        if kind == stat.S_IFREG and not name.endswith(b"/" + path.rpartition(b"/")[2]):
            return None  # by a link of another name: the long way judges that name too
        if has_view(name):
            return None
        name = live_name(name, found)
        entry = short(task, name, pin, found) if short is not None else None
        return entry or judge(task, Target(name, descriptor=pin, found=found), found)

    return admit


def cold_reader(c: Context, fast: FastPath) -> Callable[[int, Task, list[int]], bool]:
    """Behind the fast path, which has done the same and found an object that nobody has judged: judge it, open it."""
    hot_read, fstat, close = hot_reader(c), os.fstat, os.close
    admit_pinned, admit_folder = c.reads.admit_pinned, c.reads.admit_folder

    def short(task: Task, path: bytes, pin: int, found: os.stat_result) -> Entry | None:
        entry = admit_pinned(task, path, pin, found)
        if entry is not None:
            admit_folder(path.rpartition(b"/")[0])
        return entry

    admit = _admission(c, short)

    def read(identity: int, task: Task, a: list[int]) -> bool:
        pin = fast.take_pin()
        if pin < 0:
            return hot_read(identity, task, a)
        entry = None
        try:
            found = fstat(pin)
            if pin <= _NUMBERED:
                entry = admit(task, pin, found, fast.path())
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # deeper than readlink can tell
                raise
        finally:
            if entry is None or entry.counter < 0:
                close(pin)
        return entry is not None and entry.counter >= 0 and fast.give(pin, entry.counter)

    return read


def hot_reader(c: Context) -> Callable[[int, Task, list[int]], bool]:
    """The hot path of openat: a plain read of a file or directory, or of a name that is not there. False: the long way.

    One flat function over local names, since every call and attribute costs here what a system call costs.
    It does exactly what `Opens` does for such an object, and leaves to it whatever is anything else.

    An absolute path that led to a file, before the tree made any name that could be another kind of object, is opened
    at once: an open for reading of a file is no effect, and what was opened is then judged like a pin. All other paths
    are pinned first, since the mere open of a FIFO or a device is one.
    """
    pread, fstat, open_, close, fcntl_ = os.pread, os.fstat, os.open, os.close, fcntl.fcntl
    setfl, cwd_register, cwd, walk_flags, nonblock = fcntl.F_SETFL, 0xFFFFFF9C, libc.AT_FDCWD, WALK, os.O_NONBLOCK
    pins = {extra: how(_PIN | extra) for extra in (0, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_DIRECTORY | os.O_NOFOLLOW)}
    no_links = how(_PIN, 0, libc.RESOLVE_NO_MAGICLINKS | libc.RESOLVE_NO_SYMLINKS)
    syscall, openat2_number, size, get_errno = libc.syscall, libc.OPENAT2, libc.HOW_SIZE, libc.get_errno
    reads, procfs_devices, tasks = c.reads, c.resolver.procfs, c.tasks
    inject, respond = c.listener.inject, c.listener.respond
    hot, count, admit, names, numbers = reads.hot, reads.count, _admission(c), c.resolver.names, c.resolver.numbers
    shared, enoent, effectful, follow = tasks.shared_cwd, errno.ENOENT, EFFECTFUL, ~os.O_NOFOLLOW
    known_flags, files, regular, resolver = KNOWN, reads.files, stat.S_IFREG, RESOLVER

    def read(identity: int, task: Task, a: list[int]) -> bool:
        flags = a[2] & known_flags
        if flags & effectful:
            return False
        try:
            data = pread(task.mem, 256, a[1])
        except (OSError, OverflowError):
            return False
        end = data.find(0)
        if end <= 0:
            return False
        absolute = data[0] == 0x2F
        if absolute:
            base = cwd
            path = data[:end]
            if path in files:
                opened = syscall(openat2_number, cwd, data, how(flags | OURS), size)
                if opened >= 0:
                    found = fstat(opened)
                    entry = hot.get((task.executable_id, found.st_dev, found.st_ino, found.st_ctime_ns))
                    if entry is not None:
                        try:
                            if not flags & nonblock:
                                fcntl_(opened, setfl, flags & STATUS)
                            number = inject(identity, opened, flags & os.O_CLOEXEC)
                        finally:
                            close(opened)
                        respond(identity, number)
                        count(entry)
                        return True
                    close(opened)
                files.discard(path)
        else:
            if shared or a[0] & 0xFFFFFFFF != cwd_register:
                return False
            base = task.cwd
            if base < 0:
                base = tasks.directory(task)
        pin = syscall(openat2_number, base, data, pins[flags & walk_flags], size)
        if pin < 0:
            # Not there, by a walk that met no link and no procfs: then it is not there for the worker either.
            if get_errno() != enoent or data.find(b"proc", 0, end) >= 0 or data[:end] == resolver:
                return False
            pin = syscall(openat2_number, base, data, no_links, size)
            if pin >= 0:
                close(pin)
                return False
            if get_errno() != enoent or (base >= 0 and fstat(base).st_dev in procfs_devices):
                return False
            respond(identity, 0, enoent)
            return True
        opened = -1
        try:
            found = fstat(pin)
            device = found.st_dev
            if device in procfs_devices or pin > _NUMBERED:
                return False
            entry = hot.get((task.executable_id, device, found.st_ino, found.st_ctime_ns))
            if entry is None:
                entry = admit(task, pin, found, data[:end])
                if entry is None:
                    return False
            elif absolute and found.st_mode & 0o170000 == regular and len(files) < _FILES:
                files.add(path)
            opened = open_(numbers[pin], flags & follow | OURS, dir_fd=names)
            if not flags & nonblock:
                fcntl_(opened, setfl, flags & STATUS)
            number = inject(identity, opened, flags & os.O_CLOEXEC)
        except BlockingIOError:
            return False  # a lease on it: the long way waits for that elsewhere (P73)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return False  # deeper than readlink can tell
        finally:
            close(pin)
            if opened >= 0:
                close(opened)
        respond(identity, number)
        count(entry)
        return True

    return read
