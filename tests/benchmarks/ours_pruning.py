"""Ours: a backlog of sagas and one embedded worker, with and without old sagas to prune beside it.

`python -m tests.benchmarks.ours_pruning COUNT SECONDS` prints a line for each. Both run in the same tables, full of
sagas that ended long ago, by turns: without, with, with, without.
"""

from __future__ import annotations

import json
import os
import sys

import psycopg

from sagas_django.store import DjangoStore
from tests.benchmarks.filling import fill_finished
from tests.benchmarks.ours import EMBEDDED_WORKER, connection, drained
from tests.benchmarks.report import Measurement
from tests.benchmarks.sagas import Noop
from tests.benchmarks.scripts import NotRun

OLD = 20_000  # sagas that may be pruned: more than one measurement prunes
DAYS = 400  # since they ended
LEFT = "select count(*) from sagas_saga where key like 'finished-%'"


def main(count: int, seconds: float) -> None:
    """Measure both twice."""
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        left = int(cursor.fetchone()[0])
        cursor.execute("select count(*) from sagas_tombstone")
        gone = int(cursor.fetchone()[0])
    with psycopg.connect(DjangoStore("default").connect().info.dsn, autocommit=True) as own:
        fill_finished(own, Noop, OLD - left, days=DAYS, first=left + gone)
    took: dict[bool, list[Measurement]] = {True: [], False: []}
    for prunes in (False, True, True, False):
        os.environ["BENCH_SAGAS"] = json.dumps({"PRUNE": prunes})
        took[prunes].append(drained("", count, seconds, *EMBEDDED_WORKER))
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        pruned = OLD - int(cursor.fetchone()[0])
    if not pruned:
        raise NotRun("ours.pruning: nothing was pruned meanwhile")
    for prunes, name in ((True, "ours.pruning"), (False, "ours.not_pruning")):
        notes = {"pruned": pruned} if prunes else {}
        spent = sum(one.seconds for one in took[prunes])
        print(Measurement(name=name, count=2 * count, seconds=spent, notes=notes).line())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
