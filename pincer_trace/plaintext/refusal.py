"""Why a handle gives no value, or an edited view no file: one word that scripts go by, and a sentence."""

from __future__ import annotations

UNKNOWN = "HANDLE_UNKNOWN"  # guessed, damaged, or forgotten
OTHER_SESSION = "HANDLE_OTHER_SESSION"
OTHER_PRINCIPAL = "HANDLE_OTHER_PRINCIPAL"
OTHER_OBJECT = "HANDLE_OTHER_OBJECT"
OTHER_VERSION = "HANDLE_OTHER_VERSION"
REVOKED = "HANDLE_REVOKED"
EXPIRED = "HANDLE_EXPIRED"
SINK_BLOCKED = "HANDLE_SINK_BLOCKED"
TOO_LARGE = "HANDLE_TOO_LARGE"  # its value was not kept
TWICE = "HANDLE_TWICE"
MISPLACED = "HANDLE_MISPLACED"  # where it is no value, or where the next view would show it
REMAINDER_MISSING = "REMAINDER_MISSING"
REMAINDER_MOVED = "REMAINDER_MOVED"
TOO_LONG = "EDIT_TOO_LONG"
NOT_WELL_FORMED = "EDIT_NOT_WELL_FORMED"

CODES = frozenset(value for name, value in dict(globals()).items() if name.isupper() and isinstance(value, str))


class Refusal:
    """The word, and the sentence for a person: what, of which handle, and what to do. No value is in it."""

    __slots__ = ("code", "text")

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and (other.code, other.text) == (self.code, self.text)

    def __hash__(self) -> int:
        return hash((self.code, self.text))

    def __repr__(self) -> str:
        return f"Refusal({self.code}, {self.text!r})"
