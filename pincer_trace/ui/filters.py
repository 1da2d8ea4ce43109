"""Which decisions a person wants to see: a few words, as one value."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pincer_trace import effects, paths
from pincer_trace.ui.words import ANSWER, DENIED, DONE, EXPECTED, FAILED, FAILURE, NATIVE, OPEN, UNSEEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ui.state import Row

_ALLOWED = frozenset({DONE, FAILED, OPEN, UNSEEN})
_VERDICTS = {
    "allow": _ALLOWED, "allowed": _ALLOWED, "done": frozenset({DONE}), "failed": frozenset({FAILED}),
    "deny": frozenset({DENIED, FAILURE}), "denied": frozenset({DENIED, FAILURE}), "native": frozenset({NATIVE}),
    "expected": frozenset({EXPECTED}), "answers": frozenset({ANSWER}),
}  # fmt: skip
_GLOB = frozenset("*?[")
BY = "by:"


class Mistake(ValueError):
    """A word that says nothing; the text tells the person."""


class Filter:
    """Criteria of several kinds: each that is given must hold, and one value of it is enough.

    Words: an effect (`write`, `change`), what became of it (`denied`, `expected`, `allowed`, `failed`, `native`,
    `answers`),
    `by:PROGRAM` or `by:PID`, and else a part of a path, or a glob in which * crosses slashes. `-` in front: not that.
    """

    __slots__ = ("_by", "_effects", "_not_by", "_not_kinds", "_not_paths", "_kinds", "_paths", "words")  # noqa: RUF023 - by meaning

    def __init__(self, words: str = "") -> None:
        """Raises `Mistake`."""
        self.words = " ".join(words.split())
        self._effects: frozenset[str] = frozenset()
        self._kinds: frozenset[str] = frozenset()
        self._not_kinds: frozenset[str] = frozenset()
        self._by: tuple[str, ...] = ()
        self._not_by: tuple[str, ...] = ()
        self._paths: tuple[str, ...] = ()
        self._not_paths: tuple[str, ...] = ()
        unwanted: frozenset[str] = frozenset()
        for word in self.words.split():
            bare = word.removeprefix("-")
            if not bare:
                raise Mistake("- stands in front of a word")
            said = bare.lower()
            if said in effects.EFFECTS or said in effects.GROUPS:
                members = effects.GROUPS.get(said, frozenset({said}))
                if bare == word:
                    self._effects |= members
                else:
                    unwanted |= members
            elif said in _VERDICTS:
                if bare == word:
                    self._kinds |= _VERDICTS[said]
                else:
                    self._not_kinds |= _VERDICTS[said]
            elif said.startswith(BY):
                who = bare[len(BY) :]
                if not who:
                    raise Mistake(f"{BY} wants a program or the number of a process")
                if bare == word:
                    self._by += (who,)
                else:
                    self._not_by += (who,)
            elif bare == word:
                self._paths += (bare,)
            else:
                self._not_paths += (bare,)
        if unwanted:
            self._effects = (self._effects or effects.EFFECTS | {""}) - unwanted
            if not self._effects:
                raise Mistake(f"{paths.display(self.words, 60)} leaves no effect")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and other.words == self.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __bool__(self) -> bool:
        return bool(self.words)

    def wants(self, row: Row) -> bool:
        """Whether the row meets every criterion. Of what is folded into one, what it still names counts."""
        if self._effects and not self._effects.intersection(row.effects):
            return False
        if (self._kinds and row.kind not in self._kinds) or row.kind in self._not_kinds:
            return False
        if (self._by and not _is_by(row, self._by)) or (self._not_by and _is_by(row, self._not_by)):
            return False
        if not self._paths and not self._not_paths:
            return True
        names = [row.directory, *row.names]
        return (not self._paths or _meets(names, self._paths)) and not (
            self._not_paths and _meets(names, self._not_paths)
        )


def _is_by(row: Row, wanted: tuple[str, ...]) -> bool:
    return any(
        (word.isdecimal() and word.isascii() and int(word) in row.pids)
        or any(word in exe.rpartition("/")[2] for exe in row.exes)
        for word in wanted
    )  # fmt: skip


def _meets(names: list[str], wanted: tuple[str, ...]) -> bool:
    for word in wanted:
        if _GLOB.isdisjoint(word):
            if any(word in each for each in names):
                return True
        elif any(fnmatchcase(each if "/" in word else each.rpartition("/")[2], word) for each in names):
            return True
    return False


EVERYTHING = Filter()
REFUSALS = Filter("denied")
