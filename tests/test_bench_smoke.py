"""The benchmark and its C reference supervisor: they run and are right; no time is asserted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
MODES = ("read-open", "read-open-direct", "effects", "continue")
ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@localhost",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}
# What the reference must get right to be a yardstick: relative names, dirfds, locks, renames, links, FIFOs,
# procfs, exec of a file just written, a descriptor kept over exec, and the errors.
SCENARIO = """
git init -q . && echo one > a && git add a && git commit -q -m one && git mv a b && git commit -q -m two
git checkout -q -b side && git gc -q && git status --short && git log --format=%H && git fsck 2>&1
mkdir d && mkdir d 2>/dev/null || echo exists
mkdir -p d/e/f && rmdir d/e/f && rm -r d && ls
cat nothing 2>&1; rm nothing 2>&1; echo x > nowhere/file || echo refused
exec 3< b; cat <&3; cat /proc/self/comm; cat < /dev/null
ln -s b link; echo new > link; cat b; stat -c '%a %s' b
cp "$(command -v cat)" ./program && ./program b && echo ran
seq 20 | xargs -P 3 -n 1 sh -c 'cat < b' | wc -l
"""
# Not in read-open-direct, whose open wakes the writer before the reader can have it (its documented limit).
FIFO = "mkfifo p; (echo through > p) & cat p; wait\n"


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled reference supervisor."""
    compiler = shutil.which("cc")
    assert compiler is not None, "no C compiler: install the Debian package gcc"
    program = tmp_path_factory.mktemp("reference") / "supervisor"
    source = SCRIPTS / "reference" / "supervisor.c"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def scenario(place: Path, prefix: list[str], text: str) -> tuple[int, str]:
    """Exit status and output of a scenario in a new directory."""
    place.mkdir()
    done = subprocess.run(
        [*prefix, "sh", "-c", text],
        cwd=place,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("mode", MODES)
def test_reference_runs_programs_as_natively(supervisor: Path, tmp_path: Path, mode: str) -> None:
    text = SCENARIO if mode == "read-open-direct" else SCENARIO + FIFO
    native = scenario(tmp_path / "native", [], text + "exit 7\n")
    assert native[0] == 7 and "ran" in native[1]
    assert scenario(tmp_path / "supervised", [str(supervisor), mode, "--"], text + "exit 7\n") == native


STEPS = {
    "read-open": ["ioctl", "pread64", "openat2", "fstat", "openat", "fcntl", "close", "ioctl", "close"],
    "read-open-direct": ["ioctl", "pread64", "openat2", "fstat", "ioctl", "close"],
}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("mode", STEPS)
def test_reference_makes_exactly_the_documented_calls(supervisor: Path, tmp_path: Path, mode: str) -> None:
    """One absolute open of a task whose memory is already open: from its notification to the next."""
    file, trace = tmp_path / "file", tmp_path / "trace"
    file.write_text("text\n")
    # The pause: the traced supervisor is slower than cat, and the end of the tree is told by a signal.
    script = ["sh", "-c", f"cat {file}; sleep 0.3"]
    command = ["strace", "-o", str(trace), str(supervisor), mode, "--", *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "text\n")
    lines = [line for line in trace.read_text().splitlines() if not line.startswith(("---", "+++"))]
    calls = [re.sub(r"^newfstatat$|^fstat64$", "fstat", line.partition("(")[0]) for line in lines]
    at = next(n for n, line in enumerate(lines) if line.startswith("openat2(") and f'"{file}"' in line)
    start = at - 2
    assert calls[start : start + len(STEPS[mode])] == STEPS[mode]
    assert "NOTIF_RECV" in lines[start] and "NOTIF_RECV" in lines[start + len(STEPS[mode])]


def test_reference_refuses_as_the_kernel_does(supervisor: Path, tmp_path: Path) -> None:
    """The descriptor limit is the caller's (P13), and close-on-exec comes from the call's own flags (P11)."""
    code = (
        "import os, resource\n"
        "fd = os.open('file', os.O_RDONLY)\n"
        "print(os.read(fd, 9), os.get_inheritable(fd))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, fd + 1))\n"
        "try:\n    os.open('file', os.O_RDONLY)\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    (tmp_path / "file").write_text("text\n")
    command = [sys.executable, "-I", "-c", code]
    native = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "Too many open files" in native.stdout
    for mode in MODES:
        supervised = [str(supervisor), mode, "--", *command]
        ours = subprocess.run(supervised, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, native.stdout, native.stderr), mode


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["effects", "--", "sh", "-c", "kill -9 $$"], 137),
        (["effects", "--", "no-such-program"], 127),
        (["effects", "--", "/"], 126),
        (["nonsense", "--", "true"], 125),
        ([], 125),
    ],
)
def test_reference_exit_status(supervisor: Path, words: list[str], status: int) -> None:
    done = subprocess.run([supervisor, *words], capture_output=True, timeout=60)
    assert done.returncode == status


def bench(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | ({"PATH": path} if path is not None else {})
    command = [sys.executable, str(SCRIPTS / "bench"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=env)


def test_bench_measures_and_prints_ratios(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    names = "open-hot,open-cold,protected,effects,connect,startup,memory"
    done = bench("--only", names, "--rounds", "1", "--operations", "200", "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(file.read_text())["benchmarks"]
    assert sorted(found) == sorted(names.split(","))
    for name, metric, reference in (
        ("open-hot", "open", "c-read-open"),
        ("open-hot", "open", "c-read-open-direct"),
        ("open-cold", "open", "c-read-open-direct"),
        ("protected", "open", "native"),
        ("effects", "create", "c-effects"),
        ("effects", "unlink", "c-effects"),
        ("connect", "unix", "native"),
        ("connect", "tcp", "native"),
        ("startup", "startup", "python"),
    ):
        variants = found[name]["metrics"][metric]["variants"]
        for variant in ("native", "pincer", reference):
            assert variants[variant]["error"] == "", (name, variant)
            assert variants[variant]["median"] > 0
        assert any(row["base"] == reference for row in found[name]["metrics"][metric]["ratios"])
    assert "target  1.6" in done.stdout and "target  6.0" in done.stdout
    supervisors = found["memory"]["supervisors"]
    assert len(supervisors["c-read-open"]["readings"]) == 4
    if os.geteuid() == 0:
        assert len(supervisors["pincer"]["readings"]) == 4
    else:  # what the supervisor has open is closed to all but root: it is not dumpable
        assert "Permission denied" in supervisors["pincer"]["error"]


def test_bench_measures_the_ledger(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = bench("--only", "ledger", "--operations", "4000", "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(file.read_text())["benchmarks"]["ledger"]
    assert found["records"] == 4000 and found["faults"] == []
    assert 0 < found["us_a_record"] < found["us_an_effect_durable"]
    assert found["verify_seconds"] > 0
    assert "ledger: 4,000 records" in done.stdout and "the same with --durable" in done.stdout


def test_bench_measures_the_monitor(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    done = bench("--quick", "--only", "monitor", "--operations", "4000", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())["benchmarks"]["monitor"]
    assert found["records"] == 4000 and found["counted_seconds"] is not None
    assert found["short_bytes_a_second"] > 0, "it draws while records come"
    assert "first paint after them" in done.stdout


def test_bench_says_what_does_not_run() -> None:
    done = bench("--only", "startup", "--rounds", "1", "--operations", "200", "--command", "false")
    assert done.returncode == 0
    assert "pincer-trace                             does not run: status 1" in done.stdout


def test_bench_without_a_compiler_names_the_package(tmp_path: Path) -> None:
    done = bench("--only", "startup", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("bench: no C compiler: install the Debian package gcc")


def test_bench_refuses_an_unknown_name() -> None:
    done = bench("--only", "nonsense")
    assert done.returncode == 2
    assert "no such benchmark" in done.stderr
