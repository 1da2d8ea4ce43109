"""The pattern language against a slow reference, and the automaton against the one-pattern matcher."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace.profile import globs
from pincer_trace.profile.automaton import Automaton
from pincer_trace.profile.model import Rule

# few letters, so that things meet; `-`, `!` and `.` have a meaning somewhere
NAME = st.text("ab.-", min_size=1, max_size=4).filter(lambda s: s not in {".", ".."})
PATH = st.lists(NAME, max_size=5).map(lambda parts: ("/" + "/".join(parts)).encode())
PIECE = st.one_of(
    st.text("ab.-", min_size=1, max_size=2),
    st.sampled_from(["*", "?", "[ab]", "[!a]", "[a-b]", "\\a", "\\.", "{a,b}", "{a,}", "{a*,b/a}", "{a,{b,.}}"]),
)
COMPONENT = st.one_of(st.just("**"), st.lists(PIECE, min_size=1, max_size=3).map("".join))
PATTERN = st.lists(COMPONENT, max_size=4).map(lambda parts: ("/" + "/".join(parts)).encode())


def reference(pattern: bytes, path: bytes) -> bool:
    """Recursion over characters and components, with no thought of speed."""

    def in_component(p: bytes, s: bytes) -> bool:
        if not p:
            return not s
        if p[:1] == b"*":
            return any(in_component(p[1:], s[i:]) for i in range(len(s) + 1))
        if p[:1] == b"\\":
            return s[:1] == p[1:2] and in_component(p[2:], s[1:])
        if p[:1] == b"?":
            return bool(s) and in_component(p[1:], s[1:])
        if p[:1] == b"[":
            end = p.index(b"]", 2)
            inside = p[1:end]
            wanted = not inside.startswith(b"!")
            members = b"ab" if inside.lstrip(b"!") == b"a-b" else inside.lstrip(b"!")
            return bool(s) and (s[:1] in [bytes([m]) for m in members]) == wanted and in_component(p[end + 1 :], s[1:])
        return s[:1] == p[:1] and in_component(p[1:], s[1:])

    def in_path(p: list[bytes], s: list[bytes]) -> bool:
        if not p:
            return not s
        if p[0] == b"**":
            return in_path(p[1:], s) or (bool(s) and in_path(p, s[1:]))
        return bool(s) and in_component(p[0], s[0]) and in_path(p[1:], s[1:])

    return in_path(pattern.split(b"/")[1:] if pattern != b"/" else [], path.split(b"/")[1:] if path != b"/" else [])


def parsed(pattern: bytes) -> list[tuple[bytes, globs.Components]]:
    out = []
    try:
        written_out = globs.alternatives(pattern)
    except globs.GlobError:  # too many
        return []
    for alternative in written_out:
        try:
            out.append((alternative, globs.components(alternative)))
        except globs.GlobError:  # such as `a**`, or the component `.`
            continue
    return out


@settings(max_examples=400, deadline=None, database=None)
@given(PATTERN, PATH)
def test_a_pattern_matches_as_the_reference_does(pattern, path):
    for alternative, components in parsed(pattern):
        assert globs.matches(components, path) == reference(alternative, path), alternative


@settings(max_examples=200, deadline=None, database=None)
@given(st.lists(PATTERN, min_size=1, max_size=8), st.lists(PATH, min_size=1, max_size=6))
def test_the_automaton_matches_as_each_pattern_alone(patterns, paths):
    rules = [
        Rule(frozenset({"read"}), text, components, "allow", "r", "s")
        for pattern in patterns
        for text, components in parsed(pattern)
    ]
    for rank, rule in enumerate(rules):
        rule.rank = rank
    automaton = Automaton(tuple(rules))
    for path in paths:
        expected = [rule for rule in reversed(rules) if globs.matches(rule.components, path)]
        assert list(automaton.state(path).accepted) == expected


@settings(max_examples=200, deadline=None, database=None)
@given(PATTERN, PATH, st.lists(NAME, min_size=1, max_size=3))
def test_what_is_pending_at_a_directory_never_misses_what_matches_below(pattern, directory, names):
    below = directory.rstrip(b"/") + b"/" + "/".join(names).encode()
    for text, components in parsed(pattern):
        rule = Rule(frozenset({"read"}), text, components, "deny", "r", "s")
        if globs.matches(components, below):
            assert rule in Automaton((rule,)).pending(directory)


@settings(database=None)
@given(st.binary(min_size=1, max_size=12).filter(lambda b: not {0, 47} & set(b) and b not in {b".", b".."}))
def test_an_escaped_name_matches_itself_and_nothing_else(name):
    (components,) = [globs.components(a) for a in globs.alternatives(b"/" + globs.escape(name))]
    assert components == (name,)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (b"/x/**", b"/x", True),
        (b"/x/**", b"/x/y/z", True),
        (b"/x/**", b"/xy", False),
        (b"/**", b"/", True),
        (b"/*", b"/", False),
        (b"**/a", b"/a", True),
        (b"**/a", b"/b/c/a", True),
        (b"/*", b"/.hidden", True),
        (b"/a/*", b"/a/../b", False),
        (b"/**", b"/a/..", False),
        (b"/**", b"/a/", False),
        (b"/**", b"/a//b", False),
        (b"/**", b"a", False),
        (b"/**", b"//example.com:443", False),
        (b"//*.example.com:*", b"//www.example.com:443", True),
        (b"//**", b"//x:1", True),
        (b"/[]]", b"/]", True),
        (b"/a?", b"/a\xff", True),
        (b"/a\n*", b"/a\nb", True),
    ],
)
def test_matches(pattern, path, expected):
    components = globs.components(pattern)
    assert globs.matches(components, path) is expected
    rule = Rule(frozenset(), pattern, components, "allow", "", "")
    assert bool(Automaton((rule,)).state(path).accepted) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        b"a",
        b"",
        b"/a**",
        b"/a/",
        b"/a//b",
        b"/a/../b",
        b"/./a",
        b"/[a",
        b"/{a",
        b"/a}",
        b"/{a}",
        b"/a\\",
        b"/[b-a]",
        b"//",
    ],
)
def test_what_is_not_in_the_language_is_refused(pattern):
    with pytest.raises(globs.GlobError):
        for alternative in globs.alternatives(pattern):
            globs.components(alternative)


def test_too_many_alternatives_are_refused():
    with pytest.raises(globs.GlobError, match="256"):
        globs.alternatives(b"/" + b"{a,b}" * 9)


def test_a_hostile_tree_cannot_grow_the_automaton_without_bound(monkeypatch):
    from pincer_trace.profile import automaton as module

    monkeypatch.setattr(module, "LIMIT", 50)
    names = [b"k%d" % i for i in range(12)]
    rules = tuple(Rule(frozenset(), b"", (None, name, None), "deny", "", "") for name in names)
    automaton = Automaton(rules)
    for i in range(1000):
        chosen = [name for bit, name in enumerate(names) if i >> bit & 1]
        path = b"/" + b"/".join(chosen or [b"x"])
        assert len(automaton.state(path).accepted) == len(chosen)
        assert len(automaton._states) <= 51
