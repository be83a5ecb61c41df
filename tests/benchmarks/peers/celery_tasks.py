"""Peer: the application of the bare Celery chain. No result backend, no late acknowledgement, generous prefetch."""

from __future__ import annotations

import os

from celery import Celery
from redis import Redis

URL = os.environ["REDIS_URL"]
DONE = "bench:done"  # what the last task of a chain counts up; nobody could know otherwise when all are done

app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_default_queue="bench",
    worker_prefetch_multiplier=64,  # Celery's advice for very short tasks; 1, 4 and 256 were slower
    broker_connection_retry_on_startup=True,
)
counter = Redis.from_url(URL)


@app.task
def first(number: int) -> int:
    return number


@app.task
def second(number: int) -> int:
    return number


@app.task
def third(number: int) -> None:
    counter.incr(DONE)
