"""A private cache of compiled things (filter, profiles), so that a start need not compile.

An entry is trusted as the installed package is: the directory is the user's own, mode 0700, and the
supervisor's state directory is closed to every worker (hazard P81). What another build made is not read: two of them
may have the same version.
"""

from __future__ import annotations

import os
import stat

from pincer_trace import __version__


def build(*files: str) -> str:
    """What tells apart two builds of these files of the package: a part of the names of entries that they make."""
    found = map(os.stat, files)
    return " ".join([__version__, *(f"{file.st_mtime_ns}:{file.st_size}" for file in found)])


def read(directory: str, name: str) -> bytes | None:
    """The entry, or None when it is absent or anybody but the user could have written it."""
    try:
        held = os.lstat(directory)
        if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.geteuid() or held.st_mode & 0o022:
            return None
        descriptor = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as entry:
        kept = os.fstat(descriptor)
        if not stat.S_ISREG(kept.st_mode) or kept.st_uid != os.geteuid() or kept.st_mode & 0o022:
            return None
        return entry.read()


def write(directory: str, name: str, content: bytes) -> None:
    """Keep `content`, atomically; a directory that cannot be written only costs the next start its time."""
    temporary = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as entry:
            entry.write(content)
        os.rename(temporary, os.path.join(directory, name))
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
