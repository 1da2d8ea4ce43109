"""An edited view is saved: the file becomes what the view stands for, as a new object in one step, or stays as it is.

Four ways lead to it: another file is renamed onto it; it is opened to be written, which is the view then; something is
appended; or it has left its name, and a new file is written there. What is written lies apart until nobody can write it
any more, which a read lease proves (hazard P85); the tree's next call is answered only then (`executor.staged`).
"""

from __future__ import annotations

import os
import stat

from pincer_trace.effects import CREATE, READ, TRUNCATE, WRITE
from pincer_trace.executor.commit import commit
from pincer_trace.executor.descriptors import OURS
from pincer_trace.executor.domains import NOT_ALONE
from pincer_trace.executor.fresh import Attributes, Place, put
from pincer_trace.executor.outcome import Outcome
from pincer_trace.executor.secrets import MARK
from pincer_trace.executor.versions import Versions
from pincer_trace.executor.views import MAXIMUM, Unsuitable, read
from pincer_trace.gateway.gitconfig import leased_content
from pincer_trace.gateway.resolve import join, look
from pincer_trace.paths import counted, display
from pincer_trace.profile import ALLOW, VIEW
from pincer_trace.twin import codes
from pincer_trace.twin.authority import Denied
from pincer_trace.twin.recovery import SAVED
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pincer_trace.executor.context import Context
    from pincer_trace.executor.staged import Pending
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.plaintext.restoring import Restored
    from pincer_trace.twin.authority import Judgement

_READ = os.O_RDONLY | os.O_NOFOLLOW | OURS
_LOST = 256  # saves that were not taken, and nobody has been told


class Save:
    """What a file becomes: its new content, and what is known of the one in whose place it comes."""

    __slots__ = ("attributes", "before", "content", "judged", "old", "path", "told")

    def __init__(
        self,
        path: bytes,
        content: bytes,
        told: str,
        *,
        before: os.stat_result | None,
        old: bytes,
        attributes: Attributes,
        judged: list[Judgement],
    ) -> None:
        self.path = path
        self.content = content
        self.told = told
        self.before = before
        self.old = old
        self.attributes = attributes
        self.judged = judged

    @property
    def extra(self) -> dict[str, object]:
        """What records say of it."""
        return {"saved": self.told}


class Saves:
    """Belongs to the receiving thread."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._lost: dict[tuple[int, int, bytes], str] = {}
        self._reason = ""  # why the last one was not taken
        self._count = 0
        self.versions = Versions()

    # -- what is asked -------------------------------------------------------------------------------------------

    def concerns(self, task: Task, target: Target) -> bool:
        """Whether this existing file is read as a view, so that what is written there is edited. Raises Denied."""
        authority, found = self._c.authority, target.found
        if found is None or not stat.S_ISREG(found.st_mode):
            return False
        if found.st_nlink < 2 and authority.shows(target.path, found):
            return False
        judgement = authority.judge_reading(task, READ, target)
        if judgement.verdict != VIEW:
            if judgement.verdict != ALLOW and authority.is_view_by_name(target.path):
                # something is wrong with it: then nothing is saved there
                authority.insist(task, READ, target, judgement)
            return False
        self._c.views.prepare(task)
        return True

    def tell_loss(self, task: Task, effect: str, target: Target) -> None:
        """The last save of it was not taken, and nobody could be told: the next open fails, once. Raises Denied."""
        found = target.found
        lost = self._lost.pop((found.st_dev, found.st_ino, target.path), None) if found is not None else None
        if lost is not None:
            self._refuse(task, effect, target, f"what was saved last was not taken: {lost}")

    def open(self, identity: int, task: Task, target: Target, flags: int) -> None:
        """Answer an open for writing, which is allowed. Raises OSError, Denied."""
        c, found = self._c, target.found
        assert found is not None
        effect = TRUNCATE if flags & os.O_TRUNC else WRITE
        self.tell_loss(task, effect, target)
        appends = bool(flags & os.O_APPEND) and not flags & os.O_TRUNC
        problem = ""
        if flags & os.O_ACCMODE != os.O_WRONLY:
            problem = "it cannot be read and written at once"
        elif found.st_size > MAXIMUM:
            problem = "it is larger than a megabyte"
        elif found.st_nlink > 1:
            problem = "it has several names"
        if problem:
            c.authority.forbid(task, effect, target, f"it is read as a view only, and {problem}", codes.NO_VIEW)
        parent, name = target.parent, target.name
        if parent < 0:
            parent, name = self._entry(task, effect, target)
        try:
            if c.staged.is_written(parent, name):
                reason = "it is read as a view only, and another program is writing it"
                c.authority.forbid(task, effect, target, reason, codes.NO_VIEW)
            place = Target(target.path, parent=parent, name=name, found=found)
            begins = b"" if flags & (os.O_TRUNC | os.O_APPEND) else self._text(task, place)
            complete = self._appended if appends else self._written
            c.staged.stage(identity, task, place, flags, 0o600, complete, begins)
        finally:
            if parent != target.parent:
                os.close(parent)

    def _text(self, task: Task, target: Target) -> bytes:
        """What is written in place is the view. Raises OSError, Denied."""
        assert target.found is not None
        old, _ = self._read(task, target, target.found)
        return self._c.secrets.view(self._c.authority.secret_name(target), target.found, old).text

    def recalls(self, target: Target) -> bool:
        """Whether a new file of this name could be a save: a file that was shown has left the name."""
        return self._c.secrets.was_at(target.path) and self._c.authority.is_view_by_name(target.path)

    def removes(self, task: Task, target: Target) -> None:
        """The file is about to lose its name: what it holds is kept, where it can be read. Raises nothing."""
        found = target.found
        authority = self._c.authority
        if found is None or not stat.S_ISREG(found.st_mode) or authority.shows(target.path, found):
            return
        if authority.judge_reading(task, READ, target).verdict == ALLOW:
            return
        try:
            self.versions.keep(target.path, self._look(target, found)[0], found)
        except (OSError, Unsuitable):
            pass  # it goes all the same, as it would without us

    def create(self, identity: int, task: Task, target: Target, flags: int, mode: int) -> None:
        """Answer such a creation, which is allowed. Raises OSError, Denied."""
        self._c.staged.stage(identity, task, target, flags, mode, self._written)

    def of_rename(self, task: Task, source: Target, goal: Target) -> Save | None:
        """What a rename of a file onto a name saves there; None where it is no save. Raises OSError, Denied, Asked."""
        c, found = self._c, source.found
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        recalled = goal.found is None and self.recalls(goal)
        if not recalled and not self.concerns(task, goal):
            return None
        if c.domains.current is not None:
            c.authority.forbid(task, WRITE, goal, NOT_ALONE)
        is_one = self.concerns(task, source)  # no view, but one of those files: unless a handle is in it
        descriptor = os.open(source.name, _READ, dir_fd=source.parent)
        try:
            if is_one and _has_no_handle(descriptor):
                return None
            if not os.path.samestat(os.fstat(descriptor), found):
                c.authority.forbid(task, WRITE, goal, "another file is there by now", codes.OBJECT_CHANGED)
            try:
                edited = leased_content(descriptor)
            except BlockingIOError:
                self._refuse(task, WRITE, goal, "the file that comes there is still open for writing")
            if edited is None:
                self._refuse(task, WRITE, goal, "the file that comes there is larger than a megabyte")
            if recalled and c.secrets.recall(goal.path, edited) is None:
                return None
            return self._of(task, goal, descriptor, lambda content: self._restored(task, goal, content, edited))
        finally:
            os.close(descriptor)

    # -- what is done ------------------------------------------------------------------------------------------

    def perform(self, save: Save, parent: int, name: bytes) -> os.stat_result:
        """The file has its new content: what is there then. Raises OSError: then it has its old one."""
        c = self._c
        self._count += 1
        place = Place(parent, name, b"%b.pincer-trace-%d-%d" % (name, os.getpid(), self._count))

        def prepare(made: int) -> None:
            save.attributes.give(made)
            os.fsync(made)

        if save.before is not None:
            self.versions.keep(save.path, save.old, save.before)
        put(c.resolver, place, save.content, prepare, replaces=save.before is not None)
        after = os.stat(name, dir_fd=parent, follow_symlinks=False)
        self.versions.note_made(save.content, after)
        c.secrets.saved(save.path, save.before, after, save.content)
        c.authority.met()  # its number and change time may be those of a file that was let pass in this instant
        if save.before is not None:
            c.provenance.forget(save.before)
        if c.authority.denials is not None:
            c.authority.denials.tell(WRITE, save.path, SAVED)
        return after

    def _written(self, file: Pending) -> None:
        self._complete(file, self._restored)

    def _appended(self, file: Pending) -> None:
        self._complete(file, self._continued)

    def _complete(self, file: Pending, become: Callable[[Task, Target, bytes | None, bytes], Restored | bytes]) -> None:
        """What was written, and nobody can write any more, is saved. Raises Denied, LedgerFull, OSError."""
        c, task = self._c, file.caller
        self._reason = ""
        path = join(c.resolver.path_of(file.parent), file.name)
        target = Target(path, parent=file.parent, name=file.name, found=look(file.parent, file.name))
        effect = CREATE if file.replaced is None else WRITE
        try:
            edited = leased_content(file.descriptor)
        except OSError:
            edited = None  # the tree has ended, and somebody can still write it
        try:
            if edited is None:
                self._refuse(task, effect, target, "it was not closed, or is larger than a megabyte")
            if not _is_still(target.found, file.replaced):
                c.authority.forbid(task, effect, target, "another file has the name by now", codes.OBJECT_CHANGED)
            written: bytes = edited

            def made(content: bytes | None) -> Restored | bytes:
                if content is None and c.secrets.recall(path, written) is None:
                    return written
                return become(task, target, content, written)

            save = self._of(task, target, file.descriptor, made)
            judged = [c.authority.demand(task, effect, target), *save.judged]
            sequence = commit(c, task, effect, target, judged, arguments=(save.content,), extra=save.extra)
        except Denied:
            self._lose(target)
            raise
        except OSError as error:
            self._reason = error.strerror or str(error)
            self._lose(target)
            raise
        try:
            with Outcome(c, sequence) as outcome:
                outcome.saw(self.perform(save, file.parent, file.name))
        except OSError as error:  # the outcome tells it, and the next open
            self._reason = error.strerror or str(error)
            self._lose(target)

    def _of(self, task: Task, target: Target, source: int, become: Callable[[bytes | None], Restored | bytes]) -> Save:
        """The save of `target`, whose content `become` makes of the one that it has. Raises OSError, Denied, Asked."""
        c, found = self._c, target.found
        if found is None:
            made = become(None)
            attributes = Attributes(source)
            old = b""
        else:
            old, attributes = self._read(task, target, found)
            made = become(old)
        judged: list[Judgement] = []
        if isinstance(made, bytes):
            content, told = made, "as it was written" if found is None else "appended"
        else:
            content, told = made.content, counted(len(made.kept) + 1, "handle")
            if made.dropped:
                told += f", {len(made.dropped)} of {counted(made.values, 'value')} dropped"
            if made.drops_most:
                doubt = f"it drops {len(made.dropped)} of the {counted(made.values, 'value')} that its view shows"
                judged.append(c.authority.doubt(task, WRITE, target, doubt))
        return Save(target.path, content, told, before=found, old=old, attributes=attributes, judged=judged)

    def _read(self, task: Task, target: Target, found: os.stat_result) -> tuple[bytes, Attributes]:
        """Of the file that is there, which must be this one. Raises OSError, Denied."""
        try:
            return self._look(target, found)
        except Unsuitable as unsuitable:
            self._refuse(task, WRITE, target, str(unsuitable))

    def _look(self, target: Target, found: os.stat_result) -> tuple[bytes, Attributes]:
        """The same. Raises OSError, Unsuitable."""
        c = self._c
        descriptor = os.open(target.name, _READ, dir_fd=target.parent)
        try:
            old, seen = read(c.resolver.number(descriptor), c.resolver.names)
            if not os.path.samestat(seen, found):
                raise Unsuitable("another file is there by now")
            return old, Attributes(descriptor)
        finally:
            os.close(descriptor)

    # -- what the content becomes ------------------------------------------------------------------------------

    def _restored(self, task: Task, target: Target, content: bytes | None, edited: bytes) -> Restored:
        """By the view that was edited. Raises Denied."""
        from pincer_trace.plaintext.refusal import Refusal

        secrets = self._c.secrets
        if content is None or target.found is None:
            found = secrets.recall(target.path, edited)
        else:
            found = secrets.restore(self._c.authority.secret_name(target), target.found, content, edited)
        if found is None or isinstance(found, Refusal):
            self._refuse(task, WRITE, target, found.text if found is not None else "it is no view of this file")
        return found

    def _continued(self, task: Task, target: Target, content: bytes | None, edited: bytes) -> bytes:
        """The same content, and then this. Raises Denied."""
        if MARK in edited:
            self._refuse(task, WRITE, target, "a handle cannot be appended: edit the view where it is")
        if not content:
            return edited
        whole = self._c.secrets.appended(self._c.authority.secret_name(target), content, edited)
        return whole if isinstance(whole, bytes) else self._refuse(task, WRITE, target, whole.text)

    def _refuse(self, task: Task, effect: str, target: Target, reason: str) -> NoReturn:
        self._reason = display(reason, 300)
        self._c.authority.forbid(task, effect, target, f"the save is not taken: {self._reason}", codes.SAVE_REFUSED)

    def _lose(self, target: Target) -> None:
        found = target.found
        if found is None:
            return  # nothing is there, which tells enough
        if len(self._lost) >= _LOST:
            del self._lost[next(iter(self._lost))]
        self._lost[found.st_dev, found.st_ino, target.path] = self._reason or "the log tells why"

    def _entry(self, task: Task, effect: str, target: Target) -> tuple[int, bytes]:
        """The directory and the name of what was reached by a pin; the caller closes it. Raises OSError, Denied."""
        above, _, name = target.path.rpartition(b"/")
        parent = os.open(above or b"/", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            found = look(parent, name)
            if found is None or target.found is None or not os.path.samestat(found, target.found):
                reason = "its name leads to another file by now"
                self._c.authority.forbid(task, effect, target, reason, codes.OBJECT_CHANGED)
        except BaseException:
            os.close(parent)
            raise
        return parent, name


def _is_still(found: os.stat_result | None, before: os.stat_result | None) -> bool:
    """Whether there is what was there, or nothing as before."""
    if found is None or before is None:
        return found is before
    return os.path.samestat(found, before)


def _has_no_handle(descriptor: int) -> bool:
    """Whether the whole of a file was looked at, and no handle is in it. Raises OSError."""
    content = os.pread(descriptor, MAXIMUM + 1, 0)
    return len(content) == os.fstat(descriptor).st_size <= MAXIMUM and MARK not in content
