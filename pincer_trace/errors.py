"""Errors for people: one line on standard error and an exit status, never a traceback."""

from __future__ import annotations

REFUSED = 123  # the command succeeded, and --fail-on counts what was refused in its run as a failure
FAILURE = 125  # our own failure, as `env`, `timeout` and `nohup` report theirs
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class UserError(Exception):
    """Something a person can mend. `str(error)` is one line: what happened, to what, why, what to do."""

    exit_status = FAILURE

    def __init__(self, message: str, exit_status: int = FAILURE) -> None:
        super().__init__(message)
        self.exit_status = exit_status
