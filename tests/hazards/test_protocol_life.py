"""How a run starts, fails and ends: P5 and P6 the listener, P57 and P97 processes, P60 our own Python, P67 the start,
P95 the end, and P96 failures inside the supervisor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, broken, children, give, kill, numbers, outside, program, secret, state, until

WRITER = "while :; do echo x >>{0}; done"


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if state(pid) not in "XZ"]


def gone_within(pids: list[int], seconds: float) -> None:
    for _ in until(f"the end of {pids}", seconds):
        if not living(pids):
            return


@contextlib.contextmanager
def writers(runner: support.Runner, **how: object) -> object:
    """A run whose tree writes all the time: the command, a child, and a daemon in a session of its own."""
    daemon = f"setsid -f sh -c '{WRITER.format('daemon')}' </dev/null"
    code = f"{daemon}; sh -c '{WRITER.format('child')}' & echo $!; {WRITER.format('own')}"
    with Live(runner, ["sh", "-c", code], **how) as live:  # type: ignore[arg-type]
        live.line()
        files = [runner.work / name for name in ("daemon", "child", "own")]
        for _ in until("three writers", 10):
            if all(file.exists() and file.stat().st_size > 4 for file in files):
                break
        live.files = files  # type: ignore[attr-defined]
        yield live


def assert_silent(files: list[Path]) -> None:
    """Nothing is written any more: sizes and times stay."""
    before = [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    time.sleep(0.1)  # there is no event for nothing
    assert [(file.stat().st_size, file.stat().st_mtime_ns) for file in files] == before


@pytest.mark.both_identities
@pytest.mark.parametrize("victim", ["engine", "front"])
def test_p05_killing_the_supervisor_ends_the_tree(runner: support.Runner, victim: str) -> None:
    """kill -9 of either half: every process of the run is gone in a second, and nothing is written after that."""
    with writers(runner) as live:  # type: ignore[attr-defined]
        engine, tree = live.engine, live.tree()
        assert len(tree) >= 4
        kill(engine if victim == "engine" else live.front)
        gone_within([pid for pid in [live.front, *tree] if pid != os.getpid()], 1.0)
        assert_silent(live.files)
        status = live.process.wait(5)
        assert status == (125 if victim == "engine" else -signal.SIGKILL)
        if victim == "engine":
            assert b"ended unexpectedly" in live.errors()
        assert any(entry["effect"] in ("write", "create") for entry in live.decisions()), "the log is lost"


def test_p05_killing_both_halves_leaves_no_effect(runner: support.Runner) -> None:
    """Nobody is left to end the tree; then its calls answer ENOSYS, it cannot become its own supervisor, and the floor
    refuses what it does by itself."""
    give(runner, runner.work / "there", b"as it was\n")
    with Live(runner, [program("p5_listener"), "orphan"]) as live:
        orphan = int(live.line().split()[1])
        try:
            engine = live.engine
            kill(live.front, signal.SIGSTOP)  # it must not see the engine's end
            kill(engine)
            kill(live.front)
            assert live.line() == f"orphan before=0 listener={-errno.EBUSY} after=0"
            assert [path.name for path in runner.work.iterdir()] == ["there"]
            assert (runner.work / "there").read_text() == "as it was\n"
        finally:
            kill(orphan)


@pytest.mark.both_identities
def test_p05_a_worker_gets_no_listener_of_its_own(runner: support.Runner) -> None:
    found = numbers(runner.supervise([program("p5_listener"), "now"]))
    assert found.pop("own") == 0, "programs may still filter themselves"
    assert set(found.values()) == {-errno.EBUSY}, found
    native = numbers(runner.native([program("p5_listener"), "now"]))
    if runner.identity.uid == 0:  # a normal user would need no_new_privs first
        assert native["plain"] > 0, "the attacker cannot attack"


def test_p05_the_worker_cannot_end_the_supervisor(runner: support.Runner) -> None:
    code = "for pid in $(cut -d' ' -f4 /proc/$$/stat) $(cat /proc/*/stat 2>/dev/null | grep -a python | cut -d' ' -f1); do kill -9 $pid; kill -STOP $pid; done 2>/dev/null; echo still here"
    result = runner.supervise(["sh", "-c", code])
    assert (result.out, result.status) == ("still here\n", 0)


@pytest.mark.both_identities
def test_p06_nested_is_refused_in_one_line(runner: support.Runner) -> None:
    inner = [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(runner.work), "--", "touch", "ran"]
    result = runner.supervise(inner)
    assert result.status == 125, result
    lines = result.err.splitlines()
    assert len(lines) == 1, result
    assert "nested" in lines[0]
    assert not (runner.work / "ran").exists()


def test_p57_a_hundred_pipelines(runner: support.Runner) -> None:
    """fork, dup, close, exit and wait never wait for us: 100 three-stage pipelines, and all of them end."""
    code = "i=0; while [ $i -lt 100 ]; do echo $i | cat | cat; i=$((i+1)); done"
    result = runner.supervise(["sh", "-c", code], timeout=30)
    assert result.out.split() == [str(number) for number in range(100)]
    assert result.status == 0


def test_p57_many_threads_that_fork_and_close(runner: support.Runner) -> None:
    code = """
import os, subprocess, sys, threading
def work():
    for _ in range(12):
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(w, 1)
            os.execv("/bin/echo", ["echo", "x"])
        os.close(w)
        assert os.read(r, 9) == b"x\\n"
        os.close(r)
        os.waitpid(pid, 0)
threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print("all done")
"""
    result = runner.supervise([runner.identity.python, "-I", "-c", code], timeout=30)
    assert (result.out, result.status) == ("all done\n", 0), result


OPENS = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
os.makedirs("d", exist_ok=True)
open("f", "w").write("x")
def attempt(act):
    try:
        return act()
    except OSError:
        return None
def close(number):
    if number is not None and number >= 0:
        os.close(number)
def child():
    pid = os.fork()
    if not pid:
        close(os.open("f", os.O_RDONLY))
        os.chdir("d")
        close(os.open("../f", os.O_RDONLY))
        os._exit(0)
    os.waitpid(pid, 0)
def bind():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
    os.unlink("s")
def relative():
    top = os.open("d", os.O_RDONLY)
    close(os.open("../f", os.O_RDONLY, dir_fd=top))
    attempt(lambda: os.mkdir("sub", dir_fd=top))
    attempt(lambda: os.rmdir("sub", dir_fd=top))
    os.fchmod(top, 0o755)
    close(top)
acts = [
    lambda: close(os.open("f", os.O_RDONLY)), lambda: close(os.open("f", os.O_RDWR)), lambda: close(os.open("f", os.O_WRONLY | os.O_TRUNC)),
    lambda: (close(os.open("g", os.O_CREAT | os.O_EXCL | os.O_WRONLY)), os.unlink("g")),
    lambda: close(attempt(lambda: os.open(sys.argv[1], os.O_RDONLY))), lambda: close(attempt(lambda: os.open(sys.argv[2], os.O_WRONLY))),
    lambda: attempt(lambda: os.open("no/such", os.O_RDONLY)), lambda: attempt(lambda: os.open("no/such", os.O_CREAT | os.O_WRONLY)),
    lambda: (os.mkdir("m"), os.rename("m", "n"), os.rmdir("n")), lambda: (os.symlink("f", "l"), close(os.open("l", os.O_RDONLY)), os.unlink("l")),
    lambda: (os.link("f", "k"), os.unlink("k")), lambda: (os.chmod("f", 0o600), os.utime("f"), os.truncate("f", 3)),
    lambda: attempt(lambda: os.chmod(sys.argv[2], 0o600)), lambda: attempt(lambda: os.unlink(sys.argv[2])), lambda: attempt(lambda: os.rename("f", sys.argv[2])),
    lambda: (os.setxattr("f", "user.x", b"1"), os.removexattr("f", "user.x")), lambda: close(os.open("/proc/self/stat", os.O_RDONLY)),
    lambda: close(os.open("/proc/thread-self/comm", os.O_RDWR)), lambda: close(attempt(lambda: os.open("/dev/tty", os.O_RDWR))),
    lambda: close(os.open("/dev/null", os.O_RDWR)), lambda: close(os.open(".", os.O_TMPFILE | os.O_RDWR)), child, bind, relative,
    lambda: (os.mkfifo("p"), close(os.open("p", os.O_RDWR | os.O_NONBLOCK)), os.unlink("p")), lambda: [close(one) for one in os.openpty()],
    lambda: (os.chdir("d"), os.chdir("..")), lambda: os.umask(os.umask(0o27)), lambda: attempt(lambda: os.open("f/x", os.O_RDONLY)),
    lambda: attempt(lambda: os.listxattr("f")), lambda: os.listdir("."), lambda: libc.open(None, 0), lambda: libc.mkdir(ctypes.c_void_p(8), 0),
]
def rounds(count):
    for _ in range(count):
        for act in acts:
            act()
for line in sys.stdin:
    rounds(int(line))
    print("done")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("rounds", [40, pytest.param(4000, marks=pytest.mark.slow)])
def test_p60_no_descriptor_is_left_open(runner: support.Runner, rounds: int) -> None:
    """Some 30 kinds of calls, allowed, denied and failing: afterwards the engine has as many descriptors and threads as
    before, and no failure was recorded. Python's own checks are on (-X dev, warnings are errors)."""
    words = ("-I", "-X", "dev", "-W", "error", "-m", "pincer_trace")
    command = [runner.identity.python, "-I", "-c", OPENS, str(secret(runner)), str(outside(runner))]
    with Live(runner, command, words=words) as live:
        live.say(b"3\n")
        assert live.line() == "done"
        engine = Path(f"/proc/{live.engine}")

        def held() -> tuple[list[str], int]:
            return [os.readlink(engine / "fd" / number) for number in os.listdir(engine / "fd")], len(os.listdir(engine / "task"))

        def settled() -> tuple[int, int]:
            # entries of dead tasks are dropped within seconds: their descriptors are no leak
            found, threads = held()
            return len([name for name in found if not re.match(r"/proc/\d+/mem|anon_inode:\[pidfd\]|/tmp/", name)]), threads

        before = settled()
        total = len(held()[0])
        live.say(b"%d\n" % rounds)
        assert live.line(120) == "done"
        assert settled() == before
        assert len(held()[0]) <= total + 200
        assert live.end() == 0
        assert live.errors() == b""
        failures = [entry["reason"] for entry in live.decisions() if "supervisor failed" in entry["reason"]]
        assert failures == []


STEPS = {  # what fails -> what the line must name
    "pincer_trace.worker:_close_others=EBADF": "descriptors",
    "pincer_trace.worker:resource.setrlimit=EPERM": "limits",
    "pincer_trace.kernel.libc:set_no_new_privileges=EINVAL": "no_new_privs",
    "pincer_trace.worker:_drop_capabilities=EPERM": "capabilities",
    "pincer_trace.kernel.landlock:Floor.restrict=EPERM": "landlock",
    "pincer_trace.kernel.libc:install_filter=EPERM": "filter",
    "pincer_trace.kernel.libc:install_filter=EINVAL": "WAIT_KILLABLE_RECV",
    "pincer_trace.kernel.libc:install_filter=EBUSY": "nested",
    "pincer_trace.kernel.libc:install_filter=RuntimeError": "filter",
    "pincer_trace.kernel.libc:pidfd_getfd=EPERM": "listener",
    "pincer_trace.worker:os.fork=EAGAIN": "",
    "pincer_trace.engine:Engine._prepare=RuntimeError": "",
    "pincer_trace.engine:Engine._detach=EPERM": "",
}


@pytest.mark.parametrize("fault", STEPS)
def test_p67_each_step_of_the_start_fails_loudly(runner: support.Runner, fault: str) -> None:
    """One line that names the step, status 125, the command never ran, and nobody is left."""
    result = broken(runner, fault, ["touch", "ran"], timeout=20)
    assert result.status == 125, result
    assert len(result.err.splitlines()) == 1, result
    assert STEPS[fault] in result.err
    assert "Traceback" not in result.err
    assert not (runner.work / "ran").exists()


@pytest.mark.both_identities
def test_p67_an_exec_that_fails_is_told(runner: support.Runner) -> None:
    """The last step of all: after the filter, so its errno comes back over the same pipe."""
    wrong = runner.work / "wrong"
    wrong.write_bytes(b"#!/etc/passwd\n")  # an interpreter that nobody may execute
    wrong.chmod(0o755)
    os.chown(wrong, runner.identity.uid, runner.identity.gid)
    result = runner.supervise([str(wrong)], options=())
    assert result.status == 126, result
    assert "Permission denied" in result.err
    assert "Traceback" not in result.err


@pytest.mark.both_identities
def test_p67_the_filter_is_on_before_the_command(runner: support.Runner) -> None:
    """What the command finds about itself at its first instruction."""
    result = runner.supervise(["cat", "/proc/self/status"])
    fields = dict(line.split(":\t", 1) for line in result.out.splitlines() if ":\t" in line)
    assert (fields["NoNewPrivs"], fields["Seccomp"], fields["Threads"]) == ("1", "2", "1")
    assert int(fields["SigIgn"], 16) == int(runner_ignored(runner), 16)
    assert int(fields["SigBlk"], 16) == 0


def runner_ignored(runner: support.Runner) -> str:
    native = runner.native(["cat", "/proc/self/status"])
    return next(line.split(":\t")[1] for line in native.out.splitlines() if line.startswith("SigIgn"))


def cpu_ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def test_p95_the_engine_rests_when_nobody_asks(runner: support.Runner) -> None:
    with Live(runner, ["cat"]) as live:
        live.say(b"x\n")
        assert live.line() == "x"
        before = cpu_ticks(live.engine)
        time.sleep(0.3)
        assert cpu_ticks(live.engine) - before <= 3  # hundredths of a second
        assert live.end() == 0


def test_p95_the_engine_ends_with_its_last_task(runner: support.Runner) -> None:
    """Front and engine end promptly, whatever the last task was: the command, or a process that outlived it."""
    started = time.monotonic()
    with Live(runner, ["sh", "-c", "setsid -f sleep 30 </dev/null >/dev/null 2>&1; echo started"], options=()) as live:
        assert live.line() == "started"
        engine = live.engine
        assert live.end() == 0
        gone_within([engine], 1.0)
        assert time.monotonic() - started < 10
        assert b"1 process outlived the command and ended" in live.errors()


FAULTS = [
    "pincer_trace.gateway.tasks:Tasks.get",
    "pincer_trace.gateway.tasks:Tasks.read_path",
    "pincer_trace.gateway.resolve:Resolver.parent",
    "pincer_trace.gateway.resolve:Resolver.path_of",
    "pincer_trace.twin.authority:Authority.judge",
    "pincer_trace.twin.authority:Authority.intend",
    "pincer_trace.executor.identity:Identity.take_mask",
    "pincer_trace.executor.opens:Opens._open_or_create",
    "pincer_trace.executor.opens:Opens._create",
    "pincer_trace.executor.opens:give",
    "pincer_trace.kernel.notify:Listener.inject",
    "pincer_trace.ledger.writer:Ledger.intent",
]

@pytest.mark.parametrize("error", ["RuntimeError", "MemoryError", "KeyboardInterrupt", "SystemExit"])
@pytest.mark.parametrize("where", FAULTS[:3] + FAULTS[4:6])
def test_p96_a_failure_in_a_stage_is_a_denial_with_a_record(runner: support.Runner, where: str, error: str) -> None:
    """Whatever is raised, and wherever: the worker gets EACCES, the run goes on, a record says why."""
    # the first calls are the start of the command itself, so a later one fails: the record tells that it came
    command = ["sh", "-c", "i=0; while [ $i -lt 60 ]; do mkdir d$i; i=$((i+1)); done; echo all"]
    result = broken(runner, f"{where}={error}@40", command, options=("--quiet",), timeout=30)
    assert "all" in result.out or result.status != 0, result
    failures = [entry for entry in result.decisions if "supervisor failed" in entry["reason"]]
    assert len(failures) == 1, result
    assert failures[0]["verdict"] == "deny"
    assert error in failures[0]["reason"]
    assert "Traceback" not in result.err


@pytest.mark.parametrize("where", FAULTS)
def test_p96_nothing_happens_when_everything_fails(runner: support.Runner, where: str) -> None:
    """The same function fails for every call from the start on: no effect, no hang, one status."""
    result = broken(runner, f"{where}=RuntimeError", ["/bin/mkdir", "made"], options=("--quiet",), timeout=20)
    assert result.status != 0 or "give" in where or "inject" in where or "_create" in where, result
    if where.rpartition(":")[2] not in ("Opens._open_or_create", "Opens._create", "give", "Listener.inject"):
        assert not (runner.work / "made").exists()


HELPERS = {  # a function that runs on a helper thread -> calls that get there
    "pincer_trace.executor.blocking:BlockingOpens._open": "os.close(os.open('p', os.O_RDONLY))",
    "pincer_trace.executor.sockets:_bind_there": "socket.socket(socket.AF_UNIX).bind('s')",
}


@pytest.mark.parametrize("error", ["RuntimeError", "EIO", "MemoryError"])
@pytest.mark.parametrize("where", HELPERS)
def test_p96_a_failing_helper_thread_answers(runner: support.Runner, where: str, error: str) -> None:
    """A task whose call went to a helper thread is never left waiting, the next one neither, and failures are recorded."""
    code = f"""
import errno, os, socket
os.mkfifo("p")
for _ in range(3):
    try:
        {HELPERS[where]}
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    command = [runner.identity.python, "-I", "-c", code]
    result = broken(runner, f"{where}={error}", command, options=("--quiet",), timeout=10)
    assert result.status == 0, result
    told = error == "EIO" and "sockets" in where  # an errno of the call itself is the worker's
    assert result.out.split() == ["EIO" if told else "EACCES"] * 3
    failures = [entry for entry in result.decisions if "supervisor failed" in entry["reason"]]
    assert len(failures) == (0 if told else 3), [entry["reason"] for entry in failures]
    assert not (runner.work / "s").exists()


def test_p96_the_failure_itself_cannot_be_recorded(runner: support.Runner) -> None:
    """The log refuses the record of the failure too: still a denial, and the run goes on."""
    result = broken(runner, "pincer_trace.ledger.writer:Ledger._append=OSError@30", ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do mkdir d$i; done; echo all"], timeout=20)
    assert "all" in result.out, result


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_p97_orphans_are_reaped_while_the_command_runs(runner: support.Runner, count: int) -> None:
    with Live(runner, [program("p97_orphans"), str(count)]) as live:
        assert live.line(60) == "made"
        for _ in until("no defunct child", 5):
            if not [pid for pid in children(live.engine) if state(pid) == "Z"]:
                break
        assert children(live.engine) == [live.worker]
        live.say()
        assert live.end() == 0


def test_p97_the_status_is_the_commands_own(runner: support.Runner) -> None:
    """Among many orphans with statuses of their own, the one that is passed on is the command's."""
    code = "i=0; while [ $i -lt 50 ]; do (sh -c 'exit 9' &) ; i=$((i+1)); done; exit 42"
    for _ in range(3):
        assert runner.supervise(["sh", "-c", code]).status == 42


@pytest.mark.both_identities
@pytest.mark.parametrize("way", ["restart", "handle"])
@pytest.mark.parametrize("rounds", [60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_p10_interrupted_calls_happen_once(runner: support.Runner, way: str, rounds: int) -> None:
    """A timer each 200 us and nine kinds of effects: none is lost, none is done twice, and with SA_RESTART no EINTR."""
    found = numbers(runner.supervise([program("p10_signals"), str(rounds), "200", way], timeout=600))
    assert found["signals"] > rounds
    assert found["twice"] == found["lost"] == found["failed"] == 0, found
    if way == "restart":
        assert found["interrupted"] == 0
    assert list(runner.work.iterdir()) == []


def test_p10_four_at_once(runner: support.Runner) -> None:
    """The same with a queue in front of the supervisor: signals hit calls that wait to be received."""
    attacker = program("p10_signals")
    code = f"for i in 1 2 3 4; do {attacker} 30 300 restart & done; wait"
    result = runner.supervise(["sh", "-c", code], timeout=60)
    assert len(result.out.splitlines()) == 4, result
    for line in result.out.splitlines():
        assert line.startswith("twice=0 lost=0 failed=0 interrupted=0 "), line
    assert list(runner.work.iterdir()) == []


FIFOS = """
import os, signal, subprocess, sys
count = 64
for number in range(count):
    os.mkfifo(f"p{number}")
readers = [subprocess.Popen(["cat", f"p{number}"], stdout=subprocess.PIPE) for number in range(count)]
print("waiting"); sys.stdout.flush(); sys.stdin.readline()
for number in range(200):  # meanwhile others work
    open("f", "w").write(str(number))
    os.rename("f", "g")
print("worked"); sys.stdout.flush(); sys.stdin.readline()
for number, reader in enumerate(readers):
    if number % 4 == 3:
        reader.kill()
        print(number, reader.wait())
    elif number % 4 == 2:
        reader.terminate()
        print(number, reader.wait())
    else:
        with open(f"p{number}", "w") as stream:
            stream.write(f"text {number}")
        print(number, reader.communicate()[0], reader.returncode)
print("all")
"""


def test_p14_waiting_opens_stop_nobody(runner: support.Runner) -> None:
    """64 opens of FIFOs wait; others go on; each is then served, or dies of a signal at once."""
    with Live(runner, [runner.identity.python, "-I", "-c", FIFOS]) as live:
        assert live.line() == "waiting"
        engine = Path(f"/proc/{live.engine}/task")
        for _ in until("64 waiting opens", 10):
            names = [(thread / "comm").read_text() for thread in engine.iterdir() if thread.exists()]
            if len(names) >= 64:
                break
        live.say()
        assert live.line(10) == "worked"
        live.say()
        answers = live.read_until(b"all\n", 20).decode().splitlines()[:-1]
        wanted = [
            f"{number} {-signal.SIGKILL if number % 4 == 3 else -signal.SIGTERM}" if number % 4 > 1 else f"{number} {f'text {number}'.encode()!r} 0"
            for number in range(64)
        ]
        assert answers == wanted
        assert live.end() == 0


@pytest.mark.both_identities
def test_p14_a_timeout_around_a_waiting_open(runner: support.Runner) -> None:
    started = time.monotonic()
    result = runner.supervise(["sh", "-c", "mkfifo p; timeout 0.3 cat p; echo $?; timeout -s KILL 0.3 cat p; echo $?"])
    assert result.out.split() == ["124", "137"], result
    assert time.monotonic() - started < 5


@pytest.mark.both_identities
@pytest.mark.parametrize("aim", ["process", "thread"])
def test_p14_a_handler_runs_while_an_open_waits(runner: support.Runner, aim: str) -> None:
    """alarm() around an open that waits: the handler runs and the open ends, as natively (P74 has the rest)."""
    code = """
import os, signal, sys, threading
class Late(Exception): pass
def late(*_):
    raise Late
signal.signal(signal.SIGALRM, late)
os.mkfifo("p")
main = threading.main_thread().ident
if sys.argv[1] == "process":
    signal.setitimer(signal.ITIMER_REAL, 0.1)
else:
    threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGALRM)).start()
try:
    os.open("p", os.O_RDONLY)
except Late:
    print("late")
"""
    result = runner.supervise([runner.identity.python, "-I", "-c", code, aim], timeout=10)
    assert (result.out, result.status) == ("late\n", 0), result


def test_p14_the_end_does_not_wait_for_waiting_opens(runner: support.Runner) -> None:
    """The command ends while a child's open still waits: the run ends, and says that it ended it."""
    result = runner.supervise(["sh", "-c", "mkfifo p; cat p & echo left"], options=(), timeout=20)
    assert result.out == "left\n"
    assert result.status == 0
    assert "1 process outlived the command and ended" in result.err


@pytest.mark.both_identities
def test_p14_every_reader_waits(runner: support.Runner) -> None:
    """Three readers of one FIFO, by the same program: each waits for a writer, whatever was learnt from the first."""
    code = """
import os, select
path = os.path.abspath("p")
os.mkfifo(path)
told, tell = os.pipe()
pids = []
for number in range(3):
    pid = os.fork()
    if not pid:
        os.write(tell, b"b")
        os.open(path, os.O_RDONLY)
        os.write(tell, b"O")
        os._exit(0)
    pids.append(pid)
    assert os.read(told, 1) == b"b"
    print(select.select([told], [], [], 0.1)[0])  # nothing may come
writer = os.open(path, os.O_WRONLY)
for pid in pids:
    os.waitpid(pid, 0)
print(os.read(told, 9))
"""
    result = runner.supervise([runner.identity.python, "-I", "-c", code], timeout=20)
    assert result.out == "[]\n[]\n[]\nb'OOO'\n", result


def test_p14_writers_wait_too(runner: support.Runner) -> None:
    code = "mkfifo p; (echo one >p) & (read x <p; echo got $x) ; wait; (sleep 0.05; cat p) & echo two >p; wait"
    result = runner.supervise(["sh", "-c", code], timeout=20)
    assert result.out.split() == ["got", "one", "two"], result


def test_p13_the_log_is_full(runner: support.Runner) -> None:
    """No room for the record of an effect: the effect is refused, what is read goes on, and the last line says so."""
    if runner.identity.uid != os.geteuid() and os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    place = runner.base / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", place], check=True)
    try:
        code = "i=0; while [ $i -lt 400 ] && mkdir d$i; do i=$((i+1)); done; mkdir again || echo refused; read x </etc/passwd && echo reads"
        runner.count += 1
        command = [runner.identity.python, "-I", "-m", "pincer_trace", "--session-dir", str(place), "--", "sh", "-c", code]
        result = runner._run(command, None, {"timeout": 60})
        assert "Permission denied" in result.err, result
        assert result.out.split() == ["refused", "reads"], result
        made = [path for path in runner.work.iterdir() if path.name.startswith("d")]
        assert len(made) < 400
        assert "disk is full" in result.err
    finally:
        subprocess.run(["umount", place], check=True)
