"""The one place of decisions: which verdicts permit, what is recorded, and in which order with the effect."""

from __future__ import annotations

import errno
import os

import pytest

from pincer_trace.effects import CHANGES, CREATE, EFFECTS, READ, RENAME, UNLINK, WRITE
from pincer_trace.profile import ALLOW, CONFIRM, DENY
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.target import Target

AT = -100


def target(name: str) -> Target:
    path = os.path.abspath(name)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        found = None
    return Target(os.fsencode(path), found=found)


@pytest.mark.parametrize(
    ("name", "effects", "verdict"),
    [
        ("file", CHANGES | {READ}, ALLOW), ("secret/key", CHANGES | {READ}, DENY), ("asked/hook", CHANGES, CONFIRM),
        ("asked/hook", {READ}, ALLOW), ("shared/foreign", {WRITE, UNLINK, RENAME}, DENY),
        ("shared/new", {CREATE}, ALLOW), ("../outside", CHANGES, DENY),
    ],
)  # fmt: skip
@pytest.mark.parametrize("confirm_all", [False, True])
def test_verdicts_and_what_they_permit(make_bench, name, effects, verdict, confirm_all):
    bench = make_bench(confirm_all=confirm_all)
    task = bench.task()
    for effect in sorted(effects):
        decision = bench.authority.judge(task, effect, target(name))
        assert decision.verdict == verdict, effect
        permitted = verdict == ALLOW or (verdict == CONFIRM and confirm_all)
        assert bench.authority.permits(decision) == permitted
        before = len(bench.records())
        if permitted:
            bench.authority.demand(task, effect, target(name))
            assert len(bench.records()) == before  # the intent comes with the act
        else:
            with pytest.raises(Denied):
                bench.authority.demand(task, effect, target(name))
            [record] = bench.records()[before:]
            assert (record["kind"], record["effect"], record["verdict"]) == ("denied", effect, verdict)
            assert record["path"] == os.path.abspath(name)


def test_an_effect_that_no_rule_knows_is_denied(bench):
    task = bench.task()
    for effect in ("format", "", "READ"):
        assert effect not in EFFECTS
        assert bench.authority.judge(task, effect, target("file")).verdict == DENY


@pytest.mark.parametrize("path", [b"", b"file", b"/a/../b", b"/a//b", b"pipe:[3]", b"/x/./y"])
def test_a_path_that_is_none_is_denied(bench, path):
    assert bench.authority.judge(bench.task(), WRITE, Target(path)).verdict == DENY


def test_forbid_and_refuse_always_raise(make_bench):
    bench = make_bench(confirm_all=True)
    task = bench.task()
    with pytest.raises(Denied):
        bench.authority.forbid(task, WRITE, target("file"), "never")
    with pytest.raises(Denied):
        bench.authority.refuse(task, WRITE, target("file"), bench.authority.judge(task, WRITE, target("file")))
    assert [record["kind"] for record in bench.records()] == ["denied", "denied"]
    assert bench.records()[0]["rule"] == "built-in"


def test_the_intent_is_written_before_the_effect_and_the_outcome_after(bench, monkeypatch):
    seen = []
    real = os.mkdir

    def mkdir(*arguments, **more):
        seen.extend(record["kind"] for record in bench.records())
        return real(*arguments, **more)

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert bench.call("mkdir", b"made", 0o755).succeeded
    assert seen == ["intent"]
    assert [record["kind"] for record in bench.records()] == ["intent", "outcome"]


def test_the_kernels_refusal_is_the_outcome(bench, monkeypatch):
    def refuse(*_arguments, **_more):
        raise OSError(errno.EDQUOT, "scripted")

    monkeypatch.setattr(os, "mkdir", refuse)
    assert bench.call("mkdir", b"made", 0o755).error == errno.EDQUOT
    assert bench.records("outcome")[0]["outcome"] == "EDQUOT"


def test_what_is_free_asks_for_nothing(make_bench, work):
    os.link("secret/key", "second")
    bench = make_bench()
    free = bench.authority.is_free
    assert free(target("file"))
    assert free(target("absent"))
    assert not free(target("secret/key"))
    assert not free(target("asked/new"))
    assert not free(target("shared/new"))
    parent = os.open(".", os.O_PATH)
    try:
        second = Target(os.fsencode(os.path.abspath("second")), parent=parent, name=b"second", found=os.lstat("second"))
        assert not free(second)
    finally:
        os.close(parent)


def test_a_failed_look_at_the_birth_time_counts_as_old(make_bench, work, monkeypatch):
    from pincer_trace.kernel import libc

    bench = make_bench()
    os.link("secret/key", "second")

    def fail(*_arguments):
        raise OSError(errno.EIO, "scripted")

    monkeypatch.setattr(libc, "birth_time", fail)
    assert bench.call("openat", AT, b"second", os.O_WRONLY, 0).error == errno.EACCES
