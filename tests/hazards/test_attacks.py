"""Ways around the supervisor that a reviewer found: each is tried again here, and changes and shows nothing."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, Unchanged, attack, folder, give, same_as_native

pytestmark = pytest.mark.both_identities

HOLD = """
import threading
own = os.open("own", os.O_RDWR | os.O_CREAT, 0o600)
"""


def test_p26_a_held_descriptor_vouches_for_one_walk_only(runner: support.Runner) -> None:
    """Opening one's own descriptor again must not open the next file, whichever way that is walked."""
    profile = give(runner, runner.home / ".bashrc", b"# clean\n")
    with Unchanged(runner.home / ".bashrc"):
        found, _ = attack(
            runner,
            HOLD
            + """
import struct
for resolve in (1, 2, 4, 0x20):
    again = os.open(f"/proc/self/fd/{own}", os.O_RDWR)
    how = struct.pack("=3Q", os.O_WRONLY | os.O_APPEND, 0, resolve)
    note(str(resolve), word(call("openat2", AT_FDCWD, sys.argv[1], how, 24)))
report()
""",
            str(profile),
        )
    assert set(found.values()) <= {"EACCES", "EAGAIN"}, found


def test_p26_a_descriptor_that_changes_between_two_looks(runner: support.Runner) -> None:
    """A thread swaps what a number holds; another opens it for writing by /proc/self/fd."""
    profile = give(runner, runner.home / ".bashrc", b"# clean\n")
    with Unchanged(runner.home / ".bashrc"):
        attack(
            runner,
            HOLD
            + """
foreign = os.open(sys.argv[1], os.O_RDONLY)
stop = False
def swap():
    while not stop:
        os.dup2(foreign, 50); os.dup2(own, 50)
os.dup2(own, 50)
thread = threading.Thread(target=swap); thread.start()
for _ in range(1500):
    try: opened = os.open("/proc/self/fd/50", os.O_WRONLY | os.O_APPEND)
    except OSError: continue
    if os.path.samestat(os.fstat(opened), os.fstat(foreign)): os.write(opened, b"evil")
    os.close(opened)
stop = True; thread.join(); note("done", True); report()
""",
            str(profile),
        )


def test_p26_a_thread_with_a_table_of_its_own(runner: support.Runner) -> None:
    """/proc/self/fd is the leader's table: a thread's descriptor of the same number says nothing about it."""
    profile = give(runner, runner.home / ".bashrc", b"# clean\n")
    with Unchanged(runner.home / ".bashrc"):
        found, _ = attack(
            runner,
            HOLD
            + """
foreign = os.open(sys.argv[1], os.O_RDONLY)
os.dup2(foreign, 50)
def apart():
    libc = ctypes.CDLL(None, use_errno=True)
    note("apart", libc.unshare(0x400))
    os.dup2(own, 50)
    note("open", errno_of(os.open, "/proc/self/fd/50", os.O_WRONLY | os.O_APPEND))
thread = threading.Thread(target=apart); thread.start(); thread.join()
report()
""",
            str(profile),
        )
    assert found == {"apart": 0, "open": 13}


@pytest.mark.parametrize("flags", [0x20000, 0x10020000], ids=["mount", "mount+user"])
def test_p25_no_mount_namespace(runner: support.Runner, flags: int) -> None:
    """Names below the mounts of a namespace that ended would begin in the middle."""
    found, _ = attack(
        runner,
        f"""
libc = ctypes.CDLL(None, use_errno=True)
note("unshare", word(-ctypes.get_errno()) if libc.unshare({flags}) else "ok"); report()
""",
    )
    assert found == {"unshare": "EPERM"}


def test_p29_a_folder_of_the_session_brings_no_protected_file(runner: support.Runner) -> None:
    """Made in a folder of the session, moved to the top of the work tree: judged as where it arrives."""
    found, result = attack(
        runner,
        """
os.makedirs("a/.vscode"); make("a/.vscode/tasks.json", b"{}")
note("move", errno_of(os.rename, "a/.vscode", ".vscode"))
report()
""",
    )
    assert found == {"move": 13}
    assert not (runner.work / ".vscode").exists()
    assert result.denied()


@pytest.mark.parametrize("name", [".vscode", ".claude", ".zed", ".idea", ".cursor"])
def test_p29_no_link_puts_a_folder_under_a_guarded_name(runner: support.Runner, name: str) -> None:
    """A symbolic link of the folder's name, made there or moved there."""
    found, _ = attack(
        runner,
        """
os.mkdir("v"); make("v/tasks.json", b"{}"); make("v/settings.json", b"{}")
note("link", errno_of(os.symlink, "v", sys.argv[1]))
os.symlink("v", "innocent"); note("move", errno_of(os.rename, "innocent", sys.argv[1])); report()
""",
        name,
    )
    assert found == {"link": 13, "move": 13}
    assert not os.path.lexists(runner.work / name)


def test_p86_no_repository_in_a_folder_that_was_there(runner: support.Runner) -> None:
    """HEAD, objects and refs make any folder a repository with its own configuration; so does a `.git` file."""
    folder(runner, runner.work / "lib")
    give(runner, runner.work / "old/notes", b"the user's\n")
    found, _ = attack(
        runner,
        """
os.makedirs("lib/objects"); os.makedirs("lib/refs")
note("head", errno_of(os.open, "lib/HEAD", os.O_WRONLY | os.O_CREAT, 0o644))
for name in ("../old", "/etc", os.path.expanduser("~")):  # it gets no name, whatever it leads to
    with open("lib/.git", "wb") as file:
        file.write(b"gitdir: " + name.encode() + b"\\n")
    note(name, errno_of(os.lstat, "lib/.git"))
note("link", errno_of(os.symlink, "../v", "lib/.git"))
os.makedirs("q/objects"); os.makedirs("q/refs")
make("q/HEAD", b"ref: refs/heads/m\\n"); make("q/config", b"[core]\\n\\tfsmonitor = /evil\\n")
note("exchange", word(call("renameat2", AT_FDCWD, "q", AT_FDCWD, "old", EXCHANGE)))
os.rename("old", "aside")
note("in its place", errno_of(os.rename, "q", "old"))
note("a link there", errno_of(os.symlink, "q", "old"))
os.mkdir("old"); os.mkdir("old/objects")
note("made there", errno_of(os.open, "old/HEAD", os.O_WRONLY | os.O_CREAT, 0o644))
report()
""",
    )
    assert found == {
        "head": 13,
        **dict.fromkeys(("../old", "/etc", str(runner.home)), errno.ENOENT),
        "link": 13,
        "exchange": "EACCES",
        "in its place": 13,
        "a link there": 13,
        "made there": 13,
    }


def test_p86_a_clone_of_the_session_works(runner: support.Runner) -> None:
    """The other side: new repositories, bare ones too, in folders that the session makes."""
    result = runner.supervise(
        [
            "sh",
            "-ec",
            "git init -q --bare remote; git clone -q remote here 2>/dev/null; cd here;"
            "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; git push -q origin HEAD;"
            "git worktree add -q ../wt; cd ../wt; git status -s",
        ]
    )
    assert result.status == 0, result
    assert not result.denied(), result.denied()


def test_p28_a_removed_name_does_not_hide_a_secret(runner: support.Runner) -> None:
    """`.env` with a second name from before: pinned, its name removed, read through the pin."""
    give(runner, runner.work / ".env", SECRET)
    elsewhere = folder(runner, runner.base / "elsewhere")
    os.link(runner.work / ".env", elsewhere / "copy")
    found, _ = attack(
        runner,
        """
pin = os.open(".env", os.O_PATH)
os.unlink(".env")
note("read", open(f"/proc/self/fd/{pin}").read().split(":")[0].strip("# ")); report()
""",
    )
    assert found == {"read": "pincer"}


def test_p85_a_configuration_with_a_second_name_is_not_judged(runner: support.Runner) -> None:
    """By its other name it could be changed after the rename."""
    runner.native(["git", "init", "-q"])
    before = (runner.work / ".git/config").read_bytes()
    found, _ = attack(
        runner,
        """
make("c.lock", open(".git/config", "rb").read())
os.link("c.lock", "alias")
note("rename", errno_of(os.rename, "c.lock", ".git/config")); report()
""",
    )
    assert found == {"rename": 13}
    assert (runner.work / ".git/config").read_bytes() == before


@pytest.mark.parametrize("call", ['"setpriority", 2, 0, 19', '"setpriority", 1, 0, 19', '"ioprio_set", 3, 0, 0x6000'])
def test_p69_no_group_with_others_in_it(runner: support.Runner, call: str) -> None:
    """`who` 0 with a group or a user means more processes than the caller."""
    found, _ = attack(runner, f"note('call', word(call({call}))); report()")
    assert found == {"call": "EPERM"}


def test_p90_a_forest_of_links_stops_nobody(runner: support.Runner) -> None:
    """Thousands of components through /proc/self: the walk has a budget for the whole call."""
    found, _ = attack(
        runner,
        """
import time
os.mkdir("x")
for n in range(35): os.symlink("x/../" * 800 + f"c{n + 1}", f"c{n}")
os.symlink("/proc/self/cwd", "c35")
os.symlink("c0/l", "l")
began = time.monotonic()
note("open", errno_of(os.open, "l", os.O_WRONLY | os.O_CREAT, 0o600))
note("soon", time.monotonic() - began < 3.0); report()
""",
    )
    assert found == {"open": 40, "soon": True}


def test_p77_binding_what_is_no_socket(runner: support.Runner) -> None:
    """The kernel's own errno, and no descriptor of the engine for each try: it may have 200 of them here."""
    found, _ = attack(
        runner,
        """
address = (1).to_bytes(2, "little") + b"name\\0"
libc = ctypes.CDLL(None, use_errno=True)
f = os.open("f", os.O_RDWR | os.O_CREAT)
seen = set()
for _ in range(400): libc.bind(f, address, len(address)); seen.add(word(-ctypes.get_errno()))
note("errnos", sorted(seen)); note("after", errno_of(os.open, "g", os.O_RDWR | os.O_CREAT)); report()
""",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    )
    assert found == {"errnos": ["ENOTSOCK"], "after": 0}


class Mounted(support.Identity):
    """Starts everything in a mount namespace in which `source` is also seen at `goal`."""

    def __init__(self, who: support.Identity, source: Path, goal: Path) -> None:
        super().__init__(who.name, who.uid, who.gid, who.python)
        self.source, self.goal = source, goal

    @property
    def switch(self) -> list[str]:
        line = 'mount --bind "$0" "$1" && shift && exec "$@"'
        return ["unshare", "-m", "sh", "-c", line, str(self.source), str(self.goal), *super().switch]


def test_p25_a_second_mount_from_before_shows_no_secret(runner: support.Runner) -> None:
    """The user's home is mounted at another place too: protected names are protected there."""
    goal = folder(runner, runner.work / "elsewhere")
    give(runner, runner.home / ".ssh/id_rsa", SECRET)
    give(runner, runner.home / ".bashrc", b"# clean\n")
    runner.identity = Mounted(runner.identity, runner.home, goal)
    if b"clean" not in runner.native(["cat", "elsewhere/.bashrc"]).stdout:
        pytest.skip("no mount namespace can be made here")
    with Unchanged(runner.home / ".bashrc", runner.home / ".ssh"):
        result = runner.supervise(["sh", "-c", "cat elsewhere/.ssh/id_rsa; echo evil >>elsewhere/.bashrc"])
    assert SECRET not in result.stdout
    assert len(result.denied()) == 2


def test_p81_no_profile_for_the_next_run(runner: support.Runner) -> None:
    """The work tree is the home, which has no ~/.config: it cannot be linked to a folder with a profile in it."""
    give(runner, runner.home / ".bashrc", b"# clean\n")
    runner.work = runner.home
    attempt = """
os.makedirs("x/pincer-trace/profiles")
lines = ["[[rule]]", 'effects = ["read", "change", "exec"]', 'paths = ["/**"]', 'verdict = "allow"', 'reason = "mine"']
make("x/pincer-trace/profiles/default.toml", "\\n".join(lines).encode())
note("link", errno_of(os.symlink, "x", ".config"))
note("move", errno_of(os.rename, "x", ".config")); report()
"""
    found, _ = attack(runner, attempt)
    assert found["link"] == 13
    with Unchanged(runner.home / ".bashrc"):
        second = runner.supervise(["sh", "-c", "echo evil >>.bashrc"])
    assert second.denied(runner.home / ".bashrc"), second


def test_p28_many_descriptors_do_not_stop_the_search_for_names(runner: support.Runner) -> None:
    """The first file with two names starts a search, which must not walk through what the worker made in /proc."""
    found, _ = attack(
        runner,
        """
import threading, time
threading.stack_size(65536); over = threading.Event()
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
threads = [threading.Thread(target=over.wait) for _ in range(600)]
for one in threads: one.start()
make("one"); os.link("one", "two"); began = time.monotonic()
note("write", errno_of(os.open, "two", os.O_WRONLY)); note("soon", time.monotonic() - began < 1.5)
over.set(); report()
""",
    )
    assert found == {"write": 0, "soon": True}


def test_p19_flags_that_the_kernel_ignores(runner: support.Runner) -> None:
    """Bits that mean nothing to open and openat change nothing."""
    found = same_as_native(
        runner,
        """
make("there", b"x")
for turn in (1, 2): note(f"read {turn}", word(call("openat", AT_FDCWD, "there", 0x80000000)))
note("make", word(call("openat", AT_FDCWD, "new", 0x80000000 | os.O_CREAT | os.O_WRONLY, 0o600)))
note("high", word(call("openat", AT_FDCWD, "there", 1 << 40))); report()
""",
    )
    assert set(found.values()) == {"ok"}
