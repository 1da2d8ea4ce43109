"""UDP: each datagram names its receiver in memory, so none is sent, unless the profile leaves it open (P82)."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import contextlib
import socket

import pytest
import support
from hazards.path_programs.tools import attack, give, notes, python, same_as_native

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


def test_p82_no_datagram_leaves(runner: support.Runner) -> None:
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
        assert {found.pop(label) for label in ("lite", "echo", "echo6")} == {"EPROTONOSUPPORT"}
        assert found.pop("by hand") == "ok" and set(found.values()) == {"EPIPE"}, found
        with pytest.raises(BlockingIOError):
            stranger.recv(99)
        give(runner, runner.base / "p.toml", b'extends = "default"\n[settings]\nudp = "unpoliced"\n')
        found, result = attack(runner, UDP, port, options=("-p", str(runner.base / "p.toml")))
        assert found["v4"] == found["v6"] == "ok" and stranger.recv(99) == b"datagram"
    assert "UDP is neither judged nor recorded" in result.err


ASKING = """
import fcntl, socket
def ask(family, where, flags=0):
    with socket.socket(family, socket.SOCK_DGRAM | flags) as s:
        try: s.connect((where, 9)); return s.getsockname()[0]
        except OSError as e: return errno.errorcode[e.errno]
for family, where in ((2, "127.0.0.1"), (2, "192.0.2.1"), (10, "::1"), (10, "2001:db8::1"), (10, "::ffff:127.0.0.1"), (2, "0.0.0.0")):
    note(where, [ask(family, where, flags) for flags in (0, socket.SOCK_NONBLOCK)])
with socket.socket(2, socket.SOCK_DGRAM) as s: note("flags", [s.get_inheritable(), fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK, s.gettimeout()])
with socket.socket(10, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as s: note("flags 6", fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK)
D, I = socket.SOCK_DGRAM, 1 << 20
note("words", [word(min(call("socket", *words), 0)) for words in ((2, D, 17), (10, D | 1 << 19, 0), (2, D | I, 0), (2, D | 1 << 11, 6), (10, D, 6))])
report()
"""
BY_HAND = """
import fcntl, socket, struct
question = struct.pack(">6H", 9, 256, 1, 0, 0, 0) + b"\\3api\\4test\\0" + struct.pack(">2H", 1, 1)
where, stranger = ("127.224.0.1", 53), ("127.0.0.1", int(sys.argv[1]))
def state(s): return [fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK, fcntl.fcntl(s, fcntl.F_GETFD)]
def answered(s):
    s.settimeout(20); data, peer = s.recvfrom(999); return [len(data) > len(question), peer]
asked = []
for number in range(40):
    s = socket.socket(2, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK * (number % 2)); os.set_inheritable(s.fileno(), number % 3 == 0)
    before, copy, at = state(s), s.dup(), s.fileno()
    if number % 2: s.bind(("", 0)); s.sendto(question, where)
    else: s.connect(where); s.send(question)
    asked.append([before == state(s), at == s.fileno(), *answered(s)])
    if number < 4: note(f"others {number}", [word(-errno_of(s.sendto, b"x", 0, there)) for there in (stranger, ("192.0.2.1", 9))] + [word(-errno_of(copy.sendto, b"x", 0, stranger))])
    s.close(); copy.close()
note("asked", sorted({str(each) for each in asked}))
with socket.socket(2, socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", 0)); note("again", word(-errno_of(s.bind, ("", 5353))))
    for bomb in (b"", b"x", bytes(60000), question[:9], b"\\xff" * 999): s.sendto(bomb, where)
    s.sendto(question, where); answers = [answered(s)[0] for _ in range(2)]; note("after bombs", True in answers)
    note("elsewhere", [word(-errno_of(s.connect, there)) for there in (("192.0.2.1", 9), ("127.0.0.1", 9))])
report()
"""


def test_p82_who_asks_by_udp_reaches_the_resolver_alone(runner: support.Runner) -> None:
    """By bind and by connect, more than once: answers come from its address, and nothing reaches anybody else."""
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.setblocking(False)
        found, result = attack(runner, BY_HAND, str(stranger.getsockname()[1]))
        with pytest.raises(BlockingIOError):
            stranger.recv(99)
    if any(entry["path"] == "//udp" for entry in result.denied()):
        pytest.skip("no user namespace can be made here")
    assert found.pop("asked") == [
        "[True, True, True, ['127.224.0.1', 53]]".replace("['127", "('127").replace("53]", "53)")
    ]
    for number in range(4):  # bound ones and connected ones; the copy is the one from before
        assert found.pop(f"others {number}") == ["ok", "ENETUNREACH", "EPIPE"], number
    assert found == {"again": "EINVAL", "after bombs": True, "elsewhere": ["ENETUNREACH", "ok"]}
    assert not [entry for entry in result.decisions if entry["effect"] in ("connect", "send")]


BOUND = """
import socket
with socket.socket(2, socket.SOCK_DGRAM) as s: note("bind", [word(-errno_of(s.bind, (where, 0))) for where in ("127.0.0.1", "192.0.2.1")])
with socket.socket(2, socket.SOCK_DGRAM) as s: note("bind port", word(-errno_of(s.bind, ("", 40404))))
with socket.socket(10, socket.SOCK_DGRAM) as s: note("bind 6", word(-errno_of(s.bind, ("::", 0))))
def join(family, level, option, value):
    with socket.socket(family, socket.SOCK_DGRAM) as s: return word(-errno_of(s.setsockopt, level, option, value))
note("join", [join(2, 0, 35, socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")), join(10, 41, 20, socket.inet_pton(10, "ff02::fb") + bytes(4))])
if ctypes.CDLL(None).unshare(0x50000000) == 0: note("elsewhere", word(min(call("socket", 2, 2, 0), 0)))
report()
"""


def test_p82_programs_ask_for_the_way_as_natively(runner: support.Runner) -> None:
    """Sockets that are connected and send nothing tell what they tell without us; who wants to receive is told why not."""
    found = same_as_native(runner, ASKING)
    assert found["127.0.0.1"] == ["127.0.0.1"] * 2 and found["flags"] == [False, 0, None]
    found, result = attack(runner, BOUND)
    assert {*found.pop("bind"), found.pop("bind port"), found.pop("bind 6")} == {"EACCES"}
    assert found.pop("join") == ["ENODEV"] * 2 and found.pop("elsewhere", "EPROTONOSUPPORT") == "EPROTONOSUPPORT"
    (entry,) = {(entry["path"], entry["effect"]) for entry in result.denied()}
    assert entry == ("//udp", "send") and all("udp = 'unpoliced'" in each["reason"] for each in result.denied())
