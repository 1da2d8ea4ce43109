"""Every way to make a folder in which the user's `git status` runs a program, tried one after another.

Arguments: the folder for marks, and another repository of the user's. Each way is a function, of whose name its folder
is called; it gets into the index as a submodule. What became of each is printed as JSON.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import time

MARKS, FOREIGN = sys.argv[1:3]
GOOD = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
HEAD = "ref: refs/heads/x\n"
READ, WRITE, BOTH = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
NEW = os.O_CREAT | os.O_TRUNC
kept = []
results = {}
libc = ctypes.CDLL(None, use_errno=True)


def evil(n):
    return f'{GOOD}\tfsmonitor = "touch {MARKS}/{n}; false"\n'


def hook(n):
    return f"#!/bin/sh\ntouch {MARKS}/{n}\n"


def write(path, text, flags=WRITE | NEW):
    descriptor = os.open(path, flags, 0o755)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def opened(path, text=""):
    descriptor = os.open(path, BOTH | NEW, 0o644)
    os.write(descriptor, text.encode())
    return descriptor


def repository(path, config=None, head=True):
    for name in ("objects", "refs/heads"):
        os.makedirs(f"{path}/{name}", exist_ok=True)
    if head:
        write(f"{path}/HEAD", HEAD)
    if config:
        write(f"{path}/config", config)


def module(n, pointer=None):
    os.makedirs(n, exist_ok=True)
    write(f"{n}/file", "x")
    if pointer is not None:
        write(f"{n}/.git", f"gitdir: {pointer}\n")


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")


def exchange(one, other):
    check(libc.renameat2(-100, one.encode(), -100, other.encode(), 2))


def link_descriptor(descriptor, path):
    check(libc.linkat(-100, b"/proc/self/fd/%d" % descriptor, -100, path.encode(), 0x400))


def nameless(text):
    descriptor = os.open(".", BOTH | os.O_TMPFILE, 0o644)
    os.write(descriptor, text.encode())
    return descriptor


def settle(n):
    """A call, and time: whatever waits for a close is judged by then."""
    os.mkdir(f"settled_{n}_{time.monotonic_ns()}")


def again(descriptor):
    """The same file, by ways that hold no writer."""
    held = [os.open(f"/proc/self/fd/{descriptor}", flags) for flags in (READ, os.O_PATH)]
    os.close(descriptor)
    return held


def rewrite(n, held):
    for one in held:
        try:
            write(f"/proc/self/fd/{one}", evil(n), BOTH | os.O_TRUNC)
            return
        except OSError as failure:
            last = failure
        try:
            link_descriptor(one, f"alias_{n}")
            write(f"alias_{n}", evil(n), WRITE | os.O_TRUNC)
            return
        except OSError as failure:
            last = failure
    raise last


def attempt(way):
    n = way.__name__
    try:
        way(n, f"q_{n}")
        results[n] = 0
    except OSError as error:
        results[n] = error.errno
    if os.path.isdir(n):
        words = ["git", "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{n}"]
        subprocess.run(words, capture_output=True)


# -- config, and HEAD after it -----------------------------------------------------------------------------------------


@attempt
def config_beside_head(n, q):
    repository(q)
    module(n, f"../{q}")
    write(f"{q}/config", evil(n))


@attempt
def head_beside_config(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    write(f"{q}/config", evil(n))
    repository(q)


@attempt
def head_beside_an_open_config(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    descriptor = opened(f"{q}/config", GOOD)
    repository(q)
    os.pwrite(descriptor, evil(n).encode(), 0)


@attempt
def head_beside_a_mapped_config(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    text = evil(n).encode()
    descriptor = opened(f"{q}/config", "#" * len(text))
    kept.append(mmap.mmap(descriptor, len(text)))
    os.close(descriptor)
    try:
        repository(q)
    finally:
        kept[-1][:] = text


@attempt
def head_beside_a_config_with_two_names(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    write(f"{q}/config", GOOD)
    os.link(f"{q}/config", f"alias_{n}")
    try:
        repository(q)
    finally:
        write(f"alias_{n}", evil(n))


@attempt
def head_beside_a_linked_config(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    write(f"c_{n}", evil(n))
    os.symlink(f"../c_{n}", f"{q}/config")
    repository(q)


@attempt
def a_second_name_for_a_judged_config(n, q):
    module(n, f"../{q}")
    repository(q, GOOD)
    os.link(f"{q}/config", f"alias_{n}")
    write(f"alias_{n}", evil(n))


@attempt
def config_linked_beside_head(n, q):
    module(n, f"../{q}")
    repository(q)
    write(f"c_{n}", evil(n))
    os.symlink(f"../c_{n}", f"{q}/config")


@attempt
def config_renamed_beside_head(n, q):
    module(n, f"../{q}")
    repository(q)
    write(f"c_{n}", evil(n))
    os.rename(f"c_{n}", f"{q}/config")


@attempt
def config_exchanged(n, q):
    module(n, f"../{q}")
    repository(q, GOOD)
    write(f"c_{n}", evil(n))
    exchange(f"{q}/config", f"c_{n}")


@attempt
def config_written_anew(n, q):
    module(n, f"../{q}")
    repository(q, GOOD)
    settle(n)
    write(f"{q}/config", evil(n))


@attempt
def config_without_a_name(n, q):
    module(n, f"../{q}")
    repository(q)
    link_descriptor(nameless(evil(n)), f"{q}/config")


@attempt
def head_renamed(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    write(f"h_{n}", HEAD)
    os.rename(f"h_{n}", f"{q}/HEAD")


@attempt
def head_as_a_symbolic_link(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    os.symlink("refs/heads/x", f"{q}/HEAD")


@attempt
def head_as_a_hard_link(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    write(f"h_{n}", HEAD)
    os.link(f"h_{n}", f"{q}/HEAD")


@attempt
def head_by_mknod(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    os.mknod(f"{q}/HEAD", 0o100644)
    write(f"{q}/HEAD", HEAD, WRITE)


@attempt
def head_without_a_name(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    link_descriptor(nameless(HEAD), f"{q}/HEAD")


@attempt
def head_by_a_dangling_link(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    os.symlink(f"{q}/HEAD", f"h_{n}")
    write(f"h_{n}", HEAD)


@attempt
def head_exchanged_with_a_directory(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    os.mkdir(f"{q}/HEAD")
    write(f"h_{n}", HEAD)
    exchange(f"{q}/HEAD", f"h_{n}")


@attempt
def head_over_a_fifo(n, q):
    module(n, f"../{q}")
    repository(q, evil(n), head=False)
    os.mkfifo(f"{q}/HEAD")
    write(f"h_{n}", HEAD)
    try:
        os.rename(f"h_{n}", f"{q}/HEAD")
    finally:
        if os.path.getsize(f"{q}/HEAD") == 0:
            os.unlink(f"{q}/HEAD")  # git would wait for it


# -- what waits for its last close -------------------------------------------------------------------------------------


@attempt
def a_mapping_outlives_the_close(n, q):
    module(n, f"../{q}")
    repository(q)
    text = evil(n).encode()
    descriptor = opened(f"{q}/config", "#" * len(text))
    kept.append(mmap.mmap(descriptor, len(text)))
    os.close(descriptor)
    settle(n)
    kept[-1][:] = text


@attempt
def a_child_still_writes(n, q):
    module(n, f"../{q}")
    repository(q)
    descriptor = opened(f"{q}/config", GOOD)
    if os.fork() == 0:
        time.sleep(0.2)
        os.pwrite(descriptor, evil(n).encode(), 0)
        os._exit(0)
    os.close(descriptor)
    settle(n)
    os.wait()


@attempt
def opened_again_after_its_close(n, q):
    module(n, f"../{q}")
    repository(q)
    held = again(opened(f"{q}/config", GOOD))
    settle(n)
    rewrite(n, held)
    settle(n)


@attempt
def another_name_before_its_close(n, q):
    module(n, f"../{q}")
    repository(q)
    descriptor = opened(f"{q}/config", GOOD)
    link_descriptor(descriptor, f"alias_{n}")
    os.close(descriptor)
    settle(n)
    write(f"alias_{n}", evil(n))


# -- a descriptor that keeps another name than the file has now --------------------------------------------------------


@attempt
def head_beside_a_config_of_no_name(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    descriptor = nameless(GOOD)
    link_descriptor(descriptor, f"{q}/config")
    held = again(descriptor)
    repository(q)
    rewrite(n, held)


@attempt
def head_beside_a_config_of_another_name(n, q):
    module(n, f"../{q}")
    os.mkdir(q)
    descriptor = opened(f"c_{n}", GOOD)
    os.link(f"c_{n}", f"{q}/config")
    held = again(descriptor)
    os.unlink(f"c_{n}")
    repository(q)
    rewrite(n, held)


@attempt
def the_users_config_of_no_name(n, q):
    with open(".git/config") as file:
        descriptor = nameless(file.read())
    link_descriptor(descriptor, f"c_{n}")
    held = again(descriptor)
    os.rename(f"c_{n}", ".git/config")
    rewrite(n, held)


@attempt
def the_users_config_of_another_name(n, q):
    with open(".git/config") as file:
        descriptor = opened(f"c_{n}", file.read())
    os.link(f"c_{n}", f"d_{n}")
    held = again(descriptor)
    os.unlink(f"c_{n}")
    os.rename(f"d_{n}", ".git/config")
    rewrite(n, held)


# -- other files that name programs, or another place ------------------------------------------------------------------


@attempt
def include(n, q):
    module(n, f"../{q}")
    repository(q)
    write(f"i_{n}", evil(n))
    write(f"{q}/config", f"{GOOD}[include]\n\tpath = ../i_{n}\n")


@attempt
def config_of_the_work_tree(n, q):
    module(n, f"../{q}")
    repository(q, f"{GOOD}[extensions]\n\tworktreeConfig = true\n".replace("= 0", "= 1"))
    write(f"{q}/config.worktree", evil(n))


@attempt
def commondir_in_a_repository(n, q):
    repository(q, evil(n), head=False)
    module(n)
    subprocess.run(["git", "init", "-q", n])
    write(f"{n}/.git/commondir", f"../../{q}\n")


@attempt
def commondir_before_head(n, q):
    repository(q, evil(n), head=False)
    os.mkdir(f"g_{n}")
    write(f"g_{n}/commondir", f"../{q}\n")
    module(n, f"../g_{n}")
    write(f"g_{n}/HEAD", HEAD)


@attempt
def commondir_of_a_linked_work_tree(n, q):
    repository(q, GOOD)
    module(n, f"../{q}/worktrees/N")
    os.makedirs(f"{q}/worktrees/N")
    write(f"{q}/worktrees/N/HEAD", HEAD)
    write(f"{q}/worktrees/N/commondir", "../..\n")
    os.unlink(f"{q}/HEAD")
    write(f"{q}/config", evil(n))


@attempt
def commondir_of_a_renamed_repository(n, q):
    repository(f"{q}.git", GOOD)
    os.makedirs(f"{q}.git/worktrees/N")
    write(f"{q}.git/worktrees/N/HEAD", HEAD)
    write(f"{q}.git/worktrees/N/commondir", "../..\n")
    module(n, f"../{q}/worktrees/N")
    os.unlink(f"{q}.git/HEAD")
    os.rename(f"{q}.git", q)
    os.unlink(f"{q}/config")
    write(f"{q}/config", evil(n))


@attempt
def hooks(n, q):
    module(n)
    subprocess.run(["git", "init", "-q", n])
    os.makedirs(f"{n}/.git/hooks", exist_ok=True)
    write(f"{n}/.git/hooks/post-index-change", hook(n))


@attempt
def hooks_moved_in(n, q):
    module(n, f"../{q}")
    repository(q, GOOD)
    os.mkdir(f"h_{n}")
    write(f"h_{n}/pre-commit", hook(n))
    os.rename(f"h_{n}", f"{q}/hooks")


@attempt
def hooks_linked(n, q):
    module(n, f"../{q}")
    os.mkdir(f"h_{n}")
    write(f"h_{n}/pre-commit", hook(n))
    repository(q, GOOD)
    os.symlink(f"../h_{n}", f"{q}/hooks")


@attempt
def hooks_linked_before_head(n, q):
    module(n, f"../{q}")
    os.mkdir(f"h_{n}")
    write(f"h_{n}/pre-commit", hook(n))
    os.mkdir(q)
    os.symlink(f"../h_{n}", f"{q}/hooks")
    repository(q, GOOD)


@attempt
def hook_in_any_folder(n, q):
    module(n)
    os.mkdir(f"{n}/.hooks")
    write(f"{n}/.hooks/post-index-change", hook(n))


# -- places ------------------------------------------------------------------------------------------------------------


@attempt
def pointer_as_a_symbolic_link(n, q):
    repository(q, GOOD)
    os.mkdir(n)
    os.symlink(f"../{q}", f"{n}/.git")


@attempt
def pointer_as_a_renamed_link(n, q):
    repository(q, GOOD)
    os.mkdir(n)
    os.symlink(f"../{q}", f"l_{n}")
    os.rename(f"l_{n}", f"{n}/.git")


@attempt
def pointer_to_another_repository(n, q):
    module(n, f"{FOREIGN}/.git")


@attempt
def pointer_by_a_link_to_another_repository(n, q):
    os.symlink(FOREIGN, f"l_{n}")
    module(n, f"../l_{n}/.git")


@attempt
def pointer_to_one_that_was_there(n, q):
    module(n, "../fixtures/one")


@attempt
def one_that_was_there_moved_in(n, q):
    repository(q, GOOD)
    module(n, f"../{q}")
    settle(n)
    os.rename(q, f"away_{n}")
    os.rename("fixtures/two", q)


@attempt
def folder_dot_git(n, q):
    module(n)
    os.mkdir(f"{n}/.git")
    repository(f"{n}/.git")
    write(f"{n}/.git/config", evil(n))


@attempt
def folder_moved_to_dot_git(n, q):
    repository(q, evil(n), head=False)
    module(n)
    os.rename(q, f"{n}/.git")
    write(f"{n}/.git/HEAD", HEAD)


@attempt
def folder_with_a_writer_moved_to_dot_git(n, q):
    os.mkdir(q)
    descriptor = opened(f"{q}/config", GOOD)
    module(n)
    os.rename(q, f"{n}/.git")
    repository(f"{n}/.git")
    os.pwrite(descriptor, evil(n).encode(), 0)


@attempt
def folder_exchanged(n, q):
    repository(q, GOOD)
    repository(f"r_{n}", evil(n), head=False)
    module(n, f"../{q}")
    os.unlink(f"{q}/HEAD")
    exchange(q, f"r_{n}")
    write(f"{q}/HEAD", HEAD)


@attempt
def module_of_the_repository(n, q):
    module(n, f"../.git/modules/{n}")
    repository(f".git/modules/{n}")
    write(f".git/modules/{n}/config", evil(n))


@attempt
def module_without_head(n, q):
    place = f".git/modules/{n}"
    repository(place, head=False)
    write(f"{place}/config", evil(n))
    os.makedirs(f"{place}/worktrees/N")
    write(f"{place}/worktrees/N/HEAD", HEAD)
    write(f"{place}/worktrees/N/commondir", "../..\n")
    module(n, f"../{place}/worktrees/N")


@attempt
def hook_of_a_module(n, q):
    module(n, f"../.git/modules/{n}")
    repository(f".git/modules/{n}", GOOD)
    os.mkdir(f".git/modules/{n}/hooks")
    write(f".git/modules/{n}/hooks/post-index-change", hook(n))


@attempt
def in_the_repository(n, q):
    module(n, f"../.git/{n}")
    repository(f".git/{n}")
    write(f".git/{n}/config", evil(n))


@attempt
def in_the_logs(n, q):
    module(n, f"../.git/logs/{n}")
    repository(f".git/logs/{n}")
    write(f".git/logs/{n}/config", evil(n))


@attempt
def commondir_in_the_logs(n, q):
    repository(q, evil(n), head=False)
    module(n, f"../.git/logs/{n}")
    os.mkdir(f".git/logs/{n}")
    write(f".git/logs/{n}/commondir", f"../../../{q}\n")
    write(f".git/logs/{n}/HEAD", HEAD)


@attempt
def moved_into_the_logs(n, q):
    module(n, f"../.git/logs/{n}")
    repository(q, evil(n), head=False)
    os.rename(q, f".git/logs/{n}")
    write(f".git/logs/{n}/HEAD", HEAD)


@attempt
def in_the_references(n, q):
    module(n, f"../.git/refs/{n}")
    os.makedirs(f".git/refs/{n}")
    write(f".git/refs/{n}/config", evil(n))
    repository(f".git/refs/{n}")


@attempt
def docs(n, q):
    os.makedirs("docs/.git/hooks")
    repository("docs/.git")
    write("docs/.git/config", evil(n))


settle("last")
print(json.dumps(results))
