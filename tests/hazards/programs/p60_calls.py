"""P60: thirty kinds of calls, allowed, denied and failing, N rounds for each line N of standard input."""

import ctypes
import os
import socket
import sys

libc = ctypes.CDLL(None)
os.makedirs("d", exist_ok=True)
open("f", "w").write("x")


def attempt(act):
    try:
        return act()
    except OSError:
        return None


def close(number):
    if number is not None and number >= 0:
        os.close(number)


def child():
    pid = os.fork()
    if not pid:
        close(os.open("f", os.O_RDONLY))
        os.chdir("d")
        close(os.open("../f", os.O_RDONLY))
        os._exit(0)
    os.waitpid(pid, 0)


def bind():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s")
    os.unlink("s")


def relative():
    top = os.open("d", os.O_RDONLY)
    close(os.open("../f", os.O_RDONLY, dir_fd=top))
    attempt(lambda: os.mkdir("sub", dir_fd=top))
    attempt(lambda: os.rmdir("sub", dir_fd=top))
    os.fchmod(top, 0o755)
    close(top)


acts = [
    lambda: close(os.open("f", os.O_RDONLY)),
    lambda: close(os.open("f", os.O_RDWR)),
    lambda: close(os.open("f", os.O_WRONLY | os.O_TRUNC)),
    lambda: (close(os.open("g", os.O_CREAT | os.O_EXCL | os.O_WRONLY)), os.unlink("g")),
    lambda: close(attempt(lambda: os.open(sys.argv[1], os.O_RDONLY))),
    lambda: close(attempt(lambda: os.open(sys.argv[2], os.O_WRONLY))),
    lambda: attempt(lambda: os.open("no/such", os.O_RDONLY)),
    lambda: attempt(lambda: os.open("no/such", os.O_CREAT | os.O_WRONLY)),
    lambda: (os.mkdir("m"), os.rename("m", "n"), os.rmdir("n")),
    lambda: (os.symlink("f", "l"), close(os.open("l", os.O_RDONLY)), os.unlink("l")),
    lambda: (os.link("f", "k"), os.unlink("k")),
    lambda: (os.chmod("f", 0o600), os.utime("f"), os.truncate("f", 3)),
    lambda: attempt(lambda: os.chmod(sys.argv[2], 0o600)),
    lambda: attempt(lambda: os.unlink(sys.argv[2])),
    lambda: attempt(lambda: os.rename("f", sys.argv[2])),
    lambda: (os.setxattr("f", "user.x", b"1"), os.removexattr("f", "user.x")),
    lambda: close(os.open("/proc/self/stat", os.O_RDONLY)),
    lambda: close(os.open("/proc/thread-self/comm", os.O_RDWR)),
    lambda: close(attempt(lambda: os.open("/dev/tty", os.O_RDWR))),
    lambda: close(os.open("/dev/null", os.O_RDWR)),
    lambda: close(os.open(".", os.O_TMPFILE | os.O_RDWR)),
    child,
    bind,
    relative,
    lambda: (os.mkfifo("p"), close(os.open("p", os.O_RDWR | os.O_NONBLOCK)), os.unlink("p")),
    lambda: [close(one) for one in os.openpty()],
    lambda: (os.chdir("d"), os.chdir("..")),
    lambda: os.umask(os.umask(0o27)),
    lambda: attempt(lambda: os.open("f/x", os.O_RDONLY)),
    lambda: attempt(lambda: os.listxattr("f")),
    lambda: os.listdir("."),
    lambda: libc.open(None, 0),
    lambda: libc.mkdir(ctypes.c_void_p(8), 0),
]


def rounds(count):
    for _ in range(count):
        for act in acts:
            act()


for line in sys.stdin:
    rounds(int(line))
    print("done")
    sys.stdout.flush()
