"""Calls that make, move and remove names: pin the parents, look, judge, then the same at-call on the pins.

What exists already, or does not, is answered before any judgement, with the kernel's own errno: existence is visible
to the worker anyway (stat is native), and `mkdir -p` must hear EEXIST of directories that it may not change (P38).
The kernel walks nothing here but one component in a pinned directory.
"""

from __future__ import annotations

import errno
import os
import stat

from pincer_trace.effects import CREATE, LINK, MKDIR, MKNOD, READ, RENAME, RMDIR, SYMLINK, UNLINK, WRITE
from pincer_trace.executor.arrivals import Arrival, is_place
from pincer_trace.executor.commit import commit
from pincer_trace.executor.outcome import Outcome
from pincer_trace.executor.refusals import Entry, refuse_removal, refuse_rename
from pincer_trace.gateway.gitconfig import ConfigWitness
from pincer_trace.gateway.request import Claim
from pincer_trace.gateway.resolve import MARK, join, live_name, look, parted
from pincer_trace.kernel import libc
from pincer_trace.paths import named
from pincer_trace.profile import ALLOW, VIEW
from pincer_trace.profile.model import OWN, OWN_ABOVE, OWN_ANCHOR
from pincer_trace.twin.target import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.executor.context import Context
    from pincer_trace.executor.opens import Handler
    from pincer_trace.gateway.tasks import Task
    from pincer_trace.twin.authority import Judgement

_CWD = libc.AT_FDCWD
_ATTEMPTS = 3
_OWN = frozenset({OWN, OWN_ANCHOR, OWN_ABOVE})  # conditions of rules for what the run made


class Names:
    """The handlers of the name family."""

    def __init__(self, context: Context) -> None:
        self._c = context

    def handlers(self) -> dict[str, Handler]:
        """By system call."""
        return {
            "rename": lambda _i, task, a: self._move(task, _CWD, a[0], _CWD, a[1]),
            "renameat": lambda _i, task, a: self._move(task, a[0], a[1], a[2], a[3]),
            "renameat2": lambda _i, task, a: self._move(task, a[0], a[1], a[2], a[3], a[4] & 0xFFFFFFFF),
            "unlink": lambda _i, task, a: self._unlink(task, _CWD, a[0], 0),
            "rmdir": lambda _i, task, a: self._unlink(task, _CWD, a[0], libc.AT_REMOVEDIR),
            "unlinkat": lambda _i, task, a: self._unlink(task, a[0], a[1], a[2] & 0xFFFFFFFF),
            "mkdir": lambda _i, task, a: self._mkdir(task, _CWD, a[0], a[1]),
            "mkdirat": lambda _i, task, a: self._mkdir(task, a[0], a[1], a[2]),
            "mknod": lambda _i, task, a: self._mknod(task, _CWD, a[0], a[1], a[2]),
            "mknodat": lambda _i, task, a: self._mknod(task, a[0], a[1], a[2], a[3]),
            "symlink": lambda _i, task, a: self._symlink(task, a[0], _CWD, a[1]),
            "symlinkat": lambda _i, task, a: self._symlink(task, a[0], a[1], a[2]),
            "link": lambda _i, task, a: self._link(task, _CWD, a[0], _CWD, a[1], 0),
            "linkat": lambda _i, task, a: self._link(task, a[0], a[1], a[2], a[3], a[4] & 0xFFFFFFFF),
        }

    def _entry(self, task: Task, dirfd: int, address: int) -> Entry:
        """The name at `address`, its directory pinned and the caller's to close. Raises OSError, Forbidden."""
        c = self._c
        path = c.tasks.read_path(task, address)
        above, name = parted(path)
        return Entry(*c.resolver.directory(task, dirfd, above), name, is_root=not path.strip(b"/"))

    def _two(self, task: Task, olddirfd: int, old: int, newdirfd: int, new: int) -> tuple[Entry, Entry]:
        """Both names of a call; where they are written in one directory, as most are, that is walked to once.

        Each pin is the caller's to close. Raises OSError, Forbidden.
        """
        c = self._c
        path = c.tasks.read_path(task, old)
        above, name = parted(path)
        first = Entry(*c.resolver.directory(task, olddirfd, above), name, is_root=not path.strip(b"/"))
        try:
            path = c.tasks.read_path(task, new)
            beside, name = parted(path)
            if beside == above and (above[:1] == b"/" or (olddirfd ^ newdirfd) & 0xFFFFFFFF == 0):
                return first, Entry(first.parent, first.above, name, is_root=not path.strip(b"/"))
            return first, Entry(*c.resolver.directory(task, newdirfd, beside), name, is_root=not path.strip(b"/"))
        except BaseException:
            os.close(first.parent)
            raise

    def _new(self, task: Task, dirfd: int, address: int) -> Entry:
        """The same of a name that is not taken. Raises OSError EEXIST when it is, ENOENT in a removed directory."""
        entry = self._entry(task, dirfd, address)
        try:
            entry.look()
            if entry.is_dots or entry.found is not None:
                raise OSError(errno.EEXIST, entry.name)
            self._c.resolver.check_uncovered(entry.parent, entry.bare)
            if entry.too_long:
                raise OSError(errno.ENAMETOOLONG, entry.name)
            if entry.above.st_nlink == 0:
                raise OSError(errno.ENOENT, entry.name)
        except BaseException:
            os.close(entry.parent)
            raise
        return entry

    def _target(self, entry: Entry, found: os.stat_result | None) -> Target:
        """What is done to that name, where it holds `found`, or will hold it."""
        if not entry.directory:
            entry.directory = self._c.resolver.path_of(entry.parent)
        path = join(entry.directory, entry.bare)
        return Target(path, parent=entry.parent, name=entry.bare, found=found, above_found=entry.above)

    # -- making ----------------------------------------------------------------------------------------------

    def _mkdir(self, task: Task, dirfd: int, address: int, mode: int) -> int:
        c = self._c
        entry = self._new(task, dirfd, address)
        parent, name = entry.parent, entry.name
        try:
            if c.resolver.in_procfs(entry.above.st_dev):  # which makes no names: the kernel says with which errno
                os.mkdir(name, mode & 0o7777, dir_fd=parent)
            target = self._target(entry, None)
            decision = c.authority.demand(task, MKDIR, target)
            mask = c.identity.take_mask(c.tasks, task)
            sequence = commit(c, task, MKDIR, target, decision, mode=mode & 0o7777, arguments=(mask,))
            own = c.resolver.own(parent)
            with Outcome(c, sequence) as outcome:
                c.domains.perform(lambda: os.mkdir(name, mode & 0o7777, dir_fd=own))
                outcome.saw(c.provenance.note(parent, name))
            return 0
        finally:
            os.close(parent)

    def _mknod(self, task: Task, dirfd: int, address: int, mode: int, device: int) -> int:
        c = self._c
        mode &= 0xFFFF  # umode_t: the rest of the register means nothing
        kind = stat.S_IFMT(mode)
        if kind == stat.S_IFDIR:
            raise OSError(errno.EPERM, "mknod")
        if kind not in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK):
            raise OSError(errno.EINVAL, "mknod")
        entry = self._new(task, dirfd, address)
        parent, name = entry.parent, entry.name
        try:
            if name.endswith(b"/"):
                raise OSError(errno.ENOENT, name)
            if c.resolver.in_procfs(entry.above.st_dev):
                os.mknod(name, mode, 0, dir_fd=parent)
            target = self._target(entry, None)
            effect = CREATE if kind in (0, stat.S_IFREG) else MKNOD
            if kind in (stat.S_IFCHR, stat.S_IFBLK) and device & 0xFFFFFFFF:  # device 0 is overlayfs's whiteout
                raise OSError(errno.EPERM, name)  # no worker has CAP_MKNOD; we do not lend ours
            decision = c.authority.demand(task, effect, target)
            arguments = (c.identity.take_mask(c.tasks, task), device & 0xFFFFFFFF)
            sequence = commit(c, task, effect, target, decision, mode=mode, arguments=arguments)
            c.reads.files.clear()
            own = c.resolver.own(parent)
            with Outcome(c, sequence) as outcome:
                c.domains.perform(lambda: os.mknod(name, mode, 0, dir_fd=own))
                outcome.saw(c.provenance.note(parent, name))
            return 0
        finally:
            os.close(parent)

    def _symlink(self, task: Task, text_address: int, dirfd: int, address: int) -> int:
        c = self._c
        text = c.tasks.read_path(task, text_address)
        if not text:
            raise OSError(errno.ENOENT, "symlink")
        entry = self._new(task, dirfd, address)
        parent, name = entry.parent, entry.name
        try:
            if name.endswith(b"/"):
                raise OSError(errno.ENOENT, name)
            target = self._target(entry, None)
            target.manner = f"leading to {named(text)}"
            decision = c.authority.demand(task, SYMLINK, target)
            arrival = Arrival(c, task)
            arrival.link(SYMLINK, target, text)
            judged = (decision, *arrival.judged)
            sequence = commit(c, task, SYMLINK, target, judged, arguments=(text,), extra={"to": os.fsdecode(text)})
            c.reads.files.clear()
            own = c.resolver.own(parent)
            with Outcome(c, sequence) as outcome:
                c.domains.perform(lambda: os.symlink(text, name, dir_fd=own))
                outcome.saw(c.provenance.note(parent, name))
                arrival.settle()
            return 0
        finally:
            os.close(parent)

    def _link(self, task: Task, olddirfd: int, old: int, newdirfd: int, new: int, flags: int) -> int:
        """A second name for an object: judged as if that object were opened with the widest access (P28)."""
        c = self._c
        if flags & ~(libc.AT_SYMLINK_FOLLOW | libc.AT_EMPTY_PATH):
            raise OSError(errno.EINVAL, "linkat")
        source_path = c.tasks.read_path(task, old)
        parent, name = -1, b""
        source_parent, source_name = -1, b""
        if not source_path and flags & libc.AT_EMPTY_PATH:
            base, owned = c.resolver.base(task, olddirfd, b"")
            source = c.resolver.home(task, base if owned else os.dup(base))
        else:
            source = c.resolver.pin(task, olddirfd, source_path, follow=bool(flags & libc.AT_SYMLINK_FOLLOW))
        try:
            found = os.fstat(source)
            entry = self._new(task, newdirfd, new)
            parent, name = entry.parent, entry.name
            if name.endswith(b"/"):
                raise OSError(errno.ENOENT, name)
            if stat.S_ISDIR(found.st_mode):
                raise OSError(errno.EPERM, "link of a directory")
            if found.st_dev != entry.above.st_dev or c.resolver.crosses(source, parent):
                raise OSError(errno.EXDEV, "link")
            target = self._target(entry, found)
            target.descriptor = source
            target.arrives = True
            c.authority.about(LINK, target)
            extra: dict[str, object] = {}
            own = c.provenance.holds(source)
            judged = []
            if found.st_nlink:
                raw = c.resolver.path_of(source, (task, olddirfd, source_path) if source_path else None)
                source_target = Target(live_name(raw, found), descriptor=source, found=found, marked=raw.endswith(MARK))
                extra["from"] = os.fsdecode(source_target.path)
                own = own or c.authority.is_own(source_target)
                for effect in (READ, WRITE, LINK):  # as if opened with the widest access (P28)
                    judged.append(c.authority.demand(task, effect, source_target))
            judged.insert(0, c.authority.demand(task, LINK, target))
            arrival = Arrival(c, task)
            if stat.S_ISLNK(found.st_mode):
                place = Target(target.path, parent=parent, name=target.name)
                arrival.link(LINK, place, os.readlink(b"", dir_fd=source))
            judged += arrival.judged
            sequence = commit(c, task, LINK, target, judged, flags=flags, extra=extra)
            if not stat.S_ISREG(found.st_mode):
                c.reads.files.clear()
            goal = c.resolver.own(parent)
            own_source = c.resolver.own(source)
            with Outcome(c, sequence) as outcome:
                if stat.S_ISLNK(found.st_mode) and not source_path:
                    c.domains.perform(lambda: libc.linkat(own_source, b"", goal, name, libc.AT_EMPTY_PATH))
                elif stat.S_ISLNK(found.st_mode):
                    source_parent, source_name = c.resolver.parent(task, olddirfd, c.tasks.read_path(task, old))
                    held = look(source_parent, source_name)
                    if held is None or not os.path.samestat(held, found):
                        raise OSError(errno.ENOENT, source_name)
                    whence = c.resolver.own(source_parent)
                    c.domains.perform(lambda: libc.linkat(whence, source_name, goal, name, 0))
                else:
                    number = c.resolver.number(own_source)
                    c.domains.perform(lambda: libc.linkat(c.resolver.names, number, goal, name, libc.AT_SYMLINK_FOLLOW))
                outcome.look_at(parent, name, found)
                if own:
                    c.provenance.keep(parent, name)
                arrival.settle()
            return 0
        finally:
            for descriptor in (source, parent, source_parent):
                if descriptor >= 0:
                    os.close(descriptor)

    # -- removing --------------------------------------------------------------------------------------------

    def _unlink(self, task: Task, dirfd: int, address: int, flags: int) -> int:
        c = self._c
        if flags & ~libc.AT_REMOVEDIR:
            raise OSError(errno.EINVAL, "unlinkat")
        entry = self._entry(task, dirfd, address)
        parent, name = entry.parent, entry.name
        try:
            entry.look()
            found = entry.found
            directory = bool(flags & libc.AT_REMOVEDIR)
            if entry.is_root and directory:
                raise OSError(errno.EBUSY, name)
            if entry.too_long:
                raise OSError(errno.ENAMETOOLONG, name)
            if c.resolver.in_procfs(entry.above.st_dev):
                _remove(parent, name, directory)  # the kernel refuses, each case with its own errno
            if found is None or stat.S_ISDIR(found.st_mode) != directory or (name.endswith(b"/") and not directory):
                refuse_removal(c.identity, parent, name, found, flags)
            if directory and found.st_nlink > 2 and _has_entries(parent, entry.bare):
                raise OSError(errno.ENOTEMPTY, name)
            effect = RMDIR if directory else UNLINK
            target = self._target(entry, found)
            gone = is_place(c, target)
            decision = c.authority.demand(task, effect, target)
            c.resolver.check_uncovered(parent, entry.bare)
            sequence = commit(c, task, effect, target, decision, flags=flags)
            if not directory:
                c.saves.removes(task, target)
                if decision.rule is not None and decision.rule.when in _OWN and found.st_nlink == 1:
                    c.provenance.note_leaving(parent, entry.bare)
            own = c.resolver.own(parent)
            with Outcome(c, sequence) as outcome:
                c.domains.perform(lambda: _remove(own, name, directory))
                outcome.look_at(parent, entry.bare)
                c.provenance.forget(found)
                c.secrets.leaves(target.path, found)
                if gone:
                    c.provenance.vacate(target.path)
            return 0
        finally:
            os.close(parent)

    # -- moving ----------------------------------------------------------------------------------------------

    def _move(self, task: Task, olddirfd: int, old: int, newdirfd: int, new: int, flags: int = 0) -> int:
        """A rename, once more from the start where something appeared at its goal while it was judged."""
        for _ in range(_ATTEMPTS):
            try:
                return self._rename(task, olddirfd, old, newdirfd, new, flags)
            except FileExistsError:
                if flags:
                    raise
        raise OSError(errno.EEXIST, "rename")

    def _rename(self, task: Task, olddirfd: int, old: int, newdirfd: int, new: int, flags: int) -> int:
        """Both ends are judged, and what they overwrite, and below a directory each protected name (P29)."""
        c = self._c
        if flags & ~(libc.RENAME_NOREPLACE | libc.RENAME_EXCHANGE | libc.RENAME_WHITEOUT) or (
            flags & libc.RENAME_EXCHANGE and flags & (libc.RENAME_NOREPLACE | libc.RENAME_WHITEOUT)
        ):
            raise OSError(errno.EINVAL, "renameat2")
        entry, onto = self._two(task, olddirfd, old, newdirfd, new)
        source, source_name = entry.parent, entry.name
        goal, goal_name = onto.parent, onto.name
        witness = None
        try:
            entry.look()
            onto.look()
            found, replaced = entry.found, onto.found
            if c.resolver.crosses(source, goal):
                raise OSError(errno.EXDEV, "rename")
            if found is None or self._is_refused(entry, found, onto, flags):
                refuse_rename(c.identity, entry, onto, flags)
            if replaced is not None and not flags and os.path.samestat(found, replaced):
                return 0  # two names of one file: rename(2) does nothing
            if flags & libc.RENAME_WHITEOUT:
                raise OSError(errno.EPERM, "RENAME_WHITEOUT")
            origin = self._target(entry, found)
            if goal == source:
                onto.directory = entry.directory
            destination = self._target(onto, replaced)
            arriving = self._target(onto, found)
            arriving.comes_from(source, entry.bare)
            c.authority.about(RENAME, arriving, "exchanging the two" if flags & libc.RENAME_EXCHANGE else "")
            ends = [(origin, destination, found)]
            if flags & libc.RENAME_EXCHANGE and replaced is not None:
                ends.append((destination, origin, replaced))
            if c.authority.is_free(destination) and c.authority.is_free(origin):
                judged = [c.authority.demand(task, RENAME, end) for end in (origin, arriving)]
            else:
                if stat.S_ISREG(found.st_mode) and not flags & libc.RENAME_EXCHANGE:
                    witness = ConfigWitness(source, source_name, found, goal, goal_name)
                judged = self._judge_ends(task, (origin, destination, arriving), entry, flags, witness)
                for here, there, what in ends:
                    judged += self._judge_reading(task, what, here, there)
            for each in (entry, onto):
                c.resolver.check_uncovered(each.parent, each.bare)
            arrival = Arrival(c, task)
            for here, there, what in ends:
                if stat.S_ISDIR(what.st_mode):
                    arrival.directory(here, there)
                elif stat.S_ISLNK(what.st_mode):
                    arrival.link(RENAME, there, _text(here))
            gone = [end.path for end in (origin, destination) if is_place(c, end)]
            judged += arrival.judged
            extra: dict[str, object] = {"to": os.fsdecode(destination.path)}
            if replaced is not None:
                extra["exchanged" if flags & libc.RENAME_EXCHANGE else "replaced"] = (
                    f"{replaced.st_dev}:{replaced.st_ino}"
                )
            lost = Claim.of(UNLINK, destination).data  # part of the effect, also where nobody need judge it
            arguments = [lost]
            plain = not flags or (flags == libc.RENAME_NOREPLACE and destination.found is None)
            save = c.saves.of_rename(task, origin, destination) if plain else None
            if save is not None:
                judged += save.judged
                arguments.append(save.content)
                extra |= save.extra
            sequence = commit(c, task, RENAME, origin, judged, flags=flags, arguments=arguments, extra=extra)
            if replaced is not None and save is None and c.before.watched:
                c.before.keep(sequence, destination)
            with Outcome(c, sequence) as outcome:
                if not all(stat.S_ISREG(what.st_mode) for _, _, what in ends):
                    c.reads.moved()  # before: whatever fails from here on, nothing goes by an old name
                leaves = not os.path.samestat(entry.above, onto.above)
                owned = leaves and c.authority.is_own(origin)
                if save is not None:
                    outcome.saw(c.saves.perform(save, goal, onto.bare))
                    os.unlink(source_name, dir_fd=source)
                    c.provenance.forget(found)
                    return 0
                replaces = replaced is not None
                whence, whither = c.resolver.own(source), c.resolver.own(goal)
                c.domains.perform(lambda: _move(whence, source_name, whither, goal_name, flags, replaces=replaces))
                outcome.look_at(goal, onto.bare, found)
                c.secrets.leaves(origin.path, found)
                for path in gone:
                    c.provenance.vacate(path)
                arrival.settle()
                if owned:
                    c.provenance.keep(goal, goal_name)
                if replaced is not None and not flags & libc.RENAME_EXCHANGE:
                    c.provenance.forget(replaced)
            return 0
        finally:
            if witness is not None:
                witness.close()
            os.close(source)
            if goal != source:
                os.close(goal)

    def _is_refused(self, source: Entry, found: os.stat_result, goal: Entry, flags: int) -> bool:
        """Whether the kernel is certain to refuse: then nothing needs judging."""
        if goal.is_dots or goal.too_long:
            return True
        above, replaced = goal.above, goal.found
        if source.above.st_dev != above.st_dev or not above.st_nlink:  # a removed directory takes no names
            return True
        if flags & libc.RENAME_NOREPLACE and replaced is not None:
            return True
        if flags & libc.RENAME_EXCHANGE:
            return replaced is None
        directory = stat.S_ISDIR(found.st_mode)
        if not directory and (source.name.endswith(b"/") or goal.name.endswith(b"/")):
            return True
        return replaced is not None and stat.S_ISDIR(replaced.st_mode) != directory

    def _judge_ends(
        self,
        task: Task,
        ends: tuple[Target, Target, Target],
        entry: Entry,
        flags: int,
        witness: ConfigWitness | None,
    ) -> list[Judgement]:
        """The name that goes, the name that comes, what that overwrites, and the content that appears there."""
        demand = self._c.authority.demand
        origin, destination, arriving = ends
        leaves = demand(task, RENAME, origin)
        judged = [demand(task, RENAME, arriving, witness), demand(task, WRITE, arriving, witness), leaves]
        if destination.found is not None:
            judged.append(demand(task, RENAME if flags & libc.RENAME_EXCHANGE else UNLINK, destination, witness))
        if flags & libc.RENAME_EXCHANGE and destination.found is not None:
            back = self._target(entry, destination.found)
            back.comes_from(destination.parent, destination.name)
            judged += (demand(task, RENAME, back), demand(task, WRITE, back))
        return judged

    def _judge_reading(self, task: Task, found: os.stat_result, origin: Target, destination: Target) -> list[Judgement]:
        """A secret may not be moved to where it could be read. What was judged for that."""
        if not stat.S_ISREG(found.st_mode):
            return []
        authority = self._c.authority
        reading = authority.judge_reading(task, READ, origin)
        if reading.verdict == VIEW:
            if not authority.reveals(destination):
                return []
            return [authority.insist(task, RENAME, origin, authority.in_full(reading))]
        # By name alone: that the other evaluator refuses, or does not answer, must never make anything possible.
        if reading.verdict == ALLOW or authority.judge(task, READ, destination).left.verdict != ALLOW:
            return []
        return [authority.insist(task, RENAME, origin, reading)]


def _move(source: int, source_name: bytes, goal: int, goal_name: bytes, flags: int, *, replaces: bool) -> None:
    """renameat2(2); without flags, `replaces` says whether there is something to be replaced. Raises OSError."""
    if flags:
        libc.renameat2(source, source_name, goal, goal_name, flags)
    elif replaces:
        os.rename(source_name, goal_name, src_dir_fd=source, dst_dir_fd=goal)
    else:
        _move_to_nothing(source, source_name, goal, goal_name)


def _move_to_nothing(source: int, source_name: bytes, goal: int, goal_name: bytes) -> None:
    """rename(2) which does not replace what somebody outside has made meanwhile: nobody has judged that.

    Raises OSError, EEXIST then.
    """
    try:
        libc.renameat2(source, source_name, goal, goal_name, libc.RENAME_NOREPLACE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.rename(source_name, goal_name, src_dir_fd=source, dst_dir_fd=goal)  # a file system that cannot promise it


def _text(link: Target) -> bytes:
    """The text of the symbolic link that was found. Raises OSError when another object is there by now."""
    pin = os.open(link.name, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=link.parent)
    try:
        if link.found is None or not os.path.samestat(os.fstat(pin), link.found):
            raise OSError(errno.ENOENT, link.name)
        return os.readlink(b"", dir_fd=pin)
    finally:
        os.close(pin)


def _remove(parent: int, name: bytes, directory: bool) -> None:
    if directory:
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _has_entries(parent: int, name: bytes) -> bool:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return False
    try:
        with os.scandir(descriptor) as entries:
            return next(iter(entries), None) is not None
    finally:
        os.close(descriptor)
