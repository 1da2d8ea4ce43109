"""The tests' end of `launch`: one process that starts supervisors, itself started by the first run that needs one."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

import pincer_trace
from pincer_trace.testing import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE = 20.0  # seconds for a tree that was killed, and its supervisor, to be gone
_PART = 1 << 16
KEPT = 16 << 20  # bytes of each output of a run that are kept in memory; what comes then is read, and dropped
_GONE = (
    f"the process that starts supervisors ({sys.executable}) ended, and what it ran with it; pincer-trace doctor tells "
    "whether something that it imports is missing"
)


class Output:
    """What a run wrote: its first bytes, up to `KEPT`, and how many came after them."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.dropped = 0

    def add(self, part: bytes) -> None:
        """More of it."""
        room = KEPT - len(self.kept)
        self.kept += part[:room]
        self.dropped += max(0, len(part) - room)

    def text(self) -> str:
        """As text; the last line says what is missing."""
        text = self.kept.decode(errors="backslashreplace")
        if not self.dropped:
            return text
        return f"{text}\n[pincer-trace: {self.dropped:,} bytes more were written, and are not kept]\n"


class Ended:
    """A run that is over: `status` as `wait` has it, both outputs, and the session's directory, if there was one."""

    def __init__(self, status: int, out: Output, err: Output, session: bytes, *, late: bool) -> None:
        self.status = status
        self.out = out
        self.err = err
        self.session = session
        self.late = late


class Launcher:
    """That process. One of a process of tests; its methods may be called from any thread."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Some builds of Python find their own library by it; what runs gets the environment of its request
            kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
            words = [launch.__file__, str(self.owner), str(theirs.fileno()), sys.prefix, _imports()]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", *words], cwd="/", env={"LANG": "C.UTF-8", **kept}, start_new_session=True,
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.channel = ours
        self.pid = self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it is there, and ours: a process that was forked from this one needs its own."""
        return self.owner == os.getpid() and self._process.poll() is None

    def run(
        self, arguments: Sequence[str], *, cwd: str, environment: Mapping[str, str], data: bytes | None, timeout: float
    ) -> Ended:
        """Run to the end, which is no later than `timeout` seconds from now. However it ends, nothing of it is left."""
        request = json.dumps(
            {"arguments": list(arguments), "cwd": cwd, "environment": dict(environment), "umask": _umask()}
        )
        told, theirs = socket.socketpair()
        with told, _Pipes() as pipes:
            with theirs, open(os.memfd_create("request"), "wb") as asked:
                asked.write(request.encode("ascii"))
                asked.flush()
                asked.seek(0)
                handed = [*pipes.theirs(), asked.fileno(), pipes.life_in, theirs.fileno()]
                try:
                    socket.send_fds(self.channel, [b"\0"], handed)
                except (BrokenPipeError, ConnectionError):
                    raise RuntimeError(_GONE) from None
            pipes.leave()
            handed = socket.recv_fds(told, 1, 1)[1]
            if not handed:
                raise RuntimeError(_GONE)
            [front] = handed
            try:
                return _attend(front, told, pipes, data or b"", timeout)
            except BaseException:
                _kill(front)
                pipes.last_words()
                raise
            finally:
                os.close(front)

    def close(self) -> None:
        """End it, and with it what it still runs; in a process that was forked from its owner, only forget it."""
        self.channel.close()
        if self.owner == os.getpid():
            self._process.wait()
        else:
            self._process.poll()  # no child of ours


class _Pipes:
    """Both ends of the standard streams of one run, and of what ends with front and engine."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        for name in ("stdin", "stdout", "stderr", "life"):
            self._open[f"{name} out"], self._open[f"{name} in"] = os.pipe()
        self.life_in = self._open["life in"]
        self.life = self._open["life out"]
        self.stdin = self._open["stdin in"]
        self.stdout, self.stderr = self._open["stdout out"], self._open["stderr out"]

    def theirs(self) -> list[int]:
        """The standard streams of the run."""
        return [self._open["stdin out"], self._open["stdout in"], self._open["stderr in"]]

    def leave(self) -> None:
        """Close what is the run's alone."""
        for name in ("stdin out", "stdout in", "stderr in", "life in"):
            os.close(self._open.pop(name))

    def close(self, name: str) -> None:
        """Close our end of a stream."""
        key = f"{name} in" if name == "stdin" else f"{name} out"
        if key in self._open:
            os.close(self._open.pop(key))

    def last_words(self) -> bytes:
        """What was said until front and engine had ended: the session's directory."""
        said = b""
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self.life, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(self.life, _PART)
                if not part:
                    return said
                said += part
        raise RuntimeError(f"the supervisor has not ended after {PATIENCE:g} s; its processes may still run")

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def _attend(front: int, told: socket.socket, pipes: _Pipes, data: bytes, timeout: float) -> Ended:
    """Hand in `data`, gather the output, and wait for the end."""
    got = {pipes.stdout: Output(), pipes.stderr: Output()}
    status = 125
    late = False
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for stream in (*got, told.fileno()):
            selector.register(stream, selectors.EVENT_READ)
        if data:
            os.set_blocking(pipes.stdin, False)
            selector.register(pipes.stdin, selectors.EVENT_WRITE)
        else:
            pipes.close("stdin")
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:  # also while something is always ready: output without end
                if late:
                    raise RuntimeError(f"the run was killed, and has not ended after {PATIENCE:g} s")
                late, deadline = True, time.monotonic() + PATIENCE
                _kill(front)
            for key, _ in ready:
                if key.fd == pipes.stdin:
                    data = _hand_in(pipes.stdin, data)
                    if not data:
                        selector.unregister(pipes.stdin)
                        pipes.close("stdin")
                elif key.fd == told.fileno():
                    said = told.recv(32)
                    if not said:
                        raise RuntimeError(_GONE)
                    status = int(said)
                    selector.unregister(told.fileno())
                    if pipes.stdin in selector.get_map():  # nobody reads the rest
                        selector.unregister(pipes.stdin)
                elif part := os.read(key.fd, _PART):
                    got[key.fd].add(part)
                else:
                    selector.unregister(key.fd)
    session = pipes.last_words()
    return Ended(status, got[pipes.stdout], got[pipes.stderr], session, late=late)


def _hand_in(stream: int, data: bytes) -> bytes:
    """Write some of it; what is left. Nobody needs to read it."""
    try:
        return data[os.write(stream, data[:_PART]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return b""


def _kill(front: int) -> None:
    """The engine then ends the tree, and itself."""
    try:
        signal.pidfd_send_signal(front, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended


def _umask() -> int:
    """Ours, without changing it for the other threads."""
    with open("/proc/thread-self/status", encoding="ascii", errors="replace") as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o022)


def _imports() -> str:
    """Where this package and what it needs are imported from: installed ones, and nothing else that is on the path."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(pincer_trace.__file__)))
    installed = [each for each in sys.path if os.path.basename(each) in ("site-packages", "dist-packages")]
    return os.pathsep.join(dict.fromkeys([ours, *map(os.path.abspath, installed)]))


_current: Launcher | None = None
_mutex = threading.Lock()


def current() -> Launcher:
    """The launcher of this process, started if it is not there."""
    global _current
    with _mutex:
        if _current is not None and not _current.lives:
            _current.close()
            _current = None
        if _current is None:
            _current = Launcher()
        return _current


def standing() -> Launcher | None:
    """The launcher of this process, if it has been started."""
    return _current


@atexit.register
def close() -> None:
    """End it, if there is one: nothing of the tests is left when they end."""
    global _current
    with _mutex:
        if _current is not None:
            _current.close()
            _current = None
