"""Names under which programs save what then gets its real name: a retry has another one, and is the same question.

`settings.json.tmp.4711.9f3a1c` becomes `settings.json.tmp.*.*`. Only what surely varies is replaced: two names become
one only when a pattern fits both, with the same fixed text around the variable parts. A random part must look random,
so that `cert.backup`, `cert.part01` and `cert.md5sum` stay what they are.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

_HOLES: dict[bytes, bytes] = {
    b"stem": rb"(?s:.+)",
    b"pid": rb"[0-9]{1,10}",
    b"number": rb"[0-9]{9,20}",  # not eight: that is a date
    b"hex": rb"[0-9a-fA-F]{6,64}",
    b"random": rb"[A-Za-z0-9]{6,16}",
    b"lower": rb"[a-z0-9_]{8}",
    b"letter": rb"[k-p]",
}


def _looks_random(text: bytes) -> bool:
    """As mkstemp(3) fills: both cases, not just a capital in front, and changing between kinds again and again."""
    return (
        any(97 <= c <= 122 for c in text)
        and any(65 <= c <= 90 for c in text[1:])
        and _changes(text) >= max(2, len(text) // 4)
    )


def _looks_lower(text: bytes) -> bool:
    """As Python's tempfile fills: no word, and no word with a number behind it."""
    return _changes(text) >= 2


def _changes(text: bytes) -> int:
    """How often letters of one case, those of the other and digits follow each other; a capital in front is none."""
    kinds = [0 if 97 <= c <= 122 else 1 if 65 <= c <= 90 else 2 for c in text if c != 95]
    found = sum(a != b for a, b in zip(kinds, kinds[1:]))  # noqa: B905, RUF007 - itertools costs an import
    return found - (kinds[:2] == [1, 0])


_CHECKS: dict[bytes, Callable[[bytes], bool]] = {b"random": _looks_random, b"lower": _looks_lower}

DEFAULT = (
    b"{stem}.tmp.{pid}.{hex}",  # Claude Code
    b"{stem}.tmp.{pid}",
    b"{stem}.tmp.{random}",
    b"{stem}.tmp-{random}",
    b"{stem}.tmp{number}",  # Go's renameio
    b"{stem}.{pid}.tmp",
    b"{stem}.{hex}.tmp",
    b"{stem}-{hex}.tmp",
    b"{stem}.{number}",  # npm's write-file-atomic
    b"tmp_{stem}_{random}",  # git: objects, packs and indexes
    b"tmp{lower}",  # Python's tempfile
    b".tmp{random}",  # Rust's tempfile
    b"sed{random}",
    b".goutputstream-{random}",  # GLib
    b"{stem}.{random}",  # mkstemp, rsync, KDE
    b".{stem}.sw{letter}",  # vim
)


class Patterns:
    """What staging names look like: fixed text and holes `{stem}` (kept), `{pid}`, `{number}`, `{hex}`, `{random}`,
    `{lower}`, `{letter}`. The first that fits a whole name counts. Raises ValueError, in words.
    """

    __slots__ = ("_compiled", "_texts")

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = tuple(texts)
        self._compiled: list[tuple[re.Pattern[bytes], list[bytes]]] | None = None
        for text in self._texts:
            _split(text)

    def parts(self, name: bytes) -> list[bytes | None]:
        """The name in pieces, None where it varies. An ordinary name is one piece."""
        if self._compiled is None:  # at the first question: `re` is slow to import
            self._compiled = [_compile(text) for text in self._texts]
        for pattern, holes in self._compiled:
            found = pattern.fullmatch(name)
            if found is None:
                continue
            if all(_CHECKS[hole](found[i]) for i, hole in enumerate(holes, 1) if hole in _CHECKS):
                pieces: list[bytes | None] = []
                at = 0
                for i, hole in enumerate(holes, 1):
                    if hole != b"stem":
                        pieces += [name[at : found.start(i)], None]
                        at = found.end(i)
                return [piece for piece in (*pieces, name[at:]) if piece != b""]
        return [name]


def _split(text: bytes) -> list[bytes]:
    """Fixed text and names of holes in turn."""
    pieces: list[bytes] = []
    rest = text
    while True:
        fixed, brace, rest = rest.partition(b"{")
        pieces.append(fixed)
        if not brace:
            break
        hole, brace, rest = rest.partition(b"}")
        if not brace or hole not in _HOLES:
            known = ", ".join(f"{{{name.decode()}}}" for name in _HOLES)
            raise ValueError(f"staging name {text.decode('utf-8', 'replace')!r}: {hole.decode('utf-8', 'replace')!r} "
                             f"is none of {known}")  # fmt: skip
        pieces.append(hole)
    if not any(pieces[::2]):
        raise ValueError(f"staging name {text.decode('utf-8', 'replace')!r}: without fixed text it is any name")
    return pieces


def _compile(text: bytes) -> tuple[re.Pattern[bytes], list[bytes]]:
    import re

    pieces = _split(text)
    expression = b"".join(
        b"(" + _HOLES[piece] + b")" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces)
    )
    return re.compile(expression), pieces[1::2]


DEFAULT_PATTERNS = Patterns(DEFAULT)


def staged_name(name: bytes, patterns: Patterns = DEFAULT_PATTERNS) -> bytes:
    r"""The name with `*` for what varies. A `*` or `\` of the name itself gets a `\`, so that no two ordinary names
    become one.
    """
    return b"".join(b"*" if piece is None else _escaped(piece) for piece in patterns.parts(name))


def _escaped(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b"*", b"\\*")


def parts_of(staged: bytes) -> list[bytes | None]:
    """The pieces of what `staged_name` gave."""
    pieces: list[bytes | None] = []
    fixed = bytearray()
    octets = iter(staged)
    for c in octets:
        if c == ord("*"):
            if fixed:
                pieces.append(bytes(fixed))
                fixed.clear()
            pieces.append(None)
        else:
            fixed.append(next(octets, c) if c == ord("\\") else c)
    if fixed:
        pieces.append(bytes(fixed))
    return pieces
