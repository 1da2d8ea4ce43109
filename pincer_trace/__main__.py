"""The entry: `pincer-trace` and `python -m pincer_trace`. Chooses run or click; prints errors."""

from __future__ import annotations

import gc
import os
import sys

from pincer_trace.errors import FAILURE, UserError

INTERRUPTED = 130  # as a shell reports SIGINT


def main() -> int:
    """Run the program; its exit status. Whatever goes wrong is one line on standard error."""
    try:
        return _main(sys.argv[1:])
    except UserError as error:
        complain(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python's own flush at exit must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILURE
    except Exception as error:  # a mistake of ours is not the user's to read as a traceback
        if os.environ.get("PINCER_TRACE_DEBUG"):
            raise
        complain(f"internal error: {type(error).__name__}: {error}; PINCER_TRACE_DEBUG=1 shows where")
        return FAILURE


def complain(message: str) -> None:
    """One line on standard error, safe on a terminal whatever is in it."""
    if not message.isprintable():
        from pincer_trace.paths import display

        message = display(message, limit=2000)
    if sys.stderr is None:  # descriptor 2 was closed, and print would take standard output instead
        return
    try:
        print(f"pincer-trace: {message}", file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # or Python's flush at exit changes the status


def _main(argv: list[str]) -> int:
    _leave_working_directory()
    gc.disable()  # a start leaves no cycles to collect: what is imported and loaded stays
    if argv == ["hook", "claude"]:  # without click: an agent waits for it after each of its steps
        from pincer_trace.hook import main as hook

        return hook(argv[1:])
    from pincer_trace.imports import hasten

    hasten()
    from pincer_trace.options import parse_run

    options = parse_run(argv)
    if options is None:
        gc.enable()
        from pincer_trace.cli import dispatch

        return dispatch(argv)
    from pincer_trace.front import run

    os._exit(run(options))  # without taking the interpreter apart, which the caller would wait for: all is written


def _leave_working_directory() -> None:
    """`python -m` imports from the working directory first, where a worker may write: start again without it (P81)."""
    if __name__ == "__main__" and not sys.flags.safe_path:
        os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
