"""Ways around the supervisor that a reviewer found, by links and by other places where the same things are shown."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import SECRET, Unchanged, attack, folder, give, notes, python, same_as_native

pytestmark = pytest.mark.both_identities

REPOSITORY = """
def repository(name):
    os.makedirs(name + "/objects"); os.makedirs(name + "/refs")
    make(name + "/HEAD", b"ref: refs/heads/m\\n"); make(name + "/config", b"[core]\\n\\tbare = false\\n")
def away(name):
    os.rename(name, name + ".away")
"""

# Each ends with something of the session's in the place of the user's folder `old`, or below it.
IN_PLACE = {
    "a link": "repository('q'); away('old'); tried = errno_of(os.symlink, 'q', 'old')",
    "a link that is moved": "repository('q'); os.symlink('q', 'l'); away('old')\n"
    "tried = errno_of(os.rename, 'l', 'old')",
    "a second name of a link": "repository('q'); os.symlink('q', 'l'); away('old')\n"
    "tried = errno_of(os.link, 'l', 'old', follow_symlinks=False)",
    "a link exchanged with it": "repository('q'); os.symlink('q', 'l')\n"
    "tried = -call('renameat2', AT_FDCWD, 'l', AT_FDCWD, 'old', EXCHANGE)",
    "a folder exchanged with a link": "repository('q'); os.symlink('q', 'l')\n"
    "tried = -call('renameat2', AT_FDCWD, 'old', AT_FDCWD, 'l', EXCHANGE)",
    "a link in a folder that is moved": "repository('q'); away('top'); os.mkdir('new'); os.symlink('../q', 'new/old')\n"
    "tried = errno_of(os.rename, 'new', 'top')",
    "a link behind the link": "repository('q'); os.mkdir('r'); os.symlink('../q', 'r/sub'); away('old')\n"
    "tried = errno_of(os.symlink, 'r', 'old')",
    "made later where the link leads": "os.makedirs('own/q'); away('old'); os.symlink('own/q', 'old')\n"
    "tried = errno_of(os.open, 'own/q/HEAD', os.O_WRONLY | os.O_CREAT)",
    "moved later to where the link leads": "os.makedirs('own/q'); away('old'); os.symlink('own/q', 'old')\n"
    "repository('r'); os.rename('own', 'own2'); os.mkdir('other'); os.rename('r', 'other/q')\n"
    "tried = errno_of(os.rename, 'other', 'own')",
    "led elsewhere by a link in the middle": "os.makedirs('x/q'); os.symlink('x', 'l'); away('old')\n"
    "os.symlink('l/q', 'old'); os.mkdir('y'); repository('y/q'); os.unlink('l')\n"
    "tried = errno_of(os.symlink, 'y', 'l')",
    "by way of /proc": "repository('q'); away('old'); tried = errno_of(os.symlink, '/proc/self/cwd/q', 'old')",
    "over the emptied folder": "os.rename('old/data', 'data'); os.mkdir('q'); os.rename('q', 'old')\n"
    "tried = errno_of(os.open, 'old/HEAD', os.O_WRONLY | os.O_CREAT)",
    "where the user's link led": "repository('q'); os.unlink('current'); tried = errno_of(os.symlink, 'q', 'current')",
    "moved over the user's link": "repository('q'); os.symlink('q', 'l'); tried = errno_of(os.rename, 'l', 'current')",
    "made where the user's link was": "os.unlink('current'); os.mkdir('current')\n"
    "tried = errno_of(os.open, 'current/HEAD', os.O_WRONLY | os.O_CREAT)",
}


@pytest.mark.parametrize("way", IN_PLACE)
def test_p29_nothing_takes_the_place_of_a_folder(runner: support.Runner, way: str) -> None:
    """By a link that arrives at its name, by whatever call, what the link leads to would be in that folder's place."""
    for name in ("old", "top/old"):
        give(runner, runner.work / name / "data", b"the user's\n")
    (runner.work / "current").symlink_to("top")
    os.chown(runner.work / "current", runner.identity.uid, runner.identity.gid, follow_symlinks=False)
    found, result = attack(runner, f"{REPOSITORY}\n{IN_PLACE[way]}\nnote('tried', tried); report()")
    assert found == {"tried": 13}
    assert result.denied()
    for place in ("old", "old/sub", "top/old", "current"):
        assert not (runner.work / place / "HEAD").exists(), place


def test_p29_harmless_links_take_the_place_of_folders(runner: support.Runner) -> None:
    """The other side: what package managers and people do with links where folders were."""

    def setup() -> None:
        give(runner, runner.work / "old/data", b"the user's\n")
        give(runner, runner.work / "node_modules/dep/index.js")
        give(runner, runner.work / "packages/app/index.js")
        give(runner, runner.work / "node_modules/dep/.vscode/settings.json")
        (runner.work / "current").symlink_to("old")
        os.chown(runner.work / "current", runner.identity.uid, runner.identity.gid, follow_symlinks=False)

    found = same_as_native(
        runner,
        """
import shutil
os.makedirs("build/one"); make("build/one/file")
shutil.rmtree("node_modules"); os.mkdir("node_modules")
note("package", errno_of(os.symlink, "../packages/app", "node_modules/app"))
note("store", errno_of(os.symlink, "../build/one", "node_modules/one"))
os.symlink("build", "next"); note("current", errno_of(os.rename, "next", "current"))
os.unlink("current"); note("again", errno_of(os.symlink, "old", "current"))
os.rename("old", "aside"); note("aside", errno_of(os.symlink, "aside", "old"))
note("below", errno_of(os.open, "old/new", os.O_WRONLY | os.O_CREAT))
note("system", errno_of(os.symlink, "/usr/share", "node_modules/share"))
os.makedirs("made/here"); os.rename("made", "moved"); os.symlink("moved", "made")
note("own", errno_of(os.open, "made/here/HEAD", os.O_WRONLY | os.O_CREAT)); report()
""",
        setup=setup,
    )
    assert set(found.values()) == {0}


def link(runner: support.Runner, path: Path, text: str) -> None:
    """A symbolic link (with its folders) that belongs to the identity of the test."""
    give(runner, path).unlink()
    path.symlink_to(text)
    os.chown(path, runner.identity.uid, runner.identity.gid, follow_symlinks=False)


def test_p28_a_secret_behind_a_link_in_a_protected_place(runner: support.Runner) -> None:
    """Dotfiles are often links: the secret lies elsewhere, and is as closed there."""
    dot = runner.home / "dotfiles"
    for name in ("key", "env", "deep", "keys/one", "public"):
        give(runner, dot / name, SECRET)
    link(runner, runner.home / ".ssh/id_linked", "../dotfiles/key")
    link(runner, runner.home / ".ssh/id_linked.pub", str(dot / "public"))
    link(runner, runner.home / ".ssh/keys", str(dot / "keys"))
    link(runner, runner.work / ".env", "../home/dotfiles/env")
    link(runner, runner.work / "packages/one/app/.env.local", str(dot / "deep"))
    places = [runner.home / ".ssh/id_linked", dot / "key", runner.home / ".ssh/keys/one", dot / "keys/one",
              runner.work / ".env", dot / "env", runner.work / "packages/one/app/.env.local", dot / "deep"]  # fmt: skip
    for place in places:
        result = runner.supervise(["cat", str(place)])
        assert SECRET not in result.stdout, place
        verdicts = [entry["verdict"] for entry in result.denied()]
        assert verdicts == ["view" if places.index(place) >= 4 else "deny"], result.decisions
    assert runner.supervise(["cat", str(runner.home / ".ssh/id_linked.pub")]).stdout == SECRET


def test_p28_a_linked_secret_in_the_work_tree_stays_where_it_is(runner: support.Runner) -> None:
    """It cannot be read under another name: by a rename, a hard link, a rename of its folder, a link from before."""
    give(runner, runner.work / "settings/app.env", SECRET)
    link(runner, runner.work / ".env", "settings/app.env")
    os.link(runner.work / "settings/app.env", folder(runner, runner.base / "elsewhere") / "copy")
    with Unchanged(runner.work):
        found, _ = attack(
            runner,
            """
note("rename", errno_of(os.rename, "settings/app.env", "innocent"))
note("link", errno_of(os.link, "settings/app.env", "innocent"))
note("folder", errno_of(os.rename, "settings", "aside"))
for name in ("settings/app.env", sys.argv[1]):
    data = open(name, "rb").read()
    note(name, 13 if data.startswith(b"# pincer:") or data.startswith(b"pincer:") else repr(data))
report()
""",
            str(runner.base / "elsewhere/copy"),
        )
    assert set(found.values()) == {13}, found


class Prepared(support.Identity):
    """Starts everything in a mount namespace in which a shell has mounted something at `goal`, which is its $0."""

    def __init__(self, who: support.Identity, script: str, goal: Path) -> None:
        super().__init__(who.name, who.uid, who.gid, who.python)
        self.script, self.goal = script, goal

    @property
    def switch(self) -> list[str]:
        return ["unshare", "-m", "sh", "-c", f'{self.script} && exec "$@"', str(self.goal), *super().switch]


MOUNTS = {
    "a second procfs": 'mount -t proc proc "$0"',
    "the same once more": 'mount --bind /proc "$0"',
    "one process of it": 'mount --bind /proc/PID "$0"',
}


@pytest.mark.parametrize("what", MOUNTS)
def test_p68_a_procfs_at_another_place(runner: support.Runner, what: str) -> None:
    """Roots of containers hold one: other people's processes are as closed there as below /proc."""
    goal = folder(runner, runner.base / "elsewhere")
    with subprocess.Popen([*runner.identity.switch, "sleep", "60"]) as victim:  # of the same user, not of the tree
        try:
            runner.identity = Prepared(runner.identity, MOUNTS[what].replace("PID", str(victim.pid)), goal)
            if not runner.native(["ls", str(goal / "status"), str(goal / "self/status")]).stdout:
                pytest.skip("no mount namespace can be made here")
            code = """
place, pid = sys.argv[1:]
for name in (f"{pid}/environ", f"{pid}/maps", f"{pid}/fd/0", "environ", "maps", "fd/0"):
    if os.path.lexists(f"{place}/{name}"): note(name, errno_of(os.open, f"{place}/{name}", os.O_RDONLY))
for name in ("sys/kernel/hostname", "sysrq-trigger"):
    if os.path.exists(f"{place}/{name}"): note(name, errno_of(os.open, f"{place}/{name}", os.O_WRONLY))
report()
"""
            result = runner.supervise(python(runner, code, str(goal), str(victim.pid)))
            assert result.denied()
        finally:
            victim.kill()
    found = notes(result)
    assert set(found.values()) == {13}, found


def test_p68_ones_own_process_at_another_place(runner: support.Runner) -> None:
    """The other side: what a program may see of itself and of the machine below /proc."""
    goal = folder(runner, runner.base / "elsewhere")
    runner.identity = Prepared(runner.identity, MOUNTS["a second procfs"], goal)
    if not runner.native(["ls", str(goal / "self/status")]).stdout:
        pytest.skip("no mount namespace can be made here")
    code = """
place = sys.argv[1]
for name in ("self/environ", "thread-self/maps", "uptime", "1/stat", f"{os.getpid()}/status", "self/fd/1"):
    note(name, errno_of(os.open, f"{place}/{name}", os.O_RDONLY if name != "self/fd/1" else os.O_WRONLY))
note("self", open(f"{place}/self/stat").read().split()[0] == str(os.getpid())); report()
"""
    found = notes(runner.supervise(python(runner, code, str(goal))))
    assert found.pop("self") is True
    assert set(found.values()) == {0}, found


def test_p20_ioctls_that_file_systems_alone_know(runner: support.Runner) -> None:
    """A descriptor for reading is enough to renumber a file, to change its layout, to take a user's keys away."""
    profile = give(runner, runner.home / ".bashrc", b"# clean\n")
    with Unchanged(runner.home / ".bashrc"):
        found, _ = attack(
            runner,
            """
fd = os.open(sys.argv[1], os.O_RDONLY)
argument = ctypes.create_string_buffer(256)
for command in (0x40086604, 0x6609, 0x660C, 0xC0406618, 0xC0506617, 0x50009402, 0xC0045877, 0xF501, 0xBC10):
    note(hex(command), word(call("ioctl", fd, command, argument)))
report()
""",
            str(profile),
        )
    assert set(found.values()) == {"ENOTTY"}, found


def test_p20_ioctls_that_programs_use(runner: support.Runner) -> None:
    """The other side: sizes, flags and generations are read, blocks shared, descriptors marked, terminals asked."""
    same_as_native(
        runner,
        """
make("file", b"content" * 1000)
fd, to = os.open("file", os.O_RDONLY), os.open("clone", os.O_RDWR | os.O_CREAT, 0o600)
argument = ctypes.create_string_buffer(512)
for command in (0x541B, 0x5451, 0x5450, 0x5421, 0x5401, 0x5413, 0x80086601, 0x801C581F, 0x5460):
    note(hex(command), word(call("ioctl", fd, command, argument)))
note("clone", word(call("ioctl", to, 0x40049409, fd))); report()
""",
    )


def test_p93_a_bind_has_the_ids_of_its_caller(runner: support.Runner) -> None:
    """The thread that binds served a caller of other ids before."""
    if runner.identity.uid:
        pytest.skip("only root changes its ids")
    found = same_as_native(
        runner,
        """
import socket
def bind(name):
    return errno_of(socket.socket(socket.AF_UNIX).bind, name)
os.mkdir("mine", 0o700); os.mkdir("open"); os.chmod("open", 0o777); os.chmod(".", 0o755)
note("before", bind("mine/0"))
pid = os.fork()
if not pid:
    os.setgroups([]); os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
    os._exit(bind("open/1") or bind("mine/1") != 13)
note("other", os.waitpid(pid, 0)[1])
note("after", bind("mine/2")); note("open", bind("open/2"))
note("owners", [os.stat(name).st_uid for name in ("mine/0", "open/1", "mine/2", "open/2")]); report()
""",
    )
    assert found == {"before": 0, "other": 0, "after": 0, "open": 0, "owners": [0, 61234, 0, 0]}
