"""Ours: how long it takes from the commit of `start()` to the first line of the step while workers are half busy.

`python -m tests.benchmarks.ours_loaded embedded|celery COUNT SECONDS`. First a backlog of COUNT sagas of three steps
tells how many a second are started and worked off; then, for SECONDS, half as many are started evenly, by a process of
its own, and beside them ten a second of one step, whose times are the figure: median and 99th percentile, as seconds
for one.
`... ours_loaded feed RATE SECONDS` is that process.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from statistics import median, quantiles
from uuid import uuid4

from sagas.testing.processes import ProcessGroup
from tests.benchmarks.celery_app import app
from tests.benchmarks.ours import (
    CELERY_WORKER,
    EMBEDDED_WORKER,
    OPEN,
    RELAY,
    asked,
    clear,
    connection,
    drained,
    start_noop,
    transaction,
    wait_until,
)
from tests.benchmarks.ours_idle import BEGAN
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import NoopInput, Single
from tests.benchmarks.scripts import ROOT

SHARE = 0.5  # of what was worked off
TOGETHER = 5  # sagas in one transaction of the load
EVERY = 0.1  # seconds between two of those that are timed
PATIENCE = 30.0  # seconds, beyond the measured ones, until all is worked off
BUDGETS = {"embedded": (0.05, 0.5), "celery": (0.1, 0.75)}  # seconds: median, 99th percentile


def feed(rate: float, seconds: float) -> None:
    """Start so many sagas a second, evenly."""
    begun, number, prefix = time.monotonic(), 0, uuid4()
    while (now := time.monotonic() - begun) < seconds:
        if number > now * rate:
            time.sleep(number / rate - now)
        with transaction.atomic():
            for _ in range(TOGETHER):
                number += 1
                start_noop(number, f"{prefix}-{number}")
    print(f"fed {number}")


def main(kind: str, count: int, seconds: float) -> None:
    """Measure the times under load."""
    clear()
    with ExitStack() as stack:
        group = stack.enter_context(ProcessGroup())
        command = EMBEDDED_WORKER
        if kind == "celery":
            command = RELAY
            app.control.purge()
            worker = group.start(CELERY_WORKER, cwd=ROOT)
            wait_until(lambda: bool(app.control.ping(timeout=0.5, limit=1)), worker, every=0.0, seconds=PATIENCE)
        drained("", 100, seconds, *command)  # connections and plans are not what is measured
        rate = SHARE * float(drained("", count, seconds, *command).notes["per_second_with_starts"])
        process = group.start(command, cwd=ROOT)
        feeder = group.start((sys.executable, "-m", __spec__.name, "feed", str(rate), str(seconds)), cwd=ROOT)
        committed = times(seconds)
        feeder.wait(seconds + PATIENCE)
        fed = int(feeder.output().split("fed ")[-1].split()[0])
        wait_until(lambda: not asked(OPEN), process, every=0.05, seconds=PATIENCE)
    with connection.cursor() as cursor:
        taken = []
        for key, moment in committed.items():
            cursor.execute(BEGAN, [key])
            taken.append(float(cursor.fetchone()[0]) - moment)
    p99 = quantiles(taken, n=100)[98]
    notes = {"samples": len(taken), "load_per_second": round(fed / seconds, 1), "asked_for": round(rate, 1)}
    print(Measurement(name=f"ours.loaded_{kind}", count=1, seconds=median(taken), notes=notes).line())
    print(Measurement(name=f"ours.loaded_{kind}_p99", count=1, seconds=p99, notes=notes).line())
    for name, budget in zip((f"budget.loaded_{kind}", f"budget.loaded_{kind}_p99"), BUDGETS[kind], strict=True):
        print(Measurement(name=name, count=1, seconds=budget).line())


def times(seconds: float) -> dict[str, float]:
    """Start sagas of one step beside the load, once it runs evenly; when each was committed, by its key."""
    committed = {}
    time.sleep(min(2.0, seconds / 4))  # processes start
    end = time.monotonic() + seconds * 3 / 4 - 0.5
    while time.monotonic() < end:
        key = f"loaded-{uuid4()}"
        with transaction.atomic():
            Single.start(NoopInput(0), key=key)
        committed[key] = time.monotonic()
        time.sleep(EVERY)
    return committed


if __name__ == "__main__":
    if sys.argv[1] == "feed":
        feed(float(sys.argv[2]), float(sys.argv[3]))
    else:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
