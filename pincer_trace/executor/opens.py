"""open, openat, openat2, creat: pin, judge, open the pin again, and inject the descriptor.

A plain read of a file or directory is the hot path: one walk, one fstat, one table look-up, one re-open, one ADDFD.
Everything that can write, create, lock or block takes the longer ways below it.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import ALONG, CREATE, READ, TRUNCATE, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.executor.context import ANSWERED
from pincer_trace.executor.descriptors import OURS, WALK, covers, give, place
from pincer_trace.executor.hostfiles import RESOLVER
from pincer_trace.executor.outcome import Outcome
from pincer_trace.executor.reopening import Reopening, asked_of_the_kernel
from pincer_trace.gateway.resolve import MARK, is_memory, join, live_name, stat_or_close
from pincer_trace.kernel import libc
from pincer_trace.kernel.libc import how, openat2
from pincer_trace.kernel.notify import Continue
from pincer_trace.profile import VIEW
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement

    Handler = Callable[[int, Task, tuple[int, ...]], object]

_O_PATH = os.O_PATH
_CLOEXEC = os.O_CLOEXEC
_TMPFILE = os.O_TMPFILE
EFFECTFUL = os.O_CREAT | os.O_TRUNC | (_TMPFILE & ~os.O_DIRECTORY) | os.O_WRONLY | os.O_RDWR | _O_PATH
KNOWN = 0o37777703  # VALID_OPEN_FLAGS of the kernel: openat2 refuses others
_MAX_LINKS = 40
PLAIN = (stat.S_IFREG, stat.S_IFDIR)

_HOW_SIZE_FIRST = 24
_RESOLVE_KNOWN = 0x3F

_CONTINUE_PATH = Continue(Continue.FLOOR_HOLDS)  # O_PATH is in a register, and such a descriptor gives no data (P12)


class Opens:
    """The handlers of the open family."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._names = context.resolver.names
        self._reopening = Reopening(context)
        self._pins = {
            extra: how(_O_PATH | _CLOEXEC | extra)
            for extra in (0, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_DIRECTORY | os.O_NOFOLLOW)
        }

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {
            "open": lambda identity, task, a: self._open(identity, task, libc.AT_FDCWD, a[0], a[1], a[2]),
            "creat": lambda identity, task, a: self._open(
                identity, task, libc.AT_FDCWD, a[0], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, a[1]
            ),
            "openat": lambda identity, task, a: self._open(identity, task, a[0], a[1], a[2], a[3]),
            "openat2": self._openat2,
        }

    # -- the calls -------------------------------------------------------------------------------------------

    def _open(self, identity: int, task: Task, dirfd: int, address: int, flags: int, mode: int) -> object:
        flags &= KNOWN  # open and openat ignore what they do not know
        if not flags & EFFECTFUL:
            return self._read(identity, task, dirfd, self._c.tasks.read_path(task, address), flags, 0)
        if flags & _O_PATH:
            return _CONTINUE_PATH
        _check_flags(flags)
        path = self._c.tasks.read_path(task, address)
        return self._effect(identity, task, dirfd, path, flags, mode & 0o7777, 0)

    def _openat2(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        size = a[3]
        if size < _HOW_SIZE_FIRST:
            raise OSError(errno.EINVAL, "size")
        if size > 4096:
            raise OSError(errno.E2BIG, "size")
        structure = self._c.tasks.read_bytes(task, a[2], size)
        if any(structure[_HOW_SIZE_FIRST:]):
            raise OSError(errno.E2BIG, "open_how")
        flags = int.from_bytes(structure[0:8], "little")
        mode = int.from_bytes(structure[8:16], "little")
        resolve = int.from_bytes(structure[16:24], "little")
        creates = bool(flags & os.O_CREAT) or flags & _TMPFILE == _TMPFILE
        _check_flags(flags)
        if flags & ~KNOWN or mode & ~0o7777 or (mode and not creates) or resolve & ~_RESOLVE_KNOWN:
            raise OSError(errno.EINVAL, "open_how")
        if resolve & libc.RESOLVE_BENEATH and resolve & libc.RESOLVE_IN_ROOT:
            raise OSError(errno.EINVAL, "open_how")
        if flags & _O_PATH and flags & ~(_O_PATH | _CLOEXEC | WALK):
            raise OSError(errno.EINVAL, "O_PATH")
        if flags & _O_PATH:
            # The flags are in memory: continued, they could be flipped; and O_PATH cannot be injected (P12). Callers
            # of openat2 know kernels that lack it.
            raise OSError(errno.ENOSYS, "openat2")
        path = self._c.tasks.read_path(task, a[1])
        if not flags & EFFECTFUL:
            return self._read(identity, task, a[0], path, flags, resolve)
        return self._effect(identity, task, a[0], path, flags, mode, resolve)

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self, identity: int, task: Task, dirfd: int, path: bytes, flags: int, resolve: int) -> object:
        c = self._c
        resolver = c.resolver
        try:
            pin, held, found = self._pin(task, dirfd, path, flags & WALK, resolve)
        except FileNotFoundError:
            if path != RESOLVER or flags & WALK:
                raise
            give(c, identity, c.host_files.open_absent(), flags)
            return ANSWERED
        try:
            kind = found.st_mode & 0o170000
            if kind not in PLAIN or resolver.in_procfs(found.st_dev):
                return self._reopening.special(identity, task, pin, found, flags, held)
            entry = c.reads.hot.get((task.executable_id, found.st_dev, found.st_ino, found.st_ctime_ns))
            if entry is None:
                name = resolver.path_of(pin, (task, dirfd, path))
                target = Target(live_name(name, found), descriptor=pin, found=found)
                if covers(held, flags):
                    return self._reopening.held(identity, task, pin, flags, found, target)
                self._reopening.check_holder(task, READ, target, name)
                self._judge_asked(task, READ, target, (task, dirfd, path))
                judgement = c.reads.judge(task, target)
                if judgement.rule is not None and judgement.rule.sink is not None:
                    flags |= _CLOEXEC  # what a sink starts is none
                if judgement.verdict == VIEW and kind == stat.S_IFREG:
                    c.views.open(identity, task, flags, target, judgement)
                    return ANSWERED
                if c.host_files.serves(name):
                    return self._host_file(identity, task, pin, found, flags, target, judgement)
                settle = c.reads.settle_apart if resolver.is_memory(pin) else c.reads.settle
                entry = settle(task, target, found, judgement)
            own = resolver.own(pin)
            try:
                opened = c.domains.perform(
                    lambda: os.open(resolver.number(own), flags & ~os.O_NOFOLLOW | OURS, dir_fd=self._names)
                )
            except BlockingIOError:  # a lease on it (P73)
                c.blocking.open(identity, task, os.dup(own), flags & ~WALK, None)
                return ANSWERED
        finally:
            os.close(pin)
        give(c, identity, opened, flags)
        c.reads.count(entry)
        return ANSWERED

    def _host_file(
        self,
        identity: int,
        task: Task,
        pin: int,
        found: os.stat_result,
        flags: int,
        target: Target,
        judgement: Judgement,
    ) -> object:
        """Read what stands in the place of this file. It is judged each time, and no later read passes it by."""
        c = self._c
        entry = c.reads.settle_apart(task, target, found, judgement)
        c.domains.check_reading(c.resolver.number(pin), self._names)
        ourselves: Callable[[Callable[[], bytes]], bytes] = lambda act: c.identity.as_ourselves(task, act)  # noqa: E731
        opened = c.host_files.open(target.path, self._names, c.resolver.number(pin), ourselves)
        give(c, identity, opened, flags)
        c.reads.count(entry)
        return ANSWERED

    def _judge_asked(self, task: Task, effect: str, target: Target, origin: tuple[Task, int, bytes]) -> None:
        """Where the last step of the walk was a link, what protects the link's name protects the object. Raises Denied.

        A link to a thing of the same name elsewhere is not noticed (docs/threats.md).
        """
        asked = origin[2].rstrip(b"/").rpartition(b"/")[2]
        if asked in (b"", b".", b"..") or target.path.endswith(b"/" + asked):
            return
        parent, name = self._c.resolver.parent(*origin)
        try:
            self._judge_link(task, effect, target, parent, name)
        finally:
            os.close(parent)

    def _judge_link(self, task: Task, effect: str, target: Target, parent: int, name: bytes) -> None:
        """The same for the link `name` in `parent`."""
        c = self._c
        found = os.stat(name.rstrip(b"/"), dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode) and not c.resolver.in_procfs(found.st_dev):
            link = Target(join(c.resolver.path_of(parent), name), parent=parent, name=name.rstrip(b"/"), found=found)
            decision = c.authority.judge_asked(task, effect, link, target)
            if decision is not None and decision.verdict != VIEW:  # which it will be found to be by its own name too
                c.authority.insist(task, effect, target, decision)

    def _pin(self, task: Task, dirfd: int, path: bytes, walk: int, resolve: int) -> tuple[int, int, os.stat_result]:
        """An O_PATH descriptor of the object, with the call's own walk flags, how the caller holds it (`walk`), and its
        fstat.

        Raises OSError, Forbidden.
        """
        if not path:
            raise OSError(errno.ENOENT, path)
        resolver = self._c.resolver
        base, owned = resolver.base(task, dirfd, path, in_root=bool(resolve & libc.RESOLVE_IN_ROOT))
        try:
            if resolve:
                if task.away:
                    pin = resolver.pin_restricted(task, base, path, _O_PATH | _CLOEXEC | walk, resolve)
                    return pin, -1, stat_or_close(pin)
                pin = openat2(base, path, how(_O_PATH | _CLOEXEC | walk, 0, resolve | libc.RESOLVE_NO_MAGICLINKS))
                try:
                    found = os.fstat(pin)
                    if resolver.in_procfs(found.st_dev) and resolver.process_at(resolver.path_of(pin)) == os.getpid():
                        raise OSError(errno.EXDEV, path)  # /proc/self would be ours
                except BaseException:
                    os.close(pin)
                    raise
                pin = resolver.home(task, pin)
                return pin, -1, stat_or_close(pin)
            pin, held, found = resolver.pin_from(task, base, path, self._pins[walk], not walk & os.O_NOFOLLOW)
            if walk & os.O_DIRECTORY and not stat.S_ISDIR(found.st_mode):
                os.close(pin)
                raise OSError(errno.ENOTDIR, path)
            return pin, held, found
        finally:
            if owned:
                os.close(base)

    # -- writing and creating --------------------------------------------------------------------------------

    def _effect(
        self, identity: int, task: Task, dirfd: int, path: bytes, flags: int, mode: int, resolve: int
    ) -> object:
        if flags & _TMPFILE == _TMPFILE:
            return self._nameless_file(identity, task, dirfd, path, flags, mode, resolve)
        if flags & os.O_CREAT:
            return self._open_or_create(identity, task, dirfd, path, flags, mode, resolve)
        pin, held, _ = self._pin(task, dirfd, path, flags & WALK, resolve)
        try:
            return self._write_existing(identity, task, pin, flags, held=held, origin=(task, dirfd, path))
        finally:
            os.close(pin)

    def _write_existing(
        self,
        identity: int,
        task: Task,
        pin: int,
        flags: int,
        parent: int = -1,
        name: bytes = b"",
        held: int = -1,
        origin: tuple[Task, int, bytes] | None = None,
    ) -> object:
        """`pin` is there already: judge it as what it is, and open it again for the access that was asked."""
        c = self._c
        found = os.fstat(pin)
        kind = stat.S_IFMT(found.st_mode)
        if kind != stat.S_IFREG or c.resolver.in_procfs(found.st_dev):
            return self._reopening.special(identity, task, pin, found, flags, held)
        if flags & (os.O_ACCMODE | os.O_TRUNC) == 0:  # O_CREAT alone: the file exists, so it is a read
            target = Target(live_name(c.resolver.path_of(pin), found), descriptor=pin, found=found)
            if origin is not None:
                self._judge_asked(task, READ, target, origin)
            judgement = c.reads.judge(task, target)
            if judgement.rule is not None and judgement.rule.sink is not None:
                flags |= _CLOEXEC
            if judgement.verdict == VIEW:
                c.views.open(identity, task, flags, target, judgement)
                return ANSWERED
            c.reads.count(c.reads.settle(task, target, found, judgement))
            return self._reopening.again(identity, task, pin, flags, None, found)
        raw = c.resolver.path_of(pin, origin)
        if is_memory(raw, found):
            if not covers(held, flags):
                self._reopening.check_holder(task, WRITE, Target(raw, descriptor=pin, found=found), raw)
            return self._reopening.again(identity, task, pin, flags, None, found)
        target = Target(live_name(raw, found), parent=parent, name=name, descriptor=pin, found=found)
        target.marked = raw.endswith(MARK)
        target.needs = asked_of_the_kernel(flags)
        if covers(held, flags):
            return self._reopening.held(identity, task, pin, flags, found, target)
        c.authority.about(WRITE, target, _manner(flags))
        if origin is not None:
            for effect in (WRITE, READ) if flags & os.O_ACCMODE != os.O_WRONLY else (WRITE,):
                self._judge_asked(task, effect, target, origin)
        decision = c.authority.judge(task, WRITE, target)
        judged = [decision]
        if not c.authority.permits(decision):
            if not self._replaces(task, target, flags):
                c.authority.refuse(task, WRITE, target, decision)
            c.staged.open(identity, task, target, flags, 0o600)
            return ANSWERED
        effect = WRITE
        if flags & os.O_TRUNC:
            effect = TRUNCATE
            judged.insert(0, c.authority.demand(task, TRUNCATE, target))
        if c.saves.concerns(task, target):
            c.saves.open(identity, task, target, flags)
            return ANSWERED
        if flags & os.O_ACCMODE != os.O_WRONLY:
            judged.append(c.authority.demand(task, READ, target))
        if c.holders is not None:
            c.holders.writes(task, target, pin)
        sequence = commit(c, task, effect, target, judged, flags=flags)
        if c.before.watched:
            c.before.keep(sequence, target)
        return self._reopening.again(identity, task, pin, flags, sequence, found)

    def _replaces(self, task: Task, target: Target, flags: int) -> bool:
        """Whether it may be written anew, if its content will pass: nothing of the old one is to be kept or seen."""
        if target.found is None or target.found.st_nlink != 1 or target.parent < 0:
            return False
        empties = bool(flags & os.O_TRUNC) and flags & os.O_ACCMODE == os.O_WRONLY
        return empties and self._c.staged.could_pass(task, (WRITE, TRUNCATE), target, flags)

    def _open_or_create(
        self, identity: int, task: Task, dirfd: int, path: bytes, flags: int, mode: int, resolve: int
    ) -> object:
        """O_CREAT: the last component may be absent, a file, or a link to follow (P19)."""
        if resolve:
            return self._create_restricted(identity, task, dirfd, path, flags, mode, resolve)
        c = self._c
        parent, name = c.resolver.parent(task, dirfd, path)
        try:
            if path.endswith(b"/"):
                dots = name.rstrip(b"/") in (b".", b"..")
                raise OSError(errno.EEXIST if dots and flags & os.O_EXCL else errno.EISDIR, path)
            for links in range(_MAX_LINKS):
                if name in (b".", b".."):
                    raise OSError(errno.EEXIST if flags & os.O_EXCL else errno.EISDIR, path)
                try:
                    pin = c.resolver.entry(task, parent, name)
                except FileNotFoundError:
                    answer = self._create(identity, task, parent, name, flags, mode)
                    if answer is not None:
                        return answer
                    continue  # it appeared meanwhile
                try:
                    if flags & os.O_EXCL:
                        raise OSError(errno.EEXIST, path)
                    found = os.fstat(pin)
                    if not stat.S_ISLNK(found.st_mode):
                        if stat.S_ISDIR(found.st_mode):
                            raise OSError(errno.EISDIR, path)
                        origin = (task, dirfd, path) if links else None
                        if c.resolver.crosses(pin, parent):  # what is mounted there lies elsewhere
                            return self._write_existing(identity, task, pin, flags, origin=origin)
                        return self._write_existing(identity, task, pin, flags, parent, name, origin=origin)
                    if flags & os.O_NOFOLLOW:
                        raise OSError(errno.ELOOP, path)
                    if c.resolver.in_procfs(found.st_dev):  # a magic link, such as /proc/self/fd/3
                        there, held = c.resolver.walk(task, c.resolver.own(parent), name, follow=True)
                        try:
                            if stat.S_ISDIR(os.fstat(there).st_mode):
                                raise OSError(errno.EISDIR, path)
                            return self._write_existing(identity, task, there, flags, held=held)
                        finally:
                            os.close(there)
                    text = os.readlink(b"", dir_fd=pin)
                finally:
                    os.close(pin)
                if text.endswith(b"/"):
                    raise OSError(errno.EISDIR, path)
                following, name = self._parent_of_link(task, parent, text)
                os.close(parent)
                parent = following
            raise OSError(errno.ELOOP, path)
        finally:
            os.close(parent)

    def _parent_of_link(self, task: Task, parent: int, text: bytes) -> tuple[int, bytes]:
        """The directory and last component of a link's text, read from `parent`."""
        resolver = self._c.resolver
        cut = text.rfind(b"/") + 1
        above, name = text[:cut], text[cut:]
        if not above:
            return resolver.home(task, os.dup(resolver.own(parent))), name
        return resolver.pin_from(task, resolver.own(parent), above, self._pins[os.O_DIRECTORY], True)[0], name

    def _create_restricted(
        self, identity: int, task: Task, dirfd: int, path: bytes, flags: int, mode: int, resolve: int
    ) -> object:
        """openat2 with RESOLVE_* and O_CREAT: the kernel resolves what exists; a new name in a directory so found.

        A link in the last place is followed by its text, from where it lies and under the same restrictions.
        """
        for _ in range(_MAX_LINKS):
            if not path or path.endswith(b"/"):
                raise OSError(errno.EISDIR if path else errno.ENOENT, path)
            try:
                walk = flags & WALK | (os.O_NOFOLLOW if flags & os.O_EXCL else 0)
                pin, *_ = self._pin(task, dirfd, path, walk, resolve)
            except FileNotFoundError:
                pass
            else:
                try:
                    if flags & os.O_EXCL:
                        raise OSError(errno.EEXIST, path)
                    return self._write_existing(identity, task, pin, flags)
                finally:
                    os.close(pin)
            cut = path.rfind(b"/") + 1
            parent, *_ = self._pin(task, dirfd, path[:cut] or b".", os.O_DIRECTORY, resolve)
            try:
                try:
                    text = os.readlink(path[cut:], dir_fd=parent)
                except FileNotFoundError:
                    answer = self._create(identity, task, parent, path[cut:], flags | os.O_EXCL, mode)
                    if answer is None:
                        raise OSError(errno.EEXIST if flags & os.O_EXCL else errno.EAGAIN, path) from None
                    return answer
            finally:
                os.close(parent)
            if resolve & libc.RESOLVE_NO_SYMLINKS or flags & os.O_NOFOLLOW:
                raise OSError(errno.ELOOP, path)
            path = text if text[:1] == b"/" else path[:cut] + text
        raise OSError(errno.ELOOP, path)

    def _create(self, identity: int, task: Task, parent: int, name: bytes, flags: int, mode: int) -> object | None:
        """Make the absent `name` in `parent`; None when it appeared meanwhile (or a dangling link is there)."""
        c = self._c
        above = os.fstat(parent)
        if above.st_nlink == 0 or c.resolver.in_procfs(above.st_dev):
            raise OSError(errno.ENOENT, name)  # a removed directory holds nothing; procfs makes nothing
        target = Target(join(c.resolver.path_of(parent), name), parent=parent, name=name, above_found=above)
        decision = c.authority.judge(task, CREATE, target)
        if not c.authority.permits(decision):
            if not c.staged.could_pass(task, (CREATE,), target, flags):
                c.authority.refuse(task, CREATE, target, decision)
            c.staged.open(identity, task, target, flags, mode)
            return ANSWERED
        if c.saves.recalls(target) and flags & os.O_ACCMODE == os.O_WRONLY:
            c.saves.create(identity, task, target, flags, mode)
            return ANSWERED
        mask = c.identity.take_mask(c.tasks, task)
        sequence = commit(c, task, CREATE, target, decision, flags=flags, mode=mode, arguments=(mask,))
        wanted = flags | os.O_EXCL | OURS  # O_EXCL follows no link
        own = c.resolver.own(parent)
        try:
            with Outcome(c, sequence) as outcome:
                opened = c.domains.perform(lambda: os.open(name, wanted, mode, dir_fd=own))
                try:
                    if c.holders is not None:
                        c.holders.writes(task, target, opened)
                    outcome.saw(c.provenance.note_descriptor(opened, parent))
                    there = place(c, identity, opened, flags)
                except BaseException:
                    c.provenance.forget(os.fstat(opened))
                    _undo(parent, name, opened)
                    raise
                finally:
                    os.close(opened)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return None
        c.listener.respond(identity, there)
        return ANSWERED

    def _nameless_file(
        self, identity: int, task: Task, dirfd: int, path: bytes, flags: int, mode: int, resolve: int
    ) -> object:
        """O_TMPFILE: judged as a creation in its directory; a name made later is judged at linkat (P19)."""
        c = self._c
        pin, *_ = self._pin(task, dirfd, path, os.O_DIRECTORY, resolve)
        try:
            target = Target(join(c.resolver.path_of(pin), b"#nameless"), parent=pin)
            decision = c.authority.demand(task, CREATE, target)
            mask = c.identity.take_mask(c.tasks, task)
            sequence = commit(c, task, CREATE, target, decision, flags=flags, mode=mode, arguments=(mask,))
            own = c.resolver.own(pin)
            with Outcome(c, sequence):
                opened = c.domains.perform(lambda: os.open(b".", flags & ~os.O_NOFOLLOW | OURS, mode, dir_fd=own))
                try:
                    if c.holders is not None:
                        c.holders.writes(task, target, opened)
                    there = place(c, identity, opened, flags)
                    c.provenance.note_nameless(opened)
                finally:
                    os.close(opened)
        finally:
            os.close(pin)
        c.listener.respond(identity, there)
        return ANSWERED


def _undo(parent: int, name: bytes, opened: int) -> None:
    """Take back a file that was made for a worker which cannot take its descriptor (P13)."""
    try:
        if os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(opened)):
            os.unlink(name, dir_fd=parent)
    except OSError:
        pass


def _manner(flags: int) -> str:
    """What a write comes with."""
    words = [ALONG[TRUNCATE]] if flags & os.O_TRUNC else []
    if flags & os.O_ACCMODE != os.O_WRONLY:
        words.append(ALONG[READ])
    return " and ".join(words)


def _check_flags(flags: int) -> None:
    """Combinations that the kernel refuses before it looks at the path. Raises OSError EINVAL."""
    if flags & _TMPFILE == _TMPFILE:
        wrong = flags & os.O_ACCMODE == os.O_RDONLY or flags & os.O_CREAT
    else:
        wrong = flags & os.O_CREAT and flags & os.O_DIRECTORY  # since Linux 6.4; before, it could half succeed
    if wrong:
        raise OSError(errno.EINVAL, "flags")
