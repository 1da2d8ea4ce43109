"""Why something was refused, as one word that scripts and recovery texts go by. Each cause has its own (PAPER 1.4)."""

from __future__ import annotations

POLICY_DENY = "POLICY_DENY"  # a rule denies it, or none allows it
BUILT_IN = "BUILT_IN"  # no rule can lift it
NOBODY_TO_ASK = "NOBODY_TO_ASK"  # it wants a confirmation in a run that asks nobody
REFUSED_BY_PERSON = "REFUSED_BY_PERSON"
NOT_ANSWERED = "NOT_ANSWERED"  # in time
TOO_MANY_QUESTIONS = "TOO_MANY_QUESTIONS"
INTENT = "INTENT"  # what the model answered, or that it did not
OBSERVATION_MISMATCH = "OBSERVATION_MISMATCH"  # the two evaluators see different objects
MISSING_SHARE = "MISSING_SHARE"
DUPLICATE_SHARE = "DUPLICATE_SHARE"
LATE_SHARE = "LATE_SHARE"
BAD_SHARE = "BAD_SHARE"  # not authentic, or not well formed
NOT_BOUND = "NOT_BOUND"  # to this action, profile and request
REQUEST_CHANGED = "REQUEST_CHANGED"  # what would be performed is not what was voted on
STALE = "STALE"
REPLAY = "REPLAY"
BAD_CONFIRM_TOKEN = "BAD_CONFIRM_TOKEN"  # noqa: S105 - a word, not a token
OBJECT_CHANGED = "OBJECT_CHANGED"  # it is not there any more, or another one is
NO_VIEW = "NO_VIEW"  # it is read as a view, and none can be given of it
SAVE_REFUSED = "SAVE_REFUSED"  # what was saved in the place of a view is not what the file can become
LEDGER_FULL = "LEDGER_FULL"
SUPERVISOR_FAILURE = "SUPERVISOR_FAILURE"

CODES = frozenset(value for name, value in dict(globals()).items() if name.isupper() and isinstance(value, str))
