"""An interpreter of the classic BPF that seccomp accepts, so that tests can run a filter without installing it.

Only what the kernel's seccomp_check_filter lets through is known (kernel/seccomp.c); anything else is an error,
as are a jump out of the program, a division by zero and a program that does not end in a return.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

ALLOW, NOTIFY, ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000  # SECCOMP_RET_*, <linux/seccomp.h>
ACTION, DATA = 0xFFFF0000, 0x0000FFFF
_WORDS = 16  # BPF_MEMWORDS

Instruction = tuple[int, int, int, int]


class BadProgram(Exception):
    """The kernel would refuse to load this, or it does not end."""


def decode(program: bytes) -> list[Instruction]:
    """(code, jump if true, jump if false, k) of each `struct sock_filter`. Raises BadProgram."""
    if not program or len(program) % 8 or len(program) // 8 > 4096:  # BPF_MAXINSNS
        raise BadProgram(f"{len(program)} bytes")
    return list(struct.iter_unpack("=HBBI", program))


def data(number: int, arch: int, arguments: Sequence[int] = (), ip: int = 0) -> bytes:
    """`struct seccomp_data`: the registers of one call."""
    six = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    return struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, ip, *(a & 0xFFFFFFFFFFFFFFFF for a in six))


def run(program: Sequence[Instruction], registers: bytes) -> int:
    """What the filter returns for `registers`. Raises BadProgram, IndexError when it leaves the program."""
    accumulator = index = 0
    memory = [0] * _WORDS
    at = 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        kind = code & 0x07
        if kind == 0x05:  # BPF_JMP
            if code == 0x05:  # BPF_JA
                at += k
                continue
            operand = index if code & 0x08 else k
            test = code & 0xF0
            if test == 0x10:
                taken = accumulator == operand
            elif test == 0x20:
                taken = accumulator > operand
            elif test == 0x30:
                taken = accumulator >= operand
            elif test == 0x40:
                taken = bool(accumulator & operand)
            else:
                raise BadProgram(f"jump {code:#x}")
            at += yes if taken else no
        elif code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            if k % 4 or k > 60:
                raise BadProgram(f"load at {k}")
            (accumulator,) = struct.unpack_from("=I", registers, k)
        elif code == 0x06:  # BPF_RET | BPF_K
            return k
        elif code == 0x16:  # BPF_RET | BPF_A
            return accumulator
        elif kind == 0x04:  # BPF_ALU
            accumulator = _calculate(code, accumulator, index if code & 0x08 else k)
        elif code in (0x00, 0x01):  # BPF_LD | BPF_IMM, BPF_LDX | BPF_IMM
            accumulator, index = (k, index) if code == 0 else (accumulator, k)
        elif code in (0x60, 0x61):  # BPF_LD | BPF_MEM, BPF_LDX | BPF_MEM
            accumulator, index = (memory[k], index) if code == 0x60 else (accumulator, memory[k])
        elif code in (0x02, 0x03):  # BPF_ST, BPF_STX
            memory[k] = accumulator if code == 0x02 else index
        elif code == 0x07:  # BPF_MISC | BPF_TAX
            index = accumulator
        elif code == 0x87:  # BPF_MISC | BPF_TXA
            accumulator = index
        else:
            raise BadProgram(f"instruction {code:#x}")


def _calculate(code: int, left: int, right: int) -> int:
    operation = code & 0xF0
    results = {
        0x00: left + right, 0x10: left - right, 0x20: left * right, 0x30: left // right if right else -1,
        0x40: left | right, 0x50: left & right, 0x60: left << (right & 31), 0x70: left >> (right & 31),
        0x80: -left, 0xA0: left ^ right,
    }  # fmt: skip
    if operation not in results or (operation == 0x30 and not right):
        raise BadProgram(f"arithmetic {code:#x}")
    return results[operation] & 0xFFFFFFFF
