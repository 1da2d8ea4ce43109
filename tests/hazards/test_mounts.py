"""Runs whose command may make mounts of its own (`floor = "scoped"`): bwrap works as natively, and no mount, root or
namespace gives a protected file another name. P24, P25, P41, P47, and P5, P26, P43, P48, P64 there.
"""
# ruff: noqa: E501 - attacker programs in strings

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support
from hazards.path_programs.tools import PRELUDE, SECRET, Unchanged, folder, give, notes

PROGRAM = PRELUDE + "\n" + (Path(__file__).parent / "path_programs/mounts.py").read_text()
SCOPED = '[settings]\nfloor = "scoped"\n'
TEXT = SECRET.decode()


@pytest.fixture
def scoped(runner: support.Runner) -> Path:
    """A profile with that floor, and what it is to protect."""
    path = runner.base / "scoped.toml"
    path.write_text(f'extends = "default"\n{SCOPED}')
    give(runner, runner.home / ".ssh/id_ed25519", SECRET, 0o600)
    give(runner, runner.home / ".bashrc", b"# clean\n")
    return path


@pytest.fixture
def bwrap() -> str:
    """The real one."""
    found = shutil.which("bwrap")
    if found is None:
        pytest.skip("bwrap is missing (Debian package bubblewrap)")
    return found


@pytest.fixture
def kept(runner: support.Runner, scoped: Path) -> Iterator[None]:
    """The protected files stay as they are."""
    with Unchanged(runner.home / ".bashrc", runner.home / ".ssh"):
        yield


def words(runner: support.Runner, code: str, *arguments: str) -> list[str]:
    return [runner.identity.python, "-I", "-S", "-c", f"{PROGRAM}\n{code}", *arguments]


def attack(runner: support.Runner, profile: Path, code: str, *arguments: str) -> tuple[dict[str, Any], support.Result]:
    """Run `code` under that profile: its report and the result; no word of the secret has come out."""
    result = runner.supervise(
        words(runner, code, str(runner.home), *arguments), options=("--quiet", "-p", str(profile))
    )
    assert SECRET.strip() not in result.stdout + result.stderr, result
    return notes(result), result


# -- bwrap ---------------------------------------------------------------------------------------------------------------

ORDINARY = r"""
id -u; cat inwork; echo more >>inwork; mkdir d; mv inwork d/moved; ln d/moved again; chmod 600 again; rm d/moved; rmdir d
cat again; stat -c '%a %h' again; echo x >/etc/x; echo x >>/etc/passwd; touch /etc/passwd; ln -s /tmp/z linked; cat linked
echo one >/tmp/x; cat /tmp/x; mkdir /tmp/d; mv /tmp/x /tmp/d/y; ln /tmp/d/y /tmp/z; chmod 640 /tmp/z; stat -c '%a %u' /tmp/z
ln -s z /tmp/l; cat /tmp/l linked; readlink -f /tmp/l; mv /tmp/z . ; cat z; rm z; rm -r /tmp/d; ls -A /tmp; mkdir -p /tmp/a/.vscode /tmp/a/.git/hooks; mv /tmp/a /tmp/b; ln -s b/.vscode /tmp/.vscode; mv /tmp/b /tmp/.claude; ls -A /tmp; mkfifo /tmp/f; (echo piped >/tmp/f &); cat </tmp/f
grep -c . /proc/self/mountinfo; cat /proc/self/comm /proc/1/comm; readlink /proc/self/exe; head -c 5 /proc/self/status; echo
ls /proc/self/fd | wc -l; echo >/dev/null; echo text >/dev/stdout; cat /dev/stdin </etc/hostname; (exec 3<again; cat /dev/fd/3)
ls -d /dev/pts/ptmx; ls -l /dev/null | cut -c1-10; find . | sort; cd ..; pwd; ls -d work; cat ./work/../work/again; ls /run/nothing
sh -c 'echo script >/tmp/run; chmod +x /tmp/run'; printf '#!/bin/sh\necho started $0\n' >/tmp/run; /tmp/run; cp /bin/echo /tmp/e; /tmp/e copied
rm -f ~/.bashrc; cat ~/.cache/none; mv sealed other; rmdir other; echo x >sealed/new; rm sealed/file; echo $?
"""


READ_ONLY = "--ro-bind / / --tmpfs {home} --tmpfs /tmp --proc /proc --dev /dev --bind {work} {work} --unshare-all --die-with-parent"
WHOLE = "--unshare-user --unshare-pid --dev-bind / / --ro-bind /etc /etc --tmpfs /tmp --bind {work} {work} --ro-bind {work}/sealed {work}/sealed --chdir {work}"
APART = "--unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --dir /tmp --dir /etc --bind {work} /elsewhere/work --setenv HOME /home --chdir /elsewhere/work"


@pytest.mark.both_identities
def test_p25_bwrap_runs_as_natively(runner: support.Runner, scoped: Path, bwrap: str) -> None:
    """The same output, status and tree; nothing is refused but by bwrap's own mounts."""
    compare(runner, scoped, bwrap, READ_ONLY)


@pytest.mark.parametrize("options", [WHOLE, APART], ids=["whole", "apart"])
def test_p24_other_roots_of_bwrap(runner: support.Runner, scoped: Path, bwrap: str, options: str) -> None:
    """The same with the file system of this machine, and with little of it."""
    compare(runner, scoped, bwrap, options)


def compare(runner: support.Runner, scoped: Path, bwrap: str, options: str) -> None:
    command = [bwrap, *options.format(home=runner.home, work=runner.work).split(), "sh", "-c", ORDINARY]
    found = []
    for run in (runner.native, lambda each: runner.supervise(each, options=("--quiet", "-p", str(scoped)))):
        runner.fresh()
        give(runner, runner.home / ".cache/one")
        give(runner, runner.work / "inwork", b"one\n")
        give(runner, runner.work / "sealed/file", b"sealed\n")
        result = run(command)
        found.append((result, support.snapshot(runner.work)))
    (native, tree), (ours, our_tree) = found
    assert ours.out == native.out
    assert ours.err == native.err
    assert ours.status == native.status
    assert not support.differences(tree, our_tree)
    assert not ours.denied()


def test_p25_the_full_floor_says_what_would_let_bwrap_start(runner: support.Runner, bwrap: str) -> None:
    """By default no mounts: bwrap fails, and the log names the setting."""
    result = runner.supervise([bwrap, "--unshare-user", "--ro-bind", "/", "/", "true"])
    assert result.status != 0
    assert b"new namespace" in result.stderr
    (refusal,) = result.denied("//mounts")
    assert "floor = 'scoped'" in refusal["reason"]


def test_what_is_lost_is_said_first(runner: support.Runner, scoped: Path) -> None:
    """In the first line of the run, and in the profile."""
    result = runner.supervise(["true"], options=("-p", str(scoped)))
    first = result.err.splitlines()[0]
    assert "'scoped'" in first
    assert "the kernel itself refuses it no file effect" in first
    assert "floor   scoped" in runner.subcommand("profile", "show", scoped).stdout


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        (("--twin", "process"), "", "--twin process"),
        (
            (),
            '[[sink]]\nname = "s"\nexe = ["/usr/bin/cat"]\npaths = ["{home}/.ssh/**"]\noperands = [".*"]\nreason = "r"\n',
            "[[sink]]",
        ),
    ],
    ids=["twin", "sink"],
)
def test_what_goes_by_names_alone_excludes_mounts(
    runner: support.Runner, scoped: Path, option: tuple[str, ...], text: str, why: str
) -> None:
    """Said before anything is started."""
    scoped.write_text(scoped.read_text() + text)
    result = runner.supervise(["true"], options=("-p", str(scoped), *option))
    assert result.status == 125
    assert "floor = 'scoped'" in result.err
    assert why in result.err
    assert "nothing was started" in result.err


# -- other names ---------------------------------------------------------------------------------------------------------

ALIASES = r"""
home = sys.argv[1]; key, rc = home + "/.ssh/id_ed25519", home + "/.bashrc"

def aliases(act):
    # Each way to another name of `home`'s folder .ssh and file .bashrc: what `act(key, rc)` gives there.
    def one(name, prepare):
        def run():
            enter(); where = prepare(); return act(*where)
        note(name, child(run))
    at = os.path.abspath("at")
    def names(top): return top + "/.ssh/id_ed25519", top + "/.bashrc"
    def whole(): bind(home, at); return names(at)
    def recursive(): bind("/", at, REC); return names(at + home)
    def files():
        bind(key, "innocent"); bind(rc, "harmless"); return "innocent", "harmless"
    def memory():
        mount("tmpfs", "/mnt", "tmpfs"); os.mkdir("/mnt/mine"); bind(home, "/mnt/mine/h"); return names("/mnt/mine/h")
    def moved():
        bind(home, at); os.mkdir("to"); mount(at, os.path.abspath("to"), 0, MOVE); return names("to")
    def rooted():
        bind("/", at, REC); check("chroot", at + home); os.chdir("/"); return names("")
    def pivoted():
        mount("tmpfs", "/mnt", "tmpfs"); os.mkdir("/mnt/old"); check("pivot_root", "/mnt", "/mnt/old"); os.chdir("/")
        bind("/old" + home, "/new"); return names("/new")
    def linked():
        bind(home, at); os.symlink(at + "/.ssh", "l"); os.symlink(at + "/.bashrc", "r"); return "l/id_ed25519", "r"
    def relative():
        bind(home, at); os.chdir(at); return ".ssh/id_ed25519", ".bashrc"
    def through_proc():
        bind(home, at); return names("/proc/self/root" + at)
    def through_descriptor():
        bind(home, at); d = os.open(at, os.O_RDONLY); return names(f"/proc/self/fd/{d}")
    def gone():
        bind(home, at); os.chdir(at); check("umount2", at, DETACH); return ".ssh/id_ed25519", ".bashrc"
    def dots():
        bind(home, at); return at + "/.ssh/../.ssh/id_ed25519", at + "/.ssh/../.bashrc"
    def covered():
        bind(home, "/usr/share"); return names("/usr/share")
    def renumbered():
        enter(); bind(home, at); return names(at)
    def of_proc():
        bind("/proc", "p"); bind(home, at); return names(f"p/{os.getpid()}/root{at}")
    for way in (whole, recursive, files, memory, moved, rooted, pivoted, linked, relative, through_proc,
                through_descriptor, gone, dots, covered, renumbered, of_proc):
        one(way.__name__, way)

def both(secret, start):
    # Everything that shows the one, or changes the other.
    def errno_or(function, *arguments):
        try: function(*arguments)
        except OSError as error: return error.errno
        return 0
    found = {"read": shown(secret), "append": spoilt(start)}
    here = os.path.dirname(start) or "."
    for name, function, arguments in (
        ("chmod", os.chmod, (start, 0o777)), ("truncate", os.truncate, (start, 0)), ("utime", os.utime, (start,)),
        ("unlink", os.unlink, (start,)), ("rename", os.rename, (start, here + "/.other")),
        ("over", os.rename, (here + "/.cache", start)), ("link", os.link, (secret, here + "/.key")),
        ("away", os.rename, (secret, here + "/.key")), ("folder", os.rename, (os.path.dirname(secret), here + "/.s")),
        ("make", os.mkdir, (os.path.dirname(secret) + "/d",)), ("symlink", os.symlink, ("x", here + "/.profile")),
        ("create", make, (here + "/.zshrc", b"evil")), ("xattr", os.setxattr, (start, "user.x", b"1")),
    ):
        found[name] = errno_or(function, *arguments)
    return found
"""


OWN = {  # names in the work tree, which are the run's own
    "files": ("folder", "make", "symlink", "create"),
    "linked": ("unlink", "rename", "over", "folder", "symlink", "create"),
}


@pytest.mark.both_identities
def test_p25_no_mount_gives_another_name(runner: support.Runner, scoped: Path, kept: None) -> None:
    """Sixteen ways to other names of the home folder, all verbs at each; natively each shows the secret."""
    give(runner, runner.home / ".cache/one")
    code = ALIASES + "aliases(lambda secret, start: shown(secret)); report()"
    native = notes(runner.native(words(runner, code, str(runner.home))))
    assert set(native.values()) == {TEXT}, native
    assert len(native) == 16
    support.remove_tree(runner.work)
    folder(runner, runner.work)
    found, result = attack(runner, scoped, ALIASES + "aliases(both); report()")
    assert found.keys() == native.keys()
    for way, verbs in found.items():
        assert isinstance(verbs, dict), (way, verbs)
        for harmless in OWN.get(way, ()):
            del verbs[harmless]
        assert 0 not in verbs.values(), (way, verbs)
        assert isinstance(verbs["read"], int), (way, verbs)
    refused = {record["path"] for record in result.denied()}
    assert {str(runner.home / ".ssh/id_ed25519"), str(runner.home / ".bashrc")} <= refused


OTHER_WAYS = r"""
home = sys.argv[1]; at = os.path.abspath("at")

def between(inside, outside):
    # `inside` in a process in a mount namespace, which hands a descriptor to `outside` in one that is not.
    ours, theirs = socket.socketpair()
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        enter(); bind(home, at); descriptor = inside()
        if descriptor is not None: send(theirs, descriptor)
        else: theirs.send(b"x")
        os.read(go[0], 1); os._exit(0)
    try: descriptor = receive(ours)
    except IndexError: descriptor = None
    try: return outside(descriptor, pid)
    finally: os.write(go[1], b"x"); os.waitpid(pid, 0)

def by_root(_, pid): return shown(f"/proc/{pid}/root{at}/.ssh/id_ed25519")
def by_cwd(_, pid): return shown(f"/proc/{pid}/cwd/at/.ssh/id_ed25519")
def by_descriptor(descriptor, _): return shown(".ssh/id_ed25519", descriptor)
def by_directory(descriptor, _): os.fchdir(descriptor); return shown(".ssh/id_ed25519")
def by_own_table(descriptor, _): return shown(f"/proc/self/fd/{descriptor}/.ssh/id_ed25519")
def directory(): return os.open(at, os.O_RDONLY)
def nothing(): return None
for name, inside, outside in (("root", nothing, by_root), ("cwd", nothing, by_cwd), ("descriptor", directory, by_descriptor),
                              ("directory", directory, by_directory), ("table", directory, by_own_table)):
    note(name, child(lambda: between(inside, outside)))

# A descriptor for a place alone, which a mount namespace that has ended leaves behind
def left():
    descriptor = between(lambda: os.open(at + "/.ssh", os.O_PATH), lambda descriptor, _: descriptor)
    return [shown("id_ed25519", descriptor), shown(f"/proc/self/fd/{descriptor}/id_ed25519")]
note("left", child(left))
report()
"""


def test_p25_no_descriptor_brings_another_name(runner: support.Runner, scoped: Path, kept: None) -> None:
    """From a process in a mount namespace to one that is in none: by its root, directory, and descriptors."""
    native = notes(runner.native(words(runner, OTHER_WAYS, str(runner.home))))
    assert native == {**dict.fromkeys(("root", "cwd", "descriptor", "directory", "table"), TEXT), "left": [TEXT, TEXT]}
    support.remove_tree(runner.work)
    folder(runner, runner.work)
    found, result = attack(runner, scoped, OTHER_WAYS)
    assert found == {**dict.fromkeys(("root", "cwd", "descriptor", "directory", "table"), 13), "left": [13, 13]}
    assert len(result.denied()) >= 6


def test_p43_a_covered_program_is_not_believed(runner: support.Runner, scoped: Path, kept: None) -> None:
    """A rule for one program, whose name the worker covers with its own in a mount namespace."""
    with scoped.open("a") as file:
        for protection in ("true", "false"):
            file.write(
                '[[rule]]\neffects = ["read"]\npaths = ["{home}/.ssh/**"]\nexe = ["/usr/bin/tac"]\nverdict = "allow"\n'
            )
            file.write(f'reason = "r"\nprotection = {protection}\n')
    key = str(runner.home / ".ssh/id_ed25519")
    trusted = runner.supervise(["/usr/bin/tac", key], options=("--quiet", "-p", str(scoped)))
    assert trusted.stdout == SECRET, trusted
    code = r"""
import os
import shutil
import socket
shutil.copy("/usr/bin/head", "mine")
def run():
    enter(); bind(os.path.abspath("mine"), "/usr/bin/tac")
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1); os.execv("/usr/bin/tac", ["tac", "-n", "1", sys.argv[1] + "/.ssh/id_ed25519"])
    os.close(write); os.wait()
    return os.read(read, 100).decode()
note("shown", child(run)); report()
"""
    assert notes(runner.native(words(runner, code, str(runner.home)))) == {"shown": TEXT}
    found, result = attack(runner, scoped, code)
    assert found == {"shown": ""}
    assert result.denied(key)


NEW_ONES = r"""
home = sys.argv[1]
os.makedirs("precious/work/kept"); make("precious/work/kept/file", b"kept")
where = os.path.abspath("precious")
def overlay():
    enter(); os.mkdir("up")
    mount("overlay", "/mnt", "overlay", 0, f"lowerdir={home},upperdir={os.path.abspath('up')},workdir={where}")
    return shown("/mnt/.ssh/id_ed25519")
def layered():
    enter(); mount("overlay", "/mnt", "overlay", 0, f"lowerdir={home}:/usr"); return shown("/mnt/.ssh/id_ed25519")
def sysfs():
    enter(NEWNET); mount("sysfs", "/mnt", "sysfs"); return "mounted"
def fuse():
    return os.open("/dev/fuse", os.O_RDWR)
def named():
    # An option that names a file: natively it is opened, and were it a FIFO, waited for
    enter(); mount("proc", "/mnt", "proc", 0, "hidepid=0,pidns=/nowhere"); return "mounted"
def flipped():
    # The type is read from memory while another thread writes there
    enter()
    kinds, stop = mmap.mmap(-1, 4096), []
    address = ctypes.addressof(ctypes.c_char.from_buffer(kinds))
    def flip():
        while not stop: kinds[:8] = b"tmpfs\0\0\0"; kinds[:8] = b"overlay\0"
    thread = threading.Thread(target=flip); thread.start()
    options = f"lowerdir={home}:/usr"
    for _ in range(200):
        call("mount", "overlay", "/mnt", address, 0, options)
    stop.append(1); thread.join()
    with open("/proc/self/mountinfo") as table: return " - overlay " in table.read().split("/mnt", 1)[-1]
for name, attempt in (("overlay", overlay), ("layered", layered), ("sysfs", sysfs), ("fuse", fuse), ("named", named), ("flipped", flipped)):
    note(name, child(attempt))
note("kept", os.path.exists("precious/work/kept/file"))
report()
"""


@pytest.mark.both_identities
def test_p47_only_what_begins_empty_is_mounted(runner: support.Runner, scoped: Path, kept: None) -> None:
    """Overlays, which show what lies below and empty their work folder; FUSE, which answers as it likes; and a type
    that changes while it is looked at.
    """
    native = notes(runner.native(words(runner, NEW_ONES, str(runner.home))))
    assert native["layered"] == TEXT, native
    assert native["flipped"] is True, native
    support.remove_tree(runner.work)
    folder(runner, runner.work)
    found, result = attack(runner, scoped, NEW_ONES)
    assert found == {"overlay": 13, "layered": 13, "sysfs": 13, "fuse": 13, "named": 22, "flipped": False, "kept": True}
    reasons = [record["reason"] for record in result.denied()]
    assert any("'overlay'" in reason for reason in reasons)
    assert any("'sysfs'" in reason for reason in reasons)


DOORS = r"""
def without_rights():
    enter()
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    ctypes.CDLL(None).capset(head, (ctypes.c_uint32 * 6)())
    return word(call("mount", "t", "/mnt", "tmpfs", 0, 0))
def later():
    enter(); check("unshare", NEWUSER); return word(call("mount", "t", "/mnt", "tmpfs", 0, 0))
def listener():
    enter()
    number = 317 if platform.machine() == "x86_64" else 277
    return [ctypes.CDLL(None, use_errno=True).syscall(number, 1, 8, 0), ctypes.get_errno()]
def newer():
    enter(); libc = ctypes.CDLL(None, use_errno=True)
    return [(libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno()) for number in (428, 429, 430, 431, 432, 433, 442, 467)]
def raced():
    # bind is let through for no kind of socket: another thread could put another one there
    bound = sys.argv[1] + "/.ssh/socket"
    netlink = socket.socket(16, socket.SOCK_RAW, 0); local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stop = []
    def flip():
        while not stop: os.dup2(netlink.fileno(), 60); os.dup2(local.fileno(), 60)
    thread = threading.Thread(target=flip); thread.start()
    address = b"\1\0" + bound.encode() + b"\0"
    for _ in range(3000): call("bind", 60, address, len(address))
    stop.append(1); thread.join()
    return os.path.exists(bound)
def outside():
    enter(NEWPID)
    pid = os.fork()
    if pid == 0:
        mount("proc", "/mnt", "proc")
        found = [os.getpid(), sorted(int(n) for n in os.listdir("/mnt") if n.isdigit()), os.readlink("/mnt/self")]
        with open("/mnt/self/status") as file: found.append([l.split()[1:] for l in file if l.startswith("Pid:")][0])
        with open("/mnt/self/environ", "rb") as file: found.append(b"HOME" in file.read())
        found.append(open("/mnt/self/fd/0", "rb").read(1) == b"")
        with open("out", "w") as file: json.dump(found, file)
        os._exit(0)
    os.waitpid(pid, 0)
    with open("out") as file: return json.load(file)
for attempt in (without_rights, later, listener, newer, raced, outside): note(attempt.__name__, child(attempt))
report()
"""


def test_p41_what_a_namespace_of_its_own_gives(runner: support.Runner, scoped: Path, kept: None) -> None:
    """No second listener, no mount without the right to it, no bind that is not judged; and
    in /proc of a PID namespace of its own the processes that are there.
    """
    found, _ = attack(runner, scoped, DOORS)
    assert found == {
        "without_rights": "EPERM", "later": "EPERM", "listener": [-1, 16], "newer": [[-1, 38]] * 8, "raced": False,
        "outside": [1, [1], "1", ["1"], True, True],
    }  # fmt: skip


TERMINALS = r"""
# The number of a terminal says nothing in a devpts of one's own: in each they begin anew.
import fcntl
number = int(sys.argv[2])
def masters(ptmx):
    # Of all numbers up to that of the terminal outside
    opened = [os.open(ptmx, os.O_RDWR | os.O_NOCTTY) for _ in range(number + 1)]
    for master in opened: fcntl.ioctl(master, 0x40045431, b"\0\0\0\0")
    return opened
def own(again="/dev/tty"):
    enter(); mount("devpts", "/mnt", "devpts", 0, "newinstance,ptmxmode=0666"); master = masters("/mnt/ptmx")[-1]
    return typed(master, os.open(f"/mnt/{number}", os.O_RDWR | os.O_NOCTTY))
def typed(master, slave):
    os.setsid(); fcntl.ioctl(slave, 0x540E, 0)
    try: again = os.open("/dev/tty", os.O_RDWR)
    except OSError as error: return error.errno
    os.write(again, b"typed")
    return os.read(master, 5).decode()
def handed():
    # To a process that is in no mount namespace
    ours, theirs = socket.socketpair()
    def give():
        enter(); mount("devpts", "/mnt", "devpts", 0, "newinstance,ptmxmode=0666"); master = masters("/mnt/ptmx")[-1]
        send(theirs, os.open(f"/mnt/{number}", os.O_RDWR | os.O_NOCTTY)); send(theirs, master)
    child(give)
    slave = receive(ours)
    return typed(receive(ours), slave)
def outside():
    # A master of the other devpts, by the name of this one's, vouches for no terminal here
    enter(); bind("/dev", "dev", REC); os.mkdir("kept"); bind(f"/dev/pts/{number}", "kept/outside")
    mount("devpts", os.path.abspath("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666"); held = masters("dev/ptmx")
    opened = []
    for path in ("kept/outside", f"/dev/pts/{number}"):
        try: opened.append(os.isatty(os.open(path, os.O_RDWR | os.O_NOCTTY)))
        except OSError as error: opened.append(error.errno)
    return opened
for attempt in (own, handed, outside): note(attempt.__name__, child(attempt))
report()
"""


def test_p15_a_terminal_of_another_devpts(runner: support.Runner, scoped: Path) -> None:
    """By its number it would be a terminal of this machine, and somebody else's."""
    master, slave = os.openpty()
    try:
        name = os.ttyname(slave)
        os.chown(name, runner.identity.uid, runner.identity.gid)
        arguments = str(runner.home), name.rpartition("/")[2]
        native = notes(runner.native(words(runner, TERMINALS, *arguments)))
        assert native == {"own": "typed", "handed": "typed", "outside": [True, True]}
        support.remove_tree(runner.work)
        folder(runner, runner.work)
        found, _ = attack(runner, scoped, TERMINALS, arguments[1])
    finally:
        os.close(master)
        os.close(slave)
    assert found == {"own": 6, "handed": 6, "outside": [13, 13]}


NETWORKS = r"""
def run():
    enter(NEWNET)
    import fcntl, struct
    up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # the loopback of a new network is down
    fcntl.ioctl(up, 0x8914, struct.pack("16sH", b"lo", 1) + bytes(22))
    server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
    client = socket.create_connection(server.getsockname()); client.send(b"inside")
    found = [server.accept()[0].recv(9).decode()]
    for address in (("127.0.0.1", int(sys.argv[1])), ("127.0.0.1", 1)):
        with socket.socket() as other: found.append(other.connect_ex(address))
    up.sendto(b"x", ("127.0.0.1", int(sys.argv[2])))
    try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); found.append("datagrams")
    except OSError as error: found.append(error.errno)
    return found
note("network", child(run))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    try: udp.sendto(b"x", ("127.0.0.1", int(sys.argv[2])))
    except OSError: pass
report()
"""


def test_p48_a_network_of_its_own(runner: support.Runner, scoped: Path) -> None:
    """Its servers are the run's, its UDP leads nowhere; a server of this machine is not there."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in (server, udp)]
        found = notes(runner.supervise(words(runner, NETWORKS, *ports), options=("--quiet", "-p", str(scoped))))
        with pytest.raises(BlockingIOError):
            udp.recv(1, socket.MSG_DONTWAIT)
    assert found == {"network": ["inside", 111, 111, 93]}
