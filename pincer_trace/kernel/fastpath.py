"""The tables of kernel/fastpath.c, through ctypes. Where it was not compiled at installation, `load` gives None.

All methods but `collect` belong to the receiving thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from pincer_trace.kernel.notify import NOTIFICATION_SIZE, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pincer_trace.kernel.notify import Listener

_VERSION = 4
_PATH_BYTES = 256
COUNTERS = 49152
NOTHING, USUAL, EVERYWHERE = range(3)  # what `receive` answers
_KINDS = 256
_ROOM = 64  # fresh files told at once
_FRESH = struct.Struct(f"=QQqIIII{_PATH_BYTES}s")  # struct fresh
_WHOLE, _START, _END = range(3)  # roles of the names of a kind of folder
_LONGEST = 255  # bytes of a name. <linux/limits.h>
_PROGRAMS = 8192  # names of programs that are remembered
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.join(_HERE, "_fastpath.so")
_SOURCE = os.path.join(_HERE, "fastpath.c")

_u32, _u64, _i64, _int, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p


def load(listener: Listener, descriptors: int, procfs: Iterable[int]) -> FastPath | None:
    """The fast path of this listener, or None. `descriptors` is /proc/self/fd, `procfs` the devices of every procfs."""
    if listener.descriptor < 0:  # a scripted listener has none
        return None
    try:
        return FastPath(compiled(), listener, descriptors, tuple(procfs))
    except OSError:
        return None


def available() -> str:
    """The compiled library, or "" where the reads are answered in Python."""
    if os.environ.get("PINCER_TRACE_PURE"):
        return ""
    try:
        built = os.stat(_LIBRARY).st_mtime_ns
    except OSError:
        return ""
    try:
        if os.stat(_SOURCE).st_mtime_ns > built:
            return ""  # a checkout whose source was changed since
    except OSError:
        pass  # an installation has no source
    return _LIBRARY


def compiled() -> ctypes.CDLL:
    """Load it. Raises OSError when it is not there or of another version."""
    path = available()
    if not path:
        raise OSError(errno.ENOENT, "not compiled at installation, or older than its source", _LIBRARY)
    loaded = ctypes.CDLL(path)
    if loaded.fast_version() != _VERSION:
        raise OSError(errno.ENOEXEC, "of another version", _LIBRARY)
    return loaded


class FastPath:
    """One set of tables. Raises OSError when there is no memory."""

    def __init__(self, loaded: ctypes.CDLL, listener: Listener, descriptors: int, procfs: tuple[int, ...]) -> None:
        new = loaded.fast_new
        new.restype = _pointer
        new.argtypes = (_int, _int, ctypes.POINTER(_u64), _u32)
        self._state = _pointer(new(listener.descriptor, descriptors, (_u64 * len(procfs))(*procfs), len(procfs)))
        if not self._state:
            raise OSError(errno.ENOMEM, "tables", _LIBRARY)
        self._listener = listener
        self._free = loaded.fast_free
        self._notification = ctypes.create_string_buffer(NOTIFICATION_SIZE)
        self._pin = _int(-1)
        self._path = ctypes.create_string_buffer(_PATH_BYTES)
        self._receive = loaded.fast_receive
        self._receive.argtypes = (_pointer, _int, _pointer, ctypes.POINTER(_int), _pointer)
        self._give = loaded.fast_give
        self._give.argtypes = (_pointer, _int, _u32)
        self._arguments = (ctypes.byref(self._notification), ctypes.byref(self._pin), ctypes.byref(self._path))
        quick = ctypes.PyDLL(_LIBRARY)  # these are over before giving up the interpreter's lock would be
        self._task = _declare(quick.fast_task, _u32, _u32, _int, _i64)
        self._forget = _declare(quick.fast_forget, _u32)
        self._self = _declare(quick.fast_self, _u32, _int)
        self._directory = _declare(quick.fast_directory, _u32, _int)
        self._relative = _declare(quick.fast_relative, _int)
        self._admit = _declare(quick.fast_admit, _u32, _u64, _u64, _i64, _u32)
        self._clear = _declare(quick.fast_clear)
        self._clear_files = _declare(quick.fast_clear_files)
        self._counter = _declare(quick.fast_counter)
        self._restart = _declare(quick.fast_restart)
        self._kind = _declare(quick.fast_kind, ctypes.c_char_p, _u32)
        self._folder = _declare(quick.fast_folder, ctypes.c_char_p, _u32, _u32, _int)
        self._clear_folders = _declare(quick.fast_clear_folders)
        self._lets = _declare(quick.fast_lets, ctypes.c_char_p, _u32)
        self._secret = _declare(quick.fast_secret, _u64, _u64)
        self._waiting = _declare(quick.fast_waiting)
        self._fresh = _declare(quick.fast_fresh, _pointer, _u32)
        self._room = ctypes.create_string_buffer(_ROOM * _FRESH.size)
        self._kinds: dict[tuple[str, bytes], int] = {}  # of folders
        self._rules: dict[int, str] = {}  # by kind
        self._programs: dict[int, bytes] = {}
        self._collect = _declare(quick.fast_collect, ctypes.POINTER(_u32), ctypes.POINTER(_u64))
        self._counters = (_u32 * COUNTERS)()
        self._growth = (_u64 * COUNTERS)()

    def receive(self, answers: int) -> tuple[int, ...] | None:
        """As `Listener.receive`; what the tables know is answered here, as far as `answers` says: NOTHING, opens of
        paths that begin at the root or the working directory (USUAL), or also at any other directory (EVERYWHERE).
        """
        if self._pin.value >= 0:
            os.close(self.take_pin())  # its task was gone
        while True:
            error = self._receive(self._state, answers, *self._arguments)
            if not error:
                return unpack(self._notification)
            if self._listener.is_over(error):
                return None

    def take_pin(self) -> int:
        """The object of the last notification, pinned, where that is a plain read which nobody has judged; -1."""
        pin = self._pin.value
        self._pin.value = -1
        return pin

    def path(self) -> bytes:
        """The path that led to the last pin: the worker's own memory may say another by now (P1)."""
        return self._path.value

    def give(self, pin: int, counter: int) -> bool:
        """Open the pin of `take_pin` for its caller, and count that. False: the long way must do it from the start.

        The pin is closed in any case.
        """
        return bool(self._give(self._state, pin, counter))

    def task(self, tid: int, executable: int, mem: int, expires: float, path: bytes = b"") -> None:
        """The thread's memory and program, with its path; `expires` by the monotonic clock, in seconds."""
        if self._programs.pop(executable, None) is None and len(self._programs) >= _PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._programs[executable] = path  # as the newest: who lives is told again each second
        self._task(self._state, tid, executable, mem, int(expires * 1e9))

    def forget(self, tid: int) -> None:
        """Before the descriptors of this thread are closed."""
        self._forget(self._state, tid)

    def directory(self, tid: int, cwd: int) -> None:
        """Its working directory; -1 when that is not known any more."""
        self._directory(self._state, tid, cwd)

    def thread(self, tid: int, pidfd: int) -> None:
        """A descriptor of that thread, by which its own are copied."""
        self._self(self._state, tid, pidfd)

    def relative(self, allowed: bool) -> None:
        """Whether working directories are those of their threads alone."""
        self._relative(self._state, allowed)

    def admit(self, executable: int, device: int, inode: int, changed: int, counter: int) -> bool:
        """Reads of this object by this program are allowed, and counted by `counter`. False: no room."""
        return bool(self._admit(self._state, executable, device, inode, changed, counter) == 0)

    def clear(self) -> None:
        """Forget what was admitted."""
        self._clear(self._state)

    def clear_files(self) -> None:
        """Forget which absolute paths lead to files."""
        self._clear_files(self._state)

    def counter(self) -> int:
        """A counter that nothing has yet; COUNTERS when there is none any more."""
        return int(self._counter(self._state))

    def restart(self) -> None:
        """All counters are free again: they were collected, and nothing is admitted any more."""
        self._restart(self._state)

    def folder(
        self,
        directory: bytes,
        rule: str,
        whole: Iterable[bytes],
        starts: Iterable[bytes],
        ends: Iterable[bytes],
        *,
        deep: bool = False,
    ) -> bool:
        """`rule` lets all files in `directory` be read that have one name and are no `secret`, and all directories; but
        for names that are one of `whole`, or have one of those `starts` or `ends`. `deep`: and all below them. False:
        no room.
        """
        rows = [(_WHOLE, name) for name in whole] + [(_START, name) for name in starts]
        rows += [(_END, name) for name in ends]
        names = b"".join(b"%c%c%b" % (role, len(name), name) for role, name in rows if len(name) <= _LONGEST)
        kind = self._kinds.get((rule, names))
        if kind is None:
            kind = int(self._kind(self._state, names, len(names)))
            if kind >= _KINDS:
                return False
            self._kinds[rule, names] = kind
            self._rules[kind] = rule
        return bool(self._folder(self._state, directory, len(directory), kind, deep) == 0)

    def clear_folders(self) -> None:
        """Forget all folders."""
        self._clear_folders(self._state)

    def lets(self, path: bytes) -> bool:
        """Whether the folder of this path lets what has this name be read."""
        return bool(self._lets(self._state, path, len(path)) < _KINDS)

    def secret(self, device: int, inode: int) -> None:
        """Of this object its folder tells nothing."""
        self._secret(self._state, device, inode)

    def waiting(self) -> int:
        """How many files `fresh` has to tell of. For any thread."""
        return int(self._waiting(self._state))

    def fresh(self) -> Iterator[tuple[int, int, tuple[bytes, bytes, int, int, str]]]:
        """The files that were let pass by their folder since the last call: counter, first time (ns), and (program,
        path, device, inode, rule). For any thread, one at a time.
        """
        while found := self._fresh(self._state, self._room, _ROOM):
            for row in _FRESH.iter_unpack(self._room.raw[: found * _FRESH.size]):
                device, inode, first, executable, counter, kind, length, path = row
                program = self._programs.get(executable, b"")
                yield counter, first, (program, path[:length], device, inode, self._rules[kind])

    def collect(self) -> list[tuple[int, int]]:
        """(counter, growth since the last call) of those that grew. For any thread, one at a time.

        Who is counted by it was told by `fresh` before, or is by the next call of that.
        """
        found = self._collect(self._state, self._counters, self._growth)
        return [(self._counters[i], self._growth[i]) for i in range(found)]

    def close(self) -> None:
        """Free the tables; nothing may be called afterwards."""
        self._free(self._state)


def _declare(function: ctypes._NamedFuncPointer, *arguments: type) -> ctypes._NamedFuncPointer:
    function.argtypes = (_pointer, *arguments)
    return function
