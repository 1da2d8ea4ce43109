"""Start pincer-trace with a right evaluator whose process misbehaves, or with little patience for it.

    twisted.py TWIST FLAG PATIENCE [pincer-trace's own arguments]

From the moment that the file FLAG exists, what the process answers is changed as TWIST says. Only its own end is
touched: the engine, which reads the answers, is the real one. PATIENCE is in seconds.
"""

import json
import os
import socket
import sys
import time

from pincer_trace.twin import link

twist, flag, patience, *arguments = sys.argv[1:]
link.PATIENCE = float(patience)
honest = link.reply
votes = []  # earlier ones


def is_verdict(answer):
    return len(answer) == 7 and isinstance(answer[4], bool)


def is_vote(answer):
    return len(answer) == 7 and isinstance(answer[4], int) and not isinstance(answer[4], bool)


def say(connection, data, descriptors=()):
    socket.send_fds(connection, [data], descriptors)


def changed(connection, answer):
    """Send something else; True when nothing more is to be sent."""
    if is_verdict(answer):
        if twist == "no-json":
            return say(connection, b"{\xff") or True
        if twist == "deep":
            return say(connection, b"[" * 50_000) or True
        if twist == "huge":
            return say(connection, b"[" + b"1" * 150_000 + b"]") or True
        if twist == "ahead":
            answer[0] += 1
        elif twist == "no-such-rule":
            answer[2] = 10**9
        elif twist == "another-rules-verdict":
            answer[1] = "confirm" if answer[1] == "allow" else "allow"
        elif twist == "allow-without-rule":
            answer[1:3] = ["allow", None]
        elif twist == "no-verdict":
            answer[1] = "perhaps"
        elif twist == "odd-facts":
            answer[6] = [["own", {"a": 1}]]
        elif twist == "allows-all" and answer[2] is not None:
            answer[1:6] = ["allow", RULE, "all is well", False, False]
        elif twist == "twice":
            say(connection, json.dumps(answer).encode())
        elif twist == "descriptors":
            return say(connection, json.dumps(answer).encode(), [0, 1, 2]) or True
        elif twist == "old-ones":
            for number in range(1, answer[0]):
                say(connection, json.dumps([number, *answer[1:]]).encode())
        elif twist == "slow":
            time.sleep(3 * float(patience))
        elif twist == "dies":
            os._exit(0)
    if is_vote(answer):
        votes.append(list(answer))
        if twist == "mac":
            answer[6] = answer[6][::-1]
        elif twist == "stranger":
            answer[2] = "x" * 32
        elif twist == "earlier-vote":
            answer[1:] = votes[0][1:]
        elif twist == "no-text":
            answer[3] = "\u20ac" * 32
        elif twist == "another-request":
            answer[:] = [answer[0], *other_request(answer)]
        elif twist == "vote-dies":
            os._exit(0)
    return False


def other_request(answer):
    """A vote under its own key, well formed, on something else."""
    from pincer_trace.twin.artifact import Share

    share = Share.sign(KEY[0], "right", *(text.encode("latin-1") for text in answer[1:3]), b"\1" * 32, *answer[4:6])
    return [*answer[1:3], link.text(share.digest), *answer[4:6], link.text(share.mac)]


def reply(connection, answer):
    if not os.path.exists(flag):
        if is_vote(answer):
            votes[:] = [list(answer)]
        return honest(connection, answer)
    if not changed(connection, answer):
        honest(connection, answer)
    return None


RULE = 0
KEY = []
link.reply = reply

if twist in ("allows-all", "another-request"):
    from pincer_trace.twin import objects

    class Seen(objects.ObjectEvaluator):
        def __init__(self, profile, keys, *rest):
            global RULE
            super().__init__(profile, keys, *rest)
            RULE = next(rule.rank for rule in profile.rules if rule.verdict == "allow")
            KEY.append(keys.right)

    objects.ObjectEvaluator = Seen

if __name__ == "__main__":
    sys.argv[:] = ["pincer-trace", *arguments]
    from pincer_trace.__main__ import main

    sys.exit(main())
