"""Where things lie that no readlink tells: every procfs of this machine, and directories deeper than a path can say."""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.kernel import procfs


def procfs_places() -> tuple[frozenset[int], list[tuple[bytes, bytes]]]:
    """Of every procfs that is mounted: the device numbers; and (mount point, its name below /proc), the longest first.

    The name is empty where the numbers are those of another PID namespace.
    """
    rows = [row for row in procfs.mounts() if row[3] == b"proc"]
    devices = {os.stat("/proc").st_dev}
    ours = set()
    for device, root, point, _ in rows:
        major, _, minor = device.partition(b":")
        devices.add(os.makedev(int(major), int(minor)))
        if root == b"/" and shows_our_numbers(point):
            ours.add(device)
    points = {point: b"/proc" + root.rstrip(b"/") if device in ours else b"" for device, root, point, _ in rows}
    points.setdefault(b"/proc", b"/proc")
    return frozenset(devices), sorted(points.items(), key=lambda row: len(row[0]), reverse=True)


def shows_our_numbers(point: bytes) -> bool:
    """Whether the procfs at `point` belongs to our PID namespace: in any other, the line of our numbers differs."""
    try:
        with open(point + b"/self/status", "rb") as theirs, open("/proc/self/status", "rb") as ours:
            return [x for x in theirs if x.startswith(b"NSpid:")] == [x for x in ours if x.startswith(b"NSpid:")]
    except OSError:
        return False


def long_path(descriptor: int) -> bytes:
    """The path of a directory entry deeper than the kernel's text can say: climb by `..` and look the names up."""
    found = os.fstat(descriptor)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENAMETOOLONG, "path")
    parts: list[bytes] = []
    here = os.open(".", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=descriptor)
    try:
        while True:
            above = os.open("..", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=here)
            child, parent = os.fstat(here), os.fstat(above)
            if (child.st_dev, child.st_ino) == (parent.st_dev, parent.st_ino):
                os.close(above)
                break
            try:
                parts.append(_name_in(above, child))
            except BaseException:
                os.close(above)
                raise
            os.close(here)
            here = above
            try:
                prefix = os.readlink(b"/proc/self/fd/%d" % here)
            except OSError:
                continue
            return b"/".join([prefix.rstrip(b"/"), *reversed(parts)])
        return b"/" + b"/".join(reversed(parts))
    finally:
        os.close(here)


def _name_in(directory: int, child: os.stat_result) -> bytes:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.inode() == child.st_ino or entry.is_dir(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                if (found.st_dev, found.st_ino) == (child.st_dev, child.st_ino):
                    return os.fsencode(entry.name)
    raise OSError(errno.ENAMETOOLONG, "path")
