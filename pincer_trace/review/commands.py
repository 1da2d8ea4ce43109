"""`report`, `why` and `replay` on the command line."""

from __future__ import annotations

import os
import shlex

import click

from pincer_trace import effects, paths
from pincer_trace.errors import UserError
from pincer_trace.profile import addresses
from pincer_trace.ui import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pincer_trace.review.past import Past
    from pincer_trace.review.replay import Replay

    _Command = TypeVar("_Command", bound=Callable[..., Any])

_DEFAULT = click.core.ParameterSource.DEFAULT
# These are about the entry of a directory; the others follow a symbolic link to what it means.
_ON_THE_ENTRY = frozenset({"rename", "link", "symlink", "unlink", "rmdir", "mkdir", "mknod", "bind"})

_profile_option = click.option(
    "-p",
    "--profile",
    metavar="NAME|FILE",
    help="The profile to ask. [default: that of PROGRAM, where it has one of its own, else default]",
)
_OF_RUNS = (
    ("--allow-write", "PATH"), ("--allow-connect", "PATH"), ("--allow-net", "HOST:PORT"), ("--protect", "PATH"),
)  # fmt: skip


def _options_of_runs(command: _Command) -> _Command:
    """The options of a run that make rules, by their names in an `Overlay`."""
    for name, value in reversed(_OF_RUNS):
        option = click.option(name, multiple=True, metavar=value, help="As in a run with this option. Repeatable.")
        command = option(command)
    return command


@click.command()
@click.argument("effect", metavar="[EFFECT|SEQ]", required=False)
@click.argument("target", metavar="TARGET|[SESSION]", required=False)
@_profile_option
@click.option("--command", metavar="PROGRAM", help="As in a run of PROGRAM: some rules are for one program only.")
@_options_of_runs
@arguments.session_dir
@click.pass_context
def why(
    ctx: click.Context,
    /,
    effect: str | None,
    target: str | None,
    profile: str | None,
    command: str | None,
    session_dir: str | None,
    **overlay: tuple[str, ...],
) -> int:
    """Explain what would be decided, or a record of the log.

    What would be decided about EFFECT on TARGET: a path, or //HOST:PORT for connect. Or what was decided in
    record SEQ, a number as `log` shows it, of SESSION, which is as there. Without both, the last refusal of the
    last run. The exit status is 0 if it is, or was, allowed, else 1.
    """
    from pincer_trace.cli import NAME, places_for, refuse_effect
    from pincer_trace.profile import Overlay, load
    from pincer_trace.profile.chosen import profile_for
    from pincer_trace.profile.show import explain
    from pincer_trace.review.why import explained, find, foretold, heading, last_refusal
    from pincer_trace.twin.foresight import PathFacts

    if effect is None or (effect.isascii() and effect.isdecimal()):
        for name in ("profile", "command", *overlay):
            if ctx.get_parameter_source(name) is not _DEFAULT:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is not for a record; `{NAME} replay` asks another profile", ctx)
        from pincer_trace.ledger import read
        from pincer_trace.ui.progress import of_ledger

        path = read.find_session(target, session_dir)
        with of_ledger(path) as progress:
            record = last_refusal(path, progress.tell) if effect is None else find(path, int(effect), progress.tell)
        _print_rows(*heading(record), explained(path, record))
        return 0 if record["kind"] in read.ALLOWED else 1
    if effect not in effects.EFFECTS:
        refuse_effect(effect)
    if target is None:
        raise click.UsageError("Missing argument 'TARGET'", ctx)
    places = places_for(command)
    asked = resolve_target(effect, target)
    loaded = load(profile or profile_for(places.command), places, overlay=Overlay(**overlay))
    said = explain(loaded, effect, asked, PathFacts(loaded, effect, asked))
    rows = foretold(loaded, said)
    if effect in (effects.RENAME, effects.LINK):
        reading = explain(loaded, effects.READ, asked, PathFacts(loaded, effects.READ, asked))
        if reading.verdict == "view":
            rows.append(
                ("note", f"it is read as a view ({reading.reason}): a name that shows more wants a confirmation")
            )
    _print_rows(said.verdict, f"{effect} {paths.display(asked, 5000)}", rows)
    return 0 if said.verdict in ("allow", "view") else 1


def _print_rows(verdict: str, what: str, rows: list[tuple[str, str]]) -> None:
    """A verdict, and why: a row's name stands in front of its first line only."""
    from pincer_trace.cli import Printer

    printer = Printer()
    style = {"allow": "green", "view": "green", "confirm": "yellow"}.get(verdict, "red")
    printer.line([(f"{verdict:8}", style), (what, "bold")])
    last = ""
    for name, text in rows:
        # a line to copy stays as it is where that is safe: `display` would double its backslashes
        shown = text if text.isascii() and text.isprintable() else paths.display(text, 5000)
        printer.line([(f"{'' if name == last else name:8}", "dim"), (shown, "")])
        last = name


@click.command()
@click.argument("session", required=False)
@click.option(
    "-p", "--profile", metavar="NAME|FILE", help="The profile to ask. [default: the session's own, as it is now]"
)
@_options_of_runs
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each difference, and one with the counts.")
@arguments.session_dir
def replay(
    session: str | None,
    profile: str | None,
    as_json: bool,
    session_dir: str | None,
    **overlay: tuple[str, ...],
) -> int:
    """Show what another profile would decide in a session.

    Every record is decided again, and what would differ is shown, grouped and counted. SESSION is an id, a unique
    prefix of one, or a session's directory; without it, the latest. It is judged for the places and with the options of
    its own run, and with those given here. The exit status is 1 if something differs.

    Not seen: names below a directory that was moved, what a refused call would have asked next, what a program would
    have done instead, and other names of a file but those that decided then. Where the verdict depends on what was not
    recorded, it is shown as what cannot be told. What the supervisor refuses without a rule stays refused; no person
    and no model is asked again.
    """
    from pincer_trace.ledger import read
    from pincer_trace.review.past import Past
    from pincer_trace.review.replay import Replay

    past = Past(read.find_session(session, session_dir))
    return 1 if print_replay(Replay(past, past.profile(profile, **overlay)), past, as_json=as_json) else 0


def print_replay(found: Replay, past: Past, *, as_json: bool, heading: str = "") -> bool:
    """Decide the session again and print what differs; whether something does."""
    import json

    from pincer_trace.cli import Printer, complain_of
    from pincer_trace.ui.progress import of_ledger

    with of_ledger(past.path) as progress:
        found.run(progress.tell)
    if as_json:
        for thing in found.objects():
            print(json.dumps(thing, separators=(",", ":")))
    else:
        printer = Printer()
        if heading:
            printer.line([(heading, "bold")])
        for line in found.lines():
            printer.line(line)
    complain_of(past.path, found.damage)
    return bool(found.differ)


@click.command()
@arguments.session
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@arguments.session_dir
def report(session: str | None, as_json: bool, session_dir: str | None) -> None:
    """Tell what a run did, all in all.

    What was refused and why, who allowed what, what it changed in the end, inside of the work tree and outside, what it
    started and whom it talked to, and whether the log can be trusted. SESSION is an id, a unique prefix of one, or a
    session's directory; without it, the latest. A run that goes on is told so far.
    """
    import json

    from pincer_trace.cli import Printer
    from pincer_trace.ledger import read
    from pincer_trace.review.page import Page
    from pincer_trace.review.told import of_session
    from pincer_trace.ui.progress import of_ledger

    path = read.find_session(session, session_dir)
    with of_ledger(path) as progress:
        told = of_session(path, progress.tell)
    if as_json:
        print(json.dumps(told.told(), separators=(",", ":")))
        return
    printer = Printer()
    for line in Page(told, _selector(path, session_dir), printer.width).lines():
        printer.line(line)


def _selector(path: str, session_dir: str | None) -> str:
    """How another command finds the session of the directory `path`."""
    from pincer_trace.ledger.session import sessions_directory

    parent, name = os.path.split(path)
    if session_dir is None and parent == os.path.abspath(sessions_directory()):
        return name
    return paths.display(shlex.quote(path))


def resolve_target(effect: str, target: str) -> bytes:
    """The path as the gateway gives it to a profile: absolute, real, of what the effect is about."""
    raw = os.fsencode(target)
    if not raw:
        raise UserError("TARGET is empty: name a path, or //HOST:PORT")
    if effect in effects.TO_PEERS and (raw.startswith(b"//") or (b":" in raw and b"/" not in raw)):
        return addresses.patterns(raw.removeprefix(b"//"))[0]
    head, tail = os.path.split(raw.rstrip(b"/"))
    if effect not in _ON_THE_ENTRY or tail in (b"", b".", b".."):
        return os.path.realpath(raw)
    return os.path.join(os.path.realpath(head or b"."), tail)


COMMANDS = (report, why, replay)
