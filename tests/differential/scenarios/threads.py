# 16 threads making, renaming and removing files at once; a thread with its leader gone; vfork and
# exec (P23, P94).
import os
import subprocess
import threading


def work(number: int) -> None:
    for turn in range(40):
        name = f"t{number}-{turn}"
        with open(name, "w") as stream:
            stream.write(name)
        os.rename(name, name + ".done")
        if turn % 2:
            os.unlink(name + ".done")
        else:
            os.link(name + ".done", name + ".link")


threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(os.listdir(".")))
print(sum(subprocess.run(["sh", "-c", f"echo {n} > s{n}"]).returncode for n in range(50)))
pids = [
    os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", "echo hi"],
        {},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, f"spawned{n}", os.O_CREAT | os.O_WRONLY, 0o644)],
    )
    for n in range(50)
]
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 50)
print(all(open(f"spawned{n}").read() == "hi\n" for n in range(50)))
