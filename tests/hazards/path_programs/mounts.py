"""What the attackers in mount namespaces share, behind calls.py: a namespace of one's own, mounts in it, attempts."""

# ruff: noqa: F821 - NUMBERS and call are those of calls.py

import json
import mmap  # noqa: F401 - used by the programs that follow this head
import os
import platform
import socket
import threading  # noqa: F401

NEWNS, NEWUSER, NEWNET, NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000
RDONLY, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 0x20, 0x1000, 0x2000, 0x4000, 1 << 18
DETACH = 2
NUMBERS |= (
    {"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "fchdir": 81}
    if platform.machine() == "x86_64"
    else {"mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "fchdir": 50}
)


def enter(more=0):
    """A user and mount namespace of one's own, with all rights in it, as the same user."""
    uid, gid = os.getuid(), os.getgid()
    check("unshare", NEWUSER | NEWNS | more)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    mount("none", "/", 0, REC | PRIVATE)


def check(name, *arguments):
    result = call(name, *arguments)
    if result < 0:
        raise OSError(-result, f"{name} {arguments}")
    return result


def mount(source, target, kind, flags=0, data=0):
    check("mount", source, target, kind, flags, data)


def bind(source, target, flags=0):
    """`source` is also at `target`, which is made if need be."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount(source, target, 0, BIND | flags)


def child(act):
    """`act` in a process of its own: what it gives, as JSON, or the errno."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            result = act()
        except OSError as error:
            result = error.errno
        except BaseException as error:
            result = repr(error)
        os.write(write, json.dumps(result).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text or "null")


def shown(path, directory=None):
    """What a file holds, as text; or the errno."""
    try:
        descriptor = os.open(path, os.O_RDONLY, dir_fd=directory)
    except OSError as error:
        return error.errno
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode()


def spoilt(path, directory=None):
    """Add to a file: 0, or the errno."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND, dir_fd=directory)
    except OSError as error:
        return error.errno
    os.write(descriptor, b"evil\n")
    os.close(descriptor)
    return 0


def send(control, descriptor):
    socket.send_fds(control, [b"x"], [descriptor])


def receive(control):
    return socket.recv_fds(control, 1, 1)[1][0]
