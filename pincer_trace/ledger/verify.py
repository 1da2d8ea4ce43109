"""`pincer-trace verify`: whether a ledger is the one that its supervisor wrote, and where it is not."""

from __future__ import annotations

from collections import deque

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.chain import MEMBER, TAIL, genesis, head_message, link
from pincer_trace.ledger.read import load_session, raw, read_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.ledger.read import Tell

_LISTED = 20  # findings of one kind that are told one by one
_TOLD = 1000  # intents without an outcome at a time of which more than the number is remembered
_REMEMBERED = 100_000  # digests back to which a head may sign


class Verification:
    """What was found. `faults` are signs of tampering or damage; `notes` what a run that was killed leaves behind."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.records = 0
        self.signed = 0  # the last record that a signed head vouches for


def verify(path: str, key: str | None = None, *, tell: Tell | None = None) -> Verification:
    """Examine the session's directory `path`; by the public `key` (hexadecimal) rather than that of session.json.

    `tell` is called as by `read_records`. Raises `UserError` when it cannot be read.
    """
    session = load_session(path)
    if key is not None:
        if _public_key(key) is None:
            raise UserError("--key is no Ed25519 public key: 64 hexadecimal digits, as session.json has them")
        session["key"] = key
    walk = Walk(session)
    for _ in read_records(path, tell=tell, see=walk.see):
        if walk.stopped:
            break
    return walk.conclude()


class Walk:
    """The examination of a session while somebody else reads its lines and shows them to it."""

    def __init__(self, session: dict[str, Any]) -> None:
        self._session = session
        self._found = Verification()
        self._chain = genesis(str(session.get("id")))
        self._sequence = 0
        self._open: dict[int, str] = {}  # intents without an outcome; of the first ones effect and path
        self._digests: dict[int, bytes] = {}
        self._order: deque[int] = deque()  # to forget by: finding a dict's first key again and again is quadratic
        self._ended = 0
        self._key = _public_key(session.get("key"))
        self.stopped = False  # there are so many faults that the rest is not looked at

    def see(self, number: int, line: bytes, size: int, record: object) -> None:
        """The next line: see `read_records`."""
        if self.stopped:
            return
        self._line(number, line, size, record)
        faults = self._found.faults
        if len(faults) > _LISTED:
            faults.append("and more: the rest was not looked at")
            self.stopped = True

    def conclude(self) -> Verification:
        """What was found."""
        if not self.stopped:
            self._found.records = self._sequence
            self._conclude()
        return self._found

    def _line(self, number: int, line: bytes, size: int, record: object) -> None:
        faults = self._found.faults
        if size == len(line) and not line.endswith(b"\n") and self._session["state"] != "ended":
            if self._session["state"] == "killed":  # else it is being written just now
                self._found.notes.append(f"line {number}, the last one, is torn ({size} bytes)")
            return
        text, member = line[:-TAIL], line[-TAIL:]
        if not member.startswith(MEMBER) or not member.endswith(b'"}\n'):
            faults.append(f"line {number} is no whole record ({size} bytes)")
            return
        sequence = record.get("seq") if isinstance(record, dict) else None
        if not isinstance(record, dict) or type(sequence) is not int:
            faults.append(f"line {number} is no record")
            return
        if self._ended and record.get("kind") != "head":
            faults.append(f"record {sequence} comes after the end of the run")
        if sequence != self._sequence + 1:
            faults.append(f"line {number}: record {sequence} where {self._sequence + 1} belongs")
        self._sequence = sequence
        digest = link(self._chain, text)
        claimed = member[len(MEMBER) : len(MEMBER) + 64]
        if digest.hex().encode() != claimed:
            faults.append(f"record {sequence} (line {number}) is not what was written, or the one before it is missing")
            try:
                digest = bytes.fromhex(claimed.decode())  # go on from what it claims: tell each fault once
            except ValueError:
                pass
        self._chain = digest
        self._record(record, digest)

    def _record(self, record: dict[str, Any], digest: bytes) -> None:
        kind, sequence = record.get("kind"), self._sequence
        if kind == "intent":
            self._open[sequence] = _words(record) if len(self._open) < _TOLD else ""
        elif kind == "outcome":
            of = record.get("of")
            if not isinstance(of, int) or self._open.pop(of, None) is None:
                told = paths.display(str(of), 40)
                self._found.faults.append(f"record {sequence} is an outcome of {told}, for which none is awaited")
        elif kind == "end":
            self._ended = sequence
        elif kind == "head":
            self._head(record)
        self._digests[sequence] = digest
        self._order.append(sequence)
        if len(self._order) > _REMEMBERED:
            self._digests.pop(self._order.popleft(), None)

    def _head(self, record: dict[str, Any]) -> None:
        """A head signs the record before it, or one a little earlier: others may have come while it was made."""
        sequence, of, faults = self._sequence, record.get("of"), self._found.faults
        digest = self._digests.get(of) if isinstance(of, int) else None
        if digest is None or not isinstance(of, int):
            faults.append(f"record {sequence} signs record {paths.display(str(of), 40)}, which is none before it")
            return
        if self._key is None:
            return
        from cryptography.exceptions import InvalidSignature

        try:
            signature = bytes.fromhex(str(record.get("signature")))
            self._key.verify(signature, head_message(str(self._session.get("id")), of, digest))
        except (InvalidSignature, ValueError):
            faults.append(f"record {sequence}: the signature of the records up to {of} is wrong")
            return
        self._found.signed = of

    def _conclude(self) -> None:
        found, session = self._found, self._session
        running, killed = session["state"] == "running", session["state"] == "killed"
        if self._key is None and not running:
            (found.notes if killed else found.faults).append("session.json holds no key: no signature was checked")
        if session["state"] == "ended":
            if not self._ended:
                found.faults.append("the end is missing: records were taken away, or could not be written (full disk)")
            elif self._key is not None and found.signed < self._ended:
                found.faults.append(f"the end (record {self._ended}) is not signed")
        elif self._ended:
            found.notes.append("the run ended, but session.json does not tell so")
        if killed:
            found.notes.append(
                f"the run was killed, or could not write its end (full disk): records after {found.signed} are chained "
                "but not signed, and what it read in the last second may be missing"
            )
        what = "goes on or " if running else ""
        rest = list(self._open.items())
        for sequence, words in rest[:_LISTED]:
            about = f", {paths.display(raw(words), 140)}" if words else ""
            found.notes.append(f"record {sequence}{about}: {what}whether it was done is not known")
        if len(rest) > _LISTED:
            found.notes.append(f"and {len(rest) - _LISTED} more effects whose outcome is not known")


def _words(record: dict[str, Any]) -> str:
    effect, path = record.get("effect"), record.get("path")
    return f"{effect[:20]} {path[:120]}" if isinstance(effect, str) and isinstance(path, str) else ""


def _public_key(text: object) -> Any:
    """The key that session.json names, or None. Loads the `cryptography` package."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(text)))
    except ValueError:
        return None
