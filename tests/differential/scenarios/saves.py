# How editors and tools save: temporary file, fsync, rename; backup by link; in place; exchange;
# O_TMPFILE and linkat.
import ctypes
import mmap
import os
import tempfile

for number in range(50):
    handle, name = tempfile.mkstemp(dir=".", prefix=".save")
    os.write(handle, b"version %d" % number)
    os.fsync(handle)
    os.fchmod(handle, 0o644)
    os.close(handle)
    os.replace(name, "saved")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
print(open("saved").read(), os.listdir("."))
os.link("saved", "saved~")
with open("saved", "r+") as stream:
    stream.write("VERSION")
print(open("saved~").read(), os.stat("saved").st_nlink)
os.unlink("saved~")
handle = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(handle, b"unnamed")
libc = ctypes.CDLL(None, use_errno=True)
print(libc.linkat(-100, b"/proc/self/fd/%d" % handle, -100, b"named", 0x400))
os.close(handle)
print(open("named").read(), oct(os.stat("named").st_mode))
print(libc.renameat2(-100, b"saved", -100, b"named", 2), open("saved").read(), open("named").read())
print(libc.renameat2(-100, b"saved", -100, b"named", 1), os.strerror(ctypes.get_errno()))
with open("log", "a") as stream:
    stream.write("one\n")
with open("log", "a") as stream:
    stream.write("two\n")
print(open("log").read())
with open("map", "wb+") as stream:
    stream.truncate(8192)
    with mmap.mmap(stream.fileno(), 8192) as area:
        area[4096:4101] = b"hello"
        area.flush()
print(open("map", "rb").read()[4090:4105])
os.truncate("map", 5000)
fd = os.open("map", os.O_RDWR)
os.posix_fallocate(fd, 0, 6000)
os.copy_file_range(fd, fd, 10, 4096, 100)
os.close(fd)
