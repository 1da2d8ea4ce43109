"""The pytest plugin: the fixture `pincer`, which runs commands under supervision. docs/testing.md tells how it is used.

Every pytest run of whoever has this package imports it, so it imports nothing before a test asks for the fixture.
"""

from __future__ import annotations

import shutil
import sys

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from pincer_trace.testing import Trace

    Text = str | PathLike[str]

_runs = pytest.StashKey["Pincer"]()
_WRITTEN = "pincer_written"  # of a report


class Pincer:
    """What the fixture `pincer` is: `run` supervises a command, `snapshot` sets what it did against what was reviewed.

    `traces` are the runs of the test so far.
    """

    def __init__(self, request: pytest.FixtureRequest, sessions: Path) -> None:
        self._request = request
        self._sessions = sessions
        self.traces: list[Trace] = []
        self.failed = False  # the test, so far
        self.written: list[str] = []  # snapshots
        self._reviewed: dict[Path, str] | None = None

    def run(
        self,
        command: Sequence[Text],
        *,
        profile: Text | None = None,
        task: str | None = None,
        confirm: str = "deny",
        timeout: float = 60.0,
        cwd: Text | None = None,
        env: Mapping[str, str | None] | None = None,
        home: Text | None = None,
        input: str | bytes | None = None,
        options: Sequence[Text] = (),
    ) -> Trace:
        """As `pincer_trace.testing.supervise`; the session's directory is kept where the test fails.

        On a machine that cannot supervise, the test is skipped, or fails with `--pincer-require`.
        """
        __tracebackhide__ = True
        from pincer_trace.testing import TimedOut, Unsupported, supervise

        self._read_snapshots()
        try:
            trace = supervise(
                command, profile=profile, task=task, confirm=confirm, timeout=timeout, cwd=cwd, env=env, home=home,
                input=input, options=options, sessions=self._sessions,
            )  # fmt: skip
        except TimedOut as late:
            self.traces.append(late.trace)
            raise
        except Unsupported as lacking:
            if self._request.config.getoption("pincer_require"):
                raise
            pytest.skip(str(lacking))
        self.traces.append(trace)
        return trace

    def snapshot(self, trace: Trace, name: str = "", *, counts: bool = False) -> None:
        """What `trace` did is what was reviewed: `snapshots/MODULE.TEST.txt` beside the test, or `.NAME.txt`.

        Neither order nor numbers of calls count, but with `counts`. `--pincer-update` writes the file anew.
        """
        __tracebackhide__ = True
        from pincer_trace.testing import Trace
        from pincer_trace.testing.behaviour import behaviour
        from pincer_trace.testing.snapshot import compare, file_of, write

        if not isinstance(trace, Trace):
            raise TypeError(f"a snapshot is of what pincer.run gave, not of {trace!r}")
        node = self._request.node
        file = file_of(node.path, _qualified(node), name)
        lines = behaviour(trace, counts=counts, more=self._places())
        reviewed = self._read_snapshots().get(file)
        if self._request.config.getoption("pincer_update"):
            if write(file, reviewed, lines):
                self.written.append(str(file))
        else:
            compare(file, reviewed, lines, f"pytest --pincer-update '{node.nodeid}'")

    def _read_snapshots(self) -> dict[Path, str]:
        """Those of this module, as they are before anything runs that could change them."""
        if self._reviewed is None:
            from pincer_trace.testing.snapshot import FOLDER

            path = self._request.node.path
            found = sorted((path.parent / FOLDER).glob(f"{path.stem}.*.txt"))
            self._reviewed = {file: file.read_text(encoding="utf-8") for file in found}
        return self._reviewed

    def _places(self) -> dict[str, str]:
        """What pytest makes anew for each run."""
        known = self._request.node.funcargs
        return {"tmp_path": str(known["tmp_path"])} if "tmp_path" in known else {}

    def told(self) -> str:
        """The sessions of the runs, with the way to look at each; safe on a terminal."""
        import shlex

        from pincer_trace.paths import display

        return "\n".join(
            f"{display(shlex.join(trace.command), 200)}: pincer-trace report {display(shlex.quote(trace.session))}"
            for trace in self.traces
        )

    def discard(self) -> None:
        """Remove the sessions."""
        shutil.rmtree(self._sessions, ignore_errors=True)


@pytest.fixture
def pincer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pincer:
    """Runs commands under pincer-trace, whose calls a test then asserts on: `pincer.run(["python", "agent.py"])`."""
    runs = request.node.stash[_runs] = Pincer(request, tmp_path_factory.mktemp("pincer"))
    return runs


def pytest_addoption(parser: pytest.Parser) -> None:
    """What becomes of tests on a machine that cannot supervise, and of snapshots."""
    group = parser.getgroup("pincer-trace", "supervised commands")
    group.addoption(
        "--pincer-require", action="store_true",
        help="fail tests that supervise where this machine cannot; by default they are skipped",
    )  # fmt: skip
    group.addoption(
        "--pincer-update", action="store_true",
        help="write anew what tests with pincer.snapshot saw, to be read as a change of code",
    )  # fmt: skip


def pytest_unconfigure() -> None:
    """End the process that starts supervisors, if there is one."""
    launcher = sys.modules.get("pincer_trace.testing.launcher")
    if launcher is not None:
        launcher.close()


def _qualified(node: pytest.Item) -> str:
    """The name of a test in its module, with its classes: `TestX.test_y[z]`."""
    return node.nodeid.partition("::")[2].replace("::", ".") or node.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print where the sessions of a failed test are kept; remove those of all others when a test is through."""
    report = yield
    runs = item.stash.get(_runs, None)
    if runs is None:
        return report
    if report.failed:
        runs.failed = True
        if runs.traces:
            report.sections.append(("pincer-trace: what ran", runs.told()))
    if call.when == "teardown":
        if runs.written:
            setattr(report, _WRITTEN, runs.written)  # which goes along with a report, also from a process of xdist
        if not runs.failed:
            runs.discard()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the snapshots that were written: nobody has read them yet."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    written = sorted({file for report in reports for file in getattr(report, _WRITTEN, ())})
    if written:
        from pincer_trace.paths import display

        terminalreporter.section("pincer-trace: snapshots that were written; read them as a change of code")
        for file in written:
            terminalreporter.line(display(file, 5000))
