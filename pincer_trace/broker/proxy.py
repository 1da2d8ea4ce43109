"""The relay: requests of the worker to the one upstream, and what comes back, as it comes.

Both sides speak HTTP/1.1 by h11, which takes every message apart and puts it together anew: what goes on is what was
understood. Each connection of a client has one of its own to the upstream, which ends with it, so a client that goes
away ends what it asked for, and one that stays pays for one handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator
from http import client as http_client
from typing import Any

import h11

from pincer_trace.broker import requests
from pincer_trace.broker.requests import Admission, Keys, Refused
from pincer_trace.broker.scrubbing import Scrubber

_CHUNK = 1 << 16
_HEAD = 1 << 16  # bytes of the head of a message
_UNREAD = (
    1 << 20
)  # bytes of a refused request's body that are read and thrown away, so that its client reads the answer
_CONNECT = 30.0  # seconds
_LINGER = 1.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Gone(Exception):
    """The client has ended its connection."""


class _Side:
    """One connection: the bytes of its streams as events of HTTP."""

    def __init__(self, http: h11.Connection, streams: Streams) -> None:
        self.http = http
        self.reader, self.writer = streams

    async def next(self) -> object:
        """The next event. Raises RemoteProtocolError, OSError."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.http.receive_data(await self.reader.read(_CHUNK))

    async def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def silence(self) -> None:
        """Until the other end has closed. What it sends meanwhile is kept; where that is much, it is no longer read."""
        while True:
            data = await self.reader.read(_CHUNK)
            if not data:
                return
            self.http.receive_data(data)
            if len(self.http.trailing_data[0]) > _CHUNK:
                await asyncio.get_running_loop().create_future()

    async def linger(self) -> None:
        """Say that nothing follows, and read on for a moment: bytes that nobody read would take our last ones along."""
        with contextlib.suppress(OSError, TimeoutError):  # it has gone, or never ends: it is closed all the same
            self.writer.write_eof()
            async with asyncio.timeout(_LINGER):
                while await self.reader.read(_CHUNK):
                    pass

    @property
    def is_done(self) -> bool:
        """Whether this message was whole in both ways, and another may follow."""
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE


class Proxy:
    """One broker. `connect` opens a connection to the upstream."""

    def __init__(self, admission: Admission, keys: Keys, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._admission = admission
        self._keys = keys
        self._connect = connect

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, to its end."""
        client = _Side(h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD), (reader, writer))
        upstream: _Side | None = None
        try:
            while True:
                request = await self._next_request(client, upstream)
                if request is None:
                    break
                upstream = await self._answer(client, upstream, request)
                if not client.is_done:
                    break
                client.http.start_next_cycle()
            await client.linger()
        except (h11.ProtocolError, OSError, _Gone):
            writer.transport.abort()  # so that half an answer does not pass for one
        finally:
            writer.close()
            if upstream is not None:
                upstream.writer.transport.abort()

    async def _next_request(self, client: _Side, upstream: _Side | None) -> h11.Request | None:
        """None when there is none any more: the client has closed, or the upstream has, as the client would see it."""
        coming = asyncio.create_task(client.next())
        ending = [asyncio.create_task(upstream.silence())] if upstream is not None else []
        try:
            await asyncio.wait([coming, *ending], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return None
            event = coming.result()
        except h11.RemoteProtocolError as error:
            await self._refuse(client, Refused(error.error_status_hint, "invalid_request_error", str(error)))
            return None
        finally:
            await _cancel(coming, *ending)
        return event if isinstance(event, h11.Request) else None

    async def _answer(self, client: _Side, upstream: _Side | None, request: h11.Request) -> _Side | None:
        """Answer one request; the connection to the upstream, if it can be used again."""
        try:
            target, headers = self._admission.admit(request.method, request.target, request.headers)
            if upstream is None or not upstream.is_done:
                upstream = await self._connected()
            else:
                upstream.http.start_next_cycle()
        except Refused as refused:
            await self._refuse(client, refused)
            return upstream
        try:
            await upstream.send(h11.Request(method=request.method, target=target, headers=headers))
            await self._relay(client, upstream)
        except Refused as refused:
            upstream.writer.transport.abort()
            if client.http.our_state is h11.SEND_RESPONSE:
                await self._refuse(client, refused)
                return None
            raise _Gone from None
        except BaseException:
            upstream.writer.transport.abort()
            raise
        if upstream.is_done:
            return upstream
        upstream.writer.transport.abort()
        return None

    async def _connected(self) -> _Side:
        """Raises Refused, which tells why there is no connection."""
        try:
            async with asyncio.timeout(_CONNECT):
                return _Side(h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD), await self._connect())
        except TimeoutError:
            why = f"no answer within {_CONNECT:.0f} seconds"
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not accepted: {error.verify_message}"
        except (OSError, h11.RemoteProtocolError) as error:
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number and number > 0 else str(error)
        raise Refused(502, "api_error", f"the upstream cannot be reached: {why}")

    async def _relay(self, client: _Side, upstream: _Side) -> None:
        """The body of the request up and the response down, at once. Raises _Gone when the client goes."""
        up, down = (
            asyncio.create_task(self._up(client, upstream)),
            asyncio.create_task(self._down(client, upstream)),
        )
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not down.done():
                up.result()
            await down
        finally:
            await _cancel(up, down)

    async def _up(self, client: _Side, upstream: _Side) -> None:
        """Until the client ends its connection, which is an error, or the other way has ended."""
        try:
            while True:
                event = await client.next()
                if isinstance(event, h11.Data):
                    await upstream.send(h11.Data(data=bytes(event.data)))
                elif isinstance(event, h11.EndOfMessage):
                    await upstream.send(h11.EndOfMessage())  # trailers are dropped: they could name a credential
                    break
                else:
                    raise _Gone
        except h11.RemoteProtocolError as error:
            raise Refused(400, "invalid_request_error", str(error)) from None
        except OSError:  # of the upstream, which may have answered before it closed
            await asyncio.get_running_loop().create_future()
        await client.silence()
        raise _Gone

    async def _down(self, client: _Side, upstream: _Side) -> None:
        scrubber = Scrubber(self._keys.secrets)
        decoder: _Decoder | None = None
        while True:
            try:
                event = await upstream.next()
            except (OSError, h11.RemoteProtocolError):
                raise Refused(502, "api_error", "the upstream broke off, or answered what is no HTTP") from None
            if isinstance(event, h11.Response):
                encoding = requests.encoding(event.headers)
                decoder = _Decoder(encoding) if encoding else None
                headers = requests.answer_headers(event.headers, scrubber.whole, opened=bool(encoding))
                await client.send(_response(event, headers, scrubber))
            elif isinstance(event, h11.InformationalResponse):
                headers = requests.answer_headers(event.headers, scrubber.whole, opened=False)
                await client.send(h11.InformationalResponse(status_code=event.status_code, headers=headers, reason=b""))
            elif isinstance(event, h11.Data):
                for piece in decoder.feed(bytes(event.data)) if decoder else (bytes(event.data),):
                    await client.send(h11.Data(data=scrubber.feed(piece)))
            elif isinstance(event, h11.EndOfMessage):
                rest = scrubber.end()
                if rest:
                    await client.send(h11.Data(data=rest))
                await client.send(h11.EndOfMessage(headers=requests.trailers(event.headers, scrubber.whole)))
                return
            else:
                raise Refused(502, "api_error", "the upstream closed the connection without an answer")

    async def _refuse(self, client: _Side, refused: Refused) -> None:
        """Answer here. What the request still brings is thrown away, up to a limit: then the connection ends."""
        http = client.http
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        ends = http.they_are_waiting_for_100_continue or http.their_state is h11.ERROR
        headers = [("content-type", "application/json"), ("content-length", str(len(refused.body)))]
        headers += [("connection", "close")] if ends else []
        phrase = http_client.responses[refused.status]
        await client.send(h11.Response(status_code=refused.status, headers=headers, reason=phrase))
        await client.send(h11.Data(data=refused.body))
        await client.send(h11.EndOfMessage())
        if not ends and http.their_state is h11.SEND_BODY:
            await self._drain(client)

    async def _drain(self, client: _Side) -> None:
        size = 0
        while size < _UNREAD:
            event = await client.next()
            if not isinstance(event, h11.Data):
                return
            size += len(event.data)


class _Decoder:
    """A compressed body, in pieces of bounded size however small it was. Raises Refused where it is none."""

    def __init__(self, encoding: bytes) -> None:
        self._bits = zlib.MAX_WBITS | (16 if encoding == b"gzip" else 0)
        self._member = zlib.decompressobj(self._bits)

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:  # of several members
                    self._member = zlib.decompressobj(self._bits)
                yield self._member.decompress(data, _CHUNK)
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise Refused(502, "api_error", f"the upstream's answer cannot be decompressed: {error}") from None


def _response(event: h11.Response, headers: requests.Headers, scrubber: Scrubber) -> h11.Response:
    return h11.Response(status_code=event.status_code, headers=headers, reason=scrubber.whole(event.reason))


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
