"""Compares two table shapes for tasks by bare statements, each with two connections: one updated row, or a row that is
never updated with ready, lease and end rows beside it.

    python3 bench/tables/run.py postgres:///postgres

Prints, for each batch size and shape, the median over the rounds: tasks per second enqueued, drained, and both; bytes of
write-ahead log per task enqueued and drained; bytes per finished task on disk. The schema `shapes` is dropped and created.
"""

import pathlib
import statistics
import subprocess
import sys
import time

TABLES = pathlib.Path(__file__).with_name("tables.sql")
TASKS, ROUNDS = 100_000, 5


def psql(url, *arguments):
    return ["psql", url, "-qAt", "-v", "ON_ERROR_STOP=1", *arguments]


def ask(url, sql):
    return subprocess.run(psql(url, "-c", sql), capture_output=True, text=True, check=True).stdout.strip()


def timed(url, sqls):
    """Runs all of them at once, after a checkpoint. Returns the seconds and the bytes of write-ahead log."""
    ask(url, "checkpoint")
    before, began = ask(url, "select pg_current_wal_lsn()"), time.monotonic()
    running = [subprocess.Popen(psql(url, "-c", sql)) for sql in sqls]
    if any(process.wait() for process in running):
        sys.exit("a statement failed")
    took = time.monotonic() - began
    return took, float(ask(url, f"select pg_current_wal_lsn() - '{before}'::pg_lsn"))


def main(url):
    print("batch  shape  enqueued/s  drained/s  both/s  log enqueue  log drain  on disk")
    for batch in (1, 32, 500):
        tasks = TASKS // 8 if batch == 1 else TASKS
        seen = {"one": [], "apart": []}
        for _ in range(ROUNDS):
            subprocess.run(psql(url, "-f", str(TABLES)), check=True, capture_output=True)
            for shape, rows in seen.items():
                fill, fill_log = timed(url, [f"call shapes.fill_{shape}({tasks // 2}, {batch})"] * 2)
                drain, drain_log = timed(url, [f"call shapes.drain_{shape}({batch}, {n})" for n in (1, 2)])
                size = ask(url, "select sum(pg_total_relation_size(c.oid)) from pg_class c where relkind = 'r' and "
                    f"relnamespace = 'shapes'::regnamespace and relname like '{shape}%'")
                rows.append((tasks / fill, tasks / drain, tasks / (fill + drain), fill_log / tasks, drain_log / tasks,
                    int(size) / tasks))
        for shape, rows in seen.items():
            print(batch, shape, *[round(statistics.median(column)) for column in zip(*rows)], sep="  ")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
