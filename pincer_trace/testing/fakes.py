"""The scripted kernel: `FakeListener` in the place of `kernel.notify.Listener`, and `Bench`, an engine that runs on it.

The calling process plays the worker of its own calls: a path argument is the address of a buffer in it, its directory
and descriptors are the worker's, and an injected descriptor arrives in its table. So the stages, the files and
/proc are real, and only the order of events is the test's to choose.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import sys
import threading
import time

from pincer_trace.effects import READ
from pincer_trace.engine import Engine
from pincer_trace.kernel import libc, table
from pincer_trace.kernel.landlock import Floor
from pincer_trace.kernel.notify import Gone, Listener
from pincer_trace.ledger import Session
from pincer_trace.profile import Places, load
from pincer_trace.worker import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.tasks import Task
    from pincer_trace.kernel.notify import Continue
    from pincer_trace.twin.target import Target

    # What happens at one use of a method: nothing, an answer of `valid` or `wait`, an error, or a change of the world
    Step = bool | BaseException | Callable[[], object] | None

_ARCH = table.AUDIT_ARCH[table.machine()]
_ARGUMENTS = 6
_WORD = (1 << 64) - 1
_PATIENCE = 3.0  # seconds until a call counts as hanging


class Answer:
    """What became of one notification. `error` is positive, as `respond` takes it.

    `numbers` are the descriptors that were injected for it, in the order of their injection; they are open in this
    process until `close`. `late` counts answers that came when it had been answered already, or its task was gone.
    """

    __slots__ = ("answered", "error", "flags", "identity", "late", "numbers", "resume", "value")

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.answered = False
        self.value = 0
        self.error = 0
        self.resume = ""
        self.numbers: list[int] = []
        self.flags: list[int] = []
        self.late = 0

    @property
    def succeeded(self) -> bool:
        """Whether the worker gets a value, or its call runs: anything but an errno."""
        return self.answered and not self.error

    def close(self) -> None:
        """Close what was injected."""
        while self.numbers:
            os.close(self.numbers.pop())

    def __repr__(self) -> str:
        if not self.answered:
            return f"<no answer to {self.identity}>"
        return f"<Answer value {self.value}, error {self.error}, resume {self.resume or None}, {self.numbers}>"


class FakeListener(Listener):
    """A listener whose notifications are written by the test, and whose answers it reads.

    Each use of a method takes the next step that `before` gave for it, if any: None does nothing, an exception is
    raised in the place of the method's work, a bool is what `valid` or `wait` answers, and a callable is called first.
    """

    def __init__(self) -> None:
        self.descriptor = -1
        self.closed = False
        self.answers: dict[int, Answer] = {}
        self.uses: dict[str, int] = {}
        self._steps: dict[str, list[Step]] = {}
        self._script: list[tuple[int, ...]] = []
        self._gone: set[int] = set()
        self._numbers = itertools.count(1 << 40)
        self._changed = threading.Condition()  # answers come from the threads of waiting opens too

    # -- the script ------------------------------------------------------------------------------------------

    def notify(self, call: str, *arguments: int, tid: int | None = None) -> Answer:
        """Add a notification of the task `tid` (this thread). Its answer is filled in once it is there."""
        words = [argument & _WORD for argument in arguments]
        words += [0] * (_ARGUMENTS - len(words))
        identity = next(self._numbers)
        worker = threading.get_native_id() if tid is None else tid
        self._script.append((identity, worker, 0, libc.NUMBER[call], _ARCH, 0, *words))
        answer = self.answers[identity] = Answer(identity)
        return answer

    def before(self, method: str, *steps: Step) -> None:
        """Add what happens at the next uses of `method`."""
        self._steps.setdefault(method, []).extend(steps)

    def forget(self) -> None:
        """Drop the steps that were not used."""
        self._steps.clear()

    def kill(self, *identities: int) -> None:
        """The tasks behind these notifications (all open ones) are gone."""
        self._gone.update(identities or [i for i, answer in self.answers.items() if not answer.answered])

    def join(self, answer: Answer, patience: float = _PATIENCE) -> Answer:
        """Wait for an answer. Raises TimeoutError: the worker would hang."""
        deadline = time.monotonic() + patience
        with self._changed:
            while not answer.answered and answer.identity not in self._gone:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"notification {answer.identity} is never answered")
        return answer

    def _step(self, method: str) -> bool | None:
        self.uses[method] = self.uses.get(method, 0) + 1
        waiting = self._steps.get(method)
        step = waiting.pop(0) if waiting else None
        if isinstance(step, BaseException):
            raise step
        if step is None or isinstance(step, bool):
            return step
        step()
        return None

    # -- the interface ---------------------------------------------------------------------------------------

    def receive(self) -> tuple[int, ...] | None:
        self._step("receive")
        return self._script.pop(0) if self._script else None

    def wait(self, milliseconds: int) -> bool:
        answer = self._step("wait")
        return bool(self._script) if answer is None else answer

    def respond(self, identity: int, value: int = 0, error: int = 0, resume: Continue | None = None) -> bool:
        self._step("respond")
        answer = self.answers[identity]
        with self._changed:
            if answer.answered or identity in self._gone:
                answer.late += 1
                self._changed.notify_all()
                return False
            answer.answered = True
            answer.error = error
            if not error:
                answer.value = 0 if resume is not None else value
                answer.resume = resume.reason if resume is not None else ""
            self._changed.notify_all()
        return True

    def inject(self, identity: int, source: int, flags: int, instead: int | None = None) -> int:
        self._step("inject")
        answer = self.answers[identity]
        if answer.answered or identity in self._gone:
            raise Gone
        number = os.dup(source) if instead is None else os.dup2(source, instead)
        os.set_inheritable(number, not flags & os.O_CLOEXEC)
        answer.numbers.append(number)
        answer.flags.append(flags)
        return number

    def valid(self, identity: int) -> bool:
        scripted = self._step("valid")
        if scripted is not None:
            return scripted
        return identity not in self._gone and not self.answers[identity].answered

    def close(self) -> None:
        self._step("close")
        self.closed = True


class Bench:
    """One engine on a scripted kernel, with this process as its worker. Belongs to the main thread; `close` it.

    `directory` gets the session and the profile; `profile` is TOML text, with `{workspace}` the directory `workspace`
    and `{home}` the directory `home`. What was judged and done is read with `records`.
    """

    def __init__(self, directory: str, profile: str, *, workspace: str, home: str, confirm_all: bool = False) -> None:
        source = os.path.join(directory, "profile.toml")
        with open(source, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(profile)
        os.makedirs(home, exist_ok=True)
        self.places = Places(
            cwd=os.fsencode(workspace),
            workspace=os.fsencode(workspace),
            home=os.fsencode(home),
            tmp=os.fsencode(directory) + b"/tmp",
            state=os.fsencode(directory) + b"/state",
        )
        self.profile = load(source, self.places)
        session = Session.create(
            Session.reserve(directory),
            command=[b"bench"],
            profile_name=self.profile.name,
            profile_digest=self.profile.digest,
            workspace=self.places.workspace,
            details={},
        )
        self.session = session
        self.listener = FakeListener()
        self._sockets = socket.socketpair()
        self._interval = sys.getswitchinterval()
        self._buffers: list[object] = []
        plan = Plan(b"", [], {}, program=b"", floor=Floor(0), keep=[])
        self.engine = Engine(
            plan, self.profile, session, self._sockets[0], keep=False, confirm="auto" if confirm_all else "deny"
        )
        self.engine._listener = self.listener
        self.engine._prepare()
        self.tasks = self.engine._tasks
        self.resolver = self.engine._resolver
        self.resolver._root = os.getppid()  # so that this process counts as one below it
        self.authority = self.engine._authority
        self.provenance = self.engine._provenance
        self.reads = self.engine._reads
        self.blocking = self.engine._blocking

    # -- calls -----------------------------------------------------------------------------------------------

    def address(self, argument: object) -> int:
        """An argument as a register holds it: numbers as they are, bytes (with a NUL) and ctypes data by address."""
        if isinstance(argument, int):
            return argument
        data = ctypes.create_string_buffer(argument) if isinstance(argument, bytes) else argument
        self._buffers.append(data)
        return ctypes.addressof(data)  # type: ignore[arg-type]

    def send(self, call: str, *arguments: object, tid: int | None = None) -> Answer:
        """Serve one call, and give its answer, which a waiting open may not have filled in yet."""
        answer = self.listener.notify(call, *[self.address(argument) for argument in arguments], tid=tid)
        self.serve()
        return answer

    def call(self, name: str, *arguments: object, tid: int | None = None) -> Answer:
        """Serve one call to its answer. Raises TimeoutError when there is none: a worker that hangs."""
        return self.listener.join(self.send(name, *arguments, tid=tid))

    def serve(self) -> None:
        """Run the engine's own loop over what is scripted."""
        self.engine._serve()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what the stages see ---------------------------------------------------------------------------------

    def task(self) -> Task:
        """The calling thread as the engine knows it."""
        answer = self.listener.notify("getpid")
        self.listener._script.pop()
        return self.tasks.get(threading.get_native_id(), answer.identity)

    def read(self, target: Target) -> str:
        """The verdict on reading `target`."""
        return self.authority.judge(self.task(), READ, target).verdict

    def records(self, kind: str = "") -> list[dict[str, object]]:
        """The ledger's lines (of one kind), as they were written."""
        import json

        with open(os.path.join(self.session.path, "ledger.jsonl"), encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        return [record for record in found if not kind or record["kind"] == kind]

    def close(self) -> None:
        """End the threads, and close every descriptor that was opened here or injected."""
        self.blocking.close()
        self.engine._place.close()
        self.engine._held.close()
        self.engine._denials.close()
        self.tasks.close()
        self.resolver.close()
        self.engine._identity.regain()
        for answer in self.listener.answers.values():
            answer.close()
        self.session.ledger.close(None, 0)
        for end in self._sockets:
            end.close()
        sys.setswitchinterval(self._interval)
