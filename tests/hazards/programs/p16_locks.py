"""P16: flock, OFD and POSIX locks between descriptors and processes, and right after a close."""

import fcntl
import os
import struct


def lock(descriptor, kind, how):
    try:
        if how == "flock":
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        elif how == "posix":
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        else:
            word = {fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}[kind]
            fcntl.fcntl(descriptor, 37, struct.pack("hhqqi4x", word, 0, 0, 0, 0))  # F_OFD_SETLK
        return "got"
    except OSError as error:
        return type(error).__name__


def elsewhere(how, kind, code=""):
    pid = os.fork()
    if not pid:
        answer = lock(os.open("f", os.O_RDWR), kind, how)
        os._exit({"got": 0, "BlockingIOError": 1}.get(answer, 2))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


open("f", "w").write("x")
for how in ("flock", "ofd", "posix"):
    one, two = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    print(
        how,
        "first",
        lock(one, fcntl.LOCK_EX, how),
        "second",
        lock(two, fcntl.LOCK_EX, how),
        "other",
        elsewhere(how, fcntl.LOCK_EX),
    )
    print(
        how,
        "down",
        lock(one, fcntl.LOCK_SH, how),
        lock(two, fcntl.LOCK_SH, how),
        elsewhere(how, fcntl.LOCK_SH),
        elsewhere(how, fcntl.LOCK_EX),
    )
    os.close(two)
    print(how, "after a close", elsewhere(how, fcntl.LOCK_EX))
    os.close(one)
    print(how, "after both", elsewhere(how, fcntl.LOCK_EX))
for how in ("flock", "ofd"):  # nobody else may hold the description: free at once after close
    wrong = 0
    for turn in range(300):
        one = os.open("f", os.O_RDWR if turn % 3 else os.O_RDONLY)
        lock(one, fcntl.LOCK_EX if turn % 3 else fcntl.LOCK_SH, how)
        os.close(one)
        two = os.open("f", os.O_RDWR)
        wrong += lock(two, fcntl.LOCK_EX, how) != "got"
        os.close(two)
    print(how, "wrong", wrong)
