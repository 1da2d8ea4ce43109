"""Values in the environment of one sink: it has them, and nobody else sees them by any way."""

from __future__ import annotations

import os

import pytest
import support
from hazards.path_programs.tools import forms, give

PERL = "/usr/bin/perl"
FIRST, SECOND, LONG = b"Canary7f3aQzXw", b"Canary5k8vRtYu", b"Canary2m6nWpLs" * 4
PROFILE = f"""extends = "default"
[[sink]]
name = "tool"
exe = ["{PERL}"]
options = ["-e .+"]
operands = []
paths = ["{{workspace}}/.env"]
variables = ["DB_PASSWORD", "PGPASSWORD"]
environment = ["KEEP_*"]
reason = "a tool of the test"
"""
SUM = "print qq($_ ), unpack(q(%32C*), $ENV{$_}), qq( ), length $ENV{$_}, qq(\\n) for grep {exists $ENV{$_}} qw(X)"
SCRIPT = """
at() { sed -n "s/^$1=//p" .env | tr -d '"'; }
say() { echo "@@$1"; shift; "$@" 2>&1; }
both() { $PERL -e '@SUM'; }
say given both
PGPASSWORD=$(at TOKEN) say view both
PGPASSWORD=$(at QUOTED) say quoted both
PGPASSWORD=$(at LONG) say cramped both
PGPASSWORD=$(at LONG)________________________ say roomy both
PGPASSWORD=$(at TOKEN)x say damaged both
PGPASSWORD=pincer:aaaaaaaaaaaaaaaaaaaaaaaaaa say guessed both
say other_options $PERL -le 'print for @ENV{qw(DB_PASSWORD)}'
say misled env GLIBC_TUNABLES=glibc.malloc.check=0 $PERL -e 'print $ENV{DB_PASSWORD}'
say fixed setarch -R $PERL -e 'print $ENV{DB_PASSWORD}'
say shell sh -c 'echo $DB_PASSWORD'
MINE=$DB_PASSWORD say names $PERL -e 'print join q( ), sort grep {length $ENV{$_}} keys %ENV'
say child $PERL -e 'print qq(started\\n) if system(q(/usr/bin/env)) != -1; print qq(not started: $!)'
say vfork $PERL -e 'exec q(/usr/bin/env); print qq(not started: $!)'
say copy $PERL -e 'open O, q(>copy) or die $!; print O $ENV{DB_PASSWORD}'
say closed cat copy
say mimic $PERL -W -e '$0 = qq(perl\\0-e\\0x); open F, q(<), q(.env) or die $!; print <F>'
mkfifo ready over; exec 8<> ready
$PERL -e 'open P, q(>ready); print P qq($$\\n); close P; open Q, q(<over); <Q>;' &
read -t 20 pid <&8 || exit 9
say watched $PYTHON -I watch.py $pid
echo > over; wait
"""
WATCH = """
import os, sys
pid = sys.argv[1]
os.chdir(f"/proc/{pid}")
pin = os.open("environ", os.O_PATH)
for name in (f"/proc/{pid}/environ", f"/proc/{pid}/task/{pid}/environ", "environ", "/proc/self/environ",
             f"/proc/{pid}/mem", f"/proc/self/fd/{pin}", f"/proc/self/root/proc/{pid}/environ"):
    try:
        print(open(name, "rb").read())
    except PermissionError:
        print("refused")
"""


def told(name: str, value: bytes) -> str:
    return f"{name} {sum(value)} {len(value)}"


def test_a_sink_has_values_in_its_environment_and_nobody_else(runner: support.Runner) -> None:
    if not os.access(PERL, os.X_OK):
        pytest.skip("perl is missing (Debian package perl)")
    env_file = b'TOKEN=%b\nQUOTED="%b"\nLONG=%b\n' % (SECOND, SECOND, LONG)
    give(runner, runner.work / ".env", env_file, 0o600)
    give(runner, runner.work / "watch.py", WATCH.encode())
    profile = give(runner, runner.base / "p.toml", PROFILE.encode())
    script = SCRIPT.replace("@SUM", SUM.replace("X", "DB_PASSWORD PGPASSWORD"))
    env = {"PERL": PERL, "DB_PASSWORD": FIRST.decode(), "KEEP_ME": "1"}
    result = runner.supervise(["bash", "-c", script], options=("-p", str(profile)), env=env)
    assert result.status == 0, result
    output = result.stdout + result.stderr
    assert not [form for each in (FIRST, SECOND, LONG[:14]) for form in forms(each) if form in output], result
    said = {part.split("\n")[0]: part.partition("\n")[2].strip() for part in result.out.split("@@")[1:]}
    first = told("DB_PASSWORD", FIRST)
    assert said["given"] == first, result
    assert said["view"] == said["quoted"] == f"{first}\n{told('PGPASSWORD', SECOND)}", result
    assert said["roomy"] == f"{first}\n{told('PGPASSWORD', LONG)}"
    for name in ("cramped", "damaged", "guessed"):
        assert said[name] == first, name  # what is refused is taken away
    for name in ("other_options", "misled", "fixed", "shell"):
        assert said[name].startswith("pincer:") and len(said[name]) == 64, name
    assert {"DB_PASSWORD", "KEEP_ME", "PATH"} <= set(said["names"].split())
    assert not {"MINE", "HOME", "PERL", "PINCER_DENIALS", "SHLVL", "_"} & set(said["names"].split()), said["names"]
    for name in ("child", "vfork"):
        assert said[name].endswith("not started: Permission denied"), said
    assert (runner.work / "copy").read_bytes() == FIRST
    assert "Permission denied" in said["closed"] and "TOKEN=pincer:" in said["mimic"], said
    assert said["watched"].split() == ["refused"] * 7
    assert "DB_PASSWORD: a handle stands in it, for the sink tool" in result.err
    given = [(entry["path"], (entry.get("extra") or {}).get("given")) for entry in result.decisions]
    assert {each for each in given if each[1]} == {
        ("//$DB_PASSWORD", "DB_PASSWORD"),
        (str(runner.work / ".env"), "PGPASSWORD"),
    }
    reasons = " ".join(entry["reason"] for entry in result.decisions if "keeps its handle" in entry["reason"])
    for words in ("needs room", "no handle of this run", "GLIBC_TUNABLES", "other arguments than its sink"):
        assert words in reasons, reasons
    direct = runner.supervise(
        [PERL, "-e", SUM.replace("X", "DB_PASSWORD")], options=("-p", str(profile), "-q"), env=env
    )
    assert direct.out.strip() == first, direct
