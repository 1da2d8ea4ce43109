"""Variables that a profile sets (`[[set_env]]`): switches of programs, such as one that turns their statistics off.

A variable that names a file, a program or a host is none: by those, code is loaded or asked for elsewhere.
"""

from __future__ import annotations

VALUES = ("0", "1", "true", "false", "yes", "no", "on", "off")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
# One of them says that it switches something.
_WORDS = frozenset(
    ("ANALYTICS", "AUTOUPDATE", "AUTOUPDATER", "DISABLE", "DISABLED", "ENABLE", "ENABLED", "LOCAL", "NO", "OFFLINE",
     "SKIP", "TELEMETRY", "TRACKING", "UPDATE", "UPDATES")
)  # fmt: skip
_LOADERS = ("LD_", "DYLD_", "GLIBC_")


def wrong(name: str, value: str) -> str:
    """What is wrong with such a setting; empty if nothing is. Without a value there is none."""
    if not _LETTERS.issuperset(name) or name.startswith(_LOADERS) or _WORDS.isdisjoint(name.split("_")):
        return f"no variable that switches something: one of its words is {', '.join(sorted(_WORDS))}"
    if value and value.lower() not in VALUES:
        return f"not a switch: {', '.join(VALUES)}, or nothing to leave it alone"
    return ""
