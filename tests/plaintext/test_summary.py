"""The summary operator: bounded, complete by handles, and total."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plaintext.views import plain, view_of

from pincer_trace.plaintext.restoring import Restored, restore
from pincer_trace.plaintext.summary import DEFAULT, LENGTHS, MODES, STRICT_SYMBOLIC, Mode

NAMES = [
    *(
        ".env",
        "secret.bin",
        "a.ini",
        ".npmrc",
        "a.toml",
        "a.json",
        "a.yaml",
        "a.csv",
        ".netrc",
        "a.pem",
        ".git-credentials",
    ),
]
# Pieces of which files of these formats are made, and what breaks them.
PIECES = st.sampled_from(
    [
        *(bytes([letter]) for letter in b"\n\r\t =#;\"'`\\\0\xff$({}[],:-|>&*!?@."),
        *(b"\r\n", b"\\\n", b"\xef\xbb\xbf", b"\xc3\xa4", b"x" * 50, b"LONG" * 20, b"ghp_" + b"a1B2" * 9, b"pincer:"),
        *(b"KEY", b"export ", b"A=1\n", b"B='x y' # c\n", b'C="a\nb"\n', b"==", b"\n# note\n", b"\n  ", b"\n    "),
        *(
            b"[section]\n",
            b"[[t]]\n",
            b"k = v\n",
            b'k = """\n',
            b"k = [1,\n",
            b"'''",
            b'"""',
            b"//r.io/:_authToken=t\n",
        ),
        *(b"- ", b": ", b"key: ", b"key:\n", b"key: |\n", b"---\n", b"- key: v\n", b'"key": ', b"1", b"true", b"null"),
        *(b'{"a": 1, "b": {"c": [1, "x"', b"}}", b"]", b"name,password\n", b"bob,hunter2\n"),
        *(b"machine ", b"login ", b"password ", b"macdef x\n", b"default\n", b"https://u:p@github.com\n"),
        *(b"-----BEGIN RSA PRIVATE KEY-----\n", b"-----END RSA PRIVATE KEY-----\n", b"-----BEGIN ", b"MIIE\n"),
    ]
)
CONTENT = st.one_of(st.lists(PIECES, max_size=40).map(b"".join), st.binary(max_size=300))


def check(name: str, content: bytes, mode: Mode) -> None:
    view = view_of(name, content, mode)
    assert len(view.text) <= mode.characters
    assert len(view.handles) <= mode.items
    assert len(view.text) != len(content)
    assert view.text.isascii()
    assert view.text.count(view.remainder.text.encode()) == 1
    answer = restore(view.text, view)
    assert isinstance(answer, Restored), answer
    assert answer.content == content
    # by the long way too: what is unchanged but for its end takes no short one
    longer = restore(view.text + b"\n", view)
    assert isinstance(longer, Restored), longer
    assert longer.content.startswith(content)


@settings(deadline=None)
@given(st.sampled_from(NAMES), CONTENT, st.sampled_from(sorted(MODES.values(), key=lambda mode: mode.name)))
def test_each_view_is_bounded_and_gives_the_file_back(name: str, content: bytes, mode: Mode) -> None:
    check(name, content, mode)


MIB = 1 << 20
LARGE = [
    random.Random(7).randbytes(10 * MIB),
    b"A=" + b"x" * 10 * MIB,
    b'A="' + b"x\\" * 5 * MIB,
    b'A: "' + b"\n" * MIB + b'"',
    b'{"a": "' + b"x" * 10 * MIB + b'"}',
    b"A: |\n" + b"  x\n" * MIB,
    *(
        mark * MIB
        for mark in (b"=", b" ", b"\n", b"{", b'"', b"- ", b"a: ", b"A=1\n", b"A='", b"A = [\n", b"[", b"\t", b",")
    ),
    b"[" * 100_000 + b"]" * 100_000,
    b'A="\\' * 300_000,
    b"a" + b" " * MIB,
]


@pytest.mark.parametrize("name", NAMES)
def test_no_size_and_no_depth_breaks_it(name: str) -> None:
    for content in LARGE:
        view = view_of(name, content)
        assert len(view.text) <= DEFAULT.characters
        answer = restore(view.text, view)
        assert isinstance(answer, Restored)
        assert answer.content is content


def test_a_view_has_eight_values_at_most_and_says_not_whether_there_are_more() -> None:
    eight = b"".join(b"K%c=%d\n" % (65 + n, n) for n in range(8))
    text = plain(view_of(".env", eight))
    assert text.count("=<") == 8
    assert plain(view_of(".env", eight + b"K9=9\nK10=10\n")) == text
    assert plain(view_of(".env", eight.replace(b"\n", b" # note\n\n# more\n"))) == text


def test_long_names_take_from_what_else_is_shown() -> None:
    content = b"".join(b"A_%s_NAME_OF_SOME_LENGTH=%d\n" % (letter.encode(), n) for n, letter in enumerate("abcdefgh"))
    view = view_of(".env", content)
    assert 4 <= len(view.handles) < 8
    assert len(view.text) <= 512


@pytest.mark.parametrize(
    "name",
    [
        b"ghp_abcdefghijklmnop",
        b"AKIAIOSFODNN",
        b"c2VjcmV0cGFzcw",
        b"deadbeef0123456789",
        b"JBSWY3DPEHPK3PXP",
        b"x" * 41,
        b"sk-ant-api",
    ],
)
def test_a_name_with_the_shape_of_a_secret_is_hidden(name: bytes) -> None:
    assert plain(view_of(".env", b"A=1\n" + name + b"=2\nB=3\n")) == "A=<A>\nB=<B>\n# <rest>\n"


@pytest.mark.parametrize(
    "name",
    [
        b"DATABASE_URL",
        b"OAUTH2_CLIENT_ID",
        b"AWS_S3_BUCKET",
        b"K8S_TOKEN",
        b"apiKey",
        b"NEXT_PUBLIC_API_V1",
        b"db.password",
        b"_x",
    ],
)
def test_a_name_as_people_write_them_is_shown(name: bytes) -> None:
    assert plain(view_of(".env", name + b"=2\n")) == f"{name.decode()}=<{name.decode()}>\n# <rest>\n"


def test_modes_tell_less_and_more() -> None:
    content = b"A=12345\nB=\n"
    assert plain(view_of(".env", content, STRICT_SYMBOLIC)) == "<rest>\n"
    assert plain(view_of(".env", content, LENGTHS)) == "A=<A>~5\nB=<B>~0\n# <rest>\n"


def test_it_depends_on_the_file_alone() -> None:
    for seed in range(3):
        view_of(".env", b"X=%d\n" % seed, seed=seed)
        assert plain(view_of(".env", b"A=1\n", seed=seed)) == "A=<A>\n# <rest>\n"
    assert view_of(".env", b"A=1\n", seed=1).text == view_of(".env", b"A=1\n", seed=1).text


def test_no_value_is_in_what_is_printed() -> None:
    view = view_of(".env", b"A=hunter2\n")
    assert "hunter2" not in f"{view!r} {view.shown!r} {restore(view.text, view)!r}"
