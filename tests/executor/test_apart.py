"""The network with nothing but the resolver in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pincer_trace.executor import apart
from pincer_trace.gateway.hosts import Hosts

ASKS = """
import socket, struct, threading
from pincer_trace.executor.apart import Apart
from pincer_trace.gateway.hosts import Hosts
question = struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\\3api\\4test\\0" + struct.pack(">2H", 1, 1)
network = Apart(Hosts())
try: sockets = [socket.socket(fileno=network.take()) for _ in range(40)]
except OSError as error: raise SystemExit(f"none: {error}")
assert threading.active_count() == 2
for own in sockets:
    own.settimeout(20)
    own.sendto(question, ("127.224.0.1", 53))
    answer, peer = own.recvfrom(999)
    assert peer == ("127.224.0.1", 53) and answer.endswith(socket.inet_aton("127.224.0.16"))
    for where in ("192.0.2.1", "10.0.0.1", "255.255.255.255", "224.0.0.251"):
        try: own.sendto(question, (where, 53)); raise SystemExit(f"sent to {where}")
        except OSError: pass
sockets[0].bind(("127.0.0.1", 0)) if not sockets[0].getsockname()[1] else None
sockets[39].sendto(b"x", ("127.0.0.1", sockets[0].getsockname()[1]))
assert sockets[0].recv(9) == b"x"
"""


def test_it_answers_and_leads_nowhere() -> None:
    """Many sockets, which all reach the same resolver, and one another; none has a way out."""
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=60, check=False)
    if done.stderr.startswith("none: "):
        pytest.skip(f"no user namespace can be made here: {done.stderr}")
    assert done.returncode == 0, done.stderr


def test_where_there_is_none_it_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_NEWUSER", 1 << 40)  # the kernel knows no such flag
    network = apart.Apart(Hosts())
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Invalid argument"):
        network.take()
    monkeypatch.setattr(os, "fork", None)
    with pytest.raises(OSError, match="Invalid argument"):
        network.take()
    assert len(os.listdir("/proc/self/fd")) == before
