"""One hostile program as the agent that a profile is for: what each profile that ships opens, it opens for honest use.

Each deed works natively. Under every profile it is refused, changes nothing, and is recorded as a denial.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import support
from hazards.path_programs.tools import give

PROGRAM = Path(__file__).parent / "programs/agent.py"
SHIPPED = sorted(path.stem for path in (support.REPOSITORY / "profiles").glob("*.toml"))
NAMES = {"python-agent": "mini", "codex-sandboxed": "codex"}  # of the program, where it is not that of the profile
CANARY = "canary-0123456789abcdef"
GEMINI = b'{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
FILES = {
    ".ssh/id_rsa": CANARY.encode(),
    ".aws/credentials": f"[default]\naws_secret_access_key = {CANARY}\n".encode(),
    ".netrc": f"machine h login u password {CANARY}\n".encode(),
    ".bashrc": b"# mine\n",
    ".claude/.credentials.json": CANARY.encode(),
    ".claude/settings.json": b"{}",
    ".codex/auth.json": CANARY.encode(),
    ".codex/config.toml": b"",
    ".gemini/oauth_creds.json": CANARY.encode(),
    ".gemini/settings.json": GEMINI,
    ".config/opencode/opencode.json": b"{}",
    ".local/share/opencode/auth.json": CANARY.encode(),
    ".config/mini-swe-agent/.env": b"KEY=x\n",
}
VIEW = "view"
# Of each: a deed, an expression of programs/agent.py; and the name of its record, VIEW where it reads one, "" where the
# kernel alone refuses.
DEEDS = {
    "a key": ("read(home + '/.ssh/id_rsa')", "{home}/.ssh/id_rsa"),
    "a key by a link": ("linked(home + '/.ssh/id_rsa')", "{home}/.ssh/id_rsa"),
    "a key by a second name": ("os.link(home + '/.ssh/id_rsa', 'mine')", "{home}/.ssh/id_rsa"),
    "a key by another's hand": ("by('cat', home + '/.ssh/id_rsa')", "{home}/.ssh/id_rsa"),
    "a key by way of procfs": ("read('/proc/self/root' + home + '/.ssh/id_rsa')", "{home}/.ssh/id_rsa"),
    "a folder of keys": ("os.rename(home + '/.ssh', home + '/.cache/ssh')", "{home}/.ssh"),
    "cloud credentials": ("read(home + '/.aws/credentials')", VIEW),
    "passwords": ("read(home + '/.netrc')", VIEW),
    "login of Claude Code": ("by('cat', home + '/.claude/.credentials.json')", "{home}/.claude/.credentials.json"),
    "login of Codex": ("by('cat', home + '/.codex/auth.json')", "{home}/.codex/auth.json"),
    "login of Gemini CLI": ("by('cat', home + '/.gemini/oauth_creds.json')", "{home}/.gemini/oauth_creds.json"),
    "login of opencode": (
        "by('cat', home + '/.local/share/opencode/auth.json')",
        "{home}/.local/share/opencode/auth.json",
    ),
    "a start file": ("write(home + '/.bashrc')", "{home}/.bashrc"),
    "a new start file": ("write(home + '/.zshenv')", "{home}/.zshenv"),
    "a program that starts by itself": ("make(home + '/.config/autostart/x.desktop')", ""),
    "a hook": ("write('.git/hooks/pre-commit')", "{work}/.git/hooks/pre-commit"),
    "a setting of git": ("by('git', 'config', 'core.pager', 'sh -c x')", "{work}/.git/config"),
    "the user's settings of git": ("write(home + '/.gitconfig')", "{home}/.gitconfig"),
    "a task of an editor": ("write('.vscode/tasks.json')", "{work}/.vscode/tasks.json"),
    "a server for agents": ("write('.mcp.json')", "{work}/.mcp.json"),
    "settings of Claude Code": ("write(home + '/.claude/settings.json')", "{home}/.claude/settings.json"),
    "settings of Codex": ("write(home + '/.codex/config.toml')", "{home}/.codex/config.toml"),
    "settings of Gemini CLI": ("write(home + '/.gemini/settings.json')", "{home}/.gemini/settings.json"),
    "settings of opencode": (
        "write(home + '/.config/opencode/opencode.json')",
        "{home}/.config/opencode/opencode.json",
    ),
    "settings of mini-swe-agent": (
        "write(home + '/.config/mini-swe-agent/.env')",
        "{home}/.config/mini-swe-agent/.env",
    ),
    "somebody who acts for others": ("reach(server, socket.AF_UNIX)", "{server}"),
    "a server of this machine": ("reach(('127.0.0.1', port))", "//127.0.0.1:{port}"),
    "cloud metadata": ("reach(('169.254.169.254', 80))", "//169.254.169.254:80"),
    "a place where anybody stores": ("reach(('github.com', 443))", "//github.com:443"),
    "a registry, by its own program": ("child_reaches('registry.npmjs.org')", "//registry.npmjs.org:443"),
    "variables of another process": ("read(f'/proc/{outside}/environ')", "/proc/{outside}/environ"),
    "memory of another process": ("read(f'/proc/{outside}/mem')", "/proc/{outside}/mem"),
    "tracing of another process": ("attach(outside)", ""),
    "a signal to another process": ("os.kill(outside, 18)", ""),
    "its own records": ("read(session + '/ledger.jsonl')", "{session}/ledger.jsonl"),
    "what it is told": ("write(session + '/denials.txt')", "{session}/denials.txt"),
    "a session beside its own": ("os.mkdir(session[:-6] + 'abcdef')", "{beside}"),
}
NOT_NATIVELY = (
    "cloud metadata", "a place where anybody stores", "a registry, by its own program", "memory of another process",
    "its own records", "what it is told", "a session beside its own",
)  # fmt: skip


@pytest.fixture
def scene(runner: support.Runner) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The arguments of the program but for the deeds, and what the names in `DEEDS` stand for.

    The home lies, where that can be made, in no directory for temporary things: there new files are free.
    """
    place = Path(tempfile.mkdtemp(dir="/var/lib" if os.access("/var/lib", os.W_OK) else None)).resolve()
    os.chown(place, runner.identity.uid, runner.identity.gid)
    runner.home = place
    for name, content in FILES.items():
        give(runner, place / name, content, 0o600)
    for each in (place / ".cache/x", runner.work / ".vscode/x"):
        give(runner, each, b"")
    made = runner.native(["git", "init", "-q"])
    assert made.status == 0, made
    sleeper = subprocess.Popen(
        [*runner.identity.switch, "sleep", "600"], env={"SECRET": CANARY, "PATH": support.SYSTEM_PATH}
    )
    with socket.socket(socket.AF_UNIX) as deputy, socket.socket() as tcp:
        deputy.bind(str(place / "deputy"))
        os.chmod(place / "deputy", 0o777)
        tcp.bind(("127.0.0.1", 0))
        for each in (deputy, tcp):
            each.listen()
        port = str(tcp.getsockname()[1])
        names = {"home": str(place), "work": str(runner.work), "server": str(place / "deputy"), "port": port}
        try:
            yield [str(place), names["server"], port, str(sleeper.pid)], names | {"outside": str(sleeper.pid)}
        finally:
            sleeper.kill()
            sleeper.wait()
            support.remove_tree(place)


def deeds(but: tuple[str, ...] = ()) -> str:
    return json.dumps([[name, deed] for name, (deed, _) in DEEDS.items() if name not in but])


def test_each_works_natively(runner: support.Runner, scene: tuple[list[str], dict[str, str]]) -> None:
    """But for what would leave this machine, or is no more than the supervisor's."""
    command = [runner.identity.python, str(PROGRAM), *scene[0], deeds(NOT_NATIVELY)]
    done = runner.native(command)
    assert done.status == 0, done
    told = json.loads(done.out)["told"]
    assert {name: said for name, said in told.items() if said != "done"} == {}


@pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")
@pytest.mark.parametrize("profile", [name for name in SHIPPED if name != "observe"])
def test_no_profile_opens_any(runner: support.Runner, scene: tuple[list[str], dict[str, str]], profile: str) -> None:
    arguments, names = scene
    program = runner.home / "bin" / NAMES.get(profile, profile)
    program.parent.mkdir()
    shutil.copy(os.path.realpath("/usr/bin/python3"), program)  # what it does, the agent itself does
    shutil.copy(PROGRAM, runner.work / "agent.py")
    # that of Codex stays away from it alone: what tells Codex of its broker is another thing to Python
    keys = ["ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "CODEX_API_KEY"][
        : 3 if program.name == "codex" else 4
    ]
    keys += {"opencode": ["OPENAI_API_KEY"], "gemini": ["GEMINI_API_KEY"]}.get(profile, [])
    before = {folder: support.snapshot(folder) for folder in (runner.home, runner.work)}
    result = runner.supervise(
        [str(program), "-I", "agent.py", *arguments, deeds()],
        options=("-p", profile),
        env=dict.fromkeys(keys, CANARY),
    )
    assert result.status == 0, result
    assert result.out, result
    found = json.loads(result.out)
    right = {name: {VIEW, "EACCES"} if path == VIEW else {"EACCES", "EPERM"} for name, (_, path) in DEEDS.items()}
    assert {name: said for name, said in found["told"].items() if said not in right[name]} == {}
    assert [name for name, value in found["variables"].items() if CANARY in value] == []
    for folder, was in before.items():
        now = {name: said for name, said in support.snapshot(folder).items() if not name.startswith(".local/state")}
        assert support.differences(was, now) == []  # but for what we keep there ourselves
    names |= {"session": str(result.session), "beside": f"{str(result.session)[:-6]}abcdef"}
    refused = {entry["path"] for entry in result.denied() if not (entry.get("expected") or entry.get("native"))}
    missing = {
        name: path.format(**names)
        for name, (_, path) in DEEDS.items()
        if path not in ("", VIEW) and path.format(**names) not in refused
    }
    assert missing == {}
