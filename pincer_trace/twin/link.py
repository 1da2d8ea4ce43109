"""Messages between the engine and the process of the right evaluator: JSON over a socket, descriptors beside it.

The engine asks, and waits for an answer for a bounded time; or it tells, and goes on. The other side only answers, and
may be in an attacker's hands: what it sends is plain data of a bounded size, looked at before it is used, and
descriptors that it sends are dropped by the kernel. unix(7): SOCK_SEQPACKET, SCM_RIGHTS
"""

from __future__ import annotations

import errno
import json
import os
import select
import time

from pincer_trace.kernel.bare import receive_descriptors, send_descriptors, socket
from pincer_trace.twin import codes
from pincer_trace.twin.evaluator import Unheard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Message = list[Any]

PATIENCE = 5.0  # seconds for an answer
_GRACE = 0.05  # the same while an earlier question is still not answered
_INLINE = 60_000  # bytes that go through the socket; what is longer goes in a file in memory
_ANSWER = 1 << 18  # bytes of an answer at most
_DESCRIPTORS = 8  # with one message
_encode, _decode = json.JSONEncoder(separators=(",", ":")).encode, json.JSONDecoder().decode
_FLAGS = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
_GONE = "the evaluator of objects has ended"
_LATE = "the evaluator of objects did not answer in time"
_WRONG = "what the evaluator of objects answered is no answer to what it was asked"


def text(raw: bytes) -> str:
    """Bytes as a message holds them: a character each."""
    return raw.decode("latin-1")


def raw(text: object) -> bytes:
    """The bytes again. Raises ValueError where it is no such text."""
    if type(text) is not str:
        raise ValueError("no text")
    return text.encode("latin-1")


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send all of it or nothing. Raises OSError; BlockingIOError when there is no room."""
    data = _encode(message).encode()
    if len(data) <= _INLINE:
        send_descriptors(connection, data, descriptors, _FLAGS)
        return
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(data)
        send_descriptors(connection, b"%d" % len(data), (memory, *descriptors), _FLAGS)
    finally:
        os.close(memory)


def reply(connection: socket.socket, message: Message) -> None:
    """Send an answer. Raises OSError."""
    try:
        connection.send(_encode(message).encode(), socket.MSG_NOSIGNAL)
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        reply(connection, [message[0], None, "the answer is too long"])


def receive(connection: socket.socket) -> tuple[Message, list[int]] | None:
    """The next message and its descriptors, the caller's to close; None at the end. For the side that is asked.

    Raises OSError, ValueError.
    """
    data, descriptors, flags = receive_descriptors(connection, _INLINE, _DESCRIPTORS)
    try:
        if not data:
            return None
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a message that is too large")
        message = _decode(data.decode())
        if type(message) is int:
            memory = descriptors.pop(0)
            try:
                message = _decode(os.pread(memory, message, 0).decode())
            finally:
                os.close(memory)
        if type(message) is not list:
            raise ValueError("no message")
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors


class Link:
    """The engine's end. Belongs to the receiving thread. `patience`: seconds for an answer, `PATIENCE` by default."""

    def __init__(self, connection: socket.socket, *, patience: float | None = None) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._patience = PATIENCE if patience is None else patience
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connection, select.POLLIN)
        self._writable.register(connection, select.POLLOUT)
        self._buffer = bytearray(_ANSWER)
        self._number = 0
        self._awaited = False  # the answer to that number
        self.gone = ""  # why nothing can be asked any more

    def close(self) -> None:
        """The other side ends with this."""
        self._connection.close()
        self.gone = self.gone or "the run has ended"

    def ask(self, operation: str, arguments: Message, descriptors: Sequence[int] = ()) -> Message:
        """The answer. Raises Unheard."""
        if self.gone:
            raise Unheard(codes.MISSING_SHARE, self.gone)
        if self._awaited:
            self._answer(_GRACE)  # to that earlier question: too late for it
        self._number += 1
        self._deliver([operation, self._number, *arguments], descriptors)
        self._awaited = True
        return self._answer(self._patience)

    def tell(self, operation: str, arguments: Message, descriptors: Sequence[int] = ()) -> None:
        """Without an answer. If it does not get through, nothing is asked any more: the other side knows too little."""
        if self.gone:
            return
        try:
            self._deliver([operation, 0, *arguments], descriptors)
        except Unheard as unheard:
            self._lose(f"the evaluator of objects could not be told what was done: {unheard.reason}")

    def _deliver(self, message: Message, descriptors: Sequence[int]) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                send(self._connection, message, descriptors)
                return
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not self._writable.poll(left * 1000):
                    raise Unheard(codes.LATE_SHARE, _LATE) from None
            except (BrokenPipeError, ConnectionError):
                self._lose(_GONE)
                raise Unheard(codes.MISSING_SHARE, _GONE) from None
            except OSError as error:
                reason = f"the evaluator of objects cannot be asked: {error.strerror}"
                raise Unheard(codes.SUPERVISOR_FAILURE, reason) from error

    def _answer(self, patience: float) -> Message:
        """The answer to the latest question. Answers to earlier ones are dropped."""
        deadline = time.monotonic() + patience
        while True:
            if not self._readable.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise Unheard(codes.LATE_SHARE, _LATE)
            try:
                size = self._connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                size = 0
            if not size:
                self._lose(_GONE)
                raise Unheard(codes.MISSING_SHARE, _GONE)
            number, answer = _parsed(bytes(memoryview(self._buffer)[:size]))
            if 0 < number < self._number and time.monotonic() < deadline:
                continue
            self._awaited = False
            if number != self._number:
                raise Unheard(codes.BAD_SHARE, _WRONG)
            return answer

    def _lose(self, why: str) -> None:
        """Nothing is asked any more."""
        if not self.gone:
            self.gone = why
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side has ended already


def _parsed(data: bytes) -> tuple[int, Message]:
    """To which question this is an answer, and the answer; -1 where it is none."""
    try:
        answer = _decode(data.decode())
    except (ValueError, RecursionError):
        return -1, []
    if type(answer) is not list or not answer or type(answer[0]) is not int:
        return -1, []
    return answer[0], answer[1:]
