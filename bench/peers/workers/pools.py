"""Pools of Python processes: the round trip of one call, and calls per second.

    python3 pools.py processpool|loky CALLS WORKERS

Warms up with a hundred calls per worker, so that every process is up. Then measures one call at a time, and then all at once.
"""

import json
import sys
import time

WARM = 100


def noop(payload):
    return payload


def pool(name, workers):
    if name == "loky":
        import loky

        return loky.get_reusable_executor(max_workers=workers), loky.__version__
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(max_workers=workers), sys.version.split()[0]


def main():
    name, calls, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    executor, version = pool(name, workers)
    for future in [executor.submit(noop, {"n": n}) for n in range(WARM * workers)]:
        future.result()
    took = []
    for n in range(calls):
        began = time.perf_counter_ns()
        executor.submit(noop, {"n": n}).result()
        took.append(time.perf_counter_ns() - began)
    began = time.perf_counter()
    futures = [executor.submit(noop, {"n": n}) for n in range(calls)]
    for future in futures:
        future.result()
    rate = calls / (time.perf_counter() - began)
    took.sort()
    print(json.dumps({"version": version, "p50_us": took[calls // 2] / 1000, "per_second": rate}))
    executor.shutdown()


if __name__ == "__main__":
    main()
