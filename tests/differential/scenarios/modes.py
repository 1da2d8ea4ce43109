# umask x kind of object, set-group-id folders, sticky folders, default ACLs (P18).
# both
import os
import shutil
import socket
import stat
import subprocess

for mask in (0, 0o002, 0o022, 0o027, 0o077, 0o777):
    os.umask(mask)
    folder = f"mask{mask:o}"
    subprocess.run(["mkdir", "-m", "755", folder], check=True)
    for mode in (0o600, 0o666, 0o777, 0o6777, 0o1777):
        name = f"{folder}/{mode:o}"
        os.close(os.open(name + "open", os.O_CREAT | os.O_WRONLY, mode))
        os.mkdir(name + "mkdir", mode)
        os.mknod(name + "mknod", stat.S_IFREG | mode)
        os.mkfifo(name + "fifo", mode)
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode))
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(f"{folder}/socket")
    os.symlink("x", f"{folder}/symlink")
    subprocess.run(
        ["sh", "-c", f"umask 0{mask ^ 0o027:o}; : > {folder}/shell; umask 000; mkdir {folder}/shelldir"],
        check=True,
    )
os.umask(0o022)
os.mkdir("shared")
os.chmod("shared", 0o2775)
os.mkdir("shared/below")
open("shared/below/file", "w").close()
print(oct(os.stat("shared/below").st_mode))
os.mkdir("sticky")
os.chmod("sticky", 0o1777)
if shutil.which("setfacl"):
    os.mkdir("acl")
    subprocess.run(["setfacl", "-d", "-m", "u:1:rwx,g::rx,o::-", "acl"], check=True)
    for mask in (0o000, 0o077):
        os.umask(mask)
        for mode in (0o666, 0o777):
            name = f"acl/{mask:o}-{mode:o}-"
            os.close(os.open(name + "open", os.O_CREAT | os.O_WRONLY, mode))
            os.mkdir(name + "mkdir", mode)
            os.mknod(name + "mknod", stat.S_IFREG | mode)
            os.mkfifo(name + "fifo", mode)
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(name + "socket")
