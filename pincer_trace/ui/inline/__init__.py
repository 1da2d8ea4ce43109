"""`--ui inline`: the command on a terminal of its own, with our lines below what it writes."""
