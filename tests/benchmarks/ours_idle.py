"""Ours: how long an idle worker takes from the commit of `start()` to the first line of the step.

`python -m tests.benchmarks.ours_idle embedded|celery COUNT SECONDS`. The figure is the median, as seconds for one;
beside it stands the budget that it is held against, as a measurement of its own. Both clocks are the machine's
monotonic one.
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
    transaction,
    wait_until,
)
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import NoopInput, Single
from tests.benchmarks.scripts import ROOT

BUDGETS = {"embedded": (0.010, 0.1), "celery": (0.025, 0.2)}  # seconds: median, 99th percentile


BEGAN = """select (l.data->>'result')::float8 from sagas_saga s join sagas_log l on l.saga_id = s.id
    where s.name = 'bench.single' and s.key = %s and l.kind = 'step_done'"""


def began(key: str) -> float:
    """When the step began, as it said itself."""
    with connection.cursor() as cursor:
        cursor.execute(BEGAN, [key])
        return float(cursor.fetchone()[0])


def main(kind: str, count: int, seconds: float) -> None:
    """Start one saga after the other, each when the one before is over and the worker idle again."""
    clear()
    taken: list[float] = []
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        group = stack.enter_context(ProcessGroup())
        if kind == "celery":
            app.control.purge()
            worker = group.start(CELERY_WORKER, cwd=ROOT)
            wait_until(lambda: bool(app.control.ping(timeout=0.5, limit=1)), worker, every=0.0, seconds=seconds)
            process = group.start(RELAY, cwd=ROOT)
        else:
            process = group.start(EMBEDDED_WORKER, cwd=ROOT)
        for number in range(count + 5):
            key = f"idle-{uuid4()}"
            with transaction.atomic():
                Single.start(NoopInput(number), key=key)
            committed = time.monotonic()
            wait_until(lambda: not asked(OPEN), process, every=0.005, seconds=seconds)
            time.sleep(0.02 + 0.007 * (number % 7))  # idle again, at different moments of whatever it waits for
            if number >= 5:  # connections and plans are not what is measured
                taken.append(began(key) - committed)
            if time.monotonic() > end:
                break
    p99 = quantiles(taken, n=100)[98]
    about = {"samples": len(taken), "p99": round(p99, 6), "worst": round(max(taken), 6)}
    print(Measurement(name=f"ours.idle_{kind}", count=1, seconds=median(taken), notes=about).line())
    print(Measurement(name=f"ours.idle_{kind}_p99", count=1, seconds=p99, notes=about).line())
    for name, budget in zip((f"budget.idle_{kind}", f"budget.idle_{kind}_p99"), BUDGETS[kind], strict=True):
        print(Measurement(name=name, count=1, seconds=budget).line())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
