"""A bench whose working directory is its workspace."""

from __future__ import annotations

from executor.benches import bench, make_bench, populated, work

__all__ = ["bench", "make_bench", "populated", "work"]
