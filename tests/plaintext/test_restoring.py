"""An edited view becomes the file as a person expects, or is refused by name."""

from __future__ import annotations

import re

import pytest
from plaintext.views import SCOPE, plain, view_of

from pincer_trace.plaintext import refusal
from pincer_trace.plaintext.handles import Handle, HandleStore, Save, Scope
from pincer_trace.plaintext.kinds import Kind
from pincer_trace.plaintext.refusal import Refusal
from pincer_trace.plaintext.restoring import Restored, _reappears, append, restore
from pincer_trace.plaintext.summary import summarise

ENV = b"""# settings of the shop

HOST=db.example.org
export PASSWORD = "hunter2
second line"  # rotate in May

# below: payment
KEY='k1'
not an entry
"""


def lines(text: bytes) -> list[bytes]:
    return text.split(b"\n")


def restored(edited: bytes, view) -> bytes:
    answer = restore(edited, view)
    assert isinstance(answer, Restored), answer
    return answer.content


def refused(edited: bytes, view) -> str:
    answer = restore(edited, view)
    assert isinstance(answer, Refusal), answer
    return answer.code


@pytest.fixture
def view():
    return view_of(".env", ENV)


def test_what_is_shown_of_a_dotenv(view) -> None:
    assert plain(view) == "HOST=<HOST>\nexport PASSWORD=<PASSWORD>\nKEY=<KEY>\n# <rest>\n"


def test_the_unchanged_view_is_the_file(view) -> None:
    answer = restore(view.text, view)
    assert isinstance(answer, Restored)
    assert answer.content == ENV
    assert answer.dropped == ()
    assert [ENV[start : start + 3] for start in answer.kept] == [b"db.", b'"hu', b"'k1"]


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t.replace(b"\n", b"\r\n"), lambda t: b"\xef\xbb\xbf" + t]
)
def test_what_editors_do_to_ends_of_lines_changes_nothing(view, change) -> None:
    assert restored(change(view.text), view) == ENV


def test_lines_are_added_where_they_stand(view) -> None:
    first, second, *others = lines(view.text)
    edited = b"\n".join([b"# mine", first, b"PORT=5432", second, *others]) + b"LAST=1"
    expected = ENV.replace(b"HOST=db.example.org\n", b"HOST=db.example.org\nPORT=5432\n") + b"LAST=1\n"
    assert restored(edited, view) == expected.replace(b"HOST=", b"# mine\nHOST=", 1)


def test_a_value_is_replaced_and_its_comment_stays(view) -> None:
    _, second, *_ = lines(view.text)
    answer = restore(view.text.replace(second, b'export PASSWORD="new"'), view)
    assert isinstance(answer, Restored)
    assert answer.content == ENV.replace(b'export PASSWORD = "hunter2\nsecond line"', b'export PASSWORD="new"')
    assert answer.dropped == (view.handles[1],)
    assert not answer.drops_most


def test_a_key_is_renamed_and_keeps_its_value(view) -> None:
    assert restored(view.text.replace(b"KEY=", b"API_KEY="), view) == ENV.replace(b"KEY='k1'", b"API_KEY='k1'")


def test_values_are_exchanged_and_lines_moved(view) -> None:
    first, second, third, *others = lines(view.text)
    assert restored(b"\n".join([second, third, first, *others]), view) == (
        b'# settings of the shop\n\nexport PASSWORD = "hunter2\nsecond line"  # rotate in May\n\n# below: payment\n'
        b"KEY='k1'\nHOST=db.example.org\nnot an entry\n"
    )
    host, key = view.handles[0].text.encode(), view.handles[2].text.encode()
    swapped = view.text.replace(host, b"X").replace(key, host).replace(b"X", key)
    assert restored(swapped, view) == ENV.replace(b"db.example.org", b"X").replace(b"'k1'", b"db.example.org").replace(
        b"X", b"'k1'"
    )


def test_an_entry_is_deleted_and_hidden_lines_stay(view) -> None:
    first, _, third, *others = lines(view.text)
    answer = restore(b"\n".join([first, third, *others]), view)
    assert isinstance(answer, Restored)
    assert answer.content == ENV.replace(b'export PASSWORD = "hunter2\nsecond line"  # rotate in May\n', b"")
    assert (len(answer.dropped), answer.values, answer.drops_most) == (1, 3, False)
    most = restore(b"\n".join([first, *others]), view)
    assert isinstance(most, Restored)
    assert most.drops_most
    assert most.content == b"# settings of the shop\n\nHOST=db.example.org\n\n# below: payment\nnot an entry\n"


def test_an_entry_becomes_a_comment_with_all_its_lines(view) -> None:
    first, second, *_ = lines(view.text)
    assert restored(view.text.replace(first, b"# " + first), view) == ENV.replace(b"HOST", b"# HOST")
    expected = ENV.replace(b'export PASSWORD = "hunter2\nsecond', b'# export PASSWORD="hunter2\n# second')
    assert restored(view.text.replace(second, b"# " + second), view) == expected


@pytest.mark.parametrize("quote", [b'"', b"'"])
def test_quotes_around_a_handle_are_not_doubled(view, quote: bytes) -> None:
    key = view.handles[2].text.encode()
    assert restored(view.text.replace(key, quote + key + quote), view) == ENV


def test_refused_by_name(view) -> None:
    first, second, third, rest, _ = lines(view.text)
    key = view.handles[2].text.encode()
    whole = b"\n".join
    assert refused(whole([first, second, third]), view) == refusal.REMAINDER_MISSING
    assert refused(whole([first, first, second, third, rest]), view) == refusal.TWICE
    assert refused(whole([b"A=" + Handle(bytes(16)).text.encode(), first, rest]), view) == refusal.UNKNOWN
    assert refused(view.text.replace(key, key[:-3]), view) == refusal.UNKNOWN
    assert refused(view.text.replace(key, key.upper().replace(b"PINCER", b"pincer")), view) == refusal.UNKNOWN
    assert refused(whole([key + b"=x", rest]), view) == refusal.MISPLACED
    assert refused(whole([b"A=x" + key, rest]), view) == refusal.MISPLACED
    assert refused(whole([b"A=$(" + key + b")", rest]), view) == refusal.MISPLACED
    assert refused(whole([key, rest]), view) == refusal.MISPLACED
    assert refused(whole([b'A="', third, b'"', rest]), view) == refusal.MISPLACED
    assert refused(whole([third, b'A="x', rest, b'"']), view) == refusal.REMAINDER_MOVED


def test_an_open_quote_before_the_rest_is_refused_whatever_the_rest_holds() -> None:
    for tail in (b"not an entry\n", b'no "entry\n', b'no "entry"\n'):
        view = view_of(".env", b"A=1\n" + tail)
        assert refused(b'A="x\n' + lines(view.text)[1], view) == refusal.NOT_WELL_FORMED


def test_what_the_store_has_against_a_handle_is_the_reason() -> None:
    store = HandleStore()

    def issue(value: bytes, field: str) -> Handle:
        return store.issue(value, field=field, scope=SCOPE, now=0.0)

    def check(handle: Handle) -> Refusal | None:
        answer = store.resolve(handle, SCOPE, Save(), 1.0)
        return answer if isinstance(answer, Refusal) else None

    view = summarise(ENV, Kind.of(b".env", ENV), issue)
    foreign = store.issue(b"x", field="X", scope=Scope("tree", "session", "other", "version"), now=0.0)
    assert isinstance(restore(view.text, view, check), Restored)
    answer = restore(b"F=" + foreign.text.encode() + b"\n" + view.text, view, check)
    assert isinstance(answer, Refusal)
    assert answer.code == refusal.OTHER_OBJECT
    store.revoke(view.handles[0])
    answer = restore(view.text, view, check)
    assert isinstance(answer, Refusal)
    assert answer.code == refusal.REVOKED


def test_a_file_without_a_format_takes_what_is_appended() -> None:
    content = b"\x00\x01\xff no text"
    view = view_of("secret.bin", content)
    assert plain(view) == "<rest>\n"
    assert restored(view.text, view) == content
    assert restored(view.text + b"more\n", view) == content + b"\nmore\n"
    assert restored(b"before\n" + view.text, view) == b"before\n" + content


PEM = b"-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n"
REFUSED = [
    ("a.json", b'{"a": "x", "b": 1}', rb'"a": "(\S+)"', rb'"\1": "a"', refusal.MISPLACED),
    ("a.json", b'{"a": "x", "b": 1}', rb'"a": "(\S+)"', rb'"a": "Bearer \1"', refusal.MISPLACED),
    ("a.json", b'{"a": "x", "b": 1}', rb'"a": "(\S+)"', rb'"a": {"\1": 1}', refusal.MISPLACED),
    ("a.json", b'{"a": "x", "b": 1}', rb'"b": "(\S+)",', rb'"b": "\1"', refusal.NOT_WELL_FORMED),
    ("a.json", b'{"a": {"b": 1}, "c": 2}', rb"(?s)\{(.*)\}", rb'{"new": {\1}}', refusal.REMAINDER_MOVED),
    ("a.json", b'{"a": [1]}', rb'(?s)"a": \[(.*?)\],(.*)\}', rb'\2, "a": [\1], "z": 0}', ""),
    ("a.yaml", b"a: x\n", rb"a: (\S+)", rb"\1: a", refusal.MISPLACED),
    ("a.yaml", b"a: x\n", rb"a: (\S+)", rb"a: [\1]", refusal.MISPLACED),
    ("a.yaml", b"a: x\n", rb"a: (\S+)", rb"a: |\n  \1", refusal.MISPLACED),
    ("a.yaml", b"a: x\n", rb"a: (\S+)", rb'a: "\1\nb: "', refusal.MISPLACED),
    ("a.yaml", b"a: x\n", rb"a: (\S+)", rb'a: "open\nb: \1', refusal.NOT_WELL_FORMED),
    ("a.toml", b"a = 1\n", rb'a = "(\S+)"', rb'"\1" = 1', refusal.MISPLACED),
    ("a.toml", b"a = 1\n", rb'a = "(\S+)"', rb'a = ["\1"]', refusal.MISPLACED),
    ("a.toml", b"a = 1\n", rb'a = "(\S+)"', rb'b = """\na = "\1"', refusal.NOT_WELL_FORMED),
    ("a.toml", b"a = 1\n", rb'a = "(\S+)"', rb"a = '\1'", ""),
    ("a.ini", b"a = 1\n", rb"a = (\S+)", rb"[\1]", refusal.MISPLACED),
    ("a.ini", b"a = 1\n", rb"a = (\S+)", rb"a = x\n  \1", refusal.MISPLACED),
    ("a.csv", b"name,key\nx,y\n", rb"name,key\n", rb"", refusal.MISPLACED),
    ("a.csv", b"name,key\nx,y\n", rb"(?s)(name,key\n)(.*?)\n", rb"\2\n\1", refusal.MISPLACED),
    ("a.csv", b"name,key\nx,y\n", rb"(?s)(name,key\n)(.*?)\n(.*)", rb"\3\1\2\n", refusal.MISPLACED),
    ("a.csv", b"name,key\nx,y\n", rb"(pincer:\w+),(\S+)", rb'"\1",\2 ', ""),
    ("a.pem", PEM, rb"(pin\S+)\n(-.*)", rb"\2\n\1", refusal.MISPLACED),
    (".git-credentials", b"https://a:b@github.com\n", rb"https://(\S+)@\S+", rb"https://x@\1", refusal.MISPLACED),
    (".netrc", b"machine a login b\n", rb"login (\S+)", rb"\1 login", refusal.MISPLACED),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "found", "instead", "code"), REFUSED)
def test_a_handle_is_a_whole_value_in_each_format(
    name: str, content: bytes, found: bytes, instead: bytes, code: str
) -> None:
    view = view_of(name, content)
    edited, count = re.subn(found, instead, view.text, count=1)
    assert count == 1
    answer = restore(edited, view)
    assert (answer.code if isinstance(answer, Refusal) else "") == code, answer


@pytest.mark.parametrize(
    ("name", "content", "added", "taken"),
    [
        (".env", b"A=1\n", b"B=2\n", True),
        (".env", b"A=1", b"\nB=2\n", True),
        (".env", b"A=1\nhunter", b"=2\n", False),
        (".env", b"A=1\nhunter", b"\nB=2\n", True),
        (".env", b'A="1\nhunter=1\n', b'"\n', True),
        ("a.yaml", b"a: 1\nhunter", b": 2\n", False),
        ("a.json", b'{"hunter": 1', b"}", False),
        ("a.csv", b"", b"name,key\n", True),
        ("a.bin", b"x", b"=y", True),
    ],
)
def test_what_is_appended_makes_no_name_of_what_is_hidden(name: str, content: bytes, added: bytes, taken: bool) -> None:
    answer = append(added, content, Kind.of(name.encode(), content))
    if taken:
        assert answer == content + added
        assert b"hunter" not in view_of(name, content + added).text
    else:
        assert isinstance(answer, Refusal)
        assert answer.code == refusal.MISPLACED
        assert b"hunter" in view_of(name, content + added).text


class Looks(list):
    """Counts the elements that are looked at, one by one or in slices."""

    count = 0

    def __getitem__(self, which):
        found = super().__getitem__(which)
        self.count += len(found) if isinstance(which, slice) else 1
        return found


def test_names_before_many_parts_do_not_look_at_each_of_them() -> None:
    """As where a value of thousands of lines became a comment behind thousands of names: it took minutes."""
    content = b"A=\n" * 1000 + b"# x\n" * 1000
    copies = Looks([(0, 0, 3000), *((at, at, 4) for at in range(3000, 7000, 4))])
    assert _reappears(content, Kind.of(b".env", content), copies, [(at, at + 1) for at in range(0, 3000, 3)]) is None
    assert copies.count < 5000
