"""What of a program's output reaches the person's terminal under `--ui inline`: nothing that could leave its part."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pincer_trace.ui.inline.filter import Filter

# The only things that may come out, whatever went in.
ALLOWED = re.compile(
    r"(?:[^\x00-\x1f\x7f-\x9f]|[\n\r\t\b\a]|\x1b\[[0-9;:]*[ABCDGKmJ]|\x1b\[\?25[lh])*", re.DOTALL
)  # fmt: skip
PIECES = st.sampled_from(
    [b"\x1b", b"[", b"]", b"?", b"1049h", b"25l", b"24;1H", b"r", b"m", b"31", b";", b"A", b"J", b"\x9b", b"\xc2\x9b",
     b"\x07", b"\\", b"\x18", b"P", b"#8", b"(0", b"\x0e", b"c", b"D", b"M", b"7", b"8", b"text", b"\n", b"\xe2\x82",
     b"!p", b" q", b"6n", b">c", b"0;title", b"9" * 70]
)  # fmt: skip


def passed(data: bytes) -> str:
    return Filter().feed(data)


@given(st.lists(PIECES | st.binary(max_size=8), max_size=40).map(b"".join))
@example(b"\x1b[\x1b[24;1Hx")
@example(b"\x1b]0;t\x1b[24;1H\x07x")
@example(b"\x1b[2\x1b(\x1b[3H")
@example(b"\x1b[1;24r\x1b[?6l\x1b[24d\x1b[E\x1b[F\x1b[S\x1b[T\x1b[L")
def test_nothing_else_passes(data):
    assert ALLOWED.fullmatch(passed(data))


@given(st.lists(PIECES | st.binary(max_size=8), max_size=20))
def test_it_does_not_matter_where_the_output_is_cut(pieces):
    whole, apart = Filter(), Filter()
    assert whole.feed(b"".join(pieces)) == "".join(map(apart.feed, pieces))
    assert (whole.erased, whole.drawing) == (apart.erased, apart.drawing)
    single = Filter()
    assert "".join(single.feed(bytes([byte])) for byte in b"".join(pieces)) == "".join(
        map(Filter().feed, [b"".join(pieces)])
    )


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs"))))
def test_text_passes_as_it_is(text):
    assert passed(text.encode()) == text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x1b[1;31mred\x1b[m\r\n", "\x1b[1;31mred\x1b[m\r\n"),
        (b"10%\r\x1b[K20%", "10%\r\x1b[K20%"),
        (b"\x1b[2A\x1b[1Gup", "\x1b[2A\x1b[1Gup"),
        (b"\x1b]0;a title\x07x", "x"),
        (b"\x1b]52;c;c2VjcmV0\x1b\\x", "x"),  # the clipboard
        (b"\x1bP+q544e\x1b\\x", "x"),  # a question, which the terminal would answer as if it were typed
        (b"\x1b[6n\x1b[cx", "x"),
        (b"\x1b[?1049h\x1b[Hx", "x"),
        (b"\x1bcx", "x"),
        (b"\x1b(0lqk\x1b(B", "lqk"),
        (b"\x1b[38;2;1;2;3mx", "\x1b[38;2;1;2;3mx"),
        (b"\x1b[>4;2mx", "x"),  # it looks like a colour, and sets how keys are told
        (b"a\x00\x0b\x0c\x0e\x7fb", "ab"),
        (b"\xff\xc2\x9b31m", "\ufffd31m"),
        (b"\x1b[?25l\x1b[?25h\x1b[?25l", "\x1b[?25l\x1b[?25h\x1b[?25l"),
    ],
)
def test_examples(data, shown):
    assert passed(data) == shown


def test_it_tells_of_what_erases_our_lines_and_of_what_wants_the_screen():
    one = Filter()
    one.feed(b"\x1b[31mtext")
    assert (one.erased, one.drawing) == (False, False)
    one.feed(b"\x1b[")
    one.feed(b"0J")
    assert (one.erased, one.drawing) == (True, False)
    one.feed(b"\x1b[?1049h")
    assert one.drawing
