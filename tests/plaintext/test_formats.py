"""What a view shows of each format, and that no edit of it brings anything else to light."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plaintext.samples import SAMPLES, SECRET
from plaintext.views import view_of

from pincer_trace.plaintext import formats
from pincer_trace.plaintext.kinds import Kind
from pincer_trace.plaintext.restoring import Restored, restore
from pincer_trace.plaintext.summary import Mode, View

WIDE = Mode("wide", items=100, characters=10_000)  # all that any view of it could show


DOCUMENT = (Path(__file__).resolve().parents[2] / "docs/plaintext.md").read_text()
EXAMPLES = re.findall(r"^`([^`]+)` is\n\n```\n(.*?)```\n\nand is read as\n\n```\n(.*?)```", DOCUMENT, re.M | re.S)


@pytest.mark.parametrize(("name", "content", "text"), EXAMPLES, ids=lambda value: value[:20].split("\n")[0])
def test_the_document_shows_what_is_read(name: str, content: str, text: str) -> None:
    assert view_of(name, content.encode()).text.decode() == text


def test_the_document_has_an_example_of_each_format() -> None:
    assert {value for value in vars(formats).values() if isinstance(value, formats.Format)} == {*formats.ALL}
    known = {format.name for format in formats.ALL}
    assert {Kind.of(name.encode(), content.encode()).format.name for name, content, _ in EXAMPLES} == known


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ini", b"[one]\na = 1\n[ghp_0123456789abcdef]\nb = 2\n[two]\nc = 3\n"),
        ("a.toml", b"[one]\na = 1\n[ghp_0123456789abcdef]\nb = 2\n[two]\nc = 3\n"),
        ("a.yaml", b"one:\n  a: 1\nghp_0123456789abcdef:\n  b: 2\ntwo:\n  c: 3\n"),
        ("a.yaml", b"one:\n- a: 1\nghp_0123456789abcdef:\n- b: 2\n- b: x\n  b: 3\ntwo:\n- c: 3\n"),
    ],
)
def test_what_is_below_a_hidden_name_is_hidden_too(name: str, content: bytes) -> None:
    text = view_of(name, content).text
    assert re.search(rb"one[\]:]\n[ -]*a.*\n\[?two[\]:]\n[ -]*c", text), text


@pytest.mark.parametrize("name", SAMPLES)
def test_a_view_shows_names_and_no_secret(name: str) -> None:
    for mode in (WIDE, Mode("default")):
        view = view_of(name, SAMPLES[name], mode)
        assert SECRET not in view.text
        answer = restore(view.text, view)
        assert isinstance(answer, Restored)
        assert answer.content == SAMPLES[name]
        longer = restore(view.text + b"\n", view)
        assert isinstance(longer, Restored), longer
        assert longer.content.startswith(SAMPLES[name])


WORDS = st.sampled_from(
    [
        *(
            b"\n",
            b'"',
            b"'",
            b"`",
            b"=",
            b": ",
            b"#",
            b"# ",
            b" ",
            b"  ",
            b"\\",
            b"$(",
            b")",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
        ),
        *(
            b"- ",
            b"|\n",
            b"A=",
            b"name,",
            b"key,",
            b'"x": ',
            b"a: ",
            b"a = ",
            b"[a]\n",
            b"---\n",
            b'"""',
            b"'''",
            b"~1",
        ),
        *(b"machine ", b"password ", b"macdef x\n", b"https://", b"@github.com", b"\r", b"\0"),
        *(b"-----BEGIN RSA PRIVATE KEY-----\n", b"-----END RSA PRIVATE KEY-----\n"),
    ]
)


def edit(data: st.DataObject, view: View) -> bytes:
    """A text made of the view's pieces: handles, words and marks, moved, removed, doubled and mixed with others."""
    if data.draw(st.booleans()):
        parts = re.split(rb"(?<=\n)", view.text)
    else:
        parts = re.split(rb"(pincer:[a-z2-7]{26}|[\n\"'=:,#{}\[\]])", view.text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(parts) - 1))
        other = data.draw(st.integers(0, len(parts) - 1))
        match data.draw(st.sampled_from(["insert", "swap", "delete", "move", "replace"])):
            case "insert":
                parts.insert(at, data.draw(WORDS))
            case "swap":
                parts[at], parts[other] = parts[other], parts[at]
            case "delete" if len(parts) > 1:
                del parts[at]
            case "move":
                parts.insert(other, parts.pop(at))
            case "replace":
                parts[at] = data.draw(WORDS)
    return b"".join(parts)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_edit_brings_a_hidden_byte_to_light(name: str) -> None:
    accepted: Counter[bool] = Counter()

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        view = view_of(name, SAMPLES[name])
        for _ in range(2):
            answer = restore(edit(data, view), view)
            accepted[isinstance(answer, Restored)] += 1
            if not isinstance(answer, Restored):
                return
            view = view_of(name, answer.content)
            for mode in (WIDE, Mode("default")):
                assert SECRET not in view_of(name, answer.content, mode).text

    attempt()
    assert accepted[True] >= 5
    assert accepted[False] >= 5


PIECES = st.one_of(
    st.sampled_from(
        [
            SECRET,
            SECRET,
            b"x",
            b"1",
            b"\n",
            b"\n",
            b"=",
            b": ",
            b":",
            b'"',
            b"'",
            b",",
            b" ",
            b"  ",
            b"key",
            b"name,url\n",
        ]
    ),
    st.sampled_from(
        [
            b"a=",
            b"b: ",
            b"- ",
            b"#",
            b"{",
            b"}",
            b"[",
            b"]",
            b"[t]\n",
            b'"k": ',
            b"|\n  ",
            b'"""',
            b"\\",
            b"---\n",
            b"<<",
        ]
    ),
    st.sampled_from(
        [b"machine ", b"login ", b"https://", b"@github.com\n", b"-----BEGIN RSA PRIVATE KEY-----\n", b"\r\n", b"`"]
    ),
    st.sampled_from(
        [b"-----END RSA PRIVATE KEY-----\n", b"\n# ", b"?", b"!t ", b"&a ", b"*a", b"export ", b"\\\n", b"k = ", b"\t"]
    ),
)
HOSTILE = [".env", "a.ini", "a.toml", "a.json", "a.yaml", "a.csv", ".netrc", "a.pem", ".git-credentials"]


@settings(deadline=None)
@given(st.sampled_from(HOSTILE), st.lists(PIECES, max_size=30).map(b"".join), st.data())
def test_what_no_view_of_a_file_shows_no_view_shows_after_an_edit(
    name: str, content: bytes, data: st.DataObject
) -> None:
    """For any file, well formed or not."""
    content = data.draw(st.sampled_from([content, b"a=1\n" + content, b"a: 1\n" + content, b'{"a": 1, ' + content]))
    view = view_of(name, content)
    assume(SECRET not in view_of(name, content, WIDE).text)
    answer = restore(edit(data, view), view)
    if isinstance(answer, Restored):
        assert SECRET not in view_of(name, answer.content, WIDE).text
