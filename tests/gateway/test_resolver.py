"""The resolver against the kernel: every path ends in the same object, or in the same errno, as a native walk.

Trees and paths are random; the worker is this process, so the native walk and ours start from the same place.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading

import pytest
from executor.benches import WORKSPACE
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pincer_trace.gateway.resolve import STEPS, Forbidden
from pincer_trace.kernel import libc

AT = libc.AT_FDCWD
O_PATH = os.O_PATH | os.O_CLOEXEC

NAMES = [b"a", b"b", b"\xff", b"n\nl", b"proc", b"x" * 255]
names = st.sampled_from(NAMES)
pieces = st.one_of(names, st.sampled_from([b".", b"..", b"", b"y" * 256, b"absent", b"name (deleted)"]))


@st.composite
def paths(draw, prefixes=(b"", b"/", b"//", b"@/", b"./")):
    """A path of random pieces; `@` stands for the tree's own top."""
    body = b"/".join(draw(st.lists(pieces, min_size=0, max_size=6)))
    return draw(st.sampled_from(prefixes)) + body + draw(st.sampled_from([b"", b"", b"", b"/", b"//", b"/."]))


entries = st.one_of(
    st.tuples(st.just("file"), st.just(b"")),
    st.tuples(st.just("fifo"), st.just(b"")),
    st.tuples(st.just("link"), paths()),
)
# A tree: directory -> name -> entry; directories are the lists of names that lead to them
trees = st.recursive(
    st.dictionaries(names, entries, max_size=4),
    lambda below: st.dictionaries(names, st.one_of(entries, below), max_size=4),
    max_leaves=12,
)


def plant(top: bytes, here: bytes, tree: dict) -> None:
    os.mkdir(here)
    for name, entry in tree.items():
        path = here + b"/" + name
        if isinstance(entry, dict):
            plant(top, path, entry)
        elif entry[0] == "file":
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        elif entry[0] == "fifo":
            os.mkfifo(path)
        elif entry[1]:
            os.symlink(entry[1].replace(b"@", top), path)


def native(path: bytes, flags: int, base: int | None = None):
    """(device, inode) of what the kernel finds, or the errno."""
    try:
        pin = os.open(path, O_PATH | flags, dir_fd=base)
    except OSError as error:
        return error.errno
    return identify(pin)


def identify(pin: int) -> tuple[int, int]:
    found = os.fstat(pin)
    os.close(pin)
    return found.st_dev, found.st_ino


def ours(act):
    try:
        return identify(act())
    except OSError as error:
        return error.errno


@pytest.fixture
def walker(bench):
    """(resolver, task): the real ones, for this thread, with the descriptors that a task keeps."""
    task = bench.task()
    bench.tasks.directory(task)
    os.close(bench.tasks.descriptor(task, 0))
    return bench.resolver, task


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees, wanted=st.lists(paths(), min_size=1, max_size=8))
@example(tree={b"a": ("link", b"b"), b"b": ("link", b"a")}, wanted=[b"a", b"a/", b"b/x"])
@example(tree={b"a": ("link", b"@/b/"), b"b": ("file", b"")}, wanted=[b"a", b"b/", b"b/.", b"b/.."])
@example(tree={b"proc": {b"a": ("link", b"../../..")}}, wanted=[b"proc/a", b"proc/../proc/a/", b"/proc/self/cwd"])
def test_walks_end_where_the_kernels_do(walker, work, tree, wanted):
    resolver, task = walker
    top = os.fsencode(work) + b"/tree"
    shutil.rmtree(top, ignore_errors=True)
    plant(top, top, tree)
    base = os.open(top, O_PATH)
    opened = len(os.listdir("/proc/self/fd"))
    try:
        for path in wanted:
            path = path.replace(b"@", top)
            if not path:
                assert ours(lambda: resolver.pin(task, base, b"")) == errno.ENOENT
                continue
            for follow in (True, False):
                expected = native(path, 0 if follow else os.O_NOFOLLOW, base)
                assert ours(lambda: resolver.pin(task, base, path, follow=follow)) == expected, (path, follow)
                resolver.steps = STEPS
                start = AT if path[:1] == b"/" else base
                assert ours(lambda: resolver.walk(task, start, path, follow=follow)[0]) == expected, (
                    "slow", path, follow,
                )  # fmt: skip
            check_parent(resolver, task, base, path)
    finally:
        os.close(base)
    assert len(os.listdir("/proc/self/fd")) == opened - 1


def check_parent(resolver, task, base: int, path: bytes) -> None:
    """(parent, name) name the same object as the whole path, in the kernel's own words."""
    try:
        parent, name = resolver.parent(task, base, path)
    except OSError as error:
        assert native(path, os.O_NOFOLLOW, base) == error.errno or native(path, 0, base) == error.errno, path
        return
    try:
        for flags in (0, os.O_NOFOLLOW):
            assert native(name, flags, parent) == native(path, flags, base), (path, name)
    finally:
        os.close(parent)


def test_the_length_limits_are_the_kernels(bench, work):
    task = bench.task()
    resolver, tasks = bench.resolver, bench.tasks
    for path in (
        b"x" * 255, b"x" * 256, b"/" * 4095, b"/" * 4096, b"./" * 2047 + b".", b"./" * 2047 + b"..", b"./" * 2048,
        b"./" * 2045 + b"file", b"./" * 2046 + b"file", b"a/" * 2047 + b"a",
    ):  # fmt: skip
        expected = native(path, 0)

        def pin(path: bytes = path) -> int:
            return resolver.pin(task, AT, tasks.read_path(task, bench.address(path)))

        assert ours(pin) == expected, len(path)
        resolver.steps = STEPS


def test_p98_deeper_than_a_path_can_say(bench, work, monkeypatch):
    step = b"d" * 200
    top = os.open(".", O_PATH)
    here = os.dup(top)
    try:
        for _ in range(25):
            os.mkdir(step, dir_fd=here)
            below = os.open(step, O_PATH, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open(b"deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.fchdir(here)
        task = bench.task()
        bench.tasks.changes_directory(task)
        resolver = bench.resolver
        assert ours(lambda: resolver.pin(task, AT, b"deep")) == native(b"deep", 0)
        expected = os.fsencode(work) + b"/" + b"/".join([step] * 25)
        assert resolver.path_of(here) == expected
        pin = resolver.pin(task, AT, b"deep")
        try:
            assert resolver.path_of(pin, (task, AT, b"deep")) == expected + b"/deep"
            with pytest.raises(OSError) as failure:
                resolver.path_of(pin)
            assert failure.value.errno == errno.ENAMETOOLONG
        finally:
            os.close(pin)
    finally:
        os.fchdir(top)
        os.close(here)
        os.close(top)
        _remove_deep(work, step)


def _remove_deep(work, step: bytes) -> None:
    """rm -r without long paths."""
    chain = [os.open(work, os.O_RDONLY)]
    while os.fsdecode(step) in os.listdir(chain[-1]):
        chain.append(os.open(step, os.O_RDONLY, dir_fd=chain[-1]))
    if "deep" in os.listdir(chain[-1]):
        os.unlink(b"deep", dir_fd=chain[-1])
    while len(chain) > 1:
        os.close(chain.pop())
        os.rmdir(step, dir_fd=chain[-1])
    os.close(chain.pop())


@pytest.mark.parametrize("links", [1, 39, 40, 41])
def test_forty_links_and_no_more(bench, work, links):
    os.symlink(b"file", b"l0")
    for number in range(1, links):
        os.symlink(b"l%d" % (number - 1), b"l%d" % number)
    last = b"l%d" % (links - 1)
    task = bench.task()
    assert ours(lambda: bench.resolver.pin(task, AT, last)) == native(last, 0)
    base = bench.tasks.directory(task)
    assert ours(lambda: bench.resolver.walk(task, base, last, follow=True)[0]) == native(last, 0)


def test_a_walk_has_so_many_steps(bench):
    task = bench.task()
    base = bench.tasks.directory(task)
    bench.resolver.steps = 3
    assert ours(lambda: bench.resolver.walk(task, base, b"./././file", follow=True)[0]) == errno.ELOOP


# -- procfs and magic links ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        b"/proc/self", b"/proc/self/", b"/proc/thread-self", b"/proc/self/status", b"/proc/thread-self/status",
        b"/proc/self/../self/stat", b"/proc/./self/cwd/file", b"/proc/self/cwd", b"/proc/self/root/etc",
        b"/proc/self/exe", b"/proc/self/cwd/../" + WORKSPACE + b"/link", b"/proc/self/task/../status", b"/proc/mounts",
        b"/proc/net", b"/proc/self/fd/9999", b"/proc/self/nothing", b"/proc/self/exe/", b"/proc/self/status/",
        b"/dev/fd", b"/proc/self/cwd/..", b"/proc/self/cwd/to-secret",
    ],
)  # fmt: skip
@pytest.mark.parametrize("follow", [True, False])
def test_p26_procfs_is_walked_as_the_worker(bench, work, path, follow):
    """As our own process is the worker, each magic link must lead where the kernel's own walk leads."""
    task = bench.task()
    expected = native(path, 0 if follow else os.O_NOFOLLOW)
    assert ours(lambda: bench.resolver.pin(task, AT, path, follow=follow)) == expected


def test_p26_a_thread_has_its_own_self(bench):
    found = []

    def other() -> None:
        task = bench.task()
        for name in (b"/proc/thread-self/status", b"/proc/self/status", b"/proc/thread-self/comm"):
            found.append((ours(lambda name=name: bench.resolver.pin(task, AT, name)), native(name, 0)))
        bench.tasks.drop(task.tid)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(found) == 3
    for mine, kernels in found:
        assert mine == kernels


def test_p26_a_descriptor_link_tells_how_it_is_held(bench, work):
    task = bench.task()
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND):
        held = os.open("file", flags)
        pin, access = bench.resolver.walk(task, AT, b"/proc/self/fd/%d" % held, follow=True)
        assert access & (os.O_ACCMODE | os.O_APPEND) == flags & (os.O_ACCMODE | os.O_APPEND)
        assert identify(pin) == identify(held)
    held = os.open("file", os.O_PATH)
    pin, access = bench.resolver.walk(task, AT, b"/proc/self/fd/%d" % held, follow=True)
    assert access == -1  # an O_PATH descriptor gives no access
    assert identify(pin) == identify(held)


def test_p68_a_foreign_process_is_closed(bench):
    task = bench.task()
    parent = os.getppid()
    for name in (b"cwd", b"root", b"exe", b"fd/0"):
        with pytest.raises((Forbidden, PermissionError)):  # the kernel's own refusal, where it comes first
            bench.resolver.pin(task, AT, b"/proc/%d/%s/x" % (parent, name))
    for name, writes, allowed in (
        (b"status", False, True), (b"status", True, False), (b"environ", False, False), (b"mem", False, False),
        (b"task/7/maps", False, False), (b"task/7/stat", False, True), (b"task", False, True), (b"comm", True, False),
    ):  # fmt: skip
        place = b"/proc/%d/%s" % (parent, name)
        if allowed:
            bench.resolver.check_procfs(place, writes=writes)
        else:
            with pytest.raises(Forbidden):
                bench.resolver.check_procfs(place, writes=writes)
        bench.resolver.check_procfs(b"/proc/%d/%s" % (os.getpid(), name), writes=writes)


def test_p22_a_directory_register_is_an_int(bench, work):
    task = bench.task()
    expected = native(b"file", 0)
    for register in (AT, AT & 0xFFFFFFFF, AT & (1 << 64) - 1, 0xDEAD_0000_0000 | (AT & 0xFFFFFFFF)):
        assert ours(lambda: bench.resolver.pin(task, register, b"file")) == expected
    place = os.open("dir", O_PATH)
    try:
        for register in (place, 0x7FFF_0000_0000_0000 | place):
            assert ours(lambda: bench.resolver.pin(task, register, b"inner")) == native(b"dir/inner", 0)
    finally:
        os.close(place)
    for register in (-1, -5, 0x80000000, 9999):
        assert ours(lambda: bench.resolver.pin(task, register, b"file")) == errno.EBADF
        assert ours(lambda: bench.resolver.pin(task, register, b"/")) == native(b"/", 0)


def test_p68_a_procfs_is_known_by_its_mounts(bench):
    """The longest mount point counts; what lies below none, or shows another PID namespace, is nobody's."""
    bench.resolver._points = [(b"/r/proc/sys", b"/proc/sys"), (b"/other", b""), (b"/r/proc", b"/proc")]
    for path, name in (
        (b"/r/proc", b"/proc"), (b"/r/proc/1/maps", b"/proc/1/maps"), (b"/r/proc/sys/kernel", b"/proc/sys/kernel"),
    ):  # fmt: skip
        assert bench.resolver.procfs_name(path) == name
    assert bench.resolver.process_at(b"/r/proc/12/maps") == 12
    for path in (b"/r/process/1", b"/other/1/maps", b"/other", b"/1/maps", b"", b"/proc/1/maps"):
        with pytest.raises(Forbidden):
            bench.resolver.check_procfs(path)


def test_p68_a_procfs_of_another_pid_namespace_is_told(tmp_path):
    from pincer_trace.gateway import places

    assert places.shows_our_numbers(b"/proc")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Name:\tx\nNSpid:\t1234\t1\n")
    assert not places.shows_our_numbers(os.fsencode(tmp_path))
    assert not places.shows_our_numbers(os.fsencode(tmp_path / "absent"))
