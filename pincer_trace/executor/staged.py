"""Files that are judged by their content once it is written, and that have no name until then.

What git reads from a folder (`gateway.repositories`) cannot be judged when it is opened: it is empty then. The worker
writes a file without a name instead. When nobody can write that any more, which a read lease proves (hazard P85), it is
judged, and a copy of it gets the name, or nothing does. A copy, since descriptors of the first one can be opened again,
and the kernel does not tell by which name. Until then the name is absent, or holds what it held.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from pincer_trace.effects import CREATE, TRUNCATE, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.executor.descriptors import OURS, WALK, give, place
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway.gitconfig import Hope, Written, leased_content, plain_content, take_lease
from pincer_trace.gateway.resolve import join, look
from pincer_trace.gateway.tasks import Task
from pincer_trace.kernel import libc
from pincer_trace.ledger import LedgerFull
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.identity import Credentials

_PENDING = 64  # files at a time
_PAUSE = 20  # milliseconds between two looks at most, while no call comes
_PATIENCE = 1.0  # seconds at the end: the last process may still be closing its files
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR)  # open(2), O_TMPFILE
_MAKES = os.O_CREAT | os.O_EXCL | os.O_TRUNC


class _File:
    """One of them: read by `descriptor`, to be `name` in the pinned `parent`, in the place of `replaced`."""

    __slots__ = ("caller", "credentials", "descriptor", "name", "parent", "replaced", "where")

    def __init__(
        self,
        caller: Task,
        credentials: Credentials | None,
        descriptor: int,
        parent: int,
        name: bytes,
        replaced: os.stat_result | None,
    ) -> None:
        self.caller = caller
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
        self.pending: list[_File] = []
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
        effect = CREATE if target.found is None else TRUNCATE
        shared = self._of(parent, name)
        if shared is not None:
            if flags & os.O_EXCL:
                raise OSError(errno.EEXIST, name)
            opened = os.open(c.resolver.number(shared.descriptor), _plain(flags), dir_fd=c.resolver.names)
            give(c, identity, opened, flags)
            return
        if len(self.pending) >= _PENDING:
            c.authority.forbid(task, effect, target, "too many files wait for being judged by their content")
        mask = c.identity.take_mask(c.tasks, task)
        opened = _nameless(parent, _plain(flags), mode)
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
                _take_over(opened, target.found)
            c.provenance.note_nameless(opened)
            reader = os.open(c.resolver.number(opened), os.O_RDONLY | OURS, dir_fd=c.resolver.names)
            above = os.dup(parent)
            caller = Task(task.tid, -1, task.executable, task.executable_id, 0.0, subject=task.subject)
            file = _File(caller, c.identity.credentials(task), reader, above, name, target.found)
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

    def _of(self, parent: int, name: bytes) -> _File | None:
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
                self._judge(file)
            except (Denied, LedgerFull):
                pass  # dropped, with the record that there is room for: its writer has gone on, nobody can be told
            except Exception as failure:  # noqa: BLE001 - the file is dropped, with a record
                self._c.authority.note_failure("staged", failure, file.caller.tid)
            finally:
                file.close()

    def _judge(self, file: _File) -> None:
        c = self._c
        attributes = _Attributes(file.descriptor)  # before the look at its content, which may change a time
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
        # Nobody waits for an answer: an error is told by the outcome alone.
        with contextlib.suppress(OSError), Outcome(c, sequence) as outcome:
            self._name(file, content, attributes, replaces=replaces)
            outcome.saw(c.provenance.note(parent, name))

    def _name(self, file: _File, content: bytes, attributes: _Attributes, *, replaces: bool) -> None:
        """Raises OSError: EEXIST when another file has taken the name meanwhile."""
        names = self._c.resolver.names
        self._count += 1
        between = b".pincer-trace-%d-%d" % (os.getpid(), self._count)
        made = _nameless(file.parent, os.O_WRONLY | OURS, 0o600)
        named = made < 0
        if named:
            made = os.open(between, os.O_CREAT | os.O_EXCL | os.O_WRONLY | OURS, 0o600, dir_fd=file.parent)
        try:
            written = 0
            while written < len(content):
                written += os.write(made, content[written:])
            attributes.give(made)
            number = self._c.resolver.number(made)
            if not named:
                goal = between if replaces else file.name
                libc.linkat(names, number, file.parent, goal, libc.AT_SYMLINK_FOLLOW)
                named = replaces
            elif not replaces:
                libc.linkat(file.parent, between, file.parent, file.name, 0)
            if replaces:
                os.rename(between, file.name, src_dir_fd=file.parent, dst_dir_fd=file.parent)
                named = False
        finally:
            os.close(made)
            if named:
                os.unlink(between, dir_fd=file.parent)


def _nameless(parent: int, flags: int, mode: int) -> int:
    """A new file in this directory; -1 where the file system has none without a name. Raises OSError."""
    try:
        return os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=parent)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return -1


def _plain(flags: int) -> int:
    return flags & ~(_MAKES | WALK) | OURS


def _take_over(opened: int, replaced: os.stat_result) -> None:
    """Mode and owner of the file whose place it takes, as far as its writer may set them."""
    _own(opened, replaced)
    os.fchmod(opened, stat.S_IMODE(replaced.st_mode))


def _own(opened: int, like: os.stat_result) -> None:
    found = os.fstat(opened)
    if (found.st_uid, found.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(opened, like.st_uid, like.st_gid)
        except PermissionError:
            pass  # as for any program that writes a file anew


class _Attributes:
    """Owner, mode, times, ACL and the user's attributes, as the worker has set them. Raises OSError."""

    __slots__ = ("_found", "_named", "mode")

    def __init__(self, source: int) -> None:
        self._found = os.fstat(source)
        self.mode = stat.S_IMODE(self._found.st_mode)
        self._named: list[tuple[str, bytes]] = []
        with _without_attributes():
            for name in os.listxattr(source):
                if name.startswith(("user.", "system.posix_acl")):
                    self._named.append((name, os.getxattr(source, name)))

    def data(self) -> list[bytes]:
        """As a request has them, beside the mode."""
        found = self._found
        owner, times = (found.st_uid, found.st_gid), (found.st_atime_ns, found.st_mtime_ns)
        named = [part for name, value in self._named for part in (os.fsencode(name), value)]
        return [b"%d %d" % owner, b"%d %d" % times, *named]

    def give(self, copy: int) -> None:
        """Set them on another file. Raises OSError."""
        found = self._found
        _own(copy, found)
        with _without_attributes():
            for name, value in self._named:
                os.setxattr(copy, name, value)
        os.fchmod(copy, self.mode)
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


@contextlib.contextmanager
def _without_attributes() -> Iterator[None]:
    """A file system may have none."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODATA):
            raise
