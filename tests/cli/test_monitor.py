"""`monitor`: the real view on real sessions and a real channel, its keys pressed by textual's pilot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from random import Random

import pytest
from textual import events

from pincer_trace.channel import Channel
from pincer_trace.ledger.read import load_session
from pincer_trace.profile import Facts, load
from pincer_trace.ui.follow import Follower
from pincer_trace.ui.monitor.compact import Compact
from pincer_trace.ui.monitor.full import Monitor
from pincer_trace.ui.words import Look

from .conftest import NASTY

ALLOW = {"verdict": "allow", "rule": "default.toml:89", "reason": "the work tree"}
DENY = {"verdict": "deny", "rule": "default.toml:20", "reason": "a secret"}
SUBJECT = {"pid": 100, "exe": b"/usr/bin/git", "dev": 64768, "ino": 12}


class Seen:
    """A view that runs, and what is on its screen."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot

    def text(self):
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    async def until(self, holds, patience=20):
        end = time.monotonic() + patience
        while not holds():
            assert time.monotonic() < end, self.text()
            assert self.app.failure is None, self.app.failure
            await self.pilot.pause(0.02)

    async def see(self, *texts):
        await self.until(lambda: all(each in self.text() for each in texts))
        return self.text()

    async def miss(self, text):
        await self.until(lambda: text not in self.text())

    async def press(self, *keys):
        await self.pilot.press(*keys)

    async def answer(self, digit, key):
        """As a person does: open it, wait until the keys are lit, press."""
        await self.press(digit)
        await self.until(lambda: self.app.questions.open_question and self.app.questions._listening)
        await self.press(key)


@contextlib.asynccontextmanager
async def view(path, kind=Monitor, size=(100, 30), environ=None):
    follower = Follower(path)
    app = kind(follower, load_session(path), Look(environ or {}, "utf-8"))
    try:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield Seen(app, pilot)
    finally:
        follower.close()
    assert app.failure is None


def watched(scenario):
    """An async test, run by asyncio.run."""

    def test(**fixtures):
        asyncio.run(scenario(**fixtures))

    test.__doc__ = scenario.__doc__
    test.__signature__ = __import__("inspect").signature(scenario)
    test.__name__ = scenario.__name__
    return test


# -- what is seen ----------------------------------------------------------------------------------------------------


@watched
async def test_a_session_that_ended(session):
    async with view(session.path) as seen:
        text = await seen.see("ended, status 3", "verified")
        assert "unlink" in text and "rename" in text and "./a -> ./b" in text and "EXDEV" in text
        assert "3 effects" in text and "12 reads" in text and "2 denied" in text
        assert "ask [red]\\x1b (default.toml:20)" in text, "the reason stands under its denial"


@watched
async def test_records_come_while_it_runs(house):
    ledger = house.session.ledger
    async with view(house.session.path) as seen:
        await seen.see("running", "nothing yet")
        ledger.outcome(ledger.intent("create", b"/tree/new", **SUBJECT, **ALLOW), 0)
        ledger.denied("read", b"/h/.ssh/id_rsa", **SUBJECT, **DENY)
        text = await seen.see("/h/.ssh/id_rsa", "a secret (default.toml:20)", "DENIED")
        assert "./new" in text and "1 effects" in text and "1 denied" in text


@watched
async def test_p53_names_garble_nothing(house):
    """ESC, marks, markup, quotes, bytes that are no text, 4,000 of them: in rows, details, tree and questions."""
    ledger = house.session.ledger
    path = NASTY + b"/" + b"d\x1b" * 2000 + b"/[/bold]end"
    subject = {**SUBJECT, "exe": NASTY}
    ledger.denied("read", path, **subject, verdict="deny", rule="[red]\x1b:1", reason="\u202ex\x1b[2J[/bold]")
    ledger.outcome(ledger.intent("rename", NASTY, extra={"to": NASTY}, **subject, **ALLOW), 0)
    ledger.reads([(NASTY, path, 1, 2, 9, 1.5, "r:1")])
    house.ask(
        path, "rename", to=NASTY, exe=NASTY, reason="x\x1b[2J\u202e\nanswer: yes", covers=NASTY, manner="\x1b[H[x]"
    )
    for size in ((40, 10), (80, 24), (200, 60)):
        async with view(house.session.path, size=size) as seen:
            await seen.see("1 question")
            await seen.press("1")
            await seen.until(lambda: seen.app.questions.open_question is not None)
            await seen.press("escape", "slash", *"by:git", "enter", "escape", "n", "enter", "p", "p")
            await seen.pilot.pause(0.5)
            strips = seen.app.screen._compositor.render_strips()
            assert all(strip.cell_length == size[0] for strip in strips)
            assert seen.text().replace("\n", "").isprintable() and "\u202e" not in seen.text()


TEXTS = ["", "x" * 400, "\udcff\x1b[2J\u202e[/bold]", "漢" * 90, "/", "//", "/a/b", "deny", "once", "done"]
NUMBERS = [0, 1, -1, 7, 10**400, -(10**400), 2**63]
OTHERS = [None, True, 0.5, [], {}, [[1]], {"a": []}, *TEXTS, *NUMBERS]
LISTS = [[], OTHERS, [{"by": "left", "verdict": "deny"}, {"by": "right"}], [["own", "/", True], ["about", "x", "y"], 3]]
FORMED = {
    **dict.fromkeys(("exe", "effect", "path", "verdict", "rule", "reason", "code", "outcome", "post"), TEXTS),
    **dict.fromkeys(("of", "parent", "native", "to", "answer", "by", "exit", "signature", "question"), OTHERS),
    **dict.fromkeys(("votes", "facts"), LISTS),
    **dict.fromkeys(("pid", "count", "dev", "ino"), NUMBERS),
    "extra": [{}, {"to": 3}, {"to": "/x"}, {"confirmed": OTHERS}, {"confirmed": "auto"}],
}
KINDS = ["intent", "outcome", "denied", "failure", "reads", "answer", "process", "head", "end", "?"]


@watched
async def test_p53_a_log_from_elsewhere_breaks_no_view(house):
    """Records that are formed as a reader demands, with anything that they may have in every place."""
    random = Random(4)
    with open(os.path.join(house.session.path, "ledger.jsonl"), "ab") as file:
        for number in range(2000):
            seq = number if number % 9 else random.choice(NUMBERS)
            record = {"seq": seq, "time": random.uniform(-9e10, 9e10), "kind": random.choice(KINDS)}
            record |= {name: random.choice(FORMED[name]) for name in random.sample(sorted(FORMED), 14)}
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    for size in ((40, 10), (100, 30), (200, 50)):
        async with view(house.session.path, size=size) as seen:
            await seen.see("running")
            for key in (
                "p",
                "down",
                "down",
                "enter",
                "p",
                "escape",
                "enter",
                *["N"] * 6,
                "home",
                *["down"] * 9,
                "pagedown",
                "end",
            ):
                await seen.press(key)
                assert all(strip.cell_length == size[0] for strip in seen.app.screen._compositor.render_strips())
            assert seen.text().replace("\n", "").isprintable()
            await seen.until(lambda: seen.app.state.counts.native + seen.app.state.counts.denied > 150)
            assert seen.app.state.counts.torn == 0


@watched
async def test_details_are_those_of_why(session, program):
    number = next(each["seq"] for each in _log(program, session) if each["verdict"] == "confirm")
    async with view(session.path, size=(120, 50)) as seen:
        await seen.see("verified")
        await seen.press("N", "N", "enter")
        text = await seen.see(f"record {number}", "ask [red]")
        assert "process" not in text.splitlines()[0]
        await seen.see("POLICY_DENY")
        await seen.press("escape")
        await seen.miss(f"record {number}")


def _log(program, session):
    return [json.loads(line) for line in program("log", session.path, "--json").stdout.splitlines()]


@watched
async def test_filters(house):
    ledger = house.session.ledger
    for number in range(4):
        ledger.outcome(ledger.intent("create", b"/tree/%d/x" % number, **SUBJECT, **ALLOW), 0)
    ledger.denied("read", b"/h/.ssh/id_rsa", **SUBJECT, **DENY)
    async with view(house.session.path) as seen:
        await seen.see("id_rsa", "./3/x")
        await seen.press("exclamation_mark")
        await seen.miss("./3/x")
        assert "id_rsa" in await seen.see("decisions: denied")
        await seen.press("exclamation_mark")
        await seen.see("./3/x")
        await seen.press("slash", *"create", "space", *"*/2/x", "enter")
        await seen.miss("id_rsa")
        text = await seen.see("./2/x", "decisions: create */2/x")
        assert "./3/x" not in text
        await seen.press("slash", *"space", "enter")
        await seen.press("slash", "ctrl+u", *"by:", "enter")
        await seen.see("by: wants a program")


@watched
async def test_the_view_is_held_where_the_cursor_is(house):
    """Nothing moves under a person who reads, whatever comes."""
    ledger = house.session.ledger
    for number in range(60):
        ledger.outcome(
            ledger.intent("create", b"/tree/%d/x" % number, **{**SUBJECT, "exe": b"/bin/%d" % (number // 6)}, **ALLOW),
            0,
        )
    async with view(house.session.path, size=(100, 14)) as seen:
        await seen.until(lambda: len(seen.app.rows._rows) > 15)
        await seen.press(*["up"] * 5)
        await seen.see("held")
        before = seen.text().splitlines()[2:-1]
        for number in range(100, 130):
            ledger.denied("read", b"/h/%d/x" % number, **SUBJECT, **DENY)
        await seen.until(lambda: seen.app.state.counts.denied == 30)
        await seen.see("30 denied")
        assert seen.text().splitlines()[2:-1] == before
        await seen.press("end")
        await seen.see("a secret")


@watched
async def test_the_processes(house):
    ledger = house.session.ledger
    ledger.denied("read", b"/h/x", **SUBJECT, **DENY)
    ledger.outcome(ledger.intent("create", b"/tree/x", pid=200, exe=b"/bin/sh", dev=0, ino=0, **ALLOW), 0)
    async with view(house.session.path) as seen:
        await seen.see("/h/x")
        await seen.press("p")
        text = await seen.see("EFFECTS", "git 100", "sh 200")
        assert "OUTCOME" not in text
        await seen.press("enter")
        await seen.see("decisions: by:100")
        await seen.miss("./x")


@watched
async def test_help(house):
    async with view(house.session.path) as seen:
        await seen.press("question_mark")
        await seen.see("allow it until the session ends")
        for key in "ap":  # the second comes before it is gone, and is not lost
            seen.app.post_message(events.Key(key, key))
        await seen.miss("allow it until the session ends")
        await seen.see("EFFECTS")


@watched
async def test_a_supervisor_that_is_killed(house):
    """The lock goes, without an end in session.json; the view stays."""
    async with view(house.session.path) as seen:
        house.ask()
        await seen.see("1 question")
        house.channel.close()
        house.session.ledger.leave()
        await seen.see("killed: the supervisor is gone")
        await seen.miss("1 question")
        await seen.press("p")
        await seen.see("EFFECTS")
    house.channel = Channel({}, lambda pid: True, news=dict)
    house.end()


@watched
async def test_a_directory_that_is_removed(house):
    async with view(house.session.path) as seen:
        await seen.see("running")
        shutil.rmtree(house.session.path)
        await seen.see("its directory was removed")
        await seen.press("question_mark")
        await seen.see("keys")


@watched
async def test_a_failure_in_a_view_is_no_traceback(house, monkeypatch):
    """Its values would be foreign bytes on the terminal."""
    follower = Follower(house.session.path)
    app = Monitor(follower, load_session(house.session.path), Look({}, "utf-8"))
    monkeypatch.setattr(app.rows, "draw", lambda width, height: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        async with app.run_test() as pilot:
            await pilot.pause(1)
    follower.close()
    assert isinstance(app.failure, ZeroDivisionError) and app._exit_renderables == []


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind", "said"),
    [
        ("a", "once", "allowed once; 1 held call goes on: write /w/x"),
        ("s", "session", "allowed for the session; 1 held call goes on: write /w/x"),
        ("d", "deny", "denied; 1 held call refused: write /w/x"),
        ("x", "deny-session", "denied for the session; 1 held call refused: write /w/x"),
    ],
)
@pytest.mark.parametrize("kind_of_view", [Monitor, Compact])
def test_every_answer(house, key, kind, said, kind_of_view):
    async def scenario():
        house.ask()
        async with view(house.session.path, kind_of_view, size=(100, 12)) as seen:
            await seen.see("1 question")
            await seen.answer("1", key)
            await seen.see(said)
            await seen.miss("1 question")

    asyncio.run(scenario())
    assert house.answered() == [(1, kind)]


@watched
async def test_what_a_person_must_know(house):
    house.ask(b"/w/s.json.tmp.12.abcdef", "rename", to=b"/w/s.json", covers=b"s.json.tmp.*.*", manner="no exchange")
    async with view(house.session.path, size=(80, 24)) as seen:
        await seen.see("1 question", "rename", "/w/s.json.tmp.12.abcdef -> /w/s.json", "by node")
        await seen.press("1")
        text = await seen.see("s left, then it is denied", "a allow once")
        for part in (
            "rename /w/s.json.tmp.12.abcdef", "-> /w/s.json", "no exchange", "by /usr/bin/node (process 77)",
            "it runs later (default.toml:9)", "a yes covers s.json.tmp.*.* in that directory", "w always...",
        ):  # fmt: skip
            assert part in text, part


@pytest.mark.parametrize("kind", [Monitor, Compact])
@watched
async def test_p54_no_yes_to_what_cannot_be_read_whole(house, kind):
    """The middle of a name is where what matters may stand; with more room it can be read, and allowed."""
    house.ask(b"/w/" + b"a" * 200 + b"/.bashrc/" + b"b" * 200 + b"/x")
    async with view(house.session.path, kind, size=(60, 10)) as seen:
        await seen.see("1 question" if kind is Monitor else "? 1")
        await seen.press("1")
        await seen.see("so no yes", "d deny")
        for key in "asw":
            await seen.until(lambda: seen.app.questions._listening)
            await seen.press(key)
            await seen.see("not all of it can be read here")
        assert house.answered() == [] and "a allow" not in seen.text()
        await seen.pilot.resize_terminal(120, 30)
        await seen.see(".bashrc", "a allow once")
        await seen.until(lambda: seen.app.questions._listening)
        await seen.press("a")
        await seen.see("allowed once")
    assert house.answered() == [(1, "once")]


@watched
async def test_p54_nothing_is_answered_by_typing_on(house):
    """Enter, space, y, words: before a question is opened, while it is, and what is held down."""
    async with view(house.session.path) as seen:
        house.ask()
        house.ask(b"/w/y")
        await seen.see("2 questions")
        await seen.press("enter", "space", "y", *"as always", "enter", "a", "s", "w", "tab", "enter", "y")
        await seen.press("1", *"aaaaaaaaaaaaaaaa", "s", "s", "w", "enter", "space", "y")
        await seen.see("nothing was answered")
        await seen.press("2", "a", "1", "s", "2", "w")
        await seen.until(lambda: seen.app.questions._listening)
        await seen.press("enter", "space", "y", "Y", "A", "S")
        assert house.answered() == []


@watched
async def test_p54_a_new_question_takes_no_answer_of_another(house):
    """The open one stays open and where it is; when it is over, nothing is open."""
    async with view(house.session.path) as seen:
        first = house.ask()
        await seen.see("1 question")
        await seen.press("1")
        await seen.until(lambda: seen.app.questions._listening)
        line = next(at for at, each in enumerate(seen.text().splitlines()) if "write /w/x" in each)
        for number in range(3):
            house.ask(b"/w/%d" % number)
        await seen.see("4 questions", "a allow once")
        assert seen.app.questions._listening, "whoever floods with questions keeps nobody from answering"
        assert seen.app.questions.opened == first.id and "write /w/x" in seen.text().splitlines()[line]
        house.questions.answer(first.id, "deny", _somebody(), time.clock_gettime(time.CLOCK_BOOTTIME))
        await seen.see("3 questions")
        assert seen.app.questions.opened is None
        await seen.press("a")
        await seen.pilot.pause(1)
        await seen.press("a")
        assert house.answered() == [(1, "deny")]


def _somebody():
    from pincer_trace.twin.grants import Person

    return Person(os.getuid(), 1, b"/bin/test")


@watched
async def test_p54_what_changes_must_be_looked_at_again(house):
    async with view(house.session.path) as seen:
        house.ask()
        await seen.see("1 question")
        await seen.press("1")
        await seen.until(lambda: seen.app.questions._listening)
        house.ask(exe=b"/w/evil")
        await seen.until(lambda: not seen.app.questions._listening)
        await seen.press("a")
        await seen.see("evil", "nothing was answered")
        await seen.until(lambda: seen.app.questions._listening)
        assert house.answered() == []


@watched
async def test_a_question_that_is_over(house):
    async with view(house.session.path) as seen:
        house.ask()
        await seen.see("1 question")
        await seen.press("1")
        await seen.until(lambda: seen.app.questions._listening)
        house.full = True
        await seen.press("a")
        await seen.see("the log cannot be written (ENOSPC)")
        assert house.answered() == []


@watched
async def test_a_late_question_says_so(house):
    async with view(house.session.path) as seen:
        house.ask()
        house.questions.expire(time.clock_gettime(time.CLOCK_BOOTTIME) + 31)
        await seen.see("1 question", "10 min")
        await seen.answer("1", "a")
        await seen.see("no call is held any more: the next try passes")
    assert house.ask().kind == "once"


@pytest.mark.parametrize("second", ["w", "s", "escape", "enter", "y"])
def test_always_shows_the_line_and_asks_again(house, program, second):
    path = os.fsencode(program.state) + b"/.bashrc"
    file = os.path.join(program.state, ".config/pincer-trace/profiles/default.toml")
    house.ask(path, rule=load("default", house.places).judge("write", path, Facts()).rule.source)

    async def scenario():
        async with view(house.session.path) as seen:
            await seen.see("1 question")
            await seen.answer("1", "w")
            text = await seen.see("[[rule]]", 'effects = ["write"]', "for later runs:")
            assert "default.toml" in text and house.answered() == []
            await seen.press("w", "w", "w")  # a key that is held down
            await seen.until(lambda: seen.app.screen._listening)
            await seen.press(second)
            await seen.miss("for later runs:")
            if second in ("w", "s"):
                await seen.see("1 held call goes on")

    asyncio.run(scenario())
    assert house.answered() == {"w": [(1, "always")], "s": [(1, "session")]}.get(second, [])
    assert os.path.exists(file) == (second == "w")
    assert second != "w" or load("default", house.places).judge("write", path, Facts()).verdict == "allow"


@watched
async def test_always_where_no_line_can_be(house):
    house.ask()
    async with view(house.session.path) as seen:
        await seen.see("1 question")
        await seen.answer("1", "w")
        await seen.see("it was not a rule for this path that wanted a confirmation")
        await seen.until(lambda: seen.app.screen._listening)
        await seen.press("w")
        await seen.pilot.pause()
        assert house.answered() == []
        await seen.press("s")
        await seen.pilot.pause(0.6)
        await seen.press("s")
        await seen.see("allowed for the session")
    assert house.answered() == [(1, "session")]


@watched
async def test_p54_thirty_questions(house):
    """Those that do not fit are counted; each can be opened."""
    for number in range(31):
        house.ask(b"/w/%d" % number)
    async with view(house.session.path) as seen:
        await seen.see("31 questions", "more")
        await seen.press("9", "9", "9")
        await seen.until(lambda: seen.app.questions.opened == 29)
        await seen.see("write /w/28")


@watched
async def test_the_mouse(house):
    house.ask()
    house.ask(b"/w/y")
    async with view(house.session.path) as seen:
        await seen.see("2 questions")
        lines = seen.text().splitlines()
        await seen.pilot.click(offset=(20, next(at for at, each in enumerate(lines) if "/w/y" in each)))
        await seen.until(lambda: seen.app.questions.opened == 2)
        text = await seen.see("- allow once")
        at = next(at for at, each in enumerate(text.splitlines()) if "- allow once" in each)
        await seen.pilot.click(offset=(6, at))
        await seen.see("nothing was answered")
        await seen.until(lambda: seen.app.questions._listening)
        await seen.see("a allow once")
        await seen.pilot.click(offset=(6, at))
        await seen.see("allowed once; 1 held call goes on: write /w/y")
    assert house.answered() == [(2, "once")]


@watched
async def test_compact_ends_with_the_session(house):
    house.session.ledger.denied("read", b"/h/x", **SUBJECT, **DENY)
    async with view(house.session.path, Compact, size=(40, 8)) as seen:
        await seen.see("/h/x", "a secret", "1 denied")
        house.end()
        await seen.until(lambda: not seen.app.is_running)
