"""What a person answered, and which requests that answers: grants, and remembered refusals.

A grant is keyed by what was asked, never by who asked just then: a retry from another process, under another staging
name and for another version of the object is the same question. `Grants` makes no system call; the time is passed in
(CLOCK_BOOTTIME, so that a suspended machine lets grants grow old).
"""

from __future__ import annotations

from _thread import allocate_lock

from pincer_trace.twin.staging import DEFAULT_PATTERNS, staged_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pincer_trace.twin.staging import Patterns

    Place = tuple[bytes, ...]

ONCE, SESSION, ALWAYS, DENY, DENY_SESSION = "once", "session", "always", "deny", "deny-session"
KINDS = (ONCE, SESSION, ALWAYS, DENY, DENY_SESSION)
YES = frozenset({ONCE, SESSION, ALWAYS})
ONCE_LASTS = 600.0  # seconds: a late yes must still meet the retry
MOST = 1000  # answers that are remembered


def entry(
    dev: int,
    ino: int,
    name: bytes,
    *,
    directory: bytes = b"",
    born: int = 0,
    patterns: Patterns = DEFAULT_PATTERNS,
) -> Place:
    """The entry `name` of the directory (dev, ino), staging names as one.

    With the `directory`'s path a grant ends when that is moved, and with its birth time when its number is given to
    another: else a yes for `/tmp/d/config` would hold wherever the tree moves `d`.
    """
    return (b"entry", b"%d" % dev, b"%d" % ino, b"%d" % born, directory, staged_name(name, patterns))


def pinned(dev: int, ino: int, *, born: int = 0) -> Place:
    """The object (dev, ino) itself, for effects by descriptor."""
    return (b"object", b"%d" % dev, b"%d" % ino, b"%d" % born)


def peer(address: bytes) -> Place:
    """The other end of a connection, as a rule names it: `//HOST:PORT`, or the path of a socket."""
    return (b"peer", address)


class Key:
    """What was asked. Equal keys are one question, and an answer to one answers the other.

    `program` is the profile's digest p; `principal` whom the answer is for (the session's tree); `places` all that the
    effect is about: a rename has two, so that a yes for one goal is none for another; `flags` the class of flags.
    """

    __slots__ = ("_hash", "canonical", "effect")

    def __init__(self, program: bytes, principal: bytes, effect: str, places: Sequence[Place], flags: str = "") -> None:
        if not places:
            raise ValueError("a key without a place would answer for every place")
        fields = [program, principal, effect.encode(), flags.encode(), b"%d" % len(places)]
        for place in places:
            fields += [b"%d" % len(place), *place]
        self.effect = effect
        self.canonical = b"".join([b"%d:%b" % (len(field), field) for field in fields])
        self._hash = hash(self.canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.canonical == self.canonical

    def __hash__(self) -> int:
        return self._hash

    def digest(self) -> str:
        """How the ledger names the key."""
        from hashlib import sha256

        return sha256(b"pincer-trace question\0" + self.canonical).hexdigest()


class Person:
    """Who answered: the process at the other end of the approval channel."""

    __slots__ = ("exe", "pid", "uid")

    def __init__(self, uid: int, pid: int, exe: bytes) -> None:
        self.uid = uid
        self.pid = pid
        self.exe = exe

    @property
    def told(self) -> dict[str, object]:
        """As records have it."""
        return {"uid": self.uid, "pid": self.pid, "exe": self.exe}


class Answer:
    """A remembered answer. `id` is the sequence number of its line in the ledger, `at` when it was given."""

    __slots__ = ("at", "by", "expires", "id", "kind", "uses")

    def __init__(self, answer_id: int, kind: str, by: Person, at: float) -> None:
        self.id = answer_id
        self.kind = kind
        self.by = by
        self.at = at
        self.uses: int | None = 1 if kind == ONCE else None
        self.expires: float | None = at + ONCE_LASTS if kind == ONCE else None

    @property
    def yes(self) -> bool:
        return self.kind in YES


class Grants:
    """The answers of one session, for any thread. A remembered no outranks every yes, earlier or later."""

    __slots__ = ("_most", "_mutex", "_no", "_yes")

    def __init__(self, most: int = MOST) -> None:
        self._mutex = allocate_lock()  # guards both tables; held for look-ups only
        self._most = most
        self._yes: dict[Key, list[Answer]] = {}
        self._no: dict[Key, Answer] = {}

    def answer(self, key: Key, now: float) -> Answer | None:
        """What a person said to this. It is not used up: what is asked for may still be refused for another reason."""
        with self._mutex:
            return self._answer(key, now)

    def use(self, keys: Iterable[Key], now: float) -> list[Answer] | None:
        """Use up one use of a yes for each key, for one request that is about to be performed: all or nothing.

        None where one of them is not, or no longer, answered with yes.
        """
        with self._mutex:
            found = []
            for key in dict.fromkeys(keys):
                answer = self._answer(key, now)
                if answer is None or not answer.yes:
                    return None
                found.append((key, answer))
            for key, answer in found:
                if answer.uses is not None:
                    answer.uses -= 1
                    if not answer.uses:
                        self._forget(key, answer)
            return [answer for _, answer in found]

    def add(self, key: Key, kind: str, by: Person, now: float, *, answer_id: int) -> bool:
        """Remember an answer. False where it changes nothing: a no that was for its question only, or a yes to what is
        refused for the session.
        """
        if kind not in KINDS:
            raise ValueError(kind)
        with self._mutex:
            if kind == DENY or key in self._no:
                return False
            answer = Answer(answer_id, kind, by, now)
            self._make_room(now)
            if kind == DENY_SESSION:
                self._yes.pop(key, None)
                self._no[key] = answer
            elif kind == ONCE:
                self._yes.setdefault(key, []).append(answer)
            else:
                self._yes[key] = [answer]
            return True

    def refused(self, key: Key) -> Answer | None:
        """The remembered no, which no yes lifts."""
        with self._mutex:
            return self._no.get(key)

    def __len__(self) -> int:
        with self._mutex:
            return self._count()

    def _answer(self, key: Key, now: float) -> Answer | None:
        refusal = self._no.get(key)
        if refusal is not None:
            return refusal
        for answer in self._yes.get(key, ()):
            if answer.expires is None or now < answer.expires:
                return answer
        return None

    def _forget(self, key: Key, answer: Answer) -> None:
        rest = [each for each in self._yes[key] if each is not answer]
        if rest:
            self._yes[key] = rest
        else:
            del self._yes[key]

    def _count(self) -> int:
        return len(self._no) + sum(map(len, self._yes.values()))

    def _make_room(self, now: float) -> None:
        """What is forgotten is asked again. A yes goes before any no, and where a no goes no yes is left behind it."""
        if self._count() < self._most:
            return
        for key, answers in list(self._yes.items()):
            for answer in answers:
                if answer.expires is not None and now >= answer.expires:
                    self._forget(key, answer)
        while self._count() >= self._most:
            if self._yes:
                oldest = next(iter(self._yes))
                self._forget(oldest, self._yes[oldest][0])
            else:
                del self._no[next(iter(self._no))]
