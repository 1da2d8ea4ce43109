"""Recorded decisions, looked at again: under another profile (`replay`), and one by one (`why`). For people."""
