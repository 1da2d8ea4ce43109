"""Ways around the supervisor that a reviewer found, by way of processes, terminals, signals, limits and queues."""

from __future__ import annotations

import os
import pty
import resource
import threading
import time
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, attack, compiled, give, notes, python, same_as_native

pytestmark = pytest.mark.both_identities


def wait_for(path: Path, patience: float = 20.0) -> str:
    """The text of a file that the worker makes, once it is there with a full line."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} did not come")


def test_p91_a_terminal_number_that_is_used_again(runner: support.Runner) -> None:
    """The tree had terminals and closed them; another session's terminal now has one of their numbers."""
    ends: list[int] = []
    used: set[int] = set()

    def another_session() -> None:
        used.update(map(int, wait_for(runner.work / "numbers").split()))
        master, slave = pty.openpty()
        ends.extend((master, slave))
        os.fchown(slave, runner.identity.uid, runner.identity.gid)
        give(runner, runner.work / "name", os.ttyname(slave).encode() + b"\n")

    beside = threading.Thread(target=another_session)
    beside.start()
    try:
        found, _ = attack(
            runner,
            """
import fcntl, time
masters = [os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY) for _ in range(30)]
numbers = [int.from_bytes(fcntl.ioctl(m, 0x80045430, bytes(4)), "little") for m in masters]
fcntl.ioctl(masters[0], 0x40045431, bytes(4))
note("own", errno_of(os.open, f"/dev/pts/{numbers[0]}", os.O_RDWR | os.O_NOCTTY))
for m in masters: os.close(m)
make("numbers.new", (" ".join(map(str, numbers)) + "\\n").encode()); os.rename("numbers.new", "numbers")
while not os.path.exists("name") or not open("name").read().endswith("\\n"): time.sleep(0.01)
name = open("name").read().strip()
note("name", name)
for flags in (0, 1, 2): note(str(flags), errno_of(os.open, name, flags | os.O_NOCTTY | os.O_NONBLOCK))
report()
""",
        )
    finally:
        beside.join()
        for end in ends:
            os.close(end)
    assert int(str(found.pop("name")).rpartition("/")[2]) in used, "the number was not given out again"
    assert found == {"own": 0, "0": 13, "1": 13, "2": 13}


def test_p05_a_process_with_other_ids_is_ended(runner: support.Runner) -> None:
    """What changed its ids outlives the command, and is ended all the same."""
    found, _ = attack(
        runner,
        """
import time
done, ready = os.pipe()
pid = os.fork()
if not pid:
    for fd in (0, 1, 2): os.close(fd)
    os.setsid()
    if not os.getuid(): os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
    os.write(ready, b"x"); time.sleep(300)
os.read(done, 1); note("pid", pid); report()
""",
        timeout=20,
    )
    assert not os.path.exists(f"/proc/{found['pid']}")


def test_p96_no_thread_can_be_started(runner: support.Runner) -> None:
    """The user's process limit is reached: calls are refused, and answered again once there is room."""
    if runner.identity.uid == 0:
        pytest.skip("root has no process limit")
    tasks = 0
    for entry in Path("/proc").glob("[0-9]*/task/*"):
        try:
            tasks += entry.stat().st_uid == runner.identity.uid
        except OSError:
            continue
    limit = tasks + 200  # other tests run beside this one
    found, _ = attack(
        runner,
        """
import signal, socket, time
os.mkfifo("fifo")
def bind(name): return errno_of(socket.socket(socket.AF_UNIX).bind, name)
children = []
try:
    for _ in range(3000):
        pid = os.fork()
        if not pid: signal.pause(); os._exit(0)
        children.append(pid)
except OSError as error: note("fork", error.errno)
bind("s1"); errno_of(os.open, "a", os.O_WRONLY | os.O_CREAT)
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(110, "alarm")))
signal.alarm(1); note("held", errno_of(os.open, "fifo", os.O_RDONLY) in (11, 13, 110)); signal.alarm(0)
for pid in children: os.kill(pid, 9); os.waitpid(pid, 0)
note("bind", bind("s2")); note("open", errno_of(os.open, "b", os.O_WRONLY | os.O_CREAT)); report()
""",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit)),
    )
    assert found == {"fork": 11, "held": True, "bind": 0, "open": 0}


def test_p73_a_lease_that_another_breaks(runner: support.Runner) -> None:
    """The signal that tells of it ends nobody."""
    runner.native(["git", "init", "-q"])
    lock = runner.work / ".git/config.lock"
    over = threading.Event()
    broken = []

    def stranger() -> None:
        while not over.is_set():
            try:
                os.close(os.open(lock, os.O_WRONLY | os.O_NONBLOCK))
            except BlockingIOError:
                broken.append(1)
                if len(broken) == 3:
                    (runner.work / "enough").touch()
            except OSError:
                continue

    beside = threading.Thread(target=stranger)
    beside.start()
    try:
        found, _ = attack(
            runner,
            """
import time
text = open(".git/config", "rb").read(); end = time.monotonic() + 20; answers = set()
while time.monotonic() < end and not os.path.exists("enough"):
    make(".git/config.lock", text); answers.add(errno_of(os.rename, ".git/config.lock", ".git/config"))
note("answers", sorted(answers)); report()
""",
        )
    finally:
        over.set()
        beside.join()
    assert set(found["answers"]) <= {0, 13}
    if not broken:
        pytest.skip("the stranger never met a lease")


def test_p43_a_name_does_not_make_a_trusted_program(runner: support.Runner) -> None:
    """Rules that allow by `exe` do not believe a program that the worker made."""
    give(runner, runner.home / ".npmrc", SECRET)
    result = runner.supervise(["sh", "-c", "cp /bin/cat node && ./node ~/.npmrc; cp node npm; ./npm ~/.npmrc"])
    assert SECRET not in result.stdout
    assert len(result.denied(runner.home / ".npmrc")) == 2


def test_p18_two_processes_share_directory_and_umask(runner: support.Runner) -> None:
    """CLONE_FS without threads: what the one changes holds for the other's next call."""
    same_as_native(
        runner,
        """
CLONE = 56 if platform.machine() == "x86_64" else 220
os.mkdir("d"); os.umask(0o022); make("first", mode=0o666)
pid = ctypes.CDLL(None).syscall(ctypes.c_long(CLONE), ctypes.c_long(0x200 | 17), *[ctypes.c_long(0)] * 4)
if not pid: os.umask(0o077); os.chdir("d"); os._exit(0)
os.waitpid(pid, 0); make("second", mode=0o666)
note("where", os.path.basename(os.getcwd())); note("mode", oct(os.stat("second").st_mode)); report()
""",
    )


def test_p18_a_shared_directory_is_read_for_each_call(runner: support.Runner) -> None:
    """The other process may change it between two calls of this one, also while it is on its way there."""
    program = compiled("places")
    assert runner.native([program, "300"]).out == "0 wrong\n"
    runner.fresh()
    result = runner.supervise([program, "300"])
    assert (result.status, result.out) == (0, "0 wrong\n"), result


def test_p70_messages_of_others_are_not_taken(runner: support.Runner) -> None:
    """Receiving removes a message: opening for reading counts as a change."""
    name = f"pincer-taken-{os.getpid()}-{runner.identity.name}"
    make = "note('x', word(call('mq_open', sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600, 0))); report()"
    assert notes(runner.native(python(runner, make, name))) == {"x": "ok"}
    try:
        found, _ = attack(runner, "note('open', word(call('mq_open', sys.argv[1], 0, 0, 0))); report()", name)
    finally:
        gone = "note('x', word(call('mq_unlink', sys.argv[1]))); report()"
        assert notes(runner.native(python(runner, gone, name))) == {"x": "ok"}
    assert found == {"open": "EACCES"}


def test_p68_memory_maps_after_a_change_of_ids(runner: support.Runner) -> None:
    """A child that gave up root reads of its parent what it could read natively, through our rights nothing more."""
    same_as_native(
        runner,
        """
pid = os.fork()
if not pid:
    if not os.getuid(): os.setgroups([]); os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
    for name in ("maps", "environ", "fd", "mem"):
        note(name, errno_of(os.open, f"/proc/{os.getppid()}/{name}", os.O_RDONLY))
    report(); os._exit(0)
os.waitpid(pid, 0)
""",
    )
