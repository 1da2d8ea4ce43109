"""The kernel's interface: system-call table, filter, Landlock, notifications, and the state of tasks in /proc.

Only this folder touches ctypes, ioctl numbers and struct layouts.
"""
