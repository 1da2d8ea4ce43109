"""What this machine offers, found out by attempting it: each probe does the act in a child and looks.

Nothing is believed from version numbers alone (hazard P10: some kernels have a feature that does not work).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import tempfile

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.kernel import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pincer_trace.kernel.landlock import Floor
    from pincer_trace.kernel.notify import Listener

MINIMUM = (5, 19)  # WAIT_KILLABLE_RECV
PATIENCE = 3000  # ms for a child that ought to answer at once
ANSWER = 424242  # what the probe's paused call is told
MARK = b"pincer-trace doctor reads this"

# Classic BPF: load the call's number; that one call: SECCOMP_RET_USER_NOTIF; all else: SECCOMP_RET_ALLOW
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_USER_NOTIF, _ALLOW = 0x7FC00000, 0x7FFF0000


class Finding:
    """One line of the report. `required` says whether runs are impossible without it."""

    __slots__ = ("name", "ok", "remedy", "required", "text")

    def __init__(self, name: str, ok: bool, text: str, remedy: str = "", *, required: bool = True) -> None:
        self.name = name
        self.ok = ok
        self.text = text
        self.remedy = remedy
        self.required = required

    def lines(self) -> list[list[tuple[str, str]]]:
        """The report's line, and the remedy below when something is missing, as styled pieces."""
        word, style = ("ok", "green") if self.ok else ("missing", "red" if self.required else "yellow")
        lines = [[(f"{word:8}", style), (f"{self.name:18}", "bold"), (self.text, "")]]
        if not self.ok and self.remedy:
            lines.append([(f"{'':8}{'':18}{self.remedy}", "dim")])
        return lines


class Failed(Exception):
    """A probe did not see what it must see; the text says what it saw."""


def examine() -> Iterator[Finding]:
    """All findings, each made when it is asked for."""
    yield _kernel()
    try:
        table.machine()
    except LookupError as error:
        yield Finding("architecture", False, paths.display(str(error)), "x86_64 and aarch64 are supported")
        return
    held = _attempt(_no_listener)
    yield Finding(
        "not nested", not held, held or "no other supervisor holds this process",
        "start it outside the other sandbox or container runtime: the kernel allows one listener a process",
    )  # fmt: skip
    if not held:
        yield from _notification()
    yield from _landlock()
    yield _yama()
    yield _libseccomp()
    yield _fast_path()
    yield _state()


def _kernel() -> Finding:
    release = os.uname().release
    numbers = release.replace("-", ".").split(".")
    version = tuple(int(n) if n.isdecimal() else 0 for n in numbers[:2])
    needed = ".".join(map(str, MINIMUM))
    return Finding("kernel", version >= MINIMUM, f"Linux {paths.display(release)}", f"Linux {needed} or later")


def _attempt(act: Callable[[], None]) -> str:
    """Do `act` in a child; "" when it returned, else what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _become(act, writer)
    os.close(writer)
    try:
        return _report(child, reader)
    finally:
        os.close(reader)


def _become(act: Callable[[], None], writer: int) -> None:
    """In the child: do `act`, tell what went wrong, and end without running the parent's code."""
    status = 0
    try:
        act()
    except BaseException as error:  # noqa: BLE001  whatever it is, it must not run on in the parent's stack
        status = 1
        text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        os.write(writer, text.encode("utf-8", "backslashreplace")[:1000])
    finally:
        os._exit(status)


def _report(child: int, reader: int) -> str:
    """What the child wrote before it ended. Silent death is a failure too; so is a hang (it is killed)."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if not poll.poll(PATIENCE):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return f"no answer within {PATIENCE // 1000} s"
    text = os.read(reader, 2000).decode("utf-8", "backslashreplace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return paths.display(text) if text else "" if status == 0 else f"the probe ended with {status}"


def _filter(number: int) -> bytes:
    return b"".join(
        struct.pack("=HBBI", *row)
        for row in (
            (_LOAD, 0, 0, 0),
            (_JUMP_EQUAL, 0, 1, number),
            (_RETURN, 0, 0, _USER_NOTIF),
            (_RETURN, 0, 0, _ALLOW),
        )
    )


def _install() -> int:
    """A filter over one harmless call, and its listener: what a run needs first of all."""
    from pincer_trace.kernel import libc

    libc.set_no_new_privileges()
    return libc.install_filter(_filter(libc.NUMBER["getppid"]))


def _no_listener() -> None:
    try:
        _install()
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise Failed("another supervisor already holds this process (EBUSY)") from None
        # anything else is for the next probe to tell


def is_supervised() -> bool:
    """Whether another supervisor holds this process, so that none can be started."""
    return bool(_attempt(_no_listener))


def _notification() -> Iterator[Finding]:
    """A child pauses in a call twice: one is answered across a signal, one with a descriptor."""
    steps = (
        (
            "filter",
            "a seccomp filter with a listener can be installed",
            "a kernel with CONFIG_SECCOMP_FILTER",
        ),
        ("listener", "pidfd_getfd takes the listener from the child", "in Docker: --cap-add SYS_PTRACE"),
        ("notification", "a paused call is received", f"Linux {MINIMUM[0]}.{MINIMUM[1]} or later"),
        (
            "task memory",
            "a paused task's memory can be read",
            "mount /proc; kernel.yama.ptrace_scope at most 1",
        ),
        ("killable wait", "a signal does not interrupt a paused call", "Linux 5.19 or later"),
        ("injection", "a descriptor can be put into a paused task", "Linux 5.14 or later"),
    )
    reached: list[str] = []
    problem = _pause_and_answer(reached)
    for name, text, remedy in steps:
        if name in reached:
            yield Finding(name, True, text)
        else:
            yield Finding(name, False, problem or "not tried, since the step before failed", remedy)
            problem = ""


def _pause_and_answer(reached: list[str]) -> str:
    """The supervisor's side of that probe: appends the steps that worked; "" or what went wrong."""
    buffer = ctypes.create_string_buffer(MARK)  # at the same address in the child
    told, tell = os.pipe()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.close(reader)
        _become(lambda: _paused(tell), writer)
    os.close(tell)
    os.close(writer)
    problem = ""
    try:
        _serve(child, told, ctypes.addressof(buffer), reached)
    except (Failed, OSError) as error:
        problem = str(error)
        os.kill(child, signal.SIGKILL)  # it may be paused; it is ours and not yet waited for
    try:
        heard = _report(child, reader)
    finally:
        os.close(told)
        os.close(reader)
    if problem or heard:
        return problem or heard
    reached.append("injection")  # the child has used what it was given
    return ""


def _paused(tell: int) -> None:
    """The worker's side: runs under the filter."""
    from pincer_trace.kernel import libc

    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.write(tell, struct.pack("i", _install()))
    if libc.call("getppid") != ANSWER:
        raise Failed("the paused call did not give the answer")
    if os.read(libc.call("getppid"), len(MARK)) != MARK:
        raise Failed("the descriptor that came is not the one that was sent")


def _serve(child: int, told: int, address: int, reached: list[str]) -> None:
    from time import sleep

    from pincer_trace.kernel import libc, notify

    word = os.read(told, 4)
    if len(word) < 4:
        return  # the child's own report tells why
    reached.append("filter")
    pidfd = libc.pidfd_open(child)
    try:
        listener = notify.Listener(libc.pidfd_getfd(pidfd, struct.unpack("i", word)[0]))
    finally:
        os.close(pidfd)
    reached.append("listener")
    reader, writer = os.pipe()
    try:
        first = _receive(listener)
        reached.append("notification")
        with open(f"/proc/{child}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            if memory.read(len(MARK)) != MARK:
                raise Failed("its memory reads differently")
        reached.append("task memory")
        os.kill(child, signal.SIGUSR1)
        sleep(0.02)  # time to be interrupted, if this kernel does that
        if not listener.respond(first, ANSWER):
            raise Failed("a signal interrupted the paused call")
        reached.append("killable wait")
        os.write(writer, MARK)
        try:
            second = _receive(listener)
            listener.respond(second, listener.inject(second, reader, 0))
        except notify.Gone:
            raise Failed("the task has gone") from None
    finally:
        listener.close()
        os.close(reader)
        os.close(writer)


def _receive(listener: Listener) -> int:
    """The id of the next notification."""
    received = listener.receive() if listener.wait(PATIENCE) else None
    if received is None:
        raise Failed("no notification came")
    return received[0]


def _landlock() -> Iterator[Finding]:
    from pincer_trace.kernel.landlock import Floor

    floor = Floor.probe()
    wanted = "CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= boot parameter"
    if floor.abi < 1:
        yield Finding("landlock", False, "no Landlock: no kernel floor under file effects", wanted, required=False)
        return
    with tempfile.TemporaryDirectory(prefix="pincer-trace-") as place:
        problem = _attempt(lambda: _write_in_domain(floor, place))
    what = f"ABI {floor.abi}: a domain without write rights refuses "
    yield Finding(
        "landlock", not problem, problem or what + "create, write, unlink, mkdir", wanted,
        required=False,
    )  # fmt: skip
    late = "Linux 6.2 or later"
    yield Finding("landlock-truncate", floor.abi >= 3, "truncation is refused too", late, required=False)
    problem = "" if floor.handled_net else f"ABI {floor.abi} does not know TCP"
    if not problem:
        with socket.create_server(("127.0.0.1", 0)) as outside:
            port = outside.getsockname()[1]
            problem = _attempt(lambda: _use_tcp(floor, port))
    text = problem or "TCP connections and ports are refused"
    yield Finding("landlock-net", not problem, text, "Linux 6.7 or later", required=False)
    problem = "" if floor.scoped else f"ABI {floor.abi} has no scopes"
    if not problem:
        with socket.socket(socket.AF_UNIX) as outside:
            outside.bind("")  # an abstract address that the kernel chooses
            outside.listen(1)
            name, us = outside.getsockname(), os.getpid()
            problem = _attempt(lambda: _reach_out(floor, us, name))
    text = problem or "signals and abstract sockets do not reach processes outside"
    yield Finding("landlock-scope", not problem, text, "Linux 6.12 or later", required=False)
    problem = _attempt(lambda: _mount_in_domain(floor))
    yield Finding(
        "mounts", not problem, problem or "a profile with floor = 'scoped' can run what mounts, such as bwrap",
        "Linux 6.12 or later, and user namespaces for everybody (sysctl user.max_user_namespaces)", required=False,
    )  # fmt: skip


def _mount_in_domain(floor: Floor) -> None:
    """A mount in namespaces of one's own, in the domain of such a profile."""
    from pincer_trace.kernel import libc

    if not floor.scoped:
        raise Failed(f"ABI {floor.abi} has no scopes")
    libc.set_no_new_privileges()
    floor.without_files().restrict()
    libc.call("unshare", table.CLONE_NEWNS | table.CLONE_NEWUSER)
    libc.call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)


def _write_in_domain(floor: Floor, place: str) -> None:
    """Write-class acts that work before the domain and must fail with EACCES in it."""
    from pincer_trace.kernel import libc

    old = os.path.join(place, "old")
    with open(old, "w"):
        pass  # the control: without a domain this user can write here
    libc.set_no_new_privileges()
    floor.restrict()
    new = os.path.join(place, "new")
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
        "write": lambda: os.open(old, os.O_WRONLY),
        "unlink": lambda: os.unlink(old),
        "mkdir": lambda: os.mkdir(new),
        "symlink": lambda: os.symlink("x", new),
    }
    if floor.abi >= 3:
        acts["truncate"] = lambda: os.truncate(old, 0)
    for name, act in acts.items():
        _must_fail(name, act, errno.EACCES)


def _reach_out(floor: Floor, outsider: int, name: bytes | str) -> None:
    """A signal and a connection to a process outside: possible before the domain, EPERM in it."""
    from pincer_trace.kernel import libc

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as inside:
            inside.connect(name)

    os.kill(outsider, 0)
    connect()
    libc.set_no_new_privileges()
    floor.restrict()
    _must_fail("a signal", lambda: os.kill(outsider, 0), errno.EPERM)
    _must_fail("a connection", connect, errno.EPERM)


def _use_tcp(floor: Floor, port: int) -> None:
    """A connection and a port: possible before the domain, EACCES in it."""
    from pincer_trace.kernel import libc

    def connect() -> None:
        with socket.socket() as inside:
            inside.connect(("127.0.0.1", port))

    def bind() -> None:
        with socket.socket() as inside:
            inside.bind(("127.0.0.1", 0))

    connect()
    bind()
    libc.set_no_new_privileges()
    floor.restrict()
    _must_fail("a TCP connection", connect, errno.EACCES)
    _must_fail("a TCP port", bind, errno.EACCES)


def _must_fail(name: str, act: Callable[[], object], number: int) -> None:
    try:
        act()
    except OSError as error:
        if error.errno != number:
            raise
    else:
        raise Failed(f"{name} went through the domain")


def _yama() -> Finding:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = int(file.read())
    except FileNotFoundError:
        return Finding("yama", True, "not on this kernel")
    except (OSError, ValueError) as error:
        return Finding("yama", False, str(error), "make /proc/sys readable", required=False)
    fine = scope <= 1 or (scope == 2 and os.geteuid() == 0)
    return Finding("yama", fine, f"ptrace_scope is {scope}", "sysctl kernel.yama.ptrace_scope=1")


def _libseccomp() -> Finding:
    remedy = "apt-get install libseccomp2"
    try:
        import pyseccomp  # it finds the library when it is imported

        library = ctypes.CDLL("libseccomp.so.2")
    except (ImportError, OSError, RuntimeError) as error:
        return Finding("libseccomp", False, paths.display(str(error)), remedy)
    library.seccomp_version.restype = ctypes.POINTER(ctypes.c_uint * 3)
    version = ".".join(str(n) for n in library.seccomp_version().contents)
    return Finding("libseccomp", True, f"{version}, pyseccomp {pyseccomp.__version__}")


def _fast_path() -> Finding:
    from pincer_trace.kernel import fastpath

    def load() -> None:
        try:
            fastpath.compiled()
        except OSError as error:
            raise Failed(error.strerror or str(error)) from error

    problem = _attempt(load)
    text = problem or "reads are answered by the compiled part"
    remedy = "works without, reads cost twice as much; install a C compiler, then install again"
    return Finding("fast path", not problem, text, remedy, required=False)


def _state() -> Finding:
    """The place of sessions: can be made, belongs to us, and nobody else may enter."""
    try:
        place = os.path.join(paths.state_directory(), "sessions")
    except UserError as error:
        return Finding("state directory", False, str(error), "or give each run --session-dir DIR")
    shown = paths.display(place)
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(MARK)
            file.flush()
        found = os.stat(place)
    except OSError as error:
        return Finding("state directory", False, f"{shown}: {error.strerror}", "set XDG_STATE_HOME, or mend it")
    if found.st_uid != os.geteuid():
        return Finding("state directory", False, f"{shown} belongs to user {found.st_uid}", "set XDG_STATE_HOME")
    private = found.st_mode & 0o077 == 0
    text = f"{shown}" if private else f"{shown} is open to others (mode {found.st_mode & 0o7777:04o})"
    return Finding("state directory", private, text, f"chmod 700 {shown}", required=False)
