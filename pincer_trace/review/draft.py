"""A learned profile as a person reads it: TOML, what was kept back first and commented out, each pattern with what led
to it.

Names of files come from the runs, which may have been hostile: in a string they are escaped as a pattern and as TOML,
in a comment they are shown on one line, so that none of them ends where it should not.
"""

from __future__ import annotations

from pincer_trace import effects, paths
from pincer_trace.profile import globs
from pincer_trace.profile.model import CONFIRM, OWN
from pincer_trace.profile.show import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pincer_trace.review.generalise import Pattern
    from pincer_trace.review.lessons import Deed, KeptBack, Lessons

_WIDTH = 88  # of a path, up to which comments behind paths stand below each other
_SHOWN = 100  # characters of a name in a comment
_MOST = 200  # of what is kept back, that are written out
_GROUPS = (
    (effects.READ, "read"),
    (effects.EXEC, "started"),
    (effects.CONNECT, "connected to"),
)


def draft(lessons: Lessons, patterns: Iterable[Pattern], keeps: str) -> str:
    """The text of the file."""
    patterns = list(patterns)
    out = [*_head(lessons, keeps), *_kept_back(lessons), "# " + "-" * 100, "# What the runs did, and may do again", ""]
    for names, when, group in _grouped(patterns):
        out += [*_rule(names, when, group, lessons), ""]
    return "\n".join(out).rstrip() + "\n"


def _head(lessons: Lessons, keeps: str) -> Iterator[str]:
    runs = paths.counted(len(lessons.pasts), "recorded run")
    yield f"# Learned from {runs}, {paths.counted(lessons.decisions, 'decision')}:"
    for past in lessons.pasts[:20]:
        command = past.session.get("command")
        words = " ".join(map(str, command)) if isinstance(command, list) else ""
        yield f"#   {paths.display(past.id, 60)}  {paths.display(words, _SHOWN)}"
    if len(lessons.pasts) > 20:
        yield f"#   and {len(lessons.pasts) - 20} more"
    yield "# Behind each path: how often, of how many names, and the record of a first example."
    yield "# Whatever is allowed here, the protections of the profile named below are asked before it. Read it before"
    yield "# you use it: it allows what was done, not what should have been."
    yield ""
    yield f'description = "learned from {runs}"'
    yield f"protections = {quoted(keeps.encode())}"
    yield ""


def _kept_back(lessons: Lessons) -> Iterator[str]:
    groups = lessons.things()
    if not groups:
        return
    yield "# " + "-" * 100
    things = paths.counted(len(groups), "thing")
    yield f"# KEPT BACK: {things} that the runs did or tried, and that no profile should allow unseen."
    yield "# Nothing of this is in force. For what you want to be asked about, take the '# ' in front of its rule away."
    yield ""
    ordered = sorted(groups.items(), key=lambda item: (not item[1][0].by_protection, item[0]))
    for number, ((path, rule, reason), group) in enumerate(ordered, 1):
        if number > _MOST:
            yield f"# and {len(groups) - _MOST} more, which `pincer-trace profile check` shows"
            yield ""
            break
        first = group[0]
        names = sorted({kept.deed.effect for kept in group})
        count = max(kept.deed.seen.count for kept in group)
        seen = f"{paths.counted(count, 'time')}, {_example(first.deed, lessons)}"
        yield f"# {number}. {', '.join(names)} {_named(path)}: {seen}"
        yield f"#    {paths.display(rule, _SHOWN) or 'no rule'}: {paths.display(reason, 300)}"
        yield "# [[rule]]"
        if first.by_protection:
            yield "# protection = true"
        yield f"# effects = [{', '.join(map(_quoted, _with_content(names)))}]"
        yield f"# paths = [{quoted(_pattern(first))}]"
        yield f'# verdict = "{CONFIRM}"'
        yield '# reason = "a recorded run did this, or tried"'
        yield ""
    if lessons.more:
        yield f"# There was more of it than is kept apart: {paths.counted(lessons.more, 'decision')}."
        if lessons.crowd:
            yield "# So nothing below is taken as a whole: each name is written out."
        yield ""


def _with_content(names: list[str]) -> list[str]:
    content = {effects.CREATE, effects.WRITE, effects.TRUNCATE}
    return sorted({*names, *(content if content & set(names) else ())})


def _pattern(kept: KeptBack) -> bytes:
    if kept.path.startswith(b"//"):
        return globs.escape(kept.path)
    return _placed(kept.deed.place, b"".join(b"/" + globs.escape(name) for name in kept.deed.below))


def _placed(place: str, text: bytes) -> bytes:
    return b"{%b}%b" % (place.encode(), text) if place else text or b"/"


def _grouped(patterns: Iterable[Pattern]) -> list[tuple[tuple[str, ...], str, list[Pattern]]]:
    """Those of equal effects and conditions together: what changes files first, reads last."""
    groups: dict[tuple[tuple[str, ...], str], list[Pattern]] = {}
    for pattern in patterns:
        groups.setdefault((tuple(sorted(pattern.effects)), pattern.when), []).append(pattern)
    rows = [(names, when, group) for (names, when), group in groups.items()]
    return sorted(rows, key=lambda row: (_order(row[0]), -len(row[2]), row[0], row[1]))


def _order(names: tuple[str, ...]) -> int:
    if effects.TO_PEERS & set(names):
        return 0
    return 1 if effects.CHANGES & set(names) else 2 if effects.EXEC in names else 3


def _rule(names: tuple[str, ...], when: str, group: list[Pattern], lessons: Lessons) -> Iterator[str]:
    told = ("change", *sorted(set(names) - effects.CHANGES)) if set(names) >= effects.CHANGES else names
    rows = [f"    {quoted(_placed(pattern.place, pattern.text))}," for pattern in group]
    width = min(_WIDTH, max(map(len, rows)))
    yield "[[rule]]"
    yield f"effects = [{', '.join(map(_quoted, told))}]"
    yield "paths = ["
    for pattern, row in zip(group, rows, strict=True):
        yield f"{row:{width}}  # {_seen(pattern, lessons)}"
    yield "]"
    if when:
        yield f'when = "{when}"'
    yield 'verdict = "allow"'
    yield f'reason = "{_reason(names, when)}"'


def _reason(names: tuple[str, ...], when: str) -> str:
    if when == OWN:
        return "learned: temporary things of its own"
    what = next((words for effect, words in _GROUPS if effect in names), "changed")
    return f"learned: recorded runs {what} this"


def _seen(pattern: Pattern, lessons: Lessons) -> str:
    assert pattern.example is not None
    of = f" of {paths.counted(len(pattern.names), 'name')}" if len(pattern.names) > 1 else ""
    return f"{pattern.count}x{of}, {_example(pattern.example, lessons)}"


def _example(deed: Deed, lessons: Lessons) -> str:
    """`record 4: create a/b by sh`, and the session where there are several."""
    seen = deed.seen
    by = f" by {paths.display(seen.exe.rpartition('/')[2], 40)}" if seen.exe else ""
    where = f" of {paths.display(seen.session, 60)}" if len(lessons.pasts) > 1 else ""
    name = b"/".join(deed.below) or b"{%b}" % deed.place.encode() if deed.place else _absolute(deed)
    return f"record {seen.record}{where}: {deed.effect} {_named(name)}{by}"


def _absolute(deed: Deed) -> bytes:
    return deed.below[0] if deed.below[:1] and deed.below[0][:2] == b"//" else b"/" + b"/".join(deed.below)


def _named(path: bytes) -> str:
    return paths.named(path, _SHOWN)


def _quoted(word: str) -> str:
    return f'"{word}"'
