"""Real programs save what they were shown as a view: the ordinary ones work, and the file is whole whatever happens."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import support
from hazards.programs.p_kit import Live, give, kill, state, until

TEXT = "# canary-0\nAPI_KEY=canary-1\n\nDEBUG=canary-2  # why\nDB='postgres://u:canary-3@h/d'\n"
PROGRAMS = r"""
try() { "$@" || echo "failed: $*" >&2; }
try sed -i 's/^DEBUG=.*/DEBUG=false/' .env
echo 'APPENDED=1' >> .env
try "$PYTHON" -c "t = open('.env').read(); open('.env', 'w').write(t + 'PYTHON=2\n')"
try perl -pi -e 's/^APPENDED=.*/APPENDED=3/' .env
printf '$a\nED=4\n.\nw\nq\n' | try ed -s .env
try vim -es -u NONE -i NONE -c 'set nocp backupskip= writebackup' -c 'g/^ED=/normal oVIM=5' -c 'wq' .env
try sh -c 'cat .env > .env.tmp && mv .env.tmp .env'
try touch .env
cat .env > shown
"""
EDITED = TEXT.replace("DEBUG=canary-2", "DEBUG=false") + "APPENDED=3\nPYTHON=2\nED=4\nVIM=5\n"


@pytest.mark.skipif(not all(map(shutil.which, ("ed", "vim", "perl"))), reason="ed, vim and perl are needed")
@pytest.mark.parametrize("twin", ["inline", "process"])
def test_programs_edit_what_they_do_not_see(runner: support.Runner, twin: str) -> None:
    give(runner, runner.work / ".env", TEXT.encode(), 0o640)
    result = runner.supervise(["sh", "-c", PROGRAMS], options=("--quiet", "--twin", twin), timeout=120)
    assert result.err == "" and result.status == 0, result
    assert (runner.work / ".env").read_text() == EDITED
    found = os.stat(runner.work / ".env")
    assert (found.st_mode & 0o777, found.st_uid) == (0o640, runner.identity.uid)
    shown = (runner.work / "shown").read_text()
    assert "canary" not in shown and "VIM=pincer:" in shown
    assert sorted(os.listdir(runner.work)) == [".env", "shown"]
    assert not [entry for entry in result.denied() if entry["verdict"] != "view" and entry["outcome"] != "done"]
    ours = [runner.identity.python, "-I", "-m", "pincer_trace"]
    assert "nothing differs" in runner.native([*ours, "replay", str(result.session)]).out
    log = runner.native([*ours, "log", str(result.session), "--path", ".env*"]).out
    assert "read as a view: 4 handles" in log and "an edited view was saved: " in log
    report = runner.native([*ours, "report", str(result.session)]).out
    assert " reads of protected files" in report and "canary" not in report + log


WRITER = """
import os, sys
text = open(".env").read()
made = open(".env", "w")
made.write(text.replace("API_KEY", "TOKEN")[:10])
made.flush()
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("victim", ["engine", "front"])
def test_a_supervisor_that_is_killed_leaves_the_file_whole(runner: support.Runner, victim: str) -> None:
    give(runner, runner.work / ".env", TEXT.encode(), 0o640)
    with Live(runner, [runner.identity.python, "-c", WRITER]) as run:
        run.read_until(b"written\n")
        worker = run.worker
        kill(getattr(run, victim), signal.SIGKILL)
        for _ in until("the end of the tree", 20):
            if state(worker) in "XZ":
                break
    assert (runner.work / ".env").read_text() == TEXT
    assert os.listdir(runner.work) == [".env"]


def test_a_writer_that_is_killed_saves_what_fits_and_loses_what_does_not(runner: support.Runner) -> None:
    give(runner, runner.work / ".env", TEXT.encode(), 0o640)
    script = """
"$PYTHON" -c "
import os, signal
text = open('.env').read()
made = open('.env', 'w'); made.write(text + 'MORE=1\\n'); made.flush()
os.kill(os.getpid(), signal.SIGKILL)"
cat .env > first
"$PYTHON" -c "
import os, signal
made = open('.env', 'w'); made.write('HALF'); made.flush()
os.kill(os.getpid(), signal.SIGKILL)"
cat .env 2> told; cat .env > second
"""
    result = runner.supervise(["sh", "-c", script], timeout=60)
    assert (runner.work / ".env").read_text() == TEXT + "MORE=1\n"
    assert "Permission denied" in (runner.work / "told").read_text()
    assert (runner.work / "first").read_text() == (runner.work / "second").read_text() != ""
    assert [entry["code"] for entry in result.denied() if entry["verdict"] == "deny"] == ["SAVE_REFUSED"] * 2
