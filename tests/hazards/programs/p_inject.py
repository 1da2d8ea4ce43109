"""Run pincer-trace with one function broken: fault injection for invariant 4 (any failure is a denial, with a record).

    p_inject.py MODULE:NAME[.NAME...]=ERROR[@N] [pincer-trace's own arguments]

ERROR is an exception class of builtins, or the name of an errno for an OSError. With @N only the Nth call raises and
the others do what they always did. The replaced name is looked up before the supervisor starts, and everything after
that is the real program.
"""

import builtins
import errno
import importlib
import os
import sys

os.environ["PINCER_TRACE_PURE"] = "1"  # what is broken is in Python: so every call goes through it


def replace(fault: str) -> None:
    where, _, what = fault.partition("=")
    module, _, names = where.partition(":")
    what, _, count = what.partition("@")
    *path, last = names.split(".")
    holder = importlib.import_module(module)
    for name in path:
        holder = getattr(holder, name)
    original = getattr(holder, last)
    calls = 0

    def raising(*arguments: object, **words: object) -> object:
        nonlocal calls
        calls += 1
        if count and calls != int(count):
            return original(*arguments, **words)
        if what in errno.__dict__:
            raise OSError(getattr(errno, what), "injected")
        raise getattr(builtins, what)("injected")

    setattr(holder, last, raising)


if __name__ == "__main__":
    replace(sys.argv[1])
    sys.argv[:] = ["pincer-trace", *sys.argv[2:]]
    from pincer_trace.__main__ import main

    sys.exit(main())
