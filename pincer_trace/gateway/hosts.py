"""Names of hosts, and the addresses of this session that stand for them (P83).

The worker's resolver is told such an address for every name, and nobody else is asked. To connect there means the name:
that is judged, and looked up only then. The addresses are of networks that no host has: 127.224.0.0/12, of this machine
and without a use; and for IPv6 one of those that everybody may choose for himself (RFC 4193).
"""

from __future__ import annotations

from _thread import allocate_lock

from pincer_trace.kernel.bare import socket

LIMIT = 65_536  # names of one session; then the resolver says that it failed
STUB_PORT = 53
_V4 = int.from_bytes(socket.inet_aton("127.224.0.0"), "big")
_V4_BITS = 20  # behind the prefix
_V6 = socket.inet_pton(socket.AF_INET6, "fd70:696e:6365:7200::")[:12]  # "pincer", as near as the letters come
_STUB, _FIRST = 1, 16  # what the last bits count from
_LOCAL: dict[int, bytes] = {socket.AF_INET: b"\x7f\0\0\1", socket.AF_INET6: bytes(15) + b"\1"}


class Hosts:
    """Which name each address of the session stands for. For any thread: what was given out once stays."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._mutex = allocate_lock()  # held while a number is given out
        self._numbers: dict[bytes, int] = {}
        self._names: list[bytes] = []

    def address(self, name: bytes, family: int) -> bytes:
        """The address that stands for a name in its one spelling; b"" when there is none left."""
        if name == b"localhost" or name.endswith(b".localhost"):
            return _LOCAL[family]
        with self._mutex:
            number = self._numbers.get(name)
            if number is None:
                if len(self._names) >= self._limit:
                    return b""
                number = len(self._names) + _FIRST
                self._names.append(name)
                self._numbers[name] = number
        return _address(number, family)

    def name(self, address: bytes) -> bytes:
        """The name that an address (4 or 16 bytes) stands for; b"" for none."""
        at = _number(address) - _FIRST
        return self._names[at] if 0 <= at < len(self._names) else b""


def is_ours(address: bytes) -> bool:
    """Whether that address (4 or 16 bytes) is of the networks that stand for names: no host of any network has it."""
    return _number(address) >= 0


def is_stub(address: bytes, port: int) -> bool:
    """Whether the resolver of the session is meant."""
    return port == STUB_PORT and _number(address) == _STUB


def stub_address() -> bytes:
    """Where the worker's libraries find the resolver."""
    return _address(_STUB, socket.AF_INET)


def _address(number: int, family: int) -> bytes:
    if family == socket.AF_INET:
        return (_V4 | number).to_bytes(4, "big")
    return _V6 + number.to_bytes(4, "big")


def _number(address: bytes) -> int:
    """What the bits behind the prefix count; -1 for an address of another network."""
    if len(address) == 4:
        value = int.from_bytes(address, "big")
        return value & (1 << _V4_BITS) - 1 if value >> _V4_BITS == _V4 >> _V4_BITS else -1
    return int.from_bytes(address[12:], "big") if address[:12] == _V6 else -1
