"""Odd places to start from: no home, a removed directory, inside of another run. One line, nothing half done."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

import pincer_trace
from pincer_trace.paths import state_directory, word


def run(*words, cwd, environ):
    """`pincer-trace WORDS`, by the interpreter of the tests."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "pincer_trace", *words],
        cwd=cwd, env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_without_a_home_nothing_is_made(tmp_path, monkeypatch):
    """A user without HOME and without an entry in the password file: no directory named `~` in the work tree."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    try:
        state_directory()
    except Exception as error:
        assert "HOME is not set" in str(error)
    else:
        raise AssertionError("a relative state directory")


def test_a_removed_working_directory(tmp_path):
    code = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone');"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-P', '-m', 'pincer_trace', '--', 'true'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 125
    assert done.stderr.startswith("pincer-trace: the working directory cannot be used") and done.stderr.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_p06_nested_with_the_usual_sessions(tmp_path):
    """The inner one cannot even keep a session: it says why that may be."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    done = run(
        "-q", "--", sys.executable, "-P", "-m", "pincer_trace", "--", "true", cwd=work, environ={"HOME": str(home)}
    )
    assert done.returncode == 125
    assert done.stderr.startswith("pincer-trace: another seccomp supervisor already holds this process")
    assert "outermost" in done.stderr and done.stderr.count("\n") == 1 and "--session-dir" not in done.stderr


def test_p06_nested_with_sessions_of_its_own_leaves_none(tmp_path):
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    inner = [sys.executable, "-P", "-m", "pincer_trace", "--session-dir", str(work / "inner"), "--", "true"]
    done = run("-q", "--", *inner, cwd=work, environ={"HOME": str(home)})
    assert done.returncode == 125 and "outermost" in done.stderr and done.stderr.count("\n") == 1
    assert os.listdir(work / "inner") == []


def test_a_home_that_is_no_absolute_path(tmp_path):
    for home, shown in (("foo", "foo"), ("", "empty")):
        done = run("--", "true", cwd=tmp_path, environ={"HOME": home})
        assert (done.returncode, done.stderr.count("\n")) == (125, 1)
        assert f"HOME is {shown}, no absolute path" in done.stderr
        assert run("doctor", cwd=tmp_path, environ={"HOME": home}).returncode == 1
    assert os.listdir(tmp_path) == []


def test_a_start_that_fails_leaves_no_session(tmp_path):
    """No room for the first file of the session, or none for its content."""
    home = tmp_path / "home"
    home.mkdir()
    assert run("-q", "--", "true", cwd=tmp_path, environ={"HOME": str(home)}).returncode == 0  # compiles the filter
    sessions = home / ".local/state/pincer-trace/sessions"
    before = os.listdir(sessions)
    for limit in (0, 16):
        code = (
            "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
            f"os.execv({sys.executable!r}, [{sys.executable!r}, '-P', '-m', 'pincer_trace', '--', 'true'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(home)}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (125, 1), done.stderr
        assert "no session directory at" in done.stderr
        assert os.listdir(sessions) == before


def test_the_last_line_names_a_session_that_lies_elsewhere(tmp_path):
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    sessions = tmp_path / "my sessions"
    done = run("--session-dir", str(sessions), "--", "true", cwd=work, environ={"HOME": str(home)})
    assert done.returncode == 0
    (session,) = sessions.iterdir()
    assert done.stderr.rstrip().endswith(f"log: pincer-trace log '{session}'")


def test_who_is_supervised_is_told_where_to_read_instead(tmp_path):
    """An agent that asks for the log gets no permission for it, and the name of what it may read."""
    work = tmp_path / "work"
    work.mkdir()
    environ = {"HOME": str(tmp_path / "home"), "PYTHONPATH": os.path.dirname(os.path.dirname(pincer_trace.__file__))}
    inner = [sys.executable, "-P", "-m", "pincer_trace", "log"]
    done = run("-q", "--", *inner, cwd=work, environ=environ)
    assert (done.returncode, done.stdout) == (125, "")
    assert "Permission denied; this process is supervised itself: the file that PINCER_DENIALS names" in done.stderr


@pytest.mark.parametrize(
    "text", ["", "a", "a b", "it's", "/w/x-1_2.txt", "~", "a=b@c:%+,", "é", "\u0663", "$x", "a\nb", "*", "#", "\udcff"]
)
def test_a_word_is_quoted_as_shlex_does(text):
    assert word(text) == shlex.quote(text)
