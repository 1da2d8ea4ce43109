"""The seccomp program: our guard, then what libseccomp compiles from the table.

libseccomp cannot express ranges, nor "all but these", so the guard in front of its program answers ENOSYS for foreign
architectures, for the x32 bit and for numbers that the table does not know, and refuses the ioctls of file systems and
the sockets that the table does not know. libseccomp 2.5 cannot set WAIT_KILLABLE_RECV, so the program is
exported and installed by seccomp(2) itself (worker.py). The tests interpret the whole program for every number.
"""

from __future__ import annotations

import errno
import os
import struct
from itertools import pairwise

from pincer_trace.errors import UserError
from pincer_trace.kernel import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyseccomp

    Sockets = dict[int, table.Types | None]

FORMAT = 6  # part of the cache key: bump when the guard or the translation changes

_LD_NR = (0x20, 0, 0, 0)  # BPF_LD | BPF_W | BPF_ABS, offset of seccomp_data.nr
_LD_ARCH = (0x20, 0, 0, 4)
_LD_LOW = tuple((0x20, 0, 0, 16 + 8 * index) for index in range(3))  # low half of args[N]: both are little-endian
_LD_COMMAND = _LD_LOW[1]
_AND = 0x54
_JA, _JEQ, _JGE, _JGT, _RET = 0x05, 0x15, 0x35, 0x25, 0x06
_RET_ENOSYS = 0x00050000 | errno.ENOSYS
_NOTIFY = 0x7FC00000
_ALLOW = 0x7FFF0000


def compile_filter(*, udp: bool = False, tracing: bool = True, mounting: bool = False) -> bytes:
    """The whole program for this machine: an array of `struct sock_filter` (8 bytes each, native order).

    Raises UserError when libseccomp is missing.
    """
    if udp:
        sockets, rules = table.SOCKETS_WITH_UDP, table.REGISTER_RULES
    else:
        sockets, rules = table.SOCKETS, table.REGISTER_RULES_WITHOUT_UDP
    return guard(table.machine(), sockets, tracing=tracing) + _libseccomp(rules, mounting=mounting)


def guard(architecture: str, sockets: Sockets = table.SOCKETS, *, tracing: bool = True) -> bytes:
    """The instructions in front: ENOSYS for what is not this architecture or not in the table, else fall through.

    Without `tracing` nobody traces anybody.
    """
    numbers = sorted(table.load(architecture))
    gaps = [(a + 1, b - 1) for a, b in pairwise(numbers) if b > a + 1]
    code = [
        _LD_ARCH,
        (_JEQ, 1, 0, table.AUDIT_ARCH[architecture]),
        (_RET, 0, 0, _RET_ENOSYS),
        _LD_NR,
        (_JGT, 0, 1, numbers[-1]),  # unsigned: also the x32 bit and negative numbers
        (_RET, 0, 0, _RET_ENOSYS),
    ]
    for first, last in gaps:
        code += [(_JGE, 0, 2, first), (_JGT, 1, 0, last), (_RET, 0, 0, _RET_ENOSYS)]
    number = {row.name: row.number for row in table.load(architecture).values()}
    if not tracing:
        code += [_LD_NR, (_JEQ, 0, 1, number["ptrace"]), _refuse("EPERM")]
    for name, refused in (("ioctl", _unknown_ioctls()), ("socket", _unknown_sockets(sockets))):
        code += [_LD_NR, (_JEQ, 0, len(refused), number[name]), *refused]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _unknown_ioctls() -> list[tuple[int, int, int, int]]:
    """Refuse commands of the types in the table that it does not know; fall through for all others."""
    known = sorted(table.FILE_SYSTEM_IOCTLS)
    types = [kind << 8 for kind in table.IOCTL_TYPES]
    rest = 1 + 2 * len(types)  # instructions behind the known ones
    code = [_LD_COMMAND]
    code += [(_JEQ, len(known) - 1 - at + rest, 0, command) for at, command in enumerate(known)]
    code.append((_AND, 0, 0, table.IOCTL_TYPE_MASK))
    for kind in types:
        code += [(_JEQ, 0, 1, kind), _refuse(table.IOCTL_UNKNOWN)]
    return code


def _unknown_sockets(sockets: Sockets) -> list[tuple[int, int, int, int]]:
    """Refuse the sockets that are not among these; fall through for all others."""
    code: list[tuple[int, int, int, int] | None] = [_LD_LOW[0]]  # None: known, to the end
    for family, types in sockets.items():
        code += _case(family, [None] if types is None else _types(types))
    code.append(_refuse(table.NO_FAMILY))
    return [step or (_JA, 0, 0, len(code) - at - 1) for at, step in enumerate(code)]


def _types(types: dict[int, tuple[int, ...] | None]) -> list[tuple[int, int, int, int] | None]:
    code: list[tuple[int, int, int, int] | None] = [_LD_LOW[1], (_AND, 0, 0, table.SOCKET_TYPE_MASK)]
    for kind, protocols in types.items():
        inner: list[tuple[int, int, int, int] | None] = [None]
        if protocols is not None:
            inner = [_LD_LOW[2], *(step for each in protocols for step in _case(each, [None]))]
            inner.append(_refuse(table.NO_PROTOCOL))
        code += _case(kind, inner)
    return [*code, _refuse(table.NO_TYPE)]


def _case(value: int, steps: list[tuple[int, int, int, int] | None]) -> list[tuple[int, int, int, int] | None]:
    """`steps`, which do not come back, where the accumulator is `value`."""
    return [(_JEQ, 0, len(steps), value), *steps]


def _refuse(name: str) -> tuple[int, int, int, int]:
    return (_RET, 0, 0, 0x00050000 | getattr(errno, name))


def _libseccomp(rules: tuple[table.RegisterRule, ...], *, mounting: bool) -> bytes:
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        raise UserError(f"cannot load libseccomp ({error}); install the package libseccomp2") from error
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)  # a binary tree instead of a list (libseccomp 2.5)
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, _RET_ENOSYS)
    numbers = {}
    for row in table.load(mounting=mounting).values():
        numbers[row.name] = row.number
        if row.disposition in ("notify", "refuse"):
            program.add_rule(_action(f"{row.disposition}:{row.detail}"), row.number)
    for rule in rules:
        if rule.name in numbers:
            program.add_rule(
                _action(rule.action),
                numbers[rule.name],
                *(_condition(*c) for c in rule.conditions),
            )
    descriptor = os.memfd_create("filter")
    with os.fdopen(descriptor, "rb") as exported:
        program.export_bpf(exported)
        exported.seek(0)
        return exported.read()


def _action(action: str) -> int:
    kind, _, detail = action.partition(":")
    if kind == "notify":
        return _NOTIFY
    return 0x00050000 | (0 if detail == "0" else getattr(errno, detail))


def _condition(index: int, mask: int, value: int, equal: bool) -> pyseccomp.Arg:
    from pyseccomp import MASKED_EQ, NE, Arg

    return Arg(index, MASKED_EQ, mask, value) if equal else Arg(index, NE, value)


def load_filter(
    cache_directory: str | None, *, udp: bool = False, tracing: bool = True, mounting: bool = False
) -> bytes:
    """The program for this machine, with UDP sockets, ptrace and mounts or without.

    From the cache when a private one of this version is there (saves 50 ms).
    """
    from _hashlib import openssl_sha256

    from pincer_trace import cache

    build = cache.build(__file__, table.__file__)
    key = openssl_sha256(f"{FORMAT} {udp} {tracing} {mounting} {build}".encode()).hexdigest()
    if cache_directory is not None:
        kept = cache.read(cache_directory, f"filter-{key}")
        if kept is not None:
            return kept
    program = compile_filter(udp=udp, tracing=tracing, mounting=mounting)
    if cache_directory is not None:
        cache.write(cache_directory, f"filter-{key}", program)
    return program
