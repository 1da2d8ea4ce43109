"""The variables that lead out of a run: which are kept back, and which stay since their socket may be connected to."""

from __future__ import annotations

import os

import pytest

from pincer_trace import environ
from pincer_trace.profile import Overlay, Places, load

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
    def work_out(environment, *allowed: str, confirm: str = "deny"):
        places = Places.of(str(tmp_path), os.environ, None)
        profile = load("default", places, overlay=Overlay(allow_connect=allowed))
        return environ.for_worker(environment, profile, confirm)

    return work_out


def test_they_are_kept_back_and_named(passed) -> None:
    given, withheld = passed({**OUT, **STAYS})
    assert given == STAYS
    assert withheld == sorted(name.decode() for name in OUT)


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
    given, _ = passed(OUT, socket)
    assert given == {name: OUT[name] for name in names}


def test_what_a_person_may_allow_stays_where_one_is_asked(passed) -> None:
    """Not what is denied, which nobody is asked about."""
    theirs = {b"NVIM_LISTEN_ADDRESS": b"/srv/editor", b"SSH_AUTH_SOCK": b"/tmp/ssh-x/agent.1"}
    assert passed(theirs)[0] == {}
    assert passed(theirs, confirm="ask")[0].keys() == {b"NVIM_LISTEN_ADDRESS"}


@pytest.mark.parametrize(
    "value", [b"", b":", b"::::", b"unix:", b"\xff\n", b"/" * 5000, b"tcp://h:1", b"h:0", b"%", b"a,b;c"]
)
def test_odd_values_do_not_matter(passed, value: bytes) -> None:
    given, withheld = passed(dict.fromkeys(OUT, value))
    assert given.keys() <= ({*OUT} if not value else set())
    assert len(given) + len(withheld) == len(OUT)
