"""What a record was judged about, and whether rules decided it at all.

A call may have several effects, all of which must pass: what the executor asks for such a call, and what the record
tells beside. A part that is asked of some calls only, where the record does not tell, has a doubt.
"""

from __future__ import annotations

from pincer_trace.effects import LINK, READ, RENAME, SYMLINK, TRUNCATE, UNLINK, WRITE
from pincer_trace.ledger.read import raw
from pincer_trace.profile import ALLOW, DENY
from pincer_trace.profile.model import NOTHING_ALLOWS, STRICTNESS
from pincer_trace.twin import codes, facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.ledger.read import Record
    from pincer_trace.twin.facts import About

BY_RULES = frozenset(
    {
        codes.POLICY_DENY, codes.NOBODY_TO_ASK, codes.REFUSED_BY_PERSON, codes.NOT_ANSWERED, codes.TOO_MANY_QUESTIONS,
        codes.INTENT,
    }
)  # fmt: skip
_BUILT_IN = "built-in"  # a refusal of the supervisor's own; "built in" are its rules

READS_TOO = "whether it was opened to be read, too"
OPENED = "whether it was opened to be written"
REPLACED = "whether something was there"


class Part:
    """One effect on one name. `about` is under which its facts are recorded; None: they are the record's own.

    `doubt` is what is not known where this was perhaps not asked; empty where it was.
    """

    __slots__ = ("about", "doubt", "effect", "path")

    def __init__(self, effect: str, path: bytes, own: About, doubt: str = "") -> None:
        self.effect = effect
        self.path = path
        self.about = None if (effect, path) == own else (effect, path)
        self.doubt = doubt


def decided_by_rules(record: Record) -> bool:
    """Whether another profile could decide it in another way: the supervisor's own refusals stay what they are."""
    if record["kind"] not in ("intent", "denied", "reads") or not record["effect"]:
        return False
    code = record.get("code")
    if code and code not in BY_RULES:
        return False
    rule = rule_then(record)
    if rule:
        return rule != _BUILT_IN
    # No rule: nothing allows it. Else the supervisor had a reason of its own.
    return verdict_then(record) != ALLOW and str(record["reason"]).startswith(NOTHING_ALLOWS)


def verdict_then(record: Record) -> str:
    """What the rules said, whatever a person or a model said afterwards."""
    return _said(record)[0]


def rule_then(record: Record) -> str:
    """The rule that said so; empty for none."""
    return _said(record)[1]


def _said(record: Record) -> tuple[str, str]:
    """Verdict and rule of the stricter of the two votes; of the record where it has none."""
    said = []
    for vote in record["votes"]:
        match vote:
            case {"by": "left" | "right", "verdict": str(verdict), **more} if verdict in STRICTNESS:
                said.append((verdict, str(more.get("rule") or "")))
    if not said:
        verdict = record["verdict"]
        said.append((verdict if verdict in STRICTNESS else DENY, str(record["rule"] or "")))
    return max(said, key=lambda one: STRICTNESS[one[0]])


def destination(record: Record) -> bytes:
    """Where a rename moves it, a symbolic link leads, or from where a link is; b"" where the record tells none."""
    extra = record.get("extra")
    if not isinstance(extra, dict):
        return b""
    text = extra.get("from" if record["effect"] == LINK else "to")
    return raw(text) if isinstance(text, str) else b""


def parts(record: Record) -> list[Part]:
    """What had to pass; the facts of each are in the record under its name."""
    effect, path = own = record["effect"], raw(record["path"])
    first = Part(effect, path, own)
    if record["kind"] != "intent":
        return [first]
    other = destination(record)
    told = _judged(record)

    def perhaps(effect: str, path: bytes, doubt: str, *, told: bool) -> list[Part]:
        """What such a call asks for or not. `told`: the record would say so, in the rows that are added below."""
        return [] if told else [Part(effect, path, own, doubt)]

    found = [first]
    if effect == RENAME and other:
        found += [Part(RENAME, other, own), Part(WRITE, other, own)]
        found += perhaps(UNLINK, other, REPLACED, told=(WRITE, other) in told)  # else nothing but its name was judged
    elif effect == LINK and other:
        found += [Part(each, other, own) for each in (READ, WRITE, LINK)]
    elif effect == WRITE:
        found += perhaps(READ, path, READS_TOO, told=bool(record["votes"]))
    elif effect == TRUNCATE:
        found += perhaps(WRITE, path, OPENED, told=bool(record["votes"]))
    known = {(part.effect, part.path) for part in found if not part.doubt}
    known.add((READ, path) if effect == RENAME else own)  # what a rename needs of reading depends on where it goes
    return found + [Part(*about, own) for about in told if about not in known]


def may_be_link(record: Record) -> bool:
    """Whether a symbolic link may come to the name, with which what it leads to lies below that."""
    return record["effect"] in (SYMLINK, RENAME, LINK)


def _judged(record: Record) -> list[About]:
    """What was judged beside the record's own effect, as its facts tell."""
    rows = record.get("facts")
    found = []
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [facts.ABOUT, str(effect), str(path)]:
                found.append((effect, raw(path)))
    return list(dict.fromkeys(found))
