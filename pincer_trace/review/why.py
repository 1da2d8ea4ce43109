"""`pincer-trace why`: an effect that might be asked for, or a record of one that was, explained in rows of text."""

from __future__ import annotations

import os
import time

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import ALLOWED, DECISIONS, UNKNOWN, decisions, raw, read_records
from pincer_trace.ledger.show import confirmed_by, shown_as, told_apart, votes
from pincer_trace.profile import ALLOW, CONFIRM
from pincer_trace.profile.show import explain
from pincer_trace.review import words
from pincer_trace.review.parts import BY_RULES, Part, decided_by_rules, destination
from pincer_trace.review.past import Past
from pincer_trace.review.replay import Judge
from pincer_trace.twin import codes
from pincer_trace.twin.facts import Unknown
from pincer_trace.twin.questions import PAST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ledger.read import Record, Tell
    from pincer_trace.profile import Profile, Rule
    from pincer_trace.profile.show import Explanation

    Row = tuple[str, str]

_CONDITIONS = {
    "own": "the run created it, or a directory above it",
    "own-anchor": "the run created the directory that the rule is about",
    "own-above": "the run created a directory above the one that the rule is about",
    "git-config": "no key is changed that makes git start a program, look elsewhere or trust another",
    "git-inert": "its content makes git run nothing",
    "git-active": "its content makes git run a program, or is not known",
    "bound": "the run bound this socket itself",
}
_AGAIN = "run it again: something changed while it was judged"
_DEFECT = "none: the supervisor's own votes did not pass its checks, which is a defect or an attack"
_BY_CODE = {
    codes.BUILT_IN: "no rule and no option lifts it",
    codes.REFUSED_BY_PERSON: "a person refused it, and only a person can take that back",
    codes.NOT_ANSWERED: "nobody answered in time: answer with `pincer-trace approve`",
    codes.TOO_MANY_QUESTIONS: "too many questions were waiting: answer them with `pincer-trace approve` or `deny`",
    codes.INTENT: "the model refused it: say in --task that this belongs to the task",
    **dict.fromkeys(
        (codes.OBSERVATION_MISMATCH, codes.OBJECT_CHANGED, codes.REQUEST_CHANGED, codes.STALE, codes.LATE_SHARE), _AGAIN
    ),
    **dict.fromkeys(
        (codes.BAD_SHARE, codes.MISSING_SHARE, codes.DUPLICATE_SHARE, codes.NOT_BOUND, codes.REPLAY,
         codes.BAD_CONFIRM_TOKEN), _DEFECT,
    ),
    codes.NO_VIEW: "read it yourself, outside of a run",
    codes.SAVE_REFUSED: "change the file yourself, outside of a run; `pincer-trace log` tells of each save",
    codes.LEDGER_FULL: "make room where the session is kept, or choose another place with --session-dir",
    codes.SUPERVISOR_FAILURE: "PINCER_TRACE_DEBUG=1 has the next run write what failed to debug.log of its session",
}  # fmt: skip


def foretold(profile: Profile, said: Explanation) -> list[Row]:
    """Of an effect that nobody has asked for yet."""
    source = said.rule.source if said.rule is not None else f"none of profile {profile.name}"
    return [("rule", source), ("reason", said.reason), *_conditions(said), *_remedies(profile, said, said.verdict)]


def _conditions(said: Explanation) -> list[Row]:
    lift = said.lifted_by
    lifted = [] if lift is None else [("lifted", f"the protections of that name, by {lift.source}: {lift.reason}")]
    return lifted + [("unless", text) for text in dict.fromkeys(map(condition, said.passed_over))]


def condition(rule: Rule) -> str:
    """When a rule that was passed over would have decided."""
    said = [_CONDITIONS.get(rule.when, rule.when)] if rule.when else []
    if rule.exe:
        said.append(f"the program is {paths.display(rule.exe)}")
    verdict = "" if rule.verdict == ALLOW else f", then {rule.verdict}"
    return f"{' and '.join(said)}{verdict} ({rule.source}: {rule.reason})"


def _remedies(profile: Profile, said: Explanation, verdict: str) -> list[Row]:
    rows = []
    if verdict == CONFIRM:
        rows.append(("remedy", "--confirm ask, and then answer with `pincer-trace approve`"))
        rows.append(("remedy", "--confirm auto, which allows (and records) all that asks for a confirmation"))
    if said.remedy.startswith("[["):
        rows.append(("remedy", f"in a profile of your own that has extends = {profile.name!r}:"))
    return rows + [("remedy", line) for line in said.remedy.splitlines()]


def find(path: str, number: int, tell: Tell | None = None) -> Record:
    """The decision with this number in the session's directory `path`, `tell` as for `read_records`.

    Raises `UserError`.
    """
    for decision in decisions(path, tell=tell):
        if decision["seq"] == number:
            return decision
    kind, last = "", 0
    this: Record = {}
    for record in read_records(path):
        last = record.get("seq", last)
        if record.get("seq") == number:
            kind, this = record["kind"], record
    where = paths.display(os.path.basename(path))
    if kind == "outcome" and isinstance(this.get("of"), int):
        raise UserError(f"record {number} of {where} is the outcome of record {this['of']}: ask for that")
    if kind == "answer":
        raise UserError(f"record {number} of {where} is a person's answer: {_answer(this)}")
    if kind and kind not in DECISIONS:
        raise UserError(f"record {number} of {where} is no decision but the line `{paths.display(kind)}`")
    raise UserError(f"{where} has no record {number}: its last one is {last}; `pincer-trace log` lists them")


def last_refusal(path: str, tell: Tell | None = None) -> Record:
    """The last thing that was refused in the session's directory `path`, `tell` as for `read_records`.

    Raises `UserError`.
    """
    last: Record | None = None
    for decision in decisions(path, tell=tell):
        if decision["kind"] not in ALLOWED and not decision.get("expected"):
            last = decision
    if last is None:
        raise UserError(f"nothing was refused in {paths.display(os.path.basename(path))}; `pincer-trace log` lists it")
    return last


def _answer(record: Record) -> str:
    """A person's answer, in words."""
    by = record.get("by")
    pid = by.get("pid") if isinstance(by, dict) else None
    when = time.strftime("%H:%M:%S", time.localtime(record["time"]))
    said = PAST.get(str(record.get("answer")), "answered")
    what = f"{paths.display(str(record.get('effect')), 20)} {_shown(record.get('path'))}"
    return f"{said} at {when} by process {pid if isinstance(pid, int) else '?'}: {what}"


def heading(record: Record) -> tuple[str, str]:
    """The verdict of a record, and what it is about."""
    to = destination(record)
    arrow = "" if not to else f" {'<-' if record['effect'] == 'link' else '->'} {paths.display(to, 5000)}"
    what = f"{paths.display(record['effect'] or '?', 20)} {_shown(record['path'])}{arrow}"
    return _shown(record["verdict"]), what


def explained(path: str, record: Record) -> list[Row]:
    """Of a record of the session's directory `path`."""
    name = paths.display(os.path.basename(path))
    when = time.strftime("%H:%M:%S", time.localtime(record["time"]))
    program = f" by {_shown(record['exe'])}" if record["exe"] else ""
    pid = f" ({record['pid']})" if record["pid"] is not None else ""
    rows = [("record", f"{record['seq']} of {name}, {when}{program}{pid}")]
    rows += [("votes", f"{by} {verdict} ({why})") for by, verdict, why in votes(record)]
    rows.append(("rule", _shown(record["rule"]) or "none"))
    if record["reason"]:
        rows.append(("reason", _shown(record["reason"])))
    if record.get("code"):
        rows.append(("code", paths.display(str(record["code"]), 60)))
    rows += [("fact", text) for text in words.all_facts(record.get("facts"))]
    rows.append(("done", _done(record)))
    if by := confirmed_by(record):
        rows.append(("answer", f"allowed by {by}"))
    if shown := shown_as(record):
        rows.append(("view", shown))
    if record.get("post"):
        rows.append(("after", _shown(record["post"])))
    return rows + _lift(path, record)


def _done(record: Record) -> str:
    outcome = record["outcome"]
    if record["kind"] == "reads":
        count = record.get("count")
        return f"it was read {paths.counted(count if isinstance(count, int) else 1, 'time')}"
    if record["kind"] != "intent":
        note = told_apart(record)
        return f"nothing: the caller got {_shown(outcome)}{'; ' if note else ''}{note}"
    if outcome == UNKNOWN:
        return "not known: the run was killed before it told, or goes on"
    return "yes" if outcome == "done" else f"no: the kernel answered {_shown(outcome)}"


def _lift(path: str, record: Record) -> list[Row]:
    """The conditions of the rules that were passed over, and the smallest change that would allow it."""
    refused = record["kind"] in ("denied", "failure")
    code = record.get("code") or (codes.SUPERVISOR_FAILURE if record["kind"] == "failure" else "")
    if not decided_by_rules(record) and refused:
        return [("remedy", _BY_CODE.get(code, _BY_CODE[codes.BUILT_IN]))]
    rows = [("remedy", _BY_CODE[code])] if refused and code in _BY_CODE and code in BY_RULES else []
    try:
        past = Past(path)
        profile = past.profile()
    except UserError as error:
        return [*rows, ("note", f"by its rules no more can be told: {error}")]
    if not past.is_own(profile):
        changed = (
            f"profile {paths.display(past.name)} is not what it was in that run (digest {profile.digest.hex()[:16]}"
        )
        changed += f" now, {_shown(past.session.get('digest'))[:16]} then), so what would allow it is not told from it"
        return [*rows, ("note", f"{changed}; `pincer-trace replay` tells what it would decide now")]
    own = record["effect"], raw(record["path"])
    judge = Judge(profile, asks_nobody=past.asks_nobody)
    try:
        said = explain(profile, *own, judge.facts(record, Part(*own, own)))
    except Unknown as unknown:
        return [*rows, ("note", f"a rule asks {words.question(unknown.question)}, which is not recorded")]
    if not refused:
        return [*rows, *_conditions(said)] if said.verdict == record["verdict"] else rows
    if said.verdict == ALLOW:
        return rows or [("note", "the rules allow it by this name: it was refused for what the reason says")]
    return [*rows, *_conditions(said), *_remedies(profile, said, said.verdict if not rows else "")]


def _shown(text: object) -> str:
    return paths.display(raw(text), 5000) if isinstance(text, str) else ""
