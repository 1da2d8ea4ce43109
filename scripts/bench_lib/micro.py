"""The micro benchmarks: opens, effects, start-up. Loops: scripts/reference/loop.c, timing itself."""

from __future__ import annotations

import os
import sys

from .rounds import Bench, Failed, Outcome, Samples, Table, Variant, fresh_directory, interleave

OPENERS = ("native", "pincer", "c-read-open", "c-read-open-direct", "c-continue", "strace", "sandlock")
EFFECTORS = ("native", "pincer", "c-effects", "strace-effects", "sandlock")


def numbers(outcome: Outcome) -> dict[str, float]:
    """The lines `name nanoseconds` of loop.c, in microseconds."""
    values: dict[str, float] = {}
    for line in outcome.out.splitlines():
        name, _, value = line.partition(" ")
        try:
            values[name] = float(value) / 1000
        except ValueError:
            raise Failed(f"unexpected output: {line[:100]}") from None
    if not values:
        raise Failed("no output")
    return values


def open_hot(bench: Bench) -> Table:
    """open+close of the same file again and again, us each."""
    work = bench.directory("work")
    path = os.path.join(work, "hot")
    write(path, "hot\n")

    def measure(variant: Variant, _turn: int) -> dict[str, float]:
        return numbers(bench.run([loop(bench), "open-hot", path, str(bench.operations)], work, variant))

    return interleave(bench, bench.usable(OPENERS), ["open"], measure, bench.rounds)


def protected(bench: Bench) -> Table:
    """The same of an environment file of 4 KB, which is read as a view each time."""
    work = bench.directory("work")
    path = os.path.join(work, ".env")
    write(path, "".join(f"VARIABLE_{number}=value-{number:040}\n" for number in range(70)))

    def measure(variant: Variant, _turn: int) -> dict[str, float]:
        return numbers(bench.run([loop(bench), "open-hot", path, str(bench.operations // 10)], work, variant))

    return interleave(bench, bench.usable(("native", "pincer")), ["open"], measure, bench.rounds)


def open_cold(bench: Bench) -> Table:
    """open+close of many files, each once a process, us each.

    Cold for a supervisor's caches; the kernel's are warm.
    """
    work = bench.directory("work")
    files = many_files(bench, bench.operations // 2)

    def measure(variant: Variant, _turn: int) -> dict[str, float]:
        return numbers(bench.run([loop(bench), "open-cold", files, str(bench.operations // 2)], work, variant))

    return interleave(bench, bench.usable(OPENERS), ["open"], measure, bench.rounds)


def effects(bench: Bench) -> Table:
    """create+write+close, rename and unlink of distinct files in the working directory, us each.

    On a file system in memory: a journal's own cost varies tenfold and would hide that of supervision.
    """

    def measure(variant: Variant, turn: int) -> dict[str, float]:
        with fresh_directory(bench.memory_root, f"effects-{variant.name}-{turn}") as place:
            return numbers(bench.run([loop(bench), "effects", place, str(bench.operations // 10)], place, variant))

    return interleave(bench, bench.usable(EFFECTORS), ["create", "rename", "unlink"], measure, bench.rounds)


def connect(bench: Bench) -> Table:
    """socket+connect+accept+close of a unix socket and of a port of this machine, a server of the program's own, us."""

    def measure(variant: Variant, turn: int) -> dict[str, float]:
        with fresh_directory(bench.memory_root, f"connect-{variant.name}-{turn}") as place:
            return numbers(bench.run([loop(bench), "connect", place, str(bench.operations // 10)], place, variant))

    return interleave(bench, bench.usable(("native", "pincer")), ["unix", "tcp"], measure, bench.rounds)


def startup(bench: Bench) -> Table:
    """Wall time of `true` by each variant, and of a bare isolated Python, ms."""
    work = bench.directory("work")
    python = Variant("python", "python -I -c pass", [sys.executable, "-I", "-c", "pass"])
    variants = [python, *bench.usable(("native", "pincer", "c-read-open", "strace", "sandlock"))]

    def measure(variant: Variant, _turn: int) -> dict[str, float]:
        argv = [] if variant is python else ["true"]
        return {"startup": bench.run(argv, work, variant).seconds * 1000}

    return interleave(bench, variants, ["startup"], measure, 2 * bench.rounds + 1)


def loop(bench: Bench) -> str:
    """The compiled loop.c."""
    return os.path.join(bench.root, "bin", "loop")


def write(path: str, text: str) -> None:
    """Make a small file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def many_files(bench: Bench, count: int) -> str:
    """A directory with files 0 ... count-1."""
    path = os.path.join(bench.directory("work"), f"files-{count}")
    if not os.path.isdir(path):
        os.mkdir(path)
        for number in range(count):
            write(os.path.join(path, str(number)), "cold\n")
    return path


def median(table: Table, metric: str, variant: str) -> float | None:
    """The median of one variant, None when it has none."""
    return table[metric].get(variant, Samples()).median
