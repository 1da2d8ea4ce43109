"""Allowed reads: judged once an object, counted exactly, and judged anew when the object or its name changes."""

from __future__ import annotations

import errno
import os
import tempfile
import threading

import pytest
from executor.benches import PROFILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pincer_trace.kernel import fastpath
from pincer_trace.profile import ALLOW, DENY
from pincer_trace.testing.fakes import Bench
from pincer_trace.twin.target import Target

AT = -100


def read(bench, name: bytes, flags: int = os.O_RDONLY):
    answer = bench.call("openat", AT, name, flags, 0)
    answer.close()
    return answer


def counts(bench) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in bench.records("reads"):
        name = os.path.relpath(str(record["path"]))
        found[name] = found.get(name, 0) + int(record["count"])
    return found


def judged(bench, monkeypatch) -> list[str]:
    """The paths that are judged from now on."""
    paths: list[str] = []
    real = bench.authority.judge

    def judge(task, effect, target, *rest):
        paths.append(os.path.relpath(os.fsdecode(target.path)))
        return real(task, effect, target, *rest)

    monkeypatch.setattr(bench.authority, "judge", judge)
    return paths


def test_each_read_is_counted_once(bench):
    for name, times in ((b"file", 5), (b"link", 2), (b"dir/inner", 3), (b"dir", 1)):
        for _ in range(times):
            assert read(bench, name).succeeded
    read(bench, b"absent")
    bench.reads.finish()
    assert counts(bench) == {"file": 7, "dir/inner": 3, "dir": 1}
    assert bench.reads.total == 11
    assert bench.session.ledger.counts()["reads"] == 11


def test_flushes_record_what_is_new_and_no_more(bench):
    reads = bench.reads
    read(bench, b"file")
    reads.flush()  # a late count goes with the next one
    reads.flush()
    assert counts(bench) == {"file": 1}
    reads.flush()
    reads.flush()
    assert len(bench.records("reads")) == 1
    read(bench, b"file")
    read(bench, b"file")
    reads.flush()
    read(bench, b"file")
    reads.flush()
    reads.flush()
    reads.finish()
    assert counts(bench) == {"file": 4}


def test_no_count_is_lost_beside_a_flusher(bench):
    """The receiving thread counts while another flushes, as in a run."""
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            bench.reads.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for _ in range(300):
            read(bench, b"file")
            read(bench, b"dir/inner")
    finally:
        stop.set()
        thread.join()
    bench.reads.finish()
    assert counts(bench) == {"file": 300, "dir/inner": 300}


def test_a_failed_injection_is_no_read(bench):
    read(bench, b"file")
    bench.listener.before("inject", OSError(errno.EMFILE, "scripted"))
    assert read(bench, b"file").error == errno.EMFILE
    bench.reads.finish()
    assert counts(bench) == {"file": 1}


def test_the_second_read_is_not_judged_again(bench, monkeypatch):
    paths = judged(bench, monkeypatch)
    for _ in range(3):
        read(bench, b"file")
    assert paths == ["file"]


def test_what_changes_is_judged_anew(bench, monkeypatch):
    paths = judged(bench, monkeypatch)
    read(bench, b"file")
    for change in (
        lambda: os.chmod("file", 0o600),
        lambda: os.link("file", "again"),
        lambda: os.rename("file", "moved"),
        lambda: os.rename("dir/inner", "moved"),
    ):
        paths.clear()
        threading.Event().wait(0.006)  # the kernel's clock for times ticks each few milliseconds
        change()
        name = b"moved" if os.path.exists("moved") else b"file"
        read(bench, name)
        assert paths == [name.decode()]


def test_a_file_moved_to_a_protected_place_is_refused(bench, monkeypatch):
    """A rename changes the change time, so the warm entry does not answer for the new name."""
    read(bench, b"file")
    threading.Event().wait(0.006)
    os.rename("file", "secret/file")
    assert read(bench, b"secret/file").error == errno.EACCES
    os.rename("secret/key", "key")
    assert read(bench, b"key").succeeded
    threading.Event().wait(0.006)
    os.rename("key", "secret/key")
    assert read(bench, b"secret/key").error == errno.EACCES


def test_an_inode_that_comes_round_again_is_judged_anew(bench, monkeypatch):
    read(bench, b"file")
    number = os.stat("file").st_ino
    paths = judged(bench, monkeypatch)
    os.unlink("file")
    threading.Event().wait(0.006)
    for attempt in range(50):
        name = f"secret/n{attempt}"
        with open(name, "w"):
            pass
        if os.stat(name).st_ino == number:
            break
    assert read(bench, os.fsencode(name)).error == errno.EACCES
    assert set(paths) == {name}  # what the quick way does not allow is judged once more


def test_a_directory_moved_by_us_is_named_anew(bench):
    read(bench, b"dir/inner")
    assert bench.call("rename", b"dir", b"moved").succeeded
    read(bench, b"moved/inner")
    bench.reads.finish()
    assert counts(bench) == {"dir/inner": 1, "moved/inner": 1}


def test_what_is_refused_is_refused_each_time_and_recorded(bench):
    for _ in range(3):
        assert read(bench, b"secret/key").error == errno.EACCES
    assert len(bench.records("denied")) == 3
    assert not bench.reads.hot


def test_p14_fifos_and_devices_are_never_warm(bench):
    writer = os.open("fifo", os.O_RDWR)
    try:
        assert read(bench, b"fifo").succeeded
        assert read(bench, b"/dev/null").succeeded
    finally:
        os.close(writer)
    assert not bench.reads.hot


CONDITIONAL = """
[[rule]]
effects = ["read", "change"]
paths = ["/**"]
verdict = "deny"
reason = "closed"

[[rule]]
effects = ["create"]
paths = ["/**"]
verdict = "allow"
reason = "new things"

[[rule]]
effects = ["read"]
paths = ["/**"]
when = "own"
verdict = "allow"
reason = "own things"
"""


ALL_READS = """
[[rule]]
effects = ["read"]
paths = ["/**"]
verdict = "allow"
reason = "reads are open"
"""


def test_a_read_by_a_condition_is_never_warm(make_bench, work):
    """What makes it allowed can end without the object's change time telling."""
    bench = make_bench(CONDITIONAL)
    assert read(bench, b"file").error == errno.EACCES
    assert bench.call("openat", AT, b"mine", os.O_WRONLY | os.O_CREAT, 0o644).succeeded
    assert read(bench, b"mine").succeeded
    assert not bench.reads.hot
    bench.provenance._born.clear()
    assert read(bench, b"mine").error == errno.EACCES


def test_the_tables_are_bounded(bench, monkeypatch):
    from pincer_trace.twin import reads

    monkeypatch.setattr(reads, "_LIMIT", 10)
    for number in range(35):
        with open(f"dir/{number}", "w"):
            pass
        read(bench, b"dir/%d" % number)
    assert len(bench.reads._entries) <= 10
    assert len(bench.reads.hot) <= 11
    bench.reads.flush()
    bench.reads.finish()
    assert counts(bench) == {f"dir/{number}": 1 for number in range(35)}


# Pieces of patterns, and of names that may fall under them
PIECES = ("a", "b", ".env", "key", "*", "a*", "*b", "*key*", "?b", "[ab]", "a?*", "**", "{a,b}")
LETTERS = ("a", "b", ".env", "key", "ab", "xb", "akeyb", "x", "keys", "aab", "")


@pytest.mark.skipif(not fastpath.available(), reason="the fast path is not compiled: scripts/compile")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
            st.sampled_from(("allow", "deny", "confirm", "view", "own")),
            st.booleans(),
        ),
        min_size=1,
        max_size=7,
    )
)
def test_a_folder_lets_pass_what_both_evaluators_allow(tmp_path, rules):
    """Whatever the patterns: by a folder alone no name passes that is not allowed in full, and no other is kept back
    than those that patterns may name.
    """
    text = ALL_READS
    for pieces, verdict, protection in rules:
        pattern = ("{workspace}/" if pieces[0] < "b" else "/") + "/".join(pieces)
        condition = 'when = "own"\n' if verdict == "own" else ""
        verdict = "allow" if verdict == "own" else verdict
        protection = protection or verdict == "view"
        text += f'''[[rule]]
effects = ["read"]
paths = ["{pattern}"]
verdict = "{verdict}"
reason = "because"
protection = {str(protection).lower()}
{condition}'''
    with tempfile.TemporaryDirectory(dir=tmp_path) as place:
        compare(place, text, [[], ["a"], ["b", "a"], [".env"], ["ab", "x"], ["key", "b", "aab"]])


@pytest.mark.skipif(not fastpath.available(), reason="the fast path is not compiled: scripts/compile")
@pytest.mark.parametrize("name", ["default", *(pytest.param(n, marks=pytest.mark.slow) for n in ("claude", "strict"))])
def test_a_folder_lets_pass_what_the_shipped_profiles_allow(tmp_path, name):
    """Every component that a pattern of theirs names, and names like it, in folders of every depth."""
    some = [[], ["x"], [".git", "hooks"], [".ssh"]]
    assert compare(str(tmp_path), f'extends = "{name}"\n', some) > 500


def compare(place: str, text: str, folders: list[list[str]]) -> int:
    """How many names were let pass by their folder, each compared with the judgement in full."""
    places = {"workspace": f"{place}/work", "home": f"{place}/home"}
    os.makedirs(places["workspace"])
    passed = 0
    with Bench(place, text, **places) as bench:
        fast = fastpath.FastPath(fastpath.compiled(), bench.listener, -1, ())
        try:
            bench.reads.attach(fast)
            named = {c for rule in bench.profile.rules for c in rule.components if isinstance(c, bytes)}
            globs = [c for rule in bench.profile.rules for c in rule.components if isinstance(c, tuple)]
            named |= {b"".join(part for part in glob if isinstance(part, bytes)) for glob in globs}
            names = sorted({name for one in named | {name.encode() for name in LETTERS} for name in near(one)})
            tops = (places["workspace"], places["home"], "/etc", "")
            for number, folder in enumerate(os.fsencode("/".join([top, *some])) for top in tops for some in folders):
                bench.reads.admit_folder(folder)
                found = bench.reads._ordinary(folder)
                deep = found is not None and found.deep
                some = names[number % 7 :: 7]  # a few of them for what lies deeper
                below = [(b"x/" + one, b"x") for one in some] + [(one + b"/x", one) for one in some]
                below += [(one + b"/" + other, one) for one, other in zip(some, reversed(some), strict=True)]
                for name, first in [*((name, name) for name in names), *below]:
                    path = folder + b"/" + name
                    left, right = bench.authority.left.lets_read(path), bench.authority.right.lets_read(path)
                    if fast.lets(path):
                        passed += 1
                        assert left is not None and left is right and left.verdict == ALLOW
                        assert found is None or name != first or left is found.decision
                    elif found is not None and (name == first or deep):
                        assert any(map(found.named.holds, name.split(b"/"))), path
        finally:
            bench.reads._fast = None
            fast.close()
    return passed


@pytest.mark.skipif(not fastpath.available(), reason="the fast path is not compiled: scripts/compile")
def test_what_turns_out_to_be_protected_is_let_pass_no_more(make_bench, work):
    """A link at a protected name, met only now: from then on neither its object nor its folder is ordinary."""
    text = ALL_READS + ALL_READS.replace("/**", "**/*.key").replace("allow", "deny") + "protection = true"
    for folder in ("linked", "apart"):
        (work / folder).mkdir()
        (work / folder / "plain").write_text("")
        (work / folder / "other").write_text("")
    (work / "linked" / "a.key").symlink_to("plain")
    bench = make_bench(text)
    fast = fastpath.FastPath(fastpath.compiled(), bench.listener, -1, ())
    folders = [os.fsencode(work / folder) for folder in ("linked", "apart")]

    def lets() -> list[bool]:
        for folder in folders:
            bench.reads.admit_folder(folder)
        return [fast.lets(folder + name) for folder in folders for name in (b"/plain", b"/other", b"/a.key")]

    try:
        bench.reads.attach(fast)
        assert lets() == [True, True, False, True, True, False]
        assert read(bench, b"linked/a.key").error == errno.EACCES
        assert not any(fast.lets(folder + b"/plain") for folder in folders)  # all of it is judged anew
        assert lets() == [False, False, False, True, True, False]
    finally:
        bench.reads._fast = bench.reads.files.fast = None
        fast.close()


def test_the_fast_path_hears_of_each_secret(make_bench, work):
    """Of those that were known before, of what is read as a view, and of what a sink writes."""
    bench = make_bench(ALL_READS + ALL_READS.replace("/**", "**/*.key").replace("allow", "view") + "protection = true")
    told: list[tuple[int, int]] = []
    expected = []
    for name in ("scanned.key", "read.key", "copy"):
        (work / name).write_text("TOKEN=abc\n")
        found = os.stat(work / name)
        expected.append((found.st_dev, found.st_ino))
    bench.authority._aliases.note_scanned([os.fsencode(work / "scanned.key")])
    bench.authority.tell_secrets(lambda *key: told.append(key))
    assert told == expected[:1]
    assert read(bench, b"read.key").succeeded
    assert told == expected[:2]
    bench.authority.note_copy(b"", os.stat(work / "copy"), (b"/read.key",))
    assert told == expected
    assert all(bench.authority.is_secret(os.stat(work / name)) for name in ("scanned.key", "read.key", "copy"))


def near(name: bytes) -> list[bytes]:
    """Names like this one, which a folder may hold."""
    some = (name, b"x" + name, name + b"x")
    return [one[:255] for one in some if one and b"/" not in one and one not in (b".", b"..")]


def test_a_full_log_loses_no_count_for_good(bench, monkeypatch):
    """What could not be written is reported once there is room again."""
    import contextlib

    from pincer_trace.ledger import LedgerFull

    read(bench, b"file")
    with monkeypatch.context() as patch:

        def full(*_arguments):
            raise LedgerFull(errno.ENOSPC)

        patch.setattr(type(bench.session.ledger), "_append", full)
        for _ in range(2):
            with contextlib.suppress(LedgerFull):
                bench.reads.flush()
    read(bench, b"file")
    bench.reads.finish()
    assert counts(bench) == {"file": 2}


def short(bench, path: bytes, found: os.stat_result | None = None):
    """What the short way says of a read of `path`, as a pin of it is seen (or as `found`)."""
    pin = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        name = os.readlink(b"/proc/self/fd/%d" % pin)
        return bench.authority.lets_read(name, pin, os.fstat(pin) if found is None else found)
    finally:
        os.close(pin)


def full(bench, path: bytes):
    pin = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        name = os.readlink(b"/proc/self/fd/%d" % pin)
        return bench.authority.judge(bench.task(), "read", Target(name, descriptor=pin, found=os.fstat(pin)))
    finally:
        os.close(pin)


def test_the_short_way_allows_what_the_full_one_allows_by_the_same_rule(bench):
    allowed = 0
    for directory, folders, files in os.walk(b"."):
        for name in [*folders, *files]:
            path = os.path.join(directory, name)
            decision, judgement = short(bench, path), full(bench, path)
            assert decision is None or (decision.verdict, decision.rule) == (judgement.verdict, judgement.rule), path
            assert (decision is not None) == (judgement.verdict == ALLOW), path
            allowed += decision is not None
    assert allowed > 4
    assert short(bench, b"secret/key") is None
    assert short(bench, b"/") is not None


def test_what_raises_a_question_is_judged_in_full(make_bench, work):
    """A second name, another object than was seen, a place that a link protects, a rule that asks for facts."""
    os.symlink(os.path.realpath("dir"), "secret/linked")
    rules = ((DENY, "", "closed"), (ALLOW, 'when = "own"', "its own"))
    bench = make_bench(
        PROFILE
        + "".join(
            f'[[rule]]\neffects = ["read"]\npaths = ["{{workspace}}/shared/**"]\nverdict = "{verdict}"\n{when}\n'
            f'reason = "{reason}"\n'
            for verdict, when, reason in rules
        )
    )
    assert short(bench, b"file") is not None
    assert short(bench, b"file", os.stat("asked/hook")) is None
    assert short(bench, b"dir/inner") is None
    assert short(bench, b"shared/foreign") is None
    os.link("file", "second")
    assert short(bench, b"file") is None


def test_of_a_short_way_nothing_is_kept_that_could_be_voted_on(bench):
    bench.authority.begin()
    assert short(bench, b"file") is not None
    assert not bench.authority.left._ballot
    assert not bench.authority.right._ballot
