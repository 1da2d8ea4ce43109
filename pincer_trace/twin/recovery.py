"""What a supervised agent is told of a refusal, so that it goes on instead of trying again (hazard P56).

A fixed text for each reason code, one line each, in a file that the worker may read and cannot change: what was
refused, by which rule, what to do instead, and how a person can allow it. The same refusal gets the same line once;
what repeats is counted in it. Nothing of a protected object is told but the name by which it was asked for, and a name,
which the worker may have chosen, stays inside its quotes: escaped, at most 80 bytes, on one line.
"""

from __future__ import annotations

import os
import threading
import time

from pincer_trace.paths import display
from pincer_trace.twin import codes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile import Profile, Rule

NAME_BYTES = 80
REASON_BYTES = 160
LINE_BYTES = 1200  # no line is longer, whatever was asked for
FILE_BYTES = 256 * 1024
HEADER = (
    "# What pincer-trace refused in this run. A line each: number, time of the first, how often until now, "
    "and what to do.\n"
)
LAST = "# There is no room for more here. All of it is in the log: "

_LEAVE = (
    "Do not try it again, and do not look for another way to the same end: go on with what does not need it, and say "
    "in your answer what is left undone."
)
_ONCE_MORE = "Look at what is there now and try once more; if that is refused too, go on without it and say so."
_LATER = "Go on with what does not need it; try it once more only after a person has answered."
_ALLOW = "A person can allow it in another run: {remedy}."
_LOOK = "It is no rule that a person could change; the details are in: {log}."
_FAULT = "No rule says this: it is a fault, which a person should look at: {log}."

# code -> (why it was refused, what to do instead, how a person can allow it)
TEMPLATES = {
    codes.POLICY_DENY: ("the profile does not allow it", _LEAVE, _ALLOW),
    codes.BUILT_IN: (
        "it is closed to whatever is supervised", _LEAVE, "Nobody can allow it here: no rule and no option opens it.",
    ),
    codes.NOBODY_TO_ASK: (
        "it needs a yes from a person, and this run asks nobody", _LEAVE,
        "A person can be asked in a run with --confirm ask, or allow it in another run: {remedy}.",
    ),
    codes.REFUSED_BY_PERSON: ("a person was asked and said no", _LEAVE, _ALLOW),
    codes.NOT_ANSWERED: (
        "it needs a yes from a person, and nobody answered in time", _LATER,
        "A person can still answer: pincer-trace approve, or pincer-trace deny.",
    ),
    codes.TOO_MANY_QUESTIONS: (
        "it needs a yes from a person, and too many questions wait for answers already", _LATER,
        "A person answers them with: pincer-trace approve, or pincer-trace deny.",
    ),
    codes.INTENT: (
        "the model that was asked did not find that it serves the stated task", _LEAVE,
        "A person can say more in --task, or leave that out.",
    ),
    codes.OBSERVATION_MISMATCH: ("its name and the object behind the name did not agree", _ONCE_MORE, _LOOK),
    codes.OBJECT_CHANGED: ("what it was decided for is gone or was replaced", _ONCE_MORE, _LOOK),
    codes.STALE: ("the decision was too old when its turn came", _ONCE_MORE, _LOOK),
    codes.LATE_SHARE: ("a part of the decision came too late", _ONCE_MORE, _LOOK),
    codes.MISSING_SHARE: ("a part of the decision is missing", _LEAVE, _FAULT),
    codes.DUPLICATE_SHARE: ("a part of the decision came twice", _LEAVE, _FAULT),
    codes.BAD_SHARE: ("a part of the decision is not authentic", _LEAVE, _FAULT),
    codes.NOT_BOUND: ("the decision is one for something else", _LEAVE, _FAULT),
    codes.REQUEST_CHANGED: ("what would be done is not what was decided on", _LEAVE, _FAULT),
    codes.REPLAY: ("the decision was used already", _LEAVE, _FAULT),
    codes.BAD_CONFIRM_TOKEN: ("the confirmation is not one for this", _LEAVE, _FAULT),
    codes.NO_VIEW: (
        "its secrets are shown as handles only, and no such view of it can be given now",
        "Go on without its content, and say in your answer what is left undone.", _LOOK,
    ),
    codes.SAVE_REFUSED: (
        "what was written does not fit the view that the file was read as, and the file is as it was before",
        "Read the file again, keep each handle as it is and where it is, and save it once more.", _LOOK,
    ),
    codes.LEDGER_FULL: (
        "the log cannot be written, and nothing is done without a record",
        "Stop changing things: every change is refused until then. Say so in your answer.",
        "A person can free space where the sessions are kept.",
    ),
    codes.SUPERVISOR_FAILURE: ("the supervisor failed at this call, and what fails is refused", _LEAVE, _FAULT),
}  # fmt: skip

SAVED = "SAVED"  # no refusal, but what a tool that looks at the disk takes for one
_SAVED = (
    "the edited view of {name} was saved, with each handle as what it stands for. Its size on disk is not that of the "
    "view: a tool that says for that reason that the write failed is wrong. Read it again before you edit it again."
)
_DETAILED = (codes.BUILT_IN, codes.NO_VIEW, codes.SAVE_REFUSED)
_BUILT_IN = ("built in", "built-in")  # what records call the rules of no profile
_PLAIN = bytes(c for c in range(0x20, 0x7F) if c not in b'"\\`<>')  # `<` and `>`: models read tags
_SHELL = _PLAIN.replace(b"'", b"")  # these stand for themselves in a shell's single quotes, too
_LETTERS = ("Lu", "Ll", "Lo", "Nd")
_HEAD = 30  # bytes of the beginning of a name that is too long; the rest of it is its end
_CUT = "…"


def quoted(raw: bytes, limit: int = NAME_BYTES) -> str:
    """A foreign name in double quotes: nothing in it ends them or begins a line, and it is at most `limit` bytes."""
    if len(raw) <= limit and not raw.translate(None, _PLAIN):
        return f'"{raw.decode("ascii")}"'
    units = [_unit(c) for c in raw[: 2 * limit].decode("utf-8", "surrogateescape")]
    if len(raw) > 2 * limit or sum(map(_size, units)) > limit:
        ends = [_unit(c) for c in raw[-limit:].decode("utf-8", "surrogateescape")]
        head = min(_HEAD, limit // 2)
        return f'"{_fitting(units, head)}{_CUT}{_fitting(ends[::-1], limit - head - _size(_CUT), backward=True)}"'
    return f'"{"".join(units)}"'


def is_plain(raw: bytes, limit: int = NAME_BYTES) -> bool:
    """Whether a name is short and made of bytes that mean nothing to a shell or a reader inside of quotes."""
    return 0 < len(raw) <= limit and not raw.translate(None, _SHELL)


def _unit(c: str) -> str:
    """One character as it stands in quotes: letters and digits of any script as they are, all else escaped."""
    if c.isascii():
        return c if ord(c) in _PLAIN else display(c) if not c.isprintable() or c == "\\" else f"\\x{ord(c):02x}"
    import unicodedata

    if unicodedata.category(c) in _LETTERS:
        return c
    point = ord(c)
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _size(text: str) -> int:
    return len(text.encode())


def _fitting(units: list[str], limit: int, *, backward: bool = False) -> str:
    """As many whole units as fit: an escape is never cut in two."""
    taken: list[str] = []
    for unit in units:
        limit -= _size(unit)
        if limit < 0:
            break
        taken.append(unit)
    return "".join(taken[::-1] if backward else taken)


class _Told:
    """A line of the file: where its counter is, how often it was refused, and how often the file says."""

    __slots__ = ("count", "offset", "shown")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.count = self.shown = 1


class Denials:
    """The file of one run. `place` is its path, or a descriptor that is open for writing.

    `tell` is called by whoever refuses, `flush` by another thread. Neither fails: a file that cannot be written says
    less, and the record of a refusal is the ledger's.
    """

    def __init__(self, place: str | int, profile: Profile | None = None, selector: str = "") -> None:
        self._profile = profile
        self._log = f"pincer-trace log {selector}" if len(selector) <= NAME_BYTES else "pincer-trace log"
        self._lock = threading.Lock()  # innermost: nothing else is taken while it is held
        self._known: dict[tuple[str, str, str, str, str], _Told] = {}
        self._end = 0
        self._full = False
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = place if isinstance(place, int) else os.open(place, flags, 0o600)
        except OSError:
            self._descriptor = -1
            self._full = True
        self._write(HEADER)

    def tell(self, effect: str, path: bytes, code: str, rule: str = "", reason: str = "") -> bool:
        """Something was refused that the kernel would have done, or SAVED. `reason` is told where no rule is.

        Whether it is new: nothing like it was refused before, as far as there is room to remember.
        """
        if code == codes.BUILT_IN and path.startswith(b"/proc/"):
            path = _any_process(path)  # `ps` asks for hundreds of them
        name = quoted(path) if path else "something without a name"
        detail = (
            quoted(reason.encode("utf-8", "surrogateescape"), 2 * NAME_BYTES) if code in _DETAILED and reason else ""
        )
        key = (effect, name, code, rule[:REASON_BYTES], detail)
        with self._lock:
            told = self._known.get(key)
            if told is not None:
                told.count += 1
                return False
            if self._full:
                return False
            start = f"{len(self._known) + 1} {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} "
            line = f"{start}{1:06} times: {self._text(key, path)}\n"
            if self._end + _size(line) + _size(LAST) + LINE_BYTES > FILE_BYTES:
                self._full = True
                self._write(f"{LAST}{self._log}\n")
            elif self._write(line):
                self._known[key] = _Told(self._end - _size(line) + len(start))
            return True

    def flush(self) -> None:
        """Bring the counters in the file up to date."""
        with self._lock:
            grown = [told for told in self._known.values() if told.count != told.shown]
        for told in grown:
            with self._lock:  # for one at a time: a refusal must not wait for all
                try:
                    os.pwrite(self._descriptor, b"%06d" % min(told.count, 999_999), told.offset)
                except OSError:
                    return
                told.shown = told.count

    def close(self) -> None:
        """The last counts; then nothing more is told."""
        self.flush()
        with self._lock:
            self._full = True
            self._known.clear()
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: str) -> bool:
        """Append a line whole, or not at all: then the file is left as it is from now on."""
        data = line.encode()
        try:
            if os.pwrite(self._descriptor, data, self._end) == len(data):
                self._end += len(data)
                return True
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            pass  # no room: the records of the refusals are in the ledger
        self._full = True
        return False

    def _text(self, key: tuple[str, str, str, str, str], path: bytes) -> str:
        effect, name, code, source, detail = key
        if code == SAVED:
            return f"{SAVED}: {_SAVED.format(name=name)}"
        built_in = source in _BUILT_IN
        cause = codes.BUILT_IN if built_in and code == codes.POLICY_DENY else code
        why, instead, allow = TEMPLATES.get(cause, TEMPLATES[codes.SUPERVISOR_FAILURE])
        rule = self._rule(effect, path, source)
        said = []
        if source and not built_in:
            said.append(f"rule {_bounded(source, NAME_BYTES)}")
        elif cause == codes.POLICY_DENY:
            said.append("no rule does")
        if rule is not None:
            said.append(quoted(rule.reason.encode("utf-8", "surrogateescape"), REASON_BYTES))
        elif detail:
            said.append(detail)
        by = f" ({': '.join(said)})" if said else ""
        allow = allow.format(remedy=self._remedy(effect, path, rule), log=self._log) if "{" in allow else allow
        return f"{code}: {effect} {name} was refused: {why}{by}. {instead} {allow}"

    def _rule(self, effect: str, path: bytes, source: str) -> Rule | None:
        """The rule that is called so, if it is one for this path."""
        if self._profile is None or not source:
            return None
        return next((rule for rule in self._profile.matching(effect, path) if rule.source == source), None)

    def _remedy(self, effect: str, path: bytes, rule: Rule | None) -> str:
        """What `pincer-trace why` says, where that is an option; else how to ask it, and where the name stands."""
        if not is_plain(path):
            return f"pincer-trace why {effect} NAME tells how, and {self._log} the whole name"
        name = path.decode("ascii")
        if self._profile is not None:
            from pincer_trace.profile.show import remedy_for

            option = remedy_for(self._profile, rule, effect, path).partition("\n")[0]
            if option.startswith("--allow-"):
                return f"{option.partition(' ')[0]} '{name.removeprefix('//')}'"
            if not option.startswith("[["):
                return option
        return f"pincer-trace why {effect} '{name}' tells how"


def _any_process(path: bytes) -> bytes:
    """`/proc/PID/environ` for that of each process."""
    return b"/".join([b"PID" if part.isdigit() else part for part in path.split(b"/")])


def _bounded(text: str, limit: int) -> str:
    """A label of the user's own, such as a rule's file and line, without quotes where it needs none."""
    raw = text.encode("utf-8", "surrogateescape")
    return text if is_plain(raw, limit) else quoted(raw, limit)
