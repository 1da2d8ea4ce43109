"""docs/profiles.md: the reference of profile files, made from the tables that read them and the rules that decide.

What each key is for stands here, once; a key without words, or words without a key, is an error.
`scripts/reference-page` writes the page.
"""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Iterator

import msgspec

from pincer_trace import effects, paths
from pincer_trace.profile import loading, model, source

_KEYS: dict[object, dict[str, str]] = {
    source.ProfileFile: {
        "description": "What it is for, in a line: `profile list` shows it.",
        "extends": "A profile, by name or file, all of which holds here; what this file says comes after it. A file "
        "of your own that extends its own name means the shipped profile of that name.",
        "protections": "A profile whose protections hold here, and none of its grants.",
        "settings": "See below.",
        "protect": "See below.",
        "rule": "The rules, in order.",
        "pass_env": "Credentials in the environment that the command gets.",
        "set_env": "Switches in the environment that the command gets.",
        "broker": "Keys that the command uses and never holds.",
        "sink": "Programs that may read secrets, since they are started so that they show none. While there is one, "
        "nobody in the run traces processes or reads their memory.",
    },
    source.SettingsTable: {
        "floor": "What the kernel refuses to the command by itself, whatever we do: every file effect, too; or, "
        "`scoped`, not those, so that the command can make mounts of its own, as `bwrap` does.",
        "hold": "For how many seconds a call waits for an answer, with `--confirm ask`.",
        "udp": "Whether there are UDP sockets, whose receivers nothing can judge.",
        "mode": "`observe`: the rules refuse nothing; what they would refuse is done and recorded.",
        "view": "How much a view of a secret tells: names and structure; the `lengths` of values, too; or "
        "`strict-symbolic`, one handle and nothing else.",
    },
    source.ProtectTable: {
        "scan": "Whether the home and the work tree are looked through at the start for files which a pattern that "
        "begins with `**` protects, and which have other names (hard links): they are protected by each of them then. "
        "A run does not start where there is too much to look through.",
    },
    source.RuleTable: {
        "effects": "Which effects it is about: names of effects, or groups.",
        "paths": "Patterns of paths, or of peers.",
        "verdict": "`allow` it, let a `view` be read in which secrets are handles, have it `confirm`ed, or `deny` it.",
        "reason": "Why, for whom it concerns: it is recorded and shown.",
        "when": "A condition: it counts only where that holds.",
        "exe": "Only for calls of processes that run these executables. A label, not a boundary.",
        "command": "Only in runs that were started with these executables. A label, too.",
        "protection": "Whether it is asked before the grants.",
        "expected": "Of `deny`, for exact peers and paths (a `*` may be a directory in one): honest use asks so often "
        "in a run for each, too. So many "
        "refusals are recorded, but counted apart; from then on each is a denial. With `exe`, only those of programs "
        "that the run cannot change. Not in a file of the work tree.",
    },
    source.PassEnvTable: {
        "names": "Variables; a `*` at the end of one stands for any rest.",
        "reason": "Why.",
        "command": "Only in runs that were started with these executables.",
    },
    source.SetEnvTable: {
        "variables": 'Variables and their values, such as `DISABLE_TELEMETRY = "1"`: switches, no files, programs or '
        "hosts. One that the person has set keeps that value; an empty one takes back what an extended file sets.",
        "reason": "Why.",
        "command": "Only in runs that were started with these executables.",
    },
    source.BrokerTable: {
        "name": "One of the same name replaces it in a file that extends this one.",
        "upstream": "The one address that requests are passed on to.",
        "base_url": "The variable in which the command finds the broker.",
        "variables": "The variables that hold the key for us, and a handle for the command.",
        "file": "A file that holds the key of the first variable where that is not set.",
        "arguments": "For a program that reads no such variable: put in front of its arguments, with the address of "
        "the broker for `{base_url}`. The variable `base_url` then only tells us of another upstream.",
        "needs": "A file, and a text in it: only where that is so does the program take the address of the broker. "
        "Else there is none, and nothing keeps the key.",
        "command": "Only in runs that were started with these executables.",
    },
    source.SinkTable: {
        "name": "One of the same name replaces it in a file that extends this one.",
        "exe": "Patterns of its executable, which nothing in the run may be able to change.",
        "paths": "Patterns of the secrets that it reads; without any, and without variables, there is no such sink.",
        "operands": "Regular expressions, each for one argument behind the options: exactly these.",
        "reason": "Why, for whom it concerns: it is recorded and shown.",
        "options": "Regular expressions for what may stand in front, in any order: a word that begins with `-`, or "
        "with a space between, such a word and its value.",
        "outputs": "Patterns of files in which it puts nothing of a secret: signatures, say. Everything else that it "
        "writes once it has read one is protected as that is.",
        "variables": "Variables of its environment in which a handle becomes what it stands for: a value of a view of "
        "one of its `paths`, or one of these variables, which the command gets as handles.",
        "environment": "Further variables that it keeps then, beside some that mislead nobody (`PATH`, `LANG`, ...); a "
        "`*` at the end stands for any rest.",
    },
}
_WHEN = {
    model.OWN: "the object, or a directory above it, was created in this session by what is supervised",
    model.OWN_ANCHOR: "the component after the first `**`, or a directory above it, was created so",
    model.OWN_ABOVE: "a directory above that component was created so",
    model.GIT_CONFIG: "the new content changes no key that makes git run a program, look elsewhere, or trust another",
    model.GIT_INERT: "what appears there makes git run nothing; judged when it is written, also of a new file",
    model.GIT_ACTIVE: "(not with `allow`) the opposite, and whatever is not known",
    model.BOUND: "(of `connect`) the socket was bound in this session by what is supervised; of `//HOST:PORT`, every "
    "one that listens there",
}
_PLACES = {
    "workspace": "the git work tree around the working directory, or that directory",
    "git_common": "the repository of the work tree; nothing where there is none",
    "home": "the user's home",
    "homes": "every home: the user's, `/root` and those in `/home`",
    "cache": "`$XDG_CACHE_HOME`, or `~/.cache`",
    "config": "`$XDG_CONFIG_HOME`, or `~/.config`",
    "data": "`$XDG_DATA_HOME`, or `~/.local/share`",
    "tmp": "`$TMPDIR`, or `/tmp`",
    "state": "where pincer-trace keeps sessions",
    "path_dirs": "directories on PATH that the user can write, or that lie in a home",
    "self": "what pincer-trace runs from and keeps",
    "interpreter": "the same",
    "command": "the executable that was started",
}
_EFFECTS = {
    effects.READ: "open a file to read it, or list a directory",
    effects.WRITE: "open a file that is there to write it, or put another in its place",
    effects.CREATE: "make a file",
    effects.TRUNCATE: "cut a file, or empty it",
    effects.RENAME: "give something another name: judged of both names",
    effects.LINK: "give a file a second name: judged of both names",
    effects.SYMLINK: "make a symbolic link",
    effects.UNLINK: "take a file away",
    effects.RMDIR: "take a directory away",
    effects.MKDIR: "make a directory",
    effects.MKNOD: "make a FIFO, a socket or a device",
    effects.CHMOD: "set permissions",
    effects.CHOWN: "set the owner or the group",
    effects.UTIME: "set times",
    effects.XATTR: "set or remove an extended attribute or a flag",
    effects.EXEC: "start a program",
    effects.CONNECT: "connect to a socket, by its path or as `//HOST:PORT`",
    effects.BIND: "make a socket that others can find by its path",
    effects.SEND: "send to a socket that was not connected",
}
_SHOWN = {str: "text", bool: "true or false", float: "number", int: "number"}
_HEAD = """\
# Profiles

<!-- Made by scripts/reference-page; change pincer_trace/profile/reference.py, and run that. -->

A profile is a TOML file that says what a command may do. `pincer-trace profile list` names those that ship and your
own, `pincer-trace profile show NAME` prints all rules of one as they are here, `pincer-trace profile check FILE` finds
mistakes, and `pincer-trace why EFFECT TARGET` tells which rule decides. `-p NAME` takes one by name: your own in
`~/.config/pincer-trace/profiles` before those that ship; a value with a slash, or that ends in `.toml`, is a file.

```toml
description = "the default, and the folder of the data"
extends = "default"

[[rule]]
effects = ["create", "write", "truncate"]
paths = ["/srv/data/**"]
verdict = "allow"
reason = "results go there"
```

## Which rule decides

Three layers are asked in turn; in each the last matching rule wins.

1. Built in: what protects pincer-trace itself. No profile and no option opens it.
2. Protections, rules with `protection = true`: `confirm` and `deny` decide; `allow` lifts the protections written
   before it, and grants nothing; `view` does so for reads, of which no more than a view is allowed.
3. Grants, all other rules. Where none matches, it is denied.
"""
_PATTERNS = """\
## Patterns

A path is absolute and real: links are resolved, and names of the object that was pinned are judged.

| | |
|---|---|
| `*` `?` `[abc]` `[a-z]` `[!abc]` | any run of bytes, one byte, one of a set; never a slash |
| `**` | any number of whole components, none included: `/x/**` is `/x` and all below it |
| `{a,b}` | alternatives; they nest and may hold slashes |
| a backslash | takes the next byte literally |
| `{home}/...` | a place, at the beginning |
| `//HOST:PORT` | a host and port: `//example.com:443`, `//*.example.com:*`, `//10.0.0.0/8:443`, `//[fd00::/8]:*` |
| `//@NAME` | an abstract socket |
"""


def page() -> str:
    """The whole page."""
    out = [_HEAD, "## Profiles that ship", "", *_shipped(), ""]
    for table, title in _titles().items():
        out += [f"## {title}", "", *_keys(table), ""]
    names = ", ".join(f"`{name}`" for name in sorted(effects.CHANGES))
    out += ["## Effects", "", *_rows(_EFFECTS, sorted(effects.EFFECTS)), ""]
    out += [f"Groups: `change` is all that alter files ({names}); `any` is everything.", ""]
    out += ["## Conditions", "", "`when` counts where", "", *_rows(_WHEN, filter(None, model.CONDITIONS)), ""]
    out += [_PATTERNS, "Places:", "", *_rows(_PLACES, loading.PLACEHOLDERS, "{{{}}}")]
    return "\n".join(out).rstrip() + "\n"


def _titles() -> dict[type[msgspec.Struct], str]:
    return {
        source.ProfileFile: "The file",
        source.SettingsTable: "`[settings]`",
        source.ProtectTable: "`[protect]`",
        source.RuleTable: "`[[rule]]`",
        source.PassEnvTable: "`[[pass_env]]`",
        source.SetEnvTable: "`[[set_env]]`",
        source.BrokerTable: "`[[broker]]`",
        source.SinkTable: "`[[sink]]`",
    }


def _shipped() -> Iterator[str]:
    yield "| profile | what it is for |"
    yield "|---|---|"
    directory = paths.shipped_profiles()
    for file in sorted(os.listdir(directory)):
        parsed = msgspec.toml.decode(loading.read(os.path.join(directory, file)))
        yield f"| `{file.removesuffix('.toml')}` | {parsed['description']} |"


def _keys(table: type[msgspec.Struct]) -> Iterator[str]:
    hints = typing.get_type_hints(table)
    words = _KEYS[table]
    fields = msgspec.structs.fields(table)
    _same(words, [field.name for field in fields], table.__name__)
    yield "| key | value | |"
    yield "|---|---|---|"
    for field in fields:
        needed = "" if not field.required else " **Needed.**"
        yield f"| `{field.name}` | {_value(hints[field.name])} | {words[field.name]}{needed} |"


def _value(hint: typing.Any) -> str:
    """A type in words."""
    kind = typing.get_origin(hint)
    if kind in (typing.Union, types.UnionType):
        return " or ".join(_value(each) for each in typing.get_args(hint) if each is not type(None))
    if kind is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if kind is list:
        (of,) = typing.get_args(hint)
        return "tables" if _is_table(of) else f"list of {_value(of)}s"
    if kind is dict:
        return "a table of texts"
    return "a table" if _is_table(hint) else _SHOWN[hint]


def _is_table(hint: typing.Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _rows(words: dict[str, str], names: typing.Iterable[str], form: str = "{}") -> Iterator[str]:
    names = list(names)
    _same(words, names, "the words")
    yield "| | |"
    yield "|---|---|"
    for name in names:
        yield f"| `{form.format(name)}` | {words[name]} |"


def _same(words: dict[str, str], names: list[str], of: str) -> None:
    if set(words) != set(names):
        raise LookupError(f"{of}: words and names differ: {', '.join(sorted(set(words) ^ set(names)))}")
