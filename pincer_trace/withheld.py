"""Variables that are kept from the command, for sinks of its profile: a handle stands in the place of each."""

from __future__ import annotations

import os

from pincer_trace.credentials import named
from pincer_trace.paths import display
from pincer_trace.plaintext.handles import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pincer_trace.environ import Given
    from pincer_trace.profile import Profile

_STEP = 64  # a handle takes as much room as its value, rounded up: that tells nothing finer of its length
_MOST = 4096


def withhold(
    given: Given, environment: Mapping[bytes, bytes], profile: Profile, pass_env: Sequence[str]
) -> tuple[dict[bytes, tuple[bytes, bytes]], list[str]]:
    """Put handles into what the worker is given: by handle, the name and the value; and lines for a person."""
    passes = named((*profile.settings.pass_env, *pass_env))
    sinks: dict[bytes, list[str]] = {}
    for sink in profile.sinks:
        for name in sink.variables:
            sinks.setdefault(name, []).append(sink.name)
    kept: dict[bytes, tuple[bytes, bytes]] = {}
    for name in sinks:
        value = environment.get(name, b"")
        if not value or len(value) > _MOST or passes(name) or given.environment.get(name, value) != value:
            continue
        handle = Handle(os.urandom(16)).text.encode()
        kept[handle] = name, value
        given.environment[name] = handle.ljust(-(-max(len(value), len(handle)) // _STEP) * _STEP, b"_")
    hidden = {os.fsdecode(name) for name, _ in kept.values()}
    given.credentials = [name for name in given.credentials if name not in hidden]
    said = [
        f"{display(name)}: a handle stands in it, for the sink {', '.join(sinks[name])}" for name, _ in kept.values()
    ]
    return kept, said
