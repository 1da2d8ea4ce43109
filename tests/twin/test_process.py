"""`--twin process`: the right evaluator in a process of its own, in real runs: that all works, and what becomes of a
run when it dies, stops, or is in somebody else's hands.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import Live, children, give, kill, name, state, until
from twin.intent_server import answer, intent_server

from pincer_trace.ledger.verify import verify
from pincer_trace.twin import codes

both = pytest.mark.both_identities
APART = ("--twin", "process")
TWISTED = Path(__file__).with_name("twisted.py")
EACCES = 13

# Does what each line of its input says, and says with which errno.
WORKER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def read(a): os.close(os.open(a, os.O_RDONLY))
def write(a): os.close(os.open(a, os.O_WRONLY | os.O_CREAT, 0o644))
def put(a, t=""): open(a, "w").write(t)
def many(n):
    for i in range(int(n)):
        os.mkdir("m"); os.close(os.open("m/f", os.O_CREAT | os.O_WRONLY)); os.rename("m/f", "g"); os.unlink("g")
        os.rmdir("m")
def trace(pid):
    if libc.ptrace(16, int(pid), 0, 0): raise OSError(ctypes.get_errno(), "")
def stop(pid): os.kill(int(pid), 19)
def peek(pid):
    data = ctypes.create_string_buffer(8); pair = (ctypes.c_size_t * 2)(ctypes.addressof(data), 8)
    if libc.process_vm_readv(int(pid), pair, 1, pair, 1, 0) < 0: raise OSError(ctypes.get_errno(), "")
def take(pid):
    handle = os.pidfd_open(int(pid))
    if libc.syscall(438, handle, 3, 0) < 0: raise OSError(ctypes.get_errno(), "")
verbs = {f.__name__: f for f in (read, write, put, many, trace, stop, peek, take, os.mkdir, os.rename, os.unlink,
         os.link, os.symlink, os.rmdir)}
print("ready", flush=True)
for line in sys.stdin:
    verb, *rest = line.split()
    try:
        verbs[verb](*rest)
        print(verb, 0, flush=True)
    except OSError as error:
        print(verb, error.errno, flush=True)
"""


class Run(Live):
    """A run with both evaluators apart, whose command does what it is told."""

    def __init__(self, runner: support.Runner, *options: str, twist: str = "", patience: float = 5.0, **how) -> None:
        words: tuple[str, ...] = ()
        self.flag = runner.base / "flag"
        if twist:
            shutil.copy(TWISTED, runner.base / "twisted.py")
            (runner.base / "twisted.py").chmod(0o644)
            words = ("-I", str(runner.base / "twisted.py"), twist, str(self.flag), str(patience))
        command = [runner.identity.python, "-I", "-S", "-c", WORKER]
        super().__init__(runner, command, options=(*APART, *options), words=words, **how)

    def __enter__(self) -> Run:
        super().__enter__()
        assert self.line() == "ready"
        return self

    def ask(self, *words: object, patience: float = 20.0) -> int:
        """The errno of one act."""
        self.say(" ".join(map(str, words)).encode() + b"\n")
        verb, number = self.line(patience).split()
        assert verb == words[0]
        return int(number)

    @property
    def right(self) -> int:
        """The process of the right evaluator."""
        (found,) = (pid for pid in children(self.front) if name(pid) == "pincer-right")
        return found

    def codes(self, path: str = "") -> list[str]:
        """Why things were refused, in order."""
        refused = [entry for entry in self.decisions() if entry["kind"] == "denied" and not entry.get("native")]
        return [entry["code"] for entry in refused if entry["path"].endswith(path)]


def apart(runner: support.Runner, command: list[str], *options: str, **how) -> support.Result:
    return runner.supervise(command, options=("--quiet", *APART, *options), **how)


def by_whom(entry: dict) -> list[str]:
    return [vote["by"] for vote in entry["votes"]]


def gone(pid: int, seconds: float = 3.0) -> None:
    for _ in until(f"the end of {pid}", seconds):
        if state(pid) in "XZ":
            return


# -- that all works --------------------------------------------------------------------------------------------

WORK = """
set -e
git init -q . && git config user.name n && git config user.email e@example.com
mkdir -p src/deep && echo one > src/deep/file && echo two > two
git add . && git commit -qm first
mv src moved && ln two second && ln -s two third && git add -A && git commit -qm second
git mv two other && git commit -qm third && git checkout -qb side
git init -q inner && git -C inner config user.name m && echo x > inner/x && git -C inner add x
git -C inner -c user.email=e@example.com commit -qm inner
git worktree add -q "../${PWD##*/}/tree" HEAD && cat tree/.git | cut -c1-7
chmod 600 other && touch -d 2001-01-01 other && truncate -s 1 other && mkfifo pipe && rm -r moved pipe
git log --format=%s && git status --short | sort
"""
REFUSED = """
echo x > "$HOME/.bashrc"; cat "$HOME/.ssh/id_ed25519"; git config core.fsmonitor x; ln -s x .git/hooks; true
"""


def outline(result: support.Result) -> list[tuple]:
    """What was decided, without what differs from run to run."""
    found = []
    for entry in result.decisions:
        if entry["kind"] in ("intent", "denied"):
            votes = tuple((vote["by"], vote["verdict"], vote["rule"]) for vote in entry["votes"])
            path = entry["path"]
            steady = not re.search(r"objects/|tmp_|\.lock$|/proc/|\.git/t\w{6}$", path)
            if steady and not entry.get("native"):
                found.append((entry["kind"], entry["effect"], path, entry["verdict"], entry["rule"], votes))
    return found


@both
def test_the_ordinary_effects_are_decided_as_in_one_process(runner: support.Runner) -> None:
    """The same answers, the same records, by both."""
    found = []
    for options in (("--quiet",), ("--quiet", *APART)):
        runner.fresh()
        give(runner, runner.home / ".ssh/id_ed25519", b"canary\n", 0o600)
        result = runner.supervise(["sh", "-c", WORK], options=options)
        refused = runner.supervise(["sh", "-c", REFUSED], options=options)
        assert result.status == 0, result
        assert "gitdir:" in result.out
        found.append((result.out, outline(result), refused.out, refused.err, outline(refused)))
        for entry in (*result.decisions, *refused.decisions):
            if entry["kind"] == "intent" or (entry["kind"] == "denied" and entry["rule"] != "built-in"):
                assert by_whom(entry) == ["left", "right"], entry
        assert len(refused.denied(runner.home / ".bashrc")) == 1
        assert refused.denied(runner.home / ".ssh/id_ed25519")
        assert verify(str(result.session)).faults == []
    one, other = found
    assert (one[0], one[2], one[3]) == (other[0], other[2], other[3])
    for at in (1, 4):
        assert set(one[at]) == set(other[at]), set(one[at]) ^ set(other[at])


@both
def test_what_is_judged_by_content(runner: support.Runner) -> None:
    """A configuration that is renamed into place, and files that get their name at their last close."""
    with Run(runner) as live:
        assert live.ask("mkdir", "q") == 0
        for name, content in (
            ("q/HEAD", "ref:x"),
            ("q/config", "[core]"),
            ("q/new", "[core]fsmonitor=x"),
            ("q/good", ""),
        ):
            assert live.ask("put", name, content) == 0
        assert live.ask("rename", "q/new", "q/config") == EACCES
        assert live.ask("rename", "q/good", "q/config") == 0
        assert live.ask("put", "q/config.worktree", "[core]fsmonitor=y") == 0
        assert live.ask("read", "q/config.worktree") == 2  # it did not appear
        assert live.ask("put", "q/config.worktree", "[core]") == 0
        assert live.ask("read", "q/config.worktree") == 0
        (renamed, closed) = (
            entry for entry in live.decisions() if entry["kind"] == "denied" and "/q/" in entry["path"]
        )
        assert "core.fsmonitor" in renamed["reason"] and "core.fsmonitor" in closed["reason"]
        assert live.end() == 0


@both
def test_no_lease_is_left_behind(runner: support.Runner) -> None:
    """It reads what is renamed under a lease; once that is done, anybody may write the file without waiting."""
    with Run(runner) as live:
        live.ask("mkdir", "q")
        for name in ("q/HEAD", "q/config", "q/good"):
            live.ask("put", name, "[core]")
        assert live.ask("rename", "q/good", "q/config") == 0
        os.close(os.open(runner.work / "q/config", os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK))  # EWOULDBLOCK otherwise
        assert live.end() == 0


@both
def test_one_s_own_stays_one_s_own(runner: support.Runner) -> None:
    """What the tree made in a shared place is its own under every name; what others have there is not."""
    shared = runner.base / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    give(runner, shared / "theirs/file", b"as it was\n")
    (shared / "theirs").chmod(0o777)
    with Run(runner) as live:
        ask = live.ask
        assert ask("mkdir", shared / "d") == 0
        assert ask("put", shared / "d/f", "x") == 0
        assert ask("rename", shared / "d", shared / "e") == 0
        assert ask("rename", shared / "e/f", shared / "f") == 0  # it leaves a directory of the session's own
        assert ask("link", shared / "f", shared / "g") == 0
        assert ask("unlink", shared / "f") == 0
        assert ask("write", shared / "g") == 0
        assert ask("rename", shared / "g", shared / "e/h") == 0
        assert ask("symlink", "h", shared / "e/s") == 0
        assert ask("rename", shared / "e/s", shared / "s") == 0
        assert ask("unlink", shared / "s") == 0
        assert ask("unlink", shared / "e/h") == 0
        assert ask("rmdir", shared / "e") == 0
        assert ask("write", shared / "theirs/file") == EACCES
        assert ask("unlink", shared / "theirs/file") == EACCES
        assert ask("rename", shared / "theirs", shared / "ours") == EACCES
        assert ask("put", shared / "new", "x") == 0
        assert ask("unlink", shared / "new") == 0
        assert set(live.codes()) == {codes.POLICY_DENY}
        assert live.end() == 0


@both
def test_the_model_is_heard_too(runner: support.Runner) -> None:
    """A tightened verdict is the vote of the process."""
    env = {"ANTHROPIC_API_KEY": "key-of-no-account"}
    with intent_server(lambda asked: answer("deny" if asked.path.endswith("evil") else "allow", "about it")) as api:
        command = ["sh", "-c", "echo x > evil; echo $?; echo x > good; echo $?"]
        result = apart(runner, command, "--task", "tidy", env=env | {"ANTHROPIC_BASE_URL": api.url})
    assert result.out.split() == ["2", "0"], result
    (refused,) = [entry for entry in result.denied() if entry["code"] == codes.INTENT]
    assert [(vote["by"], vote["verdict"]) for vote in refused["votes"]] == [
        ("left", "allow"), ("right", "deny"), ("intent", "deny"),
    ]  # fmt: skip


def test_what_is_confirmed(runner: support.Runner) -> None:
    """A vote of confirm passes with a token, as in one process."""
    found = []
    for options in ((), APART):
        runner.fresh()
        give(runner, runner.work / ".vscode/tasks.json", b"{}\n")
        options = ("--quiet", "--confirm", "auto", *options)
        result = runner.supervise(["sh", "-c", "echo x > .vscode/tasks.json"], options=options)
        assert result.status == 0, result
        (done,) = (entry for entry in result.decisions if entry["kind"] == "intent" and entry["verdict"] == "confirm")
        found.append((done["votes"], done["path"], done["rule"]))
    assert found[0] == found[1]
    assert ("right", "confirm") in {(vote["by"], vote["verdict"]) for vote in found[1][0]}


# -- its life --------------------------------------------------------------------------------------------------


@both
def test_it_is_killed(runner: support.Runner) -> None:
    """Effects are refused, and reads that nobody judged yet; what was judged goes on; the run ends as ever."""
    for file in ("hot", "new"):
        give(runner, runner.work / file, b"x\n")
    with Run(runner) as live:
        assert live.ask("write", "before") == 0
        assert live.ask("read", "hot") == live.ask("read", "hot") == 0
        kill(live.right)
        began = time.monotonic()
        assert live.ask("write", "after") == EACCES
        assert live.ask("unlink", "before") == EACCES
        assert live.ask("read", "hot") == 0
        assert live.ask("read", "new") == EACCES
        # Four questions, each of which would wait for 5 s.
        assert time.monotonic() - began < 2, "it must not wait for what is gone"
        assert set(live.codes()) == {codes.MISSING_SHARE}
        refused = [entry for entry in live.decisions() if entry["kind"] == "denied" and not entry.get("native")]
        assert [by_whom(entry) for entry in refused] == [["left"]] * 3
        front, engine = live.front, live.engine
        assert live.end() == 0
        assert b"the evaluator of objects has ended" in live.errors()
        gone(front), gone(engine)
        assert verify(str(live.session)).faults == []
    assert (runner.work / "before").exists() and not (runner.work / "after").exists()


@both
def test_it_is_stopped_and_goes_on(runner: support.Runner) -> None:
    with Run(runner, twist="none", patience=2) as live:
        assert live.ask("write", "before") == 0
        kill(live.right, signal.SIGSTOP)
        began = time.monotonic()
        assert live.ask("write", "first") == EACCES
        assert 1.9 < time.monotonic() - began < 10  # the patience of 2 s, once
        began = time.monotonic()
        for name in ("second", "third"):
            assert live.ask("write", name) == EACCES
        assert time.monotonic() - began < 2  # nobody waits so long for each, which would be 4 s
        assert set(live.codes()) == {codes.LATE_SHARE}
        kill(live.right, signal.SIGCONT)
        for _ in until("an answer", 5):
            if live.ask("write", "again") == 0:
                break
        assert live.ask("rename", "again", "renamed") == 0
        assert live.end() == 0
        assert b"evaluator" not in live.errors()
    assert sorted(os.listdir(runner.work)) == ["before", "renamed"]


def test_it_stays_stopped(runner: support.Runner) -> None:
    """Then it is ended with the run."""
    with Run(runner, twist="none", patience=0.3) as live:
        right = live.right
        kill(right, signal.SIGSTOP)
        assert live.end() == 0
        gone(right)


@both
@pytest.mark.parametrize("victim", ["engine", "front"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_it_does_not_outlive_the_supervisor(runner: support.Runner, victim: str, stopped: bool) -> None:
    with Run(runner) as live:
        right, worker, engine = live.right, live.worker, live.engine
        if stopped:
            kill(right, signal.SIGSTOP)
        kill(engine if victim == "engine" else live.front)
        for pid in (right, worker, engine):  # the engine last: it ends the session when the tree is gone
            gone(pid)


def test_it_goes_on_for_what_outlives_the_command(runner: support.Runner) -> None:
    """`--leftover keep`: the front leaves, the daemon is judged as before; then everything ends."""
    daemon = (
        f"while [ ! -e {runner.base}/go ]; do sleep 0.02; done; echo x > late; echo x > ~/.bashrc; echo done > told"
    )
    command = ["sh", "-c", f"setsid -f sh -c '{daemon}' </dev/null >/dev/null 2>&1; echo started"]
    with Live(runner, command, options=(*APART, "--leftover", "keep")) as live:
        engine = live.engine
        (right,) = (pid for pid in children(live.front) if name(pid) == "pincer-right")
        assert live.end() == 0
        assert state(engine) not in "XZ" and state(right) not in "XZ"
        (runner.base / "go").touch()
        for _ in until("the daemon", 10):
            if (runner.work / "told").exists():
                break
        assert (runner.work / "late").exists() and not (runner.home / ".bashrc").exists()
        gone(engine), gone(right)


def test_it_cannot_start(runner: support.Runner) -> None:
    """One line, and nothing ran."""
    fault = runner.base / "fault.py"
    fault.write_text(
        "import sys\nfrom pincer_trace.kernel import confinement\n"
        "def no():\n raise OSError(38, 'landlock')\n"
        "confinement.confine = no\nsys.argv[:] = ['x', *sys.argv[1:]]\n"
        "from pincer_trace.__main__ import main\nsys.exit(main())\n"
    )
    fault.chmod(0o644)
    words = [runner.identity.python, "-I", str(fault), "--session-dir", str(runner.base), *APART, "--", "touch", "x"]
    sessions = runner.base / "s"
    sessions.mkdir(mode=0o700)
    os.chown(sessions, runner.identity.uid, runner.identity.gid)
    words[words.index("--session-dir") + 1] = str(sessions)
    result = runner._run(words, None, {})
    assert result.status == 125, result
    assert "--twin process" in result.err and len(result.err.splitlines()) == 1
    assert not (runner.work / "x").exists() and not list(sessions.iterdir())


# -- in somebody else's hands ----------------------------------------------------------------------------------

BAD = [
    "no-json", "deep", "huge", "ahead", "no-such-rule", "another-rules-verdict", "allow-without-rule", "no-verdict",
    "odd-facts", "mac", "no-text",
]  # fmt: skip
OTHER = {
    "stranger": codes.BAD_SHARE,  # not what it has signed
    "earlier-vote": codes.NOT_BOUND,
    "another-request": codes.NOT_BOUND,
    "slow": codes.LATE_SHARE,
    "dies": codes.MISSING_SHARE,
    "vote-dies": codes.MISSING_SHARE,
}


@pytest.mark.parametrize(("twist", "code"), [*((each, codes.BAD_SHARE) for each in BAD), *OTHER.items()])
def test_an_answer_that_is_none(runner: support.Runner, twist: str, code: str) -> None:
    """The effect is refused with the code of what is wrong; the run goes on, and works again when all is well."""
    with Run(runner, twist=twist, patience=0.4) as live:
        assert live.ask("write", "before") == 0
        live.flag.touch()
        assert live.ask("write", "forged") == EACCES
        assert live.ask("unlink", "before") == EACCES
        assert code in live.codes("forged"), live.decisions()[-5:]
        live.flag.unlink()
        if "dies" not in twist:
            for _ in until("an honest answer", 5):
                if live.ask("write", "after") == 0:
                    break
            assert live.ask("rename", "after", "renamed") == 0
        assert live.end() == 0
        assert verify(str(live.session)).faults == []
    assert "forged" not in os.listdir(runner.work) and "before" in os.listdir(runner.work)


@pytest.mark.parametrize("twist", ["twice", "old-ones", "descriptors"])
def test_an_answer_with_more_than_that(runner: support.Runner, twist: str) -> None:
    """Answers to earlier questions are dropped; descriptors never reach the engine."""
    with Run(runner, twist=twist, patience=2) as live:
        opened = []
        for number in range(40):
            assert live.ask("write", f"file{number}") == 0
            live.flag.touch()
            if os.geteuid() == 0 and number >= 20:
                opened.append(len(os.listdir(f"/proc/{live.engine}/fd")))
        assert not opened or max(opened) < min(opened) + 4, opened  # a call is answered before its pins are closed
        assert live.end() == 0


def test_it_can_allow_what_the_other_allows_and_no_more(runner: support.Runner) -> None:
    """A right evaluator that says yes to everything: what the left one refuses stays refused."""
    give(runner, runner.home / ".ssh/id_ed25519", b"canary\n", 0o600)
    with Run(runner, twist="allows-all") as live:
        live.flag.touch()
        assert live.ask("write", runner.home / ".bashrc") == EACCES
        assert live.ask("read", runner.home / ".ssh/id_ed25519") == EACCES
        assert live.ask("rename", runner.home / ".ssh/id_ed25519", "credentials") == EACCES
        assert live.ask("write", "inside") == 0
        assert set(live.codes()) == {codes.POLICY_DENY, codes.NOBODY_TO_ASK}
        assert live.end() == 0
    assert (runner.home / ".ssh/id_ed25519").read_bytes() == b"canary\n"


@both
def test_the_worker_cannot_reach_it(runner: support.Runner) -> None:
    with Run(runner) as live:
        right = live.right
        for verb in ("stop", "trace", "peek", "take"):
            assert live.ask(verb, right) in (1, 3, 13), verb
        for name in ("mem", "environ", "maps", "fd/3", "cwd/x", "root/etc/passwd"):
            assert live.ask("read", f"/proc/{right}/{name}") in (1, 13), name
            assert live.ask("write", f"/proc/{right}/{name}") in (1, 13), name
        assert state(right) == "S"
        assert live.ask("write", "still") == 0
        assert live.end() == 0


@both
def test_what_it_holds(runner: support.Runner) -> None:
    """Its socket, its own descriptors' directory, nothing else; no capability that writes; a filter and a domain."""
    if os.geteuid():
        pytest.skip("only root can look into it")
    with Run(runner) as live:
        assert live.ask("write", "a") == 0
        held = {os.readlink(f"/proc/{live.right}/fd/{name}") for name in os.listdir(f"/proc/{live.right}/fd")}
        assert {name.split(":")[0] for name in held} == {"/dev/null", "socket", f"/proc/{live.right}/fd"}
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{live.right}/status").read_text().splitlines())
        assert (status["Seccomp"], status["NoNewPrivs"], status["Threads"]) == ("2", "1", "1")
        assert not int(status["CapEff"], 16) & ~(1 << 2 | 1 << 28)
        assert status["CapPrm"] == status["CapEff"]
        assert Path(f"/proc/{live.right}/cwd").readlink() == Path("/")
        limits = Path(f"/proc/{live.right}/limits").read_text()
        assert [line.split()[4] for line in limits.splitlines() if line.startswith("Max core")] == ["0"]
        assert os.getpgid(live.right) == live.right
        assert live.end() == 0


@both
def test_no_descriptor_is_left_open(runner: support.Runner) -> None:
    """Over two thousand effects, in either process."""
    if os.geteuid():
        pytest.skip("only root can look into them")
    with Run(runner) as live:
        assert live.ask("many", 4) == 0

        def opened() -> list[int]:
            return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (live.right, live.engine)]

        for _ in until("the channel, which is opened once a run has lasted", 20):
            if b'"feed":' in (live.session / "session.json").read_bytes():
                break
        time.sleep(0.2)  # a call is answered before its pins are closed
        before = opened()
        assert live.ask("many", 400, patience=60) == 0
        for _ in until("what is open is as before", 3):
            if opened() == before:
                break
        assert live.end() == 0
