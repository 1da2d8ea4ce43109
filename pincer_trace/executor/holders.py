"""Programs that have read a secret as sinks: what such a one writes is as secret as what it has read.

A program is known by its image, which forks share and another program never has, so a child that goes on with what
its parent has read is known, too. Files that it opens to write are protected as the secret is, by their object and
whatever they are called, and so are those that it had opened before; but for its `outputs`, of which the profile says
that they hold nothing of it. What it was given when it was started, its standard output above all, is its own affair:
that nothing of the secret goes there is what makes it a sink.
"""

from __future__ import annotations

import os
import stat

from pincer_trace.effects import READ, WRITE
from pincer_trace.gateway.aliases import TooMany
from pincer_trace.gateway.provenance import remember
from pincer_trace.gateway.resolve import is_memory
from pincer_trace.kernel import libc, procfs
from pincer_trace.profile.globs import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.profile import Profile
    from pincer_trace.profile.sinks import Sink
    from pincer_trace.twin.target import Target

    Image = tuple[int, ...]

_IMAGES = 16_384  # programs that are remembered before they hold anything
_HELD = 65_536  # and that hold something
_FILES = 256  # that one of them had opened before it read a secret
_SECRETS = 64  # that one of them reads


class _Program:
    """What is known of an image: `written`, (path, identity, stat) of files before it held anything; then `names`, the
    secrets that it has read, and the sinks as which it read them.
    """

    __slots__ = ("names", "sinks", "written")

    def __init__(self) -> None:
        self.names: tuple[bytes, ...] = ()
        self.sinks: tuple[Sink, ...] = ()
        self.written: list[tuple[bytes, bytes, os.stat_result]] = []


class Holders:
    """Belongs to the receiving thread. There is one where the profile has sinks."""

    def __init__(self, context: Context, profile: Profile) -> None:
        self._c = context
        self._labels = [rule.exe_components for rule in profile.rules if rule.sink is not None and rule.exe_components]
        self._known: dict[Image, _Program] = {}  # which have written, and hold nothing
        self._held: dict[Image, _Program] = {}
        self._may: dict[bytes, bool] = {}  # of executables: whether they could be sinks

    def read(self, task: Task, target: Target, name: bytes, sink: Sink) -> None:
        """A task is about to read as this sink what is protected by `name`. Raises Denied."""
        c, image = self._c, self.image(task)
        program = self._held.get(image) or self._known.pop(image, None) or _Program()
        full = len(self._held) >= _HELD or len(program.written) > _FILES or len(program.names) >= _SECRETS
        if not image or full:
            reason = "it has read or written too much for telling apart what it writes"
            c.authority.forbid(task, READ, target, reason)
        if name in program.names and sink in program.sinks:
            return
        program.names = tuple(dict.fromkeys((*program.names, name)))
        program.sinks = tuple(dict.fromkeys((*program.sinks, sink)))
        self._held[image] = program
        try:
            for path, identity, found in program.written:
                self._protect(program, path, identity, found)
        except TooMany:
            c.authority.forbid(task, READ, target, "too many files were written by sinks")
        c.reads.moved()  # what it writes may have been let pass, or be in its memory

    def writes(self, task: Task, target: Target, descriptor: int) -> None:
        """A task opens this file to write it, or has made it. Raises Denied."""
        if not self.may_be(task):
            return
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return
        image, identity = self.image(task), libc.object_identity(descriptor)
        program = self._held.get(image)
        if program is None:
            program = self._known.get(image)
            if program is None:
                program = _Program()
                remember(self._known, image, program, _IMAGES)
            if len(program.written) <= _FILES:
                program.written.append((target.path, identity, found))
            return
        try:
            self._protect(program, target.path, identity, found)
        except TooMany:
            self._c.authority.forbid(task, WRITE, target, "too many files were written by sinks")
        self._c.reads.moved()

    def holds(self, task: Task) -> bool:
        """Whether it has read a secret as a sink."""
        return bool(self._held) and self.may_be(task) and self.image(task) in self._held

    def hides(self, path: bytes, found: os.stat_result) -> bool:
        """Whether this is a pipe or a memory, in which a sink may have what it has read: for who holds it alone."""
        return bool(self._held) and (not path.startswith(b"/") or is_memory(path, found))

    def _protect(self, program: _Program, path: bytes, identity: bytes, found: os.stat_result) -> None:
        """Raises TooMany."""
        if not all(sink.puts_out(path) for sink in program.sinks):
            self._c.authority.note_copy(identity, found, program.names)

    def may_be(self, task: Task) -> bool:
        """Whether the program that it runs could be a sink."""
        executable = task.executable
        known = self._may.get(executable)
        if known is None:
            known = any(matches(components, executable) for components in self._labels)
            remember(self._may, executable, known)
        return known

    def image(self, task: Task) -> Image:
        """What the task runs; nothing where that cannot be seen."""
        try:
            return procfs.image(task.tid)
        except (OSError, ValueError, IndexError):
            return ()
