"""Whether the kernel by itself refuses the caller what a rule refuses: such a denial took nothing away from anybody.

Asked of the pinned objects, on the thread that has the caller's ids, after the decision: it decides nothing.
"""

from __future__ import annotations

import errno
import os

from pincer_trace.effects import CREATE, MKDIR, MKNOD, RMDIR, SYMLINK, UNLINK
from pincer_trace.kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.twin.target import Target

# Nothing but their own calls demands these, and for all of them the kernel wants to write and search the directory.
_ENTRIES = frozenset({CREATE, MKDIR, MKNOD, RMDIR, SYMLINK, UNLINK})
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)


def refuses(effect: str, target: Target) -> bool:
    """Whether that is certain; where it is not, False."""
    if target.needs:
        pin, wanted = target.descriptor, target.needs
    elif effect in _ENTRIES and target.parent >= 0:
        pin, wanted = target.parent, os.W_OK | os.X_OK
    else:
        return False
    try:
        libc.call("faccessat2", pin, b"", wanted, libc.AT_EACCESS | libc.AT_EMPTY_PATH)
    except OSError as error:
        return error.errno in _REFUSALS
    return False
