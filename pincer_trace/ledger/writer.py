"""Appending records: one line, one `write`, before the effect and after it.

A line handed to `write(2)` survives `kill -9` of the supervisor: the page cache is the kernel's. It is not
fsynced, so a power cut may lose the last seconds; a `durable` ledger has each intent and each refusal on the disk
before it returns, and outcomes with the record after them, or with the next signed head, half a second later. What
cannot be written raises `LedgerFull`; the engine denies.

Kinds of lines: `process` (who a task is, before its first record), `intent` (allowed, about to be done), `outcome` (of
an intent, by its sequence number), `denied`, `failure` (denied since the supervisor failed), `answer` (a person's),
`reads` (allowed reads of one object by one executable, aggregated), `head` (a signature over the chain up to the line
before), `end`.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from errno import EIO, ENOSPC, errorcode
from time import time_ns

from pincer_trace.ledger.chain import END, MEMBER, genesis, link
from pincer_trace.ledger.encode import encode, quote, quote_bytes
from pincer_trace.paths import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pincer_trace.ledger.chain import Signer
    from pincer_trace.ledger.session import Session

    Votes = tuple[tuple[str, str, str], ...]

DONE = "done"
REFUSED = "EACCES"

_WORDS = 1024  # kept quotations
_BATCH = 64  # lines of allowed reads in one write(2)


class LedgerFull(Exception):
    """A record could not be written (no space, quota, file-size limit, I/O error), so nothing may be done.

    `errno` is the kernel's reason.
    """

    def __init__(self, errno: int) -> None:
        name = errorcode.get(errno, str(errno))
        super().__init__(f"the log cannot be written ({name}): all effects are denied until there is room")
        self.errno = errno


class Ledger:
    """The open ledger of one session. Every method may be called from any thread.

    Counters, true at any time: `allowed` (intents), `denials`, `expected` (refusals beside those), `failures`,
    `read_calls` (allowed reads, before they were aggregated), `unrecorded` (lines that could not be written).
    """

    __slots__ = (
        "_chain", "_durable", "_fd", "_mutex", "_next", "_session", "_signed", "_signer", "_signing", "_size", "_torn",
        "_words", "allowed", "denials", "expected", "failures", "read_calls", "unrecorded",
    )  # fmt: skip

    def __init__(self, fd: int, session: Session, *, durable: bool = False) -> None:
        """Take over `fd`, an empty file that is open for appending."""
        self._fd = fd
        self._durable = durable
        self._session = session
        self._mutex = allocate_lock()  # guards all below; held for a number and one write(2)
        self._words: dict[tuple[bytes, str, str, str, str, Votes], tuple[str, str]] = {}
        self._chain = genesis(session.id)
        self._next = 1
        self._signed = 0  # how far: the sequence number of the last head
        self._signer: Signer | None = None
        self._signing = allocate_lock()  # one signer at a time; never held with the mutex wanted by a paused call
        self._size = 0  # bytes of whole lines
        self._torn = 0  # errno for good, once a torn line could not be taken back
        self.allowed = 0
        self.denials = 0
        self.expected = 0
        self.failures = 0
        self.read_calls = 0
        self.unrecorded = 0

    def intent(
        self,
        effect: str,
        path: bytes,
        *,
        pid: int,
        exe: bytes,
        dev: int,
        ino: int,
        verdict: str,
        rule: str,
        reason: str,
        votes: Votes = (),
        action: bytes = b"",
        request: bytes = b"",
        facts: Sequence[object] = (),
        extra: Mapping[str, object] | None = None,
    ) -> int:
        """Record an effect that is about to be performed; the sequence number for `outcome`.

        `votes` are rows of (by, verdict, rule), `action` and `request` the id and the digest that they are about,
        `facts` what rules asked (see `twin.facts`).
        Raises `LedgerFull`: then the effect must not be performed.
        """
        words = self._words.get((exe, effect, verdict, rule, reason, votes))
        if words is None:
            words = self._quote_words(exe, effect, verdict, rule, reason, votes)
        body = (
            f'"time":{_now()},"kind":"intent","pid":{pid},{words[0]}'
            f'"path":{quote(path.decode("utf-8", "surrogateescape"))},"dev":{dev},"ino":{ino},{words[1]}'
            f',"action":"{action.hex()}","request":"{request.hex()}"'
        )
        if facts:
            body += ',"facts":' + encode(facts)
        if extra:
            body += ',"extra":' + encode(extra)
        with self._mutex:
            seq = self._append(body)
            self.allowed += 1
        if self._durable:
            self._sync()
        return seq

    def _quote_words(
        self, exe: bytes, effect: str, verdict: str, rule: str, reason: str, votes: Votes
    ) -> tuple[str, str]:
        """The members around the path, which are the same few again and again."""
        if len(self._words) >= _WORDS:
            self._words.clear()
        words = self._words[exe, effect, verdict, rule, reason, votes] = (
            f'"exe":{quote_bytes(exe)},"effect":{quote(effect)},',
            f'"verdict":{quote(verdict)},"rule":{quote(rule)},"reason":{quote(reason)},"votes":{_ballot(votes)}',
        )
        return words

    def outcome(self, seq: int, errno: int, post: str = "") -> None:
        """Record what became of intent `seq`: 0 is done, else the errno; `post` is the state seen afterwards.

        It does not raise when the log is full: the effect is done and the worker must be told the truth. The
        decision then reads "unknown", the line counts as `unrecorded`, and the next intent is refused.
        """
        word = errorcode.get(errno, str(errno)) if errno else DONE
        body = f'"time":{_now()},"kind":"outcome","of":{seq},"outcome":"{word}"'
        if post:
            body += ',"post":' + quote(post)
        with self._mutex:
            try:
                self._append(body)
            except LedgerFull:
                pass

    def denied(
        self,
        effect: str,
        path: bytes,
        *,
        pid: int,
        exe: bytes,
        dev: int,
        ino: int,
        verdict: str,
        rule: str,
        reason: str,
        code: str = "POLICY_DENY",
        votes: Votes = (),
        facts: Sequence[object] = (),
        extra: Mapping[str, object] | None = None,
        native: bool = False,
        expected: bool = False,
    ) -> int:
        """Record a refusal; the sequence number. Raises `LedgerFull` (and counts the denial all the same).

        `code` is one of `twin.codes`. With `native` the kernel would have refused the caller too, so nobody is told of
        a denial: it does not count. One that was `expected` counts apart.
        """
        body = (
            f'"time":{_now()},"kind":"denied","pid":{pid},"exe":{quote_bytes(exe)},"effect":{quote(effect)},'
            f'"path":{quote_bytes(path)},"dev":{dev},"ino":{ino},"verdict":{quote(verdict)},"rule":{quote(rule)},'
            f'"reason":{quote(reason)},"code":{quote(code)},"votes":{_ballot(votes)},"outcome":"{REFUSED}"'
        )
        if facts:
            body += ',"facts":' + encode(facts)
        if extra:
            body += ',"extra":' + encode(extra)
        if native:
            body += ',"native":true'
        elif expected:
            body += ',"expected":true'
        with self._mutex:
            self.denials += not native and not expected
            self.expected += expected and not native
            seq = self._append(body)
        if self._durable:
            self._sync()
        return seq

    def answer(self, members: Mapping[str, object]) -> int:
        """Record what a person answered, before it counts; the sequence number. Raises `LedgerFull`."""
        with self._mutex:
            seq = self._append(f'"time":{_now()},"kind":"answer",{encode(members)[1:-1]}')
        if self._durable:
            self._sync()
        return seq

    def process(self, pid: int, of: int, parent: int, exe: bytes) -> None:
        """Record that task `pid` is of process `of`, a child of `parent`, and runs `exe`. Raises `LedgerFull`."""
        with self._mutex:
            self._append(
                f'"time":{_now()},"kind":"process","pid":{pid},"of":{of},"parent":{parent},"exe":{quote_bytes(exe)}'
            )

    def failure(self, where: str, error: BaseException, *, pid: int) -> int:
        """Record a call that was denied since the supervisor failed in `where`. Raises `LedgerFull`."""
        reason = f"the supervisor failed in {where}: {type(error).__name__}: {error}"[:1000]
        body = (
            f'"time":{_now()},"kind":"failure","pid":{pid},"exe":"","effect":"","path":"","dev":0,"ino":0,'
            f'"verdict":"deny","rule":"","reason":{quote(reason)},"code":"SUPERVISOR_FAILURE","votes":[],'
            f'"outcome":"{REFUSED}"'
        )
        with self._mutex:
            self.failures += 1
            seq = self._append(body)
        if self._durable:
            self._sync()
        return seq

    def reads(self, rows: Iterable[tuple[bytes, bytes, int, int, int, float, str]]) -> None:
        """Record allowed reads, a line for each row: exe, path, dev, ino, count, first time (Unix s), rule.

        Raises `LedgerFull`; the batches before it are written.
        """
        bodies = []
        total = 0
        now = f'"time":{_now()},"kind":"reads","pid":null,"exe":'
        for exe, path, dev, ino, count, first, rule in rows:
            total += count
            bodies.append(
                f'{now}{quote_bytes(exe)},"effect":"read",'
                f'"path":{quote_bytes(path)},"dev":{dev},"ino":{ino},"verdict":"allow","rule":{quote(rule)},'
                f'"reason":"","votes":[],"outcome":"{DONE}","count":{count},"first":{first:.6f}'
            )
        for at in range(0, len(bodies), _BATCH):
            with self._mutex:
                self._append(*bodies[at : at + _BATCH])
        with self._mutex:
            self.read_calls += total

    def sign(self) -> None:
        """Sign what was written since the last head: some tenths of a millisecond. Raises `LedgerFull`.

        The first time it makes the key. For any thread but one that answers calls.
        """
        with self._signing:
            if self._signer is None:
                from pincer_trace.ledger.chain import Signer

                self._signer = Signer(self._session.id)
                self._session.note(key=self._signer.public)
            with self._mutex:
                seq, digest = self._next - 1, self._chain
            if seq == self._signed:
                return
            signature = self._signer.sign(seq, digest)
            with self._mutex:
                head = self._append(f'"time":{_now()},"kind":"head","of":{seq},"signature":"{signature}"')
                if head == seq + 1:  # else records came between, which the next head signs
                    self._signed = head
            if self._durable:
                self._sync()

    def counts(self) -> dict[str, int]:
        """The counters by name, as session.json keeps them."""
        return {
            "allowed": self.allowed,
            "denied": self.denials,
            "expected": self.expected,
            "failures": self.failures,
            "reads": self.read_calls,
            "unrecorded": self.unrecorded,
        }

    def close(self, exit_status: int | None, leftover: int) -> None:
        """End the session: the `end` line, session.json, the file closed. A second call does nothing.

        `exit_status` is the command's own (None: not known); `leftover` counts processes that outlived it.
        """
        status = "null" if exit_status is None else str(exit_status)
        with self._mutex:
            if self._fd < 0:
                return
            try:
                self._append(f'"time":{_now()},"kind":"end","exit":{status},"leftover":{leftover}')
            except LedgerFull:
                pass
        try:
            self.sign()
        except LedgerFull:
            pass  # the lines that there was room for are chained, and `verify` says up to where they are signed
        with self._mutex:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
        try:
            self._session.finish(exit_status, leftover, self.counts())
        finally:
            os.close(fd)  # last: it drops the lock that says "running"

    def leave(self) -> None:
        """Let go of the files, in the half of a fork that does not write; the other goes on."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)  # the other process's copy keeps the lock
                self._fd = -1
                self._session.leave()

    def _append(self, *bodies: str) -> int:
        """Number, finish and write whole lines with one write(2); the first number. Call with the mutex held."""
        if self._torn:
            self.unrecorded += 1
            raise LedgerFull(self._torn)
        seq, chain = self._next, self._chain
        parts: list[bytes] = []
        for number, body in enumerate(bodies, seq):
            text = f'{{"seq":{number},{body}'.encode("ascii")
            chain = link(chain, text)
            parts += (text, MEMBER, chain.hex().encode("ascii"), END)
        line = b"".join(parts)
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self.unrecorded += len(bodies)
            raise LedgerFull(error.errno or EIO) from error
        if written != len(line):
            self.unrecorded += 1
            self._take_back()
            raise LedgerFull(ENOSPC)
        self._chain = chain
        self._next = seq + len(bodies)
        self._size += written
        return seq

    def _sync(self) -> None:
        """Wait until all that was written is on the disk, without the mutex: others write meanwhile.

        Raises `LedgerFull`, from then on always: what the disk has after an error is not known.
        """
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._torn = error.errno or EIO
            self.unrecorded += 1
            raise LedgerFull(self._torn) from error

    def _take_back(self) -> None:
        """Remove a torn line, so that the log can go on when there is room again; else never write again."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            self._torn = error.errno or EIO


def _now() -> str:
    """Unix time in seconds, with six digits behind the point."""
    text = str(time_ns())
    return f"{text[:-9]}.{text[-9:-3]}"


def _ballot(votes: Votes) -> str:
    rows = []
    for by, verdict, text in votes:
        what = "reason" if by == "intent" else "rule"  # a model gives no rule
        rows.append(f'{{"by":"{by}","verdict":"{verdict}","{what}":{quote(text)}}}')
    return f"[{','.join(rows)}]"


def summary(counts: Mapping[str, int]) -> str:
    """The counters in words. A line of the log counts once; a line of reads, which says `xN`, N times, apart."""
    allowed, reads, denied = counts["allowed"], counts["reads"], counts["denied"] + counts["failures"]
    text = f"{counted(allowed, 'effect')} and {counted(reads, 'read')} allowed"
    text += f", {denied} denied"
    if counts["failures"]:
        text += f" ({counts['failures']} by failures of the supervisor)"
    if counts["expected"]:
        text += f", {counted(counts['expected'], 'expected refusal')}"
    unwritten = counts["unrecorded"]
    if unwritten:
        text += f", {counted(unwritten, 'line')} not written: the disk is full"
    return text
