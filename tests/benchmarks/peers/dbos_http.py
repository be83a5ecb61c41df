"""Peer: DBOS workflows of one step that calls a local server which takes 10 ms to answer.

Run by the peers' own Python: `dbos_http.py DATABASE_URL URL COUNT SECONDS CONCURRENCY`; so many executor threads.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from importlib.metadata import version

from dbos import DBOS


@DBOS.step()
def call(url: str) -> int:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return int(answer.status)


@DBOS.workflow()
def one_call(url: str) -> int:
    return call(url)


def main(dsn: str, url: str, count: int, seconds: float, concurrency: int) -> None:
    """Start `count` workflows, fewer if that takes longer than `seconds`, and wait for all of them."""
    DBOS(config={"name": "bench", "system_database_url": dsn, "log_level": "ERROR",
                 "max_executor_threads": concurrency})  # fmt: skip
    DBOS.launch()
    for _ in range(5):
        DBOS.start_workflow(one_call, url).get_result()
    begun = time.monotonic()
    handles = []
    for _ in range(count):
        handles.append(DBOS.start_workflow(one_call, url))
        if time.monotonic() - begun > seconds:
            break
    for handle in handles:
        handle.get_result()
    took = time.monotonic() - begun
    line = {"name": f"dbos.http.{concurrency}", "count": len(handles), "seconds": took}
    print(json.dumps({**line, "per_second": len(handles) / took, "dbos": version("dbos")}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
