"""P99: unix sockets bound by relative names: what they are called afterwards, and their modes."""

import ctypes
import errno
import os
import socket
import threading

libc = ctypes.CDLL(None, use_errno=True)


def mode(path):
    return oct(os.lstat(path).st_mode)


os.makedirs("sub/deep")
os.chdir("sub")
for mask in (0o000, 0o022, 0o077, 0o177):
    os.umask(mask)
    for name in ("s.sock", "./dot.sock", "deep/../up.sock", "deep/d.sock", os.getcwd() + "/abs.sock"):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(name)
        server.listen(1)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(name)
        print(
            oct(mask),
            name.rsplit("/", 1)[1] if name[0] == "/" else name,
            server.getsockname() == name,
            client.getpeername() == name,
            mode(name),
        )
        for one in (server, client):
            one.close()
        os.unlink(name)
os.umask(0o022)


def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])


def bind(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.bind(path)
        return one.getsockname()


attempt("first", lambda: bind("again"))
attempt("again", lambda: bind("again"))
attempt("absent folder", lambda: bind("no/such"))
attempt("a file as folder", lambda: bind("/etc/passwd/x"))
os.symlink("nowhere", "dangling")
attempt("dangling", lambda: bind("dangling"))
attempt("slash", lambda: bind("slash/"))
attempt("long", lambda: bind("x" * 107))
attempt("twice", lambda: (lambda one: (one.bind("t1"), one.bind("t2")))(socket.socket(socket.AF_UNIX)))
attempt("raw bytes", lambda: bind(b"\xff\n\x1b"))
print(sorted(os.listdir(b".")))
# a thread with a directory and umask of its own
os.mkdir("mine")


def apart():
    print("unshare", libc.unshare(0x200))
    os.chdir("mine")
    os.umask(0o007)
    print("apart", bind("thread.sock"), mode("thread.sock"))


thread = threading.Thread(target=apart)
thread.start()
thread.join()
print("main", bind("main.sock"), mode("main.sock"), sorted(os.listdir("mine")))
# a directory that has lost its name
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
attempt("gone", lambda: bind("x.sock"))
