"""The executor's eight checks: nothing is performed that did not pass all of them (PAPER section 1.4).

They are made against the executor's own request, which it forms from its own pins and its own copy of the arguments.
Each has its own reason code, and the first one that fails decides. Action ids are remembered for as long as a share
counts, so that memory does not grow with the run: older ones are refused for their age.
"""

from __future__ import annotations

import struct
from _hashlib import compare_digest

from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW
from pincer_trace.twin import codes
from pincer_trace.twin.artifact import LEFT, RIGHT, Share, strictest
from pincer_trace.twin.tokens import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pincer_trace.gateway.request import Request
    from pincer_trace.twin.artifact import Keys

WINDOW = 2_000_000_000  # nanoseconds for which a share counts
_SIZES = (16, 32, 32, 32)  # bytes of a, p, h and the MAC


class Rejected(Exception):
    """One of the checks failed: `code` tells which one."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Acceptance:
    """For one session. `program` is the digest of the profile in force. Belongs to the receiving thread."""

    def __init__(self, keys: Keys, program: bytes) -> None:
        self._keys = keys
        self._tags = {LEFT: keys.left.tag, RIGHT: keys.right.tag}
        self._program = program
        self._used: set[bytes] = set()
        self._before: set[bytes] = set()  # the ids of the window before
        self._turn = 0
        self._latest = 0  # when something was last accepted

    def accept(
        self,
        shares: Sequence[Share],
        own: Request,
        now: int,
        *,
        token: bytes = b"",
        objects: Callable[[], bool] | None = None,
        gives: str = ALLOW,
    ) -> Share:
        """The left share, once everything holds; from then on its action id is used up. Raises Rejected.

        `gives` is VIEW where the executor is about to give a view, and no more.

        `token` is the confirmation of these (a, p, h), if one is needed; `objects` tells whether the objects are still
        those of the request.
        """
        left, right = self._pair(shares)
        self._authenticate(left)
        self._authenticate(right)
        bound = (left.action, left.program, left.digest)
        if bound != (right.action, right.program, right.digest) or left.program != self._program:
            raise Rejected(codes.NOT_BOUND, "the votes are not about one action under this profile")
        if not compare_digest(self._keys.bind.tag(own.data), left.digest):
            raise Rejected(codes.REQUEST_CHANGED, "what would be performed is not what was voted on")
        now = max(now, self._latest)  # a clock that went back makes nothing fresh again
        if not (0 <= now - left.time <= WINDOW and 0 <= now - right.time <= WINDOW):
            raise Rejected(codes.STALE, "a vote is not fresh")
        if left.action in self._used or left.action in self._before:
            raise Rejected(codes.REPLAY, "this action was performed already")
        verdict = left.verdict if left.verdict == right.verdict else strictest(left.verdict, right.verdict)
        if verdict == DENY:
            raise Rejected(codes.POLICY_DENY, "a vote denies it")
        if verdict == VIEW and gives != VIEW:
            raise Rejected(codes.POLICY_DENY, "a vote lets a view pass, and no more")
        if verdict == CONFIRM and not check(self._keys.confirm, token, *bound):
            raise Rejected(codes.BAD_CONFIRM_TOKEN, "it is not confirmed")
        if objects is not None and not objects():
            raise Rejected(codes.OBJECT_CHANGED, "the object is not the one that was judged any more")
        self._mark(left.action, now)
        return left

    def _pair(self, shares: Sequence[Share]) -> tuple[Share, Share]:
        if type(shares) is tuple and len(shares) == 2:  # what it nearly always is
            left, right = shares
            if type(left) is type(right) is Share and left.by == LEFT and right.by == RIGHT:
                return left, right
        found: dict[str, Share] = {}
        if shares and not isinstance(shares, (tuple, list)):
            raise Rejected(codes.BAD_SHARE, "these are no votes")
        for share in shares or ():
            if type(share) is not Share or type(share.by) is not str or share.by not in self._tags:
                raise Rejected(codes.BAD_SHARE, "a vote is by nobody who votes")
            if share.by in found:
                raise Rejected(codes.DUPLICATE_SHARE, f"two votes are by the {share.by} evaluator")
            found[share.by] = share
        for by in (LEFT, RIGHT):
            if by not in found:
                raise Rejected(codes.MISSING_SHARE, f"the {by} vote is missing")
        return found[LEFT], found[RIGHT]

    def _authenticate(self, share: Share) -> None:
        try:
            sizes = (len(share.action), len(share.program), len(share.digest), len(share.mac))
            formed = sizes == _SIZES and type(share.action) is bytes
            genuine = formed and compare_digest(self._tags[share.by](share.message()), share.mac)
        except (struct.error, KeyError, TypeError, AttributeError):
            genuine = False
        if not genuine:
            raise Rejected(codes.BAD_SHARE, f"the {share.by} vote is not authentic")

    def _mark(self, action: bytes, now: int) -> None:
        """From here on the id is used, whatever becomes of the effect."""
        self._latest = now
        turn = now // WINDOW
        if turn != self._turn:
            self._before = self._used if turn == self._turn + 1 else set()
            self._used = set()
            self._turn = turn
        self._used.add(action)
