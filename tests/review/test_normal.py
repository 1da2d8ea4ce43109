"""Names as another run of the same would have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pincer_trace.profile import Places, globs
from pincer_trace.review.normal import Naming

PLACES = Places(
    cwd=b"/w/sub", workspace=b"/w", home=b"/h", tmp=b"/h/tmp", state=b"/h/.local/state/x", git_common_dir=b"/w/.git"
)
NAMING = Naming(PLACES, {24590})


@pytest.mark.parametrize(
    ("path", "place", "below"),
    [
        (b"/w", "workspace", []),
        (b"/w/a/b", "workspace", [b"a", b"b"]),
        (b"/w/.git/HEAD", "git_common", [b"HEAD"]),
        (b"/wx/a", "", [b"wx", b"a"]),
        (b"/h/.cache/pip/x", "cache", [b"pip", b"x"]),
        (b"/h/.npmrc", "home", [b".npmrc"]),
        (b"/h/tmp/x", "tmp", [b"x"]),
        (b"/", "", []),
    ],
)
def test_a_path_is_told_by_the_deepest_place(path, place, below):
    assert NAMING.split(path) == (place, below)
    text = b"".join(b"/" + globs.escape(name) for name in below)
    assert globs.matches(globs.components(NAMING.expanded(place, text) or b"/"), path)


@pytest.mark.parametrize(
    ("name", "steady"),
    [
        (b"981922613b2afb6025042ff6bd878ac1994e85", b"*"),
        (b"tmp_obj_NL1ob2", b"tmp_obj_*"),
        (b"x.24590", b"x.*"),
        (b"sess-ef0b4a61-2d3c-4a1b-9c1d-000000000001.jsonl", b"sess-*.jsonl"),
        (b"2026-11-30T17_55_12-debug.log", b"*-debug.log"),
        (b"1796061349-a", b"*-a"),
        # what a person names stays
        (b"README.md", b"README.md"),
        (b"package-lock.json", b"package-lock.json"),
        (b"python3.11", b"python3.11"),
        (b"CamelCase.java", b"CamelCase.java"),
        (b"foo-1.2.3.tar.gz", b"foo-1.2.3.tar.gz"),
        (b"f10", b"f10"),
        (b"decade", b"decade"),
    ],
)
def test_what_is_made_up_anew_each_time_is_a_star(name, steady):
    assert NAMING.steady(name) == steady


@pytest.mark.parametrize(
    ("name", "fleeting"),
    [
        (b"tmpzc6_uwiq", b"tmp????????"),
        (b"hzg30xng", b"????????"),
        (b"pip-build-env-mxvd3_2z", b"pip-build-env-????????"),
        (b"tmp_obj_GwqRxz", b"tmp_obj_*"),
        (b"pytest-7", b"pytest-*"),
        (b"index.lock", b"index.lock"),
        (b"COMMIT_EDITMSG", b"COMMIT_EDITMSG"),
    ],
)
def test_of_temporary_things_more_counts_as_made_up(name, fleeting):
    assert NAMING.fleeting(name) == fleeting


def test_python_makes_up_eight_letters():
    assert (NAMING.temporary(b"abcdefgh"), NAMING.fleeting(b"makefile")) == (b"?" * 8, b"makefile")


@given(st.binary(min_size=1, max_size=30).filter(lambda name: b"/" not in name and b"\0" not in name))
def test_a_name_matches_its_own_pattern_which_is_one_component(name):
    if name in (b".", b".."):
        return
    for pattern in (NAMING.steady(name), NAMING.fleeting(name), NAMING.temporary(name)):
        components = globs.components(b"/" + pattern)
        assert len(components) == 1
        assert globs.matches(components, b"/" + name)
