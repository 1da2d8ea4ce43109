"""P13: what each call answers when no descriptor is free, and what it leaves behind."""

import errno
import os
import resource

open("full", "w").write("as it was")
os.mkdir("d")
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
kept = []


def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])


try:
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print("filled", errno.errorcode[error.errno], len(kept))
attempt("read", lambda: os.open("full", os.O_RDONLY))
attempt("write", lambda: os.open("full", os.O_WRONLY))
attempt("create", lambda: os.open("new", os.O_CREAT | os.O_WRONLY, 0o600))
attempt("exclusive", lambda: os.open("newer", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
attempt("truncate", lambda: os.open("full", os.O_WRONLY | os.O_TRUNC))
attempt("directory", lambda: os.open("d", os.O_DIRECTORY))
attempt("nameless", lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
attempt("proc", lambda: os.open("/proc/self/stat", os.O_RDONLY))
attempt("mkdir", lambda: os.mkdir("still"))  # needs no descriptor
attempt("unlink", lambda: os.rmdir("still"))
os.close(kept.pop())
print("again", os.read(os.open("full", os.O_RDONLY), 99))
