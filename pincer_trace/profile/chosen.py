"""The profile of a run for which none is named: that of the agent that is started, by its program; else `default`.

By the program's real path, as `command` in a profile: a label for convenience. What the profile of an agent opens is
that agent's own state.
"""

from __future__ import annotations

from pincer_trace.profile import globs

DEFAULT = "default"
AGENTS = {
    "claude": (
        b"**/claude",
        b"**/claude.exe",
        b"**/node_modules/@anthropic-ai/claude-code*/**",
        b"**/share/claude/versions/*",
    ),
    "codex": (b"**/codex", b"**/node_modules/@openai/codex*/**"),
    "gemini": (b"**/gemini", b"**/node_modules/@google/gemini-cli*/**"),
    "opencode": (b"**/opencode", b"**/node_modules/opencode-*/**"),
    "python-agent": tuple(
        b"**/bin/" + name for name in (b"mini", b"mini-e", b"mini-extra", b"mini-swe-agent", b"smolagent", b"webagent")
    ),
}


def profile_for(command: bytes) -> str:
    """The name of the profile for this program; b"" is none."""
    for name, patterns in AGENTS.items():
        if any(globs.matches(globs.components(pattern), command) for pattern in patterns):
            return name
    return DEFAULT
