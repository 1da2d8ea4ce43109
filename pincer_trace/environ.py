"""The worker's environment: without credentials, which nobody would see it read there (P63), and without the variables
that lead to deputies, programs outside of the run (P49).

A deputy's socket is refused to it anyway. A program that finds such a variable tries, fails and often gives up; one
that finds none starts what it needs, or goes on without. A variable stays where its socket may be connected to.
"""

from __future__ import annotations

import os

from pincer_trace.credentials import is_credential, named
from pincer_trace.effects import CONNECT
from pincer_trace.paths import display
from pincer_trace.profile import ALLOW, CONFIRM, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pincer_trace.profile import Profile

    Environment = Mapping[bytes, bytes]
    Socket = Callable[[bytes, Environment], bytes]

_RUNTIME = b"XDG_RUNTIME_DIR"


def _path(value: bytes, _environment: Environment) -> bytes:
    return value


def _first(value: bytes, _environment: Environment) -> bytes:
    """`/tmp/tmux-1000/default,1234,0`"""
    return value.partition(b",")[0]


def _url(value: bytes, _environment: Environment) -> bytes:
    """`unix:///run/docker.sock`, `unix:/run/kitty`; others name no socket."""
    scheme, _, path = value.partition(b":")
    return b"/" + path.lstrip(b"/") if scheme == b"unix" else b""


def _bus(value: bytes, _environment: Environment) -> bytes:
    """The first path of `unix:path=/run/user/1000/bus,guid=...;...`"""
    for address in value.split(b";"):
        if address.startswith(b"unix:"):
            for pair in address[len(b"unix:") :].split(b","):
                if pair.startswith(b"path="):
                    return pair[len(b"path=") :]
    return b""


def _x_display(value: bytes, _environment: Environment) -> bytes:
    """`:0.0` is a socket of this machine; `HOST:0` is none."""
    host, _, rest = value.rpartition(b":")
    return b"" if host not in (b"", b"unix") else b"/tmp/.X11-unix/X" + rest.partition(b".")[0]


def _wayland(value: bytes, environment: Environment) -> bytes:
    return os.path.join(environment.get(_RUNTIME, b"/nowhere"), value)


def _nowhere(_value: bytes, _environment: Environment) -> bytes:
    return b""


_LEADING: dict[bytes, Socket] = {
    b"SSH_AUTH_SOCK": _path,
    b"GPG_AGENT_INFO": lambda value, _: value.partition(b":")[0],
    b"DBUS_SESSION_BUS_ADDRESS": _bus,
    b"DBUS_SYSTEM_BUS_ADDRESS": _bus,
    b"DBUS_STARTER_ADDRESS": _bus,
    b"AT_SPI_BUS_ADDRESS": _bus,
    b"DISPLAY": _x_display,
    b"WAYLAND_DISPLAY": _wayland,
    b"WAYLAND_SOCKET": _nowhere,
    b"SESSION_MANAGER": _nowhere,
    b"TMUX": _first,
    b"STY": _nowhere,
    b"ZELLIJ_SESSION_NAME": _nowhere,
    b"DOCKER_HOST": _url,
    b"CONTAINER_HOST": _url,
    b"BUILDKIT_HOST": _url,
    b"NOTIFY_SOCKET": _path,
    b"WSL_INTEROP": _path,
    b"NVIM": _path,
    b"NVIM_LISTEN_ADDRESS": _path,
    b"VSCODE_IPC_HOOK_CLI": _path,
    b"VSCODE_GIT_IPC_HANDLE": _path,
    b"KITTY_LISTEN_ON": _url,
    b"WEZTERM_UNIX_SOCKET": _path,
    b"ALACRITTY_SOCKET": _path,
    b"SWAYSOCK": _path,
    b"I3SOCK": _path,
    b"HYPRLAND_INSTANCE_SIGNATURE": _nowhere,
    b"NIRI_SOCKET": _path,
    b"PULSE_SERVER": _url,
}
_WITH = {b"SSH_AGENT_PID": b"SSH_AUTH_SOCK", b"TMUX_PANE": b"TMUX"}  # what has no meaning without the other


class Given:
    """What a worker gets: its `environment`; and the names of what it does not: `deputies` lead to programs outside,
    `credentials` are secrets. `unset` are names that were to be passed and are not there; `added` is what the profile
    sets.
    """

    __slots__ = ("added", "credentials", "deputies", "environment", "unset")

    def __init__(
        self,
        environment: dict[bytes, bytes],
        deputies: list[str],
        credentials: list[str],
        unset: list[str],
        added: list[str],
    ) -> None:
        self.environment = environment
        self.deputies = deputies
        self.credentials = credentials
        self.unset = unset
        self.added = added

    def told(self) -> list[str]:
        """The lines at the start."""
        what = (
            ("not passed on, since they lead to programs outside: {} (--allow-connect SOCKET passes its own)",
             self.deputies),
            ("not passed on, since they hold credentials: {} (--pass-env NAME passes one)", self.credentials),
            ("--pass-env: not set: {}", self.unset),
            ("set by the profile, since you have not set them: {}", self.added),
        )  # fmt: skip
        return [line.format(", ".join(display(name) for name in names)) for line, names in what if names]


def for_worker(environment: Environment, profile: Profile, confirm: str, pass_env: Sequence[str] = ()) -> Given:
    """What the worker gets of our own environment. `confirm` and `pass_env` are the options of these names."""
    by_name = named((*profile.settings.pass_env, *pass_env))
    withheld = {name for name in _leading_outside(environment, profile, confirm) if not by_name(name)}
    secret = {
        name for name, value in environment.items() if name not in withheld
        and is_credential(name, value) and not by_name(name)
    }  # fmt: skip
    passed = {name: value for name, value in environment.items() if name not in withheld and name not in secret}
    unset = [name for name in pass_env if not name.endswith("*") and os.fsencode(name) not in environment]
    added = [(name, value) for name, value in profile.settings.set_env if os.fsencode(name) not in environment]
    passed |= {os.fsencode(name): os.fsencode(value) for name, value in added}
    return Given(passed, _sorted(withheld), _sorted(secret), unset, ["=".join(pair) for pair in added])


def _sorted(names: set[bytes]) -> list[str]:
    return sorted(os.fsdecode(name) for name in names)


def _leading_outside(environment: Environment, profile: Profile, confirm: str) -> set[bytes]:
    """The variables that lead to sockets which may not be connected to."""
    enough = (ALLOW,) if confirm == "deny" else (ALLOW, CONFIRM)

    def opens(path: bytes) -> bool:
        real = os.path.realpath(path) if path.startswith(b"/") else b""
        return bool(real) and profile.judge(CONNECT, real, Facts()).verdict in enough

    withheld = {name for name, socket in _LEADING.items()
                if environment.get(name) and not opens(socket(environment[name], environment))}  # fmt: skip
    withheld |= {name for name, other in _WITH.items() if name in environment and other in withheld}
    runtime = environment.get(_RUNTIME, b"")
    if runtime and not opens(runtime):
        kept = (socket(environment[name], environment) for name, socket in _LEADING.items()
                if name in environment and name not in withheld)  # fmt: skip
        if not any(path.startswith(runtime.rstrip(b"/") + b"/") for path in kept):
            withheld.add(_RUNTIME)
    return withheld
