"""One condition of `make bench-growth`, in a process of its own. Prints one JSON line.

`python -m tests.benchmarks.growth_script fill KEY SAGAS | measure KEY | workers COUNT`
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from statistics import quantiles
from typing import Any

import psycopg

from sagas import Saga, external_step
from sagas.testing.processes import ProcessGroup
from sagas.worker import Worker
from sagas_django.store import DjangoStore
from sagas_outbox import claims
from sagas_outbox.claims import Room
from tests.benchmarks.filling import fill_due, fill_finished
from tests.benchmarks.ours import EMBEDDED_WORKER, OPEN, asked, backlog, start_noop, transaction, wait_until
from tests.benchmarks.sagas import Noop, NoopInput
from tests.benchmarks.scripts import ROOT

COUNT = 2000  # sagas of one measurement
AGING = 20_000  # sagas that run while the old transaction is open, before anything is measured
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


def fill(key: str, sagas: int) -> None:
    """Bring about the condition."""
    with psycopg.connect(DjangoStore("default").connect().info.dsn, autocommit=True) as connection:
        if key == "finished":
            fill_finished(connection, Noop, sagas)
        if key in ("due", "due-small"):
            with transaction.atomic():
                Noop.start(NoopInput(0), key="model")
            fill_due(connection, name=Noop.saga_name, key="model", count=sagas if key == "due" else 10_000)


def measure(key: str) -> dict[str, Any]:
    """Start sagas and run them, beside whatever there is."""
    with ExitStack() as stack:
        if key == "open":
            old = stack.enter_context(closing(DjangoStore("default").connect()))
            old.execute("begin isolation level repeatable read")
            old.execute("select count(*) from sagas_outbox")
            backlog(AGING)
            run(AGING)
        starts = timed_starts(key)
        taken.clear()
        begun = time.perf_counter()
        run(COUNT)
        took = time.perf_counter() - begun
    p99 = {name: worst_of_a_hundred(each) for name, each in {**taken, "start": starts}.items()}
    return {"per_second": COUNT / took, "p99": p99}


def worst_of_a_hundred(seconds: list[float]) -> float:
    """The 99th percentile, or the worst of fewer."""
    return quantiles(seconds, n=100)[98] if len(seconds) >= 100 else max(seconds)


def timed_starts(key: str) -> list[float]:
    """Start the sagas of one measurement, each in a transaction of its own; returns the seconds of each."""
    seconds: list[float] = []
    for number in range(COUNT):
        begun = time.perf_counter()
        with transaction.atomic():
            if key == "queues":
                SPREAD[number % len(SPREAD)].start(NoopInput(number), key=f"{time.monotonic_ns()}-{number}")
            else:
                start_noop(number, f"{time.monotonic_ns()}-{number}")
        seconds.append(time.perf_counter() - begun)
    return seconds


def run(count: int) -> None:
    """Run so many sagas in this thread, as the embedded worker does, batch by batch."""
    worker = Worker(
        DjangoStore("default"), end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: True,
        draining=lambda: False,
    )  # fmt: skip
    rooms = [Room("default", 100), *(Room(queue, 100) for queue in QUEUES)]
    done = 0
    with closing(worker.store.connect()) as connection:
        while done < count:
            with connection.transaction():
                due = claims.lock_due(connection, rooms, begun=True, now=None)
                begun = worker.begin(connection, [held for held, _ in due], published=False)
            worker.run(worker.take_up(begun))
            done += len(begun)
            if not begun:
                raise RuntimeError(f"nothing is due any more, after {done} of {count} sagas")
    worker.stop()


def workers(count: int) -> dict[str, Any]:
    """One backlog, so many embedded worker processes."""
    sagas = 6000
    backlog(sagas)
    with ProcessGroup() as group:
        processes = [group.start(EMBEDDED_WORKER, cwd=ROOT) for _ in range(count)]
        wait_until(lambda: asked("select exists (select from sagas_outbox where deliveries > 0)"), processes[0],
                   every=0.002, seconds=60)  # fmt: skip
        begun = time.monotonic()
        wait_until(lambda: not asked(OPEN), processes[0], every=0.01, seconds=120)
        took = time.monotonic() - begun
    return {"per_second": sagas / took}


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
        print("{}")
    else:
        timed()
        print(json.dumps(measure(sys.argv[2]) if sys.argv[1] == "measure" else workers(int(sys.argv[2]))))
