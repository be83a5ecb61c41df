"""Incidents at the edge of the business transaction: what it commits, what it rolls back, and who notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from sagas import KeyConflict, NotInTransaction
from sagas.states import Status
from sagas.testing.proxy import CutAfter, CutAt, Fault, Pass, Proxy, Reset
from sagas.testing.servers import Postgres
from sagas_django.caller import DjangoCaller
from sagas_django.models import LogEntry, OutboxRow, SagaRow
from tests.integration.conftest import database_alias
from tests.settings import database_from_url
from tests.shop.models import Order, Seat
from tests.shop.sagas import Ordered, Trip
from tests.support.stories import drain

pytestmark = pytest.mark.usefixtures("shop")


def nothing_written(alias: str = "default") -> bool:
    """Whether no table of ours has a row."""
    return not any(model.objects.using(alias).exists() for model in (SagaRow, LogEntry, OutboxRow))


def test_tx02_the_id_is_known_before_the_commit() -> None:
    """`start()` gives the saga's final id at once, so that nobody has to choose between an id and durability."""
    with transaction.atomic():
        run = Trip.start(Ordered(1), key="a")
        order = Order.objects.create(title=str(run.id))
        assert Trip.start(Ordered(1), key="a").id == run.id
        with pytest.raises(KeyConflict, match=str(run.id)):
            Trip.start(Ordered(2), key="a")
    order.refresh_from_db()
    assert order.title == str(SagaRow.objects.get().id) == str(LogEntry.objects.get().saga_id)


@pytest.mark.parametrize("broken", ["before", "ours", "after"])
def test_tx03_a_broken_commit_hook_costs_no_saga(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in the transaction, so a hook that raises loses no saga; and our own hook stops none of the user's."""
    ran: list[str] = []

    def hook(name: str) -> Callable[[], None]:
        def call() -> None:
            if broken == name:
                raise ZeroDivisionError(name)
            ran.append(name)

        return call

    def place() -> None:
        with transaction.atomic():
            transaction.on_commit(hook("before"))
            Trip.start(Ordered(), key="a")
            transaction.on_commit(hook("after"))

    monkeypatch.setattr(DjangoCaller, "wake", lambda caller: hook("ours")())
    if broken == "ours":
        place()
        assert ran == ["before", "after"]
    else:
        with pytest.raises(ZeroDivisionError):
            place()
    drain()
    assert Trip.get(key="a").status == Status.COMPLETED


@pytest.mark.parametrize(("inner", "outer", "sagas"), [(True, False, 0), (False, True, 0), (True, True, 1)])
def test_tx07_a_released_savepoint_is_no_commit(
    inner: bool, outer: bool, sagas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the end of the outermost block makes a saga and sends its wake-up, whatever savepoints did before."""
    seen_at_wake: list[int] = []
    monkeypatch.setattr(DjangoCaller, "wake", lambda caller: seen_at_wake.append(SagaRow.objects.count()))
    with transaction.atomic():
        with transaction.atomic():
            Trip.start(Ordered(), key="a")
            transaction.set_rollback(not inner)
        assert seen_at_wake == []
        transaction.set_rollback(not outer)
    assert (SagaRow.objects.count(), seen_at_wake) == (sagas, [1] * sagas)


@pytest.mark.parametrize("rolled_back", ["default", "other"])
def test_tx08_the_saga_is_where_the_business_row_is(rolled_back: str, other_database: str) -> None:
    """Rows go to the database that was named and nowhere else: they vanish with it, and its own worker runs them.

    That local steps write to the same database is up to the project's routers; no check can see it.
    """
    with transaction.atomic(using="default"), transaction.atomic(using="other"):
        Order.objects.using("default").create(title="a")
        Order.objects.using("other").create(title="a")
        Trip.start(Ordered(), key="a", using="other")
        transaction.set_rollback(True, using=rolled_back)
    assert nothing_written("default")
    if rolled_back == "other":
        assert nothing_written("other")
    else:
        assert not Order.objects.using("default").exists()
        drain("other")
        assert Trip.get(key="a", using="other").status == Status.COMPLETED


def test_tx09_two_blocks_on_two_databases_are_two_transactions(other_database: str) -> None:
    """A saga follows exactly the database it was given, also where another block around it fails at its commit.

    There is no warning about the second open block: it is legal, and said in the guide for several databases.
    """
    with connection.cursor() as cursor:
        cursor.execute("create temp table parent (id int primary key)")
        cursor.execute("create temp table child (id int references parent deferrable initially deferred)")

    def place() -> None:
        with transaction.atomic(using="default"):
            Order.objects.create(title="lost")
            with connection.cursor() as cursor:
                cursor.execute("insert into child values (1)")
            with transaction.atomic(using="other"):
                Trip.start(Ordered(), key="a", using="other")

    with pytest.raises(IntegrityError):
        place()
    assert not Order.objects.exists()
    assert Trip.get(key="a", using="other").status == Status.RUNNING


def test_tx10_another_thread_is_outside_the_transaction() -> None:
    """Moved to another thread, `start()` meets another connection without a transaction, and refuses.

    On the loop itself Django refuses; in the thread that has the transaction the saga is part of it.
    """

    def elsewhere() -> None:
        try:
            Trip.start(Ordered(), key="elsewhere")
        finally:
            connections.close_all()

    async def view() -> None:
        block = transaction.atomic()
        await sync_to_async(block.__enter__)()
        with pytest.raises(SynchronousOnlyOperation):
            Trip.start(Ordered(), key="loop")
        with pytest.raises(NotInTransaction):
            await sync_to_async(elsewhere, thread_sensitive=False)()
        with pytest.raises(NotInTransaction):
            await asyncio.to_thread(elsewhere)
        await sync_to_async(Trip.start)(Ordered(), key="joined")
        assert await sync_to_async(SagaRow.objects.count)() == 1
        problem = ValueError("the view fails")
        await sync_to_async(block.__exit__)(type(problem), problem, None)

    async def request() -> None:
        await view()
        assert await sync_to_async(nothing_written)()
        await sync_to_async(connections.close_all)()

    asyncio.run(request())
    assert nothing_written()


def test_tx12_one_connection_and_one_transaction() -> None:
    """Business rows and ours are written by one transaction of one backend, and a violated constraint takes all."""
    Seat.objects.create(number=1)

    def place() -> None:
        with transaction.atomic():
            Order.objects.create(title="a")
            Trip.start(Ordered(), key="a")
            with connection.cursor() as cursor:
                tables = ("shop_order", "sagas_saga", "sagas_log", "sagas_outbox")
                cursor.execute(" union ".join(f"select xmin::text from {table}" for table in tables))
                assert len(cursor.fetchall()) == 1
            Seat.objects.create(number=1)

    with pytest.raises(IntegrityError):
        place()
    assert nothing_written()
    assert not Order.objects.exists()


def test_tx13_nothing_waits_for_a_commit_that_never_comes() -> None:
    """Inside a test's own transaction a saga is there at once, except one whose inner block was rolled back.

    What the testing kit makes of that inside `TestCase`: `test_tx_kit.py`.
    """
    with transaction.atomic():
        with transaction.atomic():
            Trip.start(Ordered(), key="rolled back")
            transaction.set_rollback(True)
        Trip.start(Ordered(), key="a")
        assert [saga.key for saga in SagaRow.objects.all()] == ["a"]
        assert (OutboxRow.objects.count(), LogEntry.objects.count()) == (1, 1)
        transaction.set_rollback(True)


@pytest.mark.parametrize("nested", [False, True])
def test_tx14_the_callers_connection_is_left_as_it_was(nested: bool) -> None:
    """`start()` sends its one statement: no COMMIT, ROLLBACK or SAVEPOINT, and loaded objects stay usable."""
    Order.objects.create(title="loaded lazily")
    with transaction.atomic():
        order = Order.objects.defer("title").get()
        pending = Order(title="not saved yet")
        before = (connection.connection, list(connection.savepoint_ids))
        with CaptureQueriesContext(connection) as sent:
            if nested:
                pending.save()
            Trip.start(Ordered(), key="a")
        assert len(sent) == 1 + nested
        assert "sagas_start_v1" in sent[-1]["sql"]
        assert (connection.connection, connection.savepoint_ids) == before
        assert connection.in_atomic_block
        assert order.title == "loaded lazily"
        assert (pending.pk is not None) == nested


@pytest.mark.parametrize(("fault", "arrives"), [(Reset(), False), (CutAfter(answer_bytes=0), True)])
def test_tx15_an_error_at_the_commit_reaches_the_caller(
    fault: Fault, arrives: bool, postgres_server: Postgres, fresh_database: str
) -> None:
    """The line breaks before COMMIT arrives, or before its answer does: the caller hears of it, and may ask again."""
    where: dict[str, Any] = database_from_url(fresh_database)

    def place(key: str) -> bool:
        with transaction.atomic(using="other"):
            run = Trip.start(Ordered(7), key=key, using="other")
            proxy.fault = fault
        return run.created

    with Proxy(postgres_server.host, postgres_server.port) as proxy:
        cut = where | {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
        with database_alias("other", cut):
            with pytest.raises(DatabaseError):
                place("one")
            fault, proxy.fault = Pass(), Pass()
            assert place("one") is not arrives
            assert SagaRow.objects.using("other").count() == 1
            drain("other")
            assert Trip.get(key="one", using="other").status == Status.COMPLETED


@pytest.mark.parametrize("arrives", [False, True])
def test_tx15_an_error_of_a_start_that_commits_itself_reaches_the_caller(
    arrives: bool, postgres_server: Postgres, fresh_database: str
) -> None:
    """With `own_transaction=True` the commit is ours: where its line breaks, the caller hears of it as well."""
    where: dict[str, Any] = database_from_url(fresh_database)

    def place() -> bool:
        return Trip.start(Ordered(7), key="one", using="other", own_transaction=True).created

    with Proxy(postgres_server.host, postgres_server.port) as proxy:
        cut = where | {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
        with database_alias("other", cut):
            assert SagaRow.objects.using("other").count() == 0  # connected
            proxy.fault = CutAt(words=b"sagas_start_v1", answered=arrives)
            with pytest.raises(DatabaseError):
                place()
            proxy.fault = Pass()
            connections["other"].close_if_unusable_or_obsolete()
            assert place() is not arrives
            assert SagaRow.objects.using("other").count() == 1
