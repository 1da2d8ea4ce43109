"""A `Report` as lines for people: what matters first, in as few lines as the run was quiet.

A line is pieces of (text, style), as in `ledger.show`. Every foreign string has been through `paths` (hazard P53).
"""

from __future__ import annotations

import os
import shlex
import textwrap
import time

from pincer_trace import paths
from pincer_trace.ledger.read import raw
from pincer_trace.ledger.show import BAD, BOLD, DIM, GOOD, PLAIN, WARN
from pincer_trace.review.folding import ORDER, folded
from pincer_trace.review.report import number, text
from pincer_trace.review.tree import ATTRIBUTES, CHANGED, CREATED, DELETED, DIRECTORY, MOVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.ledger.show import Piece
    from pincer_trace.review.folding import Line
    from pincer_trace.review.report import Answered, Group, Report
    from pincer_trace.review.tree import Change

    Row = list[Piece]

_LABEL = 10  # columns in front
_FEW = 8  # groups of a kind
_HOSTS = 12  # in one --allow-net
_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
_OPTIONS = (
    ("--allow-write", "allow_write"), ("--allow-connect", "allow_connect"), ("--allow-net", "allow_net"),
    ("--protect", "protect"),
)  # fmt: skip
_SOME = 12  # lines of one kind of change
_PROGRAMS = 8
_NAME = 1000  # characters of a name where nothing shortens it
_STATUSES = 256
_SHORTEST = 16  # columns for a name, however narrow the terminal
_FAULTS = 5
_GIVEN = {"reveal": "revealed to a person", "undo": "brought back by a person"}
_VERBS = {"once": "allowed once", "session": "allowed for the session", "always": "allowed always", "deny": "denied",
          "deny-session": "denied for the session"}  # fmt: skip


class Page:
    """Draws one report, `width` columns wide (None: as wide as it is). `selector` names the session to commands."""

    def __init__(self, report: Report, selector: str, width: int | None = None) -> None:
        self._report = report
        self._selector = selector
        self._width = width

    def lines(self) -> Iterator[Row]:
        """All of it."""
        for part in (
            self._head, self._log, self._closed, self._denials, self._expected, self._answers, self._changes,
            self._peers, self._programs, self._reads, self._errors,
        ):  # fmt: skip
            yield from part()

    # -- the run ---------------------------------------------------------------------------------------------

    def _head(self) -> Iterator[Row]:
        report, session = self._report, self._report.session
        command = session.get("command")
        words = [shlex.quote(_plain(word, 400)) for word in command] if isinstance(command, list) else []
        yield [(self._cut(" ".join(words) or "?", 0), BOLD)]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(session["started"]))
        place = self._place(report.workspace, inside=False) if report.workspace else "?"
        yield from self._row("run", [(f"{_plain(session.get('id'), 40)}, {when}, in {place}", PLAIN)])
        yield from self._row("state", self._state())
        profile = f"{_plain(session.get('profile'), 200)}; what wants a confirmation is {self._confirm()}"
        yield from self._row("profile", [(profile, PLAIN)])
        for option, values in self._options():
            yield from self._row("", [(f"{option} {', '.join(values)}", WARN)])
        if text(session.get("task")):
            model = _plain(session.get("model"), 60)
            yield from self._row("task", [(f"{_plain(session['task'], 600)} (judged by {model})", PLAIN)])
        missing = session.get("missing")
        for layer in missing if isinstance(missing, list) else ():
            yield from self._row("missing", [(f"this kernel lacked {_plain(layer, 100)}", WARN)])

    def _state(self) -> Row:
        session = self._report.session
        lasted = _duration(self._report.seconds)
        if session["state"] == "running":
            return [("goes on", GOOD), (f", {lasted} so far", PLAIN)]
        if session["state"] == "killed":
            return [
                ("killed", BAD),
                (f": no end was recorded; the last record is from {lasted} after the start", PLAIN),
            ]
        status = session.get("exit")
        known = type(status) is int and 0 <= status < _STATUSES
        row: Row = [(f"exit {status}" if known else "exit not known", PLAIN if status == 0 else WARN)]
        row.append((f" after {lasted}", PLAIN))
        if left := number(session.get("leftover")):
            row.append((f"; {left:,} process{'' if left == 1 else 'es'} outlived it", WARN))
        return row

    def _confirm(self) -> str:
        said = {"deny": "denied", "ask": "asked", "auto": "allowed and recorded"}
        return said.get(text(self._report.session.get("confirm")), "not told")

    def _options(self) -> Iterator[tuple[str, list[str]]]:
        told = self._report.session.get("judged_by")
        for option, name in _OPTIONS:
            values = told.get(name) if isinstance(told, dict) else None
            if isinstance(values, list) and values:
                yield option, [paths.named(raw(text(value)), 200) for value in values[:_FEW]]

    def _log(self) -> Iterator[Row]:
        report, found = self._report, self._report.found
        records = _counted(found.records, "record")
        if found.faults:
            yield from self._row("log", [("NOT what was written: do not rely on what follows", BAD)])
            for fault in found.faults[:_FAULTS]:
                yield from self._row("", [(fault, BAD)])
            if len(found.faults) > _FAULTS:
                yield from self._row("", [(f"and more: pincer-trace verify {self._selector}", BAD)], wrap=False)
        elif found.signed:
            yield from self._row("log", [("whole", GOOD), (f", {records}, signed up to {found.signed}", PLAIN)])
        else:
            yield from self._row("log", [("whole", GOOD), (f", {records}, ", PLAIN), ("not signed", WARN)])
        for note in found.notes[:_FAULTS]:
            yield from self._row("", [(note, WARN)])
        if len(found.notes) > _FAULTS:
            more = len(found.notes) - _FAULTS
            yield from self._row("", [(f"and {more} more: pincer-trace verify {self._selector}", WARN)], wrap=False)
        if report.unwritten:
            lost = f"{_counted(report.unwritten, 'line')} could not be written: what they were about was denied"
            yield from self._row("", [(lost, BAD)])
        if report.more:
            beyond = f"{_counted(report.more, 'decision')} are in no group below: there are too many different ones"
            yield from self._row("", [(beyond, WARN)])

    # -- what was refused, and who allowed what --------------------------------------------------------------

    def _closed(self) -> Iterator[Row]:
        if groups := self._report.closed:
            count = sum(group.count for group in groups)
            said = f"{_counted(count, 'call')}, since the supervisor failed or did not trust what it saw"
            yield from self._row("refused", [(said, BAD)])
            yield from self._refusals(groups)

    def _denials(self) -> Iterator[Row]:
        report = self._report
        groups = report.denials
        native = f"; and {report.native} that the kernel refuses this user anyway" if report.native else ""
        if not groups:
            yield from self._row("denied", [("nothing", PLAIN), (native, DIM)])
            return
        count = sum(group.count for group in groups)
        yield from self._row("denied", [(_counted(count, "time"), BAD), (native, DIM)])
        yield from self._refusals(groups)

    def _expected(self) -> Iterator[Row]:
        if groups := self._report.expected:
            count = sum(group.count for group in groups)
            said = "refused, and asked for in honest use, too"
            yield from self._row("expected", [(f"{_counted(count, 'time')}: {said}", PLAIN)])
            yield from self._refusals(groups)

    def _refusals(self, groups: list[Group]) -> Iterator[Row]:
        for group in groups[:_FEW]:
            tail = f" (record {group.record}{self._by(group.by)})"
            more = f" and {group.paths - 1} more" if group.paths > 1 else ""
            head = f"{group.count:>5}x {_plain(group.effect, 20)} ".lstrip() if group.effect else f"{group.count}x "
            what = self._cut(self._place(group.path), 2 + len(head) + len(more) + len(tail)) if group.path else ""
            yield [("  ", PLAIN), (head, BAD), (what + more, PLAIN), (tail, DIM)]
            why = ": ".join(filter(None, (_plain(group.rule, 200), _plain(group.reason, 1000))))
            if group.code and group.code not in ("POLICY_DENY", "NOBODY_TO_ASK"):
                why += f" [{_plain(group.code, 40)}]"
            yield from self._wrapped(6, why)
        rest = groups[_FEW:]
        if rest:
            count = sum(group.count for group in rest)
            yield [(f"  and {count}x for {len(rest)} more reasons: ", DIM),
                   (f"pincer-trace log --verdict deny --verdict confirm {self._selector}", PLAIN)]  # fmt: skip
        shown = groups[0].record
        yield [("  why, and what would allow it: ", DIM), (f"pincer-trace why {shown} {self._selector}", PLAIN)]
        named = [host for host, _ in self._report.hosts.sorted() if _HOST.issuperset(host)]
        if named and groups is self._report.denials:
            left_out = len(named) - _HOSTS
            yield [("  to reach these hosts: ", DIM), (f"--allow-net {shlex.quote(','.join(named[:_HOSTS]))}", PLAIN),
                   (f" and {left_out} more" if left_out > 0 else "", DIM)]  # fmt: skip

    def _answers(self) -> Iterator[Row]:
        for name, noun in (("answered", "question"), ("given", "secret")):
            answers = [each for each in self._report.answers if (each.answer in _GIVEN) == (name == "given")]
            if answers:
                yield from self._row(name, [(_counted(len(answers), noun), PLAIN)])
            for answer in answers[:_SOME]:
                yield from self._answer(answer)
            if len(answers) > _SOME:
                yield [(f"  and {len(answers) - _SOME} more", DIM)]
        groups = self._report.confirmed
        if groups:
            count = sum(group.count for group in groups)
            said = f"{_counted(count, 'effect')} that wanted a confirmation"
            yield from self._row("allowed", [(f"{said}, by --confirm auto", WARN)])
        for group in groups[:_FEW]:
            tail = f" (record {group.record}{self._by(group.by)})"
            more = f" and {group.paths - 1} more" if group.paths > 1 else ""
            head = f"{group.count}x {_plain(group.effect, 20)} "
            what = self._cut(self._place(group.path), 2 + len(head) + len(more) + len(tail))
            yield [("  ", PLAIN), (head, WARN), (what + more, PLAIN), (tail, DIM)]
            yield from self._wrapped(6, _plain(group.reason, 1000))
        if len(groups) > _FEW:
            yield [(f"  and {len(groups) - _FEW} more kinds", DIM)]

    def _answer(self, answer: Answered) -> Iterator[Row]:
        said = _GIVEN.get(answer.answer) or _VERBS.get(answer.answer, "answered")
        allowed = said.startswith("allowed")
        when = time.strftime("%H:%M:%S", time.localtime(answer.time))
        who = f" at {when} by process {answer.pid if answer.pid is not None else '?'}"
        who += f", {_program(answer.exe)}" if answer.exe else ""
        used = "" if not allowed else f"; used {_counted(answer.used, 'time')}" if answer.used else "; not used"
        head = f"{said}: {_plain(answer.effect, 20)} "
        tail = f" (record {answer.record})"
        what = self._pair(answer.path, answer.to, 2 + len(head) + len(tail))
        yield [("  ", PLAIN), (head, WARN if allowed else BAD), (what, PLAIN), (tail, DIM)]
        yield from self._wrapped(6, f"{who.strip()}{used}")

    # -- what it did -----------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[Row]:
        report = self._report
        inside: list[Change] = []
        outside: list[Change] = []
        for change in report.changes:
            here = report.is_inside(change.path) and (change.source is None or report.is_inside(change.source))
            (inside if here else outside).append(change)
        yield from self._changed("outside", "of the work tree", outside)
        yield from self._changed("changed", "in the work tree", inside)
        if report.beyond:
            count = sum(report.beyond.values())
            where = max(report.beyond, key=lambda directory: report.beyond[directory])
            said = f"{count:,} effects on more names than are followed one by one, most of them below "
            yield from self._row("", [(said + self._place(where), WARN)])
        if devices := report.devices.sorted():
            named = ", ".join(self._place(path) for path, _ in devices[:_FEW])
            more = f" and {len(devices) - _FEW} more" if len(devices) > _FEW else ""
            yield from self._row("devices", [(f"written: {named}{more}", PLAIN)])

    def _changed(self, label: str, place: str, changes: list[Change]) -> Iterator[Row]:
        lines, left = folded(changes, _SOME, self._place)
        counts: dict[str, int] = {}
        for change in changes:
            if change.kind != DIRECTORY or change.what == MOVED:
                counts[change.what] = counts.get(change.what, 0) + 1
        said = ", ".join(
            f"{counts[what]:,} {'with new attributes' if what == ATTRIBUTES else what}"
            for what in ORDER
            if what in counts
        )
        yield from self._row(label, [(f"{place}: {said or ('directories only' if changes else 'nothing')}", PLAIN)])
        style = WARN if label == "outside" else PLAIN
        for line in lines:
            yield self._line(line, style)
        if left:
            yield [(f"  and {left:,} more", DIM)]

    def _line(self, line: Line, style: str) -> Row:
        change = line.change
        tail = self._programs_of(line.by)
        about = ""
        if change is None or change.kind == DIRECTORY:
            known = change is None or line.what in (CREATED, DELETED)  # of one that moved nobody has counted
            about = f"/ {_counted(line.count, 'file')}" if known and line.count else "/"
        if change is not None:
            pairs = change.attributes
            if change.what == CREATED or (change.what == CHANGED and (change.replaced or change.vacated)):
                # of a new file only what gives it somebody else's rights matters
                pairs = {name: pair for name, pair in pairs.items() if name == "mode" and pair[1][:1] in "2467"}
            for name, (before, now) in pairs.items():
                about += f" {_plain(name, 60)} {f'{_plain(before, 20)} to ' if before else ''}{_plain(now, 20)}"
            if change.what == MOVED and change.replaced:
                about += ", replacing it"
            if change.what == MOVED and change.changed:
                about += ", changed"
        what = "set" if line.what == ATTRIBUTES else line.what
        head = f"  {what:8} "
        taken = len(head) + len(about) + len(tail)
        source = change.source if change is not None else None
        name = self._cut(self._place(line.path), taken) if source is None else self._pair(source, line.path, taken)
        return [(head, style), (name + about, PLAIN), (tail, DIM)]

    def _peers(self) -> Iterator[Row]:
        groups = self._report.peers
        if not groups:
            return
        yield from self._row("network", [(f"{_counted(len(groups), 'peer')}", PLAIN)])
        for group in groups[:_SOME]:
            result = "" if group.outcome == "done" else f", {_plain(group.outcome, 20)}"
            tail = f" {group.count}x{result}{self._by(group.by)}"
            head = f"  {_plain(group.effect, 20):8} "
            yield [(head, PLAIN), (self._cut(self._place(group.path), len(head) + len(tail)), PLAIN), (tail, DIM)]
        if len(groups) > _SOME:
            more = f"pincer-trace log --effect connect --effect send --effect bind {self._selector}"
            yield [(f"  and {len(groups) - _SOME} more: ", DIM), (more, PLAIN)]

    def _programs(self) -> Iterator[Row]:
        counts: dict[str, int] = {}
        for path, count in self._report.programs.counts.items():
            name = _program(path)
            counts[name] = counts.get(name, 0) + count
        others = self._report.programs.others
        total = sum(counts.values()) + others
        if not total:
            return
        most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{name} {count}" if count > 1 else name for name, count in most[:_PROGRAMS])
        rest = max(len(most) - _PROGRAMS, 0)
        more = f" and {rest + others} more" if rest > 0 or others else ""
        several = self._report.processes
        where = f", in {several:,} process{'' if several == 1 else 'es'}" if several else ""
        yield from self._row("programs", [(f"{named}{more}{where}", PLAIN)])

    def _reads(self) -> Iterator[Row]:
        reads = self._report.reads
        plus = "+" if reads.more else ""
        inside = f"{reads.inside:,} of {reads.files_inside:,}{plus} files in the work tree"
        outside = f"{reads.outside:,} of {reads.files_outside:,}{plus} outside of it"
        if reads.inside or reads.outside:
            yield from self._row("reads", [(f"{inside}, {outside}", PLAIN)])
        if reads.views:
            yield from self._row("views", [(_counted(reads.views, "read"), PLAIN), (" of protected files", PLAIN)])

    def _errors(self) -> Iterator[Row]:
        groups = self._report.errors
        if groups:
            said = [f"{_plain(g.effect, 20)} {_plain(g.outcome, 20)} {g.count}x (record {g.record})" for g in groups]
            more = f" and {len(groups) - _FEW} more kinds" if len(groups) > _FEW else ""
            told = f"allowed, and then refused by the kernel: {', '.join(said[:_FEW])}{more}"
            yield from self._row("errors", [(told, DIM)])

    # -- words -----------------------------------------------------------------------------------------------

    def _row(self, label: str, pieces: Row, *, wrap: bool = True) -> Iterator[Row]:
        """A label and what it is about. Where there is a width, long text goes on in the next line behind the label."""
        head: Piece = (f"{label:{_LABEL}}", DIM)
        whole = "".join(words for words, _ in pieces)
        if self._width is None or not wrap or _LABEL + len(whole) <= self._width:
            yield [head, *pieces]
            return
        style = next((style for _, style in pieces if style), PLAIN)
        first = True
        for line in textwrap.wrap(whole, max(self._width - _LABEL, _SHORTEST), break_on_hyphens=False):
            yield [head if first else (" " * _LABEL, PLAIN), (line, style if len(pieces) == 1 else PLAIN)]
            first = False

    def _wrapped(self, indent: int, said: str) -> Iterator[Row]:
        if self._width is None:
            yield [(" " * indent + said, DIM)]
            return
        for line in textwrap.wrap(said, max(self._width - indent, _SHORTEST), break_on_hyphens=False):
            yield [(" " * indent + line, DIM)]

    def _place(self, path: str, *, inside: bool = True) -> str:
        """A path as the person knows it: from the work tree, or from home. Harmless, and whole."""
        report = self._report
        home = report.home.rstrip("/")
        if inside and report.is_inside(path):
            path = path[len(report.workspace.rstrip("/")) + 1 :] or "."
            path = f"./{path}" if path.startswith(("~", "-")) else path
        elif home and (path == home or path.startswith(home + "/")):
            path = "~" + path[len(home) :]
        return paths.named(raw(path), _NAME)

    def _cut(self, name: str, taken: int) -> str:
        """A name in what is left of the line."""
        return _middle(name, None if self._width is None else max(self._width - taken, _SHORTEST))

    def _pair(self, path: str, to: str, taken: int) -> str:
        """From where to where, in what is left of the line."""
        if not to:
            return self._cut(self._place(path), taken)
        room = None if self._width is None else max((self._width - taken - 4) // 2, _SHORTEST)
        return f"{_middle(self._place(path), room)} -> {_middle(self._place(to), room)}"

    def _by(self, programs: list[str]) -> str:
        return "".join(f", {name}" for name in dict.fromkeys(map(_program, programs)))

    def _programs_of(self, by: tuple[str, ...]) -> str:
        names = ", ".join(dict.fromkeys(map(_program, by)))
        return f"  {names}" if names else ""


def _plain(value: object, limit: int) -> str:
    return paths.display(raw(value), limit) if isinstance(value, str) else ""


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _program(path: str) -> str:
    return paths.named(raw(os.path.basename(path) or path), 40)


def _middle(name: str, room: int | None) -> str:
    """Shortened in its middle: the end of a path tells most."""
    if room is None or len(name) <= room:
        return name
    left = (room - 1) // 3
    return f"{name[:left]}…{name[len(name) - (room - 1 - left) :]}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
