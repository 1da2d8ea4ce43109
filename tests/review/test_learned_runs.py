"""A profile learned from one run of a program admits another one of it, and refuses what was not part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import support

REPOSITORY = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
git init -q . && mkdir src && for n in 1 2 3; do echo $n > src/f$n; done && git add . && git commit -qm first
"""
GIT = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x; "
PACKAGE = """
mkdir -p pkg/thing && printf 'X = 1\\n' > pkg/thing/__init__.py
printf '[build-system]\\nrequires = []\\nbuild-backend = "own"\\nbackend-path = ["."]\\n' > pkg/pyproject.toml
cat > pkg/own.py <<'END'
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(directory + "/" + name, "w") as out:
        out.write("thing/__init__.py")
        out.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n")
        wheel = "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        out.writestr("thing-1.0.dist-info/WHEEL", wheel)
        out.writestr("thing-1.0.dist-info/RECORD", "")
    return name
END
"""
SERVER = """
import os, socket, threading
socket.setdefaulttimeout(10)
for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "sock")):
    server = socket.socket(family)
    server.bind(address); server.listen()
    thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"))
    thread.start()
    client = socket.socket(family)
    client.connect(server.getsockname())
    assert client.recv(9) == b"hello"
    thread.join(); client.close(); server.close()
os.unlink("sock")
"""
TEMPORARY = """
import multiprocessing, os, shutil, tempfile
with tempfile.TemporaryDirectory(prefix="mine-") as folder:
    os.mkdir(folder + "/a"); open(folder + "/a/x", "w").write("1"); os.rename(folder + "/a", folder + "/b")
with tempfile.NamedTemporaryFile(dir=".") as file: file.write(b"x")
descriptor, name = tempfile.mkstemp(dir="."); os.close(descriptor); os.replace(name, "saved")
lock = multiprocessing.get_context("fork").Lock()
"""

FILES = "mkdir in; for n in 1 2 3 4 5 6 7 8; do echo $n > in/$n; done"

# What was there before, and the program. Each runs twice, in fresh folders.
ORDINARY = {
    "git": (
        REPOSITORY,
        GIT + "echo x >> src/f1; git commit -qam 2; git checkout -qb b; git mv src/f2 src/g2; git commit -qm m",
    ),
    "temporary": ("", f"$PYTHON -c '{TEMPORARY}'"),
    "servers": ("", f"$PYTHON -c '{SERVER}'"),
}
WORKLOADS = {
    "files": ("mkdir old; echo a > old/a", "mkdir -p new/d; cp old/a new/d/b; mv new/d/b new/c; rm old/a; rmdir old"),
    "links": ("echo a > a", "ln -s a s; ln a h; readlink s; rm h; mkfifo p; rm p"),
    "attributes": ("echo a > a; mkdir d", "chmod 600 a; touch -d @9 a; chmod -R a+rX d; chgrp $(id -g) a d"),
    "git-books": (
        REPOSITORY,
        GIT + "git gc -q; git stash list; git tag t; git branch -q z; git repack -qad; git reflog expire --all",
    ),
    "git-merge": (
        REPOSITORY,
        GIT + "git checkout -qb x; echo x > src/x; git add .; git commit -qm x; git checkout -q -; echo y > src/y; "
        "git add .; git commit -qm y; git merge -q --no-edit x; git rebase -q HEAD~1",
    ),
    "git-worktree": (
        REPOSITORY,
        GIT + "git worktree add -q wt; cd wt; echo w > w; git add w; git commit -qm w; cd ..; git worktree remove wt",
    ),
    "git-clone": (REPOSITORY, GIT + "git clone -q . copy; cd copy; echo w > w; git add w; git commit -qm w"),
    "build": (
        "printf 'int main(void){return 0;}' > a.c; printf 'all: a\\na: a.o\\n\\tgcc -o a a.o\\n' > Makefile",
        "make -s; ./a; make -s",
    ),
    "archive": (FILES, "tar czf x.tgz in; mkdir out; tar xzf x.tgz -C out; rm -r out/in"),
    "sync": (FILES, "rsync -a in/ out/; rm in/1; rsync -a --delete in/ out/"),
    "database": (
        "",
        "sqlite3 x.db 'create table t(a); insert into t values(1); pragma journal_mode=wal; insert into t values(2);'",
    ),
    "edit": (
        "for n in 1 2 3; do echo a > $n; done",
        "sed -i s/a/b/ 1 2; printf '1c1\\n< a\\n---\\n> z\\n' | patch -s 3; sort -o 2 2",
    ),
    "compile": (
        "for n in a b c; do echo 'x = 1' > $n.py; done",
        "$PYTHON -m compileall -q .; $PYTHON -c 'import a, b'",
    ),
    "pytest": (
        'printf \'def test_a(tmp_path): (tmp_path / "x").write_text("1")\\n\' > test_x.py',
        "PYTHONDONTWRITEBYTECODE=1 PYTEST_DEBUG_TEMPROOT=$PWD $PYTHON -m pytest -q test_x.py",
    ),
    "venv": ("", "$PYTHON -m venv --without-pip v; v/bin/python -c 'import sys; print(sys.prefix)'"),
    "pip": (
        PACKAGE,
        "$PYTHON -m pip install -q --no-index --no-deps --disable-pip-version-check --target lib ./pkg; "
        "PYTHONPATH=lib $PYTHON -c 'import thing'",
    ),
    "search": (
        FILES + "; mkdir b",
        "find . -name 1 -exec cp {} b/ ';'; grep -r 1 in > found; xargs -a found echo > /dev/null",
    ),
}


def learn(runner: support.Runner, *sessions: Path) -> Path:
    """The profile, in a file that the program cannot change."""
    done = runner.subcommand("profile", "learn", *sessions)
    assert done.returncode == 0, done.stderr
    file = runner.base / "learned.toml"
    file.write_text(done.stdout)
    return file


def run(runner: support.Runner, before: str, program: str, *options: str) -> support.Result:
    """The program in fresh folders, supervised."""
    runner.fresh()
    made = runner.native(["sh", "-euc", before])
    assert made.status == 0, made
    return runner.supervise(["sh", "-euc", program], options=("--quiet", *options))


def check(runner: support.Runner, before: str, program: str) -> None:
    first = run(runner, before, program)
    assert (first.status, first.denied()) == (0, []), first
    file = learn(runner, first.session)
    again = run(runner, before, program, "-p", str(file))
    assert (again.status, again.denied()) == (0, []), f"{again}\n{again.denied()}\n{file.read_text()}"


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is recorded natively")
@pytest.mark.parametrize("name", ORDINARY)
def test_a_learned_profile_admits_another_run(runner: support.Runner, name: str) -> None:
    check(runner, *ORDINARY[name])


@pytest.mark.slow
@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is recorded natively")
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_learned_profile_admits_another_run_of_each_kind(runner: support.Runner, name: str) -> None:
    check(runner, *WORKLOADS[name])


# Each is tried by itself; those that succeed are printed.
INJECTED = r"""
import os, socket, sys
home, work = os.environ["HOME"], os.getcwd()
def write(path): open(path, "w").close()
def append(path): open(path, "a").close()
def connect(port):
    with socket.socket() as one: one.connect(("127.0.0.1", port))
def start(path): assert not os.waitpid(os.posix_spawn(path, [path, "--version"], {}), 0)[1]
DEEDS = [
    lambda: write("evil"), lambda: write("src/evil"), lambda: append("src/f3"), lambda: os.unlink("src/f3"),
    lambda: os.rename("src/f3", "src/z"), lambda: os.rename("src", "crs"), lambda: os.mkdir("evil.d"),
    lambda: os.symlink("/etc/passwd", "evil.s"), lambda: os.link("src/f3", "evil.h"), lambda: os.chmod("src/f3", 0o777),
    lambda: os.utime("src/f3"), lambda: os.setxattr("src/f3", "user.x", b"1"), lambda: os.truncate("src/f3", 0),
    lambda: os.mkfifo("evil.p"), lambda: os.rmdir("empty"), lambda: write(".git/hooks/pre-commit"),
    lambda: append(".git/config"), lambda: os.unlink(".git/description"), lambda: write(".vscode/tasks.json"),
    lambda: write(home + "/.npmrc"), lambda: write(home + "/notes"), lambda: append(home + "/.bashrc"),
    lambda: os.mkdir(home + "/.config"), lambda: open(home + "/diary"), lambda: open(home + "/.ssh/id_rsa"),
    lambda: write("/tmp/evil.txt"), lambda: connect(int(sys.argv[1])), lambda: start("/usr/bin/find"),
    lambda: start("/usr/bin/make"), lambda: socket.socket(socket.AF_UNIX).bind("evil.sock"),
]
for number, deed in enumerate(DEEDS):
    try:
        deed()
    except OSError as error:
        assert error.errno == 13, (number, error)
    else:
        print("done", number)
print("tried", len(DEEDS))
"""


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is recorded natively")
def test_a_learned_profile_refuses_thirty_of_thirty_that_were_not_part_of_the_run(runner: support.Runner) -> None:
    """The same program with one step more: without the profile all of it succeeds or is the default's to refuse."""
    import socket

    before = REPOSITORY + "mkdir -p empty .vscode $HOME/.ssh; echo k > $HOME/.ssh/id_rsa; echo d > $HOME/diary\n"
    program = GIT + 'echo x >> src/f1; git commit -qam second; $PYTHON -c "$EXTRA" $PORT'
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PORT": str(server.getsockname()[1])}
        runner.fresh()
        assert runner.native(["sh", "-euc", before]).status == 0
        first = runner.supervise(["sh", "-euc", program], env={**env, "EXTRA": "import socket"})
        assert (first.status, first.denied()) == (0, []), first
        file = learn(runner, first.session)
        runner.fresh()
        assert runner.native(["sh", "-euc", before]).status == 0
        hostile = runner.supervise(
            ["sh", "-euc", program], options=("--quiet", "-p", str(file)), env={**env, "EXTRA": INJECTED}
        )
    assert (hostile.status, hostile.out) == (0, "tried 30\n"), f"{hostile}\n{file.read_text()}"
    # and a profile that is learned from that hostile run is not looser: it refused all of it, and keeps it back
    again = learn(runner, hostile.session).read_text()
    assert "KEPT BACK" in again
    rules = again.partition("# What the runs did")[2]
    assert not [word for word in ("evil", ".npmrc", "diary", "id_rsa", "hooks", "/find") if word in rules]
    assert os.path.exists(runner.work / "src/f3")
