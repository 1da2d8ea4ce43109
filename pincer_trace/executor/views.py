"""Protected files are read as views: a sealed file in memory with handles in the place of what is secret.

The content is read here once, from the pin and with the caller's rights, and never given. What the worker gets has the
mode, the owner and the times of the file, a size of its own, and can be changed by nobody (hazard P84).
"""

from __future__ import annotations

import os
import stat

from pincer_trace.effects import READ
from pincer_trace.executor.commit import commit
from pincer_trace.executor.descriptors import OURS, WALK, give, sealed
from pincer_trace.executor.outcome import Outcome
from pincer_trace.paths import counted
from pincer_trace.profile import VIEW
from pincer_trace.twin import codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement
    from pincer_trace.twin.target import Target

MAXIMUM = 1 << 20  # bytes of a file that is shown
_ATTEMPTS = 3  # to read it while nobody changes it


class Unsuitable(Exception):
    """No view can be given of it. The reason is for people."""


class Views:
    """Belongs to the receiving thread."""

    def __init__(self, context: Context) -> None:
        self._c = context

    def prepare(self, task: Task) -> None:
        """Before the first view: what makes it is imported by our own ids."""
        c = self._c
        if not c.secrets.ready:
            c.identity.as_ourselves(task, c.secrets.load)

    def open(self, identity: int, task: Task, flags: int, target: Target, judgement: Judgement) -> None:
        """Answer an open for reading of the pinned file with a view of it. Raises OSError, Denied, LedgerFull."""
        c = self._c
        assert target.found is not None
        c.saves.tell_loss(task, READ, target)
        self.prepare(task)
        c.domains.check_reading(c.resolver.number(target.descriptor), c.resolver.names)
        try:
            content, found = read(c.resolver.number(target.descriptor), c.resolver.names)
            view = c.secrets.view(c.authority.secret_name(target), found, content)
        except Unsuitable as unsuitable:
            c.authority.forbid(task, READ, target, f"it is read as a view only, and {unsuitable}", codes.NO_VIEW)
        made = sealed("view", view.text, found)
        try:
            extra: dict[str, object] = {"view": counted(len(view.handles) + 1, "handle")}
            sequence = commit(c, task, READ, target, judgement, flags=flags, extra=extra, gives=VIEW)
            with Outcome(c, sequence):
                opened = os.open(
                    c.resolver.number(made),
                    flags & ~(WALK | os.O_CREAT | os.O_DIRECT) | OURS,
                    dir_fd=c.resolver.names,
                )
                give(c, identity, opened, flags & ~os.O_DIRECT)
        finally:
            os.close(made)


def read(name: bytes, directory: int) -> tuple[bytes, os.stat_result]:
    """The whole content of a pinned file, as one version of it. Raises OSError; Unsuitable where that cannot be had."""
    try:
        descriptor = os.open(name, os.O_RDONLY | OURS, dir_fd=directory)
    except BlockingIOError:
        raise Unsuitable("another program holds a lease on it: try again later") from None
    try:
        for _ in range(_ATTEMPTS):
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise Unsuitable("it is no regular file")
            if before.st_size > MAXIMUM:
                raise Unsuitable("it is larger than a megabyte")
            content = b""
            while piece := os.pread(descriptor, MAXIMUM + 1 - len(content), len(content)):
                content += piece
            after = os.fstat(descriptor)
            same = (before.st_ctime_ns, before.st_mtime_ns, before.st_size) == (
                after.st_ctime_ns, after.st_mtime_ns, len(content)
            )  # fmt: skip
            if same:
                return content, after
    finally:
        os.close(descriptor)
    raise Unsuitable("it is being changed: try again later")
