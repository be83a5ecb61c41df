"""The physical limit: the rows that a saga of three steps writes, written in batches by bare SQL, without any logic.

`python -m tests.benchmarks.limit COUNT`. What a worker has to write, once: take over 100 outbox rows, then three
times the outbox row, the saga and its log entries in one transaction. Nothing is computed, checked or sent to Python;
whoever is to be safe has more to do. The rows are made as `start()` makes them, before the clock runs.
"""

from __future__ import annotations

import sys
import time

from tests.benchmarks.ours import backlog, clear, connection, transaction
from tests.benchmarks.report import Measurement

BATCH = 100
IDS = "select id from sagas_outbox order by due_at limit %s"
BEGIN = """update sagas_outbox set holder = 'worker:limit', token = token + 1, deliveries = deliveries + 1,
    due_at = clock_timestamp() + interval '30 seconds', first_begun_at = clock_timestamp() where id = any(%s)"""
STEPS = """{"%s": {"status": "done", "result": 1, "ended": 1, "do": {"attempts": 1, "first_begun_at": 1790000000.5}}}"""
DATA = """{"direction": "do", "deliveries": 1, "first_begun_at": 1790000000.5, "result": null}"""
SAGA = """update sagas_saga s set seq = %s, status = %s, steps = %s, updated_at = clock_timestamp(),
    finished_at = case when %s then clock_timestamp() end
    from sagas_outbox o where o.id = any(%s) and s.id = o.saga_id"""
LOG = """insert into sagas_log (saga_id, seq, kind, step, attempt, token, data)
    select saga_id, %s, %s, %s, 1, token, %s from sagas_outbox where id = any(%s)"""
KEEP = "update sagas_outbox set step = %s, token = token + 1, due_at = clock_timestamp() where id = any(%s)"
DROP = "delete from sagas_outbox where id = any(%s)"


def main(count: int) -> None:
    """Write what `count` sagas need, by batches."""
    clear()
    backlog(count)
    begun = time.monotonic()
    with connection.cursor() as cursor:
        for _ in range(count // BATCH):
            with transaction.atomic():
                cursor.execute(IDS, [BATCH])
                ids = [row[0] for row in cursor.fetchall()]
                cursor.execute(BEGIN, [ids])
            for number, step in enumerate(("first", "second", "third"), 1):
                last = step == "third"
                with transaction.atomic():
                    cursor.execute(SAGA, [number + last, "completed" if last else "running", STEPS % step, last, ids])
                    cursor.execute(LOG, [number, "step_done", step, DATA, ids])
                    if last:
                        cursor.execute(LOG, [number + 1, "completed", None, "{}", ids])
                        cursor.execute(DROP, [ids])
                    else:
                        cursor.execute(KEEP, [step, ids])
    took = time.monotonic() - begun
    print(Measurement(name="limit.bare_sql", count=count // BATCH * BATCH, seconds=took).line())


if __name__ == "__main__":
    main(int(sys.argv[1]))
