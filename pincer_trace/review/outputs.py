"""`--report FILE`, `--sarif FILE` and `--fail-on`: what a run leaves for a CI system.

The files are opened and emptied before anything starts, so that a mistake is told then, and closed to the command: it
must not write its own report. They are filled by the front when the command has ended, however that was.
"""

from __future__ import annotations

import os
import stat

from pincer_trace import paths
from pincer_trace.errors import FAILURE, REFUSED, UserError
from pincer_trace.ui.notices import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.options import RunOptions

REPORT, SARIF = "--report", "--sarif"
NEVER, CONFIRM, DENY = "never", "confirm", "deny"  # --fail-on


class Output:
    """One file that is written at the end. Raises UserError where it cannot be."""

    def __init__(self, option: str, name: str) -> None:
        if not name:
            raise UserError(f"{option}: a file is needed; nothing was started")
        self.option = option
        # An earlier run may have put a link there, which leads to anything of this user's
        directory, last = os.path.split(os.path.abspath(name))
        self.path = os.path.join(os.path.realpath(directory), last)
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
        self._is_new = False
        try:
            try:
                self._descriptor = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                self._is_new = True
            except FileExistsError:
                self._descriptor = os.open(self.path, flags)
        except OSError as error:
            why = "it is a link; name the file itself" if os.path.islink(self.path) else error.strerror
            raise UserError(f"{option} {paths.display(name)}: cannot be written: {why}; nothing was started") from None
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise UserError(f"{option} {paths.display(name)}: no regular file; nothing was started")
        if status.st_nlink > 1:  # the content of another file of this user's, perhaps
            os.close(self._descriptor)
            raise UserError(
                f"{option} {paths.display(name)}: cannot be written: it has other names, too; nothing was started"
            )

    def write(self, text: str) -> None:
        """The whole of it, in place of what was there. Raises UserError."""
        try:
            os.ftruncate(self._descriptor, 0)
            with open(self._descriptor, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
        except OSError as error:
            raise UserError(f"{self.option} {paths.display(self.path)}: not written: {error.strerror}") from None

    def empty(self) -> None:
        """Take away what an earlier run left: where this one is killed, nobody takes that for its own."""
        os.ftruncate(self._descriptor, 0)

    def discard(self) -> None:
        """Nothing ran: what was made for it goes again."""
        if self._is_new:
            try:
                os.unlink(self.path)
            except OSError:
                pass  # an empty file stays; that nothing was started is told all the same


class Outputs:
    """What one run was asked for. Raises UserError before anything was started."""

    def __init__(self, options: RunOptions) -> None:
        self._fail_on = options.fail_on
        self._quiet = options.quiet
        self._files: list[Output] = []
        try:
            for option, name in ((REPORT, options.report), (SARIF, options.sarif)):
                if name is not None:
                    self._files.append(Output(option, name))
        except UserError:
            self.discard()
            raise
        if len({output.path for output in self._files}) < len(self._files):
            self.discard()
            raise UserError("--report and --sarif name one file; nothing was started")
        for output in self._files:
            output.empty()

    @property
    def paths(self) -> list[str]:
        """The files, which are closed to the command."""
        return [output.path for output in self._files]

    def discard(self) -> None:
        """Nothing ran."""
        for output in self._files:
            output.discard()

    def finish(self, session: str, status: int) -> int:
        """Write the files about the session's directory `session`; the exit status for our caller.

        `status` is the command's, or minus its signal: where that is no success, it stays.
        """
        from pincer_trace.review.sarif import Refusals, document
        from pincer_trace.review.told import of_session

        refusals = Refusals()
        try:
            report = of_session(session, also=refusals.add)
        except UserError as error:
            if not os.path.isdir(session):  # nothing ran, and nothing is left of it
                self.discard()
                return status
            say(f"no report: {error}")
            return status or FAILURE
        for output in self._files:
            try:
                output.write(_encoded(report.told() if output.option == REPORT else document(report, refusals)))
            except UserError as error:
                say(str(error))
                status = status or FAILURE
        confirmed = sum(group.count for group in report.confirmed) + sum(each.used for each in report.answers)
        return status or self._policy(report.denied, confirmed)

    def _policy(self, denied: int, confirmed: int) -> int:
        what = []
        if denied and self._fail_on != NEVER:
            what.append(f"{denied} denied")
        if confirmed and self._fail_on == CONFIRM:
            what.append(f"{confirmed} confirmed")
        if not what:
            return 0
        if not self._quiet:
            say(f"--fail-on {self._fail_on}: {' and '.join(what)}, so the exit status is {REFUSED}")
        return REFUSED


def wanted(options: RunOptions) -> Outputs | None:
    """What was asked for; None for nothing. Raises UserError."""
    if options.report is None and options.sarif is None and options.fail_on == NEVER:
        return None
    return Outputs(options)


def _encoded(value: object) -> str:
    import json

    return json.dumps(value, separators=(",", ":")) + "\n"
