"""Fixtures of all tests: identities, work folders, and the checks that no test leaks a descriptor or a
process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests' own helpers; import mode importlib adds nothing

import support

from pincer_trace.testing import launcher

PR_SET_CHILD_SUBREAPER = 36


def pytest_configure(config: pytest.Config) -> None:
    """Own markers; orphans of a test come to us; and no signal is ignored that tests send (a job in the background of a
    shell without job control starts with two that are).
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    config.addinivalue_line("markers", "both_identities: runs as user and as root even in the ordinary run")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take `identity` (or a fixture that does) run as each chosen one."""
    if "identity" in metafunc.fixturenames:
        both = metafunc.definition.get_closest_marker("both_identities") is not None
        metafunc.parametrize("identity", support.chosen_identities(both), indirect=True)


@pytest.fixture
def identity(request: pytest.FixtureRequest) -> support.Identity:
    """Who runs the commands of this test."""
    who = support.identities()[request.param]
    if isinstance(who, str):
        pytest.skip(who)
    return who


@pytest.fixture
def runner(identity: support.Identity) -> Iterator[support.Runner]:
    """Runs commands natively and supervised in a work folder and a HOME of this identity's own."""
    base = Path(tempfile.mkdtemp(prefix="pincer-test-")).resolve()
    base.chmod(0o755)
    processes = support.children()
    made = support.Runner(base, identity)
    made.fresh()
    yield made
    left = support.reap(processes)  # an engine that still ends writes there
    support.remove_tree(base)
    assert not left, "processes left behind:\n" + "\n".join(left)


@pytest.fixture
def work(runner: support.Runner) -> Path:
    """The work folder: the workspace of the default profile."""
    return runner.work


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a descriptor or a process behind.

    What starts supervisors for `pincer_trace.testing` is there until the tests end.
    """
    processes, descriptors = support.children(), support.open_descriptors()
    yield
    starts = launcher.standing()
    if starts is not None:
        channel = starts.channel.fileno()
        processes, descriptors = processes | {starts.pid}, descriptors | {channel: support.open_descriptors()[channel]}
    left = support.reap(processes)
    opened = support.left_open(descriptors)
    assert not left, "processes left behind:\n" + "\n".join(left)
    assert not opened, f"descriptors left open: {opened}"
    assert os.getcwd()
