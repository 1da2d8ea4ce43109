"""What a viewer costs the program that is watched: the same workload in a supervised run, with the monitor and without.

The program waits at a gate until the monitor has drawn; only what comes behind that is timed, in turn with and without.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

from .monitor import Screen
from .report import Report
from .rounds import Bench, Failed, Variant, fresh_directory, kill_session
from .workloads import Git

COST = 1.05  # of the time without a viewer
_PATIENCE = 60.0
_GATE = 'read line < ../gate && exec "$@"'


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Medians in seconds by name, and their ratio. Raises Failed."""
    if missing := Git().missing():
        raise Failed(missing)
    values: dict[str, list[float]] = {"alone": [], "watched": []}
    for turn in range(rounds):
        for name in values:
            with fresh_directory(bench.root, f"watched-{name}-{turn}") as outer:
                values[name].append(_one(bench, outer, watched=name == "watched"))
    medians = {name: statistics.median(each) for name, each in values.items()}
    return {**medians, "ratio": medians["watched"] / medians["alone"], "rounds": rounds}


def _one(bench: Bench, outer: str, *, watched: bool) -> float:
    workload = Git()
    place, sessions, gate = (os.path.join(outer, name) for name in ("work", "sessions", "gate"))
    os.mkdir(place)
    os.mkdir(sessions, 0o700)
    os.mkfifo(gate)
    workload.prepare(bench, place)
    prefix = _with_directory(bench.variants["pincer"], sessions)
    screen = None
    process = subprocess.Popen(
        [*prefix, "sh", "-c", _GATE, "gate", *workload.command()], cwd=place, env=bench.env | workload.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        session = _session(sessions)
        if watched:
            screen = Screen([sys.executable, "-m", "pincer_trace", "monitor", session], bench.env, 40, 120)
            if screen.watch(_PATIENCE, "decisions") is None:
                raise Failed("the monitor draws nothing")
        with open(gate, "w") as file:
            file.write("go\n")
        begun = time.perf_counter()
        while process.poll() is None:
            if screen is not None:
                screen.watch(0.005)
            else:
                time.sleep(0.005)
        seconds = time.perf_counter() - begun
        if process.returncode:
            raise Failed(f"the workload ended with {process.returncode}")
        return seconds
    finally:
        if screen is not None:
            screen.close()
        if process.poll() is None:
            kill_session(process)


def _with_directory(variant: Variant, sessions: str) -> list[str]:
    """The supervisor's words, with a place of our own for its session."""
    *words, end = variant.prefix
    return [*words, "--quiet", "--session-dir", sessions, end]


def _session(sessions: str) -> str:
    """The directory of the session that begins there, once it can be watched."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for name in os.listdir(sessions):
            try:
                with open(os.path.join(sessions, name, "session.json")) as file:
                    if '"feed":' in file.read():
                        return os.path.join(sessions, name)
            except OSError:
                continue
        time.sleep(0.01)
    raise Failed("the run cannot be watched")


def show(out: Report, title: str, found: dict[str, Any]) -> None:
    """Print them, and keep them for `--json`."""
    out.line(f"\n{title}")
    state = "ok" if found["ratio"] <= COST else "over"
    out.line(f"  {'without a viewer':<34} {found['alone']:8.3f} s")
    out.line(
        f"  {'with the monitor':<34} {found['watched']:8.3f} s   {found['ratio']:5.2f}x  target {COST:.2f}x  {state}"
    )
    out.data["watched"] = found
