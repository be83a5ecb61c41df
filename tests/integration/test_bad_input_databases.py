"""Databases that are not ready, and rows that this process cannot read: said clearly, and nobody else is held up."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction

from sagas import ConfigurationError, StoreNotReady
from sagas.states import Status
from sagas.testing.servers import Postgres
from sagas_django.checks import check_databases
from tests.settings import database_from_url
from tests.shop.models import Booking, Order
from tests.shop.sagas import Externals, Local, Ordered, Trip
from tests.shop.world import World
from tests.support.stories import NO_WAIT, begin, begin_many, drain, entries, outbox

from .conftest import database_alias

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def empty_database(shop: str, postgres_server: Postgres) -> Iterator[str]:
    """Alias "bare": a database in which nobody ran `migrate`."""
    url = postgres_server.create_database("sagas_bare")
    with database_alias("bare", database_from_url(url)) as alias:
        yield alias
    postgres_server.drop_database("sagas_bare")


@pytest.fixture
def sqlite(shop: str) -> Iterator[str]:
    """Alias "lite": an SQLite database in memory."""
    with database_alias("lite", {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}) as alias:
        yield alias


def test_missing_migration(empty_database: str) -> None:
    """Every call says which command to run, `start()`, `get()` and the worker alike."""
    key = "MARKER"
    advice = r"database 'bare' lacks the tables of sagas: run `manage.py migrate --database bare`"
    with pytest.raises(StoreNotReady, match=advice) as found, transaction.atomic(using="bare"):
        Trip.start(Ordered(), key=key, using="bare")
    told = "".join(traceback.format_exception(found.value))
    assert "MARKER" not in told and "\n" not in str(found.value)  # what it was asked to start is in no log
    with pytest.raises(StoreNotReady, match=advice):
        Trip.get(key="a", using="bare")
    with pytest.raises(StoreNotReady, match=advice):
        Trip.cancel(key="a", reason="x", using="bare")
    with pytest.raises(CommandError, match="migrate --database bare"):
        call_command("sagas", "worker", "--database", "bare", "--until-idle")
    assert [problem.id for problem in check_databases(None, ["bare"])] == ["sagas.W003"]


def test_wrong_alias() -> None:
    """A typo in `using=` lists the aliases that exist."""
    with pytest.raises(ConfigurationError, match=r"'defualt': no such alias in DATABASES; known: .*default"):
        Trip.start(Ordered(), key="a", using="defualt")
    with pytest.raises(ConfigurationError, match="neither a Django database alias nor a session or connection"):
        Trip.start(Ordered(), key="a", using=object())
    with pytest.raises(CommandError, match=r"'defualt': no such alias"):
        call_command("sagas", "worker", "--database", "defualt")


def test_sqlite(sqlite: str) -> None:
    """An alias that is no Postgres is refused, and what it is is said."""
    with pytest.raises(ConfigurationError, match=r"'lite': sagas need Postgres, this alias is sqlite"):
        Trip.start(Ordered(), key="a", using="lite")
    with pytest.raises(CommandError, match="Postgres"):
        call_command("sagas", "worker", "--database", "lite", "--until-idle")
    with pytest.raises(CommandError, match="Postgres"):
        call_command("sagas", "list", "--database", "lite")


def test_read_only_database() -> None:
    """On a replica, or after a failover, `start()` says that it is read-only; the order fails with it."""
    with connection.cursor() as cursor:
        cursor.execute("set default_transaction_read_only = on")
    with pytest.raises(StoreNotReady, match=r"database 'default' is read-only .*connect to the primary"):
        begin(Trip)
    with pytest.raises(StoreNotReady, match="read-only"):
        Trip.start(Ordered(), key="a", own_transaction=True)
    connections["default"].close()
    assert begin(Trip).created


def test_worker_on_a_read_only_database_waits(other_database: str, world: World, caplog: Any) -> None:
    """A worker whose database became read-only says so and tries again; nothing is lost, no attempt is burnt."""
    from sagas.embedded import Embedded
    from sagas_django.store import DjangoStore
    from tests.support.stories import Aside

    begin(Local, using="other")
    name = connections["other"].settings_dict["NAME"]
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as admin:
        admin.execute(f'alter database "{name}" set default_transaction_read_only = on')
        worker = Embedded(DjangoStore("other"), concurrency=1)
        with caplog.at_level(logging.WARNING, "sagas.worker"):
            running = Aside(worker.run)
            try:
                wait_for(lambda: "read-only" in caplog.text)
            finally:
                worker.stop()
                running.join()
        admin.execute(f'alter database "{name}" reset default_transaction_read_only')
    assert world.names == []
    drain("other")
    assert (Local.get(key="a", using="other").status, world.names) == (Status.COMPLETED, ["body"])


def wait_for(condition: Any, seconds: float = 10) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "change", ["name = 'test.gone'", "version = 99", "steps = '[]'", 'steps = \'{"body": {"status": "odd"}}\'']
)
def test_a_saga_nobody_here_knows_waits(world: World, caplog: pytest.LogCaptureFixture, change: str) -> None:
    """An unknown name or version, or a row that cannot be read, waits and is reported; its neighbours go on."""
    begin_many(Local, ["a", "odd", "c"])
    odd = Local.get(key="odd")
    with connection.cursor() as cursor:
        cursor.execute(f"update sagas_saga set {change} where key = 'odd'")
    with caplog.at_level(logging.WARNING, "sagas.worker"):
        drain(skip=NO_WAIT, check=False)
    assert {call.saga for call in world.calls} == {"a", "c"}
    [row] = outbox(odd)
    assert (row.holder, row.deliveries, row.failures) == (None, 0, 0)
    assert len(entries(odd)) == 1
    assert str(odd.id) in caplog.text
    with connection.cursor() as cursor:
        cursor.execute("update sagas_saga set name = 'test.local', version = 1, steps = '{}' where key = 'odd'")
        cursor.execute("update sagas_outbox set due_at = now()")
    drain()
    assert Local.get(key="odd").status == Status.COMPLETED


def test_a_step_nobody_here_knows_waits(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A row for a step that was renamed without a new version waits and is reported."""
    run, _ = begin(Local, "odd"), begin(Local, "b")
    with connection.cursor() as cursor:
        cursor.execute("update sagas_outbox set step = 'renamed' where saga_id = %s", [run.id])
    with caplog.at_level(logging.ERROR, "sagas.worker"):
        drain(skip=NO_WAIT, check=False)
    assert "has no step 'renamed'" in caplog.text
    assert {call.saga for call in world.calls} == {"b"}
    assert [row.deliveries for row in outbox(run)] == [0]


def test_a_row_without_a_saga_waits(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A row whose saga is gone is reported and holds nobody up."""
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into sagas_outbox (saga_id, kind, step, direction, queue)"
            " values (gen_random_uuid(), 'step', 'body', 'do', 'default')"
        )
    begin(Local)
    with caplog.at_level(logging.ERROR, "sagas.worker"):
        drain(skip=NO_WAIT)
    assert "cannot be read" in caplog.text
    assert Local.get(key="a").status == Status.COMPLETED


def test_one_bad_row_among_many(world: World) -> None:
    """A batch with an unreadable row is otherwise carried out whole."""
    begin_many(Externals, [str(number) for number in range(30)])
    with connection.cursor() as cursor:
        cursor.execute("update sagas_saga set steps = '[1]' where key = '7'")
    drain(skip=NO_WAIT, check=False)
    with connection.cursor() as cursor:
        cursor.execute("select status, count(*) from sagas_saga group by 1 order by 2")
        assert cursor.fetchall() == [("running", 1), ("completed", 29)]


def test_a_lost_database_fails_the_order_too(other_database: str) -> None:
    """`start()` on a connection that broke raises what Django raises for any other query."""
    with pytest.raises(DatabaseError), transaction.atomic(using="other"):  # noqa: PT012 - the transaction is the test
        Order.objects.using("other").create(title="a")
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(%s)", [connections["other"].connection.info.backend_pid]
            )  # fmt: skip
        Trip.start(Ordered(), key="a", using="other")
    connections["other"].close()
    assert Booking.objects.using("other").count() == Order.objects.using("other").count() == 0
