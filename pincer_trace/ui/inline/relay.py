"""`--ui inline`: the command on a terminal of its own, and we between that and the person's, with our lines below.

Three processes. The *relay*, which the shell started, has the person's terminal: it passes on what is typed, writes
what the filter lets pass of what the program says, and draws. A *leader* has the new terminal as its session's, and in
it the ordinary front is its job, with the worker in its group: so Ctrl-C and Ctrl-Z work as in any shell.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import tty
from time import monotonic

from pincer_trace.errors import FAILURE, UserError
from pincer_trace.kernel import signals
from pincer_trace.ui.inline.filter import Filter
from pincer_trace.ui.inline.region import Region

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.options import RunOptions
    from pincer_trace.ui.inline.footer import Footer

_HEIGHT = 4  # lines of ours
_CHUNK = 1 << 14
_TYPED = 1 << 16  # bytes that were typed and the program has not read
_REDRAW = 0.1  # seconds between two drawings, while much happens
_IDLE = 0.5
_CALLS = b"\x1d"  # Ctrl-], as in telnet(1): our keys
_SUSPENDED, _ENDED = b"s", b"e"  # what the leader says of its job
_PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)  # to the job
_WATCHED = (signal.SIGWINCH, signal.SIGCONT, *_PASSED)
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def run(options: RunOptions, front: Callable[..., int]) -> int:
    """Supervise one command that way; its exit status. `front` is the run itself. Raises UserError."""
    if not (os.isatty(0) and os.isatty(1)):
        raise UserError("--ui inline: standard input and output are no terminal; nothing was started")
    rows, columns = _size()
    region = Region(rows, columns, _HEIGHT)
    master, slave = os.openpty()
    _resize(master, region.above, columns)
    termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(0))
    said, says = os.pipe()
    began, begins = os.pipe()
    leader = os.fork()
    if leader == 0:
        for descriptor in (master, said, began):
            os.close(descriptor)
        _lead(options, front, slave, says, begins)
    for descriptor in (slave, says, begins):
        os.close(descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    from pincer_trace.ui.inline.footer import Footer  # while the command starts: it takes a while

    return _Relay(leader, master, said, began, region, Footer()).run()


# -- the session of the new terminal ---------------------------------------------------------------------------------


def _lead(options: RunOptions, front: Callable[..., int], slave: int, says: int, begins: int) -> None:
    """Be the leader: start the front as a job, tell what becomes of it, end as it does. Never returns."""
    status = FAILURE
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for stream in (0, 1, 2):
            if stream < 2 or os.isatty(2):  # `2> errors` stays that
                os.dup2(slave, stream)
        if slave > 2:
            os.close(slave)
        # The program can make us the foreground group: as a shell, we are neither stopped by keys nor ended by them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED, signal.SIGCONT))
        stops = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}
        job = os.fork()
        if job == 0:
            os.close(says)
            _to_the_front(os.getpid())
            for number, action in stops.items():
                signal.signal(number, action)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _be_front(options, front, begins)
        os.close(begins)
        _to_the_front(job)
        for number in (*_PASSED, signal.SIGCONT):
            signal.signal(number, lambda number, _frame: _tell(job, number))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while True:
            _, how = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(how):
                break
            os.write(says, _SUSPENDED)
        status = os.waitstatus_to_exitcode(how)
        os.write(says, b"%b%d" % (_ENDED, status))
    except OSError:
        pass  # the relay is gone, and with it the terminal
    finally:
        os._exit(status & 0xFF)


def _to_the_front(job: int) -> None:
    """Both sides do it, as in a shell: whoever comes first."""
    with contextlib.suppress(OSError):
        os.setpgid(job, job)
    with contextlib.suppress(OSError, termios.error):
        os.tcsetpgrp(0, job)


def _tell(job: int, number: int) -> None:
    """What the relay tells us is for the job, whichever group the program has put in the foreground."""
    if number == signal.SIGCONT:
        _to_the_front(job)
        with contextlib.suppress(OSError):  # it has ended
            os.killpg(job, number)
        return
    try:
        os.tcgetpgrp(0)
    except OSError:  # the terminal is gone: when we end, the kernel tells all that are in its foreground
        os._exit(FAILURE)
    with contextlib.suppress(OSError):  # it has ended
        os.kill(job, number)


def _be_front(options: RunOptions, front: Callable[..., int], begins: int) -> None:
    """The run, in a process of its own. Never returns."""
    status = FAILURE
    try:
        options.ui = "none"

        def began(path: str) -> None:
            os.write(begins, os.fsencode(path))
            os.close(begins)

        status = front(options, began)
    except UserError as error:
        from pincer_trace.__main__ import complain

        complain(str(error))
        status = error.exit_status
    finally:
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
        os._exit(status)


# -- between the terminals -------------------------------------------------------------------------------------------


class _Relay:
    def __init__(self, leader: int, master: int, said: int, began: int, region: Region, footer: Footer) -> None:
        self._leader = leader
        self._master = master
        self._said = said
        self._began = began
        self._region = region
        self._footer = footer
        self._filter = Filter()
        # Elsewhere the bytes of a character that is none there could be a control character: only ASCII is shown.
        self._encoding = "ascii" if footer.plain else "utf-8"
        self._typed = b""
        self._kept: list[int | list[bytes | int]] = termios.tcgetattr(0)
        self._drawn_at = 0.0
        self._status: int | None = None
        self._path = b""
        self._hung_up = False  # the person's terminal is gone
        self._signals = signals.signal_descriptor(_WATCHED)
        os.set_blocking(master, False)

    def run(self) -> int:
        """Until the job has ended and all that it wrote is shown; its exit status."""
        self._take()
        try:
            while self._status is None or self._drain():
                self._turn()
        finally:
            self._give_back()
            if self._status is None and not self._hung_up:  # we failed: the program must not wait for us
                self._hang_up()
            os.waitpid(self._leader, 0)
            self._footer.close()
        if self._status is not None and self._status < 0:  # ended by a signal: so do we, for the shell's sake
            number = -self._status
            if number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
                os.kill(os.getpid(), number)
            return 128 + number
        return self._status if self._status is not None else FAILURE

    def _turn(self) -> None:
        poll = select.poll()
        if not self._hung_up:
            poll.register(0, select.POLLIN)
            poll.register(self._master, select.POLLIN | (select.POLLOUT if self._typed else 0))
        for descriptor in (self._said, self._signals, self._began):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        if self._footer.fileno() >= 0:
            poll.register(self._footer.fileno(), select.POLLIN)
        busy = False
        for descriptor, events in poll.poll(self._footer.patience(_REDRAW, _IDLE) * 1000):
            if descriptor == self._signals:
                for number, _ in signals.read_signals(descriptor):
                    self._signal(number)
            elif descriptor == 0:
                self._type()
            elif descriptor == self._master:
                if events & select.POLLOUT:
                    self._pass_on()
                if events & select.POLLIN:
                    busy = self._show() or busy
            elif descriptor == self._said:
                self._hear()
            elif descriptor == self._began:
                self._begin()
            elif descriptor == self._footer.fileno():
                self._footer.hear()
        if not self._hung_up:
            self._draw(force=not busy)

    # -- from the program ----------------------------------------------------------------------------------------

    def _show(self) -> bool:
        """Write what the program wrote; whether there was anything."""
        try:
            data = os.read(self._master, _CHUNK)
        except OSError as error:
            if error.errno == errno.EIO:  # nobody has the other end
                return False
            if isinstance(error, BlockingIOError):
                return False
            raise
        text = self._filter.feed(data)
        if self._filter.erased:
            self._filter.erased = False
            self._region.forget()
            text += self._region.draw(self._footer.lines(self._region.columns - 1))
        self._write(text)
        return bool(data)

    def _drain(self) -> bool:
        """After the end: whether something is left to be shown."""
        return not self._hung_up and self._show()

    def _hear(self) -> None:
        word = os.read(self._said, 64)
        if _ENDED in word or not word:
            number = word.partition(_ENDED)[2]
            self._status = int(number) if number else FAILURE
            os.close(self._said)
            self._said = -1
        elif _SUSPENDED in word:
            self._suspend()

    def _begin(self) -> None:
        """The session's directory, once there is one."""
        data = os.read(self._began, 8192)
        self._path += data
        if not data:
            os.close(self._began)
            self._began = -1
            if self._path:
                self._footer.follow(os.fsdecode(self._path))

    # -- from the person -----------------------------------------------------------------------------------------

    def _type(self) -> None:
        try:
            data = os.read(0, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        while data:
            if self._footer.answering:
                self._footer.key(data.decode("utf-8", "replace"))
                return
            before, called, data = data.partition(_CALLS)
            self._typed = (self._typed + before)[:_TYPED]
            if called and not (self._region.height and self._footer.call()):
                self._typed += called  # nothing waits for an answer: it is the program's
        self._pass_on()

    def _hang_up(self) -> None:
        """The terminal is gone, so the other one goes too: whoever lives in it hears SIGHUP from the kernel."""
        self._hung_up = True
        os.close(self._master)
        self._master = -1

    def _pass_on(self) -> None:
        try:
            while self._typed:
                self._typed = self._typed[os.write(self._master, self._typed) :]
        except BlockingIOError:
            pass  # the program reads no more just now: `_turn` waits until it does
        except OSError:
            self._typed = b""  # nobody reads any more

    # -- the person's terminal -----------------------------------------------------------------------------------

    def _take(self) -> None:
        tty.setraw(0)
        self._region.forget()
        self._write(self._region.begin())
        self._draw(force=True)

    def _give_back(self) -> None:
        if self._hung_up:
            return
        self._write(self._footer.bye() + self._region.end() + "\x1b[?25h")
        termios.tcsetattr(0, termios.TCSADRAIN, self._kept)

    def _draw(self, *, force: bool) -> None:
        now = monotonic()
        if not force and now < self._drawn_at + _REDRAW:
            return
        self._drawn_at = now
        self._footer.look(drawing=self._filter.drawing)
        self._write(self._footer.news() + self._region.draw(self._footer.lines(self._region.columns - 1)))

    def _signal(self, number: int) -> None:
        if number == signal.SIGWINCH and not self._hung_up:
            rows, columns = _size()
            self._write(self._region.end())
            self._region = Region(rows, columns, _HEIGHT)
            self._write(self._region.begin())
            self._footer.moved(visible=bool(self._region.height))
            _resize(self._master, self._region.above, columns)
        elif number != signal.SIGCONT and not self._hung_up:
            os.kill(self._leader, number)

    def _suspend(self) -> None:
        """The job was stopped: so are we, until the shell lets us go on."""
        self._give_back()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
        if self._hung_up:
            return
        rows, columns = _size()
        self._region = Region(rows, columns, _HEIGHT)
        self._footer.moved(visible=bool(self._region.height))
        _resize(self._master, self._region.above, columns)
        self._take()
        os.kill(self._leader, signal.SIGCONT)

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:
                select.select([], [1], [])
            except OSError:
                return  # the terminal is gone: SIGHUP comes


def _size() -> tuple[int, int]:
    """Lines and columns of the person's terminal."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return 24, 80
    return size.lines or 24, size.columns or 80


def _resize(master: int, rows: int, columns: int) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
