"""The canonical request: one encoding, bound to every field. Read back by a decoder of the test's own, from the format.

What the bytes mean is written down here a second time, by hand: in the vectors and in `Reader`. Neither uses anything
of the encoder, so that a change of the format is seen as one.
"""

from __future__ import annotations

import copy
import os
import random
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pincer_trace.effects import EFFECTS
from pincer_trace.gateway.request import Claim, Request, origin, subject
from pincer_trace.twin.artifact import Keys

REGULAR, DIRECTORY = stat.S_IFREG, stat.S_IFDIR


class Found:
    """The part of a stat result that a request holds."""

    def __init__(self, dev: int, ino: int, mode: int, ctime: int, size: int) -> None:
        self.st_dev, self.st_ino, self.st_mode, self.st_ctime_ns, self.st_size = dev, ino, mode, ctime, size


# -- written by hand -------------------------------------------------------------------------------------------

MAGIC = "70696e6365722d747261636520726571756573742031 00"  # "pincer-trace request 1", NUL
SESSION = "00000002 7331"  # 2 bytes: s1
PROGRAM = "00000020" + "ab" * 32
WHO = (
    "0000000000001267"  # thread 4711
    "00000000000f4240"  # began at tick 1000000
    "000000000000fd01 0000000000000063"  # its program: device, inode
    "00000007 2f62696e2f7368"  # /bin/sh
)
ONE_CLAIM = (
    MAGIC
    + SESSION
    + PROGRAM
    + WHO
    + "00000006 756e6c696e6b"  # the call: unlink
    + "00000001"  # one claim
    + "00000006 756e6c696e6b"  # its effect
    + "00000006 2f772f612f62"  # path /w/a/b
    + "00000001 62"  # name b
    + "000000000000fd01 0000000000000007"  # lies in
    + "01"  # it is there
    + "000000000000fd01 0000000000000008"  # device, inode
    + "00008000"  # a regular file
    + "000000003b9aca05"  # changed at 1.000000005 s
    + "0000000000000400"  # 1024 bytes
    + "0000000000000000 0000000000000000"  # flags, mode
    + "00000000"  # no arguments
)
TWO_CLAIMS = (
    MAGIC
    + "00000000"  # a session without a name
    + "00000000"  # and without a profile
    + "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000000"
    + "00000006 72656e616d65"  # rename
    + "00000002"
    + "00000006 72656e616d65 00000002 2f78 00000001 78"
    + "0000000000000000 0000000000000000"  # in no directory that is known
    + "00" + "00" * 36  # absent
    + "00000005 6d6b646972 00000001 2f 00000000"  # mkdir / without a name
    + "0000000000000001 0000000000000002"
    + "01 0000000000000001 0000000000000005 00004000 0000000000000000 0000000000000000"  # a directory has no version
    + "ffffffffffffffff 00000000000001ed"  # every flag; mode 0755
    + "00000003"
    + "69 ffffffffffffffff"  # i -1
    + "62 00000003 00ff80"  # b
    + "62 00000000"
)  # fmt: skip


def one_claim() -> Request:
    claim = Claim("unlink", b"/w/a/b", (0xFD01, 7), b"b", Found(0xFD01, 8, REGULAR | 0o644, 1_000_000_005, 1024))
    who = subject(4711, 1_000_000, (0xFD01, 0x63), b"/bin/sh")
    return Request.of(origin("s1", b"\xab" * 32), who, "unlink", [claim])


def two_claims() -> Request:
    claims = [
        Claim("rename", b"/x", (0, 0), b"x", None),
        Claim("mkdir", b"/", (1, 2), b"", Found(1, 5, DIRECTORY | 0o755, 99, 4096)),
    ]
    who = subject(1, 2, (3, 4), b"")
    arguments = (-1, b"\0\xff\x80", b"")
    return Request.of(origin("", b""), who, "rename", claims, flags=-1, mode=0o755, arguments=arguments)


@pytest.mark.parametrize(("make", "expected"), [(one_claim, ONE_CLAIM), (two_claims, TWO_CLAIMS)])
def test_golden_vectors(make, expected):
    assert make().data.hex() == expected.replace(" ", "")


def test_the_golden_digest():
    """HMAC-SHA256 under the key that HKDF-Expand (RFC 5869) gives: both told by `openssl mac`, not by us."""
    root = bytes(range(32))
    expected = "333717ce4628b8a91e6fbea7e442c37e30ae7fab069d85c4f961c5bca4abed89"
    assert Keys(root).bind.tag(one_claim().data).hex() == expected


# -- the second decoder ----------------------------------------------------------------------------------------


class Reader:
    """Big-endian numbers and counted bytes. Raises ValueError for anything that is no canonical request."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise ValueError("too short")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def text(self) -> bytes:
        return self.take(self.number(4))

    def claim(self) -> dict:
        told = {"effect": self.text().decode(), "path": self.text(), "name": self.text()}
        told["place"] = self.number(8), self.number(8)
        present = self.take(1)
        numbers = (
            self.number(8), self.number(8), self.number(4), self.number(8, signed=True), self.number(8, signed=True)
        )  # fmt: skip
        if present == b"\0" and not any(numbers):
            told["found"] = None
        elif present == b"\1":
            told["found"] = numbers
        else:
            raise ValueError("neither absent nor there")
        return told

    def argument(self) -> int | bytes:
        kind = self.take(1)
        if kind == b"i":
            return self.number(8, signed=True)
        if kind == b"b":
            return self.text()
        raise ValueError("no argument")


def decode(data: bytes) -> dict:
    reader = Reader(data)
    if reader.take(23) != b"pincer-trace request 1\0":
        raise ValueError("no request")
    told = {"session": reader.text().decode(), "program": reader.text()}
    told["subject"] = *(reader.number(8) for _ in range(4)), reader.text()
    told["effect"] = reader.text().decode()
    told["claims"] = [reader.claim() for _ in range(reader.number(4))]
    told["flags"], told["mode"] = reader.number(8), reader.number(8)
    told["arguments"] = [reader.argument() for _ in range(reader.number(4))]
    if reader.rest:
        raise ValueError("something behind it")
    return told


def encode(told: dict) -> bytes:
    """By the encoder under test."""
    tid, start, dev, ino, path = told["subject"]
    claims = [
        Claim(c["effect"], c["path"], c["place"], c["name"], None if c["found"] is None else Found(*c["found"]))
        for c in told["claims"]
    ]
    return Request.of(
        origin(told["session"], told["program"]),
        subject(tid, start, (dev, ino), path),
        told["effect"],
        claims,
        flags=told["flags"],
        mode=told["mode"],
        arguments=told["arguments"],
    ).data


def test_the_second_decoder_reads_the_golden_vectors():
    assert encode(decode(bytes.fromhex(ONE_CLAIM))).hex() == ONE_CLAIM.replace(" ", "")
    told = decode(bytes.fromhex(TWO_CLAIMS))
    assert told["arguments"] == [-1, b"\0\xff\x80", b""]
    assert [claim["found"] for claim in told["claims"]] == [None, (1, 5, DIRECTORY, 0, 0)]


unsigned = st.integers(0, 2**64 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
short = st.binary(max_size=12)
effects = st.sampled_from(sorted(EFFECTS))
files = st.tuples(unsigned, unsigned, st.sampled_from([REGULAR, stat.S_IFLNK, stat.S_IFIFO]), signed, signed)
folders = st.tuples(unsigned, unsigned, st.just(DIRECTORY), st.just(0), st.just(0))
claims = st.fixed_dictionaries(
    {
        "effect": effects,
        "path": short,
        "name": short,
        "place": st.tuples(unsigned, unsigned),
        "found": st.none() | files | folders,
    }
)
requests = st.fixed_dictionaries(
    {
        "session": st.text(max_size=8).filter(lambda text: text.isprintable()),
        "program": short,
        "subject": st.tuples(unsigned, unsigned, unsigned, unsigned, short),
        "effect": effects,
        "claims": st.lists(claims, max_size=4),
        "flags": unsigned,
        "mode": unsigned,
        "arguments": st.lists(signed | short, max_size=4),
    }
)


@settings(max_examples=400, deadline=None)
@given(told=requests)
def test_what_is_encoded_can_be_read_back_in_one_way(told):
    assert decode(encode(told)) == told


@settings(max_examples=300, deadline=None)
@given(one=requests, other=requests)
def test_requests_that_differ_never_share_bytes(one, other):
    assert (encode(one) == encode(other)) == (one == other)


@settings(max_examples=300, deadline=None)
@given(told=requests, cut=st.integers(1, 40), more=st.binary(min_size=1, max_size=8))
def test_no_request_is_the_beginning_of_another(told, cut, more):
    data = encode(told)
    with pytest.raises(ValueError):
        decode(data[: max(len(data) - cut, 0)])
    with pytest.raises(ValueError):
        decode(data + more)


# -- any change of any field -----------------------------------------------------------------------------------

SAMPLE = {
    "session": "20261130-031502-7f3a9c",
    "program": b"\x11" * 32,
    "subject": (4711, 90210, 0xFD01, 77, b"/usr/bin/python3"),
    "effect": "rename",
    "claims": [
        {"effect": "rename", "path": b"/w/a", "name": b"a", "place": (1, 2), "found": (1, 3, REGULAR, 1000, 10)},
        {"effect": "write", "path": b"/w/b", "name": b"b", "place": (1, 2), "found": None},
    ],
    "flags": 2,
    "mode": 0o644,
    "arguments": [7, b"7", b"text", -1],
}


def put(*path):
    """The change that sets what lies at `path` in the sample; the last word is the new value, or what makes it."""
    *keys, last, value = path

    def change(told):
        holder = told
        for key in keys:
            holder = holder[key]
        new = value(holder[last]) if callable(value) else value
        if isinstance(holder, tuple):  # in a tuple of the sample: exchange the whole
            parent = told
            for key in keys[:-1]:
                parent = parent[key]
            parent[keys[-1]] = (*holder[:last], new, *holder[last + 1 :])
        else:
            holder[last] = new

    return change


CHANGES = {
    "session": put("session", "20261130-031502-7f3a9d"),
    "session, one byte less": put("session", "20261130-031502-7f3a9"),
    "program": put("program", b"\x11" * 31 + b"\x12"),
    "thread": put("subject", 0, 4712),
    "start of the thread": put("subject", 1, 90211),
    "device of the program": put("subject", 2, 0xFD02),
    "inode of the program": put("subject", 3, 78),
    "name of the program": put("subject", 4, b"/usr/bin/python2"),
    "effect of the call": put("effect", "link"),
    "effect of a claim": put("claims", 0, "effect", "write"),
    "path of a claim": put("claims", 0, "path", b"/w/A"),
    "path of a claim, in another normal form": put("claims", 0, "path", b"/w/./a"),
    "name of a claim": put("claims", 0, "name", b"b"),
    "device of the directory": put("claims", 0, "place", 0, 9),
    "inode of the directory": put("claims", 0, "place", 1, 9),
    "presence: there now": put("claims", 1, "found", (0, 0, REGULAR, 0, 0)),
    "presence: gone": put("claims", 0, "found", None),
    "device of the object": put("claims", 0, "found", 0, 9),
    "inode of the object": put("claims", 0, "found", 1, 9),
    "type of the object": put("claims", 0, "found", 2, stat.S_IFIFO),
    "a directory instead": put("claims", 0, "found", (1, 3, DIRECTORY, 0, 0)),
    "change time of the object": put("claims", 0, "found", 3, 1001),
    "size of the object": put("claims", 0, "found", 4, 11),
    "order of the claims": lambda told: told["claims"].reverse(),
    "a claim less": lambda told: told["claims"].pop(),
    "a claim twice": lambda told: told["claims"].append(told["claims"][0]),
    "no claim": lambda told: told["claims"].clear(),
    "flags": put("flags", 3),
    "a high flag": put("flags", 2 | 1 << 63),
    "mode": put("mode", 0o645),
    "flags and mode exchanged": lambda told: told.update(flags=told["mode"], mode=told["flags"]),
    "value of an argument": put("arguments", 0, 8),
    "sign of an argument": put("arguments", 3, 1),
    "bytes of an argument": put("arguments", 2, b"texT"),
    "length of an argument": put("arguments", 2, b"text\0"),
    "type of an argument: bytes": put("arguments", 0, b"7"),
    "type of an argument: a number": put("arguments", 1, 7),
    "type of an argument: the number's own bytes": put("arguments", 0, (7).to_bytes(8, "big")),
    "order of arguments": lambda told: told["arguments"].reverse(),
    "an argument less": lambda told: told["arguments"].pop(),
    "an empty argument more": lambda told: told["arguments"].append(b""),
    "two arguments as one": lambda told: told.update(arguments=[7, b"7text", -1]),
    "no argument": lambda told: told["arguments"].clear(),
}


def test_every_change_of_a_field_changes_bytes_and_digest():
    bind = Keys().bind
    seen = {"nothing": encode(SAMPLE)}
    for name, change in CHANGES.items():
        told = copy.deepcopy(SAMPLE)
        change(told)
        assert told != SAMPLE, name
        seen[name] = encode(told)
        assert decode(seen[name]) == told, name
    assert len(set(seen.values())) == len(seen)
    assert len({bind.tag(data) for data in seen.values()}) == len(seen)


def test_random_changes_of_random_requests():
    """The same where the changes meet: chains of them, of a start that is drawn. A digest tells the fields exactly."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    bind = Keys(dice.randbytes(32)).bind
    known: dict[bytes, dict] = {}
    told = copy.deepcopy(SAMPLE)
    for _ in range(3000):
        if dice.random() < 0.2:
            told = copy.deepcopy(SAMPLE)
        try:
            CHANGES[dice.choice(sorted(CHANGES))](told)
        except (IndexError, TypeError):
            continue  # the claim or argument is gone by now
        for claim in told["claims"]:
            if claim["found"] is not None and claim["found"][2] == DIRECTORY:
                claim["found"] = (*claim["found"][:3], 0, 0)  # it has no version
        digest = bind.tag(encode(told))
        assert known.setdefault(digest, copy.deepcopy(told)) == told
    assert len(known) > 200


# -- what is deliberately not in it ----------------------------------------------------------------------------


def test_a_directory_has_no_version(tmp_path):
    """Every entry that is made in it changes its times: a name in it would else never be the one that was shown."""
    before = os.lstat(tmp_path)
    one = Claim("rename", b"/d", (1, 2), b"d", before).data
    (tmp_path / "entry").write_text("")
    after = os.lstat(tmp_path)
    assert before.st_ctime_ns != after.st_ctime_ns
    assert Claim("rename", b"/d", (1, 2), b"d", after).data == one


def test_a_file_has_one(tmp_path):
    path = tmp_path / "f"
    path.write_text("one")
    one = Claim("write", b"/f", (1, 2), b"f", os.lstat(path)).data
    path.write_text("three")
    assert Claim("write", b"/f", (1, 2), b"f", os.lstat(path)).data != one


@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": ["text"]}, {"arguments": [None]}, {"arguments": [1 << 63]}, {"arguments": [1.5]},
        {"mode": -1}, {"mode": 1 << 64}, {"mode": b""},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_said_is_no_request(wrong):
    with pytest.raises(Exception):
        encode(SAMPLE | wrong)


def test_the_digest_needs_the_key():
    """Whoever sees digests cannot try out names: another session's key gives another digest of the same request."""
    data = one_claim().data
    assert len({Keys().bind.tag(data) for _ in range(8)}) == 8
    keys = Keys(b"r" * 32)
    assert len({keys.bind.tag(data), keys.left.tag(data), keys.right.tag(data)}) == 3
    assert keys.confirm not in {keys.bind.tag(data), keys.left.tag(data), keys.right.tag(data)}
