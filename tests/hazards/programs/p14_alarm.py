"""P14: a signal with a handler while an open waits: sent to the process, or to the waiting thread.

p14_alarm.py process|thread
"""

import os
import signal
import sys
import threading


class Late(Exception):
    """Raised by the handler."""


def late(*_: object) -> None:
    raise Late


signal.signal(signal.SIGALRM, late)
os.mkfifo("p")
main = threading.main_thread().ident or 0
if sys.argv[1] == "process":
    signal.setitimer(signal.ITIMER_REAL, 0.1)
else:
    threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGALRM)).start()
try:
    os.open("p", os.O_RDONLY)
except Late:
    print("late")
