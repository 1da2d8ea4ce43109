"""One supervised run as a test sees it: its end, its output, every call, and what may be asserted about them."""

from __future__ import annotations

import os
import shlex
from functools import cached_property

from pincer_trace import effects, paths
from pincer_trace.errors import UserError
from pincer_trace.ledger import read
from pincer_trace.profile import addresses, globs
from pincer_trace.review.naming import Names
from pincer_trace.review.past import Past
from pincer_trace.testing.calls import calls_of, net_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from pincer_trace.ledger.read import Record
    from pincer_trace.profile.globs import Components
    from pincer_trace.review.tree import Change
    from pincer_trace.testing.calls import Call, Process

_SHOWN = 20  # calls of a message
_TAIL = 4000  # characters of each output in a message


class Trace:
    """What a command did. `exit` is its status as a shell has it (128+n after a signal), with both outputs as text.

    The lists are read from the session's log when they are first asked for. Patterns of assertions are those of
    profiles, with the places of the run (`{workspace}`, `{home}`, `{tmp}`), `~/`, or relative to its working directory.
    A `Path` is no pattern: it means itself and all that is below.
    """

    def __init__(self, session: str, command: list[str], exit_status: int, stdout: str, stderr: str) -> None:
        self.session = session
        self.command = command
        self.exit = exit_status
        self.stdout = stdout
        self.stderr = stderr

    # -- what it did -----------------------------------------------------------------------------------------

    @property
    def calls(self) -> list[Call]:
        """Every decision, in order."""
        return self._read[0]

    @property
    def processes(self) -> list[Process]:
        """Every process that did something, the command first."""
        return self._read[1]

    @property
    def effects(self) -> list[Call]:
        """What was allowed and done: files changed, programs started, connections made. Without reads."""
        return [call for call in self.calls if call.happened and call.effect != effects.READ]

    @property
    def reads(self) -> list[Call]:
        """Reads that were allowed: one for each file and program."""
        return [call for call in self.calls if call.happened and call.effect == effects.READ]

    @property
    def denials(self) -> list[Call]:
        """What was refused, and would not have been without supervision; without what a rule calls `expected`."""
        return [call for call in self.calls if not (call.allowed or call.native or call.expected)]

    @property
    def peers(self) -> list[Call]:
        """Connections, made or only asked for, and unix sockets that the run bound."""
        to_peers = effects.TO_PEERS | {effects.BIND}
        return [call for call in self.calls if call.effect in to_peers]

    @cached_property
    def changes(self) -> list[Change]:
        """Net changes of the file tree: what was made and removed again is none. Raises `UserError` for too many."""
        return net_changes(self.calls, lambda call: call.raw["exe"])

    @cached_property
    def facts(self) -> Record:
        """What the session's `session.json` says."""
        return read.load_session(self.session)

    @cached_property
    def names(self) -> Names:
        """The places of the run."""
        return Names(Past(self.session).places)

    @cached_property
    def _read(self) -> tuple[list[Call], list[Process]]:
        counts = self.facts.get("counts")
        if isinstance(counts, dict) and counts.get("unrecorded"):
            raise UserError(
                f"{counts['unrecorded']} lines of the log could not be written: what they said is not known"
            )
        return calls_of(self.session)

    def find(self, effect: str | None = None, path: str | PathLike[str] | None = None) -> list[Call]:
        """The calls of this effect (`change` and `any` are groups of them) whose path, or goal, matches."""
        group = self._group(effect)
        about = self._matcher([path]) if path is not None else None
        return [
            call for call in self.calls
            if call.effect in group and (about is None or about(call.path) or bool(call.to and about(call.to)))
        ]  # fmt: skip

    # -- assertions ------------------------------------------------------------------------------------------

    def assert_exit(self, status: int = 0) -> None:
        """The command ended with this status."""
        __tracebackhide__ = True
        if self.exit != status:
            head = f"exit status {self.exit}, expected {status}: {self._said()}"
            self._fail(head, self.denials, "denied", more=self._output())

    def assert_denied(self, effect: str | None = None, path: str | PathLike[str] | None = None) -> None:
        """Something like that was asked for, and each time refused."""
        __tracebackhide__ = True
        found = self.find(effect, path)
        what = _what(effect, path)
        passed = [call for call in found if call.allowed]
        if passed:
            self._fail(f"{what} was allowed, expected a denial", passed)
        if not found:
            self._fail(f"{what} was never asked for, expected a denial", self._near(effect, path), "nearest")

    def assert_allowed(self, effect: str | None = None, path: str | PathLike[str] | None = None) -> None:
        """Something like that was asked for, and each time allowed."""
        __tracebackhide__ = True
        found = self.find(effect, path)
        what = _what(effect, path)
        refused = [call for call in found if not call.allowed]
        if refused:
            self._fail(f"{what} was denied, expected to be allowed", refused)
        if not found:
            self._fail(f"{what} was never asked for, expected to be allowed", self._near(effect, path), "nearest")

    def assert_viewed(self, path: str | PathLike[str]) -> None:
        """It was read, and each time what was read is a view, with handles in the place of secrets."""
        __tracebackhide__ = True
        found = self.find(effects.READ, path)
        plain = [call for call in found if not call.viewed]
        if plain:
            self._fail(f"{_what(effects.READ, path)} was no view each time, expected one", plain)
        if not found:
            self._fail(f"{_what(effects.READ, path)} was never asked for, expected a view", self._near("read", path))

    def assert_no_denials(self) -> None:
        """Nothing was refused that would pass without supervision."""
        __tracebackhide__ = True
        if self.denials:
            self._fail(f"{paths.counted(len(self.denials), 'denial')}, expected none", self.denials)

    def assert_only_writes(self, *allowed: str | PathLike[str]) -> None:
        """Every change of files that was done, of any kind, is of a path that one of these matches.

        Devices, /proc and addresses are no files. A refused change is none; see `assert_no_denials`.
        """
        __tracebackhide__ = True
        inside = self._matcher(allowed)
        outside = [call for call in self._done() if not all(map(inside, _changed(call)))]
        if outside:
            only = " or ".join(map(str, allowed)) or "nothing"
            self._fail(f"{paths.counted(len(outside), 'change')} of other files than {only}", outside)

    def assert_no_network(self, *, but: Iterable[str] = ()) -> None:
        """No connection to an address of the network was made, nor asked for; `but` excepts some: `//HOST:PORT`.

        Unix sockets are none. What is not recorded a test cannot see: servers that only listen, and UDP where a
        profile opens that.
        """
        __tracebackhide__ = True
        excepted = self._matcher(list(but))
        found = [call for call in self.peers if call.is_network and not excepted(call.path)]
        if found:
            self._fail(f"{paths.counted(len(found), 'connection')} to the network, expected none", found)

    def assert_unchanged(self, directory: str | PathLike[str]) -> None:
        """Nothing at or below `directory` is other than before.

        What was made there and removed again does not count, nor do times.
        """
        __tracebackhide__ = True
        inside = self._matcher([directory if isinstance(directory, os.PathLike) else f"{directory.rstrip('/')}/**"])
        changes = [each for each in self.changes if inside(each.path) or bool(each.source and inside(each.source))]
        if not changes:
            return
        touched = {each.path for each in changes} | {each.source for each in changes}
        by = [call for call in self._done() if not touched.isdisjoint(_changed(call))]
        lines = [f"  {each.what} {paths.named(each.path)}" for each in changes[:_SHOWN]]
        if len(changes) > _SHOWN:
            lines.append(f"  ... and {len(changes) - _SHOWN} others")
        head = f"{paths.counted(len(changes), 'change')} in {directory}, expected none:"
        self._fail("\n".join((head, *lines)), by, "by")

    def _done(self) -> list[Call]:
        """The calls that changed files."""
        return [call for call in self.calls if call.happened and call.changes_files]

    # -- messages --------------------------------------------------------------------------------------------

    def _fail(self, head: str, calls: list[Call], label: str = "", more: str = "") -> None:
        __tracebackhide__ = True
        alike: dict[object, list[Call]] = {}
        for call in calls:
            alike.setdefault((call.effect, call.path, call.to, call.allowed, call.process, call.program), []).append(
                call
            )
        told = [
            str(each[0]) + (f"\n    and {len(each) - 1} more like this" if len(each) > 1 else "")
            for each in list(alike.values())[:_SHOWN]
        ]
        if len(alike) > _SHOWN:
            told.append(f"... and {len(alike) - _SHOWN} others")
        body = "\n".join("  " + line.replace("\n", "\n  ") for line in told)
        if body and label:
            body = f"  {label}:\n{body}"
        raise AssertionError("\n".join(filter(None, (head, body, more))))

    def _near(self, effect: str | None, path: str | PathLike[str] | None) -> list[Call]:
        """What a test may have meant: the same path by another effect, or the same effect on another one."""
        if effect is not None and path is not None:
            found = self.find(None, path) or [call for call in self.find(effect) if not call.allowed]
            return found[:3]
        return self.denials[:3]

    def _said(self) -> str:
        return paths.display(shlex.join(self.command), 300)

    def _output(self) -> str:
        told = []
        for name in ("stdout", "stderr"):
            text = getattr(self, name)
            if text.strip():
                lines = [paths.display(line, 1000) for line in text[-_TAIL:].splitlines()]
                told.append(f"  {name}:\n" + "\n".join("    " + line for line in lines))
        return "\n".join(told)

    def _group(self, effect: str | None) -> frozenset[str]:
        if effect is None or effect == "any":
            return effects.EFFECTS | {""}
        if effect in effects.GROUPS:
            return effects.GROUPS[effect]
        if effect not in effects.EFFECTS:
            raise ValueError(f"no effect {effect!r}: {', '.join(sorted(effects.EFFECTS | set(effects.GROUPS)))}")
        return frozenset({effect})

    def _matcher(self, patterns: Iterable[str | PathLike[str]]) -> Callable[[str], bool]:
        """Whether one of these matches a path as the log has it. Raises ValueError for what is no pattern."""
        found: list[Components] = []
        for given in patterns:
            try:
                if not isinstance(given, str):
                    place = globs.escape(os.fsencode(os.path.realpath(given)))
                    found.append(globs.components(place.rstrip(b"/") + b"/**"))
                elif given.startswith("//"):
                    found += map(globs.components, addresses.patterns(os.fsencode(given[2:])))
                else:
                    found += self.names.pattern(given)
            except globs.GlobError as error:
                raise ValueError(f"{os.fspath(given)!r} is no pattern: {error}") from None
        return lambda path: any(globs.matches(each, read.raw(path)) for each in found)

    def __repr__(self) -> str:
        return f"<Trace of {self._said()}: exit {self.exit}, {self.session}>"


def _changed(call: Call) -> list[str]:
    """The names that a call changes: of a rename both, of a link only the new one."""
    return [call.path, call.to] if call.effect == effects.RENAME and call.to else [call.path]


def _what(effect: str | None, path: str | PathLike[str] | None) -> str:
    if path is None:
        return effect or "any effect"
    return f"{effect or 'any effect on'} {os.fspath(path)}"
