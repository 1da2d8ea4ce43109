"""What one effect is about: the name by which it is judged, and the pins behind that name."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.provenance import Ancestry, Within

NOWHERE = (0, 0)


class Target:
    """One object of a call.

    `descriptor`, or `name` in the pinned directory `parent`, is the object; `found` its lstat, None when it is absent.
    `moved` is the object (parent, name) where another one than `name` will lie there after a rename; one that `arrives`
    gets this name only now. Inside a directory that moves, `parent` is where it lies now, by the path `lies`, and
    `above` knows the directories over it, here or there; where it `replaces` one of the user's, that it was made in
    this session lifts no protection. `needs` is the access to the object itself that the kernel asks for too, where
    that is certain. An object that is `named` was reached by the only name that it can have. `manner` says in a few
    words with which values it is done, where a yes to one is none to another. A name that is `marked` may be one that
    the kernel says was removed. `listeners` are the inodes of the sockets that listen there, of a TCP port.
    """

    __slots__ = (
        "_place", "above", "arrives", "descriptor", "found", "lies", "listeners", "manner", "marked", "moved",
        "name", "named", "needs", "parent", "path", "replaces",
    )  # fmt: skip

    def __init__(
        self,
        path: bytes,
        *,
        parent: int = -1,
        name: bytes = b"",
        descriptor: int = -1,
        found: os.stat_result | None = None,
        above: Ancestry | Within | None = None,
        arrives: bool = False,
        replaces: bool = False,
        needs: int = 0,
        named: bool = False,
        lies: bytes = b"",
        manner: str = "",
        marked: bool = True,
        above_found: os.stat_result | None = None,
    ) -> None:
        self.path = path
        self.needs = needs
        self.named = named
        self.parent = parent
        self.name = name
        self.descriptor = descriptor
        self.found = found
        self.moved: tuple[int, bytes] | None = None
        self.above = above
        self.arrives = arrives
        self.replaces = replaces
        self.lies = lies
        self.manner = manner
        self.marked = marked
        self.listeners: tuple[int, ...] = ()  # looked for where rules ask whose server it is
        self._place = (above_found.st_dev, above_found.st_ino) if above_found is not None else None

    def comes_from(self, parent: int, name: bytes) -> None:
        """It is `name` in `parent` that will lie here, and gets this name only then."""
        self.moved = (parent, name)
        self.arrives = True

    def place(self) -> tuple[int, int]:
        """(device, inode) of the pinned directory, which cannot change while it is pinned; NOWHERE without one."""
        if self._place is None:
            if self.parent < 0:
                return NOWHERE
            above = os.fstat(self.parent)
            self._place = (above.st_dev, above.st_ino)
        return self._place
