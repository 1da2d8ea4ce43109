"""P70: System V shared memory, semaphores and message queues. The run's own work as natively; those of others are
neither read, nor changed, nor removed.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest
import support
from hazards.path_programs.tools import attack, notes, python, same_as_native

pytestmark = pytest.mark.both_identities

CALLS = """
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p
RMID, CREAT, EXCL = 0, 0o1000, 0o2000
def v(name, *words):
    result = getattr(libc, name)(*words)
    return errno.errorcode[ctypes.get_errno()] if result in (-1, 2**64 - 1, None) else result
def shown(result): return result if isinstance(result, str) else "ok"
class Message(ctypes.Structure): _fields_ = [("type", ctypes.c_long), ("text", ctypes.c_char * 8)]
class Step(ctypes.Structure): _fields_ = [("number", ctypes.c_ushort), ("by", ctypes.c_short), ("flags", ctypes.c_short)]
"""

INSIDE = (
    CALLS
    + """
key = int(sys.argv[1])
for name, k in (("private", 0), ("by key", key)):
    shm = v("shmget", k, 4096, CREAT | 0o600); sem = v("semget", k, 2, CREAT | 0o600); msg = v("msgget", k, CREAT | 0o600)
    if k: note("again", [v("shmget", k, 0, 0) == shm, v("semget", k, 0, CREAT) == sem, v("msgget", k, 0) == msg])
    if k: note("exclusive", [v("shmget", k, 4096, CREAT | EXCL), v("semget", k, 2, CREAT | EXCL), v("msgget", k, CREAT | EXCL)])
    child = os.fork()
    if not child:
        at = v("shmat", shm, None, 0); ctypes.memmove(at, b"from the child", 14); v("shmdt", ctypes.c_void_p(at))
        message = Message(7, b"hello"); v("msgsnd", msg, ctypes.byref(message), 8, 0)
        v("semop", sem, ctypes.byref(Step(0, 1, 0)), 1); os._exit(0)
    note(name + " wait", shown(v("semop", sem, ctypes.byref(Step(0, -1, 0)), 1))); os.waitpid(child, 0)
    at = v("shmat", shm, None, 0o10000); note(name + " shm", ctypes.string_at(at, 14).decode()); note(name + " write-only", shown(v("shmdt", ctypes.c_void_p(at))))
    got = Message(); note(name + " received", [v("msgrcv", msg, ctypes.byref(got), 8, 0, 0), got.text.decode()])
    note(name + " value", [v("semctl", sem, 0, 16, 3), v("semctl", sem, 0, 12)])  # SETVAL, GETVAL
    space = ctypes.create_string_buffer(256)
    note(name + " stat", [v("shmctl", shm, 2, space), v("semctl", sem, 0, 2, space), v("msgctl", msg, 2, space)])
    note(name + " owner", [v("shmctl", shm, 2, space), space.raw[4:8] == os.getuid().to_bytes(4, "little"), oct(int.from_bytes(space.raw[20:22], "little"))])
    note(name + " gone", [v("shmctl", shm, RMID, None), v("semctl", sem, 0, RMID), v("msgctl", msg, RMID, None)])
    note(name + " after", [v("shmat", shm, None, 0), v("semctl", sem, 0, RMID), v("msgsnd", msg, ctypes.byref(message) if 0 else ctypes.byref(Message(1, b"")), 8, 0)])
note("absent", [v("shmget", key + 1, 4096, 0), v("semget", key + 1, 1, 0), v("msgget", key + 1, 0)])
note("wrong", [v("shmget", 0, 0, 0o600), v("semget", 0, 100000000, 0o600), v("shmctl", 1 << 30, 99, None)])
if os.geteuid() == 0:
    libc.syscall(117, 1, 1, 1) if os.uname().machine == "x86_64" else os.setresuid(1, 1, 1)
    shm = v("shmget", 0, 4096, 0o600); v("shmctl", shm, 2, space); note("other ids", int.from_bytes(space.raw[4:8], "little")); v("shmctl", shm, RMID, None)
report()
"""
)


def test_p70_system_v_objects_of_the_run(runner: support.Runner) -> None:
    """By key and without one, between processes, with the owner, the modes and the errnos that they have natively."""
    found = same_as_native(runner, INSIDE, str(0x70000000 + os.getpid()))
    assert found["private shm"] == found["by key shm"] == "from the child" and found["again"] == [True] * 3
    assert found["by key received"] == [8, "hello"] and found["by key after"] == ["EINVAL"] * 3


@pytest.fixture
def theirs(identity: support.Identity) -> Iterator[tuple[int, int, int, int]]:
    """A key, and the numbers of the three objects that an outside process of the same user made with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x71000000 + os.getpid()
    numbers = (libc.shmget(key, 4096, 0o3666), libc.semget(key, 1, 0o3666), libc.msgget(key, 0o3666))
    try:
        assert min(numbers) >= 0
        yield key, *numbers
    finally:
        for remove in (
            lambda n: libc.shmctl(n[0], 0, None),
            lambda n: libc.semctl(n[1], 0, 0),
            lambda n: libc.msgctl(n[2], 0, None),
        ):
            remove(numbers)


OUTSIDE = (
    CALLS
    + """
key, shm, sem, msg = map(int, sys.argv[1:])
noise = 1 << 40  # in the high half of the register
raw = {"x86_64": (29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220)}.get(os.uname().machine, (194, 196, 195, 190, 193, 191, 186, 189, 188, 187, 192))
at = lambda i, *words: (lambda r: errno.errorcode[ctypes.get_errno()] if r < 0 else "ok")(libc.syscall(ctypes.c_long(raw[i]), *[ctypes.c_long(w) if isinstance(w, int) else w for w in words]))
message, step, space = ctypes.byref(Message(1, b"x")), ctypes.byref(Step(0, 1, 0)), ctypes.create_string_buffer(256)
tries = {
    "get shm": (0, key, 4096, 0), "get shm, make": (0, key, 4096, CREAT | 0o600), "get sem": (3, key, 1, 0), "get msg": (6, key, 0), "get msg, make": (6, key, CREAT),
    "attach": (1, shm, 0, 0), "attach to read": (1, shm, 0, 0o10000), "attach, noise": (1, shm | noise, 0, 0), "shm remove": (2, shm, RMID, 0), "shm set": (2, shm, 1, space),
    "shm lock": (2, shm, 11, 0), "shm remove, noise": (2, shm | noise, RMID | noise, 0), "op": (4, sem, step, 1), "op, timed": (10, sem, step, 1, 0), "sem remove": (5, sem, 0, RMID, 0),
    "sem set value": (5, sem, 0, 16, 9), "sem set all": (5, sem, 0, 17, space), "sem value": (5, sem, 0, 12, 0), "sem remove, noise": (5, sem, 0, RMID | noise, 0),
    "send": (7, msg, message, 8, 0), "receive": (8, msg, message, 8, 0, 0o4000), "copy": (8, msg, message, 8, 0, 0o44000), "msg remove": (9, msg, RMID, 0), "msg set": (9, msg, 1, space),
}
for label, words in tries.items(): note(label, at(*words))
note("stat", [at(2, shm, 2, space), at(5, sem, 0, 2, space), at(9, msg, 2, space)])
own = v("shmget", 0, 4096, 0o600); note("own", [own != shm, shown(v("shmat", own, None, 0)), v("shmctl", own, RMID, None)])
report()
"""
)


def test_p70_system_v_objects_of_others(runner: support.Runner, theirs: tuple[int, int, int, int]) -> None:
    """Each call on them, by key and by number, is refused with a record; to look at their owner is not."""
    libc = ctypes.CDLL(None, use_errno=True)
    key, shm, sem, msg = theirs

    class Message(ctypes.Structure):
        _fields_ = (("type", ctypes.c_long), ("text", ctypes.c_char * 8))

    assert libc.msgsnd(msg, ctypes.byref(Message(1, b"secret")), 8, 0) == 0
    found, result = attack(runner, OUTSIDE, *map(str, theirs))
    assert found.pop("stat") == ["ok"] * 3 and found.pop("own") == [True, "ok", 0]
    assert set(found.values()) == {"EACCES"}, found
    assert len(result.denied()) == len(found)
    assert {d["path"] for d in result.denied()} >= {f"//shared-memory-{shm}", f"//message-queue-key-0x{key:x}"}
    got = Message()
    assert libc.msgrcv(msg, ctypes.byref(got), 8, 0, 0o4000) == 8 and got.text == b"secret"
    assert libc.semctl(sem, 0, 12) == 0 and libc.shmget(key, 4096, 0) == shm


def test_p70_a_namespace_of_its_own_is_all_the_run_s(runner: support.Runner) -> None:
    """Numbers there are others: the supervisor makes nothing in its own for it."""
    code = (
        CALLS + "shm = v('shmget', 5, 4096, CREAT | 0o600); note('attach', shown(v('shmat', shm, None, 0))); report()"
    )
    result = runner.supervise(["unshare", "-Ur", "--ipc", *python(runner, code)])
    if "ermitted" in result.err:
        pytest.skip("no user namespaces here")
    assert notes(result) == {"attach": "ok"}
