"""The view as a program: follows the ledger, hears the questions, and turns keys into what they mean."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from time import monotonic, time

from textual import events
from textual.app import App
from textual.widgets import Input

from pincer_trace.errors import UserError
from pincer_trace.twin.grants import ALWAYS, YES
from pincer_trace.ui import answering, words
from pincer_trace.ui.answering import KINDS
from pincer_trace.ui.feed import Watch
from pincer_trace.ui.monitor.asked import QuestionsPane
from pincer_trace.ui.monitor.screens import Always, Dialog, Help
from pincer_trace.ui.state import State
from pincer_trace.ui.words import BOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from pincer_trace.ui.follow import Follower
    from pincer_trace.ui.monitor.pane import Line
    from pincer_trace.ui.words import Look

_POLL = 0.1  # seconds between two looks at the ledger
_FRAME = 0.2  # seconds between two drawings
_LOOK = 1.0  # seconds between two looks at the session
_NOTICE = 8.0  # seconds that a notice stays


class Watching(App[None], inherit_bindings=False):
    """What both views are: a state that grows, questions that can be answered, a guard over the keys that answer."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS = None  # nothing takes the keys by itself
    BINDINGS = [("ctrl+z", "suspend_process")]
    CSS = """
    Screen, ModalScreen { background: ansi_default; color: ansi_default; overflow: hidden; }
    #questions { height: 0; display: none; }
    """

    def __init__(self, follower: Follower, facts: dict[str, Any], look: Look) -> None:
        super().__init__(ansi_color=True)
        self.follower = follower
        self.facts = facts
        self.look = look
        self.state = State()
        self.places = words.Places(facts)
        self.questions = QuestionsPane(look, self.state.asked, self.places, monotonic, id="questions")
        self.life = str(facts["state"])  # running, ended, killed, and gone when the directory is
        self.notice = ("", "")
        self.cannot_answer = ""  # why, where nothing can be answered although the session goes on
        self.failure: BaseException | None = None
        self._notice_until = 0.0
        self._watch: Watch | None = None
        self._stopped = threading.Event()
        self._drawn = (-1, 0)  # revision and second
        self._asking = False  # a dialog is being prepared

    # -- what comes ------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.beside(self._follow())
        self.beside(self._look_after())
        self.set_interval(_FRAME, self.frame)
        if not self.is_headless:
            self.set_interval(_LOOK, end_without_terminal)

    def on_unmount(self) -> None:
        self._stopped.set()
        if self._watch is not None:
            self._watch.close()

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it run while the view lives. What fails in it ends the view."""
        self.run_worker(work, exit_on_error=True)

    async def _follow(self) -> None:
        follower = self.follower
        self.state.take(await asyncio.to_thread(follower.start))
        self.arrived()
        self.beside(self._count_older())
        while True:
            found = await asyncio.to_thread(follower.more)
            if found is None:
                if self.life != "running":
                    self.finished()
                    return
                await asyncio.sleep(_POLL)
                continue
            self.state.take(found)
            await asyncio.sleep(_POLL / 2)

    async def _count_older(self) -> None:
        part = await asyncio.to_thread(self.follower.older, self._stopped.is_set)
        if part is not None:
            self.state.take(part)

    async def _look_after(self) -> None:
        """Whether the session goes on, and what it asks."""
        while True:
            if self.life == "running":
                await self._hear()
                goes_on = await asyncio.to_thread(self.follower.goes_on)
                if not goes_on:
                    facts = await asyncio.to_thread(self.follower.facts)
                    self.facts = facts or self.facts
                    self.life = "killed" if facts is None else str(facts["state"]).replace("running", "killed")
                    self.state.apply_questions([], monotonic())
            if self.life != "gone" and await asyncio.to_thread(self.follower.is_gone):
                self.life = "gone"
            await asyncio.sleep(_LOOK)

    async def _hear(self) -> None:
        """Listen to the questions, as soon as the session says where."""
        if self._watch is not None:
            return
        if "feed" not in self.facts:
            facts = await asyncio.to_thread(self.follower.facts)
            if facts is None or "feed" not in facts:
                return
            self.facts = facts
        try:
            watch = await asyncio.to_thread(self._listen)
        except UserError as error:
            if await asyncio.to_thread(self.follower.goes_on):
                self.cannot_answer = str(error)  # and is tried again
            return
        self.cannot_answer = ""
        self.beside(self._questions(watch))

    def _listen(self) -> Watch:
        """Connect, in a thread: what is closed meanwhile is closed here, whether anybody waits for it or not."""
        self._watch = watch = Watch(self.facts)
        if self._stopped.is_set():
            watch.close()
        return watch

    async def _questions(self, watch: Watch) -> None:
        try:
            while (told := await asyncio.to_thread(watch.next)) is not None:
                fresh = not len(self.state.asked)
                self.state.apply_questions(told, monotonic())
                self.questions.settle()
                if fresh and len(self.state.asked):
                    self.bell()
                self.frame()
        except UserError:
            self.state.apply_questions([], monotonic())
            self.questions.settle()
            self._watch = None  # it has ended, or is tried again
            self.frame()
        finally:
            watch.close()

    # -- what is seen ----------------------------------------------------------------------------------------

    def arrived(self) -> None:
        """The first records are there."""
        self.frame()

    def finished(self) -> None:
        """The session has ended, and everything of it was read."""

    def frame(self) -> None:
        """Draw what differs."""
        now = self.state.revision, int(time())
        if self._notice_until and monotonic() > self._notice_until:
            self.tell("")
        if now != self._drawn or self.questions.must_redraw:
            self._drawn = now
            self.arrange()
            self.draw()

    def draw(self) -> None:
        """All panes."""
        self.questions.redraw()
        self.call_after_refresh(self.questions.drawn)

    def arrange(self) -> None:
        """Give the questions the lines that they need."""
        wanted = self.questions.wanted_height(self.size.width, self.most_for_questions())
        pane = self.questions
        if pane.styles.height is None or pane.styles.height.value != wanted:
            pane.styles.height = wanted
            pane.display = wanted > 0
            if not wanted and self.focused is pane:
                self.back_from_questions()

    def most_for_questions(self) -> int:
        """Lines of the screen that questions may take."""
        return max(6, self.size.height // 2)

    def back_from_questions(self) -> None:
        """Where the keys go when nothing is asked any more."""
        self.set_focus(None)

    def tell(self, said: str, about: str = "") -> None:
        """One line, for a while; foreign text in it has been made harmless. `about` may lose its middle."""
        self.notice = words.steady(said), words.steady(about)
        self._notice_until = monotonic() + _NOTICE if said else 0.0
        self._drawn = (-1, 0)

    def told(self, width: int) -> Line:
        """The notice, in so many columns; empty where there is none."""
        said, about = map(self.look.encoded, self.notice)
        if not said:
            return []
        said = f" {words.cut(said, width - 2, self.look.ellipsis)} "
        return [(said, BOLD), (words.middle(about, width - words.length([(said, BOLD)]) - 1, self.look.ellipsis), BOLD)]

    def on_resize(self) -> None:
        """Another size; or the terminal is ours again after Ctrl-Z, and empty."""
        self.questions.guard.typed(monotonic())
        self.paint()

    def paint(self) -> None:
        """Draw everything, whatever is there."""
        self._drawn = (-1, 0)
        self.refresh(layout=True)
        self.call_after_refresh(self.frame)

    def on_questions_pane_opened(self) -> None:
        if self.questions.opened is not None and self.focused is not self.questions:
            self.set_focus(self.questions)
        self._drawn = (-1, 0)
        self.frame()

    def on_questions_pane_clicked(self, message: QuestionsPane.Clicked) -> None:
        self.answer(message.key, message.at)

    # -- keys ------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Every key is seen here first: what was typed, and when, decides whether a key may answer."""
        if isinstance(event, events.Paste | events.AppFocus):
            self.questions.guard.typed(event.time)
        if isinstance(event, events.Key) and not event.is_forwarded:
            if isinstance(self.screen, Dialog):
                self.screen.pressed(event.key, event.time)
                meant = True
            else:
                meant = not isinstance(self.focused, Input) and self.pressed(event.key, event.time)
            self.questions.guard.typed(event.time)
            if meant:
                return
        await super().on_event(event)

    def pressed(self, key: str, at: float) -> bool:
        """What a key means; whether it meant something."""
        if key in ("q", "ctrl+c", "ctrl+q"):
            self.exit()
        elif key == "ctrl+l":
            self.paint()
        elif key in ("question_mark", "f1"):
            self.push_screen(Help(self.look))
        elif len(key) == 1 and key.isdigit() and key.isascii():
            self.questions.by_digit(key)
        elif self.focused is self.questions:
            return self._pressed_on_questions(key, at)
        else:
            return False
        return True

    def _pressed_on_questions(self, key: str, at: float) -> bool:
        if key in ("up", "k"):
            self.questions.step(-1)
        elif key in ("down", "j"):
            self.questions.step(1)
        elif key == "escape":
            self.questions.open(None)
            self.back_from_questions()
        elif key in KINDS:
            self.answer(key, at)
        else:
            return False
        return True

    def answer(self, key: str, at: float) -> None:
        """Answer the open question, if such a key may now."""
        question = self.questions.open_question
        if question is None or self._asking:
            return
        if not self.questions.guard.listens(at):
            self.tell("nothing was answered: look at it for a moment first, and then press the key once")
            return
        kind = KINDS[key]
        if kind in YES and not self.questions.whole:
            self.tell("nothing was allowed: not all of it can be read here")
            return
        if kind == ALWAYS:
            self._asking = True
            self.beside(self._ask_again(question.id, dict(question.told)))
        else:
            self.beside(self._give(question.id, kind))

    async def _give(self, number: int, kind: str) -> None:
        self.tell("sent; the supervisor has not taken it yet")
        self.heard(await asyncio.to_thread(answering.answer, self.facts, number, kind))

    async def _ask_again(self, number: int, told: dict[str, Any]) -> None:
        """Show the line that would be added, and do it only after a second yes."""
        try:
            addition, why_not = await asyncio.to_thread(answering.addition, self.facts, told)
            subject = f"{words.text(told.get('effect'), 20)} {words.name(told.get('to') or told.get('path'))}"
            file = words.name(addition.file) if addition is not None else ""
            text = addition.text if addition is not None else ""
            dialog = Always(self.look, monotonic, subject=subject, file=file, text=text, why_not=why_not)
            kind = await self.push_screen_wait(dialog)
        finally:
            self._asking = False
        if kind == "always" and addition is not None:
            self.heard(await asyncio.to_thread(answering.answer_always, self.facts, number, addition))
        elif kind == "session":
            await self._give(number, kind)

    def heard(self, said: answering.Said) -> None:
        """What came of an answer."""
        self.tell(said.words, said.about)
        self.frame()

    # -- failures --------------------------------------------------------------------------------------------

    def _fatal_error(self) -> None:
        """One line is said of it by whoever started this: a traceback with its values would show foreign bytes."""
        self.failure = self._exception
        self._close_messages_no_wait()


def end_without_terminal() -> None:
    """A terminal that has hung up reads as empty for ever; its signal goes to a shell, which may not pass it on."""
    poll = select.poll()
    poll.register(0, 0)
    if poll.poll(0):
        os.kill(os.getpid(), signal.SIGHUP)  # its default action, which `start` has restored
