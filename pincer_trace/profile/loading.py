"""From a profile's name to a `Profile`: finding the files, the compiled cache, placeholders, options,
built-in rules.

The start of a run pays for this, so nothing here imports a TOML parser: `source` does, only when the cache
has no entry.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
import sys
from _hashlib import openssl_sha256  # `hashlib` is this and a millisecond of imports

from pincer_trace import cache, effects, paths
from pincer_trace.errors import UserError
from pincer_trace.profile import globs, model
from pincer_trace.profile.model import ALLOW, BUILT_IN, DENY, GRANT, PROTECTION, Profile, Rule, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pincer_trace.profile.brokers import Broker
    from pincer_trace.profile.globs import Components
    from pincer_trace.profile.places import Places
    from pincer_trace.profile.sinks import Sinking

    # placeholder or "", the pattern's text and components after it, line of the file
    Pattern = tuple[str, bytes, Components, int]
    # effects, patterns, verdict, reason, file, when, exe patterns, command patterns, protection; of a rule whose
    # refusals are expected, the path of its file and how many are
    Expected = tuple[str, int] | None
    Row = tuple[tuple[str, ...], list[Pattern], str, str, str, str, list[Pattern], list[Pattern], bool, Expected]
    # names of variables, of what commands (placeholder, text, components); none: of all
    Passed = tuple[tuple[str, ...], tuple[tuple[str, bytes, Components], ...]]
    # variables with the values that they are given, of what commands
    Switched = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, bytes, Components], ...]]
    # floor, hold, udp, mode, view, variables that are passed, and that are set, whether other names are looked for
    Chosen = tuple[str, float, str, str, str, tuple[Passed, ...], tuple[Switched, ...], bool]
    # (name, upstream, base URL's variable, variables of keys, file, arguments, needs), commands, file:line
    Kept = tuple[str, str, str, tuple[str, ...], str, tuple[str, ...], tuple[str, ...]]
    Brokered = tuple[Kept, tuple[tuple[str, bytes, Components], ...], str]
    # description, settings, rows, [(extends value, the file that says so, digest of the file found)],
    # digest of settings, rows, brokers and sinks, brokers, sinks
    Compiled = tuple[str, Chosen, list[Row], list[tuple[str, str, bytes]], bytes, list[Brokered], list[Sinking]]

FORMAT = 13
_COMPILER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "source.py")
PLACEHOLDERS = (
    "workspace", "git_common", "home", "homes", "cache", "config", "data", "tmp", "state", "path_dirs",
    "self", "interpreter", "command",
)  # fmt: skip
MAXIMUM_FILE = 1 << 20
_SELF_REASON = "pincer-trace itself: what it runs from and keeps is closed to what it supervises"
_TOLD_REASON = "pincer-trace itself: what it tells to what it supervises"
_READ = frozenset({effects.READ})
# The same of a home that a later run may have (tests give theirs one): what lies there then loosens that run
_OTHER_HOMES = (b"/**/.config/pincer-trace/**", b"/**/.local/state/pincer-trace/**")
_SESSION_NAME = b"/????????-??????-??????"  # as `ledger.session` names its directories


class Overlay:
    """What command-line options add to a profile: paths (relative ones to the working directory) and
    HOST:PORT peers.
    """

    __slots__ = ("allow_connect", "allow_net", "allow_write", "protect")

    def __init__(
        self,
        allow_write: Iterable[str] = (),
        protect: Iterable[str] = (),
        allow_net: Iterable[str] = (),
        allow_connect: Iterable[str] = (),
    ) -> None:
        self.allow_write = list(allow_write)
        self.protect = list(protect)
        self.allow_net = list(allow_net)
        self.allow_connect = list(allow_connect)


def load(
    name_or_path: str,
    places: Places,
    *,
    overlay: Overlay | None = None,
    cache_directory: str | None = None,
    use_cache: bool = True,
    port_of: Callable[[Broker], int | None] = lambda _broker: None,
) -> Profile:
    """The profile of that name (the user's own, then the shipped ones) or of that file, for these places.

    `port_of` tells where a broker of this run listens on the loopback: None if it does not.
    The cache directory is closed to the worker; without `use_cache` it is only that. Errors: `UserError`, one line that
    names file, line and key.
    """
    path = find(name_or_path, places)
    content = read(path)
    entry = Cache(cache_directory).get(path, content, places) if cache_directory and use_cache else None
    if entry is None:
        from pincer_trace.profile import source

        entry = source.compile_profile(path, content, places)
        if cache_directory and use_cache:
            Cache(cache_directory).put(path, content, entry)
    description, settings, rows, dependencies, policy, brokered, sinkings = entry
    files = [path, *(find(value, places, referrer) for value, referrer, _ in dependencies)]
    expansions = _expansions(places)
    rules: list[Rule] = []
    logins: list[bytes] = []
    for row in rows:
        before = len(rules)
        _expand(row, expansions, places, rules)
        names, _, verdict, _, _, _, _, commands, protection, _ = row
        if commands and protection and verdict == ALLOW and effects.READ in names:
            logins += [rule.pattern for rule in rules[before:]]
    if sinkings:
        from pincer_trace.profile import sinks

        rules += sinks.rules(sinkings, expansions)
    if overlay:
        rules += _overlay_rules(overlay, places, rules)
    brokers, ports = [], []
    if brokered:
        from pincer_trace.profile import brokers as brokers_of
    for values, started, line_of in brokered:
        if _is_command(started, expansions, places):
            broker = brokers_of.Broker(*values, line_of)
            brokers.append(broker)
            ports.append(port_of(broker))
            rules += _broker_rules(broker, ports[-1], places)
    kept = [os.fsencode(os.path.realpath(file)) for file in files]
    if cache_directory:
        kept.append(os.fsencode(os.path.realpath(cache_directory)))
    closed = tuple(dict.fromkeys((*places.own, *kept)))
    rules += [_below_rule(effects.CHANGES, directory, DENY, _SELF_REASON, "built in", BUILT_IN) for directory in closed]
    rules += [
        Rule(effects.CHANGES, pattern, globs.components(pattern), DENY, _SELF_REASON, "built in", tier=BUILT_IN)
        for pattern in _OTHER_HOMES
    ]
    for directory in places.extra:
        rules += _session_rules(directory)
    name = name_or_path if not is_file(name_or_path) else os.path.basename(name_or_path).removesuffix(".toml")
    return Profile(
        name,
        tuple(rules),
        _digest(policy, expansions, places, overlay, [*closed, *filter(None, ports)]),
        Settings(
            *settings[:5],
            _passed_names(settings[5], expansions, places),
            _switches(settings[6], expansions, places),
            scan=settings[7],
        ),
        description=description,
        paths=tuple(files),
        logins=tuple(dict.fromkeys(logins)),
        repository=places.git_common_dir or b"",
        brokers=tuple(brokers),
        sinks=tuple(dict.fromkeys(rule.sink for rule in rules if rule.sink is not None)),
        state=places.state,
    )


def is_file(name_or_path: str) -> bool:
    """Whether `-p` means a file by it, rather than a profile's name."""
    return "/" in name_or_path or name_or_path.endswith(".toml")


def user_profiles(places: Places) -> str:
    """The directory of the user's own profiles."""
    return os.path.join(os.fsdecode(places.config), "pincer-trace", "profiles")


def find(name_or_path: str, places: Places, referrer: str = "") -> str:
    """The file of a profile. `referrer` is the file whose `extends` names it.

    A relative file is one beside the referrer, or of the working directory. A file of the user's that extends
    its own name means the shipped profile of that name.
    """
    if is_file(name_or_path):
        base = os.path.dirname(referrer) if referrer else os.fsdecode(places.cwd)
        return os.path.normpath(os.path.join(base, os.path.expanduser(name_or_path)))
    tried = []
    for directory in (user_profiles(places), paths.shipped_profiles()):
        file = os.path.join(directory, name_or_path + ".toml")
        if file != referrer and os.path.exists(file):
            return file
        tried.append(directory)
    raise UserError(
        f"no profile is named '{paths.display(name_or_path)}' (looked in {' and '.join(tried)}); "
        "`pincer-trace profile list` names them, and a value with '/' is a file"
    )


def read(path: str) -> bytes:
    """The content of a profile file, at most a megabyte. Errors: `UserError`."""
    try:
        content, status = _read_regular(path, MAXIMUM_FILE + 1)
    except OSError as error:
        raise UserError(f"profile {paths.display(path)} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"profile {paths.display(path)} is not a regular file")
    if len(content) > MAXIMUM_FILE:
        raise UserError(f"profile {paths.display(path)} is larger than a megabyte: not a profile")
    return content


def _read_regular(path: str, limit: int, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """At most `limit` bytes of a regular file, none of anything else, and its status."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    try:
        status = os.fstat(descriptor)
        content = b""
        while stat.S_ISREG(status.st_mode) and len(content) < limit:
            piece = os.read(descriptor, limit - len(content))
            if not piece:
                break
            content += piece
        return content, status
    finally:
        os.close(descriptor)


def label(path: str) -> str:
    """How rules and errors name a profile file: the shipped ones by their name alone."""
    directory, name = os.path.split(path)
    return name if directory == paths.shipped_profiles() else paths.display(path)


class Cache:
    """Compiled profiles of this user, before placeholders, one file for each content of a profile file.

    An entry is marshal data behind its own SHA-256. Marshal must not read what others wrote, so the directory
    and the file must be ours and closed to all others; a cache that cannot be used is as good as none, and no
    error.
    """

    __slots__ = ("_directory",)

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def get(self, path: str, content: bytes, places: Places) -> Compiled | None:
        """The entry for a file, if there is one and the files that it extends are still the same."""
        try:
            if not self._is_private():
                return None
            data, status = _read_regular(self._file(path, content), 64 * MAXIMUM_FILE, os.O_NOFOLLOW)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                return None
            if openssl_sha256(data[32:]).digest() != data[:32]:
                return None
            entry: Compiled = marshal.loads(data[32:])  # noqa: S302  ours alone, checked above
            for value, referrer, digest in entry[3]:
                if openssl_sha256(read(find(value, places, referrer))).digest() != digest:
                    return None
        except (OSError, ValueError, EOFError, TypeError, IndexError, UserError):
            return None
        return entry

    def put(self, path: str, content: bytes, entry: Compiled) -> None:
        """Keep an entry; no error when that is impossible."""
        data = marshal.dumps(entry)
        try:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            if not self._is_private():
                return
            file = self._file(path, content)
            temporary = f"{file}.{os.getpid()}"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(descriptor, "wb") as stream:
                    stream.write(openssl_sha256(data).digest() + data)
                os.rename(temporary, file)
            except OSError:
                os.unlink(temporary)
        except OSError:
            return

    def _is_private(self) -> bool:
        try:
            status = os.lstat(self._directory)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return status.st_mode & 0o170077 == 0o040000 and status.st_uid == os.geteuid()

    def _file(self, path: str, content: bytes) -> str:
        build = cache.build(__file__, _COMPILER)
        key = repr((FORMAT, build, sys.implementation.cache_tag, path, content))
        return os.path.join(self._directory, openssl_sha256(key.encode()).hexdigest())


def _expansions(places: Places) -> dict[str, list[tuple[bytes, Components]]]:
    """What each placeholder stands for, as pattern text and components. Paths are literal, whatever bytes
    they hold.
    """
    homes = [home for home in places.homes if home not in {b"/", b"/root"} and os.path.dirname(home) != b"/home"]
    own = dict.fromkeys((*places.own, places.state))
    plain = {
        "": (),
        "workspace": (places.workspace,),
        "git_common": (places.git_common_dir,) if places.git_common_dir else (),
        "home": (places.home,),
        "homes": homes,
        "cache": (places.cache,),
        "config": (places.config,),
        "data": (places.data,),
        "tmp": (places.tmp,),
        "state": (places.state,),
        "path_dirs": places.path_dirs,
        "self": own,
        "interpreter": own,
        "command": (places.command,) if places.command else (),
    }
    found = {name: [_literal(path) for path in values] for name, values in plain.items()}
    found[""] = [(b"", ())]
    # any home, not just the caller's: root reads them all, and HOME may be set to something else
    found["homes"] += [(b"/root", (b"root",)), (b"/home/*", (b"home", (globs.ANY_RUN,)))]
    return found


def _literal(path: bytes) -> tuple[bytes, Components]:
    return b"" if path == b"/" else globs.escape(path), tuple(globs.split(path))


def _expand(
    row: Row,
    expansions: dict[str, list[tuple[bytes, Components]]],
    places: Places,
    into: list[Rule],
) -> None:
    names, patterns, verdict, reason, file, when, exes, commands, protection, expecting = row
    if expecting is not None:
        _check_expected(expecting[0], file, patterns[0][3], places)
    if not _is_command([pattern[:3] for pattern in commands], expansions, places):
        return
    expected = (
        expecting[1] if expecting is not None and verdict == DENY else 0
    )  # where nothing is refused, nothing is expected to be
    labels: list[tuple[bytes, Components | None]] = [(b"", None)]
    if exes:
        labels = [(text + rest, head + tail) for name, rest, tail, _ in exes for text, head in expansions[name]]
    group = frozenset(names)
    tier = PROTECTION if protection else GRANT
    for placeholder, rest, tail, line in patterns:
        source = f"{file}:{line}"
        for text, head in expansions[placeholder]:
            for exe, exe_components in labels:
                pattern = text + rest or b"/"
                parts = pattern, head + tail, verdict, reason, source, when, exe, exe_components, tier
                into.append(Rule(group, *parts, expected=expected))


def _check_expected(path: str, file: str, line: int, places: Places) -> None:
    """What the work tree says must not make refusals look harmless. Raises UserError."""
    real = os.path.realpath(path)
    if not paths.is_inside(os.fsencode(real), places.workspace):
        return
    if os.path.dirname(path) in (paths.shipped_profiles(), user_profiles(places)):
        return
    raise UserError(
        f"{file}:{line}: key 'expected': not in a file of the work tree, which what was supervised may have written; "
        f"put the profile into {paths.display(user_profiles(places))}"
    )


def _is_command(
    patterns: Sequence[tuple[str, bytes, Components]],
    expansions: dict[str, list[tuple[bytes, Components]]],
    places: Places,
) -> bool:
    """Whether the started command is one of these; no pattern means any."""
    return not patterns or any(
        globs.matches(head + tail, places.command)
        for placeholder, _, tail in patterns
        for _, head in expansions[placeholder]
    )


def _passed_names(
    passed: Sequence[Passed], expansions: dict[str, list[tuple[bytes, Components]]], places: Places
) -> tuple[str, ...]:
    found = [name for names, commands in passed if _is_command(commands, expansions, places) for name in names]
    return tuple(dict.fromkeys(found))


def _switches(
    switched: Sequence[Switched], expansions: dict[str, list[tuple[bytes, Components]]], places: Places
) -> tuple[tuple[str, str], ...]:
    """The last value counts; an empty one takes the variable back."""
    found: dict[str, str] = {}
    for variables, commands in switched:
        if _is_command(commands, expansions, places):
            found.update(variables)
    return tuple((name, value) for name, value in found.items() if value)


def _below_rule(group: frozenset[str], path: bytes, verdict: str, reason: str, source: str, tier: int) -> Rule:
    """A rule for a literal path and all below it."""
    text, head = _literal(path)
    return Rule(group, text + b"/**", (*head, None), verdict, reason, source, tier=tier)


def _session_rules(directory: bytes) -> list[Rule]:
    """The session's own records are not for the worker; what it is told in files is, and only to be read.

    Beside them it can put nothing that looks like another session: people would read and answer that.
    """
    told = [
        Rule(_READ, *_literal(directory + b"/" + os.fsencode(name)), ALLOW, _TOLD_REASON, "built in", tier=BUILT_IN)
        for name in paths.TOLD_FILES
    ]
    text, head = _literal(os.path.dirname(directory))
    beside = text + _SESSION_NAME + b"/**"
    components = (*head, *globs.components(_SESSION_NAME), None)
    return [
        Rule(effects.CHANGES, beside, components, DENY, _SELF_REASON, "built in", tier=BUILT_IN),
        _below_rule(_READ, directory, DENY, _SELF_REASON, "built in", BUILT_IN),
        *told,
    ]


def _overlay_rules(overlay: Overlay, places: Places, rules: list[Rule]) -> list[Rule]:
    """Add the rules of options to `rules`, the protections among them where they belong.

    `--allow-write PATH` opens what lies at and below PATH, but no protected thing that just happens to lie there, and
    `--allow-connect PATH` likewise the sockets. A PATH that is itself protected is named on purpose: the protections
    that hold for it are lifted, and those written after them stay. `--protect` comes last: closing wins over opening.
    """
    out = []
    opened = [("--allow-write", value, effects.CHANGES) for value in overlay.allow_write]
    opened += [("--allow-connect", value, effects.TO_PEERS) for value in overlay.allow_connect]
    for option, value, group in opened:
        path = _option_path(value, places, option)
        reason = f"allowed by {option}"
        last = -1
        for index, rule in enumerate(rules):
            if (
                rule.tier == PROTECTION
                and rule.verdict != ALLOW
                and not group.isdisjoint(rule.effects)
                and globs.matches(rule.components, path)
            ):
                last = index
        if last >= 0:
            rules.insert(last + 1, _below_rule(group, path, ALLOW, reason, option, PROTECTION))
        out.append(_below_rule(group, path, ALLOW, reason, option, GRANT))
    reason = "allowed by --allow-net"
    for value in overlay.allow_net:
        out += [Rule(effects.TO_PEERS, *each, ALLOW, reason, "--allow-net") for each in _peers(value)]
    closed = effects.CHANGES | {effects.READ, effects.EXEC, effects.CONNECT}
    for value in overlay.protect:
        path = _option_path(value, places, "--protect")
        out.append(_below_rule(closed, path, DENY, "closed by --protect", "--protect", PROTECTION))
    return out


def _peers(value: str) -> list[tuple[bytes, Components]]:
    """The patterns of one --allow-net, which may name several peers with commas between them."""
    from pincer_trace.profile import addresses

    text = os.fsencode(value)
    found = []
    try:
        for each in globs.alternatives(b"{,%b}" % text)[1:]:
            host, colon, port = each.rpartition(b":")
            if each and not colon:
                name = paths.display(each)
                raise UserError(
                    f"--allow-net {paths.display(value)}: no port: write {name}:443 for https, {name}:* for all"
                )
            if not (colon and host and (port == b"*" or (port.isdigit() and int(port) < 65536))):
                raise UserError(
                    f"--allow-net {paths.display(value)}: write HOST:PORT, as in 'example.com:443', '*.example.com:*' "
                    "or '10.0.0.0/8:443'"
                )
            found += [(pattern, globs.components(pattern)) for pattern in addresses.patterns(each)]
    except globs.GlobError as error:
        raise UserError(f"--allow-net {paths.display(value)}: {error}") from None
    return found


def _broker_rules(broker: Broker, port: int | None, places: Places) -> list[Rule]:
    """The way to a broker is open, the file that holds its key is closed."""
    rules = []
    if broker.file:
        path = os.path.realpath(os.path.join(places.home, os.fsencode(broker.file.removeprefix("~/"))))
        reason = f"the key of the broker {broker.name}"
        rules.append(_below_rule(effects.CHANGES | _READ, path, DENY, reason, broker.source, PROTECTION))
    if port is not None:
        pattern = b"//127.0.0.1:%d" % port
        rules.append(Rule(effects.TO_PEERS, pattern, globs.components(pattern), ALLOW, broker.reason, broker.source))
    return rules


def _option_path(value: str, places: Places, option: str) -> bytes:
    if not value or "\0" in value:
        raise UserError(f"{option}: a path is needed, not {value!r}")
    return os.path.realpath(os.path.join(places.cwd, os.fsencode(value)))


def digest_of_rows(settings: Chosen, rows: list[Row], brokers: list[Brokered], sinkings: list[Sinking]) -> bytes:
    """SHA-256 over what decides, in order; file names, lines and comments are not in it."""
    told = []
    for names, patterns, verdict, reason, _, when, exes, commands, protection, expected in rows:
        globs_of = [[(name, text) for name, text, _, _ in group] for group in (patterns, exes, commands)]
        told.append((names, globs_of, verdict, reason, when, protection, expected[1] if expected is not None else 0))
    kept = [(values, commands) for values, commands, _ in brokers]
    used = [sinking[:-1] for sinking in sinkings]
    return openssl_sha256(repr((FORMAT, settings, told, kept, used)).encode("utf-8", "surrogateescape")).digest()


def _digest(
    policy: bytes,
    expansions: dict[str, list[tuple[bytes, Components]]],
    places: Places,
    overlay: Overlay | None,
    closed: Iterable[bytes | int],
) -> bytes:
    """The digest of the compiled profile: its rows, and all that makes rules of them."""
    options: tuple[list[str], ...] = ()
    if overlay:
        options = overlay.allow_write, overlay.protect, overlay.allow_net, overlay.allow_connect
    values = [(name, [text for text, _ in found]) for name, found in expansions.items()]
    return openssl_sha256(
        repr((policy, values, places.cwd, places.command, options, list(closed))).encode("utf-8", "surrogateescape")
    ).digest()


__all__ = ["PLACEHOLDERS", "Cache", "Overlay", "find", "is_file", "label", "load", "model", "read", "user_profiles"]
