"""Ours: a backlog of sagas, one relay and one Celery worker with two prefork processes.

`python -m tests.benchmarks.ours_celery COUNT SECONDS [NAME]`. The worker is ready and warm before the relay starts.
"""

from __future__ import annotations

import sys

from sagas.testing.processes import ProcessGroup
from tests.benchmarks.celery_app import app
from tests.benchmarks.ours import CELERY_WORKER, RELAY, drained, wait_until
from tests.benchmarks.scripts import ROOT

WARM_UP = 20  # sagas: both processes have connected and run something before it counts


def main(count: int, seconds: float, name: str = "ours.celery") -> None:
    """Measure one backlog."""
    app.control.purge()  # of a run that was cut short
    with ProcessGroup() as group:
        worker = group.start(CELERY_WORKER, cwd=ROOT)
        wait_until(lambda: bool(app.control.ping(timeout=0.5, limit=1)), worker, every=0.0, seconds=seconds)
        drained("warm-up", WARM_UP, seconds, *RELAY)
        print(drained(name, count, seconds, *RELAY).line())
        worker.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
