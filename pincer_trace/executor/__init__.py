"""The executor: performs what was decided, on the pinned objects, as the caller would have."""
