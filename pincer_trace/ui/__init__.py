"""For people: what a session asks, and their answers. Never imported by a run."""
