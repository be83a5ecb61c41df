"""Peer: how long an idle DBOS takes from enqueueing a workflow to its first line. Its queues poll.

Run by the peers' own Python: `dbos_idle.py DATABASE_URL COUNT SECONDS`. The figure is the median, as seconds for one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib.metadata import version
from statistics import median

from dbos import DBOS

begins: dict[int, float] = {}
began = threading.Event()


@DBOS.workflow()
def note(number: int) -> None:
    begins[number] = time.monotonic()
    began.set()


def main(url: str, count: int, seconds: float) -> None:
    """Enqueue one workflow after the other, each when the one before has long begun."""
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    queue = DBOS.register_queue("bench-idle")
    taken: list[float] = []
    end = time.monotonic() + seconds
    for number in range(count):
        time.sleep(0.13 * (number % 5))  # at different moments of its polling interval
        began.clear()
        asked = time.monotonic()
        queue.enqueue(note, number)
        began.wait(10)
        taken.append(begins[number] - asked)
        if time.monotonic() > end:
            break
    line = {"name": "dbos.idle", "count": 1, "seconds": median(taken), "samples": len(taken)}
    print(json.dumps({**line, "dbos": version("dbos"), "worst": max(taken)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
