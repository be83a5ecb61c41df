"""Peer: DBOS workflows of three no-op steps, started with `DBOS.start_workflow`, all settings at their defaults.

Other settings were tried and were no faster: fewer or more executor threads, a larger pool, async
workflows, a queue. Run by the peers' own Python: `dbos_steps.py DATABASE_URL COUNT SECONDS [BYTES]`; with BYTES
its steps hand on a payload of that size.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version

from dbos import DBOS


@DBOS.step()
def first(number: int) -> None: ...


@DBOS.step()
def second(number: int) -> None: ...


@DBOS.step()
def third(number: int) -> None: ...


@DBOS.workflow()
def three_steps(number: int) -> None:
    first(number)
    second(number)
    third(number)


@DBOS.step()
def hand_on(payload: str) -> str:
    return payload


@DBOS.workflow()
def carry(payload: str) -> None:
    hand_on(hand_on(payload))
    third(0)


def main(url: str, count: int, seconds: float, size: int = 0) -> None:
    """Start `count` workflows, fewer if that takes longer than `seconds`, and wait for all of them."""
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    workflow, argument = (carry, "x" * size) if size else (three_steps, 0)
    for _ in range(3):  # connections and prepared statements are not what is measured
        DBOS.start_workflow(workflow, argument).get_result()
    begun = time.monotonic()
    handles = []
    for _ in range(count):
        handles.append(DBOS.start_workflow(workflow, argument))
        if time.monotonic() - begun > seconds:
            break
    for handle in handles:
        handle.get_result()
    took = time.monotonic() - begun
    line = {
        "name": f"dbos.carry.{size}" if size else "dbos.start_workflow",
        "count": len(handles),
        "seconds": took,
        "per_second": len(handles) / took,
    }
    print(json.dumps({**line, "dbos": version("dbos")}), flush=True)
    os._exit(0)  # its executor threads would hold the process for seconds


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:]))
