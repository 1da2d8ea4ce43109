"""Keys, staging names, remembered answers and confirmation tokens."""

from __future__ import annotations

import os
import random
import sysconfig

import pytest

from pincer_trace.twin import tokens
from pincer_trace.twin.grants import (
    ALWAYS,
    DENY,
    DENY_SESSION,
    ONCE,
    ONCE_LASTS,
    SESSION,
    Grants,
    Key,
    Person,
    entry,
    peer,
    pinned,
)  # fmt: skip
from pincer_trace.twin.staging import DEFAULT, Patterns, parts_of, staged_name

BY = Person(1000, 4711, b"/usr/bin/pincer-trace")
P = bytes(32)
SEED = int(os.environ.get("PINCER_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture
def dice():
    """Random numbers; a failing test shows the seed, and PINCER_TEST_SEED repeats it."""
    print(f"PINCER_TEST_SEED={SEED}")
    return random.Random(SEED)


def key(name=b"x", effect="write", **more):
    return Key(P, b"tree", effect, [entry(1, 2, name, **more)])


# -- staging names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "staged"),
    [
        (b"settings.json.tmp.4711.9f3a1c88ab01", b"settings.json.tmp.*.*"),
        (b"settings.json.tmp.4711", b"settings.json.tmp.*"),
        (b"package.json.3481290123", b"package.json.*"),
        (b"x.12345.tmp", b"x.*.tmp"),
        (b"x.0a1b2c3d.tmp", b"x.*.tmp"),
        (b"tmp_obj_aB3dE9", b"tmp_obj_*"),
        (b"tmp_pack_Zk29xQ", b"tmp_pack_*"),
        (b"tmpa1b2c3d4", b"tmp*"),
        (b".tmpaB3dE9", b".tmp*"),
        (b"sedQx81Za", b"sed*"),
        (b".goutputstream-Q1X2a3", b".goutputstream-*"),
        (b".report.txt.aB3dE9", b".report.txt.*"),
        (b".notes.md.swp", b".notes.md.sw*"),
        (b"a*b\\c", b"a\\*b\\\\c"),
        (b"\xff\n.tmp.1.abcdef", b"\xff\n.tmp.*.*"),
    ],
)
def test_staging_names(name, staged):
    assert staged_name(name) == staged
    assert parts_of(staged)[0] and name.startswith(parts_of(staged)[0])


ORDINARY = b"""id_rsa id_rsb id_rsa.pub id_ed25519 authorized_keys config .env .env.local .env.1 .bashrc .git hooks
pre-commit x.lock index.lock HEAD.lock x~ .#x #x# 4913 x.swp x.config x.backup x.public x.shadow x.sqlite x.Config
part01 x.part01 x.part02 x.rev123 x.md5sum x.x509v3 x.sha256 x.id_rsa x.id_dsa log.20240101 log.20240102 x.1 x.2 x.10
tmpfiles.d tmpconfig01 tmppassword tmp .tmp x.tmp tmp.1 sed sedscript sedated .tmpfile x.tar.gz x.mp3 x.h264
.goutputstream report-2024.tmp build-abc.tmp x.myfile x.deadbeef 0a1b2c3d.0 5f4dcc3b5aa765d61d8327deb882cf99 libfoo.so.1
libfoo.so.2 npm-cache x.tmp. .tmp.1 x.swo .x.swf .x.swa x.MYFILE x.1234567 x.12345678 python3.11 a.b.c tmp_obj
tmp_obj_config tmpid_rsa_2 tmpid_rsa_b""".split()


@pytest.mark.parametrize("name", ORDINARY, ids=os.fsdecode)
def test_an_ordinary_name_stays_what_it_is(name):
    assert staged_name(name) == name


def test_two_names_become_one_only_by_what_varies(dice):
    """Any two names: equal only when both are staged from the same fixed text."""
    alphabet = b"ab.AB12~*\\_-tmp.swp"
    names = {bytes(dice.choice(alphabet) for _ in range(dice.randrange(1, 14))) for _ in range(30_000)}
    names |= {name[:-1] + b"b" for name in names}
    found = {}
    for name in names:
        staged = staged_name(name)
        other = found.setdefault(staged, name)
        if other != name:
            assert None in parts_of(staged), (other, name)
            fixed = [part for part in parts_of(staged) if part is not None]
            for each in (name, other):
                at = 0
                for part in fixed:
                    at = each.index(part, at) + len(part)
        if None not in parts_of(staged):
            assert parts_of(staged) == [name]


def test_what_programs_make_up_becomes_one(dice):
    """The names of two tries of one program, for any file."""
    mixed = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    missed = 0
    for _ in range(2000):
        stem = bytes(dice.choice(b"abc.-_ \xc3\xa4") for _ in range(dice.randrange(1, 20)))
        two = [b"%b.tmp.%d.%012x" % (stem, dice.randrange(1, 1 << 22), dice.randrange(1 << 48)) for _ in range(2)]
        assert len(set(map(staged_name, two))) == 1
        two = [stem + b"." + bytes(dice.choice(mixed) for _ in range(6)) for _ in range(2)]
        missed += len(set(map(staged_name, two))) != 1
    assert missed < 700  # what mkstemp makes up and looks like a word is asked again: a quarter of the pairs


def test_in_real_directories_hardly_anything_becomes_one():
    """Names that lie side by side on this machine: those that people and packages gave are told apart."""
    total = merged = folders = 0
    for top in ("/etc", "/usr/bin", "/usr/share", sysconfig.get_path("stdlib")):
        for _, below, files in os.walk(os.fsencode(top)):
            folders += 1
            if folders > 3000:
                break
            names = {*below, *files}
            total += len(names)
            merged += len(names) - len(set(map(staged_name, names)))
    assert total > 500 and merged * 1000 <= total


def test_patterns_of_a_profile():
    own = Patterns([b"{stem}.draft-{pid}"])
    assert staged_name(b"x.draft-12", own) == b"x.draft-*"
    assert staged_name(b"x.tmp.1.abcdef", own) == b"x.tmp.1.abcdef"
    assert entry(1, 2, b"x.draft-1", patterns=own) == entry(1, 2, b"x.draft-2", patterns=own)
    for text, message in [
        (b"{stem}.{what}", "'what' is none of {stem}, {pid}"),
        (b"{stem", "'stem' is none of"),
        (b"{stem}", "without fixed text"),
        (b"{pid}{hex}", "without fixed text"),
    ]:
        with pytest.raises(ValueError, match=message):
            Patterns([text])
    Patterns(DEFAULT)


# -- keys ------------------------------------------------------------------------------------------------------------


def test_every_field_of_a_key_counts():
    base = {"program": P, "principal": b"tree", "effect": "write", "places": [entry(1, 2, b"x")], "flags": ""}
    keys = [
        Key(**base),
        Key(**{**base, "program": b"1" * 32}),
        Key(**{**base, "principal": b"other"}),
        Key(**{**base, "effect": "create"}),
        Key(**{**base, "flags": "exclusive"}),
        *(
            Key(**{**base, "places": places})
            for places in (
                [entry(2, 2, b"x")],
                [entry(1, 3, b"x")],
                [entry(1, 2, b"y")],
                [entry(1, 2, b"x", directory=b"/a")],
                [entry(1, 2, b"x", born=5)],
                [entry(1, 2, b"x"), entry(1, 2, b"y")],
                [entry(1, 2, b"y"), entry(1, 2, b"x")],
                [pinned(1, 2)],
                [pinned(1, 2, born=5)],
                [pinned(12, 2)],
                [peer(b"//a:1")],
                [peer(b"//a:12")],
            )
        ),
    ]
    assert len(set(keys)) == len({each.digest() for each in keys}) == len(keys)
    again = Key(**base)
    assert (again, hash(again), again.digest()) == (keys[0], hash(keys[0]), keys[0].digest())
    with pytest.raises(ValueError):
        Key(P, b"tree", "write", [])


def test_no_two_keys_share_bytes(dice):
    """Fields that run into each other: the boundaries are in the bytes."""
    pieces = [b"", b"1", b"2:", b":", b"1:1", b"x", b"object"]
    seen = {}
    for _ in range(20_000):
        places = tuple(
            dice.choice(
                (
                    entry(dice.randrange(3), dice.randrange(3), dice.choice(pieces), directory=dice.choice(pieces)),
                    pinned(dice.randrange(3), dice.randrange(3)),
                    peer(dice.choice(pieces)),
                )
            )
            for _ in range(dice.randrange(1, 3))
        )
        fields = (dice.choice(pieces), dice.choice(pieces), dice.choice(("a", "ab")), places, dice.choice(("", "b")))
        made = Key(*fields)
        assert seen.setdefault(made.canonical, fields) == fields


def test_a_key_knows_no_process_and_no_version():
    assert key(b"x.tmp.1.abcdef") == key(b"x.tmp.2.fedcba")
    assert key(b"x.tmp.1.abcdef") != key(b"y.tmp.1.abcdef")


# -- grants ----------------------------------------------------------------------------------------------------------


def test_once_is_one_use_within_ten_minutes():
    grants = Grants()
    grants.add(key(), ONCE, BY, 100.0, answer_id=7)
    found = grants.answer(key(), 101.0)
    assert (found.yes, found.id, found.kind, found.at, found.by) == (True, 7, ONCE, 100.0, BY)
    assert grants.answer(key(), 101.0) is found, "looking does not use it up"
    assert [each.id for each in grants.use([key()], 102.0)] == [7]
    assert grants.answer(key(), 103.0) is None and grants.use([key()], 103.0) is None
    grants.add(key(), ONCE, BY, 100.0, answer_id=8)
    assert grants.answer(key(), 100.0 + ONCE_LASTS - 0.001).id == 8
    assert grants.answer(key(), 100.0 + ONCE_LASTS) is None
    assert grants.use([key()], 100.0 + ONCE_LASTS) is None


@pytest.mark.parametrize("kind", [SESSION, ALWAYS])
def test_a_session_is_until_its_end(kind):
    grants = Grants()
    grants.add(key(), kind, BY, 0.0, answer_id=1)
    for now in (1.0, 1e6, 1e9):
        assert grants.use([key()], now)[0].kind == kind
    assert grants.answer(key(b"other"), 1.0) is None


def test_a_remembered_no_outranks_every_yes():
    grants = Grants()
    grants.add(key(), SESSION, BY, 0.0, answer_id=1)
    assert grants.add(key(), DENY_SESSION, BY, 1.0, answer_id=2)
    assert not grants.answer(key(), 2.0).yes and grants.use([key()], 2.0) is None
    for kind in (ONCE, SESSION, ALWAYS):
        assert not grants.add(key(), kind, BY, 3.0, answer_id=3)
        assert not grants.answer(key(), 1e9).yes
    assert grants.refused(key()).id == 2 and grants.refused(key(b"y")) is None


def test_a_no_for_its_question_only_is_not_remembered():
    grants = Grants()
    assert not grants.add(key(), DENY, BY, 0.0, answer_id=1)
    assert grants.answer(key(), 0.0) is None and len(grants) == 0
    with pytest.raises(ValueError):
        grants.add(key(), "maybe", BY, 0.0, answer_id=1)


def test_several_keys_are_used_all_or_none():
    grants = Grants()
    grants.add(key(b"a"), ONCE, BY, 0.0, answer_id=1)
    assert grants.use([key(b"a"), key(b"b")], 1.0) is None
    assert grants.answer(key(b"a"), 1.0).id == 1
    grants.add(key(b"b"), ONCE, BY, 0.0, answer_id=2)
    assert [each.id for each in grants.use([key(b"a"), key(b"b"), key(b"a")], 1.0)] == [1, 2]
    assert len(grants) == 0


def test_answers_are_bounded_and_forgetting_loosens_nothing():
    grants = Grants(most=10)
    grants.add(key(b"refused"), SESSION, BY, 0.0, answer_id=1)
    grants.add(key(b"refused"), DENY_SESSION, BY, 0.0, answer_id=2)
    for number in range(100):
        grants.add(key(b"n%d" % number), SESSION, BY, 1.0, answer_id=10 + number)
        assert len(grants) <= 10
    assert not grants.answer(key(b"refused"), 2.0).yes
    assert grants.answer(key(b"n99"), 2.0).yes and grants.answer(key(b"n0"), 2.0) is None
    for number in range(100):
        grants.add(key(b"d%d" % number), DENY_SESSION, BY, 1.0, answer_id=200 + number)
    assert len(grants) == 10 and grants.answer(key(b"refused"), 2.0) is None


def test_what_expired_goes_first():
    grants = Grants(most=3)
    grants.add(key(b"kept"), SESSION, BY, 0.0, answer_id=1)
    for number in range(2):
        grants.add(key(b"old"), ONCE, BY, 0.0, answer_id=number)
    grants.add(key(b"new"), ONCE, BY, ONCE_LASTS, answer_id=9)
    assert grants.answer(key(b"kept"), ONCE_LASTS) and grants.answer(key(b"new"), ONCE_LASTS) and len(grants) == 2


def test_grants_against_a_model(dice):
    """Any order of answers, uses and time passing, against the plain definition."""
    for _ in range(300):
        grants, history, now = Grants(), [], 0.0
        for step in range(60):
            name = dice.choice((b"a", b"b.tmp.%d.abcdef" % dice.randrange(99), b"c"))
            now += dice.choice((0.0, 1.0, ONCE_LASTS / 2))
            asked = key(name)
            if dice.random() < 0.5:
                kind = dice.choice((ONCE, ONCE, SESSION, DENY, DENY_SESSION) if step % 7 == 0 else (ONCE, DENY))
                grants.add(asked, kind, BY, now, answer_id=step)
                history.append([kind, asked, now, step])
            denied = any(each[0] == DENY_SESSION and each[1] == asked for each in history)
            valid = [
                each for each in history
                if each[1] == asked and (each[0] == SESSION or (each[0] == ONCE and now < each[2] + ONCE_LASTS))
            ]  # fmt: skip
            found = grants.answer(asked, now)
            assert (found is not None and found.yes) == (bool(valid) and not denied)
            assert (found is not None and not found.yes) == denied
            if dice.random() < 0.4:
                used = grants.use([asked], now)
                assert (used is not None) == (bool(valid) and not denied)
                if used and used[0].kind == ONCE:
                    history.remove(next(each for each in history if each[3] == used[0].id))
                elif used:  # a session's yes takes the place of earlier ones for one use
                    assert any(each[0] == SESSION for each in valid)
            if any(each[0] == SESSION and each[1] == asked for each in history):
                history[:] = [each for each in history if each[0] != ONCE or each[1] != asked]


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_bound_to_all_of_it(dice):
    secret, a, p, h = (dice.randbytes(n) for n in (32, 16, 32, 32))
    token = tokens.mint(secret, a, p, h)
    assert len(token) == 32 and tokens.check(secret, token, a, p, h)
    for place in range(4):
        for bit in range(8 * (32, 16, 32, 32)[place]):
            parts = [bytearray(each) for each in (secret, a, p, h)]
            parts[place][bit // 8] ^= 1 << bit % 8
            assert not tokens.check(bytes(parts[0]), token, *map(bytes, parts[1:]))
    for wrong in (b"", token[:-1], token + b"\0", bytes(32)):
        assert not tokens.check(secret, wrong, a, p, h)


def test_a_token_by_another_implementation():
    import hashlib
    import hmac

    secret, a, p, h = b"k" * 32, b"a" * 16, b"p" * 32, b"h" * 32
    text = b"pincer-trace confirmation token 1\0" + a + p + h
    assert tokens.mint(secret, a, p, h) == hmac.new(secret, text, hashlib.sha256).digest()


@pytest.mark.parametrize(
    "fields",
    [
        (b"k" * 31, 16, 32, 32),
        (b"", 16, 32, 32),
        (b"k" * 32, 15, 33, 32),
        (b"k" * 32, 16, 31, 33),
        (b"k" * 32, 0, 0, 0),
    ],
)
def test_no_token_for_fields_of_another_length(fields):
    secret, *sizes = fields
    with pytest.raises(ValueError):
        tokens.mint(secret, *map(bytes, sizes))
