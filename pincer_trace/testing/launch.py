"""Starts supervisors for tests, run by its path: `python -I -S launch.py PARENT CHANNEL PREFIX PATHS`.

It imports what a supervisor needs once, and forks for each run: a start costs less than half of what it does by itself.
Each front and engine is a process of its own all the same, and none is the process of the tests (hazard P89).

Nothing of the environment or of `.pth` files decides what is imported: a project that is installed in place would
otherwise be among it, and the command may change that (P81). `PATHS` are the directories of this package and of what it
needs. It ends with `PARENT`, the process of the tests, however that ends; the fronts end with it, and with a front its
engine and the tree.
"""

from __future__ import annotations

import os
import sys

STREAMS = 3
# Descriptors of a request: standard streams, what to run, what stays open in front and engine, where the end is told
HANDED = STREAMS + 3


def main() -> int:
    """Serve until the tests end."""
    parent, channel, prefix, paths = sys.argv[1:5]
    sys.prefix = sys.exec_prefix = prefix  # of the virtual environment, which is then closed to the command as a whole
    sys.path += paths.split(os.pathsep)
    import json  # noqa: F401 - here and below: for the forked ones

    import pincer_trace.agents
    import pincer_trace.engine
    import pincer_trace.environ
    import pincer_trace.front
    import pincer_trace.kernel.filter
    import pincer_trace.kernel.signals  # noqa: F401

    _serve(int(parent), int(channel))
    return 0


def _serve(parent: int, channel: int) -> None:
    import select

    from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, signal, socket

    tests = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    server = os.getpid()
    requests = socket.socket(fileno=channel)
    poll = select.poll()
    poll.register(tests, select.POLLIN)
    poll.register(requests, select.POLLIN)
    fronts: dict[int, socket.socket] = {}  # by their pidfds: who is told of the end
    asking: dict[int, int] = {}  # the same the other way round
    while True:
        ready, _ = poll.poll()[0]  # one at a time: a descriptor that is closed may be another one's next
        if ready == tests:
            return
        if ready == channel:
            data, handed, _ = receive_descriptors(requests, 1, HANDED)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                _be_front(server, handed)
            *others, told = handed
            for descriptor in others:
                os.close(descriptor)
            front = os.pidfd_open(pid)
            fronts[front] = socket.socket(fileno=told)
            asking[told] = front
            poll.register(front, select.POLLIN)
            poll.register(told, 0)
            try:
                send_descriptors(fronts[front], b"\0", [front])
            except OSError:
                pass  # it is noticed below
        elif ready in fronts:
            ended = os.waitid(os.P_PIDFD, ready, os.WEXITED)
            assert ended is not None  # it waits for one
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            answer = fronts.pop(ready)
            if asking.pop(answer.fileno(), None) is not None:
                poll.unregister(answer)
            poll.unregister(ready)
            try:
                answer.send(b"%d" % status)
            except OSError:
                pass  # whoever asked has gone
            answer.close()
            os.close(ready)
        else:  # whoever asked has gone, and nobody else would end the run
            poll.unregister(ready)
            signal.pidfd_send_signal(asking.pop(ready), signal.SIGKILL)


def _be_front(server: int, handed: list[int]) -> None:
    """In the forked process: run what the request says. Never returns."""
    status = 125
    try:
        status = _run(server, handed)
    except BaseException as error:  # noqa: BLE001 - it must not go on in the loop above
        from pincer_trace.__main__ import complain

        complain(f"internal error: {type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(server: int, handed: list[int]) -> int:
    """The exit status. Without arguments, tell what this machine lacks to run anything."""
    import json

    from pincer_trace.__main__ import complain
    from pincer_trace.errors import FAILURE, UserError
    from pincer_trace.front import run
    from pincer_trace.kernel import libc
    from pincer_trace.kernel.bare import signal
    from pincer_trace.options import parse_run

    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        return FAILURE
    os.setsid()
    *streams, asked, life, _ = handed
    for stream, descriptor in enumerate(streams):
        os.dup2(descriptor, stream)
    with open(asked, encoding="ascii", closefd=False) as file:
        request = json.load(file)
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= STREAMS and int(name) != life:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the list itself
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        complain(f"{request['cwd']}: {error.strerror}; nothing was started")
        return FAILURE
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if not request["arguments"]:
        return _examine()
    options = parse_run(request["arguments"])
    if options is None:
        given = request["arguments"][: request["arguments"].index("--")]
        complain(f"an option is unknown or its value is wrong; see pincer-trace --help: {' '.join(given)}")
        return FAILURE
    try:
        return run(options, lambda directory: _tell(life, directory))
    except UserError as error:
        complain(str(error))
        return error.exit_status


def _tell(life: int, directory: str) -> None:
    os.write(life, os.fsencode(directory))


def _examine() -> int:
    """The status is 1, with a line for each thing, if anything that every run needs is missing."""
    from pincer_trace.doctor import examine

    lacking = [found for found in examine() if found.required and not found.ok]
    for found in lacking:
        print(f"{found.name}: {found.text}" + (f" ({found.remedy})" if found.remedy else ""))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
