"""Helpers of these tests: views of bytes, with handles from a seeded store."""

from __future__ import annotations

import random

from pincer_trace.plaintext.handles import HandleStore, Scope
from pincer_trace.plaintext.kinds import Kind
from pincer_trace.plaintext.summary import DEFAULT, Mode, View, summarise

SCOPE = Scope("tree", "session", "object", "version")


def view_of(name: str, content: bytes, mode: Mode = DEFAULT, seed: int = 0) -> View:
    store = HandleStore(random=random.Random(seed).randbytes)
    kind = Kind.of(name.encode(), content)
    return summarise(content, kind, lambda value, field: store.issue(value, field=field, scope=SCOPE, now=0.0), mode)


def plain(view: View) -> str:
    """Its text, with handles as <NAME of the field>."""
    text = view.text.decode("ascii")
    for shown in view.shown:
        for handle in shown.handles:
            text = text.replace(handle.text, "<" + shown.line.field.decode() + ">")
    return text.replace(view.remainder.text + " rest of the file: keep", "<rest>")
