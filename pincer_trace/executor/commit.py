"""From judged claims to an effect that may be performed: the request, both votes, the eight checks, the intent.

Preview and commit of one call. What was voted on are the claims as they were judged; what is checked against it is
formed anew, from the pins and arguments with which the handler is about to act.
"""

from __future__ import annotations

import os

from pincer_trace.effects import CHMOD, CREATE
from pincer_trace.executor.acceptance import Rejected
from pincer_trace.gateway.request import Claim, Request
from pincer_trace.gateway.resolve import look
from pincer_trace.profile import ALLOW, CONFIRM
from pincer_trace.twin import artifact, codes
from pincer_trace.twin.authority import Judgement
from pincer_trace.twin.evaluator import Unheard
from pincer_trace.twin.facts import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pincer_trace.executor.context import Context
    from pincer_trace.gateway.request import Argument
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.facts import Row
    from pincer_trace.twin.target import Target

_ATTEMPTS = 3  # to vote, when we were stopped in between for longer than a vote counts


def commit(
    c: Context,
    task: Task,
    effect: str,
    target: Target,
    judged: Judgement | Sequence[Judgement],
    *,
    flags: int = 0,
    mode: int = 0,
    arguments: Sequence[Argument] = (),
    extra: dict[str, object] | None = None,
    gives: str = ALLOW,
) -> int:
    """The sequence number of the intent, after which the effect is performed at once, as `outcome.Outcome`.

    `judged` is everything that the call does, the effect that gives the record its name first; `gives` is VIEW for a
    read that gives a view. Raises Denied (recorded), LedgerFull.
    """
    every: Sequence[Judgement] = (judged,) if isinstance(judged, Judgement) else judged
    if c.authority.intent is not None:
        every = _consulted(c, task, effect, target, every, mode, arguments, extra or {})
    claims = [judgement.claim for judgement in every]
    arguments = c.identity.in_force, *arguments
    preview = Request.of(c.origin, task.subject, effect, claims, flags=flags, mode=mode, arguments=arguments)
    request = _own(preview, every)
    weakest, asked = every[0], False
    for judgement in every:
        if judgement.verdict == CONFIRM and weakest.verdict != CONFIRM:
            weakest = judgement
        if judgement.asked:
            asked = True
    grants = c.authority.confirm(every) if weakest.verdict == CONFIRM else None
    for attempt in range(_ATTEMPTS):
        action = artifact.action_id()
        try:
            shares = c.authority.vote(action, preview, artifact.now())
        except Unheard as unheard:
            c.authority.forbid(task, effect, target, unheard.reason, unheard.code)
        token = c.authority.token(action, shares[0].digest) if grants is not None else b""
        try:
            c.acceptance.accept(
                shares, request, artifact.now(), token=token, objects=lambda: _are_there(every), gives=gives
            )
        except Rejected as rejected:
            if rejected.code == codes.STALE and attempt < _ATTEMPTS - 1:
                continue
            c.authority.forbid(task, effect, target, rejected.reason, rejected.code)
        break
    if grants is not None:
        extra = {**(extra or {}), "confirmed": grants or "auto"}
    facts: Sequence[Row] = ()
    if asked:
        facts = told(effect, target.path, [(one.claim.effect, one.claim.path, one.asked) for one in every])
    return c.authority.intend(task, effect, target, weakest, action, shares[0].digest, extra, facts)


def _own(preview: Request, every: Sequence[Judgement]) -> Request:
    """The request once more, from what the handler is about to act on. Where nothing differs it is the same one."""
    for judgement in every:
        claim, target = judgement.claim, judgement.target
        if (
            claim.path is not target.path
            or claim.name is not target.name
            or claim.found is not target.found
            or claim.place != target.place()
        ):
            own = [Claim.of(each.claim.effect, each.target) for each in every]
            return Request(preview.head, own, preview.tail)
    return preview


def _consulted(
    c: Context,
    task: Task,
    effect: str,
    target: Target,
    every: Sequence[Judgement],
    mode: int,
    arguments: Sequence[Argument],
    extra: dict[str, object],
) -> Sequence[Judgement]:
    """With the model's opinion. It hears of both ends of a call that has two, and of permissions that are given."""
    path, to = target.path, b""
    if "from" in extra:
        path, to = os.fsencode(str(extra["from"])), target.path
    elif "to" in extra:
        to = os.fsencode(str(extra["to"]))
    flags = ""
    if effect == CHMOD and isinstance(arguments[0], int):
        flags = f"mode {arguments[0]:04o}"
    elif effect == CREATE and mode & 0o111:
        flags = "executable"
    return c.authority.consult(task, effect, target, every, path, to, flags)


def _are_there(judged: Sequence[Judgement]) -> bool:
    """Whether every entry that is to be removed, moved or replaced still holds the object that was judged."""
    seen: dict[tuple[int, bytes], os.stat_result | None] = {}  # both ends of a move are about one entry
    for judgement in judged:
        target = judgement.target
        if target.found is None or target.parent < 0 or target.lies or target.descriptor >= 0:
            continue
        entry = target.moved or (target.parent, target.name)
        if entry not in seen:
            seen[entry] = look(*entry)
        found = seen[entry]
        if found is None or not os.path.samestat(found, target.found):
            return False
    return True
