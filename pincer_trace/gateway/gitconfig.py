"""What a file that git will read has in it: read from the pin, with nobody left who could write it.

git writes `config.lock` and renames it onto `config`. A read lease is granted only when no descriptor and no mapping
can still write the file (hazard P85): so what is judged is what is renamed.
"""

from __future__ import annotations

import fcntl
import os
import stat

from pincer_trace.kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MAXIMUM = 1 << 20  # bytes; a larger configuration counts as unknown
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CAP_LEASE = 1 << 28  # <linux/capability.h>


class Witness:
    """What is known of the content that appears at a name. This one knows nothing."""

    __slots__ = ()

    hopeful = False  # whether it stands for the best content there could be: nothing is there yet

    def content(self) -> bytes | None:
        """The new content; None when it cannot be known for certain."""
        return None

    def before(self) -> bytes | None:
        """What it takes the place of: nothing counts as empty. None when that cannot be read."""
        return None

    def changes(self) -> frozenset[str] | None:
        """The keys that differ between the two, read as configuration; None when they cannot be known for certain."""
        before, after = self.before(), self.content()
        if before is None or after is None:
            return None
        from pincer_trace.profile.gitconfig import changed_keys

        return changed_keys(before, after)


class Hope(Witness):
    """Of a file that is about to be written: whether some content could pass at all."""

    __slots__ = ()

    hopeful = True

    def changes(self) -> frozenset[str] | None:
        return frozenset()


class Written(Witness):
    """Of a file that nobody can write any more, before it gets its name."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes | None, after: bytes | None) -> None:
        self._before = before
        self._after = after

    def content(self) -> bytes | None:
        return self._after

    def before(self) -> bytes | None:
        return self._before


class ConfigWitness(Witness):
    """Of a rename. Holds the lease from the first question until `close`, after the rename, which calls `closed`."""

    __slots__ = (
        "_after", "_asked", "_before", "_leased", "closed", "found", "goal", "goal_name", "source", "source_name"
    )  # fmt: skip

    def __init__(self, source: int, source_name: bytes, found: os.stat_result, goal: int, goal_name: bytes) -> None:
        self.source = source
        self.source_name = source_name
        self.found = found
        self.goal = goal
        self.goal_name = goal_name
        self._leased = -1
        self._asked = False
        self.closed: Callable[[], None] | None = None
        self._after: bytes | None = None
        self._before: bytes | None = None

    def content(self) -> bytes | None:
        self._look()
        return self._after

    def before(self) -> bytes | None:
        self._look()
        return self._before

    def _look(self) -> None:
        if self._asked:
            return
        self._asked = True
        try:
            self._leased = os.open(self.source_name, _READ, dir_fd=self.source)
            held = os.fstat(self._leased)
            if (held.st_dev, held.st_ino) == (self.found.st_dev, self.found.st_ino):
                self._after = leased_content(self._leased) if held.st_nlink == 1 else None
            self._before = plain_content(self.goal, self.goal_name)
        except OSError:
            self._after = None

    @property
    def leased(self) -> bool:
        """Whether it keeps writers out now."""
        return self._leased >= 0

    def close(self) -> None:
        """Drop the lease."""
        if self._leased >= 0:
            os.close(self._leased)
            self._leased = -1
        if self.closed is not None:
            self.closed()
            self.closed = None


def written_content(parent: int, name: bytes) -> bytes | None:
    """The content of a small file that has this one name, and that nobody can write; None when it is none such."""
    try:
        descriptor = os.open(name, _READ, dir_fd=parent)
    except OSError:
        return None
    try:
        content = leased_content(descriptor)
        return content if os.fstat(descriptor).st_nlink == 1 else None  # by another one it could be changed later
    except OSError:
        return None
    finally:
        os.close(descriptor)


def plain_content(parent: int, name: bytes) -> bytes | None:
    """The content of a small file, empty when there is none; None when it is no such file. Raises OSError."""
    try:
        descriptor = os.open(name, _READ, dir_fd=parent)
    except FileNotFoundError:
        return b""
    try:
        return _content(descriptor)
    finally:
        os.close(descriptor)


def leased_content(descriptor: int) -> bytes | None:
    """The content of a small file, which the descriptor keeps writers out of by a lease; None when it is none such.

    Raises OSError: EAGAIN when somebody can still write it.
    """
    take_lease(descriptor)
    return _content(descriptor)


def take_lease(descriptor: int) -> None:
    """A read lease, until the descriptor is closed. Raises OSError: EAGAIN when somebody can write the file."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except PermissionError:  # another's file: it takes a capability, which acting as the caller has laid aside
        effective, permitted, inheritable = libc.get_capabilities()
        if not permitted & _CAP_LEASE:
            raise
        libc.set_capabilities(effective | _CAP_LEASE, permitted, inheritable)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        finally:
            libc.set_capabilities(effective, permitted, inheritable)


def _content(descriptor: int) -> bytes | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAXIMUM:
        return None
    data = b""
    while chunk := os.read(descriptor, _MAXIMUM + 1 - len(data)):
        data += chunk
    return data if len(data) <= _MAXIMUM else None
