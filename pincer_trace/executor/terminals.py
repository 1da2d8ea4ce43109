"""The pseudo-terminals that the tree made: these it may open by name; all others belong to other sessions.

A number comes round again as soon as a terminal is closed, so each is known by a pin of its inode, which devpts unlinks
when the master goes.
"""

from __future__ import annotations

import fcntl
import os

_TIOCGPTN = 0x80045430  # ioctl_tty(2)


class Terminals:
    """Belongs to the receiving thread."""

    def __init__(self) -> None:
        self._pins: dict[tuple[int, int], int] = {}

    def note(self, master: int) -> None:
        """The tree has just opened this master."""
        number = int.from_bytes(fcntl.ioctl(master, _TIOCGPTN, bytes(4)), "little")
        try:
            pin = os.open(b"/dev/pts/%d" % number, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return  # of another devpts instance: not ours to vouch for
        found = os.fstat(pin)
        self._forget_closed()
        old = self._pins.pop((found.st_dev, found.st_ino), -1)
        if old >= 0:
            os.close(old)
        self._pins[found.st_dev, found.st_ino] = pin

    def made(self, descriptor: int) -> bool:
        """Whether the tree made the terminal that is pinned here, and still holds its master."""
        found = os.fstat(descriptor)
        pin = self._pins.get((found.st_dev, found.st_ino), -1)
        if pin < 0:
            return False
        if os.fstat(pin).st_nlink:
            return True
        os.close(self._pins.pop((found.st_dev, found.st_ino)))
        return False

    def _forget_closed(self) -> None:
        for key in [key for key, pin in self._pins.items() if not os.fstat(pin).st_nlink]:
            os.close(self._pins.pop(key))
