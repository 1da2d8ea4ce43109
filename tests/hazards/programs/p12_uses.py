"""P12: everything that an O_PATH descriptor is good for."""

import ctypes
import errno
import fcntl
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)


def word(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode[error.errno]


def execveat(descriptor, name):
    arguments = (ctypes.c_char_p * 2)(name, None)
    if libc.execveat(descriptor, b"", arguments, None, 0x1000) < 0:
        raise OSError(ctypes.get_errno(), "execveat")


os.mkdir("d")
open("d/x", "w").write("inside")
top = os.open("d", os.O_PATH | os.O_CLOEXEC)
print("flags", bool(fcntl.fcntl(top, fcntl.F_GETFL) & os.O_PATH), os.get_inheritable(top))
print("kept", fcntl.fcntl(top, fcntl.F_GETFD))
print("openat", word(lambda: os.read(os.open("x", os.O_RDONLY, dir_fd=top), 9)))
print("create", word(lambda: os.write(os.open("y", os.O_CREAT | os.O_WRONLY, dir_fd=top), b"new")))
print("rename", word(lambda: os.rename("y", "z", src_dir_fd=top, dst_dir_fd=top)), sorted(os.listdir("d")))
print("read", word(lambda: os.read(os.open("d/x", os.O_PATH), 9)))
print("write", word(lambda: os.write(os.open("d/x", os.O_PATH), b"x")))
print("fchmod", word(lambda: libc.fchmod(os.open("d/x", os.O_PATH), 0o600)))
print("again", word(lambda: os.read(os.open(f"/proc/self/fd/{os.open('d/x', os.O_PATH)}", os.O_RDONLY), 9)))
print("link", word(lambda: os.close(os.open("link", os.O_PATH | os.O_NOFOLLOW))))
os.symlink("d/x", "link")
descriptor = os.open("link", os.O_PATH | os.O_NOFOLLOW)
print("link", os.readlink("", dir_fd=descriptor), oct(os.fstat(descriptor).st_mode))
print("fchdir", word(lambda: os.fchdir(top)), sorted(os.listdir(".")), word(lambda: os.read(os.open("x", 0), 9)))
sys.stdout.flush()
pid = os.fork()
if not pid:
    execveat(os.open("/bin/echo", os.O_PATH), b"echo")
    os._exit(9)
print("execveat", os.waitpid(pid, 0)[1])
