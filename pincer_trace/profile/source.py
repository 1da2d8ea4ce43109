"""A profile file as a person writes it: TOML, checked key by key, compiled to rows without placeholders
filled in.

Each error is one line, `FILE:LINE: rule N: key 'KEY': what is wrong`. Neither tomllib nor msgspec tells the
line of a value, so the text is scanned for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from pincer_trace import effects
from pincer_trace.broker.upstream import Upstream
from pincer_trace.errors import UserError
from pincer_trace.paths import display
from pincer_trace.profile import addresses, globs, loading, model, sinks, switches

if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.profile.loading import Brokered, Compiled, Passed, Pattern, Row, Switched
    from pincer_trace.profile.places import Places
    from pincer_trace.profile.sinks import Sinking


class RuleTable(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[rule]]`. All keys but the first four are optional."""

    effects: list[str]
    paths: list[str]
    verdict: Literal["allow", "view", "confirm", "deny"]
    reason: str
    when: Literal["own", "own-anchor", "own-above", "git-config", "git-inert", "git-active", "bound"] | None = None
    exe: list[str] | None = None
    command: list[str] | None = None
    protection: bool = False
    expected: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None


class PassEnvTable(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[pass_env]]`: environment variables that the command gets although they hold credentials."""

    names: list[str]
    reason: str
    command: list[str] | None = None


class SetEnvTable(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[set_env]]`: switches in the environment that the command gets where the person has not set them."""

    variables: dict[str, str]
    reason: str
    command: list[str] | None = None


class BrokerTable(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[broker]]`: keys that stay with the supervisor. One of the same name in a file that extends this one
    replaces it; without variables there is none.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]
    upstream: str
    base_url: str
    variables: list[str]
    file: str = ""
    arguments: list[str] = []
    needs: list[str] = []
    command: list[str] | None = None


class SinkTable(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[sink]]`: a program that may read secrets, started so that it prints none. One of the same name in a file
    that extends this one replaces it; without paths and variables there is none.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]
    exe: list[str]
    paths: list[str]
    operands: list[str]
    reason: str
    options: list[str] = []
    outputs: list[str] | None = None
    variables: list[str] = []
    environment: list[str] = []


class SettingsTable(msgspec.Struct, forbid_unknown_fields=True):
    """`[settings]`."""

    floor: Literal["full", "scoped"] | None = None
    hold: Annotated[float, msgspec.Meta(ge=1, le=600)] | None = None  # seconds
    udp: Literal["refused", "unpoliced"] | None = None
    mode: Literal["enforce", "observe"] | None = None
    view: Literal["default", "lengths", "strict-symbolic"] | None = None


class ProtectTable(msgspec.Struct, forbid_unknown_fields=True):
    """`[protect]`."""

    scan: bool | None = None


class ProfileFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole file. `extends` takes all rules and settings of another profile; `protections` its protections alone."""

    description: str = ""
    extends: str | None = None
    protections: str | None = None
    settings: SettingsTable = msgspec.field(default_factory=SettingsTable)
    protect: ProtectTable = msgspec.field(default_factory=ProtectTable)
    rule: list[RuleTable] = []
    pass_env: list[PassEnvTable] = []
    set_env: list[SetEnvTable] = []
    broker: list[BrokerTable] = []
    sink: list[SinkTable] = []


_TABLES = {
    "rule": RuleTable,
    "pass_env": PassEnvTable,
    "set_env": SetEnvTable,
    "broker": BrokerTable,
    "sink": SinkTable,
}
_STRUCTS = {**_TABLES, "settings": SettingsTable, "protect": ProtectTable, "": ProfileFile}


def compile_profile(path: str, content: bytes, places: Places) -> Compiled:
    """A file and those it extends, as rows: the extended ones first. Errors: `UserError`."""
    reading = _Reading(places)
    reading.read(path, content, ())
    usual = model.Settings()
    floor, hold, udp, mode, view = usual.floor, usual.hold, usual.udp, usual.mode, usual.view
    for table in reading.settings:
        floor = table.floor or floor
        hold = table.hold or hold
        udp = table.udp or udp
        mode = table.mode or mode
        view = table.view or view
    settings = (floor, hold, udp, mode, view, tuple(reading.passed), tuple(reading.switched), reading.scan)
    rows = reading.rows if mode != model.OBSERVE else _asking(reading.rows)
    brokers = [broker for broker in reading.brokers.values() if broker[0][3]]
    sinkings = [sinking for sinking in reading.sinks.values() if sinking[2] or sinking[0][3]]
    digest = loading.digest_of_rows(settings, rows, brokers, sinkings)
    return reading.description, settings, rows, reading.dependencies, digest, brokers, sinkings


def _asking(rows: list[Row]) -> list[Row]:
    """The same with a confirmation in place of each refusal: a run that observes confirms all of it, and its records
    tell what would have been refused, by which rule.
    """
    return [(*row[:2], row[2] if row[2] == model.ALLOW else model.CONFIRM, *row[3:]) for row in rows]


class _Reading:
    """What a file and those that it names say, the named ones first."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.description = ""
        self.settings: list[SettingsTable] = []
        self.scan = False
        self.rows: list[Row] = []
        self.passed: list[Passed] = []
        self.switched: list[Switched] = []
        self.brokers: dict[str, Brokered] = {}
        self.sinks: dict[str, Sinking] = {}
        self.dependencies: list[tuple[str, str, bytes]] = []

    def read(self, path: str, content: bytes, above: tuple[str, ...]) -> None:
        """Add a file. `above` are the real paths of those that led to it."""
        parsed, lines = _parse(path, content)
        above = (*above, os.path.realpath(path))
        for key, value in (("extends", parsed.extends), ("protections", parsed.protections)):
            if value is None:
                continue
            following, text = self._follow(path, key, value, lines, above)
            if key == "extends":
                self.read(following, text, above)
                continue
            other = _Reading(self._places)
            other.read(following, text, above)
            self.dependencies += other.dependencies
            self.rows += [row for row in other.rows if row[8]]
            self.brokers |= other.brokers  # they keep keys from the command
        self.description = parsed.description or self.description
        self.settings.append(parsed.settings)
        self.scan = self.scan if parsed.protect.scan is None else parsed.protect.scan
        self.rows += [_row(path, lines, index, rule) for index, rule in enumerate(parsed.rule)]
        self.passed += [_passed(path, lines, index, table) for index, table in enumerate(parsed.pass_env)]
        self.switched += [_switched(path, lines, index, table) for index, table in enumerate(parsed.set_env)]
        self.brokers |= {table.name: _broker(path, lines, index, table) for index, table in enumerate(parsed.broker)}
        self.sinks |= {table.name: _sink(path, lines, index, table) for index, table in enumerate(parsed.sink)}

    def _follow(self, path: str, key: str, value: str, lines: Lines, above: tuple[str, ...]) -> tuple[str, bytes]:
        where = f"{loading.label(path)}:{lines.of_key(key)}"
        try:
            following = loading.find(value, self._places, path)
            content = loading.read(following)
        except UserError as error:
            raise UserError(f"{where}: key '{key}': {error}") from None
        if os.path.realpath(following) in above:
            raise UserError(f"{where}: key '{key}': a circle, {loading.label(following)} is already being read")
        self.dependencies.append((value, path, hashlib.sha256(content).digest()))
        return following, content


def _parse(path: str, content: bytes) -> tuple[ProfileFile, Lines]:
    name = loading.label(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{line}: not UTF-8 text") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        words = place.replace(",", " ").split()
        line = int(words[1]) if words[:1] == ["line"] else text.count("\n") + 1
        raise UserError(f"{name}:{line}: not TOML: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise UserError(f"{name}:1: not TOML that can be read: nested too deeply") from None
    lines = Lines(text)
    try:
        return msgspec.convert(tree, ProfileFile), lines
    except msgspec.ValidationError as error:
        raise UserError(f"{name}:{_explain(str(error), lines)}") from None


def _explain(message: str, lines: Lines) -> str:
    """`LINE: rule N: key 'KEY': ...` from a message of msgspec, such as "Expected `str` - at
    `$.rule[2].reason`".
    """
    what, _, place = message.replace(" | null", "", 1).partition(" - at `$")  # TOML has no null
    steps = place.rstrip("`").replace("[", ".").replace("]", "").split(".")[1:]
    table, index, key, where = "", 0, "", ""
    if steps[:1] and steps[0] in _TABLES and len(steps) > 1 and steps[1].isdigit():
        table, index = steps[0], int(steps[1])
        key = steps[2] if len(steps) > 2 else ""
        where = f"{table} {index + 1}: "
    elif steps[:1] in (["settings"], ["protect"]):
        table, where = steps[0], f"{steps[0]}: "
        key = steps[1] if len(steps) > 1 else ""
    elif steps:
        key = steps[0]
    field = what.partition("`")[2].partition("`")[0]
    if what.startswith("Object contains unknown field"):
        import difflib

        known = _STRUCTS[table].__struct_fields__
        close = difflib.get_close_matches(field, known, 1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}"
        return f"{lines.of_key(field, table, index)}: {where}key '{display(field)}' is not known{hint}"
    if what.startswith("Object missing required field"):
        return f"{lines.of_table(table, index)}: {where}key '{field}' is missing"
    if what.startswith("Invalid enum value"):
        import typing

        kind = typing.get_type_hints(_STRUCTS[table])[key]
        values = [v for part in (kind, *typing.get_args(kind)) for v in typing.get_args(part) if isinstance(v, str)]
        what = f"{what.removeprefix('Invalid enum value ')} is none of {', '.join(dict.fromkeys(values))}"
    what = what.replace("`", "").replace("Expected ", "expected ")
    return f"{lines.of_key(key, table, index)}: {where}key '{key}': {what}"


def _row(path: str, lines: Lines, index: int, rule: RuleTable) -> Row:
    def wrong(key: str, message: str, value: str | None = None) -> UserError:
        line = lines.of_key(key, "rule", index) if value is None else lines.of_value(value, key, index)
        return UserError(f"{loading.label(path)}:{line}: rule {index + 1}: key '{key}': {message}")

    names: set[str] = set()
    for name in rule.effects:
        if name not in effects.EFFECTS and name not in effects.GROUPS:
            import difflib

            close = difflib.get_close_matches(name, [*effects.EFFECTS, *effects.GROUPS], 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise wrong("effects", f"'{display(name)}' is no effect{hint}", name)
        names |= effects.GROUPS.get(name, frozenset({name}))
    for key, values in (
        ("effects", rule.effects),
        ("paths", rule.paths),
        ("exe", rule.exe),
        ("command", rule.command),
    ):
        if values is not None and not values:
            raise wrong(key, "an empty list")
    if not rule.reason.strip():
        raise wrong("reason", "empty; a person who is denied will read it")

    def patterns(key: str, values: list[str] | None) -> list[Pattern]:
        found = []
        for value in values or ():
            try:
                found += [(*part, lines.of_value(value, key, index)) for part in compile_pattern(value)]
            except globs.GlobError as error:
                raise wrong(key, f"'{display(value)}': {error}", value) from None
        return found

    if rule.verdict == model.VIEW and names != {effects.READ}:
        raise wrong("verdict", "'view' is about reading: effects = [\"read\"] and no other")
    if rule.verdict == model.VIEW and rule.exe is not None:
        raise wrong("exe", "not with verdict 'view': a label must loosen no protection")
    compiled = patterns("paths", rule.paths)
    if rule.when == model.BOUND and not names <= effects.TO_PEERS:
        raise wrong(
            "when", f"'bound' is about sockets that are connected to: effects {', '.join(sorted(effects.TO_PEERS))}"
        )
    if rule.when in {model.OWN_ANCHOR, model.OWN_ABOVE}:
        for _, text, parts, _ in compiled:
            if model.anchor_of(parts) < 0:
                shown = display(text)
                raise wrong("when", f"'{rule.when}' needs a component after '**' in each path; '{shown}' has none")
    if rule.when == model.GIT_ACTIVE:  # the one that holds where nothing is known
        if rule.verdict == model.ALLOW:
            raise wrong("when", "not with verdict 'allow'")
    elif rule.when is not None and rule.verdict != model.ALLOW:
        raise wrong("when", "only with verdict 'allow': a condition that is not met must not loosen anything")
    if rule.expected is not None:
        if rule.verdict != model.DENY:
            raise wrong("expected", "only with verdict 'deny': it is about refusals")
        for name, text, parts, _ in compiled:
            if name == "homes" or not _is_exact(text, parts):
                raise wrong("expected", f"only of exact paths and peers; '{display(text)}' stands for many")
    return (
        tuple(sorted(names)),
        compiled,
        rule.verdict,
        rule.reason,
        loading.label(path),
        rule.when or "",
        patterns("exe", rule.exe),
        patterns("command", rule.command),
        rule.protection,
        (path, rule.expected) if rule.expected is not None else None,
    )


def _is_exact(text: bytes, parts: globs.Components) -> bool:
    """Whether a pattern stands for one name. Of directories above a file, `*` may be one that is called by a digest."""
    above, last = (parts[:-1], parts[-1:]) if not text.startswith(b"//") else ((), parts)
    return all(isinstance(part, bytes) for part in last) and all(
        isinstance(part, bytes) or part == (globs.ANY_RUN,) for part in above
    )


def _passed(path: str, lines: Lines, index: int, table: PassEnvTable) -> Passed:
    wrong = partial(_wrong_in, path, lines, "pass_env", index)
    if not table.names:
        raise wrong("names", "an empty list")
    for name in table.names:
        if not name or "=" in name or "\0" in name or "*" in name[:-1]:
            raise wrong("names", f"'{display(name)}' is no name of a variable; a '*' may stand at its end")
    if not table.reason.strip():
        raise wrong("reason", "empty")
    return tuple(table.names), _patterns("command", table.command, wrong)


def _switched(path: str, lines: Lines, index: int, table: SetEnvTable) -> Switched:
    wrong = partial(_wrong_in, path, lines, "set_env", index)
    for name, value in table.variables.items():
        if what := switches.wrong(name, value):
            raise wrong("variables", f"'{display(f'{name}={value}')}': {what}")
    if not table.reason.strip():
        raise wrong("reason", "empty")
    return tuple(table.variables.items()), _patterns("command", table.command, wrong)


def _broker(path: str, lines: Lines, index: int, table: BrokerTable) -> Brokered:
    wrong = partial(_wrong_in, path, lines, "broker", index)
    try:
        upstream = Upstream.parse(table.upstream)
    except ValueError as error:
        raise wrong("upstream", f"'{display(table.upstream)}': {error}") from None
    if not upstream.is_private:
        raise wrong("upstream", "http only to this machine: anybody on the way would read the key")
    for key, names in (("base_url", [table.base_url]), ("variables", table.variables)):
        for name in names:
            if not name or not name.isprintable() or set(name) & set("= "):
                raise wrong(key, f"'{display(name)}' is no name of a variable")
    if table.base_url in table.variables:
        raise wrong("base_url", "it holds no key: 'variables' must not name it")
    if table.file and not table.file.startswith(("/", "~/")):
        raise wrong("file", "an absolute path, or one that begins with ~/")
    if table.arguments and sum(argument.count("{base_url}") for argument in table.arguments) != 1:
        raise wrong("arguments", "'{base_url}' stands once in them, for where the broker is")
    if table.arguments and table.command is None:
        raise wrong("arguments", "only with 'command': other programs do not know them")
    if table.needs and (len(table.needs) != 2 or not table.needs[0].startswith(("/", "~/")) or not table.needs[1]):
        raise wrong("needs", "a file, by an absolute path or one that begins with ~/, and a text in it")
    source = f"{loading.label(path)}:{lines.of_table('broker', index)}"
    commands = _patterns("command", table.command, wrong)
    told = tuple(table.arguments), tuple(table.needs)
    return (table.name, table.upstream, table.base_url, tuple(table.variables), table.file, *told), commands, source


def _sink(path: str, lines: Lines, index: int, table: SinkTable) -> Sinking:
    wrong = partial(_wrong_in, path, lines, "sink", index)
    for key, values in (("options", table.options), ("operands", table.operands)):
        for value in values:
            for part in value.split(" ", 1) if key == "options" else (value,):
                try:
                    re.compile(part.encode())
                except re.error as error:
                    raise wrong(key, f"'{display(value)}': {error}") from None
            if key == "options" and not value.startswith(("-", "\\-")):
                raise wrong(key, f"'{display(value)}': an option begins with '-'")
    if not table.reason.strip():
        raise wrong("reason", "empty")
    for key, names in (("variables", table.variables), ("environment", table.environment)):
        for name in names:
            plain = name[:-1] if key == "environment" and name.endswith("*") else name
            if not plain.isascii() or not plain.isidentifier():
                raise wrong(key, f"'{display(name)}' is no name of a variable")
            if sinks.misleading([plain.encode()]):
                raise wrong(key, f"'{display(name)}': a program that is started with it is no sink")
    exes = _patterns("exe", table.exe, wrong)
    secrets = _patterns("paths", table.paths or None, wrong)  # none: there is no such sink
    source = f"{loading.label(path)}:{lines.of_table('sink', index)}"
    variables, environment = tuple(table.variables), tuple(table.environment)
    parts = table.name, tuple(table.options), tuple(table.operands), variables, environment
    return parts, exes, secrets, _patterns("outputs", table.outputs, wrong), table.reason, source


def _wrong_in(path: str, lines: Lines, table: str, index: int, key: str, message: str) -> UserError:
    where = f"{loading.label(path)}:{lines.of_key(key, table, index)}: {table} {index + 1}"
    return UserError(f"{where}: key '{key}': {message}")


def _patterns(
    key: str, values: list[str] | None, wrong: Callable[[str, str], UserError]
) -> tuple[tuple[str, bytes, globs.Components], ...]:
    if values is not None and not values:
        raise wrong(key, "an empty list")
    found = []
    for value in values or ():
        try:
            found += compile_pattern(value)
        except globs.GlobError as error:
            raise wrong(key, f"'{display(value)}': {error}") from None
    return tuple(found)


def compile_pattern(value: str) -> list[tuple[str, bytes, globs.Components]]:
    """A pattern as written: (placeholder or "", text after it, components after it) for each alternative."""
    if "\0" in value:
        raise globs.GlobError("a path has no NUL byte")
    if not value:
        raise globs.GlobError("an empty path")
    text = value.encode("utf-8", "surrogateescape")
    out: list[tuple[str, bytes, globs.Components]] = []
    for alternative in _alternatives_after_placeholder(text):
        name, rest = alternative
        if name and not rest:
            out.append((name, b"", ()))
        elif name and not rest.startswith(b"/"):
            raise globs.GlobError(f"after {{{name}}} comes '/' or nothing")
        else:
            parts = globs.components(rest)
            if rest.startswith(b"**"):
                rest = b"/" + rest
            out.append((name, rest, parts))
    return out


def _alternatives_after_placeholder(text: bytes) -> list[tuple[str, bytes]]:
    if text.startswith(b"{"):
        inside, closed, rest = text[1:].partition(b"}")
        if closed and b"," not in inside and b"{" not in inside:
            name = inside.decode("utf-8", "replace")
            if name not in loading.PLACEHOLDERS:
                known = ", ".join(loading.PLACEHOLDERS)
                raise globs.GlobError(f"placeholder {{{display(name)}}} is not known; known are {known}")
            return [(name, part) for part in globs.alternatives(rest)]
    parts = globs.alternatives(text)
    if text.startswith(b"//") and text[2:3] != b"@":
        parts = [pattern for part in parts for pattern in addresses.patterns(part[2:])]
    return [("", part) for part in parts]


class Lines:
    """Where keys and values stand in the text of a profile. Lines count from 1."""

    def __init__(self, text: str) -> None:
        self._raw = text.split("\n")
        self._tables: list[tuple[str, int]] = [("", 1)]  # (name, line) of each table in order
        self._plain = _without_strings(text).split("\n")
        for number, line in enumerate(self._plain, 1):
            head = line.strip()
            if head.startswith("["):
                self._tables.append((head.strip("[] \t"), number))

    def of_table(self, table: str, index: int = 0) -> int:
        """The line of the `index`th table of that name."""
        found = [line for name, line in self._tables if name == table]
        if index < len(found):
            return found[index]
        return self.of_key(table) if table else 1

    def of_key(self, key: str, table: str = "", index: int = 0) -> int:
        """The line of a key in a table; that of the table when the key is not found."""
        start, end = self._range(table, index)
        for number in range(start, end):
            head, equals, _ = self._raw[number - 1].partition("=")
            if equals and head.strip().strip("\"'") == key and self._plain[number - 1].strip():
                return number
        return start if key != table else 1

    def of_value(self, value: str, key: str, index: int) -> int:
        """The line of one string in a list of the `index`th rule."""
        start = self.of_key(key, "rule", index)
        for number in range(start, self._range("rule", index)[1]):
            if f'"{value}"' in self._raw[number - 1] or f"'{value}'" in self._raw[number - 1]:
                return number
        return start

    def _range(self, table: str, index: int) -> tuple[int, int]:
        numbers = [i for i, (name, _) in enumerate(self._tables) if name == table]
        if index >= len(numbers):
            return 1, len(self._raw) + 1
        at = numbers[index]
        end = self._tables[at + 1][1] if at + 1 < len(self._tables) else len(self._raw) + 1
        return self._tables[at][1], end


def _without_strings(text: str) -> str:
    """TOML text with the inside of strings and comments blanked, lines kept."""
    out = []
    i = 0
    while i < len(text):
        quote = next((q for q in ('"""', "'''", '"', "'") if text.startswith(q, i)), "")
        if quote:
            end = i + len(quote)
            while end < len(text) and not text.startswith(quote, end):
                end += 2 if text[end] == "\\" and quote[0] == '"' else 1
            end = min(end + len(quote), len(text))
        elif text[i] == "#":
            end = text.find("\n", i)
            end = len(text) if end < 0 else end
        else:
            out.append(text[i])
            i += 1
            continue
        out.append("".join("\n" if c == "\n" else "~" if quote else " " for c in text[i:end]))
        i = end
    return "".join(out)
