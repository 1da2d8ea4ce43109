"""What scripts/bench prints: a table a metric, then the ratios with the design's targets beside them.

A ratio is that of the medians; `best`, that of the best rounds, is what a busy machine disturbs least.
A target is shown with `ok` or `over` and asserted nowhere: on a shared machine numbers are read, not obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .memory import Reading
from .rounds import Samples, Table, Variant

MEMORY_MIB = 80  # resident memory of the engine after 10^6 calls
DESCRIPTOR_SLACK = 8  # a cache may move by a few; a leak would be one an open
DESCRIPTORS = 1024  # a usual limit. What is swept from time to time goes up and down below it; a leak would pass it


class Target:
    """`ours` over `base`, medians; at most `limit`, or no target when None."""

    __slots__ = ("base", "limit", "note", "ours")

    def __init__(self, base: str, limit: float | None, note: str = "", ours: str = "pincer") -> None:
        self.ours = ours
        self.base = base
        self.limit = limit
        self.note = note


def opener_targets(cold: bool, structure: str) -> list[Target]:
    """`structure`: the C mode that makes the same system calls in the same order as the engine."""
    targets = [Target("native", None)]
    for mode in ("read-open", "read-open-direct"):
        same = mode == structure
        targets.append(Target(f"c-{mode}", (2.0 if cold else 1.6) if same else None, "same calls" if same else ""))
    targets.append(Target("strace", 1.5 if cold else 0.8))
    targets.append(Target("sandlock", None if cold else 1.0))
    return targets


EFFECT_TARGETS = [
    Target("native", None),
    Target("c-effects", 3.0, "same calls"),
    Target("c-effects", 5.0, "with votes and records"),
    Target("strace-effects", None),
    Target("sandlock", None),
]
CONNECT_TARGETS = [Target("native", None)]
STARTUP_TARGETS = [Target("native", None), Target("python", 6.0)]
WORKLOAD_TARGETS = {
    "git": [Target("native", 1.7), Target("strace", 1.0)],
    "npm": [Target("native", 1.2), Target("strace", None)],
    "pip": [Target("native", 1.2), Target("strace", None)],
    "pytest": [Target("native", 1.2), Target("strace", None)],
    "build": [Target("native", 1.4), Target("strace", None)],
}


class Report:
    """Prints as it goes, and keeps the same for `--json`."""

    def __init__(self, variants: Mapping[str, Variant]) -> None:
        self.labels = {name: variant.label for name, variant in variants.items()} | {"python": "python -I -c pass"}
        self.data: dict[str, Any] = {}

    def line(self, text: str = "") -> None:
        """One line on standard output, at once."""
        print(text, flush=True)

    def skipped(self, title: str, name: str, reason: str) -> None:
        """A benchmark that did not run."""
        self.line(f"\n{title}\n  skipped: {reason}")
        self.data[name] = {"skipped": reason}

    def table(self, title: str, name: str, table: Table, unit: str, targets: Sequence[Target]) -> None:
        """One benchmark, all its metrics."""
        entry: dict[str, Any] = {"unit": unit, "metrics": {}}
        for metric, row in table.items():
            heading = title if len(table) == 1 else f"{title}: {metric}"
            self.line(f"\n{heading}")
            self._rows(row, unit)
            entry["metrics"][metric] = {
                "variants": {
                    key: {"median": samples.median, "values": samples.values, "error": samples.error}
                    for key, samples in row.items()
                },
                "ratios": self._ratios(row, targets),
            }
        self.data[name] = entry

    def _rows(self, row: Mapping[str, Samples], unit: str) -> None:
        native = row["native"].median
        digits = 3 if unit == "s" else 1
        for key, samples in row.items():
            label = f"  {self.labels.get(key, key):<40}"
            middle = samples.median
            if middle is None:
                self.line(f"{label} {samples.error or 'not measured'}")
                continue
            times = f"{middle / native:8.2f}x native" if native else " " * 16
            low, high = min(samples.values), max(samples.values)
            spread = f"({low:.{digits}f} to {high:.{digits}f}, {len(samples.values)} rounds)"
            self.line(f"{label} {middle:10.{digits}f} {unit:<2} {times}   {spread}")

    def _ratios(self, row: Mapping[str, Samples], targets: Sequence[Target]) -> list[dict[str, Any]]:
        found = []
        for target in targets:
            ours = row[target.ours].median if target.ours in row else None
            base = row[target.base].median if target.base in row else None
            if ours is None or base is None:
                continue
            ratio = ours / base
            state = "" if target.limit is None else ("ok" if ratio <= target.limit else "over")
            names = f"{self.labels[target.ours].split()[0]} / {self.labels.get(target.base, target.base)}"
            limit = "" if target.limit is None else f"target {target.limit:4.1f}  {state:<4}"
            note = f"  ({target.note})" if target.note else ""
            best = min(row[target.ours].values) / min(row[target.base].values)
            self.line(f"    {names:<52} {ratio:6.2f}   best {best:6.2f}   {limit}{note}".rstrip())
            found.append(
                {
                    "ours": target.ours,
                    "base": target.base,
                    "ratio": ratio,
                    "best": best,
                    "target": target.limit,
                    "state": state,
                }
            )
        return found

    def memory(self, title: str, opens: int, processes: int, results: Mapping[str, list[Reading] | str]) -> None:
        """Readings of each supervisor, or one line why there are none."""
        self.line(f"\n{title}")
        entry: dict[str, Any] = {"opens": opens, "processes": processes, "supervisors": {}}
        for key, readings in results.items():
            label = f"  {self.labels.get(key, key):<40}"
            if isinstance(readings, str):
                self.line(f"{label} {readings}")
                entry["supervisors"][key] = {"error": readings}
                continue
            self.line(label.rstrip())
            stages = (
                "1,000 opens",
                f"{opens:,} more opens",
                f"{processes:,} processes",
                f"{processes:,} more",
            )
            for stage, reading in zip(stages, readings, strict=True):
                self.line(
                    f"    after {stage:<22} resident {reading.resident / 1024:6.1f} MiB"
                    f"   peak {reading.peak / 1024:6.1f} MiB   {reading.descriptors:4d} descriptors"
                )
            peak = readings[-1].peak / 1024
            by_opens = readings[1].descriptors - readings[0].descriptors
            after_processes = max(readings[2].descriptors, readings[3].descriptors)
            self._limited("peak resident, MiB", peak, MEMORY_MIB)
            self._limited("descriptors added by the opens", by_opens, DESCRIPTOR_SLACK)
            self._limited(f"descriptors with {2 * processes:,} dead processes", after_processes, DESCRIPTORS)
            entry["supervisors"][key] = {
                "readings": [
                    {"resident_kib": r.resident, "peak_kib": r.peak, "descriptors": r.descriptors} for r in readings
                ],
                "descriptors_by_opens": by_opens,
                "descriptors_after_processes": after_processes,
            }
        self.data["memory"] = entry

    def _limited(self, what: str, value: float, limit: int) -> None:
        """One number beside the most it should be."""
        digits = 1 if isinstance(value, float) else 0
        self.line(f"    {what:<52} {value:6.{digits}f}   target {limit:4d}  {'ok' if value <= limit else 'over'}")
