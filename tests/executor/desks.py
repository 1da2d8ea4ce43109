"""One session's keys and executor with everything right, and ways to make one thing of it wrong."""

from __future__ import annotations

import pytest

from pincer_trace.effects import UNLINK
from pincer_trace.executor.acceptance import WINDOW, Acceptance, Rejected
from pincer_trace.gateway.request import Claim, Request, origin, subject
from pincer_trace.profile import ALLOW, CONFIRM
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Keys, Share, action_id
from pincer_trace.twin.tokens import mint

P = b"\x50" * 32
START = 1_000 * WINDOW


def request(path: bytes = b"/w/f", **how) -> Request:
    claim = Claim(UNLINK, path, (1, 2), path.rpartition(b"/")[2], None)
    return Request.of(origin("s", P), subject(1, 2, (3, 4), b"/bin/sh"), UNLINK, [claim], **how)


class Desk:
    """One session's keys and executor, and everything right: `shares` are two genuine votes on `request`."""

    def __init__(self, verdicts: tuple[str, str] = (ALLOW, ALLOW)) -> None:
        self.keys = Keys()
        self.acceptance = Acceptance(self.keys, P)
        self.request = request()
        self.action = action_id()
        self.now = START
        self.token = b""
        self.objects = lambda: True
        self.shares = self.vote(self.request, self.action, *verdicts)
        if CONFIRM in verdicts:
            self.token = self.mint()

    def share(self, by: str, verdict: str = ALLOW, **how) -> Share:
        """A genuine vote, but for what `how` says."""
        key = how.pop("key", {LEFT: self.keys.left, RIGHT: self.keys.right}.get(by, self.keys.left))
        digest = self.keys.bind.tag(how.pop("request", self.request).data)
        values = {"action": self.action, "program": P, "digest": digest, "time": self.now, "verdict": verdict} | how
        return Share.sign(key, by, **values)

    def vote(self, asked: Request, action: bytes, left: str = ALLOW, right: str = ALLOW) -> list[Share]:
        return [self.share(by, verdict, request=asked, action=action) for by, verdict in ((LEFT, left), (RIGHT, right))]

    def mint(self, key: bytes = b"", *, action: bytes = b"", program: bytes = P, digest: bytes = b"") -> bytes:
        bound = self.shares[0].digest
        return mint(key or self.keys.confirm, action or self.action, program, digest or bound)

    def accept(self) -> Share:
        return self.acceptance.accept(self.shares, self.request, self.now, token=self.token, objects=self.objects)


def rejected(desk: Desk) -> str:
    with pytest.raises(Rejected) as caught:
        desk.accept()
    assert caught.value.code in codes.CODES
    assert caught.value.reason == str(caught.value)
    return caught.value.code


def altered(share: Share, **fields) -> Share:
    """The same share with other fields, and its old MAC if none is given."""
    values = {name: getattr(share, name) for name in Share.__slots__} | fields
    return Share(
        values["by"], values["action"], values["program"], values["digest"], values["time"], values["verdict"],
        values["mac"],
    )  # fmt: skip


def flip(data: bytes, bit: int = 0) -> bytes:
    return bytes([data[0] ^ 1 << bit]) + data[1:]


def alter(index: int, **fields):
    def change(desk: Desk) -> None:
        values = {name: value(desk) if callable(value) else value for name, value in fields.items()}
        desk.shares[index] = altered(desk.shares[index], **values)

    return change


def cast(*changes: dict):
    """Votes that are genuine, each with one of its fields another."""

    def change(desk: Desk) -> None:
        desk.shares = [desk.share(by, **how) for by, how in zip((LEFT, RIGHT), changes, strict=True)]

    return change


def put(name: str, value):
    def change(desk: Desk) -> None:
        setattr(desk, name, value(desk) if callable(value) else value)

    return change
