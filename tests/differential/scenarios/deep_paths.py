# Names at the edge: 255 bytes, deep trees, 4,095 bytes, newlines, ESC, invalid UTF-8, a removed
# working directory.
import os
import shutil

names = [
    b"n" * 255,
    b"new\nline",
    b"\x1b[31mred",
    b"\xff\xfe\x80",
    b" lead",
    b"trail ",
    b"-dash",
    b"\\back",
    b"'q\"",
    b"%s",
    b"\xe2\x98\x83",
]
for name in names:
    with open(name, "wb") as stream:
        stream.write(name)
    print(os.stat(name).st_size, open(name, "rb").read() == name)
top = os.getcwd()
for depth in range(40):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
    with open("here", "w") as stream:
        stream.write(str(depth))
try:
    print(len(os.getcwd()) > 8000)
except OSError as error:
    print(error)
folder = os.open(".", os.O_RDONLY)
os.chdir(top)
print(os.listdir(folder))
os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder))
os.rename("made", "renamed", src_dir_fd=folder, dst_dir_fd=folder)
print(sorted(os.listdir(folder)), os.stat("renamed", dir_fd=folder).st_size)
for path in ("./" * 2040 + "x", "./" * 2047 + "x", "./" * 2048 + "x"):
    try:
        with open(path, "w") as stream:
            print(len(path), stream.write("y"))
    except OSError as error:
        print(len(path), os.strerror(error.errno))
os.mkdir("leaving")
os.chdir("leaving")
os.rmdir(top + "/leaving")
for act in (
    lambda: open("x", "w"),
    lambda: os.mkdir("y"),
    lambda: os.listdir("."),
    os.getcwd,
    lambda: os.stat(".").st_nlink,
):
    try:
        print(act())
    except OSError as error:
        print(type(error).__name__)
os.chdir(top)
os.close(folder)
shutil.rmtree("d" * 200)
