"""The plugin in pytest runs of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pincer_trace.testing import Trace, launcher, supervise
from pincer_trace.testing.snapshot import write

pytest_plugins = ["pytester"]

# Without the plugins that are only there since a developer has them; one test takes ours as everybody gets it.
PLUGIN = ("-p", "pincer_trace.pytest_plugin", "-p", "no:cacheprovider")

FAILING = """
def test_agent(pincer, tmp_path):
    key = tmp_path / "home/.ssh/id_rsa"
    key.parent.mkdir(parents=True)
    key.write_text("key")
    trace = pincer.run(["sh", "-c", "cat ~/.ssh/id_rsa; echo > out"], cwd=tmp_path, home=tmp_path / "home")
    trace.assert_denied("read", "~/.ssh/id_rsa")
    trace.assert_only_writes()
"""
PASSING = FAILING.replace("trace.assert_only_writes()", 'trace.assert_only_writes("{workspace}/out")')


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of how this run was started reaches the one inside of it."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_DEBUG_TEMPROOT", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def kept(pytester: pytest.Pytester) -> list[Path]:
    """The sessions that are left, by their logs."""
    return sorted((pytester.path / "base").rglob("ledger.jsonl"))


def test_a_failure_names_the_call_and_keeps_its_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_bad=FAILING, test_good=PASSING)
    done = pytester.runpytest_subprocess("--basetemp=base", *PLUGIN, "-p", "xdist.plugin", "-n", "2")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.re_match_lines(
        [
            r"E +AssertionError: 1 change of other files than nothing$",
            r"E +allowed create /.*/out \(record \d+\)$",
            r"E +by \w+ \(\d+\)$",
            r"E +default\.toml:\d+: .+",
            r"-+ pincer-trace: what ran -+$",
            r"sh -c 'cat ~/\.ssh/id_rsa; echo > out': pincer-trace report /.*/base/.*/\d{8}-\d{6}-[0-9a-f]{6}$",
        ]
    )
    assert len(kept(pytester)) == 1
    assert "in assert_only_writes" not in done.stdout.str()  # the traceback ends in the test


def test_what_was_running_ends_with_an_interrupted_or_killed_pytest(pytester: pytest.Pytester) -> None:
    """The command tells its number and waits; then pytest is ended, in both ways."""
    os.mkfifo(pytester.path / "told")
    pytester.makepyfile(
        """
        def test_waits(pincer):
            pincer.run(["sh", "-c", "echo $$ > told; exec sleep 1000"])
        """
    )
    for how in (signal.SIGINT, signal.SIGKILL):
        words = [sys.executable, "-m", "pytest", "-q", f"--basetemp=base{how}", *PLUGIN]
        with pytester.popen(words, stdin=subprocess.DEVNULL) as started:
            command = os.pidfd_open(int((pytester.path / "told").read_text()))
            started.send_signal(how)
            started.communicate()
        assert has_ended(command), f"it lives on after {how.name}"


def has_ended(process: int) -> bool:
    """Whether a process, by its descriptor, ends."""
    try:
        return bool(select.select([process], [], [], 30)[0])
    finally:
        os.close(process)


def test_where_nothing_can_be_supervised_a_test_is_skipped_or_fails(
    pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As in a run that is supervised itself: the kernel allows one supervisor a process."""
    pytester.makepyfile("def test_it(pincer):\n    pincer.run(['true']).assert_exit(0)\n")
    outside = tmp_path_factory.mktemp("outside")

    def inner(*options: str) -> Trace:
        words = [sys.executable, "-m", "pytest", "-rs", "--basetemp=base", *PLUGIN, *options]
        return supervise(words, cwd=pytester.path, home=outside, sessions=outside / "sessions")

    skipped = inner()
    skipped.assert_exit(0)
    assert "this machine cannot supervise: not nested: another supervisor already holds" in skipped.stdout
    failed = inner("--pincer-require")
    failed.assert_exit(1)
    assert "Unsupported: this machine cannot supervise: not nested" in failed.stdout


def test_p89_who_uses_it_has_no_part_of_the_supervisor_in_the_own_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who does not use it loads one module."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.makepyfile(
        test_a="""
        import sys
        def test_without():
            loaded = {name for name in sys.modules if name.startswith("pincer_trace")}
            assert loaded == {"pincer_trace", "pincer_trace.pytest_plugin"}
        """,
        test_b="""
        import sys
        def test_with(pincer):
            pincer.run(["true"]).assert_no_denials()
            loaded = set(sys.modules)
            assert not loaded & {"pincer_trace.engine", "pincer_trace.front", "pincer_trace.kernel.libc", "pyseccomp"}
            assert "ctypes" not in loaded
        """,
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_p81_a_project_that_is_installed_in_place_may_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is imported by the supervisor, so nothing of it is closed to the command."""
    site, project = tmp_path / "site-packages", tmp_path / "project"
    site.mkdir()
    project.mkdir()
    (site / "project.pth").write_text(f"{project}\n")
    for folder in (site, project):
        monkeypatch.syspath_prepend(folder)
    try:
        for _ in range(2):
            launcher.close()  # the next one is started with this path, and with what the run before has left
            script = "echo >> project.py; echo > sitecustomize.py; echo > json.py; echo > pincer_trace.py"
            trace = supervise(["sh", "-c", script], cwd=project, home=tmp_path / "home", sessions=tmp_path / "sessions")
            trace.assert_exit(0)
            trace.assert_only_writes("*.py")
        trace = supervise(["sh", "-c", f"echo > {site}/x.py"], cwd=tmp_path, sessions=tmp_path / "sessions")
        trace.assert_denied("create", site / "x.py")  # from there it does import
    finally:
        launcher.close()


SNAPSHOT = """
import pytest

@pytest.mark.parametrize("which", ["a/b"])
def test_agent(pincer, tmp_path, which):
    trace = pincer.run(["sh", "agent.sh"], home=tmp_path / "home")
    pincer.snapshot(trace)
    pincer.snapshot(trace, "counted", counts=True)
"""


def test_a_snapshot_is_written_through_no_link_that_what_ran_has_put_there(tmp_path: Path) -> None:
    file = tmp_path / "snapshots/test_it.test_agent.txt"
    file.parent.mkdir()
    theirs = tmp_path / ".bashrc"
    theirs.write_text("the user's")
    file.symlink_to(theirs)
    file.with_name(f".{file.name}.{os.getpid()}").symlink_to(theirs)  # whoever runs sees our number
    write(file, None, [])
    assert theirs.read_text() == "the user's"
    assert not file.is_symlink()
    assert file.read_text().startswith("# What this test was seen to do.")


def test_a_snapshot_is_made_reviewed_and_held_against_each_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SNAPSHOT)
    agent = pytester.path / "agent.sh"
    agent.write_text(
        "cat agent.sh > out; mkdir -p ~/.cache; echo > ~/.cache/kept; echo > gone; rm gone\n"
        "mkdir -p ~/new/deep; echo > ~/new/deep/x; rm -r ~/new; d=$(mktemp -d ./a.XXXXXX); rmdir $d\n"
    )
    file = pytester.path / "snapshots/test_it.test_agent[a_b].txt"

    def run(*options: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*PLUGIN, *options)

    missing = run()
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(
        [
            "E *nobody has reviewed what this does: there is no */snapshots/test_it.*.txt",
            "E *+ write {workspace}/out by *",
            "E *to commit it: pytest --pincer-update 'test_it.py::test_agent[[]a/b[]]'",
        ]
    )
    assert not file.parent.exists()
    made = run("--pincer-update")
    made.assert_outcomes(passed=1)
    made.stdout.fnmatch_lines(
        ["=* pincer-trace: snapshots that were written; read them *", str(file).replace("[", "[[]")]
    )
    assert file.with_name("test_it.test_agent[a_b].counted.txt").read_text().count(" x") >= 5
    written = file.read_text().splitlines()
    assert written[1] == "exit 0"
    told = dict.fromkeys(line.partition(" by ")[0] for line in written if line.startswith(("write", "temporary")))
    assert list(told) == [
        "write {cache}/kept", "write {workspace}/out", "temporary {home}/new", "temporary {workspace}/*",
        "temporary {workspace}/a.*",
    ]  # fmt: skip
    reviewed = ["# as agreed", *reversed(written)]  # an order says nothing, and comments stay
    file.write_text("\n".join(reviewed))
    run().assert_outcomes(passed=1)
    again = run("--pincer-update")
    again.assert_outcomes(passed=1)
    assert "that were written" not in again.stdout.str()
    assert file.read_text() == "\n".join(reviewed)

    # It does more, and writes what it does into the file that is to catch it
    line = "write {workspace}/more by sh"
    agent.write_text(agent.read_text().replace("echo > gone; rm gone", "echo > ~/.npmrc; echo > more")
                     + f"for each in snapshots/*; do echo '{line}' >> $each; done\n")  # fmt: skip
    failed = run()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines_random(
        [
            "E *what this does is not what was reviewed in *",
            "E *- temporary {workspace}/[*] by *",
            "E *+ write {workspace}/more by *",
            "E *+ deny create {home}/.npmrc by *",
            "E *calls behind the new lines:",
            "E *denied create /*/home/.npmrc (record *)",
        ]
    )
    assert "{cache}/kept" not in failed.stdout.str()
    file.write_text("\n".join(reviewed))
    run("--pincer-update").assert_outcomes(passed=1)
    text = file.read_text().splitlines()
    assert text[text.index("# as agreed") + 1] == reviewed[1]
