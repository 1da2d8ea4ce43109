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
from hazards.programs.p_kit import (
    Live,
    broken,
    children,
    give,
    kill,
    numbers,
    outside,
    program,
    script,
    secret,
    state,
    until,
)

from pincer_trace.ledger.verify import verify

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
        assert verify(str(live.session)).faults == [], "the log is not whole"


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
    python = "cat /proc/*/stat 2>/dev/null | grep -a python | cut -d' ' -f1"
    parent = "cut -d' ' -f4 /proc/$$/stat"
    code = f"for pid in $({parent}) $({python}); do kill -9 $pid; kill -STOP $pid; done 2>/dev/null; echo still here"
    result = runner.supervise(["sh", "-c", code])
    assert (result.out, result.status) == ("still here\n", 0)


@pytest.mark.both_identities
def test_p06_nested_is_refused_in_one_line(runner: support.Runner) -> None:
    inner = [
        runner.identity.python,
        "-I",
        "-m",
        "pincer_trace",
        "--session-dir",
        str(runner.work),
        "--",
        "touch",
        "ran",
    ]
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


@pytest.mark.parametrize("rounds", [40, pytest.param(4000, marks=pytest.mark.slow)])
def test_p60_no_descriptor_is_left_open(runner: support.Runner, rounds: int) -> None:
    """Some 30 kinds of calls, allowed, denied and failing: afterwards the engine has as many descriptors and threads as
    before, and no failure was recorded. Python's own checks are on (-X dev, warnings are errors)."""
    if os.geteuid() != 0:
        pytest.skip("what the supervisor has open is closed to all but root: it is not dumpable")
    words = ("-I", "-X", "dev", "-W", "error", "-m", "pincer_trace")
    command = [runner.identity.python, "-I", script("p60_calls"), str(secret(runner)), str(outside(runner))]
    with Live(runner, command, words=words) as live:
        live.say(b"3\n")
        assert live.line() == "done"
        for _ in until("the channel, which is opened once a run has lasted", 20):
            if b'"feed":' in (live.session / "session.json").read_bytes():
                break
        engine = Path(f"/proc/{live.engine}")

        def held() -> list[str]:
            """What its descriptors lead to, and its threads; without what belongs to tasks (dropped within seconds)."""
            found = []
            for number in os.listdir(engine / "fd"):
                with contextlib.suppress(OSError):
                    name = os.readlink(engine / "fd" / number)
                    found.append(
                        re.sub(r"^/dev/pts/\d+", "/dev/pts/N", name)
                    )  # which, others decide who have terminals
            of_tasks = re.compile(r"/proc/\d+/|anon_inode:\[pidfd\]|/tmp/.*/work")
            threads = [f"thread {(task / 'comm').read_text()}" for task in (engine / "task").iterdir()]
            return sorted([name for name in found if not of_tasks.match(name)] + threads)

        before, same = held(), 0
        for _ in until("the last call's thread has ended, and the channel's begun", 10):
            same = same + 1 if before == (before := held()) else 0
            if same == 20:
                break
        total = len(os.listdir(engine / "fd"))
        live.say(b"%d\n" % rounds)
        assert live.line(120) == "done"
        with contextlib.suppress(AssertionError):
            for _ in until("what belongs to the last calls is closed", 3):
                if held() == before:
                    break
        assert held() == before
        assert len(os.listdir(engine / "fd")) <= total + 200
        assert live.end() == 0
        assert live.errors() == b""
        failures = [entry["reason"] for entry in live.decisions() if "supervisor failed" in entry["reason"]]
        assert failures == []


STEPS = {  # what fails -> what the line must name
    "pincer_trace.worker:close_others=EBADF": "descriptors",
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
    "pincer_trace.gateway.resolve:Resolver.directory",
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
    "pincer_trace.executor.blocking:BlockingCalls._open": "os.close(os.open('p', os.O_RDONLY))",
    "pincer_trace.executor.sockets:_bind_there": "socket.socket(socket.AF_UNIX).bind('s')",
}


@pytest.mark.parametrize("error", ["RuntimeError", "EIO", "MemoryError"])
@pytest.mark.parametrize("where", HELPERS)
def test_p96_a_failing_helper_thread_answers(runner: support.Runner, where: str, error: str) -> None:
    """A task whose call went to a helper thread is never left waiting, nor the next; and failures are recorded."""
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
    result = broken(
        runner,
        "pincer_trace.ledger.writer:Ledger._append=OSError@30",
        [
            "sh",
            "-c",
            "for i in $(seq 30); do mkdir d$i; done; echo all",
        ],
        timeout=20,
    )
    assert "all" in result.out, result


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_p97_orphans_are_reaped_while_the_command_runs(runner: support.Runner, count: int) -> None:
    with Live(runner, [program("p97_orphans"), str(count)]) as live:
        assert live.line(60) == "made"
        for _ in until("no defunct child", 5):
            if children(live.engine) == [live.worker]:
                break
        live.say()
        assert live.end() == 0


def test_p97_the_status_is_the_commands_own(runner: support.Runner) -> None:
    """Among many orphans with statuses of their own, the one that is passed on is the command's."""
    code = "i=0; while [ $i -lt 50 ]; do (sh -c 'exit 9' &) ; i=$((i+1)); done; exit 42"
    for _ in range(3):
        assert runner.supervise(["sh", "-c", code]).status == 42


@pytest.mark.parametrize("error", ["EMFILE", "EBADF", "EINVAL", "EPERM"])
@pytest.mark.parametrize("flags", ["os.O_RDONLY", "os.O_WRONLY | os.O_CREAT"])
def test_p13_an_injection_that_fails_is_an_error(runner: support.Runner, error: str, flags: str) -> None:
    """Whatever ADDFD answers is the worker's errno. CONTINUE would let the kernel open what memory names by then."""
    code = f"""
import errno, os
failed = []
for _ in range(200):
    try:
        os.close(os.open("f", {flags}))
    except OSError as error:
        failed.append(errno.errorcode[error.errno])
print(failed)
"""
    give(runner, runner.work / "f", b"plain\n")
    command = [runner.identity.python, "-I", "-S", "-c", code]
    result = broken(runner, f"pincer_trace.kernel.notify:Listener.inject={error}@120", command, timeout=20)
    assert result.out == f"['{error}']\n", result


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
        code = "i=0; while [ $i -lt 400 ] && mkdir d$i; do i=$((i+1)); done; mkdir no || echo refused"
        code += "; read x </etc/passwd && echo reads"
        runner.count += 1
        command = [
            runner.identity.python,
            "-I",
            "-m",
            "pincer_trace",
            "--session-dir",
            str(place),
            "--",
            "sh",
            "-c",
            code,
        ]
        result = runner._run(command, None, {"timeout": 60})
        assert "Permission denied" in result.err, result
        assert result.out.split() == ["refused", "reads"], result
        made = [path for path in runner.work.iterdir() if path.name.startswith("d")]
        assert len(made) < 400
        assert "disk is full" in result.err
    finally:
        subprocess.run(["umount", place], check=True)
