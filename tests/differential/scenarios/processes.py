# multiprocessing in all its forms: fork, spawn, forkserver, Manager, SharedMemory, Pool, Lock, Queue.
# timeout: 120
import multiprocessing
import os
from multiprocessing import shared_memory


def work(queue, lock, number) -> None:
    """Put the number under the lock, and leave a file."""
    with lock:
        queue.put(number)
        with open(f"made-{number}", "w") as stream:
            stream.write(str(number))


def square(number: int) -> int:
    return number * number


def fill(name: str) -> None:
    block = shared_memory.SharedMemory(name)
    block.buf[:5] = b"hello"
    block.close()


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue, lock = context.Queue(), context.Lock()
        ones = [context.Process(target=work, args=(queue, lock, number)) for number in range(4)]
        for one in ones:
            one.start()
        got = sorted(queue.get(timeout=50) for _ in ones)
        for one in ones:
            one.join()
        print(method, got, [one.exitcode for one in ones])
        block = shared_memory.SharedMemory(create=True, size=64)
        one = context.Process(target=fill, args=(block.name,))
        one.start()
        one.join()
        print(bytes(block.buf[:5]))
        block.close()
        block.unlink()
        with context.Pool(2) as pool:
            print(pool.map(square, range(10)))
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["x"] = [1, 2]
        print(dict(shared))
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, b"child")
        os._exit(5)
    print(os.read(reading, 10), os.waitstatus_to_exitcode(os.wait()[1]))
