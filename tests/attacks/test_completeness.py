"""The log is complete: what it says became of a tree is what became of it, for the programs that agents run.

The oracle is the tree itself, walked before and after: contents, modes, owners, times, attributes, names, inodes.
No change is without a record, and no record of a success without its change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import support
from attacks.journal import MAKES, MOVES, REMOVES, TOUCHES, Journal, walk

# What each program does, in a folder of its own. `there/` was made before the run.
PROGRAMS = {
    "shell": """
        cp -a ../there . && echo more >> there/a && rm there/b && mv there/sub there/moved && ln there/a hard
        ln -s hard soft && mkfifo pipe && chmod 600 hard && touch -d @1 hard && truncate -s 1 hard && rmdir there/empty
        mkdir -p x/y/z && : > x/y/z/f && rm -r x && cp hard copy && cp --remove-destination hard soft
        mv -f copy hard && install -m 700 hard bin && sed -i s/a/b/ bin && split -b 1 bin part. && cat part.* > whole
        setfattr -n user.x -v 1 whole && setfattr -n user.y -v 1 whole && setfattr -x user.x whole
    """,
    "elsewhere": """
        echo new > ../there/new && mv ../there/a ../there/sub/a && chmod 711 ../there/sub && echo changed > ../there/b
        rm ../there/c && echo more >> ../there/d
        ln ../there/d ../there/e && mkdir ../there/dir && mv ../there/empty ../there/dir/
    """,
    "git": """
        git init -q . && echo a > a && git add a && git -c user.name=n -c user.email=e@x commit -qm 1
        git checkout -qb side && echo b > b && git add b && git -c user.name=n -c user.email=e@x commit -qm 2
        git checkout -q - && git -c user.name=n -c user.email=e@x merge -q --no-ff side -m m && git gc -q
        echo c >> a && git stash -q && git stash pop -q && git clone -q . ../git-clone && git clean -fdq && git mv a z
    """,
    "make": """
        echo 'int main(void){return 0;}' > m.c
        printf 'm: m.o\\n\\tgcc -o $@ $<\\nclean:\\n\\trm -f m m.o\\n' > Makefile
        make -s m && make -s clean && make -s m && ar rc lib.a m.o && strip m
    """,
    "tar": """
        tar cf t.tar ../there 2>/dev/null && mkdir out && tar xf t.tar -C out && tar xf t.tar -C out --overwrite
        tar czf t.tgz out && gzip -k t.tar && gunzip -f t.tar.gz && rm -r out
    """,
    "sqlite": """
        sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1),(2); delete from t; vacuum'
        sqlite3 old 'pragma journal_mode=delete; create table t(x); begin; insert into t values(1); commit'
    """,
    "rsync": """
        rsync -a ../there/ copy && echo x > copy/x && rsync -a --delete ../there/ copy
        rsync -a --inplace ../there/ copy
    """,
    "saves": """
        $PYTHON -I -c '
import ctypes, os, tempfile
def replace(name):
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f: f.write("v2")
    os.chmod(f.name, 0o644); os.rename(f.name, name)
def backup(name):  # vim: backupcopy=no
    os.rename(name, name + "~"); open(name, "w").write("v3"); os.unlink(name + "~")
def inplace(name):
    open(name, "r+").write("v4")
def nameless(name):  # O_TMPFILE, then a name
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY); os.write(fd, b"v5")
    ctypes.CDLL(None).linkat(-100, b"/proc/self/fd/%d" % fd, -100, name.encode(), 0x400)
for save in (replace, backup, inplace): open("f", "a").close(); save("f")
nameless("g")
assert not ctypes.CDLL(None).renameat2(-100, b"f", -100, b"g", 2)
import mmap
with open("m", "w+b") as f:
    f.truncate(10); m = mmap.mmap(f.fileno(), 10); m[:] = bytes(10); m.close()
import shutil, socket
s = socket.socket(socket.AF_UNIX); s.bind("sock")
shutil.copytree("../there", "t"); shutil.move("t", "u"); shutil.rmtree("u")
with tempfile.TemporaryDirectory(dir=".") as d: open(d + "/x", "w")
'
    """,
    "venv": "$PYTHON -m venv --without-pip env && env/bin/python -m compileall -q env",
    "npm": """
        $PYTHON -I -c '
import os
for n in range(60):  # as npm does: a staging name beside, then a rename
    os.makedirs(f"node_modules/.p{n}-x/lib")
    for name in (f"node_modules/.p{n}-x/lib/{m}.js" for m in range(3)):
        open(name, "w").write(name); os.chmod(name, 0o755)
    os.rename(f"node_modules/.p{n}-x", f"node_modules/p{n}")
    os.makedirs("node_modules/.bin", exist_ok=True); os.symlink(f"../p{n}/lib/1.js", f"node_modules/.bin/p{n}")
os.rename("node_modules/p1", "node_modules/.old"); os.rename("node_modules/p2", "node_modules/p1")
import shutil; shutil.rmtree("node_modules/.old")
'
    """,
}


def furnish(runner: support.Runner) -> None:
    """What was there before."""
    made = runner.native(
        ["sh", "-euc", "mkdir -p there/sub there/empty; for n in a b c d sub/1 sub/2; do echo $n > there/$n; done"]
    )
    assert made.status == 0, made


def replayed(start: Journal, records: Iterable[dict[str, Any]]) -> Journal:
    journal = copy.deepcopy(start)
    for record in records:
        journal.apply(record)
    return journal


def test_the_log_says_what_became_of_the_tree(runner: support.Runner) -> None:
    furnish(runner)
    tops = [runner.work, runner.home]
    runner.supervise(["true"])  # which leaves the compiled profile in the home
    start = Journal(tops)
    script = "".join(
        f"(mkdir {name} && cd {name} && {body.strip()}) || echo {name}\n" for name, body in PROGRAMS.items()
    )
    env = {"TMPDIR": str(runner.work), "GIT_CONFIG_NOSYSTEM": "1"}
    result = runner.supervise(["sh", "-c", script], env=env, timeout=120)
    assert (result.status, result.out) == (0, "wal\ndelete\n"), result
    records = [record for record in result.decisions if record["kind"] == "intent"]
    real = walk(tops)
    journal = replayed(start, records)
    wrong = journal.compare(real)
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])
    assert set(journal.applied) >= {*MAKES, *MOVES, *REMOVES, "write", "chmod", "utime", "xattr"}
    assert sum(journal.applied.values()) > 1000
    # Each kind of record is needed: without one of them the same comparison fails.
    for effect in (*MAKES, *MOVES, *REMOVES, "write", "truncate", "chmod"):
        *_, last = [record for record in records if record["effect"] == effect and known(record, start)]
        assert replayed(start, (record for record in records if record is not last)).compare(real), last


def known(record: dict[str, Any], start: Journal) -> bool:
    """Whether it is about the tree; and where it only touches something, about something from before."""
    return start.inside(record["path"]) if record["effect"] not in TOUCHES else record["path"] in start.names
