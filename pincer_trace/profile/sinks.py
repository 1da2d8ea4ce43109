"""What a profile says of its sinks (`[[sink]]`): programs that may have the content of a secret, and are
started so that they use it and do not print it. Pure; processes are looked at in `gateway/sinks.py`.
"""

from __future__ import annotations

import re

from pincer_trace.effects import READ
from pincer_trace.profile import globs
from pincer_trace.profile.model import ALLOW, BUILT_IN, DENY, PROTECTION, SINK, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pincer_trace.profile.globs import Components

    Expansions = Mapping[str, Sequence[tuple[bytes, Components]]]
    Patterns = tuple[tuple[str, bytes, Components], ...]
    # (name, options, operands), exe patterns, path patterns, output patterns, reason, file:line
    Sinking = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], Patterns, Patterns, Patterns, str, str]

_READ = frozenset({READ})
_MEMORY_REASON = "the profile has sinks, whose memory holds secrets"
# Variables by which a program loads code, asks elsewhere, or hands a key on. One of them, and it is no sink.
_BEGINNINGS = (
    b"LD_", b"GLIBC_", b"MALLOC_", b"GCONV_", b"LOCPATH", b"NLSPATH", b"OPENSSL_", b"P11_", b"PKCS11", b"KRB5",
    b"GSS", b"SSH_AUTH_SOCK", b"SSH_ASKPASS", b"SSH_SK_", b"SSH_PKCS11", b"DISPLAY", b"WAYLAND_DISPLAY", b"RES_OPTIONS",
    b"LOCALDOMAIN", b"HOSTALIASES", b"RESOLV_", b"NSS_", b"TZDIR", b"GETCONF_", b"LIBPATH",
)  # fmt: skip
_ENDINGS = (b"_ASKPASS",)


class Sink:
    """How it is started: `options` in any order, each a regular expression for a word that begins with `-`, or two of
    them, for the word and its value; then exactly the `operands`. `outputs` are patterns of the files in which it puts
    nothing of a secret.
    """

    __slots__ = ("name", "operands", "options", "outputs")

    def __init__(
        self, name: str, options: Sequence[str], operands: Sequence[str], outputs: Sequence[Components] = ()
    ) -> None:
        self.name = name
        self.outputs = outputs
        self.options = [tuple(each.encode() for each in option.split(" ", 1)) for option in options]
        self.operands = [each.encode() for each in operands]

    def fits(self, words: Sequence[bytes]) -> bool:
        """Whether a program with these arguments, its own name aside, was started so."""
        at = 0
        while at < len(words) and words[at].startswith(b"-"):
            for option in self.options:
                given = words[at : at + len(option)]
                if len(given) == len(option) and all(map(re.fullmatch, option, given)):
                    at += len(option)
                    break
            else:
                return False
        rest = words[at:]
        return len(rest) == len(self.operands) and all(map(re.fullmatch, self.operands, rest))

    def puts_out(self, path: bytes) -> bool:
        """Whether what it writes there is nothing of what it reads."""
        return any(globs.matches(components, path) for components in self.outputs)


def misleading(environment: Sequence[bytes]) -> bytes:
    """The first variable of these (`NAME=VALUE`) with which no program is a sink; empty for none."""
    for variable in environment:
        name = variable.partition(b"=")[0]
        if name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS):
            return name
    return b""


def rules(sinkings: Iterable[Sinking], expansions: Expansions) -> Iterator[Rule]:
    """Each sink may read its paths, whatever protects them; and while there is one, nobody reads a process's memory."""
    found = False
    for parts, programs, paths, outputs, reason, source in sinkings:
        sink, found = Sink(*parts, [components for _, components in _expanded(outputs, expansions)]), True
        for exe, exe_components in _expanded(programs, expansions):
            for pattern, components in _expanded(paths, expansions):
                yield Rule(
                    _READ, pattern, components, ALLOW, reason, source, SINK, exe, exe_components, PROTECTION, sink=sink
                )
    if found:
        for pattern in (b"/proc/*/mem", b"/proc/*/task/*/mem"):
            yield Rule(_READ, pattern, globs.components(pattern), DENY, _MEMORY_REASON, "built in", tier=BUILT_IN)


def _expanded(patterns: Patterns, expansions: Expansions) -> list[tuple[bytes, Components]]:
    return [(text + rest or b"/", head + tail) for name, rest, tail in patterns for text, head in expansions[name]]
