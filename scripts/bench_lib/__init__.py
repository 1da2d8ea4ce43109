"""Parts of scripts/bench: commands and rounds, micro loops, memory, whole workloads, the printed report."""
