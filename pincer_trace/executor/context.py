"""What the handlers share: the stages of one engine, and the words a handler answers with."""

from __future__ import annotations

from pincer_trace.effects import READ
from pincer_trace.executor.before import Before
from pincer_trace.executor.commit import commit
from pincer_trace.executor.domains import Domains
from pincer_trace.executor.hostfiles import HostFiles
from pincer_trace.executor.saves import Saves
from pincer_trace.executor.staged import Staged
from pincer_trace.executor.terminals import Terminals
from pincer_trace.executor.views import Views
from pincer_trace.gateway.hosts import Hosts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.executor.acceptance import Acceptance
    from pincer_trace.executor.blocking import BlockingCalls
    from pincer_trace.executor.datagrams import Datagrams
    from pincer_trace.executor.holders import Holders
    from pincer_trace.executor.identity import Identity
    from pincer_trace.executor.launches import Launches, Withheld
    from pincer_trace.executor.secrets import Secrets
    from pincer_trace.gateway.provenance import Provenance
    from pincer_trace.gateway.resolve import Resolver
    from pincer_trace.gateway.tasks import Task, Tasks
    from pincer_trace.kernel.notify import Listener
    from pincer_trace.profile import Profile
    from pincer_trace.twin.authority import Authority, Judgement
    from pincer_trace.twin.reads import Reads
    from pincer_trace.twin.target import Target

# A handler returns the call's value (an int of zero or more), a Continue, or this: it has answered, or another thread
# will. It raises OSError for the errno that the kernel gave.
ANSWERED = object()


class Context:
    """The stages. Handlers run on the receiving thread, one at a time: that is the mutation lock (P37)."""

    __slots__ = (
        "_datagrams",
        "acceptance",
        "authority",
        "before",
        "blocking",
        "domains",
        "holders",
        "host_files",
        "hosts",
        "identity",
        "launches",
        "listener",
        "origin",
        "provenance",
        "reads",
        "resolver",
        "saves",
        "secrets",
        "staged",
        "tasks",
        "terminals",
        "views",
        "wake",
    )

    def __init__(
        self,
        *,
        listener: Listener,
        tasks: Tasks,
        resolver: Resolver,
        authority: Authority,
        acceptance: Acceptance,
        origin: bytes,
        provenance: Provenance,
        reads: Reads,
        blocking: BlockingCalls,
        identity: Identity,
        secrets: Secrets,
        profile: Profile,
        wake: Callable[[], None],
        withheld: Withheld,
    ) -> None:
        self.listener = listener
        self.tasks = tasks
        self.resolver = resolver
        self.authority = authority
        self.acceptance = acceptance
        self.origin = origin  # of every request
        self.provenance = provenance
        self.reads = reads
        self.blocking = blocking
        self.identity = identity
        self.secrets = secrets
        self.wake = wake  # those that wait for something but an answer are served again
        self.hosts = Hosts()
        self.host_files = HostFiles(profile, self.hosts)
        reads.apart = self.host_files.directories
        self._datagrams: Datagrams | None = None
        self.domains = blocking.domains = Domains(tasks, identity)
        self.terminals = Terminals()
        self.before = Before()
        reads.perform = self._perform_read
        self.staged = Staged(self)
        self.saves = Saves(self)
        self.views = Views(self)
        self.holders: Holders | None = None
        self.launches: Launches | None = None
        if profile.sinks:
            from pincer_trace.executor.holders import Holders
            from pincer_trace.executor.launches import Launches

            self.holders = Holders(self, profile)
            authority.sunk = self.holders.read
            self.launches = Launches(self, profile, withheld)

    def datagrams(self, task: Task) -> Datagrams:
        """Imported for the first socket of UDP, by our own ids."""
        if self._datagrams is None:

            def make() -> Datagrams:
                from pincer_trace.executor.datagrams import Datagrams

                return Datagrams(self)

            self._datagrams = self.identity.as_ourselves(task, make)
        return self._datagrams

    def _perform_read(self, task: Task, target: Target, judgement: Judgement) -> None:
        """A read that a person confirmed: it uses the grant, and is recorded by itself."""
        self.authority.done(commit(self, task, READ, target, judgement))
