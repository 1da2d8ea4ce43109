"""What two profiles decide differently, told by effects and patterns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace.profile import compare, examples, globs, load
from pincer_trace.profile.compare import Comparison
from pincer_trace.profile.examples import Kinds, meeting
from pincer_trace.profile.model import GRANT, PROTECTION, Facts, Profile, Rule, Settings

BASE = '[[rule]]\neffects = ["read", "exec"]\npaths = ["/**"]\nverdict = "allow"\nreason = "r"\n'


def rule(effect, path, verdict="allow", more=""):
    return f'[[rule]]\neffects = ["{effect}"]\npaths = ["{path}"]\nverdict = "{verdict}"\nreason = "r"\n{more}'


PROTECTED = "protection = true\n"
FOR_GIT = 'exe = ["/usr/bin/git"]\n'


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("", "", []),
        ("# a comment, and another reason\n", "", []),
        ("", rule("write", "/w/*.txt"), [("/w/*.txt", ("deny", "allow"), ["write"], True)]),
        (rule("change", "/w/**"), rule("write", "/w/**"), None),
        (rule("write", "/w/**"), rule("write", "/w/**", more='when = "own"\n'),
         [("/w/**", ("allow", "deny, or allow when own"), ["write"], False)]),
        ("", rule("read", "/s/**", "confirm", PROTECTED), [("/s/**", ("allow", "confirm"), ["read"], False)]),
        ("", rule("connect", "//10.0.0.1:443"), [("//10.0.0.1:443", ("deny", "allow"), ["connect"], True)]),
        (rule("connect", "//10.0.0.0/16:443"), rule("connect", "//10.0.0.0/8:443"),
         [("//10.0.0.0/8:443", ("deny", "allow"), ["connect"], True)]),
        (rule("connect", "//2001:db8::/32:*"), rule("connect", "//[2001:db8:1::/48]:*"),
         [("//2001:db8::/32:*", ("allow", "deny"), ["connect"], False)]),
        (rule("connect", "//::/0:1"), rule("connect", "//[::]/0:1"), []),
        # the narrower pattern says nothing that the wider one does not
        ("", rule("write", "/w/**") + rule("read", "/w/a"), [("/w/**", ("deny", "allow"), ["write"], True)]),
        # in what both patterns match alone: what either of them stands for is decided as before
        (rule("write", "/w/*.a") + rule("write", "/w/b*", "confirm"),
         rule("write", "/w/b*", "confirm") + rule("write", "/w/*.a"),
         [("/w/b*", ("confirm", "allow"), ["write"], True)]),
        # a rule for one program, by which that one may more, and less
        ("", rule("write", "/w/x", more=FOR_GIT), [("/w/x for /usr/bin/git", ("deny", "allow"), ["write"], True)]),
        (rule("write", "/w/**"), rule("write", "/w/**") + rule("write", "/w/x", "deny", FOR_GIT),
         [(f"/w/x {who}", ("allow", "deny"), ["write"], False) for who in
          ("for /usr/bin/git", "for a program that is not known", "for what the run made, as /usr/bin/git")]),
        # hosts, addresses and ports
        (rule("connect", "//*.example.com:443") + rule("connect", "//**", "confirm"),
         rule("connect", "//**", "confirm") + rule("connect", "//*.example.com:*"),
         [("//*.example.com:*", ("confirm", "allow"), ["connect"], True)]),
        (rule("connect", "//10.0.0.0/8:*"), rule("connect", "//10.0.0.0/8:22"), None),
        # what is equal, or cannot be
        (rule("write", "/w/{a,b}"), rule("write", "/w/b") + rule("write", "/w/a"), []),
        (rule("write", "/w/[ab]"), rule("write", "/w/{a,b}"), []),
        (rule("write", "/w/**"), rule("write", "/w/**") + rule("write", "/w/x/**", more='when = "own"\n'), []),
    ],
)  # fmt: skip
def test_what_differs_is_told_once(places, write, one, other, told):
    left, right = load(write(BASE + one, "one.toml"), places), load(write(BASE + other, "other.toml"), places)
    comparison = Comparison(left, right)
    assert comparison.complete
    found = [
        (" & ".join(map(bytes.decode, each.patterns)) + (f" {each.case}" if each.case else ""), each.verdicts,
         each.effects, each.loosens)
        for each in comparison.differences
    ]  # fmt: skip
    if told is None:
        assert {(verdicts, loosens) for _, verdicts, _, loosens in found} == {(("allow", "deny"), False)}
        assert "write" not in {effect for _, _, effects, _ in found for effect in effects}
        assert found
    else:
        assert found == told
    for each in comparison.differences:
        said = [profile.judge(each.effects[0], each.example, Facts()).verdict for profile in (left, right)]
        assert each.matches(each.example)
        assert each.case or all(now in verdict for now, verdict in zip(said, each.verdicts, strict=True)), each.example
    back = Comparison(right, left).differences
    assert {(*each.effects, each.case, *each.verdicts[::-1]) for each in back} == {
        (*each.effects, each.case, *each.verdicts) for each in comparison.differences
    }


def test_a_profile_does_not_differ_from_itself(places):
    comparison = Comparison(load("default", places), load("default", places))
    assert comparison.differences == []
    assert comparison.complete


def test_beyond_a_limit_overlaps_are_tried_two_by_two_and_that_is_said(places, write, monkeypatch):
    monkeypatch.setattr(compare, "_MOST_RULES", 0)
    monkeypatch.setattr(examples, "_MOST_POSITIONS", 0)
    one = rule("write", "/w/**") + rule("write", "**/*.a", "confirm", PROTECTED)
    comparison = Comparison(load(write(BASE), places), load(write(BASE + one, "q.toml"), places))
    assert not comparison.complete
    assert [(each.verdicts, each.patterns[0]) for each in comparison.differences] == [
        (("deny", "allow"), b"/w/**"),
        (("deny", "confirm"), b"/**/*.a"),
    ]


def test_grants_behind_many_protections_are_compared_in_full(places, write):
    """What a protection hides all of does not differ; what it hides some of has an example outside of that."""
    grants = rule("change", "{home}/.bashrc") + rule("change", "{workspace}/**/.envrc")
    wider = rule("change", "{workspace}/sub/**")
    left = load(write('protections = "default"\n' + BASE, "one.toml"), places)
    right = load(write('protections = "default"\n' + BASE + grants + wider, "other.toml"), places)
    comparison = Comparison(left, right)
    assert comparison.complete
    loosened = {(each.patterns[0].rpartition(b"/work")[2], each.verdicts) for each in comparison.differences}
    assert (b"/sub/**", ("deny", "allow")) in loosened
    assert not [each for each in comparison.differences if each.patterns[0].endswith(b"/.bashrc")]
    for each in comparison.differences:
        said = right.judge(each.effects[0], each.example, Facts()).verdict
        assert said in each.verdicts[1], each.example


@pytest.mark.slow
def test_what_is_too_much_to_be_tried_in_full_is_said_and_tried_in_part(places, write):
    """As a change of what the default profile says of every folder."""
    more = rule("change", "**/secret-*/**", "deny", PROTECTED)
    comparison = Comparison(load("default", places), load(write('extends = "default"\n' + more), places))
    assert not comparison.complete
    assert {each.verdicts for each in comparison.differences} >= {("allow", "deny"), ("confirm", "deny")}
    assert {each.patterns[0] for each in comparison.differences} == {b"/**/secret-*/**"}


# -- random profiles -------------------------------------------------------------------------------------------

PATTERNS = [
    b"/**", b"/w/**", b"/w/*", b"/w/a", b"/w/a/**", b"/w/*a", b"/w/a*", b"/w/[ab]*", b"/w/?", b"/w/[!a]", b"**/a",
    b"**/a/**", b"**/a/*/b", b"/*/a", b"/w/**/b", b"/w/**/a/**", b"/x/**", b"/w/b", b"/w/b/a", b"//**", b"//*:1",
    b"//a:*", b"//*a:1", b"//a*:[0-9]", b"//@*", b"//@a",
]  # fmt: skip
EXES = [b"", b"", b"", b"/bin/a", b"/bin/*", b"/bin/b"]
WHENS = ["", "", "", "own", "own-anchor", "own-above", "git-config", "git-inert", "git-active", "bound"]
NAMES = [b"a", b"b", b"ab", b"ba", b"w", b"c"]
PATHS = st.one_of(
    st.lists(st.sampled_from(NAMES), max_size=5).map(lambda parts: b"/" + b"/".join(parts)),
    st.lists(st.sampled_from(NAMES), max_size=4).map(lambda parts: b"/" + b"/".join([b"w", *parts])),
    st.sampled_from([b"//a:1", b"//b:1", b"//ba:1", b"//a:22", b"//@a", b"//@b", b"//ab:7"]),
)


@st.composite
def rules(draw):
    pattern, exe = draw(st.sampled_from(PATTERNS)), draw(st.sampled_from(EXES))
    names = draw(st.sets(st.sampled_from(["read", "write", "connect"]), min_size=1))
    verdict = draw(st.sampled_from(["allow", "allow", "deny", "confirm", "view"]))
    parsed = globs.components(exe) if exe else None
    tier = PROTECTION if verdict == "view" else draw(st.sampled_from([GRANT, GRANT, PROTECTION]))
    when = draw(st.sampled_from(WHENS))
    return frozenset(names), pattern, globs.components(pattern), verdict, "r", "", when, exe, parsed, tier


class Known(Facts):
    """What is so in one case: of own things the directories of some depths, counted from the root."""

    def __init__(self, path, draw):
        depth = path.count(b"/")
        self.path, self.made = path, draw(st.sets(st.integers(1, max(depth, 1)), max_size=depth))
        self.git, self.config = draw(st.sampled_from(["", None, "why"])), draw(st.booleans())
        self.bound = draw(st.booleans())
        self.label = draw(st.sampled_from([b"/bin/a", b"/bin/b", b"/bin/c", b"/other", b""]))
        self.trusted = self.label if draw(st.booleans()) else b""

    def created_by_tree(self, below):
        return self.directory_created_by_tree(self.path, below)

    def directory_created_by_tree(self, directory, below):
        above = 0 if below == b"/" else below.count(b"/")
        return any(above < each <= directory.count(b"/") for each in self.made)

    def git_config_changes(self):
        return frozenset() if self.config else None

    def git_danger(self):
        return self.git

    def bound_by_tree(self):
        return self.bound

    def executable(self):
        return self.label

    def trusted_executable(self):
        return self.trusted


def profile(rows, sources):
    made = tuple(Rule(*row[:5], f"{sources}:{line}", *row[6:]) for line, row in enumerate(rows))
    return Profile("p", made, b"", Settings())


@settings(max_examples=100, deadline=None, database=None)
@given(st.data())
def test_wherever_two_profiles_differ_it_is_told(data):
    """Random requests against random rules: what they are decided differently by, is told of that path and effect."""
    shared = data.draw(st.lists(rules(), max_size=4))
    one, other = ([*shared, *data.draw(st.lists(rules(), max_size=3))] for _ in range(2))
    if data.draw(st.booleans()):
        one, other = data.draw(st.permutations(one)), data.draw(st.permutations(other))
    left, right = profile(one, "one"), profile(other, "other")
    many = data.draw(st.booleans())  # as if there were many rules
    asked = [(path, Known(path, data.draw)) for path in data.draw(st.lists(PATHS, min_size=8, max_size=8))]
    with pytest.MonkeyPatch.context() as patched:
        if many:
            patched.setattr(compare, "_MOST_RULES", 0)
        comparison = Comparison(left, right)
    assert comparison.complete or many
    if not comparison.complete:
        return
    told = comparison.differences
    for path, facts in asked:
        for effect in ("connect",) if path[:2] == b"//" else ("read", "write", "connect"):
            said = left.judge(effect, path, facts).verdict, right.judge(effect, path, facts).verdict
            if said[0] != said[1]:
                about = [each for each in told if effect in each.effects and each.matches(path)]
                assert about, (effect, path, said)
                assert many or any(
                    all(verdict in text.replace(",", "").split() for verdict, text in zip(said, each.verdicts))
                    for each in about
                ), (effect, path, said, [each.verdicts for each in about])
    for each in told:
        assert each.matches(each.example)
        assert each.effects


@settings(max_examples=50, deadline=None, database=None)
@given(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6, unique=True), st.lists(PATHS, min_size=6))
def test_each_kind_of_path_has_an_example_that_is_of_it(texts, asked):
    patterns = [globs.components(text) for text in texts]
    kinds = Kinds(patterns, range(len(patterns)))
    found = dict(kinds.found())
    assert kinds.complete
    for matching, example in found.items():
        assert matching == {i for i, pattern in enumerate(patterns) if globs.matches(pattern, example)}, example
    for path in asked:
        matching = frozenset(i for i, pattern in enumerate(patterns) if globs.matches(pattern, path))
        assert not matching or matching in found
    for one in patterns:
        for other in patterns:
            path = meeting(one, other)
            both = any({patterns.index(one), patterns.index(other)} <= matching for matching in found)
            assert (path is not None) == both
            assert path is None or (globs.matches(one, path) and globs.matches(other, path)), path
