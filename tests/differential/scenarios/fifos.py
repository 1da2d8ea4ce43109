# 64 FIFOs, each with a reader and a writer that come in either order, while another process keeps
# working (P14).
# timeout: 90
import os
import subprocess
import sys
import threading
import time

COUNT = 64
for number in range(COUNT):
    os.mkfifo(f"p{number}")
results: dict[int, bytes] = {}


def read(number: int) -> None:
    results[number] = subprocess.run(["cat", f"p{number}"], stdout=subprocess.PIPE).stdout


threads = [threading.Thread(target=read, args=(number,)) for number in range(0, COUNT, 2)]
for thread in threads:
    thread.start()
time.sleep(0.5)
for number in range(200):
    with open("busy", "w") as stream:
        stream.write(str(number))
print("others work while 32 wait", open("busy").read())
writers = [subprocess.Popen(["sh", "-c", f"echo {number} > p{number}"]) for number in range(COUNT)]
more = [threading.Thread(target=read, args=(number,)) for number in range(1, COUNT, 2)]
for thread in more:
    thread.start()
for thread in threads + more:
    thread.join()
print([writer.wait() for writer in writers] == [0] * COUNT)
print([results[number] for number in range(COUNT)])
print(subprocess.run(["timeout", "0.3", "cat", "p0"]).returncode)
for attempt in range(200):  # supervised, an open that is cancelled may outlive its caller by some ms
    try:
        os.close(os.open("p0", os.O_WRONLY | os.O_NONBLOCK))
        time.sleep(0.01)
    except OSError as error:
        print(error)
        break
both = os.open("p0", os.O_RDWR)
os.write(both, b"x")
print(os.read(both, 1))
sys.exit(0)
