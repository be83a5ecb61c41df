"""The database seen from outside of the integration, and workers whose single moves the suite makes itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Generic, TypeVar

import psycopg

from sagas import clock
from sagas.embedded import Embedded
from sagas.ports import Store
from sagas.store.rows import Delivery
from sagas.testing.conformance.adapter import NOTE
from sagas.verify import Finding, verify
from sagas.worker import Worker
from sagas_outbox import claims
from sagas_outbox.claims import Room

T = TypeVar("T")
PATIENCE = 20.0  # seconds to wait for something that has to come
EVERY = 0.02

EMPTY = """
set local lock_timeout = '5s';
set local sagas.pruning = 'on';
delete from sagas_outbox; delete from sagas_saga; delete from sagas_log; delete from sagas_dedupe;
delete from sagas_signal; delete from sagas_lock; delete from sagas_pace; delete from sagas_pause;
delete from sagas_slot; delete from sagas_queue;
drop table if exists conformance_note
"""
OPEN = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and xact_start is not null and backend_type = 'client backend'"
)
IDLE = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and backend_type = 'client backend'"
)
BLOCKED = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
CUT = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and backend_type = 'client backend'"
)


def reset(url: str) -> None:
    """No sagas, and an empty table for notes."""
    with psycopg.connect(url) as connection:
        connection.execute(EMPTY)
        connection.execute(NOTE)


def rows(url: str, query: str, *parameters: object) -> list[Any]:
    """What a statement of another session finds; single columns without their tuple."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(query.encode(), parameters or None).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def notes(url: str) -> list[str]:
    """The notes that are committed, in order."""
    return rows(url, "select text from conformance_note order by text")


def keys(url: str) -> list[str]:
    """The keys of the sagas that are committed, in order."""
    return rows(url, "select key from sagas_saga order by key")


def statuses(url: str) -> dict[str, str]:
    """The status of each saga, by key."""
    return dict(rows(url, "select key, status from sagas_saga order by key"))


def until(url: str, query: str, holds: Callable[[Any], bool], what: str) -> None:
    """Wait until the one value that a query finds is as it should be.

    Raises:
        AssertionError: it did not get there in time.
    """
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            row = connection.execute(query.encode()).fetchone()
            if row is not None and holds(row[0]):
                return
            assert time.monotonic() < deadline, f"{what}: after {PATIENCE} s it is {row}"
            time.sleep(EVERY)


def until_blocked(url: str, many: int = 1) -> None:
    """Wait until so many sessions wait for a lock."""
    until(url, BLOCKED, lambda found: bool(found >= many), "sessions that wait for a lock")


def until_nobody_is_idle_in_transaction(url: str) -> None:
    """Wait until no session is idle with a transaction open; sessions that were just closed may take a moment."""
    until(url, IDLE, lambda found: bool(found == 0), "sessions idle in transaction")


class Aside(Generic[T]):
    """A function in a thread of its own.

    Args:
        function: it.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._outcome: T
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._function()
        except BaseException as problem:
            self._problem = problem

    def join(self) -> T:
        """What it returned, or what it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{self._function} has not ended within {PATIENCE} s"
        if self._problem is not None:
            raise self._problem
        return self._outcome


def drain(store: Store, *, concurrency: int = 1, rounds: int = 40) -> None:
    """Run an embedded worker until nothing is due, without waiting for backoffs; then every saga agrees with its log.

    Raises:
        AssertionError: there is always more to do, or a saga differs from its log.
    """
    for _ in range(rounds):
        Embedded(store, concurrency=concurrency).run(until_idle=True)
        with closing(store.connect()) as connection:
            moved = connection.execute(
                "update sagas_outbox set due_at = clock_timestamp()"
                " where holder is null and due_at <= clock_timestamp() + interval '20 s'"
            ).rowcount
        if not moved:
            break
    else:
        raise AssertionError(f"there is still work after {rounds} rounds")
    with closing(store.connect()) as connection:
        assert not [str(found) for found in verify(connection) if isinstance(found, Finding)]


def expire_leases(store: Store) -> None:
    """Let every lease end now."""
    with closing(store.connect()) as connection:
        connection.execute("update sagas_outbox set due_at = clock_timestamp() where holder is not null")


@contextmanager
def one_worker(store: Store) -> Iterator[Worker]:
    """A worker that does not go on with the next step by itself."""
    worker = Worker(
        store, end_process=lambda reason: None, ends_overruns=False, goes_on=lambda *_: False, draining=lambda: False
    )  # fmt: skip
    try:
        yield worker
    finally:
        worker.stop()


def begin_due(worker: Worker) -> list[Delivery]:
    """Lock and begin everything that is due, as an embedded worker does."""
    with closing(worker.store.connect()) as connection, connection.transaction():
        due = claims.lock_due(connection, [Room("default", 1000)], begun=True, now=clock.now())
        return worker.begin(connection, [held for held, _ in due], published=False)


def run_together(store: Store) -> None:
    """Run everything that is due in one batch, in this thread, as one message would be."""
    with one_worker(store) as worker:
        worker.run(worker.take_up(begin_due(worker)))
