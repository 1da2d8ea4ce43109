"""The options of a run: one table, for the quick parser here and the click command in `cli`.

`import click` costs more than the start of Python itself, so the usual `pincer-trace [OPTIONS] -- COMMAND
...` is parsed here; whatever is unusual (help, mistakes, subcommands) is left to click, which is built from
the same table.
"""

from __future__ import annotations

from pincer_trace.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LAYERS = (
    "landlock",
    "landlock-truncate",
    "landlock-net",
    "landlock-scope",
    "wait-killable",
)  # what `--require` may name

TEXT, TEXTS, NUMBERS, CHOICE, CHOICES, FLAG = "text", "texts", "numbers", "choice", "choices", "flag"
FIRST_FD = 3  # 0, 1 and 2 are always passed


class Option:
    """A row of the table: flags as typed, the attribute of `RunOptions`, its kind, and what help says.

    Kinds: text (last one counts), texts, numbers, choices (repeatable), choice (one of `choices`), flag.
    """

    __slots__ = ("choices", "default", "flags", "help", "kind", "metavar", "name")

    def __init__(
        self,
        name: str,
        flags: tuple[str, ...],
        kind: str,
        *,
        text: str,
        metavar: str = "",
        choices: tuple[str, ...] = (),
        default: str | None = None,
    ) -> None:
        self.name = name
        self.flags = flags
        self.kind = kind
        self.help = text
        self.metavar = metavar
        self.choices = choices
        self.default = default


TABLE = (
    Option(
        "profile", ("-p", "--profile"), TEXT, metavar="NAME|FILE",
        text="What the command may do: a profile's name or file.",
    ),
    Option(
        "allow_write", ("--allow-write",), TEXTS, metavar="PATH",
        text="Also allow changes at and below PATH. Repeatable.",
    ),
    Option(
        "allow_connect", ("--allow-connect",), TEXTS, metavar="PATH",
        text="Also allow connections to the unix sockets at and below PATH. Repeatable.",
    ),
    Option(
        "allow_net", ("--allow-net",), TEXTS, metavar="HOST:PORT",
        text="Also allow TCP connections there, where the profile does not: example.com:443, *.example.com:*, "
        "[::1]:80, 10.0.0.0/8:443, [2001:db8::/32]:443; several with commas between them. Repeatable.",
    ),
    Option(
        "protect", ("--protect",), TEXTS, metavar="PATH",
        text="Allow no access at and below PATH. Repeatable.",
    ),
    Option(
        "pass_fd", ("--pass-fd",), NUMBERS, metavar="N",
        text="Let the command keep descriptor N; others are closed. Repeatable.",
    ),
    Option(
        "pass_env", ("--pass-env",), TEXTS, metavar="NAME",
        text="Let the command have the environment variable NAME although it holds a credential or leads to a program "
        "outside; a * at its end stands for the rest. Repeatable.",
    ),
    Option(
        "confirm", ("--confirm",), CHOICE, choices=("deny", "ask", "auto"), default="deny",
        text="What becomes of effects that the profile wants confirmed: deny refuses them, ask holds them until "
        "`pincer-trace approve` or `deny` answers, auto allows and records them.",
    ),
    Option(
        "ui", ("--ui",), CHOICE, choices=("auto", "inline", "tmux", "none"), default="auto",
        text="What is shown while the command runs: tmux opens a pane below it, auto does so inside of tmux and else "
        "prints a line on standard error for each denial while no program draws there, inline keeps lines of ours "
        "below what a program writes line by line, none shows nothing.",
    ),
    Option(
        "task", ("--task",), TEXT, metavar="TEXT",
        text="What the command is to do. A Claude model is asked whether each effect serves it, and can only "
        "tighten; needs ANTHROPIC_API_KEY.",
    ),
    Option(
        "model", ("--model",), TEXT, metavar="NAME",
        text="Which to ask. [default: claude-haiku-5-5]",
    ),
    Option(
        "twin", ("--twin",), CHOICE, choices=("inline", "process"), default="inline",
        text="Where the evaluator of objects runs: in the supervisor, or in a confined process of its own.",
    ),
    Option(
        "durable", ("--durable",), FLAG,
        text="Have each record on the disk before its effect, against power loss: about 2 ms an effect.",
    ),
    Option(
        "session_dir", ("--session-dir",), TEXT, metavar="DIR",
        text="Keep the session's own directory under DIR, not in the user's state directory.",
    ),
    Option(
        "require", ("--require",), CHOICES, metavar="LAYER", choices=LAYERS,
        text=f"Do not start when the kernel lacks LAYER: {', '.join(LAYERS)}. Repeatable.",
    ),
    Option(
        "leftover", ("--leftover",), CHOICE, choices=("kill", "keep"), default="kill",
        text="What becomes of processes that outlive the command: kill ends them, keep supervises them "
        "in the background.",
    ),
    Option(
        "report", ("--report",), TEXT, metavar="FILE",
        text="When the run has ended, write what `pincer-trace report --json` tells to FILE.",
    ),
    Option(
        "sarif", ("--sarif",), TEXT, metavar="FILE",
        text="When the run has ended, write what was refused to FILE, as SARIF 2.1.0.",
    ),
    Option(
        "fail_on", ("--fail-on",), CHOICE, choices=("never", "deny", "confirm"), default="never",
        text="Exit with 123 where the command succeeded and something was refused (deny), or was refused or needed a "
        "confirmation (confirm).",
    ),
    Option(
        "quiet", ("-q", "--quiet"), FLAG,
        text="Do not print our own first and last line.",
    ),
)  # fmt: skip
BY_FLAG = {flag: option for option in TABLE for flag in option.flags}


class RunOptions:
    """What one run was asked to do. Texts are as `sys.argv` has them (`os.fsencode` gives the bytes)."""

    __slots__ = (
        "allow_connect", "allow_net", "allow_write", "command", "confirm", "durable", "fail_on", "leftover", "model",
        "pass_env", "pass_fd", "profile", "protect", "quiet", "report", "require", "sarif", "session_dir", "task",
        "twin", "ui",
    )  # fmt: skip

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.profile: str | None = None
        self.allow_write: list[str] = []
        self.allow_connect: list[str] = []
        self.allow_net: list[str] = []
        self.protect: list[str] = []
        self.pass_env: list[str] = []
        self.pass_fd: list[int] = []
        self.confirm = "deny"
        self.session_dir: str | None = None
        self.require: list[str] = []
        self.leftover = "kill"
        self.task: str | None = None
        self.model: str | None = None
        self.twin = "inline"
        self.ui = "auto"
        self.durable = False
        self.report: str | None = None
        self.sarif: str | None = None
        self.fail_on = "never"
        self.quiet = False


def parse_run(argv: Sequence[str]) -> RunOptions | None:
    """The options of `[OPTIONS] -- COMMAND [ARG...]`; None for all else, which click parses or refuses."""
    options = RunOptions([])
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            options.command = list(argv[at:])
            return options if options.command else None
        flag, equals, value = word.partition("=")
        row = BY_FLAG.get(flag)
        if row is None or (equals and not flag.startswith("--")):
            return None
        if row.kind == FLAG:
            if equals:
                return None
            setattr(options, row.name, True)
            continue
        if not equals:
            if at >= len(argv) or argv[at] == "--":
                return None
            value = argv[at]
            at += 1
        if not _take(options, row, value):
            return None
    return None


def _take(options: RunOptions, row: Option, value: str) -> bool:
    """Put one value into `options`; False when it is not valid."""
    if row.choices and value not in row.choices:
        return False
    if row.kind in (TEXTS, CHOICES):
        getattr(options, row.name).append(value)
    elif row.kind == NUMBERS:
        number = descriptor(value)
        if number is None:
            return False
        options.pass_fd.append(number)
    else:
        setattr(options, row.name, value)
    return True


def descriptor(value: str) -> int | None:
    """The number of a descriptor that `--pass-fd` may name; None when `value` is none."""
    if not (value.isascii() and value.isdecimal() and len(value) <= 10):
        return None
    number = int(value)
    return number if FIRST_FD <= number < 1 << 31 else None


def split(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Cut at the first `--` that stands before any word: (options, command); without one, (argv, None).

    Raises `UserError` when an option's value is missing: the `--` in its place starts the command.
    """
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return list(argv[:at]), list(argv[at + 1 :])
        if not word.startswith("-") or word == "-":
            break
        row = _valued(word)
        at += 1
        if row is not None:
            if at >= len(argv) or argv[at] == "--":
                raise UserError(f"{word} needs a value: {word} {row.metavar or '|'.join(row.choices)}")
            at += 1
    return list(argv), None


def _valued(word: str) -> Option | None:
    """The option whose value is the next word (`--profile`, `-p`, `-qp`); None when `word` needs no other."""
    if word.startswith("--"):
        row = BY_FLAG.get(word)
        return row if row is not None and row.kind != FLAG else None
    for i, letter in enumerate(word[1:], 1):
        row = BY_FLAG.get("-" + letter)
        if row is None:
            return None
        if row.kind != FLAG:
            return row if i == len(word) - 1 else None
    return None
