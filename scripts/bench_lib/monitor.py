"""What `pincer-trace monitor` costs beside a session: its first paint before a long log, and its share of a processor.

A process of its own writes through the real Ledger at a steady rate; the real monitor draws on a terminal that this
reads. The supervisor pays nothing for it, so nothing is compared with a run without.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Any

from .report import Report
from .rounds import Bench, Failed

RATE = 1000  # decisions a second
SHARE = 15.0  # per cent of a processor at that rate
PAINT = 0.5  # seconds after the imports
_PATIENCE = 60.0
_WRITER = """
import sys, time
from pincer_trace.ledger import Session

place, behind, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = Session.create(Session.reserve(place), command=[b"bench"], profile_name="default",
                         profile_digest=bytes(32), workspace=b"/w", details={})
votes = (("left", "allow", "default.toml:82"), ("right", "allow", "default.toml:82"))
row = {"dev": 65024, "verdict": "allow", "rule": "default.toml:82", "reason": "the work tree", "votes": votes,
       "request": bytes(32), "action": bytes(16)}
deny = {"dev": 65024, "ino": 9, "verdict": "deny", "rule": "default.toml:20", "reason": "a secret", "votes": votes}
number = 0

def decide():
    global number
    number += 1
    pid, exe = 1000 + number // 100 % 50, b"/usr/bin/tool%d" % (number // 100 % 7)
    if number % 20 == 0:
        session.ledger.denied("read", b"/h/secret/%d" % number, pid=pid, exe=exe, **deny)
    else:
        path = b"/w/src/package%d/module%d.py" % (number // 30 % 40, number)
        session.ledger.outcome(session.ledger.intent("write", path, pid=pid, exe=exe, ino=number, **row), 0)

while number < behind:
    decide()
print(session.path, flush=True)
sys.stdin.readline()
print("writing", flush=True)
begun, written = time.perf_counter(), 0
while rate:
    while written < (time.perf_counter() - begun) * rate:
        decide()
        written += 1
    time.sleep(0.01)
"""
_IMPORTS = """
import time
begun = time.perf_counter()
import pincer_trace.cli, pincer_trace.ui.monitor.full, pincer_trace.ui.monitor.compact
print(time.perf_counter() - begun)
"""


class Screen:
    """The monitor on a terminal of its own."""

    def __init__(self, words: list[str], env: dict[str, str], rows: int, columns: int) -> None:
        self.begun = time.perf_counter()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(words[0], words, {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.drawn = b""

    def watch(self, seconds: float, wanted: str = "") -> float | None:
        """Read what it draws for so long, or until it has drawn that; when it had, in seconds since the start."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                try:
                    self.drawn += os.read(self._terminal, 1 << 16)
                except OSError:
                    raise Failed("the monitor ended") from None
                if wanted and re.search(wanted.encode(), self.drawn):
                    return time.perf_counter() - self.begun
        return None

    def cpu(self) -> float:
        """Seconds of a processor that it has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """KiB."""
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


def _shown(count: int) -> str:
    """As the monitor writes it."""
    if count < 10_000:
        return str(count)
    return f"{count / 1000:.0f}k" if count >= 99_500 else f"{count / 1000:.1f}k"


def measure(bench: Bench, records: int, seconds: float) -> dict[str, Any]:
    """The numbers by name; `records` is how long the log is before which it starts. Raises Failed."""
    done = subprocess.run([sys.executable, "-c", _IMPORTS], env=bench.env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    imports = float(done.stdout)
    found: dict[str, Any] = {"records": records, "imports_seconds": imports}
    place = os.path.join(bench.root, "monitor")
    for name, behind, rows, columns in (("long", records // 2, 40, 120), ("short", 0, 40, 120), ("wide", 0, 70, 250)):
        words = [sys.executable, "-c", _WRITER, place, str(behind), str(0 if name == "long" else RATE)]
        with subprocess.Popen(words, env=bench.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None and writer.stdout is not None
            try:
                session = writer.stdout.readline().strip()
                if not session:
                    raise Failed("the writer of records ended")
                shown = [sys.executable, "-m", "pincer_trace", "monitor", session]
                screen = Screen(shown, bench.env, rows, columns)
                try:
                    painted = screen.watch(_PATIENCE, "decisions")
                    if painted is None:
                        raise Failed("the monitor draws nothing")
                    if name == "long":
                        found["paint_seconds"] = painted - imports
                        counted = screen.watch(_PATIENCE, _shown(records // 2 - records // 40))
                        found["counted_seconds"] = None if counted is None else counted - imports
                    else:
                        screen.watch(2.0)
                        idle = screen.cpu()
                        screen.watch(seconds)
                        found[f"{name}_idle_percent"] = (screen.cpu() - idle) / seconds * 100
                        writer.stdin.write("\n")
                        writer.stdin.flush()
                        writer.stdout.readline()
                        screen.watch(1.0)
                        before, drawn = screen.cpu(), len(screen.drawn)
                        screen.watch(seconds)
                        found[f"{name}_percent"] = (screen.cpu() - before) / seconds * 100
                        found[f"{name}_bytes_a_second"] = (len(screen.drawn) - drawn) / seconds
                    found[f"{name}_resident_kib"] = screen.resident()
                finally:
                    screen.close()
            finally:
                writer.kill()
        shutil.rmtree(place)
    return found


def show(out: Report, title: str, found: dict[str, Any]) -> None:
    """Print them, and keep them for `--json`."""
    out.line(f"\n{title}")
    out.line(f"  {'imports':<54} {found['imports_seconds']:8.2f} s")
    state = "ok" if found["paint_seconds"] <= PAINT else "over"
    out.line(f"  {'first paint after them':<54} {found['paint_seconds']:8.2f} s    target {PAINT:4.1f}  {state}")
    if found["counted_seconds"] is not None:
        out.line(f"  {'everything before it counted':<54} {found['counted_seconds']:8.2f} s")
    for name, size in (("short", "120 columns, 40 lines"), ("wide", "250 columns, 70 lines")):
        share = found[f"{name}_percent"]
        state = "ok" if share <= SHARE else "over"
        what = f"processor at {RATE:,} decisions a second, {size}"
        out.line(f"  {what:<54} {share:8.1f} %    target {SHARE:4.0f}  {state}")
        drawn, idle = found[f"{name}_bytes_a_second"] / 1024, found[f"{name}_idle_percent"]
        out.line(f"  {'  what it draws then':<54} {drawn:8.1f} KiB/s; idle it takes {idle:.1f} %")
    sizes = ", ".join(f"{found[f'{name}_resident_kib'] / 1024:.0f}" for name in ("long", "short", "wide"))
    out.line(f"  {'resident':<54} {sizes} MiB")
    out.data["monitor"] = found
