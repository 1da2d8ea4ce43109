"""docs/profiles.md is what the tables say by now, and its example is a profile."""

from __future__ import annotations

import re
from pathlib import Path

from pincer_trace.profile import ALLOW, Facts, load
from pincer_trace.profile.reference import page
from pincer_trace.profile.source import RuleTable

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs/profiles.md").read_text()


def test_the_page_is_current():
    assert page() == PAGE, "run scripts/reference-page"


def test_each_key_of_a_rule_is_on_it():
    rows = PAGE.partition("## `[[rule]]`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", rows, re.M) == list(RuleTable.__struct_fields__)


def test_its_example_is_a_profile(places, write):
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    profile = load(write(example), places)
    assert profile.judge("create", b"/srv/data/a/b", Facts()).verdict == ALLOW
    assert profile.judge("create", b"/srv/a", Facts()).verdict != ALLOW
