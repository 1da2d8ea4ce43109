"""The pattern language of profiles: parsing to components, and matching one path or one component.

Patterns and paths are bytes, and every byte counts for itself; a path is the one re-derived from the pinned
object: absolute, no empty, `.` or `..` component, no slash at the end.

* `*` any run of bytes inside one component, `?` one byte, `[abc]` `[a-z]` `[!abc]` one byte of a set.
* `**` any number of components, none included; only as a whole component. So `/x/**` is `/x` itself and
  everything below it, and `/**/x` is every `x`. A pattern may start with `**/`, which is short for `/**/`.
* `{a,b}` alternatives (they nest, and may hold slashes); each becomes a pattern of its own.
* A backslash takes the next byte literally.
* `//HOST:PORT` names a peer on the network. `**` never matches the empty component in front of it, so `/**`
  holds files alone. `//ADDRESS/BITS:PORT` are the addresses of a network.

No regular expression is involved: `re` costs more to import than a whole profile costs to load.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Token = bytes | int | tuple[bool, bytes] | tuple[bytes, int]  # the last: a network, its first address and its bits
    Component = bytes | None | tuple[Token, ...]
    Components = tuple[Component, ...]

ANY_RUN = 0  # the token of `*`
ONE_BYTE = 1  # the token of `?`
MAXIMUM_ALTERNATIVES = 256
_SPECIAL = frozenset(b"*?[{}\\")


class GlobError(ValueError):
    """A pattern that is not in the language; the message says what is wrong, without the pattern."""


def escape(literal: bytes) -> bytes:
    r"""`literal` as a pattern that matches just it: `a*b` becomes `a\*b`."""
    if not _SPECIAL.isdisjoint(literal):
        return b"".join(b"\\%c" % byte if byte in _SPECIAL else b"%c" % byte for byte in literal)
    return literal


def alternatives(pattern: bytes) -> list[bytes]:
    """`pattern` with each `{a,b}` written out: the list of patterns without braces, in reading order."""
    found = [b""]
    i = 0
    while i < len(pattern):
        byte = pattern[i : i + 1]
        if byte == b"{":
            end, parts = _group(pattern, i)
            if len(parts) < 2:
                raise GlobError("braces hold alternatives, {a,b}; a placeholder such as {home} comes first")
            tails = [tail for part in parts for tail in alternatives(part)]
            found = [head + tail for head in found for tail in tails]
            if len(found) > MAXIMUM_ALTERNATIVES:
                raise GlobError(f"more than {MAXIMUM_ALTERNATIVES} alternatives")
            i = end
            continue
        if byte == b"}":
            raise GlobError("'}' without '{'")
        end = _skip(pattern, i)
        found = [head + pattern[i:end] for head in found]
        i = end
    return found


def _skip(pattern: bytes, i: int) -> int:
    """The index after the unit at `i`: an escaped byte, a whole `[set]`, or one byte."""
    if pattern[i : i + 1] == b"\\":
        if i + 1 == len(pattern):
            raise GlobError("a backslash at the end")
        return i + 2
    if pattern[i : i + 1] == b"[":
        end = i + 2 if pattern[i + 1 : i + 2] == b"!" else i + 1
        end = pattern.find(b"]", end + 1)  # a `]` that comes first is a member
        if end < 0:
            raise GlobError("'[' without ']'")
        return end + 1
    return i + 1


def _group(pattern: bytes, start: int) -> tuple[int, list[bytes]]:
    """The brace group at `start`: the index after it, and its parts."""
    depth = 0
    i = mark = start + 1
    parts = []
    while i < len(pattern):
        byte = pattern[i : i + 1]
        if byte == b"{":
            depth += 1
        elif byte == b"}":
            if not depth:
                parts.append(pattern[mark:i])
                return i + 1, parts
            depth -= 1
        elif byte == b"," and not depth:
            parts.append(pattern[mark:i])
            mark = i + 1
        i = _skip(pattern, i)
    raise GlobError("'{' without '}'")


def components(pattern: bytes) -> Components:
    """An absolute pattern without braces, as its components: bytes (literal), None (`**`) or a tuple of
    tokens.
    """
    if pattern.startswith(b"**/") or pattern == b"**":
        pattern = b"/" + pattern
    if not pattern.startswith(b"/"):
        raise GlobError("a path starts with '/', '**/' or a placeholder such as {workspace}")
    if pattern == b"/":
        return ()
    if pattern.startswith(b"//") and b"/" in pattern[2:]:
        return (b"", _network(pattern[2:]))
    parts = pattern[1:].split(b"/")
    out: list[Component] = []
    for index, part in enumerate(parts):
        if not part and (index or len(parts) == 1):
            raise GlobError("an empty component: no '//' inside and no '/' at the end")
        component = _component(part)
        if component in {b".", b".."}:
            raise GlobError("'.' and '..' never occur in the path of an object")
        if component is None and out and out[-1] is None:
            continue
        out.append(component)
    return tuple(out)


def _network(text: bytes) -> Component:
    """`ADDRESS/BITS:PORT`"""
    from pincer_trace.kernel import inet

    host, _, port = text.rpartition(b":")
    address, _, bits = host.partition(b"/")
    first = inet.read(address.decode("ascii", "replace"))
    if not first or not bits.isdigit():
        raise GlobError("'/' in what is no prefix ADDRESS/BITS:PORT")
    rest = _component(b":" + port)
    return ((first, int(bits)), *((rest,) if isinstance(rest, bytes) else rest or ()))


def _component(text: bytes) -> Component:
    if text == b"**":
        return None
    tokens: list[Token] = []
    run = bytearray()
    i = 0
    while i < len(text):
        byte = text[i : i + 1]
        end = _skip(text, i)
        if byte == b"\\":
            run += text[i + 1 : end]
        elif byte in (b"*", b"?", b"["):
            if run:
                tokens.append(bytes(run))
                run.clear()
            if byte == b"[":
                tokens.append(_byte_set(text[i + 1 : end - 1]))
            elif byte == b"?":
                tokens.append(ONE_BYTE)
            elif tokens and tokens[-1] == ANY_RUN:
                raise GlobError("'**' stands for whole components only")
            else:
                tokens.append(ANY_RUN)
        else:
            run += byte
        i = end
    if not tokens:
        return bytes(run)
    if run:
        tokens.append(bytes(run))
    return tuple(tokens)


def _byte_set(text: bytes) -> tuple[bool, bytes]:
    negated = text.startswith(b"!")
    if negated:
        text = text[1:]
    members: set[int] = set()
    i = 0
    while i < len(text):
        if text[i + 1 : i + 2] == b"-" and i + 2 < len(text):
            if text[i] > text[i + 2]:
                raise GlobError("a range in '[...]' that runs backwards")
            members.update(range(text[i], text[i + 2] + 1))
            i += 3
        else:
            members.add(text[i])
            i += 1
    return negated, bytes(sorted(members))


def matcher(tokens: tuple[Token, ...]) -> Callable[[bytes], bool]:
    """A function that tells whether one component, not empty, matches `tokens`."""
    kinds = tuple(type(token) for token in tokens)
    if tokens == (ANY_RUN,):
        return bool
    first, last = tokens[0], tokens[-1]
    if isinstance(first, tuple) and isinstance(first[0], bytes):
        return _peers(first[0], int(first[1]), tokens[1:])
    if kinds == (bytes, int) and last == ANY_RUN and isinstance(first, bytes):
        prefix = first
        return lambda c: c.startswith(prefix)
    if kinds == (int, bytes) and first == ANY_RUN and isinstance(last, bytes):
        suffix = last
        return lambda c: c.endswith(suffix)
    return lambda c: _matches_tokens(tokens, c)


def _peers(network: bytes, bits: int, port: tuple[Token, ...]) -> Callable[[bytes], bool]:
    from pincer_trace.kernel import inet

    def match(peer: bytes) -> bool:
        host, colon, rest = peer.rpartition(b":")
        if not _matches_tokens(port, colon + rest):
            return False
        raw = inet.read(host.partition(b"%")[0].decode("ascii", "replace"))  # %: the number of a link
        return len(raw) == len(network) and inet.within(raw, network, bits)

    return match


def _matches_tokens(tokens: tuple[Token, ...], text: bytes) -> bool:
    """Left to right; on a mismatch the last `*` takes one byte more (enough, since later stars subsume
    earlier).
    """
    t = i = 0
    star = -1
    mark = 0
    while True:
        if t < len(tokens):
            token = tokens[t]
            if isinstance(token, bytes):
                if text.startswith(token, i):
                    i += len(token)
                    t += 1
                    continue
            elif token == ANY_RUN:
                star, mark = t, i
                t += 1
                continue
            elif i < len(text) and (isinstance(token, int) or (text[i] in token[1]) != token[0]):  # type: ignore[operator]
                i += 1
                t += 1
                continue
        elif i == len(text):
            return True
        if star < 0 or mark >= len(text):
            return False
        mark += 1
        i, t = mark, star + 1


def split(path: bytes) -> list[bytes]:
    """The components of an absolute path; `/` has none."""
    return [] if path == b"/" else path.split(b"/")[1:]


def matches(pattern: Components, path: bytes) -> bool:
    """Whether one path matches one pattern. For many patterns at once see `automaton`."""
    if not path.startswith(b"/"):
        return False
    at = set(_closure(pattern, 0))
    for component in split(path):
        if component in {b".", b".."}:
            return False
        after: set[int] = set()
        for i in at:
            if i == len(pattern):
                continue
            want = pattern[i]
            if want is None:
                if component:
                    after.update(_closure(pattern, i))
            elif (want == component) if isinstance(want, bytes) else component and matcher(want)(component):
                after.update(_closure(pattern, i + 1))
        at = after
    return len(pattern) in at


def _closure(pattern: Components, i: int) -> Iterator[int]:
    """`i`, and the positions after it that need no component."""
    yield i
    while i < len(pattern) and pattern[i] is None:
        i += 1
        yield i
