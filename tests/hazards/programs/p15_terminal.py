"""P15: what the names of the terminal lead to, in its session and outside of it."""

import ctypes
import errno
import getpass
import os
import stat
import sys


def shown(name, flags=os.O_RDWR):
    try:
        descriptor = os.open(name, flags)
    except OSError as error:
        return errno.errorcode[error.errno]
    found = os.fstat(descriptor)
    same = found.st_rdev == os.fstat(0).st_rdev
    named = os.ttyname(descriptor) == os.ttyname(0)
    answer = f"{os.isatty(descriptor)} {same} {stat.S_IFMT(found.st_mode):o} {named}"
    os.close(descriptor)
    return answer


libc = ctypes.CDLL(None)
name = os.ttyname(0)
for path in ("/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/proc/self/fd/0", name):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC):
        print("tty", path.replace(name, "NAME"), flags, shown(path, flags))
print("foreground", os.tcgetpgrp(0) == os.getpgrp(), libc.tcgetsid(0) == os.getsid(0))
sys.stdout.flush()
pid = os.fork()
if not pid:
    os.setsid()  # no controlling terminal any more
    print("apart", shown("/dev/tty"))
    print("apart own", shown("/dev/stdin", os.O_RDWR | os.O_NOCTTY))
    print("apart still", shown("/dev/tty"))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)

print("password", getpass.getpass("Secret please: "))
print("end of it")
sys.stdin.readline()
