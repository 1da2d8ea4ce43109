"""Facts and questions of rules as a person reads them."""

from __future__ import annotations

from pincer_trace import paths
from pincer_trace.ledger.read import raw
from pincer_trace.twin import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_KEYS = 8  # of a git configuration that are named


def question(asked: tuple[str, ...]) -> str:
    """What a rule asks, behind "asks"."""
    match asked:
        case (facts.OWN, *_):
            return "whether the run created it, or a directory above it"
        case (facts.OWN_DIRECTORY, directory, *_):
            return f"whether the run created {_name(directory)}, or a directory above that"
        case (facts.GIT_CONFIG,):
            return "which keys of git's configuration it changes"
        case (facts.GIT_DANGER,):
            return "whether its content makes git run a program"
        case (facts.BOUND,):
            return "whether the run bound this socket"
        case (facts.SINK, name):
            return f"whether it runs as the sink {paths.display(name, 100)}"
        case (facts.EXE | facts.TRUSTED_EXE,):
            return "which program it is"
    return asked[0]


def fact(row: object) -> str:
    """One row of a record's facts; empty for one that is none."""
    match row:
        case [facts.OWN, str(below), bool(answer)]:
            return f"the run created {'it, or' if answer else 'neither it nor'} a directory above it{_below(below)}"
        case [facts.OWN_DIRECTORY, str(folder), str(below), bool(answer)]:
            said = "created" if answer else "did not create"
            return f"the run {said} {_name(folder)}, or a directory above that{_below(below)}"
        case [facts.GIT_CONFIG, None]:
            return "what it changes of git's configuration is not known"
        case [facts.GIT_CONFIG, list(keys), *more]:
            return _changes(keys, more)
        case [facts.GIT_DANGER, None]:
            return "it goes away from where git reads it"
        case [facts.GIT_DANGER, ""]:
            return "its content makes git run nothing"
        case [facts.GIT_DANGER, str(danger)]:
            return f"its content could make git run a program: {paths.display(raw(danger), 600)}"
        case [facts.BOUND, bool(answer)]:
            return f"the run {'bound' if answer else 'did not bind'} this socket"
        case [facts.SINK, str(name), ""]:
            return f"it runs as the sink {paths.display(name, 100)}"
        case [facts.SINK, str(name), str(doubt)]:
            return f"it does not run as the sink {paths.display(name, 100)}: {paths.display(doubt, 200)}"
        case [facts.EXE, str(program)]:
            return f"the program is {_name(program)}"
        case [facts.TRUSTED_EXE, ""]:
            return "the program's name is not believed: the run could have written it"
        case [facts.TRUSTED_EXE, str(program)]:
            return f"the program is {_name(program)}, which the run cannot write"
        case [facts.ALSO, str(name)]:
            return f"it is also {_name(name)}"
    return ""


def all_facts(rows: object) -> list[str]:
    """Every row of a record, in order; those about another name with that in front."""
    said: list[str] = []
    about = ""
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [facts.ABOUT, str(effect), str(name)]:
                about = f"{paths.display(effect, 20)} {_name(name)}: "
            case _:
                text = fact(row)
                if text:
                    said.append(about + text)
    return list(dict.fromkeys(said))


def _changes(keys: list[object], more: Iterable[object]) -> str:
    if not keys:
        return "it changes no key of git's configuration"
    total = next((number for number in more if isinstance(number, int)), len(keys))
    named = ", ".join(paths.display(raw(str(key)), 100) for key in keys[:_KEYS])
    rest = f" and {total - _KEYS} more" if total > _KEYS else ""
    return f"of git's configuration it changes {named}{rest}"


def _below(directory: str) -> str:
    return "" if directory == "/" else f" below {_name(directory)}"


def _name(text: str) -> str:
    return paths.display(raw(text), 1000)
