"""What the record of an effect tells beside its name: what a rename replaced, which mode was set over which."""

from __future__ import annotations

import os

import pytest

SCRIPT = """
import ctypes, os
for name in "abcd":
    open(name, "w").close()
os.rename("a", "b")
os.rename("b", "e")
if ctypes.CDLL(None, use_errno=True).renameat2(-100, b"c", -100, b"d", 2):
    raise OSError(ctypes.get_errno(), "RENAME_EXCHANGE")
os.chmod("c", 0o4755)
os.chmod("c", 0o4755)
os.chown("c", os.getuid(), os.getgid())
os.setxattr("d", "user.\\udcff", b"1")
os.removexattr("d", "user.\\udcff")
"""


@pytest.mark.both_identities
def test_what_a_record_tells_beside(runner):
    result = runner.supervise([runner.identity.python, "-c", SCRIPT])
    assert result.status == 0, result
    made = {entry["path"]: entry["post"] for entry in result.decisions if entry["effect"] == "create"}
    told = [
        (os.path.basename(entry["path"]), entry["effect"], entry.get("extra"))
        for entry in result.decisions
        if entry["effect"] in ("rename", "chmod", "chown", "xattr", "utime")
    ]
    work = runner.work
    owner = f"{runner.identity.uid}:{runner.identity.gid}"
    before = f"{os.stat(work / 'e').st_mode:o}"[-3:]
    assert told == [
        ("a", "rename", {"to": f"{work}/b", "replaced": made[f"{work}/b"]}),
        ("b", "rename", {"to": f"{work}/e"}),
        ("c", "rename", {"to": f"{work}/d", "exchanged": made[f"{work}/d"]}),
        ("c", "chmod", {"mode": "4755", "was": f"0{before}"}),
        ("c", "utime", None),  # it had that mode already
        ("c", "chown", {"owner": owner, "was": owner}),  # which may take a set-id bit away
        ("d", "xattr", {"attribute": "user.\udcff", "removed": False}),
        ("d", "xattr", {"attribute": "user.\udcff", "removed": True}),
    ]
