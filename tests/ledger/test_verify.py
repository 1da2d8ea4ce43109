"""`verify`: every change of a ledger is found and named; what was not changed passes, killed runs too."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pincer_trace.errors import UserError
from pincer_trace.ledger.chain import genesis, head_message, link
from pincer_trace.ledger.read import load_session, read_records
from pincer_trace.ledger.verify import Walk, verify


def run(make, allow, deny, *, effects: int = 5, ends: bool = True):
    """A session with two heads in the middle; closed unless it is to look killed."""
    session = make()
    ledger = session.ledger
    for number in range(effects):
        ledger.outcome(ledger.intent("write", b"/tree/f%d" % number, **allow), 0)
        if number == effects // 2:
            ledger.denied("read", b"/home/key\n\xff", **deny)
            ledger.sign()
    ledger.sign()
    session.save()
    if ends:
        ledger.close(0, 0)
    else:
        ledger.intent("rename", b"/tree/half", **allow)
        ledger.leave()
    return Path(session.path)


def lines(path: Path) -> list[bytes]:
    return (path / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def rewrite(path: Path, changed: list[bytes]) -> None:
    (path / "ledger.jsonl").write_bytes(b"".join(changed))


def chained_anew(path: Path, texts: list[bytes]) -> list[bytes]:
    """The same lines with digests that fit: what an attacker can do."""
    digest, made = genesis(path.name), []
    for line in texts:
        text = line.rpartition(b',"chain":')[0]
        digest = link(digest, text)
        made.append(text + b',"chain":"' + digest.hex().encode() + b'"}\n')
    return made


def test_what_was_written_passes(make, allow, deny):
    path = run(make, allow, deny)
    found = verify(str(path))
    assert (found.faults, found.notes) == ([], [])
    assert found.records == len(lines(path))
    assert found.signed == found.records - 1  # the last record is the head itself
    assert [json.loads(line)["kind"] for line in lines(path)][-2:] == ["end", "head"]


def test_a_killed_run_passes_and_says_what_is_not_known(make, allow, deny):
    found = verify(str(run(make, allow, deny, ends=False)))
    assert found.faults == []
    assert "whether it was done is not known" in found.notes[-1]
    assert "rename" in found.notes[-1]
    assert "was killed" in found.notes[0]
    assert 0 < found.signed < found.records


def test_a_torn_last_line_of_a_killed_run_is_a_note(make, allow, deny):
    path = run(make, allow, deny, ends=False)
    with open(path / "ledger.jsonl", "ab") as file:
        file.write(b'{"seq":99,"ti')
    found = verify(str(path))
    assert found.faults == []
    assert any("is torn (13 bytes)" in note for note in found.notes)


def test_only_so_many_digests_are_remembered(make, allow, deny, monkeypatch):
    """A head signs what was written a moment ago: one that signs an older record is none that we wrote."""
    monkeypatch.setattr("pincer_trace.ledger.verify._REMEMBERED", 8)
    path = run(make, allow, deny, effects=40)
    walk = Walk(load_session(str(path)))
    assert sum(1 for _ in read_records(str(path), see=walk.see)) > 80
    found = walk.conclude()
    assert (found.faults, found.notes) == ([], [])
    assert len(walk._digests) == 8
    whole = lines(path)
    head = next(line for line in whole if b'"kind":"head"' in line)
    rewrite(path, chained_anew(path, [*whole, head.replace(b'{"seq":', b'{"seq":1')]))
    assert any("which is none before it" in fault for fault in verify(str(path)).faults)


def test_every_single_change_is_found(make, allow, deny):
    """Each byte of each line replaced, each line removed, doubled, exchanged with its neighbour."""
    path = run(make, allow, deny, effects=3)
    whole = lines(path)
    dice = random.Random(1)
    for number, line in enumerate(whole):
        others = [whole[:number] + whole[number + 1 :], [*whole[:number], line, *whole[number:]]]
        if number + 1 < len(whole):
            others.append([*whole[:number], whole[number + 1], line, *whole[number + 2 :]])
        for place in dice.sample(range(len(line)), 12):
            changed = bytes([line[place] ^ (1 << dice.randrange(7))])
            others.append([*whole[:number], line[:place] + changed + line[place + 1 :], *whole[number + 1 :]])
        for other in others:
            rewrite(path, other)
            assert verify(str(path)).faults, (number, other)
    rewrite(path, whole)
    assert not verify(str(path)).faults


def test_a_chain_made_anew_does_not_carry_the_signatures(make, allow, deny):
    path = run(make, allow, deny)
    whole = lines(path)
    changed = [line.replace(b"/tree/f1", b"/tree/f9") for line in whole]
    rewrite(path, chained_anew(path, changed))
    faults = verify(str(path)).faults
    assert faults
    assert all("signature" in fault or "not signed" in fault for fault in faults)


def test_signed_with_another_key(make, allow, deny):
    """Whoever can write session.json too is found by the key that was kept elsewhere."""
    path = run(make, allow, deny)
    facts = json.loads((path / "session.json").read_text())
    mine = Ed25519PrivateKey.generate()
    digest, made = genesis(path.name), []
    for line in lines(path):
        text = line.rpartition(b',"chain":')[0].replace(b"/tree/f1", b"/tree/f9")
        record = json.loads(text + b"}")
        if record["kind"] == "head":
            signature = mine.sign(head_message(path.name, record["of"], digest)).hex()
            text = text.replace(record["signature"].encode(), signature.encode())
        digest = link(digest, text)
        made.append(text + b',"chain":"' + digest.hex().encode() + b'"}\n')
    rewrite(path, made)
    (path / "session.json").write_text(json.dumps({**facts, "key": mine.public_key().public_bytes_raw().hex()}))
    assert verify(str(path)).faults == []
    assert verify(str(path), facts["key"]).faults
    with pytest.raises(UserError, match="--key"):
        verify(str(path), "00")


def test_a_tail_that_was_cut_off_is_found(make, allow, deny):
    path = run(make, allow, deny)
    whole = lines(path)
    for kept in range(len(whole)):
        rewrite(path, whole[:kept])
        assert verify(str(path)).faults, kept


def test_a_ledger_of_another_session(make, allow, deny):
    one, other = run(make, allow, deny), run(make, allow, deny)
    rewrite(other, lines(one))
    assert verify(str(other)).faults


def test_lines_that_are_no_records(make, allow, deny):
    path = run(make, allow, deny)
    whole = lines(path)
    for odd in (b"\n", b"[]\n", b"{}\n", b"\xff\x00\n", b'{"seq":1}\n', whole[0][:-1], b"[" * 5000 + b"\n"):
        rewrite(path, [*whole[:2], odd, *whole[2:]])
        assert verify(str(path)).faults


def test_an_outcome_that_belongs_to_nothing(make, allow, deny):
    path = run(make, allow, deny, ends=False)
    texts = [*lines(path), b'{"seq":%d,"kind":"outcome","of":1,"outcome":"done","chain":"' % (len(lines(path)) + 1)]
    rewrite(path, chained_anew(path, texts))
    assert any("for which none is awaited" in fault for fault in verify(str(path)).faults)


def test_without_a_key_nothing_is_vouched_for(make, allow, deny):
    path = run(make, allow, deny)
    facts = json.loads((path / "session.json").read_text())
    del facts["key"]
    (path / "session.json").write_text(json.dumps(facts))
    found = verify(str(path))
    assert found.faults == ["session.json holds no key: no signature was checked"]
    assert found.signed == 0


def test_heads_while_others_write(make, allow):
    """Records that come while a head is made are signed by the next one; nothing is signed twice."""
    session = make()
    ledger, done = session.ledger, threading.Event()

    def write() -> None:
        while not done.is_set():
            ledger.outcome(ledger.intent("write", b"/tree/f", **allow), 0)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(50):
        ledger.sign()
    done.set()
    for writer in writers:
        writer.join()
    ledger.sign()
    signed = len(lines(Path(session.path)))
    ledger.sign()
    assert len(lines(Path(session.path))) == signed
    ledger.close(0, 0)
    found = verify(session.path)
    assert (found.faults, found.notes, found.signed) == ([], [], found.records - 1)


def test_a_torn_line_does_not_break_the_chain(make, allow, monkeypatch):
    session = make()
    ledger = session.ledger
    ledger.outcome(ledger.intent("write", b"/tree/a", **allow), 0)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:20]))
    with pytest.raises(Exception, match="log cannot be written"):
        ledger.intent("write", b"/tree/b", **allow)
    monkeypatch.setattr(os, "write", real)
    ledger.outcome(ledger.intent("write", b"/tree/c", **allow), 0)
    ledger.close(0, 0)
    assert verify(session.path).faults == []


def test_the_private_key_is_nowhere(make, allow, deny):
    path = run(make, allow, deny)
    facts = json.loads((path / "session.json").read_text())
    assert len(facts["key"]) == 64
    assert sorted(os.listdir(path)) == ["ledger.jsonl", "session.json"]
    assert b"PRIVATE" not in (path / "session.json").read_bytes() + b"".join(lines(path))
