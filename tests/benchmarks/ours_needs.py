"""Ours: what each kind of process holds after some thousand sagas: memory, and connections to Postgres.

`python -m tests.benchmarks.ours_needs COUNT SECONDS` prints two lines for each kind, and the bound of each as a
measurement of its own. Megabytes and connections stand where other measurements have seconds. Memory is what belongs to
the process alone, with its share of what it has in common with others (PSS).
"""

from __future__ import annotations

import sys
from pathlib import Path

from sagas.testing.processes import Process, ProcessGroup
from tests.benchmarks.celery_app import app
from tests.benchmarks.ours import (
    CELERY_WORKER,
    EMBEDDED_WORKER,
    OPEN,
    RELAY,
    asked,
    backlog,
    clear,
    connection,
    wait_until,
)
from tests.benchmarks.report import Measurement
from tests.benchmarks.scripts import ROOT

CONNECTIONS = """select count(*) from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"""
CHILDREN = 2  # of the Celery worker
BOUNDS = {  # megabytes, connections
    "embedded": (150, 16),
    "relay": (120, 8),
    "celery_child": (120, 5),
}


def memory(pid: int) -> float:
    """Megabytes of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/smaps_rollup says nothing of Pss")


def connections() -> int:
    """How many others have, in this database."""
    with connection.cursor() as cursor:
        cursor.execute(CONNECTIONS)
        return int(cursor.fetchone()[0])


def children(process: Process) -> list[int]:
    """The child processes of one process."""
    pid = process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def work_off(count: int, process: Process, seconds: float) -> None:
    """Let a backlog be worked off."""
    backlog(count)
    wait_until(lambda: not asked(OPEN), process, every=0.02, seconds=seconds)


def main(count: int, seconds: float) -> None:
    """Look at each kind of process after its work."""
    clear()
    found: dict[str, tuple[float, float]] = {}
    with ProcessGroup() as group:
        before = connections()
        embedded = group.start(EMBEDDED_WORKER, cwd=ROOT)
        work_off(count, embedded, seconds)
        found["embedded"] = memory(embedded.pid), connections() - before
    with ProcessGroup() as group:
        app.control.purge()
        before = connections()
        worker = group.start(CELERY_WORKER, cwd=ROOT)
        wait_until(lambda: bool(app.control.ping(timeout=0.5, limit=1)), worker, every=0.0, seconds=seconds)
        relay = group.start(RELAY, cwd=ROOT)
        work_off(count, relay, seconds)
        both, of_relay = connections() - before, memory(relay.pid)
        relay.terminate()
        relay.wait(15)
        of_children = connections() - before
        found["relay"] = of_relay, both - of_children
        busy = [memory(child) for child in children(worker)]
        found["celery_child"] = max(busy), of_children / CHILDREN
    for kind, (megabytes, held) in found.items():
        for what, value, bound in zip(("memory", "connections"), (megabytes, held), BOUNDS[kind], strict=True):
            print(Measurement(name=f"ours.{what}_{kind}", count=1, seconds=value).line())
            print(Measurement(name=f"bound.{what}_{kind}", count=1, seconds=bound).line())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
