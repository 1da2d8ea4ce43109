"""What a rename would change in a git configuration: read from the pinned source, with nobody left who could write it.

git writes `config.lock` and renames it onto `config`. A read lease is granted only when no descriptor and no mapping
can still write the file (hazard P85): so what is judged is what is renamed.
"""

from __future__ import annotations

import fcntl
import os
import stat

_MAXIMUM = 1 << 20  # bytes; a larger configuration counts as unknown
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class ConfigWitness:
    """Holds the lease from the first question until `close`, after the rename."""

    __slots__ = ("_answer", "_asked", "_found", "_goal", "_goal_name", "_leased", "_source", "_source_name")

    def __init__(self, source: int, source_name: bytes, found: os.stat_result, goal: int, goal_name: bytes) -> None:
        self._source = source
        self._source_name = source_name
        self._found = found
        self._goal = goal
        self._goal_name = goal_name
        self._leased = -1
        self._asked = False
        self._answer: frozenset[str] | None = None

    def changes(self) -> frozenset[str] | None:
        """The changed keys; None when they cannot be known for certain."""
        if not self._asked:
            self._asked = True
            try:
                self._answer = self._compare()
            except OSError:
                self._answer = None
        return self._answer

    def _compare(self) -> frozenset[str] | None:
        from pincer_trace.profile.gitconfig import changed_keys

        self._leased = os.open(self._source_name, _READ, dir_fd=self._source)
        held = os.fstat(self._leased)
        if (held.st_dev, held.st_ino) != (self._found.st_dev, self._found.st_ino):
            return None
        if held.st_nlink != 1:
            return None  # by its other name it could be changed after the rename
        fcntl.fcntl(self._leased, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # EAGAIN: somebody can still write it
        after = _content(self._leased)
        before: bytes | None = b""
        try:
            old = os.open(self._goal_name, _READ, dir_fd=self._goal)
        except FileNotFoundError:
            pass
        else:
            try:
                before = _content(old)
            finally:
                os.close(old)
        return changed_keys(before, after) if before is not None and after is not None else None

    def close(self) -> None:
        """Drop the lease."""
        if self._leased >= 0:
            os.close(self._leased)
            self._leased = -1


def _content(descriptor: int) -> bytes | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAXIMUM:
        return None
    data = b""
    while chunk := os.read(descriptor, _MAXIMUM + 1 - len(data)):
        data += chunk
    return data if len(data) <= _MAXIMUM else None
