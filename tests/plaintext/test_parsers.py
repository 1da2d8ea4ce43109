"""The scanners against the parsers that programs use: a view has the structure of its file, and an edit of the one is
that edit of the other.
"""

from __future__ import annotations

import configparser
import csv
import io
import json
import netrc
import tomllib
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plaintext.views import view_of

from pincer_trace.plaintext.restoring import Restored, restore
from pincer_trace.plaintext.summary import Mode

WIDE = Mode("wide", items=1000, characters=1_000_000)
NAME = st.sampled_from(["user", "password", "apiKey", "db_host", "Port", "x"])
TEXT = st.text(st.sampled_from("ab \"'\\#=:,[]{}\n\t-|&é"), max_size=12)
SCALAR = st.one_of(TEXT, st.integers(-5, 5), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))
TREE = st.recursive(
    SCALAR | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3)
)
JSON = st.dictionaries(NAME, TREE)
INDENT = st.sampled_from([None, 0, 1, 4])


def hidden(value: object) -> object:
    """The structure of a document, with one word for each value."""
    if isinstance(value, dict):
        return {key: hidden(one) for key, one in value.items() if key != "pincer"}
    if isinstance(value, list):
        return [hidden(one) for one in value]
    return "value"


def restored(name: str, edited: bytes, content: bytes, mode: Mode = WIDE) -> bytes:
    answer = restore(edited, view_of(name, content, mode))
    assert isinstance(answer, Restored), answer
    return answer.content


@settings(max_examples=50, deadline=None)
@given(JSON, INDENT)
def test_a_view_of_json_has_its_structure(document: dict, indent: int | None) -> None:
    content = json.dumps(document, indent=indent).encode()
    assert hidden(json.loads(view_of("a.json", content, WIDE).text)) == hidden(document)
    json.loads(view_of("a.json", content).text)


@settings(max_examples=80, deadline=None)
@given(JSON, INDENT, INDENT, st.data())
def test_an_edit_of_a_view_of_json_is_that_edit_of_the_file(
    document: dict, indent: int | None, other: int | None, data: st.DataObject
) -> None:
    """By a program that reads it, changes it and writes it in its own layout."""
    content = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    mode = data.draw(st.sampled_from([WIDE, Mode("default"), Mode("few", items=2)]))
    view = view_of("a.json", content, mode)
    seen, expected = json.loads(view.text), dict(document)
    assert restored("a.json", json.dumps(seen, indent=other).encode(), content, mode) is not None
    whole = "pincer" in seen  # else the file ends inside of a member
    assume(whole)
    shown = [key for key in seen if key != "pincer"]
    match data.draw(st.sampled_from(["add", "first", "delete", "replace", "nothing"])):
        case "add":
            seen["added"] = expected["added"] = ["x", 1]
        case "first":
            seen, expected = {"added": None, **seen}, {"added": None, **expected}
        case "delete" if shown:
            key = data.draw(st.sampled_from(shown))
            del seen[key], expected[key]
        case "replace" if shown:
            key = data.draw(st.sampled_from(shown))
            seen[key] = expected[key] = {"new": True}
        case _:
            pass
    edited = json.dumps(seen, indent=other).encode()
    assert json.loads(restored("a.json", edited, content, mode)) == expected


def toml(value: object) -> str:
    if isinstance(value, list):
        return "[\n " + ",\n ".join(map(toml, value)) + " ] # note" if value else "[]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one).partition(' #')[0]}" for key, one in value.items()) + " }"
    if isinstance(value, str) and "'''" not in value and len(value) % 3 == 1:
        return "'''\n" + value.replace("'", "") + "'''"
    return json.dumps(value)


@settings(deadline=None)
@given(st.dictionaries(NAME, st.one_of(SCALAR, st.lists(st.integers(), max_size=3))), st.dictionaries(NAME, SCALAR))
def test_a_view_of_toml_has_its_structure(top: dict, table: dict) -> None:
    text = "".join(f"{key} = {toml(value)}\n" for key, value in top.items()) + "# note\n[table] # note\n"
    text += "".join(f"  {key}={toml(value)}\n\n" for key, value in table.items())
    document = tomllib.loads(text)
    view = view_of("a.toml", text.encode(), WIDE)
    seen = tomllib.loads(view.text.decode())
    assert {key: list(value) if key == "table" else "value" for key, value in seen.items()} == {
        key: list(value) if key == "table" else "value" for key, value in document.items()
    }
    edited = restored("a.toml", b"added = 1\n" + view.text + b"last = 2\n", text.encode())
    assert tomllib.loads(edited.decode()) == {"added": 1, **document, "table": {**document["table"], "last": 2}}


INI_TEXT = st.text(st.sampled_from("ab \"'#=:[];"), max_size=8).map(str.strip)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "default"]), st.dictionaries(NAME.map(str.lower), st.lists(INI_TEXT, min_size=1))
    )
)
def test_a_view_of_an_ini_file_has_its_structure(document: dict) -> None:
    text = "; note\n"
    for section, entries in document.items():
        text += f"[{section}]\n\n# note\n"
        for key, parts in entries.items():
            lines = [part for part in parts if part and not part.startswith(("#", ";"))] or ["x"]
            text += f"{key} = " + "\n   ".join(lines) + "\n"
    read, shown, edited = (configparser.RawConfigParser() for _ in range(3))
    read.read_string(text)
    view = view_of("a.ini", text.encode(), WIDE)
    shown.read_string(view.text.decode())
    assert {name: list(shown[name]) for name in shown} == {name: list(read[name]) for name in read}
    assert all(value.startswith("pincer:") for name in shown for value in shown[name].values())
    edited.read_string(restored("a.ini", b"[added]\nx = 1\n" + view.text, text.encode()).decode())
    assert {name: dict(edited[name]) for name in edited if name != "added"} == {name: dict(read[name]) for name in read}


@settings(deadline=None)
@given(
    st.lists(st.lists(TEXT.map(lambda text: text.replace("\\", "")), min_size=2, max_size=2), min_size=1, max_size=5)
)
def test_a_view_of_a_csv_has_its_rows(rows: list[list[str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["name", "password"], *rows])
    content = out.getvalue().encode()
    view = view_of("a.csv", content, WIDE)
    seen = list(csv.reader(io.StringIO(view.text.decode(), newline="")))
    assert seen[0] == ["name", "password"]
    assert [len(row) for row in seen[1:-1]] == [2] * len(rows)
    last = view.text.splitlines(keepends=True)[-2]
    edited = restored("a.csv", view.text.replace(last, b"me,new\n" + last, 1), content).decode()
    assert list(csv.reader(io.StringIO(edited, newline=""))) == [
        ["name", "password"],
        *rows[:-1],
        ["me", "new"],
        rows[-1],
    ]


def test_a_view_of_a_netrc_has_its_entries(tmp_path: Path) -> None:
    content = b'machine a login b password "c d"\n#note\ndefault login x password y\n\nmachine e\n  login f\n'
    content += b"account g password h\n"
    for name, text in (("file", content), ("view", view_of(".netrc", content, WIDE).text)):
        (tmp_path / name).write_bytes(text)
    edited = view_of(".netrc", content, WIDE).text + b"machine new login me password z\n"
    (tmp_path / "edited").write_bytes(restored(".netrc", edited, content))
    read, seen, after = (netrc.netrc(tmp_path / name).hosts for name in ("file", "view", "edited"))
    assert len(seen) == len(read)
    assert after == {**read, "new": ("me", "", "z")}
