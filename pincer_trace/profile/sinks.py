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
    # name, options, operands, variables, environment
    Parts = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    # parts, exe patterns, path patterns, output patterns, reason, file:line
    Sinking = tuple[Parts, Patterns, Patterns, Patterns, str, str]

_READ = frozenset({READ})
VARIABLE = b"//$"  # what is kept in a variable is known to rules by this and its name
_VARIABLE_REASON = "a variable that is kept for sinks"
_ENVIRONMENT_REASON = "the profile has sinks, whose environment holds secrets"
_MEMORY_REASON = "the profile has sinks, whose memory holds secrets"
# Variables by which a program loads code, asks elsewhere, or hands a key on. One of them, and it is no sink.
_BEGINNINGS = (
    b"LD_", b"GLIBC_", b"MALLOC_", b"GCONV_", b"LOCPATH", b"NLSPATH", b"OPENSSL_", b"P11_", b"PKCS11", b"KRB5",
    b"GSS", b"SSH_AUTH_SOCK", b"SSH_ASKPASS", b"SSH_SK_", b"SSH_PKCS11", b"DISPLAY", b"WAYLAND_DISPLAY", b"RES_OPTIONS",
    b"LOCALDOMAIN", b"HOSTALIASES", b"RESOLV_", b"NSS_", b"TZDIR", b"GETCONF_", b"LIBPATH",
)  # fmt: skip
_ENDINGS = (b"_ASKPASS",)
# Those that a sink may have beside what its profile names, where there is a secret among them.
_PLAIN = frozenset(b"PATH LANG LANGUAGE TERM COLORTERM TZ PWD USER LOGNAME TMPDIR NO_COLOR COLUMNS LINES".split())


class Sink:
    """How it is started: `options` in any order, each a regular expression for a word that begins with `-`, or two of
    them, for the word and its value; then exactly the `operands`. In its `variables` it may have values, and then of
    others those of its `environment` alone, of which a `*` at the end stands for any rest. `outputs` are patterns of
    the files in which it puts nothing of a secret.
    """

    __slots__ = ("environment", "name", "operands", "options", "outputs", "variables")

    def __init__(
        self,
        name: str,
        options: Sequence[str],
        operands: Sequence[str],
        variables: Sequence[str] = (),
        environment: Sequence[str] = (),
        outputs: Sequence[Components] = (),
    ) -> None:
        self.name = name
        self.variables = tuple(each.encode() for each in variables)
        self.environment = tuple(each.encode() for each in environment)
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

    def keeps(self, name: bytes) -> bool:
        """Whether it has this variable beside a value."""
        return any(name.startswith(each[:-1]) if each.endswith(b"*") else name == each for each in self.environment)

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


def is_plain(name: bytes) -> bool:
    """Whether a variable of this name misleads nobody."""
    return name in _PLAIN or name.startswith(b"LC_")


def rules(sinkings: Iterable[Sinking], expansions: Expansions) -> Iterator[Rule]:
    """Each sink may read its paths, whatever protects them; and while there is one, nobody reads a process's memory."""
    sinkings = list(sinkings)
    with_variables = any(parts[3] for parts, *_ in sinkings)
    everything = VARIABLE + b"*", globs.components(VARIABLE + b"*")
    if with_variables:
        yield Rule(_READ, *everything, ALLOW, _VARIABLE_REASON, "built in")
        yield Rule(_READ, *everything, DENY, _VARIABLE_REASON, "built in", tier=PROTECTION)
    for parts, programs, paths, outputs, reason, source in sinkings:
        sink = Sink(*parts, [components for _, components in _expanded(outputs, expansions)])
        names = [VARIABLE + globs.escape(name) for name in sink.variables]
        patterns = [*_expanded(paths, expansions), *((name, globs.components(name)) for name in names)]
        for exe, exe_components in _expanded(programs, expansions):
            for pattern, components in patterns:
                yield Rule(
                    _READ, pattern, components, ALLOW, reason, source, SINK, exe, exe_components, PROTECTION, sink=sink
                )
    closed = [(b"mem", _MEMORY_REASON)] if sinkings else []
    if with_variables:
        closed.append((b"environ", _ENVIRONMENT_REASON))
    for name, reason in closed:
        for pattern in (b"/proc/*/" + name, b"/proc/*/task/*/" + name):
            yield Rule(_READ, pattern, globs.components(pattern), DENY, reason, "built in", tier=BUILT_IN)


def _expanded(patterns: Patterns, expansions: Expansions) -> list[tuple[bytes, Components]]:
    return [(text + rest or b"/", head + tail) for name, rest, tail in patterns for text, head in expansions[name]]
