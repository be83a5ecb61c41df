"""Peer: absurd tasks of three no-op steps, one worker with `concurrency` threads.

Run by the peers' own Python: `absurd_steps.py DATABASE_URL COUNT SECONDS CONCURRENCY`. The time is that of the worker,
from a backlog to its end; what is spawned before that does not count.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib.metadata import version

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

done = threading.Semaphore(0)


def main(url: str, count: int, seconds: float, concurrency: int) -> None:
    """Spawn a backlog of `count` tasks, and let one worker run it, as far as `seconds` allow."""
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_namespace where nspname = 'absurd'").fetchone():
            connection.execute(BUNDLED_SCHEMA_SQL)
    app = Absurd(url, queue_name=f"bench{os.getpid()}")
    app.create_queue()

    @app.register_task(name="three-steps")
    def three_steps(params, context):  # type: ignore[no-untyped-def]  # no typing tools here
        for name in ("first", "second", "third"):
            context.step(name, lambda: None)
        done.release()

    for number in range(count):
        app.spawn("three-steps", {"number": number})
    begun = time.monotonic()
    threading.Thread(target=app.start_worker, kwargs={"concurrency": concurrency}, daemon=True).start()
    finished = 0
    while finished < count and done.acquire(timeout=max(0.0, begun + seconds - time.monotonic())):
        finished += 1
    took = time.monotonic() - begun
    line = {"name": "absurd.worker", "count": finished, "seconds": took, "per_second": finished / took}
    print(json.dumps({**line, "absurd": version("absurd-sdk"), "concurrency": concurrency}), flush=True)
    os._exit(0)  # its threads would hold the process


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
