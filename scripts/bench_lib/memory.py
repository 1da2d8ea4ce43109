"""Memory and descriptors of the supervisor: neither may grow with the number of calls or of dead processes.

The probe of loop.c stops after each of four stages; the supervisor is the parent of its process.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time

from .micro import loop, many_files
from .rounds import Bench, Failed, Variant, describe, kill_session

PROCESSES = 2000
STAGES = 4
FILES = 2000  # distinct files that the opens go round
STAGE_SECONDS = 600.0
SETTLE_SECONDS = 0.3  # exits of the last short-lived processes are seen a moment later


class Reading:
    """A supervisor after one stage: resident memory in KiB (now, and the most so far), open descriptors."""

    __slots__ = ("descriptors", "peak", "resident")

    def __init__(self, resident: int, peak: int, descriptors: int) -> None:
        self.resident = resident
        self.peak = peak
        self.descriptors = descriptors


def status_field(pid: int, field: str) -> int:
    """The number behind `field:` of /proc/PID/status. Raises Failed when the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
    except OSError as error:
        raise Failed(f"/proc/{pid}/status: {error.strerror}") from error
    raise Failed(f"/proc/{pid}/status has no {field}")


def read_supervisor(worker: int) -> Reading:
    """The supervisor of a worker: its parent process."""
    engine = status_field(worker, "PPid")
    if engine == os.getpid():
        raise Failed("the worker is our own child: no supervisor to measure")
    try:
        descriptors = len(os.listdir(f"/proc/{engine}/fd"))
    except OSError as error:
        raise Failed(f"/proc/{engine}/fd: {error.strerror}") from error
    return Reading(status_field(engine, "VmRSS"), status_field(engine, "VmHWM"), descriptors)


def next_stage(process: subprocess.Popen[bytes], buffer: bytearray) -> int:
    """Wait for the line `stage PID`; returns the worker's process id."""
    assert process.stdout is not None
    until = time.monotonic() + STAGE_SECONDS
    while b"\n" not in buffer:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise Failed(f"a stage took more than {STAGE_SECONDS:.0f} s")
        data = os.read(process.stdout.fileno(), 4096)
        if not data:
            raise Failed("")
        buffer += data
    line, _, rest = bytes(buffer).partition(b"\n")
    buffer[:] = rest
    word, _, number = line.partition(b" ")
    if word != b"stage" or not number.isdigit():
        raise Failed(f"unexpected output: {line[:100]!r}")
    return int(number)


def probe(bench: Bench, variant: Variant, opens: int, processes: int) -> list[Reading]:
    """Readings after 1,000 opens, `opens` more, `processes` short-lived processes, and as many again.

    What is kept for dead tasks may go up and down; the second round of processes shows its bound.
    Raises Failed.
    """
    if variant.unavailable:
        raise Failed(variant.unavailable)
    work = bench.directory("work")
    argv = [
        *variant.prefix,
        loop(bench),
        "probe",
        many_files(bench, FILES),
        str(FILES),
        str(opens),
        str(processes),
    ]
    readings: list[Reading] = []
    buffer = bytearray()
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            argv,
            cwd=work,
            env=bench.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            for _ in range(STAGES):
                worker = next_stage(process, buffer)
                time.sleep(SETTLE_SECONDS)
                readings.append(read_supervisor(worker))
                process.stdin.write(b"x")
                process.stdin.flush()
            process.wait(60)
        except (subprocess.TimeoutExpired, BrokenPipeError) as error:
            raise Failed("the supervised command did not end as it should") from error
        except Failed as error:
            if str(error):
                raise
            process.wait(60)
            err.seek(0)
            raise Failed(describe(process.returncode, err.read().decode("utf-8", "replace"))) from error
        finally:
            if process.poll() is None:
                kill_session(process)
            process.stdin.close()
            process.stdout.close()
    return readings
