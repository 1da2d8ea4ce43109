"""The plaintext boundary: what a program sees of a protected file, and how what it saves becomes the file again.

Pure: bytes in, bytes out, no system calls. `handles` holds the values, `summary` makes the view of a file, `restoring`
makes the file of an edited view, `formats` finds names and values in bytes.
"""
