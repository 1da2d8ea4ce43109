"""How programs that could be sinks were started, and the values that some of them get in their environment.

A program is looked at when it makes its first call, which the loader makes for it before any code of its own runs: the
arguments and variables that it has then are those that it was started with, whatever it writes over them later. Where a
handle stands in a variable that the profile names for this sink, the value is written in its place, into the memory of
the program alone; every variable that is not known to mislead nobody is taken away. From then on it starts no program,
which would get its environment, and nobody reads environments.
"""

from __future__ import annotations

import errno
import os

from pincer_trace.effects import EXEC, READ
from pincer_trace.executor.commit import commit
from pincer_trace.executor.secrets import MARK
from pincer_trace.gateway.provenance import remember
from pincer_trace.gateway.sinks import launch_of
from pincer_trace.kernel import procfs
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW
from pincer_trace.profile.sinks import VARIABLE, is_plain
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.holders import Image
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.profile import Profile
    from pincer_trace.profile.sinks import Sink
    from pincer_trace.twin.authority import Judgement

    # By the text of a handle: the variable that it stands for, and its value.
    Withheld = Mapping[bytes, tuple[bytes, bytes]]

_LENGTH = 33  # of a handle
_STARTS = 4096  # programs on their way
_GIVEN = 65_536  # programs that hold a value
_MOST = 1 << 20  # bytes of an environment


class _Start:
    """`tid` of process `tgid`, which ran `image` when it asked for another program."""

    __slots__ = ("image", "tgid", "tid")

    def __init__(self, tid: int, tgid: int, image: Image) -> None:
        self.tid = tid
        self.tgid = tgid
        self.image = image


class _Value:
    """What is to stand in a variable of this sink: `value`, from `start` to `end` of the environment."""

    __slots__ = ("end", "judgement", "name", "sink", "start", "target", "value")

    def __init__(
        self, name: bytes, sink: Sink, start: int, end: int, value: bytes, target: Target, judgement: Judgement
    ) -> None:
        self.name = name
        self.sink = sink
        self.start = start
        self.end = end
        self.value = value
        self.target = target
        self.judgement = judgement


class Launches:
    """Belongs to the receiving thread. There is one where the profile has sinks."""

    def __init__(self, context: Context, profile: Profile, withheld: Withheld) -> None:
        self._c = context
        self._withheld = withheld
        self._variables = frozenset(name for sink in profile.sinks for name in sink.variables)
        self.awaited: dict[int, _Start] = {}  # by thread and by process
        self._given: dict[Image, None] = {}

    # -- starting ------------------------------------------------------------------------------------------------

    def check(self, task: Task, target: Target) -> None:
        """A task starts a program. Raises Denied where that would get a value that the task was given."""
        if self._given and self._c.holders is not None and self._c.holders.image(task) in self._given:
            reason = (
                "it was given a secret in its environment as a sink, and a program that it starts would have it, too"
            )
            self._c.authority.forbid(task, EXEC, target, reason)

    def expect(self, task: Task, tgid: int) -> None:
        """The task is about to run another program."""
        assert self._c.holders is not None
        start = _Start(task.tid, tgid, self._c.holders.image(task))
        for number in (start.tid, start.tgid):
            remember(self.awaited, number, start, _STARTS)

    def begin(self, identity: int, task: Task) -> None:
        """A task whose program may be new makes a call. Raises LedgerFull."""
        start, holders = self.awaited.get(task.tid), self._c.holders
        if start is None or holders is None:
            return
        image = holders.image(task)
        if image == start.image and task.tid != start.tid:
            return  # another thread asked, and has not got there yet
        for number in (start.tid, start.tgid):
            if self.awaited.get(number) is start:
                del self.awaited[number]
        if not image or image == start.image or not holders.may_be(task):
            return
        launch = launch_of(task.tid)
        if launch is None or not _is_unique(task.tid):
            return
        self._c.provenance.note_launch(image, launch)
        if any(MARK in variable for variable in launch[1]):
            self._give(identity, task, image)

    # -- giving --------------------------------------------------------------------------------------------------

    def _give(self, identity: int, task: Task, image: Image) -> None:
        c = self._c
        try:
            start, end = procfs.environment(task.tid)
            if end - start > _MOST:
                return
            block = c.tasks.read_bytes(task, start, end - start)
        except (OSError, ValueError, IndexError):
            return
        values: list[_Value] = []
        at = 0
        for variable in block.split(b"\0"):
            name, equals, text = variable.partition(b"=")
            if equals and name in self._variables and text.startswith(MARK):
                try:
                    values.append(self._judged(task, name, text, at + len(name) + 1))
                except Denied:
                    pass  # it has the handle, and the log the reason
            at += len(variable) + 1
        if not values or len(self._given) >= _GIVEN:
            return
        outcomes = []
        for value in values.copy():
            extra: dict[str, object] = {"given": display(value.name, 100)}
            try:
                outcomes.append(commit(c, task, READ, value.target, value.judgement, extra=extra))
            except Denied:
                values.remove(value)
        changed = self._changed(block, values)
        self._given[image] = None
        error = 0
        try:
            self._write(identity, task, start, changed)
        except OSError as failure:
            error = failure.errno or errno.EIO
        for sequence in outcomes:
            c.authority.done(sequence, error)

    def _write(self, identity: int, task: Task, start: int, block: bytes) -> None:
        """Put it into the memory of the task, which waits for our answer. Raises OSError."""
        memory = os.open(f"/proc/{task.tid}/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            if not self._c.listener.valid(identity):  # another task has its number by now (P2)
                raise ProcessLookupError(errno.ESRCH, "gone")
            if os.pwrite(memory, block, start) != len(block):
                raise OSError(errno.EIO, "memory")
        finally:
            os.close(memory)

    def _judged(self, task: Task, name: bytes, text: bytes, start: int) -> _Value:
        """The value of a handle in this variable of a task, if it may have it. Raises Denied."""
        c = self._c
        handle, room = text[:_LENGTH], text[_LENGTH:]
        path, value, problem = self._origin(handle)
        target = Target(path or VARIABLE + name)
        if not problem and (room.strip(b"_") or len(value) > len(text)):
            problem = "a value stands there whole, and needs room: fill up with `_` behind the handle"
        if problem:
            c.authority.forbid(task, READ, target, f"{display(name, 100)} keeps its handle: {problem}")
        judgement = c.authority.judge(task, READ, target)
        sink = judgement.rule.sink if judgement.rule is not None else None
        if judgement.verdict != ALLOW or sink is None or name not in sink.variables:
            reason = judgement.reason if judgement.verdict != ALLOW else "its sink does not have that variable"
            c.authority.forbid(task, READ, target, f"{display(name, 100)} keeps its handle: {reason}")
        return _Value(name, sink, start, start + len(text), value, target, judgement)

    def _origin(self, handle: bytes) -> tuple[bytes, bytes, str]:
        """The protected name behind a handle, its value, and what stands against using it."""
        kept = self._withheld.get(handle)
        if kept is not None:
            return VARIABLE + kept[0], kept[1], ""
        path, value, problem = self._c.secrets.value(handle)
        value = _unquoted(value)
        return path, value, problem or ("no variable can hold it" if b"\0" in value else "")

    def _changed(self, block: bytes, values: list[_Value]) -> bytes:
        """The environment with the values, and without what could mislead the program."""
        out, at = bytearray(block), 0
        given, sinks = {value.name for value in values}, {value.sink for value in values}
        for variable in block.split(b"\0"):
            name = variable.partition(b"=")[0]
            if not (name in given or is_plain(name) or all(sink.keeps(name) for sink in sinks)):
                out[at : at + len(variable)] = bytes(len(variable))
            at += len(variable) + 1
        for value in values:
            out[value.start : value.end] = value.value.ljust(value.end - value.start, b"\0")
        return bytes(out)


def _unquoted(value: bytes) -> bytes:
    """As a shell would read a word in quotes that has nothing special in it."""
    if len(value) > 1 and value[0] == value[-1] and value[:1] in b"\"'" and value[:1] not in value[1:-1]:
        return value[1:-1]
    return value


def _is_unique(tid: int) -> bool:
    """Whether no other program can have its image: of one that is laid out at fixed places another can be made."""
    try:
        return procfs.is_placed_by_chance(tid)
    except (OSError, ValueError):
        return False
