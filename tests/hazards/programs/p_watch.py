"""A viewer: `p_watch.py SESSION` tells each piece of news as a line, and answers each line of standard input."""

import json
import os
import select
import sys

from pincer_trace.errors import UserError
from pincer_trace.ledger.read import load_session
from pincer_trace.ui.feed import Feed

with Feed(load_session(sys.argv[1])) as feed:
    feed.watch()
    poll = select.poll()
    poll.register(feed, select.POLLIN)
    poll.register(0, select.POLLIN)
    try:
        while True:
            while (news := feed.news(0)) is not None:
                print(json.dumps(news), flush=True)
            for ready, _ in poll.poll():
                if ready:
                    continue
                line = os.read(0, 4096)
                if not line:
                    raise SystemExit
                print(json.dumps(feed.ask(**json.loads(line))), flush=True)
    except UserError as ended:
        print(json.dumps({"event": "end", "words": str(ended)}), flush=True)
