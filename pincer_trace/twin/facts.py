"""What conditional rules asked, and what they were answered: noted for the ledger, and read back from it.

A row is a question, its arguments, and the answer: `["own", "/home/u", true]`. A call may be judged by several names
(both ends of a rename): rows behind `["about", EFFECT, NAME]` belong to that judgement, those at the beginning to the
record's own. Such a row stands there for each judgement, whether it asked something or not, up to a number: of a
directory that moves each name may be judged. `["also", NAME]` tells another name by which the same object was judged.
"""

from __future__ import annotations

from pincer_trace.paths import is_inside
from pincer_trace.profile import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pincer_trace.profile.sinks import Sink

    Answer = bool | str | frozenset[str] | bytes | None
    Question = tuple[str, ...]
    Row = list[object]
    About = tuple[str, bytes]

OWN, OWN_DIRECTORY, GIT_CONFIG, GIT_DANGER = "own", "own-directory", "git-config", "git-danger"
BOUND = "bound"
SINK = "sink"
EXE, TRUSTED_EXE = "exe", "trusted-exe"
ABOUT, ALSO = "about", "also"

_JUDGED = 12  # others in one record
_KEYS = 40  # of a changed configuration; a worker may write as many as it likes
_KEY = 200  # characters of one
_WORDS = 500  # characters of a danger


class Recording(Facts):
    """Other facts, with each question and its answer noted in `rows`, behind those that were `asked` before.

    The same question is not looked up twice.
    """

    __slots__ = ("_facts", "_known", "rows")

    def __init__(self, facts: Facts, asked: Iterable[Row] = ()) -> None:
        self._facts = facts
        self._known: dict[Question, Answer] = {}
        self.rows: list[Row] = list(asked)

    def also(self, name: bytes) -> None:
        """The object is judged by this other name of it too."""
        self.rows.append([ALSO, _text(name)])

    def created_by_tree(self, below: bytes) -> bool:
        look = self._facts.created_by_tree
        return self._ask((OWN, _text(below)), lambda: look(below))  # type: ignore[return-value]

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        look = self._facts.directory_created_by_tree
        question = OWN_DIRECTORY, _text(directory), _text(below)
        return self._ask(question, lambda: look(directory, below))  # type: ignore[return-value]

    def git_config_changes(self) -> frozenset[str] | None:
        return self._ask((GIT_CONFIG,), self._facts.git_config_changes)  # type: ignore[return-value]

    def git_danger(self) -> str | None:
        return self._ask((GIT_DANGER,), self._facts.git_danger)  # type: ignore[return-value]

    def bound_by_tree(self) -> bool:
        return self._ask((BOUND,), self._facts.bound_by_tree)  # type: ignore[return-value]

    def sink_doubt(self, sink: Sink) -> str:
        return self._ask((SINK, sink.name), lambda: self._facts.sink_doubt(sink))  # type: ignore[return-value]

    def executable(self) -> bytes:
        return self._ask((EXE,), self._facts.executable)  # type: ignore[return-value]

    def trusted_executable(self) -> bytes:
        return self._ask((TRUSTED_EXE,), self._facts.trusted_executable)  # type: ignore[return-value]

    def _ask(self, question: Question, look: Callable[[], Answer]) -> Answer:
        if question in self._known:
            return self._known[question]
        answer = self._known[question] = look()
        row = [*question, *_told(answer)]
        if row not in self.rows:
            self.rows.append(row)
        return answer


def told(effect: str, path: bytes, judged: Iterable[tuple[str, bytes, Sequence[Row]]]) -> list[Row]:
    """The facts of a record of `effect` on `path`, from the rows of all that was judged for it."""
    rows: list[Row] = []
    others: dict[About, list[Row]] = {}
    for each, name, asked in judged:
        if (each, name) == (effect, path):
            rows += asked
        elif len(others) < _JUDGED or (each, name) in others:
            others.setdefault((each, name), []).extend(asked)
    for (each, name), asked in others.items():
        rows += [[ABOUT, each, _text(name)], *asked]
    return rows


def _told(answer: Answer) -> Row:
    """An answer as a row ends with it: of many keys the dangerous ones first, some, and how many there were."""
    if isinstance(answer, bytes):
        return [_text(answer)]
    if isinstance(answer, str):
        return [answer[:_WORDS]]
    if not isinstance(answer, frozenset):
        return [answer]
    if len(answer) <= _KEYS:
        return [sorted(map(_short, answer))]
    from pincer_trace.profile.gitconfig import danger

    kept = sorted(answer, key=lambda key: (not danger(key.lower()), key))[:_KEYS]
    return [list(map(_short, kept)), len(answer)]


def _short(key: str) -> str:
    """Cut in the middle: what it may do is told by its section and its variable."""
    return key if len(key) <= _KEY else key[: _KEY // 2] + "…" + key[1 - _KEY // 2 :]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


_CONFLICT = object()


class Unknown(Exception):
    """A rule asks what was not asked when the record was made. `answers` are those that there could be."""

    def __init__(self, question: Question, answers: tuple[Answer, ...]) -> None:
        super().__init__(question[0])
        self.question = question
        self.answers = answers


class Recorded(Facts):
    """The rows of a record about itself, or about another (effect, name), asked again. Raises `Unknown`.

    `executable` is the record's own, which is always told; whether it is trusted is for the profile that asks
    (`is_closed`). `assumed` are answers for what is unknown.
    """

    __slots__ = ("_assumed", "_directories", "_executable", "_is_closed", "_own", "_single", "_sinks", "also")

    def __init__(
        self,
        rows: Sequence[object],
        *,
        about: About | None = None,
        executable: bytes | None = None,
        is_closed: Callable[[bytes], bool] | None = None,
        assumed: Mapping[Question, Answer] | None = None,
    ) -> None:
        self._executable = executable
        self._is_closed = is_closed
        self._assumed = assumed or {}
        self._own: list[tuple[bytes, object]] = []
        self._directories: dict[bytes, list[tuple[bytes, object]]] = {}
        self._single: dict[str, object] = {}
        self._sinks: dict[str, str] = {}
        self.also: tuple[bytes, ...] = ()
        wanted = None if about is None else [about[0], _text(about[1])]
        current: object = None
        for row in rows:
            match row:
                case [str(word), *rest] if word == ABOUT:
                    current = rest
                case [str(word), str(name)] if word == ALSO and current == wanted:
                    self.also += (_raw(name),)
                case [str(word), str(below), bool(answer)] if word == OWN and current == wanted:
                    self._own.append((_raw(below), answer))
                case [str(word), str(folder), str(below), bool(answer)] if word == OWN_DIRECTORY and current == wanted:
                    self._directories.setdefault(_raw(folder), []).append((_raw(below), answer))
                case [str(word), str(name), str(answer)] if word == SINK and current == wanted:
                    self._sinks[name] = answer
                case [str(word), answer, *_] if (
                    word in (GIT_CONFIG, GIT_DANGER, BOUND, EXE, TRUSTED_EXE) and current == wanted
                ):
                    # two answers, of two objects that are judged by one name: neither counts
                    self._single[word] = _CONFLICT if self._single.get(word, answer) != answer else answer

    def created_by_tree(self, below: bytes) -> bool:
        return _inferred(self._own, below, (OWN, _text(below)), self._assumed)

    def directory_created_by_tree(self, directory: bytes, below: bytes) -> bool:
        question = OWN_DIRECTORY, _text(directory), _text(below)
        return _inferred(self._directories.get(directory, ()), below, question, self._assumed)

    def git_config_changes(self) -> frozenset[str] | None:
        answer = self._answer(GIT_CONFIG, (frozenset(), None))
        if answer is None or isinstance(answer, frozenset):
            return answer
        if isinstance(answer, list) and all(isinstance(key, str) for key in answer):
            return frozenset(answer)
        raise Unknown((GIT_CONFIG,), (frozenset(), None))

    def git_danger(self) -> str | None:
        answers = "", Facts().git_danger(), None
        answer = self._answer(GIT_DANGER, answers)
        if answer is None or isinstance(answer, str):
            return answer
        raise Unknown((GIT_DANGER,), answers)

    def bound_by_tree(self) -> bool:
        answer = self._answer(BOUND, (True, False))
        if isinstance(answer, bool):
            return answer
        raise Unknown((BOUND,), (True, False))

    def sink_doubt(self, sink: Sink) -> str:
        question = SINK, sink.name
        if sink.name in self._sinks:
            return self._sinks[sink.name]
        if question in self._assumed:
            return str(self._assumed[question])
        raise Unknown(question, ("", Facts().sink_doubt(sink)))

    def executable(self) -> bytes:
        return self._executable if self._executable is not None else self._program(EXE)

    def trusted_executable(self) -> bytes:
        if self._executable is not None and self._is_closed is not None:
            return self._executable if self._is_closed(self._executable) else b""
        return self._program(TRUSTED_EXE)

    def _program(self, word: str) -> bytes:
        answer = self._answer(word, ())
        if isinstance(answer, str):
            return _raw(answer)
        raise Unknown((word,), ())

    def _answer(self, word: str, answers: tuple[Answer, ...]) -> object:
        if self._single.get(word, _CONFLICT) is not _CONFLICT:
            return self._single[word]
        if (word,) in self._assumed:
            return self._assumed[word,]
        raise Unknown((word,), answers)


def _inferred(
    known: Sequence[tuple[bytes, object]], below: bytes, question: Question, assumed: Mapping[Question, Answer]
) -> bool:
    """Whether something below `below` was made: what lies below a deeper place lies below this one too."""
    found = {
        answer for place, answer in known if (is_inside(place, below) if answer is True else is_inside(below, place))
    }
    if len(found) == 1:
        return True in found
    if question in assumed:
        return bool(assumed[question])
    raise Unknown(question, (True, False))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
