"""Telling what became of sagas, and making workers run them, in the test's own process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from django.db import connections, transaction

from sagas import Saga
from sagas.embedded import Embedded
from sagas.engine import SagaRun
from sagas.verify import Finding, verify
from sagas_django.models import DedupeRecord, LogEntry, OutboxRow
from sagas_django.store import DjangoStore
from tests.shop.sagas import Ordered

SOON = timedelta(seconds=20)  # backoffs of the tests' sagas are shorter, `settle_after` and leases longer
NO_WAIT = timedelta(0)
ROUNDS = 60


def begin(saga: type[Saga[Any]], key: str = "a", input: Any = None, *, using: str = "default") -> SagaRun:
    """Start a saga in a transaction of its own."""
    with transaction.atomic(using=using):
        return saga.start(Ordered() if input is None else input, key=key, using=using)


def begin_many(saga: type[Saga[Any]], keys: Iterable[str], *, using: str = "default") -> None:
    """Start one saga for each key in one transaction."""
    with transaction.atomic(using=using):
        for key in keys:
            saga.start(Ordered(), key=key, using=using)


def drain(using: str = "default", *, skip: timedelta = SOON, concurrency: int = 1, check: bool = True) -> None:
    """Run an embedded worker until nothing is due, without waiting for backoffs.

    Args:
        using: the database alias.
        skip: rows that nobody holds and that are due within this time are made due.
        concurrency: bodies at the same time.
        check: also see to it that every saga agrees with its log.
    """
    for _ in range(ROUNDS):
        Embedded(DjangoStore(using), concurrency=concurrency).run(until_idle=True)
        if not bring_forward(using, skip):
            break
    else:
        raise AssertionError(f"after {ROUNDS} rounds there is still work: {list(OutboxRow.objects.values())}")
    if check:
        assert differences(using) == []


def bring_forward(using: str = "default", skip: timedelta = SOON) -> int:
    """Make rows due that nobody holds and that will be due within `skip`; returns how many there are."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "update sagas_outbox set due_at = clock_timestamp()"
            " where holder is null and due_at <= clock_timestamp() + make_interval(secs => %s)",
            [skip.total_seconds()],
        )
        return int(cursor.rowcount)


def expire_leases(using: str = "default") -> None:
    """Let the leases of all workers end, as if they had died a while ago."""
    with connections[using].cursor() as cursor:
        cursor.execute("update sagas_outbox set due_at = clock_timestamp() where holder is not null")


def differences(using: str = "default") -> list[str]:
    """Where sagas do not agree with their logs."""
    with DjangoStore(using).connect() as connection:
        return [str(found) for found in verify(connection) if isinstance(found, Finding)]


def log_of(saga: SagaRun | UUID, using: str = "default") -> list[str]:
    """The saga's log in short: kind and step of each entry."""
    return [f"{entry.kind} {entry.step or ''}".strip() for entry in entries(saga, using)]


def entries(saga: SagaRun | UUID, using: str = "default") -> list[LogEntry]:
    """The saga's log."""
    id = saga if isinstance(saga, UUID) else saga.id
    return list(LogEntry.objects.using(using).filter(saga_id=id).order_by("seq"))


def outbox(saga: SagaRun, using: str = "default") -> list[OutboxRow]:
    """The saga's rows in the outbox."""
    return list(OutboxRow.objects.using(using).filter(saga_id=saga.id).order_by("id"))


def dedupe(saga: SagaRun) -> dict[str, str]:
    """What the dedupe table says about the saga's effects: state by the end of their keys."""
    return {
        record.key.split(":", 1)[1]: record.state for record in DedupeRecord.objects.filter(saga_id=saga.id)
    }  # fmt: skip


class Aside:
    """A function that runs in a thread of its own, and leaves none of Django's connections open."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as problem:
            self._error = problem
        finally:
            connections.close_all()

    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def join(self, seconds: float = 20) -> None:
        """Wait for it, and raise what it raised."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "it does not end"
        if self._error is not None:
            raise self._error


@contextmanager
def second_connection(using: str = "default", *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own to the database of an alias, which gives up on locks after a second."""
    with DjangoStore(using).connect() as connection:
        connection.execute("set lock_timeout = '1s'")
        connection.autocommit = autocommit
        yield connection
        connection.rollback()
