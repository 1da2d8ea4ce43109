"""The variables that lead out of a run: which are kept back, and which stay since their socket may be connected to."""

from __future__ import annotations

import os

import pytest

from pincer_trace import environ
from pincer_trace.profile import Overlay, Places, load
from pincer_trace.profile.chosen import profile_for

OUT = {
    b"SSH_AUTH_SOCK": b"/tmp/ssh-x/agent.1",
    b"SSH_AGENT_PID": b"77",
    b"GPG_AGENT_INFO": b"/run/user/7/gnupg/S.gpg-agent:1:1",
    b"DBUS_SESSION_BUS_ADDRESS": b"unix:abstract=/tmp/x;unix:path=/run/user/7/bus,guid=1",
    b"DISPLAY": b":3.0",
    b"WAYLAND_DISPLAY": b"wayland-0",
    b"TMUX": b"/tmp/tmux-7/default,1,0",
    b"TMUX_PANE": b"%1",
    b"DOCKER_HOST": b"unix:///run/docker.sock",
    b"XDG_RUNTIME_DIR": b"/run/user/7",
}
STAYS = {b"PATH": b"/bin", b"HOME": b"/home/u", b"TERM": b"xterm", b"EMPTY": b"", b"\xff": b"\xfe", b"STY": b""}


@pytest.fixture
def passed(tmp_path):
    def work_out(environment, *allowed: str, confirm: str = "deny", pass_env=(), command=None):
        places = Places.of(str(tmp_path), os.environ, command)
        profile = load(profile_for(places.command), places, overlay=Overlay(allow_connect=allowed))
        return environ.for_worker(environment, profile, confirm, pass_env)

    return work_out


def test_they_are_kept_back_and_named(passed) -> None:
    given = passed({**OUT, **STAYS})
    assert given.environment == STAYS
    assert given.deputies == sorted(name.decode() for name in OUT)


@pytest.mark.parametrize(
    ("socket", "names"),
    [
        ("/tmp/ssh-x/agent.1", {b"SSH_AUTH_SOCK", b"SSH_AGENT_PID"}),
        ("/run/user/7/gnupg/S.gpg-agent", {b"GPG_AGENT_INFO", b"XDG_RUNTIME_DIR"}),
        ("/run/user/7/bus", {b"DBUS_SESSION_BUS_ADDRESS", b"XDG_RUNTIME_DIR"}),
        ("/tmp/.X11-unix/X3", {b"DISPLAY"}),
        ("/run/user/7/wayland-0", {b"WAYLAND_DISPLAY", b"XDG_RUNTIME_DIR"}),
        ("/tmp/tmux-7/default", {b"TMUX", b"TMUX_PANE"}),
        ("/run/docker.sock", {b"DOCKER_HOST"}),
        ("/run/user/7", {b"XDG_RUNTIME_DIR"}),  # what is protected by name below it stays so
        ("/somewhere", set()),
    ],
)
def test_what_is_allowed_keeps_its_variable(passed, socket: str, names: set[bytes]) -> None:
    given = passed(OUT, socket)
    assert given.environment == {name: OUT[name] for name in names}


def test_what_a_person_may_allow_stays_where_one_is_asked(passed) -> None:
    """Not what is denied, which nobody is asked about."""
    theirs = {b"NVIM_LISTEN_ADDRESS": b"/srv/editor", b"SSH_AUTH_SOCK": b"/tmp/ssh-x/agent.1"}
    assert passed(theirs).environment == {}
    assert passed(theirs, confirm="ask").environment.keys() == {b"NVIM_LISTEN_ADDRESS"}


@pytest.mark.parametrize(
    "value", [b"", b":", b"::::", b"unix:", b"\xff\n", b"/" * 5000, b"tcp://h:1", b"h:0", b"%", b"a,b;c"]
)
def test_odd_values_do_not_matter(passed, value: bytes) -> None:
    given = passed(dict.fromkeys(OUT, value))
    assert given.environment.keys() <= ({*OUT} if not value else set())
    assert len(given.environment) + len(given.deputies) == len(OUT)


SECRETS = {b"OPENROUTER_API_KEY": b"sk", b"NPM_TOKEN": b"t", b"AWS_SESSION_TOKEN": b"t", b"AWS_SECRET_ACCESS_KEY": b"k"}


def test_credentials_are_kept_back_but_for_those_that_are_named(passed) -> None:
    """By the profile for an agent that is started, or by an option; deputies by name too."""
    given = passed({**SECRETS, **STAYS})
    assert given.environment == STAYS
    assert given.credentials == sorted(name.decode() for name in SECRETS)
    given = passed({**SECRETS, **STAYS}, command="/usr/bin/opencode").environment
    assert given.keys() & SECRETS.keys() == {b"OPENROUTER_API_KEY"}
    given = passed({**SECRETS, **OUT}, pass_env=["AWS_*", "DISPLAY", "NOT_THERE", "NOR_*"])
    assert given.environment.keys() == {b"AWS_SESSION_TOKEN", b"AWS_SECRET_ACCESS_KEY", b"DISPLAY"}
    assert given.unset == ["NOT_THERE"]


def test_switches_are_set_where_the_person_has_not_set_them(passed) -> None:
    given = passed({**STAYS, b"DISABLE_TELEMETRY": b"0", b"DISABLE_ERROR_REPORTING": b""}, command="/usr/bin/claude")
    assert given.environment == STAYS | {
        b"DISABLE_TELEMETRY": b"0", b"DISABLE_ERROR_REPORTING": b"", b"DISABLE_AUTOUPDATER": b"1"
    }  # fmt: skip
    assert given.told() == ["set by the profile, since you have not set them: DISABLE_AUTOUPDATER=1"]
    assert passed(STAYS, command="/usr/bin/other").environment == STAYS


def test_what_is_told_fits_on_a_terminal(passed) -> None:
    assert passed(STAYS).told() == []
    told = passed({b"A\x1b[2J_TOKEN": b"x", b"TMUX": b"/tmp/t,1,0"}, pass_env=["B\x1b"]).told()
    assert [line.partition(":")[0] for line in told] == [
        "not passed on, since they lead to programs outside",
        "not passed on, since they hold credentials",
        "--pass-env",
    ]
    assert "A\\x1b[2J_TOKEN (--pass-env NAME passes one)" in told[1] and told[2].endswith("not set: B\\x1b")
