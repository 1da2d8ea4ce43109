"""From the worker's path to a pinned object, as the worker's own kernel walk would find it.

The common walk is one openat2 that refuses magic links. What it refuses, and all that ends in procfs, is walked again
one component at a time for the caller's own `/proc/self` (hazards P26, P90): by us, `/proc/self` would be us.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from pincer_trace.gateway.places import long_path, procfs_places
from pincer_trace.kernel import procfs
from pincer_trace.kernel.libc import (
    AT_FDCWD,
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    how,
    openat2,
)
from pincer_trace.paths import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.gateway.mounts import Mounts
    from pincer_trace.gateway.tasks import Task, Tasks

O_PATH = os.O_PATH | os.O_CLOEXEC
_PIN = how(O_PATH)
_PIN_NOFOLLOW = how(O_PATH | os.O_NOFOLLOW)
_PIN_DIRECTORY = how(O_PATH | os.O_DIRECTORY)
_PIN_NO_LINKS = how(O_PATH, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
_IN_ROOT = RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT
_STRAIGHT = RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH  # no step leads to a root
STEPS = 4096  # a call's components in all: as many as a path of the longest kind has, and twenty links
_MAX_LINKS = 40  # the kernel's MAXSYMLINKS
_PROCFS_ROOT = 1  # its inode number: PROC_ROOT_INO of the kernel
MARK = b" (deleted)"  # behind the name of what was removed. proc_pid_fd(5)

# Files of /proc/PID that tell no more of a foreign process than `ps` does (P68)
OPEN_OF_OTHERS = frozenset(
    {b"stat", b"status", b"statm", b"cmdline", b"comm", b"cgroup", b"limits", b"mountinfo", b"mounts"}
)


class Forbidden(Exception):
    """A walk that leads into another process of the machine. `path` is what it would have reached."""

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


class Resolver:
    """Walks for one engine. `root` is the process number that every worker descends from."""

    def __init__(self, tasks: Tasks, root: int) -> None:
        self._tasks = tasks
        self._root = root
        self.procfs, self._points = procfs_places()
        self.names = os.open("/proc/self/fd", O_PATH | os.O_DIRECTORY)  # our descriptors by number: re-open, readlink
        self.steps = STEPS  # left for walks one component at a time; the engine sets it anew for each call
        self.numbers = [b"%d" % n for n in range(4096)]
        self.mounts: Mounts | None = None  # the run's own, where it may have some

    def close(self) -> None:
        os.close(self.names)

    # -- mounts of the run's own -------------------------------------------------------------------------------

    def home(self, task: Task, pin: int) -> int:
        """The pin by which what was pinned is judged, in the place of that; the caller's to close.

        Raises OSError, Forbidden.
        """
        mounts = self.mounts
        return pin if mounts is None or not mounts.any else mounts.home(task, pin)

    def own(self, pin: int) -> int:
        """The pin by which something is done to it: through the mount by which the caller has reached it."""
        mounts = self.mounts
        return pin if mounts is None or not mounts.any else mounts.own(pin)

    def home_of(self, task: Task, descriptor: int) -> int:
        """The same of a descriptor that stays the caller's, who closes this one if it is another. As `home`."""
        mounts = self.mounts
        return descriptor if mounts is None or not mounts.any else mounts.home(task, os.dup(descriptor))

    def is_memory(self, pin: int) -> bool:
        """Whether it lies on a file system that we have mounted for the run alone."""
        mounts = self.mounts
        return mounts is not None and mounts.any and mounts.is_memory(pin)

    def is_own_procfs(self, device: int) -> bool:
        """Whether that is a procfs in which all processes are the run's."""
        return self.mounts is not None and self.mounts.is_procfs(device)

    def crosses(self, one: int, other: int) -> bool:
        """Whether the caller has reached these by two mounts."""
        mounts = self.mounts
        return mounts is not None and mounts.any and mounts.crosses(one, other)

    def check_uncovered(self, parent: int, name: bytes) -> None:
        """Raises OSError EBUSY where the caller sees a mount of the run's own at that name."""
        if self.mounts is not None and self.mounts.any:
            self.mounts.check_uncovered(parent, name)

    def root(self, task: Task) -> int:
        """Where the caller's absolute paths begin; the caller's to close. Raises OSError."""
        if task.away and self.mounts is not None:
            return self.mounts.root(task.tid)
        return os.open("/", O_PATH | os.O_DIRECTORY)

    # -- pinned descriptors ----------------------------------------------------------------------------------

    def number(self, descriptor: int) -> bytes:
        """The name of our own descriptor below `names`."""
        return self.numbers[descriptor] if descriptor < 4096 else b"%d" % descriptor

    def path_of(self, descriptor: int, origin: tuple[Task, int, bytes] | None = None) -> bytes:
        """The path of a pinned object, re-derived from the pin.

        Beyond the 4,095 bytes that the kernel can say, a directory's is found by climbing; a file's from its parent,
        if the walk that found it is given as `origin` (task, dirfd, path). Raises OSError ENAMETOOLONG otherwise.
        """
        if self.mounts is not None and self.mounts.any and (name := self.mounts.name_of(descriptor)) is not None:
            return name
        try:
            return os.readlink(self.number(descriptor), dir_fd=self.names)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode) or origin is None:
            return long_path(descriptor)
        parent, name = self.parent(*origin)
        try:
            if not os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), found):
                raise OSError(errno.ENAMETOOLONG, "path")
            return self.path_of(parent).rstrip(b"/") + b"/" + name
        finally:
            os.close(parent)

    def in_procfs(self, device: int) -> bool:
        return device in self.procfs or (self.mounts is not None and self.mounts.is_procfs(device))

    def is_ours(self, pid: int) -> bool:
        """Whether process `pid` belongs to the worker's tree."""
        return procfs.is_below(pid, self._root) and pid != self._root

    # -- walks -----------------------------------------------------------------------------------------------

    def base(self, task: Task, dirfd: int, path: bytes, *, in_root: bool = False) -> tuple[int, bool]:
        """Where the walk starts: (descriptor, whether the caller must close it). `dirfd` is the call's register.

        `in_root`: an absolute path starts there too (RESOLVE_IN_ROOT). Raises OSError.
        """
        if path[:1] == b"/" and not in_root:
            return AT_FDCWD, False
        dirfd &= 0xFFFFFFFF  # an int arrives zero- or sign-extended (P22)
        if dirfd >= 0x80000000:
            dirfd -= 0x100000000
        if dirfd == AT_FDCWD:
            return self._tasks.directory(task), False
        return self._tasks.descriptor(task, dirfd), True

    def pin(self, task: Task, dirfd: int, path: bytes, *, follow: bool = True) -> int:
        """An O_PATH descriptor of the object at `path`, the caller's to close. Raises OSError, Forbidden."""
        if not path:
            raise OSError(errno.ENOENT, path)
        base, owned = self.base(task, dirfd, path)
        try:
            return self.pin_from(task, base, path, _PIN if follow else _PIN_NOFOLLOW, follow)[0]
        finally:
            if owned:
                os.close(base)

    def pin_from(
        self, task: Task, base: int, path: bytes, pointer: object, follow: bool
    ) -> tuple[int, int, os.stat_result]:
        """One walk from `base` with an `open_how` of O_PATH and NO_MAGICLINKS; as `walk`, and an fstat of the pin.

        Raises OSError, Forbidden.
        """
        if self.mounts is not None and self.mounts.any:
            pinned, held = self._pin_anywhere(task, base, path, pointer, follow)
            return pinned, held, stat_or_close(pinned)
        try:
            pinned = openat2(base, path, pointer)
        except OSError as error:
            if error.errno != errno.ELOOP and (error.errno != errno.ENOENT or not self._by_link_or_procfs(base, path)):
                raise
        else:
            found = stat_or_close(pinned)
            if found.st_dev not in self.procfs:
                return pinned, -1, found
            os.close(pinned)
        pinned, held = self.walk(task, base, path, follow=follow)
        return pinned, held, stat_or_close(pinned)

    def _pin_anywhere(self, task: Task, base: int, path: bytes, pointer: object, follow: bool) -> tuple[int, int]:
        """The same where the run has made mounts or roots: from the caller's own root, and known by our names."""
        flags = pointer._obj.flags  # type: ignore[attr-defined]
        root = -1
        no_links = _PIN_NO_LINKS
        try:
            if task.away and path[:1] == b"/":
                base = root = self.root(task)
                pointer = how(flags, 0, _IN_ROOT)
                no_links = how(O_PATH, 0, _IN_ROOT | RESOLVE_NO_SYMLINKS)
            elif task.away:
                pointer = how(flags, 0, _STRAIGHT)
            try:
                pinned = openat2(base, path, pointer)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EXDEV, errno.EAGAIN) or (
                    error.errno == errno.ENOENT and self._by_link_or_procfs(base, path, no_links)
                ):
                    return self.walk(task, base, path, follow=follow)
                raise
            if self.in_procfs(stat_or_close(pinned).st_dev):
                os.close(pinned)
                return self.walk(task, base, path, follow=follow)
            return self.home(task, pinned), -1
        finally:
            if root >= 0:
                os.close(root)

    def _by_link_or_procfs(self, base: int, path: bytes, no_links: object = _PIN_NO_LINKS) -> bool:
        """Whether a walk that found nothing could have looked into *our* /proc/self: by its name, or by a link."""
        if b"proc" in path or (base != AT_FDCWD and self.in_procfs(os.fstat(base).st_dev)):
            return True
        try:
            os.close(openat2(base, path, no_links))
        except OSError as error:
            return error.errno != errno.ENOENT
        return False

    def parent(self, task: Task, dirfd: int, path: bytes) -> tuple[int, bytes]:
        """The directory that holds the last component, pinned and the caller's to close, and that component's bytes.

        The component keeps its trailing slashes, so that the kernel gives its own errno for them (P30); it may be
        `.` or `..`. Raises OSError, Forbidden.
        """
        above, name = parted(path)
        return self.directory(task, dirfd, above)[0], name

    def directory(self, task: Task, dirfd: int, above: bytes) -> tuple[int, os.stat_result]:
        """What `parted` gives in front of a name, pinned and the caller's to close. Raises OSError, Forbidden."""
        base, owned = self.base(task, dirfd, above)
        try:
            pinned, _, found = self.pin_from(task, base, above or b".", _PIN_DIRECTORY, True)
            return pinned, found
        finally:
            if owned:
                os.close(base)

    def entry(self, task: Task, parent: int, name: bytes) -> int:
        """A pin of what `name` in the pinned directory `parent` holds for the caller, not followed; the caller's.

        Raises OSError, Forbidden.
        """
        return self.home(task, os.open(name, O_PATH | os.O_NOFOLLOW, dir_fd=self.own(parent)))

    def pin_restricted(self, task: Task, base: int, path: bytes, flags: int, resolve: int) -> int:
        """The same as openat2 with `resolve`, for a caller whose root is not ours. Raises OSError, Forbidden."""
        root = -1
        try:
            if path[:1] == b"/" and not resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT):
                base = root = self.root(task)
                resolve |= RESOLVE_IN_ROOT
            elif not resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT):
                raise OSError(errno.ENOSYS, "openat2")  # `..` and links would lead to our root
            pin = openat2(base, path, how(flags, 0, resolve | RESOLVE_NO_MAGICLINKS))
        finally:
            if root >= 0:
                os.close(root)
        if self.in_procfs(stat_or_close(pin).st_dev):
            os.close(pin)
            raise OSError(errno.EXDEV, path)  # /proc/self would be ours
        return self.home(task, pin)

    def walk(self, task: Task, base: int, path: bytes, *, follow: bool) -> tuple[int, int]:
        """The walk one component at a time, for the caller's own /proc/self and magic links.

        Gives the pin, and how the caller holds that object if the last step was a descriptor of its own: the flags of
        F_GETFL, else -1. Raises OSError, Forbidden.
        """
        found, held = self._walk(task, base, path, follow=follow)
        return self.home(task, found), held

    def _walk(self, task: Task, base: int, path: bytes, *, follow: bool) -> tuple[int, int]:
        current = self.root(task) if path[:1] == b"/" else os.dup(base)
        held = -1
        pending = _components(path)
        trailing = path.endswith(b"/")
        links = 0
        try:
            while pending:
                self.steps -= 1
                if self.steps < 0:
                    raise OSError(errno.ELOOP, path)
                name = pending.pop()
                if not name or name == b".":
                    held = -1
                    if not stat.S_ISDIR(os.fstat(current).st_mode):
                        raise OSError(errno.ENOTDIR, path)
                    continue
                final = not any(pending)
                if name == b".." and task.away and self.mounts is not None and self.mounts.is_root(task, current):
                    held = -1
                    continue
                following = openat2(current, name, _PIN_NOFOLLOW)
                found = stat_or_close(following)
                if stat.S_ISLNK(found.st_mode) and (follow or trailing or not final):
                    links += 1
                    try:
                        if links > _MAX_LINKS:
                            raise OSError(errno.ELOOP, path)
                        target, jumped, held = self._follow(task, current, name, following, found.st_dev)
                    finally:
                        os.close(following)
                    if jumped >= 0:
                        os.close(current)
                        current = jumped
                        continue
                    if target[:1] == b"/":
                        os.close(current)
                        current = -1
                        current = self.root(task)
                    pending += _components(target)
                    continue
                held = -1
                os.close(current)
                current = following
            return current, held
        except BaseException:
            if current >= 0:
                os.close(current)
            raise

    def _follow(self, task: Task, directory: int, name: bytes, link: int, device: int) -> tuple[bytes, int, int]:
        """One symbolic link: (its text, -1, -1), or (b"", where a magic link of the worker's own tree leads, held)."""
        if not self.in_procfs(device):
            return os.readlink(b"", dir_fd=link), -1, -1
        apart = self.is_own_procfs(device)
        if name in (b"self", b"thread-self"):
            if apart:
                return self._self_apart(task, directory, name), -1, -1
            text = os.readlink(b"", dir_fd=link)  # ours; the form tells that it is the root of a procfs
            if text.split(b"/")[0].isdigit():
                return (b"%d" % task.tgid if name == b"self" else b"%d/task/%d" % (task.tgid, task.tid)), -1, -1
        try:
            os.close(openat2(directory, name, _PIN))
        except OSError as error:
            if error.errno != errno.ELOOP:
                return os.readlink(b"", dir_fd=link), -1, -1
            # A magic link: it jumps to what that process holds. Only within the tree (P68).
            place = self._place_of(task, link)
            owner = self.process_at(place)
            if owner is None or not (apart or self.is_ours(owner)):
                raise Forbidden(place, "it belongs to a process outside of the tree") from None
            if apart and owner == self._number_apart(task, directory):
                owner = task.tgid
            jumped = os.open(name, O_PATH, dir_fd=directory)
            try:
                return b"", jumped, self._held_as(task, place, owner, jumped)
            except BaseException:
                os.close(jumped)
                raise
        return os.readlink(b"", dir_fd=link), -1, -1

    def _place_of(self, task: Task, link: int) -> bytes:
        """The name of a pin that stays the caller's."""
        if self.mounts is None or not self.mounts.any:
            return self.path_of(link)
        pin = self.home(task, os.dup(link))
        try:
            return self.path_of(pin)
        finally:
            os.close(pin)

    def _self_apart(self, task: Task, root: int, name: bytes) -> bytes:
        """What `self` or `thread-self` says to the caller in the root of a procfs of another PID namespace."""
        assert self.mounts is not None
        number = self.mounts.number_in(task, root, task.tgid)
        if name == b"self":
            return b"%d" % number
        return b"%d/task/%d" % (number, self.mounts.number_in(task, root, task.tid))

    def _number_apart(self, task: Task, directory: int) -> int:
        """The caller's number in the procfs of which that is a directory of a process, or one below it; -1 for none."""
        assert self.mounts is not None
        here = os.dup(directory)
        try:
            while (found := os.fstat(here)).st_ino != _PROCFS_ROOT:
                above = os.open("..", O_PATH | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = above
                if os.fstat(here).st_dev != found.st_dev:  # a mount of one process alone
                    return -1
            return self.mounts.number_in(task, here, task.tgid)
        except OSError:
            return -1
        finally:
            os.close(here)

    def _held_as(self, task: Task, place: bytes, owner: int, jumped: int) -> int:
        """The flags of the caller's own descriptor that `place` (/proc/PID/fd/N) names, if it holds what we jumped to.

        The worker can change its table between the two looks (dup2 is native), so they must have seen one object.
        """
        parts = place.split(b"/")
        if owner != task.tgid or parts[-2] != b"fd":
            return -1
        try:
            descriptor = self._tasks.descriptor(task, int(parts[-1]))
        except OSError:
            return -1
        try:
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            same = os.path.samestat(os.fstat(descriptor), os.fstat(jumped))
            return flags if same and not flags & os.O_PATH else -1
        finally:
            os.close(descriptor)

    def procfs_name(self, path: bytes) -> bytes:
        """The name below /proc of what lies in a procfs, wherever that is mounted. Raises Forbidden."""
        for point, name in self._points:
            if is_inside(path, point):
                if not name:
                    break
                return name + path[len(point) :]
        raise Forbidden(path, "it lies in a process file system whose numbers are not known to be ours")

    def process_at(self, path: bytes) -> int | None:
        """The process that an object of a procfs is about. Raises Forbidden."""
        return process_of(self.procfs_name(path))

    def check_procfs(self, path: bytes, *, device: int = 0, writes: bool = False) -> None:
        """Refuse what /proc tells of foreign processes beyond what `ps` shows, and writing there (P68): Forbidden."""
        path = self.procfs_name(path)
        owner = process_of(path)
        if owner is not None and writes and path.endswith(b"/coredump_filter"):
            raise Forbidden(path, "it marks processes that have confined themselves, and core dumps are off")
        if owner is None or self.is_own_procfs(device) or self.is_ours(owner):
            return
        parts = path.split(b"/")
        rest = parts[3:] if len(parts) > 3 else []
        if rest[:1] == [b"task"]:
            rest = rest[2:]
        shown = not rest or (len(rest) == 1 and rest[0] in OPEN_OF_OTHERS) or rest == [b"task"]
        if shown and not writes:
            return
        raise Forbidden(path, "it belongs to a process outside of the tree")


def stat_or_close(descriptor: int) -> os.stat_result:
    """Fstat of a descriptor that was just opened, which is not left behind when that fails."""
    try:
        return os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def process_of(path: bytes) -> int | None:
    """The process that a path below /proc is about."""
    parts = path.split(b"/", 3)
    if len(parts) > 2 and parts[1] == b"proc" and parts[2].isdigit():
        return int(parts[2])
    return None


def parted(path: bytes) -> tuple[bytes, bytes]:
    """The path up to its last component (b"": it begins there), and that component; of the root it is `.`.

    Raises OSError ENOENT for the empty path.
    """
    if not path:
        raise OSError(errno.ENOENT, path)
    cut = path.rstrip(b"/").rfind(b"/") + 1
    name = path[cut:]
    return (b"/", b".") if name[:1] == b"/" else (path[:cut], name)


def join(directory: bytes, name: bytes) -> bytes:
    """The path of an entry; a trailing slash of the name is no part of it."""
    name = name.rstrip(b"/")
    return directory + name if directory.endswith(b"/") else directory + b"/" + name


def look(parent: int, name: bytes) -> os.stat_result | None:
    """What the name holds, not followed; None when it is absent. Raises OSError otherwise."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def live_name(path: bytes, found: os.stat_result) -> bytes:
    """The name by which an object is judged: that of a removed one without the kernel's mark.

    An object with another name lives on when this one is removed, so the count of names does not tell: the name does.
    """
    if not path.endswith(MARK):
        return path
    try:
        if found.st_nlink and os.path.samestat(os.lstat(path), found):
            return path
    except OSError:
        pass
    return path.removesuffix(MARK)


def is_memory(path: bytes, found: os.stat_result) -> bool:
    """Whether that is a memfd, as /proc shows its name: it never had one in a directory."""
    return path.startswith(b"/memfd:") and not found.st_nlink


def _components(path: bytes) -> list[bytes]:
    """The components, last first; a trailing slash leaves an empty one, which demands a directory."""
    parts = path.split(b"/")
    parts.reverse()
    return parts[:-1] if path[:1] == b"/" else parts
