"""Sinks: ssh and ssh-keygen use a key that nothing else reads, and no way of starting or watching them shows it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from hazards.programs.p_kit import give

from pincer_trace.profile import Places, load
from pincer_trace.profile.sinks import Sink, misleading

GIT = Sink(
    "git-ssh",
    ["-[46]", "-p [0-9]{1,5}", "-i .+", "-o SendEnv=GIT_PROTOCOL"],
    ["([a-z]+@)?[a-z0-9][a-z0-9.-]*", "git-(upload|receive)-pack '[^']*'"],
)


@pytest.mark.parametrize(
    "words",
    [
        ["host", "git-upload-pack 'a/b.git'"],
        ["-4", "-p", "22", "-i", "/k", "-o", "SendEnv=GIT_PROTOCOL", "me@host.example", "git-receive-pack '/a b'"],
    ],
)
def test_what_is_started_so(words: list[str]) -> None:
    assert GIT.fits([word.encode() for word in words])


def test_the_shipped_profile_knows_how_git_starts_them(tmp_path: Path) -> None:
    """As git does for `git@github.com:a/b.git`, for a port, for a version of the protocol, and for signing."""
    shipped = {sink.name: sink for sink in load("git-ssh", Places.of(str(tmp_path), os.environ, None)).sinks}
    ssh, sign, public = shipped["git-ssh"], shipped["ssh-sign"], shipped["ssh-public"]
    for words in (
        ["git@github.com", "git-upload-pack 'a/b.git'"],
        ["-o", "SendEnv=GIT_PROTOCOL", "-p", "2222", "me@host.example", "git-receive-pack '/srv/b.git'"],
    ):
        assert ssh.fits([word.encode() for word in words])
        assert not ssh.fits([b"-v", *(word.encode() for word in words)])
    for operand in ("git-upload-pack 'a'; id'", "git-upload-archive 'a'", "id", "git-upload-pack a"):
        assert not ssh.fits([b"git@github.com", operand.encode()])
    assert sign.fits(b"-Y sign -n git -f /k /tmp/buffer".split())
    assert not sign.fits(b"-Y sign -n git -f /k".split()) and not sign.fits(b"-Y verify -n git -f /k x".split())
    assert public.fits(b"-y -f /k".split()) and not public.fits(b"-y -f /k x".split())
    assert not public.fits(b"-e -f /k".split())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["host"],
        ["host", "id"],
        ["host", "git-upload-pack 'a'; id"],
        ["host", "git-upload-pack 'a'\n'b'"],
        ["host", "git-upload-pack 'a'", "more"],
        ["-F", "evil", "host", "git-upload-pack 'a'"],
        ["-Fevil", "host", "git-upload-pack 'a'"],
        ["-o", "ProxyCommand=x", "host", "git-upload-pack 'a'"],
        ["-oProxyCommand=x", "host", "git-upload-pack 'a'"],
        ["-46", "host", "git-upload-pack 'a'"],
        ["-4A", "host", "git-upload-pack 'a'"],
        ["-p", "22x", "host", "git-upload-pack 'a'"],
        ["-p 22", "host", "git-upload-pack 'a'"],
        ["-p"],
        ["-i", "k\n", "host", "git-upload-pack 'a'"],
        ["--", "host", "git-upload-pack 'a'"],
        ["host", "-F", "evil"],
        ["-i", "/k", "-v", "host", "git-upload-pack 'a'"],
    ],
)
def test_what_is_not(words: list[str]) -> None:
    assert not GIT.fits([word.encode() for word in words])


def test_variables_that_make_it_none() -> None:
    harmless = [b"PATH=/bin", b"HOME=/h", b"GIT_DIR=x", b"TERM=x", b"LANG=C", b"=x", b"", b"OLD_LD_X=1"]
    assert misleading(harmless) == b""
    for name in (
        b"LD_PRELOAD",
        b"LD_",
        b"SSH_AUTH_SOCK",
        b"GIT_ASKPASS",
        b"GLIBC_TUNABLES",
        b"OPENSSL_CONF",
        b"DISPLAY",
    ):
        assert misleading([*harmless, name + b"=x"]) == name


@pytest.fixture
def person(identity: support.Identity) -> Iterator[support.Runner]:
    """Somebody whom ssh knows by name."""
    who = identity
    try:
        pwd.getpwuid(who.uid)
    except KeyError:
        other = support.identities()["root"]
        if isinstance(other, str):
            pytest.skip(other)
        who = other
    if support.PREFIX:
        pytest.skip("natively everybody reads it")
    base = Path(tempfile.mkdtemp(prefix="pincer-test-")).resolve()
    base.chmod(0o755)
    made = support.Runner(base, who)
    made.fresh()
    yield made
    support.remove_tree(base)


def new_key(person: support.Runner) -> tuple[Path, str]:
    """A key in the person's own folder, and a piece of it that is in no other file."""
    for tool in ("/usr/bin/ssh", "/usr/bin/ssh-keygen"):
        if not os.access(tool, os.X_OK):
            pytest.skip(f"{tool} is missing (Debian package openssh-client)")
    made = person.base / "made"
    subprocess.run(["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True)
    content = made.read_bytes()
    key = give(person, person.home / ".ssh/id_ed25519", content, 0o600)
    give(person, person.home / ".ssh/id_ed25519.pub", made.with_suffix(".pub").read_bytes())
    made.unlink()
    return key, content.splitlines()[4].decode()[:40]


@pytest.fixture
def server(person: support.Runner) -> Iterator[tuple[int, Path]]:
    """An sshd on a free port of the loopback, that lets nobody in yet: its port, and its list of keys."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if sshd is None:
        pytest.skip("sshd is missing (Debian package openssh-server)")
    if person.identity.uid != os.geteuid():
        pytest.skip("sshd lets only its own user in")
    folder = person.base / "server"
    folder.mkdir(mode=0o755)
    subprocess.run(["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = [
        f"ListenAddress 127.0.0.1:{port}", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/keys", "UsePAM no",
        "StrictModes no", "PidFile none", "PasswordAuthentication no", "AcceptEnv GIT_PROTOCOL",
    ]  # fmt: skip
    (folder / "config").write_text("\n".join(lines) + "\n")
    made = not os.path.isdir("/run/sshd") and os.geteuid() == 0
    if made:
        os.mkdir("/run/sshd", 0o755)  # Debian's service makes it
    with subprocess.Popen([sshd, "-D", "-e", "-f", folder / "config"], stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:  # type: ignore[union-attr]
                if "listening" in line:
                    break
            yield port, folder / "keys"
        finally:
            process.terminate()
            if made:
                os.rmdir("/run/sshd")


def test_git_over_ssh_with_a_key_that_nobody_reads(person: support.Runner, server: tuple[int, Path]) -> None:
    """Clone, push, and a signed commit; the key in between is a refusal for everything else."""
    port, keys = server
    key, canary = new_key(person)
    keys.write_bytes(key.with_suffix(".pub").read_bytes())
    known = person.base / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {(person.base / 'server/host.pub').read_text()}")
    store = person.base / "store.git"
    subprocess.run(["git", "init", "-q", "--bare", store], check=True)
    profile = person.base / "p.toml"
    profile.write_text(
        """extends = "git-ssh"
[[sink]]
name = "git-ssh"
exe = ["/usr/bin/ssh"]
options = ["-p [0-9]+", "-i .+", "-F none", "-o UserKnownHostsFile=.+", "-o BatchMode=yes", "-o SendEnv=GIT_PROTOCOL"]
operands = ["[a-z]+@127[.]0[.]0[.]1", "git-(upload|receive)-pack '[^']*'"]
paths = ["{homes}/.ssh/*"]
reason = "as the shipped one, with a list of hosts of the test's own"
"""
    )
    user = pwd.getpwuid(person.identity.uid).pw_name
    ssh = f"ssh -F none -o UserKnownHostsFile={known} -o BatchMode=yes -i {key}"
    script = f"""
    set -e
    git clone -q ssh://{user}@127.0.0.1:{port}{store} copy && cd copy
    git config user.name n; git config user.email e@x; echo one > file; git add file
    git -c gpg.format=ssh -c user.signingkey={key} commit -qS -m one; git push -q origin HEAD
    git cat-file commit HEAD | grep -c "BEGIN SSH SIGNATURE"
    cat {key} || echo refused; cp {key} stolen || echo refused
    cd .. && git clone -q ssh://{user}@127.0.0.1:{port}{store} two && ls two
    """
    env = {"GIT_SSH_COMMAND": ssh, "GIT_SSH_VARIANT": "ssh"}
    result = person.supervise(
        ["sh", "-c", script], options=("-p", str(profile), "--allow-net", f"127.0.0.1:{port}"), env=env
    )
    assert result.status == 0, result
    assert result.out.split() == ["1", "refused", "refused", "file"]
    assert canary not in result.out + result.err
    assert [entry["path"] for entry in result.denied(key)] == [str(key)] * 2
    read = [entry for entry in result.decisions if entry["path"] == str(key) and entry["verdict"] == "allow"]
    assert read and {entry["exe"] for entry in read} <= {"/usr/bin/ssh", "/usr/bin/ssh-keygen"}
    assert not any(canary.encode() in path.read_bytes() for path in person.work.rglob("*") if path.is_file())


# Ways to make a sink show the key; each is run, and what it says is kept.
WAYS = {
    "preload": "LD_PRELOAD=$WORK/evil.so ssh-keygen -y -f $KEY",
    "audit": "LD_AUDIT=$WORK/evil.so ssh-keygen -y -f $KEY",
    "library path": "LD_LIBRARY_PATH=$WORK ssh-keygen -y -f $KEY",
    "tunables": "GLIBC_TUNABLES=glibc.malloc.check=3 ssh-keygen -y -f $KEY",
    "openssl": "OPENSSL_CONF=$WORK/evil.cnf ssh-keygen -y -f $KEY",
    "an agent": "SSH_AUTH_SOCK=$WORK/agent ssh-keygen -y -f $KEY",
    "a copy": "cp /usr/bin/ssh-keygen . && ./ssh-keygen -y -f $KEY",
    "a link": "ln -s /usr/bin/ssh-keygen k && ./k -e -f $KEY",
    "the loader": "$LOADER /usr/bin/ssh-keygen -y -f $KEY",
    "export": "ssh-keygen -e -m PEM -f $KEY",
    "new passphrase": "ssh-keygen -p -N '' -P '' -f $KEY",
    "change of form": "ssh-keygen -p -m PEM -N '' -P '' -f $KEY",
    "a third option": "ssh-keygen -y -v -f $KEY",
    "twice": "ssh-keygen -y -e -f $KEY",
    "as another name": "bash -c 'exec -a x ssh-keygen -e -f $KEY'",
    "settings of ssh": "ssh -F $KEY nowhere 'git-upload-pack x'",
    "a filter of its own": "$PYTHON -I filtered.py ssh-keygen -y -f $KEY",
    "cat": "cat $KEY",
    "traced": "$PYTHON -I traced.py ssh-keygen -y -f $KEY",
}
FILTERED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
class Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(1, ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
TRACED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(0, 0, 0, 0) < 0:
    sys.exit("not traced: " + os.strerror(ctypes.get_errno()) + ": Permission denied")
os.execvp(sys.argv[1], sys.argv[1:])
"""
EVIL = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <fcntl.h>
__attribute__((constructor)) static void steal(void) {
  char text[4096]; int n = open(getenv("KEY"), O_RDONLY); ssize_t size = n < 0 ? 0 : read(n, text, sizeof text);
  if (size > 0) write(1, text, size);
}
unsigned la_version(unsigned version) { steal(); return version; }
"""
# The sink has read the key, and waits for what it is to sign: now a sibling looks for it.
WATCHER = """
import ctypes, json, os, subprocess, sys
key, found = os.environ["KEY"], {}
os.mkfifo("message")
sink = subprocess.Popen(["ssh-keygen", "-Y", "sign", "-n", "git", "-f", key, "message"], stderr=subprocess.PIPE)
feed = os.open("message", os.O_WRONLY)  # returns when the sink, which has loaded its key, opens the other end
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(64)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
vector = Vector(ctypes.addressof(buffer), 64)
ways = {
    "mem": lambda: os.open(f"/proc/{sink.pid}/mem", os.O_RDONLY),
    "task mem": lambda: os.open(f"/proc/{sink.pid}/task/{sink.pid}/mem", os.O_RDONLY),
    "write mem": lambda: os.open(f"/proc/{sink.pid}/mem", os.O_RDWR),
    "attach": lambda: call(101, 16, sink.pid, 0, 0),
    "seize": lambda: call(101, 0x4206, sink.pid, 0, 0),
    "vm": lambda: call(310, sink.pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0),
    "descriptor": lambda: call(438, os.pidfd_open(sink.pid), 3, 0),
}
for name, way in ways.items():
    try:
        way()
        found[name] = 0
    except OSError as error:
        found[name] = error.errno
os.write(feed, b"text")
os.close(feed)
print(json.dumps([found, sink.wait(), sink.stderr.read().decode()]))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls by the numbers of x86_64")
def test_no_way_of_starting_or_watching_a_sink_shows_the_key(person: support.Runner) -> None:
    key, canary = new_key(person)
    public_half = key.with_suffix(".pub").read_text()
    key.with_suffix(".pub").unlink()  # else some read only that
    for name, content in (("filtered.py", FILTERED), ("traced.py", TRACED), ("watch.py", WATCHER), ("evil.c", EVIL)):
        give(person, person.work / name, content.encode())
    evil = person.work / "evil.so"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", evil, person.work / "evil.c"], check=True)
    evil.chmod(0o755)
    loader = next(path for path in ("/lib64/ld-linux-x86-64.so.2",) if os.path.exists(path))
    lines = [f"echo '@@{name}'; ({way}) </dev/null 2>&1" for name, way in WAYS.items()]
    script = "\n".join([*lines, "echo '@@honest'; ssh-keygen -y -f $KEY; $PYTHON -I watch.py; cat *.sig | head -1"])
    env = {"KEY": str(key), "WORK": str(person.work), "LOADER": loader}
    result = person.supervise(["sh", "-c", script], options=("-p", "git-ssh", "-q"), env=env)
    assert canary not in result.out + result.err, result
    said = dict(part.split("\n", 1) for part in result.out.split("@@")[1:])
    assert said.keys() == {*WAYS, "honest"}
    for name in WAYS:
        assert "ermission denied" in said[name], (name, said[name])
        assert not said[name].startswith("ssh-ed25519"), name
    reasons = " ".join(entry["reason"] for entry in result.denied(key))
    for why in ("LD_PRELOAD", "LD_AUDIT", "SSH_AUTH_SOCK", "other arguments than its sink", "filters its own calls"):
        assert why in reasons, (why, reasons)
    public, watched, signature = said["honest"].splitlines()
    assert public.split()[:2] == public_half.split()[:2]
    tries, status, errors = json.loads(watched)
    assert set(tries.values()) <= {1, 13} and status == 0, watched
    assert signature == "-----BEGIN SSH SIGNATURE-----"
    assert canary not in errors
    assert not any(canary.encode() in path.read_bytes() for path in person.work.rglob("*") if path.is_file())
