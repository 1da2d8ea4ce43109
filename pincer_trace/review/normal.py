"""Names of one run as another run of the same program would have them.

A path becomes the place that it lies in (`{workspace}`, `{home}`, ...) and the components below that, and each
component a pattern, in which what a program makes up anew each time (process numbers, times, random letters, digests)
is `*`. Pure: what is a place is told by the run's session, what is random by the name alone and by the run's process
numbers.
"""

from __future__ import annotations

import re
from itertools import pairwise

from pincer_trace.paths import is_inside
from pincer_trace.profile import globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from pincer_trace.profile import Places

_PYTHON = 8  # letters that Python's tempfile makes up, of a to z, 0 to 9 and _
_UUID = rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_DATE = rb"20\d\d-[01]\d-[0-3]\d(?:[T_ -]?[0-2]\d[:_.-][0-5]\d(?:[:_.-][0-5]\d)?(?:[.,]\d+)?Z?)?"
_TOKENS = re.compile(rb"(?P<whole>" + _UUID + rb"|" + _DATE + rb")|[A-Za-z0-9]+")
_PYTHON_NAME = re.compile(rb"(?P<head>.*?)(?P<mark>^|tmp|[-.])(?P<made>[a-z0-9_]{%d})(?P<tail>\..*)?$" % _PYTHON, re.S)
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DIGEST = 16  # letters of a hexadecimal word that nobody writes
_TIME = 6  # digits of a number that counts time rather than versions
_MADE = 6  # letters that mkstemp(3) makes up, at least
_TURNS = 3  # changes between small letters, capitals and digits in a word that is none


class Naming:
    """The names of one run. `pids`: its process numbers."""

    def __init__(self, places: Places, pids: Container[int] = ()) -> None:
        self._pids = pids
        self._places = places.named()

    def split(self, path: bytes) -> tuple[str, list[bytes]]:
        """The deepest place that an absolute path lies in, and the components below it; "" for the root."""
        for directory, name in self._places:
            if is_inside(path, directory):
                return name, globs.split(path[len(directory) :]) if path != directory else []
        return "", globs.split(path)

    def expanded(self, place: str, text: bytes) -> bytes:
        """A pattern below a place, as it is here."""
        directory = next((directory for directory, name in self._places if name == place), b"")
        return globs.escape(directory) + text

    def steady(self, name: bytes) -> bytes:
        """The pattern of a component."""
        return self._pattern(name, self._is_made_up)

    def temporary(self, name: bytes) -> bytes:
        """The same of one that the run made in a directory for temporary things."""
        if len(name) == _PYTHON and name.isalpha() and name.islower():
            return b"?" * _PYTHON
        return self.fleeting(name)

    def fleeting(self, name: bytes) -> bytes:
        """The same of one that the run made for a while: what only looks made up is taken for that."""
        found = _PYTHON_NAME.fullmatch(name)
        if found is not None and (found["mark"] or not name.isalpha()):
            tail = self._pattern(found["tail"] or b"", self._may_be_made_up)
            return (
                self._pattern(found["head"], self._may_be_made_up) + globs.escape(found["mark"]) + b"?" * _PYTHON + tail
            )
        return self._pattern(name, self._may_be_made_up)

    def _pattern(self, name: bytes, varies: Callable[[bytes], bool]) -> bytes:
        out = b""
        at = 0
        for token in _TOKENS.finditer(name):
            if token["whole"] or varies(token[0]):
                out += globs.escape(name[at : token.start()])
                out += b"" if out.endswith(b"*") and not out.endswith(b"\\*") else b"*"
                at = token.end()
        return out + globs.escape(name[at:])

    def _is_made_up(self, token: bytes) -> bool:
        if token.isdigit():
            return len(token) >= _TIME or (len(token) > 1 and int(token) in self._pids)
        if _HEX.issuperset(token) and (len(token) >= _DIGEST or (len(token) >= 8 and not token.isalpha())):
            return True
        return len(token) >= _MADE and _turns(token) >= _TURNS and len(_kinds(token)) > 2

    def _may_be_made_up(self, token: bytes) -> bool:
        if token.isdigit() or self._is_made_up(token):
            return True
        return len(token) >= _MADE and len(_kinds(token)) > 1 and not token.istitle()


def _kinds(token: bytes) -> set[str]:
    return {_kind(byte) for byte in token}


def _turns(token: bytes) -> int:
    kinds = [_kind(byte) for byte in token]
    return sum(a != b for a, b in pairwise(kinds))


def _kind(byte: int) -> str:
    return "digit" if 48 <= byte < 58 else "capital" if byte < 97 else "small"
