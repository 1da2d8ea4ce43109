"""Names that the floor refuses to the worker itself: unix sockets bound to a path, TCP ports, POSIX message queues. And
abstract names, so that they are known.

A bind needs the caller's exact bytes, directory and umask, all of which are process-wide: one helper thread has a file
system context of its own for it (hazards P77, P99). What is bound then reads back as the worker wrote it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from _queue import SimpleQueue  # `queue` is this and a millisecond of imports

from pincer_trace.effects import BIND, CREATE, UNLINK, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.executor.context import ANSWERED
from pincer_trace.executor.descriptors import give
from pincer_trace.executor.identity import Identity
from pincer_trace.executor.outcome import Outcome
from pincer_trace.gateway import hosts, peers
from pincer_trace.gateway.resolve import join
from pincer_trace.kernel import inet, libc, table
from pincer_trace.kernel.notify import Continue
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.domains import Domain
    from pincer_trace.executor.identity import Credentials
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task

    Act = Callable[[Identity], int]

_CLONE_FS = 0x200
_FAMILY = 2  # bytes of an address that is a family alone: the kernel chooses an abstract name. unix(7)
_FLOOR_HOLDS = Continue(Continue.FLOOR_HOLDS)
_PIN_DIRECTORY = libc.how(os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
_QUEUES = b"/dev/mqueue/"


class OwnPlace:
    """A thread with a working directory, umask and ids of its own, for calls that take none of them as an argument."""

    def __init__(self, domain: Domain | None = None) -> None:
        self._domain = domain
        self._work: SimpleQueue[tuple[Act, SimpleQueue[int | BaseException]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="own-place", daemon=True)
        self._thread.start()  # at once: a later start could fail, when the process limit is reached

    def run(self, act: Act) -> int:
        """The errno (0: done) of `act`, run there with that thread's identity. Waits for it: bind does not block."""
        answer: SimpleQueue[int | BaseException] = SimpleQueue()
        self._work.put((act, answer))
        error = answer.get()
        if isinstance(error, BaseException):
            raise error
        return error

    def _serve(self) -> None:
        identity = None
        while (work := self._work.get()) is not None:
            act, answer = work
            try:
                if identity is None:
                    libc.call("unshare", _CLONE_FS)
                    if self._domain is not None:
                        self._domain.restrict()
                    fresh = Identity()
                    fresh.limit()
                    identity = fresh
                error = act(identity)
            except OSError as failure:
                answer.put(failure.errno or errno.EACCES)
            except BaseException as failure:  # noqa: BLE001 - the receiving thread waits for an answer, and records it (P96)
                answer.put(failure)
            else:
                answer.put(error)

    def close(self) -> None:
        """End the thread."""
        self._work.put(None)
        self._thread.join()


class Sockets:
    """The handlers of bind and the message queues."""

    def __init__(self, context: Context, place: OwnPlace) -> None:
        self._c = context
        self._place = place

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {"bind": self._bind, "mq_open": self._mq_open, "mq_unlink": self._mq_unlink}

    def _bind(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        c = self._c
        own = c.tasks.descriptor(task, a[0] & 0xFFFFFFFF)
        try:
            what = peers.Socket(own)
            if what.family not in (table.AF_UNIX, table.AF_INET, table.AF_INET6):
                if c.resolver.mounts is not None:  # under files there is no floor that would hold
                    return self._bind_netlink(task, own, a)
                return _FLOOR_HOLDS  # netlink, whose number is the caller's; a path or a port put there later fails
            size = a[2] & 0xFFFFFFFF
            if size > peers.MOST:
                raise OSError(errno.EINVAL, "address")
            address = c.tasks.read_bytes(task, a[1], size) if size else b""
            if what.family == table.AF_UNIX:
                path = peers.unix_path(address)
                if path:
                    return self._bind_path(task, own, what, address, path)
                if peers.abstract_name(address) or len(address) == _FAMILY:
                    return self._bind_abstract(own, what, address)
            if what.kind == peers.DATAGRAM and c.datagrams(task).concerns(own, what):
                c.datagrams(task).bind(identity, task, a[0] & 0xFFFFFFFF, own, address)
                return 0
            if hosts.is_ours(inet.unmapped(peers.inet_host(address) or bytes(4))):
                raise OSError(errno.EADDRNOTAVAIL, "address")  # it stands for a name
            bind = lambda: libc.call("bind", own, address, len(address))  # noqa: E731 - a port, or what is no address
            c.domains.perform(bind)  # with the kernel's errno
            if what.family != table.AF_UNIX:
                c.provenance.note_port(what.inode)
            return 0
        finally:
            os.close(own)

    def _bind_netlink(self, task: Task, own: int, a: tuple[int, ...]) -> int:
        size = a[2] & 0xFFFFFFFF
        if size > peers.MOST:
            raise OSError(errno.EINVAL, "address")
        address = self._c.tasks.read_bytes(task, a[1], size) if size else b""
        return libc.call("bind", own, address, len(address))

    def _bind_path(self, task: Task, own: int, what: peers.Socket, address: bytes, path: bytes) -> int:
        c = self._c
        parent, name = c.resolver.parent(task, libc.AT_FDCWD, path)
        try:
            try:
                os.stat(name.rstrip(b"/"), dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                pass
            else:
                raise OSError(errno.EADDRINUSE, path)
            if not os.fstat(parent).st_nlink:
                raise OSError(errno.ENOENT, path)
            target = Target(join(c.resolver.path_of(parent), name), parent=parent, name=name.rstrip(b"/"))
            directory = c.tasks.directory(task)
            there = c.resolver.own(parent)
            if task.away or there != parent:  # from here the worker's own words would lead to another place
                address = table.AF_UNIX.to_bytes(2, "little") + b"/proc/self/fd/%d/%s\0" % (there, name)
            elif not self._is_verbatim(directory, path, parent):
                c.authority.forbid(
                    task, BIND, target, "a socket is not bound by way of /proc: the name means another there"
                )
            decision = c.authority.demand(task, BIND, target)
            mask = c.tasks.mask(task)
            wanted = c.identity.credentials(task)
            arguments = (address, mask, what.inode)
            with Outcome(c, commit(c, task, BIND, target, decision, arguments=arguments)):
                error = self._bind_as(lambda there: _bind_there(there, own, address, directory, mask, wanted))
                if not error:
                    error = self._confirm(parent, name)
                if error:
                    raise OSError(error, path)
                c.provenance.note_socket(parent, name)
            return 0
        finally:
            os.close(parent)

    def _bind_as(self, act: Act) -> int:
        """In our place for it, or in one that is in the caller's own domain."""
        domain = self._c.domains.current
        if domain is None:
            return self._place.run(act)
        place = OwnPlace(domain)
        try:
            return place.run(act)
        finally:
            place.close()

    def _bind_abstract(self, own: int, what: peers.Socket, address: bytes) -> int:
        """A name that is in no directory, perhaps one that the kernel chooses: whose it is decides who may connect."""
        libc.call("bind", own, address, len(address))
        name = peers.abstract_name(address) or what.name()
        if name:
            self._c.provenance.note_abstract(peers.abstract_peer(name), what.inode)
        return 0

    def _is_verbatim(self, directory: int, path: bytes, parent: int) -> bool:
        """Whether the kernel's own walk of these bytes, made by us, ends in the directory that was judged (P77).

        It is made once more by bind itself; in between, nobody of the tree can change a name, since we are here.
        """
        above = path[: path.rstrip(b"/").rfind(b"/") + 1] or b"."
        try:
            walked = libc.openat2(libc.AT_FDCWD if above[:1] == b"/" else directory, above, _PIN_DIRECTORY)
        except OSError:
            return False
        try:
            return os.path.samestat(os.fstat(walked), os.fstat(parent))
        finally:
            os.close(walked)

    def _confirm(self, parent: int, name: bytes) -> int:
        """A socket must have appeared in the directory that was judged."""
        try:
            found = os.stat(name.rstrip(b"/"), dir_fd=parent, follow_symlinks=False)
        except OSError:
            return errno.EACCES
        return 0 if stat.S_ISSOCK(found.st_mode) else errno.EACCES

    def _mq_open(self, identity: int, task: Task, a: tuple[int, ...]) -> object:
        """Queues are looked at by opening them, which takes no message; receiving takes one away, so it is a change."""
        c = self._c
        name = self._queue_name(task, a[0])
        flags = (a[1] & 0xFFFFFFFF) | os.O_CLOEXEC
        attributes = c.tasks.read_bytes(task, a[3], 64) if flags & os.O_CREAT and a[3] else None
        try:
            existing = flags & ~(os.O_CREAT | os.O_EXCL)
            opened = c.domains.perform(lambda: libc.call("mq_open", name, existing, 0, None))
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            opened = self._make_queue(task, name, flags, a[2] & 0o7777, attributes)
        else:
            try:
                if flags & os.O_CREAT and flags & os.O_EXCL:
                    raise OSError(errno.EEXIST, name)
                target = Target(_QUEUES + name, descriptor=opened, found=os.fstat(opened), named=True)
                decision = c.authority.demand(task, WRITE, target)
                c.authority.done(commit(c, task, WRITE, target, decision, flags=flags))
            except BaseException:
                os.close(opened)
                raise
        give(c, identity, opened, flags | os.O_NONBLOCK)  # its status flags are as asked already
        return ANSWERED

    def _make_queue(self, task: Task, name: bytes, flags: int, mode: int, attributes: bytes | None) -> int:
        c = self._c
        target = Target(_QUEUES + name)
        decision = c.authority.demand(task, CREATE, target)
        arguments = (c.identity.take_mask(c.tasks, task), attributes or b"")
        sequence = commit(c, task, CREATE, target, decision, flags=flags, mode=mode, arguments=arguments)
        with Outcome(c, sequence):
            opened = c.domains.perform(lambda: libc.call("mq_open", name, flags | os.O_EXCL, mode, attributes))
            c.provenance.note_object(opened)
        return opened

    def _mq_unlink(self, _identity: int, task: Task, a: tuple[int, ...]) -> int:
        c = self._c
        name = self._queue_name(task, a[0])
        opened = _any_way(name)
        try:
            found = os.fstat(opened) if opened >= 0 else None
            target = Target(_QUEUES + name, descriptor=opened, found=found, named=True)
            decision = c.authority.demand(task, UNLINK, target)
            sequence = commit(c, task, UNLINK, target, decision)
            with Outcome(c, sequence):
                c.domains.perform(lambda: libc.call("mq_unlink", name))
                if found is not None:
                    c.provenance.forget(found)
            return 0
        finally:
            if opened >= 0:
                os.close(opened)

    def _queue_name(self, task: Task, address: int) -> bytes:
        """The kernel's form has no leading slash; libc strips it. mq_overview(7)"""
        name = self._c.tasks.read_path(task, address)
        if not name:
            raise OSError(errno.ENOENT, "queue")
        if b"/" in name:
            raise OSError(errno.EACCES, "queue")
        return name


def _any_way(name: bytes) -> int:
    """A descriptor of a queue, by whichever access its mode gives us; -1 for none. Raises OSError ENOENT."""
    for access in (os.O_RDONLY, os.O_WRONLY):
        try:
            return libc.call("mq_open", name, access | os.O_CLOEXEC, 0, None)
        except PermissionError:
            continue
    return -1


def _bind_there(
    identity: Identity, own: int, address: bytes, directory: int, mask: int, wanted: Credentials | None
) -> int:
    identity.assume(wanted)
    os.fchdir(directory)
    os.umask(mask)
    libc.call("bind", own, address, len(address))
    return 0
