# A database in WAL mode with two writing processes, a reader, a checkpoint and a vacuum.
# contents: \.db
# timeout: 120
import multiprocessing
import sqlite3


def write(name: int) -> None:
    """Insert 150 rows, one transaction each, waiting for the other's lock."""
    connection = sqlite3.connect("data.db", timeout=50, isolation_level=None)
    connection.execute("PRAGMA busy_timeout=50000")
    for number in range(150):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?, ?)", (name, number))
        connection.execute("COMMIT")
    connection.close()


if __name__ == "__main__":
    first = sqlite3.connect("data.db", timeout=50)
    print(first.execute("PRAGMA journal_mode=WAL").fetchone())
    first.execute("CREATE TABLE t (who INTEGER, n INTEGER, UNIQUE (who, n))")
    first.commit()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write, args=(name,)) for name in (1, 2)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
        print(each.exitcode)
    print(first.execute("SELECT who, count(*), sum(n) FROM t GROUP BY who").fetchall())
    print(first.execute("PRAGMA integrity_check").fetchone())
    print(first.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
    first.execute("VACUUM")
    first.close()
