"""The ledger: a session's directory and its append-only record of every decision.

`session` and `writer` are on the run path and import next to nothing; `read` is for people and reports.
"""

from __future__ import annotations

from pincer_trace.ledger.session import Session
from pincer_trace.ledger.writer import Ledger, LedgerFull, summary

__all__ = ["Ledger", "LedgerFull", "Session", "summary"]
