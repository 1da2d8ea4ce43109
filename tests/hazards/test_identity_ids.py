"""Acting as the caller: umask, groups, ids, capabilities, readability. Hazards P18, P65, P92, P93."""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, attack, folder, give, notes, python, same_as_native
from hazards.programs.p_kit import new_sessions

import pincer_trace

pytestmark = pytest.mark.both_identities

MASKS = """
import socket, threading
for mask in (0o000, 0o022, 0o027, 0o077, 0o777, 0o002):
    os.umask(mask)
    for mode in (0o777, 0o666, 0o600, 0o4755, 0o2755, 0o1777, 0o7777, 0):
        tail = f"-{mask:o}-{mode:o}"
        note("open" + tail, word(call("openat", AT_FDCWD, "open" + tail, os.O_CREAT | os.O_WRONLY, mode)))
        note("mkdir" + tail, word(call("mkdirat", AT_FDCWD, "mkdir" + tail, mode)))
        note("mknod" + tail, word(call("mknodat", AT_FDCWD, "mknod" + tail, stat.S_IFREG | mode, 0)))
        note("fifo" + tail, word(call("mknodat", AT_FDCWD, "fifo" + tail, stat.S_IFIFO | mode, 0)))
        how = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (os.O_CREAT | os.O_WRONLY, mode, 0)), 24)
        note("openat2" + tail, word(call("openat2", AT_FDCWD, "openat2" + tail, how, 24)))
    made = socket.socket(socket.AF_UNIX); made.bind(f"sock-{mask:o}"); made.close()
os.umask(0o022)
def there():
    os.umask(0o077); make("thread", b"", 0o666)
thread = threading.Thread(target=there); thread.start(); thread.join()
make("main", b"", 0o666)
if os.fork() == 0:
    os.umask(0); make("child", b"", 0o666); os._exit(0)
os.wait(); make("after", b"", 0o666)
report()
"""


def test_p18_every_create_honours_the_callers_umask(runner: support.Runner) -> None:
    """Also of another thread (shared) and a child (its own); the tree comparison holds the modes."""
    same_as_native(runner, MASKS)
    assert (runner.work / "main").stat().st_mode & 0o777 == 0o600


def test_p18_setgid_directories_and_default_acls(runner: support.Runner) -> None:
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is missing (Debian package acl)")

    def setup() -> None:
        shared = folder(runner, runner.work / "shared", 0o755)
        if os.geteuid() == 0:
            os.chown(shared, runner.identity.uid, 54321)
        shared.chmod(0o2777)
        ruled = folder(runner, runner.work / "ruled")
        done = subprocess.run(["setfacl", "-d", "-m", "u::rwx,g::rx,o::-,u:12345:rw", str(ruled)], capture_output=True)
        if done.returncode:
            pytest.skip("no ACLs on this file system")

    same_as_native(
        runner,
        """
import socket
os.umask(0o077)
for where in ("shared", "ruled"):
    make(where + "/f", b"", 0o666); os.mkdir(where + "/d"); os.mkfifo(where + "/p", 0o666); make(where + "/d/f", b"", 0o666)
    socket.socket(socket.AF_UNIX).bind(where + "/s")
    note(where, [oct(os.stat(where + "/" + name).st_mode) for name in "fdps"])
    note(where + " group", [os.stat(where + "/" + name).st_gid for name in "fdps"])
    note(where + " chmod", [word(call("fchmodat", AT_FDCWD, where + "/f", 0o2755)), oct(os.stat(where + "/f").st_mode)])
report()
""",
        setup=setup,
    )


def test_p18_a_user_namespace_gives_no_rights_outside_of_it(runner: support.Runner) -> None:
    """`unshare -Ur`: uid 0 inside, the user's own outside; creates belong to the user as natively."""
    probe = runner.native(["unshare", "-Ur", "true"])
    if probe.status:
        pytest.skip("no user namespaces here")
    found = []
    for run in (runner.native, runner.supervise):
        runner.fresh()
        folder(runner, runner.work / "locked", 0o755)
        if os.geteuid() == 0:
            os.chown(runner.work / "locked", 12345, 12345)
        (runner.work / "locked").chmod(0o700)
        done = run(
            [
                "unshare",
                "-Ur",
                "sh",
                "-c",
                "touch x; mkdir d; id -u; touch locked/y; chown 1 x; chmod 4755 x; stat -c '%a %u' x",
            ]
        )
        found.append((done.out, support.snapshot(runner.work)))
    assert found[0] == found[1]
    assert "\n" in found[1][0] and found[1][0].startswith("0")


def test_p18_chown_and_setid_bits_as_native(runner: support.Runner) -> None:
    same_as_native(
        runner,
        """
make("f", b"x"); os.chmod("f", 0o6755)
for uid, gid in ((-1, -1), (os.getuid(), os.getgid()), (0, 0), (12345, -1), (-1, 12345), (12345, 12345)):
    os.chmod("f", 0o6755) if os.stat("f").st_uid == os.getuid() or os.getuid() == 0 else 0
    note(f"{uid} {gid}", [word(call("fchownat", AT_FDCWD, "f", uid, gid, 0)), oct(os.stat("f").st_mode), os.stat("f").st_uid])
os.symlink("f", "l")
note("link", word(call("fchownat", AT_FDCWD, "l", os.getuid(), os.getgid(), AT_SYMLINK_NOFOLLOW)))
d = os.open("f", os.O_RDWR) if os.access("f", os.W_OK) else -1
if d >= 0: os.write(d, b"y")
note("written", oct(os.stat("f").st_mode))
report()
""",
    )


ROOT_ONLY = "as root only: another identity cannot drop anything"


def private(runner: support.Runner) -> str:
    """A file that only uid 0 may read, in a folder that all may enter."""
    if runner.identity.uid != 0:
        pytest.skip(ROOT_ONLY)
    path = give(runner, runner.work / "private", SECRET, 0o600)
    runner.work.chmod(0o777)
    return str(path)


@pytest.mark.parametrize(
    "drop", ["--reuid=12345 --clear-groups", "--reuid=12345 --regid=12345 --clear-groups", "--reuid=12345 --groups=0"]
)
def test_p93_dropped_ids_read_nothing_of_roots(runner: support.Runner, drop: str) -> None:
    path = private(runner)
    give(runner, runner.work / "group", b"group\n", 0o640)
    line = f"setpriv {drop} cat private group; setpriv {drop} sh -c 'echo evil >private; echo n >new; rm -f private/x; chmod 777 private'"
    results = []
    for run in (runner.native, runner.supervise):
        result = run(["sh", "-c", line + "; stat -c '%U %u %g %a' new; cat private"])
        results.append((result.stdout, result.stderr.count(b"\n")))
        os.unlink(runner.work / "new")
    assert results[0] == results[1]
    with open(path, "rb") as stream:
        assert stream.read() == SECRET


def test_p93_every_way_to_change_ids(runner: support.Runner) -> None:
    """setuid, seteuid, setfsuid, setgroups, in a thread alone, and back again; each call as its caller."""
    private(runner)
    same_as_native(
        runner,
        """
import threading
SET = {"setfsuid": 122, "setfsgid": 123, "setresuid": 117} if platform.machine() == "x86_64" else {"setfsuid": 151, "setfsgid": 152, "setresuid": 147}
NUMBERS.update(SET)
os.chmod(".", 0o777)
make("root", b"secret", 0o600); make("grp", b"g", 0o640); os.chown("grp", 0, 777)
def look(label):
    note(label, [word(call("openat", AT_FDCWD, name, flags, 0)) for name in ("root", "grp") for flags in (os.O_RDONLY, os.O_RDWR)]
         + [word(call("fchmodat", AT_FDCWD, "root", 0o600)), word(call("mkdirat", AT_FDCWD, label.replace(" ", "_"), 0o755)),
            os.stat(label.replace(" ", "_")).st_uid])
look("start")
os.seteuid(12345); look("seteuid"); os.seteuid(0); look("back")
call("setfsuid", 12345); look("setfsuid"); call("setfsuid", 0); look("fs back")
os.setgroups([777]); os.seteuid(12345); look("groups"); os.seteuid(0); os.setgroups([])
def alone():
    call("setresuid", 12345, 12345, 12345); look("thread")
thread = threading.Thread(target=alone); thread.start(); thread.join(); look("leader")
if os.fork() == 0:
    os.setgid(12345); os.setuid(12345); look("child"); report(); os._exit(0)
os.wait(); look("parent")
# the notes of the child were printed by it
report()
""",
    )


def test_p93_dropped_capabilities_count(runner: support.Runner) -> None:
    """uid 0 without CAP_DAC_OVERRIDE opens nothing of other users."""
    if runner.identity.uid != 0:
        pytest.skip(ROOT_ONLY)
    path = give(runner, runner.work / "theirs", SECRET, 0o600)
    os.chown(path, 12345, 12345)
    drop = "setpriv --bounding-set=-dac_override,-dac_read_search,-fowner,-chown --inh-caps=-all"
    line = f"{drop} sh -c 'cat theirs; echo evil >theirs; chmod 777 theirs; chown 0 theirs'; stat -c '%a %u' theirs"
    native, ours = runner.native(["sh", "-c", line]), runner.supervise(["sh", "-c", line])
    assert native.out == ours.out == "600 12345\n"
    assert native.err.count("\n") == ours.err.count("\n") == 4, ours


def test_p65_a_program_that_cannot_be_read_does_not_run(runner: support.Runner) -> None:
    """As root too it is refused or supervised, never unsupervised."""
    copy = runner.work / "blind"
    shutil.copy("/bin/cat", copy)
    copy.chmod(0o711 if os.geteuid() == 0 else 0o111)  # its owner must not be able to read it either
    if os.geteuid() == 0:
        os.chown(copy, 12345, 12345)
    secret = give(runner, runner.home / ".ssh/id_ed25519", SECRET, 0o600)
    result = runner.supervise(["sh", "-c", f"./blind {secret}; ./blind /etc/passwd >/dev/null && echo ran"])
    assert SECRET not in result.stdout
    if runner.identity.uid:
        assert "ran" not in result.out
        reasons = [entry["reason"] for entry in result.denied(copy)]
        assert len(reasons) == 2 and all("read" in reason for reason in reasons), result.denied()
    else:
        assert "ran" in result.out, result


def test_p92_an_undumpable_task_stays_supervised(runner: support.Runner) -> None:
    give(runner, runner.home / ".ssh/id_ed25519", SECRET, 0o600)
    found, result = attack(
        runner,
        """
note("prctl", word(call("prctl", 4, 0, 0, 0, 0)))
note("junk", word(call("prctl", 4 | 1 << 40, 0, 0, 0, 0)))
note("open", word(call("openat", AT_FDCWD, "/etc/passwd", os.O_RDONLY, 0)))
note("create", word(call("openat", AT_FDCWD, "f", os.O_CREAT | os.O_WRONLY, 0o600)))
note("secret", word(call("openat", AT_FDCWD, sys.argv[1], os.O_RDONLY, 0)))
note("child", os.spawnlp(os.P_WAIT, "true", "true"))
report()
""",
        str(runner.home / ".ssh/id_ed25519"),
    )
    assert found == {"prctl": "ok", "junk": "ok", "open": "ok", "create": "ok", "secret": "EACCES", "child": 0}
    assert result.denied(runner.home / ".ssh/id_ed25519")


def test_p92_ssh_agent(runner: support.Runner) -> None:
    """It makes itself undumpable, binds a socket and is asked."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is missing (Debian package openssh-client)")
    line = "eval $(ssh-agent -a $PWD/agent) >/dev/null && test -S agent && ssh-add -l; ssh-agent -k >/dev/null"
    result = runner.supervise(["sh", "-c", line])
    assert result.status == 0 and result.out == "The agent has no identities.\n", result


def test_p18_files_of_a_session_belong_to_the_user(runner: support.Runner) -> None:
    """What runs as another id inside makes files of that id."""
    if runner.identity.uid != 0:
        pytest.skip(ROOT_ONLY)
    runner.work.chmod(0o777)
    result = runner.supervise(
        python(
            runner,
            "os.setgid(23456); os.setuid(12345); make('f', b'x'); os.mkdir('d'); os.symlink('x', 'l')\n"
            "note('ids', [[os.lstat(n).st_uid, os.lstat(n).st_gid] for n in 'fdl'])\nreport()",
        )
    )
    assert notes(result) == {"ids": [[12345, 23456]] * 3}


def test_p93_a_root_that_is_none_after_its_next_exec(runner: support.Runner) -> None:
    """SECBIT_NOROOT: the ids stay those of root, and the capabilities are gone with an exec that changes no id."""
    if runner.identity.uid != 0:
        pytest.skip(ROOT_ONLY)

    def setup() -> None:
        path = give(runner, runner.work / "closed", b"another's\n", 0o000)
        os.chown(path, 61234, 61234)
        runner.work.chmod(0o777)

    found = same_as_native(
        runner,
        """
import subprocess
if not sys.argv[1:]:
    os.close(os.open("closed", os.O_RDONLY))
    note("bits", call("prctl", 28, 1 | 4, 0, 0, 0))
    inner = "import os, sys\\nfor flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDONLY):\\n try: os.open('closed', flags)\\n"
    inner += " except OSError as error: print('refused', error.errno, file=sys.stderr)\\n else: sys.exit(7)"
    note("after", subprocess.run([sys.executable, "-I", "-c", inner]).returncode)
report()
""",
        setup=setup,
    )
    assert found == {"bits": 0, "after": 0}


LATE = """
import socket
os.setgroups([]); os.setgid(61234); os.setuid(61234)
note("library", word(-errno_of(os.listdir, sys.argv[1])))
note("view", b"pincer:" in open(".env", "rb").read())
stub = socket.socket(); note("stub", word(-errno_of(stub.connect, ("127.224.0.1", 53))))
report()
"""


def test_p18_what_is_imported_late_is_read_by_our_own_ids(runner: support.Runner) -> None:
    """Views and names of hosts, first used by a program of other ids, which cannot read where the supervisor lies."""
    if runner.identity.uid:
        pytest.skip("only root changes ids")
    library = folder(runner, runner.base / "library", 0o700)
    source = Path(pincer_trace.__file__).parents[1]
    for name in ("pincer_trace", "profiles"):
        shutil.copytree(source / name, library / name, ignore=shutil.ignore_patterns("__pycache__"))
    give(runner, runner.work / ".env", b"TOKEN=0123456789abcdef\n")
    runner.work.chmod(0o777)
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pincer_trace.__main__ import main; sys.exit(main())"
    ours = [runner.identity.python, "-I", "-c", start, str(library), "--session-dir", str(new_sessions(runner))]
    found = notes(runner.native([*ours, "--quiet", "--", *python(runner, LATE, str(library))]))
    assert found == {"library": "EACCES", "view": True, "stub": "ok"}
