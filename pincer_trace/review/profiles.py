"""`profile learn`, `profile check` and `profile diff` on the command line: profiles and recorded runs."""

from __future__ import annotations

import os
from typing import Any

import click

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ui import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pincer_trace.profile import Profile
    from pincer_trace.profile.model import Settings
    from pincer_trace.review.past import Past

_DEFAULT = "default"
_sessions = click.argument("sessions", nargs=-1, metavar="[SESSION]...")


@click.command("learn")
@_sessions
@click.option(
    "-o", "--output", metavar="FILE", help="Write it to FILE, which must not be there yet. [default: standard output]"
)
@click.option(
    "--protections",
    metavar="NAME|FILE",
    help="Keep the protections of this profile. [default: the runs' own, if it is one that ships, else default]",
)
@arguments.session_dir
def learn(sessions: tuple[str, ...], output: str | None, protections: str | None, session_dir: str | None) -> None:
    """Write a profile that allows what recorded runs did.

    SESSION is as for `log`; without one, the latest. Names become patterns: places such as {workspace}, `*` for what a
    program makes up anew each time, DIR/** where many names were made. What a run was refused, what a protection
    stands against and what the shipped profile does not allow is not taken over: it comes first, commented out.
    """
    from pincer_trace.__main__ import complain
    from pincer_trace.cli import complain_of
    from pincer_trace.ledger import read
    from pincer_trace.review.draft import draft
    from pincer_trace.review.generalise import Generaliser
    from pincer_trace.review.lessons import Lessons
    from pincer_trace.review.past import Past
    from pincer_trace.ui.progress import of_ledger

    if output is not None and os.path.lexists(output):
        raise UserError(
            f"{paths.display(output)} is there already: name another file, and compare them by `profile diff`"
        )
    pasts = [Past(read.find_session(session, session_dir)) for session in sessions or (None,)]
    keeps = _kept(pasts) if protections is None else protections
    lessons = Lessons()
    for past in pasts:
        with of_ledger(past.path) as progress:
            lessons.add(past, keeps, progress.tell)
    for path, damage in lessons.damage:
        complain_of(path, damage)
    patterns = Generaliser(lessons).patterns(lessons.deeds)
    text = draft(lessons, patterns, keeps)
    if output is None:
        print(text, end="")
    else:
        _write(output, text)
    kept = len(lessons.things())
    where = f"{paths.display(output)}: " if output is not None else ""
    said = f"{where}{paths.counted(len(patterns), 'pattern')} from {paths.counted(lessons.decisions, 'decision')}"
    complain(f"{said}; {paths.counted(kept, 'thing')} kept back, commented out" if kept else said)


def _kept(pasts: list[Past]) -> str:
    """The profile whose protections hold: that of the runs, where it ships and all have it."""
    names = {past.name for past in pasts}
    name = names.pop()
    if name == "observe":  # whose protections refuse nothing
        return _DEFAULT
    shipped = os.path.exists(os.path.join(paths.shipped_profiles(), f"{name}.toml"))
    return name if not names and "/" not in name and shipped else _DEFAULT


def _write(output: str, text: str) -> None:
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{paths.display(output)} cannot be written: {error.strerror}") from error


@click.command("check")
@click.argument("name", metavar="NAME|FILE")
@_sessions
@click.option(
    "--json", "as_json", is_flag=True, help="With SESSION: a JSON object for each group, and one with the counts."
)
@arguments.session_dir
def check(name: str, sessions: tuple[str, ...], as_json: bool, session_dir: str | None) -> int:
    """Check a profile; a mistake is told by file, line and key.

    With SESSION, also what it would refuse of what that run did, by itself, without the options of the run. The exit
    status is 1 if there is something.
    """
    from pincer_trace.cli import places_for
    from pincer_trace.ledger import read
    from pincer_trace.profile import load
    from pincer_trace.profile.show import count_rules, doubts
    from pincer_trace.review.commands import print_replay
    from pincer_trace.review.past import Past
    from pincer_trace.review.replay import Coverage

    places = places_for()
    loaded = load(name, places)
    if not as_json:
        files = ", ".join(paths.display(file) for file in loaded.paths)
        number = count_rules(name, places)
        print(f"{files}: fine, {paths.counted(number, 'rule')}, digest {loaded.digest.hex()[:16]}")
        for doubt in doubts(loaded):
            print(f"but {doubt}")
    differ = False
    for session in sessions:
        past = Past(read.find_session(session, session_dir))
        found = Coverage(past, past.alone(name))
        differ |= print_replay(found, past, as_json=as_json, heading=paths.display(past.id))
    return 1 if differ else 0


@click.command("diff")
@click.argument("one", metavar="NAME|FILE")
@click.argument("other", metavar="NAME|FILE")
@click.option("--command", metavar="PROGRAM", help="As in a run of PROGRAM: some rules are for one program only.")
def diff(one: str, other: str, command: str | None) -> int:
    """Show what the second profile decides differently, effect by effect.

    Settings come first, then where it allows more. All kinds of path that the patterns of both tell apart are tried, as
    they stand here and now, and each program that a rule names; behind a pattern is a path for which it is so. Where
    there are too many kinds, that is said. The exit status is 1 if something differs.
    """
    from pincer_trace.cli import Printer, places_for
    from pincer_trace.profile import load
    from pincer_trace.profile.compare import Comparison
    from pincer_trace.profile.show import effects_of

    places = places_for(command)
    first, second = load(one, places), load(other, places)
    comparison = Comparison(first, second)
    found = comparison.differences
    printer = Printer()
    settings = [*_settings_that_differ(first.settings, second.settings), *_given_that_differ(first, second)]
    for line in settings:
        printer.line([(line, "red")])
    heading: Any = None
    row: Any = None
    for each in found:
        if (each.verdicts, each.case) != heading:
            heading, row = (each.verdicts, each.case), None
            said = " -> ".join(each.verdicts) + (f", {each.case}" if each.case else "")
            printer.line([(said, "red" if each.loosens else "yellow")])
        sources = " -> ".join(paths.display(rule) or "no rule" for rule in each.rules)
        this = effects_of(frozenset(each.effects)), sources
        if this != row:
            row = this
            printer.line([(f"    {this[0]}", ""), (f"  ({sources})", "dim")])
        pattern = " and ".join(paths.display(text, 5000) for text in each.patterns)
        example = paths.display(each.example, 5000)
        printer.line([(f"        {pattern}", "bold"), (f"  such as {example}" if example != pattern else "", "dim")])
    if not found:
        printer.line([("nothing is decided differently", "")])
    if not comparison.complete:
        printer.line([("there are too many kinds of path for all of them: in what three rules or more match, something "
                       "may differ that is not told", "yellow")])  # fmt: skip
    return 1 if found or settings else 0


def _settings_that_differ(one: Settings, other: Settings) -> Iterator[str]:
    """What opens or closes something that no rule is about."""
    for name in ("mode", "floor", "udp", "view", "hold"):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            yield f"settings: {name} {' -> '.join(map(str, values))}"
    for names, sign in ((set(other.pass_env) - set(one.pass_env), "+"), (set(one.pass_env) - set(other.pass_env), "-")):
        for each in sorted(names):
            yield f"pass_env: {sign} {paths.display(each)}"
    for pairs, sign in ((set(other.set_env) - set(one.set_env), "+"), (set(one.set_env) - set(other.set_env), "-")):
        for pair in sorted(pairs):
            yield f"set_env: {sign} {'='.join(pair)}"


def _given_that_differ(one: Profile, other: Profile) -> Iterator[str]:
    """What is given beside the rules: all that only one has."""
    for sign, mine, theirs in (("-", _given(one), _given(other)), ("+", _given(other), _given(one))):
        for line in sorted(mine - theirs):
            yield f"{sign} {line}"


def _given(profile: Profile) -> set[str]:
    found = {f"broker {broker.name} to {paths.display(broker.upstream)}" for broker in profile.brokers}
    for sink in profile.sinks:
        told = sink.options, sink.operands, sink.outputs, sink.variables, sink.environment
        found.add(f"sink {sink.name}: {paths.display(repr(told), 5000)}")
    return found


COMMANDS = (learn, check, diff)
