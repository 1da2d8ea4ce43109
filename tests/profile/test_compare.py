"""What two profiles decide differently, told by effects and patterns."""

from __future__ import annotations

import pytest

from pincer_trace.profile import load
from pincer_trace.profile.compare import differences

BASE = '[[rule]]\neffects = ["read", "exec"]\npaths = ["/**"]\nverdict = "allow"\nreason = "r"\n'


def rule(effect, path, verdict="allow", more=""):
    return f'[[rule]]\neffects = ["{effect}"]\npaths = ["{path}"]\nverdict = "{verdict}"\nreason = "r"\n{more}'


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("", "", []),
        ("# a comment, and another reason\n", "", []),
        ("", rule("write", "/w/*.txt"), [("/w/*.txt", ("deny", "allow"), ["write"], True)]),
        (rule("change", "/w/**"), rule("write", "/w/**"), None),
        (rule("write", "/w/**"), rule("write", "/w/**", more='when = "own"\n'),
         [("/w/**", ("allow", "deny, or allow when own"), ["write"], False)]),
        ("", rule("read", "/s/**", "confirm", "protection = true\n"),
         [("/s/**", ("allow", "confirm"), ["read"], False)]),
        ("", rule("connect", "//10.0.0.1:443"), [("//10.0.0.1:443", ("deny", "allow"), ["connect"], True)]),
        (rule("connect", "//10.0.0.0/16:443"), rule("connect", "//10.0.0.0/8:443"),
         [("//10.0.0.0/8:443", ("deny", "allow"), ["connect"], True)]),
        (rule("connect", "//2001:db8::/32:*"), rule("connect", "//[2001:db8:1::/48]:*"),
         [("//2001:db8::/32:*", ("allow", "deny"), ["connect"], False)]),
        (rule("connect", "//::/0:1"), rule("connect", "//[::]/0:1"), []),
        # the narrower pattern says nothing that the wider one does not
        ("", rule("write", "/w/**") + rule("read", "/w/a"), [("/w/**", ("deny", "allow"), ["write"], True)]),
    ],
)  # fmt: skip
def test_what_differs_is_told_once(places, write, one, other, told):
    left, right = load(write(BASE + one, "one.toml"), places), load(write(BASE + other, "other.toml"), places)
    found = [(each.pattern.decode(), each.verdicts, each.effects, each.loosens) for each in differences(left, right)]
    if told is None:
        ((pattern, verdicts, effects, loosens),) = found
        assert (pattern, verdicts, loosens) == ("/w/**", ("allow", "deny"), False)
        assert "write" not in effects
        assert {"create", "unlink", "chmod"} <= set(effects)
    else:
        assert found == told
    back = differences(right, left)
    assert {(each.pattern, each.verdicts[::-1]) for each in back} == {(p.encode(), v) for p, v, _, _ in found}


def test_a_profile_does_not_differ_from_itself(places):
    default = load("default", places)
    assert differences(default, load("default", places)) == []
