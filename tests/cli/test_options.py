"""The quick parser and click agree, for they are made from one table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pincer_trace
from pincer_trace import cli
from pincer_trace.errors import UserError
from pincer_trace.options import CHOICE, CHOICES, FLAG, NUMBERS, TABLE, RunOptions, parse_run, split

_FLAGS = [flag for row in TABLE for flag in row.flags]
_FORMS = "--help -qp -px -p=x --profi --quiet=1 --confirm=auto --confirm=ask --leftover=keep --require=landlock"
_MORE = "--pass-fd=3 --pass-fd=-1 --protect= --protect=a=b deny auto keep kill landlock 3 9 2 -1 x - ls log"
_words = st.sampled_from([*_FLAGS, "--", "", *_FORMS.split(), *_MORE.split()])


def values(options):
    return {name: getattr(options, name) for name in RunOptions.__slots__}


def by_click(argv):
    """What click makes of it, or None when it refuses or does something else."""
    try:
        head, command = split(argv)
        return None if command is None else cli.parse_run(head, command)
    except (click.ClickException, click.exceptions.Exit, UserError):
        return None


@settings(deadline=None, max_examples=400)
@given(st.lists(_words, max_size=8))
@example(["-p", "x", "--", "ls", "--help"])
@example(["--pass-fd", "3", "--pass-fd=4", "-q", "--", "--", "-p"])
@example(["-p", "--quiet", "--", "ls"])
@example(["--protect", "", "--", "ls"])
def test_what_the_quick_parser_takes_click_takes_alike(argv):
    quick = parse_run(argv)
    slow = by_click(argv)
    if quick is not None:
        assert slow is not None and values(quick) == values(slow)
    elif slow is not None:  # click knows more forms, of these only
        assert any(word.startswith("-") and word not in _FLAGS and word != "--" for word in argv)


def _example(row):
    if row.kind == FLAG:
        return [row.flags[-1]], True
    value = row.choices[-1] if row.choices else "7" if row.kind == NUMBERS else "some/where"
    many = row.kind not in (CHOICE, "text")
    typed = 7 if row.kind == NUMBERS else value
    return [row.flags[-1], value] * (2 if many else 1), [typed, typed] if many else typed


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_option_reaches_its_attribute(row):
    words, expected = _example(row)
    argv = [*words, "--", "ls", "-l", "--help", "--"]
    for options in (parse_run(argv), by_click(argv)):
        assert getattr(options, row.name) == expected
        assert options.command == ["ls", "-l", "--help", "--"]
    default = parse_run(["--", "ls"])
    assert getattr(default, row.name) != expected
    assert row.default is None or getattr(default, row.name) == row.default


def test_the_table_and_run_options_name_the_same():
    assert {row.name for row in TABLE} | {"command"} == set(RunOptions.__slots__)
    assert all(row.choices for row in TABLE if row.kind in (CHOICE, CHOICES))


_UNUSUAL = (
    *([], ["ls"], ["--"], ["-q"], ["-q", "--"], ["--help"], ["--nope", "--", "ls"], ["log"], ["-p"]),
    *(
        ["-p", "--", "ls"],
        ["--confirm", "maybe", "--", "ls"],
        ["--quiet=yes", "--", "ls"],
        ["-p=x", "--", "ls"],
    ),
    *(["--pass-fd", value, "--", "ls"] for value in ("2", "-3", "\u0663", "+4", "99999999999", "")),
)


@pytest.mark.parametrize("argv", _UNUSUAL, ids=" ".join)
def test_the_unusual_is_left_to_click(argv):
    assert parse_run(argv) is None


def test_a_run_starts_without_heavy_imports():
    """Click alone takes longer than Python's own start."""
    script = (
        "import os, sys; before = set(sys.modules)\n"
        "from pincer_trace import __main__, options, paths, errors\n"
        "assert options.parse_run(['-q', '--', 'true'])\n"
        "from pincer_trace.ledger import Session\n"
        "facts = dict(command=[b'x'], profile_name='', profile_digest=b'', workspace=b'/', details={})\n"
        "s = Session.create(Session.reserve(sys.argv[1]), **facts)\n"
        "s.ledger.denied('write', b'/', pid=1, exe=b'', dev=0, ino=0, verdict='deny', rule='', reason='')\n"
        "s.ledger.leave()\n"  # the key of the ledger's heads is made beside the run
        "print(*sorted(set(sys.modules) - before))"
    )
    root = os.path.dirname(os.path.dirname(pincer_trace.__file__))
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [sys.executable, "-S", "-c", script, place], capture_output=True, text=True, check=True, cwd=root,
            env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    imported = set(done.stdout.split())
    outside = {name for name in imported if not name.startswith("pincer_trace")}
    assert outside <= {"__future__", "errno", "_json", "fcntl", "gc", "time", "_thread", "_hashlib"}


def test_a_whole_run_never_imports_what_is_for_people(program, tmp_path):
    """The second run of a profile, which finds it compiled."""
    command = [sys.executable, "-X", "importtime", "-m", "pincer_trace", "-q", "--", "true"]
    for _ in range(2):
        done = subprocess.run(
            command, env=program.environ, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "pincer_trace" in imported
    assert not imported & {
        "click",
        "rich",
        "msgspec",
        "json",
        "tomllib",
        "pyseccomp",
        "dataclasses",
        "inspect",
    }


def test_neither_engine_nor_a_refusal_by_root_imports_what_costs(tmp_path):
    """After the engine has left the terminal, -X importtime tells no more."""
    script = "import sys, pincer_trace.engine, pincer_trace.profile.show; print(*sys.modules)"
    root = os.path.dirname(os.path.dirname(pincer_trace.__file__))
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True, cwd=root,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    imported = set(done.stdout.split())
    assert not imported & {"re", "shlex", "queue", "heapq", "json", "typing", "subprocess", "contextlib"}
    assert not imported & {"enum", "signal", "socket", "selectors", "hashlib"}  # the C half of each is enough
