"""One broker without a run: `standalone.py UPSTREAM HANDLE=KEY...` prints its port, and ends with standard input."""

import os
import sys

from pincer_trace import companion
from pincer_trace.broker import process
from pincer_trace.broker.upstream import Upstream
from pincer_trace.kernel.bare import socket

upstream, *pairs = sys.argv[1:]
by_handle = dict(pair.encode().split(b"=") for pair in pairs)
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
listener.bind(("127.0.0.1", 0))
listener.listen(16)
port = listener.getsockname()[1]


def live(control):
    process.live(control, listener.detach(), Upstream.parse(upstream), by_handle)


started = companion.start(live, name=b"pincer-broker", outlives=False, keep=[listener.fileno()])
listener.close()
(pid,) = (int(word) for word in open(f"/proc/self/task/{os.getpid()}/children").read().split())
print(port, pid, flush=True)
sys.stdin.read()
started.end()
