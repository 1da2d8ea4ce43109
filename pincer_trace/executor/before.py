"""What small text files held before they were changed, for whoever watches: kept in memory, only while somebody does.

Read with the ids of the caller through the pin of what is about to be changed, so nobody sees more than the caller
could have read. For the approval channel; nothing is decided by it.
"""

from __future__ import annotations

import os
import stat
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.twin.target import Target

LARGEST = 1 << 15  # bytes of one file
_MOST = 64  # files: at most 2 MiB together
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOATIME  # leaves no trace in its times


class Before:
    """`keep` is for the receiving thread, the rest for any."""

    def __init__(self) -> None:
        self.watched = False
        self._mutex = allocate_lock()  # held for a look into a dict
        self._contents: dict[int, bytes | str] = {}

    def watch(self, watched: bool) -> None:
        """Whether somebody watches now. What was kept goes with the last one."""
        self.watched = watched
        if not watched:
            with self._mutex:
                self._contents.clear()

    def keep(self, sequence: int, target: Target) -> None:
        """The record `sequence` is about to change or to replace `target`, which is there."""
        content = _content(target)
        with self._mutex:
            if not self.watched:
                return
            self._contents[sequence] = content
            if len(self._contents) > _MOST:
                del self._contents[next(iter(self._contents))]

    def content(self, sequence: int) -> bytes | str:
        """The bytes; or in words why they are not known."""
        with self._mutex:
            return self._contents.get(sequence, "it was not kept: nobody watched then, or it was long ago")


def _content(target: Target) -> bytes | str:
    found = target.found
    if found is None or not stat.S_ISREG(found.st_mode):
        return "it was no regular file"
    if found.st_size > LARGEST:
        return f"it was larger than {LARGEST >> 10} KiB"
    try:
        if target.descriptor >= 0:
            descriptor = os.open(b"/proc/self/fd/%d" % target.descriptor, _FLAGS)
        else:
            descriptor = os.open(target.name, _FLAGS | os.O_NOFOLLOW, dir_fd=target.parent)
    except OSError as error:
        return f"it could not be read: {error.strerror}"
    try:
        now = os.fstat(descriptor)
        if not os.path.samestat(now, found):
            return "another file had its name"
        content = os.read(descriptor, LARGEST + 1)
    except OSError as error:
        return f"it could not be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return content if len(content) <= LARGEST else f"it was larger than {LARGEST >> 10} KiB"
