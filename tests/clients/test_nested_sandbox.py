"""An agent that runs its commands in a sandbox of its own, which makes mounts: under `floor = "scoped"` it works as
natively, and its own refusals hold.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import folder, give

sys.path.insert(0, str(Path(__file__).parent))
from responses_api import ResponsesApi, call, outputs
from responses_api import say as answer
from test_typical_use import (  # the fixtures that install it and give it a home
    codex,  # noqa: F401
    from_npm,
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


COMMAND = r"""
echo hi >f; cat f; echo x >~/g; cat ~/.ssh/id_ed25519; node -e 'console.log(1)'; git init -q r && ls -a r; rm -rf f r
python3 -c 'print(2)'; curl -sS -m 9 https://other.test 2>&1; curl -s -m 9 http://127.0.0.1:9/; echo $?; ps -e | wc -l
"""


@pytest.mark.skipif(bool(support.PREFIX), reason="compared with a native run")
def test_the_sandbox_of_claude_code(runner: support.Runner, real_home: Path) -> None:  # noqa: F811
    """Its runtime by itself: mounts, a network of its own with bridges to its proxies, and empty files in the work tree
    on which it mounts, which are of those that we keep, too.
    """
    for name, package in (("bwrap", "bubblewrap"), ("socat", "socat"), ("rg", "ripgrep")):
        if shutil.which(name, path=support.SYSTEM_PATH) is None:
            pytest.skip(f"{name} is missing (Debian package {package})")
    modules = from_npm("sandbox-runtime", "@anthropic-ai/sandbox-runtime")
    program = modules / "@anthropic-ai/sandbox-runtime/dist/cli.js"
    profile = runner.base / "scoped.toml"
    profile.write_text('extends = "default"\n[settings]\nfloor = "scoped"\n')
    give(runner, real_home / ".ssh/id_ed25519", b"canary")
    runner.work = folder(runner, real_home / "project")
    settings = {
        "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [str(runner.work)], "denyWrite": []},
        "network": {"allowedDomains": ["example.com"], "deniedDomains": []},
    }
    (real_home / ".srt-settings.json").write_text(json.dumps(settings))
    command = ["node", str(program), "-c", COMMAND]
    options = ("-p", str(profile), "--allow-write", ".mcp.json", "--allow-write", ".idea")
    native = runner.native(command)
    assert native.out.startswith("hi\n") and "CONNECT tunnel failed" in native.out, native
    ours = runner.supervise(command, options=options, timeout=120)
    assert (ours.status, ours.out) == (native.status, native.out)
    assert "canary" not in ours.out
    assert refused(ours) == []
