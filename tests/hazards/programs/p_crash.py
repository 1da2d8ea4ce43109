"""Run pincer-trace with an engine that is killed at one step of the first effect of one kind.

    p_crash.py FUNCTION=STEP [pincer-trace's own arguments]

FUNCTION (module:name.name) performs that kind of effect; from its first call on, the engine ends itself by SIGKILL as
soon as STEP (the same, "before" or "after" behind it) is reached. Everything else is the real program.
"""

import importlib
import os
import signal
import sys


def place(where: str) -> tuple[object, str]:
    module, _, names = where.partition(":")
    *path, last = names.split(".")
    holder = importlib.import_module(module)
    for name in path:
        holder = getattr(holder, name)
    return holder, last


def arrange(effect: str, step: str) -> None:
    step, _, moment = step.partition(" ")
    begun = []
    holder, name = place(effect)
    performs = getattr(holder, name)

    def begin(*arguments: object, **words: object) -> object:
        begun.append(1)
        return performs(*arguments, **words)

    setattr(holder, name, begin)
    holder, last = place(step)
    original = getattr(holder, last)

    def reach(*arguments: object, **words: object) -> object:
        if begun and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **words)
        if begun and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, last, reach)


if __name__ == "__main__":
    arrange(*sys.argv[1].split("="))
    sys.argv[:] = ["pincer-trace", *sys.argv[2:]]
    from pincer_trace.__main__ import main

    sys.exit(main())
