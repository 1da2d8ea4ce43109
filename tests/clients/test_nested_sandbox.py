"""An agent that runs its commands in a sandbox of its own, which makes mounts: under `floor = "scoped"` it works as
natively, and its own refusals hold.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import support

sys.path.insert(0, str(Path(__file__).parent))
from responses_api import ResponsesApi, call, outputs
from responses_api import say as answer
from test_typical_use import (  # the fixtures that install it and give it a home
    codex,  # noqa: F401
    linked,
    real_home,  # noqa: F401
    refused,
)

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = [
    "echo alpha > note.txt; cat note.txt; sed -i s/one/two/ a.txt; cat a.txt",
    "git status --short; git log --oneline | wc -l; git diff --stat",
    "echo x > ~/outside.txt; cat ~/outside.txt; echo x > /etc/outside; rm -rf ../main; ls -a ~ | wc -l",
    "cat ~/.ssh/id_ed25519; echo >> ~/.bashrc",
    "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'",
    "ls /proc | grep -c '^[0-9]'; mount | wc -l; touch $TMPDIR/made; rm $TMPDIR/made",
    "mkdir d; mv note.txt d; ls d; rm -r d",
]
CHANGING = re.compile(r"^(Chunk ID|Wall time|Original token count): .*\n", re.MULTILINE)


@pytest.mark.skipif(bool(support.PREFIX), reason="compared with a native run")
def test_codex_in_its_own_sandbox(runner: support.Runner, real_home: Path, codex: Path) -> None:  # noqa: F811
    """Every command gives the same, and nothing is refused that its sandbox has not refused already."""
    turns = [*([call("exec_command", cmd=step)] for step in STEPS), [answer("All done.")]]
    command = [str(codex), "exec", "-s", "workspace-write", "--json", "-m", "scripted", "Do it."]
    found, trees = [], []
    for supervised in (False, True):
        runner.fresh()
        runner.home = real_home
        temporary = runner.base / "tmp"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o1777)
        tree = linked(runner)
        with ResponsesApi(turns) as api:
            env = {
                "CODEX_API_KEY": "test-key-of-no-account", "OPENAI_BASE_URL": f"{api.url}/v1", "TMPDIR": str(temporary)
            }  # fmt: skip
            how = {"env": env, "cwd": tree, "timeout": 240}
            if supervised:
                result = runner.supervise(command, options=("-p", "codex-sandboxed"), **how)
            else:
                told = f'openai_base_url="{api.url}/v1"'
                result = runner.native([*command[:-1], "-c", told, command[-1]], **how)
            assert result.status == 0, result
            told = max((outputs(request) for request in api.requests), key=len)
        found.append([CHANGING.sub("", words) for words in told])
        trees.append((tree / "a.txt").read_text())
    assert len(found[0]) == len(STEPS)
    assert found[1] == found[0]
    assert trees == ["two\n", "two\n"]
    assert "the floor is 'scoped'" in result.err
    assert refused(result) == []
