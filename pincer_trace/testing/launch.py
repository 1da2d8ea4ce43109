"""The supervisor's start for a test, run by its path: `python -I -S launch.py PARENT LIFE PREFIX PATHS -- ARGUMENT...`

Nothing of the environment or of `.pth` files decides what is imported: a project that is installed in place would
otherwise be among it, and the command may change that (hazard P81). `PATHS` are the directories of this package and of
what it needs. It ends with its parent, the test's process, however that ends; and with it the engine and the tree.

The descriptor `LIFE` is told the session's directory, and stays open in front and engine: its end is theirs.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command; its exit status. With no argument behind `--`, tell what this machine lacks to run any."""
    parent, life, prefix, paths = sys.argv[1:5]
    sys.prefix = sys.exec_prefix = prefix  # of the virtual environment, which is then closed to the command as a whole
    sys.path += paths.split(os.pathsep)
    sys.argv = ["pincer-trace", *sys.argv[6:]]
    from pincer_trace.__main__ import complain
    from pincer_trace.errors import FAILURE, UserError
    from pincer_trace.kernel import libc
    from pincer_trace.kernel.bare import signal

    os.set_inheritable(int(life), False)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return FAILURE  # it has ended before
    if len(sys.argv) == 1:
        return _examine()
    from pincer_trace.front import run
    from pincer_trace.options import parse_run

    options = parse_run(sys.argv[1:])
    if options is None:
        complain("these options are none: see pincer-trace --help")
        return FAILURE
    try:
        return run(options, lambda directory: _tell(int(life), directory))
    except UserError as error:
        complain(str(error))
        return error.exit_status


def _tell(life: int, directory: str) -> None:
    os.write(life, os.fsencode(directory))


def _examine() -> int:
    """The status is 1, with a line for each thing, if anything that every run needs is missing."""
    from pincer_trace.doctor import examine

    lacking = [found for found in examine() if found.required and not found.ok]
    for found in lacking:
        print(f"{found.name}: {found.text}" + (f" ({found.remedy})" if found.remedy else ""))
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
