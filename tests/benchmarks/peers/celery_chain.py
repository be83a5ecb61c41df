"""Peer: bare Celery chains of three no-op tasks over Redis, one worker with two prefork processes.

The backlog is published while the worker, ready and warm, does not yet listen to its queue; time counts from
the moment it is told to. Run by the peers' own Python: `REDIS_URL=... celery_chain.py COUNT SECONDS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version

from celery import chain
from celery_tasks import DONE, app, counter, first, second, third

WORKER = ["-A", "celery_tasks", "worker", "-c", "2", "-P", "prefork", "-Q", "idle", "-l", "ERROR"]
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]


def main(count: int, seconds: float) -> None:
    """Run a backlog of `count` chains, as far as `seconds` allow."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", *WORKER, *QUIET], cwd=os.path.dirname(__file__), stdout=subprocess.DEVNULL
    )
    try:
        app.control.purge()  # of a run that was cut short
        wait_until(lambda: bool(app.control.ping(timeout=0.5, limit=1)), 20)
        run(20, 20)  # both processes have run something before it counts
        app.control.cancel_consumer("bench", reply=True, limit=1)
        done, took = run(count, seconds)
    finally:
        worker.kill()
        worker.wait()
    line = {"name": "celery.chain", "count": done, "seconds": took, "per_second": done / took}
    print(json.dumps({**line, "celery": version("celery"), "redis": version("redis")}), flush=True)


def run(count: int, seconds: float) -> tuple[int, float]:
    """Publish chains, let the worker have them, and return how many were done in what time."""
    counter.delete(DONE)
    for number in range(count):
        chain(first.s(number), second.s(), third.s()).apply_async()
    early = finished()  # 0, or one whose message was under way when the worker stopped listening
    begun = time.monotonic()
    app.control.add_consumer("bench")
    wait_until(lambda: finished() >= count, seconds)
    return finished() - early, time.monotonic() - begun


def finished() -> int:
    """Chains that are done."""
    return int(counter.get(DONE) or 0)


def wait_until(happened, seconds: float) -> bool:  # type: ignore[no-untyped-def]  # no typing tools here
    """Look every 5 ms, no longer than `seconds`."""
    end = time.monotonic() + seconds
    while not (there := happened()) and time.monotonic() < end:
        time.sleep(0.005)
    return there


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
