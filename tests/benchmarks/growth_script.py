"""One point of a curve of `make bench-growth`, in a process of its own. Prints one JSON line.

`python -m tests.benchmarks.growth_script fill CURVE AMOUNT | measure CURVE AMOUNT COUNT | workers PROCESSES COUNT`
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from statistics import quantiles
from typing import Any

import psycopg

from sagas import Saga, external_step
from sagas.embedded import Embedded
from sagas.testing.processes import ProcessGroup
from sagas_django.store import DjangoStore
from tests.benchmarks.filling import fill_due, fill_finished, fill_past
from tests.benchmarks.ours import (
    EMBEDDED_WORKER,
    OPEN,
    TOUCHED,
    asked,
    backlog,
    clear,
    start_noop,
    transaction,
    wait_until,
)
from tests.benchmarks.sagas import Noop, NoopInput
from tests.benchmarks.scripts import ROOT

PATIENCE = 5  # seconds without any due row
WARM_UP = 200  # sagas: connections and plans are not what is measured
QUEUES = [f"queue-{number}" for number in range(50)]
STATEMENTS = {"-- Begin": "begin", "-- Record": "record", "-- Lock due": "claim"}  # by how their SQL begins


def _in_queue(queue: str) -> type[Saga[NoopInput]]:
    class InQueue(Saga[NoopInput], name=f"bench.{queue}", version=1):
        """Three steps that do nothing, in one of many queues."""

        @external_step(compensate=None, queue=queue)
        def first(self) -> None: ...

        @external_step(compensate=None, queue=queue)
        def second(self) -> None: ...

        @external_step(pivot=True, queue=queue)
        def third(self) -> None: ...

    return InQueue


SPREAD = [_in_queue(queue) for queue in QUEUES]
taken: dict[str, list[float]] = defaultdict(list)
running: list[Embedded] = []  # one for all runs of a process, so that it has measured what it runs


def timed() -> None:
    """From now on it is noted how long our statements take."""
    execute = psycopg.Cursor.execute

    def noting(cursor: psycopg.Cursor[Any], query: Any, *arguments: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return execute(cursor, query, *arguments, **options)
        finally:
            for start, name in STATEMENTS.items():
                if str(query).startswith(start):
                    taken[name].append(time.perf_counter() - begun)

    psycopg.Cursor.execute = noting  # type: ignore[method-assign]


def fill(key: str, amount: int) -> None:
    """Bring about the condition."""
    with psycopg.connect(DjangoStore("default").connect().info.dsn, autocommit=True) as connection:
        if key == "finished":
            fill_finished(connection, Noop, amount)
        if key == "due":
            with transaction.atomic():
                Noop.start(NoopInput(0), key="model")
            fill_due(connection, name=Noop.saga_name, key="model", count=amount)
        if key == "open" and amount:
            with transaction.atomic():
                Noop.start(NoopInput(0), key="model")
            fill_past(connection, name=Noop.saga_name, key="model", count=amount)


def measure(key: str, amount: int, count: int) -> dict[str, Any]:
    """Start sagas and run them, beside whatever there is."""
    timed_starts(key, amount, WARM_UP)
    run(WARM_UP)
    starts = timed_starts(key, amount, count)
    taken.clear()
    begun = time.perf_counter()
    run(count)
    took = time.perf_counter() - begun
    p99 = {name: worst_of_a_hundred(each) for name, each in {**taken, "start": starts}.items()}
    return {"per_second": count / took, "p99": p99}


def worst_of_a_hundred(seconds: list[float]) -> float:
    """The 99th percentile, or the worst of fewer."""
    return quantiles(seconds, n=100)[98] if len(seconds) >= 100 else max(seconds)


def timed_starts(key: str, amount: int, count: int) -> list[float]:
    """Start the sagas of one measurement, each in a transaction of its own; returns the seconds of each."""
    seconds: list[float] = []
    for number in range(count):
        begun = time.perf_counter()
        with transaction.atomic():
            if key == "queues":
                SPREAD[number % amount].start(NoopInput(number), key=f"{time.monotonic_ns()}-{number}")
            else:
                start_noop(number, f"{time.monotonic_ns()}-{number}")
        seconds.append(time.perf_counter() - begun)
    return seconds


def run(count: int) -> None:
    """Run so many sagas in this thread, as the embedded worker does, batch by batch."""
    if not running:
        running.append(Embedded(DjangoStore("default"), concurrency=1))
    embedded, done, nothing = running[0], 0, 0
    while done < count:
        found = embedded._claim(1)  # the very claim of the product, with its low-water marks
        for job in found.jobs:
            embedded.worker.run(embedded.worker.take_up(job))
            done += len(job)
        nothing = 0 if found else nothing + 1
        if nothing > PATIENCE * 100:
            raise RuntimeError(f"nothing is due any more, after {done} of {count} sagas")
        if not found:
            time.sleep(0.01)


def workers(processes: int, count: int) -> dict[str, Any]:
    """One backlog, so many embedded worker processes."""
    clear()
    backlog(count)
    with ProcessGroup() as group:
        started = [group.start(EMBEDDED_WORKER, cwd=ROOT) for _ in range(processes)]
        wait_until(lambda: asked(TOUCHED) or not asked(OPEN), started[0], every=0.002, seconds=60)
        begun = time.monotonic()
        wait_until(lambda: not asked(OPEN), started[0], every=0.01, seconds=120)
        took = time.monotonic() - begun
    return {"per_second": count / took}


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "fill":
        fill(words[0], int(words[1]))
        print("{}")
    elif command == "measure":
        timed()
        print(json.dumps(measure(words[0], int(words[1]), int(words[2]))))
    else:
        print(json.dumps(workers(int(words[0]), int(words[1]))))
