"""What both evaluators share: a ballot of what each has judged itself, and the vote that follows from it."""

from __future__ import annotations

from pincer_trace.effects import READ
from pincer_trace.profile import ALLOW, DENY, Decision
from pincer_trace.profile.model import Ordinary
from pincer_trace.twin.artifact import Share, strictest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.aliases import Aliases
    from pincer_trace.gateway.request import Claim, Request
    from pincer_trace.profile import Profile
    from pincer_trace.twin.artifact import Mac
    from pincer_trace.twin.target import Target

HELD = "the caller holds a descriptor with this access"
MEMORY = "a file system that was mounted for this run alone, and is memory of it"


class Evaluator:
    """Judges claims, and votes on requests that are made of claims which it has judged: nobody hands it a verdict.

    The ballot is that of one call; `begin` empties it.
    """

    by = ""
    _aliases: Aliases  # by which names a path may be known too

    def __init__(self, profile: Profile, key: Mac, bind: Mac) -> None:
        self._profile = profile
        self._key = key
        self._bind = bind
        self._ballot: dict[Claim, str] = {}

    def begin(self) -> None:
        """Another call: what was judged before counts no more."""
        self._ballot.clear()

    def cast(self, claim: Claim, decision: Decision) -> Decision:
        """Keep the verdict for the vote."""
        self._ballot[claim] = decision.verdict
        return decision

    def lets_read(self, path: bytes) -> Decision | None:
        """The allowance of a read by this name where that depends on nothing else; None where it may.

        It is not kept for a vote: nobody votes on what is only read.
        """
        decision = self._profile.settled(READ, path)
        if decision is None or decision.verdict != ALLOW or self._aliases.protected_places(path):
            return None
        return decision

    def lets_read_in(self, directory: bytes) -> Ordinary | None:
        """As `lets_read` of what is ordinary in `directory`; None where nothing is."""
        found = self._profile.settled_in(READ, directory)
        if found is None or found.decision.verdict != ALLOW or self._aliases.reach_into(directory):
            return None
        if found.deep and self._aliases.holds_place(directory):
            return Ordinary(found.decision, found.named, deep=False)
        return found

    def held(self, claim: Claim, target: Target) -> Decision:
        """The caller has this access already, by a descriptor: what is done adds nothing to it."""
        return self.cast(claim, Decision(ALLOW, None, HELD))

    def of_the_run(self, claim: Claim, target: Target) -> Decision:
        """It lies on a file system that the run has had mounted, which ends with it: nobody else ever sees it."""
        return self.cast(claim, Decision(ALLOW, None, MEMORY))

    def below(self, claim: Claim, target: Target) -> Decision:
        """The verdict on a symbolic link of this name for what it would put in a protected place below it."""
        rule = self._profile.guarded_below(claim.effect, claim.path)
        if rule is None:
            return self.cast(claim, Decision(DENY, None, "nothing is protected below this name"))
        return self.cast(claim, Decision(rule.verdict, rule, f"below this name: {rule.reason}"))

    def tighten(self, claim: Claim, decision: Decision) -> Decision:
        """A third has judged it more strictly: then that counts. It cannot make the vote looser."""
        self._ballot[claim] = strictest(self._ballot.get(claim, DENY), decision.verdict)
        return decision

    def vote(self, action: bytes, request: Request, time: int) -> Share:
        """The strictest verdict on the claims of `request`, signed: deny where it has not judged one of them."""
        ballot, claims = self._ballot, request.claims
        verdict = ALLOW if claims else DENY
        for claim in claims:
            judged = ballot.get(claim, DENY)
            if judged != ALLOW:
                verdict = strictest(verdict, judged)
        digest = self._bind.tag(request.data)
        return Share.sign(self._key, self.by, action, self._profile.digest, digest, time, verdict)


class Unheard(Exception):
    """An evaluator in a process of its own gave no answer that counts; `code` tells which way it did not."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class NoVerdict(Decision):
    """A denial for that reason."""

    __slots__ = ("code",)

    def __init__(self, unheard: Unheard) -> None:
        super().__init__(DENY, None, unheard.reason)
        self.code = unheard.code


class Mismatch(Decision):
    """A denial since what an evaluator sees is not what the gateway described."""

    __slots__ = ()


def mismatch(what: str) -> Mismatch:
    """The denial, with what differs."""
    return Mismatch(DENY, None, f"what was resolved is not what is there: {what}")
