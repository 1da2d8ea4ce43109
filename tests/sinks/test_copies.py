"""What a sink writes is protected as what it has read, by whatever way it comes into a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import forms, give

CANARY = b"Canary7f3aQzXw"
PERL = "/usr/bin/perl"
# A sink that does whatever it is told: no profile should name one. Its programs read the secret in $ENV{S}.
PROFILE = f"""extends = "default"
[[sink]]
name = "tool"
exe = ["{PERL}"]
options = ["-e .+"]
operands = []
paths = ["{{homes}}/.vault-token", "{{workspace}}/.env", "{{home}}/link"]
outputs = ["{{workspace}}/out/**"]
reason = "a tool of the test"

[[rule]]
protection = true
effects = ["read"]
paths = ["{{home}}/link"]
verdict = "deny"
reason = "a link to a secret"
"""
READ = "open F, q(<), $ENV{S} or die qq(read: $!\\n); local $/; $x = <F>;"
# How it writes what it has read to the file of that name.
WAYS = {
    "plain": f"{READ} open O, q(>plain) or die $!; print O $x;",
    "opened before": f"open O, q(>opened before); {READ} print O $x;",
    "renamed": f"{READ} open O, q(>x.tmp); print O $x; close O; rename q(x.tmp), q(renamed) or die $!;",
    "by a child": f"{READ} if (!fork) {{ open O, q(>by a child); print O $x; close O; exit }} wait;",
    "appended": f"{READ} open O, q(>>appended) or die $!; print O $x;",
    "nameless": f"{READ} sysopen O, q(.), 020200001 or die $!; syswrite O, $x; "
    "$p = q(/proc/self/fd/) . fileno O; $n = q(nameless); syscall(265, -100, $p, -100, $n, 0x400) and die $!;",
    "read and written": f"{READ} sysopen O, q(read and written), 0102 or die $!; syswrite O, $x;",
    "sub/deep": f"{READ} mkdir q(sub); open O, q(>sub/deep) or die $!; print O $x;",
}
AFTER = """
cat plain; ln plain linked && cat linked; mv renamed moved && cat moved; ln -s plain symbolic && cat symbolic
cat < plain; cp plain copied; $PERL -ne print plain; $PERL -e 'open F, q(<plain) and print q(it reads its own)'; echo
tar cf t.tar plain; sh plain; cat /proc/self/cwd/plain; dd if=plain status=none; ./plain
exec 7<> plain && cat <&7
rm moved && echo removed
S=.env $PERL -e '@READ open O, q(>.env.local) or die $!; print O $x' && mv .env.local away && cat away; cat .env.local
$PERL -e '@READ mkdir q(out); open O, q(>out/told) or die $!; print O length $x' && cat out/told; echo
$PERL -e '$n = syscall(257, -100, $ENV{S}, 0, 0); $n > 2 or die $!; exec q(/bin/cat), qq(/proc/self/fd/$n)'
$PERL -e 'open O, q(>own) or die $!; print O q(nothing)' && cat own; echo
S=~/link $PERL -e '@READ print length $x'; echo; $PERL -ne print ~/dotfiles/token; cat ~/dotfiles/token
mkfifo ready over
exec 8<> ready
$PERL -e '@READ $n = q(m); $m = syscall(319, $n, 0); open M, qq(+<&=$m); syswrite M, $x; pipe R, W; @WAIT' &
read -t 20 pid memory pipe <&8 || exit 9
for fd in $memory $pipe; do cat /proc/$pid/fd/$fd; done
$PYTHON -I pinned.py $pid $memory $pipe
echo > over; wait
"""
WAIT = "syswrite W, $x; open P, q(>ready); print P qq($$ $m ), fileno R, qq(\\n); close P; open Q, q(<over); <Q>;"
PINNED = """
import os, sys
for number in sys.argv[2:]:
    pin = os.open(f"/proc/{sys.argv[1]}/fd/{number}", os.O_PATH)
    try:
        print(os.read(os.open(f"/proc/self/fd/{pin}", os.O_RDONLY), 100))
    except PermissionError:
        print("pinned: Permission denied", file=sys.stderr)
"""


@pytest.fixture
def anybody() -> support.Identity:
    """One identity: what is tested here does not depend on it."""
    return next(who for who in support.identities().values() if isinstance(who, support.Identity))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls by the numbers of x86_64")
def test_what_a_sink_writes_is_as_secret_as_what_it_reads(anybody: support.Identity, tmp_path: Path) -> None:
    if not os.access(PERL, os.X_OK):
        pytest.skip("perl is missing (Debian package perl)")
    runner = support.Runner(tmp_path.resolve(), anybody)
    runner.fresh()
    give(runner, runner.home / ".vault-token", CANARY, 0o600)
    give(runner, runner.home / "dotfiles/token", CANARY, 0o600)
    (runner.home / "link").symlink_to("dotfiles/token")
    give(runner, runner.work / ".env", b"TOKEN=" + CANARY + b"\n", 0o600)
    give(runner, runner.work / "pinned.py", PINNED.encode())
    profile = give(runner, runner.base / "p.toml", PROFILE.encode())
    lines = ["umask 077; echo before > appended"]
    lines += [f"$PERL -e '{way}' || echo 'failed: {name}' >&2" for name, way in WAYS.items()]
    lines += [f"cat '{name}' || echo 'closed: {name}'" for name in WAYS]
    script = "\n".join([*lines, AFTER.replace("@READ", READ).replace("@WAIT", WAIT)])
    env = {"PERL": PERL, "S": str(runner.home / ".vault-token")}
    result = runner.supervise(["bash", "-c", script], options=("-p", str(profile), "-q"), env=env)
    assert "failed:" not in result.err, result.err
    copies = {runner.work / name for name in WAYS} - {runner.work / "renamed"} | {runner.work / ".env.local"}
    assert [path for path in copies if CANARY not in path.read_bytes()] == []
    assert not [form for form in forms(CANARY) if form in result.stdout + result.stderr], result
    said = result.out
    assert [line.removeprefix("closed: ") for line in said.splitlines() if line.startswith("closed: ")] == list(WAYS)
    for words in ("it reads its own", "removed", f"{len(CANARY)}", "nothing"):
        assert words in said, said
    assert "TOKEN=pincer:" in said
    for path in runner.work.rglob("*"):
        if stat.S_ISREG(path.lstat().st_mode) and path not in {*copies, runner.work / ".env"}:
            assert CANARY not in path.read_bytes(), path
    assert result.err.count("pinned: Permission denied") == 2, result.err
    reasons = [entry["reason"] for entry in result.denied(runner.work / "plain")]
    assert len(reasons) > 10 and all("written by a program that has read" in reason for reason in reasons)
