"""The command line by click: help, mistakes, subcommands. The usual run never comes here (see `options`)."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, NoReturn

import click

from pincer_trace import __version__, effects, paths
from pincer_trace import options as table
from pincer_trace.errors import UserError
from pincer_trace.review.commands import COMMANDS as REVIEWS
from pincer_trace.review.profiles import COMMANDS as PROFILES
from pincer_trace.ui import arguments
from pincer_trace.ui.commands import COMMANDS as ANSWERS
from pincer_trace.ui.secrets import COMMANDS as SECRETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.profile import Places

NAME = "pincer-trace"
SEE = f"see {NAME} --help"


def _descriptor(value: str) -> int:
    number = table.descriptor(value)
    if number is None:
        raise click.BadParameter(f"{value!r} is no descriptor number from {table.FIRST_FD} on")
    return number


_KINDS: dict[str, dict[str, Any]] = {
    table.FLAG: {"is_flag": True},
    table.TEXT: {},
    table.NUMBERS: {"multiple": True, "type": _descriptor},
}


class _Main(click.Group):
    """The group: its own options are those of a run, so that one help text shows all."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] -- COMMAND [ARG...]"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        command = self.get_command(ctx, word)
        if command is None:
            import shlex

            what = "`" + paths.display(shlex.join(args)) + "`" if word else "an empty word"
            again = f": {NAME} -- {paths.display(shlex.join(args), 200)}" if word else ""
            raise UserError(f"{what} is no subcommand; to run a command put -- before it{again}")
        given = [p for p in self.params if ctx.get_parameter_source(p.name or "") is not _DEFAULT]
        if given:
            raise UserError(f"{given[0].opts[-1]} is an option of a run and cannot stand before `{word}`; {SEE}")
        return word, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subcommands"):
            rows = [(name, command.get_short_help_str(60)) for name, command in self.commands.items()]
            formatter.write_dl(rows)


_DEFAULT = click.core.ParameterSource.DEFAULT


def _click_options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for row in table.TABLE:
        more = dict(_KINDS.get(row.kind, {"multiple": True}))
        if row.choices:
            more = {"type": click.Choice(row.choices), "multiple": row.kind == table.CHOICES}
        if row.kind == table.CHOICE:
            more |= {"default": row.default, "show_default": True}
        options.append(click.Option([*row.flags, row.name], metavar=row.metavar or None, help=row.help, **more))
    return options


@click.group(
    cls=_Main,
    invoke_without_command=True,
    params=_click_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="-- COMMAND [ARG...]",
)
@click.version_option(__version__, "-V", "--version", prog_name=NAME, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, /, **_options: object) -> None:
    """Run COMMAND with every effect judged, recorded and performed by a supervisor.

    The exit status is the command's own; 125 is a failure of pincer-trace or a mistake in how it was called, 126 and
    127 are as in a shell.
    """
    if ctx.invoked_subcommand is None:
        raise UserError(f"no command given: {NAME} -- COMMAND [ARG...]; {SEE}")


def dispatch(argv: list[str]) -> int:
    """Do what `argv` says: a run, or a subcommand; the exit status. Raises `UserError`."""
    head, command = table.split(argv)
    try:
        if command is not None:
            options = parse_run(head, command)
            from pincer_trace.front import run

            return run(options)
        _prepare_output()
        with main.make_context(NAME, head) as ctx:
            result = main.invoke(ctx)
        _flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        sub = error.ctx is not None and error.ctx.parent is not None
        see = f"see {error.ctx.command_path} --help" if error.ctx is not None and sub else SEE
        raise UserError(f"{_one_line(error.format_message())}; {see}") from None
    except click.ClickException as error:
        raise UserError(_one_line(error.format_message())) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise UserError(f"{paths.display(os.fsencode(error.filename))}: {error.strerror}") from error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python's flush at exit complains once more
        raise UserError(f"cannot write the output: {error.strerror}") from error


def parse_run(head: list[str], command: list[str]) -> table.RunOptions:
    """A run that the quick parser left to click: options in other forms, mistakes, `--help`.

    Raises `click.ClickException`, `click.exceptions.Exit` after help, and `UserError`.
    """
    with main.make_context(NAME, head) as ctx:
        values = ctx.params
    if not command:
        raise UserError(f"no command after --: {NAME} -- COMMAND [ARG...]; {SEE}")
    options = table.RunOptions(command)
    for row in table.TABLE:
        value = values[row.name]
        setattr(options, row.name, list(value) if isinstance(value, tuple) else value)
    return options


def _flush() -> None:
    """Now, while an error can still be told; Python's own flush at exit is too late."""
    if sys.stdout is not None:  # None when descriptor 1 was closed
        sys.stdout.flush()


def _one_line(message: str) -> str:
    return " ".join(message.split()).rstrip(".")


def _prepare_output() -> None:
    """A reader that stops early (`log | head`) ends us quietly; narrow encodings get escapes, not errors."""
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class Printer:
    """Lines of styled pieces on standard output: colours by rich on a terminal, plain text anywhere else."""

    def __init__(self) -> None:
        self.width: int | None = None
        self._console: Any = None
        if sys.stdout is not None and sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
            self.width = self._console.width

    def line(self, pieces: list[tuple[str, str]]) -> None:
        """Print one line."""
        if self._console is None:
            print("".join([text for text, _ in pieces]).rstrip())
            return
        from rich.text import Text

        text = Text()
        for piece, style in pieces:
            text.append(piece, style or None)
        self._console.print(text)


@main.command()
@arguments.session
@click.option("--json", "as_json", is_flag=True, help="One JSON object a decision.")
@click.option("--effect", "effect", multiple=True, metavar="EFFECT", help="Only this effect. Repeatable.")
@click.option(
    "--verdict",
    multiple=True,
    type=click.Choice(["allow", "view", "confirm", "deny"]),
    help="Only these. Repeatable.",
)
@click.option("--path", "glob", multiple=True, metavar="GLOB", help="Only matching paths; * crosses slashes.")
@click.option("--pid", multiple=True, type=int, metavar="PID", help="Only of this process. Repeatable.")
@arguments.session_dir
def log(
    session: str | None,
    as_json: bool,
    effect: tuple[str, ...],
    verdict: tuple[str, ...],
    glob: tuple[str, ...],
    pid: tuple[int, ...],
    session_dir: str | None,
) -> None:
    """Show what a session did, decision by decision.

    SESSION is an id, a unique prefix of one, or a session's directory; without it, the latest.
    """
    import json

    from pincer_trace.ledger import read, show
    from pincer_trace.ui.progress import of_ledger

    for name in effect:
        _check_effect(name)
    wanted = show.Filter(_members(effect), verdict, glob, pid)
    damage: list[dict[str, Any]] = []
    path = read.find_session(session, session_dir)
    with of_ledger(path) as progress:
        found = (d for d in read.decisions(path, damage, tell=progress.tell) if wanted.wants(d))
        if as_json:
            for decision in found:
                progress.hide()
                print(json.dumps(decision, separators=(",", ":")))
        else:
            printer = Printer()
            printer.line([(show.LOG_HEADER, show.BOLD)])
            for decision in found:
                progress.hide()
                for line in show.decision_lines(decision, printer.width):
                    printer.line(line)
    complain_of(path, damage)


def complain_of(path: str, damage: list[dict[str, Any]]) -> None:
    """Tell of torn lines."""
    from pincer_trace.__main__ import complain
    from pincer_trace.ledger.read import MOST_TORN

    for record in damage:
        complain(f"{paths.display(path)}: line {record['line']} of the ledger is torn ({record['bytes']} bytes)")
    if len(damage) == MOST_TORN:
        complain(f"{paths.display(path)}: and perhaps more: no more than {MOST_TORN} are told")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a session.")
@arguments.session_dir
def sessions(as_json: bool, session_dir: str | None) -> None:
    """List sessions, the latest first.

    ALLOWED counts effects without the reads; DENIED what was refused and would have been done without us.
    """
    import json

    from pincer_trace.__main__ import complain
    from pincer_trace.ledger import read, show
    from pincer_trace.ledger.session import sessions_directory

    parent = sessions_directory(session_dir)
    printer = Printer()
    ids, unfinished = read.listed_ids(session_dir)
    if not as_json and ids:
        printer.line([(show.SESSIONS_HEADER, show.BOLD)])
    for name in reversed(ids):
        path = os.path.join(os.path.abspath(parent), name)
        try:
            facts = read.load_session(path)
            counts = facts.get("counts")
            if not isinstance(counts, dict):
                counts = facts["counts"] = read.count_records(path)
        except UserError as error:
            complain(str(error))
            continue
        if as_json:
            print(json.dumps(facts, separators=(",", ":")))
        else:
            printer.line(show.session_line(facts, counts, printer.width))
    if unfinished:
        complain(f"passed over what has no session.json, a start that failed: {read.some(unfinished)}")


@main.command()
@arguments.session
@click.option("--key", metavar="HEX", help="The session's public key, where you kept a copy of it elsewhere.")
@arguments.session_dir
def verify(session: str | None, key: str | None, session_dir: str | None) -> int:
    """Check that a session's ledger is whole and was not changed.

    Every record is chained to all before it, and the supervisor signed heads of the chain with a key that it never
    wrote; the public half is in session.json. The exit status is 1 when something is wrong.
    """
    from pincer_trace.ledger import read
    from pincer_trace.ledger.verify import verify as examine
    from pincer_trace.ui.progress import of_ledger

    path = read.find_session(session, session_dir)
    with of_ledger(path) as progress:
        found = examine(path, key, tell=progress.tell)
    printer = Printer()
    for fault in found.faults:
        printer.line([("wrong  ", ""), (fault, "")])
    for note in found.notes:
        printer.line([("note   ", ""), (note, "")])
    records = paths.counted(found.records, "record")
    if found.faults:
        printer.line([(f"{paths.display(path)}: NOT what was written", "")])
        return 1
    printer.line([(f"{paths.display(path)}: {records}, whole; signed up to record {found.signed}", "")])
    return 0


@main.command()
def doctor() -> int:
    """Try out what this machine offers.

    Each probe attempts an act in a child. The exit status is 1 if something is missing that every run needs.
    """
    from pincer_trace.doctor import examine

    printer = Printer()
    ready = True
    for finding in examine():
        ready = ready and (finding.ok or not finding.required)
        for line in finding.lines():
            printer.line(line)
    return 0 if ready else 1


def places_for(command: str | None = None) -> Places:
    """The places of a run of `command` that began here."""
    import shutil

    from pincer_trace.profile import Places

    cwd = _working_directory()
    if command is not None:
        found = shutil.which(command)
        if found is None:
            raise UserError(f"no program {paths.display(command)}: name one on PATH, or its file")
        command = found
    return Places.of(cwd, os.environ, command)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UserError(f"the working directory cannot be used: {error.strerror}; cd to one that exists") from error


@main.command()
@click.argument("agent", metavar="AGENT", type=click.Choice(["claude"]))
def hook(agent: str) -> int:
    """For an agent's own hooks: tell it what was refused.

    AGENT is claude. The event is read from standard input, the answer goes to standard output.
    """
    from pincer_trace.hook import main as run_hook

    return run_hook([agent])


@main.group("profile", invoke_without_command=True)
@click.pass_context
def profiles(ctx: click.Context) -> None:
    """List, show, check, compare and learn profiles."""
    if ctx.invoked_subcommand is None:
        raise click.UsageError(f"no subcommand: {NAME} profile list, show, check, diff or learn", ctx)


@profiles.command("list")
def profile_list() -> None:
    """List the profiles that -p knows by name."""
    from pincer_trace.profile.show import available

    printer = Printer()
    for name, description, _ in available(places_for()):
        printer.line([(f"{paths.display(name):14}  ", "bold"), (paths.display(description), "")])


@profiles.command("show")
@click.argument("name", required=False, metavar="[NAME|FILE]")
@click.option("--command", metavar="PROGRAM", help="As in a run of PROGRAM: some rules are for one program only.")
def profile_show(name: str | None, command: str | None) -> None:
    """Show a profile's rules, as they are here and now; by default those that PROGRAM would have.

    Placeholders are filled in. The strongest rule comes first: of those that match, the first one decides.
    """
    from pincer_trace.profile import load
    from pincer_trace.profile.chosen import profile_for
    from pincer_trace.profile.show import describe

    places = places_for(command)
    print(describe(load(name or profile_for(places.command), places)), end="")


for _command in PROFILES:
    profiles.add_command(_command)
for _command in (*REVIEWS, *ANSWERS, *SECRETS):
    main.add_command(_command)


def _check_effect(name: str) -> None:
    if name not in effects.EFFECTS and name not in effects.GROUPS:
        refuse_effect(name, *effects.GROUPS)


def refuse_effect(name: str, *groups: str) -> NoReturn:
    """Say which effects there are."""
    known = ", ".join([*sorted(effects.EFFECTS), *groups])
    raise click.UsageError(f"no effect {paths.display(name)}: one of {known}", click.get_current_context())


def _members(names: tuple[str, ...]) -> tuple[str, ...]:
    """Effects with groups (`change`, `any`) replaced by their members."""
    return tuple(e for name in names for e in sorted(effects.GROUPS.get(name, {name})))
