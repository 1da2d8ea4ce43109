"""UDP: each datagram names its receiver in memory, so there are no such sockets, unless the profile leaves them open (P82)."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import contextlib
import socket

import support
from hazards.path_programs.tools import attack, give, notes, python

UDP = """
import socket
def udp(family, kind, protocol=0):
    try: s = socket.socket(family, kind, protocol)
    except OSError as e: return errno.errorcode[e.errno]
    with s:
        return word(-errno_of(s.sendto, b"datagram", ("127.0.0.1" if family == 2 else "::ffff:127.0.0.1", int(sys.argv[1]))))
D = socket.SOCK_DGRAM
for label, how in {"v4": (2, D), "v6": (10, D), "flags": (2, D | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK), "udp": (10, D, 17), "lite": (2, D, 136), "echo": (2, D, 1), "echo6": (10, D, 58)}.items():
    note(label, udp(*how))
note("by hand", word(call("socket", 2 | 1 << 32, D | 1 << 32, 1 << 32)))
note("local", sorted({a[4][0] for a in socket.getaddrinfo("localhost", 80)}))
note("interfaces", [name for _, name in socket.if_nameindex()])
report()
"""


def test_p82_there_is_no_udp(runner: support.Runner) -> None:
    """By each family, flag and protocol; names of files and of interfaces are found without it, as natively."""
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.setblocking(False)
        port = str(stranger.getsockname()[1])
        native = notes(runner.native(python(runner, UDP, port)))
        assert native["v4"] == "ok" and stranger.recv(99) == b"datagram"
        with contextlib.suppress(BlockingIOError):
            while stranger.recv(99):
                pass  # the others
        found, result = attack(runner, UDP, port)
        for same in ("local", "interfaces"):
            assert found.pop(same) == native[same]
        assert set(found.values()) == {"EPROTONOSUPPORT"}, found
        give(runner, runner.base / "p.toml", b'extends = "default"\n[settings]\nudp = "unpoliced"\n')
        found, result = attack(runner, UDP, port, options=("-p", str(runner.base / "p.toml")))
        assert found["v4"] == found["v6"] == "ok" and stranger.recv(99) == b"datagram"
    assert "UDP is neither judged nor recorded" in result.err
