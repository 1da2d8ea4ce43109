"""Whether a process is a sink: how it was started, looked at before code of its own ran (`executor/launches.py`), and
what runs in it, looked at when it opens a secret.

While a profile has sinks, nobody in the run traces anybody (`kernel/filter.py`) and no memory of a process is opened
(a built-in rule), so what it was started with is what runs, and what it reads stays in it.
"""

from __future__ import annotations

import os

from pincer_trace.kernel import procfs
from pincer_trace.paths import display
from pincer_trace.profile.sinks import misleading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.provenance import Launch
    from pincer_trace.profile.sinks import Sink

    Image = tuple[int, ...]

_CHUNK = 1 << 16
_MOST = 1 << 20  # bytes of arguments, of an environment, of a list of mappings
_KERNELS = (b"[vdso]", b"[vsyscall]")


def launch_of(tid: int) -> Launch | None:
    """The arguments and variables that task `tid` has; None where they cannot be told."""
    try:
        return _list(tid, b"cmdline"), _list(tid, b"environ")
    except (OSError, ValueError):
        return None


def doubt(tid: int, sink: Sink, launch: Callable[[Image], Launch | None], is_closed: Callable[[bytes], bool]) -> str:
    """Why task `tid` does not run what `sink` describes; empty if it does. `launch`: how a program was started;
    `is_closed`: nothing in this run could have changed that file.
    """
    try:
        started = launch(procfs.image(tid))
        if started is None:
            return "it is not known how the program was started"
        words, environment = started
        if not sink.fits(words[1:]):
            return "the program was started with other arguments than its sink"
        variable = misleading(environment)
        if variable:
            return f"the program was started with {display(variable, 100)}, and is no sink then"
        if not _runs_only(_whole(tid, b"maps"), is_closed):
            return "code is loaded that the run could have changed"
        return "" if _is_left_alone(tid) else "it is traced, or filters its own calls"
    except (OSError, ValueError, KeyError, IndexError):
        return "the process cannot be looked at"


def _runs_only(maps: bytes, is_closed: Callable[[bytes], bool]) -> bool:
    """Whether all that can be executed in it comes from files that nothing in this run could have changed."""
    files = set()
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if b"x" in fields[1]:
            files.add(fields[5] if len(fields) > 5 else b"")
    files.difference_update(_KERNELS)
    return bool(files) and all(file.startswith(b"/") and is_closed(file) for file in files)


def _is_left_alone(tid: int) -> bool:
    """Nobody traces it, and no filter of the program's own answers its calls beside ours."""
    status = _fields(tid)
    filters, own = (int(each[b"Seccomp_filters"]) for each in (status, _fields(os.getpid())))
    return int(status[b"TracerPid"]) == 0 and filters == own + 1


def _fields(tid: int) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in procfs.read(f"/proc/{tid}/status").splitlines())
    return {name: value for name, _, value in pairs}


def _list(tid: int, name: bytes) -> list[bytes]:
    """Words that each end with a zero byte. Raises ValueError where that is not so: somebody wrote over them."""
    data = _whole(tid, name)
    if data and not data.endswith(b"\0"):
        raise ValueError(name)
    return data.split(b"\0")[:-1]


def _whole(tid: int, name: bytes) -> bytes:
    """All of a file of /proc, which comes in pieces. Raises OSError, ValueError for one that is too large."""
    descriptor = os.open(b"/proc/%d/%b" % (tid, name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while piece := os.read(descriptor, _CHUNK):
            data += piece
            if len(data) > _MOST:
                raise ValueError(name)
        return data
    finally:
        os.close(descriptor)
