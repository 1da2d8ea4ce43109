"""Commands, variants and interleaved rounds: how scripts/bench measures.

A variant is one way to run the same command: natively, supervised, traced. All variants of a benchmark run in
turn (A B C A B C ...), so that the noise of a shared machine falls on all; their medians are compared.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence


class Failed(Exception):
    """A variant could not do a benchmark; `str(error)` is one line for the report."""


class Variant:
    """One way to run a command: `prefix` goes before its argument vector."""

    __slots__ = ("label", "name", "prefix", "unavailable")

    def __init__(self, name: str, label: str, prefix: Sequence[str], unavailable: str = "") -> None:
        self.name = name
        self.label = label
        self.prefix = list(prefix)
        self.unavailable = unavailable  # why it cannot run here; empty when it can


class Outcome:
    """What one command did: exit status (negative: signal), output, and wall time in seconds."""

    __slots__ = ("err", "out", "seconds", "status")

    def __init__(self, status: int, out: str, err: str, seconds: float) -> None:
        self.status = status
        self.out = out
        self.err = err
        self.seconds = seconds


class Samples:
    """The measurements of one variant, and why they ended early if they did."""

    __slots__ = ("error", "values")

    def __init__(self) -> None:
        self.values: list[float] = []
        self.error = ""

    @property
    def median(self) -> float | None:
        """The median, or None without a measurement or after a failure."""
        return statistics.median(self.values) if self.values and not self.error else None


Table = dict[str, dict[str, Samples]]  # metric -> variant name -> samples


class Bench:
    """The place and the limits of one run: directories, environment, time."""

    def __init__(
        self, root: str, memory_root: str, checkout: str, operations: int, rounds: int, seconds: float
    ) -> None:
        """`root`, `memory_root`: empty directories, the second on a file system in memory where there is one.

        `operations` scales the micro loops; `seconds` is the time budget.
        """
        self.root = root
        self.memory_root = memory_root
        self.operations = operations
        self.rounds = rounds
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.variants: dict[str, Variant] = {}
        self.env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")}
        # The same environment for every variant. PYTHONPATH makes the checkout importable from any directory.
        self.env |= {
            "HOME": self.directory("home"),
            "XDG_STATE_HOME": self.directory("state"),
            "PYTHONPATH": checkout,
            "TERM": "dumb",
        }

    def directory(self, name: str) -> str:
        """A directory below the root, made when absent."""
        path = os.path.join(self.root, name)
        os.makedirs(path, exist_ok=True)
        return path

    @property
    def late(self) -> bool:
        """Whether the time budget is used up."""
        return time.monotonic() > self.deadline

    def run(
        self,
        argv: Sequence[str],
        cwd: str,
        variant: Variant | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> Outcome:
        """Run a command, natively or by a variant, in its own session; it is killed after `timeout` seconds.

        Raises Failed when it does not end with status 0 in time.
        """
        command = [*(variant.prefix if variant else []), *argv]
        # Files, not pipes: a process that outlives the command must not keep us waiting for its output.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.perf_counter()
            try:
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=self.env | (env or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                raise Failed(f"{command[0]}: {error.strerror}") from error
            try:
                # Not wait(timeout): it looks at intervals of up to 50 ms, which the clock would show.
                pidfd = os.pidfd_open(process.pid)
                ended, _, _ = select.select([pidfd], [], [], timeout)
                seconds = time.perf_counter() - start
                os.close(pidfd)
                if not ended:
                    raise Failed(f"still running after {timeout:.0f} s")
                process.wait()
            finally:
                if process.poll() is None:
                    kill_session(process)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode("utf-8", "replace"))
        if process.returncode != 0:
            raise Failed(describe(process.returncode, texts[1] or texts[0]))
        return Outcome(process.returncode, texts[0], texts[1], seconds)

    def usable(self, names: Sequence[str]) -> list[Variant]:
        """The variants of these names, those that cannot run here included."""
        return [self.variants[name] for name in names]


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """End a command that we started with `start_new_session`, and what is left in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def describe(status: int, text: str) -> str:
    """An exit status and the last two lines that were said (command's and supervisor's), as one line."""
    said = [line.strip()[:150] for line in text.splitlines() if line.strip()]
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"{how}: {' | '.join(said[-2:])}" if said else how


def interleave(
    bench: Bench,
    variants: Sequence[Variant],
    metrics: Sequence[str],
    measure: Callable[[Variant, int], dict[str, float]],
    rounds: int,
) -> Table:
    """Measure all variants in turn, `rounds` times or until the budget is used up (at least one round).

    `measure(variant, round)` returns a value a metric or raises Failed, which ends the variant's part.
    """
    table: Table = {metric: {variant.name: Samples() for variant in variants} for metric in metrics}
    failed = {variant.name: variant.unavailable for variant in variants if variant.unavailable}
    for turn in range(rounds):
        if turn and bench.late:
            break
        for variant in variants:
            if variant.name in failed:
                continue
            try:
                values = measure(variant, turn)
            except Failed as error:
                failed[variant.name] = str(error)
                continue
            for metric in metrics:
                table[metric][variant.name].values.append(values[metric])
    for row in table.values():
        for name, reason in failed.items():
            row[name].error = reason
    return table


@contextlib.contextmanager
def fresh_directory(parent: str, name: str) -> Iterator[str]:
    """An empty directory for one measurement, removed afterwards."""
    path = os.path.join(parent, name)
    os.mkdir(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
