"""The floor: a Landlock domain in which the worker can do no write-class act by itself. landlock(7)

Rights are only handled, never granted: the worker's domain has no rule at all, so nothing needs opening and nothing can
go stale. File rights, TCP and scopes are in one ruleset (hazard P59): connect and bind are both performed on behalf
(P78). Reading and execution are not handled here: the reads are judged at the open (P88).
"""

from __future__ import annotations

import ctypes

from pincer_trace.kernel.libc import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXECUTE, WRITE_FILE, REMOVE_DIR, REMOVE_FILE = 1 << 0, 1 << 1, 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE = 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14
_WRITE_CLASS_1 = (
    WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_CHAR
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_BLOCK
    | MAKE_SYM
)
IOCTL_DEV = 1 << 15
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
_RULE_NET_PORT = 2
LAYERS = 16  # of one domain
RESTRICT_LOG_FLAGS = 7  # what is logged; of landlock_restrict_self(2)
RESTRICT_FLAGS = RESTRICT_LOG_FLAGS | 8  # and all threads of the process


class Floor:
    """What this kernel's Landlock can hold: `abi` (0: none), `handled_fs`, `handled_net`, `scoped`, and what is
    `missing`.
    """

    __slots__ = ("abi", "handled_fs", "handled_net", "missing", "scoped")

    def __init__(self, abi: int) -> None:
        self.abi = abi
        self.handled_fs = _WRITE_CLASS_1 | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
        self.handled_net = BIND_TCP | CONNECT_TCP if abi >= 4 else 0
        self.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if abi >= 6 else 0
        self.missing = []
        if abi < 1:
            self.handled_fs = 0
            self.missing.append("landlock (no kernel floor under file effects)")
        elif abi < 3:
            self.missing.append("landlock-truncate (needs Linux 6.2)")
        if abi < 4:
            self.missing.append("landlock-net (no kernel floor under TCP connections; needs Linux 6.7)")
        if abi < 6:
            self.missing.append("landlock-scope (signals and abstract sockets reach other processes; needs Linux 6.12)")

    @classmethod
    def probe(cls) -> Floor:
        """The floor of the running kernel."""
        try:
            return cls(call("landlock_create_ruleset", 0, 0, 1))  # LANDLOCK_CREATE_RULESET_VERSION
        except OSError:
            return cls(0)

    def without_files(self) -> Floor:
        """The same of TCP and scopes alone: a domain with any file right lets nobody mount (P25)."""
        other = Floor(self.abi)
        other.handled_fs = 0
        return other

    def restrict(self) -> None:
        """Put the calling thread and its future children in the domain. Needs no_new_privs. Raises OSError."""
        self._restrict(self.handled_fs, self.handled_net)

    def restrict_to_reading(self, ports: Sequence[int] = ()) -> None:
        """The same, and without execution and ioctls of devices; TCP only to these ports. Raises OSError."""
        if self.handled_fs:
            self._restrict(self.handled_fs | EXECUTE | (IOCTL_DEV if self.abi >= 5 else 0), self.handled_net, ports)

    def _restrict(self, handled_fs: int, handled_net: int, ports: Sequence[int] = ()) -> None:
        if not (handled_fs or handled_net or self.scoped):
            return
        import os

        attribute = (ctypes.c_uint64 * 3)(handled_fs, handled_net, self.scoped)
        size = 24 if self.abi >= 6 else 16 if self.abi >= 4 else 8
        ruleset = call("landlock_create_ruleset", ctypes.byref(attribute), size, 0)
        try:
            for port in ports if handled_net else ():
                rule = (ctypes.c_uint64 * 2)(CONNECT_TCP, port)  # struct landlock_net_port_attr
                call("landlock_add_rule", ruleset, _RULE_NET_PORT, ctypes.byref(rule), 0)
            call("landlock_restrict_self", ruleset, 0)
        finally:
            os.close(ruleset)


def restrict_thread(ruleset: int, flags: int) -> None:
    """Restrict the calling thread, and no other one. Raises OSError."""
    call("landlock_restrict_self", ruleset, flags & RESTRICT_LOG_FLAGS)
