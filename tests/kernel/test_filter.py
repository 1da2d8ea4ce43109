"""The compiled filter against the table, instruction by instruction: P61, and the rows whose remedy is the filter
itself (P5, P40, P57, P73, P92).
"""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Iterator

import pytest
from kernel import bpf

from pincer_trace.kernel import filter as compiler
from pincer_trace.kernel import table

# <linux/audit.h>
ARCHITECTURES = {
    "x86_64": 0xC000003E,
    "i386": 0x40000003,
    "aarch64": 0xC00000B7,
    "arm": 0x40000028,
    "riscv": 0xC00000F3,
}
FULL = (1 << 64) - 1
LEGAL_ERRNO = range(4096)


@pytest.fixture(scope="module")
def program() -> list[bpf.Instruction]:
    """The whole filter of this machine."""
    return bpf.decode(compiler.compile_filter())


@pytest.fixture(scope="module")
def with_udp() -> list[bpf.Instruction]:
    """The same for a profile that leaves UDP open."""
    return bpf.decode(compiler.compile_filter(udp=True))


def wanted(action: str) -> int:
    """The return value that the table's `notify:STAGE`, `refuse:ERRNO` or `allow` asks for."""
    kind, _, detail = action.partition(":")
    if kind == "notify":
        return bpf.NOTIFY
    if kind == "refuse":
        return bpf.ERRNO | (0 if detail == "0" else getattr(errno, detail))
    return bpf.ALLOW


def holds(condition: tuple[int, int, int, bool], arguments: list[int]) -> bool:
    index, mask, value, equal = condition
    return ((arguments[index] & mask) == value) is equal


def expected(
    rows: dict[int, table.Syscall], number: int, arguments: list[int], sockets: compiler.Sockets = table.SOCKETS
) -> int:
    """What the table says of a call on the native architecture."""
    row = rows.get(number)
    if row is None:
        return bpf.ERRNO | errno.ENOSYS
    if row.disposition != "registers":
        return wanted(f"{row.disposition}:{row.detail}")
    if row.name == "ioctl" and is_unknown(arguments[1] & 0xFFFFFFFF):
        return bpf.ERRNO | errno.ENOTTY
    if row.name == "socket" and (refusal := no_socket(sockets, *(a & 0xFFFFFFFF for a in arguments[:3]))):
        return bpf.ERRNO | getattr(errno, refusal)
    rules = table.REGISTER_RULES if sockets is table.SOCKETS_WITH_UDP else table.REGISTER_RULES_WITHOUT_UDP
    hits = {
        wanted(rule.action)
        for rule in rules
        if rule.name == row.name and all(holds(c, arguments) for c in rule.conditions)
    }
    # The kernel cannot be asked which of two rules it takes; the table must never leave that open.
    assert len(hits) <= 1, f"{row.name} {arguments}: rules contradict each other"
    return hits.pop() if hits else bpf.ALLOW


def is_unknown(command: int) -> bool:
    """Whether an ioctl goes to a file system and is not in the table."""
    return command >> 8 & 0xFF in table.IOCTL_TYPES and command not in table.FILE_SYSTEM_IOCTLS


def no_socket(sockets: compiler.Sockets, family: int, kind: int, protocol: int) -> str:
    """The errno's name where the table has no such socket."""
    if family not in sockets:
        return "EAFNOSUPPORT"
    types = sockets[family]
    if types is None:
        return ""
    if kind & 0xF not in types:
        return "ESOCKTNOSUPPORT"
    protocols = types[kind & 0xF]
    return "" if protocols is None or protocol in protocols else "EPROTONOSUPPORT"


def register_classes(name: str) -> Iterator[list[int]]:
    """Argument vectors around every condition of the rules of `name`: holding, nearly holding, noise in high halves."""
    chance = random.Random(61)
    values: dict[int, set[int]] = {}
    for rule in table.REGISTER_RULES_WITHOUT_UDP:
        if rule.name == name:
            for index, mask, value, _ in rule.conditions:
                near = {
                    value,
                    value ^ 1,
                    value + 1,
                    0,
                    1,
                    FULL,
                    value | 1 << 32,
                    value | 0xDEAD << 32,
                    mask,
                    ~mask & FULL,
                }
                near |= {
                    value | (~mask & FULL),
                    value ^ (mask & -mask),
                    value ^ (1 << 31),
                    value ^ (1 << 63),
                    FULL ^ value,
                }
                values.setdefault(index, set()).update(v & FULL for v in near)
    indexes = sorted(values)
    vectors = [[]]  # type: list[list[int]]
    for index in indexes:
        vectors = [[*vector, value] for vector in vectors for value in sorted(values[index])]
    for vector in vectors:
        arguments = [chance.getrandbits(64) for _ in range(6)]
        for index, value in zip(indexes, vector, strict=True):
            arguments[index] = value
        yield arguments
    for _ in range(200):
        yield [chance.choice((chance.getrandbits(64), chance.getrandbits(6), 0, FULL)) for _ in range(6)]


def numbers() -> list[int]:
    """Every number a kernel could know, their x32 twins, negative ones and random ones."""
    chance = random.Random(6161)
    plain = range(1024)
    x32 = [number | table.X32_BIT for number in plain]
    edges = [0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, table.X32_BIT - 1, *(number | 0x80000000 for number in (0, 2, 257))]
    return [*plain, *x32, *edges, *(chance.getrandbits(32) for _ in range(2000))]


def test_p61_every_number_of_every_architecture(program: list[bpf.Instruction]) -> None:
    native = table.machine()
    rows = table.load()
    wrong = []
    for name, arch in ARCHITECTURES.items():
        for number in numbers():
            if name == native and number in rows and rows[number].disposition == "registers":
                continue  # the next test
            want = expected(rows, number, [0] * 6) if name == native else bpf.ERRNO | errno.ENOSYS
            got = bpf.run(program, bpf.data(number, arch, [random.Random(number).getrandbits(64)] * 6))
            if got != want:
                wrong.append(f"{name} {number:#x}: {got:#x}, the table says {want:#x}")
    assert not wrong, "\n".join(wrong[:20])


def test_p61_every_register_rule(program: list[bpf.Instruction]) -> None:
    rows = table.load()
    arch = table.AUDIT_ARCH[table.machine()]
    seen: dict[str, set[int]] = {}
    for row in rows.values():
        if row.disposition != "registers":
            continue
        for arguments in register_classes(row.name):
            got = bpf.run(program, bpf.data(row.number, arch, arguments))
            assert got == expected(rows, row.number, arguments), f"{row.name} {[hex(a) for a in arguments]}"
            seen.setdefault(row.name, set()).add(got)
    # Each such call was seen to be let through and not to be: else the vectors above prove nothing.
    assert all(bpf.ALLOW in results and len(results) > 1 for results in seen.values()), seen
    assert {rule.name for rule in table.REGISTER_RULES_WITHOUT_UDP} >= seen.keys()


def test_p25_where_the_command_may_mount(program: list[bpf.Instruction]) -> None:
    """The same filter but for the calls about mounts and roots, which are all paused; newer ones are missing."""
    mounting = bpf.decode(compiler.compile_filter(mounting=True))
    arch = table.AUDIT_ARCH[table.machine()]
    old, new = table.load(), table.load(mounting=True)
    changed = {row.name for number, row in new.items() if row.detail != old[number].detail}
    assert {"mount", "umount2", "pivot_root", "chroot", "fsopen", "move_mount", "open_tree"} <= changed
    for number in range(480):
        row = new.get(number)
        data = bpf.data(number, arch, [random.Random(number).getrandbits(64)] * 6)
        if row is not None and row.name in changed:
            assert bpf.run(mounting, data) in (bpf.NOTIFY, bpf.ERRNO | errno.ENOSYS), row.name
            assert bpf.run(mounting, data) == expected(new, number, [0] * 6)
        elif row is None or row.disposition != "registers":
            assert bpf.run(mounting, data) == bpf.run(program, data), number
        else:
            for arguments in [[0] * 6, *register_classes(row.name)]:
                data = bpf.data(number, arch, arguments)
                assert bpf.run(mounting, data) == bpf.run(program, data), (row.name, arguments)


def test_p61_each_rule_is_reached(program: list[bpf.Instruction]) -> None:
    rows = {row.name: row for row in table.load().values()}
    arch = table.AUDIT_ARCH[table.machine()]
    for rule in table.REGISTER_RULES_WITHOUT_UDP:
        if rule.name not in rows:
            continue
        assert rows[rule.name].disposition == "registers", rule.name
        arguments = [0] * 6
        for index, mask, value, equal in rule.conditions:
            arguments[index] = value if equal else (value + 1) & mask
        assert bpf.run(program, bpf.data(rows[rule.name].number, arch, arguments)) == wanted(rule.action), rule.name


def test_p61_every_ioctl_of_a_file_system(program: list[bpf.Instruction]) -> None:
    """Every number of every type, with the directions and some sizes; noise above changes nothing; other types pass."""
    number = next(row.number for row in table.load().values() if row.name == "ioctl")
    arch = table.AUDIT_ARCH[table.machine()]
    rules = {rule.conditions[0][2] for rule in table.REGISTER_RULES_WITHOUT_UDP if rule.name == "ioctl"}
    assert rules & table.FILE_SYSTEM_IOCTLS, "known commands keep their own rule"
    chance = random.Random(61)
    seen = set()
    for kind in (*table.IOCTL_TYPES, *(kind ^ 1 for kind in table.IOCTL_TYPES), 0x54, 0x89, 0):
        for low in range(256):
            for high in (0, 0x4004, 0x4008, 0x8004, 0x8008, 0xC008, 0xC080, 0x2000, chance.getrandbits(16)):
                command = high << 16 | kind << 8 | low
                got = bpf.run(program, bpf.data(number, arch, [3, chance.getrandbits(32) << 32 | command, 0]))
                if is_unknown(command):
                    assert got == bpf.ERRNO | errno.ENOTTY, hex(command)
                elif command not in rules:
                    assert got == bpf.ALLOW, hex(command)
                seen.add(got)
    assert {bpf.ERRNO | errno.ENOTTY, bpf.ALLOW} <= seen
    for command in table.FILE_SYSTEM_IOCTLS - rules:
        assert bpf.run(program, bpf.data(number, arch, [3, command])) == bpf.ALLOW, hex(command)


def test_p46_without_tracing_nobody_traces(program: list[bpf.Instruction]) -> None:
    """As in a run that has sinks: whatever the request, while nothing else differs."""
    closed = bpf.decode(compiler.compile_filter(tracing=False))
    arch, rows = table.AUDIT_ARCH[table.machine()], table.load()
    for number in (*range(480), 0x40000000):
        for word in (0, 16, 0x4206, 2**64 - 1):
            data = bpf.data(number, arch, [word] * 6)
            traces = number in rows and rows[number].name == "ptrace"
            assert bpf.run(closed, data) == (bpf.ERRNO | errno.EPERM if traces else bpf.run(program, data)), number


def test_p82_no_group_of_receivers_is_joined(program: list[bpf.Instruction], with_udp: list[bpf.Instruction]) -> None:
    """Whoever joins one tells the network: by each of the ways there are, with noise; other options pass."""
    number = next(row.number for row in table.load().values() if row.name == "setsockopt")
    arch = table.AUDIT_ARCH[table.machine()]
    joins = {(0, 35), (0, 39), (0, 42), (0, 46), (41, 20), (41, 27), (41, 42), (41, 46)}  # <linux/in.h>, <linux/in6.h>
    refused = {bpf.ERRNO | errno.ENODEV}
    for level, option in joins:
        for noise in (0, 1 << 32, 0xFFFF << 32):
            data = bpf.data(number, arch, (3, noise | level, noise | option))
            assert bpf.run(program, data) in refused and bpf.run(with_udp, data) == bpf.ALLOW, (level, option)
    for level, option in ((1, 35), (6, 1), (41, 26), (0, 36), (41, 21), (17, 42)):
        assert bpf.run(program, bpf.data(number, arch, (3, level, option))) == bpf.ALLOW, (level, option)


@pytest.mark.parametrize("udp", [False, True])
def test_p71_every_kind_of_socket(program: list[bpf.Instruction], with_udp: list[bpf.Instruction], udp: bool) -> None:
    """Families, types with their flags, and protocols, with noise in the high halves: only what the table has."""
    program, sockets = (with_udp, table.SOCKETS_WITH_UDP) if udp else (program, table.SOCKETS)
    arch = table.AUDIT_ARCH[table.machine()]
    rows = table.load()
    number = next(row.number for row in rows.values() if row.name == "socket")
    chance = random.Random(71)
    seen = set()
    for family in (*range(64), 0xFFFFFFFF):
        for kind in (*range(16), 1 | 0x80000, 2 | 0x800, 3 | 0x80800, 1 | 0x100, 0xFFFFFFFF):
            for protocol in (0, 1, 4, 6, 15, 17, 33, 58, 115, 132, 136, 256, 262, 0xFFFFFFFF):
                noisy = [chance.getrandbits(32) << 32 | word for word in (family, kind, protocol)]
                got = bpf.run(program, bpf.data(number, arch, noisy))
                assert got == expected(rows, number, noisy, sockets), (family, kind, protocol)
                seen.add(got)
    refused = {bpf.ERRNO | number for number in (errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EPROTONOSUPPORT)}
    assert seen == refused | {bpf.ALLOW, bpf.NOTIFY}
    # In words, whatever the table says: no way around what is judged, and the plain ones there.
    for words in ((40, 1, 0), (17, 3, 3), (38, 5, 0), (43, 1, 0), (2, 1, 262), (2, 1, 132), (10, 5, 132), (16, 3, 2)):
        assert bpf.run(program, bpf.data(number, arch, words)) & bpf.ACTION == bpf.ERRNO, words
    for words in ((1, 1, 0), (1, 5, 0), (2, 1, 0), (10, 1, 6), (16, 3, 0)):
        assert bpf.run(program, bpf.data(number, arch, words)) == bpf.ALLOW, words
    for words in ((2, 2, 0), (10, 2, 17), (2, 2 | 0x80000, 17), (10, 2 | 0x800, 17)):  # P82
        assert bpf.run(program, bpf.data(number, arch, words)) == (bpf.ALLOW if udp else bpf.NOTIFY), words
    for words in ((10, 2 | 0x800, 136), (2, 2, 1), (10, 2, 58)):
        refusal = bpf.ALLOW if udp else bpf.ERRNO | errno.EPROTONOSUPPORT
        assert bpf.run(program, bpf.data(number, arch, words)) == refusal, words
    for words in ((1, 2, 0), (1, 3, 0), (1, 2 | 0x80000, 0)):
        assert bpf.run(program, bpf.data(number, arch, words)) == bpf.NOTIFY, words


def test_p61_only_three_actions(program: list[bpf.Instruction]) -> None:
    """No KILL, TRAP, TRACE or LOG anywhere, whatever the registers: only allow, notify, and a real errno."""
    for code, _, _, k in program:
        if code & 0x07 == 0x06:
            assert code == 0x06
            assert k in (bpf.ALLOW, bpf.NOTIFY) or (k & bpf.ACTION == bpf.ERRNO and k & bpf.DATA in LEGAL_ERRNO)


@pytest.mark.parametrize("architecture", sorted(table.AUDIT_ARCH))
def test_p61_the_guard_alone(architecture: str) -> None:
    """For each architecture that has a table: known numbers fall through, everything else is ENOSYS."""
    fell_through = 0x7FFF1234
    code = compiler.guard(architecture) + struct.pack("=HBBI", 0x06, 0, 0, fell_through)
    guard = bpf.decode(code)
    known = table.load(architecture)
    for name, arch in ARCHITECTURES.items():
        for number in numbers():
            want = fell_through if name == architecture and number in known else bpf.ERRNO | errno.ENOSYS
            assert bpf.run(guard, bpf.data(number, arch, [table.AF_UNIX])) == want, f"{name} {number:#x}"
    ioctl = next(row.number for row in known.values() if row.name == "ioctl")
    for command, want in ((0x660C, bpf.ERRNO | errno.ENOTTY), (0x5401, fell_through), (0x80086601, fell_through)):
        assert bpf.run(guard, bpf.data(ioctl, table.AUDIT_ARCH[architecture], [0, command])) == want, hex(command)
    socket = next(row.number for row in known.values() if row.name == "socket")
    for wanted_socket, answer in (
        ((1, 5, 0), 0),
        ((2, 1, 262), errno.EPROTONOSUPPORT),
        ((17, 3, 0), errno.EAFNOSUPPORT),
    ):
        want = bpf.ERRNO | answer if answer else fell_through
        assert bpf.run(guard, bpf.data(socket, table.AUDIT_ARCH[architecture], wanted_socket)) == want, wanted_socket


@pytest.mark.parametrize("architecture", sorted(table.AUDIT_ARCH))
def test_p57_calls_that_must_never_wait(architecture: str) -> None:
    """A trap on one of these makes every thread wait, or hangs a restart."""
    never = {
        "read", "write", "readv", "writev", "close", "close_range", "dup", "dup2", "dup3", "exit", "exit_group",
        "futex", "futex_wait", "futex_wake", "futex_waitv", "mmap", "munmap", "mprotect", "brk", "rt_sigaction",
        "rt_sigprocmask", "rt_sigreturn", "restart_syscall", "fork", "vfork", "wait4", "waitid", "pipe", "pipe2",
        "nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait",
        "sendto", "sendmsg", "recvmsg", "set_tid_address", "set_robust_list", "sched_yield", "kill", "tgkill",
    }  # fmt: skip
    rows = {row.name: row for row in table.load(architecture).values()}
    legacy = {"dup2", "fork", "vfork", "pipe", "poll", "select", "epoll_wait"}  # aarch64 has none of these
    assert never - rows.keys() <= (legacy if architecture == "aarch64" else set())
    refusing = {"sendto", "sendmsg"}  # with one flag (P71): an answer in the filter, no trap
    assert {name for name in never & rows.keys() if rows[name].disposition != "allow"} == refusing
    assert not {rule.name for rule in table.REGISTER_RULES_WITHOUT_UDP if rule.action.startswith("notify")} & never
    # clone looks at its flags only: those of fork, of a thread and of vfork (glibc, musl) meet no rule
    for flags in (0, 17, 0x1200011, 0x3D0F00, 0x7D0F00, 0x4111, 0x5111, 0x4000, 0x100):
        hits = [
            rule
            for rule in table.REGISTER_RULES_WITHOUT_UDP
            if rule.name == "clone" and all(holds(c, [flags, 0, 0, 0, 0, 0]) for c in rule.conditions)
        ]
        assert not hits, hex(flags)


def test_p05_no_second_listener(program: list[bpf.Instruction]) -> None:
    """seccomp(SET_MODE_FILTER) with NEW_LISTENER anywhere among its flags, noise in the operation's high half."""
    number = next(row.number for row in table.load().values() if row.name == "seccomp")
    arch = table.AUDIT_ARCH[table.machine()]
    for flags in range(64):
        for high in (0, 1 << 32, 0xFFFFFFFF << 32):
            got = bpf.run(program, bpf.data(number, arch, [high | 1, high | flags, 0]))
            assert got == (bpf.ERRNO | errno.EBUSY if flags & 8 else bpf.ALLOW), hex(flags)
