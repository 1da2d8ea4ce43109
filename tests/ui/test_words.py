"""Text that is safe and as wide as we think. Hazard P53."""

from __future__ import annotations

import ctypes
import locale
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pincer_trace import paths
from pincer_trace.ui import words
from pincer_trace.ui.words import Look, Places

FACTS = {"workspace": "/home/u/project", "judged_by": {"places": {"home": "/home/u"}}}


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_p53_names_have_no_character_that_moves_others(raw):
    text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
    said = words.name(text)
    assert said.isprintable()
    assert all(unicodedata.bidirectional(c) not in ("R", "AL", "AN", "RLO", "LRO", "RLE", "RLI") for c in said)


def test_p53_every_character_is_as_wide_as_the_c_library_says():
    """Else it would push what stands behind it into another column."""
    before = locale.setlocale(locale.LC_CTYPE)
    wcwidth = ctypes.CDLL(None).wcwidth
    wcwidth.argtypes = [ctypes.c_uint]
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        kept = 0
        for point in range(0x80, 0x110000):
            said = words.steady(paths.display(chr(point))) if not 0xD800 <= point < 0xE000 else ""
            if len(said) == 1:
                kept += 1
                assert cell_len(said) == wcwidth(point), hex(point)
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert kept > 100_000, "letters stay readable"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/home/u/project/src/a.py", "./src/a.py"),
        ("/home/u/project", "./"),
        ("/home/u/.bashrc", "~/.bashrc"),
        ("/home/user/x", "/home/user/x"),
        ("/etc/passwd", "/etc/passwd"),
        ("~/x", '"~/x"'),
        ("./x", '"./x"'),
        ("/home/u/a b", '"~/a b"'),
        ("/home/u/project/a -> b", '"./a -> b"'),
        ("", ""),
    ],
)
def test_paths_are_short_and_nothing_else_looks_so(path, said):
    assert Places(FACTS).short(path) == said


@given(
    st.dictionaries(
        st.sampled_from(["workspace", "judged_by"]), st.none() | st.integers() | st.text() | st.just({"places": 3})
    )
)
def test_places_of_a_session_from_elsewhere(facts):
    assert Places(facts).short("/a/b") in ("/a/b", "./b", "./", "./a/b")


@given(st.text(alphabet="ab/é漢", max_size=80), st.integers(0, 60))
def test_what_is_cut_fits(said, width):
    for cut in (words.cut(said, width), words.middle(said, width)):
        assert cell_len(cut) <= max(width, 0)
    if cell_len(said) <= width:
        assert words.middle(said, width) == said
    elif width > 10 and said.isascii():
        assert words.middle(said, width)[-5:] == said[-5:]


@given(st.text(alphabet="ab c/é漢", min_size=1, max_size=200), st.integers(4, 30), st.integers(1, 6))
def test_what_is_broken_over_lines_fits(said, width, lines):
    for fit in (words.wrapped, words.folded):
        found = fit(said, width, lines)
        assert 1 <= len(found) <= lines and all(cell_len(each) <= width for each in found)
    if cell_len(said) <= width * lines - lines:
        assert "".join(words.wrapped(said, width, lines)) == said or "漢" in said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0"),
        (9999, "9999"),
        (10_000, "10.0k"),
        (12_345, "12.3k"),
        (123_456, "123k"),
        (999_700, "1.0M"),
        (10**9, "1.0G"),
    ],
)
def test_counts(count, said):
    assert words.many(count) == said and len(words.many(count)) <= 5


def test_colours_and_marks():
    plain = Look({"NO_COLOR": "1"}, "ascii")
    assert not any(
        colour in " ".join(plain.styles.values()) for colour in ("red", "green", "yellow", "cyan", "magenta")
    )
    kinds = (words.DONE, words.FAILED, words.OPEN, words.DENIED, words.NATIVE, words.FAILURE, words.ANSWER)
    assert all(plain.mark(kind).isascii() for kind in kinds) and plain.encoded("é…") == "\\xe9\\u2026"
    full = Look({}, "UTF-8")
    assert all(cell_len(full.mark(kind)) == 1 for kind in kinds) and full.encoded("é") == "é"
    assert "red" in full.styles[words.BAD]
