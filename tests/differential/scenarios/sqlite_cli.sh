# The sqlite3 shell: rollback journal, temporary tables, backup, dump.
# needs: sqlite3
# contents: \.db$
sqlite3 a.db 'CREATE TABLE t(x); INSERT INTO t VALUES (1),(2),(3); SELECT sum(x) FROM t;'
sqlite3 a.db 'BEGIN; DELETE FROM t; ROLLBACK; SELECT count(*) FROM t;'
sqlite3 a.db '.backup b.db'
sqlite3 b.db .dump
sqlite3 a.db "ATTACH 'c.db' AS c; CREATE TABLE c.u AS SELECT * FROM t; SELECT count(*) FROM c.u;"
