"""Files that are judged by their content once it is written, and that have no name until then.

What git reads from a folder (`gateway.repositories`) cannot be judged when it is opened: it is empty then. The worker
writes a file without a name instead. When nobody can write that any more, which a read lease proves (hazard P85), it is
judged, and a copy of it gets the name, or nothing does. A copy, since descriptors of the first one can be opened again,
and the kernel does not tell by which name. Until then the name is absent, or holds what it held. An edited view is
written in the same way (`executor.saves`).
"""

from __future__ import annotations

import errno
import os
import time

from pincer_trace.effects import CREATE, TRUNCATE, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.executor.descriptors import OURS, WALK, fill, give, place
from pincer_trace.executor.fresh import Attributes, Place, nameless, put, take_over
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway.gitconfig import Hope, Written, leased_content, plain_content, take_lease
from pincer_trace.gateway.resolve import join, look
from pincer_trace.gateway.tasks import Task
from pincer_trace.ledger import LedgerFull
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.identity import Credentials

_PENDING = 64  # files at a time
_PAUSE = 20  # milliseconds between two looks at most, while no call comes
_PATIENCE = 1.0  # seconds at the end: the last process may still be closing its files
_MAKES = os.O_CREAT | os.O_EXCL | os.O_TRUNC


class Pending:
    """One of them: read by `descriptor`, to be `name` in the pinned `parent`, in the place of `replaced`. `complete` is
    called with it once nobody can write it any more.
    """

    __slots__ = ("caller", "complete", "credentials", "descriptor", "name", "parent", "replaced", "where")

    def __init__(
        self,
        caller: Task,
        credentials: Credentials | None,
        descriptor: int,
        parent: int,
        name: bytes,
        replaced: os.stat_result | None,
        complete: Callable[[Pending], None],
    ) -> None:
        self.caller = caller
        self.complete = complete
        self.credentials = credentials
        self.descriptor = descriptor
        self.parent = parent
        self.name = name
        self.replaced = replaced
        above = os.fstat(parent)
        self.where = (above.st_dev, above.st_ino, name)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.parent)


class Staged:
    """Belongs to the receiving thread, which calls `wait` before it receives while anything is `pending`."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self.pending: list[Pending] = []
        self._count = 0

    # -- opening ---------------------------------------------------------------------------------------------

    def could_pass(self, task: Task, effects: tuple[str, ...], target: Target, flags: int) -> bool:
        """Whether it depends on the content alone that the effects are not allowed, in a directory of the session.

        In the user's own only for a `.git` of the session, which `git submodule update` writes, twice, into the folder
        that waits for it.
        """
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return False
        authority = self._c.authority
        fresh = target.name == b".git" and (target.found is None or authority.is_own(target))
        if not fresh and not authority.lies_in_own(target):
            return False
        judge, permits = authority.judge, authority.permits
        return all(permits(judge(task, effect, target, Hope())) for effect in effects)

    def open(
        self,
        identity: int,
        task: Task,
        target: Target,
        flags: int,
        mode: int,
    ) -> None:
        """Answer with a file without a name in the place of `target`. Raises OSError, Denied."""
        c = self._c
        parent, name = target.parent, target.name
        shared = self._of(parent, name)
        if shared is not None:
            if flags & os.O_EXCL:
                raise OSError(errno.EEXIST, name)
            c.domains.check_writing(parent, name, exists=target.found is not None)
            opened = os.open(c.resolver.number(shared.descriptor), _plain(flags), dir_fd=c.resolver.names)
            give(c, identity, opened, flags)
            return
        self.stage(identity, task, target, flags, mode, self._judge)

    def stage(
        self,
        identity: int,
        task: Task,
        target: Target,
        flags: int,
        mode: int,
        complete: Callable[[Pending], None],
        begins: bytes = b"",
    ) -> None:
        """Answer with a new file without a name, which `begins` so, to be completed when it is written. Raises OSError,
        Denied.
        """
        c = self._c
        parent, name = target.parent, target.name
        effect = CREATE if target.found is None else TRUNCATE
        c.domains.check_writing(parent, name, exists=target.found is not None)
        if c.holders is not None and c.holders.holds(task):
            reason = "it has read a secret as a sink, and what is judged by its content is copied"
            c.authority.forbid(task, effect, target, reason)
        if len(self.pending) >= _PENDING:
            c.authority.forbid(task, effect, target, "too many files wait for being judged by their content")
        mask = c.identity.take_mask(c.tasks, task)
        opened = nameless(parent, _plain(flags), mode)
        if opened < 0:
            memory = os.memfd_create("staged", os.MFD_CLOEXEC)
            try:  # a descriptor that counts as a writer: the first one of a memfd does not (P85)
                opened = os.open(c.resolver.number(memory), _plain(flags), dir_fd=c.resolver.names)
            finally:
                os.close(memory)
            os.fchmod(opened, mode & ~mask)
        reader = above = -1
        try:
            if target.found is not None:
                take_over(opened, target.found)
            fill(opened, begins)
            c.provenance.note_nameless(opened)
            reader = os.open(c.resolver.number(opened), os.O_RDONLY | OURS, dir_fd=c.resolver.names)
            above = os.dup(parent)
            caller = Task(task.tid, -1, task.executable, task.executable_id, 0.0, subject=task.subject)
            file = Pending(caller, c.identity.credentials(task), reader, above, name, target.found, complete)
            number = place(c, identity, opened, flags)
        except BaseException:
            for descriptor in (reader, above):
                if descriptor >= 0:
                    os.close(descriptor)
            raise
        finally:
            os.close(opened)
        self.pending.append(file)
        c.listener.respond(identity, number)

    def is_written(self, parent: int, name: bytes) -> bool:
        """Whether a file that is to have this name is being written."""
        return self._of(parent, name) is not None

    def _of(self, parent: int, name: bytes) -> Pending | None:
        if not self.pending:
            return None
        above = os.fstat(parent)
        where = (above.st_dev, above.st_ino, name)
        return next((file for file in self.pending if file.where == where), None)

    def holds(self, found: os.stat_result) -> bool:
        """Whether this is one of them: its attributes are judged with its name."""
        return any(os.path.samestat(os.fstat(file.descriptor), found) for file in self.pending)

    # -- judging ---------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Judge what is written, until a call waits to be received or nothing is pending. Raises nothing."""
        self.settle()
        pause = 1
        while self.pending and not self._c.listener.wait(pause):
            self.settle()
            pause = min(2 * pause, _PAUSE)
        self.settle()

    def finish(self) -> None:
        """At the end of the tree: whatever cannot be judged then is dropped."""
        deadline = time.monotonic() + _PATIENCE
        self.settle()
        while self.pending and time.monotonic() < deadline:
            time.sleep(0.005)
            self.settle()
        self.settle(last=True)
        self._c.identity.assume(None)

    def settle(self, *, last: bool = False) -> None:
        """Judge every file that nobody can write any more. Leaves the ids of their callers in force. Raises nothing."""
        for file in tuple(self.pending):
            try:
                self._c.identity.assume(file.credentials)
                if not last:
                    take_lease(file.descriptor)
            except BlockingIOError:
                continue
            except OSError:
                if not last:
                    continue
            self.pending.remove(file)
            self._c.authority.begin()
            try:
                file.complete(file)
            except (Denied, LedgerFull):
                pass  # dropped, with the record that there is room for: its writer has gone on, nobody can be told
            except Exception as failure:  # noqa: BLE001 - the file is dropped, with a record
                self._c.authority.note_failure("staged", failure, file.caller.tid)
            finally:
                file.close()

    def _judge(self, file: Pending) -> None:
        c = self._c
        attributes = Attributes(file.descriptor)  # before the look at its content, which may change a time
        try:
            content = leased_content(file.descriptor)
        except OSError:
            content = None  # somebody can still write it
        parent, name = file.parent, file.name
        found = look(parent, name)
        replaces = file.replaced is not None and found is not None and os.path.samestat(found, file.replaced)
        target = Target(join(c.resolver.path_of(parent), name), parent=parent, name=name, found=found)
        if replaces:
            witness = Written(plain_content(parent, name), content)
            judged = [c.authority.demand(file.caller, WRITE, target, witness)]
            effect = TRUNCATE
        else:
            witness = Written(b"", content)
            judged = []
            effect = CREATE
        if content is None:
            c.authority.forbid(file.caller, effect, target, "it was not closed, or is too large")
        judged.insert(0, c.authority.demand(file.caller, effect, target, witness))
        arguments = (content, *attributes.data())
        sequence = commit(c, file.caller, effect, target, judged, mode=attributes.mode, arguments=arguments)
        try:
            with Outcome(c, sequence) as outcome:
                self._name(file, content, attributes, replaces=replaces)
                outcome.saw(c.provenance.note(parent, name))
        except OSError:
            pass  # nobody waits for an answer: the outcome alone tells it

    def _name(self, file: Pending, content: bytes, attributes: Attributes, *, replaces: bool) -> None:
        """Raises OSError: EEXIST when another file has taken the name meanwhile."""
        self._count += 1
        place = Place(file.parent, file.name, b".pincer-trace-%d-%d" % (os.getpid(), self._count))
        put(self._c.resolver, place, content, attributes.give_all, replaces=replaces)


def _plain(flags: int) -> int:
    return flags & ~(_MAKES | WALK) | OURS
