"""Odd places to start from: no home, a removed directory, inside of another run. One line, nothing half done."""

from __future__ import annotations

import os
import subprocess
import sys

from pincer_trace.paths import state_directory


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
    assert "already" in done.stderr and "outermost" in done.stderr and done.stderr.count("\n") == 1


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
