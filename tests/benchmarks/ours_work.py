"""Ours: a backlog of other work than three no-op steps, and one embedded worker.

`python -m tests.benchmarks.ours_work KIND COUNT SECONDS [ARGUMENT]`:

inserts   three local steps, each one ORM insert
call      one step that calls a server of 10 ms, by ARGUMENT threads; `BENCH_URL` says where
carry     three steps that hand on a payload of ARGUMENT bytes
single    one step that does nothing
"""

from __future__ import annotations

import sys

from tests.benchmarks.ours import EMBEDDED_WORKER, StartOne, drained
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import Call, Carry, Inserts, NoopInput, Single


def main(kind: str, count: int, seconds: float, argument: int = 0) -> Measurement:
    """Measure one backlog."""
    name = f"ours.{kind}" + (f".{argument}" if argument else "")
    text = "x" * argument
    start: dict[str, StartOne] = {
        "inserts": lambda number, key: Inserts.start(NoopInput(number), key=key),
        "call": lambda number, key: Call.start(NoopInput(number), key=key),
        "carry": lambda number, key: Carry.start(text, key=key),
        "single": lambda number, key: Single.start(NoopInput(number), key=key),
    }
    threads = ("--concurrency", str(argument)) if kind == "call" else ()
    return drained(name, count, seconds, *EMBEDDED_WORKER, *threads, start=start[kind])


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:])).line())
