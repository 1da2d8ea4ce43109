"""P12: O_PATH descriptors of forbidden objects as a way to the objects. Arguments: a secret, a foreign file."""

import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
secret, outside = sys.argv[1:3]


def attempt(name, act):
    try:
        print(name, "DONE", act())
    except OSError as error:
        print(name, errno.errorcode[error.errno])


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result


path = os.open(secret, os.O_PATH)
attempt("self", lambda: os.read(os.open(f"/proc/self/fd/{path}", os.O_RDONLY), 99))
attempt("thread", lambda: os.read(os.open(f"/proc/thread-self/fd/{path}", os.O_RDONLY), 99))
attempt("pid", lambda: os.read(os.open(f"/proc/{os.getpid()}/fd/{path}", os.O_RDONLY), 99))
attempt("dev", lambda: os.read(os.open(f"/dev/fd/{path}", os.O_RDONLY), 99))
folder = os.open(os.path.dirname(secret), os.O_PATH)
attempt("at", lambda: os.read(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=folder), 99))
attempt("proc", lambda: os.read(os.open(f"/proc/self/fd/{folder}/{os.path.basename(secret)}", os.O_RDONLY), 99))
attempt("link", lambda: check(libc.linkat(-100, f"/proc/self/fd/{path}".encode(), -100, b"alias", 0x400)))
attempt("empty", lambda: check(libc.linkat(path, b"", -100, b"alias", 0x1000)))
other = os.open(outside, os.O_PATH)
attempt("write", lambda: os.open(f"/proc/self/fd/{other}", os.O_WRONLY))
attempt("truncate", lambda: os.truncate(f"/proc/self/fd/{other}", 0))
attempt("chmod", lambda: os.chmod(f"/proc/self/fd/{other}", 0o777))
folder = os.open(os.path.dirname(outside), os.O_PATH)
attempt("create", lambda: os.open(os.path.basename(outside), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, dir_fd=folder))
