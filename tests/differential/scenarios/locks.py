# flock, lockf and OFD locks between processes (P16, P72).
# needs: flock
import errno
import fcntl
import os
import subprocess

with open("lock", "w") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    print(subprocess.run(["flock", "-n", "lock", "true"]).returncode)
    fcntl.flock(held, fcntl.LOCK_UN)
    print(subprocess.run(["flock", "-n", "lock", "true"]).returncode)
again = 0
for _ in range(500):
    one = os.open("lock", os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(one)
    two = os.open("lock", os.O_RDWR)
    try:
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        again += 1
    os.close(two)
print("lock, close, lock again refused", again)
with open("lock", "r+") as held:
    fcntl.lockf(held, fcntl.LOCK_EX)
    if os.fork() == 0:
        with open("lock", "r+") as other:
            try:
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os._exit(1 if error.errno in (errno.EAGAIN, errno.EACCES) else 2)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    with open("lock"):
        pass  # closing any descriptor of the file drops our POSIX lock
    if os.fork() == 0:
        with open("lock", "r+") as other:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
waiting = subprocess.Popen(["flock", "lock", "sh", "-c", "echo got > got"])
print(waiting.wait())
running = 0
for _ in range(300):
    with open("prog", "wb") as stream:
        stream.write(b"#!/bin/sh\nexit 0\n")
    os.chmod("prog", 0o755)
    running += subprocess.run(["./prog"]).returncode
print("write, close, exec", running)
