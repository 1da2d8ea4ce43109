"""JSON text: the exact values come back by the standard parser, and a line is printable ASCII."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pincer_trace.ledger.encode import encode, quote_bytes
from pincer_trace.ledger.read import raw


@given(st.binary(max_size=4095))
@example(b'\n\r\t\0\x1b[2J\x7f"\\')
@example(b"\xff" * 4095)
@example("\u202e\U0001f600é".encode())
@example(b"\xed\xa0\xbd\xed\xb8\x80")  # surrogates in UTF-8 are no UTF-8
@example("\U0001f600".encode() + b"\xbd")  # a low half must not join a pair's end
def test_bytes_come_back_exactly(value):
    text = quote_bytes(value)
    assert text.isascii() and text.isprintable()
    assert raw(json.loads(text)) == value


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_values)
def test_values_as_the_standard_parser_reads_them(value):
    text = encode(value)
    assert text.isascii() and text.isprintable()
    assert json.loads(text) == value


@pytest.mark.parametrize("value", [object(), {1: 2}, {b"k": 1}, math.nan, math.inf, -math.inf, {1, 2}])
def test_what_json_lacks_is_refused(value):
    with pytest.raises(TypeError, match="JSON"):
        encode(value)
