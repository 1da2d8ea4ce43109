"""The names of effects: the words that profiles, records and people use.

One effect is one thing that a worker asks to do to one named object. `change` is the group of all that alter
a file tree, so that a rule which protects a file protects it from every verb (hazard P66).
"""

from __future__ import annotations

READ = "read"
WRITE = "write"
CREATE = "create"
TRUNCATE = "truncate"
RENAME = "rename"
LINK = "link"
SYMLINK = "symlink"
UNLINK = "unlink"
RMDIR = "rmdir"
MKDIR = "mkdir"
MKNOD = "mknod"
CHMOD = "chmod"
CHOWN = "chown"
UTIME = "utime"
XATTR = "xattr"
EXEC = "exec"
CONNECT = "connect"
BIND = "bind"
SEND = "send"

CHANGES = frozenset(
    {
        WRITE, CREATE, TRUNCATE, RENAME, LINK, SYMLINK, UNLINK, RMDIR,
        MKDIR, MKNOD, CHMOD, CHOWN, UTIME, XATTR, BIND,
    }
)  # fmt: skip
TO_PEERS = frozenset({CONNECT, SEND})  # what goes to another process: by a socket's path, or by HOST:PORT
EFFECTS = CHANGES | TO_PEERS | {READ, EXEC}
GROUPS = {"change": CHANGES, "any": EFFECTS}
ALONG = {TRUNCATE: "emptying it first", READ: "reading it too"}  # what a call that opens for writing may do besides
