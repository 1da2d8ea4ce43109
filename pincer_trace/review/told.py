"""The report of a session's directory: its records read once, for all that is told of them."""

from __future__ import annotations

from pincer_trace.ledger import read
from pincer_trace.ledger.verify import Walk
from pincer_trace.review.account import Account

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.ledger.read import Record, Tell
    from pincer_trace.review.report import Report


def of_session(path: str, tell: Tell | None = None, also: Callable[[Record], None] | None = None) -> Report:
    """All of it, so far where the run goes on. `also` is given each record too. Raises `UserError`."""
    facts = read.load_session(path)
    walk, account = Walk(facts), Account(facts)
    for record in read.entries(path, tell=tell, see=walk.see):
        account.add(record)
        if also is not None:
            also(record)
    if account.ended:
        facts = read.load_session(path)  # it may have ended while it was read
    return account.report(facts, walk.conclude())
