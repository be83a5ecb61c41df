"""What runs in queues with limits: bodies that note how many of them are at work at the same time."""

from __future__ import annotations

import os

import psycopg
from django.db import connection

from sagas import Retry, Saga, external_step

OFTEN = Retry(max_attempts=50, first=0.1, factor=1.1, longest=0.3)
BODIES = 4711  # the class of the locks that bodies hold while they are at work


def at_work(run: Saga[float], seconds: float) -> None:
    """Be at work for some time, and note how many are: each holds a lock that ends with its process."""
    settings = connection.settings_dict
    with psycopg.connect(
        host=settings["HOST"], port=settings["PORT"], user=settings["USER"], password=settings["PASSWORD"],
        dbname=settings["NAME"], autocommit=True,
    ) as wire:  # fmt: skip
        wire.execute("select pg_advisory_lock(%s, hashtext(%s))", [BODIES, run.key])
        wire.execute(
            "insert into relay_note (key, what, attempt, pid, backend)"
            " select %s, count(*)::text, %s, %s, pg_backend_pid()"
            " from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()"
            " where l.locktype = 'advisory' and l.classid = %s and l.granted",
            [run.key, run.attempt, os.getpid(), BODIES],
        )
        wire.execute("select pg_sleep(%s)", [seconds])


class Narrow(Saga[float], name="relay.narrow", version=1):
    """One step in a queue with limits, that takes so many seconds."""

    @external_step(queue="narrow", pivot=True, retry=OFTEN, max_deliveries=50)
    def act(self) -> None:
        at_work(self, self.input)


class Other(Saga[float], name="relay.other", version=1):
    """The same, of another name."""

    @external_step(queue="narrow", pivot=True, retry=OFTEN, max_deliveries=50)
    def act(self) -> None:
        at_work(self, self.input)


class Urgent(Saga[float], name="relay.urgent", version=1):
    """The same, before the others."""

    @external_step(queue="narrow", pivot=True, retry=OFTEN, priority=5, max_deliveries=50)
    def act(self) -> None:
        at_work(self, self.input)


class InOrder(Saga[float], name="relay.in_order", version=1):
    """Two steps of one queue."""

    @external_step(queue="narrow", compensate=None, retry=OFTEN, max_deliveries=50)
    def first(self) -> None:
        at_work(self, self.input)

    @external_step(queue="narrow", pivot=True, retry=OFTEN, max_deliveries=50)
    def second(self) -> None:
        at_work(self, self.input)
