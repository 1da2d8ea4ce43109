"""The worker's start: from fork to execve, and how its listener reaches the engine.

The filter goes on last, in a single-threaded child, just before execve (P67). The child tells the listener's number
over a close-on-exec pipe (write is never trapped) and the engine takes it by pidfd_getfd, so that no call is exempt
(P7). A failed step comes back over the same pipe as its name and errno.
"""

from __future__ import annotations

import os
import resource

from pincer_trace.errors import NOT_EXECUTABLE, NOT_FOUND, UserError
from pincer_trace.executor import identity
from pincer_trace.kernel import libc
from pincer_trace.kernel.bare import signal
from pincer_trace.kernel.detachment import close_others

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pincer_trace.kernel.landlock import Floor

_LAST_CAPABILITY = 63
NESTED = (
    "another seccomp supervisor already holds this process (nested run, or WSL2's init): "
    "a process has one listener only; run pincer-trace outermost"
)


class Plan:
    """What to start and under what: made before the fork, used in the child."""

    __slots__ = ("arguments", "environment", "filter", "floor", "keep", "mounting", "path")

    def __init__(
        self,
        path: bytes,
        arguments: list[bytes],
        environment: Mapping[bytes, bytes],
        *,
        program: bytes,
        floor: Floor,
        keep: list[int],
        mounting: bool = False,
    ) -> None:
        self.path = path
        self.arguments = arguments
        self.environment = environment
        self.filter = program
        self.floor = floor
        self.keep = sorted(set(keep))
        self.mounting = mounting  # whether the command may make mounts of its own


class Begun:
    """A worker that goes on to its execve by itself, and tells on `report` how far it came."""

    __slots__ = ("pid", "report")

    def __init__(self, pid: int, report: int) -> None:
        self.pid = pid
        self.report = report


class Started:
    """A worker whose first call, its execve, waits for an answer. `report` is the pipe for a failed execve."""

    __slots__ = ("listener", "pid", "report")

    def __init__(self, pid: int, listener: int, report: int) -> None:
        self.pid = pid
        self.listener = listener
        self.report = report


def find_command(name: str, search: str | None) -> str:
    """The file that a shell would execute for `name`. Raises UserError with a shell's status, 126 or 127."""
    candidates = [name] if "/" in name else [os.path.join(d or ".", name) for d in (search or os.defpath).split(":")]
    unusable = ""
    for candidate in candidates:
        if os.path.isdir(candidate):
            unusable = unusable or f"{candidate}: is a directory"
        elif os.access(candidate, os.X_OK):
            return candidate
        elif os.path.lexists(candidate):
            unusable = unusable or f"{candidate}: not executable"
    if unusable:
        raise UserError(f"{unusable}; nothing was started", NOT_EXECUTABLE)
    where = "no such file" if "/" in name else "command not found on PATH"
    raise UserError(f"{name}: {where}; nothing was started", NOT_FOUND)


def begin(plan: Plan) -> Begun:
    """Fork the worker. It ends with the calling thread."""
    report, child_report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report)
            _become(plan, child_report)
        finally:
            os._exit(125)
    os.close(child_report)
    return Begun(pid, report)


def take(begun: Begun) -> Started:
    """The worker, once it waits. Raises UserError naming the step that failed; then no worker is left."""
    pid, report = begun.pid, begun.report
    message = _read_line(report)
    step, _, detail = message.partition(b" ")
    if step == b"listener":
        pidfd = os.pidfd_open(pid)
        try:
            return Started(pid, libc.pidfd_getfd(pidfd, int(detail)), report)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise UserError(f"cannot take the worker's listener: {error.strerror}; see: pincer-trace doctor") from error
        finally:
            os.close(pidfd)
    os.waitpid(pid, 0)
    os.close(report)
    raise UserError(_explain(step.decode(), int(detail or b"0")))


def exec_failure(report: int) -> tuple[int, str] | None:
    """After the worker's end: (exit status, message) if its execve failed, None if the program ran. Closes `report`."""
    message = _read_line(report)
    os.close(report)
    if not message.startswith(b"execve "):
        return None
    number = int(message.split(b" ")[1])
    return NOT_EXECUTABLE, f"cannot execute: {os.strerror(number)}"


def _read_line(descriptor: int) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(descriptor, 1)
        if not chunk:
            break
        data += chunk
    return data.rstrip(b"\n")


def _explain(step: str, number: int) -> str:
    import errno

    if step == "filter" and number == errno.EBUSY:
        return NESTED
    if step == "filter" and number in (errno.EINVAL, errno.ENOSYS):
        return (
            "this kernel lacks seccomp user notification with WAIT_KILLABLE_RECV (Linux 5.19); see: pincer-trace doctor"
        )
    if not step:
        return "the worker ended before its filter was on; see: pincer-trace doctor"
    return f"cannot start the worker: step {step}: {os.strerror(number)}; see: pincer-trace doctor"


def _become(plan: Plan, report: int) -> None:
    """In the child: never returns. Only what was imported before the fork is used here (P60)."""
    step = "signals"
    try:
        for number in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores these two; programs expect the default
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Ctrl-C ends it as it would the command
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        step = "descriptors"
        close_others([*plan.keep, report])
        for descriptor in plan.keep:
            os.set_inheritable(descriptor, True)
        step = "limits"
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file could hold what it should not (P63)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        step = "no_new_privs"
        libc.set_no_new_privileges()
        step = "capabilities"
        _drop_capabilities()
        step = "landlock"
        plan.floor.restrict()
        step = "filter"
        listener = libc.install_filter(plan.filter)
        os.write(report, b"listener %d\n" % listener)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # only now: nobody waits any more for us, who may be stopped
        step = "execve"
        try:
            os.execve(plan.path, plan.arguments, plan.environment)
        except OSError as error:
            if error.errno != 8:  # ENOEXEC: a script without #!, which every shell runs by itself
                raise
            os.execve(b"/bin/sh", [b"sh", plan.path, *plan.arguments[1:]], plan.environment)
    except OSError as error:
        os.write(report, f"{step} {error.errno or 0}\n".encode())
    except BaseException:  # noqa: BLE001 - the parent must hear of it
        os.write(report, f"{step} 0\n".encode())
    os._exit(126)


def _drop_capabilities() -> None:
    """As root, keep the file rights and the setting of ids; everything else would reach outside of the tree."""
    effective, permitted, _ = libc.get_capabilities()
    if not permitted:
        return
    for capability in range(_LAST_CAPABILITY + 1):
        if not identity.WORKER_CAPABILITIES >> capability & 1:
            try:
                libc.prctl(libc.PR_CAPBSET_DROP, capability)
            except OSError:
                break  # beyond the last one of this kernel, or no CAP_SETPCAP
    libc.call("prctl", 47, 4, 0, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
    kept = permitted & identity.WORKER_CAPABILITIES
    libc.set_capabilities(effective & kept, kept, 0)
