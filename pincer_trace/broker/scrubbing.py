"""Secrets taken out of a stream of bytes, wherever it is cut, each replaced by as many asterisks: lengths stay true."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Scrubber:
    """One stream. Held back is only what could be the beginning of a secret, so that events are not delayed."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = sorted(set(secrets), key=len, reverse=True)
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on of what has come."""
        data = self._held + data
        done = []
        at, open_from = 0, self._open_from(data, 0)
        for found in self._pattern.finditer(data):
            if found.start() >= open_from:
                break
            done += [data[at : found.start()], b"*" * len(found.group())]
            at = found.end()
            if at > open_from:
                open_from = self._open_from(data, at)
        self._held = data[open_from:]
        done.append(data[at:open_from])
        return b"".join(done)

    def end(self) -> bytes:
        """The last of it."""
        rest, self._held = self._held, b""
        return self.whole(rest)

    def whole(self, data: bytes) -> bytes:
        """The same for bytes that are no part of the stream: a header's value, say."""
        return self._pattern.sub(lambda found: b"*" * len(found.group()), data)

    def _open_from(self, data: bytes, start: int) -> int:
        """Where, from `start` on, a secret could begin that does not end yet; the end of the data for nowhere."""
        end = len(data)
        for at in range(max(start, end - self._longest + 1), end):
            tail = data[at:]
            if any(len(secret) > len(tail) and secret.startswith(tail) for secret in self._secrets):
                return at
        return end
