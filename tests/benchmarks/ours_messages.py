"""Ours: a backlog of plain messages to a Celery task, worked off by one relay to Redis.

`python -m tests.benchmarks.ours_messages COUNT SECONDS`.
"""

from __future__ import annotations

import sys
import time

from sagas.testing.processes import ProcessGroup
from sagas_outbox import publish
from tests.benchmarks.celery_app import app
from tests.benchmarks.ours import RELAY, asked, clear, connection, transaction, wait_until
from tests.benchmarks.report import Measurement
from tests.benchmarks.scripts import ROOT

LEFT = "select exists (select from sagas_message where state = 'waiting')"
COUNT = "select count(*) from sagas_message where state = 'waiting'"


def left() -> int:
    """Messages that are not sent."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT)
        return int(cursor.fetchone()[0])


def main(count: int, seconds: float) -> None:
    """Measure one backlog."""
    clear()
    app.control.purge()
    for first in range(0, count, 100):
        with transaction.atomic():
            for number in range(first, min(first + 100, count)):
                publish("bench.note", [number], queue="outbox-bench")
    with ProcessGroup() as group:
        relay = group.start(RELAY, cwd=ROOT)
        wait_until(lambda: left() < count, relay, every=0.002, seconds=seconds)
        begun, before = time.monotonic(), left()
        wait_until(lambda: not asked(LEFT), relay, every=0.01, seconds=seconds)
        took = time.monotonic() - begun
        relay.kill()
    with app.connection_for_write() as broker:
        broker.default_channel.queue_purge("outbox-bench")
    print(Measurement(name="ours.messages", count=max(before, 1), seconds=took).line())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
