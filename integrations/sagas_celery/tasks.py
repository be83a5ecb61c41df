"""The one task. Its name is stable: a worker that knows it can take any saga's message."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from sagas import tracing
from sagas_celery import inbox as inbox  # which says what message a task handles
from sagas_celery import process
from sagas_celery.checks import TASK
from sagas_celery.publisher import VERSION

log = logging.getLogger("sagas.worker")

FOREVER = 30 * 24 * 3600  # seconds; None would fall back to the app's limits, as with rate_limit
MOST_ROWS = 10_000
LONGEST_TRACE = 100  # characters of a traceparent


@shared_task(
    name=TASK, ignore_result=True, acks_late=False, reject_on_worker_lost=False, track_started=False,
    store_errors_even_if_ignored=False, time_limit=FOREVER, soft_time_limit=FOREVER, rate_limit=0, max_retries=0,
    serializer="json", expires=None,
)  # fmt: skip
def run(v: Any = None, store: Any = None, rows: Any = None, *, traces: Any = None, **_: Any) -> None:
    """Begin and run the rows of one message. A message is only a hint: one that makes no sense does nothing."""
    held = read_rows(v, rows)
    if held is None or not isinstance(store, str):
        log.error("a saga message that cannot be read was dropped; its rows, if any, are published again")
        return
    if traces is not None:
        tracing.carry(read_traces(traces, held))
    process.run(store, held)


def read_rows(version: Any, rows: Any) -> list[tuple[int, int]] | None:
    """The rows of a message; None when they cannot be read."""
    if version != VERSION or not isinstance(rows, list) or len(rows) > MOST_ROWS:
        return None
    for row in rows:
        if not (isinstance(row, list) and len(row) == 2 and all(_is_number(each) for each in row)):
            return None
    return [(row[0], row[1]) for row in rows]


def read_traces(traces: Any, held: list[tuple[int, int]]) -> dict[int, str]:
    """The traces of a message, by row; nothing where they cannot be read."""
    if not isinstance(traces, dict):
        return {}
    found = ((id, traces.get(str(id))) for id, _ in held)
    return {id: trace for id, trace in found if isinstance(trace, str) and len(trace) <= LONGEST_TRACE}


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
