"""Reading sessions and ledgers back, also of runs that are going on or were killed."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from functools import cache

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.session import FORMAT, LEDGER_FILE, SESSION_FILE, sessions_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Record = dict[str, Any]
    Tell = Callable[[int], None]
    See = Callable[[int, bytes, int, object], None]

UNKNOWN = "unknown"  # the outcome of an effect whose end was not recorded: the run was killed, or goes on
TORN = "torn"
LOOK_AHEAD = 10_000  # records to wait for an outcome before it is looked for
LONGEST = 1 << 22  # bytes of a line: no record of ours comes near
MOST_TORN = 10_000  # damaged lines that are told one by one
DECISIONS = frozenset({"intent", "denied", "failure", "reads"})
ALLOWED = frozenset({"intent", "reads"})  # of them
KEYS = (
    "seq",
    "time",
    "pid",
    "exe",
    "effect",
    "path",
    "dev",
    "ino",
    "verdict",
    "rule",
    "reason",
    "votes",
    "outcome",
)
_TEXTS = frozenset({"exe", "effect", "path", "verdict", "rule", "reason", "code", "outcome", "post"})
_FORMS = {
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys(("time", "first"), (int, float)),
    **dict.fromkeys(("dev", "ino", "count"), (int,)),
    "pid": (int, type(None)), "votes": (list,), "facts": (list,), "extra": (dict,),
}  # fmt: skip
_OF_IDS = frozenset("0123456789abcdef-")
_SHAPES: set[tuple[object, ...]] = set()  # names and types of members that were found right
_MOST_SHAPES = 1000
_OUTCOME = b'"kind":"outcome"'
_TOLD = 1024  # lines from one word about the progress to the next
_AGES = 1e11  # seconds: what no clock of a run says, and strftime(3) would not take


def read_records(path: str, *, tell: Tell | None = None, see: See | None = None) -> Iterator[Record]:
    """Each record of a ledger (`path` of the session's directory, or of the file) in the order of writing.

    A line that is no whole record, such as the last one of a machine that lost power, does not raise: it
    comes as `{"kind": "torn", "line": number, "bytes": length}`. Now and then `tell` is called with the number of bytes
    that were read; for every line, `see` with its number, its text, whether that is the whole line, and what it says
    (None: no JSON). Raises `UserError` when the file cannot be read.
    """
    parse = parser()
    with _open(path, LEDGER_FILE) as file:
        for number, line, size in _lines(file, tell):
            record = parse(line) if line.endswith(b"\n") else None
            if see is not None:
                see(number, line, size, record)
            if isinstance(record, dict) and _is_formed(record):
                yield record
            else:
                yield {"kind": TORN, "line": number, "bytes": size}


def _lines(file: Any, tell: Tell | None) -> Iterator[tuple[int, bytes, int]]:
    """Number, text and length of each line; of one that is longer than any record, its beginning."""
    readline = file.readline
    number = 0
    while line := readline(LONGEST):
        number += 1
        size = len(line)
        if size == LONGEST and not line.endswith(b"\n"):
            while rest := readline(LONGEST):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
        if tell is not None and number % _TOLD == 0:
            tell(file.tell())
        yield number, line, size


def parsed(line: bytes) -> Record | None:
    """The record of a line with its end; None for what is no whole one."""
    record = parser()(line) if line.endswith(b"\n") else None
    return record if isinstance(record, dict) and _is_formed(record) else None


@cache
def parser() -> Callable[[bytes], object]:
    """What a line says; None where it is no JSON."""
    from msgspec import DecodeError
    from msgspec.json import Decoder

    decode = Decoder().decode

    def parse(line: bytes) -> object:
        try:
            return decode(line)
        except DecodeError:
            pass  # half a surrogate pair, too: how a byte that is not UTF-8 is written
        except RecursionError:
            return None
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None

    return parse


def _is_formed(record: Record) -> bool:
    """Whether the members have the types that readers go by: a log may come from a machine that nobody trusts."""
    shape = (*record, *map(type, record.values()))
    if shape not in _SHAPES:
        if not isinstance(record.get("kind"), str) or type(record.get("seq")) is not int:
            return False
        for name, value in record.items():
            forms = _FORMS.get(name)
            if forms is not None and not isinstance(value, forms):
                return False
        if len(_SHAPES) < _MOST_SHAPES and len(record) < 40:
            _SHAPES.add(shape)
    return bool(-_AGES < record.get("time", 0) < _AGES and -_AGES < record.get("first", 0) < _AGES)


def decisions(path: str, damage: list[Record] | None = None, *, tell: Tell | None = None) -> Iterator[Record]:
    """One object a decision, in the order of deciding: an intent with its outcome merged in.

    It has at least `KEYS`. An intent without an outcome has outcome "unknown". Aggregated reads have `pid`
    None, `count` and `first`. Torn records are appended to `damage`. `tell` and errors as in `read_records`.
    """
    for record in entries(path, tell=tell):
        if record["kind"] in DECISIONS:
            yield whole(record)
        elif record["kind"] == TORN and damage is not None and len(damage) < MOST_TORN:
            damage.append(record)


def entries(path: str, *, tell: Tell | None = None, see: See | None = None) -> Iterator[Record]:
    """The same with all that is no decision between them, as soon as it is read, and without the missing keys."""
    waiting: deque[Record] = deque()  # from the first intent that is still open on
    open_intents: dict[int, Record] = {}
    for record in read_records(path, tell=tell, see=see):
        kind = record["kind"]
        if kind == "intent":
            record["outcome"] = None
            open_intents[record["seq"]] = record
            waiting.append(record)
        elif kind == "outcome":
            _close(open_intents, record)
        elif kind in DECISIONS:
            record["outcome"] = record.get("outcome") or UNKNOWN
            waiting.append(record)
        else:
            yield record
        if len(waiting) > LOOK_AHEAD:
            # Memory must not hold the rest of a long run for one intent that never ended, or will much later.
            for outcome in _outcomes(path, open_intents.keys()):
                _close(open_intents, outcome)
            for intent in open_intents.values():
                intent["outcome"] = UNKNOWN
            open_intents.clear()
        while waiting and waiting[0]["outcome"] is not None:
            yield waiting.popleft()
    for record in waiting:
        record["outcome"] = record["outcome"] or UNKNOWN
        yield record


def _close(open_intents: dict[int, Record], outcome: Record) -> None:
    """Merge an outcome into its intent, if that waits for one."""
    of = outcome.get("of")
    intent = open_intents.pop(of, None) if type(of) is int else None
    if intent is not None:
        intent["outcome"] = outcome.get("outcome") or UNKNOWN
        if "post" in outcome:
            intent["post"] = outcome["post"]


def _outcomes(path: str, wanted: Iterable[int]) -> list[Record]:
    """The outcomes of these intents, wherever in the ledger. No string looks like their mark: quotes are escaped."""
    rest = set(wanted)
    found = []
    parse = parser()
    with _open(path, LEDGER_FILE) as file:
        for _, line, _ in _lines(file, None):
            if _OUTCOME in line and line.endswith(b"\n"):
                record = parse(line)
                if isinstance(record, dict) and _is_formed(record) and record["kind"] == "outcome":
                    of = record.get("of")
                    if type(of) is int and of in rest:
                        rest.discard(of)
                        found.append(record)
    return found


def whole(record: Record) -> Record:
    """A decision with every key of `KEYS` first and in that order, whatever a later version left out."""
    if record.get("outcome") is None:
        record["outcome"] = UNKNOWN
    ordered = {key: record.get(key, "" if key in _TEXTS else None) for key in KEYS}
    ordered["votes"] = ordered["votes"] or []
    ordered.update((key, value) for key, value in record.items() if key not in ordered)
    return ordered


def raw(text: str) -> bytes:
    """The exact bytes of a path, executable or argument in a record. See `pincer_trace.ledger.encode`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no record of ours: it has half a surrogate pair
        return text.encode("utf-8", "surrogatepass")


def load_session(path: str) -> Record:
    """session.json of the session's directory `path`, plus `path` and `state`: "running", "ended", "killed".

    Raises `UserError` when it is missing, damaged, or of a later format.
    """
    with _open(path, SESSION_FILE) as file:
        try:
            facts = json.load(file)
        except (ValueError, RecursionError):
            facts = None
    name = paths.display(os.path.join(path, SESSION_FILE))
    if not isinstance(facts, dict) or not _is_session(facts):
        raise UserError(f"{name} is damaged: no session can be read from it")
    if facts.get("format") != FORMAT:
        raise UserError(f"{name} has format {facts.get('format')!r}, this version reads {FORMAT}: use a newer one")
    facts["path"] = path
    facts["state"] = "running" if is_running(path) else "ended" if "ended" in facts else "killed"
    return facts


def _is_session(facts: Record) -> bool:
    started, name = facts.get("started"), facts.get("id", "")
    return isinstance(started, int | float) and abs(started) < _AGES and isinstance(name, str) and name.isascii()


def is_running(path: str) -> bool:
    """Whether a supervisor holds the ledger of the session's directory `path`."""
    import fcntl

    try:
        with _open(path, LEDGER_FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError):
        return False
    return False


def session_ids(directory: str | None = None) -> list[str]:
    """The ids of all sessions under `directory` (default: the state directory), oldest first."""
    parent = sessions_directory(directory)
    try:
        with os.scandir(parent) as entries:
            ids = [entry.name for entry in entries if _looks_like_id(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        inside = "PINCER_DENIALS" in os.environ and isinstance(error, PermissionError)
        why = "; this process is supervised itself: the file that PINCER_DENIALS names says what was refused"
        raise UserError(f"cannot list {paths.display(parent)}: {error.strerror}{why if inside else ''}") from error
    ids.sort()
    if len(ids) > 1 and ids[-1][:15] == ids[-2][:15]:  # ids tell seconds; "the latest" must be right within one too
        tied = [i for i in ids if i[:15] == ids[-1][:15]]
        ids[-len(tied) :] = sorted(tied, key=lambda i: _started(os.path.join(parent, i)))
    return ids


def listed_ids(directory: str | None = None) -> tuple[list[str], list[str]]:
    """`split_ids` for a list of all. Raises `UserError` also where a `directory` that was named is none."""
    if directory is not None and not os.path.isdir(directory):
        raise UserError(f"{paths.display(directory)} is no directory: name the --session-dir of a run")
    return split_ids(directory)


def split_ids(directory: str | None = None) -> tuple[list[str], list[str]]:
    """`session_ids`, and those among them apart that never got a session.json: starts that failed, or go on."""
    parent = sessions_directory(directory)
    whole: list[str] = []
    unfinished: list[str] = []
    for name in session_ids(directory):
        (whole if os.path.lexists(os.path.join(parent, name, SESSION_FILE)) else unfinished).append(name)
    return whole, unfinished


def _started(path: str) -> float:
    try:
        return float(load_session(path)["started"])
    except UserError:
        return 0.0


def find_session(selector: str | None, directory: str | None = None) -> str:
    """The directory of the session that `selector` means: an id, a unique prefix of one, or a directory.

    Without a selector, the latest. Raises `UserError`, naming the candidates.
    """
    parent = sessions_directory(directory)
    if selector is not None and "/" in selector:
        if os.path.isfile(os.path.join(selector, SESSION_FILE)):
            return os.path.abspath(selector)
        raise UserError(f"{paths.display(selector)} is no session: it has no {SESSION_FILE}")
    ids, _ = split_ids(directory)
    if not ids:
        if selector is not None and _is_folder(selector):
            return os.path.abspath(selector)
        raise UserError(f"no sessions in {paths.display(parent)}: run `pincer-trace -- COMMAND` first")
    if selector is None:
        return os.path.join(os.path.abspath(parent), ids[-1])
    if selector in ids:
        return os.path.join(os.path.abspath(parent), selector)
    found = [i for i in ids if selector and i.startswith(selector)]
    if len(found) == 1:
        return os.path.join(os.path.abspath(parent), found[0])
    if found:
        raise UserError(f"{paths.display(selector)} means {len(found)} sessions: {some(found)}; write more of the id")
    if _is_folder(selector):
        return os.path.abspath(selector)
    raise UserError(f"no session {paths.display(selector, 60)}; the latest are {some(ids[::-1])}")


def _is_folder(word: str) -> bool:
    """Whether a word is a session's directory here. What may be (part of) an id is none: a worker knows its own id,
    and could make a directory of that name in its work tree.
    """
    return not _OF_IDS.issuperset(word) and os.path.isfile(os.path.join(word, SESSION_FILE))


def some(ids: list[str]) -> str:
    """The first few of them, in words."""
    return ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")


def _looks_like_id(name: str) -> bool:
    stem = name.replace("-", "", 2)
    return len(name) == 22 and name[8] == name[15] == "-" and stem[:14].isdecimal() and stem[14:].isalnum()


def open_ledger(path: str) -> Any:
    """The ledger of the session's directory `path`, to read. Raises `UserError`."""
    return _open(path, LEDGER_FILE)


def _open(path: str, name: str) -> Any:
    """`name` in the directory `path`, or the file `path` itself, as a binary file; regular files only."""
    where = os.path.join(path, name) if os.path.isdir(path) else path
    try:
        fd = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise UserError(f"cannot read {paths.display(where)}: {why}") from error
    if not os.path.isfile(fd):
        os.close(fd)
        raise UserError(f"cannot read {paths.display(where)}: not a regular file")
    return open(fd, "rb")


def count_records(path: str) -> dict[str, int]:
    """The counters of a session that did not write them (it goes on, or was killed), from its ledger."""
    names = {"intent": "allowed", "denied": "denied", "failure": "failures"}
    counts = {"allowed": 0, "denied": 0, "expected": 0, "failures": 0, "reads": 0, "unrecorded": 0}
    for record in read_records(path):
        name = "expected" if record.get("expected") else names.get(record["kind"])
        if name is not None and not record.get("native"):
            counts[name] += 1
        elif record["kind"] == "reads" and isinstance(record.get("count"), int):
            counts["reads"] += record["count"]
    return counts
