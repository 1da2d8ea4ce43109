"""The broker's process: it alone holds the keys and listens for the worker; it connects to the upstream, and no more.

It is not traced and not dumped, writes no file and starts no program, and TCP leads it to one port (and to that of a
name server). It ends with its socket.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import socket
import ssl
import urllib.parse
import urllib.request

import h11

from pincer_trace.broker.proxy import Proxy
from pincer_trace.broker.requests import Admission, Keys
from pincer_trace.broker.upstream import Upstream
from pincer_trace.kernel import sockdiag
from pincer_trace.kernel.confinement import confine_relay

_NAME_SERVER = 53
_WAITING = 128  # connections that are not accepted yet


def live(control: socket.socket, listener: int, upstream: Upstream, by_handle: dict[bytes, bytes]) -> None:
    """The whole life of the process, until `control` ends."""
    gc.enable()
    listening = socket.socket(fileno=listener)
    port = listening.getsockname()[1]
    route = _Route(upstream)
    keys = Keys(by_handle)
    names = [b"%b:%d" % (host, port) for host in (b"127.0.0.1", b"localhost")]
    proxy = Proxy(Admission(names, upstream.authority.encode(), upstream.path.encode(), keys), keys, route.open)
    ports = sorted({route.port, _NAME_SERVER})
    asyncio.run(_serve(proxy, listening, socket.socket(fileno=control.fileno()), ports))


async def _serve(proxy: Proxy, listening: socket.socket, control: socket.socket, ports: list[int]) -> None:
    control.setblocking(False)
    listening.setblocking(False)
    port = listening.getsockname()[1]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if _is_ours(writer.get_extra_info("peername"), port):
            await proxy.serve(reader, writer)
        writer.close()

    async with await asyncio.start_server(serve, sock=listening, backlog=_WAITING):
        confine_relay(ports)  # nothing was read yet, and no thread has started
        await asyncio.get_running_loop().sock_recv(control, 1)
    os._exit(0)  # whatever is still relayed: the run has ended


def _is_ours(peer: tuple[str, int], port: int) -> bool:
    """Whether the other end belongs to the user of the run. As root, whose run may have several, the handle must do."""
    user = os.geteuid()
    try:
        return not user or sockdiag.tcp_owner(socket.inet_aton(peer[0]), peer[1], port) == user
    except OSError:
        return False


class _Route:
    """How the upstream is reached: at once, or by the proxy that the environment names for it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._context = ssl.create_default_context() if upstream.scheme == "https" else None
        if self._context is not None:
            self._context.set_alpn_protocols(["http/1.1"])
        self._proxy = _proxy_for(upstream)

    @property
    def port(self) -> int:
        return self._upstream.port if self._proxy is None else self._proxy.port

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError, RemoteProtocolError."""
        to = self._upstream
        if self._proxy is None:
            name = to.host if self._context else None
            return await asyncio.open_connection(to.host, to.port, ssl=self._context, server_hostname=name)
        reader, writer = await asyncio.open_connection(self._proxy.host, self._proxy.port)
        try:
            await _tunnel(reader, writer, to, self._proxy.authorization)
            if self._context:
                await writer.start_tls(self._context, server_hostname=to.host)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer


class _HttpProxy:
    """A proxy of the user's environment that makes tunnels."""

    __slots__ = ("authorization", "host", "port")

    def __init__(self, host: str, port: int, authorization: str) -> None:
        self.host = host
        self.port = port
        self.authorization = authorization


def _proxy_for(upstream: Upstream) -> _HttpProxy | None:
    """What HTTPS_PROXY and NO_PROXY say, as every client reads them. What is no http:// URL cannot be used."""
    named = urllib.request.getproxies_environment().get("https", "")
    if upstream.scheme != "https" or not named or urllib.request.proxy_bypass(upstream.authority):
        return None
    url = urllib.parse.urlsplit(named if "://" in named else f"http://{named}")
    if url.scheme != "http" or not url.hostname:
        return None
    user, _, password = (urllib.parse.unquote(part) for part in url.netloc.rpartition("@")[0].partition(":"))
    word = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
    return _HttpProxy(url.hostname, url.port or 80, f"Basic {word}" if word else "")


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Upstream, authorization: str) -> None:
    """Have the proxy connect to the upstream. Raises OSError where it does not, RemoteProtocolError."""
    http = h11.Connection(h11.CLIENT)
    headers = [("host", to.target)] + ([("proxy-authorization", authorization)] if authorization else [])
    for event in (h11.Request(method="CONNECT", target=to.target, headers=headers), h11.EndOfMessage()):
        writer.write(http.send(event) or b"")
    while True:
        answer = http.next_event()
        if isinstance(answer, h11.Response):
            break
        http.receive_data(await reader.read(1 << 12))
    if not 200 <= answer.status_code < 300:
        raise ConnectionRefusedError(f"the proxy answered {answer.status_code}")
