"""P14: 64 opens that wait, other work meanwhile, and an end for each of them."""

import os
import subprocess
import sys

count = 64
for number in range(count):
    os.mkfifo(f"p{number}")
readers = [subprocess.Popen(["cat", f"p{number}"], stdout=subprocess.PIPE) for number in range(count)]
print("waiting")
sys.stdout.flush()
sys.stdin.readline()
for number in range(200):  # meanwhile others work
    open("f", "w").write(str(number))
    os.rename("f", "g")
print("worked")
sys.stdout.flush()
sys.stdin.readline()
for number, reader in enumerate(readers):
    if number % 4 == 3:
        reader.kill()
        print(number, reader.wait())
    elif number % 4 == 2:
        reader.terminate()
        print(number, reader.wait())
    else:
        with open(f"p{number}", "w") as stream:
            stream.write(f"text {number}")
        print(number, reader.communicate()[0], reader.returncode)
print("all")
