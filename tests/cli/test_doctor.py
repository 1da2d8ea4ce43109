"""`doctor` tells the truth: on this machine, for an ordinary user, and where something is really missing."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile

import pytest

from pincer_trace.kernel import fastpath, libc

USER_NOTIF, ALLOW, ERRNO = 0x7FC00000, 0x7FFF0000, 0x00050000
ENOSYS = 38


def refuse(name, action):
    """A filter with that action for the call `name`."""
    rows = ((0x20, 0, 0, 0), (0x15, 0, 1, libc.NUMBER[name]), (6, 0, 0, action), (6, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def without_listener(program):
    """Install a plain filter."""
    import ctypes

    libc.set_no_new_privileges()
    code = ctypes.create_string_buffer(program, len(program))
    libc.call("seccomp", 1, 0, ctypes.byref(libc._FilterProgram(len(program) // 8, ctypes.addressof(code))))


def words(done):
    """name -> ok or missing."""
    return {line[8:26].strip(): line[:8].strip() for line in done.stdout.splitlines() if line[:8].strip()}


def test_this_machine_is_ready(program):
    done = program("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    found = words(done)
    needed = [
        "kernel",
        "not nested",
        "filter",
        "listener",
        "notification",
        "task memory",
        "killable wait",
        "injection",
    ]
    assert [found[name] for name in needed] == ["ok"] * len(needed)
    assert found["libseccomp"] == found["state directory"] == "ok"
    assert found["fast path"] == ("ok" if fastpath.available() else "missing")
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 100  # the last one names a directory


_AS_NOBODY = """
import os, sys
import pincer_trace.cli, pincer_trace.doctor, pincer_trace.__main__, pyseccomp
from pincer_trace.kernel import landlock, libc, notify
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
libc.prctl(libc.PR_SET_DUMPABLE, 1)  # as exec of a readable program would have it
sys.argv = ["pincer-trace", "doctor"]
sys.exit(pincer_trace.__main__.main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_is_served_alike(program):
    """Everything is imported before the change of user, who may be unable to read this interpreter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chown(place, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY],
            env={**program.environ, "XDG_STATE_HOME": place, "HOME": place},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert words(done) == words(program("doctor"))


def test_p6_a_nested_run_is_told(program):
    def hold():
        libc.set_no_new_privileges()
        os.set_inheritable(libc.install_filter(refuse("getppid", USER_NOTIF)), True)

    done = program("doctor", preexec_fn=hold, close_fds=False)
    assert done.returncode == 1
    assert words(done)["not nested"] == "missing"
    assert "another supervisor already holds this process (EBUSY)" in done.stdout
    assert "filter" not in words(done)
    assert words(done)["landlock-scope"] == words(program("doctor"))["landlock-scope"]  # the rest is still told


@pytest.mark.parametrize(
    ("call", "missing", "status"),
    [
        ("landlock_create_ruleset", {"landlock"}, 0),
        ("landlock_restrict_self", {"landlock", "landlock-net", "landlock-scope", "mounts"}, 0),
        ("pidfd_getfd", {"listener", "notification", "task memory", "killable wait", "injection"}, 1),
        ("seccomp", {"filter", "listener", "notification", "task memory", "killable wait", "injection"}, 1),
    ],
)
def test_what_is_really_missing_is_found_by_trying(program, call, missing, status):
    done = program("doctor", preexec_fn=lambda: without_listener(refuse(call, ERRNO | ENOSYS)))
    assert (done.returncode, done.stderr) == (status, "")
    assert {name for name, word in words(done).items() if word == "missing"} == missing


def test_a_landlock_that_does_not_hold_is_found(program):
    """restrict_self that claims success and does nothing."""
    done = program("doctor", preexec_fn=lambda: without_listener(refuse("landlock_restrict_self", ERRNO | 0)))
    assert words(done)["landlock"] == words(done)["landlock-net"] == words(done)["landlock-scope"] == "missing"
    assert "create went through the domain" in done.stdout


def test_an_open_or_broken_state_directory(program, tmp_path):
    place = tmp_path / "open"
    (place / "pincer-trace" / "sessions").mkdir(parents=True)
    (place / "pincer-trace" / "sessions").chmod(0o777)
    done = program("doctor", environ={"XDG_STATE_HOME": str(place)})
    assert words(done)["state directory"] == "missing" and "chmod 700" in done.stdout
    (tmp_path / "file").write_text("")
    done = program("doctor", environ={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert (done.returncode, words(done)["state directory"]) == (1, "missing")


def test_a_missing_libseccomp_is_named_with_its_package(program, tmp_path):
    (tmp_path / "pyseccomp.py").write_text("raise RuntimeError('Unable to find libseccomp')")
    done = program("doctor", environ={"PYTHONPATH": f"{tmp_path}:{program.environ['PYTHONPATH']}"})
    assert done.returncode == 1
    assert words(done)["libseccomp"] == "missing" and "apt-get install libseccomp2" in done.stdout


def test_nothing_is_left_behind(program, tmp_path):
    before = set(os.listdir("/tmp"))
    program("doctor", environ={"TMPDIR": str(tmp_path)})
    assert not [name for name in os.listdir(tmp_path) if name.startswith("pincer-trace-")]
    assert not {name for name in set(os.listdir("/tmp")) - before if name.startswith("pincer-trace-")}
