"""How the command of a known agent is changed, and `pincer-trace hook claude` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import pincer_trace
from pincer_trace import agents, hook
from pincer_trace.twin import codes
from pincer_trace.twin.recovery import Denials

HOOK = os.path.abspath(hook.__file__)
EVENT = {"session_id": "s", "hook_event_name": "PostToolBatch", "tool_calls": []}


@pytest.fixture
def claude(tmp_path):
    """A program where npm puts Claude Code."""

    def make(version="2.1.332", name="@anthropic-ai/claude-code-linux-x64", file="claude"):
        package = tmp_path / "node_modules" / "@anthropic-ai" / "x"
        package.mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"name": name, "version": version}, indent=2))
        program = package / file
        program.write_text("")
        program.chmod(0o755)
        return str(program)

    return make


FILE = "/s/1/claude.json"


@pytest.mark.parametrize(
    ("given", "wired"),
    [
        ([], ["--settings", FILE]),
        (["-p", "do it"], ["--settings", FILE, "-p", "do it"]),
        (["fix the bug"], ["--settings", FILE, "fix the bug"]),
        (["Fix"], ["--settings", FILE, "Fix"]),
        (["--", "mcp"], ["--settings", FILE, "--", "mcp"]),
        (["--", "--settings"], ["--settings", FILE, "--", "--settings"]),
        (["-p", "--", "--version"], ["--settings", FILE, "-p", "--", "--version"]),
        (["--allowedTools", "Bash", "Write"], ["--settings", FILE, "--allowedTools", "Bash", "Write"]),
        (["-d", "mcp", "list"], ["--settings", FILE, "-d", "mcp", "list"]),
        *[(words, words) for words in (
            ["mcp", "list"], ["update"], ["setup-token"], ["--version"], ["-v"], ["-p", "--help"], ["agents", "--json"],
        )],
    ],
)  # fmt: skip
def test_where_the_option_is_put(claude, given, wired):
    found = agents.wire(claude(), ["claude", *given], "/s/1")
    assert found.arguments == ["claude", *wired]
    assert found.used == (wired != given) and bool(found.said) == found.used


@pytest.mark.parametrize("given", [["--settings", "mine.json"], ["-p", "--settings={}"], ["--settings"]])
def test_settings_of_the_users_own_are_left_and_the_addition_is_shown(claude, given):
    found = agents.wire(claude(), ["claude", *given], "/s/1")
    assert found.arguments == ["claude", *given] and not found.used
    assert json.loads(found.said[found.said.index("{") :])["hooks"]["PostToolBatch"]


def test_one_that_is_too_old_is_left_alone(claude):
    """Before 2.1.101 it refused a whole settings file for an event that it did not know."""
    found = agents.wire(claude("2.1.100"), ["claude", "-p", "x"], "/s/1")
    assert found.arguments == ["claude", "-p", "x"] and not found.used
    assert "2.1.100, is older than 2.1.145" in found.said and "PINCER_DENIALS" in found.said


@pytest.mark.parametrize(
    ("more", "version"),
    [
        ({}, (2, 1, 332)), ({"version": "2.2.0-beta.1"}, (2, 2, 0)), ({"version": "latest"}, None),
        ({"version": "2.1"}, None), ({"name": "claude"}, None), ({"file": "cloud"}, None),
        ({"file": "claude.exe"}, (2, 1, 332)),
    ],
)  # fmt: skip
def test_claude_code_is_known_by_its_manifest(claude, more, version):
    program = claude(**more)
    assert agents.claude_version(program, os.path.basename(program)) == version


def test_the_native_installation_and_links(tmp_path, claude):
    versions = tmp_path / "share" / "claude" / "versions"
    versions.mkdir(parents=True)
    (versions / "2.1.200").write_text("")
    (tmp_path / "claude").symlink_to(versions / "2.1.200")
    assert agents.claude_version(str(tmp_path / "claude"), "claude") == (2, 1, 200)
    (tmp_path / "cc").symlink_to(claude())
    assert agents.claude_version(str(tmp_path / "cc"), "cc") == (2, 1, 332)


@pytest.mark.parametrize("content", ["", "{", '{"name": "x"}', '{"name": 1, "version": "2.1.332"}', "\xff" * 100])
def test_a_program_that_only_has_the_name_is_left_alone(tmp_path, content):
    (tmp_path / "claude").write_text("")
    (tmp_path / "package.json").write_text(content)
    assert agents.wire(str(tmp_path / "claude"), ["claude", "-p"], "/s").arguments == ["claude", "-p"]
    assert agents.wire("/bin/true", ["claude"], "/s").arguments == ["claude"]


def test_settings_that_cannot_be_written_are_one_line(tmp_path):
    with pytest.raises(agents.UserError, match=r"claude.json cannot be written: No such file.*; nothing was started"):
        agents.write_settings(str(tmp_path / "absent"))


# -- the hook ----------------------------------------------------------------------------------------------------------


def ask(denials, event=None, *, scratch, more=(), words=("-I", "-S", HOOK, "claude")):
    """Run the hook as Claude Code does; its answer's text, or None."""
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(scratch)}
    if denials is not None:
        environ["PINCER_DENIALS"] = str(denials)
    data = event if isinstance(event, bytes) else json.dumps(event or EVENT).encode()
    done = subprocess.run(
        [sys.executable, *more, *words], input=data, env=environ, capture_output=True, timeout=60, cwd=scratch
    )
    assert done.returncode == 0, done.stderr
    if not done.stdout:
        return None, done.stderr.decode()
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert answer["hookEventName"] == "PostToolBatch"
    return answer["additionalContext"], done.stderr.decode()


@pytest.fixture
def file(tmp_path):
    (tmp_path / "session1").mkdir()
    return tmp_path / "session1" / "denials.txt"


@pytest.fixture
def denials(file):
    made = Denials(str(file))
    yield made
    made.close()


def test_without_a_supervised_run_it_is_silent(tmp_path):
    assert ask(None, scratch=tmp_path) == (None, "")
    assert os.listdir(tmp_path) == []


def test_nothing_refused_means_no_answer_and_no_state(denials, file, tmp_path):
    assert ask(file, scratch=tmp_path) == (None, "")
    assert os.listdir(tmp_path) == ["session1"]


@pytest.mark.parametrize(
    "event", [b"", b"{", b"[]", b"{}", b"\xff" * 4000, b'{"hook_event_name": null' + b" " * 9_000_000]
)
def test_a_mistake_is_a_note_and_no_failure(denials, file, tmp_path, event):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    said, note = ask(file, event, scratch=tmp_path)
    assert said is None and note.startswith("pincer-trace hook: ") and note.count("\n") == 1


def test_a_file_that_is_gone_is_no_failure(tmp_path):
    said, note = ask(tmp_path / "gone", scratch=tmp_path)
    assert said is None and "FileNotFoundError" in note


def test_what_is_new_is_told_once_to_each_agent(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    first, _ = ask(file, scratch=tmp_path)
    assert 'POLICY_DENY: write "/x" was refused' in first and "000001" not in first
    assert ask(file, scratch=tmp_path) == (None, "")
    denials.tell("write", b"/x", codes.POLICY_DENY)
    denials.flush()
    assert ask(file, scratch=tmp_path) == (None, "")  # a repeat is counted, not repeated
    denials.tell("write", b"/y", codes.POLICY_DENY)
    assert ask(file, EVENT | {"agent_id": "a"}, scratch=tmp_path)[0].count("was refused") == 2
    second, _ = ask(file, scratch=tmp_path)
    assert '"/y"' in second and '"/x"' not in second
    assert '"/x"' in ask(file, EVENT | {"session_id": "resumed"}, scratch=tmp_path)[0]


def test_what_ps_does_without_is_no_news(denials, file, tmp_path):
    denials.tell("read", b"/proc/1/environ", codes.BUILT_IN, "built-in", "it belongs to another process")
    assert ask(file, scratch=tmp_path) == (None, "")
    denials.tell("write", b"/proc/1/mem", codes.BUILT_IN, "built-in", "it belongs to another process")
    said, _ = ask(file, scratch=tmp_path)
    assert "/proc/PID/mem" in said and "environ" not in said


def test_many_are_told_by_their_number(denials, file, tmp_path):
    for number in range(30):
        denials.tell("write", b"/%d" % number, codes.POLICY_DENY)
    said, _ = ask(file, scratch=tmp_path)
    assert said.count("was refused") == hook.LINES and '"/29"' in said and '"/21"' not in said
    assert f"22 more, before these, are in the file {str(file)!r}" in said
    assert ask(file, scratch=tmp_path) == (None, "")


def test_half_a_line_is_left_for_the_next_time(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    whole = file.read_bytes()
    file.write_bytes(whole + b"2 2026-01-01T00:00:00Z 000001 times: POLICY")
    assert '"/x"' in ask(file, scratch=tmp_path)[0]
    file.write_bytes(whole + b'2 2026-01-01T00:00:00Z 000001 times: POLICY_DENY: write "/y"\n')
    assert '"/y"' in ask(file, scratch=tmp_path)[0]


def test_where_nothing_can_be_kept_the_last_minute_is_told(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    scratch = tmp_path / "closed"
    scratch.mkdir()
    state = scratch / "pincer-trace-told-session1-s-"
    state.mkdir()  # no file can be made of it, by root neither
    assert '"/x"' in ask(file, scratch=scratch)[0]
    assert '"/x"' in ask(file, scratch=scratch)[0]
    old = file.read_text().replace(" 20", " 19", 1)
    file.write_text(old)
    assert ask(file, scratch=scratch)[0] is None


def test_a_state_that_is_a_link_is_not_followed(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "pincer-trace-told-session1-s-").symlink_to("precious")
    assert '"/x"' in ask(file, scratch=tmp_path)[0]
    assert (tmp_path / "precious").read_text() == "mine"


def test_what_is_kept_goes_with_the_session(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    assert '"/x"' in ask(file, scratch=tmp_path)[0]
    other = tmp_path / "pincer-trace-told-session12-s-"
    other.touch()
    assert len(list(tmp_path.glob("pincer-trace-told-*"))) == 2
    agents.tidy(str(file.parent), {b"TMPDIR": os.fsencode(tmp_path)})
    assert list(tmp_path.glob("pincer-trace-told-*")) == [other]


def test_it_starts_with_little(denials, file, tmp_path):
    """It runs after each step of the agent: nothing of the package, and no JSON while there is nothing to tell."""
    _, imports = ask(file, scratch=tmp_path, more=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip() for line in imports.splitlines()}
    assert "os" in loaded and not loaded & {"json", "click", "re", "site", "pincer_trace", "typing", "hashlib"}


def test_it_is_a_subcommand_too_without_click(denials, file, tmp_path):
    denials.tell("write", b"/x", codes.POLICY_DENY)
    root = os.path.dirname(os.path.dirname(os.path.abspath(pincer_trace.__file__)))
    code = f"import sys; sys.path.insert(0, {root!r}); from pincer_trace.__main__ import main; sys.exit(main())"
    said, imports = ask(
        file, scratch=tmp_path, more=("-P", "-X", "importtime"), words=("-c", code, "hook", "claude")
    )  # fmt: skip
    assert '"/x"' in said and "click" not in {line.rpartition("|")[2].strip() for line in imports.splitlines()}


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [(["hook"], 125, "claude"), (["hook", "emacs"], 125, "emacs"), (["hook", "--help"], 0, "own hooks")],
)
def test_other_agents_are_a_usage_error(words, status, text):
    root = os.path.dirname(os.path.dirname(os.path.abspath(pincer_trace.__file__)))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pincer_trace", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": root, "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status and text in done.stdout + done.stderr
