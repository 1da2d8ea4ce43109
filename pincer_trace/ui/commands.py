"""`monitor`, the live view; `pending`, `approve`, `deny`: the same for scripts, screen readers, who likes it plain."""

from __future__ import annotations

import click

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ui import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _question_id(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and value.strip("0") and len(value) <= 12):
        raise click.BadParameter(f"{value!r} is no number of a question, as `pincer-trace pending` shows it")
    return int(value)


_question = click.argument("number", metavar="ID", type=_question_id)


@click.command()
@arguments.session
@click.option("--json", "as_json", is_flag=True, help="One JSON object a question.")
@arguments.session_dir
def pending(session: str | None, as_json: bool, session_dir: str | None) -> None:
    """Show what waits for an answer.

    Of SESSION, an id, a unique prefix of one, or a session's directory; without it, of all that go on.
    """
    import json
    import shlex

    from pincer_trace.cli import Printer
    from pincer_trace.ui import feed
    from pincer_trace.ui.answers import question_lines

    feed.refuse_when_supervised()
    chosen = [feed.choose(session, session_dir)] if session is not None else feed.running(session_dir)
    printer = Printer()
    number = 0
    for facts in chosen:
        try:
            with feed.Feed(facts) as connection:
                questions = connection.ask(op="pending")["questions"]
        except UserError:
            if session is not None:
                raise
            continue  # it ended just now
        number += len(questions)
        if as_json:
            for question in questions:
                print(json.dumps({"session": facts["id"], **question}, separators=(",", ":")))
        elif questions:
            printer.line([(f"session {paths.display(str(facts['id']))}", "dim")])
            for question in questions:
                for line in question_lines(question):
                    printer.line(line)
    if not as_json:
        which = " SESSION" if len(chosen) > 1 else f" {shlex.quote(paths.display(session))}" if session else ""
        where = f" --session-dir {shlex.quote(paths.display(session_dir))}" if session_dir is not None else ""
        said = f"answer: pincer-trace approve ID{which}{where}, or deny ID{which}{where}"
        printer.line([(said if number else "nothing waits for an answer", "dim")])


@click.command()
@_question
@arguments.session
@click.option(
    "--for",
    "kind",
    type=click.Choice(["once", "session", "always"]),
    default="once",
    show_default=True,
    help="How long the yes holds: for one use within ten minutes, until the session ends, or in later runs too, by "
    "lines in your profile.",
)
@arguments.session_dir
def approve(number: int, session: str | None, kind: str, session_dir: str | None) -> None:
    """Allow what question ID asks for.

    Without SESSION, in the only session that goes on.
    """
    from pincer_trace.ui.answers import outcome

    facts = _chosen(session, session_dir)
    question = _find(facts, number) if kind == "always" else None
    if question is None:
        answer = _answer(facts, number, kind)
        print(outcome(f"allowed {'once' if kind == 'once' else 'for the session'}", answer))
        return
    from pincer_trace.ui import always

    try:
        addition = always.addition(facts, question)
    except always.NoLine as why:
        print(outcome("allowed for the session", _answer(facts, number, "session")))
        print(f"not always: {why}")
        return
    print(outcome("allowed always", _answer(facts, number, kind)))
    file = paths.display(addition.file)
    print(f"{'added to' if addition.write() else 'already in'} {file}, for later runs:")
    print(addition.text, end="")


@click.command()
@_question
@arguments.session
@click.option("--session", "all_session", is_flag=True, help="Deny it until the session ends; no yes lifts that.")
@arguments.session_dir
def deny(number: int, session: str | None, all_session: bool, session_dir: str | None) -> None:
    """Refuse what question ID asks for.

    Without SESSION, in the only session that goes on.
    """
    from pincer_trace.ui.answers import outcome

    answer = _answer(_chosen(session, session_dir), number, "deny-session" if all_session else "deny")
    print(outcome("denied for the session" if all_session else "denied", answer))


@click.command()
@arguments.session
@click.option("--compact", is_flag=True, help="A few lines, for a pane below the agent; it ends with the session.")
@click.option("--mouse/--no-mouse", default=True, help="Whether clicks and the wheel come to us.  [default: mouse]")
@arguments.session_dir
def monitor(session: str | None, compact: bool, mouse: bool, session_dir: str | None) -> None:
    """Watch a session live, and answer its questions.

    SESSION is an id, a unique prefix of one, or a session's directory; without it, the latest that goes on, else the
    latest. Press ? for the keys.
    """
    from pincer_trace.ui.monitor.start import run

    run(session, session_dir, view="compact" if compact else "full", mouse=mouse)


COMMANDS = (monitor, pending, approve, deny)


def _chosen(session: str | None, session_dir: str | None) -> dict[str, Any]:
    from pincer_trace.ui import feed

    feed.refuse_when_supervised()
    return feed.choose(session, session_dir)


def _find(facts: dict[str, Any], number: int) -> dict[str, Any] | None:
    """The open question; None where there is none, about which the supervisor has the words."""
    from pincer_trace.ui.feed import Feed

    with Feed(facts) as connection:
        questions = connection.ask(op="pending")["questions"]
    return next((each for each in questions if each.get("id") == number), None)


def _answer(facts: dict[str, Any], number: int, kind: str) -> dict[str, Any]:
    from pincer_trace.ui.feed import Feed

    with Feed(facts) as connection:
        return connection.ask(op="answer", id=number, answer=kind)
