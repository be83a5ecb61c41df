"""Incidents with database connections: shared after a fork, ended by the server, left in a failed transaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from psycopg.pq import TransactionStatus

from sagas import Refused
from sagas.states import Status
from sagas.testing.processes import ProcessGroup
from sagas_django.models import LogEntry
from tests.shop.models import Booking, Seat
from tests.shop.sagas import Charge, Local, Trip
from tests.shop.world import World
from tests.support import forked
from tests.support.stories import Aside, begin, begin_many, drain, entries, expire_leases, second_connection
from tests.support.workers import begin_due, one_worker, run_batch, run_together

pytestmark = pytest.mark.usefixtures("shop")


def end_all_connections() -> None:
    """What an administrator or a failover does: every backend of this database ends."""
    with second_connection() as other:
        other.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )


def open_transactions() -> list[Any]:
    """Backends that sit in a transaction and do nothing."""
    with second_connection() as other:
        return other.execute(
            "select pid, query from pg_stat_activity where datname = current_database() and state like 'idle in%%'"
        ).fetchall()


def test_db01_nothing_is_shared_across_a_fork(fresh_database: str, process_group: ProcessGroup) -> None:
    """Children forked from a process that has worked already each open a connection of their own; the parent's
    outlives them, and every step is recorded once."""
    program = process_group.python(
        "-m", "tests.support.forked",
        name="forked", env={"DATABASE_URL": fresh_database, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert program.wait(60) == 0, program.output()
    found = json.loads(program.output().strip().splitlines()[-1])
    assert all(isinstance(child, int) for child in found["children"]), found
    assert len({found["before"], *found["children"]}) == 1 + forked.CHILDREN
    assert found["after"] == found["before"]
    assert found["completed"] == (forked.CHILDREN + 2) * forked.SAGAS_EACH


@pytest.mark.parametrize("when", ["idle", "before the record"])
def test_db03_a_connection_that_the_server_ended_is_replaced(
    when: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same worker goes on, and no attempt is burnt: not by an idle connection that is gone, and not by one that
    goes between effect and record, whose result is recorded over a new one instead of being doubted."""
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)  # Django's is kept as well
    with one_worker() as worker:
        begin(Charge, "first")
        for _ in range(2):
            run_batch(worker, begin_due(worker))
        if when == "idle":
            end_all_connections()
        else:
            world.plan("charge", lambda run: (end_all_connections(), "charge-7")[1])
        Aside(lambda: begin(Charge, "second")).join()
        for _ in range(2):
            run_batch(worker, begin_due(worker))
    for key in ("first", "second"):
        saga = Charge.get(key=key)
        assert (saga.status, saga.steps["charge"].do.attempts) == (Status.COMPLETED, 1)  # type: ignore[index]
    assert world.names == ["charge", "charge"]


def test_db03_a_transaction_that_the_server_ended_did_not_happen(world: World) -> None:
    """A local step whose connection ends under it is rolled back and runs again in the same process."""

    def ended(run: Any) -> None:
        end_all_connections()

    world.plan("body", ended)
    begin(Local)
    with one_worker() as worker:
        run_batch(worker, begin_due(worker))
        assert not Booking.objects.exists()
        expire_leases()
        run_batch(worker, begin_due(worker))
    assert Local.get(key="a").status == Status.COMPLETED
    assert Booking.objects.count() == 1


def test_db04_a_failed_transaction_poisons_nobody(world: World) -> None:
    """A body that swallows its own database error is not done, for its writes are lost; those after it are unharmed."""
    Seat.objects.create(number=1)

    def swallow(run: Any) -> None:
        try:
            Seat.objects.create(number=1)
        except DatabaseError:
            return

    world.always("body", swallow, saga="swallows")
    world.always("body", ValueError("raises"), saga="raises")
    begin_many(Local, ["swallows", "raises", "good"])
    run_together()
    assert Local.get(key="good").status == Status.COMPLETED
    assert not LogEntry.objects.filter(saga_id=Local.get(key="swallows").id, kind="step_done").exists()
    drain()
    assert Local.get(key="swallows").status == Local.get(key="raises").status == Status.COMPENSATED
    assert [booking.saga for booking in Booking.objects.all()] == ["good"]


def test_db04_a_connection_left_in_a_transaction_by_an_external_body(world: World) -> None:
    """External bodies share a thread: one that leaves autocommit off, in a failed transaction, hands it to nobody."""

    def leave_open(run: Any) -> str:
        transaction.set_autocommit(False)
        with connection.cursor() as cursor, pytest.raises(DatabaseError):
            cursor.execute("select 1/0")
        return "charge-7"

    def count(run: Any) -> str:
        return str(Seat.objects.count())

    world.plan("charge", leave_open, saga="leaves")
    world.plan("charge", count, saga="next")
    begin_many(Charge, ["leaves", "next"])
    begin(Local, "local")
    run_together(goes_on=True)
    assert Local.get(key="local").status == Status.COMPLETED
    for key in ("leaves", "next"):
        assert Charge.get(key=key).status == Status.COMPLETED, entries(Charge.get(key=key))[-1].data
    assert open_transactions() == []


class Pooled(psycopg.Cursor[Any]):
    """As behind a pooler in transaction mode: each transaction may meet a backend that knows nothing of the last."""

    left_behind = 0

    def execute(self, *given: Any, **options: Any) -> Any:
        wire = self.connection.pgconn
        if self.connection.info.transaction_status == TransactionStatus.IDLE:
            found = wire.exec_(
                b"select (select count(*) from pg_prepared_statements) + (select count(*) from pg_listening_channels())"
            ).get_value(0, 0)
            Pooled.left_behind += int(found or 0)
            wire.exec_(b"discard all")
        return super().execute(*given, **options)


def test_db05_no_state_is_kept_in_a_session(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PREPARED and WAKE off nothing of a session is relied on: statements, locks, LISTEN and SET may be gone."""
    settings.SAGAS = {"WAKE": False, "PREPARED": False}
    monkeypatch.setattr(psycopg, "Cursor", Pooled)
    monkeypatch.setattr(Pooled, "left_behind", 0)
    keys = [str(number) for number in range(10)]
    begin_many(Trip, keys)
    for key in keys[::2]:
        world.plan("confirm", Refused("no"), saga=key)
    for _ in keys:
        run_together()
    drain()
    found = [Trip.get(key=key).status for key in keys]
    assert found == [Status.COMPENSATED, Status.COMPLETED] * 5
    with second_connection() as other:
        held = other.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
    assert (held, Pooled.left_behind) == ((0,), 0)
