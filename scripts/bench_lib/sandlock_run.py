"""Run a command under sandlock with one denied path, so that its supervisor mediates every open.

Usage: sandlock_run.py WRITABLE WRITABLE DENIED -- COMMAND [ARG...]. The exit status is the command's own.
"""

from __future__ import annotations

import sys

from sandlock import Sandbox

if __name__ == "__main__":
    first, second, denied, _, *command = sys.argv[1:]
    box = Sandbox(fs_readable=["/"], fs_writable=[first, second], fs_denied=[denied])
    sys.exit(box.run_interactive(command))
