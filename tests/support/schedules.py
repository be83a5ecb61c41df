"""Schedules that are declared for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from django.db import connections
from psycopg.sql import SQL, Identifier

from sagas import Saga, Schedule
from sagas.schedules.declaration import schedules
from tests.shop.sagas import Ordered, Trip

NAME = "test.nightly"
MIDNIGHT = datetime(2027, 3, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    """A moment of the night that these tests play in."""
    return MIDNIGHT + timedelta(hours=hours)


@contextmanager
def declared(saga: type[Saga[Any]] = Trip, **options: Any) -> Iterator[Schedule[Any]]:
    """A schedule, hourly unless said otherwise, that this process knows for as long as the block lasts."""
    if "every" not in options:
        options.setdefault("cron", "0 * * * *")
    name = options.setdefault("name", NAME)
    options.setdefault("input", lambda tick: Ordered(tick.hour))
    before = schedules.find(name)
    schedules.discard(name)
    try:
        yield Schedule(saga, **options)
    finally:
        schedules.discard(name)
        if before is not None:
            schedules.add(before)


class Raises:
    """Makes no input any more: an error, once it is told so."""

    error: Exception | None = None

    def __call__(self, tick: datetime) -> Ordered:
        if self.error is not None:
            raise self.error
        return Ordered(tick.hour)


@contextmanager
def no_more_connections() -> Iterator[None]:
    """Postgres refuses every further connection to the database of the tests; those that are open go on."""
    with connections["default"].cursor():  # which is open then
        params = connections["default"].get_connection_params()
    names = {name: params[name] for name in ("host", "port", "user", "password") if params.get(name)}
    with psycopg.connect(**names, dbname="postgres", autocommit=True) as wire:
        database = Identifier(params["dbname"])
        wire.execute(SQL("alter database {} allow_connections false").format(database))
        try:
            yield
        finally:
            wire.execute(SQL("alter database {} allow_connections true").format(database))
